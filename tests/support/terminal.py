"""A command in a terminal of its own.

The process of the tests is never forked: it has threads, and a forked process may wait forever for
a lock that one of them held.
"""

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

#: Makes standard input the terminal of the session, so that Ctrl-C is a signal, and goes on.
_OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


@contextlib.contextmanager
def started(arguments, size=(24, 80), term="xterm", seconds=120):
    """A command as a pexpect object, and its process, which is killed at the end of the block."""
    from pexpect.fdpexpect import fdspawn

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_TERMINAL, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": term, "COLUMNS": str(size[1])},
    )
    os.close(theirs)
    child = fdspawn(ours, encoding="utf-8", timeout=seconds)
    try:
        yield child, process
    finally:
        process.kill()
        process.wait()
        child.close()


def run(arguments, **options):
    """All that a command writes to a terminal, and its exit code."""
    import pexpect

    with started(arguments, **options) as (child, process):
        child.expect(pexpect.EOF)
        return child.before, process.wait(timeout=30)
