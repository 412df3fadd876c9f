"""Measures of a 2×2 table: rates, similarities, coefficients that are corrected for chance, and Fisher's exact test.

A table is four counts (true and false positives, true and false negatives); rows are the truth, columns the
prediction::

                    predicted +   predicted −
        actual +        TP            FN          p1 = TP + FN
        actual −        FP            TN          q1 = FP + TN
                    p2 = TP + FP  q2 = FN + TN     n

Every measure is one function of a `TwoWay`, so that `ConfusionMatrix2`, the pair table of two clusterings and the
tables of null models share them. Zero denominators give NaN or an infinity, as `safe_divide` defines.

Measures corrected for chance mostly divide cov = TP·TN − FN·FP by a product of margins. Degenerate tables follow one
convention:

- one *diagonal* cell only (everything agrees, nothing varies): ½, and NaN for the two one-sided `kappas`;
- one *off-diagonal* cell only: −½ for correlations, 0 for agreements, −1 for the bounded coefficients;
- an empty row or column with two other cells: 0, except the Yule coefficients, which compare the two cells;
- no cell at all: NaN.

Fisher's exact test of a 2×2 table, two-sided, as an association score: sign(cov)·(−ln p).

p is the sum of the probabilities, given the margins, that are not greater than the observed one, exact ties included.
Probabilities are never formed. With E the expected counts and d = TP − E₁₁ their deviation,

    ln P = constant − Σ over the four cells of [deviance(x, E) + δ(x)],  deviance = x·ln(x/E) − (x − E),

and δ(x) = ln x! − (x·ln x − x), which neither cancels nor overflows; so p may be far below the smallest float, and
the table may be the pair table of 10¹² points. Sums over more than 2²⁰ tables become integrals of this smooth function
with the Euler-Maclaurin correction at their ends. Near ties at a short distance are decided in exact integers.

Error: about 1e-13 relative for up to 2²⁰ tables that matter, 1e-9 beyond.

References
----------
Fawcett, T. (2006), An introduction to ROC analysis. Pattern Recognition Letters 27, 861-874.
"""

from __future__ import annotations

import math
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streameval.errors import DataError
from streameval.metrics.contingency.arithmetic import harmonic_mean_weighted, plain, safe_divide, signed_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.contingency.summary import Number


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


class OneSided(NamedTuple):
    """A precision-like value, a recall-like value, and their mean."""

    precision: float
    recall: float
    mean: float


def _only_diagonal(t: TwoWay) -> bool:
    return t.n in (t.TP, t.TN)


def _some_margin_is_zero(t: TwoWay) -> bool:
    return t.n in (t.p1, t.q1, t.p2, t.q2)


def _by_convention(
    diagonal: float | None = None, wrong: float | None = None
) -> Callable[[Callable[[TwoWay], float]], Callable[[TwoWay], float]]:
    """Values of a measure for no cell at all (NaN), and for one diagonal or one off-diagonal cell only."""

    def decorated(measure: Callable[[TwoWay], float]) -> Callable[[TwoWay], float]:
        @wraps(measure)
        def function(t: TwoWay) -> float:
            if t.n == 0:
                return math.nan
            if diagonal is not None and _only_diagonal(t):
                return diagonal
            return wrong if wrong is not None and t.n in (t.FP, t.FN) else measure(t)

        return function

    return decorated


@_by_convention(diagonal=0.5)
def kappa(t: TwoWay) -> float:
    """Cohen's kappa (Heidke skill), 2·cov / (p1·q2 + p2·q1), in [−1, 1]; of a pair table the adjusted Rand index.

    It is accuracy, and also Dice, corrected for chance with both margins fixed.

    References
    ----------
    Cohen, J. (1960), A coefficient of agreement for nominal scales. https://doi.org/10.1177/001316446002000104
    """
    return safe_divide(2 * t.cov, t.p1 * t.q2 + t.p2 * t.q1)


