"""Awkward files as laboratories, databases and statistics programs export them."""

import tarfile
from collections.abc import Iterator
from io import BytesIO

import pandas as pd

from corpus import Case, iris, read, refused, text, wine, workbook
from foreign_files import worn

TOWNS = {
    "cp1250": ("Łódź", "Wartość", "Gdańsk"),
    "cp1251": ("Москва", "Казань", "Омск"),
    "cp1253": ("Αθήνα", "Πάτρα", "Βόλος"),
    "cp1254": ("Şile", "Muğla", "Beşiktaş"),
    "mac_roman": ("Königsallee", "Größe", "Süd"),
    "cp949": ("서울", "부산", "대구"),
}


def placed(towns: tuple[str, ...]) -> pd.DataFrame:
    """Irises with the towns that they grow in."""
    return iris().assign(town=[towns[row % 3] for row in range(150)])


def code_pages() -> Iterator[Case]:
    """Files that are not in UTF-8, in part or as a whole."""
    for code, towns in TOWNS.items():
        content = text(placed(towns)).encode(code)
        name = f"towns in {code}"
        if code in ("cp1251", "cp1253"):
            yield read(name, content, placed(towns), f"taken for {code}", towns[0])
        else:
            yield refused(name, content, f"{code}, with ", towns[0], "give --encoding")
    western = text(placed(("Köln", "Süd", "Höhe"))).splitlines(keepends=True)
    mixed = "".join(western[:120]).encode() + "".join(western[120:]).encode("cp1252")
    yield refused("lines of two encodings", mixed, "line 121 is not UTF-8, as others are")
    marked = b"\xef\xbb\xbf" + mixed
    yield refused(
        "lines of two encodings and a mark", marked, "line 121 is not UTF-8, but the mark"
    )


def in_lakh(value: float) -> str:
    """A number as India writes it: 12,34,567."""
    digits = f"{value:.0f}"
    head, tail = digits[:-3], digits[-3:]
    pairs = [head[max(end - 2, 0) : end] for end in range(len(head), 0, -2)][::-1]
    return ",".join([*pairs, tail])


def amounts() -> Iterator[Case]:
    """Money and measures of other countries."""
    large = wine().assign(proline=(wine()["proline"] * 12_345).round())
    lakh = text(worn(in_lakh, large))
    yield read("Indian groups", lakh, large, "thousands mark ','")
    rupees = text(worn(lambda v: f"₹ {in_lakh(v)}.00", large))
    yield read("Indian groups of rupees", rupees, large, "numbers in '₹'")
    for behind in "円元원":
        content = text(worn(lambda v, b=behind: f"{v:.0f}{b}"))
        yield read(f"numbers before {behind}", content, wine(), f"numbers in '{behind}'")
    for before in ("TL", "Rp", "RM", "SGD", "NT$"):
        content = text(worn(lambda v, b=before: f"{b} {v:.2f}"))
        yield read(f"prices in {before}", content, wine(), f"numbers in '{before}'")
    commas = text(worn(lambda v: f"{v:,.0f}", large)).replace('"', "")
    yield refused("thousands commas without quotes", commas, "write numbers with commas in quotes")
    views = worn(lambda v: f"{v / 1000}M" if v > 900 else f"{v:.0f}K")
    yield read("thousands and millions", text(views), views, "'735K' among", "give all in one unit")


def laboratories() -> Iterator[Case]:
    """What an instrument writes above its values, in the columns of these."""
    content = text(iris(), sep=";")
    above = "Instrument:;UV-1800;;;\nDate:;12.03.2024;;;\nOperator:;M. Müller;;;\n;;;;\n"
    yield read("names and values above", above + content, iris(), "4 lines before the header")
    head, rows = content.split("\n", 1)
    units = f"{above}{head}\n[cm];[cm];[cm];[cm];\n{rows}"
    yield refused("names and values above units", units, "line 6 is a second line of names")
    cover = workbook(("cover", pd.DataFrame({"Report": []})), ("irises", iris()))
    said = ("the first sheet 'cover' is read, not 'irises'", "--sheet")
    yield refused("workbook with a cover", cover, *said, ending=".xlsx")


def statistics_programs() -> Iterator[Case]:
    """What SPSS, SAS, Stata and Weka write."""
    coded = iris().assign(answer=[-9 if i % 19 == 0 else i % 5 + 1 for i in range(150)])
    said = ("column 'answer': -9 (8 times) is far below all others", "--na -9")
    yield read("an answer of -9", text(coded), coded, *said)
    sexes = iris().assign(sex=[9 if i % 19 == 0 else i % 2 + 1 for i in range(150)])
    said = ("column 'sex': 9 (8 times) is far above all others", "--na 9")
    yield read("a sex of 9", text(sexes), sexes, *said)
    weka = "".join(f"@ATTRIBUTE {name} REAL\n" for name in iris())
    rows = text(iris()).split("\n", 1)[1]
    arff = f"% irises\n% of 1935\n\n@RELATION iris\n\n{weka}\n@DATA\n{rows}"
    yield refused("ARFF", arff, "it is ARFF of Weka", "in one line", ending=".arff")
    sparse = "".join(f"{i % 2} 1:{i / 7:.3f} 4:2 9:{i % 3}\n" for i in range(60))
    yield refused("svmlight", sparse, "it is a sparse matrix (svmlight)", ending=".txt")
    times = pd.DataFrame(
        {"n": range(50), "a": ["08:30"] * 50, "b": [f"1{i % 10}:15" for i in range(50)]}
    )
    bare = text(times, sep=" ").split("\n", 1)[1]
    named = times.set_axis(["column0", "column1", "column2"], axis=1)
    yield read("times of day without names", bare, named, "no header", ending=".txt")
    saved = iris().reset_index().rename(columns={"index": "Unnamed: 0"})
    both = saved.reset_index().rename(columns={"index": "Unnamed: 0.1"})
    twice = text(both).replace("Unnamed: 0.1", "", 1)
    yield read("row numbers twice", twice, both, "'Unnamed: 0.1' has no name")
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("iris.csv")
        member.size = len(text(iris()))
        archive.addfile(member, BytesIO(text(iris()).encode()))
    yield refused("tar in gz", buffer.getvalue(), "(tar); unpack the one", ending=".tar.gz")


GROUPS = (code_pages, amounts, laboratories, statistics_programs)


def cases() -> list[Case]:
    """All of them."""
    return [case for group in GROUPS for case in group()]
