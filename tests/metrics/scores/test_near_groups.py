"""Groups near thresholds: only their buckets are read, and how a state is cut changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import evaluate
from streameval.kernels.blocks.grid import codes
from streameval.metrics.finalize import combine, partials
from streameval.metrics.scores.sampling.cut_bins import GroupsNear
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.types import enclosing, rank_keys

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts

ROWS = 400
KINDS = ["f4", "f8", "i4", "i8", "u8", "d2"]


def numbers(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Scores of a type, of widely different sizes."""
    scores = rng.normal(size=ROWS) * 10.0 ** rng.integers(-3, 18, ROWS)
    if kind[0] == "f":
        return np.append(scores, [np.inf, -np.inf, 0.0, 0.5, 1.0]).astype(kind)
    limits = np.iinfo(kind if kind in ("i4", "u8") else np.int64)
    whole = [int(min(max(x, limits.min), limits.max)) for x in scores.tolist()]
    return np.array([*whole, limits.min, limits.max, 0, 1], limits.dtype)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
def test_buckets_of_a_range_hold_all_of_its_scores(kind: str, seed: int, i: int, j: int) -> None:
    """Whatever the type: large integers are read as rounded floats, decimals are divided."""
    values = numbers(kind, np.random.default_rng(seed))
    unit = 10.0 ** int(kind[1:]) if kind[0] == "d" else 1.0
    scores = values.astype(np.float64) / unit
    low, high = sorted([float(scores[i]), float(scores[j])])
    first, last = enclosing(low, high, kind)
    inside = values[(scores >= low) & (scores <= high)]
    assert ((first <= inside) & (inside <= last)).all()
    assert (np.diff(rank_keys(np.array([last, first]), kind).astype(object)) >= 0).all()
    state = fold_arrays(np.zeros(values.size, np.uint8), values)
    if kind[0] != "d":
        start, stop = state.between(low, high)
        read = sum(int(counts.neg.sum()) for counts in state.groups((start, stop)))
        assert read >= inside.size


def near(state: ScoreCounts, metric: GroupsNear, cuts: list[int]) -> list[list[float]]:
    """The groups of a state that is cut into shards at some buckets."""
    buckets = state.keyed.layout.buckets
    bounds = [0, *sorted(cuts), buckets]
    shards = [(a, b) for a, b in pairwise(bounds) if a < b]
    [found] = combine(state, [metric], [partials(state, shard, [metric]) for shard in shards])
    return [column.tolist() for column in found]


@settings(max_examples=60)
@given(
    st.sampled_from(["f4", "f8"]),
    st.booleans(),
    st.lists(st.integers(0, 1 << 16), max_size=4),
    st.integers(40, 56),
    st.integers(0, 99),
)
def test_the_cut_of_a_state_changes_no_group(kind: str, whole: bool, cuts: list[int], shift: int, seed: int) -> None:
    """A bucket may end within a cell: the groups of both sides are one, as if they had been read together."""
    rng = np.random.default_rng(seed)
    scores = (0.5 + rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 0, ROWS)).astype(kind)
    state = fold_arrays((rng.random(ROWS) < 0.4).astype(np.uint8), scores)
    prefix = np.sort(codes(scores.astype(np.float64)) >> np.uint64(shift)).tolist()
    spans = ((prefix[0], prefix[-1]),) if whole else ((prefix[20], prefix[50]), (prefix[300] + 1, prefix[390] + 1))
    metric = GroupsNear(shift, spans, (0.5,))
    once = near(state, metric, [])
    assert near(state, metric, cuts) == once
    inside = sum(any(a <= p <= b for a, b in spans) for p in prefix)
    assert sum(once[2]) == inside


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e9])
def test_histograms_without_groups_around_a_threshold_have_intervals_or_reasons(shift: float) -> None:
    """A bin of a histogram may be wider than the bins of the grid; its edge then lies in none of them."""
    rng = np.random.default_rng(3)
    label = rng.random(2000) < 0.3
    score = shift + label + rng.normal(size=2000)
    table = pa.table({"label": label, "score": score, "unit": rng.integers(0, 500, 2000)})
    found = evaluate(table, score="score", unit="unit", approx=True)
    assert all((result.stderr is None) == (result.ci_reason is not None) for result in found.results)
