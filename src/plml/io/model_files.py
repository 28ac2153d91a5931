"""Models in files that execute nothing when they are read (skops).

    >>> from sklearn.datasets import load_iris
    >>> from plml import SML, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> save(SML().fit(X, y), "iris.skops")  # doctest: +SKIP
    >>> load("iris.skops").predict(X[:1])  # doctest: +SKIP
    array([0])

A file holds a format number and arrays, parameters and type names alone. Types that are neither
scikit-learn's nor this library's are refused before anything is built from them, and so is a file
that would take more memory than a small multiple of its size.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plml.install import install
from plml.io.files import is_stream, write
from plml.io.model_schema import check_model

FORMAT = 1
#: The attribute of an estimator that ``set_fit_request`` sets.
_REQUESTS = "_metadata_request"
#: All that a model file may hold besides what skops trusts by itself.
TRUSTED = (
    "numpy.dtype",  # an attribute of SimpleImputer
    "plml.estimators.auto_plml.AutoPLML",
    "plml.estimators.boostmetric.BoostMetric",
    "plml.estimators.cblml.CBLML",
    "plml.estimators.dann.DANN",
    "plml.estimators.glml.GLML",
    "plml.estimators.kernelsvm.KernelSVM",
    "plml.estimators.lmnn.LMNN",
    "plml.estimators.lmnnmm.LMNNMM",
    "plml.estimators.plml.PLML",
    "plml.estimators.plml_cv.PLMLCV",
    "plml.estimators.sml.SML",
    "plml.preprocessing.date_encoder.DateEncoder",
    "plml.preprocessing.table_encoder.NeighborImputer",
    "plml.preprocessing.MeanNormScaler",  # where it was before
    "plml.preprocessing.mean_norm.MeanNormScaler",
    "plml.preprocessing.table_encoder.TableEncoder",
)


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, or a pipeline that ends in one, to a file, in one step.

    Parameters
    ----------
    model : an estimator of this library, or scikit-learn's around it
    path : file to write

    See Also
    --------
    load : Reads what was saved.
    plml.tables.Model.save : For models of ``plml.tables.fit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import SML, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> save(SML().fit(X, y), "iris.skops")
    >>> load("iris.skops").predict(X[:1])
    array([0])
    """
    write_record(Path(path), {"model": model})


def load(path: str | os.PathLike[str]) -> Any:
    """Read a file that ``save`` wrote; anything else raises a ``ValueError``.

    Parameters
    ----------
    path : file to read

    Returns
    -------
    estimator
        As it was when it was saved.

    See Also
    --------
    save : Writes what is read.
    plml.tables.load : For files of ``plml fit``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from plml import SML, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> save(SML().fit(X, y), "iris.skops")
    >>> load("iris.skops").n_features_in_
    4
    """
    record = read_record(Path(path))
    if "pipeline" in record:
        raise ValueError(
            f"{path} is a model of a table; read it with plml.tables.load, or use plml predict"
        )
    model = record.get("model")
    if not hasattr(model, "predict"):
        raise ValueError(f"{path} holds no model")
    return model


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a dictionary with a model in it, and the format number."""
    is_stream(path)  # refuses what cannot be written
    with _without_requests(record):
        content = _skops().dumps({"format": FORMAT, **record})
    unknown = _unknown_types(content)
    if unknown:
        raise ValueError(
            f"the model holds types that no file may hold: {unknown}; save the estimator itself "
            "(of a search, its best_estimator_)"
        )
    try:
        check_model(content)
    except ValueError as error:
        raise ValueError(f"the model holds what no file may hold: {error}") from error
    write(path, content)


@contextmanager
def _without_requests(record: dict[str, Any]) -> Iterator[None]:
    """Inside, estimators have no requests for metadata: these are about fits, and skops cannot
    write them.
    """
    roots = [part for part in record.values() if hasattr(part, "get_params")]
    parts = [*roots, *(value for root in roots for value in root.get_params().values())]
    owners = {id(part): part for part in parts if _REQUESTS in getattr(part, "__dict__", {})}
    taken = {number: vars(part).pop(_REQUESTS) for number, part in owners.items()}
    try:
        yield
    finally:
        for number, part in owners.items():
            setattr(part, _REQUESTS, taken[number])


def read_record(path: Path) -> dict[str, Any]:
    """What ``write_record`` wrote; unknown types, damage and other formats are refused."""
    skops = _skops()
    if not path.is_file():
        raise ValueError(f"there is no model {path}")
    content = path.read_bytes()
    try:
        check_model(content)
        unknown = _unknown_types(content)
    except Exception as error:  # whatever a damaged archive leads to
        reason = f": {error}" if isinstance(error, ValueError) else ""
        raise ValueError(f"{path} is not a model, or it is damaged{reason}") from error
    if unknown:
        raise ValueError(f"{path} holds types that are not trusted: {unknown}")
    try:
        found = skops.loads(content, trusted=list(TRUSTED))
    except Exception as error:
        raise ValueError(f"{path} is not a model, or it is damaged") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        version = found.get("format") if isinstance(found, dict) else None
        raise ValueError(f"{path} has the format {version}; this version reads {FORMAT}")
    return found


def _unknown_types(content: bytes) -> str:
    """Names of types that are neither skops' to trust nor ours."""
    unknown = sorted(set(_skops().get_untrusted_types(data=content)) - set(TRUSTED))
    return ", ".join(unknown[:8])


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise ValueError(f"model files need skops: {install('cli')}") from None
    return skops.io
