"""Numbers of things in words."""

import numpy as np


def counted(n: int, thing: str, things: str = "") -> str:
    """As in 1 row, 2 rows, 1 class, 2 classes.

    Parameters
    ----------
    n : how many
    thing, things : one of them, and several, which by default end in s
    """
    return f"{n} {thing if n == 1 else things or f'{thing}s'}"


def rows_told(rows: np.ndarray) -> str:
    """Some rows by their numbers: "row 3", or "2 rows, the first is row 3"."""
    return f"{f'{len(rows)} rows, the first is ' if len(rows) > 1 else ''}row {int(rows[0])}"
