"""CONTRIBUTING.md leads a reader through the code: what it names is there, and the way is short."""

import re
from pathlib import Path

import pytest
from sklearn.datasets import load_iris

import follow_a_row
from plml import PLML

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "plml"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = re.findall("`([^`]+)`", GUIDE[GUIDE.index("## Follow a row") : GUIDE.index("## How we")])


def test_the_map_names_every_package():
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert {name for name in packages if f"\n  {name}/ " in GUIDE} == packages


def test_files_are_there():
    files = [name for name in NAMED if name.endswith(".py")]
    assert len(files) > 20
    assert [name for name in files if not (SRC / name).is_file()] == []


def test_functions_are_there():
    source = "\n".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    defined = set(re.findall(r"(?:def|class) (\w+)", source))
    for name in (name for name in NAMED if re.fullmatch(r"[\w.]*[A-Z_]\w*\.\w+", name)):
        assert set(name.split(".")) <= defined, name


def called_between(function, first, last):
    """Our functions on the stack between the first one and each call of the last one."""
    found = follow_a_row.ways(function, first, last)
    return [[code.co_qualname for code in way[1:-1]] for way in found]


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_four_functions_lead_from_fit_to_the_first_stage(iris):
    model = PLML(n_bases=2, tol=0.1, random_state=0)
    (way,) = called_between(
        lambda: model.fit(*iris), "LargeMarginClassifier.fit", "OneMachine.graph"
    )
    assert way == [
        "NeighborClassifier._fit",
        "LargeMarginClassifier._learn",
        "learn",
        "SmoothWeighting.learn",
    ]


def test_three_functions_lead_from_predict_to_the_inner_products(iris):
    model = PLML(n_bases=2, tol=0.1, random_state=0).fit(*iris)
    of_weights, of_neighbors = called_between(
        lambda: model.predict(iris[0] + 0.1),
        "NeighborClassifier.predict",
        "InnerProductIndex.nearest",
    )
    before = ["NeighborClassifier._shares", "BasisMetric.nearest_labels"]
    assert of_weights == [*before, "NearestRow.weights", "EuclideanIndex.nearest"]
    assert of_neighbors == [*before, "LocalMetricIndex.nearest"]


def test_the_whole_way_is_shown(capsys):
    follow_a_row.main()
    shown = capsys.readouterr().out
    fit, predict = shown.split("\n\n")
    for name in follow_a_row.FIT:
        assert name in fit
    for name in follow_a_row.PREDICT:
        assert name in predict
    for file, line in re.findall(r"(\S+\.py):(\d+)$", shown, re.M):
        at = (SRC.parent / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        assert at.lstrip().startswith(("def ", "@"))
