"""A user's table through the command line: fit, predict, evaluate, explain."""

import io
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import terminal
from command import run
from plml import AutoPLML
from plml.cli import main
from plml.tables import table_models, table_reader

COMMAND = "import sys; from plml.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Wine with a category of its own and names as labels, cut in two."""
    folder = tmp_path_factory.mktemp("tables")
    data = load_wine(as_frame=True)
    table = data.data.copy()
    table["cellar"] = np.where(np.arange(len(table)) % 3 == 0, "north", "south")
    table["grape"] = np.array(["barolo", "grignolino", "barbera"])[data.target]
    table = table.sample(frac=1.0, random_state=0)
    table.iloc[:120].to_csv(folder / "train.csv", index=False)
    table.iloc[120:].to_csv(folder / "test.csv", index=False)
    table.iloc[120:].to_parquet(folder / "test.parquet")
    model = folder / "model.skops"
    arguments = ["fit", str(folder / "train.csv"), "--target", "grape", "-o", str(model)]
    assert main([*arguments, "--regularization", "1", "--bases", "4"]) == 0
    return folder


def accuracy_of(method, printed):
    return float(re.search(rf"^{method} +([\d.]+)%", printed, re.M)[1])


def test_predict_from_csv_and_parquet(files, capsys):
    tables = []
    for name in ("test.csv", "test.parquet"):
        assert run("predict", files / "model.skops", files / name, "--proba") == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    (files / "found.csv").write_text(tables[0])
    found = pd.read_csv(files / "found.csv")
    truth = pd.read_csv(files / "test.csv")["grape"]
    assert np.mean(found["prediction"] == truth) > 0.9
    assert list(found.columns[1:]) == [f"probability of {c}" for c in sorted(truth.unique())]
    np.testing.assert_allclose(found.iloc[:, 1:].sum(axis=1), 1.0)


def test_evaluate(files, capsys):
    assert run("evaluate", files / "model.skops", files / "test.csv") == 0
    printed = capsys.readouterr().out
    assert "barbera" in printed
    assert "confusion" in printed
    assert accuracy_of("learned metric", printed) > 90
    assert accuracy_of("Euclidean 5-NN", printed) > 90
    assert "the learned metric" in printed


def test_explain_adds_up(files, tmp_path, capsys):
    out, picture = tmp_path / "why.csv", tmp_path / "why.png"
    arguments = ("--row", 3, "--cases", 2, "-o", out, "--picture", picture, "--change")
    assert run("explain", files / "model.skops", files / "test.csv", *arguments) == 0
    printed = capsys.readouterr().out
    assert "row 3: predicted" in printed
    assert "The vote\n  1 of 1 neighbour is" in printed
    assert re.search(r"Why \w+ and not \w+", printed)
    assert printed.split("Nearest cases")[1].split("What sets")[0].count("  case ") == 2
    assert "What would change it" in printed
    frame = pd.read_csv(out)
    assert (frame["row"] == 3).all()
    distances = frame.groupby("rank")["squared_distance"].first()
    for split in ("likeness", "contribution"):
        sums = frame.groupby("rank")[split].sum()
        np.testing.assert_allclose(sums, distances, rtol=1e-6)
    # In the columns and units of the table, here and there.
    tables = pd.read_csv(files / "test.csv"), pd.read_csv(files / "train.csv")
    assert set(frame["column"]) == set(tables[0].columns) - {"grape"}
    for line in frame.itertuples():
        there = tables[1].iloc[line.training_row]
        for value, row in ((line.value, tables[0].iloc[3]), (line.neighbor_value, there)):
            expected = row[line.column]
            assert value == expected or float(value) == pytest.approx(expected)
        assert line.label == there["grape"]
    assert picture.stat().st_size > 5000


def test_figures_stay_under_their_headings(files, tmp_path, capsys):
    long = "the flavanoids of the wine in grams per litre"
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(files / name)[["flavanoids", "proline", "grape"]]
        table.rename(columns={"flavanoids": long}).to_csv(tmp_path / name, index=False)
    options = ("--target", "grape", "-o", tmp_path / "m.skops", "--regularization", 1, "--quiet")
    assert run("fit", tmp_path / "train.csv", *options) == 0
    capsys.readouterr()
    assert run("explain", tmp_path / "m.skops", tmp_path / "test.csv") == 0
    _, _, told = capsys.readouterr().out.partition("What sets the classes apart")
    head, *lines = told.splitlines()
    ends = {len(line) for line in lines} | {len("What sets the classes apart" + head)}
    assert long in told
    assert len(ends) == 1


