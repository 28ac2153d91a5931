"""What selecting the regularization costs: PLMLCV over the paper's grid against one fit.

    python benchmarks/selection.py [--data-dir DIR] [--datasets ...]

Both on the first training part of the paper's protocol, PLML at regularization 1 and PLMLCV with
its defaults: five values, two folds at the same time, a gap of 1e-2 within them, 1e-3 in the end.
"""

import argparse
from functools import partial

import numpy as np

from plml import PLML, PLMLCV
from plml_study import datasets, protocols
from plml_study.race import DATASETS
from stopwatch import seconds_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=datasets.NAMES)
    options = parser.parse_args()
    ratios = []
    for name in options.datasets:
        dataset = datasets.load(name, options.data_dir)
        split = protocols.prepared_split(dataset, *next(protocols.splits(dataset)))
        X, y = split[:2]
        one = min(
            seconds_of(partial(PLML(rescale=False, random_state=0).fit, X, y))[0] for _ in range(2)
        )
        model = PLMLCV(rescale=False, random_state=0, n_jobs=-1)
        seconds, _ = seconds_of(partial(model.fit, X, y))
        ratios.append(seconds / one)
        print(
            f"{name:<11}one fit {one:6.2f} s, selection and fit {seconds:6.2f} s: "
            f"{ratios[-1]:.1f} times; regularization {model.best_regularization_:g}, largest gap "
            f"in the folds {max(_gaps(model)):.1e}",
            flush=True,
        )
    print(f"at most {max(ratios):.1f} times, geometric mean {np.exp(np.mean(np.log(ratios))):.1f}")


def _gaps(model: PLMLCV) -> list[float]:
    results = model.cv_results_
    return [results[name].max() for name in results if name.endswith("_dual_gap")]


if __name__ == "__main__":
    main()
