"""Composite groups: the items of many groups in one `KeyedCounts`, and the inner states restored from them.

The key of an item is the 128-bit hash of the group's name, followed by the key in the table of the inner state: its
flags, inverted, and its words. The first word determines the bucket. The keys of a group are therefore adjacent, in the
order of the inner table.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.kernels.keys import ID_BUCKETS
from streameval.states.grouped.table import GroupTable, hashed
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.ids import SHIFT, id_codes
from streameval.states.keyed.layout import NO_WEIGHTS, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.typing import Array


def _fields(inner: Any, kind: pa.DataType) -> list[str]:
    """Columns of the inner table of one type: uint64 for key words, bool for flags, int64 counts, float64 weights."""
    return [field.name for field in inner.schema if field.type == kind]


def composite_layout(inner: Any) -> Layout:
    """Layout of items with composite keys."""
    words = 2 + len(_fields(inner, pa.bool_())) + len(_fields(inner, pa.uint64()))
    return Layout(ID_BUCKETS, 64, words, weighted=bool(_fields(inner, pa.float64())))


def inner_facts(inner: Any) -> dict[str, list[Any]]:
    """Facts of an empty group, lists of numbers by their name in the inner header."""
    return {name: value for name, value in inner.empty().header().items() if name != "spec"}


def inner_header(inner: Any, facts: Array) -> dict[str, Any]:
    """The header of an inner state with these facts, a float64 array of shape (n_facts,)."""
    return {"spec": asdict(inner)} | _named(inner, facts)


def _named(inner: Any, facts: Array) -> dict[str, list[Any]]:
    """Facts by their name in the header."""
    sides = iter(facts.tolist())
    return {name: [type(side)(next(sides)) for side in empty] for name, empty in inner_facts(inner).items()}


def add_items(
    builder: SegmentBuilder, tags: Array, keys: Array, side: int | Array, counts: Array, weights: Array
) -> None:
    """Add items with composite keys.

    Parameters
    ----------
    builder : SegmentBuilder with a `composite_layout`
    tags : uint64 array of shape (n, 2), hashes of the names of their groups
    keys : uint64 array of shape (n, n_words), their inner keys
    side : 0 or 1, or array of shape (n,): the column of the inner table that counts them
    counts, weights : arrays of shape (n,), or empty
    """
    first = np.ascontiguousarray(tags[:, 0])
    codes = id_codes(first) | np.asarray(side, np.uint32)
    builder.add_items(first, codes, np.column_stack((tags[:, 1], keys)), counts, weights)


def read_composite(inner: Any, batches: Iterable[pa.RecordBatch], budget: Budget) -> KeyedCounts:
    """The items of inner tables that have the name of the group in a column ``group``."""
    builder = SegmentBuilder.fitting(composite_layout(inner), budget, SLAB // 4, counted=True)
    weights = _fields(inner, pa.float64())
    for batch in batches:
        group = batch.column("group").dictionary_encode()
        tags = hashed(group.dictionary)[group.indices.to_numpy()]
        flags = [~batch.column(name).to_numpy(zero_copy_only=False) for name in _fields(inner, pa.bool_())]
        words = [batch.column(name).to_numpy() for name in _fields(inner, pa.uint64())]
        keys = np.column_stack((*flags, *words)).astype(np.uint64, copy=False)
        for side, name in enumerate(_fields(inner, pa.int64())):
            rows = batch.column(name).to_numpy()
            here = rows > 0
            weight = batch.column(weights[side]).to_numpy()[here] if weights else NO_WEIGHTS
            add_items(builder, tags[here], keys[here], side, rows[here], weight)
    return KeyedCounts.built(builder)


@dataclass(frozen=True, eq=False)
class CompositeGroups:
    """Many groups of an inner state.

    Attributes
    ----------
    inner : the inner spec
    table : GroupTable, names and facts
    keyed : KeyedCounts, the items
    """

    inner: Any
    table: GroupTable
    keyed: KeyedCounts

    @classmethod
    def empty(cls, inner: Any) -> CompositeGroups:
        """Without groups."""
        return cls(
            inner, GroupTable.empty(sum(map(len, inner_facts(inner).values()))), KeyedCounts(composite_layout(inner))
        )

    def merge(self, other: CompositeGroups) -> CompositeGroups:
        """The groups of both inputs; groups with equal names are merged."""
        return CompositeGroups(self.inner, GroupTable.union([self.table, other.table]), self.keyed.merge(other.keyed))

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.table) + sys.getsizeof(self.keyed)

    def marked(self, names: Iterable[bytes]) -> Array:
        """Whether each group has one of these names, as a bool array of shape (n_groups,)."""
        places = self.table.places(hashed(pa.array(names, pa.large_binary())))
        marks = np.zeros(len(self.table), np.bool_)
        marks[places[places >= 0]] = True
        return marks

    def restored(self, marks: Array, budget: Budget | None = None) -> Any:
        """The inner state of the marked groups; at least one must be marked."""
        inner, budget = self.inner, self.keyed.holding(budget)
        facts, errors = self.table.total(marks)
        header = inner_header(inner, facts)
        first, last = (self.table.words[marks][[0, -1], 0] >> SHIFT).tolist()
        if inner.packing is None:
            found = (part for part, _ in self.items(marks, (first, last + 1), budget))
            return inner.from_arrow(header, (self._table(part) for part in found), budget)
        rows = int(self.keyed.items_in(first, last + 1).sum())
        capacity = min(SLAB, 1 << max(rows, 1).bit_length())  # a power of two, so that groups can reuse buffers
        builder = SegmentBuilder.fitting(inner.layout, budget, capacity, counted=True)
        for _, *columns in self.unsorted(marks):
            _add_inner(builder, inner, *columns)
        [name] = inner.empty().runs()
        state = inner.from_arrow(header, [], budget).with_runs({name: KeyedCounts.built(builder)})
        lost = {"nan_errors": np.array(_named(inner, errors)["nan_weights"])} if self.keyed.layout.weighted else {}
        return replace(state, **lost)

    def unsorted(self, marks: Array) -> Iterator[tuple[Array, Array, Array, Array, Array]]:
        """Items of the marked groups: the index of their group in the table, their inner keys, sides, counts, weights.

        At least one group must be marked; nothing is summed.
        """
        first, last = (self.table.words[marks][[0, -1], 0] >> SHIFT).tolist()
        for codes, starts, (words, rest, counts, weights) in self.keyed.slabs((first, last + 1)):
            places = self.table.places(np.column_stack((words, rest[:, 0])))
            here = marks[places]
            side = np.repeat(codes & np.uint32(1), np.diff(starts))
            counts, weights = (column[here] if column.size else column for column in (counts, weights))
            yield places[here], rest[here, 1:], side[here], counts, weights

    def items(
        self, marks: Array, interval: tuple[int, int] | None = None, budget: Budget | None = None
    ) -> Iterator[tuple[Counts, Array]]:
        """Items of the marked groups in the order of their keys, with the index of each item's group in the table."""
        for shard in self.keyed.intervals() if interval is None else [interval]:
            for counts in self.keyed.grouped(shard, budget):
                tags = np.column_stack((counts.keys, counts.rest[:, 0]))
                starts = np.flatnonzero(np.append(True, (tags[1:] != tags[:-1]).any(axis=1)))[: len(tags)]
                places = np.repeat(self.table.places(tags[starts]), np.diff(np.append(starts, len(tags))))
                here = marks[places]
                if here.all():
                    yield counts, places
                elif here.any():
                    yield _filtered(counts, here), places[here]

    def tables(self, marks: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Inner tables of the marked groups, each preceded by the index of each row's group."""
        for counts, places in self.items(marks):
            yield places, self._table(counts)

    def _table(self, counts: Counts) -> pa.RecordBatch:
        """The inner table of some items."""
        flags = len(_fields(self.inner, pa.bool_()))
        sources = {
            pa.bool_(): iter(counts.rest[:, 1 : 1 + flags].T == 0),
            pa.uint64(): iter(counts.rest[:, 1 + flags :].T),
            pa.int64(): iter((counts.neg, counts.pos)),
            pa.float64(): iter((counts.neg_weight, counts.pos_weight)),
        }
        schema = self.inner.schema
        columns = [pa.array(np.ascontiguousarray(next(sources[field.type]))) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _filtered(counts: Counts, here: Array) -> Counts:
    """The items marked by a bool array."""
    neg, pos = (None if column is None else column[here] for column in (counts.neg_weight, counts.pos_weight))
    return Counts(counts.keys[here], counts.rest[here], counts.neg[here], counts.pos[here], neg, pos)


def _add_inner(builder: SegmentBuilder, inner: Any, rest: Array, side: Array, counts: Array, weights: Array) -> None:
    """Add items, given by their inner keys and sides, to the segments of an inner state."""
    keys = np.ascontiguousarray(rest[:, 0])
    narrow = inner.layout.bits == 16
    words, buckets = (keys.astype(np.uint16), keys >> np.uint64(16)) if narrow else (keys, inner.packing.bucket(keys))
    builder.add_items(words, (buckets.astype(np.uint32) << np.uint32(1)) | side, rest[:, 1:], counts, weights)
