"""From a table on disk to a model on disk and back: what the command line does with files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plml import PLML, PLMLCV
from plml.persistence import read_record, write_record
from plml.preprocessing import MeanNormScaler

if TYPE_CHECKING:
    import pandas as pd

#: Categories rarer than this share one column.
_RARE = 0.005
_MOST_CATEGORIES = 50


@dataclass(frozen=True)
class Model:
    """A fitted pipeline with what it has to know of its table."""

    pipeline: Pipeline
    target: str
    columns: tuple[str, ...]
    imputes: bool

    @property
    def classifier(self) -> PLML | PLMLCV:
        """The last step."""
        return self.pipeline[-1]

    def features(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """The columns that the model was fitted on, in their order."""
        missing = [column for column in self.columns if column not in table.columns]
        if missing:
            raise ValueError(f"{name} lacks the columns {_listed(missing)}")
        return table[list(self.columns)]

    def prepared(self, table: "pd.DataFrame", name: str) -> "pd.DataFrame":
        """As the classifier sees the rows, with the names of its features."""
        features = self.features(table, name)
        _check_missing(features, name, self.imputes)
        try:
            return self.pipeline[:-1].transform(features)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def save(self, path: Path) -> None:
        """Write a skops file, in one step."""
        record = {
            "pipeline": self.pipeline,
            "target": self.target,
            "columns": list(self.columns),
            "imputes": self.imputes,
        }
        write_record(path, record)


def load(path: Path) -> Model:
    """Read a model; nothing in the file is executed, and unknown types are refused."""
    found = read_record(path)
    if "pipeline" not in found:
        raise ValueError(f"{path} was not written by plml fit; use plml.load with it")
    return Model(found["pipeline"], found["target"], tuple(found["columns"]), found["imputes"])


def read_table(path: Path) -> "pd.DataFrame":
    """A CSV or Parquet file."""
    pandas = _pandas()
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            table = pandas.read_parquet(path)
        else:
            table = pandas.read_csv(path)
    except (ValueError, OSError, UnicodeDecodeError) as error:  # pyarrow's are ValueErrors
        first = str(error).strip().splitlines() or ["unreadable"]
        raise ValueError(f"{path} cannot be read as a table: {first[0]}") from error
    table.columns = [str(column) for column in table.columns]
    repeated = table.columns[table.columns.duplicated()].tolist()
    if repeated:
        raise ValueError(f"{path} has columns of the same name: {_listed(repeated)}")
    if not len(table):
        raise ValueError(f"{path} has no rows")
    return table


def fit(
    table: "pd.DataFrame",
    target: str,
    name: str,
    *,
    regularization: float | None = None,
    missing: str = "refuse",
    drop: tuple[str, ...] = (),
    **parameters: Any,
) -> Model:
    """A pipeline fitted to a table: encode, impute, standardise, bring to one scale, learn.

    Parameters
    ----------
    table : with the labels in a column
    target : that column
    name : of the file, for messages
    regularization : of ``PLML``; None selects it by cross-validation
    missing : "refuse" or "impute" (medians, and a category of their own)
    drop : columns to leave out
    parameters : of the classifier
    """
    for column in (target, *drop):
        if column not in table.columns:
            raise ValueError(f"{name} has no column {column!r}; it has {_listed(table.columns)}")
    labels = table[target]
    if labels.isna().any():
        raise ValueError(
            f"{name}: column {target!r} has no label in {int(labels.isna().sum())} rows, the first "
            f"is row {int(np.flatnonzero(labels.isna())[0])}; drop these rows"
        )
    features = table.drop(columns=[target, *drop])
    if not features.shape[1]:
        raise ValueError(f"{name} has no column beside {target!r} to learn from")
    _check_missing(features, name, missing == "impute")
    encoder = _encoder(features, name, missing)
    if regularization is None:
        classifier: Any = PLMLCV(**parameters)
    else:
        classifier = PLML(regularization=regularization, **parameters)
    pipeline = Pipeline(
        [("encode", encoder), ("scale", MeanNormScaler()), ("classify", classifier)]
    )
    pipeline[:-1].set_output(transform="pandas")
    pipeline.fit(features, _plain(labels))
    return Model(pipeline, target, tuple(features.columns), missing == "impute")


def _encoder(features: "pd.DataFrame", name: str, missing: str) -> ColumnTransformer:
    types = _pandas().api.types
    numbers, categories = [], []
    for column in features:
        values = features[column]
        if types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values):
            raise ValueError(
                f"{name}: column {column!r} holds dates; turn it into numbers, or --drop it"
            )
        if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
            numbers.append(column)
            continue
        n_values = values.nunique()
        if n_values > _MOST_CATEGORIES and n_values > 0.5 * len(values):
            raise ValueError(
                f"{name}: column {column!r} has {n_values} different values in {len(values)} rows, "
                "so it says nothing of its class; --drop it"
            )
        categories.append(column)
    number_steps: list[Any] = [SimpleImputer(strategy="median")] if missing == "impute" else []
    onehot = OneHotEncoder(
        handle_unknown="infrequent_if_exist", min_frequency=_RARE, sparse_output=False
    )
    return ColumnTransformer(
        [
            ("number", make_pipeline(*number_steps, StandardScaler()), numbers),
            ("category", make_pipeline(onehot, StandardScaler()), categories),
        ],
        verbose_feature_names_out=False,
    )


def _check_missing(features: "pd.DataFrame", name: str, imputes: bool) -> None:
    """Refuse infinite numbers, and missing ones unless they are imputed."""
    types = _pandas().api.types
    for column in features:
        values = features[column]
        number = types.is_numeric_dtype(values) and not types.is_bool_dtype(values)
        if number and np.isinf(values.to_numpy(dtype=float, na_value=np.nan)).any():
            raise ValueError(f"{name}: column {column!r} holds infinite values")
        lost = values.isna()
        if number and lost.any() and not imputes:
            raise ValueError(
                f"{name}: column {column!r} has {int(lost.sum())} missing values, the first in row "
                f"{int(np.flatnonzero(lost)[0])}; fill them, or fit with --missing impute"
            )


def _plain(labels: "pd.Series") -> np.ndarray:
    """Labels as NumPy values: strings, booleans or integers."""
    values = labels.to_numpy()
    return values.astype(str) if values.dtype.kind not in "biuf" else values


def _listed(names: Any, most: int = 8) -> str:
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ValueError('tables need pandas: pip install "plml[cli]"') from None
    return pandas
