"""Tables as people have them: read right, or refused with the right cure."""

import bz2
import gzip
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from plml import read_table


@pytest.fixture(scope="module")
def wine():
    data = load_wine(as_frame=True)
    table = data.data.round(3)
    table["grape"] = np.array(["barolo", "grignolino", "barbera"])[data.target]
    return table


def written(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def check(wine, path, **options):
    table, understood = read_table(path, **options)
    pd.testing.assert_frame_equal(table, wine, check_dtype=False)
    return understood


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|", " "])
def test_separators_and_encodings(wine, tmp_path, sep, encoding):
    table = wine.assign(grape=wine["grape"].replace("barbera", "barbèra"))
    path = written(tmp_path / "wine.csv", table.to_csv(index=False, sep=sep), encoding)
    understood = check(table, path)
    assert understood.separator == sep
    assert understood.encoding == ("utf-8-sig" if encoding == "utf-8-sig" else encoding)
    assert ("cp1252" in str(understood)) == (encoding == "cp1252")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("sep", [";", "\t", "|"])
def test_decimal_commas(wine, tmp_path, sep, end):
    text = wine.to_csv(index=False, sep=sep, decimal=",").replace("\n", end)
    understood = check(wine, written(tmp_path / "wine.csv", text))
    assert "decimal mark ," in str(understood)


def packed_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("wine.csv", content)


def packed_zst(path, content):
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.compress(content))


PACKERS = {
    "gz": lambda path, content: path.write_bytes(gzip.compress(content)),
    "bz2": lambda path, content: path.write_bytes(bz2.compress(content)),
    "xz": lambda path, content: path.write_bytes(lzma.compress(content)),
    "zip": packed_zip,
    "zst": packed_zst,
}


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("name", ["wine.csv.{}", "wine [1].csv"])
def test_compressed_files_whatever_their_names(wine, tmp_path, kind, name):
    path = tmp_path / name.format(kind)
    PACKERS[kind](path, wine.to_csv(index=False).encode())
    assert check(wine, path).compression == kind


@pytest.mark.parametrize("number", [1_048_577, 10**70])
def test_a_row_beyond_those_of_a_workbook_is_refused(wine, tmp_path, number):
    """All rows before it would be made."""
    pytest.importorskip("openpyxl")
    wine.head(3).to_excel(tmp_path / "good.xlsx", index=False)
    with (
        zipfile.ZipFile(tmp_path / "good.xlsx") as good,
        zipfile.ZipFile(tmp_path / "bad.xlsx", "w") as bad,
    ):
        for name in good.namelist():
            content = good.read(name).replace(b'<row r="4"', b'<row r="%d"' % number)
            bad.writestr(name, content)
    assert read_table(tmp_path / "good.xlsx")[0].shape[0] == 3
    with pytest.raises(ValueError, match="names a row beyond 1048576"):
        read_table(tmp_path / "bad.xlsx")


def test_excel_and_frames(wine, tmp_path):
    pytest.importorskip("openpyxl")
    wine.to_excel(tmp_path / "wine.xlsx", index=False)
    assert check(wine, tmp_path / "wine.xlsx").format == "Excel"
    assert check(wine, wine.astype(str)).format == "data frame"


@pytest.mark.parametrize(
    ("dress", "note"),
    [
        (lambda v: f"{v} kg", "numbers in 'kg'"),
        (lambda v: f"${v}", "numbers in '$'"),
        (lambda v: f"{v}%", "numbers in '%'"),
        (lambda v: f"{v:,.3f}", "thousands mark ','"),
        (lambda v: f"{v:,.3f}".replace(",", " "), "thousands mark ' '"),
        (lambda v: f"{v:,.3f}".replace(",", "'"), "thousands mark '''"),
    ],
)
def test_numbers_in_any_dress(wine, tmp_path, dress, note):
    table = wine.assign(proline=[dress(value) for value in wine["proline"]])
    table.to_csv(tmp_path / "wine.csv", index=False)
    assert note in str(check(wine, tmp_path / "wine.csv"))


def test_a_point_between_thousands_where_the_comma_is_decimal(wine, tmp_path):
    swap = str.maketrans(",.", ".,")
    table = wine.assign(proline=[f"{1000 * v:,.0f}".translate(swap) for v in wine["proline"]])
    table.to_csv(tmp_path / "wine.csv", index=False, sep=";", decimal=",")
    check(wine.assign(proline=1000 * wine["proline"]), tmp_path / "wine.csv")


