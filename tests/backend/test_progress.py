"""One bar for the whole of a piece of work, that never goes back, and lines where there is none."""

import io
import os
import re
import sys
import threading
from contextlib import contextmanager, suppress
from time import sleep

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import terminal
from plml import CBLML, LMNN, LMNNMM, PLML, PLMLCV, SML, BoostMetric
from plml.backend import progress
from plml.backend.context import holding
from plml.backend.progress import (
    Progress,
    Stage,
    duration,
    observed,
    plan,
    solver_stage,
    stage,
    work,
)
from plml.cli import main
from plml.solvers.problem import Iteration

COMMAND = "import sys; from plml.cli import main; sys.exit(main())"
SMALL = {"n_bases": 3, "random_state": 0, "n_jobs": 1}
ESTIMATORS = [
    PLML(**SMALL),
    PLMLCV(**SMALL),
    CBLML(**SMALL),
    SML(n_jobs=1),
    LMNN(n_jobs=1),
    LMNNMM(n_jobs=1),
    BoostMetric(n_jobs=1),
]


class Clock:
    """Time that passes when a test says so."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def often(monkeypatch):
    """Lines many times a second."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.005)


@pytest.fixture
def table(tmp_path, blobs):
    X, y = blobs
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    frame["y"] = np.array(["a", "b", "c", "d"])[y]
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def percentages(shown):
    return [int(number) for number in re.findall(r"^\[ *(\d+)%\]", shown, flags=re.MULTILINE)]


def runs(shown):
    """Percentages that never fall, one list for each bar."""
    parts = [[]]
    for before, number in zip([0, *shown], shown, strict=False):
        if number < before:
            parts.append([])
        parts[-1].append(number)
    return parts


def tickers():
    return [thread for thread in threading.enumerate() if thread.name == "plml-progress"]


def watch(monkeypatch):
    """Fractions after every report of the work that is shown, and the stages nobody planned."""
    fractions, unplanned = [], []
    report, part = Progress.report, Stage.part

    def spy_report(self, *arguments, **options):
        report(self, *arguments, **options)
        current = progress._current()
        if current is not None and current.whole is self:
            fractions.append(self.fraction)

    def spy_part(self, name, named):
        if name not in self._parts:
            unplanned.append(name)
        return part(self, name, named)

    monkeypatch.setattr(Progress, "report", spy_report)
    monkeypatch.setattr(Stage, "part", spy_part)
    return fractions, unplanned


