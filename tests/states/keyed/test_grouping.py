"""Buckets of 16-bit words with weights: counted where they lie, as they are when gathered, to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.states.keyed.counts import DENSE
from streameval.states.keyed.grouping import tallied, weighed
from streameval.states.scores.counts import fold_arrays

ROWS = 6 * DENSE
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
    large = np.flatnonzero(items > DENSE).tolist()
    assert large
    for bucket in large:
        table = tallied(bucket, keyed.pieces(bucket, 0), keyed.pieces(bucket, 1), weighted=True)
        places = keyed.places(bucket - 1, bucket + 1)
        assert same(weighed(places.at, places.weights, 1, bucket), table)


@given(st.integers(0, 99), st.integers(1, 4), st.sampled_from([3, 20_000, ROWS]))
@settings(max_examples=6, deadline=None)
def test_interval_with_large_buckets_is_grouped_as_when_gathered(seed, parts, distinct):
    """Rows are counted where they lie, small buckets and large ones, in the stretches in which they are gathered."""
    keyed = folded(seed, parts, distinct, 12)
    for start, stop in keyed.intervals():
        items = keyed.items_in(start, stop)
        gathered = list(keyed._gathered(start, stop, items[0::2] + items[1::2]))
        found = list(keyed.grouped((start, stop), Budget(1 << 30)))
        assert len(found) == len(gathered)
        assert all(map(same, found, gathered))
