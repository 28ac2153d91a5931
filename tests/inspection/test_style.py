"""Colours and shapes of classes."""

from itertools import combinations

import numpy as np
import pytest

from plml.inspection.style import PALETTE, SHAPES, class_marks, wrapped

#: What is left of linear RGB without a kind of cones (Machado, Oliveira and Fernandes, 2009).
SEEN = {
    "all": np.eye(3),
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def linear(color):
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def cielab(rgb):
    parts = XYZ @ np.clip(rgb, 0.0, 1.0) / XYZ.sum(axis=1)
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one, other, cones):
    seen = [cielab(np.asarray(SEEN[cones]) @ linear(color)) for color in (one, other)]
    return np.linalg.norm(seen[0] - seen[1])


@pytest.mark.parametrize("cones", SEEN)
def test_any_two_colours_are_told_apart(cones):
    for one, other in combinations(PALETTE, 2):
        assert difference(one, other, cones) > 16.5, (one, other)


def test_the_difference_is_that_of_cielab():
    assert difference("#ffffff", "#000000", "all") == pytest.approx(100.0, abs=0.01)
    # red and a green of the same brightness, to a reader without green cones
    assert difference("#a06000", "#5f8000", "all") > 40
    assert difference("#a06000", "#5f8000", "no green") < 15


@pytest.mark.parametrize("n_classes", [1, 10, 11, 26, 40, 50])
def test_no_two_classes_look_the_same(n_classes):
    marks = class_marks(n_classes)
    assert len(set(marks)) == len(marks) == n_classes
    assert {color for color, _ in marks} <= set(PALETTE)
    assert len({shape for _, shape in marks}) == -(-n_classes // 10)
    assert {shape for _, shape in marks} <= set(SHAPES)


def test_beyond_that_they_come_again():
    assert class_marks(60)[50:] == class_marks(10)


def test_long_names_that_differ_at_the_end_stay_apart():
    names = [f"the concentration of the substance number {i}" for i in range(12)]
    short = wrapped(names)
    assert len(set(short)) == 12
    assert {len(name) for name in short} == {28}
    assert wrapped(["alcohol"]) == ["alcohol"]
