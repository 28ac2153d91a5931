"""Warnings of fits that stopped before their gap was closed, with advice that can be followed."""

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

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
