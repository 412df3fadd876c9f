"""Every measure of a contingency table, one line each, as data: its function, its range, which end is better.

`TableMeasures` read the statistics of a table of any shape, `PairMeasures` the four cells of a 2×2 table. Tables in
memory inherit them as methods; `get_score`, `adjust_to_null`, the metrics of an evaluation and the list that
``streameval metrics`` prints are made from the same lines. The meaning and the source of a measure are in the docstring
of its function. The descriptor of `Measure` makes it a method of every table, with the function's signature and
docstring, so `help`, editors and type checkers see an ordinary method.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, wraps
from math import inf
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, overload

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency import measures, twoway
from streameval.metrics.contingency.measures import CountedStatistics, TableStatistics
from streameval.metrics.contingency.twoway import OneSided, TwoWay
from streameval.states.contingency.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from streameval.metrics.contingency.arithmetic import Value
    from streameval.typing import Array


P = ParamSpec("P")
T = TypeVar("T")

EXPECTED: Final = "its expected value under chance is only known for all classes together"
MATCHED: Final = "the best matching is only solved for all classes together"
NULL_MODEL: Final = "a null model corrects it, which is only known for all classes together"
GROWS: Final = "it grows with the rows, as totals and test statistics do"

HIGHER: Final = "higher"
LOWER: Final = "lower"


@dataclass(eq=False)
class Measure(Generic[P, T]):
    """One measure of a table.

    Parameters
    ----------
    function : callable
        From the statistics of a table, and options, to a number or a named tuple of numbers.
    low, high : float
        Range of the values at the default options.
    better : {"higher", "lower", None}
        Which end is better; None where neither is.
    elements : tuple of str
        Names of the values of a tuple, empty for a single number.
    default : bool
        Whether an evaluation computes it when no metric is picked.
    model : str, optional
        The null model that is fixed.
    of_pairs : bool
        Whether it is a function of pair counts alone; its sampling error then depends on squared class sizes.
    scale : str
        Scale of its sampling interval, a key of `streameval.metrics.estimates.SCALES`; by its range if empty.
    no_interval : str
        Why it has no sampling interval.
    counts : bool
        Whether its value is a number of rows or pairs unless it is normalized.
    """

    function: Callable[Concatenate[Any, P], T]
    low: float = 0
    high: float = 1
    better: Literal["higher", "lower"] | None = HIGHER
    elements: tuple[str, ...] = ()
    default: bool = False
    model: str | None = None
    of_pairs: bool = False
    scale: str = ""
    no_interval: str = ""
    counts: bool = False
    method: Callable[Concatenate[Any, P], T] = field(init=False, repr=False)

    def __set_name__(self, owner: type[TableMeasures | PairMeasures], name: str) -> None:
        @wraps(self.function)
        def method(table: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self.function(getattr(table, owner.measured), *args, **kwargs)

        method.__name__, method.__qualname__ = name, f"{owner.__name__}.{name}"
        self.method = method

    @overload
    def __get__(self, table: None, owner: type) -> Callable[Concatenate[Any, P], T]: ...
    @overload
    def __get__(self, table: object, owner: type) -> Callable[P, T]: ...
    def __get__(self, table: object, owner: type) -> Callable[..., T]:
        return self.method if table is None else MethodType(self.method, table)

    def takes(self, option: str) -> bool:
        """Whether the function has this option; measures with a fixed null model have no variants."""
        return self.model is None and option in inspect.signature(self.function).parameters

    @property
    def meaning(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def meanings(self) -> tuple[str, ...]:
        """The meaning of each of several values: the lines of the docstring's section *Returns*."""
        _, _, after = (inspect.getdoc(self.function) or "").partition("Returns\n-------\n")
        lines = after.partition("\n\n")[0].splitlines() if self.elements else []
        return tuple(line.partition(" : ")[2] for line in lines)

    @property
    def source(self) -> str:
        """Reference of the docstring, or else of the module that defines the function; empty without any."""
        for text in (inspect.getdoc(self.function), inspect.getdoc(inspect.getmodule(inspect.unwrap(self.function)))):
            _, found, after = (text or "").partition("References\n----------\n")
            if found:
                return " ".join(after.partition("\n\n")[0].split())
        return ""

    def under(self, model: str) -> Measure[..., T]:
        """The same measure with a fixed null model.

        All measures accept `redraw`, as in clustering-metrics; it matters only if a table is drawn.

        Examples
        --------
        >>> from streameval.arrays.contingency import ContingencyTable
        >>> table = ContingencyTable(rows=[[2, 1], [0, 3]])
        >>> table.vi_similarity_m1(True, True) == table.vi_similarity(model="m1")
        True
        """
        function: Callable[..., T] = self.function
        draws = self.takes("redraw")

        @wraps(function)
        def fixed(table: Any, normalize: bool = True, redraw: bool = False, **options: Any) -> T:
            return function(table, normalize, model, **(options | {"redraw": redraw} if draws else options))

        del fixed.__wrapped__  # its signature is its own
        see = f"The null model is ``{model}``; see `{function.__name__}`."
        fixed.__doc__ = f"{self.meaning}\n\n{see}\n\nReferences\n----------\n{self.source}"
        low = self.low if model == "m1" else float("-inf")
        return Measure(fixed, low, better=self.better, model=model, no_interval=NULL_MODEL)


