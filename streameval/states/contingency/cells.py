"""Keys of cells, numbered keys, and rows that are read in pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from streameval.kernels.contingency.attribution import mark_table, marked_rows
from streameval.kernels.contingency.tables import add_margins, number_keys, slots_for
from streameval.kernels.jit import read_only
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import Interval, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Columns
    from streameval.typing import Array

ITEMS = (1 << 14, 1 << 22)  # least and largest number of items of an interval
_PARTS = 4  # least number of intervals for each thread, if there are many items
_WORTH = 1 << 17  # items of an interval that outweigh the cost of its arrays and calls
NARROW = 1 << 32  # rows below which n and c share a word
_SHARE = 1 << 10  # bytes of the budget per item: the memory of intervals in several threads, with reserve


class Keys(NamedTuple):
    """How many words of a (cluster, class) key belong to the cluster, and how many to the class."""

    cluster: int
    class_: int


def interval_items(budget: Budget) -> int:
    """Items of an interval that fit into a budget; intervals with four times as many are streamed."""
    least, most = ITEMS
    return min(max(budget.limit // _SHARE, least), most)


def parted(items: int, room: int, threads: int) -> int:
    """Items of an interval if `room` fit, fewer if these would make too few intervals for the threads.

    Examples
    --------
    >>> parted(1 << 22, 1 << 22, 2), parted(1 << 22, 1 << 22, 64), parted(100, 1 << 22, 2)
    (524288, 131072, 131072)
    """
    return min(room, max(items // (_PARTS * threads), _WORTH))


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
        words = self.words(which)
        words[:, 0] = unmix(words[:, 0])
        return words

    def number(self, words: Array, rest: Array) -> Array:
        """Numbers of keys; new keys are added."""
        known = self.totals.size
        words = np.concatenate((self._words, words))
        rest = np.concatenate((self._rest, rest[:, : self.columns]))
        numbers, found = numbered(np.array([0, words.size]), words, rest, self.columns)
        more = np.zeros(found.size - known, np.int64)
        if more.size:
            self._words, self._rest = words[found], rest[found]
            self.totals, self.maxima = np.concatenate((self.totals, more)), np.concatenate((self.maxima, more))
        return numbers[known:]

    def add(self, words: Array, rest: Array, counts: Array, largest: Array) -> Array:
        """Add counts to their keys; returns the numbers of the keys."""
        numbers = self.number(words, rest)
        add_margins(numbers, counts, largest, self.totals, self.maxima)
        return numbers


def numbered(starts: Array, words: Array, rest: Array, columns: int) -> tuple[Array, Array]:
    """Number of each key, and the first row of each number; the keys of different buckets must differ."""
    numbers, found = np.empty((2, words.size), np.int64)
    keys = np.empty((words.size, 1 + columns), np.uint64)
    table = slots_for(starts), keys
    return numbers, found[: number_keys(starts, words, rest, tuple(range(columns)), *table, numbers, found)]


@dataclass(frozen=True)
class ShardRows:
    """The rows of some buckets of clusters that have a class.

    Attributes
    ----------
    cells : rows by cluster and class
    keys : words of both ids
    shard : the buckets
    """

    cells: KeyedCounts
    keys: Keys
    shard: Interval

    def near(self, clusters: Array, classes: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Rows of some clusters or classes, with a few others among them, in any order, a bounded number at a time.

        Parameters
        ----------
        clusters, classes : uint64 arrays of shape (n, n_words), words of ids; rows of other ids with the same mark are
            yielded as well

        Yields
        ------
        cluster, class : uint64 arrays of shape (n_rows, n_words), words of ids
        counts : int64 array of shape (n_rows,)
        """
        marks = [mark_table(ids[:, 0]) for ids in (clusters, classes)]
        column, found, rows = self.keys.cluster - 1, [], 0
        for codes, starts, (words, rest, counts, _) in self.cells.slabs(self.shard):
            at = marked_rows(codes, starts, read_only(words), read_only(rest), column, *marks)
            if at.size:
                times = counts[at] if counts.size else np.ones(at.size, np.int64)
                found.append((words[at], rest[at], times))
                rows += at.size
            if rows > SLAB:
                yield self._split(found)
                found, rows = [], 0
        if rows:
            yield self._split(found)

    def _split(self, found: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
        """Rows as words of clusters, words of classes, and counts."""
        words, rest, counts = (np.concatenate(column) for column in zip(*found, strict=True))
        column = self.keys.cluster - 1
        return np.column_stack((unmix(words), rest[:, :column])), np.ascontiguousarray(rest[:, column:]), counts


@dataclass(frozen=True)
class ClassCells:
    """Cells by class, handed from the first round to the second.

    Attributes
    ----------
    rows : KeyedCounts
        Singleton cells (n = c = 1); the words are the class.
    others : KeyedCounts
        All other cells, with n and c after the words of the class, in one word if both are below 2³²; then `owner`
        words of the cluster.
    single : KeyedCounts
        For the assignment, the clusters with rows without a class, with the largest such cell, 1.
    owner : int
        Number of words of the cluster that cells carry.
    """

    rows: KeyedCounts
    others: KeyedCounts
    single: KeyedCounts
    owner: int = 0

    @property
    def keys(self) -> Keys:
        """Words of both ids, if cells carry those of their cluster."""
        return Keys(self.owner, self.rows.layout.words)

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"rows": self.rows, "others": self.others, "single": self.single}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The same cells in other keyed counts."""
        fields: dict[str, Any] = dict(runs)
        return replace(self, **fields)

    @property
    def packed(self) -> bool:
        """Whether n and c share a word."""
        return self.others.layout.words - self.rows.layout.words - self.owner == 1

    def counts(self, rest: Array) -> tuple[Array, Array]:
        """Count n and cluster size c of other cells, from the further words of their keys; int64 arrays."""
        return sizes_of_cells(rest, self.rows.layout.words - 1, packed=self.packed)

    def margins(self, rows: Iterable[Columns], others: Iterable[Columns]) -> tuple[Margins, Array]:
        """Sizes and largest cells of the classes of some rows and cells, and each class's number of singleton cells."""
        margins = Margins(self.rows.layout.words - 1)
        for words, rest, counts, _ in rows:
            ones = np.ones(words.size, np.int64)
            margins.add(words, rest, counts if counts.size else ones, ones - 1)
        singles = margins.totals.copy()
        np.minimum(singles, 1, out=margins.maxima)
        for words, rest, counts, _ in others:
            n = self.counts(rest)[0]
            margins.add(words, rest, n * counts if counts.size else n, n)
        singles = np.concatenate((singles, np.zeros(margins.totals.size - singles.size, np.int64)))
        return margins, singles

    def sizes(self) -> Array:
        """Items of each bucket, as an int64 array."""
        return self.rows.items[0::2] + self.others.items[0::2]


@dataclass(frozen=True)
class SharedCells:
    """The cells that the classes leave to the optimal assignment, by cluster.

    Attributes
    ----------
    several, single : KeyedCounts
        Shared cells of classes with several cells, and of classes with one cell.
    """

    several: KeyedCounts
    single: KeyedCounts

    @property
    def keys(self) -> Keys:
        """Words of both ids."""
        cluster = self.single.layout.words - 1
        return Keys(cluster, self.several.layout.words - 1 - cluster)

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"several": self.several, "single": self.single}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The same cells in other keyed counts."""
        fields: dict[str, Any] = dict(runs)
        return replace(self, **fields)
