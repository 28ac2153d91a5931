"""Fits that are cut short and go on."""

import gc
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.preprocessing import normalize, scale

from plml import CBLML, PLML, PLMLCV, SML, Checkpoint
from plml.solvers.problem import Monitor
from plml.stages import one_machine


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = normalize(scale(X))
    return X[:900], y[:900], X[900:]


class Killed(BaseException):
    """As if the process had ended here."""


def cut_short(monkeypatch, after):
    """Every solver ends with ``Killed`` at its certificate number ``after``, over all solvers."""
    done, seen = Monitor.done, []

    def stop(self, *arguments):
        result = done(self, *arguments)
        seen.append(arguments)
        if len(seen) == after:
            raise Killed
        return result

    monkeypatch.setattr(Monitor, "done", stop)


def _certificates(monkeypatch):
    """Grows by one at every certificate that is computed from now on."""
    done, seen = Monitor.done, []

    def count(self, *arguments):
        seen.append(arguments)
        return done(self, *arguments)

    monkeypatch.setattr(Monitor, "done", count)
    return seen


MODELS = [
    PLML(n_bases=5, random_state=0),
    PLML(n_bases=5, random_state=0, solver="fista", tol=1e-2),
    PLML(n_bases=5, random_state=0, device="torch"),
    SML(),
    SML(tol=1e-7),  # three runs: single precision, double precision, FISTA
    CBLML(n_bases=4, random_state=0),
    PLMLCV(n_bases=5, random_state=0, regularizations=(0.1, 1.0)),
]
NAMES = ["PLML", "PLML-fista", "PLML-torch", "SML", "SML-1e-7", "CBLML", "PLMLCV"]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@pytest.mark.parametrize("after", [4, 20])
def test_a_fit_goes_on_as_if_nothing_had_happened(digits, tmp_path, monkeypatch, model, after):
    if getattr(model, "device", "cpu") == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    X, y, X_test = digits
    whole = model.fit(X, y)
    expected = {"M": whole.basis_metrics_, "history": whole.history_["metrics"]["gap"]}
    whole_history = whole.history_
    predicted = whole.predict(X_test)
    checkpoint = Checkpoint(tmp_path / "fit.npz", every=0)
    with monkeypatch.context() as patch:
        cut_short(patch, after)
        with pytest.raises(Killed):
            model.fit(X, y, checkpoint=checkpoint)
    before = _certificates(monkeypatch)
    went_on = model.fit(X, y, checkpoint=checkpoint)
    n_whole = sum(len(stage["gap"]) for stage in whole_history.values())
    assert len(before) < n_whole or type(model) is PLMLCV  # it did not start afresh
    size = np.abs(expected["M"]).max()
    np.testing.assert_allclose(went_on.basis_metrics_, expected["M"], atol=1e-4 * size)
    np.testing.assert_allclose(went_on.history_["metrics"]["gap"], expected["history"], rtol=0.1)
    assert np.mean(went_on.predict(X_test) == predicted) >= 0.999
    assert (np.diff(went_on.history_["metrics"]["seconds"]) >= 0).all()


def test_a_finished_fit_has_nothing_left_to_compute(digits, tmp_path, monkeypatch):
    X, y, _ = digits
    path = tmp_path / "fit.npz"
    first = PLML(n_bases=5).fit(X, y, checkpoint=Checkpoint(path, every=0))
    M = first.basis_metrics_
    monkeypatch.setattr(Monitor, "done", None)
    again = PLML(n_bases=5, n_jobs=1, verbose=0).fit(X, y, checkpoint=path)
    # With anchors drawn at random; threads share the sums of the last look.
    np.testing.assert_allclose(again.basis_metrics_, M, atol=1e-12)


def test_selection_does_not_repeat_folds(digits, tmp_path, monkeypatch):
    X, y, _ = digits
    checkpoint = Checkpoint(tmp_path / "fit.npz", every=0)
    model = PLMLCV(n_bases=4, random_state=0, regularizations=(0.1, 1.0))
    expected = model.fit(X, y, checkpoint=checkpoint).cv_results_

    def repeated(*_):
        raise AssertionError("a fold was computed again")

    monkeypatch.setattr("plml.estimators._cross_validation._fold_scores", repeated)
    found = model.fit(X, y, checkpoint=checkpoint).cv_results_
    np.testing.assert_array_equal(found["mean_test_score"], expected["mean_test_score"])


