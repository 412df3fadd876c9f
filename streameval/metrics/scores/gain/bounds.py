"""Bounds of a normalised gain area whose truncation cuts an open bin.

The bin may keep any c of its points, at least those needed, in any order. For each c the area is least with as few
positives as possible, placed last, and greatest with as many as possible, placed first. The interval takes the extremes
over all c. They lie where the quotient of two parabolas turns, and are found in exact integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streameval.metrics.scores.gain.sums import quotient

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.metrics.scores.gain.sums import Kept


def cut_bounds(kept: Kept, N: int, P: int, *, ratio: bool) -> tuple[float, float, float]:
    """Value, lower and upper end if a bin is cut; the value keeps a proportional part of it.

    Parameters
    ----------
    kept : the bin, and sums over the groups above it
    N, P : all negatives and positives
    ratio : whether A/M is bounded instead of (A − R)/(M − R)
    """
    area, above, doubt, T = kept.area, kept.weight, kept.doubt, kept.true
    n, p, need = kept.cut or (0, 0, 0)

    def value(c: Any, gained: Any) -> tuple[Any, Any]:
        twice = area + 2 * T * c + gained
        return quotient((twice, (above + c) ** 2 - twice, above + c), N, P, ratio=ratio)

    def least(c: int) -> tuple[int, int]:
        return value(c, max(0, c - n) ** 2 - doubt)

    def most(c: int) -> tuple[int, int]:
        return value(c, min(p, c) * (2 * c - min(p, c)) + doubt)

    share = value(need, Fraction(need * need * p, n + p))
    lower, upper = (
        choose(top / bottom for top, bottom in map(f, _candidates(f, need, n + p, (turn, P - above))))
        for choose, f, turn in ((min, least, n), (max, most, p))
    )
    return float(share[0] / share[1]), lower, upper


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
