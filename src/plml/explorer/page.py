"""The page as a Bokeh document: the same for a file and for the server.

Bokeh draws the map and, on the live page, carries questions and answers; the rest is plain HTML
(``page.html``, ``page.js``, ``page.css``), in which every text of the table is a text node.
"""

import json
import logging
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.models import (
    BooleanFilter,
    CDSView,
    ColumnDataSource,
    CustomJS,
    HoverTool,
    Range1d,
    TapTool,
    WheelZoomTool,
)
from bokeh.plotting import figure
from bokeh.resources import INLINE

from plml.explorer.page_data import PageData
from plml.explorer.questions import changed_case, new_case, training_case
from plml.inspection.style import PALETTE, class_marks

TITLE = "plml explorer"
#: Of a class that the model never saw.
_UNKNOWN = ("#bbbbbb", "circle")
#: Sizes of a new case, and of the rings around errors among training cases and new ones.
_NEW, _RING, _NEW_RING = 13, 13, 19
_log = logging.getLogger(__name__)


def fill(document: Document, data: PageData, live: bool) -> Document:
    """Put the page into a document.

    Parameters
    ----------
    document : empty
    data : what it shows
    live : whether a server answers questions
    """
    marks = [*class_marks(len(data.subject.classes)), _UNKNOWN]
    points = ColumnDataSource(_columns(data, marks), name="points")
    facts = json.dumps({**data.facts, "marks": marks, "live": live})
    asked = ColumnDataSource({"question": [""]}, name="asked")
    answer = ColumnDataSource({"answer": [""]}, name="answer")
    args = {"facts": ColumnDataSource({"facts": [facts]}, name="facts"), "asked": asked}
    points.selected.js_on_change(
        "indices", CustomJS(args=args, code="window.plmlExplorer.choose(cb_obj.indices)")
    )
    picture = _map(points, data)
    answer.js_on_change("data", CustomJS(code="window.plmlExplorer.answered(cb_obj.data)"))
    # Whatever no glyph needs has to be reached from a root.
    picture.js_on_event("reset", CustomJS(args={"asked": asked, "answer": answer}, code=""))
    if live:

        def reply(_attribute: str, _old: Any, new: Any) -> None:
            answer.data = {"answer": [json.dumps(answer_to(data, new["question"][0]))]}

        asked.on_change("data", reply)
    document.add_root(picture)
    document.title = TITLE
    document.template = _part("page.html")  # type: ignore[assignment]  # or a text
    document.template_variables.update(style=_part("page.css"), script=_part("page.js"))
    return document


def standalone(data: PageData) -> str:
    """One HTML file that needs neither a server nor a network.

    Parameters
    ----------
    data : what it shows
    """
    document = fill(Document(), data, live=False)
    return file_html(
        document,
        INLINE,
        TITLE,
        template=document.template,
        template_variables=document.template_variables,
    )


def answer_to(data: PageData, question: str) -> dict[str, Any]:
    """What the server says to a question of the page; what is wrong with it, in words.

    Parameters
    ----------
    data : of the page
    question : JSON: a number, and a training row or a new one, the latter with other values or not
    """
    number = None
    try:
        asked = json.loads(question)
        number = asked["number"]
        return {"number": number, **_answer(data, asked)}
    except ValueError as error:
        return {"number": number, "message": _one_line(str(error))}
    except Exception as error:  # the page gets a sentence whatever happens
        _log.warning("a question could not be answered: %r", error)
        return {"number": number, "message": "this cannot be computed"}


def _answer(data: PageData, asked: dict[str, Any]) -> dict[str, Any]:
    if "training" in asked:
        return training_case(data, int(asked["training"]))
    row = int(asked["new"])
    if "values" not in asked:
        return new_case(data, row)
    return changed_case(data, row, [str(text) for text in asked["values"]])


def _one_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else "this value cannot be used"


