"""What a fitted encoder knows of single rows, and how it forgets it.

The name of a category that no other row has becomes a placeholder, a median that is the value of a
row becomes that of the other rows, and a row that gaps are filled from is taken out. Means and
spreads of columns stay: all distances are measured in them.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plml.preprocessing.columns import MISSING, pandas
from plml.preprocessing.date_encoder import DateEncoder
from plml.preprocessing.table_encoder import NeighborImputer, TableEncoder

#: Numbers that agree to this, relative and in units of the spread, are the same one.
_SAME = 1e-9
#: What stands for the name of a category.
FORGOTTEN = "(forgotten)"


class Rows(NamedTuple):
    """Encoded rows, and where their numbers and dates were missing."""

    encoded: np.ndarray  # (n, n_features_out)
    gaps: np.ndarray  # (n, n_columns)

    def own(self, feature: int, column: int) -> np.ndarray:
        """The values of a feature that are not filled in."""
        return self.encoded[~self.gaps[:, column], feature]


def encoder_without(encoder: TableEncoder, gone: Rows, stay: Rows) -> tuple[TableEncoder, Rows]:
    """An encoder that has forgotten some rows, and the others with their gaps as it fills them.

    What a row that stays has as well is kept until that row goes, too, whether it was learned from
    or added.

    Parameters
    ----------
    encoder : stays as it is
    gone, stay : the rows, as it encodes them
    """
    _check_values_left(encoder, gone, stay)
    after = deepcopy(encoder)
    for step, columns, features in _parts(after):
        if isinstance(step, OneHotEncoder):
            _forget_names(step, gone.encoded[:, features], stay.encoded[:, features])
        elif isinstance(step, DateEncoder):
            firsts = features.start + np.searchsorted(step.owner, np.arange(len(columns)))
            root = np.sqrt(np.bincount(step.owner))
            scales, means = step.scales_ * root, step.means_
            _move_medians(encoder, step.medians_, (columns, firsts, scales, means), gone, stay)
        elif isinstance(step[-1], NeighborImputer):
            parts = [(rows.encoded[:, features], rows.gaps[:, columns]) for rows in (gone, stay)]
            _forget_donors(step[-1], *(np.where(gaps, np.nan, own) for own, gaps in parts))
        else:
            places = features.start + np.arange(len(columns))
            scaling = _scaling(step[-1], len(columns))
            _move_medians(encoder, step[0].statistics_, (columns, places, *scaling), gone, stay)
    return after, _filled_again(encoder, after, stay)


def _parts(encoder: TableEncoder) -> Iterator[tuple[Any, list[int], slice]]:
    """The steps of an encoder, with their columns and features."""
    whole, n_columns = encoder.transformer, encoder.n_features_in_
    if not isinstance(whole, ColumnTransformer):
        yield whole, list(range(n_columns)), slice(0, None)
        return
    place = {str(name): i for i, name in enumerate(whole.feature_names_in_)}
    for name, step, columns in whole.transformers_:
        features = whole.output_indices_[name]
        if not isinstance(step, str) and features.stop > features.start:
            yield step, [place[str(column)] for column in columns], features


def _forget_names(step: OneHotEncoder, gone: np.ndarray, stay: np.ndarray) -> None:
    """Replace names of categories that only the rows that are gone have.

    Rare categories share a feature, so it is not known which of them a row has: all go.
    """
    start, categories = 0, list(step.categories_)
    for column, known in enumerate(categories):
        rare = getattr(step, "infrequent_categories_", [None] * len(categories))[column]
        is_rare = np.isin(known, [] if rare is None else rare)
        here = slice(start, start + int((~is_rare).sum()))
        start = here.stop + bool(is_rare.any())
        lost = np.zeros(len(known), dtype=bool)
        lost[~is_rare] = gone[:, here].any(axis=0) & ~stay[:, here].any(axis=0)
        lost[is_rare] = gone[:, here.stop : start].any()
        lost &= known != MISSING
        names = [str(name) for name in known[~lost]]
        fresh = (f"{FORGOTTEN[:-1]} {i})" for i in range(1, 2 * len(known) + 1))
        new = [name for name in fresh if name not in names]
        changed = known.astype(object)
        changed[lost] = new[: int(lost.sum())]
        categories[column] = changed.astype(known.dtype) if known.dtype.kind == "O" else changed
    step.categories_ = categories


def _check_values_left(encoder: TableEncoder, gone: Rows, stay: Rows) -> None:
    """Refuse to forget all values of a column of numbers or dates."""
    lost = np.flatnonzero(stay.gaps.all(axis=0) & ~gone.gaps.all(axis=0))
    if len(lost):
        names = getattr(encoder, "feature_names_in_", None)
        where = f"column {lost[0]}" if names is None else f"column {str(names[lost[0]])!r}"
        raise ValueError(
            f"no other row has a value in {where}; to forget this one, fit again without the column"
        )


def _forget_donors(step: NeighborImputer, gone: np.ndarray, stay: np.ndarray) -> None:
    """Take rows out of those that gaps are filled from, where no row that stays is the same."""
    donors = step._fit_X
    for row in gone:
        same = _same_rows(donors, row)
        if same.any() and not _same_rows(stay, row).any():
            donors = donors[~same]
    empty = np.isnan(donors).all(axis=0) & ~np.isnan(step._fit_X).all(axis=0)
    if empty.any():
        raise ValueError("no row would be left to fill gaps from; fit again")
    step._fit_X, step._mask_fit_X = donors, np.isnan(donors)


def _same_rows(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Which rows are a row, gaps included."""
    return np.isclose(rows, row, rtol=_SAME, atol=_SAME, equal_nan=True).all(axis=1)


