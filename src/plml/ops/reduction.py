"""Inner-product search by an engine that knows Euclidean distance alone."""

from typing import Self

import numpy as np


class EuclideanReduction:
    """Largest inner products as nearest Euclidean neighbours, for one more dimension.

    With r the largest norm of an index vector v, (v, sqrt(r^2 - ||v||^2)) have the same norm, so

        ||(q, 0) - (v, sqrt(r^2 - ||v||^2))||^2 = ||q||^2 + r^2 - 2 <q, v>

    and the nearest is the one with the largest inner product.

    Attributes
    ----------
    radius_ : r
    """

    def fit(self, index_vectors: np.ndarray) -> Self:
        """Measure the largest norm.

        Parameters
        ----------
        index_vectors : (n, D) array
        """
        self.radius_ = float(np.sqrt(_squares(index_vectors).max(initial=0.0)))
        return self

    def index_vectors(self, index_vectors: np.ndarray) -> np.ndarray:
        """(n, D + 1) vectors for the engine.

        Parameters
        ----------
        index_vectors : (n, D) array, none longer than those of ``fit``
        """
        rest = self.radius_**2 - _squares(index_vectors)
        if (rest < -1e-9 * self.radius_**2).any():
            raise ValueError(
                f"row {int(rest.argmin())} is longer than the vectors of fit; fit again on all"
            )
        last = np.sqrt(np.maximum(rest, 0.0)).astype(index_vectors.dtype)
        return np.column_stack([index_vectors, last])

    def query_vectors(self, query_vectors: np.ndarray) -> np.ndarray:
        """(q, D + 1) queries for the engine.

        Parameters
        ----------
        query_vectors : (q, D) array
        """
        return np.column_stack([query_vectors, np.zeros(len(query_vectors), query_vectors.dtype)])


def _squares(vectors: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
