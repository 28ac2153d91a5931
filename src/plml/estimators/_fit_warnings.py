"""What a user is told after a fit, with advice that can be followed."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from plml.stages.search import vanishing

#: Columns whose standard deviations differ by more are not standardised.
_SPREAD = 10.0
#: Rows whose root mean squared length is farther from one than this factor are in other units.
_LENGTH = 3.0


class GapWarning(ConvergenceWarning):
    """A solver stopped at a gap above the one it was asked for.

    Parameters
    ----------
    what : stopped, and at which gap
    gap, tol : float
    max_iter : int
    tol_name : the parameter that ``tol`` is
    cures : what may help before the parameters are touched
    reason : why it stopped, where that is known
    """

    def __init__(
        self,
        what: str,
        gap: float,
        *,
        tol: float,
        max_iter: int,
        tol_name: str = "tol",
        cures: tuple[str, ...] = (),
        reason: str = "",
    ) -> None:
        self.limits = {"max_iter": max_iter, tol_name: tol}
        self.stopped = f"{what} stopped at a relative gap of {gap:.2e}, above {tol_name}={tol:g}"
        self.reason = reason
        cure = reason or ", or ".join((*cures, f"raise max_iter={max_iter} or {tol_name}"))
        super().__init__(f"{self.stopped}; {cure}")

    def on_the_command_line(self, options: dict[str, str]) -> str:
        """The same for a command that prepares the data itself.

        Parameters
        ----------
        options : of the command, by the parameters that they set
        """
        known = [
            f"{options[name]} (now {value:g})"
            for name, value in self.limits.items()
            if name in options
        ]
        cure = self.reason or (f"raise {' or '.join(known)}" if known else "")
        return f"{self.stopped}; {cure}" if cure else self.stopped


def cures_of(X: Any) -> tuple[str, ...]:
    """What the training rows lack that makes the problems easy to solve."""
    if not isinstance(X, np.ndarray):  # it is elsewhere
        return ("standardise the features",)
    deviations = X.std(axis=0, dtype=np.float64)
    varying = deviations[deviations > 0.0]
    if len(varying) and varying.max() > _SPREAD * varying.min():
        return ("standardise the features",)
    length = float(np.sqrt(np.square(X - X.mean(axis=0), dtype=np.float64).sum(axis=1).mean()))
    if length and not 1.0 / _LENGTH < length < _LENGTH:
        return ("bring the rows to a mean length of one (plml.preprocessing.MeanNormScaler)",)
    return ()


def warn_of_gap(what: str, tol: float, max_iter: int, X: Any, gap: float) -> None:
    """Warn where a gap is above the one that was asked for; X are the training rows."""
    if gap > tol:
        warning = GapWarning(what, gap, tol=tol, max_iter=max_iter, cures=cures_of(X))
        warnings.warn(warning, stacklevel=2)


def open_gap(
    model: Any, what: str, gap: float, tol_name: str = "tol", reason: str = ""
) -> Iterator[Warning]:
    """A warning where a solver of a fitted model stopped at a larger gap than asked for."""
    tol = getattr(model, tol_name)
    if gap > tol:
        yield GapWarning(
            what,
            gap,
            tol=tol,
            max_iter=model.max_iter,
            tol_name=tol_name,
            cures=cures_of(model.training_cases()[0]),
            reason=reason,
        )


def fewer_anchors(
    asked: int, found: int, n_samples: int, parameter: str = "n_bases"
) -> Iterator[Warning]:
    """A warning where k-means found fewer clusters than were asked for."""
    if found < asked:
        yield UserWarning(
            f"{parameter}={asked} anchors were asked for; the {n_samples} training rows give "
            f"{found} distinct clusters, so {found} are used"
        )


def cut_directions(n_features: int, n_kept: int, variance_kept: float) -> Iterator[Warning]:
    """A warning where not all directions in which the rows differ were learned from."""
    if variance_kept < 1.0:
        yield UserWarning(
            f"of {n_features} features the {n_kept} directions with most of the variance were "
            f"learned from; they have {variance_kept:.1%} of it, and the rest is ignored: set "
            "n_directions to choose how many, or to None for all"
        )


def zero_metric(M: np.ndarray) -> Iterator[Warning]:
    """A warning where nothing was learned."""
    if not M.any():
        yield UserWarning(
            "the learned metric is zero, so neighbours are the Euclidean ones: same-class "
            "neighbours are no nearer than other-class ones; check the labels, the features and "
            "their scale, or lower pull or regularization"
        )


def flat_rows(weights: np.ndarray, M: np.ndarray) -> Iterator[Warning]:
    """A warning where the metrics of some rows vanish."""
    flat = int(vanishing(weights, np.trace(M, axis1=1, axis2=2, dtype=np.float64)).sum())
    if flat:
        yield UserWarning(
            f"at {flat} of the {len(weights)} training rows the learned metric is zero, so "
            "distances there are zero and neighbours are the Euclidean ones; lower pull or "
            "regularization, or take fewer bases"
        )


def rows_left_out(model: Any) -> Iterator[Warning]:
    """A warning where rows had weight zero: neighbours are numbered without them."""
    kept = getattr(model, "kept_rows_", None)
    if kept is not None:
        yield UserWarning(
            f"rows of sample_weight zero are left out, {len(kept)} are learned from; neighbours "
            "are numbered among these, and kept_rows_ says where they were in X"
        )


def classes_of_one(sizes: np.ndarray, classes: np.ndarray) -> Iterator[Warning]:
    """A warning that names the classes with one member."""
    alone = classes[sizes == 1].tolist()
    if alone:
        named = ", ".join(repr(label) for label in alone[:5]) + (", ..." if len(alone) > 5 else "")
        yield UserWarning(
            f"classes with one member have no same-class neighbour and give no triplets: {named}"
        )