class TableMeasures:
    """Measures of a table of any shape, as methods of a class with the statistics `facts`."""

    measured = "facts"

    adjusted_rand_index = Measure(measures.adjusted_rand_index, -1, default=True, of_pairs=True)
    rand_index = Measure(measures.rand_index, default=True, of_pairs=True)
    fowlkes_mallows = Measure(measures.fowlkes_mallows, default=True, of_pairs=True)
    adjusted_fowlkes_mallows = Measure(measures.adjusted_fowlkes_mallows, -inf, default=True, of_pairs=True)
    mirkin_match_coeff = Measure(measures.mirkin_match_coeff, default=True, of_pairs=True, counts=True)
    mirkin_mismatch_coeff = Measure(
        measures.mirkin_mismatch_coeff, better=LOWER, default=True, of_pairs=True, counts=True
    )
    mutual_info_score = Measure(measures.mutual_info_score, high=inf, default=True)
    adjusted_mutual_info = Measure(measures.adjusted_mutual_info, -inf, default=True, no_interval=EXPECTED)
    entropy_scores = Measure(measures.entropy_scores, elements=measures.EntropyScores._fields, default=True)
    vi_distance = Measure(measures.vi_distance, better=LOWER, default=True)
    vi_similarity = Measure(measures.vi_similarity, default=True)
    split_join_distance = Measure(measures.split_join_distance, better=LOWER, default=True, counts=True)
    split_join_similarity = Measure(measures.split_join_similarity, default=True, counts=True)
    bc_metrics = Measure(
        measures.bc_metrics, elements=("bcubed_precision", "bcubed_recall", "bcubed_fscore"), default=True
    )
    muc_scores = Measure(measures.muc_scores, elements=("muc_precision", "muc_recall", "muc_fscore"), default=True)
    talburt_wang_index = Measure(measures.talburt_wang_index, default=True)
    chisq_score = Measure(measures.chisq_score, high=inf, default=True, no_interval=GROWS)
    g_score = Measure(measures.g_score, high=inf, default=True, no_interval=GROWS)
    assignment_score = Measure(measures.assignment_score, no_interval=MATCHED)

    assignment_score_m1 = assignment_score.under("m1")
    assignment_score_m2r = assignment_score.under("m2r")
    assignment_score_m2c = assignment_score.under("m2c")
    assignment_score_m3 = assignment_score.under("m3")
    split_join_similarity_m1 = split_join_similarity.under("m1")
    split_join_similarity_m2r = split_join_similarity.under("m2r")
    split_join_similarity_m2c = split_join_similarity.under("m2c")
    split_join_similarity_m3 = split_join_similarity.under("m3")
    vi_similarity_m1 = vi_similarity.under("m1")
    vi_similarity_m2r = vi_similarity.under("m2r")
    vi_similarity_m2c = vi_similarity.under("m2c")
    vi_similarity_m3 = vi_similarity.under("m3")


