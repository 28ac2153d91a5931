"""
Is one metric enough?
=====================

Three classes in concentric half rings: the vertical coordinate separates them at the top, the
horizontal one at the sides. A single metric has to compromise; a metric per point does not. Every
ellipse is the set of points at the same distance from its centre. It is short across the boundary
and long along it. With few training points local metrics pay off, because an ellipse that is long
along the ring reaches neighbours of the same class.
"""

import matplotlib.pyplot as plt
import numpy as np

from plml import PLML, SML
from plml.inspection import LocalMetricDisplay


def half_rings(n, rng):
    """Points of three classes, at radius 1.0, 1.2 and 1.4."""
    label = np.arange(n) % 3
    radius = 1.0 + 0.2 * label + 0.05 * rng.normal(size=n)
    angle = rng.uniform(0, np.pi, size=n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), label


rng = np.random.default_rng(0)
X, y = half_rings(150, rng)
X_test, y_test = half_rings(3000, rng)

one = SML(n_neighbors=5).fit(X, y)
many = PLML(n_bases=12, n_neighbors=5, regularization=0.05, smoothness=1.0, random_state=0)
many.fit(X, y)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.1), layout="constrained")
for model, name, ax in zip((one, many), ("One metric", "A metric per point"), axes, strict=True):
    LocalMetricDisplay.from_estimator(model, n_points=40, ax=ax)
    ax.get_legend().remove()
    ax.set(xlim=(-1.65, 1.65), ylim=(-0.3, 1.65), xlabel="", ylabel="")
    ax.set_title(f"{name}: {model.score(X_test, y_test):.1%} correct", loc="left")
