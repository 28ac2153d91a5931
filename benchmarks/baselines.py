"""Every baseline on the first split of a data set, beside the paper's figure.

    python benchmarks/baselines.py [--data-dir DIR] [--datasets ...] [--methods ...]

SML and CBLML select ``regularization`` by 2-fold cross-validation on the training part; the others
run at their defaults. Letter is the first of ten folds here, all ten in the paper.
"""

import argparse
from time import perf_counter

from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier

from plml import CBLML, DANN, GLML, LMNN, LMNNMM, SML, BoostMetric, KernelSVM
from plml.experiments import datasets, protocols

PAPER = {
    "letter": {
        "LMNN": 96.08,
        "BoostMetric": 96.49,
        "SML": 96.71,
        "CBLML": 95.82,
        "LMNNMM": 95.02,
        "GLML": 93.86,
        "KernelSVM": 96.64,
    },
    "pendigits": {
        "LMNN": 97.43,
        "BoostMetric": 97.43,
        "SML": 97.80,
        "CBLML": 97.94,
        "LMNNMM": 97.43,
        "GLML": 96.88,
        "KernelSVM": 97.91,
    },
    "optdigits": {
        "LMNN": 97.55,
        "BoostMetric": 97.61,
        "SML": 97.22,
        "CBLML": 95.94,
        "LMNNMM": 95.94,
        "GLML": 94.82,
        "KernelSVM": 97.33,
    },
}
GRID = {"regularization": [0.01, 0.1, 1.0, 10.0, 100.0]}


def methods() -> dict[str, object]:
    """The classifiers, in the order of the paper's table."""
    return {
        "Euclidean": KNeighborsClassifier(1),
        "SML": GridSearchCV(SML(tol=1e-2), GRID, cv=2),
        "LMNN": LMNN(),
        "BoostMetric": BoostMetric(),
        "CBLML": GridSearchCV(CBLML(tol=1e-2, random_state=0), GRID, cv=2),
        "LMNNMM": LMNNMM(),
        "GLML": GLML(),
        "DANN": DANN(),
        "KernelSVM": KernelSVM(n_jobs=2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--datasets", nargs="+", default=list(PAPER), choices=list(PAPER))
    parser.add_argument("--methods", nargs="+", default=list(methods()), choices=list(methods()))
    options = parser.parse_args()
    header = f"{'data set':<11}{'method':<13}{'accuracy':>9}{'paper':>8}{'differ':>8}"
    print(header + f"{'fit s':>8}{'predict s':>11}")
    for name in options.datasets:
        dataset = datasets.load(name, options.data_dir)
        split = next(protocols.splits(dataset))
        X_train, y_train, X_test, y_test = protocols.prepared_split(dataset, *split)
        for method in options.methods:
            model = methods()[method]
            start = perf_counter()
            model.fit(X_train, y_train)
            fitted = perf_counter()
            accuracy = 100 * model.score(X_test, y_test)
            done = perf_counter()
            paper = PAPER[name].get(method)
            beside = f"{paper:>8.2f}{accuracy - paper:>+8.2f}" if paper else f"{'-':>8}{'-':>8}"
            times = f"{fitted - start:>8.1f}{done - fitted:>11.1f}"
            print(f"{name:<11}{method:<13}{accuracy:>9.2f}{beside}{times}", flush=True)


if __name__ == "__main__":
    main()
