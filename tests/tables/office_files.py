"""More awkward files, as offices and laboratories have them, each with what must come of it."""

import gzip
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import zstandard

from corpus import Case, cancer, iris, parquet, read, refused, text, wine, workbook, zipped


def german(number: float, digits: int = 2) -> str:
    return f"{number:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def priced(write: Any) -> pd.DataFrame:
    """Wine with its proline as text."""
    return wine().assign(proline=[write(value) for value in wine()["proline"]])


def marks_in_numbers() -> Iterator[Case]:
    euros = text(priced(lambda v: f"{german(v)} €"), sep=";", decimal=",")
    yield read("prices in German", euros, wine(), "decimal mark ,", "numbers in '€'")
    cp1252 = text(priced(lambda v: f"{german(v)} €"), sep=";").encode("cp1252")
    said = ("column 'proline' has decimal mark ','", "cp1252")
    yield read("prices in German among points cp1252", cp1252, wine(), *said)
    francs = text(priced(lambda v: f"Fr. {v:.2f}"))
    yield read("francs", francs, wine(), "numbers in 'Fr.'")
    yield read("krona", text(priced(lambda v: f"kr {v:.0f}")), wine(), "numbers in 'kr'")
    euros = text(priced(lambda v: f"€{v:,.2f}"), sep="|")
    yield read("euros before", euros, wine(), "numbers in '€'", "thousands mark ','")
    swiss = text(priced(lambda v: f"CHF {v:,.2f}".replace(",", "\u2019")), sep="\t")
    yield read("francs of Switzerland", swiss, wine(), "numbers in 'CHF'", "thousands mark '''")
    quoted = text(priced(lambda v: f"{v:.1f}".replace(".", ",")))
    yield read("a comma among points", quoted, wine(), "column 'proline' has decimal mark ','")
    thousands = text(priced(lambda v: f"{v:,.0f}"))
    yield read("thousands of one column", thousands, wine(), "thousands mark ','")
    behind = wine().assign(proline=wine()["proline"] - 700)
    signs = [f"{-v:.1f}-" if v < 0 else f"{v:.1f}" for v in behind["proline"]]
    yield read("minus behind", text(behind.assign(proline=signs)), behind)
    marks = iris().assign(grade=[f"{i % 5 + 1}-" for i in range(150)])
    yield read("marks of a school", text(marks), marks)
    exponents = pd.DataFrame({"a": [1.022e3, 4.5e-7, 2.25e2] * 9, "y": ["u", "v", "w"] * 9})
    written = exponents.assign(a=[f"{v:.3e}".replace(".", ",") for v in exponents["a"]])
    yield read("exponents with commas", text(written, sep=";"), exponents, "decimal mark ,")
    pointed = pd.DataFrame({"a": [1.234, 2.345, 9.871] * 9, "y": ["u", "v", "w"] * 9})
    points = text(pointed, sep="\t")
    yield read("points or thousands", points, pointed, "'1.234' is read with", "--thousands .")
    whole = pointed.assign(a=[1234.0, 2345.0, 9871.0] * 9)
    yield read("points told as thousands", points, whole, "thousands mark '.'", thousands=".")
    both = wine().assign(
        hue=[f"{v}".replace(".", "," if i % 2 else ".") for i, v in enumerate(wine()["hue"])]
    )
    said = ("column 'hue'", "in one way", "--as hue=category")
    yield read("two decimal marks in one column", text(both, sep=";"), both, *said)


def missing_marks() -> Iterator[Case]:
    gaps = wine().copy()
    gaps.loc[[3, 8], "ash"] = np.nan
    for mark in ("#DIV/0!", "#N/A", "#NV", "#WERT!", "n.a.", "NULL", "--"):
        marked = wine().astype({"ash": object})
        marked.loc[[3, 8], "ash"] = mark
        name = f"missing in an office {mark}".translate(str.maketrans("#/!.", "----"))
        yield read(name, text(marked), gaps, f"'{mark}' (2 times)", "--na")
    minus = wine().copy()
    minus.loc[[3, 8], "magnesium"] = -1
    yield read("minus one", text(minus), minus, "-1 (2 times) is far below all others", "--na -1")
    told = wine().copy()
    told.loc[[3, 8], "magnesium"] = np.nan
    yield read("minus one told", text(minus), told, "'-1' (2 times)", na=("-1",))
    limit = cancer()[["mean radius"]].assign(
        crp=[f"{i % 97}" if i % 9 else "<5" for i in range(569)]
    )
    yield read("below a limit among numbers", text(limit), limit, "'<5' among numbers", "--na '<5'")


