from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, normalize, scale

from plml import DANN, PLML, SML, AutoPLML
from plml.inspection import (
    ConvergenceDisplay,
    ExplanationDisplay,
    ImportanceDisplay,
    LocalMetricDisplay,
    NeighborsDisplay,
    WeightsDisplay,
)
from plml.inspection.views import View, ellipse


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return normalize(scale(X))[:400], y[:400]


@pytest.fixture(scope="module")
def model(digits):
    return PLML(n_bases=4, random_state=0).fit(*digits)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_an_ellipse_is_the_set_at_distance_one(rng):
    A = rng.normal(size=(2, 2))
    M = A @ A.T + 0.1 * np.eye(2)
    width, height, angle = ellipse(M)
    t = np.linspace(0, 2 * np.pi, 50)
    turn = np.radians(angle)
    axes = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    points = np.column_stack([0.5 * width * np.cos(t), 0.5 * height * np.sin(t)]) @ axes
    np.testing.assert_allclose(np.einsum("nd,de,ne->n", points, M, points), 1.0)


def test_a_view_of_two_features_is_the_features_and_of_more_the_components(rng):
    X = rng.normal(size=(50, 2))
    view = View.of(X, np.array(["a", "b"], dtype=object))
    np.testing.assert_array_equal(view.points(X), X)
    assert view.labels == ("a", "b")
    X = rng.normal(size=(200, 5)) * [5, 1, 1, 3, 1]
    points = View.of(X).points(X)
    assert np.var(points[:, 0]) > np.var(points[:, 1]) > 5
    M = np.diag([1.0, 2, 3, 4, 5])
    moves = View.of(X)
    z = np.array([0.3, -0.7])
    assert z @ moves.metrics(M[None])[0] @ z == pytest.approx(
        (z @ moves.axes) @ M @ (z @ moves.axes)
    )
    with pytest.raises(ValueError, match="at least two features"):
        View.of(X[:, :1])


def test_local_metrics(model, digits):
    display = LocalMetricDisplay.from_estimator(model, n_points=12)
    assert display.metrics.shape == (12, 2, 2)
    assert len(display.ax_.collections) == 11  # ten classes and the ellipses
    assert display.ax_.get_xlabel() == "first principal component"
    _, ax = plt.subplots()
    assert display.plot(ax=ax).ax_ is ax
    LocalMetricDisplay.from_estimator(DANN(n_neighbors=1).fit(*digits), n_points=3)


def test_importance_shows_where_a_feature_matters(rng):
    X = rng.normal(size=(300, 3))
    X[:150, 0] -= 8.0
    y = np.where(X[:, 0] < -4, X[:, 1] > 0, X[:, 2] > 0).astype(int)
    model = PLML(n_bases=2, prior="identity", random_state=0).fit(X, y)
    display = ImportanceDisplay.from_estimator(model, n_features=2)
    assert set(display.names) == {"x1", "x2"}
    left = display.points[:, 0] < np.median(display.points[:, 0])
    matters = display.importance[:, display.names.index("x1")]
    one, other = matters[left].mean(), matters[~left].mean()
    assert max(one, other) > 2 * min(one, other)
    average = dict(zip(display.names, display.average, strict=True))
    assert average["x1"] == pytest.approx(model.average_importance()[1])
    shown = display.axes_[0].collections[0].get_array()
    np.testing.assert_allclose(np.sort(shown), np.sort(display.importance[:, 0]))
    assert display.figure_.get_suptitle().endswith("?")
    assert ImportanceDisplay.from_estimator(DANN(n_neighbors=1).fit(X, y)).importance.max() <= 1.0


def test_importance_of_a_table(rng):
    table = pd.DataFrame({"size": rng.normal(size=80), "colour": ["red", "blue"] * 40})
    y = np.where(table["size"] + 2.0 * (table["colour"] == "red") > 1.0, "yes", "no")
    model = AutoPLML(n_bases=2, n_neighbors=(1, 5), random_state=0).fit(table, y)
    display = ImportanceDisplay.from_estimator(model)
    assert set(display.names) == {"size", "colour"}
    np.testing.assert_allclose(display.importance.sum(axis=1), 1.0)


def test_weights(model):
    display = WeightsDisplay.from_estimator(model, n_points=100)
    assert [ax.get_title().split(":")[0] for ax in display.axes_] == [
        f"basis {b}" for b in range(4)
    ]
    shown = display.axes_[2].collections[0].get_array()
    np.testing.assert_allclose(np.sort(shown), np.sort(display.weights[:, 2]))
    with pytest.raises(ValueError, match="this picture needs 4 axes, got 1"):
        display.plot(ax=plt.subplots()[1])


def test_weights_need_several_metrics(digits):
    with pytest.raises(ValueError, match="SML has no basis metrics"):
        WeightsDisplay.from_estimator(SML().fit(*digits))


