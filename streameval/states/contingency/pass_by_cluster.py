"""From (cluster, class) cells to their summary, in two passes of bounded memory.

Some sums, such as chi-square, need both margins of a cell: the size of its class and the size of its cluster. Neither
all classes nor all clusters may fit into memory. So the cells are visited twice:

1. *By cluster*, bucket by bucket. One bucket holds all rows of a cluster, so its size c, largest cell and counts n are
   known at once. Each cell is handed on as (class, n, c), except singletons, n = c = 1, which are counted by class.
2. *By class*. One bucket again holds all cells of a class. So its size r, its largest cell, its number of singletons
   and both margins of every cell are known.

Neither pass sorts: for each bucket, a hash table that fits into the cache numbers its keys. A bucket too large for
memory contains a giant cluster or a giant class. In the first pass its rows are distributed over 2,048 parts by a hash
of the whole key, and the parts are visited twice, first for the sizes of clusters; in the second pass the bucket is
streamed twice. Memory then holds the distinct clusters, or classes, of that bucket. Equal cells of a giant class are
stored once with a multiplicity.

Unless a watcher asks for the ids of clusters, or rows lack a class, the first pass reads rows where they lie in the
segments (`streameval.states.contingency.whole_clusters`); otherwise they are gathered. If rows carry their labels
(`streameval.states.labelled`), it counts the positives of clusters as well.

The second pass is in `streameval.states.contingency.pass_by_class`; where cells are many and no watcher sees them, they
are read where they lie as well (`streameval.states.contingency.whole_classes`). Both are pure functions of an interval;
partial summaries add up to the same bits in any order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency.grouping import add_margins, group_clusters, tally_small
from streameval.kernels.contingency.tables import slots_for
from streameval.kernels.keys import unmix
from streameval.kernels.singletons import emit_others
from streameval.states.clusters.tally import by_tables
from streameval.states.contingency.cells import (
    Keys,
    Margins,
    class_layouts,
    interval_items,
    numbered,
    parted,
    without_singletons,
)
from streameval.states.contingency.class_sizes import ClassRows, encode
from streameval.states.contingency.pass_by_class import lone_classes
from streameval.states.contingency.size_counts import Sizes
from streameval.states.contingency.summary import Summary
from streameval.states.contingency.whole_clusters import whole_clusters
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, Side, cut
from streameval.states.keyed.tags import by_label, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.budget import Budget
    from streameval.states.contingency.watch import Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

RUN = 3  # intervals whose cells form one segment; the second pass searches all segments for each interval

_TOGETHER = 1 << 21  # rows whose addresses are looked up together; those of spilled segments are read
_CACHED = 1 << 18  # rows whose columns the third-level cache holds
_SMALL = 1 << 16  # sizes tallied in a table; larger clusters are rare
_SPREAD = np.uint64(0xFF51AFD7ED558CCD)  # unlike the kernels' multiplier, so bits differ


class ClassParts(NamedTuple):
    """Cells by class, from some clusters."""

    singles: KeyedCounts  # singleton cells (n = c = 1)
    others: KeyedCounts


class _Grouped(NamedTuple):
    """Rows grouped to cells: the cell of each cluster's first row, then the cells of other classes."""

    clusters: int
    rows: Array  # a row of each cell
    owners: Array  # the cluster of each cell
    counts: Array
    sizes: Array  # rows of each cluster in this part
    maxima: Array

    @classmethod
    def of(cls, side: Side, keys: Keys) -> _Grouped:
        """Group rows of an interval."""
        columns, total, width = keys.cluster - 1, side.words.size, sum(keys)
        first, strays = np.empty((2, total + 1), np.int32)
        firsts, sizes, owners = np.empty((3, total + 1), np.int64)
        table = slots_for(side.starts), np.empty((total, width + 2), np.uint64)
        cuts = np.empty(side.starts.size, np.int64)
        words = tuple(range(columns)), tuple(range(keys.class_))
        given = side.starts, side.words, side.rest, side.counts, *words
        clusters, stray = group_clusters(*given, *table, first, firsts, sizes, strays, owners, cuts)
        first, firsts, sizes = first[:clusters], firsts[:clusters], sizes[:clusters]
        if not stray:
            return cls(clusters, first, NO_COUNTS, firsts, sizes, firsts)
        strays, owners = strays[:stray], owners[:stray]
        numbers, found = numbered(cuts, owners.view(np.uint64), side.rest[strays][:, columns:], keys.class_)
        counts = side.counts[strays] if side.counts.size else np.ones(stray, np.int64)
        more, ignored, maxima = np.zeros(found.size, np.int64), np.zeros(found.size, np.int64), firsts.copy()
        add_margins(numbers, counts, counts, more, ignored)
        owners = owners[found]
        add_margins(owners, more, more, np.zeros(clusters, np.int64), maxima)
        return cls(
            clusters, np.concatenate((first, strays[found])), owners, np.concatenate((firsts, more)), sizes, maxima
        )

    def sizes_of_cells(self, sizes: Array) -> Array:
        """Size of the cluster of each cell."""
        return np.concatenate((sizes, sizes[self.owners])) if self.owners.size else sizes

    def classes(self, side: Side, keys: Keys) -> Array:
        """First word of the class of each cell."""
        words: Array = side.rest[self.rows, keys.cluster - 1]
        return words

    def ids(self, side: Side, keys: Keys, which: Array) -> Array:
        """Words of the ids of some clusters."""
        first = self.rows[which]
        return np.column_stack((unmix(side.words[first]), side.rest[first][:, : keys.cluster - 1]))


