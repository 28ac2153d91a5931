"""Inner-product search by an engine that supports only Euclidean distance."""

from typing import Self

import numpy as np
from sklearn.utils.validation import check_array


class EuclideanReduction:
    """Largest inner products as nearest Euclidean neighbours, at the cost of an extra dimension.

    With r the largest norm of an index vector v, (v, sqrt(r^2 - ||v||^2)) have the same norm, so

        ||(q, 0) - (v, sqrt(r^2 - ||v||^2))||^2 = ||q||^2 + r^2 - 2 <q, v>

    and the nearest is the one with the largest inner product.

    Attributes
    ----------
    radius_ : r

    Examples
    --------
    >>> import numpy as np
    >>> from plml.serving import EuclideanReduction
    >>> stored = np.array([[1.0, 0.0], [3.0, 1.0], [0.0, 2.0]])
    >>> asked = np.array([[1.0, 1.0]])
    >>> reduction = EuclideanReduction().fit(stored)
    >>> rows = reduction.index_vectors(stored)
    >>> distances = np.linalg.norm(rows - reduction.query_vectors(asked), axis=1)
    >>> bool(distances.argmin() == (stored @ asked[0]).argmax())
    True
    """

    def fit(self, index_vectors: np.ndarray) -> Self:
        """Measure the largest norm.

        Parameters
        ----------
        index_vectors : (n, D) array
        """
        index_vectors = _checked(index_vectors)
        self.radius_ = float(np.sqrt(_squares(index_vectors).max(initial=0.0)))
        return self

    def index_vectors(self, index_vectors: np.ndarray) -> np.ndarray:
        """(n, D + 1) vectors for the engine.

        Parameters
        ----------
        index_vectors : (n, D) array, none longer than those of ``fit``
        """
        if not hasattr(self, "radius_"):
            raise ValueError("fit the reduction on the index vectors first")
        index_vectors = _checked(index_vectors)
        rest = self.radius_**2 - _squares(index_vectors)
        # The same vectors rounded to another precision may be longer by this much.
        rounding = 4.0 * float(np.finfo(np.float32).eps)
        if (rest < -rounding * self.radius_**2).any():
            raise ValueError(
                f"row {int(rest.argmin())} is longer than the vectors of fit; fit on all of them"
            )
        last = np.sqrt(np.maximum(rest, 0.0)).astype(index_vectors.dtype)
        return np.column_stack([index_vectors, last])

    def query_vectors(self, query_vectors: np.ndarray) -> np.ndarray:
        """(q, D + 1) queries for the engine.

        Parameters
        ----------
        query_vectors : (q, D) array
        """
        query_vectors = _checked(query_vectors)
        return np.column_stack([query_vectors, np.zeros(len(query_vectors), query_vectors.dtype)])


def _checked(vectors: np.ndarray) -> np.ndarray:
    return check_array(vectors, dtype=(np.float64, np.float32))


def _squares(vectors: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
