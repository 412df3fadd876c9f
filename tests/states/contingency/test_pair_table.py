"""Rows of dictionary-encoded ids in a table of pairs: every row once, whatever the dictionaries and the room."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.budget import Budget
from streameval.states.contingency import pair_table
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.contingency.pair_table import PairTable
from streameval.states.protocol import Batch


@settings(max_examples=60)
@given(
    batches=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9)), max_size=8),
    most=st.integers(0, 400),
    limit=st.sampled_from([70, 1 << 32]),
    seed=st.integers(0, 2**32),
)
def test_every_row_is_counted_once(batches: list[tuple[int, int, int]], most: int, limit: int, seed: int) -> None:
    """Dictionaries in any order that grow and change; tables that are full, and entries that would overflow."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.column_stack((np.arange(12) % 3, np.arange(12)))).astype(np.uint64)
    stored: Counter[tuple[int, ...]] = Counter()
    expected: Counter[tuple[int, ...]] = Counter()

    def store(columns: list[np.ndarray], counts: np.ndarray) -> None:
        stored.update(
            dict(zip(zip(*(column.tolist() for column in columns), strict=True), counts.tolist(), strict=True))
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_table, "_ROWS", limit)
        patch.setattr(pair_table, "_SLAB", 16)
        table = PairTable(Budget(), most, store)
        for rows, *sizes in batches:
            words = [ids[rng.permutation(12)[:size]] for size in sizes]
            codes = [rng.integers(0, size, rows) for size in sizes]
            if table.add(codes, words):
                keys = np.column_stack([column[at] for column, at in zip(words, codes, strict=True)])
                expected.update(map(tuple, keys.tolist()))
        table.flush()
    assert stored == expected


def test_batches_share_a_table_though_their_dictionaries_differ() -> None:
    """A pair is one item, in whichever batches it occurs; a batch too small for a table of its own uses it as well."""
    rng, spec = np.random.default_rng(5), ContingencySpec("class", "cluster", "hash", "hash")
    builder = spec.builder(Budget(), 4000)
    for rows in (1000, 1000, 20):
        texts = [f"{i:03d}" for i in rng.permutation(30).tolist()]
        columns = {
            name: pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 30, rows).astype(np.int32)), texts)
            for name in ("cluster", "class")
        }
        builder.update(Batch(np.zeros(rows, np.uint8), None, columns, "a"))
    cells = builder.state().cells
    assert (cells.rows.sum(), cells.items.sum() <= 900) == (2020, True)


def test_a_dictionary_with_more_entries_than_rows_is_not_numbered() -> None:
    """Chunks of a table share a dictionary of many entries, which each of them would number again."""
    rows = pa.array(np.arange(6_000) % 3_000).dictionary_encode()
    few = pa.array(np.arange(6_000) % 2).dictionary_encode()
    table = PairTable(Budget(), 1 << 20, lambda *_: None)
    assert table.may_take(rows, few)
    assert not table.may_take(rows.slice(0, 2_000), few.slice(0, 2_000))
    assert table.may_take(few.slice(0, 2), few.slice(0, 2))
