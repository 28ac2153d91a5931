"""Many users of one model: threads, processes, thousands of small requests."""

import ast
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale
from threadpoolctl import threadpool_info

from plml import CBLML, DANN, GLML, LMNN, LMNNMM, PLML, SML, BoostMetric, KernelSVM
from plml.backend.threads import limit_threads, one_blas_thread, thread_team


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return scale(X), y


MODELS = {
    "PLML": PLML(n_bases=4, random_state=0, n_neighbors=3),
    "PLML-optimize": PLML(n_bases=4, random_state=0, query_weights="optimize"),
    "PLML-approximate": PLML(n_bases=4, random_state=0, search_backend="approximate"),
    "SML": SML(),
    "CBLML": CBLML(n_bases=4, random_state=0),
    "LMNN": LMNN(),
    "LMNNMM": LMNNMM(tol=1e-2),
    "BoostMetric": BoostMetric(),
    "GLML": GLML(),
    "DANN": DANN(),
    "KernelSVM": KernelSVM(Cs=(1.0,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_threads_get_the_answers_of_one(iris, name):
    """The first calls of a fresh copy at the same moment, so that lazy parts are made in a race."""
    X, y = iris
    state = pickle.dumps(MODELS[name].fit(X, y))
    queries = np.random.default_rng(0).normal(size=(100, 7, 4))
    alone = pickle.loads(state)
    expected = [alone.predict_proba(batch) for batch in queries]
    shared, gate = pickle.loads(state), threading.Barrier(100)

    def ask(batch):
        gate.wait()
        return shared.predict_proba(batch)

    before = blas_threads()
    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(ask, queries))
    np.testing.assert_array_equal(found, expected)
    assert blas_threads() == before


def blas_threads():
    """As this thread sees them: OpenBLAS on OpenMP has a number for every thread."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def shared_blas_threads():
    """Of the libraries that have one number for the whole process."""
    return [
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and pool.get("threading_layer") != "openmp"
    ]


def test_limits_of_threads_are_given_back_in_any_order():
    before = blas_threads()
    with limit_threads(2):
        two = blas_threads()
        with limit_threads(1):
            assert set(blas_threads()) == {1}
        assert blas_threads() == two
    assert blas_threads() == before
    first, second = limit_threads(1), limit_threads(1)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:  # a thread each
        one.submit(first.__enter__).result()
        other.submit(second.__enter__).result()
        one.submit(first.__exit__, None, None, None).result()
        assert set(shared_blas_threads()) == {1}  # the other one still holds them
        assert set(other.submit(blas_threads).result()) == {1}
        other.submit(second.__exit__, None, None, None).result()
        assert one.submit(blas_threads).result() == other.submit(blas_threads).result() == before
    assert blas_threads() == before


def test_limits_of_one_library_and_of_all_are_given_back_in_any_order():
    before = blas_threads()
    first, second = one_blas_thread("scipy.libs"), limit_threads(1)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(first.__enter__).result()
        other.submit(second.__enter__).result()
        one.submit(first.__exit__, None, None, None).result()
        assert set(shared_blas_threads()) == {1}
        other.submit(second.__exit__, None, None, None).result()
    assert blas_threads() == before


def test_a_thread_can_hold_blas_after_another_has():
    """threadpoolctl lets the first thread that sets BLAS keep it, unless it lets go."""
    with limit_threads(1):
        pass
    with ThreadPoolExecutor(1) as one, limit_threads(2):
        with_one = limit_threads(1)
        one.submit(with_one.__enter__).result()
        assert set(shared_blas_threads()) == {1}
        one.submit(with_one.__exit__, None, None, None).result()


@pytest.mark.slow
def test_a_limit_of_the_environment_holds_for_teams():
    pytest.importorskip("faiss")  # brings a BLAS on OpenMP
    code = (
        "import numpy, faiss; from plml.backend.threads import thread_team\n"
        "with thread_team() as threads: print(threads.size)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stdout.strip() == "1"


GROWTH = """
import sys
from pathlib import Path
import numpy as np
from sklearn.datasets import load_digits
from plml import PLML

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]), int(status.split("VmHWM:")[1].split()[0])