class TestProgress:
    def test_stages_divide_the_whole(self):
        whole = Progress()
        root = Stage(whole)
        root.plan({"first": 1.0, "second": 3.0})
        second = root.part("second", named=True)
        second.plan({"a": 1.0, "b": 1.0})
        assert (second.begin, second.end) == (0.25, 1.0)
        inner = second.part("b", named=True)
        inner.report("half of it", 0.5)
        assert whole.fraction == pytest.approx(0.625 + 0.5 * 0.375)
        assert whole.words == ("second, b", "half of it")
        root.part("first", named=True).report("", 1.0)
        assert whole.fraction == pytest.approx(0.625 + 0.5 * 0.375)  # never back
        unplanned = root.part("surprise", named=False)
        unplanned.report("here", 1.0)
        assert whole.fraction == pytest.approx(0.625 + 0.5 * 0.375)
        assert whole.words == ("", "here")

    def test_the_estimate_goes_on_without_reports(self):
        clock = Clock()
        whole = Progress(clock)
        assert whole.seconds_left() is None
        clock.now = 10.0
        whole.report(0.25, 0.5, "stage")
        assert whole.seconds_left() == pytest.approx(30.0)
        clock.now = 16.0  # counts down while the stage may be on time
        assert whole.seconds_left() == pytest.approx(24.0)
        clock.now = 20.0
        assert whole.seconds_left() == pytest.approx(20.0)
        clock.now = 50.0  # late: half of the work is not done yet
        assert whole.seconds_left() == pytest.approx(50.0)
        assert whole.fraction == 0.25
        whole.report(1.0, 1.0, "done")
        assert whole.seconds_left() is None

    def test_an_estimate_of_the_work_itself_counts_down(self):
        clock = Clock()
        whole = Progress(clock)
        whole.report(0.5, 1.0, "study", left=100.0)
        assert whole.seconds_left() == 100.0
        clock.now = 40.0
        assert whole.seconds_left() == 60.0

    def test_a_line(self):
        clock = Clock()
        whole = Progress(clock)
        assert whole.line() == "[  0%] working - 0 s"
        clock.now = 41.0
        whole.report(0.349, 0.5, "fold 2 of 2, stage 2, metrics", "iteration 31, gap 2.1e-02")
        assert whole.line() == (
            "[ 34%] fold 2 of 2, stage 2, metrics: iteration 31, gap 2.1e-02 - 41 s, "
            "about 76 s to go"
        )
        whole.report(0.9999, 1.0, "")
        assert whole.line().startswith("[ 99%] working")  # 100 is the end

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            (0.4, "0 s"),
            (99, "99 s"),
            (119.6, "2 min 00 s"),
            (219, "3 min 39 s"),
            (7260, "2 h 01 min"),
        ],
    )
    def test_duration(self, seconds, words):
        assert duration(seconds) == words

    def test_a_solver_closes_its_gap_on_a_logarithmic_scale(self):
        whole = Progress()
        token = progress._CURRENT.set(Stage(whole))
        try:
            plan({"solver": 1.0})
            with solver_stage("solver", 1e-3, 100) as show:
                seen = []
                for number, gap in enumerate([np.inf, 1.0, 1e-1, 5e-1, 1e-2, np.nan]):
                    assert not show(Iteration(number, 5.0, gap, 0.1))
                    seen.append(whole.fraction)
                np.testing.assert_allclose(seen, [0, 0.01, 1 / 3, 1 / 3, 2 / 3, 2 / 3])
                show(Iteration(90, 5.0, 1e-2, 0.1))  # it ends at the limit at the latest
                assert whole.fraction == pytest.approx(0.9)
        finally:
            progress._CURRENT.reset(token)
        assert whole.fraction == 1.0
        whole.finish()
        assert whole.words[0] == "done; solver: iteration 90, gap 1.0e-02"

    def test_the_gap_of_a_part_is_not_told_as_that_of_the_whole(self, capsys):
        with work(1), stage("fold 1"), solver_stage("solver", 1e-3, 100) as show:
            show(Iteration(3, 5.0, 1e-2, 0.1))
        assert capsys.readouterr().err == "[100%] done - 0 s\n"

    def test_after_a_stage_its_name_stays_until_the_next(self):
        whole = Progress()
        with holding(progress._CURRENT, Stage(whole)), stage("reading"):
            pass
        assert whole.words == ("reading", "")


class TestLines:
    def test_a_stage_that_says_nothing_is_alive(self, often, capsys):
        with work(1):
            plan({"silence": 1.0})
            with stage("silence"):
                sleep(0.2)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) > 3
        assert all(line.startswith("[  0%] silence - ") for line in lines[:-1])
        assert lines[-1] == "[100%] done - 0 s"

    def test_short_work_says_nothing(self, capsys):
        with work(1), stage("quick"):
            pass
        assert capsys.readouterr().err == ""

    @pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
    def test_the_thread_ends_with_the_work(self, often, capsys, error):
        with suppress(ValueError, KeyboardInterrupt), work(1), stage("inside"):
            assert len(tickers()) == 1
            if error is not None:
                raise error
        assert not tickers()
        assert progress._current() is None
        assert ("done" in capsys.readouterr().err) <= (error is None)

    def test_the_thread_ends_with_a_fit_that_fails(self, often, blobs, monkeypatch):
        def fail(self, X, y, run):
            assert tickers()
            raise RuntimeError("no")

        monkeypatch.setattr(PLML, "_learn", fail)
        with pytest.raises(RuntimeError, match="no"):
            PLML(verbose=1).fit(*blobs)
        assert not tickers()

    def test_a_stream_that_nobody_reads(self, often, monkeypatch):
        class Closed(io.StringIO):
            def write(self, text):
                raise BrokenPipeError

        monkeypatch.setattr(sys, "stderr", Closed())
        with work(1):
            (ticker,) = tickers()
            ticker.join(10)
            assert not ticker.is_alive()
        monkeypatch.setattr(sys, "stderr", None)
        with work(1):
            assert not tickers()

    def test_a_forked_process_does_not_report(self, monkeypatch):
        with work(1):
            assert progress._current() is not None
            own = os.getpid()
            monkeypatch.setattr(os, "getpid", lambda: own + 1)
            assert progress._current() is None
            monkeypatch.undo()