class FirstPass:
    """The first pass over some intervals of clusters; owned by one task.

    Parameters
    ----------
    keys, rows, budget, watcher, labelled : see `by_cluster`
    items : number of items that are expected; more take longer
    owner : number of words of the cluster that cells carry
    """

    def __init__(
        self,
        keys: Keys,
        rows: int,
        items: int,
        budget: Budget,
        owner: int = 0,
        watcher: Watcher | None = None,
        *,
        labelled: bool = False,
    ) -> None:
        self.keys, self.watcher, self._budget = keys, watcher, budget
        layout = class_layouts(keys, rows, owner)[1]
        self._packed = layout == class_layouts(keys, 0, owner)[1]
        capacity = 1 << max(items - 1, 0).bit_length()
        self._others = SegmentBuilder(layout, budget, capacity)
        self._singles = ClassRows(class_layouts(keys, rows)[0], budget, capacity)
        self._sizes = np.zeros(_SMALL, np.int64)
        self._large = NO_COUNTS
        self._positives = np.zeros(_SMALL, np.int64) if labelled else None
        self._large_positives = Sizes(NO_COUNTS, NO_COUNTS)
        self._maxima = 0
        self._lone = Summary()

    def take(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit the clusters of an interval."""
        start, items, room = interval[0], _items_of(keyed, interval), interval_items(self._budget)
        for i, j in cut(items, min(room, _TOGETHER)):
            if j - i == 1 and items[i] > 4 * room:
                rows = self._without_labels(keyed, (start + i, start + j))
                parts = _spread(rows, start + i, self._budget)
                _visit(partial(_gathered, parts, parts.intervals(room)), self)
            elif self.watcher is None and not keyed.items_in(start + i, start + j)[1::2].any():
                self._take_unwatched(keyed, (start + i, start + j))
            else:
                for k, m in cut(items[i:j], _CACHED):
                    _whole(keyed, (start + i + k, start + i + m), self)

    def _take_unwatched(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit whole clusters whose rows all have a class."""
        given = keyed, interval, self.keys, self._others.layout.words - 1, self._sizes, self._budget
        for cells in whole_clusters(*given, packed=self._packed, positives=self._positives):
            encode(self._others, cells.words, cells.rest)
            if cells.singles.size:
                self._add_singles(cells.singles)
            if cells.large.size:
                self._large = np.concatenate((self._large, cells.large))
                self._add_large_positives(cells.large, cells.large_positives)
            self._maxima += cells.maxima

    def _without_labels(self, keyed: KeyedCounts, interval: Interval) -> KeyedCounts:
        """Rows without labels; if they have labels, the positives of the clusters in an interval are counted first."""
        if self._positives is None:
            return keyed
        layout, clusters = replace(keyed.layout, words=self.keys.cluster), np.zeros(_SMALL, np.int64)
        rows = by_label(keyed, interval, layout, self._budget)
        for large in by_tables(rows, interval, self._budget, clusters, self._positives):
            self._add_large_positives(*large)
        return plain(keyed)

    def _add_large_positives(self, sizes: Array, positives: Array) -> None:
        """Add the positives of large clusters; arrays are empty if rows carry no labels."""
        if positives.size:
            self._large_positives = self._large_positives.merge(Sizes.of(sizes, positives))

    def without_lone(self, keyed: KeyedCounts, interval: Interval) -> Side:
        """Count and remove the singleton rows that a quick test finds; returns the other rows."""
        side, lone = without_singletons(keyed, interval, wanted=self.keys.class_)
        self._sizes[1] += lone.shape[0]
        self._maxima += lone.shape[0]
        self._add_singles(lone)
        return side

    def _add_singles(self, classes: Array) -> None:
        self._singles.add(np.ascontiguousarray(classes[:, 0]), np.ascontiguousarray(classes[:, 1:]))

    def add(self, side: Side, grouped: _Grouped, sizes: Array) -> None:
        """Hand cells over by class, given the size of each cell's cluster."""
        words = np.empty(sizes.size + 1, np.uint64)
        rest = np.empty((words.size, self._others.layout.words - 1), np.uint64)
        columns = self.keys.cluster - 1, self._packed
        others = emit_others(grouped.rows, grouped.counts, sizes, side.words, side.rest, *columns, words, rest)
        encode(self._others, words[:others], rest[:others])
        if others < sizes.size:
            self._add_singles(side.rest[grouped.rows[sizes == 1]][:, self.keys.cluster - 1 :])

    def add_lone(self, sizes: Array, times: Array) -> None:
        """Add classes of one row, `times` of them in clusters of each size."""
        self._lone = self._lone.merge(lone_classes(sizes, times))

    def close(self, sizes: Array, maxima: Array) -> None:
        """Add complete clusters by their sizes and largest cells."""
        if tally_small(sizes, self._sizes):
            self._large = np.concatenate((self._large, sizes[sizes >= _SMALL]))
        self._maxima += int(maxima.sum())

    def result(self) -> tuple[Summary, ClassParts]:
        """The partial summary, and the cells by class."""
        small = np.flatnonzero(self._sizes)
        sizes = Sizes(small, self._sizes[small]).merge(Sizes.of(self._large))
        summary = Summary(clusters=sizes, column_maxima=self._maxima, positives=self._all_positives()).merge(self._lone)
        return summary, ClassParts(self._singles.finish(), KeyedCounts.built(self._others))

    def _all_positives(self) -> Sizes:
        """Positives in the clusters of each size; empty if rows carry no labels."""
        if self._positives is None:
            return self._large_positives
        small = np.flatnonzero(self._positives)
        return Sizes(small, self._positives[small]).merge(self._large_positives)


def cluster_shards(keyed: KeyedCounts, budget: Budget) -> list[Interval]:
    """Intervals of clusters for the first pass: as few as many threads allow."""
    room, items = interval_items(budget), int(keyed.items.sum())
    return keyed.intervals(min(max(items // 32, parted(items, room, budget.threads)), RUN * room))


def by_cluster(
    keyed: KeyedCounts,
    keys: Keys,
    rows: int,
    interval: Interval,
    budget: Budget,
    *,
    owner: bool = False,
    watcher: Watcher | None = None,
    labelled: bool = False,
) -> tuple[Summary, ClassParts]:
    """First pass: partial summary of the clusters, and their cells by class.

    Parameters
    ----------
    keyed : KeyedCounts
        Rows by cluster and class; label 1 for rows without a class, each a singleton class.
    keys : Keys
    rows : int
        Rows of the whole table.
    interval : (int, int)
        Buckets to take.
    budget : Budget
        Owns the memory of the cells.
    owner : bool
        Whether cells carry the words of their cluster.
    watcher : Watcher, optional
        Sees the cells of clusters, except the singleton rows that a quick test finds.
    labelled : bool
        Whether first words have the labels of their rows as tags (`streameval.states.keyed.tags`). All rows then have a
        class, and there is neither an owner nor a watcher.
    """
    items = min(int(_items_of(keyed, interval).sum()), RUN * interval_items(budget))
    found = FirstPass(keys, rows, items, budget, keys.cluster * owner, watcher, labelled=labelled)
    found.take(keyed, interval)
    return found.result()


def _items_of(keyed: KeyedCounts, interval: Interval) -> Array:
    """Items of each bucket of an interval."""
    items: Array = keyed.items_in(*interval).reshape(-1, 2).sum(axis=1)
    return items


def _gathered(keyed: KeyedCounts, cuts: list[Interval]) -> Iterator[tuple[Side, Side]]:
    return (keyed.gather(*part) for part in cuts)


def _whole(keyed: KeyedCounts, interval: Interval, found: FirstPass) -> None:
    """Cells of whole clusters."""
    start, stop = interval
    if keyed.items_in(start, stop)[1::2].any():
        sides = keyed.gather(start, stop)
        _visit(lambda: iter([sides]), found)
        return
    side = found.without_lone(keyed, interval)
    grouped = _Grouped.of(side, found.keys)
    found.add(side, grouped, grouped.sizes_of_cells(grouped.sizes))
    found.close(grouped.sizes, grouped.maxima)
    if found.watcher is not None:
        classes, ids = (partial(each, side, found.keys) for each in (grouped.classes, grouped.ids))
        found.watcher.of_clusters().whole(grouped.owners, grouped.counts, classes, ids, grouped.sizes)


def _visit(parts: Callable[[], Iterator[tuple[Side, Side]]], found: FirstPass) -> None:
    """Cells of clusters that lie in several parts: one visit for the sizes of clusters, one for the cells."""
    margins = Margins(found.keys.cluster - 1)
    seen = None if found.watcher is None else found.watcher.of_clusters()
    for side, lone in parts():
        grouped = _Grouped.of(side, found.keys)
        first = grouped.rows[: grouped.clusters]
        numbers = margins.add(side.words[first], side.rest[first], grouped.sizes, grouped.maxima)
        owners = margins.add(lone.words, lone.rest, _counts(lone), np.ones(lone.words.size, np.int64))
        if seen is not None:
            cells = np.concatenate((numbers, numbers[grouped.owners]))
            seen.add(margins.totals.size, cells, grouped.classes(side, found.keys), grouped.counts)
            seen.add_alone(margins.totals.size, owners, _counts(lone))
    for side, lone in parts():
        grouped = _Grouped.of(side, found.keys)
        first = grouped.rows[: grouped.clusters]
        sizes = margins.totals[margins.number(side.words[first], side.rest[first])]
        found.add(side, grouped, grouped.sizes_of_cells(sizes))
        if lone.words.size:
            found.add_lone(margins.totals[margins.number(lone.words, lone.rest)], _counts(lone))
    found.close(margins.totals, margins.maxima)
    if seen is not None:
        seen.close(margins.ids, margins.totals)


def _counts(side: Side) -> Array:
    return side.counts if side.counts.size else np.ones(side.words.size, np.int64)


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
