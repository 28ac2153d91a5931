"""The study in a smaller form, on the embedded digits."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from plml.cli import main
from plml_study import claims, datasets, figures, paper, protocols, report, result_tables, study
from plml_study.records import Store, Task, pack_bits
from processes import left_when_killed, start, workers_of

COMMAND = [sys.executable, "-c", "import sys; from plml.cli import main; sys.exit(main())"]


@pytest.fixture
def two_folds(monkeypatch):
    monkeypatch.setattr(protocols, "N_FOLDS", 2)


def times_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def records_of(folder):
    """What is there, and whole, by its task."""
    files = folder.glob("*.jsonl")
    records = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {Task.of(record): record for record in records}


def until_recorded(folder, n_records, seconds=120):
    """Wait until so many tasks are done."""
    deadline = time.monotonic() + seconds
    while len(records_of(folder)) < n_records and time.monotonic() < deadline:
        time.sleep(0.05)


def fake_record(correct, seconds=1.0, **more):
    return {
        "accuracy": 100 * float(np.mean(correct)),
        "n_test": len(correct),
        "n_features": 4,
        "seconds": seconds,
        "device": "cpu",
        "selected": {"regularization": 1.0},
        "certificate": {"dual_gap": 5e-4, "n_iter": 12.0},
        "warnings": [],
        "correct": pack_bits(correct),
        **more,
    }


@pytest.mark.slow
def test_table1_on_digits_and_a_second_run_does_nothing(two_folds, tmp_path, capsys):
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    arguments += ["--methods", "PLML", "SML", "KernelSVM", "GLML", "Euclidean"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "Digits" in printed.out
    assert "10 done" in printed.err
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert [row["method"] for row in rows] == ["PLML", "SML", "GLML", "KernelSVM", "Euclidean"]
    by_method = {row["method"]: row for row in rows}
    for row in rows:
        assert row["dataset"] == "digits"
        assert row["n_test"] == 1797
        assert row["n_folds"] == 2
        assert row["seconds"] > 0
        assert row["interval"][0] < row["accuracy"] < row["interval"][1]
    assert by_method["PLML"]["accuracy"] > 97
    assert by_method["PLML"]["largest_gaps"]["dual_gap"] <= 1e-3
    assert len(by_method["PLML"]["superscript"].replace("|", "")) == 3
    assert sum(row["score"] for row in rows) == 10  # pairs of five methods
    before = times_of(tmp_path / "records")
    assert main(arguments) == 0
    assert times_of(tmp_path / "records") == before
    page = (tmp_path / "report.html").read_text()
    assert "Table 1" in page
    assert "plml reproduce table1" in page


@pytest.mark.slow
def test_a_killed_run_continues_where_it_was(tmp_path):
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    arguments += ["--methods", "GLML", "DANN", "Euclidean", "--jobs", "2"]
    records = tmp_path / "records"
    process = start(COMMAND + arguments, stderr=subprocess.DEVNULL)
    until_recorded(records, 4)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = records_of(records)
    assert 4 <= len(kept) < 30
    for record in kept.values():  # all of them whole
        assert record["accuracy"] > 50
    done = subprocess.run(COMMAND + arguments, capture_output=True, text=True, check=True)
    assert "30 done, 0 running, 0 left" in done.stderr
    after = records_of(records)
    assert len(after) == 30
    assert {task: after[task] for task in kept} == kept  # with the time at which they were finished


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    arguments += ["--methods", "KernelSVM", "--jobs", "2"]
    process = start(COMMAND + arguments, stderr=subprocess.DEVNULL)
    assert len(workers_of(process, 2)) >= 2
    until_recorded(tmp_path / "records", 1)
    assert process.poll() is None
    assert not left_when_killed(process)


@pytest.mark.slow
def test_a_smaller_run_hides_nothing_of_an_earlier_one(two_folds, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "DATASETS", ("digits",))
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "GLML", "SML", "Euclidean"]) == 0
    assert main([*arguments, "--methods", "GLML"]) == 0
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert [row["method"] for row in rows] == ["SML", "GLML"]  # Euclidean is not the paper's


def test_another_seed_does_not_overwrite(two_folds, tmp_path, capsys):
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    arguments += ["--methods", "Euclidean"]
    assert main(arguments) == 0
    before = times_of(tmp_path / "records")
    capsys.readouterr()
    assert main([*arguments, "--seed", "1"]) == 2
    assert "holds records of --seed 0" in capsys.readouterr().err
    assert times_of(tmp_path / "records") == before


@pytest.mark.slow
def test_a_half_done_study_of_an_earlier_version_goes_on(two_folds, tmp_path, capsys):
    """Its records were in files of their own."""
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "Euclidean"]) == 0
    before = records_of(tmp_path / "records")
    (tmp_path / "records" / "digits.jsonl").unlink()
    for task, record in before.items():
        path = tmp_path / "records" / "digits" / f"fold{task.fold}" / f"{task.method}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    capsys.readouterr()
    assert main([*arguments, "--methods", "Euclidean", "DANN"]) == 0
    printed = capsys.readouterr()
    assert "2 files of one record each became one file per data set" in printed.out
    after = records_of(tmp_path / "records")
    assert len(after) == 4
    assert {task: after[task] for task in before} == before
    assert os.listdir(tmp_path / "records") == ["digits.jsonl"]


def test_a_line_that_is_no_record_is_told_and_kept(two_folds, tmp_path, capsys):
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    (tmp_path / "records").mkdir()
    path = tmp_path / "records" / "digits.jsonl"
    path.write_text("=======\n")
    assert main([*arguments, "--methods", "Euclidean"]) == 0
    told = f"warning: {path}, line 1 is not a record that counts; it stays there"
    assert capsys.readouterr().err.count(told) == 1
    assert path.read_text().splitlines()[0] == "======="
    assert len(path.read_text().splitlines()) == 3


def test_without_its_data_a_data_set_is_tried_once(tmp_path, monkeypatch, capsys):
    def no_network(*arguments, **options):
        raise OSError("no network")

    monkeypatch.delenv("PLML_DATA", raising=False)
    monkeypatch.setattr("plml_study.datasets.fetch_openml", no_network)
    arguments = ["reproduce", "table1", "--datasets", "pendigits", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "Euclidean", "GLML", "SML"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("could not be fetched from OpenML") == 1
    assert "no report" in captured.out
    assert not (tmp_path / "report.html").exists()


def test_the_committed_results_agree_with_each_other():
    root = Path(__file__).parents[2]
    results = root / "results"
    methods = (*paper.METHODS, *result_tables.APART)
    table = result_tables.table1(Store(results / "records"), paper.DATASETS, methods)
    assert table.complete
    assert table.has_the_papers_shape
    committed = json.loads((results / "table1.json").read_text())
    assert result_tables.as_records(table) == committed
    text = result_tables.as_text(table, result_tables.MARKDOWN)
    assert (results / "table1.md").read_text() == text
    shown = (root / "docs" / "paper.md").read_text()
    assert "```{include} ../results/table1.md\n```" in shown


@pytest.mark.slow
def test_the_same_seed_gives_the_same_result(two_folds, tmp_path):
    results = [
        study.do(Task("digits", 1, "PLML", 5), 3, study.Conditions(n_threads=1)) for _ in range(2)
    ]
    assert results[0]["correct"] == results[1]["correct"]
    assert results[0]["certificate"] == results[1]["certificate"]


def test_a_task_that_fails_does_not_stop_the_others(two_folds, tmp_path, monkeypatch, capsys):
    def broken(method, setting):
        if method == "GLML":
            raise MemoryError("not enough")
        return original(method, setting)

    original = study.methods.build
    monkeypatch.setattr(study.methods, "build", broken)
    arguments = ["reproduce", "table1", "--datasets", "digits", "--out", str(tmp_path)]
    assert main([*arguments, "--methods", "GLML", "Euclidean"]) == 1
    assert "digits fold 0 GLML: MemoryError: not enough" in capsys.readouterr().err
    rows = json.loads((tmp_path / "table1.json").read_text())
    assert [row["method"] for row in rows] == ["Euclidean"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--datasets", "iris"], "unknown data set iris; choose from all, digits"),
        (["--methods", "magic"], "unknown method magic; choose from all, PLML"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--seed", "-1"], "--seed must be between"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--out", "/proc/nothing"], "--out /proc/nothing cannot be written to"),
        (["--out", __file__], "cannot be written to"),
        (["--data-dir", "/nowhere", "--datasets", "letter"], "put letter-recognition.data"),
    ],
)
def test_bad_options_end_in_one_line(tmp_path, capsys, options, words):
    assert main(["reproduce", "table1", "--out", str(tmp_path / "new"), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_progress_tells_done_running_left_and_time(tmp_path, monkeypatch):
    def fake(task, seed, conditions):
        return fake_record(np.ones(3, dtype=bool), seconds=2.0)

    monkeypatch.setattr(study, "do", fake)
    tasks = [Task("digits", fold, "SML") for fold in range(3)]
    seen = []
    study.run(tasks, Store(tmp_path), study.Conditions(), report=seen.append)
    assert [(p.done, len(p.running), p.left) for p in seen] == [
        (0, 1, 2),
        (1, 1, 1),
        (2, 1, 0),
        (3, 0, 0),
    ]
    assert seen[0].seconds_left is None
    assert seen[1].seconds_left == 4.0


def test_what_failed_is_not_done(tmp_path, monkeypatch, capsys):
    """Without its data no task of a data set is tried twice, and none counts as done."""
    tried = []

    def fail(task, seed, conditions):
        tried.append(task)
        raise datasets.Unavailable("there is no network")

    monkeypatch.setattr(study, "do", fail)
    tasks = [Task("digits", fold, "SML") for fold in range(3)]
    seen = []
    failures = study.run(tasks, Store(tmp_path), study.Conditions(), report=seen.append)
    assert tried == tasks[:1]
    assert [failure.task for failure in failures] == tasks
    assert (seen[-1].done, seen[-1].failed) == (0, 3)
    command = ["reproduce", "table1", "--datasets", "digits", "--methods", "SML"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "digits fold 0 SML: there is no network (9 more like it)" in error
    assert error.splitlines()[-1].startswith("plml reproduce: all 10 tasks failed")


class TestTable:
    @pytest.fixture
    def store(self, tmp_path, rng):
        store = Store(tmp_path)
        shares = {"PLML": 0.98, "LMNN": 0.979, "GLML": 0.6, "KernelSVM": 0.97}
        draws = rng.uniform(size=3498)
        for method, share in shares.items():
            n_bases = 20 if method == "PLML" else None
            store.write(Task("pendigits", 0, method, n_bases), fake_record(draws < share))
        return store

    def test_cells_scores_and_superscripts(self, store):
        table = result_tables.table1(
            store, ["pendigits"], ["PLML", "LMNN", "GLML", "KernelSVM", "SML"]
        )
        cell = table.get("pendigits", "PLML")
        assert cell.superscript == "=|+|+"
        assert cell.bold
        assert cell.score == 2.5
        assert cell.paper_accuracy == 98.34
        assert cell.difference == pytest.approx(round(cell.accuracy, 2) - 98.34)
        assert not table.get("pendigits", "GLML").bold
        assert table.get("pendigits", "SML") is None
        assert table.total("SML") is None
        assert not table.complete

    def test_markdown_and_latex(self, store):
        table = result_tables.table1(store, ["pendigits"], ["PLML", "GLML", "SML"])
        cell = table.get("pendigits", "PLML")
        markdown = result_tables.as_text(table, result_tables.MARKDOWN)
        widths = {line.count(" | ") for line in markdown.splitlines()}
        assert widths == {3}
        assert f"**{cell.accuracy:.2f}**<sup>+</sup> (1)" in markdown
        assert f"*98.34 ({cell.difference:+.2f})*" in markdown
        latex = result_tables.as_text(table, result_tables.LATEX)
        assert rf"\textbf{{{cell.accuracy:.2f}}}$^{{+}}$ (1)" in latex
        assert latex.count(r"\\") == 4

    def test_a_missing_fold_leaves_the_cell_out(self, store):
        store.write(Task("usps", 0, "SML"), fake_record(np.ones(5, dtype=bool)))
        assert result_tables.table1(store, ["usps"], ["SML"]).get("usps", "SML") is None


def test_the_papers_table_adds_up():
    for method in paper.METHODS:
        scores = [paper.score(dataset, method) for dataset in paper.DATASETS]
        # The printed total of SVM is half a point above the sum of its scores; all others agree.
        excess = 0.5 if method == "KernelSVM" else 0.0
        assert sum(scores) + excess == paper.TOTALS[method]


def curve(*accuracies, n=4000):
    rows = np.arange(n)
    return figures.Curve(
        paper.FIGURE_2[-len(accuracies) :], tuple(rows < n * a for a in accuracies)
    )


def test_claims_are_decided_by_the_evidence(tmp_path, rng):
    curves = {("letter", "PLML"): curve(0.95, 0.96, 0.96), ("letter", "CBLML"): curve(0.95, 0.9)}
    assert claims.does_not_overfit(curves, ["letter"]).holds
    assert claims.does_not_overfit(curves).holds is None  # of six data sets
    curves["letter", "PLML"] = curve(0.96, 0.93)
    assert claims.does_not_overfit(curves, ["letter"]).holds is False
    store, one = Store(tmp_path), ["pendigits"]
    draws = rng.uniform(size=3498)
    for number, method in enumerate(paper.METHODS):
        bases = 20 if method in ("PLML", "CBLML") else None
        record = fake_record(draws < 0.98 - 0.02 * number)
        store.write(Task("pendigits", 0, method, bases), record)
    table = result_tables.table1(store, one, paper.METHODS)
    assert claims.highest_total(table, one).holds
    assert claims.beats_local_baselines(table, one).holds
    assert claims.highest_total(table).holds is None  # of six data sets
    assert claims.beats_local_baselines(table).holds is None
    table = result_tables.table1(store, one, ["PLML", "SML", "CBLML"])
    assert claims.highest_total(table, one).holds is None
    assert claims.beats_local_baselines(table, one).holds is None
    for method, share in {"LMNNMM": 0.99, "GLML": 0.98}.items():
        store.write(Task("pendigits", 0, method, None), fake_record(draws < share))
    beaten = claims.beats_local_baselines(result_tables.table1(store, one, paper.METHODS), one)
    assert beaten.holds is False
    assert "better in 1 of 3" in beaten.evidence
    assert "worse than LMNN-MM on Pendigits" in beaten.evidence
    assert "no different from GLML on Pendigits" in beaten.evidence


class TestReport:
    @pytest.fixture
    def page(self, tmp_path, rng):
        store = Store(tmp_path / "records")
        draws = rng.uniform(size=3498)
        for method, share in {"PLML": 0.98, "CBLML": 0.9}.items():
            record = fake_record(draws < share, selected={"kernel": "<script>alert(1)</script>"})
            store.write(Task("pendigits", 0, method, 20), record)
        table = result_tables.table1(store, ["pendigits"], ["PLML", "CBLML"])
        panel = {
            "accuracy": 82.0,
            "local_metrics": {
                "points": rng.normal(size=(8, 2)).tolist(),
                "labels": ["0", "1", "2", "4"] * 2,
                "metrics": np.tile(np.diag([2.0, 1.0]), (8, 1, 1)).tolist(),
            },
        }
        record = store.read(Task("pendigits", 0, "PLML", 20))
        panels = {method: {**record, **panel} for method in paper.FIGURE_1}
        curves = {("letter", "PLML"): curve(0.95, 0.96), ("letter", "CBLML"): curve(0.95, 0.9)}
        path = tmp_path / "report.html"
        findings = report.Findings(table, panels, curves)
        path.write_text(report.render(findings, "plml reproduce all"), encoding="utf-8")
        return path

    def test_it_needs_no_network_and_escapes_what_it_shows(self, page):
        text = page.read_text(encoding="utf-8")
        assert "<script>alert(1)" not in text
        assert "&lt;script&gt;alert(1)" in text
        outside = re.findall(r'(?:src|href)="(?!#)([^"]+)"', text)
        assert not [address for address in outside if not address.startswith("data:")]
        assert text.count("<svg") == 4  # two figures in two themes

    @pytest.mark.skipif(
        shutil.which("chromium") is None, reason="needs chromium (Debian: apt install chromium)"
    )
    @pytest.mark.parametrize(("scheme", "expected"), [("0", "dark"), ("1", "light")])
    def test_in_a_real_browser(self, page, tmp_path, scheme, expected):
        # A click on the button turns the theme; what the page says of itself is read back.
        probe = page.with_name("probe.html")
        script = """<script>
          window.addEventListener("load", () => {
            const shown = () => [...document.querySelectorAll("figure > div")]
              .filter(e => getComputedStyle(e).display !== "none").map(e => e.className);
            const found = {theme: document.documentElement.dataset.theme, shown: shown(),
              rows: document.querySelectorAll("#accuracy tbody tr").length,
              wide: document.documentElement.scrollWidth <= innerWidth,
              drawn: [...document.querySelectorAll("figure svg")].map(e => e.clientWidth),
              background: getComputedStyle(document.body).backgroundColor};
            document.getElementById("theme").click();
            found.clicked = document.documentElement.dataset.theme;
            found.then = shown();
            const out = document.createElement("pre");
            out.id = "found"; out.textContent = JSON.stringify(found);
            document.body.append(out);
          });</script></body>"""
        text = page.read_text(encoding="utf-8").replace("</body>", script)
        probe.write_text(text, encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += ["--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += [f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom"]
        command += ["--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]
        result = subprocess.run(
            [*command, probe.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', result.stdout)[1])
        other = "light" if expected == "dark" else "dark"
        assert found["theme"] == expected
        assert found["shown"] == [expected, expected]
        assert (found["clicked"], found["then"]) == (other, [other, other])
        assert found["rows"] == 2
        assert found["wide"]
        assert sum(width > 200 for width in found["drawn"]) == 2  # the shown ones
        assert (found["background"] == "rgb(255, 255, 255)") == (expected == "light")
        assert "CONSOLE" not in result.stderr
