"""Measures of a 2×2 table that are corrected for chance, and the odds-based coefficients.

Most divide cov = TP·TN − FN·FP by a product of margins, each by a different one. Degenerate tables follow one
convention:

- one *diagonal* cell only (everything agrees, nothing varies): ½, and NaN for the two one-sided `kappas`;
- one *off-diagonal* cell only: −½ for correlations, 0 for agreements, −1 for the bounded coefficients;
- an empty row or column with two other cells: 0, except the Yule coefficients, which compare the two cells;
- no cell at all: NaN.

References
----------
Warrens, M. (2008), On association coefficients for 2×2 tables. https://doi.org/10.1007/s11336-008-9070-3
"""

from __future__ import annotations

import math
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple

from streameval.metrics.contingency.arithmetic import Number, safe_divide, signed_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.metrics.contingency.twoway import TwoWay


class OneSided(NamedTuple):
    """A precision-like value, a recall-like value, and their mean."""

    precision: float
    recall: float
    mean: float


def _only_diagonal(t: TwoWay) -> bool:
    return t.n in (t.TP, t.TN)


def _only_wrong(t: TwoWay) -> bool:
    return t.n in (t.FP, t.FN)


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
            return wrong if wrong is not None and _only_wrong(t) else measure(t)

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
    """Maxwell and Pilliner's association, 2·cov / (p1·q1 + p2·q2), in [−1, 1]."""
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
    """
    return 0.0 if t.cov == 0 else safe_divide(t.cov, min(t.p1 * t.q2, t.p2 * t.q1))


def diseq_coeff(t: TwoWay, standardize: bool = False) -> float:
    """Linkage disequilibrium, cov / n², in [−¼, ¼].

    Parameters
    ----------
    standardize : bool, default False
        Divide by the largest covariance of this sign that the margins allow: Lewontin's D′, in [−1, 1].
    """
    return cole_coeff(t) if standardize else safe_divide(t.cov, t.n * t.n)


@_by_convention(diagonal=0.5, wrong=-0.5)
def cole_coeff(t: TwoWay) -> float:
    """Cole's C7 (Lewontin's D′): Loevinger's H with a lower bound of −1."""
    if t.cov == 0:
        return 0.0
    return safe_divide(t.cov, min(t.p1 * t.q2, t.p2 * t.q1) if t.cov > 0 else min(t.p1 * t.p2, t.q1 * t.q2))


@_by_convention(diagonal=0.5, wrong=-1.0)
def xcoeff(t: TwoWay) -> float:
    """Loevinger's H with −1 as its lower bound: for cov < 0 it is cov / (n·min(FP, FN))."""
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
    """
    if t.p1 == 0 or t.p2 == 0:
        return 0.0
    x = t.p1 * t.p2
    root = signed_root(x, x)
    return safe_divide(t.n * t.TP - x, t.n * t.n - x) * safe_divide(root + float(t.n), root)


def _two_cells(t: TwoWay) -> tuple[Number, Number] | None:
    """The agreeing and the disagreeing cell where a row or a column is empty."""
    if t.n == t.p1:
        return t.TP, t.FN
    if t.n == t.p2:
        return t.TP, t.FP
    if t.n == t.q1:
        return t.TN, t.FP
    return (t.TN, t.FN) if t.n == t.q2 else None


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
