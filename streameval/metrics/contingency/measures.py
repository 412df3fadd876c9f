"""Measures of a table of any shape, and the statistics that they read.

A measure is a function of a dozen statistics. Three kinds of tables provide them:

- `CountedStatistics`: a real table, from its `Summary`;
- `NullStatistics`: the expected table of a null model. Each model fixes the two margins (r, c) and makes the cells
  r·c/N, so everything follows from the margins alone: MI is 0, Σ n² = Σ r²·Σ c²/N², the best matching pairs the largest
  margins. No dense R×C table is built;
- `diagonal`: the table that agrees perfectly with one margin.

========  ===================  =================  =================
model     fixed                row margins        column margins
========  ===================  =================  =================
``m1``    N                    N/R                N/C
``m2r``   row totals           r                  N/C
``m2c``   column totals        N/R                c
``m3``    both                 r                  c
========  ===================  =================  =================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from operator import floordiv
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streameval.errors import OptionError
from streameval.metrics.contingency import twoway
from streameval.metrics.contingency.arithmetic import harmonic_mean, mean_of, plain, safe_divide
from streameval.metrics.contingency.mutual_information import (
    Entropies,
    adjusted_information,
    entropies,
    entropy_of_sizes,
    log_of,
)
from streameval.metrics.contingency.twoway import TwoWay
from streameval.states.contingency.summary import INERTIA_BITS, Number, Sizes, Summary, aligned_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MODELS = ("m1", "m2r", "m2c", "m3")
_MARGINS = {
    "m1": ("even", "even"),
    "m2r": ("fixed", "even"),
    "m2c": ("even", "fixed"),
    "m3": ("fixed", "fixed"),
    "x1": ("first", "first"),
    "x2r": ("fixed", "first"),
    "x2c": ("first", "fixed"),
}


def pair_table(total: Number, cells: Number, classes: Number, clusters: Number) -> TwoWay:
    """Pairs of points from N and the sums of squares of cells, class sizes and cluster sizes.

    TP: same class and cluster; FP: same cluster only; FN: same class only; TN: the rest.

    Examples
    --------
    >>> pair_table(5, cells=4 + 1 + 4, classes=9 + 4, clusters=4 + 9)
    TwoWay(TP=2, FP=2, TN=4, FN=2)
    """
    return TwoWay(
        TP=_half(cells - total),
        FP=_half(clusters - cells),
        TN=_half(total * total - classes - clusters + cells),
        FN=_half(classes - cells),
    )


def _half(x: Number) -> Number:
    return x // 2 if isinstance(x, int) else x / 2


def _unsolved() -> Number:
    raise OptionError(
        "assignment_score needs the best matching of the cells, which has not been solved for this summary"
    )


def _undrawn(*_: object) -> Number:
    raise OptionError("discrete=True draws a table of the null model; that needs a table in memory")


@dataclass(frozen=True)
class CountedStatistics:
    """Statistics of a real table, from its summary; `solve` finds the best matching on demand.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> facts = CountedStatistics(summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 2])))
    >>> facts.total, facts.nonzero, facts.pairs
    (5, 3, TwoWay(TP=2, FP=2, TN=4, FN=2))
    """

    summary: Summary
    solve: Callable[[], Number] = field(default=_unsolved, compare=False)
    draw: Callable[[str, bool], Number] = field(default=_undrawn, compare=False)

    @property
    def total(self) -> Number:
        """Number of points, N."""
        return self.summary.total

    @property
    def classes(self) -> Sizes:
        """Row totals."""
        return self.summary.classes

    @property
    def clusters(self) -> Sizes:
        """Column totals."""
        return self.summary.clusters

    @property
    def nonzero(self) -> int:
        """Number of non-zero cells, V."""
        return self.summary.nonzero

    @property
    def chi_square(self) -> Number:
        """Pearson's chi-square, N·(Σ n²/(r·c) − 1), at least 0."""
        if self.summary.inertia is None:
            raise OptionError(
                "chi-square needs both sizes of every cell, which are not known without a block of classes"
            )
        excess = self.summary.inertia - (1 << INERTIA_BITS)
        return self.total * Fraction(excess, 1 << INERTIA_BITS) if excess > 0 else 0

    @cached_property
    def entropies(self) -> Entropies:
        """Entropies of both margins and their mutual information, in nats."""
        return entropies(self.summary)

    @cached_property
    def pairs(self) -> TwoWay:
        """Pairs of points by agreement."""
        s = self.summary
        return pair_table(s.total, s.cells.squares, s.classes.squares, s.clusters.squares)

    @cached_property
    def bcubed(self) -> tuple[Number, Number]:
        """Σ n²/c and Σ n²/r, in fixed point of 2^-104 for exact counts."""
        return _divide_squares(self.summary.cluster_squares), _divide_squares(self.summary.class_squares)

    @property
    def maxima(self) -> Number:
        """Σ row maxima + Σ column maxima."""
        return self.summary.row_maxima + self.summary.column_maxima

    @cached_property
    def matching(self) -> Number:
        """Total of the best one-to-one matching of rows and columns."""
        known = self.summary.matching
        return known[0] if known is not None and known[0] == known[1] else self.solve()


