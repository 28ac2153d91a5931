import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plml import CBLML, PLML, PLMLCV
from recorder import Recorder

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")


def test_callbacks_see_every_certified_iterate(blobs):
    seen = Recorder()
    model = PLML(n_bases=3, random_state=0).set_callbacks(seen).fit(*blobs)
    for stage, name in {"weights": "stage 1, weights", "metrics": "stage 2, metrics"}.items():
        gaps = [metadata["gap"] for where, metadata in seen.seen if where == name]
        # The last line of the history is that of the float64 certificate.
        iterations = [metadata["iteration"] for where, metadata in seen.seen if where == name]
        assert (np.diff(iterations) >= 0).all()  # over both precisions
        np.testing.assert_allclose(gaps[:-1], model.history_[stage]["gap"][: len(gaps) - 1])
    assert seen.begun[:2] == ["setup", "fit"]
    assert seen.ended[-2:] == ["fit", "teardown"]
    assert model.converged_


@pytest.mark.parametrize("kind", [PLML, CBLML])
def test_a_callback_stops_a_fit_and_the_model_says_so(blobs, kind):
    model = kind(n_bases=3, random_state=0, regularization=0.01, tol=1e-6)
    model.set_callbacks(Recorder(stop_after=2))
    with pytest.warns(
        ConvergenceWarning, match=r"stopped at a relative gap .* a callback stopped it"
    ):
        model.fit(*blobs)
    assert not model.converged_
    assert model.dual_gap_ > 1e-6
    assert model.n_iter_ <= 5
    assert (np.linalg.eigvalsh(model.basis_metrics_) >= -1e-12).all()
    np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0)
    assert model.score(*blobs) > 0.8  # a valid model


def test_callbacks_in_a_pipeline(blobs):
    seen = Recorder()
    pipeline = make_pipeline(StandardScaler(), PLML(n_bases=3, random_state=0))
    pipeline.set_callbacks(seen).fit(*blobs)
    assert {where for where, _ in seen.seen} == {"stage 1, weights", "stage 2, metrics"}


def test_selection_calls_back_in_its_last_fit(blobs):
    seen = Recorder()
    PLMLCV(n_bases=3, random_state=0).set_callbacks(seen).fit(*blobs)
    assert seen.ended.count("fit") == 1
    assert seen.seen


def test_the_progress_bar_of_scikit_learn(blobs, capsys):
    pytest.importorskip("rich")
    PLML(n_bases=3, random_state=0).set_callbacks(callback.ProgressBar()).fit(*blobs)
    assert "stage 2" in capsys.readouterr().out


def test_callbacks_are_told_which_estimator_is_fitted(blobs):
    told = []

    class Listener(Recorder):
        def on_fit_task_begin(self, estimator, context):
            told.append(type(estimator))

        def on_fit_task_end(self, estimator, context, *, metadata=None):
            told.append(type(estimator))
            return False

    PLML(n_bases=2, tol=0.1, random_state=0).set_callbacks(Listener()).fit(*blobs)
    assert set(told) == {PLML}
