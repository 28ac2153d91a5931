"""
Does the learned metric help?
=============================

It does not always: if Euclidean distance already separates the classes, there is little to gain.
Here every row of two tables is predicted by a model that was fitted without it, and by simpler
methods. The bars are 95% intervals of the accuracy.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris, make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plml import SML
from plml.evaluation import cross_evaluate

noisy = make_classification(600, n_features=20, n_informative=4, n_redundant=2, random_state=0)
tables = {"iris": load_iris(return_X_y=True), "14 of 20 columns are noise": noisy}

figure, axes = plt.subplots(1, 2, figsize=(9, 2.2), layout="constrained", sharey=True)
for (name, (X, y)), ax in zip(tables.items(), axes, strict=True):
    model = make_pipeline(StandardScaler(), SML(prior="identity", n_neighbors=9))
    figures = cross_evaluate(model, X, y).figures
    accuracy, low, high = np.array([figure[:3] for figure in figures.values()]).T
    ax.errorbar(accuracy, list(figures), xerr=[accuracy - low, high - accuracy], fmt="o")
    ax.set_title(name, loc="left")
    ax.set_xlabel("accuracy")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].invert_yaxis()
