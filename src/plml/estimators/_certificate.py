"""The certificate of a fit in words."""

from collections.abc import Sequence
from decimal import ROUND_UP, Context
from typing import Any

#: Two digits of a bound, which is not rounded down.
_TWO_DIGITS = Context(prec=2, rounding=ROUND_UP)


def certificate_text(models: Sequence[Any]) -> str:
    """How much lower, at most, the objectives of fitted models could be.

    Parameters
    ----------
    models : all that vote; the largest gap of each stage is told
    """
    stages = [model.weights_gap_ for model in models if hasattr(model, "weights_gap_")]
    last = max(model.dual_gap_ for model in models)
    if stages:
        told = f"{_percent(max(stages))} in stage 1 and {_percent(last)} in stage 2"
    else:
        told = _percent(last)
    objectives = "the objective" if len(models) == 1 else "the objective of each metric"
    text = f"certificate: {objectives} could be lower by at most {told}"
    return text if all(model.converged_ for model in models) else f"{text}: not converged"


def _percent(gap: float) -> str:
    return f"{_TWO_DIGITS.create_decimal(100.0 * gap):f}%"
