"""Dates as numbers, against the calendar of the standard library."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from plml.preprocessing.columns import Columns
from plml.preprocessing.date_encoder import CYCLES, DateEncoder


def frame(texts):
    return pd.DataFrame({"when": pd.to_datetime(texts)})


def test_features_are_the_day_and_its_places_on_circles():
    texts = ["2021-01-03 04:30", "2021-05-09 22:30", "2021-11-20 13:30"]
    texts += ["2022-02-14 01:00", "2022-07-14 08:00", "2022-09-14 17:00"]
    encoder = DateEncoder().fit(frame(texts))
    found = encoder.transform(frame(texts))
    epoch = dt.datetime(1970, 1, 1)
    days = np.array([(dt.datetime.fromisoformat(t) - epoch).total_seconds() for t in texts]) / 86400
    columns = [(days - days.mean()) / days.std()]
    for length in CYCLES.values():
        angle = 2 * np.pi * (days % length) / length
        columns += [2**0.5 * np.sin(angle), 2**0.5 * np.cos(angle)]
    np.testing.assert_allclose(found, np.stack(columns, axis=1) / 7**0.5, atol=1e-9)
    names = encoder.get_feature_names_out().tolist()
    assert names[:3] == ["when", "when_year_sin", "when_year_cos"]
    assert encoder.inverse_transform(found)[:, 0].tolist() == texts


def test_circles_without_movement_are_left_out():
    days = frame([f"2021-03-{d:02d}" for d in range(1, 29)])
    assert DateEncoder().fit(days).cycles_ == [("week",)]
    mondays = frame([f"{y}-01-01" for y in range(1990, 2020)])
    assert "year" not in DateEncoder().fit(mondays).cycles_[0]


def test_missing_dates_are_the_median_and_zones_are_utc():
    dates = frame(["2020-01-01", None, "2020-01-03", "2020-01-08"])
    encoder = DateEncoder().fit(dates)
    median = encoder.transform(frame(["2020-01-03"]))
    np.testing.assert_allclose(encoder.transform(dates)[1], median[0])
    zoned = pd.DataFrame({"when": pd.to_datetime(["2020-01-03 02:00+02:00"], utc=False)})
    np.testing.assert_allclose(encoder.transform(zoned), median)
    clone(encoder).fit(dates)


@pytest.mark.parametrize(("day_first", "day"), [(True, "2020-04-03"), (False, "2020-03-04")])
def test_the_order_of_day_and_month_is_kept(day_first, day):
    columns = Columns(("when",), (), True, ("when",), ("when",) if day_first else ())
    tidied = columns.tidy(pd.DataFrame({"when": ["03/04/2020"]}), "t.csv")
    assert str(tidied["when"][0].date()) == day


def test_what_is_no_date_is_named():
    columns = Columns(("when",), (), True, ("when",))
    with pytest.raises(ValueError, match="'when' holds 'soon' in row 1, which is not a date"):
        columns.tidy(pd.DataFrame({"when": ["2020-01-01", "soon"]}), "t.csv")
