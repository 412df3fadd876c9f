"""Bands of curves: the interval at each x is that of the curves without each block."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit, stdtrit

from streameval import evaluate
from streameval.plots import plot_curve
from streameval.states.grouped.keys import Blocks
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
    """At x that have an interval, against curves of the rows of all other blocks, merged to 32."""
    curve = evaluate(table, score="score", unit="unit", threads=1).curve(name)
    blocks = Blocks("unit")
    split = blocks.split(Batch(np.zeros(2000, np.uint8), None, {"unit": table["unit"].combine_chunks()}))
    x = curve.band.x[np.isfinite(curve.band.lower)][::7]
    assert x.size > 2
    merged = np.array([blocks.group(each) % 32 for each in split.names.to_pylist()])[split.codes]
    without = []
    for block in range(32):
        rest = evaluate(table.filter(pa.array(merged != block)), score="score", threads=1).curve(name)
        without.append(read(rest, x))
    y = read(curve, x)
    stderr = np.sqrt(31 / 32 * np.square(without - np.mean(without, axis=0)).sum(axis=0))
    reach = stdtrit(31, 0.975) * stderr / (y * (1 - y))
    at = np.searchsorted(curve.band.x, x)
    assert curve.band.lower[at] == pytest.approx(expit(logit(y) - reach), rel=0.01)
    assert curve.band.upper[at] == pytest.approx(expit(logit(y) + reach), rel=0.01)
    assert (curve.band.level, curve.band.unit) == (0.95, "unit")


def read(curve, x):
    """The curve at some x; its precision is that of the first point with such a recall."""
    if curve.name == "precision_recall":
        return curve.y[np.searchsorted(curve.x, x)]
    return np.interp(x, curve.x, curve.y)


@pytest.mark.parametrize(("name", "metric"), [("roc", "tpr@fpr"), ("gain", "recall@share")])
def test_a_band_has_an_interval_where_the_operating_point_has_one(table, name, metric):
    """A point of a curve is an operating point: both have an interval, about the same, or neither has."""
    at = [0.02, 0.1, 0.3, 0.5, 0.7, 0.95]
    metrics = [f"{metric}={x:g}" for x in at]
    found = evaluate(table, score="score", unit="unit", metrics=metrics, threads=1)
    band = found.curve(name).band
    given = [found.ci(each) for each in metrics]
    lacking = np.isnan(given).any(axis=1)
    assert 0 < lacking.sum() < len(at)
    for x, ends in zip(at, given, strict=True):
        i = np.argmin(abs(band.x - x))
        assert (band.lower[i], band.upper[i]) == pytest.approx(ends, abs=0.03, nan_ok=True)


def test_a_curve_without_enough_units_says_so(table):
    """The gain curve of eleven effective units filled everything from 0 to 1; now it says why it has no band."""
    few = table.filter(pa.array(table["unit"].to_numpy() < 40))
    found = evaluate(few, score="score", unit="unit", threads=1)
    band = found.curve("gain").band
    assert np.isnan(band.lower).all()
    assert "effective units (unit) beyond a threshold: 50 are needed" in band.reason
    assert band.effective_units < 40
    legend = [text.get_text() for text in plot_curve(found.curve("gain")).get_legend().get_texts()]
    assert legend[-1].startswith("no 95% intervals by unit (")
    page = found.to_html()
    assert "No intervals: " in page
    assert "Gain curve of score (at most" in page


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


@pytest.mark.parametrize("name", ["roc", "precision_recall", "gain"])
def test_bands_from_the_grid_are_those_of_every_score(name: str) -> None:
    """Bins around the thresholds of a band are cut; widths were off by up to 40 % without."""
    random, rows = np.random.default_rng(0), 50_000
    label = random.random(rows) < 0.1
    data = pa.table({"label": label, "s": random.normal(size=rows) + 1.5 * label})
    coarse, exact = (
        evaluate(data, score="s", metrics="roc_auc", ci=0.95, threads=1, resample_bins=bins).curve(name).band
        for bins in ("2048", "exact")
    )
    there = ~np.isnan(exact.lower)
    assert there.sum() > 90
    assert (np.isnan(coarse.lower) == ~there).all()
    ratio = (coarse.upper - coarse.lower)[there] / (exact.upper - exact.lower)[there]
    assert np.abs(ratio - 1).max() < 0.2
    assert abs(np.median(ratio) - 1) < 0.01


@pytest.mark.parametrize("unit", [None, "unit"])
def test_a_single_cluster_has_a_curve_without_a_band(tmp_path, unit):
    """A replicate without the cluster has no point; numpy raised a raw ValueError when a page was saved."""
    table = pa.table({"label": [0, 1, 1], "cluster": [7, 7, 7], "unit": [1, 2, 3]})
    found = evaluate(table, cluster="cluster", ci=0.9, unit=unit, threads=1)
    [curve] = found.curves()
    assert curve.band is not None
    assert np.isnan(curve.band.lower).all()
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size
