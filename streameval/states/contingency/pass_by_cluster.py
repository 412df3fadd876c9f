"""The first round over (cluster, class) cells, by cluster; see `streameval.states.contingency.rounds` for all of them.

Clusters are visited bucket by bucket. One bucket holds all rows of a cluster, so its size c, largest cell and counts n
are known at once. Each cell is handed on as (class, n, c), except singletons, n = c = 1, which are counted by class.

One loop reads rows where they lie in the segments and writes their cells
(`streameval.kernels.contingency.cells.cluster_cells`): nothing is sorted, since a hash table that fits into the
cache numbers the clusters of a bucket.

Two kinds of buckets are visited twice instead, first for the sizes of clusters, then for their cells: those with rows
without a class, each a singleton class, and those too large for memory, which hold a giant cluster. The rows of the
latter are distributed over 2,048 parts by a hash of the whole key, so that equal cells stay together; memory then holds
the distinct clusters of that bucket. Equal cells of a giant class are stored once with a multiplicity.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency.cells import BucketArrays, CellArrays, cluster_cells
from streameval.kernels.contingency.tables import add_margins, slots_for, tally_small
from streameval.kernels.singletons import marks_for
from streameval.states.contingency.cells import Keys, Margins, class_layouts, interval_items, numbered, sizes_of_cells
from streameval.states.contingency.pass_by_class import lone_classes
from streameval.states.contingency.size_counts import Sizes
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.contingency.watch import Watcher
    from streameval.states.keyed.layout import Interval, SegmentAddresses, Side
    from streameval.typing import Array

_TOGETHER = 1 << 21  # rows whose addresses are looked up together; those of spilled segments are read
_CELLS = 1 << 19  # rows whose cells are written, or gathered, together
_SMALL = 1 << 16  # sizes tallied in a table; larger clusters are rare
_SPREAD = np.uint64(0xFF51AFD7ED558CCD)  # unlike the kernels' multiplier, so bits differ


class ClusterCells(NamedTuple):
    """Cells of some whole clusters; the arrays are overwritten by the next cells.

    Attributes
    ----------
    words, rest : uint64 arrays, first and further words of the cells of clusters of several rows
    singles : uint64 array of shape (n_singles, n_class), classes of singleton cells (n = c = 1)
    large : int64 array, sizes of clusters that are not counted in the table of sizes
    maxima : sum of the largest cell of each cluster
    """

    words: Array
    rest: Array
    singles: Array
    large: Array
    maxima: int


def whole_clusters(
    keyed: KeyedCounts, interval: Interval, keys: Keys, further: int, sizes: Array, budget: Budget, *, packed: bool
) -> Iterator[ClusterCells]:
    """Cells of the clusters in an interval of buckets, a bounded number at a time unless a bucket is larger.

    Parameters
    ----------
    keyed : KeyedCounts
        Rows by cluster and class; all of them in the interval have a class.
    interval : (int, int)
    keys : Keys
    further : int
        Further words of a cell (`streameval.states.contingency.cells.ClassCells`).
    sizes : int64 array
        Incremented at the size of each cluster; larger sizes are listed.
    budget : Budget
        Lends the arrays.
    packed : bool
        Whether n and c share a word.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.cells import Keys
    >>> from streameval.states.keyed.builder import SegmentBuilder
    >>> from streameval.states.keyed.counts import KeyedCounts
    >>> from streameval.states.keyed.layout import Layout
    >>> rows = SegmentBuilder(Layout(1 << 11, 64, words=2), Budget(), 8)
    >>> rows.add_ids([np.array([7, 9, 7, 7], np.uint64), np.array([1, 2, 1, 3], np.uint64)])
    >>> keyed, sizes = KeyedCounts(rows.layout, rows.finish()), np.zeros(8, np.int64)
    >>> for cells in whole_clusters(keyed, (0, 1 << 11), Keys(1, 1), 2, sizes, Budget(), packed=False):
    ...     print(cells.words, cells.rest.tolist(), cells.singles.tolist(), cells.maxima, sizes)
    [1 3] [[2, 3], [1, 3]] [[2]] 3 [0 1 0 1 0 0 0 0]
    """
    items = keyed.items_in(*interval)[0::2]
    places = keyed.places(*interval)
    most = int(items.sum())
    cuts = [(0, items.size)]
    if most > _CELLS:
        cuts = cut(items, _CELLS)
        most = max(_CELLS + _CELLS // 8, *(int(items[i:j].sum()) for i, j in cuts))
    shapes = ((), np.uint64), ((further,), np.uint64), ((keys.class_,), np.uint64), ((), np.int64)
    with (
        _bucket_arrays(int(items.max(initial=0)), keys, budget, places) as own,
        budget.borrowed(most, *shapes) as (words, rest, singles, large),
    ):
        columns = tuple(range(keys.cluster - 1)), tuple(range(keys.class_))
        arrays = CellArrays(words, rest, singles, sizes, large)
        for i, j in cuts:
            cells, alone, listed, maxima = cluster_cells(places.at, i, j, *columns, packed, own, arrays)
            yield ClusterCells(words[:cells], rest[:cells], singles[:alone], large[:listed], maxima)


@contextmanager
def _bucket_arrays(rows: int, keys: Keys, budget: Budget, places: SegmentAddresses) -> Iterator[BucketArrays]:
    """Arrays for the largest bucket."""
    width, counted = sum(keys), bool(places.at.counts.any())
    widths = (width + 2,), (keys.class_ + 2,), (), (width - 1,)
    shapes = (*((each, np.uint64) for each in widths), ((), np.int64))
    with budget.borrowed(rows, *shapes) as (clusters, strays, words, rest, counts):
        marks = marks_for(rows)
        slots = slots_for(np.array([0, rows]))
        yield BucketArrays(slots, clusters, strays, marks, words, rest, counts if counted else counts[:0])


class _Part(NamedTuple):
    """Distinct cells of some clusters, and their rows without a class.

    Attributes
    ----------
    words : uint64 array of shape (n_cells, n_words), of the cluster, then of the class
    counts : int64 array of shape (n_cells,)
    lone : uint64 array of shape (n_lone, n_cluster), clusters of rows without a class
    lone_counts : int64 array of shape (n_lone,)
    """

    words: Array
    counts: Array
    lone: Array
    lone_counts: Array

    @classmethod
    def of(cls, keyed: KeyedCounts, interval: Interval, keys: Keys) -> _Part:
        """The cells of an interval of buckets."""
        side, lone = keyed.gather(*interval)
        numbers, first = numbered(side.starts, side.words, side.rest, sum(keys) - 1)
        counts, ignored = np.zeros((2, first.size), np.int64)
        add_margins(numbers, _counts(side), numbers, counts, ignored)
        words = np.column_stack((side.words[first], side.rest[first]))
        clusters = np.column_stack((lone.words, lone.rest[:, : keys.cluster - 1]))
        return cls(words, counts, clusters, _counts(lone))


def _counts(side: Side) -> Array:
    return side.counts if side.counts.size else np.ones(side.words.size, np.int64)


class FirstPass:
    """The first round over some intervals of clusters; owned by one task.

    Parameters
    ----------
    keys : Keys
    rows : int
        Rows of the whole table.
    items : int
        Number of items that are expected; more take longer.
    budget : Budget
        Owns the memory of the cells.
    owner : bool
        Whether cells carry the words of their cluster.
    watcher : Watcher, optional
        Sees the cells of clusters of several rows.
    """

    def __init__(
        self, keys: Keys, rows: int, items: int, budget: Budget, *, owner: bool = False, watcher: Watcher | None = None
    ) -> None:
        self._keys, self._watcher, self._budget = keys, watcher, budget
        layouts = class_layouts(keys, rows, keys.cluster * owner)
        self._sizes_at = class_layouts(keys, rows)[1].words - 1  # further words of a cell without those of its cluster
        self._packed = self._sizes_at == keys.class_
        capacity = 1 << max(items - 1, 0).bit_length()
        self._others = SegmentBuilder(layouts[1], budget, capacity)
        self._singles = SegmentBuilder(layouts[0], budget, capacity)
        self._sizes = np.zeros(_SMALL, np.int64)
        self._large = NO_COUNTS
        self._maxima = 0
        self._lone = Summary()

    def take(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit the clusters of an interval."""
        start, room = interval[0], interval_items(self._budget)
        items = keyed.items_in(*interval).reshape(-1, 2).sum(axis=1)
        for i, j in cut(items, min(room, _TOGETHER)):
            some = start + i, start + j
            if j - i == 1 and items[i] > 4 * room:
                self._take_giant(keyed, start + i, room)
            elif keyed.items_in(*some)[1::2].any():
                for k, m in cut(items[i:j], _CELLS):
                    part = _Part.of(keyed, (start + i + k, start + i + m), self._keys)
                    self._take_parts(partial(iter, [part]))
            else:
                self._take_whole(keyed, some)

    def _take_whole(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit whole clusters whose rows all have a class."""
        further = self._others.layout.words - 1
        if self._watcher is not None:
            further = self._sizes_at + self._keys.cluster
        given = keyed, interval, self._keys, further, self._sizes, self._budget
        for cells in whole_clusters(*given, packed=self._packed):
            self._hand_on(cells.words, cells.rest)
            if self._watcher is not None:
                self._watcher.close_clusters()
            if cells.singles.size:
                self._add_singles(cells.singles)
            if cells.large.size:
                self._large = np.concatenate((self._large, cells.large))
            self._maxima += cells.maxima

    def _take_giant(self, keyed: KeyedCounts, bucket: int, room: int) -> None:
        """Visit the clusters of a bucket too large for memory."""
        spread = _spread(keyed, bucket, self._budget)
        self._take_parts(lambda: (_Part.of(spread, some, self._keys) for some in spread.intervals(room)))

    def _take_parts(self, parts: Callable[[], Iterable[_Part]]) -> None:
        """Visit clusters whose cells lie in several parts: once for the sizes of clusters, once for their cells."""
        clusters = self._keys.cluster
        margins = Margins(clusters - 1)
        for part in parts():
            margins.add(part.words[:, 0], part.words[:, 1:], part.counts, part.counts)
            margins.add(part.lone[:, 0], part.lone[:, 1:], part.lone_counts, np.ones_like(part.lone_counts))
        for part in parts():
            self._add(part.words, part.counts, margins.totals[margins.number(part.words[:, 0], part.words[:, 1:])])
            if part.lone_counts.size:
                sizes = margins.totals[margins.number(part.lone[:, 0], part.lone[:, 1:])]
                self._lone = self._lone.merge(lone_classes(sizes, part.lone_counts))
                if self._watcher is not None:
                    self._watcher.add_classless(part.lone, part.lone_counts, sizes)
        if tally_small(margins.totals, self._sizes):
            self._large = np.concatenate((self._large, margins.totals[margins.totals >= _SMALL]))
        self._maxima += int(margins.maxima.sum())
        if self._watcher is not None:
            self._watcher.close_clusters()

    def _add(self, words: Array, counts: Array, sizes: Array) -> None:
        """Hand cells on, given the words of cluster and class, the rows of each, and the size of its cluster."""
        several, clusters = sizes > 1, self._keys.cluster
        self._add_singles(words[~several, clusters:])
        words, n, c = words[several], counts[several].view(np.uint64), sizes[several].view(np.uint64)
        both = [(n << np.uint64(32)) | c] if self._packed else [n, c]
        self._hand_on(words[:, clusters], np.column_stack((words[:, clusters + 1 :], *both, words[:, :clusters])))

    def _hand_on(self, words: Array, rest: Array) -> None:
        """Hand on the cells of clusters of several rows, and show them to the watcher."""
        at = self._sizes_at
        self._others.add_ids((words, *rest[:, : self._others.layout.words - 1].T))
        if self._watcher is not None:
            n, c = sizes_of_cells(rest, at - 1 if self._packed else at - 2, packed=self._packed)
            self._watcher.add_clusters(rest[:, at:], words, n, c)

    def _add_singles(self, classes: Array) -> None:
        self._singles.add_ids(list(np.ascontiguousarray(classes.T)))

    def finish(self) -> tuple[Summary, KeyedCounts, KeyedCounts]:
        """The partial summary, and the cells by class: singleton cells, and all others."""
        small = np.flatnonzero(self._sizes)
        sizes = Sizes(small, self._sizes[small]).merge(Sizes.of(self._large))
        summary = Summary(clusters=sizes, column_maxima=self._maxima).merge(self._lone)
        singles = KeyedCounts(self._singles.layout, self._singles.finish())
        return summary, singles, KeyedCounts.built(self._others)


def _spread(keyed: KeyedCounts, bucket: int, budget: Budget) -> KeyedCounts:
    """Rows of one bucket, partitioned by a hash of the whole key: equal keys stay together."""
    layout = replace(keyed.layout, halved=False)
    builder = SegmentBuilder.fitting(layout, budget, SLAB, counted=keyed.counted)
    for label in (0, 1):
        for words, rest, counts, weights in keyed.pieces(bucket, label):
            hashed = words
            for column in rest.T:
                hashed = ((hashed ^ (hashed >> np.uint64(29))) * _SPREAD) + column
            hashed = (hashed ^ (hashed >> np.uint64(29))) * _SPREAD
            builder.add_items(words, id_codes(hashed, label), rest, counts, weights)
    return KeyedCounts.built(builder)
