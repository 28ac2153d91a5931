"""MNIST as the benchmarks use it: 154 principal components of the raw pixels, in one scale."""

import numpy as np
from sklearn.decomposition import PCA

from plml_study import datasets


def raw_mnist(data_dir: str | None = None) -> tuple[np.ndarray, ...]:
    """(X_train, y_train, X_test, y_test) of MNIST for benchmarks: 154 features, float32.

    PCA on raw pixels to 95% of the variance, divided by one number so that the training rows have
    a mean square norm of one.
    """
    data = datasets.load("mnist", data_dir)
    n = data.n_train
    pca = PCA(n_components=0.95, svd_solver="covariance_eigh").fit(data.X[:n])
    X = pca.transform(data.X)
    X /= np.sqrt(np.mean(np.sum(X[:n] ** 2, axis=1)))
    X = X.astype(np.float32)
    return X[:n], data.y[:n], X[n:], data.y[n:]
