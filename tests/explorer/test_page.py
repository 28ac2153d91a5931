"""The page as one file, the server around it, and the command."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import live_page
import plml
from plml.cli import main
from plml.explorer.page_data import page_data
from plml.explorer.server import Page, explore, labels_of
from plml.explorer.subject import subject_of
from plml.inspection.style import class_marks

bokeh = pytest.importorskip("bokeh", reason="bokeh is not installed: the extra explore has it")
page = pytest.importorskip("plml.explorer.page")
Scatter = pytest.importorskip("bokeh.models").Scatter


class Resources(HTMLParser):
    """Addresses that a browser would load by itself."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "link", "img", "iframe", "source", "object", "embed"):
            self.found += [value for name, value in attributes if name in ("src", "href", "data")]


def test_the_file_loads_nothing(wine_data):
    text = page.standalone(wine_data)
    assert Resources(text).found == []
    assert "@import" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_texts_of_the_table_are_no_html(mixed_data):
    text = page.standalone(mixed_data)
    assert "<script>window.hacked" not in text
    assert "<img src=x" not in text
    assert "window.hacked = 1" in text  # it is there, as data


def test_colours_and_shapes_are_those_of_the_pictures(wine_data):
    document = page.fill(page.Document(), wine_data, live=False)
    columns = document.get_model_by_name("points").data
    points = wine_data.points
    marks = class_marks(3)
    for i in (0, 30, 60, 100):
        code = (points.codes if points.is_new[i] else points.labels)[i]
        assert (columns["color"][i], columns["shape"][i]) == marks[code]


def test_the_ring_of_an_error_is_larger_than_its_case(wine_data):
    document = page.fill(page.Document(), wine_data, live=False)
    rings = document.get_model_by_name("points").data["ring"]
    new, training = (
        next(glyph.size for glyph in document.select({"type": Scatter}) if glyph.size == size)
        for size in (13, 7)
    )
    is_new = wine_data.points.is_new
    assert rings[is_new].min() > new + 4
    assert rings[~is_new].min() > training + 4


class TestAnswers:
    def ask(self, data, **question):
        return page.answer_to(data, json.dumps({"number": 7, **question}))

    def test_a_changed_case(self, wine_data):
        found = self.ask(wine_data, new=0, values=wine_data.facts["values"][0])
        assert found["number"] == 7
        assert found["record"] == json.loads(wine_data.records[0])

    def test_a_new_case(self, wine_data):
        found = self.ask(wine_data, new=11)
        assert found["record"] == json.loads(wine_data.records[11])
        assert found["label"] == wine_data.points.labels[11]
        assert found["values"] == wine_data.facts["values"][11]

    @pytest.mark.parametrize(
        ("question", "message"),
        [
            ({"new": 0, "values": ["x"] * 13}, "'x' is not a number"),
            ({"new": 0, "values": []}, "13 values are needed, got 0"),
            ({"new": 48, "values": []}, "there are 48 new cases"),
            ({"new": -1, "values": []}, "there are 48 new cases"),
            ({"new": 48}, "there are 48 new cases"),
            ({"training": 130}, "there are 130 training cases"),
            ({"training": "x"}, "invalid literal"),
            ({}, "cannot be computed"),
            ({"new": None, "values": 3}, "cannot be computed"),
            ({"new": 0, "values": ["1e300"] * 13}, ""),
        ],
    )
    def test_a_bad_question_gets_a_sentence(self, wine_data, question, message):
        found = self.ask(wine_data, **question)
        assert message in found["message"]
        assert "\n" not in found["message"]
        assert "Traceback" not in found["message"]

    @pytest.mark.parametrize("text", ["", "no json", "3", "[]", "null"])
    def test_no_question_at_all(self, wine_data, text):
        assert page.answer_to(wine_data, text)["message"]


