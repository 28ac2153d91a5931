"""Processes that a test starts, and what becomes of their workers."""

import os
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


def until_at_work(process, n_workers, seconds=120):
    """Wait until so many workers have computed for longer than their imports take."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        spent = [_processor_seconds(worker) for worker in session_of(process.pid) - {process.pid}]
        if sum(one > 4.0 for one in spent) >= n_workers:
            return
        time.sleep(0.1)


def _processor_seconds(number):
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def left_when_killed(process, seconds=20):
    """Processes of the session that outlive the killed leader by so many seconds."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + seconds
    while session_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return session_of(process.pid)
