"""The encoding of a text file: byte order marks and UTF-8 are certain, all else is a guess.

charset-normalizer guesses. It often takes a file of Western Europe for one of Eastern Europe, whose
bytes are the same but for a few letters; such a file is read as cp1252, and both guesses are said.
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
#: A text in UTF-16 has more null bytes than this.
_NULLS = 0.05
#: Of charset-normalizer's measure of how much a text looks like a language: another guess that
#: has more than this share of the best makes us ask.
_CLOSE = 0.5
#: What stands between small letters.
_WITHIN = re.compile(r"(?<=[a-z])[^\x00-\x7f](?=[a-z])")
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
    if marked:
        return marked, ""
    if sample.count(0) <= _NULLS * len(sample) and _is_utf8(path):
        return "utf-8", ""
    return _guess(_telling(path) if sample.isascii() and b"\0" not in sample else sample)


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
    found = sorted(_charset_normalizer().from_bytes(sample), key=lambda one: -one.coherence)
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
    best, *others = found
    name = "cp1252" if _is_western(sample) else str(best.encoding)
    if name != "cp1252" and best.chaos and not best.coherence:  # strange, in no known language
        read = f"{name} would read {_place(sample, name)}"
        raise ValueError(f"its encoding cannot be told ({read}); give --encoding")
    for rival in others:
        close = rival.coherence >= _CLOSE * best.coherence
        if name != "cp1252" and close and str(rival) != str(best):
            raise ValueError(
                f"it may be {name}, with {_place(sample, name)}, or {rival.encoding}, with "
                f"{_place(sample, rival.encoding)}; give --encoding"
            )
    other = f" (charset-normalizer: {best.encoding})" if best.encoding != name else ""
    seen = f"in which {_place(sample, name)} is read"
    return name, f"it is not UTF-8; taken for {name}{other}, {seen}; else give --encoding"


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


def _charset_normalizer() -> Any:
    try:
        import charset_normalizer
    except ImportError:
        raise ValueError(f"this encoding needs charset-normalizer: {install('cli')}") from None
    return charset_normalizer
