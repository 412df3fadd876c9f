"""Bounds of a normalised gain area from bins whose inside is unknown.

A bin that is cut may keep any c of its points, at least as many as needed, in any order. For each c the area is least
with as few positives as possible and those last, greatest with as many as possible and those first. The interval takes
the extremes over all c, found where the quotient of two parabolas turns, in exact integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streameval.kernels.ranking import product_counts
from streameval.metrics.scores.gain_sums import gain_sums, quotient
from streameval.metrics.scores.undefined import integer

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.scores.histogram import Bins

__all__ = ["Cut", "cut_bounds", "open_sums"]


class Cut(tuple[float, float, float]):
    """Value, lower and upper of a metric whose truncation cuts a bin."""

    __slots__ = ()


def open_sums(bins: Bins, count: int) -> tuple[int, int, int, int]:
    """Sums over the first bins, each tied, and the pairs of a positive and a negative in one bin."""
    mixed = ~bins.single[:count]
    pairs = integer(product_counts(bins.neg[:count][mixed], bins.pos[:count][mixed]))
    return *gain_sums(bins.neg[:count], bins.pos[:count], 0, 0), pairs


def cut_bounds(bins: Bins, at: int, points: int, *, ratio: bool) -> Cut:
    """Value, lower and upper if bin `at` is cut: see the head of this file. The value keeps a proportional part."""
    area, _, above, doubt = open_sums(bins, at)
    N, P, n, p = bins.total.neg, bins.total.pos, int(bins.neg[at]), int(bins.pos[at])
    T, need = int(bins.pos[:at].sum()), points - above

    def value(c: Any, gained: Any) -> tuple[Any, Any]:
        twice = area + 2 * T * c + gained
        return quotient((twice, (above + c) ** 2 - twice, above + c), N, P, ratio=ratio)

    def least(c: int) -> tuple[int, int]:
        return value(c, max(0, c - n) ** 2 - doubt)

    def most(c: int) -> tuple[int, int]:
        return value(c, min(p, c) * (2 * c - min(p, c)) + doubt)

    share = value(need, Fraction(need * need * p, n + p))
    ends = [
        choose(top / bottom for top, bottom in map(f, _candidates(f, need, n + p, (turn, P - above))))
        for choose, f, turn in ((min, least, n), (max, most, p))
    ]
    return Cut((float(share[0] / share[1]), *ends))


def _candidates(f: Callable[[int], tuple[int, int]], first: int, last: int, breaks: tuple[int, ...]) -> set[int]:
    """Where a quotient may be extreme from `first` to `last`: at the ends of its pieces, and near a piece's turns."""
    bounds = sorted({first, last, *(b for b in breaks if first < b < last)})
    found = set(bounds)
    for low, high in pairwise(bounds):
        if high - low < 4:
            found.update(range(low, high))
            continue
        (g0, g1, g2), (h0, h1, h2) = (_parabola(*values) for values in zip(*map(f, range(low, low + 3)), strict=True))
        for turn in _roots(g2 * h1 - g1 * h2, g2 * h0 - g0 * h2, g1 * h0 - g0 * h1):
            found.update(min(max(low + turn + step, low), high) for step in (-1, 0, 1, 2))
    return found


def _parabola(f0: int, f1: int, f2: int) -> tuple[int, int, int]:
    """Coefficients, times 2, of the parabola through the values at 0, 1 and 2."""
    bend = f2 - 2 * f1 + f0
    return 2 * f0, 2 * (f1 - f0) - bend, bend


def _roots(a: int, b: int, c: int) -> list[int]:
    """Roots of a·t² + 2b·t + c, rounded to a neighbouring integer."""
    if not a:
        return [-c // (2 * b)] if b else []
    inside = b * b - a * c
    return [] if inside < 0 else [(-b + sign * math.isqrt(inside)) // a for sign in (-1, 1)]
