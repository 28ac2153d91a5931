"""What a fit costs where there are many features: more than rows, or raw images.

python benchmarks/wide.py                  # 100 rows, 500 to 5,000 features
python benchmarks/wide.py --rows 10000 --features 2000   # a synthetic mixture of that size
python benchmarks/wide.py --mnist DIR      # 60,000 raw images of 784 pixels, scaled by one number
"""

import argparse
import resource
from time import perf_counter

import numpy as np

from plml import PLML
from plml.ops.span import span_of
from plml.preprocessing import MeanNormScaler
from plml_study import datasets
from synthetic import mixture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", metavar="DIR", help="folder of the original files")
    parser.add_argument("--rows", type=int, help="of a synthetic mixture")
    parser.add_argument("--features", type=int, default=2000, help="of the mixture")
    options = parser.parse_args()
    print(f"{'rows':>7}{'features':>10}{'directions':>12}{'fit s':>9}{'gap':>10}{'peak MB':>9}")
    if options.mnist is not None:
        dataset = datasets.load("mnist", options.mnist)
        X, y = dataset.X[:60_000].astype(np.float32), dataset.y[:60_000]
        report(MeanNormScaler().fit_transform(X), y, PLML(random_state=0, verbose=1))
        return
    if options.rows is not None:
        X, y = mixture(options.rows, options.features)
        report(X, y, PLML(random_state=0, verbose=1))
        return
    rng = np.random.default_rng(0)
    y = np.arange(100) % 3
    for d in (500, 1_000, 2_000, 5_000):
        X = rng.normal(size=(100, d)) + 3.0 * np.eye(3, d)[y]
        report(MeanNormScaler().fit_transform(X), y, PLML(n_bases=3, random_state=0))


def report(X: np.ndarray, y: np.ndarray, model: PLML) -> None:
    """Fit, and print one line."""
    start = perf_counter()
    model.fit(X, y)
    seconds = perf_counter() - start
    span = span_of(X, model.n_directions)
    directions = X.shape[1] if span is None else span.basis.shape[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{len(X):>7}{X.shape[1]:>10}{directions:>12}{seconds:>9.2f}{model.dual_gap_:>10.1e}"
        f"{peak:>9}",
        flush=True,
    )


if __name__ == "__main__":
    main()