class TestFits:
    @pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
    def test_one_bar_that_never_goes_back(self, blobs, capsys, monkeypatch, often, model):
        fractions, unplanned = watch(monkeypatch)
        clone(model).set_params(verbose=1).fit(*blobs)
        lines = capsys.readouterr().err.splitlines()
        assert unplanned == []
        assert fractions == sorted(fractions)
        assert len(set(fractions)) > 5
        assert fractions[-1] == 1.0
        shown = percentages("\n".join(lines))
        assert len(shown) == len(lines)  # there is nothing else
        assert shown == sorted(shown)
        assert shown[-1] == 100
        assert sum("] done" in line for line in lines) == 1  # no bar within the bar
        assert ("gap" in lines[-1]) == (not isinstance(model, PLMLCV))

    def test_a_selection_names_its_folds_and_their_stages(self, blobs, monkeypatch):
        labels = []
        monkeypatch.setattr(Stage, "report", lambda self, *_: labels.append(self.label))
        PLMLCV(**SMALL, verbose=1, regularizations=(0.1, 1)).fit(*blobs)
        names = list(dict.fromkeys(labels))
        stages = ["", ", neighbours", ", anchors", ", stage 1, weights", ", triplets"]
        values = [
            f", regularization {value}{inner}"
            for value in (1, 0.1)
            for inner in ("", ", stage 2, metrics", ", scoring")
        ]
        folds = [f"comparing settings: fold {i} of 2" for i in (1, 2)]
        expected = [f"{fold}{part}" for fold in folds for part in [*stages, *values]]
        assert names == [*expected, *(f"final fit{s}" for s in [*stages, ", stage 2, metrics"])]

    def test_a_fit_within_shown_work_reports_there(self, blobs, capsys, often, monkeypatch):
        fractions, unplanned = watch(monkeypatch)
        with work(1):
            plan({"first": 1.0, "second": 1.0})
            for name in ("first", "second"):
                with stage(name):
                    SML(n_jobs=1, verbose=1).fit(*blobs)
                    assert len(tickers()) == 1
                    assert fractions[-1] == pytest.approx(1.0 if name == "second" else 0.5)
        assert unplanned == []
        assert capsys.readouterr().err.count("] done") == 1

    def test_nothing_is_shown_of_itself(self, blobs, capsys, often):
        PLMLCV(**SMALL).fit(*blobs)
        assert capsys.readouterr().err == ""

    def test_folds_in_other_processes(self, blobs, capsys, monkeypatch, often):
        fractions, _ = watch(monkeypatch)
        PLMLCV(**{**SMALL, "n_jobs": 2}, verbose=1).fit(*blobs)
        assert fractions == sorted(fractions)
        assert "comparing settings: fold 1 of 2" in capsys.readouterr().err

    def test_folds_that_are_known_take_no_time(self, blobs, tmp_path, monkeypatch):
        plans = []
        divide = Stage.plan
        monkeypatch.setattr(
            Stage, "plan", lambda self, shares: (plans.append(shares), divide(self, shares))
        )
        model = PLMLCV(**SMALL, verbose=1)
        for known in (False, True):
            plans.clear()
            model.fit(*blobs, checkpoint=tmp_path / "kept.npz")
            shares = [share for name, share in plans[0].items() if "fold" in name]
            assert [share == 0.0 for share in shares] == [known, known]


