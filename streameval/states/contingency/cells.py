"""Cells of a contingency table: their keys, their rows in pieces, watchers of single groups, and the core.

The rounds know the size and all cells of every cluster and class; a summary keeps only sums of them. A *watcher* sees
the groups themselves, some at a time, keeps what it needs in bounded memory, and runs in the process of the visit.

The *core* is the few cells that must be in memory together for the optimal one-to-one assignment. An assignment matches
at most one cluster to every class, which cannot be computed part by part. But most cells of a large table can be ruled
out early. A cluster with rows of one class only can be matched to that class alone, and only the largest of these
clusters can be optimal for it. Call this cell the *own* cell of the class; cells of the class with at most as many rows
are then not needed. The same holds for classes with rows in one cluster only. The cells are therefore visited three
times, each time in bounded memory:

1. *By cluster* (`streameval.states.contingency.by_cluster`), which hands on cells with the words of their cluster.
2. *By class* (`streameval.states.contingency.by_class`): each class keeps its own cell and the shared cells that are
   larger. A class without such shared cells is settled.
3. *By cluster* again, for the remaining cells; the cell of a class with one cell is the own cell of its cluster.

The remaining cells are held in memory, about 80 bytes each. A clustering with seventy million clusters
leaves a few cells per class. Both sides are numbered in the order of their ids, so neither the cells of the core, nor
their numbers, nor the bounds of an unsolved assignment depend on the partitioning of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from streameval.kernels.contingency.tables import add_margins, number_keys, slots_for
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.layout import NO_COUNTS, Columns, Interval, Layout, cut

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.typing import Array


ITEMS = (1 << 14, 1 << 22)  # least and largest number of items of an interval
_PARTS = 4  # least number of intervals for each thread, if there are many items
_WORTH = 1 << 17  # items of an interval that outweigh the cost of its arrays and calls
NARROW = 1 << 32  # rows below which n and c share a word
_SHARE = 1 << 10  # bytes of the budget per item: the memory of intervals in several threads, with reserve

Ids = Callable[["Array"], "Array"]  # from numbers of groups to the words of their ids (`identify`)


class Watcher(Protocol):
    """Sees all groups of a table, whole ones and each once; owned by one task."""

    def add_clusters(
        self, ids: Ids, sizes: Array, classless: Array, cells: Iterable[tuple[Array, Array, Array]]
    ) -> None:
        """Add clusters of several rows, and those of one row without a class; others of one row may be among them.

        Parameters
        ----------
        ids : from numbers of clusters to the words of their ids
        sizes, classless : int64 arrays of shape (n_clusters,), rows, and rows without a class, each a singleton class
        cells : the distinct cells: number of the cluster, first word of the class's id, and rows
        """

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[tuple[Array, Array, Array, Array]]
    ) -> None:
        """Add classes.

        Parameters
        ----------
        ids : from numbers of classes to the words of their ids
        totals, maxima : int64 arrays of shape (n_classes,), rows and largest cell of each class
        singles : int64 array of shape (n_classes,), number of its singleton cells (n = c = 1)
        cells : all other cells: number of the class, rows, size of the cluster, and multiplicity (empty: 1 each)
        """

    def add_alone(self, rows: int) -> None:
        """Add rows that have neither a class nor a cluster, each a singleton of both."""

    def merge(self, others: Iterable[Self]) -> Self:
        """One watcher with what all have seen."""


class Keys(NamedTuple):
    """The numbers of words of a (cluster, class) key that belong to the cluster and to the class."""

    cluster: int
    class_: int


def interval_items(budget: Budget) -> int:
    """Items of an interval that fit into a budget; intervals with four times as many are streamed."""
    least, most = ITEMS
    return min(max(budget.limit // _SHARE, least), most)


def part_items(items: int, room: int, threads: int) -> int:
    """Items of an interval if `room` fit, fewer if these would make too few intervals for the threads.

    Examples
    --------
    >>> part_items(1 << 22, 1 << 22, 2), part_items(1 << 22, 1 << 22, 64), part_items(100, 1 << 22, 2)
    (524288, 131072, 131072)
    """
    return min(room, max(items // (_PARTS * threads), _WORTH))


def cut_within(sizes: Array, items: int, within: Interval | None) -> list[Interval]:
    """Intervals of about `items` items, of all buckets or of those in `within`; at least one."""
    start, stop = within or (0, sizes.size)
    return [(start + a, start + b) for a, b in cut(sizes[start:stop], items)] or [(start, start)]


def class_layouts(keys: Keys, rows: int, owner: int = 0) -> tuple[Layout, Layout]:
    """Layouts of cells by class of a table of `rows` rows; the last `owner` words are those of the cluster."""
    words = keys.class_
    return Layout(ID_BUCKETS, 64, words), Layout(ID_BUCKETS, 64, words + (1 if rows < NARROW else 2) + owner)


def core_layouts(keys: Keys) -> tuple[Layout, Layout]:
    """Layouts of cells by cluster: words of both sides and the count; words of the cluster and the count."""
    return Layout(ID_BUCKETS, 64, sum(keys) + 1), Layout(ID_BUCKETS, 64, keys.cluster + 1)


def sizes_of_cells(rest: Array, at: int, *, packed: bool) -> tuple[Array, Array]:
    """Count n and cluster size c of cells, whose further words have them from column `at` on; int64 arrays."""
    word = rest[:, at]
    n, c = (word >> np.uint64(32), word & np.uint64(NARROW - 1)) if packed else (word, rest[:, at + 1])
    return n.astype(np.int64), c.astype(np.int64)


def pieces(keyed: KeyedCounts, label: int, interval: Interval, budget: Budget) -> Iterator[Columns]:
    """Items of one label in an interval; the items of a bucket too large for memory come in several pieces."""
    start, stop = interval
    if stop - start == 1 and keyed.items_in(start, stop).sum() > 4 * interval_items(budget):
        yield from keyed.pieces(start, label)
    else:
        side = keyed.gather(start, stop)[label]
        yield side.words, side.rest, side.counts, side.weights


class Margins:
    """Keys seen so far, in order of first appearance, with their totals and largest counts."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.totals, self.maxima = np.empty(0, np.int64), np.empty(0, np.int64)
        self._words, self._rest = np.empty(0, np.uint64), np.empty((0, columns), np.uint64)

    def words(self, which: Array) -> Array:
        """Words of the keys numbered `which`, as a uint64 array of shape (n, n_words)."""
        return np.column_stack((self._words[which], self._rest[which]))

    def ids(self, which: Array) -> Array:
        """As `words`, with the first word unmixed."""
        return np.column_stack((unmix(self._words[which]), self._rest[which]))

    def number(self, words: Array, rest: Array) -> Array:
        """Numbers of keys; new keys are added."""
        known = self.totals.size
        words = np.concatenate((self._words, words))
        rest = np.concatenate((self._rest, rest[:, : self.columns]))
        numbers, first = number_rows(np.array([0, words.size]), words, rest, self.columns)
        more = np.zeros(first.size - known, np.int64)
        if more.size:
            self._words, self._rest = words[first], rest[first]
            self.totals, self.maxima = np.concatenate((self.totals, more)), np.concatenate((self.maxima, more))
        return numbers[known:]

    def add(self, words: Array, rest: Array, counts: Array, largest: Array) -> Array:
        """Add counts to their keys; returns the numbers of the keys."""
        numbers = self.number(words, rest)
        add_margins(numbers, counts, largest, self.totals, self.maxima)
        return numbers


def number_rows(starts: Array, words: Array, rest: Array, columns: int) -> tuple[Array, Array]:
    """Number of each key, and the first row of each number; the keys of different buckets must differ."""
    numbers, first = np.empty((2, words.size), np.int64)
    keys = np.empty((words.size, 1 + columns), np.uint64)
    table = slots_for(starts), keys
    return numbers, first[: number_keys(starts, words, rest, tuple(range(columns)), *table, numbers, first)]


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
