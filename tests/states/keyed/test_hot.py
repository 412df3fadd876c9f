"""Hot keys: whatever is counted before it is moved, every row is counted once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.kernels.keyed.hot import slots_of
from streameval.kernels.keys import ID_BUCKETS, MIX
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.keyed import hot
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts, LabelledWords, merge_counts
from streameval.states.keyed.layout import Layout
from streameval.states.protocol import Batch

ROWS = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]), st.integers(0, 2), st.integers(0, 1)), max_size=60
)


@given(ROWS, st.integers(1, 70), st.integers(1, 9), st.integers(1, 40), st.integers(1, 2), st.integers(2, 60))
def test_rows_are_counted_once(
    rows: list[tuple[int, int, int]], capacity: int, learn: int, cut: int, words: int, full: int
) -> None:
    """With any capacity and from any row on, keys of one word or two have the counts that a Counter finds.

    So they have however often counts are taken out of the table of hot keys.
    """
    layout = Layout(ID_BUCKETS, 64, words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "LEARN", learn)
        patch.setattr(hot, "FULL", full)
        builder = SegmentBuilder(layout, Budget(), capacity)
        for label in (0, 1):
            mine = [row for row in rows if row[2] == label]
            for part in (mine[:cut], mine[cut:]):
                ids = np.array([row[0] for row in part], np.uint64)
                more = np.array([row[1] for row in part], np.uint64).reshape(-1, 1)[:, : words - 1]
                builder.add_ids((ids, *more.T), label=np.full(ids.size, label, np.uint8))
        keyed = KeyedCounts.built(builder)
    found: Counter[tuple[int, ...]] = Counter()
    for counts in keyed.grouped((0, ID_BUCKETS)):
        for key, rest, *each in zip(counts.keys.tolist(), counts.rest.tolist(), counts.neg, counts.pos, strict=True):
            found.update({(key, *rest, label): int(times) for label, times in enumerate(each) if times})
    mixed = [row[0] * MIX % 2**64 for row in rows]
    assert found == Counter((key, *row[1:words], row[2]) for key, row in zip(mixed, rows, strict=True))
    assert keyed.rows.sum() == len(rows)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1))), st.sets(st.integers(0, 9)))
def test_counted_keys_are_merged_with_rows(rows: list[tuple[int, int]], keys: set[int]) -> None:
    """Each key once, with the rows of both lists."""
    words, some = np.array(sorted(2 * key + label for key, label in rows), np.uint64), np.array(sorted(keys), np.uint64)
    more = Counts(
        some, np.empty((len(keys), 0), np.uint64), np.ones(len(keys), np.int64), np.zeros(len(keys), np.int64)
    )
    [plain] = LabelledWords(words, np.array([0, words.size]), np.zeros(1, np.int64), 0).counts()
    found, times = merge_counts(plain, more), Counter(words.tolist())
    assert [*zip(found.keys.tolist(), found.neg.tolist(), found.pos.tolist(), strict=True)] == [
        (k, times[2 * k] + (k in keys), times[2 * k + 1]) for k in sorted(keys | {key for key, _ in rows})
    ]


def test_a_free_slot_matches_no_key() -> None:
    """The key that free slots hold, zeros, has slots 0 and 1, and the one that these hold has others."""
    for words in (1, 2, 3, 4):
        keys = np.zeros((2, words), np.uint64)
        keys[1] = ~np.uint64(0)
        slots = slots_of(keys)
        assert slots[0] == 0
        assert slots[1] != 0


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


def test_short_words_need_more_hot_rows() -> None:
    """Where keys have a third of the rows, taking them out pays for ids, not for float32 scores; 60 % pay for both."""
    rng = np.random.default_rng(8)
    ids = rng.integers(1 << 31, 1 << 32, 1 << 15, np.uint64)
    none = np.empty((ids.size, 0), np.uint64)
    for share, short_pays in ((0.3, False), (0.6, True)):
        keys = np.where(rng.random(ids.size) < share, ids % np.uint64(7), ids)
        codes = ((keys >> np.uint64(16)) << np.uint64(1)).astype(np.uint32)
        assert (hot.HotKeys.learned(keys.astype(np.uint16), none, codes, 1 << 17) is not None) is short_pays
        assert hot.HotKeys.learned(keys, none, codes, 1 << 17) is not None


def test_hot_keys_stay_while_half_as_many_rows_have_one() -> None:
    """Keys of half of the rows, which is what short words need, are not forgotten for a few rows fewer."""
    rng = np.random.default_rng(9)
    none, codes = np.empty((hot.LEARN, 0), np.uint64), np.full(hot.LEARN, 8, np.uint32)
    words = rng.integers(0, 1 << 16, hot.LEARN).astype(np.uint16)
    for share, stays in ((0.48, True), (0.2, False)):
        keys = hot.HotKeys.learned(np.zeros(1 << 15, np.uint16), none[: 1 << 15], codes[: 1 << 15], 1 << 17)
        assert keys is not None
        keys.absorb(np.where(rng.random(hot.LEARN) < share, np.uint16(0), words | np.uint16(1)), none, codes.copy())
        assert keys.worth is stays
