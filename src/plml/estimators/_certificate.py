"""The certificate of a fit in words."""

from collections.abc import Sequence
from typing import Any


def certificate_text(models: Sequence[Any]) -> str:
    """How far, at most, the metrics of fitted models are from their optima.

    Parameters
    ----------
    models : all that vote; the largest gap of each stage is told
    """
    stages = [model.weights_gap_ for model in models if hasattr(model, "weights_gap_")]
    gaps = ([max(stages)] if stages else []) + [max(model.dual_gap_ for model in models)]
    whose = "its metric" if len(models) == 1 else f"its {len(models)} metrics"
    where = f"the two stages of {whose}" if stages else whose
    optimum = "optimum" if where == "its metric" else "optima"
    told = " and ".join(f"{gap:.1e}" for gap in gaps)
    text = f"at most {told} (relative) from the {optimum} of {where}"
    return text if all(model.converged_ for model in models) else f"{text}: not converged"
