"""Metrics of a whole ranking, exact from distinct scores, with bounds from bins; DeLong's error of the ROC AUC.

Groups of equal score in descending order have p positives and n negatives, with T positives and F negatives before
them, of P and N in all; where rows carry weights, these are weights.

- ROC AUC = Σ p·(N − F − n/2) / (P·N): the share of (positive, negative) pairs in which the positive scores higher, a
  tie counting one half. The trapezoids under the ROC curve and the rank sum with mid-ranks give the same number
  (Hanley and McNeil, 1982).
- Average precision = Σ p·(T + p)/(T + p + F + n) / P, the step sum, without interpolation.
- PR AUC: the trapezoids under the same points. It differs from average precision, and is too optimistic (Davis and
  Goadrich, 2006).
- Maximum informedness = max (T + p)/P − (F + n)/N, and at least 0 (Youden's J).
- Kolmogorov-Smirnov = max |(T + p)/P − (F + n)/N|, which also rates a reversed order.
- Gini = 2·AUC − 1.
- Partial AUC: with A the area under the ROC curve up to the false positive rate f, interpolated linearly in a group,
  ½·(1 + (A − f²/2)/(f − f²/2)): ½ for a random order and 1 for a perfect one (McClish 1989), as scikit-learn's
  ``roc_auc_score(max_fpr=f)``. A group adds n·(T + p/2)/(P·N).

The order inside an open bin is unknown. Each interval spans the extremes over every order of the bin's points.

DeLong's standard error of the ROC AUC where each row is a unit, from the counts of a score alone.

With V10 = (N below + n/2)/N for each positive and V01 = (P above + p/2)/P for each negative, ties as halves,

    Var = S10/P + S01/N,

S10 the variance of V10 over the positives (divisor P − 1) and S01 that of V01 over the negatives (N − 1). Sun and Xu
(2014) compute it in two passes over sorted scores. Here one pass sums 1 − V10 and 1 − V01 and their squares over all
groups; these are small if a score is good, which keeps the precision.

References
----------
DeLong, E. R., DeLong, D. M., Clarke-Pearson, D. L. (1988). Comparing the areas under two or more correlated receiver
operating characteristic curves. *Biometrics* 44, 837–845.
Sun, X., Xu, W. (2014). Fast implementation of DeLong's algorithm. *IEEE Signal Processing Letters* 21, 1389–1393.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.ranking import delong_counts, running
from streameval.metrics.protocol import NO_POSITIVES, ONE_CLASS, Metric
from streameval.metrics.scores import sums
from streameval.metrics.scores.scoring_rules import spread
from streameval.metrics.scores.sums import SLACK, OfRankings, exact_sum, is_counted, outward, total
from streameval.results import Scalar
from streameval.states.scores.parts import RankedPart, ScorePart
from streameval.states.scores.types import halved
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.sums import Rankings
    from streameval.states.protocol import State, Totals
    from streameval.typing import Array


def _dropped(size: int) -> int:
    """Bits that twice a count loses to fit into 32."""
    return max(0, (2 * size).bit_length() - 32)


@dataclass(frozen=True)
class DeLong(Metric[Scalar, "ScorePart", tuple[float, float, float, float], "State"]):
    """Standard error of `factor` · ROC AUC, each row a unit; of weights as if they were counts.

    Attributes
    ----------
    factor : of the ROC AUC
    unbiased : whether variances have the divisors P − 1 and N − 1, instead of P and N

    Examples
    --------
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> label = np.array([0, 0, 1, 1], np.uint8)
    >>> round(compute(fold_arrays(label, np.array([0.1, 0.4, 0.35, 0.8])), DeLong()).value, 4)
    0.3536
    """

    factor: float = 1
    unbiased: bool = True
    name: str = "roc_auc_stderr"

    def basis(self, part: ScorePart) -> DeLong:
        """All of them share their sums."""
        return DeLong()

    def partial(self, part: ScorePart) -> tuple[float, float, float, float]:
        """Σ p·(1 − V10), Σ p·(1 − V10)², Σ n·(1 − V01), Σ n·(1 − V01)²; of counts whole numbers."""
        before, whole = part.before, part.total
        if not whole.n or not whole.p:
            return 0, 0, 0, 0
        if is_counted(whole):
            drops = _dropped(whole.n), _dropped(whole.p)
            found = delong_counts(part.n, part.p, before.n, before.p, whole.p, *drops).tolist()
            a, aa, b, bb = (high << 64 | low for high, low in zip(found[::2], found[1::2], strict=True))
            return a, aa, b, bb
        over = (running(part.n, before.n) - part.n / 2) / whole.n  # negatives above a positive, ties as halves
        under = np.maximum(0.0, 1 - (running(part.p, before.p) - part.p / 2) / whole.p)
        sums = (exact_sum(part.p * over), exact_sum(part.p * over**2))
        return (*sums, exact_sum(part.n * under), exact_sum(part.n * under**2))

    def combine(self, partials: Sequence[tuple[float, float, float, float]], state: State) -> Scalar:
        """The root of the variance; undefined below two rows of a class."""
        total = state.totals()
        if min(total.neg, total.pos) < 2:
            return Scalar.undefined(self.name, "fewer than two rows of a class")
        whole = is_counted(total)
        sums = [sum(column) if whole else math.fsum(column) for column in zip(*partials, strict=True)]
        variance = 0.0
        for size, other, first, second in ((total.p, total.n, *sums[:2]), (total.n, total.p, *sums[2:])):
            if size and other:
                unit = Fraction(1 << _dropped(other), 2 * other) if whole else Fraction(1)
                spread = (Fraction(second) - Fraction(first) ** 2 / Fraction(size)) * unit**2
                free = size - 1 if self.unbiased and whole else size
                variance += max(0.0, float(spread / Fraction(free) / Fraction(size)))
        return Scalar.certain(self.name, self.factor * math.sqrt(variance))


GRID_CHECK = DeLong(unbiased=False)  # of the exact counts and on a coarse grid


@dataclass(frozen=True)
class RocAuc(Metric[Scalar, "ScorePart | RankedPart", tuple[float, float], "State"], OfRankings):
    """Area under the ROC curve, in [0, 1].

    Examples
    --------
    >>> from streameval import roc_auc_score
    >>> roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """

    name: str = "roc_auc"
    counts_nan: ClassVar[bool] = True

    def partial(self, part: ScorePart | RankedPart) -> tuple[float, float]:
        """Twice the pairs won, ties as halves, and the pairs in doubt."""
        return sums.pairs_won(part), sums.doubt(part)

    def combine(self, partials: Sequence[tuple[float, float]], state: State) -> Scalar:
        """Pairs won over pairs; a pair with a halved score counts one half."""
        numbers, nan = state.totals(), halved(state)
        N, P = numbers.n + nan.n, numbers.p + nan.p
        if not N or not P:
            return Scalar.undefined(self.name, ONE_CLASS)
        won = total([*(won for won, _ in partials), N * P - numbers.n * numbers.p])
        value = min(1.0, max(0.0, won / (2 * N * P)))
        width = total([pairs for _, pairs in partials]) / (2 * N * P)
        if not width:
            return Scalar.certain(self.name, value)
        return Scalar.between(self.name, value, *outward(value - width, value + width))

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine`."""
        pairs = (rankings.neg + rankings.halved_neg) * (rankings.pos + rankings.halved_pos)
        won = rankings.won + (pairs - rankings.neg * rankings.pos)
        return np.clip(rankings.divided(won, 2 * pairs), 0.0, 1.0)


