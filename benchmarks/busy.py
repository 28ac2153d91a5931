"""Predictions on a busy machine: as many foreign processes as cores keep them all at work.

python benchmarks/busy.py
"""

import multiprocessing
import os
from time import perf_counter

from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from plml import DANN, GLML, LMNN, PLML


def burn() -> None:
    while True:
        pass


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    models = [
        PLML(rescale=False, random_state=0),
        LMNN(solver="factored"),
        GLML(random_state=0),
        DANN(),
    ]
    for model in models:
        model.fit(X[:1200], y[:1200])
    print(f"100 queries, {os.cpu_count()} cores: seconds, the slowest of five")
    print(f"{'':<8}{'idle':>10}{'busy':>10}{'busy, n_jobs=1':>17}")
    rows = {type(model).__name__: [slowest(model, X[1200:1300])] for model in models}
    foreign = [
        multiprocessing.Process(target=burn, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for process in foreign:
        process.start()
    for model in models:
        for n_jobs in (None, 1):
            row = rows[type(model).__name__]
            row.append(slowest(model.set_params(n_jobs=n_jobs), X[1200:1300]))
    for process in foreign:
        process.terminate()
    for name, (idle, busy, alone) in rows.items():
        print(f"{name:<8}{idle:>10.3f}{busy:>10.3f}{alone:>17.3f}")


def slowest(model: object, X: object) -> float:
    """Seconds of the slowest of five predictions."""
    times = []
    for _ in range(5):
        start = perf_counter()
        model.predict(X)  # type: ignore[attr-defined]
        times.append(perf_counter() - start)
    return max(times)


if __name__ == "__main__":
    main()