X, y = load_digits(return_X_y=True)
X = X / 16.0
model = PLML(n_bases=5, random_state=0, regularization=1.0).fit(X, y)
for _ in range(1000):
    model.predict(X[:8])
before = resident()
for i in range(10_000):
    model.predict(X[i % 1000 : i % 1000 + 8])
after = resident()
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_ten_thousand_small_predictions_in_flat_memory():
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True
    )
    grown, peak_grown = (int(kilobytes) for kilobytes in done.stdout.split())
    assert grown < 1024
    assert peak_grown < 1024


def test_refits_leave_nothing_behind(iris):
    """Indexes and copies of earlier fits go when the model is fitted again."""
    X, y = 1.000123 * iris[0], iris[1]  # rows that no other test has
    model = PLML(n_bases=4, random_state=0)
    for _ in range(3):
        model.fit(X, y).predict(X)
    gc.collect()
    kept = [thing for thing in gc.get_objects() if type(thing).__name__ == "LocalMetricIndex"]
    mine = model._metric.indexes_on(X).metric_index
    assert [index is mine for index in kept if np.array_equal(index.X, X)] == [True]
    rows = [thing for thing in gc.get_objects() if isinstance(thing, dict) and "_fit_X" in thing]
    assert sum(np.array_equal(state["_fit_X"], X) for state in rows) == 1


def fit_score(seed, X, y):
    return PLML(n_bases=4, random_state=seed).fit(X, y).score(X, y)


@pytest.mark.parametrize("backend", ["loky", "threading"])
@pytest.mark.slow
def test_fits_in_joblib_workers(iris, backend):
    expected = [fit_score(seed, *iris) for seed in range(4)]
    found = Parallel(n_jobs=2, backend=backend)(delayed(fit_score)(s, *iris) for s in range(4))
    assert found == expected


ELSEWHERE = """
import multiprocessing, sys
from sklearn.datasets import load_iris
from plml import PLML

def answer(model, X, y, queue):
    queue.put((model.predict(X).tolist(), model.fit(X, y).predict(X).tolist()))

if __name__ == "__main__":
    X, y = load_iris(return_X_y=True)
    model = PLML(n_bases=4, random_state=0).fit(X, y)
    expected = model.predict(X).tolist()  # its index exists before the process does
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    context.Process(target=answer, args=(model, X, y, queue), daemon=True).start()
    assert queue.get(timeout=60) == (expected, expected)
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_fits_and_predictions_in_other_processes(tmp_path, method):
    script = tmp_path / "elsewhere.py"
    script.write_text(ELSEWHERE)
    subprocess.run([sys.executable, "-W", "ignore", script, method], check=True, timeout=120)


FORKED = """
import os, signal, sys, threading, time
import numpy as np
from every_estimator import ESTIMATORS

rng = np.random.default_rng(0)
y = np.arange(240) % 3
X = rng.normal(size=(240, 40)) + 2.0 * np.eye(3, 40)[y]
name = sys.argv[1]
fitted = ESTIMATORS[name](n_jobs=2).fit(X, y)
expected = fitted.predict(X[:20])
done = threading.Event()

def work():
    while not done.is_set():
        ESTIMATORS[name](n_jobs=2).fit(X, y).predict(X)

