"""Random samples of rows that are in pieces."""

from collections.abc import Sequence

import numpy as np


def shares_of(
    sizes: Sequence[int] | np.ndarray, n_wanted: int, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """How many rows of each piece are in a sample of all rows, and a seed for each piece."""
    shares = rng.multivariate_hypergeometric(sizes, n_wanted)
    return shares.tolist(), rng.integers(2**31, size=len(shares)).tolist()


def some_rows(n_rows: int, size: int, seed: int) -> np.ndarray:
    """Numbers of a piece's rows in the sample, increasing."""
    return np.sort(np.random.default_rng(seed).choice(n_rows, size, replace=False))