def test_the_key_of_the_explained_row_is_shown(files, tmp_path, capsys):
    for name in ("train.csv", "test.csv"):
        table = pd.read_csv(files / name)
        table.assign(tag=[f"W-{i}" for i in range(len(table))]).to_csv(tmp_path / name, index=False)
    model, new = tmp_path / "model.skops", tmp_path / "test.csv"
    arguments = ("--target", "grape", "--id", "tag", "-o", model, "--regularization", 1)
    assert run("fit", tmp_path / "train.csv", *arguments, "--quiet") == 0
    capsys.readouterr()
    assert run("explain", model, new, "--row", 3) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("row 3 [W-3]: predicted ")
    assert re.search(r"\n  case (\d+) \[W-\1\] \(", printed)
    assert run("explain", model, new, "--id", "W-3") == 0
    assert capsys.readouterr().out == printed
    twice = pd.concat([pd.read_csv(new)] * 2)
    twice.to_csv(tmp_path / "twice.csv", index=False)
    for table, key, message in (
        (new, "W-99", "has 0 rows with the key 'W-99'; name one by its number: --row"),
        (tmp_path / "twice.csv", "W-3", "has 2 rows with the key 'W-3'; name one by"),
        (files / "test.csv", "W-3", "has no column 'tag', the keys of this model"),
    ):
        assert run("explain", model, table, "--id", key) == 2
        assert message in capsys.readouterr().err
    assert run("explain", files / "model.skops", new, "--id", "W-3") == 2
    assert "this model knows no column of keys" in capsys.readouterr().err
    assert run("explain", model, files / "test.csv", "--row", 3) == 0
    assert capsys.readouterr().out.startswith("row 3: predicted ")


def test_selection_by_default(files, tmp_path, capsys):
    out = tmp_path / "model.skops"
    arguments = ("--target", "grape", "-o", out, "--bases", 3)
    assert run("fit", files / "train.csv", *arguments) == 0
    printed = capsys.readouterr().out
    assert "accuracy in cross-validation" in printed
    assert isinstance(table_models.load(out).classifier, AutoPLML)
    for baseline in ("largest class", "Euclidean neighbours", "one metric"):
        assert f"  {baseline}: " in printed


def test_the_papers_selection(files, tmp_path, capsys):
    out = tmp_path / "model.skops"
    arguments = ("--target", "grape", "-o", out, "--bases", 3, "--paper")
    assert run("fit", files / "train.csv", *arguments) == 0
    assert "accuracy in cross-validation" in capsys.readouterr().out
    assert table_models.load(out).classifier.best_regularization_ in (0.01, 0.1, 1.0, 10.0, 100.0)


def changed(files, folder, change):
    table = pd.read_csv(files / "train.csv")
    new = change(table)
    table = table if new is None else new
    table.to_csv(folder / "changed.csv", index=False)
    return folder / "changed.csv"


def test_missing_values_are_refused_or_imputed(files, tmp_path, capsys):
    def lose(table):
        table.loc[[5, 9], "ash"] = np.nan
        table.loc[7, "cellar"] = None

    def lose_a_category(table):
        table.loc[7, "cellar"] = None

    path, out = changed(files, tmp_path, lose_a_category), tmp_path / "model.skops"
    refuse = ("--missing", "refuse")
    assert run("fit", path, "--target", "grape", "-o", out, *refuse) == 2
    assert "column 'cellar' has 1 missing values, the first in row 7" in capsys.readouterr().err
    path = changed(files, tmp_path, lose)
    arguments = ("fit", path, "--target", "grape", "-o", out, "--regularization", 1, "--bases", 3)
    assert run(*arguments, *refuse) == 2
    error = capsys.readouterr().err
    assert "column 'ash' has 2 missing values, the first in row 5" in error
    assert error.splitlines()[0].startswith("changed.csv: text, utf-8")
    assert error.count("\n") == 2
    assert run(*arguments, *refuse[:1], "impute") == 0
    assert run("predict", out, path) == 0
    complete = ("--regularization", 1, "--bases", 3, *refuse)
    assert run("fit", files / "train.csv", "--target", "grape", "-o", out, *complete) == 0
    assert run("predict", out, path) == 2