def kappas(t: TwoWay) -> OneSided:
    """Precision and recall corrected for chance, (cov / p2·q1, cov / p1·q2), and their harmonic mean, kappa.

    Where one margin is empty the corresponding side is NaN; with one off-diagonal cell it is −inf.

    Returns
    -------
    precision : Precision corrected for chance, cov / p2·q1.
    recall : Recall corrected for chance, cov / p1·q2.
    mean : Harmonic mean of precision and recall corrected for chance, Cohen's kappa.

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    if _only_diagonal(t):
        sides = math.nan, math.nan
    elif t.n == t.FN:
        sides = -math.inf, -0.0
    elif t.n == t.FP:
        sides = -0.0, -math.inf
    else:
        sides = safe_divide(t.cov, t.p2 * t.q1), safe_divide(t.cov, t.p1 * t.q2)
    return OneSided(*sides, kappa(t))


@_by_convention(diagonal=0.5, wrong=-0.5)
def matthews_corr(t: TwoWay) -> float:
    """Matthews (phi, product-moment) correlation, cov / √(p1·q1·p2·q2), in [−1, 1].

    Its square is informedness times markedness wherever no margin is 0.

    References
    ----------
    Matthews, B. W. (1975), Comparison of predicted and observed secondary structure. BBA 405, 442-451.
    """
    if _some_margin_is_zero(t):
        return 0.0
    return signed_root(t.cov, t.p1 * t.q1 * t.p2 * t.q2)


@_by_convention(diagonal=0.5, wrong=-0.5)
def mp_corr(t: TwoWay) -> float:
    """Maxwell and Pilliner's association, 2·cov / (p1·q1 + p2·q2), in [−1, 1].

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    return safe_divide(2 * t.cov, t.p1 * t.q1 + t.p2 * t.q2)


@_by_convention()
def informedness(t: TwoWay) -> float:
    """Informedness (Youden's J, true skill score), TPR − FPR = cov / (p1·q1), in [−1, 1]; 0 with one actual class.

    References
    ----------
    Powers, D. (2011), Evaluation: from precision, recall and F-measure to ROC. JMLT 2(1), 37-63.
    """
    return 0.0 if t.n in (t.p1, t.q1) else safe_divide(t.cov, t.p1 * t.q1)


@_by_convention()
def markedness(t: TwoWay) -> float:
    """Markedness, PPV − FOR = cov / (p2·q2), in [−1, 1]; 0 with one predicted class.

    References
    ----------
    Powers, D. (2011), Evaluation: from precision, recall and F-measure to ROC. JMLT 2(1), 37-63.
    """
    return 0.0 if t.n in (t.p2, t.q2) else safe_divide(t.cov, t.p2 * t.q2)


@_by_convention(diagonal=0.5)
def loevinger_coeff(t: TwoWay) -> float:
    """Loevinger's H, cov / min(p1·q2, p2·q1), at most 1 and without a lower bound.

    Kappa, Matthews' correlation and their family become H when divided by their maximum for the given margins.

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    return 0.0 if t.cov == 0 else safe_divide(t.cov, min(t.p1 * t.q2, t.p2 * t.q1))


def diseq_coeff(t: TwoWay, standardize: bool = False) -> float:
    """Linkage disequilibrium, cov / n², in [−¼, ¼].

    Parameters
    ----------
    standardize : bool, default False
        Divide by the largest covariance of this sign that the margins allow: Lewontin's D′, in [−1, 1].

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    return cole_coeff(t) if standardize else safe_divide(t.cov, t.n * t.n)


@_by_convention(diagonal=0.5, wrong=-0.5)
def cole_coeff(t: TwoWay) -> float:
    """Cole's C7 (Lewontin's D′): Loevinger's H with a lower bound of −1.

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    if t.cov == 0:
        return 0.0
    return safe_divide(t.cov, min(t.p1 * t.q2, t.p2 * t.q1) if t.cov > 0 else min(t.p1 * t.p2, t.q1 * t.q2))


@_by_convention(diagonal=0.5, wrong=-1.0)
def xcoeff(t: TwoWay) -> float:
    """Loevinger's H with −1 as its lower bound: for cov < 0 it is cov / (n·min(FP, FN)).

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    if t.cov == 0:
        return 0.0
    return safe_divide(t.cov, min(t.p1 * t.q2, t.p2 * t.q1) if t.cov > 0 else t.n * min(t.FP, t.FN))


def pairwise_hcv(t: TwoWay) -> OneSided:
    """Pairwise homogeneity, completeness and their geometric mean, each in [−1, 1].

    Each side is (M − E) / (max − min(E, M)): the one-sided kappas if cov > 0, else cov over n·FP, n·FN, n·√(FP·FN).

    Returns
    -------
    precision : Pairwise homogeneity: precision corrected for chance, scaled to [−1, 1].
    recall : Pairwise completeness: recall corrected for chance, scaled to [−1, 1].
    mean : Geometric mean of pairwise homogeneity and completeness.

    References
    ----------
    clustering-metrics 0.0.2, `ConfusionMatrix2.pairwise_hcv`.
    """
    if t.n == 0:
        return OneSided(math.nan, math.nan, math.nan)
    if _only_diagonal(t):
        return OneSided(0.5, 0.5, 0.5)
    if t.n == t.FN:
        return OneSided(-1.0, -0.0, -0.0)
    if t.n == t.FP:
        return OneSided(-0.0, -1.0, -0.0)
    if t.cov == 0 or _some_margin_is_zero(t):
        return OneSided(0.0, 0.0, 0.0)
    if t.cov > 0:
        both = signed_root(t.cov, t.p1 * t.q1 * t.p2 * t.q2)
        return OneSided(safe_divide(t.cov, t.p2 * t.q1), safe_divide(t.cov, t.p1 * t.q2), both)
    both = signed_root(t.cov, t.n * t.n * t.FP * t.FN)
    return OneSided(safe_divide(t.cov, t.n * t.FP), safe_divide(t.cov, t.n * t.FN), both)


