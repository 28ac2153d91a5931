"""
Which cases are behind a prediction?
====================================

A handwritten digit and its nearest training cases under the metric at that digit.
"""

from sklearn.datasets import load_digits

from plml import PLML
from plml.inspection import NeighborsDisplay

X, y = load_digits(return_X_y=True)  # pixels are in the same units: nothing to standardise
model = PLML(random_state=0).fit(X[:1500], y[:1500])
NeighborsDisplay.from_estimator(model, X[1500:], query=7, n_neighbors=5, image_shape=(8, 8))
