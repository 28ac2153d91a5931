"""From a table on disk to a model on disk and back: what the command line does with files."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.pipeline import Pipeline

from plml.backend.progress import stage
from plml.estimators._certificate import certificate_text
from plml.estimators._scoring import Scoring
from plml.estimators.auto_plml import AutoPLML
from plml.estimators.plml import PLML
from plml.estimators.plml_cv import PLMLCV
from plml.evaluation import Scorecard, evaluate
from plml.evaluation.measuring import fit_options
from plml.inspection.counterfactuals import Counterfactual, counterfactual
from plml.inspection.explain_any import classifier_of, explain
from plml.inspection.explanation import Explanation
from plml.io.files import write
from plml.io.model_files import read_record, write_record
from plml.preprocessing import MeanNormScaler
from plml.preprocessing.columns import Columns, listed, pandas, plain_text
from plml.preprocessing.table_encoder import FILLS, TableEncoder
from plml.tables.column_report import ColumnReport
from plml.tables.living_models import (
    case_values,
    new_keys,
    pipeline_with,
    pipeline_without,
    rows_of,
)
from plml.tables.training_profile import Misfits, TrainingProfile, misfits
from plml.tables.training_rows import ENCODING, MOST_ROWS, TrainingRows, labels_of, training_rows
from plml.wording import counted

if TYPE_CHECKING:
    import pandas as pd

#: The stage of the fit.
LEARNING = "learning"
#: What may be done with missing values; "impute" is the old name of "auto".
MISSING_VALUES = ("auto", *FILLS, "impute", "refuse")
#: What messages call a table without a name.
_THE_TABLE = "the table"
#: What truth values are in a file of texts.
_TRUTHS = {"true": True, "false": False}
#: Steps of the pipelines: ``AutoPLML`` encodes the table itself.
_STEPS = (["classify"], ["encode", "scale", "classify"])


@dataclass(eq=False, repr=False)
class Model:
    """A fitted pipeline, and what it needs to know about its table.

    ``plml.tables.fit`` makes one of a data frame; ``plml.tables.load`` reads one from a file.

    Attributes
    ----------
    pipeline : what prepares the rows, and the classifier
    target : the column of the labels
    columns : the columns that are learned from, and their kinds
    profile : what the training rows were like; None in files of older versions
    keys : keys of the training rows, or None
    report : what the columns of the training table are, or None
    key : the column of the keys, or None; not in files of older versions
    dual_gap_ : that of the classifier, its certificate

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
    key: str | None = None  # the column of the keys

    @property
    def classifier(self) -> AutoPLML | PLML | PLMLCV:
        """The classifier at the end of the pipeline, which takes rows as ``prepared`` gives them.

        Give tables to the model itself: ``evaluate``, ``explain``, ``add_cases`` and so on.
        """
        return self.pipeline[-1]

    @property
    def dual_gap_(self) -> float:
        """The certificate of the classifier: the relative gap of stage 2."""
        return self.classifier.dual_gap_

    @property
    def n_cases(self) -> int:
        """How many cases there are."""
        return len(self.classifier.training_cases()[1])

    def __repr__(self) -> str:
        columns = counted(len(self.columns.names), "column")
        classes = counted(len(self.classifier.classes_), "class", "classes")
        return (
            f"<{type(self.classifier).__name__} for {self.target!r}: "
            f"{counted(self.n_cases, 'case')}, {columns}, {classes}>"
        )

    def summary(self) -> str:
        """The cases, what was selected, and the certificate, in a few lines."""
        classifier = self.classifier
        encoder = getattr(classifier, "encoder_", None)
        n_features = len(encoder.get_feature_names_out()) if encoder else classifier.n_features_in_
        first = (
            f"{counted(self.n_cases, 'case')}, {counted(len(self.columns.names), 'column')} as "
            f"{counted(n_features, 'feature')}, {len(classifier.classes_)} classes"
        )
        if isinstance(classifier, AutoPLML):
            return f"{first}\n{classifier.summary()}"
        selected = hasattr(classifier, "best_regularization_")
        chosen = classifier.best_regularization_ if selected else classifier.regularization
        lines = [first, f"regularization {chosen:g}", certificate_text([classifier])]
        if selected:
            scoring = Scoring(classifier.scoring, classifier.classes_)
            shown = scoring.shown(classifier.best_score_)
            lines.append(f"{scoring.name} in cross-validation {shown} (the best, so optimistic)")
        return "\n".join(lines)

    def prepared(self, table: "pd.DataFrame", name: str = _THE_TABLE) -> "pd.DataFrame":
        """As the classifier sees the rows, with the names of its features."""
        with stage(ENCODING):
            steps, rows = classifier_of(self.pipeline)[0], self.columns.tidy(table, name)
            return rows if steps is None else steps.transform(rows)

    def labels(self, table: "pd.DataFrame", name: str = _THE_TABLE) -> np.ndarray:
        """The labels of a table, as the classes of the model."""
        values = labels_of(table, self.target, name)
        classes = self.classifier.classes_
        if classes.dtype.kind not in "biuf":
            return np.array([str(value) for value in values])
        if classes.dtype.kind == "b":  # texts, in a file of texts
            values = values.map(lambda value: _TRUTHS.get(str(value).casefold(), value))
        numbers = pandas().to_numeric(values, errors="coerce")
        if numbers.isna().any():
            row = int(np.flatnonzero(numbers.isna())[0])
            raise ValueError(
                f"{name}: column {self.target!r} holds {str(values.iloc[row])!r} in row {row}; the "
                f"model knows {listed(classes)}"
            )
        return numbers.to_numpy()

    def tell_unknown(self, labels: np.ndarray, name: str = _THE_TABLE) -> None:
        """Warn of labels that are none of the classes.

        Parameters
        ----------
        labels : the labels of a table
        name : what messages call the table
        """
        unknown = labels[~np.isin(labels, self.classifier.classes_)]
        if len(unknown):
            lost = counted(len(unknown), "label")
            warnings.warn(
                f"{name}: column {self.target!r} has {lost} that the model does not know, "
                f"{listed(np.unique(unknown), 4)}; such rows count as errors",
                stacklevel=3,
            )

    def misfits(
        self,
        table: "pd.DataFrame",
        key: str | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Misfits:
        """What of a table is not as the training rows were, column by column.

        Parameters
        ----------
        table : new rows
        key : column that is no feature
        units : of the columns, ``understood.marks.units`` of ``read_table``
        """
        return misfits(self.columns, self.profile, table, (self.target, key or self.target), units)

    def evaluate(
        self, table: "pd.DataFrame", name: str = _THE_TABLE, positive: Any = None
    ) -> Scorecard:
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

    def explain(
        self, rows: "pd.DataFrame", name: str = _THE_TABLE, cases: int | None = None
    ) -> Explanation:
        """Why rows of a table are predicted as they are, in the columns of the table.

        Parameters
        ----------
        rows : rows of a table
        name : what messages call the table
        cases : nearest cases listed per row
        """
        found = explain(self.pipeline, self.columns.tidy(rows, name), cases)
        return found if self.keys is None else replace(found, row_names=self.keys)

    def counterfactual(
        self, row: "pd.DataFrame", name: str = _THE_TABLE, columns: list[str] | None = None
    ) -> Counterfactual | None:
        """The smallest change of some columns that changes the prediction of one row.

        Parameters
        ----------
        row, name : as in ``explain``
        columns : the columns that may change; by default all
        """
        return counterfactual(self.pipeline, self.columns.tidy(row, name), columns)

    def add_cases(
        self,
        table: "pd.DataFrame",
        name: str = _THE_TABLE,
        key: str | None = None,
        new_classes: str = "refuse",
    ) -> Self:
        """Add the labelled rows of a table as cases; see ``PLML.add_cases``.

        Parameters
        ----------
        table, name : as in ``explain``, with the labels in the column of the target
        key : the column of the keys, where the cases have keys; by default that of the fit
        new_classes : as in ``PLML.add_cases``
        """
        labels, rows = self.labels(table, name), self.prepared(table, name)
        keys, tidied = new_keys(self, table, key, name), self.columns.tidy(table, name)
        profile = None if self.profile is None else self.profile.joined(self.columns, tidied)
        gaps = self.gaps
        if gaps is not None:
            gaps = np.concatenate([gaps, self.pipeline[0].gaps(tidied)])
        pipeline = pipeline_with(self, rows, labels, new_classes)
        self._set(pipeline=pipeline, keys=keys, profile=profile, gaps=gaps)
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
        profile = self.profile
        if profile is not None:
            gone, stay = values[numbers], np.delete(values, numbers, axis=0)
            profile = profile.without(self.columns, gone, stay)
        report = None if self.report is None else self.report.without_quotes()
        kept, gaps = (
            None if part is None else np.delete(part, numbers, axis=0)
            for part in (self.keys, self.gaps)
        )
        self._set(pipeline=pipeline, keys=kept, profile=profile, gaps=gaps, report=report)
        return self

    def _set(self, **parts: Any) -> None:
        """Change several attributes in one step: an interruption leaves all as they were."""
        self.__dict__ = {**vars(self), **parts}

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
            "key": self.key,
        }
        write_record(Path(path), record)


