"""The parameters of an estimator, each declared once: name, type, default and allowed values.

Estimators are dataclasses, ``@dataclass(kw_only=True, eq=False, repr=False)``: their ``__init__``
stores its arguments and does nothing else, as scikit-learn requires.
"""

from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any

from joblib import hash as content_hash
from sklearn.utils._param_validation import Interval

#: Allowed values that many parameters share.
COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")


def parameter(default: Any, *allowed: Any) -> Any:
    """A parameter of an estimator.

    Parameters
    ----------
    default : its default
    allowed : what it may be, as in scikit-learn's ``_parameter_constraints``
    """
    return field(default=default, metadata={"allowed": list(allowed)})


class Parameters:
    """Mixin for estimators that are dataclasses."""

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        """Read by scikit-learn's ``_validate_params``."""
        declared = fields(self)  # type: ignore[arg-type]
        return {one.name: one.metadata["allowed"] for one in declared if one.metadata}

    def __dask_tokenize__(self) -> str:
        """Of a dataclass, Dask would compare the parameters alone and not what was learned."""
        return content_hash(self)
