"""The three pictures of docs/explorer.md, taken from the live page with Chromium.

    python docs/screenshots.py [--out docs/images]

Needs the extra ``explore``, playwright, and Chromium from the system's packages.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_breast_cancer

from plml import tables

COMMAND = "import sys; from plml.cli import main; sys.exit(main())"


def write_files(folder: Path) -> None:
    """A model of tumours, and a hundred new cases."""
    data = load_breast_cancer(as_frame=True)
    columns = [name for name in data.data if name.startswith("mean ")]
    table = data.data[columns].copy()
    table["diagnosis"] = np.array(["malignant", "benign"])[data.target]
    table = table.sample(frac=1.0, random_state=0).reset_index(drop=True)
    table.iloc[100:].to_csv(folder / "train.csv", index=False)
    table.iloc[:100].to_csv(folder / "cases.csv", index=False)
    model = tables.fit(
        table.iloc[100:].reset_index(drop=True),
        "diagnosis",
        "train.csv",
        regularization=1.0,
        n_bases=6,
        n_neighbors=7,
        random_state=0,
    )
    model.save(folder / "model.skops")


def find(page: Page, kind: str, row: str) -> None:
    """Choose a case by its number."""
    page.select_option("#find-kind", kind)
    page.fill("#find-row", row)
    page.click("#find button")


def take(page: Page, out: Path) -> None:
    """Overview, a chosen error, and a changed case."""
    find(page, "new", "3")
    page.screenshot(path=out / "explorer-overview.png")
    page.check("#errors-only")
    page.click("#next")
    page.wait_for_selector("#chosen .badge")
    page.uncheck("#errors-only")
    page.screenshot(path=out / "explorer-error.png", full_page=True)
    page.get_by_label("mean concave points, slider").fill("0.01")
    page.wait_for_selector("#chosen[data-answer]")
    page.get_by_label("mean texture, slider").fill("16")
    page.wait_for_timeout(1500)
    page.screenshot(path=out / "explorer-what-if.png", full_page=True)


def main() -> None:
    """Serve a page for a while and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    out = parser.parse_args().out
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as started:
        folder = Path(name)
        write_files(folder)
        arguments = [folder / "model.skops", folder / "cases.csv", "--no-browser", "--quiet"]
        command = [sys.executable, "-c", COMMAND, "explore", *map(str, arguments)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[4]
            browser = started.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(url)
            page.wait_for_selector("body[data-ready]")
            take(page, out)
            browser.close()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
