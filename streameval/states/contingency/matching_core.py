"""The core of a contingency table: the few cells that must be in memory together for the optimal one-to-one assignment.

An assignment matches at most one cluster to every class, which cannot be computed part by part. But most cells of a
large table can be ruled out early. A cluster with rows of one class only can be matched to that class alone, and only
the largest of these clusters can be optimal for it. Call this cell the *own* cell of the class; cells of the class with
at most as many rows are then not needed. The same holds for classes with rows in one cluster only. The cells are
therefore visited three times, each time in bounded memory:

1. *By cluster* (`streameval.states.contingency.pass_by_cluster`), which hands on cells with the words of their cluster.
2. *By class*: each class keeps its own cell and the shared cells that are larger. A class without such shared cells is
   settled.
3. *By cluster* again, for the remaining cells; the cell of a class with one cell is the own cell of its cluster.

The remaining cells, the *core*, are held in memory, about 80 bytes each. A clustering with seventy million clusters
leaves a few cells per class. Both sides are numbered in the order of their ids, so neither the cells of the core, nor
their numbers, nor the bounds of an unsolved assignment depend on the partitioning of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.states.contingency.cells import Margins, pieces
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.cells import ClassCells, SharedCells
    from streameval.states.keyed.builder import SegmentBuilder
    from streameval.states.keyed.layout import Interval
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

    def at(self, which: Array) -> Cells:
        """Return the selected cells; ``which`` is a mask or positions."""
        return Cells(*(column[which] for column in self))


class Lines(NamedTuple):
    """The total that a visit has settled, and the remaining lines with their own cells."""

    settled: int
    words: Array
    own: Array

    @classmethod
    def none(cls, settled: int = 0) -> Lines:
        """No lines remain."""
        return cls(settled, np.empty((0, 1), np.uint64), np.empty(0, np.int64))


def visit_classes(
    cells: ClassCells, interval: Interval, budget: Budget, several: SegmentBuilder, single: SegmentBuilder
) -> Lines:
    """Visit by class; the builders take shared cells by cluster, of classes with several cells and with one cell."""
    keys = cells.keys
    margins, singles = cells.margins(*(pieces(keyed, 0, interval, budget) for keyed in (cells.rows, cells.others)))
    lone = margins.words(singles > 0)

    def parts() -> Iterator[Cells]:
        yield _own(lone, np.ones(lone.shape[0], np.int64), keys.cluster)
        for words, rest, _, _ in pieces(cells.others, 0, interval, budget):
            n, c = cells.counts(rest)
            yield Cells(np.column_stack((words, rest[:, : keys.class_ - 1])), rest[:, -keys.cluster :], n, n < c)

    def keep(part: Cells, alone: Array) -> None:
        for builder, some in ((several, part.at(~alone)), (single, part.at(alone))):
            columns = [some.other[:, 1:], some.line, some.counts.view(np.uint64).reshape(-1, 1)]
            words = some.other[:, 0]
            rest = np.hstack(columns if builder is several else columns[::2])
            builder.add_items(words, id_codes(words), rest, NO_COUNTS, NO_WEIGHTS)

    return _undominated(parts, keep)


def visit_clusters(cells: SharedCells, interval: Interval, budget: Budget) -> tuple[Lines, list[Cells]]:
    """Visit by cluster; returns the remaining cells."""
    keys = cells.keys
    core = [_own(np.empty((0, keys.cluster), np.uint64), NO_COUNTS, keys.class_)]

    def parts() -> Iterator[Cells]:
        for words, rest, _, _ in pieces(cells.several, 0, interval, budget):
            counts, shared = rest[:, -1].astype(np.int64), np.ones(words.size, np.bool_)
            line = np.column_stack((words, rest[:, : keys.cluster - 1]))
            yield Cells(line, rest[:, keys.cluster - 1 : -1], counts, shared)
        for words, rest, _, _ in pieces(cells.single, 0, interval, budget):
            yield _own(np.column_stack((words, rest[:, :-1])), rest[:, -1].astype(np.int64), keys.class_)

    return _undominated(parts, lambda part, _: core.append(part)), core


def _own(line: Array, counts: Array, columns: int) -> Cells:
    """Cells of lines that no other line shares."""
    return Cells(line, np.zeros((counts.size, columns), np.uint64), counts, np.zeros(counts.size, np.bool_))


def _undominated(parts: Callable[[], Iterator[Cells]], keep: Callable[[Cells, Array], None]) -> Lines:
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
        lines.add(
            part.line[:, 0], part.line[:, 1:], part.shared.astype(np.int64), np.where(part.shared, 0, part.counts)
        )
    if lines is None:
        return Lines.none()
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


def core_cells(classes: Sequence[Lines], clusters: Sequence[Lines], parts: Sequence[Cells]) -> CoreCells:
    """The core of a table, from what the visits to its classes and to its clusters left.

    Both sides are numbered by id; an own cell gets a number beyond all others on the other side.
    """
    cells = Cells(*map(np.concatenate, zip(*parts, strict=True)))
    sides = []
    for shared, lines in ((cells.other, classes), (cells.line, clusters)):
        own = [part.words for part in lines if part.own.size]
        sides.append(_ranked(np.concatenate((shared, *own))))
    at = cells.counts.size
    own_rows, own_cols = (side[at:] for side in sides)
    beyond = [int(side.max(initial=-1)) + 1 for side in sides]
    rows = np.concatenate((sides[0], beyond[0] + own_cols))
    cols = np.concatenate((sides[1][:at], beyond[1] + own_rows, own_cols))
    counts = np.concatenate((cells.counts, *(part.own for lines in (classes, clusters) for part in lines)))
    order = np.lexsort((cols, rows))
    settled = sum(part.settled for lines in (classes, clusters) for part in lines)
    return CoreCells(rows[order], cols[order], counts[order], settled)


def _ranked(words: Array) -> Array:
    """Rank of each row among the distinct ones."""
    order = np.lexsort(words.T[::-1])
    new = np.zeros(order.size, np.int64)
    new[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
