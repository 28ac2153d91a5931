"""Peak memory and time of LMNN on MNIST, 60,000 x 154 (PCA on raw pixels, one global scale).

python benchmarks/lmnn_mnist_memory.py [--data-dir DIR]
"""

import argparse
import resource
from time import perf_counter

from plml import LMNN
from raw_mnist import raw_mnist


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--max-iter", type=int, default=300)
    options = parser.parse_args()
    X, y, X_test, y_test = raw_mnist(options.data_dir)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = perf_counter()
    model = LMNN(max_iter=options.max_iter, solver="factored", verbose=1).fit(X, y)
    seconds = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    accuracy = model.score(X_test, y_test)
    print(
        f"LMNN on {X.shape[0]} x {X.shape[1]}: {seconds:.0f} s, {model.n_iter_} iterations, "
        f"1-NN accuracy {accuracy:.2%}, peak of the process {peak:.2f} GiB "
        f"(reading the data alone: {before:.2f} GiB)"
    )


if __name__ == "__main__":
    main()
