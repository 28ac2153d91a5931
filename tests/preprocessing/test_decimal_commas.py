"""Numbers that a frame holds as texts are named as what they are."""

import numpy as np
import pandas as pd
import pytest

from plml import AutoPLML


def test_numbers_with_decimal_commas_are_not_called_categories(rng):
    numbers = [f"{value:.3f}".replace(".", ",") for value in rng.normal(size=80)]
    numbers[7] = "-"
    frame = pd.DataFrame({"good": rng.normal(size=80), "acid": numbers})
    with pytest.raises(ValueError, match=r"'acid' holds numbers as texts.* and '-'; .*read_table"):
        AutoPLML().fit(frame, np.arange(80) % 2)
    frame["acid"] = [f"word {i}" for i in range(80)]
    with pytest.raises(ValueError, match=r"'acid' has 80 different values .* leave it out"):
        AutoPLML().fit(frame, np.arange(80) % 2)