class TestObserver:
    @pytest.fixture
    def events(self):
        return []

    @pytest.fixture
    def observer(self, events):
        @contextmanager
        def note(name):
            events.append(f"{name} begins")
            try:
                yield
            finally:
                events.append(f"{name} ends")

        return note

    @pytest.mark.parametrize("shown", [False, True])
    def test_it_is_told_of_every_stage_shown_or_not(self, events, observer, capsys, shown):
        with observed(observer), work(shown):
            with stage("first"), solver_stage("solver", 1e-3, 10) as show:
                show(Iteration(1, 5.0, 1e-2, 0.1))
            with stage("second"):
                pass
        with stage("afterwards"):
            pass
        assert events == [
            "first begins",
            "solver begins",
            "solver ends",
            "first ends",
            "second begins",
            "second ends",
        ]

    def test_a_stage_that_fails_ends(self, events, observer):
        with pytest.raises(ValueError, match="it failed"), observed(observer), stage("first"):
            raise ValueError("it failed")
        with stage("afterwards"):
            pass
        assert events == ["first begins", "first ends"]

    def test_one_within_another_takes_over(self, events, observer):
        inner = []

        @contextmanager
        def other(name):
            inner.append(name)
            yield

        with observed(observer):
            with observed(other), stage("inner"):
                pass
            with stage("outer"):
                pass
        assert inner == ["inner"]
        assert events == ["outer begins", "outer ends"]

    def test_it_sees_the_stages_of_a_fit(self, blobs, events, observer):
        with observed(observer):
            PLML(**SMALL).fit(*blobs)
        names = ["neighbours", "anchors", "stage 1, weights", "triplets", "stage 2, metrics"]
        assert events == [f"{name} {what}" for name in names for what in ("begins", "ends")]


class TestCommands:
    def run(self, *arguments):
        return main([str(argument) for argument in arguments])

    def test_fit_off_a_terminal(self, table, capsys, often, monkeypatch):
        _, unplanned = watch(monkeypatch)
        labels, report = [], Stage.report
        monkeypatch.setattr(
            Stage, "report", lambda self, *said: (labels.append(self.label), report(self, *said))
        )
        out = table.with_suffix(".skops")
        assert self.run("fit", table, "--target", "y", "-o", out, "--bases", 3) == 0
        printed = capsys.readouterr()
        shown = percentages(printed.err)
        assert unplanned == []
        fit, measuring = runs(shown)
        assert fit[-1] == measuring[-1] == 100
        (understood,) = re.findall(r"^(?!\[ *\d+%\]).*", printed.err.rstrip(), flags=re.MULTILINE)
        assert understood.startswith(f"{table.name}: ")
        for name in ("reading the table", "encoding", "saving the model"):
            assert name in labels
        assert any(re.fullmatch(r"final fit, metric 1 of \d, triplets", name) for name in labels)
        settings = "one metric, prior 'within', regularization 0.001"
        assert f"comparing settings: fold 2 of 3, {settings}, stage 2, metrics" in labels
        assert f"model: {out}" in printed.out

    def test_quiet(self, table, capsys, often):
        out = table.with_suffix(".skops")
        fit = ["fit", table, "--target", "y", "-o", out, "--bases", 3]
        assert self.run(*fit, "--quiet") == 0
        for command in ("predict", "evaluate", "explain"):
            assert self.run(command, out, table, "--quiet") == 0
        assert capsys.readouterr().err == ""

    def test_predictions_tell_how_far_they_are(self, table, capsys, often, monkeypatch):
        out = table.with_suffix(".skops")
        fit = ["fit", table, "--target", "y", "-o", out, "--bases", 3, "--regularization", 1]
        assert self.run(*fit, "--quiet") == 0
        capsys.readouterr()
        assert self.run("predict", out, table, "--proba", "--quiet") == 0
        expected = capsys.readouterr().out
        reports = []
        report = Stage.report
        monkeypatch.setattr(
            Stage,
            "report",
            lambda self, *said: (reports.append((self.label, said[0])), report(self, *said)),
        )
        monkeypatch.setattr("plml.backend.progress._BLOCK", 50)
        n = len(pd.read_csv(table))
        assert self.run("predict", out, table, "--proba") == 0
        printed = capsys.readouterr()
        assert printed.out == expected
        for label in ("reading the model", "reading the table", "encoding"):
            assert (label, "") in reports
        for label in ("predicting", "probabilities"):
            assert (label, f"50 of {n} rows") in reports
            assert (label, f"{n} of {n} rows") in reports
        shown = percentages(printed.err)
        assert shown == sorted(shown)
        for command in ("evaluate", "explain"):
            assert self.run(command, out, table) == 0
            assert percentages(capsys.readouterr().err)[-1] == 100

    def test_bad_input_stays_one_line(self, tmp_path, capsys):
        assert self.run("fit", tmp_path / "nothing.csv", "--target", "y") == 2
        assert capsys.readouterr().err.count("\n") == 1


