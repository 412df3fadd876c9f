"""Clustering metrics for an evaluation: each a name and a pure function of a summary.

`CLUSTERING_METRICS` are computed when a class column is given and nothing is picked. Everything else has a name too,
and `clustering_metric` reads it:

=====================================  ==============================================================================
``assignment_score``                   any method of `ContingencyTable`, at its defaults
``assignment_score/m3/raw``            null model (``none``, ``m1``, ``m2r``, ``m2c``, ``m3``), then ``raw`` or
                                       ``normalized``
``vi_distance/raw``                    not normalised
``entropy_scores/geometric.2``         another mean; element 2 of the tuple
``pairwise.kappas.0``                  a method of the pair table; element 0 of the tuple
``adjust_to_null/rand_index/m3.1``     adjusted to a null model; the second ceiling
=====================================  ==============================================================================

A measure of several values stands for all of them: `clustering_metrics` expands it, and globs such as ``pairwise.*``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import measures
from streameval.metrics.contingency.catalogue import PAIR_MEASURES, TABLE_MEASURES
from streameval.metrics.contingency.names import MetricName, variants
from streameval.metrics.contingency.null_models import CountedStatistics
from streameval.metrics.contingency.twoway import TwoWay
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streameval.metrics.contingency.null_models import TableStatistics
    from streameval.states.contingency.summary import Summary

__all__ = [
    "CLUSTERING_METRICS",
    "ClusteringMetric",
    "clustering_metric",
    "clustering_metrics",
    "names_measure",
]


@dataclass(frozen=True)
class ClusteringMetric:
    """One number of a contingency table.

    Parameters
    ----------
    name : str
        As it is printed.
    function : callable
        From facts to a number, or to (nested) tuples of numbers. If it reads the matching it must be monotone in it,
        rising or falling: `bounds` evaluates it at the two ends of the matching's interval only.
    element : tuple of int
        Where the number is in those tuples.
    needs_matching : bool
        Whether it needs the best matching of the cells: set ``summary.matching`` to its certain interval first.
    assignment_cells : int, optional
        Cells of the largest component in which that matching is solved; None where it needs none.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 4]))
    >>> clustering_metric("pairwise.kappas.0").compute(table)
    0.46153846153846156
    >>> score = clustering_metric("assignment_score/none/raw")
    >>> score.bounds(replace(table, matching=(6, 8)))
    (6.0, 8.0)
    """

    name: str
    function: Callable[[TableStatistics], Any]
    element: tuple[int, ...] = ()
    needs_matching: bool = False
    assignment_cells: int | None = None
    family: str = "classes"

    def partial(self, part: Summary) -> tuple[float, float] | str:
        """Both ends of the value, or why there is none."""
        try:
            lower, upper = self.bounds(part)
        except DataError as error:  # a measure of whole counts, adjusted to a null model whose counts are fractions
            return str(error)
        if lower == lower and upper == upper:
            return lower, upper
        return "no rows" if not part.total else "not defined for this table"

    def combine(self, partials: Sequence[tuple[float, float] | str], state: object) -> Scalar:
        """The value: a table has one summary, hence one partial."""
        (ends,) = partials
        if isinstance(ends, str):
            return Scalar.undefined(self.name, ends)
        return Scalar.between(self.name, ends[0], *ends)

    def compute(self, summary: Summary) -> float:
        """The value; where the matching is known to an interval only, at its lower end."""
        return self.bounds(summary)[0]

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """Certain interval of the value: both ends are equal unless the matching is known to an interval only.

        Then they are the values at that interval's ends, so the function must be monotone in the matching. All named
        metrics are: those that read it are linear in it.
        """
        lower = self._value(_facts(summary))
        if not self.needs_matching or summary.matching is None or summary.matching[0] == summary.matching[1]:
            return lower, lower
        low, high = (self._value(_facts(replace(summary, matching=(m, m)))) for m in summary.matching)
        return min(low, high), max(low, high)

    def _value(self, facts: TableStatistics) -> float:
        value = self.function(facts)
        for i in self.element:
            value = value[i]
        return float(value)


@lru_cache(maxsize=32)
def _facts(summary: Summary) -> CountedStatistics:
    known = summary.matching
    return CountedStatistics(summary, solve=lambda: known[0]) if known is not None else CountedStatistics(summary)


def _flattened(function: Callable[[TableStatistics], Any], *names: str) -> tuple[ClusteringMetric, ...]:
    return tuple(ClusteringMetric(name, function, (i,)) for i, name in enumerate(names))


CLUSTERING_METRICS: tuple[ClusteringMetric, ...] = (
    ClusteringMetric("adjusted_rand_index", measures.adjusted_rand_index),
    ClusteringMetric("rand_index", measures.rand_index),
    ClusteringMetric("fowlkes_mallows", measures.fowlkes_mallows),
    ClusteringMetric("adjusted_fowlkes_mallows", measures.adjusted_fowlkes_mallows),
    ClusteringMetric("mirkin_match_coeff", measures.mirkin_match_coeff),
    ClusteringMetric("mirkin_mismatch_coeff", measures.mirkin_mismatch_coeff),
    ClusteringMetric("mutual_info_score", measures.mutual_info_score),
    ClusteringMetric("adjusted_mutual_info", measures.adjusted_mutual_info),
    *_flattened(measures.entropy_scores, "homogeneity", "completeness", "v_measure"),
    ClusteringMetric("vi_distance", measures.vi_distance),
    ClusteringMetric("vi_similarity", measures.vi_similarity),
    ClusteringMetric("split_join_distance", measures.split_join_distance),
    ClusteringMetric("split_join_similarity", measures.split_join_similarity),
    *_flattened(measures.bc_metrics, "bcubed_precision", "bcubed_recall", "bcubed_fscore"),
    *_flattened(measures.muc_scores, "muc_precision", "muc_recall", "muc_fscore"),
    ClusteringMetric("talburt_wang_index", measures.talburt_wang_index),
    ClusteringMetric("chisq_score", measures.chisq_score),
    ClusteringMetric("g_score", measures.g_score),
)


def clustering_metrics(patterns: Iterable[str]) -> tuple[ClusteringMetric, ...]:
    """Metrics with these names; globs match names, and a measure of several values gives one metric for each.

    A glob with a slash matches variants in which every word is said, such as ``assignment_score/*/raw``.

    Examples
    --------
    >>> [m.name for m in clustering_metrics(["bcubed_*", "pairwise.kapp*", "vi_distance/raw"])][2:5]
    ['bcubed_fscore', 'pairwise.kappa', 'pairwise.kappas.0']
    """
    chosen: dict[str, ClusteringMetric] = {}
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            known = _variant_names() if "/" in pattern else clustering_metric_names()
            names = [name for name in known if fnmatchcase(name, pattern)]
        else:
            names = _expanded(pattern)
        chosen.update((name, clustering_metric(name)) for name in names)
    return tuple(chosen.values())


@lru_cache(maxsize=1)
def clustering_metric_names() -> tuple[str, ...]:
    """Every name that a glob can match: the defaults, then what is computed only when asked for."""
    defaults = [metric.name for metric in CLUSTERING_METRICS]
    table = [name for name in TABLE_MEASURES if name not in defaults]
    pairs = [f"pairwise.{name}" for name in (*TwoWay._fields, *PAIR_MEASURES)]
    return (*defaults, *(name for measure in (*table, *pairs) for name in _expanded(measure)))


@lru_cache(maxsize=1)
def _variant_names() -> tuple[str, ...]:
    """Every variant that a glob can match."""
    measures = (*TABLE_MEASURES, *(f"pairwise.{name}" for name in PAIR_MEASURES))
    return tuple(name for measure in measures for variant in variants(measure) for name in _expanded(variant))


def _expanded(name: str) -> list[str]:
    """Names of the elements of a measure of several values, or the name itself."""
    if _default(name):
        return [name]
    parsed, _ = _parsed(name)
    elements = product(*map(range, parsed.lengths[len(parsed.element) :]))
    return [".".join([name, *map(str, element)]) for element in elements]


def _default(name: str) -> ClusteringMetric | None:
    return next((metric for metric in CLUSTERING_METRICS if metric.name == name), None)


def names_measure(name: str) -> bool:
    """Whether a name begins with a measure of contingency tables, whatever variants or elements follow.

    Examples
    --------
    >>> names_measure("pairwise.fscore/beta=x"), names_measure("roc_auc")
    (True, False)
    """
    return _default(name) is not None or MetricName.of(name).known


def clustering_metric(name: str) -> ClusteringMetric:
    """The metric of that name; see the module's table.

    Raises
    ------
    OptionError
        If there is no such measure, variant or element, or the measure has several values and none of them is named.

    Examples
    --------
    >>> clustering_metric("assignment_score/m3/raw").needs_matching
    True
    >>> clustering_metric("ari")
    Traceback (most recent call last):
    streameval.errors.OptionError: 'ari' is no clustering metric; ...
    >>> clustering_metric("pairwise.kappas.3")
    Traceback (most recent call last):
    streameval.errors.OptionError: ...: it has several values; name one of pairwise.kappas.0 to pairwise.kappas.2
    """
    default = _default(name)
    if default is not None:
        return default
    parsed, function = _parsed(name)
    parsed.check_element()
    return ClusteringMetric(name, function, parsed.element, needs_matching="assignment_score" in name)


def _parsed(name: str) -> tuple[MetricName, Callable[[TableStatistics], Any]]:
    """The parts of a name, and what computes its measure; refused if there is no such measure or variant."""
    parsed = MetricName.of(name)
    if not parsed.known:
        known = ", ".join(dict.fromkeys(name.split(".")[0] for name in clustering_metric_names()))
        msg = f"{name!r} is no clustering metric; known are {known}, variants such as assignment_score/m3/raw"
        raise OptionError(msg)
    return parsed, parsed.function()
