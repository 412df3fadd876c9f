"""Measures of a 2×2 table: rates, ratios and similarities that are not corrected for chance.

A table is four counts (true and false positives, true and false negatives); rows are the truth, columns the
prediction::

                    predicted +   predicted −
        actual +        TP            FN          p1 = TP + FN
        actual −        FP            TN          q1 = FP + TN
                    p2 = TP + FP  q2 = FN + TN     n

Every measure is one function of a `TwoWay`, so that `ConfusionMatrix2`, the pair table of two clusterings and the
tables of null models share them. Zero denominators give NaN or an infinity, as `safe_divide` defines.

References
----------
Fawcett, T. (2006), An introduction to ROC analysis. Pattern Recognition Letters 27, 861-874.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from streameval.metrics.contingency.arithmetic import (
    Number,
    harmonic_mean_weighted,
    plain,
    safe_divide,
    signed_root,
)


class TwoWay(NamedTuple):
    """Four cells of a 2×2 table, counter-clockwise: TP, FP, TN, FN. Exact numbers of any size.

    Examples
    --------
    >>> t = TwoWay(TP=20, FP=14, TN=156, FN=31)
    >>> t.p1, t.q1, t.p2, t.q2, t.n
    (51, 170, 34, 187, 221)
    """

    TP: Number
    FP: Number
    TN: Number
    FN: Number

    @property
    def p1(self) -> Number:
        """Actual positives."""
        return self.TP + self.FN

    @property
    def q1(self) -> Number:
        """Actual negatives."""
        return self.FP + self.TN

    @property
    def p2(self) -> Number:
        """Predicted positives."""
        return self.TP + self.FP

    @property
    def q2(self) -> Number:
        """Predicted negatives."""
        return self.FN + self.TN

    @property
    def n(self) -> Number:
        """All points."""
        return self.p1 + self.q1

    @property
    def cov(self) -> Number:
        """Determinant, TP·TN − FN·FP."""
        return self.TP * self.TN - self.FN * self.FP


def accuracy(t: TwoWay) -> float:
    """Accuracy, (TP + TN) / n, in [0, 1]; of a pair table it is the Rand index."""
    return safe_divide(t.TP + t.TN, t.n)


def precision(t: TwoWay) -> float:
    """Positive predictive value (precision), TP / (TP + FP), in [0, 1]."""
    return safe_divide(t.TP, t.p2)


def negative_predictive_value(t: TwoWay) -> float:
    """Negative predictive value, TN / (TN + FN), in [0, 1]."""
    return safe_divide(t.TN, t.q2)


def recall(t: TwoWay) -> float:
    """True positive rate (recall, sensitivity, hit rate), TP / (TP + FN), in [0, 1]."""
    return safe_divide(t.TP, t.p1)


def false_positive_rate(t: TwoWay) -> float:
    """False positive rate (fallout), FP / (FP + TN), in [0, 1]."""
    return safe_divide(t.FP, t.q1)


def specificity(t: TwoWay) -> float:
    """True negative rate (specificity), TN / (FP + TN), in [0, 1]."""
    return safe_divide(t.TN, t.q1)


def false_negative_rate(t: TwoWay) -> float:
    """False negative rate (miss rate), FN / (TP + FN), in [0, 1]."""
    return safe_divide(t.FN, t.p1)


def false_discovery_rate(t: TwoWay) -> float:
    """False discovery rate (false alarm ratio), FP / (TP + FP), in [0, 1]."""
    return safe_divide(t.FP, t.p2)


def false_omission_rate(t: TwoWay) -> float:
    """False omission rate, FN / (TN + FN), in [0, 1]."""
    return safe_divide(t.FN, t.q2)


def positive_likelihood_ratio(t: TwoWay) -> float:
    """Positive likelihood ratio, TPR / FPR, in [0, inf]; NaN where either rate is undefined.

    Where TPR is NaN and FPR is 0, clustering-metrics returns −inf; this function returns NaN.
    """
    return safe_divide(recall(t), false_positive_rate(t))


def negative_likelihood_ratio(t: TwoWay) -> float:
    """Negative likelihood ratio, FNR / TNR, in [0, inf]; NaN where either rate is undefined.

    Where FNR is NaN and TNR is 0, clustering-metrics returns −inf; this function returns NaN.
    """
    return safe_divide(false_negative_rate(t), specificity(t))


def diagnostic_odds_ratio(t: TwoWay) -> float:
    """Diagnostic odds ratio, TP·TN / (FN·FP), in [0, inf]; infinite where exactly one wrong cell is empty.

    References
    ----------
    Glas, A. et al. (2003), The diagnostic odds ratio. J. Clin. Epidemiol. 56, 1129-1135.
    """
    return safe_divide(t.TP * t.TN, t.FN * t.FP)


def fscore(t: TwoWay, beta: float = 1.0) -> float:
    """F-score, the harmonic mean of precision and recall with recall weighted by beta², in [0, 1].

    Undefined (NaN) where precision or recall is, unlike `dice_coeff`.

    Parameters
    ----------
    beta : float, default 1.0
        0 is precision, infinity is recall.

    References
    ----------
    van Rijsbergen, C. J. (1979), Information Retrieval, chapter 7. Butterworths.
    """
    return harmonic_mean_weighted(precision(t), recall(t), beta * beta)


def dice_coeff(t: TwoWay) -> float:
    """Dice similarity, 2·TP / (2·TP + FN + FP), in [0, 1]: the F-score, but defined when recall or precision is not.

    References
    ----------
    Choi, S.-S. et al. (2010), A survey of binary similarity and distance measures. JSCI 8(1), 43-48.
    """
    return safe_divide(2 * t.TP, t.p1 + t.p2)


def jaccard_coeff(t: TwoWay) -> float:
    """Jaccard similarity (critical success index), TP / (TP + FN + FP), in [0, 1].

    References
    ----------
    Choi, S.-S. et al. (2010), A survey of binary similarity and distance measures. JSCI 8(1), 43-48.
    """
    return safe_divide(t.TP, t.TP + t.FN + t.FP)


def sokal_sneath_coeff(t: TwoWay) -> float:
    """Sokal and Sneath similarity, TP / (TP + 2·(FN + FP)), in [0, 1].

    References
    ----------
    Choi, S.-S. et al. (2010), A survey of binary similarity and distance measures. JSCI 8(1), 43-48.
    """
    return safe_divide(t.TP, t.TP + 2 * (t.FN + t.FP))


def overlap_coeff(t: TwoWay) -> float:
    """Overlap (Szymkiewicz-Simpson) coefficient, TP / min(p1, p2), in [0, 1]; 0 if that minimum is 0.

    References
    ----------
    Choi, S.-S. et al. (2010), A survey of binary similarity and distance measures. JSCI 8(1), 43-48.
    """
    smaller = min(t.p1, t.p2)
    return 0.0 if smaller == 0 else safe_divide(t.TP, smaller)


def ochiai_coeff(t: TwoWay) -> float:
    """Ochiai (cosine) similarity, TP / √(p1·p2), in [0, 1]; of a pair table it is the Fowlkes-Mallows index.

    NaN only if TP, FP and FN are all 0.

    References
    ----------
    Choi, S.-S. et al. (2010), A survey of binary similarity and distance measures. JSCI 8(1), 43-48.
    """
    if t.TP == 0:
        return math.nan if t.FP == t.FN == 0 else 0.0
    return signed_root(t.TP, t.p1 * t.p2)


def prevalence_index(t: TwoWay) -> float:
    """Prevalence index, |TP − TN| / n, in [0, 1].

    References
    ----------
    Byrt, T., Bishop, J. and Carlin, J. (1993), Bias, prevalence and kappa. J. Clin. Epidemiol. 46, 423-429.
    """
    return abs(safe_divide(t.TP - t.TN, t.n))


def frequency_bias(t: TwoWay) -> float:
    """Frequency bias, predicted over actual positives, p2 / p1, in [0, inf]."""
    return safe_divide(t.p2, t.p1)


def bias_index(t: TwoWay) -> float:
    """Bias index, |FN − FP| / n, in [0, 1].

    References
    ----------
    Byrt, T., Bishop, J. and Carlin, J. (1993), Bias, prevalence and kappa. J. Clin. Epidemiol. 46, 423-429.
    """
    return abs(safe_divide(t.FN - t.FP, t.n))


def covar(t: TwoWay) -> int | float:
    """Covariance of the table, its determinant TP·TN − FN·FP: an exact integer for whole counts."""
    return plain(t.cov)


def chisq_score(t: TwoWay) -> float:
    """Pearson's chi-square statistic, n·cov² / (p1·q1·p2·q2), at least 0; 0 if a margin is 0.

    References
    ----------
    Pearson, K. (1900), On the criterion that a given system of deviations … Philosophical Magazine 50, 157-175.
    """
    margins = t.p1 * t.q1 * t.p2 * t.q2
    return 0.0 if margins == 0 else safe_divide(t.n * t.cov * t.cov, margins)


def lform(t: TwoWay) -> TwoWay:
    """L-shaped table with the same margins: the smaller wrong count m moves onto the diagonal.

    The result is (TP + m, FP − m, TN + m, FN − m), m = min(FP, FN). clustering-metrics zeroes that count before using
    it a second time, so its column totals change.
    """
    m = min(t.FP, t.FN)
    return TwoWay(t.TP + m, t.FP - m, t.TN + m, t.FN - m)
