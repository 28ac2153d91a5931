"""
How the bases share the data
============================

Every point has a convex combination of the basis metrics. The weights vary smoothly over the data;
the star is the anchor of a basis.
"""

from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize, scale

from plml import PLML
from plml.inspection import WeightsDisplay

X, y = load_digits(return_X_y=True)
X = normalize(scale(X))
model = PLML(n_bases=8, random_state=0).fit(X, y)
WeightsDisplay.from_estimator(model, n_columns=4)