def dates(table):
    table["when"] = pd.date_range("2020-01-01", periods=len(table))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="grape"), "has no column 'grape'; it has 'alc"),
        (lambda t: t.__setitem__("grape", "one"), "one class only"),
        (lambda t: t.loc.__setitem__((3, "ash"), np.inf), "'ash' holds infinite values, the first"),
        (lambda t: t.loc.__setitem__((3, "grape"), None), "no label in row 3; drop it"),
        (lambda t: t.drop(columns=t.columns[:-1]), "no column besides 'grape'"),
        (lambda t: t.drop(index=t.index), "has no rows"),
    ],
)
def test_bad_tables_end_in_one_line(files, tmp_path, capsys, change, words):
    path = changed(files, tmp_path, change)
    assert run("fit", path, "--target", "grape", "-o", tmp_path / "m.skops", "--quiet") == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "m.skops").exists()


def test_categories_that_look_like_numbers(files, tmp_path, capsys):
    """A ward in {1, 2, icu} is a category in any file, also in one where no icu occurs."""
    table = pd.read_csv(files / "train.csv")
    table["ward"] = np.resize(["1", "2", "icu"], len(table))
    table["empty later"] = np.resize(["a", "b"], len(table))
    table.to_csv(tmp_path / "train.csv", index=False)
    out = tmp_path / "m.skops"
    options = ("--target", "grape", "-o", out, "--regularization", 1, "--bases", 3)
    assert run("fit", tmp_path / "train.csv", *options, "--missing", "refuse") == 0
    assert table_models.load(out).columns.categories == ("cellar", "ward", "empty later")
    capsys.readouterr()
    table[table["ward"] != "icu"].to_csv(tmp_path / "test.csv", index=False)
    assert run("evaluate", out, tmp_path / "test.csv") == 0
    assert accuracy_of("learned metric", capsys.readouterr().out) > 95
    table["empty later"] = None
    table.to_csv(tmp_path / "test.csv", index=False)
    assert run("predict", out, tmp_path / "test.csv") == 2
    assert "column 'empty later' has 120 missing values" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (lambda n: [str(i / 7) for i in range(n - 1)] + ["o"], "row 119 has 'o' among numbers"),
    ],
)
def test_strange_columns_are_named(files, tmp_path, capsys, column, words):
    table = pd.read_csv(files / "train.csv")
    table["strange"] = pd.Series(column(len(table)), dtype=object)
    table.to_parquet(tmp_path / "strange.parquet")
    out = tmp_path / "m.skops"
    assert run("fit", tmp_path / "strange.parquet", "--target", "grape", "-o", out) == 2
    assert re.search(f"column 'strange':? (holds )?{words}", capsys.readouterr().err)


def test_repeated_names_are_refused(files, tmp_path, capsys):
    path = tmp_path / "twice.csv"
    path.write_text("a,b,a,y\n1,2,3,x\n4,5,6,z\n")
    assert run("fit", path, "--target", "y") == 2
    assert "columns of the same name: 'a'" in capsys.readouterr().err
    path.write_text("c_u,c,y\n1,u,x\n2,v,z\n3,u,x\n4,v,z\n")
    assert run("fit", path, "--target", "y", "--regularization", 1) == 2
    assert "rename it" in capsys.readouterr().err


def test_rows_wider_than_the_header_are_refused(files, tmp_path, capsys):
    path = tmp_path / "wide.csv"
    path.write_text("a,b,y\n1,2,x,9\n3,4,z,9\n")
    assert run("fit", path, "--target", "y", "-o", tmp_path / "m.skops") == 2
    assert "line 1 has 3 names, but line 2 has 4 fields" in capsys.readouterr().err
    path.write_text("a,b\0,y\n1,2,x\n3,4,z\n")
    assert run("fit", path, "--target", "y", "-o", tmp_path / "m.skops") == 2


def test_the_table_itself_is_not_overwritten(files, capsys):
    train = files / "train.csv"
    content = train.read_bytes()
    for option in ("-o", "--checkpoint"):
        assert run("fit", train, "--target", "grape", option, train) == 2
        assert "is the table itself" in capsys.readouterr().err
    assert train.read_bytes() == content


def test_labels_of_another_kind_are_refused(files, tmp_path, capsys):
    table = pd.read_csv(files / "test.csv")
    table.loc[3, "grape"] = None
    table.to_csv(tmp_path / "lost.csv", index=False)
    assert run("evaluate", files / "model.skops", tmp_path / "lost.csv") == 2
    captured = capsys.readouterr()
    assert "no label in row 3; drop it" in captured.err
    assert captured.out == ""
    numbers = pd.read_csv(files / "train.csv")
    numbers["grape"] = pd.factorize(numbers["grape"])[0]
    numbers.to_csv(tmp_path / "numbers.csv", index=False)
    out = tmp_path / "m.skops"
    options = ("--target", "grape", "-o", out, "--regularization", 1, "--bases", 3)
    assert run("fit", tmp_path / "numbers.csv", *options) == 0
    capsys.readouterr()
    assert run("evaluate", out, files / "test.csv") == 2
    captured = capsys.readouterr()
    assert re.search("holds 'grignolino' in row 0; the model knows '0', '1', '2'", captured.err)
    assert captured.out == ""


