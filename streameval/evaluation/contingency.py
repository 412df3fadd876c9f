"""Contingency tables: their summary, with the optimal assignment and what watchers see, in rounds of the engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from streameval.metrics.contingency.assignment import summarize_rounds
from streameval.states.contingency.rounds import ByCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine import Engine
    from streameval.metrics.protocol import Metric
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.contingency.watch import Watcher

    W = TypeVar("W", bound=Watcher)


def assignment_cells(metrics: Sequence[Metric]) -> int | None:
    """The limit on cells of the best matching, set by metrics; None if no metric needs the matching."""
    limits = (metric.assignment_cells for metric in metrics)
    return next((limit for limit in limits if limit is not None), None)


def summarize_table(engine: Engine, table: ContingencyCounts, assignment_cells: int | None = None) -> Summary:
    """Summarise a contingency table.

    If `assignment_cells` is given, the summary has the optimal assignment of clusters to classes, exact for connected
    components of at most that number of cells and bounded for larger ones.
    """
    first = ByCluster(table, matched=assignment_cells is not None)
    return engine.rounds(first, partial(summarize_rounds, assignment_cells=assignment_cells))[0]


def watch_table(
    engine: Engine, table: ContingencyCounts, watch: Callable[[], W], assignment_cells: int | None = None
) -> tuple[Summary, W]:
    """As `summarize_table`; also returns the watcher of all clusters and classes; `watch` creates its parts."""
    first = ByCluster(table, watch, matched=assignment_cells is not None)
    summary, watcher = engine.rounds(first, partial(summarize_rounds, assignment_cells=assignment_cells))
    return summary, cast("W", watcher)
