"""Finalizers on states of any size: counts of 10¹² a cell, where products of int64 would overflow.

Such states are made without their rows, from the tables they are stored as.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from truth import curve_truth, groups_auc

from streameval.budget import Budget
from streameval.kernels.histogram import edges
from streameval.metrics.catalogue import entries
from streameval.metrics.clusters.lift import aul, size_roc_auc
from streameval.metrics.finalize import compute
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.sums import deepest
from streameval.states.clusters.sizes import SizeTable
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.scores.counts import ScoreCounts, ScoreSpec
from streameval.states.scores.histogram import HistogramSpec

HUGE = 10**12
RANKING = [entry.metric for entry in entries("ranking") if entry.name in {"roc_auc", *curve_truth([])}]
NONE = {"nan_rows": [0, 0], "nan_weights": [0.0, 0.0]}
COUNTS = st.one_of(st.integers(0, 3), st.integers(0, HUGE), st.just(HUGE))


def scores(cells: list[tuple[int, int]], kind: str = "f4", first: int = 0) -> ScoreCounts:
    """A state of (positives, negatives) at descending scores."""
    step = 1 << (20 if kind == "f4" else 50)
    keys = np.array([(1 << (30 if kind == "f4" else 62)) + step * (first + i) for i in range(len(cells))], np.uint64)
    pos, neg = np.array(cells, np.int64).reshape(-1, 2).T
    spec = ScoreSpec("s", kind)
    batch = pa.RecordBatch.from_arrays([pa.array(c) for c in (keys, neg.copy(), pos.copy())], schema=spec.schema)
    return spec.from_arrow(NONE, [spec.packing.pack(batch)], Budget())


@pytest.mark.parametrize("kind", ["f4", "f8"])
@settings(max_examples=40)
@given(cells=st.lists(st.tuples(COUNTS, COUNTS).filter(any), min_size=1, max_size=40), cut=st.integers(0, 40))
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
@given(st.lists(st.tuples(COUNTS, COUNTS).filter(any), min_size=1, max_size=40))
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


@settings(max_examples=60)
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
