"""Interleaved cells: rows of all groups of a contingency state in one table, by cluster, class and group.

The code of the group is the last word of a row, 8 bytes more. The rows of all groups are spilled, merged and read as
those of one state. The state of all rows has the same pieces without their last words, which are dropped when they are
read. To take the groups apart, buckets are gathered a bounded number of rows at a time and ordered by group: every
group then has one piece of a few large arrays, for each stretch of buckets, however many segments the rows came in.

Up to `MOST_BLOCKS` groups are interleaved. Batches with a null id that counts as a singleton are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Computed
from streameval.kernels.grouped.interleave import ordered
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec, plain_nulls
from streameval.states.contingency.rows import RowBuilder
from streameval.states.grouped.cluster_blocks import MOST_BLOCKS
from streameval.states.grouped.composite import CompositeGroups, inner_facts
from streameval.states.grouped.interleaved.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.keys import By
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.adjacent import by_run
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, Layout, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.grouped.keys import Key, Split
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["InterleavedCells", "InterleavedCellsBuilder", "interleaves_cells"]

_SHARE = 1 << 9  # bytes of the budget for each row that is gathered; with its copies by group it takes about a fifth


def interleaves_cells(inner: Any, key: Key) -> bool:
    """Whether groups of a state are interleaved cells: slices; blocks are left out one by one.

    Examples
    --------
    >>> from streameval.states.grouped.keys import Blocks
    >>> spec = ContingencySpec("campaign", "cluster")
    >>> interleaves_cells(spec, By(("country",))), interleaves_cells(spec, Blocks("user"))
    (True, False)
    """
    return isinstance(key, By) and isinstance(inner, ContingencySpec)


def coded_layout(inner: ContingencySpec) -> Layout:
    """Layout of the rows of all groups."""
    return replace(inner.layout, words=inner.layout.words + 1)


@dataclass(frozen=True, eq=False)
class InterleavedCells(CodedGroups):
    """Groups of a contingency state in one table; all rows have both ids.

    Attributes
    ----------
    inner : ContingencySpec
    group_codes, table : as `CodedGroups`
    keyed : KeyedCounts, rows by cluster, class and group
    """

    inner: ContingencySpec

    @classmethod
    def empty(cls, inner: ContingencySpec) -> InterleavedCells:
        """No groups."""
        table = GroupTable.empty(2 * len(inner_facts(inner)))
        return cls(inner, GroupCodes(), table, KeyedCounts(coded_layout(inner)))

    def fits(self, other: InterleavedCells) -> bool:
        """Whether both have few enough groups for one table."""
        return self.shares(other, MOST_BLOCKS)

    def merge(self, other: InterleavedCells) -> InterleavedCells:
        """The groups of both, which fit."""
        table, theirs = GroupTable.union([self.table, other.table]), other.keyed
        if other.group_codes is not self.group_codes:
            recode = partial(_recoded, self.group_codes.codes(other.group_codes.names).astype(np.uint64))
            theirs = replace(theirs, segments=tuple(_computed(each, recode) for each in theirs.segments))
        return InterleavedCells(self.inner, self.group_codes, table, self.keyed.merge(theirs))

    def total(self) -> Any:
        """The inner state of all rows; no row is copied."""
        segments = tuple(_computed(each, _plain, self.inner.layout.words - 1) for each in self.keyed.segments)
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
        """The inner state of rows that have both ids."""
        spec, (label_rows, dropped) = self.inner, facts.astype(np.int64).reshape(-1, 2)
        cells, alone = KeyedCounts(spec.layout, segments), KeyedCounts(spec.class_layout)
        return ContingencyCounts(spec, cells, alone, label_rows, dropped)

    def _ordered(self, places: Array, count: int, budget: Budget) -> Iterator[dict[int, Segment]]:
        """Stretches of buckets, a bounded number of rows at a time: the segment of each place that has rows there.

        Parameters
        ----------
        places : int64 array, the place of each code; rows of codes with a negative place are left out
        count : number of places
        """
        room = max(1, min(SLAB, budget.limit // _SHARE))
        for start, stop in self.keyed.intervals(room):
            if stop - start == 1 and int(self.keyed.items_in(start, stop).sum()) > room:
                for words, rest, counts, _ in self.keyed.pieces(start, 0):
                    yield _by_place(np.full(words.size, start), words, rest, counts, places, count, budget)
                continue
            side, _ = self.keyed.gather(start, stop)
            buckets = np.repeat(np.arange(start, stop), np.diff(side.starts))
            yield _by_place(buckets, side.words, side.rest, side.counts, places, count, budget)


def _by_place(
    buckets: Array, words: Array, rest: Array, counts: Array, places: Array, count: int, budget: Budget
) -> dict[int, Segment]:
    """The rows of each place as a segment: a part of arrays that hold those of all places.

    `buckets`, of each row, ascend.
    """
    at = places[rest[:, -1]]
    order, ends = ordered(at + 1, count + 1)  # rows to leave out come first
    order, ends = order[ends[1] :], ends[1:] - ends[1]
    buckets, at = buckets[order], at[order]
    first = np.flatnonzero((np.diff(buckets, prepend=-1) != 0) | (np.diff(at, prepend=-1) != 0))
    codes, starts = (2 * buckets[first]).astype(np.uint32), np.append(first, order.size)
    rows = np.add.reduceat(counts[order], first) if counts.size and first.size else None
    columns = words[order], rest[:, :-1][order], counts[order] if counts.size else NO_COUNTS
    whole = Segment.held(budget, codes, starts, rows, None, *columns, NO_COUNTS)
    bounds = np.searchsorted(starts, ends)
    pieces = zip(range(count), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return {place: whole.pieces(a, b) for place, a, b in pieces if a < b}


def _computed(segment: Segment, made: Callable[[Array], Array], words: int | None = None) -> Segment:
    """A segment whose further words, `words` of them if given, are computed when they are read."""
    rest: Any = segment.rest
    shape = rest.shape if words is None else (rest.shape[0], words)
    return replace(segment, rest=Computed(shape, rest.dtype, lambda start, stop: made(rest.read(start, stop))))


def _plain(rest: Array) -> Array:
    return np.ascontiguousarray(rest[:, :-1])


def _recoded(codes: Array, rest: Array) -> Array:
    return np.column_stack((rest[:, :-1], codes[rest[:, -1]]))


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
        layout = coded_layout(inner)
        capacity = max(1, capacity * inner.layout.words // layout.words)
        self._rows = RowBuilder(layout, budget, capacity, (inner, key))

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; False, and nothing is done, if it is not to be interleaved."""
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
        """Everything folded; the builder is spent."""
        empty = replace(InterleavedCells.empty(self._inner), group_codes=self._group_codes)
        keyed = KeyedCounts(empty.keyed.layout, self._rows.finish())
        return replace(empty, table=self._table.built() or empty.table, keyed=keyed)
