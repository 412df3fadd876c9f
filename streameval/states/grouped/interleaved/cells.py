"""Interleaved cells: the rows of all groups of a contingency state in one table, by cluster, class and group.

The code of the group takes the bits of the first word that its bucket determines, so that a row takes as much memory as
in the state of all rows. The rows of all groups are spilled, merged and read like those of one state. The state of all
rows consists of the same pieces; the first words are restored on reading. To separate the groups, a bounded number of
rows is gathered at a time, bucket by bucket, and ordered by group. Each group then has one slice of a few large arrays
for each stretch of buckets, however many segments there were.

Up to `MOST_BLOCKS` groups are interleaved. Batches with null ids that count as singletons are not interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Computed
from streameval.kernels.blocks.clusters import BLOCK_BITS
from streameval.kernels.grouped.interleave import ordered, replaced_bits
from streameval.states.clusters.cell_words import fixed_bits
from streameval.states.contingency.builder import plain_nulls
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.contingency.rows import RowBuilder
from streameval.states.grouped.cluster_blocks import MOST_BLOCKS
from streameval.states.grouped.composite import CompositeGroups, inner_facts
from streameval.states.grouped.interleaved.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.keys import By
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.adjacent import by_run
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, Segment, Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streameval.budget import Budget, Buffer
    from streameval.states.grouped.keys import Key, Split
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["InterleavedCells", "InterleavedCellsBuilder", "interleaves_cells"]

_CODE_SHIFT, _CODE = (
    np.uint64(63 - BLOCK_BITS),
    np.uint64(fixed_bits(np.array(MOST_BLOCKS - 1))),
)  # where a word has its code
_SHARE = 1 << 9  # bytes of the budget for each gathered row, which takes about a fifth of that with its copies


def interleaves_cells(inner: Any, key: Key) -> bool:
    """Whether groups of a state are stored as interleaved cells: slices are; blocks are not.

    Examples
    --------
    >>> from streameval.states.grouped.keys import Blocks
    >>> spec = ContingencySpec("campaign", "cluster")
    >>> interleaves_cells(spec, By(("country",))), interleaves_cells(spec, Blocks("user"))
    (True, False)
    """
    return isinstance(key, By) and isinstance(inner, ContingencySpec)


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

    def merge(self, other: InterleavedCells) -> InterleavedCells:
        """The groups of both inputs, for which `fits` must hold."""
        table, theirs = GroupTable.union([self.table, other.table]), other.keyed
        if other.group_codes is not self.group_codes:
            recode = partial(_recoded, self.group_codes.codes(other.group_codes.names).astype(np.uint64))
            segments = (replace(each, words=each.words.computed(recode, np.uint64)) for each in theirs.segments)
            theirs = replace(theirs, segments=tuple(segments))
        return InterleavedCells(self.inner, self.group_codes, table, self.keyed.merge(theirs))

    def total(self) -> Any:
        """The inner state of all rows, without copying them."""
        segments = tuple(replace(each, words=_plain_words(each)) for each in self.keyed.segments)
        return self._inner(segments, self.table.facts.sum(axis=0))

    def restored(self, marks: Array, budget: Budget | None = None) -> Any:
        """The inner state of the groups whose codes are marked."""
        budget = self.keyed.holding(budget)
        kept = marks.astype(np.int64) - 1
        segments = tuple(segment for one in self._ordered(kept, 1, budget) for segment in one.values())
        return self._inner(segments, self.table.facts[marks[self.named_codes()[1]]].sum(axis=0))

    def alone(self, budget: Budget | None = None) -> dict[bytes, Any]:
        """The inner state of each group, by name, in one pass over the rows."""
        budget, (names, codes) = self.keyed.holding(budget), self.named_codes()
        segments: dict[int, list[Segment]] = {code: [] for code in codes}
        count = len(self.group_codes)
        for found in self._ordered(np.arange(count), count, budget):
            for code, segment in found.items():
                segments[code].append(segment)
        return {
            name: self._inner(tuple(segments[code]), facts)
            for name, code, facts in zip(names, codes, self.table.facts, strict=True)
        }

    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: apart, and under composite keys."""
        return self.alone(), CompositeGroups.empty(self.inner)

    def _inner(self, segments: tuple[Segment, ...], facts: Array) -> Any:
        """An inner state without null ids, from its segments and facts."""
        spec, (label_rows, dropped) = self.inner, facts.astype(np.int64).reshape(-1, 2)
        cells, alone = KeyedCounts(spec.layout, segments), KeyedCounts(spec.class_layout)
        return ContingencyCounts(spec, cells, alone, label_rows, dropped)

    def _ordered(self, places: Array, count: int, budget: Budget) -> Iterator[dict[int, Segment]]:
        """For each stretch of buckets with a bounded number of rows, the segments of the places that have rows there.

        Parameters
        ----------
        places : int64 array, the place of each code; rows of codes with a negative place are left out
        count : number of places
        budget : owns the segments, and limits the number of rows of a stretch
        """
        room = max(1, min(SLAB, budget.limit // _SHARE))
        for start, stop in self.keyed.intervals(room):
            if stop - start == 1 and int(self.keyed.items_in(start, stop).sum()) > room:
                for columns in self.keyed.pieces(start, 0):
                    side = Side(np.array([0, columns[0].size]), *columns)
                    yield _by_place(np.array([start]), side, places, count, budget)
                continue
            side, _ = self.keyed.gather(start, stop)
            yield _by_place(np.arange(start, stop), side, places, count, budget)


def _by_place(buckets: Array, side: Side, places: Array, count: int, budget: Budget) -> dict[int, Segment]:
    """The rows of each place as a segment, which is a slice of arrays with the rows of all places.

    `side` has the rows of consecutive `buckets`; `places` and `count` are as in `InterleavedCells._ordered`.
    """
    at, counts = places[_codes_of(side.words)], side.counts
    order, ends = ordered(at + 1, count + 1)  # the rows that are left out come first
    order, ends = order[ends[1] :], ends[1:] - ends[1]
    words = _plain(side.words, side.starts, buckets)
    buckets, at = np.repeat(buckets, np.diff(side.starts))[order], at[order]
    first = np.flatnonzero((np.diff(buckets, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 0))
    codes, starts = (2 * buckets[first]).astype(np.uint32), np.append(first, order.size)
    rows = np.add.reduceat(counts[order], first) if counts.size and first.size else None
    columns = words[order], side.rest[order], counts[order] if counts.size else NO_COUNTS
    whole = Segment.held(budget, codes, starts, rows, None, *columns, NO_COUNTS)
    bounds = np.searchsorted(starts, ends)
    pieces = zip(range(count), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return {place: whole.pieces(a, b) for place, a, b in pieces if a < b}


def _codes_of(words: Array) -> Array:
    """The codes of the groups in the first words of rows."""
    return (words & _CODE) >> _CODE_SHIFT


def _coded(words: Array, codes: Array) -> Array:
    """First words with these codes, a uint64 array, in place of the bits that their buckets determine."""
    return (words & ~_CODE) | (codes << _CODE_SHIFT)


def _recoded(codes: Array, words: Array) -> Array:
    """First words with new codes; `codes` is a uint64 array, indexed by the old codes."""
    return _coded(words, codes[_codes_of(words)])


def _plain(words: Array, starts: Array, buckets: Array) -> Array:
    """First words without codes, in pieces of one bucket each, from the starts of the pieces and their end."""
    found: Array = replaced_bits(words, starts, fixed_bits(buckets), ~_CODE)
    return found


def _plain_words(segment: Segment) -> Buffer:
    """The first words of a segment without codes, computed on reading."""

    def plain(start: int, stop: int) -> Array:
        starts = np.clip(segment.starts, start, stop) - start
        return _plain(segment.words.read(start, stop), starts, segment.codes >> 1)

    return Computed(segment.words.shape, np.dtype(np.uint64), plain)


class _CodedSegments(SegmentBuilder):
    """Segments of rows whose last word is the code of the group, which is moved into the first word."""

    def take_pieces(self, codes: Array, starts: Array, words: Array, rest: Array, counts: Array = NO_COUNTS) -> None:
        """As `SegmentBuilder.take_pieces`; `words` are mixed."""
        super().take_pieces(codes, starts, _coded(words, rest[:, -1]), np.ascontiguousarray(rest[:, :-1]), counts)


class InterleavedCellsBuilder(CodedBuilder):
    """Builder of interleaved cells; owned by one task.

    Parameters
    ----------
    inner : ContingencySpec
    key : Key
    budget : Budget
    capacity : int
        Rows of a builder of the inner state.
    """

    def __init__(self, inner: ContingencySpec, key: Key, budget: Budget, capacity: int) -> None:
        super().__init__(inner, key, budget)
        layout = replace(inner.layout, words=inner.layout.words + 1)
        capacity = max(1, capacity * inner.layout.words // layout.words)
        self._rows = RowBuilder(layout, budget, capacity, (inner, key), _CodedSegments(inner.layout, budget, 1))

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; returns False, and does nothing, if it is not to be interleaved."""
        inner, names = self._inner, split.names.to_pylist()
        arrays = [plain_nulls(batch.columns[name]) for name in inner.columns]
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
            facts = fact_sums(inner, rows, groups, len(names))
            arrays, groups = [array.take(rows.rows) for array in arrays], groups[rows.rows]
        words = inner.row_words(arrays[0], arrays[1], batch.partition)
        self._rows.add(*by_run((*words, codes.astype(np.uint64)[groups])))
        self._table.add(split.names, facts)
        return True

    def interleaved(self) -> InterleavedCells:
        """Everything folded; the builder must not be used afterwards."""
        empty = replace(InterleavedCells.empty(self._inner), group_codes=self._group_codes)
        keyed = KeyedCounts(empty.keyed.layout, self._rows.finish())
        return replace(empty, table=self._table.built() or empty.table, keyed=keyed)