def _scaling(scaler: StandardScaler, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales and means of the columns of numbers."""
    scales = np.ones(n) if scaler.scale_ is None else scaler.scale_[:n]
    return scales, np.zeros(n) if not scaler.with_mean else scaler.mean_[:n]


def _move_medians(
    encoder: TableEncoder, medians: np.ndarray, where: tuple[Any, ...], gone: Rows, stay: Rows
) -> None:
    """Change medians that are a value of a row that is gone, and of no other."""
    fill = _nothing(encoder)
    for i, (column, feature, scale, mean) in enumerate(zip(*where, strict=True)):
        others = stay.own(feature, column)
        theirs, shared = (
            np.isclose(values, fill[feature], rtol=_SAME, atol=_SAME).any()
            for values in (gone.own(feature, column), others)
        )
        if theirs and not shared:
            medians[i] = np.sort(others)[(len(others) - 1) // 2] * scale + mean


def _nothing(encoder: TableEncoder) -> np.ndarray:
    """A row without a value, (n_features_out,) as it is encoded."""
    whole, names = encoder.transformer, getattr(encoder, "feature_names_in_", None)
    if not isinstance(whole, ColumnTransformer):
        empty: Any = np.full((1, encoder.n_features_in_), np.nan)
        if names is not None:
            empty = pandas().DataFrame(empty, columns=names)
        return np.asarray(encoder.transform(empty))[0]
    dates = {name: pandas().Series([None], dtype="datetime64[ns]") for name in encoder.dates_}
    texts = {name: [MISSING] for name in encoder.categories_}
    row = {name: [np.nan] for name in whole.feature_names_in_} | texts | dates
    return np.asarray(whole.transform(pandas().DataFrame(row)), dtype=np.float64)[0]


def _filled_again(before: TableEncoder, after: TableEncoder, rows: Rows) -> Rows:
    """The rows with gaps filled as an encoder does now, where it does so in another way."""
    old, new = _nothing(before), _nothing(after)
    result = rows.encoded.copy()
    for step, columns, features in _parts(after):
        if isinstance(step, OneHotEncoder) or (
            not isinstance(step, DateEncoder) and isinstance(step[-1], NeighborImputer)
        ):
            continue
        is_date = isinstance(step, DateEncoder)
        owner = step.owner if is_date else np.arange(len(columns))
        for place, column in enumerate(columns):
            own = features.start + np.flatnonzero(owner == place)
            if (old[own] != new[own]).any():
                result[np.ix_(rows.gaps[:, column], own)] = new[own]
    return rows._replace(encoded=result)
