"""
Which directions separate the classes, and where?
=================================================

These three classes differ in different directions in different places. Every ellipse is the set of
points at the same local distance from its centre. It is short across the boundary and long along
it.
"""

import numpy as np

from plml import PLML
from plml.inspection import LocalMetricDisplay

rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, size=900)
radius = 1.0 + 0.35 * (np.arange(900) % 3) + 0.07 * rng.normal(size=900)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
y = np.arange(900) % 3

model = PLML(n_bases=12, regularization=0.05, smoothness=1.0, random_state=0).fit(X, y)
LocalMetricDisplay.from_estimator(model, n_points=45)
