"""Tables: the passes over a contingency table, on a cluster.

Cells are visited by cluster (`streameval.states.contingency.pass_by_cluster`), then by class
(`streameval.states.contingency.pass_by_class`). The first pass runs on the workers that hold the ranges of clusters. An
exchange moves the cells from ranges of clusters to ranges of classes, on which the second pass runs. The client merges
the summaries.

For the optimal assignment, a second exchange moves the cells that it needs
(`streameval.states.contingency.matching_core`) from ranges of classes back to ranges of clusters. The remaining core is
gathered and solved by a single worker.

::

    range of clusters ─► clusters-r ─► split-r-q ─► merge-q ─► classes-q ─► summaries
      │                                               │
      │                                               └─► matching-classes-q ─► split-q-r ─► merge-r
      └──────────────────────────────────────────────────────────────────► matching-clusters-r ─► matching
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask

from streameval.engine.cluster.connection import key_factory
from streameval.engine.cluster.folds import MOST_TASKS, exchange, size
from streameval.metrics.contingency.assignment import matching
from streameval.states.contingency.matching_core import CellsLeft, core_of_classes, core_of_clusters, core_of_table
from streameval.states.contingency.pass_by_class import by_class, without_cluster
from streameval.states.contingency.summary import Summary
from streameval.states.contingency.watch import unwatched
from streameval.states.keyed.ranges import balanced, buckets, joined, outline_only, restored
from streameval.states.mapping import one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine import Watched
    from streameval.engine.cluster.connection import Connection
    from streameval.engine.cluster.work import Resources
    from streameval.engine.fold import Folded
    from streameval.states.contingency.cells import ClassCells, Keys
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.matching_core import Core, Lines
    from streameval.states.contingency.watch import Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.states.keyed.ranges import Rows

SPLITS = MOST_TASKS // 8  # largest number of split tasks of a level: a table may need two exchanges of cells

_CELLS = "cells"  # key of the rows that the exchange moves

First = tuple[tuple[Summary, "ClassCells", "Watcher | None"], dict[str, "Rows"]]


def first(
    ranges: Mapping[Any, Rows],
    outlines: Folded,
    spec: Any,
    shards: Sequence[Interval],
    resources: Resources,
    *,
    owner: bool,
    watch: Callable[[], Watcher | None],
) -> First:
    """On a worker: the first pass over a range of clusters.

    Returns
    -------
    (summary, outline of the cells, watcher), and the cells
    """
    state = restored(outlines.states[spec], ranges[spec])
    watcher = watch()
    found = [state.first(shard, resources.budget, owner=owner, watcher=watcher) for shard in shards]
    cells = state.classes((part for _, part in found), owner=owner)
    total = Summary().merge(*(part for part, _ in found))
    return (total, outline_only(cells), watcher), {_CELLS: cells.runs()}


def second(
    ranges: Mapping[str, Rows],
    cells: ClassCells,
    interval: Interval,
    resources: Resources,
    watch: Callable[[], Watcher | None],
) -> tuple[Summary, Watcher | None]:
    """On a worker: the second pass over a range of classes; returns the summary and the watcher."""
    watcher = watch()
    here = restored(cells, ranges[_CELLS])
    parts = here.intervals(resources.budget, interval)
    return Summary().merge(*(by_class(here, part, resources.budget, watcher) for part in parts)), watcher


def outline(found: tuple[Any, Any]) -> Any:
    """On a worker: the result of a task without its rows."""
    return found[0]


def match_classes(
    ranges: Mapping[str, Rows], cells: ClassCells, keys: Keys, interval: Interval, resources: Resources
) -> tuple[list[Lines], dict[str, Rows]]:
    """On a worker: the classes of a range whose assignment is settled, and the cells that are still needed."""
    left = core_of_classes(restored(cells, ranges[_CELLS]), keys, resources.budget, one_by_one, interval)
    return left.settled, {_CELLS: left.runs()}


def match_clusters(
    ranges: Mapping[str, Rows],
    table: Mapping[Any, Rows],
    outlines: Folded,
    spec: Any,
    interval: Interval,
    resources: Resources,
) -> list[Core]:
    """On a worker: the part of the matching core in a range of clusters."""
    left, cells = CellsLeft(**ranges[_CELLS], settled=[]), table[spec]["cells"]
    cells.check(outlines.states[spec].runs()["cells"], interval)
    return core_of_clusters(left, cells, spec.keys, resources.budget, one_by_one)


def match(
    classes: Sequence[list[Lines]], clusters: Sequence[list[Core]], outlines: Folded, spec: Any, cells: int
) -> Any:
    """On a worker: the optimal assignment; bounds for components of more than `cells` cells."""
    return matching(outlines.states[spec].settling(core_of_table(classes, clusters, spec.keys)), cells)


def count_table_tasks(ranges: int, *, matched: bool) -> Counter[str]:
    """Upper bound of the number of tasks of a table, by name, as classes may need fewer ranges than clusters.

    Examples
    --------
    >>> count_table_tasks(2, matched=False)
    Counter({'split': 4, 'clusters': 2, 'outline': 2, 'merge': 2, 'classes': 2})
    """
    splits, merges = size(ranges, ranges, SPLITS)
    splits = max(splits, min(ranges * ranges, SPLITS))
    each = Counter(clusters=ranges, outline=ranges, split=splits, merge=merges, classes=ranges)
    if matched:
        each += Counter({"matching-classes": ranges, "outline": ranges, "split": splits, "merge": merges})
        each += Counter({"matching-clusters": ranges, "matching": 1})
    return each


@dataclass(frozen=True)
class Table:
    """A contingency table whose rows are on workers.

    Attributes
    ----------
    connection : the client
    state : outline of the state
    outlines : future of the outlines
    futures : one future per range
    shards : the shards in each range that has rows of the table
    resources : memory and spill settings of the workers
    """

    connection: Connection
    state: ContingencyCounts
    outlines: Any
    futures: Sequence[Any]
    shards: Sequence[Sequence[Interval]]
    resources: Resources

    def summary(self, assignment_cells: int | None) -> Summary:
        """Summarise the table; see `streameval.engine.Engine.summary`."""
        return self._passes(assignment_cells)[0]

    def watched(self, watch: Callable[[], Watched]) -> tuple[Summary, list[Watched]]:
        """Summarise the table, and pass its clusters and classes to watchers, one for each range."""
        summary, seen = self._passes(None, watch)
        alone = watch()
        self.state.watch_alone(alone)
        return summary, [*seen, alone]

    def _passes(
        self, assignment_cells: int | None, watch: Callable[[], Watcher | None] = unwatched
    ) -> tuple[Summary, list[Any]]:
        key, matched, state = key_factory(), assignment_cells is not None, self.state
        one = partial(self._task, first, spec=state.spec, resources=self.resources, owner=matched, watch=watch)
        nodes = [
            one(shards=part)(future, self.outlines, dask_key_name=key("clusters", r))
            for r, (future, part) in enumerate(zip(self.futures, self.shards, strict=False))
        ]
        made = self.connection.submit([part for node in nodes for part in (node, self._outline(node, key))])
        found = self.connection.gather(made[1::2])
        cells = found[0][1].with_runs(joined([part.runs() for _, part, _ in found]))
        cuts = [cut for cut, _ in balanced(cells, buckets(cells), len(found))]
        merged = exchange(made[0::2], [{_CELLS: cut} for cut in cuts], key, tasks=SPLITS)
        two = partial(self._task, second, cells=cells, resources=self.resources, watch=watch)
        nodes = [
            two(interval=cut)(node, dask_key_name=key("classes", q))
            for q, (node, cut) in enumerate(zip(merged, cuts, strict=True))
        ]
        if assignment_cells is not None:
            nodes.append(self._matching(merged, cuts, cells, assignment_cells))
        parts = self.connection.gather(self.connection.submit(nodes))
        best = parts.pop() if matched else None
        rows = state.without_cluster.rows
        alone = without_cluster(int(rows[0::2].sum()), int(rows[1::2].sum()))
        summary = alone.merge(*(total for total, _, _ in found), *(part for part, _ in parts))
        return replace(summary, matching=best), [seen for *_, seen in (*found, *parts)]

    def _matching(self, merged: Sequence[Any], cuts: Sequence[Interval], cells: ClassCells, most: int) -> Any:
        """The node of the optimal assignment, from the nodes of the ranges of classes."""
        key, spec = key_factory(), self.state.spec
        one = partial(self._task, match_classes, cells=cells, keys=spec.keys, resources=self.resources)
        left = [
            one(interval=cut)(node, dask_key_name=key("matching-classes", q))
            for q, (node, cut) in enumerate(zip(merged, cuts, strict=True))
        ]
        ranges = [{_CELLS: (part[0][0], part[-1][1])} for part in self.shards]
        back = exchange(left, ranges, key, tasks=SPLITS)
        two = partial(self._task, match_clusters, spec=spec, resources=self.resources)
        core = [
            two(interval=each[_CELLS])(node, future, self.outlines, dask_key_name=key("matching-clusters", r))
            for r, (node, future, each) in enumerate(zip(back, self.futures, ranges, strict=False))
        ]
        settled = [self._outline(node, key) for node in left]
        solve = self._task(match, spec=spec, cells=most)
        return solve(settled, core, self.outlines, dask_key_name=key("matching"))

    def _outline(self, node: Any, key: Callable[..., str]) -> Any:
        """The node of a task's result without its rows."""
        number = node.key.rsplit("-", 1)[1]
        return dask.delayed(outline, pure=False)(node, dask_key_name=key("outline", number))

    @staticmethod
    def _task(function: Callable[..., Any], **known: Any) -> Any:
        return dask.delayed(partial(function, **known), pure=False)
