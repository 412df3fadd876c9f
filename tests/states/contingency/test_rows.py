"""Rows of ids in segments: every row once, whatever the size of batches, and however hot some keys are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed import hot
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import Layout
from streameval.states.protocol import Batch


def found(keyed: KeyedCounts) -> Counter[tuple[int, ...]]:
    """Rows of each key."""
    rows: Counter[tuple[int, ...]] = Counter()
    for counts in keyed.grouped((0, ID_BUCKETS)):
        keys = np.column_stack((unmix(counts.keys), counts.rest))
        rows.update(dict(zip(map(tuple, keys.tolist()), counts.neg.tolist(), strict=True)))
    return rows


@settings(max_examples=40)
@given(
    words=st.integers(1, 3),
    batches=st.lists(st.tuples(st.integers(0, 90), st.floats(0, 1)), max_size=6),
    capacity=st.integers(1, 200),
    builders=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_row_is_kept_once(
    words: int, batches: list[tuple[int, float]], capacity: int, builders: int, seed: int
) -> None:
    """One to three words a key; some keys hot at first, cold later; one budget for all builders."""
    rng, budget = np.random.default_rng(seed), Budget()
    layout = Layout(ID_BUCKETS, 64, words=words)
    given_rows: Counter[tuple[int, ...]] = Counter()
    keyed = KeyedCounts(layout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "LEARN", 40)
        for _ in range(builders):
            builder = SegmentBuilder(layout, budget, capacity)
            for rows, heat in batches:
                keys = rng.integers(0, 1 << 64, (rows, words), np.uint64)
                keys[rng.random(rows) < heat] = rng.integers(0, 2, words, np.uint64)
                builder.add_ids(list(keys.T))
                given_rows.update(map(tuple, keys.tolist()))
                keys[:] = 0  # the builder keeps nothing that its caller may change
            keyed = keyed.merge(KeyedCounts(layout, builder.finish()))
    assert found(keyed) == given_rows


def test_a_thousand_hot_pairs_are_counted_before_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys whose ids are equal do not crowd into the same slots; before, a tenth of them was stored row by row."""
    monkeypatch.setattr(hot, "LEARN", 1 << 15)
    ids = (np.arange(1000, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)) >> np.uint64(2)
    rows = np.random.default_rng(1).permutation(np.repeat(ids, 60))
    layout = Layout(ID_BUCKETS, 64, words=2)
    builder = SegmentBuilder(layout, Budget(), rows.size)
    builder.add_ids([rows, rows])
    keyed = KeyedCounts(layout, builder.finish())
    assert keyed.items.sum() <= 1010
    assert found(keyed) == {(i, i): 60 for i in ids.tolist()}


def test_a_few_repetitive_pieces_are_left_alone() -> None:
    """To count the rows of one would copy all others; where they are many, they are counted."""
    layout, rng = Layout(ID_BUCKETS, 64), np.random.default_rng(1)
    for rows, counted in ((3000, False), (30000, True)):
        ids = np.concatenate((np.full(rows, 7, np.uint64), rng.integers(1 << 40, 1 << 62, 30000).astype(np.uint64)))
        builder = SegmentBuilder(layout, Budget(), ids.size)
        builder.add_ids([ids])
        keyed = KeyedCounts(layout, builder.finish())
        assert keyed.counted is counted
        assert found(keyed)[7,] == rows


@pytest.mark.parametrize("scope", ["global", "partition"])
def test_pairs_of_short_dictionaries_are_counted_as_rows(scope: str) -> None:
    """The state of dictionary-encoded ids is that of their strings, and keeps an item for each pair of a batch."""
    rng = np.random.default_rng(5)
    spec = ContingencySpec("class", "cluster", "hash", "hash", scope=scope, nulls="singleton")
    states = []
    for encoded in (False, True):
        builder = spec.builder(Budget(), 1000)
        for rows, ids, partition in ((3000, 7, "a"), (50, 60, "a"), (3000, 12, "b"), (0, 3, "b")):
            columns = {}
            for name in ("cluster", "class"):
                at = rng.integers(0, ids, rows)
                column = pa.array([None if i == 5 else f"{i:03d}" for i in at.tolist()], pa.string())
                columns[name] = column.dictionary_encode() if encoded else column
            builder.update(Batch(np.zeros(rows, np.uint8), None, columns, partition))
        states.append(builder.state())
        rng = np.random.default_rng(5)
    assert states[0] == states[1]
    assert states[1].cells.items.sum() < 1000 < states[0].cells.items.sum()
