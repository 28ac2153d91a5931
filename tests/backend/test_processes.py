"""Processes that end with the one they work for; the killing itself is in ``test_plml_cv``."""

import os
import subprocess
import sys
import threading

from plml.backend.processes import end_with

#: A program that starts a process which is nobody's worker, and ends before it.
LEFT_ALONE = """
import multiprocessing, os, sys, time
from plml.backend.processes import end_with

def work():
    end_with(os.getpid())
    time.sleep(2.0)
    print("still there", flush=True)

if __name__ == "__main__":
    multiprocessing.get_context("fork").Process(target=work).start()
    os._exit(0)
"""


def test_who_works_for_itself_is_left_alone():
    before = threading.active_count()
    for number in (os.getpid(), os.getppid()):
        end_with(number)
    assert threading.active_count() == before
    done = subprocess.run([sys.executable, "-c", LEFT_ALONE], capture_output=True, text=True)
    assert done.stdout == "still there\n"
