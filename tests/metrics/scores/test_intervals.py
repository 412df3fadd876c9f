"""Certain intervals hold the exact value, and counts of any size are exact."""

import json
import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from truth import Group, curve_truth, groups_auc

from streameval import evaluate
from streameval.budget import Budget
from streameval.kernels import histogram as grid
from streameval.kernels.histogram import edges
from streameval.kernels.ranking import delong_counts, exact_parts
from streameval.metrics.catalogue import entries
from streameval.metrics.clusters import aul, size_roc_auc
from streameval.metrics.finalize import compute
from streameval.metrics.scores.ranking import KolmogorovSmirnov, MaxInformedness, RocAuc
from streameval.metrics.scores.sums import deepest
from streameval.states.cluster_sizes import SizeTable
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.protocol import Batch, Totals
from streameval.states.scores.counts import ScoreCounts, ScoreSpec
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.parts import ScorePart, known

BOUNDED = ("roc_auc", "average_precision", "pr_auc", "max_informedness", "ks")
METRICS = [entry.metric for entry in entries("ranking") if entry.name in BOUNDED]


@dataclass(frozen=True, eq=False)
class Binned(ScoreHistogram):
    """A histogram with bins of the test's own making."""

    part: ScorePart | None = None

    def totals(self) -> Totals:
        """Totals of those bins."""
        return self.part.total


def binned(groups: list[tuple[float, float]], cuts: list[bool], *, weighted: bool) -> Binned:
    """Groups of (positives, negatives) in descending order, a bin ending after each group where `cuts` says so."""
    ends = [i + 1 for i, cut in enumerate(cuts[: len(groups) - 1]) if cut] + [len(groups)]
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    sums = np.array([[math.fsum(g[side] for g in groups[a:b]) for a, b in spans] for side in (0, 1)])
    pos, neg = sums.astype(np.int64) if not weighted else np.ones(sums.shape, np.int64)
    several = np.array([b - a > 1 for a, b in spans])
    total = Totals(int(neg.sum()), int(pos.sum()), math.fsum(sums[1]), math.fsum(sums[0]), weighted)
    measure = (sums[1], sums[0]) if weighted else (neg, pos)
    none, rows = Totals(0, 0, 0.0, 0.0, weighted), neg + pos if weighted else None
    part = ScorePart(*measure, none, total, known(np.arange(len(spans), 0, -1.0)), several, rows)
    empty = HistogramSpec("score", weighted=weighted).empty()
    return Binned(empty.spec, empty.bins, empty.table, empty.sums, empty.errors, part=part)


COUNTS = st.one_of(st.integers(0, 3), st.integers(0, 10**12))
WEIGHTS = st.one_of(st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1e6), st.floats(1e-9, 1e-3))
CUTS = st.lists(st.booleans(), min_size=12, max_size=12)


def _truth(groups: list[tuple[float, float]]) -> dict[str, Fraction | None]:
    exact: list[Group] = [(Fraction(p), Fraction(n)) for p, n in groups]
    return {"roc_auc": groups_auc(exact), **curve_truth(exact)}


def _check(groups: list[tuple[float, float]], cuts: list[bool], *, weighted: bool) -> None:
    state = binned(groups, cuts, weighted=weighted)
    truth = _truth(groups)
    slack = Fraction(1, 10**12) if weighted else Fraction(1, 10**15)
    for metric in METRICS:
        result = metric.combine([metric.partial(state.part)], state)
        expected = truth[metric.name]
        if expected is None:
            assert math.isnan(result.value)
            continue
        lower, upper = Fraction(result.lower), Fraction(result.upper)
        room = slack if result.exact else 0  # an exact value is a rounded one
        assert lower - room <= expected <= upper + room, (metric.name, result, float(expected))
        assert 0 <= result.lower <= result.value <= result.upper <= 1, (metric.name, result)
        assert result.exact == (result.lower == result.upper)


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=12), CUTS)
@example([(0, 1), (1, 0)], [False] * 12)
@example([(1, 0), (0, 1)], [False] * 12)
@example([(1, 10**12), (10**12, 1)], [False] * 12)
@example([(1, 1), (1, 10**12), (1, 0)], [True] + [False] * 11)
def test_the_truth_is_inside(groups: list[tuple[int, int]], cuts: list[bool]) -> None:
    """Every metric's exact value lies in its interval, whatever groups a bin hides; so does the value given."""
    _check(groups, cuts, weighted=False)


