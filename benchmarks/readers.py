"""What well-kept readers make of awkward files and columns by themselves, beside plml.

    python benchmarks/readers.py            # the files of tests/tables: every reader on each
    python benchmarks/readers.py --columns  # texts and columns, by skrub
    python benchmarks/readers.py --names    # also which files a reader has wrong

A file of text, or a compressed one, counts as right where the table has the right names, the right
numbers and the right texts; as refused where there is an error, or more than 12 GiB are asked for;
and as wrong in all other cases: nothing says that the table is not what was meant. A file that has
to be refused is right to refuse.
"""

import argparse
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
from pyarrow import csv
from skrub import TableVectorizer, ToDatetime, ToFloat

from plml import read_table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "tables"))

_MOST_MEMORY = 12 << 30


def by_duckdb(path: Path) -> pd.DataFrame:
    with duckdb.connect(config={"threads": 1}) as database:
        return database.read_csv(str(path)).df()


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "plml": lambda path: read_table(path)[0],
    "DuckDB": by_duckdb,
    "pandas": pd.read_csv,
    "pandas, sep=None": lambda path: pd.read_csv(path, sep=None, engine="python"),
    "Polars": lambda path: pl.read_csv(path).to_pandas(),
    "pyarrow": lambda path: csv.read_csv(path).to_pandas(),
}


def outcome(read: Callable[[Path], pd.DataFrame], path: Path, meant: Any) -> str:
    """Right, refused or wrong."""
    try:
        found = read(path)
    except (Exception, pl.exceptions.PanicException):  # every library has its own
        return "right" if meant is None else "refused"
    if meant is None:
        return "wrong"
    meant = meant.reset_index(drop=True)
    empty = [name for name in meant if meant[name].isna().all()]
    try:
        found = found.astype(dict.fromkeys(empty, float))
        pd.testing.assert_frame_equal(
            found, meant, check_dtype=False, check_column_type=False, rtol=1e-12
        )
    except (AssertionError, TypeError, ValueError, KeyError):
        return "wrong"
    return "right"


def files(names: bool) -> None:
    """Every reader on each file that is text and needs no option."""
    import corpus
    import exported_files
    import foreign_files
    import office_files

    modules = (corpus, office_files, foreign_files, exported_files)
    found = [case for module in modules for case in module.cases()]
    cases = [case for case in found if case.is_text and not case.options]
    print(f"{len(cases)} files    {'right':>8}{'refused':>9}{'wrong':>7}")
    with tempfile.TemporaryDirectory() as folder:
        paths = [case.write(Path(folder)) for case in cases]
        for reader, read in READERS.items():
            found = [outcome(read, p, c.table) for p, c in zip(paths, cases, strict=True)]
            n = Counter(found)
            print(f"{reader:<18}{n['right']:>6}{n['refused']:>9}{n['wrong']:>7}", flush=True)
            if names:
                bad = (c.name for c, how in zip(cases, found, strict=True) if how == "wrong")
                print("  " + ", ".join(bad))


def columns() -> None:
    """What skrub makes of texts."""
    texts = {
        "33.6 kg": ToFloat(),
        "1.234,5": ToFloat(decimal=",", thousand="."),
        "1.234": ToFloat(),
        "0123": ToFloat(),
        "(33.5)": ToFloat(parentheses=True),
        "13.05.21": ToDatetime(),
        "05/13/2021 05:06 PM": ToDatetime(),
        "05:06:07": ToDatetime(),
        "01.02.2021": ToDatetime(),
    }
    for text, transformer in texts.items():
        try:
            (value,) = transformer.fit_transform(pd.Series([text], name="x"))
            shown = f"{value!r}"
        except Exception as error:
            shown = f"refused: {str(error).splitlines()[0]}"
        print(f"{text:<22}{type(transformer).__name__:<12}{shown}")
    kinds()


def kinds() -> None:
    """What plml and skrub's ``TableVectorizer`` take the columns of the tests for."""
    from test_kinds_of_columns import COLUMNS, SIZES

    print(f"\n{'column':<22}{'plml':<12}{'use':<10}skrub")
    for name, (values, kind, use, _) in COLUMNS.items():
        table = pd.DataFrame({"size": SIZES, name: values})
        try:
            encoder = TableVectorizer().fit(table)
            features = encoder.get_feature_names_out()
            found = encoder.column_to_kind_.get(name, "left out")
            found = f"{found}, {sum(str(f).startswith(name) for f in features)} features"
        except Exception as error:
            found = f"refused: {str(error).splitlines()[0][:60]}"
        print(f"{name:<22}{kind:<12}{use:<10}{found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", action="store_true")
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    columns() if options.columns else files(options.names)


if __name__ == "__main__":
    main()