class TestExplore:
    def test_a_file(self, metric_model, wine, tmp_path):
        made = explore(metric_model, wine[2], wine[3], html=tmp_path / "page.html")
        assert repr(made) == "<Page: 130 training cases; 48 new cases>"
        assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    def test_a_notebook_shows_it_in_a_frame(self, wine_data):
        frame = Page(wine_data)._repr_html_()
        assert frame.startswith('<iframe srcdoc="')
        assert frame.count("<") == 2

    def test_the_same_seed_makes_the_same_points(self, metric_model, wine, tmp_path):
        made = [
            explore(metric_model, wine[2], html=tmp_path / "page.html", random_state=seed).data
            for seed in (0, 0, 1)
        ]
        np.testing.assert_array_equal(made[0].points.places, made[1].points.places)
        assert not np.array_equal(made[0].points.places, made[2].points.places)

    def test_bad_input(self, metric_model, wine, tmp_path):
        with pytest.raises(ValueError, match="there is no folder"):
            explore(metric_model, wine[2], html=tmp_path / "no" / "page.html")
        with pytest.raises(ValueError, match="features"):
            explore(metric_model, wine[2].to_numpy()[:, :3], html=tmp_path / "page.html")

    def test_without_bokeh_it_says_how_to_get_it(self, metric_model, monkeypatch):
        monkeypatch.setitem(sys.modules, "bokeh", None)
        with pytest.raises(ValueError, match=r"the explorer needs bokeh: pip install .*explore"):
            plml.explore(metric_model)

    def test_importing_plml_imports_no_bokeh(self):
        code = "import sys, plml; plml.explore; print('bokeh' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "False", done.stderr


@pytest.fixture(scope="module")
def served(files):
    with live_page.served(files / "model.skops", files / "cases.csv") as url:
        yield url


def handshake(url, token, **headers):
    """The status that a server answers a request for a websocket with."""
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": f"bokeh, {token}",
    }
    connection.request("GET", "/ws", headers=upgrade | headers)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


class TestServer:
    def get(self, url, path, **headers):
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=20)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def token(self, url):
        return re.search(r'"token":"([^"]+)"', self.get(url, "/")[1])[1]

    def test_the_page_is_there(self, served):
        status, text = self.get(served, "/")
        assert status == 200
        assert "Cases under the learned metric" in text
        assert [a for a in Resources(text).found if a.startswith(("http", "//"))] == []

    @pytest.mark.parametrize(
        "path",
        [
            "/etc/passwd",
            "/static/../../../../../../../../etc/passwd",
            "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
            "/static//etc/passwd",
            "/static/js/../../server.py",
            "/model.skops",
            "/cases.csv",
            "/static/",
        ],
    )
    def test_no_file_of_the_machine_is(self, served, path):
        status, text = self.get(served, path)
        assert status in (400, 403, 404)
        assert "root:" not in text
        assert "Traceback" not in text

    def test_its_own_page_gets_a_websocket(self, served):
        assert handshake(served, self.token(served), Origin=served[:-1]) == 101

    @pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
    def test_other_pages_get_no_websocket(self, served, origin):
        assert handshake(served, self.token(served), Origin=origin) == 404

    def test_at_a_public_address_it_is_live_under_every_name(self, wine_data):
        with live_page.serving(wine_data, "0.0.0.0") as url:
            token, port = self.token(url), url.split(":")[2].strip("/")
            for name in (f"192.0.2.7:{port}", f"Server.example:{port}", f"[::1]:{port}"):
                status = handshake(url, token, Host=name, Origin=f"http://{name.lower()}")
                assert status == 101, name
            for origin in ("http://evil.example", f"http://evil.example:{port}"):
                assert handshake(url, token, Host=f"192.0.2.7:{port}", Origin=origin) == 404

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.x"])
    @pytest.mark.parametrize("path", ["/", "/ws", "/static/js/bokeh.min.js"])
    def test_another_name_for_this_machine_gets_nothing(self, served, host, path):
        """A name that somebody else has pointed here, and pages that come from that name."""
        port = served.split(":")[2].strip("/")
        named = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
        assert self.get(served, path, **named)[0] == 404

    def test_localhost_is_this_machine(self, served):
        port = served.split(":")[2].strip("/")
        assert self.get(served, "/", Host=f"localhost:{port}")[0] == 200

    def test_it_listens_on_this_machine_alone(self, served):
        assert served.startswith("http://127.0.0.1:")

    def test_a_port_that_is_taken(self, served, files, capsys):
        port = served.split(":")[2].strip("/")
        arguments = ["explore", str(files / "model.skops"), str(files / "cases.csv"), "--quiet"]
        assert main([*arguments, "--port", port, "--no-browser"]) == 2
        assert "cannot listen at 127.0.0.1" in capsys.readouterr().err


