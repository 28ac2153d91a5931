"""The encoding of a text file: byte order marks and UTF-8 are certain, all else is a guess.

charset-normalizer guesses. It often takes a file of Western Europe for one of Eastern Europe, whose
bytes are the same but for a few letters; such a file is read as cp1252, and both guesses are said.
It chooses among the encodings that tables come in: asked for any, it finds Mac OS in Latvian.
"""

import codecs
import re
from itertools import islice
from pathlib import Path
from typing import Any

from plml.install import install

_SAMPLE = 2**18
#: Lines that tell, of a file that begins in ASCII.
_LINES = 1000
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: What programs write, besides UTF-8.
_USUAL = (
    *("utf_16_le", "utf_16_be", "utf_32_le", "utf_32_be", "cp932", "euc_jp", "gb18030", "big5"),
    *("cp949", "iso8859_2", "iso8859_15", "koi8_r", "mac_roman", "cp437", "cp850", "cp852"),
    *("cp866", "cp874", *(f"cp{number}" for number in range(1250, 1258))),
)
#: A text in UTF-16 has more null bytes than this.
_NULLS = 0.05
#: Of charset-normalizer's measure of how much a text looks like a language: another guess that
#: has more than this share of the best makes us ask.
_CLOSE = 0.5
#: What stands between small letters.
_WITHIN = re.compile(r"(?<=[a-z])[^\x00-\x7f](?=[a-z])")
#: What is another letter in the encoding of another country: a capital or a letter of the East
#: within a word, and what Icelandic alone has.
_ODD = re.compile(r"(?<=[a-z])[À-ÞŒŠŸŽ]|(?<=[A-Za-z])[šžƒˆ]|[ÐðÞþ]")
#: Controls that no text has.
_CONTROLS = re.compile(r"[\x80-\x9f]")
#: Encodings that a question names at most.
_NAMED = 4
_PLACE = re.compile(r"[^\n]{0,12}[^\x00-\x7f][^\n]{0,12}")


def encoding_of(path: Path, given: str | None = None) -> tuple[str, str]:
    """The encoding of a file, and a note where it is a guess.

    Parameters
    ----------
    path : text file
    given : what it is said to be; refused where the bytes are something else
    """
    with path.open("rb") as stream:
        sample = stream.read(_SAMPLE)
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if sample.startswith(mark)), "")
    if given is not None:
        return _agreed(path, sample, codecs.lookup(given).name, marked)
    if marked == "utf-8-sig" and (line := _line_not_utf8(path)):
        raise ValueError(f"line {line} is not UTF-8, but the mark at its beginning is; correct it")
    if marked:
        return marked, ""
    if sample.count(0) <= _NULLS * len(sample) and _is_utf8(path):
        return "utf-8", ""
    sample = _telling(path) if sample.isascii() and b"\0" not in sample else sample
    if b"\0" not in sample and _is_mostly_utf8(sample):
        raise ValueError(
            f"line {_line_not_utf8(path)} is not UTF-8, as others are; correct it, or give "
            "--encoding"
        )
    return _guess(sample)


def _telling(path: Path) -> bytes:
    """The lines that are not ASCII."""
    with path.open("rb") as lines:
        return b"".join(islice((line for line in lines if not line.isascii()), _LINES))


def _agreed(path: Path, sample: bytes, given: str, marked: str) -> tuple[str, str]:
    """The encoding that was given, unless the bytes say that it is another."""
    if marked and not marked.startswith(given[:6]):
        raise ValueError(f"it begins with the mark of {marked}, so --encoding {given} is wrong")
    if marked:
        return marked, ""
    if given.startswith(("utf-16", "utf-32")) and b"\0" not in sample:
        raise ValueError(f"it has none of the null bytes of {given}; leave --encoding out")
    if given == "utf-8" and not _is_utf8(path):
        raise ValueError("it is not UTF-8; leave --encoding out, or give another")
    if given != "utf-8" and not sample.isascii() and b"\0" not in sample and _is_utf8(path):
        meant, read = _place(sample, "utf-8"), _place(sample, given)
        return given, f"it may be UTF-8, with {meant} where {read} is read; else no --encoding"
    return given, ""


