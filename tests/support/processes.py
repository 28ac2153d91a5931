"""Processes that a test starts, and what becomes of their workers."""

import signal
import subprocess
import time
from pathlib import Path


def start(arguments, **options):
    """A process in a session of its own."""
    return subprocess.Popen(arguments, start_new_session=True, **options)


def session_of(leader):
    """Living processes of a session, on systems that list them below /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def workers_of(process, n_workers, seconds=60):
    """The other processes of its session, once there are so many."""
    deadline = time.monotonic() + seconds
    while len(session_of(process.pid)) <= n_workers and time.monotonic() < deadline:
        time.sleep(0.1)
    return session_of(process.pid) - {process.pid}


def left_when_killed(process, seconds=20):
    """Processes of the session that outlive the killed leader by so many seconds."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + seconds
    while session_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return session_of(process.pid)