@_by_convention(diagonal=0.5)
def ochiai_coeff_adj(t: TwoWay) -> float:
    """Ochiai corrected for chance, (n·TP − p1·p2) / (n·√(p1·p2) − p1·p2); of a pair table adjusted Fowlkes-Mallows.

    The denominator is evaluated as √x·(n² − x)/(n + √x), x = p1·p2, which does not cancel where x is close to n².

    References
    ----------
    Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
    """
    if t.p1 == 0 or t.p2 == 0:
        return 0.0
    x = t.p1 * t.p2
    root = signed_root(x, x)
    return safe_divide(t.n * t.TP - x, t.n * t.n - x) * safe_divide(root + float(t.n), root)


def _two_cells(t: TwoWay) -> tuple[Number, Number] | None:
    """The agreeing and the disagreeing cell where a row or a column is empty."""
    cells = {t.q2: (t.TN, t.FN), t.q1: (t.TN, t.FP), t.p2: (t.TP, t.FP), t.p1: (t.TP, t.FN)}
    return cells.get(t.n)


@_by_convention()
def yule_q(t: TwoWay) -> float:
    """Yule's Q, (TP·TN − FN·FP) / (TP·TN + FN·FP) = (DOR − 1) / (DOR + 1), in [−1, 1].

    Where a row or a column is empty it compares the two remaining cells.

    References
    ----------
    Yule, G. U. (1912), On the methods of measuring association between two attributes. JRSS 75, 579-652.
    """
    good, bad = _two_cells(t) or (t.TP * t.TN, t.FN * t.FP)
    return safe_divide(good - bad, good + bad)


@_by_convention()
def yule_y(t: TwoWay) -> float:
    """Yule's Y (colligation), (√(TP·TN) − √(FN·FP)) / (√(TP·TN) + √(FN·FP)), in [−1, 1].

    Evaluated with an exact numerator: (a − b) / (√a + √b)².

    References
    ----------
    Yule, G. U. (1912), On the methods of measuring association between two attributes. JRSS 75, 579-652.
    """
    good, bad = _two_cells(t) or (t.TP * t.TN, t.FN * t.FP)
    if good == 0 or bad == 0:
        return safe_divide(good - bad, good + bad)
    both = safe_divide(good * bad, (good + bad) ** 2)
    return math.nan if both < 0 else safe_divide(good - bad, good + bad) / (1 + 2 * math.sqrt(both))


Floats = NDArray[np.float64]

_MANY = 1 << 20
_NEGLIGIBLE = 60.0  # e^-60
_TIE = 1e-9
_VAST = 1e12  # above it the number of terms, at most e^60, is below the resolution
_NEAR = 50_000


class _Table(NamedTuple):
    """Whole counts with their expectations; shifting by j moves j points onto the diagonal."""

    cells: tuple[int, int, int, int]
    expected: tuple[float, float, float, float]
    deviation: float

    def log_weight(self, shifts: Floats) -> Floats:
        """Logarithm of the probability of the shifted tables, up to a constant."""
        result = np.zeros(shifts.shape)
        for cell, expected, sign in zip(self.cells, self.expected, (1, -1, 1, -1), strict=True):
            x = np.maximum(float(cell) + sign * shifts, 0.0)
            result -= _deviance(x, expected, sign * (self.deviation + shifts)) + _stirling_rest(x)
        return result

    def at(self, shift: int) -> float:
        """Logarithm of the probability of one shifted table."""
        return float(self.log_weight(np.array([float(shift)]))[0])


