"""From (cluster, class) cells to their summary, in rounds of bounded memory (`streameval.states.rounds`).

Some sums, such as chi-square, need both margins of a cell: the size of its class and the size of its cluster. Neither
all classes nor all clusters may fit into memory. So the cells are visited twice:

1. *By cluster* (here), which gives the sizes of clusters. Each cell is handed on with its class, its count n and the
   size c of its cluster.
2. *By class* (`streameval.states.contingency.by_class`), which then knows both margins of every cell.

For the optimal assignment, cells carry the ids of their clusters, and the few that it needs are visited once more,
by cluster (`streameval.states.contingency.cells`). Watchers (`streameval.states.contingency.cells.Watcher`) see
the single clusters and classes of the first two rounds.

Clusters are visited bucket by bucket. One bucket holds all rows of a cluster, so its size c, largest cell and counts n
are known at once. Singletons, n = c = 1, are counted by class. One loop reads rows where they lie in the segments and
writes their cells (`streameval.kernels.contingency.cells.cluster_cells`): nothing is sorted, since a hash table that
fits into the cache numbers the clusters of a bucket.

Two kinds of buckets are visited twice instead, first for the sizes of clusters, then for their cells: those with rows
without a class, each a singleton class, and those too large for memory, which hold a giant cluster. The rows of the
latter are distributed over 2,048 parts by a hash of the whole key, so that equal cells stay together; memory then holds
the distinct clusters of that bucket. Equal cells of a giant class are stored once with a multiplicity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.budget import fresh_columns
from streameval.kernels.contingency.cells import BucketArrays, CellArrays
from streameval.kernels.contingency.tables import add_margins, slots_for, tally_small
from streameval.kernels.fused import FUSED
from streameval.kernels.keyed.sizes import marks_for
from streameval.states.contingency.by_class import ByClass, lone_classes
from streameval.states.contingency.cells import (
    Keys,
    Lines,
    Margins,
    Visit,
    Watcher,
    add_up,
    class_layouts,
    core_layouts,
    cut_within,
    interval_items,
    number_rows,
    part_items,
    pieces,
    sizes_of_cells,
)
from streameval.states.contingency.summary import Sizes, Summary
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Interval, SegmentAddresses, Side, cut
from streameval.states.rounds import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
    from streameval.typing import Array

    Part = tuple[Array, Array, Array, Array]  # see `_distinct_cells`

_RUN = 3  # intervals whose cells form one segment; the second round searches all segments for each interval
_TOGETHER = 1 << 21  # rows whose addresses are looked up together; those of spilled segments are read
_CELLS = 1 << 19  # rows whose cells are written, or gathered, together
_SMALL = 1 << 16  # sizes tallied in a table; larger clusters are rare
_SPREAD = np.uint64(0xFF51AFD7ED558CCD)  # unlike the kernels' multiplier, so bits differ


@dataclass(frozen=True)
class ByCluster:
    """The first round: the rows of a table, by cluster.

    Attributes
    ----------
    table : the state
    watch : creates the watcher of an interval
    matched : whether the optimal assignment is needed
    """

    table: ContingencyCounts
    watch: Callable[[], Watcher] | None = None
    matched: bool = False

    name: ClassVar[str] = "clusters"
    hands_on: ClassVar[bool] = True

    @property
    def holder(self) -> ContingencySpec:
        """The spec of the state that holds the rows."""
        return self.table.spec

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The rows of the table."""
        return self.table.runs()

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> ByCluster:
        """The round over other rows."""
        return replace(self, table=self.table.with_runs(runs))

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of clusters: as few as many threads allow."""
        sizes: Array = np.add.reduce([run.items[0::2] + run.items[1::2] for run in self.runs().values()])
        room, items = interval_items(budget), int(sizes.sum())
        return cut_within(sizes, min(max(items // 32, part_items(items, room, budget.threads)), _RUN * room), within)

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, ByClass]:
        """The sizes of the clusters of an interval, and their cells by class."""
        table, keys = self.table, self.table.spec.keys
        watcher = None if self.watch is None else self.watch()
        cells = table.cells
        items = min(int(cells.items_in(*interval).sum()), _RUN * interval_items(budget))
        first = _Pass(keys, table.cell_rows, items, budget, owner=self.matched, watcher=watcher)
        first.take(cells, interval)
        summary, singles, others = first.finish()
        alone = table.without_cluster.range(*interval)
        rows_alone = table.without_cluster.rows[2 * interval[0] : 2 * interval[1]]
        classed, classless = int(rows_alone[0::2].sum()), int(rows_alone[1::2].sum())
        if watcher is not None:
            watcher.add_alone(classless)
        total = classed + classless  # clusters of one row; the classes of the first are counted with others
        parts = [Summary(clusters=Sizes.repeat(1, total), column_maxima=total)]
        if classless:
            parts.append(lone_classes(np.ones(1, np.int64), np.array([classless])))
        single, lines = KeyedCounts(core_layouts(keys)[1]), None
        if self.matched:
            single, lines = _classless_clusters(cells, keys, interval, budget), Lines(classless)
        handed = ByClass(singles.merge(alone), others, single, keys.cluster * self.matched, self.watch)
        return Visit(summary.merge(*parts), watcher, lines), handed


def summarize_state(table: ContingencyCounts, budget: Budget) -> Summary:
    """The summary of a table in this process, one interval after the other."""
    return add_up(run(ByCluster(table), budget))[0]


def _classless_clusters(cells: KeyedCounts, keys: Keys, interval: Interval, budget: Budget) -> KeyedCounts:
    """The clusters that have rows without a class, with a count of 1: at most one such row can be assigned."""
    builder = SegmentBuilder.fitting(core_layouts(keys)[1], budget, SLAB)
    for words, rest, _, _ in pieces(cells, 1, interval, budget):
        _, first = number_rows(np.array([0, words.size]), words, rest, keys.cluster - 1)
        more = np.hstack((rest[first, : keys.cluster - 1], np.ones((first.size, 1), np.uint64)))
        builder.add_items(words[first], id_codes(words[first]), more, NO_COUNTS, NO_WEIGHTS)
    return KeyedCounts.built(builder)


def bucket_arrays(keys: Keys, rows: int, places: SegmentAddresses) -> BucketArrays:
    """Arrays for the largest bucket, which has `rows` rows."""
    width = sum(keys)
    widths = (width + 2,), (keys.class_ + 2,), (), (width - 1,)
    shapes = (*((each, np.uint64) for each in widths), ((), np.int64))
    clusters, strays, words, rest, counts = fresh_columns(rows, *shapes)
    slots = slots_for(np.array([0, rows]))
    counts = counts if places.at.counts.any() else counts[:0]
    return BucketArrays(slots, clusters, strays, marks_for(rows), words, rest, counts)


class _Pass:
    """A visit to an interval of clusters.

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
        self, keys: Keys, rows: int, items: int, budget: Budget, *, owner: bool, watcher: Watcher | None
    ) -> None:
        self._keys, self._watcher, self._budget = keys, watcher, budget
        layouts = class_layouts(keys, rows, keys.cluster * owner)
        self._sizes_end = class_layouts(keys, rows)[1].words - 1  # further words of a cell without those of its cluster
        self._packed = self._sizes_end == keys.class_
        capacity = 1 << max(items - 1, 0).bit_length()
        self._others = SegmentBuilder(layouts[1], budget, capacity)
        self._singles = SegmentBuilder(layouts[0], budget, capacity)
        self._sizes = np.zeros(_SMALL, np.int64)
        self._summary = Summary()  # of what is not counted by size

    def take(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit the clusters of an interval."""
        start, room = interval[0], interval_items(self._budget)
        items = keyed.items_in(*interval).reshape(-1, 2).sum(axis=1)
        for i, j in cut(items, min(room, _TOGETHER)):
            some = start + i, start + j
            if j - i == 1 and items[i] > 4 * room:
                self._take_giant(keyed, start + i, room)
            elif keyed.items_in(*some)[1::2].any() or ("cells", "clusters") not in FUSED:
                for k, m in cut(items[i:j], _CELLS):
                    part = _distinct_cells(keyed, (start + i + k, start + i + m), self._keys)
                    self._take_parts(partial(iter, [part]))
            else:
                self._take_whole(keyed, some)

    def _take_whole(self, keyed: KeyedCounts, interval: Interval) -> None:
        """Visit whole clusters whose rows all have a class."""
        keys, items, places = self._keys, keyed.items_in(*interval)[0::2], keyed.places(*interval)
        further = self._others.layout.words - 1 if self._watcher is None else self._sizes_end + keys.cluster
        most, cuts = int(items.sum()), [(0, items.size)]
        if most > _CELLS:
            cuts = cut(items, _CELLS)
            most = max(_CELLS + _CELLS // 8, *(int(items[i:j].sum()) for i, j in cuts))
        shapes = ((), np.uint64), ((further,), np.uint64), ((keys.class_,), np.uint64), ((), np.int64)
        own = bucket_arrays(keys, int(items.max(initial=0)), places)
        words, rest, singles, large = fresh_columns(most, *shapes)
        columns = tuple(range(keys.cluster - 1)), tuple(range(keys.class_))
        out = CellArrays(words, rest, singles, self._sizes, large)
        for i, j in cuts:
            cells, alone, listed, maxima = FUSED["cells", "clusters"](places.at, i, j, *columns, self._packed, own, out)
            self._hand_on(words[:cells], rest[:cells])
            if self._watcher is not None and cells:
                self._show(words[:cells], rest[:cells])
            if alone:
                self._singles.add_ids(list(np.ascontiguousarray(singles[:alone].T)))
            self._count(maxima, large[:listed])

    def _show(self, classes: Array, rest: Array) -> None:
        """Show the cells of whole clusters of several rows to the watcher."""
        at = self._sizes_end
        rows, _ = sizes_of_cells(rest, at - 1 if self._packed else at - 2, packed=self._packed)
        clusters = Margins(self._keys.cluster - 1)
        numbers = clusters.add(rest[:, at], rest[:, at + 1 :], rows, rows)
        if self._watcher is not None:
            cells = [(numbers, classes, rows)]
            self._watcher.add_clusters(clusters.ids, clusters.totals, np.zeros_like(clusters.totals), cells)

    def _take_giant(self, keyed: KeyedCounts, bucket: int, room: int) -> None:
        """Visit the clusters of a bucket too large for memory."""
        spread = _spread(keyed, bucket, self._budget)
        self._take_parts(lambda: (_distinct_cells(spread, some, self._keys) for some in spread.intervals(room)))

    def _take_parts(self, parts: Callable[[], Iterable[Part]]) -> None:
        """Visit clusters whose cells lie in several parts: once for the sizes of clusters, once for their cells."""
        at = self._keys.cluster
        clusters = Margins(at - 1)
        for words, counts, lone, lone_counts in parts():
            clusters.add(words[:, 0], words[:, 1:], counts, counts)
            clusters.add(lone[:, 0], lone[:, 1:], lone_counts, np.ones_like(lone_counts))
        sizes, classless = clusters.totals, np.zeros_like(clusters.totals)
        for words, counts, lone, lone_counts in parts():
            self._add(words, counts, sizes[clusters.number(words[:, 0], words[:, 1:])])
            numbers = clusters.number(lone[:, 0], lone[:, 1:])
            np.add.at(classless, numbers, lone_counts)
            self._summary = self._summary.merge(lone_classes(sizes[numbers], lone_counts))
        tally_small(sizes, self._sizes)
        self._count(int(clusters.maxima.sum()), sizes[sizes >= _SMALL])
        if self._watcher is not None:
            cells = (
                (clusters.number(words[:, 0], words[:, 1:]), words[:, at], counts) for words, counts, _, _ in parts()
            )
            self._watcher.add_clusters(clusters.ids, sizes, classless, cells)

    def _add(self, words: Array, counts: Array, sizes: Array) -> None:
        """Hand cells on, given the words of cluster and class, the rows of each, and the size of its cluster."""
        several, clusters = sizes > 1, self._keys.cluster
        self._singles.add_ids(list(np.ascontiguousarray(words[~several, clusters:].T)))
        words, n, c = words[several], counts[several].view(np.uint64), sizes[several].view(np.uint64)
        both = [(n << np.uint64(32)) | c] if self._packed else [n, c]
        self._hand_on(words[:, clusters], np.column_stack((words[:, clusters + 1 :], *both, words[:, :clusters])))

    def _hand_on(self, words: Array, rest: Array) -> None:
        """Hand on the cells of clusters of several rows."""
        self._others.add_ids((words, *rest[:, : self._others.layout.words - 1].T))

    def _count(self, maxima: int, large: Array) -> None:
        """Count clusters too large for the table, and add to the sum of the largest cells."""
        self._summary = self._summary.merge(Summary(clusters=Sizes.of(large), column_maxima=maxima))

    def finish(self) -> tuple[Summary, KeyedCounts, KeyedCounts]:
        """The partial summary, and the cells by class: singleton cells, and all others."""
        small = np.flatnonzero(self._sizes)
        summary = self._summary.merge(Summary(clusters=Sizes(small, self._sizes[small])))
        return summary, KeyedCounts.built(self._singles), KeyedCounts.built(self._others)


def _distinct_cells(keyed: KeyedCounts, interval: Interval, keys: Keys) -> Part:
    """Distinct cells of an interval of buckets, and the rows without a class.

    Returns
    -------
    words : uint64 array of shape (n_cells, n_words), of the cluster, then of the class
    counts : int64 array of shape (n_cells,)
    lone : uint64 array of shape (n_lone, n_cluster), clusters of rows without a class
    lone_counts : int64 array of shape (n_lone,)
    """
    side, lone = keyed.gather(*interval)
    numbers, first = number_rows(side.starts, side.words, side.rest, sum(keys) - 1)
    counts, ignored = np.zeros((2, first.size), np.int64)
    add_margins(numbers, _counts(side), numbers, counts, ignored)
    words = np.column_stack((side.words[first], side.rest[first]))
    return words, counts, np.column_stack((lone.words, lone.rest[:, : keys.cluster - 1])), _counts(lone)


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
