"""
Why this class and not another?
===============================

Left: the contribution of each feature to the margin, which is the squared distance to the nearest
wine of the runner-up class minus that to the nearest wine of the predicted class. Right: the
features that set the classes apart near this wine, compared with all of the data.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from plml import PLML
from plml.inspection import ExplanationDisplay

X, y = load_wine(return_X_y=True, as_frame=True)
X = StandardScaler().set_output(transform="pandas").fit_transform(X)
train = X.index % 2 == 0
model = PLML(n_bases=5, random_state=0).fit(X[train], y[train])
ExplanationDisplay.from_estimator(model, X[~train], query=3)