def test_predictions_as_parquet(files, tmp_path):
    out = tmp_path / "found.parquet"
    assert run("predict", files / "model.skops", files / "test.csv", "-o", out) == 0
    assert len(pd.read_parquet(out)) == 58


def test_an_explanation_as_parquet(files, tmp_path, capsys):
    """Values of numbers and of categories are in the same column."""
    asked = ("explain", files / "model.skops", files / "test.csv", "--row", 3, "-o")
    for name in ("found.parquet", "found.csv"):
        assert run(*asked, tmp_path / name) == 0
    whole, texts = pd.read_parquet(tmp_path / "found.parquet"), pd.read_csv(tmp_path / "found.csv")
    assert list(whole.columns) == list(texts.columns)
    for column in ("value", "neighbor_value"):
        in_both = pd.to_numeric(whole[column], errors="coerce"), texts[column]
        np.testing.assert_allclose(in_both[0], pd.to_numeric(in_both[1], errors="coerce"))
        assert set(whole[column]) & {"north", "south"}
    assert whole["likeness"].dtype == float


def test_a_fit_goes_on_from_its_checkpoint(files, tmp_path, capsys):
    out, state = tmp_path / "m.skops", tmp_path / "fit.npz"
    options = ("--target", "grape", "-o", out, "--bases", 3, "--checkpoint", state)
    assert run("fit", files / "train.csv", *options) == 0
    assert state.exists()
    assert run("fit", files / "train.csv", *options) == 0
    assert run("fit", files / "train.csv", *options, "--seed", 1) == 2
    assert "belongs to a fit with random_state=0" in capsys.readouterr().err


def test_an_unconverged_fit_says_so(files, tmp_path, capsys):
    options = ("--target", "grape", "-o", tmp_path / "m.skops", "--regularization", "0.01")
    options += ("--max-iter", 3, "--tol", 1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run("fit", files / "train.csv", *options) == 0
    captured = capsys.readouterr()
    assert ": not converged" in captured.out
    assert re.search(r"^warning: stage \d .* stopped at a relative gap", captured.err, re.M)
    assert "warnings.warn" not in captured.err


def test_dates_are_used(files, tmp_path, capsys):
    table = pd.read_csv(files / "train.csv")
    dates(table)
    table["when"] = table["when"].dt.strftime("%d.%m.%Y")
    table.to_csv(tmp_path / "dates.csv", index=False)
    options = ("--target", "grape", "-o", tmp_path / "m.skops", "--folds", 0)
    assert run("fit", tmp_path / "dates.csv", *options) == 0
    assert "date: its day" in capsys.readouterr().out
    assert run("explain", tmp_path / "m.skops", tmp_path / "dates.csv", "--features", 20) == 0
    assert "2020-01-01" in capsys.readouterr().out
    early = table[:3]  # on their own, these could be of any month
    early.to_csv(tmp_path / "early.csv", index=False)
    assert run("predict", tmp_path / "m.skops", tmp_path / "early.csv", "--nearest") == 0
    nearest = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert nearest["nearest distance"].max() < 1e-6


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 40, b"PK\x03\x04broken"])
def test_a_damaged_model_is_refused(files, tmp_path, capsys, content):
    path = tmp_path / "model.skops"
    path.write_bytes(content)
    assert run("predict", path, files / "test.csv") == 2
    assert "is not a model, or it is damaged" in capsys.readouterr().err


def test_a_model_with_other_types_is_refused(files, tmp_path, capsys):
    import skops.io
    from scipy.stats import norm

    path = tmp_path / "model.skops"
    skops.io.dump({"format": 1, "pipeline": norm(), "target": "y", "columns": []}, path)
    assert run("predict", path, files / "test.csv") == 2
    assert "types that are not trusted" in capsys.readouterr().err


def test_missing_columns_and_files_are_named(files, tmp_path, capsys):
    table = pd.read_csv(files / "test.csv").drop(columns=["ash", "hue"])
    table.to_csv(tmp_path / "less.csv", index=False)
    assert run("predict", files / "model.skops", tmp_path / "less.csv") == 2
    assert "lacks the columns 'ash', 'hue'" in capsys.readouterr().err
    assert run("predict", files / "model.skops", tmp_path / "none.csv") == 2
    assert "there is no file" in capsys.readouterr().err
    assert run("explain", files / "model.skops", files / "test.csv", "--row", 99) == 2
    assert "--row must be between 0 and 57" in capsys.readouterr().err
    assert run("explain", files / "model.skops", files / "test.csv", "--cases", 121) == 2
    assert "--cases must be between 1 and 120" in capsys.readouterr().err