def load(path: str | Path) -> Model:
    """Read a model; nothing in the file is executed, and unknown types are refused.

    Parameters
    ----------
    path : a file that ``Model.save`` or ``plml fit`` wrote

    Returns
    -------
    Model
        As it was when it was saved.

    See Also
    --------
    fit : Makes one.
    plml.load : For estimators without a table.

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
    gaps, key = found.get("gaps"), found.get("key")
    n_cases = len(pipeline[-1].training_cases()[1])
    if gaps is not None and (not isinstance(gaps, np.ndarray) or len(gaps) != n_cases):
        raise ValueError(f"{path} was not written by plml fit: its gaps are not those of its rows")
    known = _of_training(found, columns, path)
    return Model(
        pipeline, found["target"], columns, *known, gaps, key if isinstance(key, str) else None
    )


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
    path : the file to write; one that ends in ``.parquet`` or ``.pq`` is Parquet

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
    table.apply(_of_one_type).to_parquet(buffer, index=False)
    write(path, buffer.getvalue())


def _of_one_type(values: "pd.Series") -> "pd.Series":
    """A column that Parquet can hold: texts, where there are several types."""
    if pandas().api.types.infer_dtype(values) not in ("mixed", "mixed-integer"):
        return values
    return values.map(plain_text, na_action="ignore")


def fit(
    table: "pd.DataFrame",
    target: str,
    name: str = _THE_TABLE,
    *,
    regularization: float | None = None,
    paper: bool = False,
    missing: str = "auto",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    uses: Mapping[str, str] | None = None,
    doubts: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
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
    target : the name of that column
    name : what messages call the table
    regularization : the parameter of ``PLML``; None selects it by cross-validation
    paper : whether the selection is that of the paper, ``PLMLCV`` instead of ``AutoPLML``
    missing : "refuse", or what missing numbers become; see ``AutoPLML``. The paper's method takes
        medians unless something else is asked for.
    keep, drop, uses : as in ``describe``
    doubts : columns that ``read_table`` could not make out; a fit is refused until it is said what
        they are
    units : of columns, ``understood.marks.units`` of ``read_table``; new rows should have the same
    key : column that names the rows; it is not learned from
    weight : column of the weights of the rows; it is not learned from, and rows of weight zero are
        left out
    max_rows : if there are more rows, a stratified part is learned from and kept as cases
    tell : gets the report of the columns before the fit
    checkpoint : file in which the fit saves its state
    parameters : other parameters of the classifier

    Returns
    -------
    Model
        Takes tables in all its methods; see ``Model``.

    See Also
    --------
    load : A model that was saved.
    plml.AutoPLML : The classifier behind it, for data frames.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from plml import tables
    >>> table = load_wine(as_frame=True).frame
    >>> model = tables.fit(table[::2], "target", "wine.csv", regularization=1.0, random_state=0)
    >>> model.classifier.predict(model.prepared(table[1:8:2], "new.csv"))
    array([0, 0, 0, 0])
    """
    check_missing(missing)
    rows = training_rows(
        table,
        target,
        name,
        imputes=missing != "refuse",
        keep=keep,
        drop=drop,
        uses=uses,
        doubts=doubts,
        units=units,
        key=key,
        weight=weight,
        max_rows=max_rows,
        random_state=parameters.get("random_state"),
        tell=tell,
    )
    return learned(
        rows,
        regularization=regularization,
        paper=paper,
        missing=missing,
        checkpoint=checkpoint,
        **parameters,
    )


