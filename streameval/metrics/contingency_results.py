"""Results of a contingency state: one summary, from which every metric is a small computation.

The best matching is solved only where a metric needs it, and only where all cells fit into memory. A component too
large to solve leaves a certain interval.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.assignment import ASSIGNMENT_CELLS, best_matching
from streameval.metrics.clustering import CLUSTERING_METRICS, clustering_metric_names, clustering_metrics
from streameval.results import Scalar
from streameval.states.matching import CELL_BYTES
from streameval.states.summary import Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.clustering import ClusteringMetric
    from streameval.states.contingency import ContingencyCounts, Mapper
    from streameval.states.memory import Budget

__all__ = ["asked_for", "contingency_results"]

_ROOM = 4  # times the cells' bytes that memory must be: half of a budget that is 0.6 of it


def asked_for(patterns: Sequence[str], others: Sequence[str]) -> tuple[ClusteringMetric, ...]:
    """Clustering metrics that names and globs ask for; without any, the defaults.

    Parameters
    ----------
    patterns : sequence of str
    others : sequence of str
        Names of the metrics of scores and clusters, which a pattern may mean instead.

    Raises
    ------
    OptionError
        If a pattern names nothing.

    Examples
    --------
    >>> [metric.name for metric in asked_for(["roc_auc", "bcubed_*"], ["roc_auc"])]
    ['bcubed_precision', 'bcubed_recall', 'bcubed_fscore']
    """
    if not patterns:
        return CLUSTERING_METRICS
    chosen: dict[str, ClusteringMetric] = {}
    for pattern in patterns:
        found = _named(pattern)
        if not found and not any(fnmatchcase(name, pattern) for name in others):
            known = ", ".join(dict.fromkeys((*others, *(name.split(".")[0] for name in clustering_metric_names()))))
            msg = f"no metric is named {pattern!r}; there are: {known}, and variants such as assignment_score/m3/raw"
            raise OptionError(msg)
        chosen.update((metric.name, metric) for metric in found)
    return tuple(chosen.values())


def _named(pattern: str) -> tuple[ClusteringMetric, ...]:
    """Metrics of one name or glob; none if it is no such name, or names an element that is not there."""
    table = replace(summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 4])), matching=(7, 7))
    try:
        found = clustering_metrics([pattern])
        for metric in found:
            metric.compute(table)
    except (OptionError, ValueError, TypeError, IndexError):
        return ()
    return found


def contingency_results(
    state: ContingencyCounts, metrics: Sequence[ClusteringMetric], budget: Budget, each: Mapper | None = None
) -> list[Scalar]:
    """Results of one state, in the order of the metrics.

    Parameters
    ----------
    state : ContingencyCounts
    metrics : sequence of ClusteringMetric
    budget : Budget
        Owns what the passes make; decides whether a matching is solved.
    each : callable, optional
        Maps a function over shards; see `ContingencyCounts.summary`.

    Raises
    ------
    OptionError
        If a metric needs a matching and the cells do not fit into memory.
    """
    summary = state.summary(budget, each)
    if any(metric.needs_matching for metric in metrics):
        summary = replace(summary, matching=_matching(state, summary, budget))
    return [_result(metric, summary) for metric in metrics]


def _matching(state: ContingencyCounts, summary: Summary, budget: Budget) -> tuple[Any, Any]:
    """Certain interval of the best matching's total."""
    needed = summary.nonzero * CELL_BYTES
    if needed > budget.limit // 2:
        msg = (
            f"assignment_score of {state.spec.cluster} needs all of its {summary.nonzero:,} cells in memory; "
            f"raise memory (--memory) to {-(-needed * _ROOM >> 30)}GiB, or leave it out"
        )
        raise OptionError(msg)
    cells = state.numbered(budget)
    found = best_matching(cells.classes, cells.clusters, cells.counts, ASSIGNMENT_CELLS)
    return found.lower + cells.pairs, found.upper + cells.pairs


def _result(metric: ClusteringMetric, summary: Summary) -> Scalar:
    lower, upper = metric.bounds(summary)
    if lower != lower or upper != upper:
        return Scalar.undefined(metric.name, "no rows" if not summary.total else "not defined for this table")
    return Scalar.between(metric.name, lower, lower, upper)
