"""Awkward files as laboratories, databases and statistics programs export them."""

from collections.abc import Iterator

import pandas as pd

from corpus import Case, iris, read, refused, text

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


GROUPS = (code_pages,)


def cases() -> list[Case]:
    """All of them."""
    return [case for group in GROUPS for case in group()]
