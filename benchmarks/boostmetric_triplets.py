"""How many neighbours should make BoostMetric's triplets? Cross-validation on training data alone.

python benchmarks/boostmetric_triplets.py [--data-dir DIR]
"""

import argparse

import numpy as np
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

from plml import BoostMetric
from plml_study import datasets, protocols


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    folds = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    print(f"{'data set':<12}{'k':>4}{'accuracy':>12}")
    for name in ("pendigits", "optdigits", "letter"):
        dataset = datasets.load(name, options.data_dir)
        X, y, _, _ = protocols.prepared_split(dataset, *next(protocols.splits(dataset)))
        for k in (3, 10):
            model = BoostMetric(n_targets=k, n_impostors=k)
            accuracy = np.mean(cross_val_score(model, X, y, cv=folds))
            print(f"{name:<12}{k:>4}{accuracy:>12.2%}", flush=True)


if __name__ == "__main__":
    main()
