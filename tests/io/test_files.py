"""What is written where: files in one step, pipes and devices through, anything else refused."""

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.preprocessing import scale

import plml
from plml.cli import main
from plml.io.files import exclusively, remove_leftovers, write, write_atomically
from plml.stages import one_machine

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")

COMMAND = "import sys; from plml.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    return scale(X)[::3], y[::3]


@pytest.fixture(scope="module")
def model(data):
    return plml.SML(tol=1e-2).fit(*data)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with a table and a model of the command line."""
    folder = tmp_path_factory.mktemp("fitted")
    table = load_iris(as_frame=True).frame.iloc[::3]
    table.to_csv(folder / "table.csv", index=False)
    arguments = ["fit", folder / "table.csv", "--target", "target", "-o", folder / "m.skops"]
    assert main([*map(str, arguments), "--regularization", "1", "--bases", "2"]) == 0
    return folder


def node(path, kind, device):
    """A device node, or a skip where nobody may make one or write to it."""
    try:
        os.mknod(path, kind | 0o600, device)
        if kind == stat.S_IFCHR:
            path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device nodes here: {error}")
    return path


def null_device(path):
    return node(path, stat.S_IFCHR, os.makedev(1, 3))


def passed_through(path, writes, *arguments):
    """What comes out of a pipe; more than it holds at a time is written while it is read."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that there is a reader
    writer = threading.Thread(target=writes, args=arguments, daemon=True)
    writer.start()
    assert select.select([handle], [], [], 20)[0]
    os.set_blocking(handle, True)
    with os.fdopen(handle, "rb") as stream:
        content = stream.read()
    writer.join(20)
    assert not writer.is_alive()
    return content


class TestStreams:
    @pytest.mark.parametrize("linked", [False, True])
    def test_a_model_goes_through_a_pipe(self, model, data, tmp_path, linked):
        pipe = path = tmp_path / "pipe"
        os.mkfifo(pipe)
        if linked:
            path = tmp_path / "link"
            path.symlink_to(pipe)
        content = passed_through(path, plml.save, model, path)
        assert pipe.is_fifo()
        assert path.is_symlink() == linked
        (tmp_path / "model.skops").write_bytes(content)
        found = plml.load(tmp_path / "model.skops")
        np.testing.assert_array_equal(found.predict(data[0]), model.predict(data[0]))

    def test_more_than_a_pipe_holds(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        content = np.random.default_rng(0).bytes(2**20)
        assert passed_through(tmp_path / "pipe", write, tmp_path / "pipe", content) == content

    def test_a_pipe_that_nobody_reads_is_refused_and_not_waited_for(self, model, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match=r"^nobody reads the pipe .*; start the reader first$"):
            plml.save(model, tmp_path / "pipe")
        assert (tmp_path / "pipe").is_fifo()
        assert os.listdir(tmp_path) == ["pipe"]

    def test_a_device_stays_a_device(self, model, tmp_path):
        path = null_device(tmp_path / "null")
        plml.save(model, path)
        assert path.is_char_device()
        assert os.listdir(tmp_path) == ["null"]


class TestRefusals:
    def odd(self, folder, kind):
        path = folder / kind
        if kind == "folder":
            path.mkdir()
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(os.path.relpath(path))
        else:
            node(path, stat.S_IFBLK, os.makedev(240, 0))
        return path

    @pytest.mark.parametrize("kind", ["folder", "socket", "block device"])
    def test_what_is_no_file_and_no_stream(self, model, tmp_path, monkeypatch, kind):
        monkeypatch.chdir(tmp_path)  # names of sockets are short
        path = self.odd(tmp_path, kind)
        before = path.lstat().st_mode
        monkeypatch.setattr("plml.io.model_files._skops", None)  # would be the work
        with pytest.raises(ValueError, match=rf"^.* is a {kind}; give the path of a file$"):
            plml.save(model, path)
        for writes in (write, write_atomically):
            with pytest.raises(ValueError, match=f"is a {kind}"):
                writes(path, "text")
        assert path.lstat().st_mode == before
        assert os.listdir(tmp_path) == [kind]

    @pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link", "previous"])
    def test_a_checkpoint_is_a_file(self, data, tmp_path, monkeypatch, kind):
        """It is read again; refused before the work starts, and without waiting for a writer."""
        path = odd = tmp_path / "fit"
        if kind == "device":
            null_device(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            odd = tmp_path / "pipe"
            path.symlink_to(odd)
        elif kind == "previous":
            odd = tmp_path / "fit.previous"
        if kind in ("pipe", "link", "previous"):
            os.mkfifo(odd)
        before = sorted(os.listdir(tmp_path)), odd.lstat().st_mode
        monkeypatch.setattr(one_machine, "neighbor_triplets", None)  # would be the work
        what = "a folder" if kind == "folder" else "a pipe or a device"
        with pytest.raises(ValueError, match=rf"^checkpoint .* is {what}; give the path of a file"):
            plml.SML().fit(*data, checkpoint=path)
        assert (sorted(os.listdir(tmp_path)), odd.lstat().st_mode) == before

    def test_a_checkpoint_that_becomes_a_pipe_does_not_end_the_fit(self, data, tmp_path):
        path = tmp_path / "fit"
        kept = plml.Checkpoint(path, every=0).open({}, data[0])
        path.unlink()
        os.mkfifo(path)
        kept.put("part", {"x": np.zeros(3)})
        with pytest.warns(UserWarning, match="is a pipe or a device.*; the fit goes on"):
            kept.finish()
        assert path.is_fifo()


def run(fitted, command, *more, **options):
    arguments = [command, fitted / "m.skops", fitted / "table.csv", *more]
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, arguments)],
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
        **options,
    )


