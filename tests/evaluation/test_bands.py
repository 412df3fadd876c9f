"""Bands of curves: the interval at each x is that of the curves without each block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit, stdtrit

from streameval import evaluate
from streameval.evaluation import explain
from streameval.plots import plot_curve
from streameval.states.grouped import Blocks
from streameval.states.protocol import Batch


@pytest.fixture(scope="module")
def table():
    """2,000 rows in 400 units."""
    rng = np.random.default_rng(3)
    unit = rng.integers(0, 400, 2000)
    label = (rng.random(400) < 0.4)[unit]
    return pa.table({"label": label, "unit": unit, "score": 1.5 * label + rng.normal(size=400)[unit]})


@pytest.mark.parametrize("name", ["roc", "precision_recall", "gain"])
def test_bands_are_the_jackknife_of_curves(table, name):
    """At some x, against curves of the rows of all other blocks."""
    curve = evaluate(table, score="score", unit="unit", threads=1).curve(name)
    split = Blocks("unit").split(Batch(np.zeros(2000, np.uint8), None, {"unit": table["unit"].combine_chunks()}))
    x = curve.band.x[[60, 90, 110]]
    without = []
    for block in range(len(split.names)):
        rest = evaluate(table.filter(pa.array(split.codes != block)), score="score", threads=1).curve(name)
        without.append(np.interp(x, rest.x, rest.y))
    count, y = len(without), np.interp(x, curve.x, curve.y)
    stderr = np.sqrt((count - 1) / count * np.square(without - np.mean(without, axis=0)).sum(axis=0))
    reach = stdtrit(count - 1, 0.975) * stderr / (y * (1 - y))
    lower, upper = (np.interp(x, curve.band.x, ends) for ends in (curve.band.lower, curve.band.upper))
    assert lower == pytest.approx(expit(logit(y) - reach), rel=0.01)
    assert upper == pytest.approx(expit(logit(y) + reach), rel=0.01)
    assert (curve.band.level, curve.band.unit) == (0.95, "unit")


def test_bands_are_drawn_where_there_are_intervals(table):
    """The legend says what they are; without intervals there is none."""
    found = evaluate(table, score="score", unit="unit", ci=0.9, threads=1)
    legend = [text.get_text() for text in plot_curve(found.curve("roc")).get_legend().get_texts()]
    assert legend[-1] == "90% at each point, by unit"
    assert evaluate(table, score="score", threads=1).curve("roc").band is None


def test_lift_curves_and_pages_have_bands(table):
    """All curves of a page are shaded, and it says what that means; a page without intervals says nothing of it."""
    table = table.append_column("cluster", pa.array(np.arange(2000) // 4))
    options = {"score": "score", "cluster": "cluster", "metrics": ["roc_auc", "aul"], "threads": 1}
    found = evaluate(table, unit="unit", **options)
    curves = {curve.name: curve for curve in found.curves()}
    assert {name: curve.band.unit for name, curve in curves.items()} == {
        "roc": "unit",
        "precision_recall": "unit",
        "gain": "unit",
        "lift": "cluster",
    }
    lift = curves["lift"]
    at = len(lift.band.x) // 2
    assert lift.band.lower[at] < np.interp(lift.band.x[at], lift.x, lift.y) < lift.band.upper[at]
    assert np.array_equal(found.curve("roc").band.lower, curves["roc"].band.lower, equal_nan=True)
    assert "Shaded: 95% intervals at each point, by unit; 95% intervals at each point, by cluster." in found.to_html()
    assert "Shaded" not in evaluate(table, **options).to_html()


def test_a_plan_counts_blocks(table):
    """States that intervals need are forecast beside the others."""
    plain, asked = (explain(table, score="score", threads=1, **more) for more in ({}, {"unit": "unit"}))
    [more] = asked.states[len(plain.states) :]
    assert (more.kind, more.of, more.bytes) == ("score_blocks", "score", 1 << 22)


def test_clusters_are_folded_once(table):
    """Cells of clusters and blocks hold the clusters, which are neither forecast nor folded in addition."""
    plain, asked = (explain(table, cluster="unit", label="label", threads=1, **more) for more in ({}, {"unit": "unit"}))
    assert [(s.kind, s.of, s.bytes, s.shards) for s in asked.states] == [
        ("grouped", s.of, s.bytes, s.shards) for s in plain.states
    ]
    assert asked.tasks == plain.tasks
