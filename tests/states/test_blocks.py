"""Size tables without each block equal those of the rows that are left."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sizes import sizes as tiny_sizes
from strategies import ID_TYPES, id_values

from streameval.budget import Budget
from streameval.kernels.blocks.changes import spread_rows
from streameval.states.blocks import BLOCKS, SizeChanges
from streameval.states.clusters.counts import ClusterCounts, ClusterSpec
from streameval.states.grouped.keys import Blocks
from streameval.states.keyed.ids import id_type
from streameval.states.protocol import Batch


def fold(clusters: pa.Array, labels: list[int], capacity: int = 64) -> ClusterCounts:
    """The state of some rows."""
    builder = ClusterSpec("c", id_type(clusters.type), nulls="singleton").builder(Budget(), capacity)
    builder.update(Batch(np.array(labels, np.uint8), None, {"c": clusters}))
    return builder.state()


def swept(state: Any) -> SizeChanges:
    """All shards of a state."""
    return SizeChanges.union([state.by_block(shard, Budget()) for shard in state.shards()])


def table(found: Any) -> dict[int, tuple[int, int]]:
    """A size table as a mapping."""
    return {
        s: (c, p) for s, c, p in zip(*(x.tolist() for x in (found.size, found.clusters, found.positives)), strict=True)
    }


def truth(clusters: list[Any], labels: list[int]) -> dict[int, tuple[int, int]]:
    """The size table by its definition."""
    size, positive = Counter(clusters), Counter(c for c, label in zip(clusters, labels, strict=True) if label)
    counts, positives = Counter(size.values()), Counter[int]()
    for cluster, rows in size.items():
        positives[rows] += positive[cluster]
    return {rows: (count, positives[rows]) for rows, count in counts.items()}


@pytest.mark.parametrize("kind", ID_TYPES, ids=str)
def test_clusters_are_units(kind: pa.DataType) -> None:
    """A block takes whole clusters; null ids are clusters of one row."""

    @settings(max_examples=10, deadline=None)
    @given(
        st.lists(st.tuples(id_values(kind), st.integers(0, 1)), max_size=40),
        st.sampled_from([1, 2, 300]),
        st.booleans(),
    )
    def check(rows: list[tuple[Any, int]], copies: int, tiny: bool) -> None:
        rows = rows * copies
        column = pa.array([c for c, _ in rows], kind)
        labels = [label for _, label in rows]
        with tiny_sizes(tiny=tiny):
            found = swept(fold(column, labels))
        split = Blocks("c", BLOCKS).split(Batch(np.zeros(len(rows), np.uint8), None, {"c": column}))
        names = [Blocks("c").group(name) for name in split.names.to_pylist()]
        blocks = [names[code] for code in split.codes]
        ids: list[Any] = column.to_pylist()
        for label in (0, 1):  # null ids: any of the label's rows
            nulls = [i for i, (c, l_) in enumerate(zip(ids, labels, strict=True)) if c is None and l_ == label]
            spread = np.zeros(BLOCKS, np.int64)
            spread_rows(np.uint64(label), len(nulls), spread)
            for i, block in zip(nulls, np.repeat(np.arange(BLOCKS), spread).tolist(), strict=True):
                ids[i], blocks[i] = ("null", i), block
        assert table(found.table) == truth(ids, labels)
        for block in {*blocks, 0, 1}:
            left = [i for i, b in enumerate(blocks) if b != block]
            assert table(found.without(block)) == truth([ids[i] for i in left], [labels[i] for i in left])
            assert found.rows[block] == len(rows) - len(left)
            assert found.positives[block] == sum(labels) - sum(labels[i] for i in left)

    check()
