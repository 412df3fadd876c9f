"""Sums over the groups of a part, exact for counts, compensated for weights; and those of several rankings at once.

Counts are int64 arrays; their sums are integers of any size, which a metric divides once. Weights are float64 arrays;
their sums carry rounding errors, below `rounding` relative to 1. A metric that treats the two in different ways asks
`is_counted` or `integers`.

Notation: a group has p positives and n negatives, u = p + n; T and F are the positives and negatives before it, of P
and N in all.

Several rankings at once: metrics of the rows without each block, of many states together.

A ranking is summed by a loop over its bins (`streameval.kernels.pieces.rank_blocks`), and a metric computes its values
of all rankings as one array. Sums are integers and quotients are rounded once, so values are, to the last bit, those of
each ranking alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels import ranking
from streameval.kernels.exact import HELD, integer, join_halves
from streameval.kernels.pieces import AFTER, AREA, BOTH, TERMS, WORDS, mean_words
from streameval.states.scores.parts import RankedPart, ScorePart, total_weight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.states.protocol import Totals
    from streameval.typing import Array

BITS = 62  # bits of a share in fixed point

SLACK = 1e-14  # bounds the rounding error of a value in [0, 1], generously
_TOLERANCE = 1e-12  # relative, of a sum of weights that is compared with a limit


def is_counted(measure: Totals) -> bool:
    """Whether the measure is the number of rows, so that sums are exact."""
    return not measure.weighted


def rounding(measure: Totals) -> float:
    """Bound of the rounding error of a value in [0, 1] that is computed from sums of this measure."""
    return 0.0 if is_counted(measure) else SLACK


def outward(
    lower: float, upper: float, slack: float = SLACK, least: float = 0.0, most: float = 1.0
) -> tuple[float, float]:
    """Bounds moved outward by their rounding error, if any, within the range of the metric."""
    if not slack:
        return lower, upper
    return max(least, lower - slack), min(most, upper + slack)


def total(partials: Sequence[Any]) -> Any:
    """Sum of partials: exact for integers, correctly rounded for floats.

    Examples
    --------
    >>> total([1, 2]), total([0.1] * 10)
    (3, 1.0)
    """
    return math.fsum(partials) if float in map(type, partials) else sum(partials)


def exact_sum(values: Array) -> float:
    """`math.fsum` of an array."""
    return math.fsum(ranking.exact_parts(values))


def sum_of(values: Array) -> float:
    """Sum of an array in the measure."""
    return int(values.sum()) if integers(values) else total_weight(values)


def pairs_won(part: ScorePart | RankedPart) -> float:
    """Twice the pairs in which the positive comes first, ties as halves: Σ p·(2(N − F) − n)."""
    if isinstance(part, RankedPart):
        return part.sums.won
    if integers(part.n):
        below = part.total.n - part.before.n
        if part.total.p < HELD:
            return join_halves(ranking.area_counts(part.n, part.p, below))
        won: int = (part.p.astype(object) * (2 * (part.total.n - part.sums[0]) + part.n)).sum()
        return won
    return 2.0 * part.ranked[0]


def dot(measure: Array, values: Array, bits: int = BITS) -> float:
    """Σ measure·value, for values from 0 to 2^(62 − bits): for counts an integer in units of 2^−bits."""
    if integers(measure):
        return integer(ranking.dot_counts(measure, values, float(1 << bits)))
    return exact_sum(measure * values)


def mean(sums: float, size: float, bits: int = BITS) -> float:
    """A total of `dot` over a size, divided once."""
    return float(sums / (size << bits if isinstance(size, int) else size))


def doubt(part: ScorePart | RankedPart, keep: int | None = None) -> float:
    """Σ p·n over open bins: the pairs of a positive and a negative in the same bin, among the first `keep` groups."""
    if isinstance(part, RankedPart) or part.exact:
        return 0
    found = part.open[:keep]
    n, p = part.n[:keep][found], part.p[:keep][found]
    return ranking.sum_of_products(n, p) if integers(n) else exact_sum(n * p)


def product(one: Array, other: Array) -> float:
    """Σ of the products of two columns in the measure."""
    return ranking.sum_of_products(one, other) if integers(one) else exact_sum(one * other)


def precision_sum(part: ScorePart | RankedPart, *, trapezoid: bool) -> float:
    """Σ p·precision, at the group or, with `trapezoid`, the mean of the precision before and after it.

    For counts an integer in units of 2⁻⁶³, each precision rounded to a multiple of 2⁻⁶².
    """
    if isinstance(part, RankedPart):  # without `trapezoid`
        return part.sums.precision
    if integers(part.n):
        if part.total.p < HELD:
            scratch = np.empty((4, ranking.GROUPS_AT_ONCE), np.int64)
            given = part.n, part.p, part.before.n, part.before.p, trapezoid, scratch
            found: int = join_halves(ranking.precision_counts(*given))
        else:
            false, true = part.sums
            rates = _shares(true, false) + (_shares(true - part.p, false - part.n) if trapezoid else 0)
            found = (part.p.astype(object) * rates).sum()
        return found << (not trapezoid)
    if not trapezoid:
        return part.ranked[1]
    return float(ranking.trapezoid_weights(part.n, part.p, part.before.n, part.before.p)) / 2


def _shares(true: Array, false: Array) -> Array:
    """Precisions in units of 2⁻⁶², as loops round them; 1 where there are no rows."""
    rows = np.maximum(true + false, 1)
    shares: Array = (np.where(true + false, true / rows, 1.0) * ranking.UNIT).astype(np.int64).astype(object)
    return shares


def mean_precision(precisions: float, P: float) -> float:
    """A total of `precision_sum` over the positives, or of floats."""
    return float(precisions / (2 * ranking.UNIT * P if isinstance(precisions, int) else P))


def best_gap(part: ScorePart) -> tuple[float, float, float, int]:
    """The largest T/P − F/N after a group, as a float, its T and F, and the group; −1 if none is above 0."""
    if not part.total.n or not part.total.p:
        return 0.0, 0, 0, -1
    at = part.n, part.p, part.before.n, part.before.p, part.total.n, part.total.p
    if integers(part.n):
        best, group, true, false = ranking.informedness_counts(*at)
        return float(best), int(true), int(false), int(group)
    best, group, true, false = ranking.informedness_weights(*at)
    return float(best), true, false, int(group)


_WORD = 1 << 62


def best_share(
    part: ScorePart, least: float = 0, fixed: Fraction = Fraction(0), *, later: bool = False
) -> tuple[int, float, float]:
    """The group after which T/(fixed·P + T + F) is largest, with its T and F, among those where T reaches `least`.

    Of equal ones, the last if `later`, else the first; −1 if there is none.
    """
    before, total = part.before, part.total
    share, scale = fixed.numerator * total.p, fixed.denominator
    if integers(part.n) and share + scale * (total.n + total.p) < _WORD:
        at: tuple[int, float, float] = ranking.best_counts(
            part.n, part.p, before.n, before.p, max(least, 1), share, scale, later
        )
        return at
    false, true = part.sums  # weights, and counts that leave a word in units of `scale`, are compared as floats
    whole = float(fixed) * total.p + (true + false)
    values = np.divide(true, whole, out=np.zeros(true.size), where=(true >= least) & (true > 0))
    best = np.flatnonzero(values == values.max(initial=0.0)) if values.any() else np.empty(0, np.int64)
    place = int(best[-1 if later else 0]) if best.size else -1
    return (place, true[place].item(), false[place].item()) if place >= 0 else (-1, 0, 0)


def deepest(part: ScorePart, precision: float) -> tuple[int, float, float]:
    """The first group with the largest T among those whose precision reaches a share, with its T and F; −1 if none."""
    false, true = part.sums
    if integers(part.n):
        share = _decimal(float(precision))
        if share.denominator >= _WORD:  # the first quotient of counts that reaches it is as good, and fits
            share = _reaching(share, max(part.total.n + part.total.p, 1))
        at = ranking.deepest_counts(false, true, part.p, share.numerator, share.denominator)
    else:
        enough = (part.p > 0) & (true >= precision * (1 - _TOLERANCE) * (true + false))
        at = int(np.argmax(np.where(enough, true, 0.0))) if enough.any() else -1
    return (at, true[at].item(), false[at].item()) if at >= 0 else (-1, 0, 0)


def _reaching(share: Fraction, size: int) -> Fraction:
    """The least fraction that is not below a share, of those whose denominator is at most `size`.

    Of neighbours a/b < c/d among these, b·c − a·d = 1 and d is as large as the size allows (Farey).

    Examples
    --------
    >>> _reaching(Fraction("0.1234"), 8), _reaching(Fraction("0.126"), 8)
    (Fraction(1, 8), Fraction(1, 7))
    """
    near = share.limit_denominator(size)
    if near >= share:
        return near
    a, b = near.as_integer_ratio()
    d = size - (size + pow(a, -1, b)) % b
    return Fraction((a * d + 1) // b, d)


def open_corners(part: ScorePart) -> tuple[Array, Array]:
    """T + p and F of every open bin, as floats: its best order has all positives first."""
    false, true = part.sums
    return true[part.open].astype(float), (false - part.n)[part.open].astype(float)


def gain_sums(part: ScorePart, keep: int) -> tuple[float, float, float, float]:
    """Σ u·(2T + p), Σ u·(2F + n) and Σ u over the first `keep` groups, and the pairs in doubt.

    Σ u·(2(T + F) + u) telescopes, which gives the second sum of counts.
    """
    n, p, before = part.n[:keep], part.p[:keep], part.before
    if not integers(n):
        F, T = (side[:keep] for side in part.sums)
        area, below = (total_weight((n + p) * terms) for terms in (2 * T - p, 2 * F - n))
        pairs = 0 if part.exact else float((n * p)[part.open[:keep]].sum())
        return area, below, total_weight(n) + total_weight(p), pairs
    points = int(n.sum()) + int(p.sum())
    area = integer(ranking.gain_counts(n, p)) + 2 * before.p * points
    return area, points * (2 * before.rows + points) - area, points, doubt(part, keep)


@lru_cache(maxsize=256)
def _decimal(share: float) -> Fraction:
    """The decimal that a number is written as."""
    return Fraction(str(share))


def limit(share: float, size: int | float, *, most: bool) -> float:
    """The largest count within a share of a size, or the smallest that reaches it; the share is an exact decimal.

    For weights, the product itself, with a relative tolerance of 1e-12.

    Examples
    --------
    >>> limit(0.07, 100, most=True), limit(0.071, 100, most=False)
    (7, 8)
    """
    if isinstance(size, float):
        return share * size * (1 + _TOLERANCE if most else 1 - _TOLERANCE)
    exact = _decimal(float(share)) * size
    return math.floor(exact) if most else math.ceil(exact)


def integers(values: Array) -> bool:
    """Whether a column holds counts."""
    return values.dtype.kind == "i"


_EXACT = 1 << 53  # all smaller integers are floats


class RankSums(NamedTuple):
    """The sums of several rankings of one state.

    Attributes
    ----------
    rows, missing : int64 arrays of shape (n_rankings, 2), rows by label, and those with a missing score that counts as
        half; multiples of the number of pieces of a bin
    inside : bool array of shape (n_rankings,), whether all scores are in [0, 1]
    sums : see `rank_blocks`
    """

    rows: Array
    missing: Array
    inside: Array
    sums: Array


class Rankings(NamedTuple):
    """Sums of several rankings without weights: arrays of shape (n_rankings,).

    Numbers of rows and of pairs are integers; those of Python where float64 may not hold their products.

    Attributes
    ----------
    won : twice the pairs won, ties as halves
    neg, pos : rows by label
    halved_neg, halved_pos : rows with a missing score that counts as half
    precision, trapezoid : float64, the mean precision at the positives, and that of it and the one before them
    means : of `MeanOfRows`, the mean over all rows
    """

    won: Array
    neg: Array
    pos: Array
    halved_neg: Array
    halved_pos: Array
    precision: Array
    trapezoid: Array
    means: Mapping[MeanOfRows, Array]

    @classmethod
    def of(cls, parts: Sequence[RankSums], means: Sequence[MeanOfRows]) -> Rankings:
        """The rankings of several states, one after the other; `means` are the metrics whose terms were summed."""
        rows, missing, inside, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        positives, every = rows[:, 1].copy(), rows.sum(axis=1)
        complete = np.where(missing.any(axis=1), math.nan, 1.0)  # otherwise these are undefined
        after, both = (np.ldexp(mean_words(sums, at, positives), -BITS) * complete for at in (AFTER, BOTH))
        columns = (mean_words(sums, TERMS + WORDS * k, every) for k in range(len(means)))
        certain = [np.where(inside, np.ldexp(column, -BITS), math.nan) * complete for column in columns]
        high, low = sums[:, AREA + 1], sums[:, AREA + 3]
        if 2.0 * float((every + missing.sum(axis=1)).max(initial=0)) ** 2 < _EXACT:
            won = ((high << np.uint64(32)) + low).astype(np.int64)
        else:
            rows, missing, (upper, lower) = rows.astype(object), missing.astype(object), sums[:, AREA:AFTER:2].T
            won = (((upper.astype(object) << 64) + high) << 32) + (lower.astype(object) << 64) + low
        (neg, pos), (halved_neg, halved_pos) = rows.T, missing.T
        return cls(won, neg, pos, halved_neg, halved_pos, after, both / 2, dict(zip(means, certain, strict=True)))

    def divided(self, top: Array, bottom: Array) -> Array:
        """Quotients, correctly rounded, as a float64 array of shape (n_rankings,); NaN for those by 0."""
        values = np.full(top.size, math.nan)
        some = (bottom != 0).astype(np.bool_)
        values[some] = (top[some] / bottom[some]).astype(np.float64)
        return values


class OfRankings(ABC):
    """Metrics of whole rankings, computed of several at once: to the last bit as of each alone."""

    @abstractmethod
    def of_rankings(self, rankings: Rankings) -> Array:
        """The value of each ranking, as a float64 array of shape (n_rankings,); NaN where it is undefined."""


class MeanOfRows(OfRankings):
    """Metrics that are the mean over all rows of what each adds by its score, in [0, 1], and its label."""

    @abstractmethod
    def terms(self, scores: Array, *, positive: bool) -> Array:
        """What a positive, or a negative, of each score adds: a float64 array of shape (n_scores,) in [0, 1]."""

    def of_rankings(self, rankings: Rankings) -> Array:
        """The mean of each ranking."""
        return rankings.means[self]
