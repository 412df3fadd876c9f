"""Measures of a contingency table of classes (rows) against clusters (columns), each a pure function of its statistics.

Notation: n are cell counts, r class sizes, c cluster sizes, N their total; R, C and V the numbers of classes, of
clusters and of non-zero cells; H entropies and MI the mutual information, in nats. A measure reads a `TableStatistics`,
so it works on a table in memory, on the merged summary of a sharded one, and on the table of a null model.

Three scores take ``model=``: the score of that null model is subtracted, and with ``normalize=True`` the difference is
divided by what it is for a perfect match. A score equal to its maximum is 1, even where that is 0/0.

Degenerate tables: entropy scores of a constant partition are 1; MUC scores where a side has singletons only are NaN;
an empty table scores 1 in entropy scores, adjusted mutual information, and assignment and split-join without a model,
0 in chi-square and G, and NaN elsewhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streameval.metrics.contingency import association, twoway
from streameval.metrics.contingency.arithmetic import Number, harmonic_mean, mean_of, plain, safe_divide
from streameval.metrics.contingency.mutual_information import adjusted_information, log_of
from streameval.metrics.contingency.null_models import TableStatistics, check_model, null_statistics


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
    return association.kappa(t.pairs)


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
    return association.ochiai_coeff_adj(t.pairs)


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
