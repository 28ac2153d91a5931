"""The training case that is nearest to a row."""

from typing import Any

import numpy as np

from plml.backend.progress import in_blocks
from plml.tables.table_models import Model

#: The stage in which they are looked for.
NEAREST = "nearest cases"
#: What is said of the nearest one.
NEAREST_COLUMNS = ("nearest case", "nearest class", "nearest distance")


def nearest_cases(model: Model, rows: Any) -> dict[str, np.ndarray]:
    """Columns: the key of the nearest training case (or its row), its class, its distance.

    Parameters
    ----------
    model : a model that was fitted to a table
    rows : as ``model.prepared`` gives them

    Returns
    -------
    dict
        An array per column, by its name.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import tables
    >>> table = load_iris(as_frame=True).frame
    >>> model = tables.fit(table, "target", "iris.csv", regularization=1.0, random_state=0)
    >>> found = tables.nearest_cases(model, model.prepared(table[:2], "iris.csv"))
    >>> found["nearest class"]
    array([0, 0])
    """
    classifier = model.classifier

    def nearest(block: Any) -> np.ndarray:
        distances, places = classifier.kneighbors(block, 1)
        return np.hstack([distances, places])

    distances, places = in_blocks(NEAREST, nearest, rows).T
    cases = places.astype(np.int64)
    codes = classifier.training_cases()[1]
    names = cases if model.keys is None else model.keys[cases]
    found = names, classifier.classes_[codes[cases]], distances
    return dict(zip(NEAREST_COLUMNS, found, strict=True))
