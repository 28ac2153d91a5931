"""From a table on disk to a model on disk and back: what the command line does with files."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plml.backend.progress import stage
from plml.estimators.auto_plml import AutoPLML
from plml.estimators.plml import PLML
from plml.estimators.plml_cv import PLMLCV
from plml.inspection.counterfactuals import Counterfactual, counterfactual
from plml.inspection.explain_any import explain
from plml.inspection.explanation import Explanation
from plml.io.files import write
from plml.io.model_files import read_record, write_record
from plml.preprocessing import MeanNormScaler
from plml.preprocessing.columns import Columns, listed, pandas

if TYPE_CHECKING:
    import pandas as pd

#: Stages of what is done with a table.
ENCODING, LEARNING = "encoding", "learning"
#: Categories rarer than this share one column.
_RARE = 0.005


@dataclass(frozen=True)
class Model:
    """A fitted pipeline with what it has to know of its table."""

    pipeline: Pipeline
    target: str
    columns: Columns

    @property
    def classifier(self) -> AutoPLML | PLML | PLMLCV:
        """The classifier at the end of the pipeline."""
        return self.pipeline[-1]

    def prepared(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """As the classifier sees the rows, with the names of its features."""
        with stage(ENCODING):
            return self.pipeline[:-1].transform(self.columns.tidy(table, name))

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

    def explain(self, rows: "pd.DataFrame", name: str, cases: int | None = None) -> Explanation:
        """Why rows of a table are predicted as they are, in the columns of the table.

        Parameters
        ----------
        rows : of a table
        name : of its file, for messages
        cases : nearest cases listed per row
        """
        return explain(self.pipeline, self.columns.tidy(rows, name), cases)

    def counterfactual(
        self, row: "pd.DataFrame", name: str, columns: list[str] | None = None
    ) -> Counterfactual | None:
        """The smallest change of some columns that turns the prediction of one row.

        Parameters
        ----------
        row, name : as in ``explain``
        columns : that may change; by default all
        """
        return counterfactual(self.pipeline, self.columns.tidy(row, name), columns)

    def save(self, path: Path) -> None:
        """Write a skops file, in one step."""
        record = {
            "pipeline": self.pipeline,
            "target": self.target,
            "names": list(self.columns.names),
            "categories": list(self.columns.categories),
            "imputes": self.columns.imputes,
        }
        write_record(path, record)


def load(path: Path) -> Model:
    """Read a model; nothing in the file is executed, and unknown types are refused."""
    found = read_record(path)
    pipeline = found.get("pipeline")
    parts = (found.get("names"), found.get("categories"), found.get("target"))
    if (
        not isinstance(pipeline, Pipeline)
        or list(pipeline.named_steps) != ["encode", "scale", "classify"]
        or not isinstance(pipeline[-1], AutoPLML | PLML | PLMLCV)
        or not all(hasattr(step, "n_features_in_") for step in pipeline.named_steps.values())
        or not all(isinstance(part, kind) for part, kind in zip(parts, _PARTS, strict=True))
        or list(getattr(pipeline[0], "feature_names_in_", [])) != found["names"]
    ):
        raise ValueError(f"{path} was not written by plml fit")
    imputes = bool(found.get("imputes", False))
    columns = Columns(tuple(found["names"]), tuple(found["categories"]), imputes)
    return Model(pipeline, found["target"], columns)


_PARTS = (list, list, str)


def read_table(path: Path) -> "pd.DataFrame":
    """A CSV or Parquet file."""
    if not path.is_file():
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the path of a table")
        if path.exists():
            raise ValueError(f"{path} is a pipe or a device; a table has to be in a file")
        raise ValueError(f"there is no file {path}")
    try:
        table = _read(path)
    except Exception as error:  # whatever a damaged file leads its parser to
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be read as a table: {first[0]}") from error
    table.columns = [str(column) for column in table.columns]
    repeated = table.columns[table.columns.duplicated()].tolist()
    if repeated:
        raise ValueError(f"{path} has columns of the same name: {listed(repeated)}")
    if not len(table):
        raise ValueError(f"{path} has no rows")
    return table


def _read(path: Path) -> "pd.DataFrame":
    if path.suffix.lower() in (".parquet", ".pq"):
        return pandas().read_parquet(path)
    table = pandas().read_csv(path, low_memory=False)
    # pandas gives repeated names numbers; the header itself has what the user wrote.
    with path.open(newline="", encoding="utf-8-sig") as stream:
        rows = filter(any, csv.reader(stream))
        header = next(rows, [])
        first = next(rows, header)
    if len(first) > len(header):  # pandas would take the first columns for the names of rows
        raise ValueError(
            f"the rows have more fields than the header, which has {len(header)}; name every "
            "column, or take the comma at the end of the rows away"
        )
    strange = [name for name in header if not name.isprintable()]
    if strange:
        raise ValueError(f"the header has a name that cannot be printed: {strange[0]!r}")
    if len(header) == table.shape[1]:
        names = zip(header, table.columns, strict=True)
        table.columns = [written or given for written, given in names]
    return table


def write_table(table: "pd.DataFrame", path: Path) -> None:
    """CSV, or Parquet where the name says so; in one step."""
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
    missing: str = "refuse",
    drop: tuple[str, ...] = (),
    checkpoint: Path | None = None,
    **parameters: Any,
) -> Model:
    """A pipeline fitted to a table: encode, impute, standardise, bring to one scale, learn.

    Parameters
    ----------
    table : with the labels in a column
    target : that column
    name : of the file, for messages
    regularization : of ``PLML``; None selects by cross-validation
    paper : whether the selection is that of the paper, ``PLMLCV`` instead of ``AutoPLML``
    missing : "refuse" or "impute" (medians, and a category of their own)
    drop : columns to leave out
    checkpoint : file in which the fit saves its state
    parameters : of the classifier
    """
    for column in drop:
        if column not in table.columns:
            raise ValueError(f"{name} has no column {column!r}; it has {listed(table.columns)}")
    labels = _target(table, target, name)
    features = table.drop(columns=[target, *drop])
    if not features.shape[1]:
        raise ValueError(f"{name} has no column besides {target!r} to learn from")
    columns = Columns.of(features, name, missing == "impute")
    if regularization is not None:
        classifier: Any = PLML(regularization=regularization, **parameters)
    else:
        classifier = PLMLCV(**parameters) if paper else AutoPLML(**parameters)
    pipeline = Pipeline(
        [("encode", _encoder(columns)), ("scale", MeanNormScaler()), ("classify", classifier)]
    )
    pipeline[:-1].set_output(transform="pandas")
    with stage(ENCODING):
        rows = _encoded(pipeline, columns.tidy(features, name), name)
    with stage(LEARNING, named=False):
        classifier.fit(rows, _plain(labels, f"{name}: column {target!r}"), checkpoint=checkpoint)
    return Model(pipeline, target, columns)


def _encoded(pipeline: Pipeline, features: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """The rows as the classifier of a pipeline sees them; fits what is before it."""
    try:
        return pipeline[:-1].fit_transform(features)
    except ValueError as error:
        if "verbose_feature_names_out" not in str(error):
            raise
        raise ValueError(
            f"{name}: a column has the name that a category of another column gets, as in "
            "'colour_red'; rename it"
        ) from error


def _encoder(columns: Columns) -> ColumnTransformer:
    number_steps: list[Any] = [SimpleImputer(strategy="median")] if columns.imputes else []
    onehot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=_RARE, sparse_output=False
    )
    kinds = [
        ("number", make_pipeline(*number_steps, StandardScaler()), list(columns.numbers)),
        ("category", make_pipeline(onehot, StandardScaler()), list(columns.categories)),
    ]
    return ColumnTransformer(
        [kind for kind in kinds if kind[2]], verbose_feature_names_out=False, sparse_threshold=0.0
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
    if values.dtype.kind == "f" and np.any(values != np.floor(values)):
        raise ValueError(
            f"{where} holds numbers that are not whole, and classes are needed; name another "
            "--target, or cut the numbers into classes"
        )
    return np.array([str(v) for v in values]) if values.dtype.kind not in "biuf" else values
