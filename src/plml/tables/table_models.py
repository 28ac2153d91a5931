"""From a table on disk to a model on disk and back: what the command line does with files."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.pipeline import Pipeline

from plml.backend.progress import stage
from plml.estimators.auto_plml import AutoPLML
from plml.estimators.plml import PLML
from plml.estimators.plml_cv import PLMLCV
from plml.evaluation import Scorecard, evaluate
from plml.evaluation.measuring import fit_options
from plml.evaluation.rivals import stratified_part
from plml.inspection.counterfactuals import Counterfactual, counterfactual
from plml.inspection.explain_any import classifier_of, explain
from plml.inspection.explanation import Explanation
from plml.io.files import write
from plml.io.model_files import read_record, write_record
from plml.preprocessing import MeanNormScaler
from plml.preprocessing.columns import Columns, listed, pandas
from plml.preprocessing.table_encoder import FILLS, TableEncoder
from plml.tables.column_report import ColumnReport, describe, no_classes
from plml.tables.living_models import case_values, new_keys, pipeline_without, rows_of
from plml.tables.training_profile import Misfits, TrainingProfile, misfits
from plml.validation import rows_that_count

if TYPE_CHECKING:
    import pandas as pd

#: Of more rows than this a fit learns from a stratified part, unless it is told otherwise: what it
#: keeps of each row while it learns is a hundred numbers and more.
MOST_ROWS = 100_000
#: Stages of what is done with a table.
ENCODING, LEARNING = "encoding", "learning"
#: What may be done with missing values; "impute" is the old name of "auto".
MISSING_VALUES = ("auto", *FILLS, "impute", "refuse")
#: Steps of the pipelines: ``AutoPLML`` encodes the table itself.
_STEPS = (["classify"], ["encode", "scale", "classify"])


@dataclass(eq=False)
class Model:
    """A fitted pipeline, and what it needs to know about its table.

    ``plml.tables.fit`` makes one of a data frame; ``plml.tables.load`` reads one from a file.

    Attributes
    ----------
    pipeline : what prepares the rows, and the classifier
    target : the column of the labels
    columns : the columns that are learned from, and their kinds
    profile : what the training rows were like; None in files of older versions
    keys : of the training rows, or None
    report : of the columns of the training table, or None

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import tables
    >>> table = load_iris(as_frame=True).frame
    >>> model = tables.fit(table, "target", "iris.csv", regularization=1.0, random_state=0)
    >>> model.explain(table.iloc[[70]], "iris.csv").rivals
    array([2])
    """

    pipeline: Pipeline
    target: str
    columns: Columns
    profile: TrainingProfile | None = None  # None in files of older versions
    keys: np.ndarray | None = None  # of the cases
    report: ColumnReport | None = None  # of the columns of the training table
    gaps: np.ndarray | None = None  # of the cases, where no classifier knows: bits, as encoded

    @property
    def classifier(self) -> AutoPLML | PLML | PLMLCV:
        """The classifier at the end of the pipeline."""
        return self.pipeline[-1]

    def prepared(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """As the classifier sees the rows, with the names of its features."""
        with stage(ENCODING):
            steps, rows = classifier_of(self.pipeline)[0], self.columns.tidy(table, name)
            return rows if steps is None else steps.transform(rows)

    def labels(self, table: "pd.DataFrame", name: str) -> np.ndarray:
        """The labels of a table, as the classes of the model."""
        values = _target(table, self.target, name)
        classes = self.classifier.classes_
        if classes.dtype.kind not in "biuf":
            return np.array([str(value) for value in values])
        numbers = pandas().to_numeric(values, errors="coerce")
        if numbers.isna().any():
            row = int(np.flatnonzero(numbers.isna())[0])
            raise ValueError(
                f"{name}: column {self.target!r} holds {str(values.iloc[row])!r} in row {row}; the "
                f"model knows {listed(classes)}"
            )
        return numbers.to_numpy()

    def tell_unknown(self, labels: np.ndarray, name: str) -> None:
        """Warn of labels that are none of the classes.

        Parameters
        ----------
        labels : of the rows of a table
        name : of its file
        """
        unknown = labels[~np.isin(labels, self.classifier.classes_)]
        if len(unknown):
            warnings.warn(
                f"{name}: column {self.target!r} has {len(unknown)} labels that the model does not "
                f"know, {listed(np.unique(unknown), 4)}; they count as errors",
                stacklevel=3,
            )

    def misfits(self, table: "pd.DataFrame", key: str | None = None) -> Misfits:
        """What of a table is not as the training rows were, column by column.

        Parameters
        ----------
        table : new rows
        key : column that is no feature
        """
        return misfits(self.columns, self.profile, table, (self.target, key or self.target))

    def evaluate(self, table: "pd.DataFrame", name: str, positive: Any = None) -> Scorecard:
        """Measure the model on labelled rows, next to simpler methods trained on its training rows.

        Parameters
        ----------
        table, name : as in ``explain``
        positive : the class of interest, one of two; or None
        """
        labels = self.labels(table, name)
        self.tell_unknown(labels, name)
        rows = self.prepared(table, name)
        return evaluate(self.classifier, rows, labels, source=f"of {name}", positive=positive)

    def explain(self, rows: "pd.DataFrame", name: str, cases: int | None = None) -> Explanation:
        """Why rows of a table are predicted as they are, in the columns of the table.

        Parameters
        ----------
        rows : of a table
        name : of its file, for messages
        cases : nearest cases listed per row
        """
        found = explain(self.pipeline, self.columns.tidy(rows, name), cases)
        return found if self.keys is None else replace(found, row_names=self.keys)

    def counterfactual(
        self, row: "pd.DataFrame", name: str, columns: list[str] | None = None
    ) -> Counterfactual | None:
        """The smallest change of some columns that changes the prediction of one row.

        Parameters
        ----------
        row, name : as in ``explain``
        columns : that may change; by default all
        """
        return counterfactual(self.pipeline, self.columns.tidy(row, name), columns)

    def add_cases(
        self,
        table: "pd.DataFrame",
        name: str = "the table",
        key: str | None = None,
        new_classes: str = "refuse",
    ) -> Self:
        """Add the labelled rows of a table as cases; see ``PLML.add_cases``.

        Parameters
        ----------
        table, name : as in ``explain``, with the labels in the column of the target
        key : the column of the keys, where the cases have keys
        new_classes : as in ``PLML.add_cases``
        """
        labels, rows = self.labels(table, name), self.prepared(table, name)
        keys, tidied = new_keys(self, table, key, name), self.columns.tidy(table, name)
        profile = None if self.profile is None else self.profile.joined(self.columns, tidied)
        self.classifier.add_cases(rows, labels, new_classes)
        if self.gaps is not None:
            self.gaps = np.concatenate([self.gaps, self.pipeline[0].gaps(tidied)])
        self.keys, self.profile = keys, profile
        return self

    def forget_cases(self, rows: Any = None, keys: Sequence[Any] | None = None) -> Self:
        """Forget cases, by their numbers or their keys; see ``PLML.forget_cases``.

        Parameters
        ----------
        rows : (n_forgotten,) numbers of cases
        keys : keys of cases; all that have one of them are forgotten
        """
        numbers = rows_of(self, rows, keys)
        if not len(numbers):
            return self
        pipeline, values = pipeline_without(self, numbers), case_values(self)
        if self.profile is not None:
            gone, stay = values[numbers], np.delete(values, numbers, axis=0)
            self.profile = self.profile.without(self.columns, gone, stay)
        self.report = None if self.report is None else self.report.without_quotes()
        self.keys, self.gaps = (
            None if part is None else np.delete(part, numbers, axis=0)
            for part in (self.keys, self.gaps)
        )
        self.pipeline = pipeline
        return self

    def save(self, path: str | Path) -> None:
        """Write a skops file, in one step."""
        record = {
            "pipeline": self.pipeline,
            "target": self.target,
            "names": list(self.columns.names),
            "categories": list(self.columns.categories),
            "dates": list(self.columns.dates),
            "day_first": list(self.columns.day_first),
            "imputes": self.columns.imputes,
            "profile": None if self.profile is None else self.profile.record(),
            "keys": self.keys,
            "report": None if self.report is None else self.report.to_dict(),
            "gaps": self.gaps,
        }
        write_record(Path(path), record)


def load(path: str | Path) -> Model:
    """Read a model; nothing in the file is executed, and unknown types are refused.

    Parameters
    ----------
    path : of a file that ``Model.save`` or ``plml fit`` wrote

    Examples
    --------
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from plml import tables
    >>> tables.fit(load_iris(as_frame=True).frame, "target", "iris").save(Path("iris.skops"))
    >>> tables.load(Path("iris.skops")).target
    'target'
    """
    path = Path(path)
    found = read_record(path)
    pipeline = found.get("pipeline")
    parts = (found.get("names"), found.get("categories"), found.get("target"))
    if (
        not isinstance(pipeline, Pipeline)
        or list(pipeline.named_steps) not in _STEPS
        or not isinstance(pipeline[-1], AutoPLML | PLML | PLMLCV)
        or not all(hasattr(step, "n_features_in_") for step in pipeline.named_steps.values())
        or not all(isinstance(part, kind) for part, kind in zip(parts, _PARTS, strict=True))
        or list(getattr(pipeline[0], "feature_names_in_", [])) != found["names"]
    ):
        raise ValueError(f"{path} was not written by plml fit")
    imputes = bool(found.get("imputes", False))
    dates = tuple(map(str, found.get("dates", ()))), tuple(map(str, found.get("day_first", ())))
    columns = Columns(tuple(found["names"]), tuple(found["categories"]), imputes, *dates)
    gaps = found.get("gaps")
    n_cases = len(pipeline[-1].training_cases()[1])
    if gaps is not None and (not isinstance(gaps, np.ndarray) or len(gaps) != n_cases):
        raise ValueError(f"{path} was not written by plml fit: its gaps are not those of its rows")
    return Model(pipeline, found["target"], columns, *_of_training(found, columns, path), gaps)


def _of_training(
    found: dict[str, Any], columns: Columns, path: Path
) -> tuple[TrainingProfile | None, np.ndarray | None, ColumnReport | None]:
    """What a file has of the training rows besides the model; older files have nothing."""
    profile, keys, report = (found.get(name) for name in ("profile", "keys", "report"))
    n_rows = len(found["pipeline"][-1].training_cases()[1])
    if keys is not None and (not isinstance(keys, np.ndarray) or keys.shape != (n_rows,)):
        raise ValueError(f"{path} was not written by plml fit: its keys are not those of its rows")
    try:
        return (
            None if profile is None else TrainingProfile.from_record(profile, columns),
            keys,
            None if report is None else ColumnReport.from_dict(report),
        )
    except ValueError as error:
        raise ValueError(f"{path} was not written by plml fit: {error}") from error


_PARTS = (list, list, str)


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """Write a table as CSV, or as Parquet if the name says so, in one step.

    Parameters
    ----------
    table : data frame
    path : of the file; one that ends in ``.parquet`` or ``.pq`` is Parquet

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from plml.tables import write_table
    >>> write_table(pd.DataFrame({"size": [1.5, 2.5]}), Path("sizes.csv"))
    """
    from io import BytesIO

    if path.suffix.lower() not in (".parquet", ".pq"):
        write(path, table.to_csv(index=False))
        return
    buffer = BytesIO()
    table.to_parquet(buffer, index=False)
    write(path, buffer.getvalue())


def fit(
    table: "pd.DataFrame",
    target: str,
    name: str,
    *,
    regularization: float | None = None,
    paper: bool = False,
    missing: str = "auto",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    uses: Mapping[str, str] | None = None,
    doubts: Mapping[str, str] | None = None,
    key: str | None = None,
    weight: str | None = None,
    max_rows: int = MOST_ROWS,
    tell: Callable[[ColumnReport], None] = lambda report: None,
    checkpoint: Path | None = None,
    **parameters: Any,
) -> Model:
    """Fit a pipeline to a table: find out what the columns are, turn them into numbers, learn.

    Parameters
    ----------
    table : with the labels in a column
    target : that column
    name : of the file, for messages
    regularization : of ``PLML``; None selects by cross-validation
    paper : whether the selection is that of the paper, ``PLMLCV`` instead of ``AutoPLML``
    missing : "refuse", or what missing numbers become; see ``AutoPLML``. The paper's method takes
        medians unless something else is asked for.
    keep, drop, uses : as in ``describe``
    doubts : columns that ``read_table`` could not make out; a fit is refused until it is said what
        they are
    key : column that names the rows; it is not learned from
    weight : column of the weights of the rows; it is not learned from, and rows of weight zero are
        left out
    max_rows : if there are more rows, a stratified part is learned from and kept as cases
    tell : gets the report of the columns before the fit
    checkpoint : file in which the fit saves its state
    parameters : of the classifier

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from plml import tables
    >>> table = load_wine(as_frame=True).frame
    >>> model = tables.fit(table[::2], "target", "wine.csv", regularization=1.0, random_state=0)
    >>> model.classifier.predict(model.prepared(table[1:8:2], "new.csv"))
    array([0, 0, 0, 0])
    """
    if missing not in MISSING_VALUES:
        raise ValueError(f"missing must be one of {', '.join(MISSING_VALUES)}, got {missing!r}")
    if key is not None and key not in table.columns:
        raise ValueError(f"{name} has no column {key!r}; it has {listed(table.columns)}")
    if target in (*drop, key, weight):
        raise ValueError(
            f"{name}: column {target!r} is the target, so it can neither be dropped nor be the key "
            "or the weight"
        )
    labels = _plain(_target(table, target, name), f"{name}: column {target!r}")
    table, labels, counts = _that_count(table, labels, weight, name)
    apart = [column for column in dict.fromkeys((key, weight)) if column is not None]
    report = describe(
        table.drop(columns=apart),
        target,
        source=name,
        keep=keep,
        drop=[column for column in drop if column not in apart],
        uses=uses,
        doubts=doubts,
    )
    tell(report)
    report.check_usable()
    for column, doubt in (doubts or {}).items():
        if column in table.columns and column not in (target, *apart, *keep, *drop, *(uses or {})):
            raise ValueError(f"{name}: column {column!r}: {doubt}, or --drop it")
    columns = report.plan(imputes=missing != "refuse")
    unused = [*apart, *(fact.name for fact in report.left_out)]
    with stage(ENCODING):
        tidied = columns.tidy(table, name)
        profile = TrainingProfile.of(columns, tidied, unused)
        part = _part(labels, max_rows, parameters.get("random_state"))
        if len(part) < len(tidied):
            tidied, labels, table = tidied.iloc[part], labels[part], table.iloc[part]
            counts = None if counts is None else counts[part]
    fill = "auto" if missing in ("impute", "refuse") else missing
    if regularization is not None:
        classifier: Any = PLML(regularization=regularization, **parameters)
    else:
        classifier = PLMLCV(**parameters) if paper else AutoPLML(missing=fill, **parameters)
    pipeline = _pipeline(classifier, fill)
    with stage(LEARNING, named=False):
        options = fit_options(pipeline, counts)
        pipeline.fit(tidied, labels, classify__checkpoint=checkpoint, **options)
    keys = None if key is None else _keys(table[key], f"{name}: column {key!r}")
    gaps = None if isinstance(classifier, AutoPLML) else pipeline[0].gaps(tidied)
    return Model(pipeline, target, columns, profile, keys, report, gaps)


def _part(labels: np.ndarray, most: int, seed: Any) -> np.ndarray:
    """The rows to learn from: all, or a stratified part."""
    if most < 2:
        raise ValueError(f"max_rows must be at least 2, got {most}")
    return stratified_part(np.unique(labels, return_inverse=True)[1], most, seed)


def _pipeline(classifier: Any, fill: str) -> Pipeline:
    if isinstance(classifier, AutoPLML):
        return Pipeline([("classify", classifier)])
    encoder = TableEncoder(missing=FILLS[0] if fill == "auto" else fill)
    steps = [("encode", encoder), ("scale", MeanNormScaler()), ("classify", classifier)]
    pipeline = Pipeline(steps)
    pipeline[:-1].set_output(transform="pandas")
    return pipeline


def row_weights(table: "pd.DataFrame", weight: str | None, name: str) -> np.ndarray | None:
    """The weights of the rows of a table, as floats; None without such a column.

    Parameters
    ----------
    table : with the weights in a column
    weight : that column, or None
    name : of the file, for messages

    Examples
    --------
    >>> import pandas as pd
    >>> from plml.tables import row_weights
    >>> row_weights(pd.DataFrame({"size": [1.5, 2.5], "count": [3, 1]}), "count", "sizes.csv")
    array([3., 1.])
    """
    if weight is None:
        return None
    if weight not in table.columns:
        raise ValueError(f"{name} has no column {weight!r}; it has {listed(table.columns)}")
    numbers = pandas().to_numeric(table[weight], errors="coerce")
    wrong = np.flatnonzero(numbers.isna())
    if len(wrong):
        found = table[weight].iloc[wrong[0]]
        raise ValueError(
            f"{name}: column {weight!r} holds {str(found)!r} in row {wrong[0]}, and weights are "
            "numbers; correct it"
        )
    return numbers.to_numpy(dtype=np.float64)


def _that_count(
    table: "pd.DataFrame", labels: np.ndarray, weight: str | None, name: str
) -> tuple["pd.DataFrame", np.ndarray, np.ndarray | None]:
    """The rows whose weight is not zero, with their labels and weights."""
    try:
        return rows_that_count(table, labels, row_weights(table, weight, name))[:3]
    except ValueError as error:
        message = str(error).replace("sample_weight", f"{name}: the weight in column {weight!r}")
        raise ValueError(message) from error


def _keys(values: "pd.Series", where: str) -> np.ndarray:
    """Numbers as numbers, all else as texts."""
    n_repeated = int(values.duplicated().sum())
    if n_repeated:
        warnings.warn(
            f"{where} names {n_repeated} rows by a key that another row has; the nearest case is "
            "then not one row alone",
            stacklevel=3,
        )
    keys = values.to_numpy()
    if keys.dtype.kind in "iuf":
        return keys
    return np.array(
        ["" if lost else str(key) for key, lost in zip(keys, values.isna(), strict=True)]
    )


def _target(table: "pd.DataFrame", target: str, name: str) -> "pd.Series":
    """The labels of a table, none of them missing."""
    if target not in table.columns:
        raise ValueError(f"{name} has no column {target!r}; it has {listed(table.columns)}")
    labels = table[target]
    lost = np.flatnonzero(labels.isna())
    if len(lost):
        raise ValueError(
            f"{name}: column {target!r} has no label in {len(lost)} rows, the first is row "
            f"{int(lost[0])}; drop these rows"
        )
    return labels


def _plain(labels: "pd.Series", where: str) -> np.ndarray:
    """Labels as NumPy values: strings, booleans or whole numbers."""
    values = labels.to_numpy()
    if reason := no_classes(labels):
        raise ValueError(f"{where} {reason}")
    return np.array([str(v) for v in values]) if values.dtype.kind not in "biuf" else values
