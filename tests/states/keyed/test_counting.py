"""Rows become counts: hot keys, pairs of codes, runs of equal keys and sorted words are counted once each."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.kernels.jit import jit
from streameval.kernels.keyed import sizes as kernels
from streameval.kernels.keyed.sorting import DIGIT, sort_bucket
from streameval.kernels.keys import MIX, unmix
from streameval.states.cluster_counts import ClusterCounts, ClusterSpec
from streameval.states.cluster_sizes import SizeTable
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed import hot
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import compact, group_items
from streameval.states.keyed.hot import run_starts
from streameval.states.keyed.ids import id_codes, id_type, mixed
from streameval.states.keyed.layout import NO_WEIGHTS
from streameval.states.protocol import Batch


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([*range(9), None]), st.integers(0, 1))),
    st.integers(1, 4),
    st.booleans(),
)
def test_pairs_of_codes_are_counted_once(rows: list[tuple[Any, ...]], bits: int, labelled: bool) -> None:
    """Items of two codes, or of a code and a label, have all rows, whether or not all pairs have a slot."""
    kinds = pa.string(), pa.int64()
    arrays = [pa.array([row[i] for row in rows], kind).dictionary_encode() for i, kind in enumerate(kinds)]
    label = np.array([row[2] for row in rows], np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "_TABLE_BITS", bits)
        patch.setattr(hot, "_DISTINCT", 1)
        items, counts, labels = hot.by_code(arrays[:1], label) if labelled else hot.by_code(arrays)
    columns = [*(array.to_pylist() for array in items), *([labels.tolist()] if labelled else [])]
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, count in zip(*columns, counts.tolist(), strict=True):
        found[tuple(row)] += count
    assert found == Counter((row[0], row[2]) if labelled else row[:2] for row in rows)


def test_heavy_tails_take_little_room() -> None:
    """Of Zipf's law with exponent 1.5, and of a thousand clusters, most rows are never partitioned."""
    rng = np.random.default_rng(7)
    for ids, most in ((rng.zipf(1.5, 1 << 18), 0.4), (rng.integers(0, 1000, 1 << 18), 0.1)):
        builder = ClusterSpec("cluster").builder(Budget(), 1 << 20)
        label = (ids & 1).astype(np.uint8)
        for part in np.array_split(np.arange(ids.size), 5):
            builder.update(Batch(label[part], None, {"cluster": pa.array(ids[part])}))
        state = builder.state()
        assert state.keyed.items.sum() < most * ids.size
        _, inverse = np.unique(ids, return_inverse=True)
        sizes, positives = np.bincount(inverse), np.bincount(inverse, label).astype(np.int64)
        tables = SizeTable.union(table for shard in state.shards() for table in state.parts(shard))
        expected = SizeTable.of(sizes, positives)
        for name in ("size", "clusters", "positives"):
            assert np.array_equal(getattr(tables, name), getattr(expected, name))


IDS = {
    "signed": lambda ids: pa.array(ids - 3, pa.int64()),
    "hash": lambda ids: pa.array([f"id {i}" for i in ids.tolist()]),
}


def sorted_ids(rng, rows, clusters):
    """Ids in ascending order, in runs of random lengths."""
    return np.sort(rng.integers(0, clusters, rows))


def folded(spec, columns, label, order, labelled=None):
    """The state of some rows in an order, in two batches."""
    builder = spec.builder(Budget(), 1 << 14)
    for part in np.array_split(order, 2):
        kept = None if labelled is None else labelled[part]
        taken = {name: column.take(pa.array(part)) for name, column in columns.items()}
        builder.update(Batch(label[part], None, taken, labelled=kept))
    return builder.state()


