"""From (cluster, class) cells to their summary, in rounds of bounded memory (`streameval.states.rounds`).

Some sums, such as chi-square, need both margins of a cell: the size of its class and the size of its cluster. Neither
all classes nor all clusters may fit into memory. So the cells are visited twice:

1. *By cluster* (`streameval.states.contingency.pass_by_cluster`), which gives the sizes of clusters. Each cell is
   handed on with its class, its count n and the size c of its cluster.
2. *By class* (`streameval.states.contingency.pass_by_class`), which then knows both margins of every cell.

For the optimal assignment, cells carry the ids of their clusters, and the few that it needs are visited once more,
by cluster (`streameval.states.contingency.matching_core`).

Watchers (`streameval.states.contingency.watch`) see the single clusters and classes of the first two rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from streameval.states.contingency.cells import (
    ClassCells,
    Keys,
    SharedCells,
    core_layouts,
    interval_items,
    numbered,
    parted,
    pieces,
)
from streameval.states.contingency.matching_core import (
    Cells,
    CoreCells,
    Lines,
    core_cells,
    visit_classes,
    visit_clusters,
)
from streameval.states.contingency.pass_by_class import by_class, without_cluster
from streameval.states.contingency.pass_by_cluster import FirstPass
from streameval.states.contingency.summary import Summary
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, cut
from streameval.states.rounds import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
    from streameval.states.contingency.watch import Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_RUN = 3  # intervals whose cells form one segment; the second round searches all segments for each interval


class Visit(NamedTuple):
    """What a visit to an interval finds.

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
        runs = self.runs().values()
        sizes: Array = np.add.reduce([run.items[0::2] + run.items[1::2] for run in runs])
        room = interval_items(budget)
        items = int(sizes.sum())
        return _cut(sizes, min(max(items // 32, parted(items, room, budget.threads)), _RUN * room), within)

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, ByClass]:
        """The sizes of the clusters of an interval, and their cells by class."""
        table, keys, rows = self.table, self.table.spec.keys, self.table.cell_rows
        watcher = None if self.watch is None else self.watch()
        cells = table.plain_cells
        items = min(int(cells.items_in(*interval).sum()), _RUN * interval_items(budget))
        first = FirstPass(keys, rows, items, budget, owner=self.matched, watcher=watcher)
        first.take(cells, interval)
        summary, singles, others = first.finish()
        alone = table.without_cluster.range(*interval)
        rows_alone = table.without_cluster.rows[2 * interval[0] : 2 * interval[1]]
        classed, classless = int(rows_alone[0::2].sum()), int(rows_alone[1::2].sum())
        if watcher is not None:
            watcher.add_alone(classless)
        single = KeyedCounts(core_layouts(keys)[1])
        if self.matched:
            single = _classless_clusters(cells, keys, interval, budget)
        lines = Lines.none(classless) if self.matched else None
        handed = ByClass(singles.merge(alone), others, single, keys.cluster * self.matched, self.watch)
        return Visit(summary.merge(without_cluster(classed, classless)), watcher, lines), handed


@dataclass(frozen=True)
class ByClass(ClassCells):
    """The second round: cells, by class.

    Attributes
    ----------
    watch : creates the watcher of an interval
    """

    watch: Callable[[], Watcher] | None = None

    name: ClassVar[str] = "classes"

    @property
    def hands_on(self) -> bool:
        """Whether the assignment is needed."""
        return self.owner > 0

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of classes."""
        sizes = self.sizes() + self.single.items[0::2]
        start, stop = within or (0, sizes.size)
        return _cut(sizes, parted(int(sizes[start:stop].sum()), interval_items(budget), budget.threads), within)

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, Shared | None]:
        """The sizes of the classes of an interval and the sums of their cells; by cluster, the cells to match."""
        watcher = None if self.watch is None else self.watch()
        summary = by_class(self, interval, budget, watcher)
        if not self.owner:
            return Visit(summary, watcher), None
        builders = [SegmentBuilder.fitting(layout, budget, SLAB) for layout in core_layouts(self.keys)]
        lines = visit_classes(self, interval, budget, *builders)
        several, single = map(KeyedCounts.built, builders)
        return Visit(summary, watcher, lines), Shared(several, single.merge(self.single.range(*interval)))


class Shared(SharedCells):
    """The third round, for the optimal assignment: its cells, by cluster."""

    name: ClassVar[str] = "matching"
    hands_on: ClassVar[bool] = False

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of clusters."""
        return _cut(self.several.items[0::2] + self.single.items[0::2], interval_items(budget), within)

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, None]:
        """The cells that the assignment needs in memory together."""
        lines, cells = visit_clusters(self, interval, budget)
        return Visit(Summary(), lines=lines, cells=cells), None


def _cut(sizes: Array, items: int, within: Interval | None) -> list[Interval]:
    """Intervals of about `items` items, of all buckets or of those in `within`; at least one."""
    start, stop = within or (0, sizes.size)
    return [(start + a, start + b) for a, b in cut(sizes[start:stop], items)] or [(start, start)]


def _classless_clusters(cells: KeyedCounts, keys: Keys, interval: Interval, budget: Budget) -> KeyedCounts:
    """The clusters that have rows without a class, with a count of 1: at most one such row can be assigned."""
    builder = SegmentBuilder.fitting(core_layouts(keys)[1], budget, SLAB)
    for words, rest, _, _ in pieces(cells, 1, interval, budget):
        _, first = numbered(np.array([0, words.size]), words, rest, keys.cluster - 1)
        ones = np.ones((first.size, 1), np.uint64)
        more = np.hstack((rest[first, : keys.cluster - 1], ones))
        builder.add_items(words[first], id_codes(words[first]), more, NO_COUNTS, NO_WEIGHTS)
    return KeyedCounts.built(builder)


def add_up(rounds: Sequence[Sequence[Visit]]) -> tuple[Summary, Watcher | None, CoreCells | None]:
    """The summary of a table, its watcher, and the cells that decide the assignment, from the visits of all rounds."""
    visits = [visit for visits in rounds for visit in visits]
    summary = Summary().merge(*(visit.summary for visit in visits))
    watchers = [visit.watcher for visit in visits if visit.watcher is not None]
    lines = [[visit.lines for visit in visits if visit.lines is not None] for visits in rounds]
    core = None
    if lines[0]:
        core = core_cells(lines[0] + lines[1], lines[2], [cells for visit in visits for cells in visit.cells])
    return summary, watchers[0].merge(watchers[1:]) if watchers else None, core


def summarize_state(table: ContingencyCounts, budget: Budget) -> Summary:
    """The summary of a table in this process, one interval after the other."""
    return add_up(run(ByCluster(table), budget))[0]