def test_in_a_real_terminal(files, tmp_path):
    pexpect = pytest.importorskip("pexpect")
    out = tmp_path / "model.skops"
    arguments = [sys.executable, "-c", COMMAND, "fit", files / "train.csv", "--target", "grape"]
    with terminal.started([*arguments, "-o", out, "--bases", "4"], (24, 120)) as (child, process):
        child.expect("comparing settings: fold 2")  # the bar
        child.expect("stage 2, metrics")
        child.expect(f"model: {out}")
        child.expect(pexpect.EOF)
        assert process.wait(timeout=30) == 0
    assert out.exists()


def test_interrupted_in_a_terminal_leaves_no_model(tmp_path):
    pexpect = pytest.importorskip("pexpect")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(6000, 40)), columns=[f"f{i}" for i in range(40)])
    table["y"] = rng.integers(4, size=6000)
    table.to_csv(tmp_path / "large.csv", index=False)
    out = tmp_path / "model.skops"
    arguments = [sys.executable, "-c", COMMAND, "fit", tmp_path / "large.csv", "--target", "y"]
    with terminal.started([*arguments, "-o", out]) as (child, process):
        child.expect(r"\d+%")
        child.send("\x03")  # Ctrl-C
        child.expect("plml fit: interrupted")
        child.expect(pexpect.EOF)
        assert process.wait(timeout=30) == 130
    assert not out.exists()


def test_help_names_every_command():
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "--help"], capture_output=True, text=True, check=True
    )
    for command in ("demo", "fit", "predict", "evaluate", "explain", "reproduce", "bench"):
        assert command in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_file_that_asks_for_all_of_the_memory_is_refused(tmp_path):
    """In a process of its own: an archive of a few kilobytes that unpacks to many gigabytes."""
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from plml.io.files import bounded_memory\n"
        "path = Path(sys.argv[1]); path.write_bytes(b'x' * 100)\n"
        "before = resource.getrlimit(resource.RLIMIT_AS)\n"
        "try:\n"
        "    with bounded_memory(path): np.empty(2**33)\n"
        "except MemoryError: print('refused')\n"
        "with bounded_memory(path): np.empty(2**20)\n"
        "print(resource.getrlimit(resource.RLIMIT_AS) == before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "small")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["refused", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_the_limit_is_that_of_the_command_and_not_of_the_library(files, monkeypatch):
    """It holds for all threads of a process, and a command is a process of its own."""
    import resource

    before, seen, read = resource.getrlimit(resource.RLIMIT_AS), [], table_reader._read

    def noting(path, *others):
        seen.append(resource.getrlimit(resource.RLIMIT_AS))
        return read(path, *others)

    if before[0] != resource.RLIM_INFINITY:
        pytest.skip("there is a limit already")
    monkeypatch.setattr(table_reader, "_read", noting)
    table_reader.read_table(files / "test.csv")
    assert seen == [before]
    run("predict", files / "model.skops", files / "test.csv")
    run("fit", files / "test.csv", "--target", "none", "-o", files / "other.skops")
    assert all(0 < soft < 2**40 for soft, _ in seen[1:])
    assert len(seen) == 3
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_no_output_replaces_an_input_or_another_output(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    fit = ("fit", "train.csv", "--target", "grape", "--regularization", 1, "--bases", 3)
    assert run(*fit, "-o", "m.skops") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for command in (
        ("predict", "m.skops", "test.csv", "-o", "m.skops"),
        ("predict", "m.skops", "test.csv", "-o", "test.csv"),
        ("explain", "m.skops", "test.csv", "-o", "test.csv"),
        ("explain", "m.skops", "test.csv", "--picture", "m.skops"),
        ("explain", "m.skops", "test.csv", "-o", "same.csv", "--picture", "same.csv"),
        (*fit, "-o", "train.csv"),
        (*fit, "-o", "same", "--checkpoint", "same"),
    ):
        capsys.readouterr()
        assert run(*command) == 2, command
        assert "itself; give another path" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_no_file_is_called_what_it_is(tmp_path, capsys):
    assert run("fit", tmp_path, "--target", "y") == 2
    assert "is a folder" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe")
    assert run("fit", tmp_path / "pipe", "--target", "y") == 2
    assert "is a pipe or a device" in capsys.readouterr().err
