"""Sums over the groups of a part: exact for counts, compensated for weights.

This file alone knows the two measures. Counts are int64 arrays; their sums are integers of any size, which a metric
divides once. Weights are float64 arrays; their sums carry rounding errors, below `rounding` relative to 1.

Notation: a group has p positives and n negatives, u = p + n; T and F are the positives and negatives before it, of P
and N in all.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels import gain, ranking
from streameval.states.scores.missing import total_weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import Totals
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = [
    "SLACK",
    "best_gap",
    "counted",
    "doubt",
    "exact_sum",
    "gain_sums",
    "last_within",
    "limit",
    "mean_precision",
    "outward",
    "pairs_won",
    "precision_sum",
    "reached",
    "rounding",
    "running",
    "sum_of",
    "total",
]

SLACK = 1e-14  # bounds the rounding error of a value in [0, 1], generously
_TOLERANCE = 1e-12  # relative, of a sum of weights that is compared with a limit


def counted(measure: Totals) -> bool:
    """Whether the measure is the number of rows, so that sums are exact."""
    return not measure.weighted


def rounding(measure: Totals) -> float:
    """How far rounding may move a value in [0, 1] that sums of this measure give."""
    return 0.0 if counted(measure) else SLACK


def outward(
    lower: float, upper: float, slack: float = SLACK, least: float = 0.0, most: float = 1.0
) -> tuple[float, float]:
    """Ends moved outward by their rounding error, if they have any, within the range of the metric."""
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


def sum_of(values: Array) -> Any:
    """Sum of an array in the measure."""
    return int(values.sum()) if _integers(values) else total_weight(values)


def running(values: Array, start: Any) -> Array:
    """Sums of `start` and the values up to and including each."""
    run = gain.running_counts if _integers(values) else gain.running_weights
    sums: Array = run(values, start)
    return sums


def pairs_won(part: ScorePart) -> Any:
    """Twice the pairs in which the positive comes first, ties as halves: Σ p·(2(N − F) − n)."""
    if _integers(part.n):
        return _integer(ranking.area_counts(part.n, part.p, part.before.n, part.total.n))
    return 2.0 * float(ranking.area_weights(part.n, part.p, part.before.n, part.total.n))


def doubt(part: ScorePart, keep: int | None = None) -> Any:
    """Pairs of a positive and a negative within one open bin, among the first `keep` groups: Σ p·n."""
    if part.exact:
        return 0
    found = part.open[:keep]
    n, p = part.n[:keep][found], part.p[:keep][found]
    return _integer(ranking.product_counts(n, p)) if _integers(n) else exact_sum(n * p)


def precision_sum(part: ScorePart, *, trapezoid: bool) -> Any:
    """Σ p·precision, at the group or, with `trapezoid`, the mean of the precision before and after it.

    For counts an integer in units of 2⁻⁶³, each precision rounded to a multiple of 2⁻⁶².
    """
    at = part.n, part.p, part.before.n, part.before.p, trapezoid
    if _integers(part.n):
        return _integer(ranking.precision_counts(*at)) << (not trapezoid)
    return float(ranking.precision_weights(*at)) / (1 << trapezoid)


def mean_precision(precisions: Any, P: Any) -> float:
    """A total of `precision_sum` over the positives, or of floats."""
    return float(precisions / (2 * ranking.UNIT * P if isinstance(precisions, int) else P))


def best_gap(part: ScorePart) -> tuple[float, Any, Any, int]:
    """The largest T/P − F/N after a group: in floating point, its T and F, and the group; −1 where none is above 0."""
    if not part.total.n or not part.total.p:
        return 0.0, 0, 0, -1
    at = part.n, part.p, part.before.n, part.before.p, part.total.n, part.total.p
    if _integers(part.n):
        best, group, true, false = ranking.informedness_counts(*at)
        return float(best), int(true), int(false), int(group)
    best, group, true, false = ranking.informedness_weights(*at)
    return float(best), true, false, int(group)


def gain_sums(part: ScorePart, keep: int) -> tuple[Any, Any, Any, Any]:
    """Σ u·(2T + p), Σ u·(2F + n) and Σ u over the first `keep` groups, and the pairs in doubt.

    Σ u·(2(T + F) + u) telescopes, which gives the second sum of counts.
    """
    n, p, before = part.n[:keep], part.p[:keep], part.before
    if not _integers(n):
        area, below, pos, neg = (float(x) for x in gain.gain_weights(n, p))
        weight = neg + pos
        pairs = 0 if part.exact else float((n * p)[part.open[:keep]].sum())
        return area + 2 * before.p * weight, below + 2 * before.n * weight, weight, pairs
    points = int(n.sum()) + int(p.sum())
    inside = int(gain.gain_small(n, p)) if points <= gain.SMALL else _integer(gain.gain_counts(n, p))
    area = inside + 2 * before.p * points
    return area, points * (2 * before.rows + points) - area, points, doubt(part, keep)


def limit(share: float, size: Any, *, most: bool) -> Any:
    """A share of a size, as the decimal it is written as: the largest count within it, or the smallest that reaches it.

    For weights the share itself, with a relative tolerance of 1e-12.

    Examples
    --------
    >>> limit(0.07, 100, most=True), limit(0.071, 100, most=False)
    (7, 8)
    """
    if isinstance(size, float):
        return share * size * (1 + _TOLERANCE if most else 1 - _TOLERANCE)
    exact = Fraction(str(float(share))) * size
    return math.floor(exact) if most else math.ceil(exact)


def reached(values: Array, start: Any, bound: Any) -> int | None:
    """The first group at which the running sum reaches `bound`; the first of all for weights that reached it before."""
    if start >= bound:
        return 0 if isinstance(bound, float) and values.size else None
    if start + values.sum() < bound * (1 - _TOLERANCE if isinstance(bound, float) else 1):
        return None
    at = int(np.searchsorted(running(values, start), bound))
    return at if at < values.size else None


def last_within(n: Array, p: Array, start: Any, bound: Any) -> int | None:
    """The last group with positives up to which the negatives stay within `bound`."""
    if start > bound:
        return None
    hits = np.flatnonzero(p[: int(np.searchsorted(running(n, start), bound, side="right"))] > 0)
    return int(hits[-1]) if hits.size else None


def _integers(values: Array) -> bool:
    return values.dtype.kind == "i"


def _integer(words: tuple[int, int]) -> int:
    """A 128-bit sum of a kernel as an integer."""
    return (int(words[0]) << 64) | int(words[1])
