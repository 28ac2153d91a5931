"""The functions that one row of data goes through, from ``fit`` to ``predict``: ``make follow``.

CONTRIBUTING.md says what they do; this shows them as they are called, each with its line.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from sklearn.datasets import load_iris

import plml
from plml import PLML

SRC = Path(plml.__file__).parents[1]
#: Where a row arrives, in the order of the paper.
FIT = (
    "OneMachine.graph",
    "OneMachine.anchors",
    "learn_weights",
    "OneMachine.triplets",
    "learn_metrics_of",
    "LargeMarginClassifier._set_fitted",
)
PREDICT = ("NearestRow.weights", "InnerProductIndex.nearest")


def ways(function: Callable[[], Any], first: str, last: str) -> list[list[CodeType]]:
    """What is on the stack from the first function to each call of the last one, both included."""
    found = []

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == last:
            way = [frame.f_code]
            while (frame := frame.f_back) is not None:
                way.append(frame.f_code)
                if frame.f_code.co_qualname == first:
                    found.append(way[::-1])
                    break

    sys.setprofile(look)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


def show(function: Callable[[], Any], first: str, stops: tuple[str, ...]) -> None:
    """Print the ways, each function once, indented by the call."""
    printed: list[CodeType] = []
    found = [way for stop in stops for way in ways(function, first, stop)]
    for depth, code in (entry for way in found for entry in enumerate(way)):
        if code not in printed and Path(code.co_filename).is_relative_to(SRC):
            printed.append(code)
            name, place = code.co_qualname, Path(code.co_filename).relative_to(SRC)
            print(f"{'  ' * depth}{name:<{60 - 2 * depth}}{place}:{code.co_firstlineno}")


def main() -> None:
    X, y = load_iris(return_X_y=True)
    model = PLML(n_bases=2, tol=0.1, random_state=0)
    show(lambda: model.fit(X, y), "LargeMarginClassifier.fit", FIT)
    print()
    show(lambda: model.predict(X + 0.1), "NeighborClassifier.predict", PREDICT)


if __name__ == "__main__":
    main()
