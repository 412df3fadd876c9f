"""Results of a contingency state: one summary, from which every metric is a small computation.

The best matching is looked for only where a metric needs it. A component of more than `assignment_cells` cells is
bounded, not solved, and leaves a certain interval.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency.assignment import Matching, best_matching
from streameval.metrics.contingency.clustering import (
    CLUSTERING_METRICS,
    clustering_metric_names,
    clustering_metrics,
    names_measure,
)
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.budget import Budget
    from streameval.metrics.contingency.clustering import ClusteringMetric
    from streameval.states.contingency.cells import Mapper
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.matching_core import CoreCells
    from streameval.states.contingency.summary import Summary

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
        If a pattern names nothing, or a variant or an element that its measure does not have.

    Examples
    --------
    >>> [metric.name for metric in asked_for(["roc_auc", "bcubed_*"], ["roc_auc"])]
    ['bcubed_precision', 'bcubed_recall', 'bcubed_fscore']
    """
    if not patterns:
        return CLUSTERING_METRICS
    chosen: dict[str, ClusteringMetric] = {}
    for pattern in patterns:
        glob = any(c in pattern for c in "*?[")
        found = clustering_metrics([pattern]) if glob or names_measure(pattern) else ()
        if not found and not any(fnmatchcase(name, pattern) for name in others):
            known = ", ".join(dict.fromkeys((*others, *(name.split(".")[0] for name in clustering_metric_names()))))
            msg = f"no metric is named {pattern!r}; there are: {known}, and variants such as assignment_score/m3/raw"
            raise OptionError(msg)
        chosen.update((metric.name, metric) for metric in found)
    return tuple(chosen.values())


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
    try:
        lower, upper = metric.bounds(summary)
    except DataError as error:  # a measure of whole counts, adjusted to a null model whose counts are fractions
        return Scalar.undefined(metric.name, str(error))
    if lower != lower or upper != upper:
        return Scalar.undefined(metric.name, "no rows" if not summary.total else "not defined for this table")
    return Scalar.between(metric.name, lower, lower, upper)