def _divide_squares(squares: Mapping[Number, Number]) -> Number:
    """Σ of squares / size: of floats, or of numbers rounded down to a multiple of 2^-104."""
    if any(isinstance(square, float) for square in squares.values()):
        return math.fsum(square / size for size, square in squares.items())
    total = sum(map(floordiv, [square * (1 << INERTIA_BITS) for square in squares.values()], squares))
    return Fraction(total, 1 << INERTIA_BITS)


@dataclass(frozen=True)
class NullStatistics:
    """Statistics of the table of independent margins, with cells r·c/N; only the margins matter.

    Examples
    --------
    >>> import numpy as np
    >>> sizes = Sizes.of(np.array([3, 1]))
    >>> null = NullStatistics(4, sizes, sizes)
    >>> null.matching, null.maxima, float(null.entropies.mutual), null.pairs.TP
    (Fraction(5, 2), 6, 0.0, Fraction(9, 8))
    """

    total: Number
    classes: Sizes
    clusters: Sizes
    draw: Callable[[str, bool], Number] = field(default=_undrawn, compare=False)

    @property
    def nonzero(self) -> int:
        """Number of cells, R·C."""
        return self.classes.count * self.clusters.count

    @property
    def chi_square(self) -> Number:
        """Zero."""
        return 0

    @property
    def entropies(self) -> Entropies:
        """Entropies of both margins; mutual information is 0."""
        return Entropies(entropy_of_sizes(self.classes), entropy_of_sizes(self.clusters), Fraction(0))

    @property
    def pairs(self) -> TwoWay:
        """Pairs of points by agreement, from the formula of pair counts applied to fractional cells."""
        classes, clusters = self.classes.squares, self.clusters.squares
        return pair_table(self.total, self._over(classes * clusters, 2), classes, clusters)

    @property
    def bcubed(self) -> tuple[Number, Number]:
        """Σ n²/c and Σ n²/r."""
        return self._over(self.classes.squares, 1), self._over(self.clusters.squares, 1)

    @property
    def maxima(self) -> Number:
        """Largest row total + largest column total."""
        return self.classes.largest + self.clusters.largest

    @property
    def matching(self) -> Number:
        """Sum of products of the k-th largest margins, over N."""
        return self._over(aligned_sum(self.classes, self.clusters), 1)

    def _over(self, x: Number, power: int) -> Number:
        if isinstance(x, float) or isinstance(self.total, float):
            return float(x) / float(self.total) ** power
        return Fraction(x) / Fraction(self.total) ** power if self.total else 0


TableStatistics: TypeAlias = CountedStatistics | NullStatistics
"""The statistics that a measure reads: exact numbers, or fractions with a certain error."""


