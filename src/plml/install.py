"""How to get what is optional: the one place that a release changes."""

from typing import Any


def install(extra: str) -> str:
    """The command that installs an extra of this package, for messages."""
    return f'pip install ".[{extra}]" in a clone of the repository'


def pandas() -> Any:
    """Imported where tables are used."""
    try:
        import pandas
    except ImportError:
        raise ValueError(f"tables need pandas: {install('cli')}") from None
    return pandas


def as_pandas(X: Any) -> Any:
    """A data frame of another library as one of pandas; anything else stays as it is.

    Parameters
    ----------
    X : a data frame, an array, or None
    """
    return X.to_pandas() if hasattr(X, "columns") and hasattr(X, "to_pandas") else X
