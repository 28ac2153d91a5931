"""All public estimators, small and seeded, for tests of what holds for every one of them."""

from plml import (
    CBLML,
    DANN,
    GLML,
    LMNN,
    LMNNMM,
    PLML,
    PLMLCV,
    SML,
    BoostMetric,
    KernelSVM,
)

ESTIMATORS = {
    "PLML": lambda **p: PLML(**{"n_bases": 4, "random_state": 0} | p),
    "PLML-optimize": lambda **p: PLML(
        **{"n_bases": 4, "random_state": 0, "query_weights": "optimize"} | p
    ),
    "PLMLCV": lambda **p: PLMLCV(
        **{"n_bases": 3, "random_state": 0, "regularizations": (0.1, 10.0)} | p
    ),
    "SML": SML,
    "CBLML": lambda **p: CBLML(**{"n_bases": 3, "random_state": 0} | p),
    "LMNN": LMNN,
    "LMNN-energy": lambda **p: LMNN(**{"solver": "factored", "decision": "energy"} | p),
    "LMNNMM": lambda **p: LMNNMM(**{"solver": "factored", "random_state": 0} | p),
    "BoostMetric": BoostMetric,
    "GLML": lambda **p: GLML(**{"random_state": 0} | p),
    "DANN": DANN,
    "KernelSVM": lambda **p: KernelSVM(**{"random_state": 0} | p),
}
