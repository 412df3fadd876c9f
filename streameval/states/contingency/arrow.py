"""The Arrow table of a contingency state: one row per cell, with the words of both ids and the cell's counts.

Cells with a cluster come first, by cluster and class; then cells without a cluster, by class, with 0 as the words of
the cluster. Only the words of the segments are written; a reader partitions them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Keys
    from streameval.states.keyed.grouping import Counts
    from streameval.states.keyed.layout import Layout
    from streameval.typing import Array

_ROWS = 1 << 20  # rows that are collected at a time


def cell_schema(keys: Keys) -> pa.Schema:
    """Columns of the table: the words of both ids, rows, and rows without a class."""
    words = [f"{side}_{i}" for side, count in zip(("cluster", "class"), keys, strict=True) for i in range(count)]
    types = dict.fromkeys(words, pa.uint64()) | {"rows": pa.int64(), "without_class": pa.int64()}
    return pa.schema(types | {"has_cluster": pa.bool_()})


def cell_batch(counts: Counts, keys: Keys) -> pa.RecordBatch:
    """Part of the table; the words of absent clusters are 0."""
    words = np.column_stack((counts.keys, counts.rest))
    absent = sum(keys) - words.shape[1]
    columns = [
        *np.zeros((absent, words.shape[0]), np.uint64),
        *words.T,
        counts.neg,
        counts.pos,
        np.full(words.shape[0], not absent),
    ]
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], schema=cell_schema(keys))


def read_cells(
    batches: Iterable[pa.RecordBatch], layouts: tuple[Layout, Layout], budget: Budget
) -> tuple[KeyedCounts, KeyedCounts]:
    """Rows with and without a cluster, in these layouts."""
    cells, alone = (SegmentBuilder.fitting(layout, budget, _ROWS, counted=True) for layout in layouts)
    for batch in batches:
        for here, builder in enumerate((alone, cells)):
            words, (rows, without_class) = _columns(batch.filter(pc.equal(batch.column("has_cluster"), bool(here))))
            _add(builder, words, rows, 0)
            _add(builder, words, without_class, 1)
    return KeyedCounts.built(cells), KeyedCounts.built(alone)


def _columns(batch: pa.RecordBatch) -> tuple[Array, tuple[Array, Array]]:
    """Words of both ids, and the rows with and without a class."""
    names = [name for name in batch.schema.names if name[-1].isdigit()]
    words = np.column_stack([batch.column(name).to_numpy() for name in names])
    return words, (batch.column("rows").to_numpy(), batch.column("without_class").to_numpy())


def _add(builder: SegmentBuilder, words: Array, counts: Array, label: int) -> None:
    """Add the rows of one batch; the builder's layout says how many words a key has."""
    here = counts > 0
    keys = words[here, words.shape[1] - builder.layout.words :]
    builder.add_items(keys[:, 0], id_codes(keys[:, 0], label), keys[:, 1:], counts[here], NO_WEIGHTS)