@pytest.fixture(scope="module")
def printed(fitted):
    """The predictions as the command prints them."""
    return run(fitted, "predict", stdout=subprocess.PIPE).stdout


@pytest.mark.slow
class TestCommandLine:
    def test_standard_output_by_its_name(self, fitted, printed, tmp_path):
        done = run(fitted, "predict", "-o", "/dev/stdout", stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout) == (0, printed)
        with (tmp_path / "all").open("wb") as stream:
            stream.write(b"before\n")
            stream.flush()
            done = run(fitted, "predict", "-o", "/dev/stdout", stdout=stream)
            os.write(stream.fileno(), b"after\n")
        assert done.returncode == 0
        assert (tmp_path / "all").read_bytes() == b"before\n" + printed + b"after\n"

    def test_explanations_go_there_after_the_text(self, fitted, tmp_path):
        with (tmp_path / "all").open("wb") as stream:
            done = run(fitted, "explain", "-o", "/dev/stdout", stdout=stream)
        assert done.returncode == 0
        text, _, table = (tmp_path / "all").read_text().partition("\nrow,prediction,")
        assert text.startswith("row 0: predicted 0")
        assert len(table.splitlines()) == 1 + 5 * 4

    def test_process_substitution(self, fitted, printed, tmp_path):
        line = (
            f"{sys.executable} -c '{COMMAND}' predict {fitted}/m.skops {fitted}/table.csv "
            f"-o >(cat > {tmp_path}/found) && wait $!"
        )
        done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, b"")
        assert (tmp_path / "found").read_bytes() == printed

    @pytest.mark.parametrize(
        ("command", "option"),
        [("predict", "-o"), ("explain", "-o"), ("explain", "--picture"), ("fit", "-o")],
    )
    def test_a_pipe_that_nobody_reads(self, fitted, tmp_path, capsys, command, option):
        os.mkfifo(tmp_path / "pipe")
        inputs = [fitted / "m.skops", fitted / "table.csv"]
        if command == "fit":
            inputs = [inputs[1], "--target", "target", "--regularization", "1", "--bases", "2"]
        arguments = [command, *inputs, option, tmp_path / "pipe"]
        assert main([*map(str, arguments)]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"plml {command}: nobody reads the pipe {tmp_path}")
        assert (tmp_path / "pipe").is_fifo()

    @pytest.mark.parametrize(
        ("command", "option", "kind"),
        [
            ("predict", "--out", "folder"),
            ("explain", "--out", "folder"),
            ("explain", "--picture", "folder"),
            ("fit", "--out", "folder"),
            ("fit", "--checkpoint", "folder"),
            ("fit", "--checkpoint", "pipe"),
            ("demo", "--out", "folder"),
            ("bench", "--out", "folder"),
            ("bench", "--out", "pipe"),
        ],
    )
    def test_refused_before_anything_is_read(self, tmp_path, capsys, command, option, kind):
        path = tmp_path / kind
        path.mkdir() if kind == "folder" else os.mkfifo(path)
        inputs = {
            "fit": ["missing.csv", "--target", "target"],
            "predict": ["missing.skops", "missing.csv"],
            "explain": ["missing.skops", "missing.csv"],
        }.get(command, [])
        assert main([command, *inputs, option, str(path)]) == 2
        what = "a folder" if kind == "folder" else "a pipe or a device"
        expected = f"plml {command}: {option} {path} is {what}; give the path of a file\n"
        assert capsys.readouterr().err == expected

    def test_a_device(self, fitted, tmp_path):
        path = null_device(tmp_path / "null")
        for command in ("predict", "explain"):
            assert run(fitted, command, "-o", path).returncode == 0
            assert path.is_char_device()

    def test_a_picture_without_a_suffix_has_that_name(self, fitted, tmp_path):
        run(fitted, "explain", "--picture", tmp_path / "picture", stdout=subprocess.PIPE)
        assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")