def hypergeometric(t: TwoWay) -> float:
    """Fisher's exact test as a score, sign(cov)·(−ln p), p two-sided; infinite only beyond 1e308, 0 by chance.

    Refuses fractional counts, which SciPy truncates.

    References
    ----------
    Loader, C. (2000), Fast and accurate computation of binomial probabilities.
    """
    if not all(isinstance(x, int) for x in t):
        raise DataError("hypergeometric needs whole counts, and this table has fractions")
    a, c, d, b = (int(x) for x in t)
    n, p1, p2 = a + b + c + d, a + b, a + c
    low, high = max(-a, -d), min(b, c)
    if low == high:
        return 0.0
    expected = (p1 * p2 / n, (n - p1) * p2 / n, (n - p1) * (n - p2) / n, p1 * (n - p2) / n)
    table = _Table((a, c, d, b), expected, (a * d - b * c) / n)
    mode = min(max((p1 + 1) * (p2 + 1) // (n + 2) - a, low), high)
    if mode == 0 or _not_greater(table, mode, table.at(0)):
        return 0.0
    if mode > 0:
        bound = _first_not_greater(table, mode, 1, high - mode)
        tail, inside, far = (low, 0), (1, bound - 1), (bound, high)
    else:
        bound = _first_not_greater(table, mode, -1, mode - low)
        tail, inside, far = (0, high), (bound + 1, -1), (low, bound)
    included = np.logaddexp(_log_sum(table, *tail), _log_sum(table, *far))
    score = float(np.logaddexp(0.0, _log_sum(table, *inside) - included))
    return -score if a * d < b * c else score


def _first_not_greater(table: _Table, mode: int, step: int, length: int) -> int:
    """First shift beyond the mode, one way, whose probability is not greater than the observed one."""
    observed = table.at(0)
    near, far = 0, length + 1
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (near, middle) if _not_greater(table, mode + step * middle, observed) else (middle, far)
    return mode + step * far


def _not_greater(table: _Table, shift: int, observed: float) -> bool:
    difference = table.at(shift) - observed
    if abs(difference) > _TIE * max(1.0, abs(observed)) or abs(shift) > _NEAR:
        return difference <= _TIE
    a, c, d, b = table.cells if shift > 0 else (table.cells[1], table.cells[0], table.cells[3], table.cells[2])
    k = abs(shift)
    return math.perm(b, k) * math.perm(c, k) <= math.perm(a + k, k) * math.perm(d + k, k)


def _log_sum(table: _Table, low: int, high: int) -> float:
    """Logarithm of the sum of the weights of the shifts low..high."""
    if low > high:
        return -math.inf
    peak = min(max(round(-table.deviation), low), high)
    top = table.at(peak)
    if abs(top) > _VAST:
        return top
    low, high = _relevant(table, peak, low, top), _relevant(table, peak, high, top)
    if high - low < _MANY:
        shifts = float(low) + np.arange(high - low + 1, dtype=np.float64)
        weights = np.exp(table.log_weight(shifts) - top)
        return top + math.log(math.fsum(weights.tolist()))
    return top + math.log(_integral(table, float(low), float(high), top))


def _relevant(table: _Table, peak: int, end: int, top: float) -> int:
    """Furthest shift from the peak towards `end` whose weight is not negligible."""
    if table.at(end) >= top - _NEGLIGIBLE:
        return end
    step = 1 if end > peak else -1
    near, far = 0, abs(end - peak)
    while far - near > 1:
        middle = (near + far) // 2
        near, far = (middle, far) if table.at(peak + step * middle) >= top - _NEGLIGIBLE else (near, middle)
    return peak + step * near


def _integral(table: _Table, low: float, high: float, top: float) -> float:
    """Sum of the weights from low to high as an integral: 400 panels of 8 Gauss points, and the ends."""
    nodes, factors = np.polynomial.legendre.leggauss(8)
    edges = np.linspace(low, high, 401)
    half = (edges[1:] - edges[:-1]) / 2
    points = (edges[:-1] + half)[:, None] + half[:, None] * nodes
    inner = float(np.sum(half[:, None] * factors * np.exp(table.log_weight(points) - top)))
    ends = np.exp(table.log_weight(np.array([low, low + 1, high - 1, high])) - top)
    slopes = (ends[3] - ends[2]) - (ends[1] - ends[0])
    return inner + float(ends[0] + ends[3]) / 2 + float(slopes) / 12


def _deviance(x: Floats, expected: float, d: Floats) -> Floats:
    """x·ln(x/E) − d without cancellation, d = x − E."""
    v = d / (x + expected)
    square = v * v
    series = np.zeros(x.shape)
    for k in range(10, 0, -1):
        series = square * (1 / (2 * k + 1) + series)
    near = d * v + 2 * x * v * series
    far = x * np.log(np.where(x > 0, x, 1.0) / expected) - d
    return np.where(np.abs(v) < 0.1, near, far)


def _stirling_rest(x: Floats) -> Floats:
    """Ln x! − (x·ln x − x): from a table below 32, from Stirling's series above."""
    y = np.maximum(x, 32.0)
    square = 1 / (y * y)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / y
    large = 0.5 * np.log(2 * np.pi * y) + series
    return np.where(x < 32, _SMALL[np.clip(np.rint(x), 0, 32).astype(np.int64)], large)


_SMALL = np.array([math.lgamma(k + 1) - (k * math.log(k) - k if k else 0.0) for k in range(33)])
