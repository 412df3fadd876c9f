"""Every measure by name: of a table's facts, and of a 2×2 table; and what adjusts any of them to a null model.

Two plain dictionaries, filled from the modules that define the measures. Methods of `ContingencyTable` and
`ConfusionMatrix2`, `get_score`, `adjust_to_null` and the metrics of an evaluation all look here, so a measure is
written once and found everywhere.
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from functools import lru_cache, partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import association, fisher, measures, twoway
from streameval.metrics.contingency.arithmetic import safe_divide
from streameval.metrics.contingency.association import OneSided
from streameval.metrics.contingency.null_models import MODELS, CountedStatistics, TableStatistics
from streameval.states.contingency.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.metrics.contingency.measures import EntropyScores
    from streameval.metrics.contingency.twoway import TwoWay

__all__ = ["PAIR_MEASURES", "TABLE_MEASURES", "adjusted", "measure_by_name", "of_cells", "of_facts", "twoway_facts"]

P = ParamSpec("P")
T = TypeVar("T")


@lru_cache(maxsize=256)
def twoway_facts(t: TwoWay) -> CountedStatistics:
    """Facts of a 2×2 table, for the measures that tables of any shape have.

    Examples
    --------
    >>> from streameval.metrics.contingency.twoway import TwoWay
    >>> facts = twoway_facts(TwoWay(TP=20, FP=14, TN=156, FN=31))
    >>> facts.total, facts.nonzero, facts.matching
    (221, 4, 176)
    """
    if min(t) < 0:
        msg = "this measure needs counts of at least 0, and the expected pair counts of a null model can be negative"
        raise DataError(msg)
    found = [(row, col, n) for (row, col), n in zip(((0, 0), (1, 0), (1, 1), (0, 1)), t, strict=True) if n]
    codes = np.array([(row, col) for row, col, _ in found], dtype=np.int64).reshape(-1, 2)
    counts = np.empty(len(found), dtype=object)
    counts[:] = [Fraction(n) if isinstance(n, float) else n for _, _, n in found]
    return CountedStatistics(summarize(codes[:, 0], codes[:, 1], counts), solve=lambda: max(t.TP + t.TN, t.FP + t.FN))


def entropy_scores(t: TwoWay, mean: str = "harmonic") -> EntropyScores:
    """Homogeneity, completeness and their mean of a 2×2 table; see `contingency_measures.entropy_scores`."""
    return measures.entropy_scores(twoway_facts(t), mean)


def mic_scores(t: TwoWay, mean: str = "harmonic") -> OneSided:
    """Correlations from mutual information: √completeness, √homogeneity and √mean, with the sign of the covariance.

    Parameters
    ----------
    mean : {"harmonic", "geometric"}
    """
    sign = -1.0 if t.cov < 0 else 1.0
    scores = entropy_scores(t, mean)
    return OneSided(*(sign * math.sqrt(x) for x in (scores.completeness, scores.homogeneity, scores.v_measure)))


TABLE_MEASURES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        measures.adjusted_fowlkes_mallows,
        measures.adjusted_mutual_info,
        measures.adjusted_rand_index,
        measures.assignment_score,
        measures.bc_metrics,
        measures.chisq_score,
        measures.entropy_scores,
        measures.fowlkes_mallows,
        measures.g_score,
        measures.mirkin_match_coeff,
        measures.mirkin_mismatch_coeff,
        measures.muc_scores,
        measures.mutual_info_score,
        measures.rand_index,
        measures.split_join_distance,
        measures.split_join_similarity,
        measures.talburt_wang_index,
        measures.vi_distance,
        measures.vi_similarity,
    )
}
for _name in ("assignment_score", "split_join_similarity", "vi_similarity"):
    for _model in MODELS:
        TABLE_MEASURES[f"{_name}_{_model}"] = partial(TABLE_MEASURES[_name], model=_model)

PAIR_MEASURES: dict[str, Callable[..., Any]] = {
    "ACC": twoway.accuracy,
    "DOR": twoway.diagnostic_odds_ratio,
    "FDR": twoway.false_discovery_rate,
    "FNR": twoway.false_negative_rate,
    "FOR": twoway.false_omission_rate,
    "FPR": twoway.false_positive_rate,
    "NLL": twoway.negative_likelihood_ratio,
    "NPV": twoway.negative_predictive_value,
    "PLL": twoway.positive_likelihood_ratio,
    "PPV": twoway.precision,
    "TNR": twoway.specificity,
    "TPR": twoway.recall,
    "accuracy": twoway.accuracy,
    "precision": twoway.precision,
    "recall": twoway.recall,
    "sensitivity": twoway.recall,
    "specificity": twoway.specificity,
    "bias_index": twoway.bias_index,
    "chisq_score": twoway.chisq_score,
    "cole_coeff": association.cole_coeff,
    "covar": twoway.covar,
    "dice_coeff": twoway.dice_coeff,
    "diseq_coeff": association.diseq_coeff,
    "entropy_scores": entropy_scores,
    "frequency_bias": twoway.frequency_bias,
    "fscore": twoway.fscore,
    "g_score": lambda t: measures.g_score(twoway_facts(t)),
    "hypergeometric": fisher.hypergeometric,
    "informedness": association.informedness,
    "jaccard_coeff": twoway.jaccard_coeff,
    "kappa": association.kappa,
    "kappas": association.kappas,
    "loevinger_coeff": association.loevinger_coeff,
    "markedness": association.markedness,
    "matthews_corr": association.matthews_corr,
    "mic_scores": mic_scores,
    "mp_corr": association.mp_corr,
    "mutual_info_score": lambda t: measures.mutual_info_score(twoway_facts(t)),
    "ochiai_coeff": twoway.ochiai_coeff,
    "ochiai_coeff_adj": association.ochiai_coeff_adj,
    "overlap_coeff": twoway.overlap_coeff,
    "pairwise_hcv": association.pairwise_hcv,
    "prevalence_index": twoway.prevalence_index,
    "sokal_sneath_coeff": twoway.sokal_sneath_coeff,
    "xcoeff": association.xcoeff,
    "yule_q": association.yule_q,
    "yule_y": association.yule_y,
}


def measure_by_name(facts: TableStatistics, name: str) -> Any:
    """Value of a table measure, or of a measure of the pair table, at its defaults."""
    if name in TABLE_MEASURES:
        return TABLE_MEASURES[name](facts)
    if name in PAIR_MEASURES:
        return PAIR_MEASURES[name](facts.pairs)
    msg = f"{name!r} is no measure of a contingency table; known are {', '.join(sorted(TABLE_MEASURES))}"
    raise OptionError(msg)


def adjusted(actual: Any, null: Any, ceilings: tuple[Any, Any]) -> tuple[Any, Any]:
    """(x − null) / (ceiling − null) for both ceilings; element by element for measures of several values.

    Examples
    --------
    >>> adjusted(0.75, 0.5, (1.0, 0.5))
    (0.5, inf)
    """
    row, col = (_relative(actual, null, ceiling) for ceiling in ceilings)
    return row, col


def _relative(actual: Any, null: Any, ceiling: Any) -> Any:
    if isinstance(actual, tuple):
        return tuple(map(_relative, actual, null, ceiling))
    return safe_divide(actual - null, ceiling - null)


def warn_if_adjusted(name: str, null: Any, ceilings: tuple[Any, Any]) -> None:
    """Warn about a measure that is 0 under the null model, or 1 for a perfect table, before any adjustment."""
    if np.isclose(np.sum(null), 0.0):
        warnings.warn(f"{name!r} is already centered", stacklevel=3)
    for side, ceiling in zip(("row", "column"), ceilings, strict=True):
        if np.isclose(np.mean(ceiling), 1.0):
            warnings.warn(f"{name!r} is already {side}-normalized", stacklevel=3)


def name_of(measure: str | Callable[..., Any]) -> str:
    """Name of a measure that is given by name or as a method."""
    return measure if isinstance(measure, str) else measure.__name__


def of_facts(function: Callable[Concatenate[TableStatistics, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Turn a measure of facts into a method of anything with an attribute ``facts``."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self.facts, *args, **kwargs)

    return cast("Callable[Concatenate[Any, P], T]", wraps(function)(method))


def of_cells(function: Callable[Concatenate[TwoWay, P], T], name: str) -> Callable[Concatenate[Any, P], T]:
    """Turn a measure of a 2×2 table into a method, called `name`, of anything with an attribute ``cells``."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(self.cells, *args, **kwargs)

    wrapped = wraps(function)(method)
    wrapped.__name__ = wrapped.__qualname__ = name
    return cast("Callable[Concatenate[Any, P], T]", wrapped)


def with_model(function: Callable[..., T], model: str) -> Callable[..., T]:
    """Fix the null model of a method; ``redraw``, which the reference has everywhere, matters where a table is drawn.

    Examples
    --------
    >>> from streameval.arrays.contingency.table import ContingencyTable
    >>> table = ContingencyTable(rows=[[2, 1], [0, 3]])
    >>> table.vi_similarity_m1(True, True) == table.vi_similarity(model="m1")
    True
    """
    draws = "redraw" in signature(function).parameters

    def method(self: Any, normalize: bool = True, redraw: bool = False, **options: Any) -> T:
        return function(self, normalize, model, **(options | {"redraw": redraw} if draws else options))

    method.__name__ = method.__qualname__ = f"{function.__name__}_{model}"
    method.__doc__ = f"``{function.__name__}(normalize, {model!r}{', discrete, redraw' if draws else ''})``."
    return method