def lines_above() -> Iterator[Case]:
    content = text(iris(), sep=";")
    yield read("title padded", "Irises;;;;\n" + content, iris(), "1 lines before the header")
    padded = "Irises;;;;\n;;;;\nGaspé, 1935;;;;\n" + content
    yield read("titles padded", padded, iris(), "3 lines before the header")
    head, rows = text(iris()).split("\n", 1)
    units = f"{head}\ncm,cm,cm,cm,\n{rows}"
    yield refused("line of units", units, "line 2", "names or units ('cm', 'cm', 'cm')")
    groups = "sepal,,petal,,\n" + text(iris())
    yield refused("line of groups", groups, "line 2", "second line of names")
    yield refused("rule and a separator at its end", "a\n-,\n", "line 2 is a rule")
    counted = iris().set_axis([str(number) for number in range(5)], axis=1)
    yield read("names that count", text(counted), counted)
    yield read(
        "names that count and an index",
        text(counted.reset_index()).replace("index", "", 1),
        counted.reset_index().rename(columns={"index": "Unnamed: 0"}),
        "no name",
    )
    told = "\ufeffsep=;\r\n" + content.replace("\n", "\r\n")
    yield read("separator told after a mark", told, iris(), "utf-8-sig", "separator ';'")
    total = text(iris()) + "Sum,,,,\n"
    texts = pd.read_csv(BytesIO(total.encode()), dtype={"sepal_length": str})
    yield read("row of a total", total, texts, "line 152 has 'Sum' among numbers")
    note = text(iris()) + "\nSource: Anderson, 1935\n"
    yield refused("source below", note, "line 153", "take it away")


def envelopes() -> Iterator[Case]:
    content = text(wine(), sep=";", decimal=",")
    folder = zipped({"data/": b"", "data/wine.csv": content.encode("utf-16")})
    yield read("zip of a folder utf-16", folder, wine(), "zip", "utf-16", ending=".zip")
    packed = zstandard.compress(text(wine(), sep="\t").encode())
    yield read("zst of tabs", packed, wine(), "zst", "separator tab", ending=".tsv.zst")
    twice = gzip.compress(gzip.compress(content.encode(), mtime=0), mtime=0)
    yield refused("gz in gz", twice, "an archive in an archive; unpack it", ending=".csv.gz")
    future = bytearray(zipped({"wine.csv": content.encode()}))
    entry = future.index(b"PK\x01\x02")
    future[entry + 6] = 255  # the version that it needs
    yield refused("zip of the future", bytes(future), "zip archive that is damaged", ending=".zip")
    towns = iris().assign(town=["Köln", "Düren", "Jülich"] * 50)
    bare = text(towns, sep="\t").encode("utf-16-le")
    yield read("utf-16 without its mark and tabs", bare, towns, "utf_16_le", ending=".txt")


def other_formats() -> Iterator[Case]:
    moved = workbook(("irises", iris()), startrow=2, startcol=2)
    yield read("workbook in a corner", moved, iris(), "2 lines before", ending=".xlsx")
    notes = pd.DataFrame({"Read me": ["notes", "more"]})
    both = workbook(("notes", notes), ("irises", iris()))
    yield read("workbook of notes", both, notes, "'irises'", "--sheet", ending=".xlsx")
    yield read("workbook of notes told", both, iris(), ending=".xlsx", sheet="irises")
    commas = workbook(("wines", priced(lambda v: f"{german(v)} kg")))
    said = ("'kg'", "decimal mark ,", "thousands mark '.'")
    yield read("workbook of German texts", commas, wine(), *said, ending=".xlsx")
    dated = iris().assign(day=pd.date_range("2024-01-01", periods=150))
    yield read("workbook of dates", workbook(("a", dated)), dated, ending=".xlsx")
    amounts = iris().assign(price=[i / 100 for i in range(150)])
    decimal = pd.ArrowDtype(__import__("pyarrow").decimal128(8, 2))
    stored = amounts.assign(price=amounts["price"].astype(decimal))
    yield read("parquet of decimals", parquet(stored), amounts, ending=".parquet")
    zoned = pd.date_range("2024-01-01", periods=150, freq="h", tz="Europe/Berlin")
    stamped = iris().assign(at=zoned)
    yield read("parquet of zones", parquet(stamped), stamped, ending=".parquet")
    levels = iris().set_axis(pd.MultiIndex.from_product([["a"], iris().columns]), axis=1)
    flat = iris().add_prefix("a_")
    yield read("parquet of two levels", parquet(levels), flat, "joined by '_'", ending=".parquet")


GROUPS = (marks_in_numbers, missing_marks, lines_above, envelopes, other_formats)


def cases() -> list[Case]:
    """All of them."""
    return [case for group in GROUPS for case in group()]
