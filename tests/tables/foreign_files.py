"""Awkward files of other countries and programs, each with what must come of it."""

import csv
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from shlex import quote

import numpy as np
import pandas as pd

from corpus import Case, iris, parquet, read, refused, text, wine, workbook, zipped


def worn(write: Callable[[float], str], table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Wine, or another table, with its proline as text."""
    table = wine() if table is None else table
    return table.assign(proline=[write(value) for value in table["proline"]])


def signed() -> pd.DataFrame:
    return wine().assign(proline=wine()["proline"] - 700.5)


def around_numbers() -> Iterator[Case]:
    """What stands before, behind and between the digits."""
    minus: dict[str, Callable[[float], str]] = {
        "minus before dollars": lambda v: f"{'-' * (v < 0)}${abs(v):,.2f}",
        "dollars in brackets": lambda v: f"(${-v:,.2f})" if v < 0 else f"${v:,.2f}",
        "dollars before brackets": lambda v: f"$({-v:,.2f})" if v < 0 else f"${v:,.2f}",
        "minus before reais": lambda v: f"{'-' * (v < 0)}R$ {abs(v):.2f}",
        "dashes of print": lambda v: f"{v:.1f}".replace("-", "\u2013"),
    }
    for name, write in minus.items():
        yield read(name, text(worn(write, signed())), signed())
    booked = wine().assign(proline=wine()["proline"].astype(int) - 1500)
    behind = worn(lambda v: f"{abs(v)}{'-' * (v < 0)}", booked)
    yield read("minus behind whole numbers", text(behind), booked, "'435-' is read as -435")
    spaces = {"thin": "\u2009", "figure": "\u2007"}
    for name, space in spaces.items():
        content = text(worn(lambda v, s=space: f"{v:,.1f}".replace(",", s)))
        yield read(f"thousands {name} spaces", content, wine(), "thousands mark ' '")
    letters = text(worn(lambda v: f"{v:,.1f}".replace(",", "\u02bc")))
    yield read("thousands letters", letters, wine(), "thousands mark '''")
    wide = text(worn(lambda v: f"\uffe5{v:,.0f}"))
    yield read("wide yen", wide, wine(), "numbers in '¥'")
    unseen = text(worn(lambda v: f"\u200b{v}"))
    yield read("spaces of no width", unseen, wine())
    yield read("numbers kept as text by Excel", text(worn(lambda v: f'="{v}"')), wine())
    units = ("kg m-2", "10^9/l", "per cent", "Tsd. €", "[kg]", "(kg)", "± 2", "/m³", "cm.")
    for unit in units:
        content = text(worn(lambda v, u=unit: f"{v} {u}"))
        name = f"unit {unit}".replace("/", " of ")
        yield read(name, content, wine(), f"column 'proline' is numbers in {unit!r}")
    yield read("inches behind", text(worn(lambda v: f'{v}"')), wine(), "numbers in '\"'")
    for before in ("~", "No. ", "#", "="):
        kept = worn(lambda v, b=before: f"{b}{v}")
        yield read(f"numbers after {before}", text(kept), kept, f"{before!r} before its numbers")
    kept = worn(lambda v: f"{v}x")
    yield read("numbers before x", text(kept), kept, "'x' behind its numbers ('1065.0x')")


def no_values() -> Iterator[Case]:
    """What stands for a missing value, or may."""
    gaps = wine().copy()
    gaps.loc[[3, 8], "ash"] = np.nan
    marks = ("\u2013", "\u2014", "\u2026", "....", ":", "/", "-.-", "-,--", r"\N", "(null)")
    for number, mark in enumerate((*marks, "#BEZUG!", "#N/D", "#NOM?", "#¡DIV/0!", "nd")):
        marked = wine().astype({"ash": object})
        marked.loc[[3, 8], "ash"] = mark
        name = f"no value, mark {number}"
        yield read(name, text(marked, sep=";"), gaps, "(2 times) taken for missing")
    for value in (-9, -888, -32768, -2147483648, -9999.9, -1e30, 999.9, 1e20):
        far = wine().copy()
        far.loc[[3, 8], "ash"] = value
        where = "above" if value > 0 else "below"
        said = (
            f"(2 times) is far {where} all others",
            f"--na {quote(' ' * (value == -1e30) + f'{value:.15g}')}",
        )
        yield read(f"perhaps missing {value}", text(far), far, *said)
    two = wine().astype({"ash": object, "hue": object})
    two.loc[[3, 8], "ash"] = "lost"
    two.loc[[5, 9], "hue"] = "gone"
    texts = two.assign(ash=two["ash"].where(two["ash"] != "lost").astype(float))
    texts = texts.assign(hue=texts["hue"].astype(str))
    yield read("another mark", text(two), texts, "--na lost gone", na=("lost",))
    spaced = wine().astype({"ash": object}).rename(columns={"ash": "ash, g"})
    spaced.loc[3, "ash, g"] = "lost"
    texts = spaced.astype({"ash, g": str})
    yield read("a name for the shell", text(spaced), texts, "or --as 'ash, g=category'")


NOTES = ['said "yes"; then, no', "one\ntwo", "C:\\data\\new\\", "O'Brien", "''", "a;b", '"', "x\\"]


def quoting() -> Iterator[Case]:
    """Texts that end in a backslash, and apostrophes that are no quotes."""
    noted = iris().assign(note=[NOTES[i % len(NOTES)] for i in range(150)])
    for sep, name in ((",", "comma"), (";", "semicolon"), ("\t", "tab"), ("|", "bar")):
        yield read(f"backslashes and apostrophes {name}", text(noted, sep=sep), noted)
        content = text(noted, sep=sep, quoting=csv.QUOTE_ALL)
        yield read(f"backslashes at the end of quotes {name}", content, noted)


def above() -> Iterator[Case]:
    """Names, and what is none."""
    head, rows = text(iris()).split("\n", 1)
    numbered = f"{head}\n1,2,3,4,5\n{rows}"
    yield refused("line of numbers", numbered, "line 2 numbers the columns; take it away")
    ones = iris().set_axis([str(number) for number in range(1, 6)], axis=1)
    yield read("names that count from one", text(ones), ones)
    days = iris().set_axis(["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01", "y"], axis=1)
    yield read("days for names", text(days), days)
    bare = "".join(f"{i % 28 + 1:02d}.01.2024;{i},5;{'ab'[i % 2]}\n" for i in range(50))
    plain = pd.DataFrame(
        {
            "column0": [f"{i % 28 + 1:02d}.01.2024" for i in range(50)],
            "column1": [i + 0.5 for i in range(50)],
            "column2": ["ab"[i % 2] for i in range(50)],
        }
    )
    yield read("German rows without names", bare, plain, "separator ';'", "decimal mark ,")


def alphabets() -> Iterator[Case]:
    """Encodings that look like others."""
    deep = text(pd.concat([wine()] * 40).assign(town=[*["Bern"] * 7119, "Genève"]))
    meant = pd.concat([wine()] * 40).assign(town=[*["Bern"] * 7119, "Genève"])
    yield read("cp1252 far below", deep.encode("cp1252"), meant, "cp1252", "Genève")
    words = {
        "cp850": ("médiocre", "très bonne"),
        "cp866": ("здоров", "болен"),
        "cp1250": ("ujemny żółć", "dodatni źdźbło"),
        "cp1255": ("שלילי", "חיובי"),
    }
    for code, pair in words.items():
        table = iris().assign(species=[pair[i % 2] for i in range(150)])
        yield refused(f"{code} in doubt", text(table, sep=";").encode(code), "give --encoding")
        yield read(f"{code} told", text(table, sep=";").encode(code), table, encoding=code)


def sheets() -> Iterator[Case]:
    """Workbooks, whose texts stay texts."""
    codes = iris().assign(code=[f"{i:05d}" for i in range(150)])
    said = "column 'code' has leading zeros"
    yield read("workbook of codes", workbook(("a", codes)), codes, said, ending=".xlsx")
    marked = wine().astype({"ash": object})
    marked.loc[[3, 8], "ash"] = "NA"
    gaps = wine().copy()
    gaps.loc[[3, 8], "ash"] = np.nan
    yield read("workbook of NA", workbook(("a", marked)), gaps, "'NA' (2 times)", ending=".xlsx")
    units = pd.DataFrame([["cm", "cm", "cm", "cm", None]], columns=iris().columns)
    united = workbook(("a", pd.concat([units, iris()])))
    yield refused("workbook of units", united, "row 2 is a second line", ending=".xlsx")
    years = iris().set_axis([2001, 2002, 2003, 2004, "species"], axis=1)
    told = years.set_axis([str(name) for name in years], axis=1)
    yield refused("workbook of years", workbook(("a", years)), "(2001)", ending=".xlsx")
    yield read("workbook of years told", workbook(("a", years)), told, ending=".xlsx", header=True)
    unnamed = iris().rename(columns={"sepal_width": None})
    meant = iris().rename(columns={"sepal_width": "Unnamed: 1"})
    said = "'Unnamed: 1' has no name"
    yield read("workbook lacking a name", workbook(("a", unnamed)), meant, said, ending=".xlsx")


def other_programs() -> Iterator[Case]:
    """Files that are no tables, and Parquet of other programs."""
    days = [date(2024, 1, 1) + timedelta(days=i) for i in range(150)]
    dated = iris().assign(day=pd.to_datetime(pd.Series(days)))
    content = parquet(iris().assign(day=days))
    yield read("parquet of days", content, dated, ending=".parquet")
    halves = iris().astype({"sepal_width": np.float16})
    yield read("parquet of halves", parquet(halves), halves, ending=".parquet")
    no_text: dict[str, bytes] = {
        "7z": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(99),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(99),
        "orc": b"ORC\n" + bytes(99),
        "mat": b"MATLAB 5.0 MAT-file" + bytes(99),
    }
    cures = {"7z": "unpack it"}
    for ending, content in no_text.items():
        cure = cures.get(ending, "CSV")
        yield refused(f"no table {ending}", content, cure, ending=f".{ending}")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    yield refused("pointer of Git LFS", pointer, "git lfs pull")
    document = zipped({"mimetype": b"x", "content.xml": b"<a/>"})
    yield refused("ods", document, "save it as .xlsx or CSV", ending=".ods")
    nested = zipped({"a.zip": zipped({"a.csv": text(iris()).encode()})})
    yield refused("zip in zip", nested, "an archive in an archive", ending=".zip")
    hidden = zipped({"iris.csv": text(iris()).encode(), ".DS_Store": b"\0"})
    yield read("zip with a hidden file", hidden, iris(), "zip", ending=".zip")
    web = iris().to_html().encode("utf-16")
    yield refused("utf-16 web page", web, "web page", ending=".xls")


GROUPS = (around_numbers, no_values, quoting, above, alphabets, sheets, other_programs)


def cases() -> list[Case]:
    """All of them."""
    return [case for group in GROUPS for case in group()]
