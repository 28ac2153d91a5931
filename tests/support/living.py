"""All estimators whose cases come and go, small and seeded."""

from every_estimator import ESTIMATORS
from plml import LMNNMM, PLML

TWO_SIDED = {"n_bases": 4, "random_state": 0, "prior": "identity", "pull": 0.1}
LIVING = {
    **{name: make for name, make in ESTIMATORS.items() if name != "KernelSVM"},
    "PLML-class": lambda **p: PLML(case_metrics="class", **TWO_SIDED, **p),
    "PLML-local": lambda **p: PLML(case_metrics="local", **TWO_SIDED, **p),
    "PLML-approximate": lambda **p: PLML(
        n_bases=4, random_state=0, search_backend="approximate", **p
    ),
    "LMNNMM-clusters": lambda **p: LMNNMM(n_metrics=4, solver="factored", random_state=0, **p),
}