def check_missing(missing: str) -> None:
    """Refuse what is none of ``MISSING_VALUES``.

    Parameters
    ----------
    missing : as in ``fit``
    """
    if missing not in MISSING_VALUES:
        raise ValueError(f"missing must be one of {', '.join(MISSING_VALUES)}, got {missing!r}")


def learned(
    rows: TrainingRows,
    *,
    regularization: float | None,
    paper: bool,
    missing: str,
    checkpoint: Path | None,
    **parameters: Any,
) -> Model:
    """Fit a pipeline to the rows of a table that are learned from.

    Parameters
    ----------
    rows : of ``training_rows``
    regularization, paper, missing, checkpoint, parameters : as in ``fit``
    """
    fill = "auto" if missing in ("impute", "refuse") else missing
    if regularization is not None:
        classifier: Any = PLML(regularization=regularization, **parameters)
    else:
        classifier = PLMLCV(**parameters) if paper else AutoPLML(missing=fill, **parameters)
    pipeline = _pipeline(classifier, fill)
    with stage(LEARNING, named=False):
        options = fit_options(pipeline, rows.weights)
        pipeline.fit(rows.values, rows.labels, classify__checkpoint=checkpoint, **options)
    gaps = None if isinstance(classifier, AutoPLML) else pipeline[0].gaps(rows.values)
    known = rows.profile, rows.keys, rows.report
    return Model(pipeline, rows.target, rows.columns, *known, gaps, rows.key)


def _pipeline(classifier: Any, fill: str) -> Pipeline:
    if isinstance(classifier, AutoPLML):
        return Pipeline([("classify", classifier)])
    encoder = TableEncoder(missing=FILLS[0] if fill == "auto" else fill)
    steps = [("encode", encoder), ("scale", MeanNormScaler()), ("classify", classifier)]
    pipeline = Pipeline(steps)
    pipeline[:-1].set_output(transform="pandas")
    return pipeline