def null_statistics(facts: TableStatistics, model: str) -> NullStatistics:
    """Statistics of the expected table under `model`, one of ``m1``, ``m2r``, ``m2c``, ``m3``.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> facts = CountedStatistics(summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 3])))
    >>> null_statistics(facts, "m1").classes.values.tolist(), null_statistics(facts, "m3").classes.values.tolist()
    ([3], [3])
    """
    check_model(model)
    classes, clusters = (
        _even(facts.total, sizes.count) if kind == "even" else sizes
        for kind, sizes in zip(_MARGINS[model], (facts.classes, facts.clusters), strict=True)
    )
    return NullStatistics(facts.total, classes, clusters)


def check_model(model: str) -> None:
    """Refuse an unknown null model by name."""
    if model not in MODELS:
        raise OptionError(f"model is {model!r}; choose None or one of {', '.join(MODELS)}")


def margins_of(model: str) -> tuple[str, str]:
    """Row and column margins of a model's expected table: ``fixed``, ``even``, or all points in the ``first`` group.

    Raises
    ------
    OptionError
        If there is no such model.
    """
    if model not in _MARGINS:
        raise OptionError(f"model is {model!r}; choose one of {', '.join(_MARGINS)}")
    return _MARGINS[model]


def expected_cells(t: TwoWay, model: str) -> TwoWay:
    """Expected 2×2 table under a null model, in exact fractions; it stays 2×2 where a margin is 0.

    Examples
    --------
    >>> expected_cells(TwoWay(TP=3, FP=1, TN=3, FN=1), "m3").TP
    Fraction(2, 1)
    """
    n = Fraction(t.n)
    rows, cols = margins_of(model)
    if not n:
        return TwoWay(0, 0, 0, 0)
    free = {"even": (n / 2, n / 2), "first": (n, Fraction(0))}
    p1, q1 = free.get(rows, (Fraction(t.p1), Fraction(t.q1)))
    p2, q2 = free.get(cols, (Fraction(t.p2), Fraction(t.q2)))
    return TwoWay(p1 * p2 / n, q1 * p2 / n, q1 * q2 / n, p1 * q2 / n)


def _even(total: Number, groups: int) -> Sizes:
    if groups == 0:
        return Sizes.repeat(0, 0)
    return Sizes.repeat(total / groups if isinstance(total, float) else Fraction(total) / groups, groups)


def ceilings(facts: TableStatistics) -> tuple[CountedStatistics, CountedStatistics]:
    """Statistics of the diagonal tables of the row totals and of the column totals."""
    return diagonal(facts.classes), diagonal(facts.clusters)


def diagonal(sizes: Sizes) -> CountedStatistics:
    """Statistics of the diagonal table of these sizes: perfect agreement.

    Examples
    --------
    >>> import numpy as np
    >>> perfect = diagonal(Sizes.of(np.array([3, 1])))
    >>> perfect.matching, perfect.chi_square, float(perfect.entropies.variation)
    (4, Fraction(4, 1), 0.0)
    """
    squares = {size: size * size * times for size, times in sizes.pairs()}
    summary = Summary(
        sizes, sizes, sizes, squares, squares, sizes.count << INERTIA_BITS, sizes.total, sizes.total,
        (sizes.total, sizes.total),
    )  # fmt: skip
    return CountedStatistics(summary)


class EntropyScores(NamedTuple):
    """Homogeneity, completeness and their mean, the V-measure; each in [0, 1]."""

    homogeneity: float
    completeness: float
    v_measure: float


class Scores(NamedTuple):
    """Precision, recall and their harmonic mean; each in [0, 1]."""

    precision: float
    recall: float
    fscore: float


def chisq_score(t: TableStatistics) -> float:
    """Pearson's chi-square statistic, N·(Σ n²/(r·c) − 1), at least 0, over all R×C cells.

    References
    ----------
    Pearson, K. (1900), On the criterion that a given system of deviations … Philosophical Magazine 50, 157-175.
    """
    return float(t.chi_square)


