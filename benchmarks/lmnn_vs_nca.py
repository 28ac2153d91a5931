"""LMNN and scikit-learn's NCA on Pendigits: the official split, and all rows in five folds.

    python benchmarks/lmnn_vs_nca.py [--data-dir DIR]

The official split has other writers in the test set than in the training set. Both learn on the
same standardised rows, both classify by the nearest neighbour, and McNemar's exact test compares
the same test instances. Nothing is chosen.
"""

import argparse

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

from plml import LMNN
from plml_study.datasets import load
from plml_study.protocols import prepared_split, splits
from plml_study.statistics import mcnemar


def right(transformer: object, X: np.ndarray, y: np.ndarray, *test: np.ndarray) -> np.ndarray:
    """Which test instances their nearest neighbour in the learned space classifies rightly."""
    transformer.fit(X, y)
    nearest = KNeighborsClassifier(1).fit(transformer.transform(X), y)
    return nearest.predict(transformer.transform(test[0])) == test[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    dataset = load("pendigits", parser.parse_args().data_dir)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(dataset.X, dataset.y)
    for name, pairs in (("official split", splits(dataset)), ("five folds", folds)):
        found = []
        for train, test in pairs:
            X, y, X_test, y_test = prepared_split(dataset, train, test)
            methods = (LMNN(), NeighborhoodComponentsAnalysis(random_state=0))
            found.append([right(method, X, y, X_test, y_test) for method in methods])
        ours, theirs = np.concatenate(found, axis=1)
        print(
            f"{name}: LMNN {100 * ours.mean():.2f}%, NCA {100 * theirs.mean():.2f}%, "
            f"{len(ours)} test instances, p = {mcnemar(ours, theirs).p_value:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