@given(st.lists(st.tuples(WEIGHTS, WEIGHTS), min_size=1, max_size=12), CUTS)
@example([(2.225e-311, 0.0)], [False])
@example([(0.0, 2.225e-309), (1.0, 0.0)], [False])
@example([(0.0, 67971.0), (0.0, 67971.0), (1.1694812927927386e-160, 67970.0)], [True, False, False])
def test_the_truth_is_inside_with_weights(groups: list[tuple[float, float]], cuts: list[bool]) -> None:
    """The same with weights, among them zeros."""
    _check(groups, cuts, weighted=True)


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=12))
def test_bins_of_one_score_are_exact(groups: list[tuple[int, int]]) -> None:
    """Where every bin holds one score the values are exact and say so."""
    state, truth = binned(groups, [True] * 12, weighted=False), _truth(groups)
    for metric in METRICS:
        result = metric.combine([metric.partial(state.part)], state)
        if truth[metric.name] is not None:
            assert result.exact
            assert math.isclose(result.value, float(truth[metric.name]), rel_tol=1e-14, abs_tol=1e-15)
            if isinstance(metric, RocAuc | MaxInformedness | KolmogorovSmirnov):  # of integers, divided once
                assert result.value == float(truth[metric.name])


@pytest.mark.parametrize("seed", range(12))
def test_intervals_hold_the_value_of_distinct_scores(seed: int) -> None:
    """To the last bit: also where bounds of float sums meet, and where no open bin has positives."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, int(rng.integers(200, 2000)))
    table = pa.table({"label": label, "score": np.round(label / 2 + rng.random(label.size), int(rng.integers(1, 6)))})
    wanted = ["average_precision", "pr_auc"]
    for exact, bounded in zip(
        *(evaluate(table, score="score", metrics=wanted, approx=approx).results for approx in (False, True)),
        strict=True,
    ):
        assert bounded.lower <= exact.value <= bounded.upper, (exact, bounded)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=6), CUTS)
def test_the_bounds_of_auc_and_informedness_are_reached(groups: list[tuple[int, int]], cuts: list[bool]) -> None:
    """The intervals are as narrow as possible: the extreme orders inside the bins reach their ends."""
    state = binned(groups, cuts, weighted=False)
    bins = state.part
    whole = list(zip(bins.p.tolist(), bins.n.tolist(), (~bins.open).tolist(), strict=True))
    orders: list[list[tuple[int, int]]] = [[], []]
    for p, n, single in whole:
        for order, first in zip(orders, (True, False), strict=True):
            order += [(p, n)] if single else [(p, 0), (0, n)] if first else [(0, n), (p, 0)]
    best, worst = _truth(orders[0]), _truth(orders[1])
    auc = RocAuc().combine([RocAuc().partial(bins)], state)
    peak = MaxInformedness().combine([MaxInformedness().partial(bins)], state)
    if best["roc_auc"] is not None:
        assert auc.upper == pytest.approx(float(best["roc_auc"]), abs=1e-13)
        assert auc.lower == pytest.approx(float(worst["roc_auc"] or 0), abs=1e-13)
        assert peak.upper == pytest.approx(float(best["max_informedness"] or 0), abs=1e-13)


# -- the fixed grid ---------------------------------------------------------------------------------------------------

ROWS = 200_000


def _distributions() -> dict[str, Any]:
    random = np.random.default_rng(11)
    return {
        "uniform": random.random(ROWS),
        "beta": random.beta(0.4, 2.0, ROWS),
        "rare": np.minimum(random.lognormal(-8.0, 1.1, ROWS), 1.0),
        "saturated": 1 / (1 + np.exp(-random.normal(6, 2, ROWS))),
        "logits": random.normal(0, 5, ROWS),
        "few": random.integers(0, 101, ROWS) / 100,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _distributions())
def test_half_widths_of_auc_are_small(name: str, dtype: type) -> None:
    """AUC is known to ± 1e-5 at any number of rows, and the exact value is inside.

    The expected half-width at infinitely many rows is half the chance that a positive and a negative share a bin, which
    Σ p·n / 2PN estimates without bias at any size. Scores that are equal share a bin too, and cost nothing.
    """
    score = _distributions()[name].astype(dtype)
    if name == "rare":
        assert np.mean(score < 0.01) > 0.998
    label = (np.random.default_rng(3).random(ROWS) < 0.4).astype(np.uint8)
    table = pa.table({"label": label, "score": score})
    approx, exact = (evaluate(table, score="score", approx=flag) for flag in (True, False))
    for metric in ("roc_auc", "average_precision", "pr_auc", "max_informedness"):
        lower, upper = approx.interval(metric)
        assert lower - 1e-15 <= exact.value(metric) <= upper + 1e-15
    lower, upper = approx.interval("roc_auc")
    assert (upper - lower) / 2 <= 1e-5
    if name == "few":
        assert approx.value("roc_auc") == exact.value("roc_auc")
        return
    builder = HistogramSpec("score", {np.float32: "f4", np.float64: "f8"}[dtype]).builder(Budget(), 1)
    builder.update(Batch(label, None, {"score": pa.array(score)}))
    neg, pos = (column.astype(float) for column in builder.state().table[:2])
    _, ties = np.unique(score, return_counts=True)
    equal = float((ties * (ties - 1.0)).sum()) / ROWS**2 / 2
    assert (neg * pos).sum() / (2 * neg.sum() * pos.sum()) - equal <= 1e-5


def test_the_grid_is_small_and_monotone() -> None:
    """A state takes 22 MiB at most, and higher scores never fall into lower bins."""
    special = [
        -np.inf,
        -1e300,
        -3e38,
        -1.0,
        -1e-300,
        -0.0,
        0.0,
        5e-324,
        1e-40,
        0.25,
        0.5,
        1.0,
        1.5,
        3e38,
        1e300,
        np.inf,
    ]
    random = np.random.default_rng(2)
    near = [np.nextafter(v, to) for v in (0.5, 1.0, 2.0, 0.0) for to in (-9, 9)]
    scores = np.sort(np.concatenate([special, near, random.normal(0, 5, 3000), random.random(3000)]))
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            values = scores.astype(dtype)
        bins = np.array([grid._bin(x + dtype(0), grid.FIRSTS, grid.SHIFTS) for x in values])
        assert np.all(np.diff(bins) >= 0)
        assert bins.min() >= 0
        assert bins.max() < grid.BINS
    full = np.ones((3, grid.BINS), np.int64)
    assert sys.getsizeof(ScoreHistogram.of(HistogramSpec("score"), full, *np.empty((2, 0, 2)))) <= 22 << 20


def test_edges_enclose_the_scores_of_a_bin() -> None:
    """Edges ascend, no score lies below its bin's edge, and none reaches the next; one half has a separate bin."""
    every = grid.edges(np.arange(grid.BINS))
    assert (np.diff(every) >= 0).all()
    random = np.random.default_rng(0)
    corners = [np.nextafter(np.float32(x), np.float32([-9, x, 9])) for x in (0, 0.25, 0.5, 0.75, 1, 2)]
    scores = np.concatenate([*corners, random.random(2000), random.normal(0, 8, 2000)]).astype(np.float32)
    bins = np.array([grid._bin(score, grid.FIRSTS, grid.SHIFTS) for score in scores])
    assert (every[bins] <= scores).all()
    assert ((scores < every[bins + 1]) | (scores == 1)).all()  # the last of the mirrored bins holds one, and one alone
    table = pa.table({"label": [0, 1, 0, 1], "score": [0.3, 0.3 + 1e-9, 0.5, 0.5 + 1e-9]})
    assert evaluate(table, score="score", approx=True).confusion(0.4).to_ccw() == (1, 1, 1, 1)
    assert np.array_equal(grid.edges(bins), every[bins])  # in any order


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(-900, 900)), max_size=200))
def test_the_parts_of_a_sum_are_exact(terms) -> None:
    """Their sum is that of all values, correctly rounded, however far apart the values are."""
    values = np.array([math.ldexp(*term) for term in terms], np.float64)
    assert math.fsum(exact_parts(values)) == math.fsum(values)


