"""The page in a real browser: points are clicked, and what it says is compared with ``explain``."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import live_page
from plml import SML, explore, tables
from plml.explorer.page_data import page_data
from plml.explorer.subject import subject_of
from plml.inspection.explanation_text import short, vote_text

bokeh = pytest.importorskip("bokeh", reason="bokeh is not installed: the extra explore has it")
page_module = pytest.importorskip("plml.explorer.page")

pytestmark = pytest.mark.slow

#: Where a point is on the screen.
PLACE = """(i) => {
  const map = Bokeh.documents[0].get_model_by_name("map");
  const {x, y} = Bokeh.documents[0].get_model_by_name("points").data;
  const view = Bokeh.index.find_one(map);
  const box = view.canvas_view.el.getBoundingClientRect();
  return [box.left + view.frame.x_scale.compute(x[i]), box.top + view.frame.y_scale.compute(y[i])];
}"""


@pytest.fixture(scope="module")
def browser():
    with live_page.chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def wine_file(wine_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "wine.html"
    path.write_text(page_module.standalone(wine_data), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def evil_file(mixed_data, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "mixed.html"
    path.write_text(page_module.standalone(mixed_data), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def served(files):
    with live_page.served(files / "model.skops", files / "cases.csv") as url:
        yield url


def find(page, kind, row):
    page.select_option("#find-kind", kind)
    page.fill("#find-row", str(row))
    page.click("#find button")


def number(text):
    return float(text.replace("\u2212", "-"))


def said(page):
    """What the page says of the chosen case."""
    rows = page.locator("#contrast tbody tr:not(.total)").all()
    cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
    return {
        "title": page.inner_text("#chosen h2"),
        "prediction": page.inner_text("#prediction"),
        "probability": page.inner_text("#probability"),
        "votes": page.locator("#chosen .vote").all_inner_texts(),
        "parts": {row[0]: number(row[5]) for row in cells if row[0] != "all others"},
        "values": {row[0]: row[1:4] for row in cells if row[0] != "all others"},
        "cases": page.locator("#contrast thead .case").all_inner_texts(),
        "margin": number(page.inner_text("#margin")),
        "nearest": page.locator("#nearest .case").all_inner_texts(),
        "classes": [
            row.locator("td").nth(1).inner_text() for row in page.locator("#nearest tbody tr").all()
        ],
    }


def assert_says(page, one):
    """The page says what the explanation of one case does."""
    found, names = said(page), one.feature_names.tolist()
    assert found["prediction"] == str(one.predictions[0])
    assert found["probability"] == f"{round(100 * one.top_probability(0))}%"
    assert found["votes"] == [vote_text(ballot, one.classes, 0) for ballot in one.ballots]
    assert found["cases"] == [f"case {one.cases_for[0]}", f"case {one.cases_against[0]}"]
    assert found["margin"] == pytest.approx(one.margins[0], rel=6e-3)
    assert len(found["parts"]) == min(8, len(names))
    for name, part in found["parts"].items():
        column = names.index(name)
        assert part == pytest.approx(one.contrasts[0, column], rel=6e-3, abs=1e-12)
        values = (one.queries, one.for_values, one.against_values)
        assert found["values"][name] == [short(value[0, column]) for value in values]
    k = len(found["nearest"])
    assert found["nearest"] == [f"case {row}" for row in one.neighbors[0, :k]]
    assert found["classes"] == [str(label) for label in one.labels[0, :k]]


def test_the_file_asks_for_nothing_and_nothing_fails(browser, wine_file):
    with live_page.opened(browser, wine_file) as page:
        page.click("#next")
        page.wait_for_selector("#contrast")
        assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
        assert page.errors == []
        assert "130 training cases; 48 new cases" in page.inner_text("#about")
        assert "live page" in page.inner_text("#what-if-note")


@pytest.mark.parametrize("row", [0, 17, 31])
def test_a_new_case_that_is_found(browser, wine_file, metric_model, wine, row):
    with live_page.opened(browser, wine_file) as page:
        find(page, "new", row)
        assert said(page)["title"].startswith(f"New case {row}:")
        assert_says(page, metric_model.explain(wine[2].iloc[[row]], 5))


def test_a_training_case_that_is_found(browser, wine_file, metric_model):
    left_out = metric_model.explain(n_neighbors=5)
    with live_page.opened(browser, wine_file) as page:
        for row in (3, 99):
            find(page, "training", row)
            assert_says(page, left_out[row])
        page.locator("#nearest .case").first.click()
        assert said(page)["title"].startswith(f"Training case {left_out.neighbors[99, 0]}:")


def test_a_point_that_is_clicked(browser, wine_file, wine_data, metric_model, wine):
    lonely = most_lonely(wine_data, new=True)
    with live_page.opened(browser, wine_file) as page:
        page.mouse.click(*page.evaluate(PLACE, lonely))
        page.wait_for_selector("#contrast")
        row = int(wine_data.points.rows[lonely])
        assert said(page)["title"].startswith(f"New case {row}:")
        assert_says(page, metric_model.explain(wine[2].iloc[[row]], 5))
        other = most_lonely(wine_data, new=False)
        page.mouse.click(*page.evaluate(PLACE, other))
        title = f"Training case {wine_data.points.rows[other]}:"
        page.locator("#chosen h2", has_text=title).wait_for()  # a click is told to the page later


def most_lonely(data, new):
    """The point of a kind that has most room on the map."""
    places = data.points.places
    apart = ((places[:, None] - places) ** 2).sum(axis=2)
    apart[range(len(apart)), range(len(apart))] = 1e9
    room = apart.min(axis=1)
    room[data.points.is_new != new] = -1.0
    return int(room.argmax())


def test_numbers_that_are_no_rows(browser, wine_file):
    with live_page.opened(browser, wine_file) as page:
        for text, message in [
            ("", "Enter the number of a row."),
            ("x", "“x” is not the number of a row."),
            ("48", "There are 48 new cases, numbered from 0 to 47."),
        ]:
            find(page, "new", text)
            assert page.inner_text("#message") == message


@pytest.fixture(scope="module")
def few_data(metric_model, wine):
    """A map of 100 training cases and 10 new ones."""
    subject = subject_of(metric_model)
    return page_data(subject, wine[2], wine[3], most_training=100, most_new=10)


def hidden_row(data, new):
    points = data.points
    shown = set(points.rows[points.is_new == new].tolist())
    return next(row for row in range(130) if row not in shown)


def test_a_case_that_is_not_in_the_file(browser, few_data, tmp_path):
    path = tmp_path / "few.html"
    path.write_text(page_module.standalone(few_data), encoding="utf-8")
    with live_page.opened(browser, path.as_uri()) as page:
        for kind in ("new", "training"):
            row = hidden_row(few_data, kind == "new")
            find(page, kind, row)
            message = page.inner_text("#message")
            assert message.startswith(f"The {kind} case {row} is not among those in this file.")
            assert "plml explore without --html" in message


def test_cases_that_are_not_on_the_map(browser, few_data, metric_model, wine):
    with live_page.serving(few_data) as url, live_page.opened(browser, url) as page:
        row = hidden_row(few_data, new=False)
        find(page, "training", row)
        page.wait_for_selector("#contrast")
        assert said(page)["title"].startswith(f"Training case {row}:")
        assert_says(page, metric_model.explain(n_neighbors=5)[row])
        row = hidden_row(few_data, new=True)
        find(page, "new", row)
        page.wait_for_function("() => document.querySelector('#chosen h2').innerText[0] === 'N'")
        assert said(page)["title"].startswith(f"New case {row}:")
        assert f"The new case {row} is not one of those on the map" in page.inner_text("#message")
        case = wine[2].iloc[[row]].copy()
        assert_says(page, metric_model.explain(case, 5))
        page.get_by_label("proline, slider").fill("1500")
        page.wait_for_selector("#chosen[data-answer]")
        case["proline"] = 1500.0
        assert said(page)["title"].startswith(f"New case {row}, changed:")
        assert_says(page, metric_model.explain(case, 5))
        page.click("#reset")
        page.wait_for_function(
            "() => !document.querySelector('#chosen h2').innerText.includes('changed')"
        )
        assert_says(page, metric_model.explain(wine[2].iloc[[row]], 5))


def test_filters(browser, wine_file, wine_data):
    points, n = wine_data.points, len(wine_data.points.rows)
    with live_page.opened(browser, wine_file) as page:
        assert page.inner_text("#count") == f"{n} of {n} shown"
        page.check("#errors-only")
        assert page.inner_text("#count") == f"{points.wrong.sum()} of {n} shown"
        page.click("#next")
        assert page.locator("#chosen .badge").inner_text() == "error"
        page.uncheck("#errors-only")
        page.locator("#doubt").fill("30")
        assert page.inner_text("#count") == f"{(points.doubts >= 0.3).sum()} of {n} shown"
        page.locator("#doubt").fill("0")
        page.locator("#classes input").first.uncheck()
        of_color = points.labels.copy()
        of_color[points.is_new] = points.codes[points.is_new]
        assert page.inner_text("#count") == f"{(of_color != 0).sum()} of {n} shown"
        drawn = page.evaluate(
            "() => Bokeh.documents[0].get_model_by_name('training view').booleans"
        )
        assert sum(drawn) == ((of_color != 0) & ~points.is_new).sum()
        page.locator("#classes button").last.click()
        page.click("#next")
        assert page.inner_text("#message") == "No case is shown; loosen the filters."
        page.locator("#classes button").first.click()
        assert page.inner_text("#message") == ""


def test_with_a_keyboard(browser, wine_file):
    """Every control is reached by Tab; arrows on the map and Enter on a button choose cases."""
    with live_page.opened(browser, wine_file) as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("() => document.activeElement.id"))
        controls = {"errors-only", "doubt", "find-kind", "find-row", "previous", "next", "map"}
        assert controls <= reached
        page.focus("#map")
        page.keyboard.press("ArrowRight")
        assert said(page)["title"].startswith("New case 0:")
        page.keyboard.press("ArrowRight")
        assert said(page)["title"].startswith("New case 1:")
        page.focus("#previous")
        page.keyboard.press("Enter")
        assert said(page)["title"].startswith("New case 0:")
        page.focus("#find-row")
        page.keyboard.type("12")
        page.keyboard.press("Enter")
        assert said(page)["title"].startswith("New case 12:")


@pytest.mark.parametrize("width", [1400, 800])
def test_nothing_is_wider_than_the_window(browser, wine_file, evil_file, served, width):
    for url in (wine_file, evil_file, served):
        with live_page.opened(browser, url, width) as page:
            find(page, "new", 3)
            page.wait_for_selector("#contrast")
            widths = page.evaluate(
                "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            assert widths[0] <= widths[1]
            for section in ("#map", "#chosen", "#controls", "#what-if"):
                box = page.locator(section).bounding_box()
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= width + 1
            below = page.locator("#chosen").bounding_box()["y"] > 400
            assert below == (width == 800)  # one column where there is no room for two


def hidden_of_contrast(page):
    """By how many pixels the contrast is wider than its place."""
    return page.evaluate(
        "() => { const box = document.querySelector('#contrast').parentElement;"
        " return box.scrollWidth - box.clientWidth; }"
    )


@pytest.mark.parametrize("width", [800, 1040, 1190, 1210, 1400])
def test_the_bars_of_the_contrast_are_in_sight(browser, wine_file, width):
    with live_page.opened(browser, wine_file, width) as page:
        find(page, "new", 3)
        page.wait_for_selector("#contrast")
        assert hidden_of_contrast(page) <= 1


def test_cases_with_keys(browser, mixed, tmp_path):
    """A new case is found by its key, and the keys push no column out of sight."""
    train, new = (
        table.assign(key=[f"{kind}{i:05d}" for i in range(len(table))])
        for kind, table in zip("TN", mixed, strict=True)
    )
    model = tables.fit(train, "grape", "wine", key="key", regularization=1.0, n_neighbors=5)
    explore(model, new, html=tmp_path / "page.html")
    with live_page.opened(browser, (tmp_path / "page.html").as_uri(), 1400) as page:
        page.fill("#find-row", "N00003")
        page.keyboard.press("Enter")
        assert said(page)["title"].startswith("New case 3 [N00003]:")
        assert re.search(r"case \d+\s\[T\d{5}\]", page.inner_text("#contrast"))
        assert hidden_of_contrast(page) <= 1


def test_a_pipeline_that_mixes_columns_says_that_they_cannot_be_changed(browser, wine):
    X, y, new, _ = wine
    model = make_pipeline(StandardScaler(), PCA(3), SML(n_neighbors=3)).fit(X, y)
    data = page_data(subject_of(model), new)
    with live_page.serving(data) as url, live_page.opened(browser, url) as page:
        find(page, "new", 3)
        assert "mixes columns" in page.inner_text("#what-if-note")
        assert page.locator("#values input").count() == 0


def test_texts_of_the_table_stay_texts(browser, evil_file, served, mixed_data):
    for url in (evil_file, served):
        with live_page.opened(browser, url) as page:
            for row in range(4):
                find(page, "new", row)
            page.mouse.move(*page.evaluate(PLACE, most_lonely(mixed_data, new=True)))
            page.wait_for_timeout(300)
            assert page.evaluate("() => window.hacked") is None
            assert "<script>" in page.inner_text("#classes")
            assert page.locator("#chosen img, #values img, #classes img").count() == 0
            assert page.errors == []


class TestWhatIf:
    def changed(self, page, before):
        page.wait_for_function(
            "(before) => (document.getElementById('chosen').dataset.answer ?? '') !== before",
            arg=before,
        )
        return page.evaluate("() => document.getElementById('chosen').dataset.answer ?? ''")

    def test_a_slider(self, browser, served, saved_model, mixed):
        subject, row = subject_of(saved_model), mixed[1].iloc[[5]].copy()
        with live_page.opened(browser, served) as page:
            find(page, "new", 5)
            assert_says(page, subject.explain(row, 5))
            proline = page.get_by_label("proline, slider")
            proline.fill("1500")
            self.changed(page, "")
            row["proline"] = 1500.0
            assert said(page)["title"].startswith("New case 5, changed:")
            assert_says(page, subject.explain(row, 5))
            star = page.evaluate(
                "() => Bokeh.documents[0].get_model_by_name('changed source').data.x.length"
            )
            assert star == 1
            page.click("#reset")
            row["proline"] = mixed[1]["proline"].iloc[5]
            assert_says(page, subject.explain(row, 5))

    def test_keys_move_a_slider(self, browser, served, saved_model, mixed):
        row = mixed[1].iloc[[5]].copy()
        with live_page.opened(browser, served) as page:
            find(page, "new", 5)
            page.get_by_label("magnesium, slider").focus()
            page.keyboard.press("ArrowRight")
            self.changed(page, "")
            row["magnesium"] += 1
            assert page.input_value("#value-4") == str(row["magnesium"].iloc[0]).removesuffix(".0")
            assert_says(page, subject_of(saved_model).explain(row, 5))

    def test_a_category_and_a_number(self, browser, served, saved_model, mixed):
        row = mixed[1].iloc[[7]].copy()
        category = row.columns[5]
        other = "south" if row[category].iloc[0] != "south" else "north & <b>"
        with live_page.opened(browser, served) as page:
            find(page, "new", 7)
            page.select_option("#value-5", other)
            answer = self.changed(page, "")
            page.fill("#value-0", "13.25")
            self.changed(page, answer)
            row[category], row["alcohol"] = other, 13.25
            assert_says(page, subject_of(saved_model).explain(row, 5))

    def test_a_bad_value_gets_a_message(self, browser, served):
        with live_page.opened(browser, served) as page:
            find(page, "new", 7)
            for text in ("abc", "1e999", "<b>"):
                page.fill("#value-0", text)
                page.wait_for_function(
                    "(t) => document.getElementById('what-if-message').textContent.includes(t)",
                    arg=f"alcohol: '{text}' is not a",
                )
            page.fill("#value-0", "13")
            self.changed(page, "")
            assert page.inner_text("#what-if-message") == ""
            assert page.errors == []

    def test_a_number_that_is_taken_out_is_missing(self, browser, served, saved_model, mixed):
        assert saved_model.columns.imputes
        with live_page.opened(browser, served) as page:
            find(page, "new", 7)
            answer = page.get_attribute("#chosen", "data-answer") or ""
            page.fill("#value-0", "")
            self.changed(page, answer)
            row = mixed[1].iloc[[7]].assign(alcohol=np.nan)
            assert_says(page, subject_of(saved_model).explain(row, 5))
            assert page.inner_text("#what-if-message") == ""

    def test_a_date(self, browser, tmp_path):
        rng = np.random.default_rng(0)
        days = rng.integers(0, 700, 90)
        table = pd.DataFrame(
            {
                "when": pd.Timestamp("2023-01-01") + pd.to_timedelta(days, unit="D"),
                "size": rng.normal(size=90),
                "kind": np.where(days < 350, "old", "new"),
            }
        )
        model = tables.fit(
            table, "kind", "dated", keep=["when"], regularization=1.0, n_bases=2, random_state=0
        )
        model.save(tmp_path / "model.skops")
        table.iloc[:5].to_csv(tmp_path / "cases.csv", index=False)
        with (
            live_page.served(tmp_path / "model.skops", tmp_path / "cases.csv") as url,
            live_page.opened(browser, url) as page,
        ):
            find(page, "new", 0)
            page.get_by_label("when", exact=True).fill("2024-13-01")
            page.wait_for_function(
                "document.getElementById('what-if-message').textContent.includes("
                "'is not a date; give it as year-month-day')"
            )
            page.get_by_label("when, slider").fill("20000")  # days since 1970
            self.changed(page, "")
            assert page.get_by_label("when", exact=True).input_value() == "2024-10-04"
            row = table.iloc[[0]].assign(when=pd.Timestamp("2024-10-04"))
            assert_says(page, subject_of(model).explain(row, 5))
            assert page.errors == []

    def test_what_is_loaded_comes_from_the_server_itself(self, browser, served):
        with live_page.opened(browser, served) as page:
            outside = [u for u in page.asked if not u.startswith((served, "data:", "blob:"))]
            assert [u for u in outside if not u.startswith(served.replace("http", "ws"))] == []