def g_score(t: TableStatistics) -> float:
    """G-statistic (log-likelihood ratio), 2·N·MI, at least 0; not divided by N.

    References
    ----------
    Dunning, T. (1993), Accurate methods for the statistics of surprise and coincidence. Computational Linguistics 19.
    """
    return float(2 * t.total * t.entropies.mutual)


def mutual_info_score(t: TableStatistics) -> float:
    """Mutual information in nats, at least 0; NaN for an empty table.

    References
    ----------
    Shannon, C. E. (1948), A mathematical theory of communication. Bell System Technical Journal 27, 379-423.
    """
    return float(t.entropies.mutual) if t.total else math.nan


def entropy_scores(t: TableStatistics, mean: str = "harmonic") -> EntropyScores:
    """Homogeneity MI/H(classes), completeness MI/H(clusters), and their mean; each in [0, 1].

    The harmonic mean is the V-measure, or normalised mutual information. A side of one group scores 1.

    Parameters
    ----------
    mean : {"harmonic", "geometric"}

    Returns
    -------
    homogeneity : MI / H(classes): 1 if every cluster holds rows of one class only.
    completeness : MI / H(clusters): 1 if every class lies in one cluster.
    v_measure : Harmonic mean of homogeneity and completeness.

    References
    ----------
    Rosenberg, A. and Hirschberg, J. (2007), V-measure. https://aclanthology.org/D07-1043
    """
    h = t.entropies
    homogeneity = safe_divide(h.mutual, h.classes) if h.classes else 1.0
    completeness = safe_divide(h.mutual, h.clusters) if h.clusters else 1.0
    return EntropyScores(homogeneity, completeness, mean_of(mean, homogeneity, completeness))


def adjusted_mutual_info(t: TableStatistics, average_method: str = "max") -> float:
    """Mutual information adjusted for chance, (MI − E) / (max(H, H) − E), at most 1.

    Fractional counts are refused. Two partitions into one group each, two into singletons, and an empty table are equal
    and score 1.

    Parameters
    ----------
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged; scikit-learn's default is ``arithmetic``.

    References
    ----------
    Vinh, N. X., Epps, J. and Bailey, J. (2010). JMLR 11, 2837-2854. http://www.jmlr.org/papers/v11/vinh10a.html
    """
    return adjusted_information(t.entropies, t.classes, t.clusters, average_method)


def assignment_score(
    t: TableStatistics, normalize: bool = True, model: str | None = "m1", discrete: bool = False, redraw: bool = False
) -> int | float:
    """Weight of the best one-to-one matching of classes and clusters, minus that of a null model.

    The matching is exact for whole counts and fractions of any size, with one exception. In a component of more than
    about 200 rows and as many columns whose largest count times their number reaches 2^51, it is solved for the leading
    bits of the counts; with 1,000 rows and columns its relative error is at most about 10^-9. See
    `streameval.metrics.contingency.assignment`.

    Parameters
    ----------
    normalize : bool, default True
        Divide by the score of a perfect match, so that it is at most 1.
    model : {None, "m1", "m2r", "m2c", "m3"}
        Null model to subtract: none, only N fixed, row totals, column totals, both. The null of ``m3`` is a sum of
        products of sorted margins, so no expected table is built.
    discrete : bool, default False
        Subtract the matching of a randomly rounded expected table instead. Tables in memory only.
    redraw : bool, default False
        Draw that table anew.

    References
    ----------
    Gusfield, D. (2002), Partition-distance. Information Processing Letters 82(3), 159-164.
    """
    if model is None:
        null: Number = 0
    else:
        null = t.draw(model, redraw) if discrete else null_statistics(t, model).matching
    return adjusted_for_chance(t, t.matching, null, t.total, normalize, model)


