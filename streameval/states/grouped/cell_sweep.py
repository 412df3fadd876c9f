"""CellSweep: the summaries of all groups of interleaved cells, from two passes that the groups share.

The rows of a shard of clusters are separated by group in memory that is used again for the next shard, and the first
pass over the clusters of each group follows at once, while they are in the cache. So no group is ever stored alone. The
second pass takes the classes of all groups together. Both passes are those of a single table
(`streameval.states.contingency.pass_by_cluster`), so that a group has the same summary as its rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streameval.states.contingency.cells import interval_items, parted
from streameval.states.contingency.counts import SummarisedCounts
from streameval.states.contingency.pass_by_class import by_class
from streameval.states.contingency.pass_by_cluster import RUN, FirstPass
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.counts import KeyedCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.budget import Budget
    from streameval.states.contingency.pass_by_cluster import ClassParts
    from streameval.states.grouped.interleaved.cells import InterleavedCells
    from streameval.states.keyed.layout import Interval, Segment
    from streameval.states.mapping import Mapper
    from streameval.typing import Array

__all__ = ["CellSweep"]

_TASKS = 2  # most tasks for each thread
_OF_TASK = 1 << 18  # mean number of rows of a group in a task; for fewer, it is faster to store each group alone
_OF_SHARD = 1 << 14  # the same for a shard, because each takes calls for every group


@dataclass(frozen=True, eq=False)
class CellSweep:
    """All groups of interleaved cells.

    Attributes
    ----------
    cells : InterleavedCells
    budget : owns the memory of the passes
    """

    cells: InterleavedCells
    budget: Budget

    @property
    def worthwhile(self) -> bool:
        """Whether each thread has a task, and a shard that fits into memory has enough rows of each group."""
        return self._count >= self.budget.threads and self._room >= _OF_SHARD * len(self._rows)

    def tables(self, each: Mapper) -> dict[bytes, SummarisedCounts]:
        """The table of each group, by name; `each` maps a function over tasks."""
        names, _ = self.cells.named_codes()
        tables = [self.cells.inner_state((), facts) for facts in self.cells.table.facts]
        found: list[list[Summary]] = [[] for _ in tables]
        parts: list[list[ClassParts]] = [[] for _ in tables]
        for task in each(self._first, self._tasks, "clusters"):
            for place, (summary, part) in task.items():
                found[place].append(summary)
                parts[place].append(part)
        self.budget.release_spares()
        classes = [table.classes(own, rows=rows) for table, own, rows in zip(tables, parts, self._rows, strict=True)]
        work = [(place, shard) for place, own in enumerate(classes) for shard in own.intervals(self.budget)]
        second = each(lambda item: by_class(classes[item[0]], item[1], self.budget), work, "classes")
        for (place, _), summary in zip(work, second, strict=True):
            found[place].append(summary)
        return {
            name: SummarisedCounts(table, Summary().merge(*own))
            for name, table, own in zip(names, tables, found, strict=True)
        }

    @cached_property
    def _rows(self) -> list[int]:
        """Rows of each group, in the order of the table."""
        rows: list[int] = self.cells.table.facts[:, :2].sum(axis=1).astype(np.int64).tolist()
        return rows

    @cached_property
    def _items(self) -> int:
        """Stored items of all groups."""
        return int(self.cells.keyed.items.sum())

    @cached_property
    def _places(self) -> Array:
        """The place of each code: that of the group in the table, or −1."""
        places, (_, codes) = np.full(len(self.cells.group_codes), -1), self.cells.named_codes()
        places[codes] = np.arange(len(codes))
        return places

    @cached_property
    def _room(self) -> int:
        """Largest number of rows that are separated in memory at a time."""
        return interval_items(self.budget)

    @property
    def _count(self) -> int:
        """Largest number of tasks of the first pass; 0 if there are too few rows."""
        return min(_TASKS * self.budget.threads, self._items // (_OF_TASK * max(1, len(self._rows))))

    @property
    def _tasks(self) -> list[list[Interval]]:
        """Intervals of clusters for each task: few tasks, since each collects the cells of every group."""
        least, count = _OF_SHARD * len(self._rows), max(1, self._count)
        room = max(parted(self._items, self._room, self.budget.threads), least)
        shards = self.cells.keyed.intervals(min(self._room, room))
        cuts = [len(shards) * i // count for i in range(count + 1)]
        return [shards[a:b] for a, b in pairwise(cuts) if a < b]

    def _first(self, shards: list[Interval]) -> dict[int, tuple[Summary, ClassParts]]:
        """The first pass over the clusters of each group in some shards."""
        spec, passes = self.cells.inner, dict[int, FirstPass]()
        share = min(RUN * self._room / max(1, sum(self._rows)), 1 / max(1, self._count))  # of its rows in a task
        for shard in shards:
            for place, segments in self._separated(shard):
                if place not in passes:
                    rows = self._rows[place]
                    passes[place] = FirstPass(spec.keys, rows, int(rows * share), self.budget)
                passes[place].take(KeyedCounts(spec.layout, segments), shard)
        return {place: one.result() for place, one in passes.items()}

    def _separated(self, shard: Interval) -> Iterator[tuple[int, tuple[Segment, ...]]]:
        """The rows of each group in a shard; unless a bucket is giant, they lie in memory that the budget lends."""
        cells, given = self.cells, (self._places, len(self._rows), self.budget)
        if cells.is_giant(shard, self._room):
            several: dict[int, list[Segment]] = {}
            for one in cells.pieces_by_place(shard, *given):
                for place, segment in one.items():
                    several.setdefault(place, []).append(segment)
            yield from ((place, tuple(segments)) for place, segments in several.items())
            return
        size = 1 << int(cells.keyed.items_in(*shard).sum()).bit_length()  # arrays of equal size can be used again
        width = cells.keyed.layout.words - 1
        scratch = self.budget.borrow(size, np.uint64), self.budget.borrow((size, width), np.uint64)
        yield from ((place, (segment,)) for place, segment in cells.by_place(shard, *given, scratch).items())
        for column in scratch:
            self.budget.give_back(column)
