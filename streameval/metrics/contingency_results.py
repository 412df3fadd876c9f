"""Results of a contingency state: one summary, from which every metric is a small computation.

The best matching is looked for only where a metric needs it. A component of more than `assignment_cells` cells is
bounded, not solved, and leaves a certain interval.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.assignment import Matching, best_matching
from streameval.metrics.clustering import CLUSTERING_METRICS, clustering_metric_names, clustering_metrics
from streameval.results import Scalar
from streameval.states.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.clustering import ClusteringMetric
    from streameval.states.cells import Mapper
    from streameval.states.contingency import ContingencyCounts
    from streameval.states.matching import CoreCells
    from streameval.states.memory import Budget
    from streameval.states.summary import Summary

__all__ = ["asked_for", "contingency_results", "matching", "summary_results"]


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


@lru_cache(maxsize=256)
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
        Owns what the passes make.
    each : callable, optional
        Maps a function over shards; see `ContingencyCounts.summary`.
    """
    limits = [metric.assignment_cells for metric in metrics if metric.needs_matching]
    if not limits:
        summary = state.summary(budget, each)
    else:
        summary, core = state.summary_and_core(budget, each)
        summary = replace(summary, matching=matching(core, limits[0]))
    return summary_results(summary, metrics)


def matching(core: CoreCells, assignment_cells: int) -> Matching:
    """The best matching of a table, from its core."""
    found = best_matching(core.classes, core.clusters, core.counts, assignment_cells)
    return Matching(found.lower + core.settled, found.upper + core.settled)


def summary_results(summary: Summary, metrics: Sequence[ClusteringMetric]) -> list[Scalar]:
    """Results of a summary, in the order of the metrics."""
    return [_result(metric, summary) for metric in metrics]


def _result(metric: ClusteringMetric, summary: Summary) -> Scalar:
    lower, upper = metric.bounds(summary)
    if lower != lower or upper != upper:
        return Scalar.undefined(metric.name, "no rows" if not summary.total else "not defined for this table")
    return Scalar.between(metric.name, lower, lower, upper)