@pytest.fixture
def found(monkeypatch):
    """What `run_starts` found in each batch."""
    seen = []

    def spy(columns):
        seen.append(run_starts(columns))
        return seen[-1]

    monkeypatch.setattr(hot, "run_starts", spy)
    return seen


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("counted", ["clusters", "clusters with rows without a label", "cells"])
def test_counts_of_sorted_rows_are_those_of_shuffled_rows(kind, counted, found):
    """Sizes, positives, and the table of classes do not depend on whether rows were counted by run."""
    rng = np.random.default_rng(5)
    rows, unlabelled, cells = 20_000, "without" in counted, counted == "cells"
    ids, label = sorted_ids(rng, rows, rows // 40), (rng.random(rows) < 0.3).astype(np.uint8)
    labelled = rng.random(rows) < 0.999 if unlabelled else None
    if labelled is not None:
        label[~labelled] = 0
    spec = ContingencySpec("k", "c", cluster_type=kind) if cells else ClusterSpec("c", type=kind)
    spec = replace(spec, rows="both") if unlabelled else spec
    columns = {"c": IDS[kind](ids), "k": pa.array(ids // 7)} if cells else {"c": IDS[kind](ids)}
    by_run = folded(spec, columns, label, np.arange(rows), labelled)
    assert all(starts is not None for starts in found)
    found.clear()
    assert folded(spec, columns, label, rng.permutation(rows), labelled) == by_run
    assert all(starts is None for starts in found)


def clusters_of(ids: pa.Array, label: np.ndarray, capacity: int) -> ClusterCounts:
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
    state = clusters_of(pa.array(ids.view(np.int64)), label, 1 << 14)
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


RANDOM = np.random.default_rng(3)
EVEN = RANDOM.integers(0, 1 << 64, 5000, np.uint64)
WORDS = {
    "none": np.empty(0, np.uint64),
    "few": np.array([5, 3, 5], np.uint64),
    "even": EVEN,
    "ends": np.array([2**64 - 1, 0] * 500, np.uint64),
    "equal": np.full(1000, 7, np.uint64),
    "skewed": np.append(RANDOM.integers(0, 100, 1000, np.uint64), np.uint64(2**63)),
    "ascending": np.sort(EVEN),
    "descending": np.sort(EVEN)[::-1].copy(),
    "hot": np.where(RANDOM.random(EVEN.size) < 0.9, np.uint64(1 << 40), EVEN),
    "same high bits": EVEN & np.uint64(0xFFF) | np.uint64(1 << 63),
    "same low bits": EVEN << np.uint64(52),
    "same ends": EVEN & np.uint64(0xFFFF << 24),
    "steps": np.repeat(np.arange(40, dtype=np.uint64) << np.uint64(30), 49),
    "short": (EVEN >> np.uint64(48)).astype(np.uint16),
}


@jit
def sorted_bucket(words, size, shift):
    """`sort_bucket` of some of the words."""
    spare, places = np.empty(size, np.uint32), np.full((2, DIGIT + 1), 9)
    sort_bucket(words, spare, np.int64(0), size, shift, places)
    return words


@pytest.mark.parametrize("size", [0, 1, 2, 16, 17, 64, 65, 300, 4000])
@pytest.mark.parametrize("shift", [1, 16])
@pytest.mark.parametrize("shape", ["even", "equal", "outlier", "few", "descending"])
def test_words_of_a_bucket_are_sorted(shape: str, shift: int, size: int) -> None:
    """By the 16 bits at a shift; no word is lost, and none beyond `size` moves."""
    even = (EVEN[: size + 1] >> np.uint64(48)).astype(np.uint32)
    outlier = np.append(even[1:] & np.uint32(7), np.uint32(0xFFFF))
    upper = {
        "even": even,
        "equal": even & np.uint32(0),
        "outlier": outlier[::-1],
        "few": even % np.uint32(3),
        "descending": np.sort(even)[::-1],
    }[shape]
    lower = np.arange(size + 1, dtype=np.uint32) & np.uint32((1 << shift) - 1)
    words = (upper << np.uint32(shift)) | lower
    found = sorted_bucket(words.copy(), size, np.uint32(shift))
    np.testing.assert_array_equal(found[:size] >> np.uint32(shift), np.sort(upper[:size]))
    np.testing.assert_array_equal(np.sort(found[:size]), np.sort(words[:size]))
    if shift == 16:  # the lower bits of equal words ascend, as the places of rows whose weights are added in order
        np.testing.assert_array_equal(found[:size], np.sort(words[:size]))
    assert found[size] == words[size]


@pytest.mark.parametrize("rows", [0, 1, 200, 3000])
def test_many_rows_of_a_word_are_sorted_by_their_further_words(rows: int) -> None:
    """Rows of one word, of few, and of many; those of a group are as many as the group has."""
    keys = np.column_stack((RANDOM.integers(0, 3, rows), np.full(rows, 7), RANDOM.integers(0, 50, (rows, 2))))
    keys = keys.astype(np.uint64)
    keys[::5, 0] = EVEN[: len(keys[::5])]
    found = compact(keys[:, 0].copy(), keys[:, 1:].copy(), np.empty(0, np.int64), np.empty(0))
    expected, counts = np.unique(keys, axis=0, return_counts=True)
    np.testing.assert_array_equal(np.column_stack(found[:2]), expected)
    np.testing.assert_array_equal(found[2], counts)


@pytest.mark.parametrize("first", WORDS)
@pytest.mark.parametrize("last", ["even", "equal", "skewed", "steps", "hot"])
@pytest.mark.parametrize("further", [1, 2])
def test_rows_of_both_labels_are_grouped(first: str, last: str, further: int) -> None:
    """By all words of their keys, in ascending order, however the words lie."""
    size = min(WORDS[first].size, WORDS[last].size)
    columns = [WORDS[first][:size], WORDS["same high bits"][:size] >> np.uint64(10), WORDS[last][:size]]
    keys = np.column_stack(columns[:: 3 - further]).astype(np.uint64)
    label = RANDOM.random(size) < 0.3
    sides = [
        (keys[rows, 0].copy(), keys[rows, 1:].copy(), np.empty(0, np.int64), np.empty(0)) for rows in (~label, label)
    ]
    found = group_items(*sides)
    expected, inverse = np.unique(keys, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.column_stack((found.keys, found.rest)), expected)
    counts = np.zeros((2, len(expected)), np.int64)
    np.add.at(counts, (label.astype(int), inverse.reshape(-1)), 1)
    np.testing.assert_array_equal((found.neg, found.pos), counts)
