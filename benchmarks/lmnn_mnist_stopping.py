"""LMNN on MNIST under the paper's protocol: to the end, and stopped by a held-out part.

    python benchmarks/lmnn_mnist_stopping.py [--data-dir DIR] [--device cuda]

The paper does not say when its LMNN stopped; the code of its authors held out 30% of the training
rows to decide that.
"""

import argparse
from time import perf_counter

import numpy as np

from plml import LMNN
from plml_study import datasets, protocols


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    data = datasets.load("mnist", options.data_dir)
    X, y, X_test, y_test = protocols.prepared_split(data, *next(protocols.splits(data)))
    for name, stopping in {"held out 30%": 0.3, "to the end": None}.items():
        model = LMNN(
            solver="factored",
            validation_fraction=stopping,
            device=options.device,
            random_state=0,
        )
        start = perf_counter()
        model.fit(X, y)
        print(
            f"{name}: {100 * np.mean(model.predict(X_test) == y_test):.2f}% of the test rows, "
            f"objective {model.objective_:.0f}, {model.n_iter_} iterations, "
            f"{perf_counter() - start:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