threading.Thread(target=work, daemon=True).start()
answers = {"right": 0, "refused": 0, "hung": 0, "wrong": 0}
for turn in range(25):
    time.sleep(float(rng.uniform(0, 0.05)))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if (fitted.predict(X[:20]) == expected).all() else 1)
        except RuntimeError as error:
            os._exit(2 if "forked while another thread" in str(error) else 3)
        except BaseException:
            os._exit(3)
    for _ in range(1000):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            answers[{0: "right", 2: "refused"}.get(os.waitstatus_to_exitcode(status), "wrong")] += 1
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        answers["hung"] += 1
print(answers, flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", ["PLML", "LMNN", "DANN", "KernelSVM"])
def test_a_process_forked_during_a_fit_answers_or_refuses(name):
    """Never a hang: another thread may hold any lock at the moment of the fork."""
    path = os.pathsep.join(
        [str(Path(__file__).parent / "support"), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, name],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    answers = ast.literal_eval(done.stdout)
    assert (answers["hung"], answers["wrong"]) == (0, 0), answers
    assert answers["refused"] > 0
    assert sum(answers.values()) == 25


FORKING = """
import os, threading, time
import numpy as np
from plml import PLML

rng = np.random.default_rng(0)
y = np.arange(900) % 3
X = rng.normal(size=(900, 60)) + 2.0 * np.eye(3, 60)[y]
model = PLML(n_bases=5, random_state=0, tol=0.1).fit(X, y)

def work():
    PLML(n_bases=5, random_state=0, tol=0.1).fit(X, y)
    for _ in range(20):
        model.predict(X)

thread = threading.Thread(target=work, daemon=True)
thread.start()
n_forks = 0
while thread.is_alive() and n_forks < 200:
    time.sleep(float(rng.uniform(0, 0.02)))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    n_forks += 1
thread.join(60)
print(n_forks, thread.is_alive(), flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fit_goes_on_where_its_process_forks():
    """OpenBLAS ends its threads when a process forks, also those that another thread waits for."""
    threads = dict.fromkeys(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"], "2")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING],
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        timeout=300,
    )
    n_forks, hangs = done.stdout.split()
    assert int(n_forks) > 20
    assert hangs == "False"


def test_teams_next_to_the_main_thread():
    """Their size does not come from BLAS, whose own threads are left alone there."""

    def sizes(n_jobs):
        with limit_threads(n_jobs), limit_threads(None), thread_team() as outer:
            threads = shared_blas_threads()

            def nested(_):
                with limit_threads(None), thread_team() as inner:
                    return inner.size

            return outer.size, outer.map(nested, range(4)), threads

    def of_openblas(n_jobs):
        with limit_threads(n_jobs):
            return shared_blas_threads()

    before = blas_threads()
    with ThreadPoolExecutor(1) as thread:
        for n_jobs in (1, 3):
            size, inner, threads = thread.submit(sizes, n_jobs).result()
            assert (size, set(inner), set(threads)) == (n_jobs, {1}, {1})
        if any(pool.get("threading_layer") == "pthreads" for pool in threadpool_info()):
            assert set(thread.submit(of_openblas, 2).result()) == {1}
    assert blas_threads() == before


FORKS_WITHIN = """
import os, signal
from concurrent.futures import ThreadPoolExecutor
from plml.backend.threads import _blas, limit_threads

computation = limit_threads(1)
computation.__enter__()
with ThreadPoolExecutor(1) as other:
    other.submit(_blas._lock.acquire).result()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        computation.__exit__(None, None, None)
        os._exit(0)
    _blas._lock.release()
computation.__exit__(None, None, None)
assert os.waitpid(child, 0)[1] == 0
"""

FORKS_AFTER = """
import os, signal, threading
import numpy as np
from plml import SML

y = np.arange(120) % 3
X = np.random.default_rng(0).normal(size=(120, 5)) + 2.0 * np.eye(3, 5)[y]
model = SML().fit(X, y)
expected = model.predict(X)
thread = threading.Thread(target=lambda: SML().fit(X, y))
thread.start()
thread.join()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if (model.predict(X) == expected).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("script", [FORKS_WITHIN, FORKS_AFTER], ids=["within", "after"])
def test_a_process_that_forks_goes_on_in_both(script):
    """Within a computation, even if another thread has the lock, and after those of a thread."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)
