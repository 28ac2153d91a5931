"""
Where does each basis metric count?
===================================

The metric at every point is a convex combination of the basis metrics. The weights vary smoothly
over the data; the star marks the anchor of a basis.
"""

from sklearn.datasets import load_digits

from plml import PLML
from plml.inspection import WeightsDisplay

X, y = load_digits(return_X_y=True)  # pixels are in the same units: nothing to standardise
model = PLML(n_bases=8, random_state=0).fit(X, y)
WeightsDisplay.from_estimator(model, n_columns=4)
