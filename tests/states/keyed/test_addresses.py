"""Addresses of the items of an interval of buckets."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from streameval.budget import Budget
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import Layout, Segment, SegmentAddresses

BUCKETS = 8


def keyed(rng: np.random.Generator, budget: Budget) -> KeyedCounts:
    """Segments with some of the codes, and one without any."""
    segments = []
    for several in (False, True, True, False):
        sizes = rng.integers(1, 4, 2 * BUCKETS)
        codes = np.flatnonzero(rng.random(2 * BUCKETS) < 0.5).astype(np.uint32)
        starts = np.concatenate(([0], np.cumsum(sizes[codes])))
        words, rest = (rng.integers(0, 1 << 60, shape).astype(np.uint64) for shape in (starts[-1], (starts[-1], 1)))
        counts = np.ones(starts[-1] * several, np.int64)
        rows = np.diff(starts) if several else None
        segments.append(Segment.held(budget, codes, starts, rows, None, words, rest, counts))
    none = np.empty(0, np.uint64)
    segments.append(Segment.held(budget, none[:0].astype(np.uint32), np.zeros(1, np.int64), None, None, none))
    return KeyedCounts(Layout(BUCKETS, 64, words=2), tuple(segments))


def words_at(address: int, start: int, stop: int) -> list[int]:
    """The words `start` to `stop` of the array at an address."""
    return list((ctypes.c_uint64 * (stop - start)).from_address(address + 8 * start)) if start < stop else []


def words_of(places: SegmentAddresses, code: int) -> list[list[int]]:
    """First and further words of the items of a code, counted from the first one, segment by segment."""
    starts, columns = places.at.starts, (places.at.words, places.at.rest)
    ends = [(r, *starts[r, code : code + 2].tolist()) for r in range(len(starts))]
    return [[word for r, a, b in ends for word in words_at(int(at[r]), a, b)] for at in columns]


def stored(rows: KeyedCounts, code: int) -> list[list[int]]:
    """The same, read from the segments."""
    parts = list(rows.pieces(code >> 1, code & 1))
    return [[word for part in parts for word in part[c].ravel().tolist()] for c in (0, 1)]


@pytest.mark.parametrize("limit", [1 << 20, 1])
def test_addresses_lead_to_the_items_of_every_code(limit: int) -> None:
    """Whether segments are in memory or spilled, and whether all buckets are indexed or only those with items."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        budget = Budget(limit)
        rows = keyed(rng, budget)
        for start, stop in ((0, BUCKETS), (2, 5), (7, 8)):
            places = rows.places(start, stop)
            assert [words_of(places, k) for k in range(2 * (stop - start))] == [
                stored(rows, code) for code in range(2 * start, 2 * stop)
            ]
            buckets, items, places = rows.occupied(start, stop)
            assert items.sum() == rows.items_in(start, stop).sum()
            codes = (2 * buckets[:, np.newaxis] + np.arange(2)).ravel().tolist()
            assert [words_of(places, k) for k in range(len(codes))] == [stored(rows, code) for code in codes]
