"""Keys of cells, numbered keys, rows that are read in pieces, and watchers of single clusters and classes.

The rounds know the size and all cells of every cluster and class; a summary keeps only sums of them. A *watcher* sees
the groups themselves, some at a time, keeps what it needs in bounded memory, and runs in the process of the visit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np

from streameval.kernels.contingency.tables import add_margins, number_keys, slots_for
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.keyed.layout import Columns, Interval, Layout, cut

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


def parted(items: int, room: int, threads: int) -> int:
    """Items of an interval if `room` fit, fewer if these would make too few intervals for the threads.

    Examples
    --------
    >>> parted(1 << 22, 1 << 22, 2), parted(1 << 22, 1 << 22, 64), parted(100, 1 << 22, 2)
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
        numbers, first = numbered(np.array([0, words.size]), words, rest, self.columns)
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


def numbered(starts: Array, words: Array, rest: Array, columns: int) -> tuple[Array, Array]:
    """Number of each key, and the first row of each number; the keys of different buckets must differ."""
    numbers, first = np.empty((2, words.size), np.int64)
    keys = np.empty((words.size, 1 + columns), np.uint64)
    table = slots_for(starts), keys
    return numbers, first[: number_keys(starts, words, rest, tuple(range(columns)), *table, numbers, first)]
