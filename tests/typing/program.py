"""A program with types. ``make test-wheel`` checks it with mypy against the wheel, and runs it."""

from typing import assert_type

import numpy as np
from sklearn.datasets import load_iris

import plml
from plml import DANN, LMNN, PLML, SML, AutoPLML, KernelSVM
from plml.inspection.explanation import Explanation
from plml.preprocessing import MeanNormScaler

X, y = load_iris(return_X_y=True)

model = assert_type(PLML(n_bases=3, random_state=0).fit(X, y), PLML)
assert_type(model.predict(X), np.ndarray)
assert_type(model.predict_proba(X), np.ndarray)
assert_type(model.pair_distance(X[:4].reshape(2, 2, 4)), np.ndarray)
assert_type(model.get_mahalanobis_matrix(X), np.ndarray)
assert_type(model.local_weights(X), np.ndarray)
assert_type(model.index_vectors(), np.ndarray)
assert_type(model.anchors_, np.ndarray)
assert_type(model.basis_metrics_, np.ndarray)
assert_type(model.dual_gap_, float)
assert_type(model.n_bases, int)
assert_type(model.explain(X[:1]), Explanation)
assert_type(plml.explain(model, X[:1]), Explanation)
assert_type(plml.__version__, str)

assert_type(DANN().fit(X, y), DANN)
assert_type(KernelSVM().fit(X, y), KernelSVM)
assert_type(LMNN().fit(X, y).transform(X), np.ndarray)
assert_type(SML().fit(X, y).components_, np.ndarray)
assert_type(AutoPLML(random_state=0).fit(X, y), AutoPLML)
assert_type(MeanNormScaler().fit(X), MeanNormScaler)