HUGE = 10**12
RANKING = [entry.metric for entry in entries("ranking") if entry.name in {"roc_auc", *curve_truth([])}]
NONE = {"nan_rows": [0, 0], "nan_weights": [0.0, 0.0]}
HUGE_COUNTS = st.one_of(st.integers(0, 3), st.integers(0, HUGE), st.just(HUGE))


def scores(cells: list[tuple[int, int]], kind: str = "f4", first: int = 0) -> ScoreCounts:
    """A state of (positives, negatives) at descending scores."""
    step = 1 << (20 if kind == "f4" else 50)
    keys = np.array([(1 << (30 if kind == "f4" else 62)) + step * (first + i) for i in range(len(cells))], np.uint64)
    pos, neg = np.array(cells, np.int64).reshape(-1, 2).T
    spec = ScoreSpec("s", kind)
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in (keys, neg.copy(), pos.copy())], schema=spec.schema)
    return spec.from_arrow(NONE, [batch], Budget())


@pytest.mark.parametrize("kind", ["f4", "f8"])
@settings(max_examples=40)
@given(cells=st.lists(st.tuples(HUGE_COUNTS, HUGE_COUNTS).filter(any), min_size=1, max_size=40), cut=st.integers(0, 40))
def test_huge_counts_are_exact(kind: str, cells: list[tuple[int, int]], cut: int) -> None:
    """Metrics equal their fractions, and are the same bits however the state is cut into shards and states."""
    state = scores(cells, kind)
    exact = [(Fraction(p), Fraction(n)) for p, n in cells]
    truth: dict[str, Fraction | None] = {"roc_auc": groups_auc(exact), **curve_truth(exact)}
    values = {metric.name: compute(state, metric) for metric in RANKING}
    for name, expected in truth.items():
        found = values[name].value
        if expected is None:
            assert math.isnan(found)
        elif name == "roc_auc":
            assert found == float(expected)
        else:
            assert math.isclose(
                found, float(expected), rel_tol=1e-15 if name in {"max_informedness", "ks"} else 4e-16, abs_tol=2e-16
            )
    halves = scores(cells[:cut], kind).merge(scores(cells[cut:], kind, first=cut))
    for items in (1, 3, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeyedCounts.intervals, "__defaults__", (items,))
            again = {metric.name: compute(halves, metric) for metric in RANKING}
        assert json.dumps([r.to_dict() for r in again.values()]) == json.dumps([r.to_dict() for r in values.values()])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2000)).filter(any), min_size=1, max_size=8),
    st.sampled_from([0.001, 0.0010000000000000002, 0.0001234567890123457]),
    st.integers(-2, 2),
)
def test_a_precision_of_any_number_of_digits_is_compared_exactly(
    cells: list[tuple[int, int]], precision: float, ulps: int
) -> None:
    """Decimals whose denominator leaves a word, next to a precision that is reached; T and F are counts."""
    cells = [(1, 998), *cells, (1, 1001)]
    asked = precision + ulps * math.ulp(precision)
    state = scores(cells)
    [part] = (part for shard in state.shards() for part in state.parts(shard, Budget()))
    at, *counts = deepest(part, asked)
    sums = [tuple(int(side[: i + 1].sum()) for side in (part.p, part.n)) for i in range(part.p.size)]
    enough = [i for i, (p, n) in enumerate(sums) if p and Fraction(p, p + n) >= Fraction(str(asked))]
    assert at == max(enough, key=lambda i: (sums[i][0], -i))
    assert tuple(counts) == sums[at]
    assert {*map(type, counts)} == {int}