class TestCommand:
    def run(self, files, *arguments):
        given = [str(argument) for argument in arguments]
        return main(["explore", str(files / "model.skops"), str(files / "cases.csv"), *given])

    def test_a_file(self, files, tmp_path, capsys):
        assert self.run(files, "--html", tmp_path / "page.html", "--quiet") == 0
        assert capsys.readouterr().out == f"page: {tmp_path / 'page.html'}\n"
        assert "plml explorer" in (tmp_path / "page.html").read_text(encoding="utf-8")

    def test_bad_input_is_one_line_and_exit_code_2(self, files, tmp_path, capsys):
        (tmp_path / "few.csv").write_text("alcohol,hue\n1,2\n")
        for arguments, message in [
            ([files / "model.skops", tmp_path / "none.csv"], "there is no file"),
            (
                [files / "model.skops", tmp_path / "few.csv"],
                "few.csv does not fit the model: it lacks",
            ),
            ([files / "cases.csv", files / "cases.csv"], "cases.csv"),
            ([files / "model.skops", files / "cases.csv", "--port", "99999"], "--port must be"),
            ([files / "model.skops", files / "cases.csv", "--seed", "-1"], "--seed must be"),
            (
                [files / "model.skops", files / "cases.csv", "--html", tmp_path / "no" / "p.html"],
                "there is no folder",
            ),
            (
                [files / "model.skops", files / "cases.csv", "--html", files / "cases.csv"],
                "--html cases.csv is the table itself",
            ),
        ]:
            assert main(["explore", *map(str, arguments), "--quiet", "--no-browser"]) == 2
            *warnings, line = capsys.readouterr().err.strip().splitlines()
            assert all(text.startswith("warning: ") for text in warnings)  # of other columns
            assert line.startswith("plml explore: ")
            assert message in line

    def test_what_does_not_fit_gets_one_line(self, files, mixed, tmp_path, capsys):
        odd = mixed[1].copy()
        odd.loc[0, "grape"] = "a grape that nobody saw"
        odd.loc[1, "grape"] = None
        odd.loc[2, odd.columns[5]] = "east"
        odd.to_csv(tmp_path / "odd.csv", index=False)
        page, table = tmp_path / "page.html", tmp_path / "odd.csv"
        arguments = [files / "model.skops", table, "--html", page, "--quiet"]
        assert main(["explore", *map(str, arguments)]) == 0
        lines = capsys.readouterr().err.strip().splitlines()
        assert all(line.startswith("warning: ") for line in lines)
        for words in (
            "'a grape that nobody saw'; such rows count as errors",
            "1 value that no training row has, 'east'",
        ):
            assert sum(words in line for line in lines) == 1

    def test_a_table_whose_classes_are_known_in_part(self, saved_model, mixed):
        some = mixed[1].assign(grape=mixed[1]["grape"].where(mixed[1].index % 2 == 0))
        known = labels_of(saved_model, some)
        points = page_data(subject_of(saved_model), some, known).points
        np.testing.assert_array_equal(points.labels[points.is_new] < 0, some["grape"].isna())
        true = saved_model.classifier.classes_[points.labels[: len(some) : 2]]
        np.testing.assert_array_equal(true, some["grape"].dropna())

    @pytest.mark.skipif(os.name == "nt", reason="signals")
    def test_ctrl_c_ends_it_cleanly(self, files):
        process = live_page.start(files / "model.skops", files / "cases.csv")
        live_page.address(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "The explorer has ended." in out
        assert "Traceback" not in err
