"""Synthetic data of any size with the make-up of images: classes of curved, overlapping clouds."""

import numpy as np


def mixture(
    n_samples: int,
    n_features: int = 154,
    *,
    n_classes: int = 10,
    n_clouds: int = 8,
    rank: int = 12,
    spread: float = 1.0,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """A mixture of Gaussians of low rank, several per class: (X, y).

    Parameters
    ----------
    n_samples, n_features : the shape of X, float32, its rows of unit mean square norm
    n_classes : labels 0 to n_classes - 1, in turn
    n_clouds : Gaussians per class
    rank : directions in which a Gaussian is wide
    spread : distance between the means, relative to that width
    seed : of everything
    """
    rng = np.random.default_rng(seed)
    y = np.arange(n_samples) % n_classes
    cloud = rng.integers(n_clouds, size=n_samples) + n_clouds * y
    n_all = n_classes * n_clouds
    means = spread * rng.standard_normal((n_all, n_features), dtype=np.float32)
    axes = rng.standard_normal((n_all, rank, n_features), dtype=np.float32) * np.float32(rank**-0.5)
    X = rng.standard_normal((n_samples, n_features), dtype=np.float32)
    X *= np.float32(0.3)
    for number in range(n_all):
        members = np.flatnonzero(cloud == number)
        latent = rng.standard_normal((len(members), rank), dtype=np.float32)
        X[members] += means[number] + (3.0 * latent) @ axes[number]
    X /= np.float32(np.sqrt(np.sum(np.square(X), dtype=np.float64) / n_samples))
    return X, y
