"""
Which features made it near
===========================

The squared local distance to the nearest wine, split over the features; and what the metric looks
at here, compared with the whole of the data.
"""

from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plml import PLML
from plml.inspection import ExplanationDisplay
from plml.preprocessing import MeanNormScaler

X, y = load_wine(return_X_y=True, as_frame=True)
X = (
    make_pipeline(StandardScaler(), MeanNormScaler())
    .set_output(transform="pandas")
    .fit_transform(X)
)
train = X.index % 2 == 0
model = PLML(n_bases=5, random_state=0).fit(X[train], y[train])
ExplanationDisplay.from_estimator(model, X[~train], query=3)