@pytest.mark.parametrize("over", ["iteration", "seconds"])
def test_convergence(model, over):
    display = ConvergenceDisplay.from_estimator(model, over=over)
    gap = display.axes_[1, 1].lines[0]
    np.testing.assert_array_equal(gap.get_xdata(), model.history_["metrics"][over])
    np.testing.assert_array_equal(gap.get_ydata(), model.history_["metrics"]["gap"])
    assert display.axes_[1, 0].get_yscale() == "log"
    with pytest.raises(ValueError, match='over must be "iteration"'):
        display.plot(over="hours")


def test_neighbors_as_images_and_as_bars(model, digits):
    display = NeighborsDisplay.from_estimator(
        model, digits[0][:5], query=2, n_neighbors=3, image_shape=(8, 8)
    )
    assert len(display.axes_) == 4
    image = display.axes_[1].images[0].get_array()
    row = display.explanation.neighbors[0, 0]
    assert row == model.kneighbors(digits[0][2:3], 1)[1][0, 0]
    np.testing.assert_allclose(image, digits[0][row].reshape(8, 8))
    bars = NeighborsDisplay.from_estimator(model, digits[0][:5], n_neighbors=2)
    assert len(bars.axes_[0].patches) == 10
    with pytest.raises(ValueError, match="has 63 pixels"):
        NeighborsDisplay.from_estimator(model, digits[0][:5], image_shape=(7, 9))
    with pytest.raises(ValueError, match="query must be between 0 and 4"):
        NeighborsDisplay.from_estimator(model, digits[0][:5], query=5)


def test_explanation(model, digits):
    display = model.explain(digits[0][:3], 2).plot(query=1, n_features=64)
    assert isinstance(display, ExplanationDisplay)
    found = display.explanation
    for n_features, n_bars in ((64, 64), (5, 6)):  # and the other 59
        widths = [bar.get_width() for bar in display.plot(n_features=n_features).axes_[0].patches]
        assert len(widths) == n_bars
        assert sum(widths) == pytest.approx(found.margins[1])
    assert found.predictions[1] != found.rivals[1]
    question = f"Why {found.predictions[1]} and not {found.rivals[1]}?"
    assert display.axes_[0].get_title(loc="left") == question
    of_a_case = display.plot(rank=2, n_features=5)
    widths = [bar.get_width() for bar in of_a_case.axes_[0].patches]
    assert min(widths) >= 0.0
    assert sum(widths) == pytest.approx(found.squared_distances[1, 1])
    with pytest.raises(ValueError, match="rank must be between 1 and 2"):
        display.plot(rank=3)
    with pytest.raises(ValueError, match=r"last step of the pipeline, model\[-1\]"):
        LocalMetricDisplay.from_estimator(make_pipeline(StandardScaler(), model))


def test_a_training_row_is_explained_by_others(model):
    display = model.explain().plot(query=5)
    widths = [bar.get_width() for bar in display.axes_[0].patches]
    assert max(np.abs(widths)) > 0.0


def test_a_model_of_named_columns_draws_without_a_warning(digits, recwarn):
    frame = pd.DataFrame(digits[0], columns=[f"pixel {i}" for i in range(64)])
    model = PLML(n_bases=2, random_state=0).fit(frame, digits[1])
    LocalMetricDisplay.from_estimator(model, n_points=3)
    NeighborsDisplay.from_estimator(model, frame, query=1)
    ExplanationDisplay.from_estimator(model, frame, query=1)
    assert not [w for w in recwarn if "feature names" in str(w.message)]