#: A process that is writing a checkpoint until it is told to go on.
WRITER = """
import sys, os
import numpy as np
import plml
fsync = os.fsync
def wait(handle):
    fsync(handle)
    if len(os.listdir(os.path.dirname(sys.argv[1]))) > 1:
        print("writing", flush=True)
        sys.stdin.readline()
os.fsync = wait
kept = plml.Checkpoint(sys.argv[1]).open({"a": 1}, np.zeros(3))
kept.put("part", {"x": np.arange(5)})
kept.finish()
"""


class TestLeftovers:
    def opened(self, path):
        return plml.Checkpoint(path).open({"a": 1}, np.zeros(3))

    def writer(self, path):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "writing\n"
        return process

    def left(self, folder):
        return [name for name in os.listdir(folder) if name.startswith(".")]

    def test_those_of_the_killed_go_and_those_of_the_living_stay(self, tmp_path):
        path = tmp_path / "fit"
        self.opened(path)
        killed, living = self.writer(path), self.writer(path)
        assert len(self.left(tmp_path)) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        self.opened(path)
        assert len(self.left(tmp_path)) == 1
        living.communicate("go on\n")
        assert living.returncode == 0
        assert self.left(tmp_path) == []
        np.testing.assert_array_equal(self.opened(path).part("part")["x"], np.arange(5))
        killed.stdin.close()
        killed.stdout.close()

    def test_files_of_others_stay(self, tmp_path):
        theirs = [".fit", ".fit.abcdefgh", ".fit.abc.tmp", ".other.abcdefgh.tmp", "fit.tmp"]
        for name in (*theirs, ".fit.abcdefgh.tmp"):
            (tmp_path / name).write_text("x")
        (tmp_path / ".fit.linkedto.tmp").symlink_to(tmp_path / "fit.tmp")
        (tmp_path / ".fit.folder__.tmp").mkdir()
        self.opened(tmp_path / "fit")
        expected = {*theirs, "fit", ".fit.linkedto.tmp", ".fit.folder__.tmp"}
        assert set(os.listdir(tmp_path)) == expected

    def test_a_file_beside_a_link(self, model, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "here").symlink_to(tmp_path / "there" / "model")
        (tmp_path / "there" / ".model.abcdefgh.tmp").write_text("x")
        plml.save(model, tmp_path / "here")
        assert os.listdir(tmp_path / "there") == ["model"]

    def test_writers_and_cleaners_at_the_same_time(self, tmp_path):
        """A file that was made and not yet locked may be taken for a leftover: it is made again."""
        path, done = tmp_path / "file", threading.Event()

        def clean():
            while not done.is_set():
                remove_leftovers(path)

        cleaners = [threading.Thread(target=clean) for _ in range(2)]
        for thread in cleaners:
            thread.start()
        try:
            for number in range(300):
                write_atomically(path, str(number))
                assert path.read_text() == str(number)
        finally:
            done.set()
            for thread in cleaners:
                thread.join()
        assert os.listdir(tmp_path) == ["file"]


class TestOneAtATime:
    def test_nobody_overwrites_what_another_has_just_added(self, tmp_path):
        path, link = tmp_path / "folder" / "sum", tmp_path / "link"
        link.symlink_to(path)

        def add(name):
            for _ in range(40):
                with exclusively(name):
                    before = int(path.read_text()) if path.exists() else 0
                    write(name, str(before + 1))

        threads = [threading.Thread(target=add, args=(name,)) for name in (path, link) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert path.read_text() == "240"
        assert os.listdir(path.parent) == ["sum"]

    @pytest.mark.parametrize("error", [None, KeyboardInterrupt])
    def test_a_lock_that_a_killed_process_left_holds_nobody(self, tmp_path, error):
        (tmp_path / ".sum.lock").touch()
        with suppress(KeyboardInterrupt), exclusively(tmp_path / "sum"):
            assert os.listdir(tmp_path) == [".sum.lock"]
            if error is not None:
                raise error
        assert os.listdir(tmp_path) == []
