"""Buckets of 16-bit words with weights, counted where they lie or gathered; plain words; pieces of few scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.states.keyed.grouping import LabelledWords, group_items, tally_bucket, weigh_buckets
from streameval.states.scores.counts import fold_arrays

LARGE = 1 << 15
ROWS = 3 * LARGE // 2
COLUMNS = "keys", "neg", "pos", "neg_weight", "pos_weight"


def folded(seed, parts, distinct, spread):
    """A state of `parts` folds, most of its rows in a few buckets, with weights of very different sizes."""
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random(ROWS) < 0.9, 0.75 + rng.random(ROWS) / 512, rng.random(ROWS))
    scores = rng.choice(scores, distinct)[rng.integers(0, distinct, ROWS)].astype(np.float32)
    weights, label = 10.0 ** rng.uniform(-spread, spread, ROWS), (rng.random(ROWS) < 0.3).astype(np.uint8)
    first, *others = (fold_arrays(label[i::parts], scores[i::parts], weights[i::parts]) for i in range(parts))
    for other in others:
        first = first.merge(other)
    return first.keyed


def same(one, two):
    """Whether two groups of counts have the same columns."""
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in COLUMNS)


@given(st.integers(0, 99), st.integers(1, 4), st.sampled_from([20_000, ROWS]), st.sampled_from([0, 12]))
@settings(max_examples=12, deadline=None)
def test_large_bucket_is_weighed_as_it_is_tallied(seed, parts, distinct, spread):
    """The loop over addresses adds weights in the same order as the table of one bucket."""
    keyed = folded(seed, parts, distinct, spread)
    items = keyed.items[0::2] + keyed.items[1::2]
    large = np.flatnonzero(items > LARGE // 4).tolist()
    assert large
    for bucket in large:
        table = tally_bucket(bucket, keyed.pieces(bucket, 0), keyed.pieces(bucket, 1), weighted=True)
        places = keyed.places(bucket - 1, bucket + 1)
        assert same(weigh_buckets(places, 1, items[bucket : bucket + 1], np.array([bucket])), table)


@given(st.integers(0, 99), st.integers(1, 4), st.sampled_from([3, 20_000, ROWS]))
@settings(max_examples=6, deadline=None)
def test_rows_in_place_are_grouped_as_gathered_ones(seed, parts, distinct):
    """Small buckets and large ones; of a bucket that was gathered, the keys lack their upper half."""
    keyed = folded(seed, parts, distinct, 12)
    found = [one for interval in keyed.intervals() for one in keyed.grouped(interval, Budget(1 << 30))]
    buckets = np.flatnonzero(keyed.items[0::2] + keyed.items[1::2]).tolist()
    gathered = [
        (bucket, group_items(*(side.cut(0, 1) for side in keyed.gather(bucket, bucket + 1)))) for bucket in buckets
    ]
    for name in COLUMNS:
        due = [
            (one.keys | np.uint64(bucket << 16)) if name == "keys" else getattr(one, name) for bucket, one in gathered
        ]
        np.testing.assert_array_equal(np.concatenate([getattr(one, name) for one in found]), np.concatenate(due))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=6), st.integers(0, 20), st.booleans())
def test_stretches_are_counted_together(stretches, room, top):
    """As one by one, as many as there is room for, and at least one."""
    lost = int(top) << 63
    words = np.array([(8 * i + key) << 1 | key & 1 for i, keys in enumerate(stretches) for key in keys], np.uint64)
    bounds = np.cumsum([0, *map(len, stretches)])
    buckets = np.arange(len(stretches))

    def counted(room):
        return [*LabelledWords(words.copy(), bounds, buckets, lost).counts(room)]

    apart, together = counted(0), counted(room)
    assert len(apart) == len(stretches)
    for column in ("keys", "neg", "pos"):
        expected = np.concatenate([getattr(one, column) for one in apart])
        np.testing.assert_array_equal(np.concatenate([getattr(one, column) for one in together]), expected)
    firsts = [one.bucket for one in together]
    assert firsts[0] == 0
    for first, stop in zip(firsts, [*firsts[1:], len(stretches)], strict=True):
        assert stop == first + 1 or bounds[stop] - bounds[first] <= room
        assert not room or stop == len(stretches) or bounds[stop + 1] - bounds[first] > room


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 1.0])
@pytest.mark.parametrize("rows", [ROWS, 4 * ROWS])
@pytest.mark.parametrize("values", [1, 60])
def test_pieces_of_few_scores_are_stored_with_counts(kind, share, rows, values):
    """Among other pieces and alone, in a table and sorted: every row is counted once."""
    rng = np.random.default_rng(values)
    few = np.concatenate((0.3 + np.arange(values) / 1e4, [0.8, 0.9]))
    times = np.append(np.full(values, 90 / values), [9, 1]) / 100
    scores = np.where(rng.random(rows) < share, rng.choice(few, rows, p=times), rng.random(rows)).astype(kind)
    label = (rng.random(rows) < 0.3).astype(np.uint8)
    keyed = fold_arrays(label, scores).keyed
    if share == 1 or (values == 1 and share):
        assert keyed.items.sum() <= (1 - 0.8 * share) * rows
    found = [counts for interval in keyed.intervals() for counts in keyed.grouped(interval, Budget(1 << 30))]
    neg, pos = (np.concatenate([getattr(counts, name) for counts in found]) for name in ("neg", "pos"))
    _, inverse = np.unique(-scores, return_inverse=True)  # keys ascend from the best score
    for counts, of in ((neg, label == 0), (pos, label == 1)):
        np.testing.assert_array_equal(counts, np.bincount(inverse[of], minlength=inverse.max() + 1))
