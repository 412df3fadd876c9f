"""Interleaved cells: the rows of all groups of a contingency state in one table, by cluster, class and group.

The code of the group takes the bits of the first word that its bucket determines, so that a row takes as much memory as
in the state of all rows. The rows of all groups are spilled, merged and read like those of one state. The state of all
rows consists of the same pieces; the first words are restored on reading. Groups are separated a bounded number of rows
at a time, bucket by bucket. Each group then has one slice of a few large arrays for each stretch of buckets, however
many segments there were.

Up to `MOST_BLOCKS` groups are interleaved. Batches with null ids that count as singletons are not interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import fresh_array
from streameval.kernels.grouped.interleave import count_places, separate
from streameval.states.clusters.cell_words import MOST_BLOCKS
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.contingency.rows import Form, RowBuilder
from streameval.states.grouped.composite import CompositeGroups, inner_facts
from streameval.states.grouped.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.adjacent import by_run
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import row_nulls
from streameval.states.keyed.layout import Segment, SegmentAddresses
from streameval.states.keyed.tags import TAG, fixed_bits, tagged, tags_of, untagged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.grouped.keys import Split
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Batch
    from streameval.typing import Array

_SHARE = 1 << 9  # bytes of the budget for each of the rows that are separated at a time


@dataclass(frozen=True, eq=False)
class InterleavedCells(CodedGroups):
    """Groups of a contingency state in one table; all rows have both ids.

    Attributes
    ----------
    inner : ContingencySpec
    group_codes, table : as in `CodedGroups`
    keyed : KeyedCounts, rows by cluster, class and group
    """

    inner: ContingencySpec

    @classmethod
    def empty(cls, inner: ContingencySpec) -> InterleavedCells:
        """Without groups."""
        table = GroupTable.empty(2 * len(inner_facts(inner)))
        return cls(inner, GroupCodes(), table, KeyedCounts(inner.layout))

    def fits(self, other: InterleavedCells) -> bool:
        """Whether both have few enough groups for one table."""
        return self.shares(other, MOST_BLOCKS)

    def most(self) -> int:
        """Number of codes that a tag has room for."""
        return MOST_BLOCKS

    def recoded_segment(self, segment: Segment, codes: Array) -> Segment:
        """The rows of a segment with new codes."""
        return replace(segment, words=segment.words.computed(partial(_recoded, codes.astype(np.uint64)), np.uint64))

    def _plain(self, segment: Segment) -> Segment:
        """The rows without tags."""
        return untagged(segment)

    def _marked(self, marks: Array, budget: Budget) -> Iterator[Segment]:
        """The rows of the groups whose codes are marked."""
        for interval in self.keyed.intervals(self._most(budget)):
            yield from (one for _, one in self._by_place(interval, marks.astype(np.int64) - 1, 1, budget))

    def _most(self, budget: Budget) -> int:
        """Number of items of an interval of `alone`."""
        return max(1, min(SLAB, budget.limit // _SHARE))

    def _divided(self, interval: Interval, budget: Budget) -> Iterator[tuple[int, Segment]]:
        """The rows of each code in an interval of buckets as segments of the inner state."""
        count = len(self.group_codes)
        return self._by_place(interval, np.arange(count), count, budget)

    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: apart, and under composite keys."""
        return self.alone(), CompositeGroups.empty(self.inner)

    def inner_state(self, segments: tuple[Segment, ...], facts: Array) -> ContingencyCounts:
        """An inner state without null ids, from its segments and facts."""
        spec, (label_rows, dropped) = self.inner, facts.astype(np.int64).reshape(-1, 2)
        cells, alone = KeyedCounts(spec.layout, segments), KeyedCounts(spec.class_layout)
        return ContingencyCounts(spec, cells, alone, label_rows, dropped)

    def _by_place(self, interval: Interval, places: Array, count: int, budget: Budget) -> Iterator[tuple[int, Segment]]:
        """The rows of each place in an interval of buckets, a bounded number of a giant bucket at a time.

        Parameters
        ----------
        interval : (int, int)
        places : int64 array, the place of each code; rows of codes with a negative place are left out
        count : number of places
        budget : owns the segments, which are slices of arrays with the rows of all places
        """
        start, stop = interval
        parts = iter([self.keyed.places(start, stop)])
        if stop - start == 1 and int(self.keyed.items_in(start, stop).sum()) > self._most(budget):
            parts = map(SegmentAddresses.of_columns, self.keyed.pieces(start, 0))
        for rows in parts:
            yield from self._separated(rows, start, places, count, budget)

    def _separated(
        self, rows: SegmentAddresses, start: int, places: Array, count: int, budget: Budget
    ) -> Iterator[tuple[int, Segment]]:
        """`_by_place` for some rows of consecutive buckets from `start` on."""
        buckets, width = start + np.arange(rows.at.starts.shape[1] // 2), self.keyed.layout.words - 1
        items = np.zeros((count, buckets.size), np.int64)
        placed = rows.at, places, *TAG
        count_places(*placed, items)
        ends = np.cumsum(items)
        total = int(ends[-1])
        words, rest = fresh_array((total,), np.uint64), fresh_array((total, width), np.uint64)
        counts, sums = np.empty(total if rows.at.counts.any() else 0, np.int64), np.zeros_like(items)
        cursor = ends.reshape(items.shape) - items
        separate(*placed, fixed_bits(buckets), tuple(range(width)), cursor, words, rest, counts, sums)
        place, bucket = items.nonzero()
        codes, starts = (2 * buckets[bucket]).astype(np.uint32), np.append(0, ends[items.ravel() > 0])
        rows_of = sums[place, bucket] if counts.size else None
        whole = Segment.held(budget, codes, starts, rows_of, None, words, rest, counts)
        bounds = np.searchsorted(place, np.arange(count + 1)).tolist()
        yield from ((number, whole.pieces(a, b)) for number, (a, b) in enumerate(pairwise(bounds)) if a < b)


def _recoded(codes: Array, words: Array) -> Array:
    """First words tagged with new codes; `codes` is a uint64 array, indexed by the old codes."""
    return tagged(words, codes[tags_of(words)])


class InterleavedCellsBuilder(CodedBuilder):
    """Builder of interleaved cells; owned by one task.

    Parameters
    ----------
    inner : ContingencySpec
    budget : Budget
    capacity : int
        Rows of a builder of the inner state.
    """

    def __init__(self, inner: ContingencySpec, budget: Budget, capacity: int) -> None:
        super().__init__(inner)
        self._rows = RowBuilder(inner.layout, budget, capacity, Form.GROUP)

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; returns False, and does nothing, if it is not to be interleaved."""
        inner, names = self._inner, split.names.to_pylist()
        arrays = [row_nulls(batch.columns[name]) for name in inner.columns]
        whole = not any(array.null_count for array in arrays)
        codes = self._group_codes.few(names, MOST_BLOCKS) if whole or inner.nulls == "drop" else None
        if codes is None:
            return False
        groups = split.codes
        if whole:
            facts = np.zeros((len(names), 2 * len(inner_facts(inner))))
            facts[:, :2] = np.bincount(2 * groups + batch.label, minlength=2 * len(names)).reshape(-1, 2)
        else:
            rows = FORMS[ContingencySpec](inner, batch)
            facts, _ = fact_sums(inner, rows, groups, len(names))
            arrays, groups = [array.take(rows.rows) for array in arrays], groups[rows.rows]
        words = inner.row_words(arrays[0], arrays[1], batch.partition)
        (*words, groups), counts = by_run((*words, codes.astype(np.uint16)[groups]))
        self._rows.add(words, counts, groups)
        self._table.add(split.names, facts)
        return True

    def interleaved(self) -> InterleavedCells:
        """Everything folded; the builder must not be used afterwards."""
        empty = replace(InterleavedCells.empty(self._inner), group_codes=self._group_codes)
        keyed = KeyedCounts(empty.keyed.layout, self._rows.finish())
        return replace(empty, table=self._table.built() or empty.table, keyed=keyed)