@settings(max_examples=20)
@given(st.lists(st.tuples(HUGE_COUNTS, HUGE_COUNTS).filter(any), min_size=1, max_size=40))
def test_a_huge_histogram_is_as_exact(cells: list[tuple[int, int]]) -> None:
    """AUC of a histogram of single scores equals that of the exact state to the last bit."""
    spec = HistogramSpec("s")
    pos, neg = np.array(cells, np.int64).T
    bins = 1000 + np.arange(len(cells))[::-1]
    only = ~edges(bins).view(np.int64)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.ascontiguousarray(c)) for c in (bins, neg, pos, only)], schema=spec.schema
    )
    state = spec.from_arrow(NONE, [batch], Budget())
    one, other = (compute(s, RocAuc()).to_dict() for s in (state, scores(cells)))
    assert one == other


@given(
    st.lists(st.tuples(st.integers(1, HUGE), st.integers(1, 10**6), st.floats(0, 1)), min_size=1, max_size=30),
    st.integers(0, 30),
)
@example([(HUGE - i, 10**6, 0.1 * i) for i in range(10)], 4)
@example([(1, 165, 0.0), (HUGE - 1, 14_085, 1.0)], 0)  # the product of size, clusters and share is rounded up
def test_huge_clusters_are_exact(rows: list[tuple[int, int, float]], cut: int) -> None:
    """AUL and ROC AUC by size of clusters with 10¹² points equal their fractions, however the table is cut."""
    table = SizeTable.union(
        [SizeTable(*(np.array([v]) for v in (s, c, min(s * c, int(s * c * share))))) for s, c, share in rows]
    )
    columns = list(zip(*(column.tolist() for column in (table.size, table.clusters, table.positives)), strict=True))
    groups = [(Fraction(p), Fraction(s * c - p)) for s, c, p in reversed(columns)]
    expected = groups_auc(groups)
    assert (math.isnan(size_roc_auc(table)) and expected is None) or size_roc_auc(table) == float(expected or 0)
    area = height = h = Fraction(0)
    for s, c, p in reversed(columns):
        area += s * (c * h + Fraction(p, c) * c * (c + 1) / 2)
        h += p
        height += s * c if s > 1 else p
    points = sum(s * c for s, c, _ in columns)
    assert aul(table) == (float(area / (points * height)) if height else 0.0)
    parts = [
        SizeTable(*(column[part] for column in (table.size, table.clusters, table.positives)))
        for part in (slice(cut), slice(cut, None))
    ]
    assert aul(SizeTable.union(parts)) == aul(table)


