"""Fold rows into groups: in one interleaved table if the state allows it, otherwise apart or under composite keys.

`streameval.states.grouped.state` describes the layouts.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.kernels.grouped.interleave import ordered
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.composite import CompositeGroups, add_items, composite_layout
from streameval.states.grouped.interleaved_cells import InterleavedCellsBuilder
from streameval.states.grouped.interleaved_clusters import InterleavedClustersBuilder
from streameval.states.grouped.interleaved_scores import InterleavedBuilder
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import TableBuilder, hashed
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS
from streameval.states.scores.counts import ScoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.budget import Budget
    from streameval.states.grouped.group_codes import CodedBuilder, CodedGroups
    from streameval.states.grouped.keys import Key, Split
    from streameval.states.grouped.rows import Rows
    from streameval.states.protocol import Batch, Builder
    from streameval.typing import Array

_INTERLEAVED: dict[type[Any], type[Any]] = {
    ScoreSpec: InterleavedBuilder,
    ClusterSpec: InterleavedClustersBuilder,
    ContingencySpec: InterleavedCellsBuilder,
}
APART = 128  # largest number of groups of a task that stand apart
_GROUP_BYTES = 1 << 24  # bytes of the budget required for each of them: sixteen times the size of its builder
_FEWEST = 1 << 12  # smallest number of rows that a group's builder collects at a time
_ROW_BYTES = 16  # bytes per row of the capacity that a builder is given


class GroupedBuilder:
    """Builder of a grouped state; owned by one task.

    Parameters
    ----------
    inner : the inner spec
    key : Key
    budget : Budget
    capacity : int
        Number of rows that are collected at a time, over all groups.
    made : callable
        Creates the state from the states of groups apart by name, the composite groups, and the interleaved groups.
    """

    def __init__(
        self,
        inner: Any,
        key: Key,
        budget: Budget,
        capacity: int,
        made: Callable[[dict[bytes, Any], CompositeGroups, CodedGroups | None], Any],
    ) -> None:
        self._inner, self._key, self._made = inner, key, made
        self._budget, self._capacity = budget, capacity
        self._form = FORMS.get(type(inner))
        self._most = min(APART, max(1, budget.limit // _GROUP_BYTES)) if self._form else sys.maxsize
        self._builders: dict[bytes, Builder] = {}
        self._rows: dict[bytes, int] = {}  # of each group, if states are dense
        marked = isinstance(inner, ClusterSpec) and inner.unlabelled  # the last word says which rows have a label
        interleaved = None if marked else _INTERLEAVED.get(type(inner))
        self._interleaved: CodedBuilder | None = interleaved(inner, budget, capacity) if interleaved else None
        self._composite: SegmentBuilder | None = None
        self._table = TableBuilder()

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        split = self._key.split(batch)
        self._key.check(self._found(len(split.names)), split.names.to_pylist, more=True)
        if not len(split.names) or (self._interleaved is not None and self._interleaved.update(batch, split)):
            return
        if self._form is None:
            self._check_room(split)
        slots = self._slots(split.names)
        builders = list(self._builders.values())
        if len(slots) == 1 and slots[0] >= 0:
            builders[slots[0]].update(batch)
            return
        order, starts = ordered(slots[split.codes] + 1, len(builders) + 1)  # groups under composite keys come first
        moved = batch.taken(order, self._inner.columns)
        for slot, (a, b) in enumerate(pairwise(starts.tolist()), start=-1):
            if a < b and slot >= 0:
                builders[slot].update(_part(moved, a, b))
            elif a < b:
                self._join(_part(moved, a, b), split.codes[order[a:b]], split.names)

    def _found(self, names: int) -> int:
        """Lower bound for the number of groups so far, if a batch has `names` groups."""
        known = len(self._builders) + self._table.known
        return max(names, known, self._interleaved.known if self._interleaved else 0)

    def _slots(self, names: pa.Array) -> Array:
        """Index of the builder of each group, as an int64 array; −1 for groups under composite keys."""
        known = pa.array(self._builders, pa.large_binary())
        slots: Array = pc.fill_null(pc.index_in(names, value_set=known), -1).to_numpy().astype(np.int64)
        for new in np.flatnonzero(slots < 0)[: self._most - len(self._builders)].tolist():
            slots[new], name = len(self._builders), names[new].as_py()
            rows = self._rows.get(name) or max(_FEWEST, self._capacity // (4 * (len(self._builders) + 2)))
            self._builders[name] = self._inner.builder(self._budget, min(self._capacity, rows))
        return slots

    def _check_room(self, split: Split) -> None:
        """Raise `OptionError` if dense states of the groups so far would not fit into the budget."""
        names = split.names.to_pylist()
        for name, rows in zip(names, np.bincount(split.codes, minlength=len(names)).tolist(), strict=True):
            self._rows[name] = self._rows.get(name, 0) + rows
        needed, limit = self._inner.group_bytes(self._rows.values()), self._budget.limit
        if len(self._rows) > 1 and needed > limit:
            taken = f"take {needed >> 20:,} MiB, and states may take {limit >> 20:,}"
            raise self._inner.too_large(self._key.columns, len(self._rows), taken)

    def _join(self, batch: Batch, codes: Array, names: pa.Array) -> None:
        """Add the rows of a batch under composite keys."""
        layout = composite_layout(self._inner)
        if self._composite is None:
            row = 16 * layout.words + 4 + 8 * layout.weighted  # bytes; words are held twice when they move
            self._composite = SegmentBuilder(layout, self._budget, max(1, self._capacity * _ROW_BYTES // row))
        rows: Rows = FORMS[type(self._inner)](self._inner, batch)
        found, codes = np.unique(codes, return_inverse=True)
        names = names.take(pa.array(found))
        tags = hashed(names)[codes[rows.rows]]
        add_items(self._composite, tags, rows.keys, rows.side, NO_COUNTS, rows.weight)
        self._table.add(names, *fact_sums(self._inner, rows, codes, found.size))

    def state(self) -> Any:
        """The state of everything folded; the builder must not be used afterwards."""
        apart = {name: self._builders.pop(name).state() for name in list(self._builders)}
        composite = CompositeGroups.empty(self._inner)
        if self._composite is not None:
            table = self._table.built() or composite.table
            composite = replace(composite, table=table, keyed=KeyedCounts.built(self._composite))
        return self._made(apart, composite, None if self._interleaved is None else self._interleaved.interleaved())


def _part(batch: Batch, a: int, b: int) -> Batch:
    """Consecutive rows of a batch, without copying."""
    weight = None if batch.weight is None else batch.weight[a:b]
    columns = {name: column.slice(a, b - a) for name, column in batch.columns.items()}
    kept, labelled = (None if values is None else values[a:b] for values in (batch.kept, batch.labelled))
    return replace(batch, label=batch.label[a:b], weight=weight, columns=columns, kept=kept, labelled=labelled)
