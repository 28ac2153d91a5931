"""The methods of the study as scikit-learn classifiers with the paper's settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from plml import CBLML, DANN, GLML, LMNN, LMNNMM, PLMLCV, SML, AutoPLML, BoostMetric, KernelSVM
from plml.estimators.regularization_cv import RegularizationCV
from plml_study.preprocessing_choice import SelectedPreprocessing
from plml_study.protocols import LARGE

#: Rows on which the SVM selects its kernel on large data.
SVM_SELECTION_ROWS = 10_000


@dataclass(frozen=True)
class Setting:
    """What a method of the study may be told."""

    n_rows: int
    name: str = ""  # of the data set
    n_bases: int = 20
    seed: int = 0
    device: str = "cpu"
    n_jobs: int | None = None


def _svm(setting: Setting) -> KernelSVM:
    rows = SVM_SELECTION_ROWS if setting.n_rows > LARGE else None
    return KernelSVM(max_selection_samples=rows, n_jobs=setting.n_jobs, random_state=setting.seed)


def _lmnn(setting: Setting) -> LMNN:
    # The certified solver is for problems that it closes in reasonable time.
    solver = "factored" if setting.n_rows > LARGE else "convex"
    return LMNN(solver=solver, device=setting.device, n_jobs=setting.n_jobs)


def _selected(kind: type, setting: Setting, **parameters: Any) -> RegularizationCV:
    estimator = kind(rescale=False, device=setting.device, n_jobs=setting.n_jobs, **parameters)
    return RegularizationCV(estimator, n_jobs=setting.n_jobs)


BUILDERS: dict[str, Callable[[Setting], Any]] = {
    "PLML": lambda s: PLMLCV(
        n_bases=s.n_bases, rescale=False, random_state=s.seed, device=s.device, n_jobs=s.n_jobs
    ),
    "LMNN": _lmnn,
    "BoostMetric": lambda s: BoostMetric(n_jobs=s.n_jobs),
    "SML": lambda s: _selected(SML, s),
    "CBLML": lambda s: _selected(CBLML, s, n_bases=s.n_bases, random_state=s.seed),
    "LMNNMM": lambda s: LMNNMM(
        solver="factored", random_state=s.seed, device=s.device, n_jobs=s.n_jobs
    ),
    "GLML": lambda s: GLML(n_jobs=s.n_jobs, random_state=s.seed),
    "KernelSVM": _svm,
    # Not in the paper's table.
    "AutoPLML": lambda s: SelectedPreprocessing(
        AutoPLML(standardize=False, random_state=s.seed, device=s.device, n_jobs=s.n_jobs), s.name
    ),
    "DANN": lambda s: DANN(n_jobs=s.n_jobs),
    "Euclidean": lambda s: KNeighborsClassifier(1, algorithm="brute", n_jobs=s.n_jobs),
}
#: Methods that prepare the rows themselves.
FROM_RAW_ROWS = frozenset({"AutoPLML"})
#: Methods whose result depends on the number of basis metrics.
WITH_BASES = frozenset({"PLML", "CBLML"})


def build(method: str, setting: Setting) -> Any:
    """An unfitted classifier."""
    return BUILDERS[method](setting)


def certificate(model: Any) -> dict[str, float]:
    """What a fitted classifier says of its own solution."""
    model = getattr(model, "estimator_", model)
    model = getattr(model, "model_", model)
    names = ("weights_gap_", "dual_gap_", "objective_", "n_iter_", "excess_")
    found = {name.rstrip("_"): getattr(model, name, None) for name in names}
    numbers = {name: float(value) for name, value in found.items() if value is not None}
    return {name: value for name, value in numbers.items() if np.isfinite(value)}


def selected(model: Any) -> dict[str, Any]:
    """What a fitted classifier chose by inner cross-validation."""
    if isinstance(model, SelectedPreprocessing):
        return {"preprocessing": model.best_preprocessing_, **model.estimator_.best_params_}
    if hasattr(model, "best_regularization_"):
        return {"regularization": model.best_regularization_}
    if hasattr(model, "metric_shrinkage_"):
        return {"metric_shrinkage": model.metric_shrinkage_}
    return dict(getattr(model, "best_params_", {}))
