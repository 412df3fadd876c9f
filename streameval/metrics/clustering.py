"""Clustering metrics for an evaluation: each a name and a pure function of a summary; and the module-level forms.

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
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics import contingency_measures as measures
from streameval.metrics.assignment import ASSIGNMENT_CELLS
from streameval.metrics.confusion import ConfusionMatrix2
from streameval.metrics.contingency_catalogue import PAIR_MEASURES, TABLE_MEASURES, adjusted, measure_by_name
from streameval.metrics.contingency_table import ContingencyTable
from streameval.metrics.nulls import MODELS, TableFacts, diagonal, null_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streameval.metrics.contingency_measures import EntropyScores
    from streameval.metrics.nulls import Facts
    from streameval.states.summary import Summary

__all__ = [
    "CLUSTERING_METRICS",
    "ClusteringMetric",
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "clustering_metric",
    "clustering_metrics",
    "cohen_kappa",
    "homogeneity_completeness_v_measure",
    "jaccard_similarity",
    "mutual_info_score",
    "product_moment",
]


@dataclass(frozen=True)
class ClusteringMetric:
    """One number of a contingency table.

    Parameters
    ----------
    name : str
        As it is printed.
    function : callable
        From facts to a number, or to (nested) tuples of numbers.
    element : tuple of int
        Where the number is in those tuples.
    needs_matching : bool
        Whether it needs the best matching of the cells: set ``summary.matching`` to its certain interval first.
    assignment_cells : int
        Cells of the largest component in which that matching is solved.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 4]))
    >>> clustering_metric("pairwise.kappas.0").compute(table)
    0.46153846153846156
    >>> score = clustering_metric("assignment_score/none/raw")
    >>> score.bounds(replace(table, matching=(6, 8)))
    (6.0, 8.0)
    """

    name: str
    function: Callable[[Facts], Any]
    element: tuple[int, ...] = ()
    needs_matching: bool = False
    assignment_cells: int = ASSIGNMENT_CELLS

    def compute(self, summary: Summary) -> float:
        """The value; where the matching is known to an interval only, at its lower end."""
        return self.bounds(summary)[0]

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """Certain interval of the value: both ends are equal unless the matching is known to an interval only."""
        lower = self._value(_facts(summary))
        if not self.needs_matching or summary.matching is None or summary.matching[0] == summary.matching[1]:
            return lower, lower
        low, high = (self._value(_facts(replace(summary, matching=(m, m)))) for m in summary.matching)
        return min(low, high), max(low, high)

    def _value(self, facts: Facts) -> float:
        value = self.function(facts)
        for i in self.element:
            value = value[i]
        return float(value)


@lru_cache(maxsize=32)
def _facts(summary: Summary) -> TableFacts:
    known = summary.matching
    return TableFacts(summary, solve=lambda: known[0]) if known is not None else TableFacts(summary)


def _flattened(function: Callable[[Facts], Any], *names: str) -> tuple[ClusteringMetric, ...]:
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

_LENGTHS = {"entropy_scores": 3, "bc_metrics": 3, "muc_scores": 3, "mic_scores": 3, "kappas": 3, "pairwise_hcv": 3}
_CELLS = ("TP", "FP", "TN", "FN")
_OPTIONS: dict[str, dict[str, Any]] = {
    **{model: {"model": model} for model in MODELS},
    "none": {"model": None},
    "raw": {"normalize": False},
    "normalized": {"normalize": True},
    "harmonic": {"mean": "harmonic"},
    "geometric": {"mean": "geometric"},
    "plain": {"standardize": False},
    "standardized": {"standardize": True},
}
_MODELLED = {"assignment_score", "vi_similarity", "split_join_similarity"}
_NORMALIZED = {*_MODELLED, "vi_distance", "split_join_distance", "mirkin_match_coeff", "mirkin_mismatch_coeff"}
_TAKES = {
    "model": _MODELLED,
    "normalize": _NORMALIZED,
    "mean": {"entropy_scores", "mic_scores"},
    "standardize": {"diseq_coeff"},
}


def clustering_metrics(patterns: Iterable[str]) -> tuple[ClusteringMetric, ...]:
    """Metrics with these names; globs match names, and a measure of several values gives one metric for each.

    Examples
    --------
    >>> [m.name for m in clustering_metrics(["bcubed_*", "pairwise.kapp*", "vi_distance/raw"])][2:5]
    ['bcubed_fscore', 'pairwise.kappa', 'pairwise.kappas.0']
    """
    chosen: dict[str, ClusteringMetric] = {}
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            names = [name for name in clustering_metric_names() if fnmatchcase(name, pattern)]
        else:
            names = _expanded(pattern)
        chosen.update((name, clustering_metric(name)) for name in names)
    return tuple(chosen.values())


@lru_cache(maxsize=1)
def clustering_metric_names() -> tuple[str, ...]:
    """Every name that a glob can match: the defaults, then what is computed only when asked for."""
    defaults = [metric.name for metric in CLUSTERING_METRICS]
    table = [name for name in TABLE_MEASURES if name not in defaults]
    pairs = [f"pairwise.{name}" for name in (*_CELLS, *PAIR_MEASURES)]
    return (*defaults, *(name for measure in (*table, *pairs) for name in _expanded(measure)))


def _expanded(name: str) -> list[str]:
    """Names of the elements of a measure of several values, or the name itself."""
    base = name.split("/")[0].removeprefix("pairwise.")
    head, *rest = name.split("/")
    if head == "adjust_to_null" and rest and "." not in rest[-1]:
        inner = [f".{i}" for i in range(_LENGTHS[rest[0]])] if rest[0] in _LENGTHS else [""]
        return [f"{name}.{side}{i}" for side in (0, 1) for i in inner]
    last = (head.removeprefix("pairwise.") if not rest else "") + "/".join(rest)
    if base == "pairwise" and rest:
        base = rest[0]
    if base in _LENGTHS and "." not in last:
        return [f"{name}.{i}" for i in range(_LENGTHS[base])]
    return [name]


def clustering_metric(name: str) -> ClusteringMetric:
    """The metric of that name; see the module's table.

    Examples
    --------
    >>> clustering_metric("assignment_score/m3/raw").needs_matching
    True
    >>> clustering_metric("ari")
    Traceback (most recent call last):
    streameval.errors.OptionError: 'ari' is no clustering metric; ...
    """
    for metric in CLUSTERING_METRICS:
        if metric.name == name:
            return metric
    path, element = _split_element(name)
    head, *variant = path.split("/")
    if head == "pairwise" and variant:
        head, variant = f"pairwise.{variant[0]}", variant[1:]
    function = _function(name, head, variant)
    return ClusteringMetric(name, function, element, needs_matching="assignment_score" in name)


def _split_element(name: str) -> tuple[str, tuple[int, ...]]:
    """``pairwise.kappas.0`` -> (``pairwise.kappas``, (0,)); ``fscore/beta=0.5`` has no element."""
    if "beta=" in name:
        return name, ()
    parts = name.split(".")
    element: list[int] = []
    while parts[-1].isdigit():
        element.insert(0, int(parts.pop()))
    return ".".join(parts), tuple(element)


def _function(name: str, head: str, variant: list[str]) -> Callable[[Facts], Any]:
    if head == "adjust_to_null" and len(variant) == 2 and variant[1] in MODELS:
        return partial(_adjusted_to_null, measure=variant[0], model=variant[1])
    if head.startswith("pairwise."):
        return _pair_function(name, head.removeprefix("pairwise."), variant)
    if head not in TABLE_MEASURES:
        raise _unknown(name)
    return partial(TABLE_MEASURES[head], **_options(name, head, variant))


def _pair_function(name: str, measure: str, variant: list[str]) -> Callable[[Facts], Any]:
    if measure in _CELLS and not variant:
        return lambda facts: getattr(facts.pairs, measure)
    if measure not in PAIR_MEASURES:
        raise _unknown(name)
    function, options = PAIR_MEASURES[measure], _options(name, measure, variant)
    return lambda facts: function(facts.pairs, **options)


def _options(name: str, measure: str, variant: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for word in variant:
        if measure == "fscore" and word.startswith("beta="):
            options["beta"] = float(word.removeprefix("beta="))
            continue
        given = _OPTIONS.get(word, {})
        if not given or any(measure not in _TAKES[key] or key in options for key in given):
            raise _unknown(name)
        options.update(given)
    return options


def _adjusted_to_null(facts: TableFacts, measure: str, model: str) -> Any:
    tables: tuple[Facts, ...] = (facts, null_facts(facts, model), diagonal(facts.classes), diagonal(facts.clusters))
    actual, null, by_rows, by_cols = (measure_by_name(table, measure) for table in tables)
    return adjusted(actual, null, (by_rows, by_cols))


def _unknown(name: str) -> OptionError:
    known = ", ".join(dict.fromkeys(name.split(".")[0] for name in clustering_metric_names()))
    return OptionError(f"{name!r} is no clustering metric; known are {known}, variants such as assignment_score/m3/raw")


def adjusted_rand_score(labels_true: Any, labels_pred: Any) -> float:
    """Adjusted Rand index of two labellings, in [−1, 1], exact at any size.

    Unlike scikit-learn's it is ½ where both sides are one group or both are singletons, and NaN for a single point.

    Examples
    --------
    >>> round(adjusted_rand_score([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [1, 2, 1, 2, 2, 3, 3, 3, 3, 3]), 3)
    0.313
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_rand_index()


def adjusted_mutual_info_score(labels_true: Any, labels_pred: Any, average_method: str = "max") -> float:
    """Adjusted mutual information of two labellings, at most 1, 0 by chance.

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged; scikit-learn's default is ``arithmetic``.

    Examples
    --------
    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0]), adjusted_mutual_info_score([0] * 4, [0, 1, 2, 3])
    (1.0, 0.0)
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_mutual_info(average_method)


def mutual_info_score(labels_true: Any, labels_pred: Any) -> float:
    """Mutual information of two labellings, in nats.

    Examples
    --------
    >>> mutual_info_score(["a", "a", "b", "b"], [0, 0, 1, 1])
    0.6931471805599453
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).mutual_info_score()


def homogeneity_completeness_v_measure(labels_true: Any, labels_pred: Any) -> EntropyScores:
    """Homogeneity, completeness and V-measure of two labellings, each in [0, 1].

    Examples
    --------
    >>> homogeneity_completeness_v_measure([0, 0, 1, 1], [0, 0, 1, 2]).homogeneity
    1.0
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).entropy_scores()


def jaccard_similarity(iterable1: Iterable[Any], iterable2: Iterable[Any]) -> float:
    """Jaccard similarity of two sets, in [0, 1]; NaN if both are empty.

    Examples
    --------
    >>> jaccard_similarity("abc", "bcd")
    0.5
    """
    return ConfusionMatrix2.from_sets(iterable1, iterable2).jaccard_coeff()


def product_moment(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Matthews correlation of a 2×2 table, in [−1, 1].

    Examples
    --------
    >>> round(product_moment(22, 4, 11, 2), 2)
    0.67
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).matthews_corr()


def cohen_kappa(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Cohen's kappa of a 2×2 table, in [−1, 1].

    Examples
    --------
    >>> round(cohen_kappa(147, 10, 62, 3), 2)
    0.86
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).kappa()
