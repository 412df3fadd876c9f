"""Interleaved clusters: the rows of all groups of a cluster state in one table, by cluster.

The key of a row is the key of its cluster with the code of its group, in the narrow or the wide words of
`streameval.states.clusters.cell_words`. Narrow words tell 1,024 groups apart and take no more memory than the words of
all rows; with more groups, further rows have wide words, of 8 more bytes. Folding a row takes the same time for any
number of groups. One pass counts all groups (`streameval.states.grouped.cluster_sweep`). The states of all rows and of
each group are computed from the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.budget import Buffer
from streameval.kernels.blocks.clusters import count_rows
from streameval.kernels.grouped.interleave import recoded_rows
from streameval.kernels.jit import read_only
from streameval.kernels.keys import encode_id
from streameval.states.clusters.cell_words import MOST_BLOCKS, NARROW, WIDE, encode_rows
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.composite import CompositeGroups, add_items, composite_layout, inner_facts
from streameval.states.grouped.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable, TableBuilder
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import SHIFT, id_codes, identify, row_nulls
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.clusters.cell_words import CellWords
    from streameval.states.grouped.keys import Split
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Batch
    from streameval.typing import Array

_ROWS = 1 << 16  # rows whose codes are looked up at a time, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class InterleavedClusters(CodedGroups):
    """Groups of a cluster state in one table.

    Attributes
    ----------
    inner : ClusterSpec
    group_codes : as in `CodedGroups`
    table : GroupTable; the last two facts are the rows with an id, by label
    keyed : KeyedCounts, rows by cluster and group
    """

    inner: ClusterSpec

    @classmethod
    def empty(cls, inner: ClusterSpec) -> InterleavedClusters:
        """Without groups."""
        table = GroupTable.empty(2 * len(inner_facts(inner)) + 2)
        return cls(inner, GroupCodes(), table, KeyedCounts(NARROW.layout(inner)))

    @classmethod
    def of(cls, inner: ClusterSpec, apart: Mapping[bytes, Any]) -> InterleavedClusters:
        """The groups of some inner states, without copying rows; rows without a label count as negatives."""
        unlabelled, inner = inner.unlabelled, replace(inner, unlabelled=False)
        group_codes, names = GroupCodes(apart), pa.array(apart, pa.large_binary())
        words = NARROW if len(apart) <= MOST_BLOCKS else WIDE
        facts = np.zeros((len(apart), 2 * len(inner_facts(inner)) + 2))
        segments: list[Segment] = []
        for code, state in enumerate(apart.values()):
            rows = state.keyed.rows.reshape(-1, 2).sum(axis=0)
            facts[code] = [side for name in inner_facts(inner) for side in state.header()[name]] + rows.tolist()
            plain = map(WIDE.as_clusters, state.keyed.segments) if unlabelled else state.keyed.segments
            segments += (words.as_cells(each, code) for each in plain)
        return cls(inner, group_codes, GroupTable.of(names, facts), KeyedCounts(words.layout(inner), tuple(segments)))

    @classmethod
    def of_composite(cls, groups: CompositeGroups, budget: Budget | None = None) -> InterleavedClusters:
        """The groups of a cluster state under composite keys, with wide words."""
        inner, keyed, table = groups.inner, groups.keyed, groups.table
        layout, rows = WIDE.layout(inner), np.zeros(2 * len(table))
        builder = SegmentBuilder.fitting(layout, keyed.holding(budget), SLAB // 4, counted=keyed.counted)
        for codes, starts, (tags, rest, counts, _) in keyed.slabs((0, keyed.layout.buckets)):
            label = np.repeat((codes & 1).astype(np.uint32), np.diff(starts))
            places, first = table.places(np.column_stack((tags, rest[:, 0]))), np.ascontiguousarray(rest[:, 1])
            rows += np.bincount(2 * places + label, counts if counts.size else None, rows.size)
            further = np.column_stack((rest[:, 2:], places.astype(np.uint64)))
            builder.add_items(first, id_codes(first) | label, further, counts, NO_WEIGHTS)
        table = replace(table, facts=np.hstack((table.facts, rows.reshape(-1, 2))))
        return cls(inner, GroupCodes(table.names.to_pylist()), table, KeyedCounts.built(builder))

    @property
    def words(self) -> CellWords:
        """The form of the words."""
        return NARROW if self.keyed.layout.partial else WIDE

    def fits(self, other: InterleavedClusters) -> bool:
        """True: wide words tell any number of groups apart."""
        return True

    def most(self) -> int:
        """Number of codes that narrow words have room for."""
        return MOST_BLOCKS

    def recoded_segment(self, segment: Segment, codes: Array) -> Segment:
        """The rows of a segment with new codes."""
        return self.words.recoded(segment, codes.astype(np.uint64))

    def widened(self) -> InterleavedClusters:
        """The same groups with wide words."""
        if self.words is WIDE:
            return self
        segments = tuple(map(WIDE.widened, self.keyed.segments))
        return replace(self, keyed=KeyedCounts(WIDE.layout(self.inner), segments))

    def _plain(self, segment: Segment) -> Segment:
        """The cells as clusters."""
        return self.words.as_clusters(segment)

    def _marked(self, marks: Array, budget: Budget) -> Iterator[Segment]:
        """The rows of the groups whose codes are marked."""
        for each in self.keyed.segments:
            at = np.flatnonzero(marks[self.words.codes(each)])
            if at.size:
                yield self.words.taken(each, at, budget)

    def _divided(self, interval: Interval, budget: Budget) -> Iterable[tuple[int, Segment]]:
        """The rows of each code in an interval of buckets as segments of the inner state."""
        for each in self._gathered(interval, budget):
            yield from self.words.divided(each, len(self.group_codes), budget)

    def _gathered(self, interval: Interval, budget: Budget) -> Iterator[Segment]:
        """The rows of an interval of buckets in as few segments as the budget allows."""
        rows = self.keyed.range(*interval)
        if rows.items.sum() >= 2 * self._most(budget):  # a single, large bucket
            yield from rows.segments
            return
        for label, side in enumerate(rows.gather(*interval)):
            buckets = np.flatnonzero(np.diff(side.starts))
            codes, starts = (2 * (interval[0] + buckets) + label).astype(np.uint32), side.starts[np.append(buckets, -1)]
            columns = (Buffer(column) if column.size else None for column in (side.rest, side.counts))
            yield Segment(codes, starts, None, None, Buffer(side.words), *columns)

    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: few stand apart, many are under composite keys."""
        if self.words is NARROW:
            return self.alone(), CompositeGroups.empty(self.inner)
        return {}, self.composite()

    def composite(self) -> CompositeGroups:
        """The same groups under composite keys."""
        layout, (_, codes) = composite_layout(self.inner), self.named_codes()
        builder = SegmentBuilder.fitting(layout, self.keyed.holding(), SLAB // 4, counted=self.keyed.counted)
        tags = np.zeros((len(self.group_codes), 2), np.uint64)
        tags[codes] = self.table.words
        for each in self.keyed.segments:
            plain, side = (
                self.words.as_clusters(each),
                np.repeat((each.codes & 1).astype(np.uint8), np.diff(each.starts)),
            )
            columns = [column.read() for column in (plain.words, plain.rest) if column]
            counts = each.counts.read() if each.counts else NO_COUNTS
            add_items(builder, tags[self.words.codes(each)], np.column_stack(columns), side, counts, NO_WEIGHTS)
        return CompositeGroups(
            self.inner, replace(self.table, facts=self.table.facts[:, :-2]), KeyedCounts.built(builder)
        )


class InterleavedClustersBuilder(CodedBuilder):
    """Builder of interleaved clusters; owned by one task.

    Parameters
    ----------
    inner : ClusterSpec
    budget : Budget
    capacity : int
        Number of rows that are collected at a time.
    """

    def __init__(self, inner: ClusterSpec, budget: Budget, capacity: int) -> None:
        super().__init__(inner)
        self._budget, self._capacity = budget, capacity
        self._words: CellWords = NARROW
        self._done = replace(InterleavedClusters.empty(inner), group_codes=self._group_codes)
        self._segments = self._started()

    def _started(self) -> SegmentBuilder:
        layout = self._words.layout(self._inner)
        return SegmentBuilder(layout, self._budget, max(1, self._capacity * self._inner.layout.words // layout.words))

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; always returns True."""
        inner, codes = self._inner, self._codes(split.names.to_pylist())
        array, label, raw = batch.columns[inner.column], batch.label, split.raw
        facts = np.zeros((codes.size, 2 * len(inner_facts(inner))))
        array = row_nulls(array)
        if array.null_count:
            facts, _ = fact_sums(inner, FORMS[ClusterSpec](inner, batch), split.codes, codes.size)
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            array, label, raw = array.drop_null(), label[valid], raw[valid]
        first, rest = identify(array, inner.type, inner.scope, batch.partition)
        table, rows = codes[split.places].astype(np.int64), np.zeros((int(codes.max(initial=0)) + 1, 2), np.int64)
        for start in range(0, label.size, _ROWS):
            part = slice(start, start + _ROWS)
            cells = recoded_rows(raw[part], table)
            rows += count_rows(cells, read_only(label[part]), len(rows))
            self._add((first[part], rest[part]), cells, label[part])
        self._table.add(split.names, np.hstack((facts, rows[codes])))
        return True

    def _codes(self, names: list[bytes]) -> Array:
        """The codes of some groups; from now on with wide words, if narrow ones cannot tell all groups apart."""
        if self._words is NARROW:
            codes = self._group_codes.few(names, MOST_BLOCKS)
            if codes is not None:
                return codes
            self._done, self._words = self.interleaved(), WIDE
            self._segments, self._table = self._started(), TableBuilder()
        return self._group_codes.codes(names)

    def _add(self, ids: tuple[Array, Array], cells: Array, label: Array) -> None:
        """Add rows, given by the words of their cluster ids, the codes of their groups, and their labels."""
        if self._words is NARROW:
            encode_rows(self._segments, ids, cells, label, NO_COUNTS)
            return
        first, label = read_only(ids[0]), read_only(label)

        def encode(part: slice, *out: Array) -> None:
            encode_id(first[part], label[part], SHIFT, *out)

        self._segments.add(first.size, encode, np.column_stack((ids[1], cells.view(np.uint64))))

    def interleaved(self) -> InterleavedClusters:
        """Everything folded; the builder must not be used afterwards."""
        table = self._table.built() or InterleavedClusters.empty(self._inner).table
        last = InterleavedClusters(self._inner, self._group_codes, table, KeyedCounts.built(self._segments))
        return self._done.merge(last)
