"""The paper's protocol: preprocessing and splits."""

from collections.abc import Iterator
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from plml_study.datasets import SOURCES, Dataset

#: Data sets that the paper reduces by PCA to 95% of the variance.
REDUCED = frozenset({"usps", "isolet", "mnist"})
N_FOLDS = 10
#: Above so many training rows (MNIST alone) data is float32, the SVM selects its kernel on a
#: subsample, and LMNN runs its factored solver.
LARGE = 20_000
#: Figure 1's data: four digits of MNIST on two principal components.
FOUR_DIGITS = "mnist-0124"


def preprocessing(name: str) -> Pipeline:
    """Standardise, reduce (USPS, Isolet, MNIST), then scale every row to unit length.

    Figure 1 uses the plane itself: two principal components of the raw pixels, on one scale.

    Parameters
    ----------
    name : str
        Of a data set.

    Returns
    -------
    Pipeline

    Examples
    --------
    >>> from plml_study.protocols import preprocessing
    >>> list(preprocessing("letter").named_steps)
    ['standardize', 'normalize']
    >>> list(preprocessing("usps").named_steps)
    ['standardize', 'pca', 'normalize']
    """
    if name == FOUR_DIGITS:
        return Pipeline(
            [("pca", PCA(n_components=2, svd_solver="covariance_eigh")), ("scale", OneScale())]
        )
    reduction = (
        [("pca", PCA(n_components=0.95, svd_solver="covariance_eigh"))] if name in REDUCED else []
    )
    return Pipeline([("standardize", StandardScaler()), *reduction, ("normalize", Normalizer())])


class OneScale(TransformerMixin, BaseEstimator):
    """Divide everything by the root mean square of the training values: directions stay as is."""

    def fit(self, X: np.ndarray, y: object = None) -> Self:
        """Measure the root mean square of X."""
        self.scale_ = float(np.sqrt(np.mean(np.square(X)))) or 1.0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Divide X by the scale of the training values."""
        return X / self.scale_


def four_digits(mnist: Dataset) -> Dataset:
    """The zeros, ones, twos and fours of MNIST."""
    kept = np.isin(mnist.y.astype(str), ["0", "1", "2", "4"])
    n_train = int(kept[: mnist.n_train].sum())
    return mnist._replace(name=FOUR_DIGITS, X=mnist.X[kept], y=mnist.y[kept], n_train=n_train)


def n_splits(name: str) -> int:
    """How many splits a data set has: one by default, else ten folds."""
    has_default = name == FOUR_DIGITS or (name in SOURCES and SOURCES[name].n_train is not None)
    return 1 if has_default else N_FOLDS


def splits(dataset: Dataset, random_state: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows: the default split, else stratified 10-fold.

    Parameters
    ----------
    dataset : Dataset
    random_state : int
        Of the ten folds.

    Yields
    ------
    train, test : arrays of row numbers

    Examples
    --------
    >>> from plml_study import datasets, protocols
    >>> folds = list(protocols.splits(datasets.load("digits")))
    >>> len(folds)
    10
    """
    if dataset.n_train is not None:
        rows = np.arange(len(dataset.X))
        yield rows[: dataset.n_train], rows[dataset.n_train :]
        return
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    yield from folds.split(dataset.X, dataset.y)


def prepared_split(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, ...]:
    """(X_train, y_train, X_test, y_test), preprocessed with training statistics alone.

    Preprocessed in float64; more than ``LARGE`` training rows are handed over in float32.
    """
    pipeline = preprocessing(dataset.name)
    dtype = np.float32 if len(train) > LARGE else np.float64
    X_train = pipeline.fit_transform(dataset.X[train]).astype(dtype, copy=False)
    X_test = pipeline.transform(dataset.X[test]).astype(dtype, copy=False)
    return X_train, dataset.y[train], X_test, dataset.y[test]