class TestAnyTable:
    """Columns in very different units, words, dates and gaps."""

    @pytest.fixture(scope="class")
    @staticmethod
    def table():
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, 120)
        frame = pd.DataFrame(
            {
                "amount": 120_000 + 9_000 * y + rng.integers(0, 5_000, 120),
                "ratio": rng.normal(size=120) + y,
                "city": np.array(["Oslo", "Bergen"])[np.where(rng.random(120) < 0.8, y, 1 - y)],
                "when": pd.Timestamp("2024-01-01")
                + pd.to_timedelta(rng.integers(0, 700, 120), "D"),
            }
        )
        frame.loc[::9, "ratio"] = np.nan
        return frame, y

    @pytest.fixture(scope="class")
    @staticmethod
    def auto(table):
        return AutoPLML(n_bases=2, random_state=0).fit(*table)

    def shape(self, points):
        extent = np.ptp(points, axis=0)
        return extent.max() / extent.min()

    def test_no_panel_is_a_line(self, auto):
        display = ImportanceDisplay.from_estimator(auto)
        assert self.shape(display.points) < 5.0
        assert {"amount", "city"} <= set(display.names)
        assert self.shape(LocalMetricDisplay.from_estimator(auto, n_points=5).points) < 5.0

    @pytest.mark.parametrize("d", [2, 3])
    def test_features_in_different_units(self, rng, d):
        X = rng.normal(size=(100, d)) * [1.0, 5_000.0, 3.0][:d] + 7.0
        model = SML().fit(X, X[:, 0] > 7.0)
        display = LocalMetricDisplay.from_estimator(model, n_points=4)
        assert self.shape(display.points) < 5.0
        assert "standard" in display.ax_.get_xlabel()
        move = np.array([0.3, -0.2])  # in the picture, and as a difference of rows
        row = (display.view.axes.T @ move) * display.view.scale
        M = model.training_metrics(np.arange(1))[0]
        assert move @ display.view.metrics(M) @ move == pytest.approx(row @ M @ row)

    def test_ellipses_are_within_the_axes(self, auto):
        display = LocalMetricDisplay.from_estimator(auto)
        (ellipses,) = (c for c in display.ax_.collections if hasattr(c, "get_widths"))
        reach = 0.5 * np.maximum(ellipses.get_widths(), ellipses.get_heights())
        low, high = np.array([display.ax_.get_xlim(), display.ax_.get_ylim()]).T
        assert (display.centers - reach[:, None] >= low).all()
        assert (display.centers + reach[:, None] <= high).all()

    def test_neighbours_are_shown_with_their_values(self, auto, table):
        X, _ = table
        display = NeighborsDisplay.from_estimator(auto, X, query=9, n_neighbors=2)
        names = [label.get_text() for label in display.axes_[0].get_yticklabels()]
        texts = [text.get_text() for text in display.axes_[0].texts]
        shown = dict(zip(names, texts, strict=True))
        assert shown["ratio"] == "(missing)"
        assert shown["city"] == X["city"][9]
        assert shown["amount"] == str(X["amount"][9])
        widths = [abs(bar.get_width()) for ax in display.axes_ for bar in ax.patches]
        assert max(widths) == pytest.approx(1.0)

    def test_how_a_table_was_learned(self, auto):
        display = ConvergenceDisplay.from_estimator(auto)
        gap = display.axes_[1, -1].lines[0].get_ydata()
        np.testing.assert_array_equal(gap, auto.model_.history_["metrics"]["gap"])


def test_the_features_of_an_explanation_matter_on_either_side(model, digits):
    display = model.explain(digits[0][:3], 2).plot(query=1, n_features=5)
    found = display.explanation
    names = [label.get_text() for label in display.axes_[0].get_yticklabels()]
    for values in (np.abs(found.contrasts[1]), found.importance[1], found.global_importance):
        assert found.feature_names[values.argmax()] in names


@pytest.mark.parametrize("n_columns", [2, 4, 13])
def test_the_legend_of_an_explanation_is_below_the_label_of_its_axis(n_columns):
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, :n_columns]
    display = SML(n_neighbors=3).fit(X, y).explain(X[:1]).plot()
    display.figure_.draw_without_rendering()
    right = display.axes_[1]
    label, legend = (part.get_window_extent() for part in (right.xaxis.label, right.get_legend()))
    assert legend.y1 < label.y0


def test_titles_of_neighbours_do_not_touch():
    X, y = load_wine(return_X_y=True)
    labels = np.array(["a first class with a long name", "another one", "the third of them"])[y]
    names = [f"a rather long name of column {i}" for i in range(13)]
    table = pd.DataFrame(StandardScaler().fit_transform(X), columns=names)
    model = SML(n_neighbors=5).fit(table, labels)
    display = NeighborsDisplay.from_estimator(model, table[100:101])
    display.figure_.draw_without_rendering()
    extents = [panel.title.get_window_extent() for panel in display.axes_]
    assert all(one.x1 < other.x0 for one, other in pairwise(extents))


def test_the_label_of_a_colour_bar_is_within_the_picture():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)[:, [6, 12]]
    figure = ImportanceDisplay.from_estimator(SML().fit(X, y)).figure_
    figure.draw_without_rendering()
    label = figure.axes[-1].yaxis.label.get_window_extent()
    assert 0.0 <= label.y0 < label.y1 <= figure.bbox.height


def test_a_display_does_not_print_its_arrays(model):
    assert "array" not in repr(ConvergenceDisplay.from_estimator(model))


def test_iterations_are_whole():
    history = {"iteration": [1, 2, 3], "value": [3.0, 2.0, 1.0], "gap": [1.0, 0.5, 0.1]}
    stage = {name: np.array(values) for name, values in history.items()}
    axes = ConvergenceDisplay({"metrics": stage}, 1e-3).plot().axes_[0, 0]
    assert all(float(place).is_integer() for place in axes.get_xticks())
