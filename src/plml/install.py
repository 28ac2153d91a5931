"""How to get what is optional: the one place that a release changes."""


def install(extra: str) -> str:
    """The command that installs an extra of this package, for messages."""
    return f'pip install ".[{extra}]" in a clone of the repository'