def split_join_similarity(t: TableStatistics, normalize: bool = True, model: str | None = "m1") -> int | float:
    """Σ row maxima + Σ column maxima (at most 2N), minus that of a null model.

    Parameters
    ----------
    normalize : bool, default True
        Divide by the score of a perfect match, so that it is at most 1.
    model : {None, "m1", "m2r", "m2c", "m3"}
        Null model to subtract.

    References
    ----------
    van Dongen, S. (2000), Performance criteria for graph clustering and Markov cluster experiments. INS R0012.
    """
    null = null_statistics(t, model).maxima if model is not None else 0
    return adjusted_for_chance(t, t.maxima, null, 2 * t.total, normalize, model)


def adjusted_for_chance(
    t: TableStatistics, score: Number, null: Number, maximum: Number, normalize: bool, model: str | None
) -> int | float:
    """Return score − null, or its share of maximum − null."""
    if t.total == 0 and model is not None:
        return math.nan
    if not normalize:
        return plain(score - null)
    return 1.0 if score == maximum else safe_divide(score - null, maximum - null)


def split_join_distance(t: TableStatistics, normalize: bool = True) -> int | float:
    """Share of the points that must move, in both directions: (2N − Σ row maxima − Σ column maxima) / 2N.

    With ``normalize=False``, their number.

    References
    ----------
    van Dongen, S. (2000), Performance criteria for graph clustering and Markov cluster experiments. INS R0012.
    """
    distance = 2 * t.total - t.maxima
    return safe_divide(distance, 2 * t.total) if normalize else plain(distance)


def vi_distance(t: TableStatistics, normalize: bool = True) -> float:
    """Variation of information, H(classes) + H(clusters) − 2·MI, divided by ln N.

    With ``normalize=False``, in nats.

    References
    ----------
    Meila, M. (2007), Comparing clusterings - an information based distance. https://doi.org/10.1016/j.jmva.2006.11.013
    """
    if t.total == 0:
        return math.nan
    distance = t.entropies.variation
    return safe_divide(distance, log_of(t.total)) if normalize else float(distance)


def vi_similarity(t: TableStatistics, normalize: bool = True, model: str | None = "m1") -> float:
    """Ln N − variation of information, in nats, minus that of a null model.

    The null variation is ln R + ln C (``m1``), ln C + H(classes) (``m2r``), ln R + H(clusters) (``m2c``) or
    H(classes) + H(clusters) (``m3``, which normalised is the V-measure).

    Parameters
    ----------
    normalize : bool, default True
        Divide by the score of a perfect match, so that it is at most 1.
    model : {None, "m1", "m2r", "m2c", "m3"}
        Null model to subtract.

    References
    ----------
    Meila, M. (2007), Comparing clusterings - an information based distance. https://doi.org/10.1016/j.jmva.2006.11.013
    """
    if t.total == 0:
        return math.nan
    distance = t.entropies.variation
    largest = log_of(t.total) if model is None else _null_variation(t, model)
    if not normalize:
        return float(largest - distance)
    return 1.0 if distance == 0 else safe_divide(largest - distance, largest)


def _null_variation(t: TableStatistics, model: str) -> Number:
    check_model(model)
    h = t.entropies
    rows = log_of(t.classes.count) if model in ("m1", "m2c") else h.classes
    cols = log_of(t.clusters.count) if model in ("m1", "m2r") else h.clusters
    return rows + cols


def talburt_wang_index(t: TableStatistics) -> float:
    """Talburt-Wang index, √(R·C) / V, in (0, 1].

    References
    ----------
    Talburt, J., Wang, R., Hess, K. and Kuo, E. (2007), An algebraic approach to data quality metrics for entity
    resolution over large datasets.
    """
    return safe_divide(math.sqrt(t.classes.count * t.clusters.count), t.nonzero)


