"""
Did the fit converge?
=====================

The value and the relative gap of both stages over the iterations. A fit ends when the gap, an
upper bound on the distance to the optimum, is at most ``tol`` (the dashed line).
"""

from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from plml import PLML
from plml.inspection import ConvergenceDisplay

X, y = load_digits(return_X_y=True)
model = PLML(regularization=0.1, random_state=0).fit(StandardScaler().fit_transform(X), y)
ConvergenceDisplay.from_estimator(model)
