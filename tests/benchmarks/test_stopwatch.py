from time import perf_counter

import pytest

from plml import PLML, PLMLCV
from plml.stages.pipeline import ANCHORS, METRICS, NEIGHBORS, TRIPLETS, WEIGHTS
from stopwatch import seconds_of, stage_seconds

STAGES = [NEIGHBORS, ANCHORS, WEIGHTS, TRIPLETS, METRICS]


def test_every_stage_of_a_fit_has_its_time(blobs):
    with stage_seconds() as times:
        seconds, model = seconds_of(lambda: PLML(n_bases=3, random_state=0).fit(*blobs))
    assert list(times) == STAGES
    assert all(len(found) == 1 and found[0] > 0.0 for found in times.values())
    assert sum(found[0] for found in times.values()) <= seconds
    solver_seconds = model.history_["metrics"]["seconds"][-1]
    assert times[METRICS][0] == pytest.approx(solver_seconds, abs=0.5 * seconds)
    assert times[METRICS][0] >= solver_seconds


def test_of_several_fits_every_one_counts_and_those_outside_do_not(blobs):
    model = PLMLCV(n_bases=3, random_state=0, n_jobs=1, regularizations=(1, 10))
    with stage_seconds() as times:
        start = perf_counter()
        model.fit(*blobs)
        seconds = perf_counter() - start
    model.fit(*blobs)
    assert list(times) == STAGES
    assert [len(found) for found in times.values()] == [3, 3, 3, 3, 5]  # two folds and the last fit
    assert sum(sum(found) for found in times.values()) <= seconds