def muc_scores(t: TableStatistics) -> Scores:
    """MUC precision (N − V)/(N − C), recall (N − V)/(N − R) and F-score; NaN for a side of singletons only.

    Returns
    -------
    precision : Links of the clusters that the classes have too, (N − V) / (N − C), V the cells above 0.
    recall : Links of the classes that the clusters have too, (N − V) / (N − R), V the cells above 0.
    fscore : Harmonic mean of MUC precision and recall.

    References
    ----------
    Vilain, M. et al. (1995), A model-theoretic coreference scoring scheme. https://aclanthology.org/M95-1005
    """
    links = t.total - t.nonzero
    precision, recall = safe_divide(links, t.total - t.clusters.count), safe_divide(links, t.total - t.classes.count)
    return Scores(precision, recall, harmonic_mean(recall, precision))


def bc_metrics(t: TableStatistics) -> Scores:
    """B-cubed precision Σ n²/c / N, recall Σ n²/r / N and F-score; each in (0, 1].

    Zero cells are left out, even where clustering-metrics divides by an empty row or column.

    Returns
    -------
    precision : Mean over rows of the share of the row's cluster that is of its class.
    recall : Mean over rows of the share of the row's class that is in its cluster.
    fscore : Harmonic mean of B-cubed precision and recall.

    References
    ----------
    Bagga, A. and Baldwin, B. (1998), Entity-based cross-document coreferencing. https://aclanthology.org/P98-1012
    """
    by_cluster, by_class = t.bcubed
    precision, recall = safe_divide(by_cluster, t.total), safe_divide(by_class, t.total)
    return Scores(precision, recall, harmonic_mean(recall, precision))


def adjusted_rand_index(t: TableStatistics) -> float:
    """Adjusted Rand index: the kappa of the pair table, in [−1, 1], 0 by chance.

    Exact integers of any size are divided once, so the value is correct at any N. One group on both sides, and
    singletons on both sides, give ½ (scikit-learn: 1); a single point gives NaN.

    References
    ----------
    Hubert, L. and Arabie, P. (1985), Comparing partitions. Journal of Classification 2, 193-218.
    """
    return twoway.kappa(t.pairs)


def rand_index(t: TableStatistics) -> float:
    """Rand index: the accuracy of the pair table, in [0, 1], not corrected for chance.

    References
    ----------
    Rand, W. M. (1971), Objective criteria for the evaluation of clustering methods. JASA 66, 846-850.
    """
    return twoway.accuracy(t.pairs)


def fowlkes_mallows(t: TableStatistics) -> float:
    """Fowlkes-Mallows index: the Ochiai similarity of the pair table, in [0, 1]; NaN if no pair shares a group.

    References
    ----------
    Fowlkes, E. B. and Mallows, C. L. (1983), A method for comparing two hierarchical clusterings. JASA 78, 553-569.
    """
    return twoway.ochiai_coeff(t.pairs)


def adjusted_fowlkes_mallows(t: TableStatistics) -> float:
    """Fowlkes-Mallows index corrected for chance, at most 1: the adjusted Ochiai coefficient of the pair table.

    References
    ----------
    Fowlkes, E. B. and Mallows, C. L. (1983), A method for comparing two hierarchical clusterings. JASA 78, 553-569.
    """
    return twoway.ochiai_coeff_adj(t.pairs)


def mirkin_mismatch_coeff(t: TableStatistics, normalize: bool = True) -> int | float:
    """Share of the ordered pairs on which the partitions disagree, 2·(FP + FN) / N².

    With ``normalize=False``, their number.

    References
    ----------
    Mirkin, B. (1996), Mathematical Classification and Clustering. Kluwer.
    """
    mismatches = 2 * (t.pairs.FP + t.pairs.FN)
    return safe_divide(mismatches, t.total * t.total) if normalize else plain(mismatches)


def mirkin_match_coeff(t: TableStatistics, normalize: bool = True) -> int | float:
    """Share of the ordered pairs on which the partitions agree, 1 minus the mismatches.

    With ``normalize=False``, their number.

    References
    ----------
    Mirkin, B. (1996), Mathematical Classification and Clustering. Kluwer.
    """
    matches = t.total * t.total - 2 * (t.pairs.FP + t.pairs.FN)
    return safe_divide(matches, t.total * t.total) if normalize else plain(matches)