def test_a_finished_selection_has_no_folds_to_cancel(digits, tmp_path, recwarn):
    """joblib warns of tasks that nobody asked for in the end."""
    X, y, _ = digits
    model = PLMLCV(n_bases=4, random_state=0, regularizations=(0.1, 1.0), n_jobs=2)
    for _ in range(2):
        model.fit(X, y, checkpoint=tmp_path / "fit.npz")
        gc.collect()
        assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("damage", ["newest cut", "newest gone", "both cut", "noise"])
def test_damaged_files_give_way_to_the_one_before(digits, tmp_path, monkeypatch, damage):
    X, y, _ = digits
    model = PLML(n_bases=5, random_state=0)
    expected = model.fit(X, y).objective_
    checkpoint = Checkpoint(tmp_path / "fit.npz", every=0)
    with monkeypatch.context() as patch:
        cut_short(patch, 40)
        with pytest.raises(Killed):
            model.fit(X, y, checkpoint=checkpoint)
    files = [checkpoint.path, checkpoint.previous] if damage == "both cut" else [checkpoint.path]
    for file in files:
        content = file.read_bytes()
        if damage == "newest gone":
            file.unlink()
        elif damage == "noise":
            middle = len(content) // 2
            file.write_bytes(content[:middle] + b"\xff" * 64 + content[middle + 64 :])
        else:
            file.write_bytes(content[: len(content) // 2])
    if damage == "newest gone":
        model.fit(X, y, checkpoint=checkpoint)
    else:
        with pytest.warns(UserWarning, match="is damaged"):
            model.fit(X, y, checkpoint=checkpoint)
    assert model.objective_ == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("trick", ["compressed", "a shape that is not there"])
def test_a_file_that_grows_when_it_is_read_is_damaged(tmp_path, trick):
    """From some kilobytes to 80 MB or 8 TB, of which nothing is asked for."""
    checkpoint, data = Checkpoint(tmp_path / "fit.npz"), np.zeros(3)
    kept = checkpoint.open({"a": 1}, data)
    kept.put("part", {"x": np.arange(5)})
    kept.save()
    with np.load(checkpoint.path) as archive:
        members = {name: archive[name] for name in archive.files}
    if trick == "compressed":
        np.savez_compressed(checkpoint.path, **members, more=np.zeros(10**7))
    else:
        claim = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
        with ZipFile(checkpoint.path, "a") as archive, archive.open("more.npy", "w") as stream:
            np.lib.format.write_array_header_1_0(stream, claim)
    tracemalloc.start()
    try:
        with pytest.warns(UserWarning, match="is damaged; trying the one before"):
            assert checkpoint.open({"a": 1}, data).state == {}
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_a_file_of_another_fit_is_refused_and_left_alone(digits, tmp_path):
    X, y, _ = digits
    path = tmp_path / "fit.npz"
    SML().fit(X, y, checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"belongs to a fit with regularization=1.0; delete it"):
        SML(regularization=2.0).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="belongs to a fit with other data"):
        SML().fit(X[1:], y[1:], checkpoint=path)
    with pytest.raises(ValueError, match="estimator='SML'"):
        PLML().fit(X, y, checkpoint=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("path", ["missing/../../nowhere\0", "file/fit.npz", ""])
def test_a_path_that_cannot_be_written_is_refused_before_the_work(
    digits, tmp_path, monkeypatch, path
):
    X, y, _ = digits
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(one_machine, "neighbor_triplets", None)  # would be the work
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint"):
        SML().fit(X, y, checkpoint=path)


@pytest.mark.parametrize("kind", ["table", "archive", "folder", "previous"])
def test_files_of_the_user_are_not_touched(digits, tmp_path, kind):
    X, y, _ = digits
    path = tmp_path / "mine"
    theirs = tmp_path / "mine.previous" if kind == "previous" else path
    if kind == "folder":
        path.mkdir()
    elif kind == "archive":
        np.savez(tmp_path / "mine.npz", X=X)
        (tmp_path / "mine.npz").rename(path)
    else:
        theirs.write_text("a,b,c\n1,2,3\n" * 100)
    content = None if kind == "folder" else theirs.read_bytes()
    with pytest.raises(ValueError, match=r"is not a checkpoint; give another path|is a folder"):
        SML().fit(X, y, checkpoint=Checkpoint(path, every=0))
    assert theirs.is_dir() if kind == "folder" else theirs.read_bytes() == content
    assert os.listdir(tmp_path) == [theirs.name]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PLMLCV(regularizations=(0.1, 1.0)), PLMLCV(regularizations=(10.0, 100.0))),
        (PLMLCV(cv=KFold(3)), PLMLCV(cv=KFold(4))),
        (PLML(n_bases=np.int64(3)), PLML(n_bases=np.int64(8))),
        (
            PLML(random_state=np.random.RandomState(0)),
            PLML(random_state=np.random.RandomState(7)),
        ),
    ],
)
def test_other_parameters_of_any_type_are_another_fit(digits, tmp_path, first, second):
    X, y, _ = digits
    small = {"n_bases": 3} if first.n_bases == 20 else {}
    first.set_params(**small).fit(X[:200], y[:200], checkpoint=tmp_path / "fit.npz")
    with pytest.raises(ValueError, match="belongs to a fit with"):
        second.set_params(**small).fit(X[:200], y[:200], checkpoint=tmp_path / "fit.npz")


