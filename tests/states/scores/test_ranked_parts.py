"""Areas summed while rows are sorted or tallied, against those of the groups of equal score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.kernels.keyed.ranked import rank_sorted
from streameval.metrics.finalize import partials
from streameval.metrics.scores.ranking import AveragePrecision, RocAuc
from streameval.states.keyed import grouping
from streameval.states.keyed.grouping import Counts
from streameval.states.scores.counts import ScoreSpec, fold_arrays
from streameval.states.scores.parts import RankedPart

METRICS = RocAuc(), AveragePrecision()
KINDS = "f4", "f8", "i4", "i8", "u8"


def sums(state, ranked):
    """Twice the pairs won and the precisions of all shards, from `ranked_parts` or from the groups."""
    found = []
    for shard in state.shards():
        parts = state.ranked_parts(shard) if ranked else state.parts(shard)
        found += [[metric.partial(part) for metric in METRICS] for part in parts]
    return sum(won for (won, _), _ in found), sum(bounds.lower for _, bounds in found)


def folded(rng, kind, rows, distinct, parts, halves):
    """A state of several folds; scores of both signs if `halves`."""
    scores = rng.beta(0.3, 2, distinct) * (rng.choice([-1, 1], distinct) if halves else 1)
    if kind[0] in "iu":
        scores = np.abs(scores) * 2**33 if kind == "u8" else scores * 1000
    scores = rng.choice(scores, rows).astype(kind)
    label = (rng.random(rows) < 0.2).astype(np.uint8)
    first, *others = (fold_arrays(label[i::parts], scores[i::parts]) for i in range(parts))
    for other in others:
        first = first.merge(other)
    return first


@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(KINDS),
    rows=st.sampled_from([1, 2, 300, 5000, 40_000]),
    distinct=st.sampled_from([1, 2, 50, 4000, 10**6]),
    parts=st.integers(1, 3),
    halves=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_areas_are_those_of_the_groups(seed, kind, rows, distinct, parts, halves):
    """Bit for bit, whatever the scores, also where repeated scores are stored with counts."""
    state = folded(np.random.default_rng(seed), kind, rows, distinct, parts, halves)
    assert sums(state, ranked=True) == sums(state, ranked=False)


@pytest.mark.parametrize("most", [0, 20, 300, 1 << 14])
@pytest.mark.parametrize("rows", [100, 3000, 30_000])
@pytest.mark.parametrize("distinct", [60, 9000])
def test_short_words_are_sorted_or_tallied(monkeypatch, most, rows, distinct):
    """Whatever number of items a bucket must have to be tallied, all buckets or some, and however many are sorted."""
    monkeypatch.setattr(grouping, "_TALLIED", most)
    for halves in (False, True):
        state = folded(np.random.default_rng(most + rows), "f4", rows, distinct, 2, halves)
        assert sums(state, ranked=True) == sums(state, ranked=False)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_no_group_is_stored(kind):
    """Metrics that only rank take their partials from sums if no score is repeated."""
    state = folded(np.random.default_rng(1), kind, 5000, 10**6, 2, halves=True)
    assert all(isinstance(part, RankedPart) for shard in state.shards() for part in state.ranked_parts(shard))
    assert not any(isinstance(rows, Counts) for shard in state.shards() for rows in state.keyed.rows_in(shard))
    assert partials(state, state.shards()[0], METRICS)


@pytest.mark.parametrize("rows", [0, 1, 2, 512, 513, 514, 3000])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("keys", [1, 40, 10**6])
def test_sums_of_sorted_words(rows, dtype, keys):
    """As group by group, also at the ends of batches, and for rows below others."""
    rng = np.random.default_rng(rows)
    words = np.sort(rng.integers(0, keys, rows).astype(dtype) << dtype(1) | (rng.random(rows) < 0.3).astype(dtype))
    above, found, negatives = np.array([9, 4]), np.zeros(4, np.uint64), 5 + rows
    rank_sorted(words, above, 2 * negatives, found)
    won, share, false, true = 0, 0, 5, 4
    for key in np.unique(words >> dtype(1)).tolist():
        labels = words[words >> dtype(1) == key] & dtype(1)
        pos = int(labels.sum())
        neg = labels.size - pos
        won += pos * (2 * (negatives - false) - neg)
        false, true = false + neg, true + pos
        share += pos * int(true / (true + false) * 2.0**62)
    assert above.tolist() == [false + true, true]
    assert [(int(high) << 32) + int(low) for high, low in found.reshape(2, 2)] == [won, share]


def test_many_positives_are_counted_in_parts(monkeypatch):
    """Sums of halves hold fewer than 2³¹ positives; with more, the groups are stored."""
    monkeypatch.setattr("streameval.states.scores.counts.HELD", 100)
    state = folded(np.random.default_rng(3), "f8", 5000, 10**6, 1, halves=False)
    assert not any(isinstance(part, RankedPart) for shard in state.shards() for part in state.ranked_parts(shard))
    assert state.spec == ScoreSpec("y_score", "f8")