def twoway_cells(t: TwoWay) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Rows, columns and counts of the non-zero cells of a 2×2 table, row by row.

    Raises
    ------
    DataError
        If a cell is negative, as expected pair counts can be.
    """
    if min(t) < 0:
        raise DataError(
            "this measure needs counts of at least 0, and the expected pair counts of a null model can be negative"
        )
    table = np.empty(4, dtype=object)
    table[:] = [Fraction(n) if isinstance(n, float) else n for n in (t.TP, t.FN, t.FP, t.TN)]
    rows, cols = np.divmod(np.flatnonzero(table), 2)
    return rows, cols, table[2 * rows + cols]


@lru_cache(maxsize=256)
def _twoway_facts(t: TwoWay) -> CountedStatistics:
    return CountedStatistics(summarize(*twoway_cells(t)))


def _of_cells(function: Callable[Concatenate[TableStatistics, P], T]) -> Callable[Concatenate[TwoWay, P], T]:
    """Turn a measure of any table into one of the cells of a 2×2 table."""

    @wraps(function)
    def measure(t: TwoWay, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return function(_twoway_facts(t), *args, **kwargs)

    return measure


def _mic_scores(t: TwoWay, mean: str = "harmonic") -> OneSided:
    """Correlations from mutual information: √completeness, √homogeneity and √mean, with the sign of the covariance.

    Parameters
    ----------
    mean : {"harmonic", "geometric"}

    Returns
    -------
    precision : √completeness with the sign of the covariance.
    recall : √homogeneity with the sign of the covariance.
    mean : √V-measure with the sign of the covariance.

    References
    ----------
    clustering-metrics 0.0.2, `ConfusionMatrix2.mic_scores`.
    """
    sign = -1.0 if t.cov < 0 else 1.0
    scores = measures.entropy_scores(_twoway_facts(t), mean)
    return OneSided(*(sign * math.sqrt(x) for x in (scores.completeness, scores.homogeneity, scores.v_measure)))


class PairMeasures:
    """Measures of a 2×2 table, as methods of a class with the four cells `counts`."""

    measured = "counts"

    ACC = Measure(twoway.accuracy)
    DOR = Measure(twoway.diagnostic_odds_ratio, high=inf)
    FDR = Measure(twoway.false_discovery_rate, better=LOWER)
    FNR = Measure(twoway.false_negative_rate, better=LOWER)
    FOR = Measure(twoway.false_omission_rate, better=LOWER)
    FPR = Measure(twoway.false_positive_rate, better=LOWER)
    NLL = Measure(twoway.negative_likelihood_ratio, high=inf, better=LOWER)
    NPV = Measure(twoway.negative_predictive_value)
    PLL = Measure(twoway.positive_likelihood_ratio, high=inf)
    PPV = Measure(twoway.precision)
    TNR = Measure(twoway.specificity)
    TPR = Measure(twoway.recall)
    accuracy = Measure(twoway.accuracy)
    precision = Measure(twoway.precision)
    recall = Measure(twoway.recall)
    sensitivity = Measure(twoway.recall)
    specificity = Measure(twoway.specificity)
    bias_index = Measure(twoway.bias_index, better=LOWER)
    chisq_score = Measure(twoway.chisq_score, high=inf, no_interval=GROWS)
    cole_coeff = Measure(twoway.cole_coeff, -1)
    covar = Measure(twoway.covar, -inf, inf, no_interval=GROWS)
    dice_coeff = Measure(twoway.dice_coeff)
    diseq_coeff = Measure(twoway.diseq_coeff, -0.25, 0.25)
    entropy_scores = Measure(_of_cells(measures.entropy_scores), elements=measures.EntropyScores._fields)
    frequency_bias = Measure(twoway.frequency_bias, high=inf, better=None)
    fscore = Measure(twoway.fscore)
    g_score = Measure(_of_cells(measures.g_score), high=inf, no_interval=GROWS)
    hypergeometric = Measure(twoway.hypergeometric, -inf, inf, no_interval=GROWS)
    informedness = Measure(twoway.informedness, -1)
    jaccard_coeff = Measure(twoway.jaccard_coeff)
    kappa = Measure(twoway.kappa, -1, scale="fisher")
    kappas = Measure(twoway.kappas, -inf, elements=OneSided._fields)
    loevinger_coeff = Measure(twoway.loevinger_coeff, -inf)
    markedness = Measure(twoway.markedness, -1)
    matthews_corr = Measure(twoway.matthews_corr, -1, scale="fisher")
    mic_scores = Measure(_mic_scores, -1, elements=OneSided._fields)
    mp_corr = Measure(twoway.mp_corr, -1)
    mutual_info_score = Measure(_of_cells(measures.mutual_info_score), high=inf)
    ochiai_coeff = Measure(twoway.ochiai_coeff)
    ochiai_coeff_adj = Measure(twoway.ochiai_coeff_adj, -inf)
    overlap_coeff = Measure(twoway.overlap_coeff)
    pairwise_hcv = Measure(twoway.pairwise_hcv, -1, elements=OneSided._fields)
    prevalence_index = Measure(twoway.prevalence_index, better=None)
    sokal_sneath_coeff = Measure(twoway.sokal_sneath_coeff)
    xcoeff = Measure(twoway.xcoeff, -1)
    yule_q = Measure(twoway.yule_q, -1)
    yule_y = Measure(twoway.yule_y, -1)


def _rows(owner: type) -> dict[str, Measure[..., Value]]:
    return {name: measure for name, measure in vars(owner).items() if isinstance(measure, Measure)}


TABLE_MEASURES = _rows(TableMeasures)
PAIR_MEASURES = _rows(PairMeasures)


def _of_pairs(measure: Measure[..., Value]) -> Measure[..., Value]:
    """Turn a measure of a 2×2 table into one of the pair table of a larger one."""

    @wraps(measure.function)
    def function(facts: TableStatistics, /, *args: object, **kwargs: object) -> Value:
        return measure.function(facts.pairs, *args, **kwargs)

    return replace(measure, function=function, of_pairs=True)


def _cell(name: str, meaning: str) -> Measure[..., Value]:
    def function(facts: TableStatistics) -> Value:
        number: Value = getattr(facts.pairs, name)
        return number

    function.__doc__ = f"{meaning}\n\nReferences\n----------\nHubert, L. and Arabie, P. (1985), Comparing partitions."
    return Measure(function, high=inf, better=HIGHER if name.startswith("T") else LOWER, no_interval=GROWS)


MEASURES: dict[str, Measure[..., Value]] = {
    **TABLE_MEASURES,
    "pairwise.TP": _cell("TP", "Pairs of points with the same class and the same cluster."),
    "pairwise.FP": _cell("FP", "Pairs of points with the same cluster only."),
    "pairwise.TN": _cell("TN", "Pairs of points that share neither class nor cluster."),
    "pairwise.FN": _cell("FN", "Pairs of points with the same class only."),
    **{f"pairwise.{name}": _of_pairs(measure) for name, measure in PAIR_MEASURES.items()},
}
"""Measures of the statistics of a table, by the name of a metric."""


def measure_by_name(name: str) -> Measure[..., Value]:
    """Find a measure of a table, or else of its pair table.

    Raises
    ------
    OptionError
        If there is no such measure.
    """
    if not isinstance(name, str) or (name not in TABLE_MEASURES and name not in PAIR_MEASURES):
        known = ", ".join(dict.fromkeys((*TABLE_MEASURES, *PAIR_MEASURES)))
        raise OptionError(f"{name!r} is not a measure of a contingency table; known are {known}")
    return MEASURES[name if name in TABLE_MEASURES else f"pairwise.{name}"]
