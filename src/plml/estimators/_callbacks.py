"""scikit-learn's callbacks (1.9 and later) around the iterations of a fit; nothing before that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from plml.solvers.problem import Callback, Iteration

#: Frames that ``with_callbacks`` puts between a user's call and the method.
FRAMES = 1
#: Attributes that scikit-learn takes away itself when a method ends.
CONTEXT = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")

Method = TypeVar("Method", bound=Callable[..., Any])

try:
    from sklearn import callback as sklearn_callback
    from sklearn.callback import CallbackSupportMixin
except ImportError:
    FRAMES = 0
    sklearn_callback = None

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands for scikit-learn's mixin before version 1.9, which has no callbacks."""


def with_callbacks(method: Method) -> Method:
    """scikit-learn's decorator of a fit, where there are callbacks; types stay as they are."""
    return method if sklearn_callback is None else sklearn_callback.with_callbacks(method)


def begin_fit(estimator: Any, n_stages: int) -> None:
    """Set the callbacks of an estimator up, where there are any."""
    if getattr(estimator, "_skl_callbacks", None):
        estimator._init_callback_context(max_subtasks=n_stages)
        estimator._callback_fit_ctx.call_on_fit_task_begin(estimator=estimator)


def end_fit(estimator: Any) -> None:
    """Tell the callbacks that the fit is done."""
    context = getattr(estimator, "_callback_fit_ctx", None)
    if context is not None:
        context.call_on_fit_task_end(estimator=estimator)


@contextmanager
def stage_callback(estimator: Any, name: str, show: Callback) -> Iterator[Callback]:
    """A solver callback that shows progress and calls what the user has set.

    A callback whose ``on_fit_task_end`` returns true stops the stage. Its ``metadata`` are the
    iteration, the value and the gap.

    Parameters
    ----------
    estimator : being fitted
    name : of the stage
    show : shows progress
    """
    root = getattr(estimator, "_callback_fit_ctx", None)
    if root is None:
        yield show
        return
    stage = root.subcontext(task_name=name, max_subtasks=None)
    stage.call_on_fit_task_begin(estimator=estimator)

    def call(record: Iteration) -> bool:
        stopped = bool(show(record))
        metadata = {"iteration": record.iteration, "value": record.value, "gap": record.gap}
        task = stage.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=estimator, metadata=metadata)
        return bool(task.call_on_fit_task_end(estimator=estimator, metadata=metadata)) or stopped

    yield call
    stage.call_on_fit_task_end(estimator=estimator)