@dataclass(frozen=True)
class Gini(Metric[Scalar, "ScorePart | RankedPart", tuple[float, float], "State"], OfRankings):
    """Gini coefficient: 2·AUC − 1, in [−1, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> compute(fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8])), Gini()).value
    0.5
    """

    name: str = "gini"
    counts_nan: ClassVar[bool] = True

    def basis(self, part: ScorePart | RankedPart) -> RocAuc:
        """The pairs won."""
        return RocAuc()

    def combine(self, partials: Sequence[tuple[float, float]], state: State) -> Scalar:
        """From the ROC AUC."""
        auc = RocAuc().combine(partials, state)
        if auc.reason:
            return Scalar.undefined(self.name, auc.reason)
        return Scalar.between(self.name, *(2 * x - 1 for x in (auc.value, auc.lower, auc.upper)))

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine`."""
        return 2 * RocAuc().of_rankings(rankings) - 1


def _columns(part: ScorePart) -> tuple[Array, Array, Array, Array]:
    """Groups as floats: negatives, positives, and those before each."""
    n, p = (column.astype(np.float64, copy=False) for column in (part.n, part.p))
    F, T = (running(np.append(0.0, column)[:-1], 0) for column in (n, p))  # a sum − n would cancel
    return n, p, F, T


def _is_exact(part: ScorePart) -> bool:
    """Whether Σ p·precision is computed as from distinct scores: also from counts if no open bin has positives."""
    return part.exact or (is_counted(part.total) and not part.p[part.open].any())


def _precisions(part: ScorePart, exact: Array, lower: Array, upper: Array) -> tuple[float, float, float]:
    """Least and greatest Σ p·precision, where open bins have their extremes; and the rounding error of the value."""
    low, high = (exact_sum(np.where(part.open, end, exact)) for end in (lower, upper))
    return low, high, SLACK


def _mean_precision(name: str, partials: Sequence[tuple[float, float, float]], state: State) -> Scalar:
    """Σ p·precision / P."""
    P = state.totals().p
    if not P:
        return Scalar.undefined(name, NO_POSITIVES)
    lows, highs, roundings = zip(*partials, strict=True)
    lower = min(1.0, sums.mean_precision(total(lows), P))
    upper = lower if highs == lows else min(1.0, sums.mean_precision(total(highs), P))
    ends = outward(lower, upper, SLACK if upper > lower else max(roundings))
    value = min(ends[1], max(ends[0], (lower + upper) / 2))  # the integral of a tiny weight may cancel below 0
    return Scalar.between(name, value, *ends)


@dataclass(frozen=True)
class AveragePrecision(Metric[Scalar, "ScorePart | RankedPart", tuple[float, float, float], "State"], OfRankings):
    """Average precision: the mean precision at the positives, in [0, 1].

    Examples
    --------
    >>> from streameval import average_precision_score
    >>> round(average_precision_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """

    name: str = "average_precision"

    def partial(self, part: ScorePart | RankedPart) -> tuple[float, float, float]:
        """Σ p·precision: least, greatest, and the rounding error.

        It is least where a bin's negatives come first and its positives are all distinct: each step sum is at least the
        integral ∫ (T + k)/(T + k + F + n) dk over k from 0 to p. It is greatest where the positives come first, tied.
        """
        if isinstance(part, RankedPart) or _is_exact(part):
            return *(sums.precision_sum(part, trapezoid=False),) * 2, 0.0
        n, p, F, T = _columns(part)
        exact = p * _ratio(T + p, T + p + F + n)  # a product of two small weights may be 0
        return _precisions(part, exact, _integral(T, F + n, p), p * _ratio(T + p, T + p + F))

    def combine(self, partials: Sequence[tuple[float, float, float]], state: State) -> Scalar:
        """Divide by the positives."""
        return _mean_precision(self.name, partials, state)

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine`."""
        return np.minimum(1.0, rankings.precision)


def _ratio(a: Array, b: Array) -> Array:
    """The quotient ``a / b``, and 0 where both are 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _integral(T: Array, F: Array, p: Array) -> Array:
    """∫ (T + k)/(T + k + F) dk over k from 0 to p: p − F·ln((T + F + p)/(T + F)), and p where F is 0."""
    start = T + F
    with np.errstate(over="ignore"):
        growth = np.log1p(_ratio(p, start))
    beyond = np.isinf(growth)  # p is more than the largest float times the start
    growth[beyond] = np.log(p[beyond]) - np.log(start[beyond])
    area: Array = p - F * growth * (start > 0)
    return area