def _guess(sample: bytes) -> tuple[str, str]:
    """What charset-normalizer finds, with a note; asks where two of its guesses would do."""
    matches = _charset_normalizer().from_bytes(sample, cp_isolation=_USUAL)
    found = sorted(matches, key=lambda one: -one.coherence)
    if b"\0" in sample:
        found = [one for one in found if one.encoding.startswith(("utf_16", "utf_32"))]
    if not found and b"\0" in sample:
        line = sample.count(b"\n", 0, sample.index(0)) + 1
        raise ValueError(
            f"line {line} has a null byte; it is damaged, or no text: save it as CSV, or give "
            "--encoding"
        )
    if not found:
        raise ValueError("its encoding cannot be told; give --encoding")
    found = [one for one in found if not _CONTROLS.search(str(one))] or found
    best, western = found[0], _is_western(sample)
    name = "cp1252" if western else str(best.encoding)
    if not western and best.chaos and not best.coherence:  # strange, in no known language
        read = f"{name} would read {_place(sample, name)}"
        raise ValueError(f"its encoding cannot be told ({read}); give --encoding")
    close = [one for one in found if one.coherence >= _CLOSE * best.coherence]
    if not western and len({str(one) for one in close}) > 1:
        raise ValueError(f"it may be {_in_question([one.encoding for one in close], sample)}")
    other = f" (charset-normalizer: {best.encoding})" if best.encoding != name else ""
    seen = f"in which {_place(sample, name)} is read"
    return name, f"it is not UTF-8; taken for {name}{other}, {seen}; else give --encoding"


def _in_question(names: list[str], sample: bytes) -> str:
    """Encodings with what each of them would read, those alike once."""
    places: dict[str, str] = {}
    for name in names:
        places.setdefault(_place(sample, name), name)
    parts = [f"{name}, with {place}" for place, name in places.items()][:_NAMED]
    return f"{'; or '.join(parts)}; give --encoding"


def _place(sample: bytes, encoding: str) -> str:
    """The first letters that are not ASCII, with those around them."""
    text = sample.decode(encoding, errors="replace")
    place = _PLACE.search(text)
    return repr(place[0].strip() if place else text[:12])


def _is_western(sample: bytes) -> bool:
    """Whether accented letters stand alone among others, as in words of Western Europe."""
    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    if any(not one.islower() and one != "\u2019" for one in _WITHIN.findall(text)):
        return False
    if _ODD.search(text):
        return False
    runs = [len(run) for run in re.findall(rb"[\x80-\xff]+", sample)]
    return b"\0" not in sample and sum(run for run in runs if run > 2) < 0.5 * sum(runs)


def as_utf8(path: Path, copy: Path, encoding: str) -> None:
    """Write the same text in UTF-8.

    Parameters
    ----------
    path, copy : files
    encoding : of the first
    """
    try:
        with (
            path.open(encoding=encoding, newline="") as source,
            copy.open("w", encoding="utf-8", newline="") as target,
        ):
            while part := source.read(2**20):
                target.write(part)
    except UnicodeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"it is not {encoding} ({reason}); give --encoding") from None


def _is_utf8(path: Path) -> bool:
    """Whether all bytes are UTF-8; refuses null bytes among them."""
    line = 1
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        try:
            while part := stream.read(2**20):
                decoder.decode(part)
                if (null := part.find(0)) >= 0:
                    line += part.count(b"\n", 0, null)
                    raise ValueError(f"line {line} has a null byte; it is damaged, or no text")
                line += part.count(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _is_mostly_utf8(sample: bytes) -> bool:
    """Whether more letters are in UTF-8 than are not, as in a file put together from two."""
    text = sample.decode("utf-8", errors="replace")
    strange = text.count("\N{REPLACEMENT CHARACTER}")
    return sum(not letter.isascii() for letter in text) > 2 * strange


def _line_not_utf8(path: Path) -> int:
    """The first line that is not UTF-8."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 0


def _charset_normalizer() -> Any:
    try:
        import charset_normalizer
    except ImportError:
        raise ValueError(f"this encoding needs charset-normalizer: {install('cli')}") from None
    return charset_normalizer
