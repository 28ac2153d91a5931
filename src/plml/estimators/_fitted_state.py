"""The state of a fitted estimator, replaced as a whole.

An estimator may be asked by some threads while another one fits it again. Its attributes live in a
dictionary; a fit fills a new one and puts it in the place of the old one when it is done, and
whoever answers a question takes hold of one dictionary and looks at nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any, TypeVar

from sklearn.utils.validation import check_is_fitted

from plml.estimators._callbacks import CONTEXT

Method = TypeVar("Method", bound=Callable[..., Any])


#: Held while the state of an estimator is put in the place of another one.
_replacing = Lock()
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
    names = tuple(sorted(set(vars(model)) - given - set(CONTEXT)))
    with _replacing:
        estimator.__dict__ = {**vars(model), **_parameters(estimator), "_fitted_names": names}


def changed(estimator: Any, change: Callable[[Any], None]) -> Any:
    """A copy of a fitted estimator with some of its fitted attributes changed.

    Parameters
    ----------
    estimator : stays as it is
    change : sets attributes of the copy
    """
    check_is_fitted(estimator)
    before = vars(estimator)
    model = _with_state(estimator, dict(before))
    change(model)
    new = set(vars(model)) - set(before)
    names = {*before.get("_fitted_names", ()), *new}
    model.__dict__ = {**vars(model), "_fitted_names": tuple(sorted(names))}
    return model


def change_in_one_step(estimator: Any, change: Callable[[Any], None]) -> None:
    """Give an estimator the state of its changed copy.

    An error leaves it as it was. Where another thread has fitted or changed it meanwhile, that one
    is changed instead, so that nothing is lost.

    Parameters
    ----------
    estimator : fitted
    change : as in ``changed``
    """
    while True:
        before = vars(estimator)
        model = changed(estimator, change)
        with _replacing:
            if vars(estimator) is before:
                estimator.__dict__ = {**vars(model), **_parameters(estimator)}
                return


def _parameters(estimator: Any) -> dict[str, Any]:
    """Those of now: they may be set at any time."""
    now = vars(estimator)
    return {name: now[name] for name in estimator.get_params(deep=False) if name in now}


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