def _columns(data: PageData, marks: list[tuple[str, str]]) -> dict[str, Any]:
    """The columns of the points; texts for the hover among them."""
    points, classes = data.points, data.facts["classes"]
    of_color = np.where(points.is_new, points.codes, points.labels)
    kinds = np.where(points.is_new, "new", "training").tolist()
    return {
        "x": points.places[:, 0],
        "y": points.places[:, 1],
        "row": points.rows.astype(np.int32),
        "kind": kinds,
        "is_new": points.is_new.tolist(),
        "color_class": of_color.astype(np.int32),
        "color": [marks[code][0] for code in of_color],
        "shape": [marks[code][1] for code in of_color],
        "label": points.labels.astype(np.int32),
        "wrong": points.wrong.tolist(),
        "ring": np.where(points.is_new, _NEW_RING, _RING),
        "doubt": points.doubts,
        "name": [case_name(data, kind, row) for kind, row in zip(kinds, points.rows, strict=True)],
        "predicted": [classes[code] for code in points.codes],
        "truth": [classes[code] if code >= 0 else "not known" for code in points.labels],
        "record": data.records,
    }


def case_name(data: PageData, kind: str, row: int) -> str:
    """What a case is called: its number, and its label where it has one.

    Parameters
    ----------
    data : of the page
    kind : "new" or "training"
    row : of that table
    """
    names = data.facts["names"][kind]
    return f"{kind} case {row}" + ("" if names is None else f" [{names[row]}]")


def _empty_map(data: PageData) -> Any:
    """Axes that nobody sees, with room for all points."""
    picture: Any = figure(
        name="map",
        sizing_mode="stretch_width",
        height=540,
        tools="pan,box_zoom,reset,save",
        toolbar_location="above",
        output_backend="canvas",
        min_border=4,
        x_range=_range(data.points.places[:, 0]),
        y_range=_range(data.points.places[:, 1]),
    )
    picture.toolbar.logo = None
    picture.axis.visible = False
    picture.grid.visible = False
    picture.outline_line_color = "#bbbbbb"
    return picture


def _map(points: ColumnDataSource, data: PageData) -> Any:
    """Training cases, new ones, rings around errors, the chosen case and the changed one."""
    picture = _empty_map(data)
    source = {"source": points}
    is_new, wrong = data.points.is_new, data.points.wrong
    training = picture.scatter(
        "x",
        "y",
        marker="shape",
        size=7,
        color="color",
        line_color=None,
        alpha=0.75,
        **source,
        **_view("training", ~is_new),
    )
    links = ColumnDataSource({k: [] for k in ("x0", "y0", "x1", "y1", "color")}, name="link source")
    picture.segment(
        "x0", "y0", "x1", "y1", color="color", line_width=2, line_alpha=0.8, source=links
    )
    new = picture.scatter(
        "x",
        "y",
        marker="diamond" if len(data.subject.classes) <= len(PALETTE) else "shape",
        size=_NEW,
        color="color",
        line_color="black",
        **source,
        **_view("new", is_new),
    )
    rings = picture.scatter(
        "x",
        "y",
        size="ring",
        fill_color=None,
        line_color="black",
        line_width=1.4,
        **source,
        **_view("error", wrong),
    )
    for renderer in (training, new, rings):
        renderer.nonselection_glyph = None
        renderer.selection_glyph = None
    _add_chosen(picture)
    _add_tools(picture, [training, new])
    return picture


def _add_chosen(picture: Any) -> None:
    """The ring of the chosen case and the star of a changed one."""
    chosen = ColumnDataSource({"x": [], "y": []}, name="chosen source")
    picture.scatter(
        "x", "y", size=24, fill_color=None, line_color="black", line_width=3, source=chosen
    )
    changed = ColumnDataSource({"x": [], "y": []}, name="changed source")
    star = {"marker": "star", "size": 24, "color": "white", "line_color": "black", "line_width": 2}
    picture.scatter("x", "y", source=changed, **star)


def _add_tools(picture: Any, points: list[Any]) -> None:
    """Hover, choosing and zoom by the wheel."""
    tooltips = [
        ("case", "@name"),
        ("predicted", "@predicted"),
        ("class", "@truth"),
        ("doubt", "@doubt{0%}"),
    ]
    hover = HoverTool(renderers=points, tooltips=tooltips, limit=3)
    wheel = WheelZoomTool()
    picture.add_tools(hover, TapTool(renderers=points), wheel)
    picture.toolbar.active_scroll = wheel


def _range(values: np.ndarray) -> Range1d:
    """All places with some room around them; it stays the same whatever is filtered."""
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 1.0
    return Range1d(start=low - room, end=high + room)


def _view(name: str, shown: np.ndarray) -> dict[str, Any]:
    return {"view": CDSView(filter=BooleanFilter(shown.tolist(), name=f"{name} view"))}


@cache
def _part(name: str) -> str:
    return files("plml.explorer").joinpath(name).read_text(encoding="utf-8")
