"""The page below a cell: a notebook is run by a real kernel, and looked at in a real browser."""

import json

import pytest

from live_page import chromium

CELLS = (
    "from sklearn.datasets import load_wine\n"
    "import plml\n"
    "X, y = load_wine(return_X_y=True, as_frame=True)\n"
    "model = plml.SML(n_neighbors=5).fit(X.iloc[::2], y.iloc[::2])\n"
    "told = model.explain(X.iloc[[3]])\n"
    "told",
    "plml.explore(model, X.iloc[1::2], y.iloc[1::2])",
    "import json\n"
    "rival = told.rivals[0]\n"
    "print(json.dumps({'prediction': str(told.predictions[0]), 'rival': str(rival)}))",
)


@pytest.fixture(scope="module")
def notebook():
    """The cells with what they gave."""
    nbformat = pytest.importorskip("nbformat", reason="nbconvert is not installed")
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    book, _ = nbconvert.preprocessors.ExecutePreprocessor(timeout=300).preprocess(book, {})
    return book


def test_explanation_and_page_below_their_cells(notebook, tmp_path):
    from nbconvert import HTMLExporter

    page_file = tmp_path / "notebook.html"
    page_file.write_text(HTMLExporter().from_notebook_node(notebook)[0], encoding="utf-8")
    expected = json.loads(notebook.cells[2].outputs[0]["text"])
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.route("http*://**", lambda route: route.abort())  # what nbconvert's own page asks for
        page.goto(page_file.as_uri())
        table = page.locator("table", has_text="against").first
        assert f"against {expected['rival']}" in table.inner_text()
        frame = page.frame_locator("iframe[srcdoc]")
        frame.locator("#find-row").fill("1")
        frame.locator("#find button").click()
        chosen = frame.locator("#chosen")
        chosen.get_by_text("new case 1").first.wait_for(timeout=20_000)
        assert expected["prediction"] in chosen.inner_text()
        page.locator("iframe[srcdoc]").scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / "notebook.png")