@dataclass(frozen=True)
class PrAuc(Metric[Scalar, "ScorePart", tuple[float, float, float], "State"], OfRankings):
    """Area under the precision-recall curve by the trapezoid rule, in [0, 1].

    Examples
    --------
    >>> from streameval import auc, precision_recall_curve
    >>> precision, recall, _ = precision_recall_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> round(auc(recall, precision), 4)
    0.7917
    """

    name: str = "pr_auc"

    def partial(self, part: ScorePart) -> tuple[float, float, float]:
        """Σ p·(precision before + precision after) / 2.

        With a bin's negatives first, precision is concave in recall and one trapezoid is the least of all; with its
        negatives last it is concave too, and below its integral.
        """
        if _is_exact(part):
            return *(sums.precision_sum(part, trapezoid=True),) * 2, 0.0
        n, p, F, T = _columns(part)
        before, after = np.where(T + F > 0, _ratio(T, T + F), 1.0), _ratio(T + p, T + p + F + n)
        exact, lower = p * (before + after) / 2, p * (_ratio(T, T + F + n) + after) / 2
        return _precisions(part, exact, lower, _integral(T, F, p))

    def combine(self, partials: Sequence[tuple[float, float, float]], state: State) -> Scalar:
        """Divide by the positives."""
        return _mean_precision(self.name, partials, state)

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine`."""
        return np.minimum(1.0, rankings.trapezoid)


class _Peak(NamedTuple):
    """The largest difference of rates as a float, T and F there, the threshold, and the largest inside an open bin."""

    height: float
    true: float
    false: float
    threshold: float
    inside: float
    rounding: float


def _peak(part: ScorePart) -> _Peak:
    height, true, false, at = sums.best_gap(part)
    threshold = part.score(at) if at >= 0 else math.inf
    if part.exact:
        return _Peak(height, true, false, threshold, 0.0, 0.0)
    N, P, inside = float(part.total.n), float(part.total.p), 0.0
    if N and P:
        _, p, F, T = _columns(part)
        inside = float(np.where(part.open, (T + p) / P - F / N, 0.0).max(initial=0.0))
    return _Peak(height, true, false, threshold, inside, sums.rounding(part.total))


def _highest(name: str, peaks: Sequence[_Peak], N: float, P: float) -> Scalar:
    """The highest peak, the first of equals, divided once."""
    if not N or not P:
        return Scalar.undefined(name, ONE_CLASS)
    best = max(peaks, key=lambda peak: (peak.height, -peak.true - peak.false))
    value = max(0.0, float((best.true * N - best.false * P) / (N * P)))
    upper = max(value, *(peak.inside for peak in peaks))
    slack = SLACK if upper > value else max(peak.rounding for peak in peaks)
    return replace(
        Scalar.between(name, value, *outward(value, upper, slack)), threshold=best.threshold if value else math.inf
    )


@dataclass(frozen=True)
class MaxInformedness(Metric[Scalar, "ScorePart", "_Peak", "State"]):
    """Largest difference of true and false positive rate over all thresholds, in [0, 1] (Youden's J).

    Examples
    --------
    >>> from streameval import RocCurve
    >>> RocCurve.from_labels([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).max_informedness()
    0.5
    """

    name: str = "max_informedness"

    def partial(self, part: ScorePart) -> _Peak:
        """The peak of a part."""
        return _peak(part)

    def combine(self, partials: Sequence[_Peak], state: State) -> Scalar:
        """The highest peak."""
        return _highest(self.name, partials, state.totals().n, state.totals().p)


@dataclass(frozen=True)
class KolmogorovSmirnov(Metric[Scalar, "ScorePart", "tuple[_Peak, _Peak]", "State"]):
    """Kolmogorov-Smirnov statistic: the largest difference between the score distributions of the classes, in [0, 1].

    It is the largest of true − false positive rate and false − true positive rate over all thresholds, the first of
    equals, so a score that ranks the classes the wrong way round has a large statistic too.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> label = np.array([1, 0, 1, 0], np.uint8)
    >>> found = compute(fold_arrays(label, np.array([0.1, 0.4, 0.35, 0.8])), KolmogorovSmirnov())
    >>> found.value, found.threshold
    (1.0, 0.4)
    """

    name: str = "ks"

    def partial(self, part: ScorePart) -> tuple[_Peak, _Peak]:
        """The peaks of a part and of the same part with the classes exchanged."""
        return _peak(part), _peak(part.swapped())

    def combine(self, partials: Sequence[tuple[_Peak, _Peak]], state: State) -> Scalar:
        """The higher of the two peaks; where both are equal, that of the positives."""
        N, P = state.totals().n, state.totals().p
        over, under = (
            _highest(self.name, [pair[side] for pair in partials], *sizes)
            for side, sizes in enumerate(((N, P), (P, N)))
        )
        if over.reason:
            return over
        best = over if over.value >= under.value else under
        lower, upper = max(over.lower, under.lower), max(over.upper, under.upper)
        return replace(best, lower=lower, upper=upper, exact=lower == upper)


@dataclass(frozen=True)
class PartialAuc(Metric[Scalar, "ScorePart", tuple[float, float, float], "State"]):
    """Standardised ROC AUC up to a false positive rate, in [0, 1].

    Attributes
    ----------
    most : the largest false positive rate, in (0, 1]

    Raises
    ------
    OptionError
        If `most` is not in (0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> round(compute(state, PartialAuc(0.25)).value, 4)
    0.7143
    """

    most: float

    def __post_init__(self) -> None:
        if not 0 < self.most <= 1:
            raise OptionError(
                f"partial_auc@{self.most:g} is not a false positive rate; write one above 0 and at most 1"
            )

    @property
    def name(self) -> str:
        """``partial_auc@0.01``."""
        return f"partial_auc@{format_number(self.most)}"

    def partial(self, part: ScorePart) -> tuple[float, float, float]:
        """Twice the area of this part up to the limit, in pairs: lower bound, with ties as halves, upper bound."""
        n, p = part.n, part.p
        bound = self._share(part.total) * part.total.n
        false, true = part.sums
        keep = int(np.searchsorted(false, int(bound) if is_counted(part.total) else bound, side="right"))
        before = true - p
        tied = 2 * before + p
        ends = (np.where(part.open, end, tied) for end in (2 * before, 2 * true))
        value = sums.product(n[:keep], tied[:keep])
        least, most = (value, value) if part.exact else (sums.product(n[:keep], end[:keep]) for end in ends)
        F = false[keep - 1].item() if keep else part.before.n
        if keep == n.size or bound <= F:
            return least, value, most
        width, size, hits, T = bound - F, n[keep].item(), p[keep].item(), before[keep].item()
        more = width * (2 * T + width * hits / size)
        low, high = (width * 2 * T, width * 2 * (T + hits)) if part.open[keep] else (more, more)
        return least + low, value + more, most + high

    def _share(self, measure: Totals) -> Fraction | float:
        """The limit, exact where rows are counted."""
        return Fraction(str(float(self.most))) if is_counted(measure) else self.most

    def combine(self, partials: Sequence[tuple[float, float, float]], state: State) -> Scalar:
        """Standardise the area."""
        measure = state.totals()
        N, P, f = measure.n, measure.p, self._share(measure)
        if not N or not P:
            return Scalar.undefined(self.name, ONE_CLASS)
        areas = (
            sum(map(Fraction, side)) if is_counted(measure) else math.fsum(side) for side in zip(*partials, strict=True)
        )
        lower, value, upper = (float((1 + (area / (2 * N * P) - f * f / 2) / (f - f * f / 2)) / 2) for area in areas)
        return spread(self.name, (lower, value, upper))