@settings(max_examples=30)
@given(cells=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(any), min_size=1, max_size=30))
def test_calibration_of_many_times_the_rows(cells: list[tuple[int, int]]) -> None:
    """Every row repeated ten thousand million times: the sums leave 64 bits, and the values keep theirs."""
    few = scores(cells, first=8)
    many = scores([(p * 10**10, n * 10**10) for p, n in cells], first=8)
    for name in ("brier_score", "log_loss", "ece", "mce", "ecce_mad", "ecce_range", "corp.mcb", "corp.dsc"):
        [metric] = [entry.metric for entry in entries(name)]
        assert compute(many, metric).value == compute(few, metric).value, name


@pytest.mark.parametrize("most", [2, 1 << 20, 1 << 40])
def test_sums_of_delong_are_exact_whether_counts_fit_into_32_bits(most: int) -> None:
    """Groups are summed some hundred at a time: small ones, large ones, and large ones among small ones."""
    rng = np.random.default_rng(most)
    neg, pos = np.where(rng.random((2, 1500)) < 0.99, rng.integers(0, 2, (2, 1500)), rng.integers(0, most, (2, 1500)))
    above, total = (5, 7), (int(neg.sum()) + 5, int(pos.sum()) + 7)
    drops = [max(0, (2 * size).bit_length() - 32) for size in total]
    expected, false, true = [0, 0, 0, 0], above[0], total[1] - above[1]
    for n, p in zip(neg.tolist(), pos.tolist(), strict=True):
        a, b = (2 * false + n) >> drops[0], (2 * true - p) >> drops[1]
        expected = [x + y for x, y in zip(expected, (p * a, p * a * a, n * b, n * b * b), strict=True)]
        false, true = false + n, true - p
    words = delong_counts(neg, pos, *above, total[1], *drops).tolist()
    assert [high << 64 | low for high, low in zip(words[::2], words[1::2], strict=True)] == expected
