"""Columns that say what an earlier one says: the same, on another scale, or in other words.

skrub's ``DropSimilar`` drops one of two columns whose association (Cramér's V, of numbers in bins)
is above a threshold; here a column is left out only where nothing is lost by it, and what is nearly
so is said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from plml.install import pandas
from plml.preprocessing.columns import as_numbers
from plml.preprocessing.dates import days_of, read_dates

if TYPE_CHECKING:
    import pandas as pd

    from plml.tables.column_kinds import ColumnFacts

#: Standardised columns that differ by less than this are the same; those that correlate by more
#: than the second are nearly so.
_CLOSE, _NEARLY = 1e-7, 0.9999
#: Rows and entries that are looked at first, at most.
_MOST_ROWS, _MOST_ENTRIES = 2000, 4_000_000


def without_copies(
    features: "pd.DataFrame", found: "list[ColumnFacts]", asked: set[str]
) -> "list[ColumnFacts]":
    """Columns that are copies of an earlier one that is used are left out.

    Parameters
    ----------
    features, found : a table and what is known of its columns
    asked : columns that a user said something of
    """
    used = [fact for fact in found if fact.use != "ignore"]
    same, near = _copied_numbers(features, [fact for fact in used if fact.use != "category"])
    same |= dict(_recoded(features, [fact for fact in used if fact.name not in same]))
    result = []
    for fact in found:
        if fact.name in same and fact.name not in asked:
            what = f"left out: it is {same[fact.name]} (use it: --keep)"
            fact = replace(fact, kind="duplicate", use="ignore", what=what, doubt=False)
        elif fact.name in near:
            cure = f"if it is the same, --drop {quote(fact.name)}"
            what = f"{fact.what}; nearly {near[fact.name]}: {cure}"
            fact = replace(fact, what=what, doubt=True)
        result.append(fact)
    return result


def _copied_numbers(
    features: "pd.DataFrame", facts: "Sequence[ColumnFacts]"
) -> tuple[dict[str, str], dict[str, str]]:
    """Numbers and dates that are, or nearly are, an earlier one times a number plus a number."""
    same: dict[str, str] = {}
    near: dict[str, str] = {}
    for first, second in _candidates(features, facts):
        if first.name in same or second.name in same:
            continue
        one, other = (_numbers(features, fact) for fact in (first, second))
        if np.array_equal(one, other, equal_nan=True):
            same[second.name] = f"the same as {first.name!r}"
            continue
        apart = np.abs(np.abs(_standard(one)) - np.abs(_standard(other)))
        if (np.isnan(one) == np.isnan(other)).all() and apart.max() < _CLOSE:
            same[second.name] = f"{first.name!r} on another scale"
        else:
            near.setdefault(second.name, f"{first.name!r} on another scale")
    return same, near


def _candidates(
    features: "pd.DataFrame", facts: "Sequence[ColumnFacts]"
) -> "Iterator[tuple[ColumnFacts, ColumnFacts]]":
    """Pairs of columns that correlate, or are equal, in some of the rows."""
    if len(facts) < 2 or len(features) < 3:
        return
    most = min(_MOST_ROWS, max(_MOST_ENTRIES // len(facts), 100))
    some = features.iloc[:: -(-len(features) // most)]
    rows = np.stack([_standard(_numbers(some, fact)) for fact in facts])
    norms = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    rows /= np.where(norms > 0.0, norms, 1.0)
    for place, fact in enumerate(facts):
        close = np.flatnonzero(np.abs(rows[:place] @ rows[place]) > _NEARLY)
        yield from ((facts[int(earlier)], fact) for earlier in close)


def _numbers(features: "pd.DataFrame", fact: "ColumnFacts") -> np.ndarray:
    values = features[fact.name]
    if fact.use == "date":
        return days_of(read_dates(values, fact.day_first))
    return as_numbers(values).to_numpy(np.float64, na_value=np.nan)


def _standard(numbers: np.ndarray) -> np.ndarray:
    """With a mean of zero and a spread of one, missing ones at the mean."""
    present = ~np.isnan(numbers)
    scale = np.abs(numbers[present]).max(initial=0.0) or 1.0
    numbers = np.where(present, numbers / scale, 0.0)
    centred = np.where(present, numbers - numbers[present].mean() if present.any() else 0.0, 0.0)
    return centred / (np.sqrt(np.mean(centred**2)) or 1.0)


def _recoded(features: "pd.DataFrame", facts: "Sequence[ColumnFacts]") -> Iterator[tuple[str, str]]:
    """Categories that group the rows as another column does; of a number the category goes."""
    if not any(fact.use == "category" for fact in facts):
        return
    seen: dict[bytes, ColumnFacts] = {}
    for fact in facts:
        if fact.use == "date" or 2 * fact.n_values > len(features):
            continue
        codes = pandas().factorize(features[fact.name])[0].astype(np.int32)
        twin = seen.setdefault(blake2b(codes, digest_size=16).digest(), fact)
        if twin is fact or "category" not in (twin.use, fact.use):
            continue
        is_number = fact.use != "category" and fact.n_values > 2
        first, second = (fact, twin) if is_number else (twin, fact)
        equal = features[first.name].astype(str) == features[second.name].astype(str)
        words = "" if equal.all() else ", in other words"
        yield second.name, f"the same as {first.name!r}{words}"