@pytest.mark.parametrize("mark", ["NA", "N/A", "?", "-", ".", "unknown", "-999", "-9999"])
def test_marks_for_missing_are_said(wine, tmp_path, mark):
    table = wine.astype({"ash": object})
    table.loc[[3, 8], "ash"] = mark
    table.to_csv(tmp_path / "wine.csv", index=False)
    expected = wine.copy()
    expected.loc[[3, 8], "ash"] = np.nan
    assert f"column 'ash': '{mark}' (2 times)" in str(check(expected, tmp_path / "wine.csv"))


def test_given_marks_are_the_only_ones(wine, tmp_path):
    table = wine.copy()
    table.loc[3, "ash"] = -999
    table.loc[4, "ash"] = 77
    table.to_csv(tmp_path / "wine.csv", index=False)
    expected = table.copy()
    expected.loc[4, "ash"] = np.nan
    check(expected, tmp_path / "wine.csv", na=("77",))


def test_what_stands_before_the_header_is_left_out_and_said(wine, tmp_path):
    text = "Report of wines\nmade in May\n\n" + wine.to_csv(index=False)
    assert "3 lines before" in str(check(wine, written(tmp_path / "wine.csv", text)))


def test_no_header_is_said(wine, tmp_path):
    wine.to_csv(tmp_path / "wine.csv", index=False, header=False)
    table, understood = read_table(tmp_path / "wine.csv")
    assert table.shape == wine.shape
    assert "else give --header" in str(understood)
    assert len(read_table(tmp_path / "wine.csv", header=True)[0]) == len(wine) - 1


def test_a_separator_at_the_end_of_the_lines(wine, tmp_path):
    text = wine.to_csv(index=False)
    check(wine, written(tmp_path / "all.csv", text.replace("\n", ",\n")))
    head, rows = text.split("\n", 1)
    check(wine, written(tmp_path / "rows.csv", head + "\n" + rows.replace("\n", ",\n")))


def changed_line(text, number, change):
    lines = text.splitlines()
    lines[number - 1] = change(lines[number - 1])
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: changed_line(t, 51, lambda line: line[:9]), "line 51 has 2, fewer fields"),
        (lambda t: changed_line(t, 51, lambda line: "9,9," + line), "line 51 has more fields"),
        (lambda t: t + "178 rows\n", "line 180 has 1, fewer fields"),
        (lambda t: changed_line(t, 9, lambda line: '"' + line), "quote that is not closed"),
        (lambda t: t.replace(",", "~"), "is read as one column; give --sep"),
        (lambda t: t.replace("ash,", "hue,", 1), "columns of the same name: 'hue'"),
        (lambda t: t.splitlines()[0] + "\n", "has no rows"),
        (lambda t: "", "is empty"),
        (
            lambda t: "a;b,c;d\n" + "1;2,3;4\n" * 9,
            "with ';' between them and 2 with ','; give --sep",
        ),
        (lambda t: "a;y\n" + "1,234;x\n" * 9, "line 2, column 'a': '1,234' may be a decimal"),
    ],
)
def test_doubt_is_said_with_the_line_and_the_option(wine, tmp_path, spoil, words):
    path = written(tmp_path / "wine.csv", spoil(wine.to_csv(index=False)))
    with pytest.raises(ValueError, match="cannot be read as a table") as error:
        read_table(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("day", ["{:02d}.09.2024", "{}. März 2021", "{}.10.3", "{} Jan 2021"])
def test_a_number_within_a_date_or_a_version_has_no_unit(tmp_path, day):
    table = pd.DataFrame({"day": [day.format(i % 28 + 1) for i in range(60)], "y": range(60)})
    understood = check(table, written(tmp_path / "days.csv", table.to_csv(index=False)))
    assert "numbers in" not in str(understood)
    assert "''" not in str(understood)


def test_options_end_doubt(tmp_path):
    path = written(tmp_path / "t.csv", "a;y\n" + "1,234;x\n" * 9)
    assert read_table(path, decimal=",")[0]["a"][0] == 1.234
    assert read_table(path, thousands=",")[0]["a"][0] == 1234
    path = written(tmp_path / "u.csv", "a~y\n" + "1~x\n" * 9)
    assert read_table(path, sep="~")[0].shape == (9, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sep": "ab"}, "--sep must be one character"),
        ({"decimal": ",", "thousands": ","}, "both ','"),
        ({"encoding": "klingon"}, "--encoding klingon is not known"),
        ({"colour": "red"}, "no option 'colour'"),
    ],
)
def test_options_that_cannot_be(options, words):
    with pytest.raises(ValueError, match=words):
        read_table(pd.DataFrame({"a": [1]}), **options)
