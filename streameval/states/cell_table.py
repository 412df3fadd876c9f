"""The Arrow table of a contingency state: a row for each cell, the words of both ids and its counts.

Cells of rows that have a cluster come by cluster and class; then those without one, by class, where the words of the
cluster are 0. Only the runs' own words are written: what reads the table partitions it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.states.builder import RunBuilder
from streameval.states.ids import id_codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.states.cells import Keys
    from streameval.states.memory import Budget
    from streameval.states.runs import Counts, Layout, Runs

__all__ = ["cell_batch", "cell_schema", "read_cells"]

_ROWS = 1 << 20  # collected at a time


def cell_schema(keys: Keys) -> pa.Schema:
    """Columns of the table: the words of both ids, rows, and how many more have no class."""
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


def read_cells(batches: Iterable[pa.RecordBatch], layouts: tuple[Layout, Layout], budget: Budget) -> tuple[Runs, Runs]:
    """Rows with and without a cluster, in these layouts."""
    builders = [RunBuilder(layout, budget, _ROWS, counted=True) for layout in layouts]
    for batch in batches:
        for here, builder in enumerate(reversed(builders)):
            _add(builder, batch.filter(pc.equal(batch.column("has_cluster"), bool(here))))
    cells, alone = (builder.finish() for builder in builders)
    return cells, alone


def _add(builder: RunBuilder, batch: pa.RecordBatch) -> None:
    """Add the rows of one batch; the builder's layout says how many words a key has."""
    names = [name for name in batch.schema.names if name[-1].isdigit()][-builder.layout.words :]
    words = np.column_stack([batch.column(name).to_numpy() for name in names])
    for label, name in enumerate(("rows", "without_class")):
        counts = batch.column(name).to_numpy()
        here = counts > 0
        first = words[here, 0]
        builder.add_items(first, id_codes(first, label), words[here, 1:], counts[here], np.empty(0))
