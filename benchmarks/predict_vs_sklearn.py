"""Time of PLML.predict against scikit-learn's brute-force KNeighborsClassifier, same run.

    python benchmarks/predict_vs_sklearn.py [--data-dir DIR] [--dataset pendigits]

PLML makes two exact searches (the nearest training point, then under its local metric); the
Euclidean classifier makes one. Medians over repeats, interleaved so that both see the same noise.
"""

import argparse
from statistics import median
from time import perf_counter

from sklearn.neighbors import KNeighborsClassifier

from plml import PLML
from plml_study import datasets, protocols


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--dataset", default="pendigits", choices=datasets.NAMES)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    dataset = datasets.load(options.dataset, options.data_dir)
    split = next(iter(protocols.splits(dataset)))
    X_train, y_train, X_test, y_test = protocols.prepared_split(dataset, *split)
    models = {
        "PLML": PLML(rescale=False, random_state=0),
        "KNeighborsClassifier(brute)": KNeighborsClassifier(1, algorithm="brute"),
    }
    times: dict[str, list[float]] = {name: [] for name in models}
    for model in models.values():
        model.fit(X_train, y_train).predict(X_test)
    for _ in range(options.repeats):
        for name, model in models.items():
            start = perf_counter()
            model.predict(X_test)
            times[name].append(perf_counter() - start)
    print(f"{dataset.name}: {len(X_test)} queries against {len(X_train)} x {X_train.shape[1]}")
    for name, model in models.items():
        accuracy = model.score(X_test, y_test)
        print(f"{name:<30}{1000 * median(times[name]):8.1f} ms   accuracy {accuracy:.2%}")
    ours, theirs = (median(times[name]) for name in models)
    print(f"ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
