"""Intervals of clusterings and bands of curves: those of the rows that are left without each block."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logit, stdtrit

from streameval import LiftCurve, RocCurve, evaluate
from streameval.arrays.contingency import ClusteringMetrics
from streameval.metrics.catalogue import entries, entry_of
from streameval.metrics.contingency.clustering import clustering_metric
from streameval.plots import plot_curve
from streameval.states.grouped.keys import Blocks
from streameval.states.protocol import Batch

WITH = [e.name for e in entries("classes") if not e.no_interval] + [
    "vi_distance/raw",
    "vi_similarity/none",
    "split_join_similarity/none",
    "pairwise.fscore/beta=2",
]
WITHOUT = [e.name for e in entries("classes") if e.no_interval] + [
    "assignment_score/m3/raw",
    "split_join_distance/raw",
    "adjust_to_null/rand_index/m3.0",
]


def clustered(rows: int = 3000, classes: int = 500, seed: int = 0, kind: str = "int64") -> pa.Table:
    """Classes of Zipf sizes, two clusterings of them, one coarser, labels and units that clusters are spread over."""
    rng = np.random.default_rng(seed)
    size = np.arange(1, classes + 1) ** -0.4
    of = rng.choice(classes, rows, p=size / size.sum())
    label = (rng.random(classes) < 0.3).astype(int)[of]
    one = np.where(rng.random(rows) < 0.25, rng.integers(10_000, 20_000, rows), of // 2)
    two = np.where(rng.random(rows) < 0.1, rng.integers(0, 40, rows), of * 3 + rng.integers(0, 3, rows))
    columns = {"campaign": of, "one": one, "two": two, "sender": of // 3}
    table = {name: pa.array(values) for name, values in columns.items()}
    if kind == "string":
        table = {name: pa.array([f"{name} {v}" for v in values]) for name, values in columns.items()}
    return pa.table(table | {"label": label})


def blocks_of(table: pa.Table, unit: str) -> np.ndarray:
    """The block of each row."""
    key, column = Blocks(unit), table.column(unit).combine_chunks()
    split = key.split(Batch(np.zeros(len(table), np.uint8), None, {unit: column}))
    return np.array([key.group(name) for name in split.names.to_pylist()])[split.codes]


def value_of(metric: str, table: pa.Table, cluster: str) -> float:
    """A metric of a table in memory."""
    clusters, label = np.array(table.column(cluster).to_pylist()), table.column("label").to_numpy()
    if metric in ("aul", "roc_auc_by_size"):
        by_cluster = [label[clusters == c].tolist() for c in np.unique(clusters)]
        kind: Any = LiftCurve if metric == "aul" else RocCurve
        curve = kind.from_clusters(by_cluster, is_class_pos=bool)
        return float(curve.aul_score() if metric == "aul" else curve.auc_score())
    classes = np.array(table.column("campaign").to_pylist())
    return clustering_metric(metric).compute(ClusteringMetrics.from_labels(classes, clusters).facts.summary)


def replicates(metric: str, table: pa.Table, cluster: str, unit: str) -> np.ndarray:
    """The metric without each block; NaN for a block without rows."""
    blocks, found = blocks_of(table, unit), np.full(128, math.nan)
    for block in np.unique(blocks):
        found[block] = value_of(metric, table.filter(pa.array(blocks != block)), cluster)
    return found


def spread(values: np.ndarray) -> float:
    """The standard error that replicates give."""
    there = values[~np.isnan(values)]
    return math.sqrt((there.size - 1) / there.size * np.square(there - there.mean()).sum())


def estimate_of(found: Any, metric: str, of: str, *, paired: bool = False) -> Any:
    """The estimate of a result."""
    each = next(e for e in found.estimates if (e.own.scalar.metric, e.own.scalar.of) == (metric, of))
    return each.paired if paired else each.own


def test_metrics_of_classes_and_their_differences_are_the_jackknife() -> None:
    """Every metric that has an interval, and every paired difference: replicates as of the classes that are left."""
    table = clustered(600, 150, kind="string")
    found = evaluate(table, cluster=["one", "two"], classes="campaign", metrics=WITH, ci=0.95, baseline="one")
    blocks = blocks_of(table, "campaign")
    left = [table.filter(pa.array(blocks != block)) for block in range(128)]
    facts = {
        of: [
            ClusteringMetrics.from_labels(*(np.array(part.column(name).to_pylist()) for name in ("campaign", of)))
            for part in left
        ]
        for of in ("one", "two")
    }
    empty = np.bincount(blocks, minlength=128) == 0
    assert empty.any()
    for metric in WITH:
        want = {}
        for of in ("one", "two"):
            values = [clustering_metric(metric).compute(each.facts.summary) for each in facts[of]]
            want[of] = np.where(empty, math.nan, values)
            estimate = estimate_of(found, metric, of)
            assert estimate.replicates == pytest.approx(want[of], rel=1e-9, abs=1e-12, nan_ok=True)
            result = next(r for r in found.results if (r.metric, r.of) == (metric, of))
            assert result.unit == "campaign"
            assert result.units == len(set(table.column("campaign").to_pylist()))
            if result.stderr is not None:
                assert result.stderr == pytest.approx(spread(want[of]), rel=1e-9)
                assert result.ci_lower < result.value < result.ci_upper
            else:
                assert result.ci_reason
        difference = next(r for r in found.results if r.metric == metric and r.baseline == "one")
        if difference.stderr is not None:
            assert difference.stderr == pytest.approx(spread(want["two"] - want["one"]), rel=1e-9)


@pytest.mark.parametrize(("metric", "kind"), [("aul", "int64"), ("roc_auc_by_size", "string")])
def test_metrics_of_sizes_are_the_jackknife(metric: str, kind: str) -> None:
    """Own intervals leave out clusters; differences leave out rows by a unit that both clusterings have."""
    table = clustered(700, 200, kind=kind)
    found = evaluate(table, cluster=["one", "two"], metrics=metric, unit="sender", baseline="one")
    want = {of: replicates(metric, table, of, of) for of in ("one", "two")}
    paired = {of: replicates(metric, table, of, "sender") for of in ("one", "two")}
    for of in ("one", "two"):
        result = next(r for r in found.results if r.of == of)
        assert estimate_of(found, metric, of).replicates == pytest.approx(want[of], rel=1e-9, nan_ok=True)
        assert estimate_of(found, metric, of, paired=True).replicates == pytest.approx(
            paired[of], rel=1e-9, nan_ok=True
        )
        assert result.value == value_of(metric, table, of)
        assert (result.unit, result.units) == (of, len(set(table.column(of).to_pylist())))
        assert result.stderr == pytest.approx(spread(want[of]), rel=1e-9)
    difference = next(r for r in found.results if r.baseline)
    assert difference.stderr == pytest.approx(spread(paired["two"] - paired["one"]), rel=1e-9)
    assert difference.unit == "sender"


def test_values_are_those_without_intervals() -> None:
    """Intervals change no value and no count of rows, with the best matching as well."""
    table = clustered()
    options: dict[str, Any] = {"cluster": ["one", "two"], "classes": "campaign", "nulls": "drop"}
    metrics = [
        "aul",
        "roc_auc_by_size",
        "adjusted_rand_index",
        "assignment_score",
        "chisq_score",
        "adjusted_mutual_info",
    ]
    plain = evaluate(table, **options, metrics=metrics)
    with_ci = evaluate(table, **options, metrics=metrics, ci=0.9)
    for one, other in zip(plain.results, with_ci.results, strict=True):
        assert (one.metric, one.of, one.value, one.rows, one.positives) == (
            other.metric, other.of, other.value, other.rows, other.positives,
        )  # fmt: skip


def test_what_has_no_interval_says_why() -> None:
    """Assignment, null models, totals and test statistics: null with the reason of the catalogue."""
    found = evaluate(clustered(), cluster="one", classes="campaign", metrics=WITHOUT, ci=0.95)
    for result in found.results:
        entry = entry_of(result.metric)
        assert (result.ci_lower, result.ci_reason) == (None, entry.no_interval)
        assert result.ci_reason


def test_null_classes_have_intervals_of_their_own_only() -> None:
    """A row without a class is a separate unit; another clustering does not share it."""
    table = clustered()
    classes = [None if i % 50 == 0 else c for i, c in enumerate(table.column("campaign").to_pylist())]
    table = table.set_column(0, "campaign", pa.array(classes))
    options: dict[str, Any] = {"cluster": ["one", "two"], "classes": "campaign", "metrics": "v_measure"}
    found = evaluate(table, **options, nulls="singleton", baseline="one")
    own, difference = found.results[0], next(r for r in found.results if r.baseline)
    assert own.ci_lower < own.value < own.ci_upper
    assert own.units == len({c for c in classes if c is not None}) + classes.count(None)
    assert "(--nulls drop)" in difference.ci_reason
    dropped = evaluate(table, **options, nulls="drop", baseline="one")
    assert next(r for r in dropped.results if r.baseline).stderr > 0


def test_pair_counts_are_governed_by_squared_sizes() -> None:
    """One large class leaves fewer effective units to pair counts than to shares of rows."""
    table = clustered()
    classes = np.where(np.arange(3000) < 100, -1, table.column("campaign").to_numpy())
    table = table.set_column(0, "campaign", pa.array(classes))
    found = evaluate(table, cluster="one", classes="campaign", metrics=["v_measure", "adjusted_rand_index"], ci=0.95)
    blocks = blocks_of(table, "campaign")
    sizes = np.unique(classes, return_counts=True)[1].astype(float)
    first = np.unique(classes, return_index=True)[1]
    for metric, power in (("v_measure", 1), ("adjusted_rand_index", 2)):
        each = np.bincount(blocks[first], sizes**power, 128)
        units = each.sum() ** 2 * (1 - 1 / 128) / np.square(each - each.sum() / 128).sum()
        result = next(r for r in found.results if r.metric == metric)
        assert result.effective_units == pytest.approx(units)


def test_rows_without_a_label_have_no_interval() -> None:
    """Where positives are estimated, an interval by clusters would leave that error out."""
    table = clustered()
    labels = pa.array([None if i % 9 == 0 else v for i, v in enumerate(table.column("label").to_pylist())])
    table = table.set_column(table.schema.get_field_index("label"), "label", labels)
    found = evaluate(table, cluster="one", metrics="aul", unlabelled="size", unit="sender")
    assert "rows without a label" in found.results[0].ci_reason


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
    y, deviations = read(curve, x), (without - np.mean(without, axis=0)).T
    at = np.searchsorted(curve.band.x, x)
    for side, ends in ((-1, curve.band.lower), (1, curve.band.upper)):
        assert ends[at] == pytest.approx([end_of(*each, side) for each in zip(y, deviations, strict=True)], rel=0.01)
    assert (curve.band.level, curve.band.unit) == (0.95, "unit")


def end_of(y, d, side):
    """An end of an interval; towards ½, that with further blocks of the largest influence."""

    def freedom(blocks, influence):
        fourth = (d**4).sum() + blocks * influence**4
        return min(31, max(1, 3 * ((d**2).sum() + blocks * influence**2) ** 2 / fourth - 2))

    towards = side * (2 * y - 1) < 0
    blocks = 2 * (1 - freedom(0, 0) / 31) if towards else 0
    influence = (2 * y - 1) ** 2 * max(0, (-side * d).max()) if towards else 0
    centre = y + side * blocks * influence
    error = np.sqrt(31 / 32 * (d**2).sum() + blocks * influence**2)
    reach = stdtrit(freedom(blocks, influence), 0.975) * error / (centre * (1 - centre))
    return expit(logit(centre) + side * reach)


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
    assert np.isnan(curve.band.lower).all()
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size
