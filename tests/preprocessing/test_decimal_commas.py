"""Numbers that a frame holds as texts are named as what they are."""

import numpy as np
import pandas as pd
import pytest

from plml import AutoPLML, read_table


def test_numbers_with_decimal_commas_are_not_called_categories(rng):
    numbers = [f"{value:.3f}".replace(".", ",") for value in rng.normal(size=80)]
    numbers[7] = "-"
    frame = pd.DataFrame({"good": rng.normal(size=80), "acid": numbers})
    with pytest.raises(ValueError, match=r"'acid' holds numbers as texts.* and '-'; .*read_table"):
        AutoPLML().fit(frame, np.arange(80) % 2)
    frame["acid"] = [f"word {i}" for i in range(80)]
    with pytest.raises(ValueError, match=r"'acid' has 80 different values .* leave it out"):
        AutoPLML().fit(frame, np.arange(80) % 2)


@pytest.mark.parametrize(
    "texts",
    [
        [f"{60 + row % 30} kg" for row in range(80)],
        [f"{1000 * row + 126_000:,.1f}" for row in range(80)],
        [f"{row % 30}%" for row in range(80)],
        [f"{row % 30 / 10:.1f}".replace(".", ",") for row in range(80)],
    ],
    ids=["units", "thousands", "percent", "repeated"],
)
def test_numbers_with_marks_are_no_categories_unless_it_is_said(texts, rng):
    frame, labels = pd.DataFrame({"good": rng.normal(size=80), "size": texts}), np.arange(80) % 2
    small = AutoPLML(n_bases=2, max_iter=5, tol=1.0)
    with pytest.raises(ValueError, match=r"'size' holds numbers as texts, such as .*read_table"):
        small.fit(frame, labels)
    assert small.fit(frame.astype({"size": "category"}), labels).n_features_in_ == 2
    read, _ = read_table(frame)
    assert read["size"].dtype == np.float64


@pytest.mark.parametrize("write", ["{}a", "SKU{}", "{}-{}", "W{}"])
def test_codes_with_digits_are_categories(write, rng):
    codes = [write.format(row % 20, row % 20 + 9) for row in range(80)]
    frame = pd.DataFrame({"good": rng.normal(size=80), "code": codes})
    model = AutoPLML(n_bases=2, max_iter=5, tol=1.0)
    assert model.fit(frame, np.arange(80) % 2).n_features_in_ == 2
