"""Bounds of a normalised gain area from bins of weighted rows whose inside is unknown.

As `streameval.metrics.scores.gain.bounds` has it for counts, in floating point: truncation counts rows, and a bin that
is cut may keep any part of its weight. The area is least with as little positive weight as possible and that last,
greatest with as much as possible and that first. The interval takes the extremes over all parts, found where the
quotient of two parabolas turns.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.scores.gain.sampled_error import cut_at
from streameval.metrics.scores.gain.sums import quotient
from streameval.metrics.scores.sums import outward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

    Quotient = Callable[[float], tuple[float, float]]

_LEAST = 1e-9  # part of a cut bin's weight that is kept at least


def weighted_bounds(bins: ScorePart, weights: Array, points: int) -> tuple[float, float, float]:
    """Value, lower and upper of the area of the best `points` rows; NaN if they have no weight.

    A bin that the points cut keeps a proportional part in the value, and any part of its weight in the bounds.

    Examples
    --------
    Two bins; the first has 2 negative rows and 1 positive row, and one of its rows is kept:

    >>> import numpy as np
    >>> from streameval.states.protocol import Totals
    >>> from streameval.states.scores.parts import ScorePart, known
    >>> none, total, scores = Totals(0, 0, 0.0, 0.0), Totals(4, 1, 4.0, 1.0), np.arange(2.0)
    >>> bins = ScorePart(np.array([2, 2]), np.array([1, 0]), none, total, known(scores), np.ones(2, bool))
    >>> weights = np.array([[2.0, 2.0], [1.0, 0.0]])
    >>> [round(x, 3) for x in weighted_bounds(bins, weights, 1)]
    [0.167, -0.382, 1.0]
    """
    sizes = bins.rows
    at = cut_at(sizes, points)
    cut = bool(sizes[: at + 1].sum() > points and bins.open[at])
    neg, pos = weights / weights.sum()
    N, P = float(neg.sum()), float(pos.sum())
    above = at if cut else at + 1
    kept, gained = (neg + pos)[:above], pos[:above]
    area, weight, T = float((kept * (2 * np.cumsum(gained) - gained)).sum()), float(kept.sum()), float(gained.sum())
    doubt = float((neg[:above] * pos[:above])[bins.open[:above]].sum())

    n, p = (float(neg[at]), float(pos[at])) if cut else (0.0, 0.0)
    if not weight + n + p:
        return math.nan, math.nan, math.nan

    def divided(c: float, inside: float) -> tuple[float, float]:
        twice = area + 2 * T * c + inside
        return quotient((twice, (weight + c) ** 2 - twice, weight + c), N, P, ratio=False)

    if not cut:
        value, lower, upper = (_ratio(*divided(0.0, shift)) for shift in (0.0, -doubt, doubt))
        return min(1.0, value), *outward(lower, upper, least=-math.inf)
    part = (points - int(sizes[:at].sum())) / int(sizes[at])
    value = _ratio(*divided(part * (n + p), part * part * (n + p) * p))

    def least(c: float) -> tuple[float, float]:
        return divided(c, max(0.0, c - n) ** 2 - doubt)

    def most(c: float) -> tuple[float, float]:
        return divided(c, min(p, c) * (2 * c - min(p, c)) + doubt)

    first = 0.0 if weight else _LEAST * (n + p)
    lower, upper = (
        choose(_ratio(*f(c)) for c in _candidates(f, first, n + p, (turn, P - weight)))
        for choose, f, turn in ((min, least, n), (max, most, p))
    )
    return min(1.0, value), *outward(min(lower, value), max(upper, value), least=-math.inf)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else math.nan


def _candidates(f: Quotient, first: float, last: float, breaks: tuple[float, ...]) -> Iterator[float]:
    """Where a quotient may be extreme from `first` to `last`: at the ends of its pieces, and where a piece turns."""
    bounds = sorted({first, last, *(b for b in breaks if first < b < last)})
    yield from bounds
    for low, high in pairwise(bounds):
        tops, bottoms = zip(*(f(low + t * (high - low)) for t in (0.0, 0.5, 1.0)), strict=True)
        (g0, g1, g2), (h0, h1, h2) = (
            (a, 4 * b - 3 * a - c, 2 * (a - 2 * b + c)) for a, b, c in (tops, bottoms)
        )  # of 1, t, t²
        turns = np.roots([g2 * h1 - g1 * h2, 2 * (g2 * h0 - g0 * h2), g1 * h0 - g0 * h1])
        yield from (low + float(t.real) * (high - low) for t in turns if abs(t.imag) < 1e-6 and 0 < t.real < 1)
