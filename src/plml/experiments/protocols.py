"""The paper's protocol: preprocessing and splits."""

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from plml.experiments.datasets import Dataset

#: Data sets that the paper reduces by PCA to 95% of the variance.
REDUCED = frozenset({"usps", "isolet", "mnist"})
N_FOLDS = 10


def preprocessing(name: str) -> Pipeline:
    """Standardise, reduce (USPS, Isolet, MNIST), then scale every row to unit length."""
    reduction = [("pca", PCA(n_components=0.95, svd_solver="full"))] if name in REDUCED else []
    return Pipeline([("standardize", StandardScaler()), *reduction, ("normalize", Normalizer())])


def splits(dataset: Dataset, random_state: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows: the default split, else stratified 10-fold."""
    if dataset.n_train is not None:
        rows = np.arange(len(dataset.X))
        yield rows[: dataset.n_train], rows[dataset.n_train :]
        return
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=random_state)
    yield from folds.split(dataset.X, dataset.y)


def prepared_split(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, ...]:
    """(X_train, y_train, X_test, y_test), preprocessed with training statistics alone."""
    pipeline = preprocessing(dataset.name)
    X_train = pipeline.fit_transform(dataset.X[train])
    return X_train, dataset.y[train], pipeline.transform(dataset.X[test]), dataset.y[test]
