"""The core of a contingency table: the few cells that must be in memory together for the optimal one-to-one assignment.

An assignment matches at most one cluster to every class, which cannot be computed part by part. But most cells of a
large table can be ruled out early. A cluster with rows of one class only can be matched to that class alone, and only
the largest of these clusters can be optimal for it. Call this cell the *own* cell of the class; cells of the class with
at most as many rows are then not needed. The same holds for classes with rows in one cluster only. The cells are
therefore visited three times, each time in bounded memory:

1. *By cluster*: the first pass of `streameval.states.contingency.pass_by_cluster`; its cells carry the words of their
   cluster.
2. *By class*: each class keeps its own cell and the shared cells that are larger. A class without such shared cells is
   settled.
3. *By cluster* again, for the remaining cells; the cell of a class with one cell is the own cell of its cluster.

The remaining cells, the *core*, are held in memory, about 80 bytes each. A clustering with seventy million clusters
leaves a few cells per class. Both sides are numbered in the order of their ids, so neither the cells of the core, nor
their numbers, nor the bounds of an unsolved assignment depend on the partitioning of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.keys import ID_BUCKETS
from streameval.states.contingency.cells import Margins, interval_items
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.cells import ClassCells, Keys
    from streameval.states.keyed.layout import Columns, Interval
    from streameval.states.mapping import Mapper
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
    """The total that a visit has settled, and the remaining lines with their own and shared cells."""

    settled: int
    words: Array
    own: Array


@dataclass(frozen=True)
class CellsLeft:
    """The cells that remain after the visit by class, by cluster.

    Attributes
    ----------
    several, single : KeyedCounts
        Shared cells of classes with several cells, and of classes with one cell.
    settled : list of Lines
        Results for the classes.
    """

    several: KeyedCounts
    single: KeyedCounts
    settled: list[Lines]

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"several": self.several, "single": self.single}

    def with_runs(self, runs: Mapping[str, Any]) -> CellsLeft:
        """The same cells in other keyed counts."""
        return replace(self, **runs)


Core = tuple[Lines, list[Cells]]  # the result of the visit by cluster for an interval


def core_cells(cells: ClassCells, lone: KeyedCounts, keys: Keys, budget: Budget, each: Mapper) -> CoreCells:
    """The core of a table.

    Parameters
    ----------
    cells : ClassCells
        Cells of the first pass, with the words of their clusters.
    lone : KeyedCounts
        Rows by cluster; each row of label 1 is a singleton class.
    keys : Keys
    budget : Budget
        Owns the memory of cells between visits.
    each : callable
        Maps a function over intervals.
    """
    left = core_of_classes(cells, keys, budget, each)
    return core_of_table([left.settled], [core_of_clusters(left, lone, keys, budget, each)], keys)


def core_of_classes(
    cells: ClassCells, keys: Keys, budget: Budget, each: Mapper, within: Interval | None = None
) -> CellsLeft:
    """The cells that remain after the visit by class, of all classes or of those in the buckets `within`."""
    found = each(partial(_visit_classes, cells, keys, budget), cells.intervals(budget, within), "matching-classes")
    several, single = (
        KeyedCounts(layout, tuple(segment for _, keyed in found for segment in keyed[i].segments))
        for i, layout in enumerate(_layouts(keys))
    )
    return CellsLeft(several, single, [lines for lines, _ in found])


def core_of_clusters(left: CellsLeft, lone: KeyedCounts, keys: Keys, budget: Budget, each: Mapper) -> list[Core]:
    """The cells that remain after the visit by cluster; `left` may hold some clusters only, but all cells of these."""
    sizes = left.several.items[0::2] + left.single.items[0::2]
    if lone.rows[1::2].any():
        sizes = sizes + lone.items[0::2] + lone.items[1::2]  # gathered with the others
    visit = partial(_visit_clusters, left.several, left.single, lone, keys, budget)
    return list(each(visit, cut(sizes, interval_items(budget)), "matching-clusters"))


def core_of_table(classes: Sequence[Sequence[Lines]], clusters: Sequence[Sequence[Core]], keys: Keys) -> CoreCells:
    """The core from the results of both visits to all parts."""
    kept = [core for part in clusters for core in part]
    cells = _joined([cells for _, cells in kept], keys)
    return _numbered([lines for part in classes for lines in part], [lines for lines, _ in kept], cells)


def _layouts(keys: Keys) -> tuple[Layout, Layout]:
    """Layouts of cells by cluster: words of both sides and the count; words of the cluster and the count."""
    return Layout(ID_BUCKETS, 64, keys.cluster + keys.class_ + 1), Layout(ID_BUCKETS, 64, keys.cluster + 1)


def _visit_classes(
    cells: ClassCells, keys: Keys, budget: Budget, interval: Interval
) -> tuple[Lines, list[KeyedCounts]]:
    """Visit by class; returns shared cells by cluster, separately for classes with several cells and with one cell."""
    builders = [SegmentBuilder.fitting(layout, budget, SLAB) for layout in _layouts(keys)]

    margins, singles = cells.margins(*(_chunks(keyed, 0, interval, budget) for keyed in (cells.rows, cells.others)))
    lone = margins.words(singles > 0)

    def parts() -> Iterator[Cells]:
        yield _own(lone, np.ones(lone.shape[0], np.int64), keys.cluster)
        for words, rest, _, _ in _chunks(cells.others, 0, interval, budget):
            n, c = cells.counts(rest)
            yield Cells(_line(words, rest[:, : keys.class_ - 1]), rest[:, -keys.cluster :], n, n < c)

    def keep(part: Cells, alone: Array) -> None:
        for builder, some in zip(builders, (part.at(~alone), part.at(alone)), strict=True):
            columns = [some.other[:, 1:], some.line, some.counts.view(np.uint64).reshape(-1, 1)]
            words = some.other[:, 0]
            rest = np.hstack(columns if builder is builders[0] else columns[::2])
            builder.add_items(words, id_codes(words), rest, NO_COUNTS, NO_WEIGHTS)

    return _undominated(parts, keep), [KeyedCounts.built(builder) for builder in builders]


def _visit_clusters(
    several: KeyedCounts, single: KeyedCounts, lone: KeyedCounts, keys: Keys, budget: Budget, interval: Interval
) -> tuple[Lines, list[Cells]]:
    """Visit by cluster; returns the remaining cells."""
    kept: list[Cells] = []

    def parts() -> Iterator[Cells]:
        for words, rest, _, _ in _chunks(several, 0, interval, budget):
            counts, shared = rest[:, -1].astype(np.int64), np.ones(words.size, np.bool_)
            yield Cells(_line(words, rest[:, : keys.cluster - 1]), rest[:, keys.cluster - 1 : -1], counts, shared)
        for words, rest, _, _ in _chunks(single, 0, interval, budget):
            yield _own(_line(words, rest[:, :-1]), rest[:, -1].astype(np.int64), keys.class_)
        if lone.rows[1::2].any():
            for words, rest, _, _ in _chunks(lone, 1, interval, budget):
                yield _own(_line(words, rest[:, : keys.cluster - 1]), np.ones(words.size, np.int64), keys.class_)

    return _undominated(parts, lambda part, _: kept.append(part)), kept


def _line(words: Array, rest: Array) -> Array:
    return np.column_stack((words, rest))


def _own(line: Array, counts: Array, columns: int) -> Cells:
    """Cells of lines that no other line shares."""
    return Cells(line, np.zeros((counts.size, columns), np.uint64), counts, np.zeros(counts.size, np.bool_))


def _chunks(keyed: KeyedCounts, label: int, interval: Interval, budget: Budget) -> Iterator[Columns]:
    """Items of one label in an interval; the items of a bucket too large for memory come in several chunks."""
    start, stop = interval
    if stop - start == 1 and keyed.items_in(start, stop).sum() > 4 * interval_items(budget):
        yield from keyed.pieces(start, label)
    else:
        side = keyed.gather(start, stop)[label]
        yield side.words, side.rest, side.counts, side.weights


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
        return Lines(0, np.empty((0, 1), np.uint64), np.empty(0, np.int64))
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


def _joined(parts: list[list[Cells]], keys: Keys) -> Cells:
    """All cells of the core, by cluster."""
    none = _own(np.empty((0, keys.cluster), np.uint64), np.empty(0, np.int64), keys.class_)
    columns = zip(none, *(part for several in parts for part in several), strict=True)
    return Cells(*(np.concatenate(column) for column in columns))


def _numbered(classes: Sequence[Lines], clusters: Sequence[Lines], cells: Cells) -> CoreCells:
    """Number both sides by id; an own cell gets a number beyond all others on the other side."""
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