class TestTerminal:
    def run(self, *arguments):
        pytest.importorskip("pexpect")
        pytest.importorskip("rich")
        return terminal.run([sys.executable, "-c", COMMAND, *arguments])

    def test_fit_and_predict(self, table):
        out = table.with_suffix(".skops")
        shown, code = self.run("fit", table, "--target", "y", "-o", out, "--bases", 3)
        assert code == 0
        bar = shown[: shown.index("accuracy in")]
        numbers = [int(number) for number in re.findall(r"(\d+)%", bar)]
        assert numbers == sorted(numbers)
        assert numbers[0] == 0
        assert numbers[-1] == 100
        assert len(set(numbers)) > 5
        # The cursor was hidden by two bars: of the fit, and of what it is worth on held-out rows.
        assert shown.count("\x1b[?25l") == 2
        for name in ("fold 1 of 3", "fold 3 of 3", "local metrics, fold 2 of 3", "final fit"):
            assert name in bar
        shown, code = self.run("predict", out, table, "-o", table.with_name("found.csv"))
        assert code == 0
        assert "reading the model" in shown
        assert "\x1b[2K" in shown[shown.index("100%") :]  # wiped away in the end

    def test_an_error_remains_alone(self, tmp_path):
        shown, code = self.run("fit", tmp_path / "nothing.csv", "--target", "y")
        assert code == 2
        rest = shown[shown.rindex("\x1b[2K") + len("\x1b[2K") :]
        assert rest.strip() == f"plml fit: there is no file {tmp_path / 'nothing.csv'}"

    def test_a_terminal_that_cannot_draw(self):
        pytest.importorskip("pexpect")
        script = (
            "import time; from plml.backend import progress\n"
            "progress.SECONDS_BETWEEN_LINES = 0.05\n"
            "with progress.work(1): time.sleep(0.3)\n"
        )
        shown, code = terminal.run([sys.executable, "-c", script], term="dumb")
        assert code == 0
        assert "[  0%] working" in shown
        assert "\x1b" not in shown

    def test_what_is_printed_into_a_file_stays_there(self, tmp_path):
        pytest.importorskip("pexpect")
        pytest.importorskip("rich")
        (tmp_path / "script.py").write_text(
            "from plml.backend.progress import work\nwith work(1): print('for the file')"
        )
        command = f"{sys.executable} {tmp_path / 'script.py'} > {tmp_path / 'out.txt'}"
        shown, code = terminal.run(["bash", "-c", command])
        assert code == 0
        assert "100%" in shown
        assert "for the file" not in shown
        assert (tmp_path / "out.txt").read_text() == "for the file\n"
