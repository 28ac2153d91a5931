"""``plml explore`` in a process of its own, and Chromium to look at it."""

import asyncio
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from plml.explorer.server import LOCALHOST, LiveServer

COMMAND = "import sys; from plml.cli import main; sys.exit(main())"


def start(model, table):
    """Start the server at a free port."""
    arguments = ["explore", str(model), str(table), "--no-browser", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def address(process):
    """Where it says that it is."""
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found, line + process.stderr.read()
    return found[0]


@contextmanager
def served(model, table):
    """The address of a page that is served for a while."""
    process = start(model, table)
    try:
        yield address(process)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def serving(data, address=LOCALHOST):
    """The address of a page of given cases, served from a thread for a while."""
    started, servers = Event(), []

    def run():
        asyncio.set_event_loop(asyncio.new_event_loop())
        servers.append(LiveServer(data, 0, address))
        started.set()
        servers[0].run()
        servers[0].close()

    thread = Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield servers[0].url
    finally:
        servers[0].stop()
        thread.join(30)


@contextmanager
def chromium():
    """A browser of this machine, or a skip that says what is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser, url, width=1400, height=1000):
    """A page that is ready; what it asks of a network, and what goes wrong in it, is noted."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.asked, page.errors = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda line: page.errors.append(line.text) if line.type == "error" else None)
    page.goto(url)
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    yield page
    page.close()
