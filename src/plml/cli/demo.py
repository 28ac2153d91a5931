"""The demonstration behind ``plml demo``: Euclidean, one metric, and local metrics on digits."""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from plml.estimators.plml import PLML
from plml.estimators.sml import SML


class DemoRow(NamedTuple):
    """One line of the demonstration's table."""

    method: str
    accuracy: float
    seconds: float
    gap: float | None
    predictions: np.ndarray
    nearest: np.ndarray  # training row nearest to each test row


class DemoData(NamedTuple):
    """Half of the digits to train, half to test, and their raw images."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    train_images: np.ndarray
    test_images: np.ndarray


def demo_data(seed: int) -> DemoData:
    """The embedded digits under the paper's preprocessing: standardised, rows of unit length."""
    X, y = load_digits(return_X_y=True)
    train, test = train_test_split(np.arange(len(X)), test_size=0.5, stratify=y, random_state=seed)
    prepare = make_pipeline(StandardScaler(), Normalizer())
    images = X.reshape(-1, 8, 8)
    return DemoData(
        prepare.fit_transform(X[train]),
        y[train],
        prepare.transform(X[test]),
        y[test],
        images[train],
        images[test],
    )


def demo_rows(
    data: DemoData, seed: int, progress: Callable[[str, float], Any]
) -> Iterator[DemoRow]:
    """Fit and score each method in turn, reporting progress before each."""
    methods: list[tuple[str, Any]] = [
        ("Euclidean 1-NN", KNeighborsClassifier(n_neighbors=1)),
        ("SML, one metric", SML()),
        ("PLML, local metrics", PLML(random_state=seed)),
    ]
    for done, (name, model) in enumerate(methods):
        progress(name, done / len(methods))
        start = perf_counter()
        predictions = model.fit(data.X_train, data.y_train).predict(data.X_test)
        seconds = perf_counter() - start
        nearest = model.kneighbors(data.X_test, 1, return_distance=False)[:, 0]
        accuracy = float(np.mean(predictions == data.y_test))
        gap = getattr(model, "dual_gap_", None)
        yield DemoRow(name, accuracy, seconds, gap, predictions, nearest)


def format_table(rows: list[DemoRow]) -> str:
    """The table as aligned text."""
    lines = [f"{'method':<22}{'accuracy':>10}{'seconds':>10}{'certified gap':>16}"]
    for row in rows:
        gap = "-" if row.gap is None else f"{row.gap:.1e}"
        lines.append(f"{row.method:<22}{row.accuracy:>10.2%}{row.seconds:>10.2f}{gap:>16}")
    return "\n".join(lines)
