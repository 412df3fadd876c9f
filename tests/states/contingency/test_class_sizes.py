"""Rows of each class: counted small, in a table, or not at all, they are the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency import class_sizes
from streameval.states.keyed.layout import Layout

IDS = st.lists(st.one_of(st.integers(0, 40), st.integers(2**40, 2**40 + 60), st.just(2**64 - 1)), max_size=120)


@given(st.lists(IDS, max_size=4), st.integers(1, 80), st.sampled_from([1, 16, 1 << 16]))
def test_every_way_of_counting_classes_is_exact(batches: list[list[int]], capacity: int, cached: int) -> None:
    """Tables that grow, fill or are given up early, with small integers and without, find the rows of a Counter."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_FIRST", 4), ("_CACHED", cached), ("_SAMPLED", 3)):
            patch.setattr(class_sizes, name, value)
        rows = class_sizes.ClassRows(Layout(ID_BUCKETS, 64), Budget(), capacity)
        for ids in batches:
            rows.add(np.array(ids, np.uint64), np.empty((len(ids), 0), np.uint64))
        keyed = rows.finish()
    found: Counter[int] = Counter()
    for counts in keyed.grouped((0, ID_BUCKETS)):
        found.update(dict(zip(unmix(counts.keys).tolist(), counts.neg.tolist(), strict=True)))
    assert found == Counter(key for ids in batches for key in ids)


def test_distinct_classes_are_given_up_before_the_largest_table_fills() -> None:
    """Classes that rarely repeat keep one word per row; a thousand classes keep a thousand counts."""
    rng = np.random.default_rng(3)
    for classes, items in ((1 << 40, 200_000), (1000, 1000)):
        ids = rng.integers(0, classes, 200_000).astype(np.uint64) * np.uint64(1 << 20) + np.uint64(1 << 40)
        rows = class_sizes.ClassRows(Layout(ID_BUCKETS, 64), Budget(), 1 << 20)
        for part in np.array_split(ids, 4):
            rows.add(part, np.empty((part.size, 0), np.uint64))
        keyed = rows.finish()
        plain = sum(int(segment.rows.sum()) for segment in keyed.segments if segment.counts is None)
        assert (plain > ids.size // 2) == (items == ids.size)
        assert keyed.items.sum() == items
        assert keyed.rows.sum() == ids.size


def test_a_sample_tells_that_classes_hardly_repeat() -> None:
    """Such classes are kept uncounted from the first row on, others are counted, and both have all their rows."""
    rng = np.random.default_rng(4)
    for classes, counted in ((1 << 40, False), (5000, True)):
        ids = rng.integers(0, classes, 20_000).astype(np.uint64) * np.uint64(1 << 20) + np.uint64(1 << 40)
        rows = class_sizes.ClassRows(Layout(ID_BUCKETS, 64), Budget(), 1 << 20)
        rows.add(ids, np.empty((ids.size, 0), np.uint64))
        keyed = rows.finish()
        assert keyed.counted is counted
        assert keyed.rows.sum() == ids.size
        assert keyed.items.sum() == (np.unique(ids).size if counted else ids.size)