def test_wrong_checkpoints(digits):
    X, y, _ = digits
    with pytest.raises(TypeError, match=r"path or a plml\.Checkpoint"):
        SML().fit(X, y, checkpoint=3)
    with pytest.raises(ValueError, match="every must be a number of seconds"):
        Checkpoint("fit.npz", every=-1)
    with pytest.raises(ValueError, match="every must be a number of seconds"):
        Checkpoint("fit.npz", every="3")


def test_a_full_disk_does_not_end_the_fit_nor_hurt_what_is_there(digits, tmp_path, monkeypatch):
    X, y, _ = digits
    checkpoint = Checkpoint(tmp_path / "fit.npz", every=0)
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("plml.io.files.os.fsync", full)
    with pytest.warns(UserWarning, match="No space left on device; the fit goes on"):
        model = PLML(n_bases=5, random_state=0).fit(X, y, checkpoint=checkpoint)
    assert model.converged_
    assert sorted(os.listdir(tmp_path)) == ["fit.npz", "fit.npz.previous"]
    monkeypatch.undo()
    again = PLML(n_bases=5, random_state=0).fit(X, y, checkpoint=checkpoint)
    assert again.objective_ == pytest.approx(model.objective_, rel=1e-9)


@pytest.mark.parametrize("after", [1, 30, 60])
def test_ctrl_c_leaves_what_was_there_before(digits, monkeypatch, after):
    X, y, X_test = digits
    fresh, fitted = PLML(n_bases=5, random_state=0), PLML(n_bases=5, random_state=0)
    expected = fitted.fit(X[:, :30], y).predict(X_test[:, :30])
    for model in (fresh, fitted):
        with monkeypatch.context() as patch:
            cut_short(patch, after)
            with pytest.raises(Killed):
                model.fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X_test)
    np.testing.assert_array_equal(fitted.predict(X_test[:, :30]), expected)
    assert fitted.n_features_in_ == 30


SCRIPT = """
import sys
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize, scale
from plml import PLML, Checkpoint
X, y = load_digits(return_X_y=True)
X = normalize(scale(X))
print("begun", flush=True)
model = PLML(n_bases=5, random_state=0, tol=1e-4)
model.fit(X[:900], y[:900], checkpoint=Checkpoint(sys.argv[1], every=0))
np.savez(sys.argv[2], objective=model.objective_, predicted=model.predict(X[900:]))
print("done", flush=True)
"""


@pytest.mark.slow
def test_killed_processes_resume_to_the_same_answer(tmp_path):
    """SIGKILL at three moments; ``benchmarks/kills.py`` does it fifty times on Letter."""

    def start(name):
        arguments = [sys.executable, "-c", SCRIPT, tmp_path / f"{name}.npz", tmp_path / "out.npz"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "begun\n"
        return process

    began = time.perf_counter()
    process = start("whole")
    process.wait(timeout=120)
    length = time.perf_counter() - began
    whole = dict(np.load(tmp_path / "out.npz"))
    for share in (0.02, 0.15, 0.4):
        process = start(f"cut {share}")
        time.sleep(share * length)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        process.stdout.close()
        Path(tmp_path / "out.npz").unlink(missing_ok=True)
        process = start(f"cut {share}")
        assert process.wait(timeout=120) == 0
        resumed = dict(np.load(tmp_path / "out.npz"))
        assert resumed["objective"] == pytest.approx(whole["objective"], rel=1e-3)
        assert np.mean(resumed["predicted"] == whole["predicted"]) >= 0.999
