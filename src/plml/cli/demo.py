"""The demonstration behind ``plml demo``: Euclidean, one metric, and local metrics on digits."""

from collections.abc import Callable, Iterator
from pathlib import Path
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
from plml.inspection.style import write_figure

#: Of the methods; told apart by the colour-blind.
_COLORS = ("#7f7f7f", "#56b4e9", "#d55e00")
_N_EXAMPLES = 6


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


def save_demo_figure(path: Path, data: DemoData, rows: list[DemoRow]) -> None:
    """Draw the comparison and write it to ``path``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 1.35))
    _draw_accuracies(panels[0, 0], rows)
    _draw_disagreements(panels[0, 1], data, rows)
    write_figure(figure, path)


def disagreements(data: DemoData, rows: list[DemoRow]) -> np.ndarray:
    """Test rows on which the last method differs from the first, those it gets right first."""
    first, last = rows[0].predictions, rows[-1].predictions
    differ = np.flatnonzero(first != last)
    return differ[np.argsort(last[differ] != data.y_test[differ], kind="stable")]


def _draw_accuracies(figure: Any, rows: list[DemoRow]) -> None:
    ax = figure.subplots()
    errors = [100 * (1 - row.accuracy) for row in rows]
    names = [row.method.replace(", ", "\n") for row in rows]
    bars = ax.bar(names, errors, color=_COLORS, width=0.6)
    ax.bar_label(bars, [f"{error:.1f}%" for error in errors], padding=2)
    ax.set_ylabel("test error (%)")
    ax.set_title("Nearest-neighbour error on digits", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)


def _draw_disagreements(figure: Any, data: DemoData, rows: list[DemoRow]) -> None:
    differ = disagreements(data, rows)
    n_right = [int((row.predictions == data.y_test)[differ].sum()) for row in (rows[0], rows[-1])]
    figure.suptitle(
        f"They disagree on {len(differ)} test digits: Euclidean is right on {n_right[0]}, PLML on "
        f"{n_right[1]}",
        fontsize=11,
    )
    chosen = differ[:_N_EXAMPLES]
    if len(chosen) == 0:
        return
    axes = figure.subplots(3, len(chosen), squeeze=False)
    titles = ("test digit", "Euclidean", "PLML")
    for column, query in enumerate(chosen):
        neighbors = rows[0].nearest[query], rows[-1].nearest[query]
        images = [data.test_images[query], *(data.train_images[j] for j in neighbors)]
        labels = [data.y_test[query], *(data.y_train[j] for j in neighbors)]
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            ax = axes[row, column]
            ax.imshow(image, cmap="gray_r")
            ax.set(xticks=[], yticks=[])
            color = "#009e73" if label == labels[0] else "#d55e00"
            mark = "" if row == 0 else (" ✓" if label == labels[0] else " ✗")
            ax.set_xlabel(f"{label}{mark}", color="black" if row == 0 else color, labelpad=2)
            if column == 0:
                ax.set_ylabel(titles[row])
