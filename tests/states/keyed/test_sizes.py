"""Clusters counted by size, straight from segments: the same table as by sorting, whatever the ids."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.kernels.keyed import sizes as kernels
from streameval.kernels.keys import MIX, unmix
from streameval.states.clusters import counts, sizes
from streameval.states.clusters.counts import ClusterCounts, ClusterSpec, id_type
from streameval.states.clusters.sizes import SizeTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import id_codes, mixed
from streameval.states.keyed.layout import NO_WEIGHTS
from streameval.states.protocol import Batch

ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 2**62, -1, -(2**63)]), st.integers(0, 1)), min_size=1, max_size=60)


def folded(ids: pa.Array, label: np.ndarray, capacity: int) -> ClusterCounts:
    """The state of some rows."""
    builder = ClusterSpec("cluster", id_type(ids.type)).builder(Budget(), capacity)
    builder.update(Batch(label, None, {"cluster": ids}))
    return builder.state()


def table_of(state: ClusterCounts) -> dict[int, tuple[int, int]]:
    """Clusters and positives by size."""
    found = SizeTable.union(table for shard in state.shards() for table in state.parts(shard))
    columns = (found.clusters.tolist(), found.positives.tolist())
    return dict(zip(found.size.tolist(), zip(*columns, strict=True), strict=True))


def expected(ids: list[object], label: list[int]) -> dict[int, tuple[int, int]]:
    """The same from a Counter."""
    sizes, positives = Counter(ids), Counter(i for i, one in zip(ids, label, strict=True) if one)
    return {
        size: (sum(s == size for s in sizes.values()), sum(positives[i] for i, s in sizes.items() if s == size))
        for size in set(sizes.values())
    }


def impure_of(state: ClusterCounts) -> list[tuple[int, int, int]]:
    """Id, negatives and positives of the clusters of several rows that are not all positive; 0 for hashed ids."""
    blocks = [block for shard in state.shards() for block in state.impure(shard)[1]]
    return sorted(
        (0 if block.rest.shape[1] else number, neg, pos)
        for block in blocks
        for number, neg, pos in zip(
            unmix(block.keys).view(np.int64).tolist(), block.neg.tolist(), block.pos.tolist(), strict=True
        )
    )


def impure(ids: list[object], label: list[int]) -> list[tuple[object, int, int]]:
    """The same from a Counter."""
    sizes, positives = Counter(ids), Counter(i for i, one in zip(ids, label, strict=True) if one)
    return sorted(
        (0 if isinstance(i, str) else i, s - positives[i], positives[i])
        for i, s in sizes.items()
        if s > max(1, positives[i])
    )


@given(ROWS, st.booleans(), st.integers(1, 70), st.integers(1, 80), st.integers(2, 9))
def test_clusters_by_size(rows: list[tuple[int, int]], text: bool, capacity: int, largest: int, small: int) -> None:
    """Ids of one word and of two, in any number of segments, some of them counted, in buckets of any size."""
    ids, label = [str(row[0]) if text else row[0] for row in rows], [row[1] for row in rows]
    entries = pa.array(ids).dictionary_encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "LARGEST", largest)
        patch.setattr(counts, "_SMALL", small)
        state = folded(pa.array(ids), np.array(label, np.uint8), capacity)
        both = state.merge(folded(entries, np.array(label, np.uint8), 1 << 10))
        assert table_of(state) == expected(ids, label)
        assert table_of(both) == expected(2 * ids, 2 * label)
        assert impure_of(state) == impure(ids, label)
        assert impure_of(both) == impure(2 * ids, 2 * label)


def test_ids_that_collide_are_sorted() -> None:
    """Ids whose hashes share their upper bits are left to sorting, and the buckets after theirs are not."""
    order = 1 << 64
    spread = pow(int(kernels._SPREAD), -1, order)
    number = np.arange(1 << 21, dtype=np.uint64)
    mixed = number * np.uint64(spread)  # whose hash is the number
    key = mixed ^ (mixed >> np.uint64(32))
    ours = key[(key & np.uint64(1) == 1) & (key >> np.uint64(54) == 5)]
    assert ours.size > 500
    words = (ours >> np.uint64(1)) | np.uint64(0)
    ids = np.concatenate((words, words, np.arange(5000, dtype=np.uint64))) * np.uint64(pow(MIX, -1, order))
    label = (np.arange(ids.size) % 3 == 0).astype(np.uint8)
    state = folded(pa.array(ids.view(np.int64)), label, 1 << 14)
    [shard] = state.shards()
    places = state.keyed.places(*shard)
    items = state.keyed.items[2 * shard[0] : 2 * shard[1]]
    stop, *_ = kernels.tally_clusters(places.at, items, 1, 0, *np.zeros((2, 10), np.int64))
    assert stop < shard[1] - shard[0]
    assert table_of(state) == expected(ids.tolist(), label.tolist())
    assert impure_of(state) == impure(ids.view(np.int64).tolist(), label.tolist())


@pytest.mark.parametrize("rows", [(1 << 31, 1 << 31), ((1 << 32) - 8, 0), ((1 << 32) - 7, 0), (1 << 40, 1 << 33)])
def test_clusters_of_billions_of_rows(rows: tuple[int, int]) -> None:
    """Rows of a label that fill 32 bits, and those that do not, some in one item and some in another segment."""
    spec, state = ClusterSpec("cluster"), ClusterSpec("cluster").empty()
    for times in rows:
        ids, label = np.array([5, 5, 6], np.uint64), np.array([0, 1, 1])
        words, counted = mixed(ids), np.array([times, 3, 2])
        builder = SegmentBuilder(spec.layout, Budget(), 8, counted=True)
        codes = np.array([*map(id_codes, words, label)])
        builder.add_items(words, codes, np.empty((3, 0), np.uint64), counted, NO_WEIGHTS)
        state = state.merge(ClusterCounts(spec, KeyedCounts.built(builder)))
    assert table_of(state) == {sum(rows) + 6: (1, 6), 4: (1, 4)}
    assert impure_of(state) == [(5, sum(rows), 6)]


def test_many_impure_clusters() -> None:
    """More than there was room for at first, in buckets of either half of the keys."""
    ids = np.repeat(np.arange(-3000, 3000), 3)
    label = (np.arange(ids.size) % 5 == 0).astype(np.uint8)
    assert impure_of(folded(pa.array(ids), label, 1 << 14)) == impure(ids.tolist(), label.tolist())


@given(st.sampled_from([(40, 1), (1, 40), (40, 40)]), st.booleans())
@settings(max_examples=6)
def test_buckets_that_repeat_and_buckets_of_singletons(repeats: tuple[int, int], text: bool) -> None:
    """Whether the last bucket repeated its clusters decides how the next one is counted, never what is found."""
    numbers = np.arange(8000)
    ids = np.repeat(numbers, np.array(repeats)[(numbers.astype(np.uint64) * np.uint64(MIX) >> np.uint64(54)) & 1])
    label = (np.arange(ids.size) % 7 == 0).astype(np.uint8)
    given_ids = ids.astype(str).tolist() if text else ids.tolist()
    state = folded(pa.array(given_ids), label, 1 << 16)
    assert table_of(state) == expected(given_ids, label.tolist())
    assert impure_of(state) == impure(given_ids, label.tolist())
