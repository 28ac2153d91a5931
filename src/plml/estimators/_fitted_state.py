"""The state of a fitted estimator, replaced as a whole.

An estimator may be asked by some threads while another one fits it again. Its attributes live in a
dictionary; a fit fills a new one and puts it in the place of the old one when it is done, and
whoever answers a question takes hold of one dictionary and looks at nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

from plml.estimators._callbacks import CONTEXT

Method = TypeVar("Method", bound=Callable[..., Any])


#: Made from the other attributes when it is first needed, and again wherever a model goes.
MADE_METRIC = "_made_metric"


@contextmanager
def refitted(estimator: Any) -> Iterator[Any]:
    """A copy to fit, without what earlier fits have set; its state becomes that of the estimator.

    A fit that ends early, by an error or by Ctrl-C, leaves the estimator as it was.
    """
    before = vars(estimator)
    old = {"_fitted_names", MADE_METRIC, *before.get("_fitted_names", ())}
    model = _with_state(estimator, {k: v for k, v in before.items() if k not in old})
    given = set(vars(model))
    try:
        yield model
    except BaseException:
        # scikit-learn looks for these on the estimator, to take them away.
        before.update({name: vars(model)[name] for name in CONTEXT if name in vars(model)})
        raise
    parameters = {
        name: vars(estimator)[name]
        for name in estimator.get_params(deep=False)
        if name in vars(estimator)
    }
    names = tuple(sorted(set(vars(model)) - given - set(CONTEXT)))
    estimator.__dict__ = {**vars(model), **parameters, "_fitted_names": names}


def of_one_fit(method: Method) -> Method:
    """A method of a fitted estimator that sees one fit, even while another one goes on."""

    @wraps(method)
    def ask(self: Any, *arguments: Any, **options: Any) -> Any:
        fit = _with_state(self, vars(self))
        check_is_fitted(fit)
        return method(fit, *arguments, **options)

    return ask  # type: ignore[return-value]


def _with_state(estimator: Any, state: dict[str, Any]) -> Any:
    """Another object of the same type whose attributes are the given dictionary."""
    other = object.__new__(type(estimator))
    other.__dict__ = state
    return other
