"""Numbers of things in words."""


def counted(n: int, thing: str, things: str = "") -> str:
    """As in 1 row, 2 rows, 1 class, 2 classes.

    Parameters
    ----------
    n : how many
    thing, things : one of them, and several, which by default end in s
    """
    return f"{n} {thing if n == 1 else things or f'{thing}s'}"
