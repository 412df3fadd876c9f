"""The core of a contingency table: the few cells that must be in memory together for the optimal one-to-one assignment.

An assignment matches at most one cluster to every class, which cannot be computed part by part. But most cells of a
large table can be ruled out early. A cluster with rows of one class only can be matched to that class alone, and only
the largest of these clusters can be optimal for it. Call this cell the *own* cell of the class; cells of the class with
at most as many rows are then not needed. The same holds for classes with rows in one cluster only. The cells are
therefore visited three times, each time in bounded memory:

1. *By cluster* (`streameval.states.contingency.by_cluster`), which hands on cells with the words of their cluster.
2. *By class* (`streameval.states.contingency.by_class`): each class keeps its own cell and the shared cells that are
   larger. A class without such shared cells is settled.
3. *By cluster* again, for the remaining cells; the cell of a class with one cell is the own cell of its cluster.

The remaining cells, the *core*, are held in memory, about 80 bytes each. A clustering with seventy million clusters
leaves a few cells per class. Both sides are numbered in the order of their ids, so neither the cells of the core, nor
their numbers, nor the bounds of an unsolved assignment depend on the partitioning of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from streameval.states.contingency.cells import Margins, Watcher, cut_within, interval_items, pieces
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.layout import NO_COUNTS, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.typing import Array


class CoreCells(NamedTuple):
    """Numbered cells, and the total of settled cells.

    Attributes
    ----------
    classes, clusters : int64 arrays of shape (n_cells,)
    counts : int64 array of shape (n_cells,)
    settled : int
        Total of the settled cells, which are all part of some optimal assignment.
    """

    classes: Array
    clusters: Array
    counts: Array
    settled: int


class Cells(NamedTuple):
    """Cells by line (class or cluster): words of the line and of the other side, counts, whether they are shared."""

    line: Array
    other: Array
    counts: Array
    shared: Array

    @classmethod
    def own(cls, line: Array, counts: Array, columns: int) -> Cells:
        """Cells of lines that no other line shares."""
        return cls(line, np.zeros((counts.size, columns), np.uint64), counts, np.zeros(counts.size, np.bool_))

    def at(self, which: Array) -> Cells:
        """Return the selected cells; ``which`` is a mask or positions."""
        return Cells(*(column[which] for column in self))


class Lines(NamedTuple):
    """The total that a visit has settled, and the remaining lines with their own cells."""

    settled: int = 0
    words: Array = np.empty((0, 1), np.uint64)
    own: Array = NO_COUNTS


class Visit(NamedTuple):
    """The result of a visit to an interval of a round.

    Attributes
    ----------
    summary : the partial summary
    watcher : the watcher that saw the interval, if there is one
    lines : for the assignment, the classes or clusters that it settles or needs
    cells : for the assignment, the cells that it needs
    """

    summary: Summary
    watcher: Watcher | None = None
    lines: Lines | None = None
    cells: Sequence[Cells] = ()


@dataclass(frozen=True)
class Shared:
    """The third round, for the optimal assignment: the cells that the classes leave to it, by cluster.

    Attributes
    ----------
    several, single : KeyedCounts
        Shared cells of classes with several cells, and of classes with one cell.
    """

    several: KeyedCounts
    single: KeyedCounts

    name: ClassVar[str] = "matching"
    hands_on: ClassVar[bool] = False

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The cells."""
        return {"several": self.several, "single": self.single}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Shared:
        """The round over other cells."""
        return Shared(**runs)

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of clusters."""
        return cut_within(self.several.items[0::2] + self.single.items[0::2], interval_items(budget), within)

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, None]:
        """The cells that the assignment needs in memory together."""
        cluster = self.single.layout.words - 1
        class_ = self.several.layout.words - 1 - cluster
        core = [Cells.own(np.empty((0, cluster), np.uint64), NO_COUNTS, class_)]

        def parts() -> Iterator[Cells]:
            for words, rest, _, _ in pieces(self.several, 0, interval, budget):
                line = np.column_stack((words, rest[:, : cluster - 1]))
                yield Cells(
                    line, rest[:, cluster - 1 : -1], rest[:, -1].astype(np.int64), np.ones(words.size, np.bool_)
                )
            for words, rest, _, _ in pieces(self.single, 0, interval, budget):
                yield Cells.own(np.column_stack((words, rest[:, :-1])), rest[:, -1].astype(np.int64), class_)

        lines = keep_undominated(parts, lambda part, _: core.append(part))
        return Visit(Summary(), lines=lines, cells=core), None


def keep_undominated(parts: Callable[[], Iterator[Cells]], keep: Callable[[Cells, Array], None]) -> Lines:
    """Keep the shared cells that are larger than the own cell of their line.

    Parameters
    ----------
    parts : callable
        Yields all cells of some lines; called twice.
    keep : callable
        Takes these cells, and flags for cells that are the only one of their line.
    """
    lines: Margins | None = None
    for part in parts():
        lines = lines or Margins(part.line.shape[1] - 1)
        own_counts = np.where(part.shared, 0, part.counts)
        lines.add(part.line[:, 0], part.line[:, 1:], part.shared.astype(np.int64), own_counts)
    if lines is None:
        return Lines()
    shares, own = lines.totals, lines.maxima
    exceeded = np.zeros(own.size, np.bool_)
    for part in parts():
        if part.shared.any():
            cells = part.at(part.shared)
            codes = lines.number(cells.line[:, 0], cells.line[:, 1:])
            larger = cells.counts > own[codes]
            exceeded[codes[larger]] = True
            keep(cells.at(larger), ((own == 0) & (shares == 1))[codes[larger]])
    settled = int(own[~exceeded].sum())
    exceeded &= own > 0
    return Lines(settled, lines.words(exceeded), own[exceeded])


def add_up(rounds: Sequence[Sequence[Visit]]) -> tuple[Summary, Watcher | None, CoreCells | None]:
    """The summary of a table, its watcher, and the cells that decide the assignment, from the visits of all rounds."""
    visits = [visit for visits in rounds for visit in visits]
    summary = Summary().merge(*(visit.summary for visit in visits))
    watchers = [visit.watcher for visit in visits if visit.watcher is not None]
    lines = [[visit.lines for visit in visits if visit.lines is not None] for visits in rounds]
    core = None
    if lines[0]:
        core = _core_cells(lines[0] + lines[1], lines[2], [cells for visit in visits for cells in visit.cells])
    return summary, watchers[0].merge(watchers[1:]) if watchers else None, core


def _core_cells(classes: Sequence[Lines], clusters: Sequence[Lines], parts: Sequence[Cells]) -> CoreCells:
    """The core of a table, from what the visits to its classes and to its clusters left.

    Both sides are numbered by id; an own cell gets a number beyond all others on the other side.
    """
    cells = Cells(*map(np.concatenate, zip(*parts, strict=True)))
    sides = []
    for shared, lines in ((cells.other, classes), (cells.line, clusters)):
        own = [part.words for part in lines if part.own.size]
        sides.append(_rank(np.concatenate((shared, *own))))
    at = cells.counts.size
    own_rows, own_cols = (side[at:] for side in sides)
    beyond = [int(side.max(initial=-1)) + 1 for side in sides]
    rows = np.concatenate((sides[0], beyond[0] + own_cols))
    cols = np.concatenate((sides[1][:at], beyond[1] + own_rows, own_cols))
    counts = np.concatenate((cells.counts, *(part.own for lines in (classes, clusters) for part in lines)))
    order = np.lexsort((cols, rows))
    settled = sum(part.settled for lines in (classes, clusters) for part in lines)
    return CoreCells(rows[order], cols[order], counts[order], settled)


def _rank(words: Array) -> Array:
    """Rank of each row among the distinct ones."""
    order = np.lexsort(words.T[::-1])
    new = np.zeros(order.size, np.int64)
    new[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
