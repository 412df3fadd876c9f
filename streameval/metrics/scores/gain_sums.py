"""Sums under a truncated gain curve, the ratio that normalises its area (`streameval.metrics.scores.gain`), and bounds.

If the truncation cuts an open bin, the bin may keep any c of its points, at least those needed, in any order. For each
c the area is least with as few positives as possible, placed last, and greatest with as many as possible, placed first.
The interval takes the extremes over all c. They lie where the quotient of two parabolas turns, and are found in exact
integers; for weights, in floating point, as a bin that is cut may keep any part of its weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.thresholds import running
from streameval.metrics.protocol import Basis
from streameval.metrics.scores.sums import counted, gain_sums, outward, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

    Quotient = Callable[[float], tuple[float, float]]


_LEAST_UNIT = -480  # squares of smaller weights begin to lose digits
_ENDLESS = 1e300  # an integer above may exceed the floats


def decimal(truncate: Any) -> Any:
    """A NumPy float as the Python float of its shortest decimal form; any other value unchanged.

    Examples
    --------
    >>> decimal(np.float32(0.1)), float(np.float32(0.1))
    (0.1, 0.10000000149011612)
    """
    return float(str(truncate)) if isinstance(truncate, np.floating) else truncate


def kept_points(truncate: float, rows: int) -> int:
    """Points that a truncation asks for, of `rows`.

    Parameters
    ----------
    truncate : a share of the points in (0, 1], read as the decimal it is written as, or a number of points above 1

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> kept_points(0.07, 100), kept_points(0.01, 45), kept_points(200, 45), kept_points(1, 45)
    (7, 1, 45, 45)
    """
    given = decimal(truncate)
    share = float(given) if isinstance(given, int | float | np.number) and given < _ENDLESS else math.nan
    if not (0 < share <= 1 or (1 < share < math.inf and share == math.floor(share))):
        raise OptionError(f"truncate={truncate!r} is neither a share in (0, 1] nor a whole number of points above 1")
    return min(rows, int(share)) if share > 1 else math.ceil(Fraction(str(share)) * rows)


def kept_groups(part: ScorePart, points: int) -> int:
    """The number of groups of a part that are kept: those that begin before `points` points are reached."""
    room = points - part.before.rows
    if room <= 0 or points >= part.total.rows:
        return 0 if room <= 0 else part.n.size
    return min(int(np.searchsorted(running(part.rows, 0), room)) + 1, part.n.size)


def cut_at(sizes: Array, points: float) -> int:
    """The bin that reaches the points."""
    return min(int(np.searchsorted(np.cumsum(sizes), points)), sizes.size - 1)


class Cut(NamedTuple):
    """The open bin that a truncation cuts: its negatives and positives, and the points kept of it, at least."""

    n: int
    p: int
    need: int


class Kept(NamedTuple):
    """Sums over the groups kept: Σ u·(2T + p), Σ u·(2F + n), Σ u, the pairs in doubt, Σ p; and the bin that is cut."""

    area: Any
    below: Any
    weight: Any
    doubt: Any = 0
    true: Any = 0
    cut: Cut | None = None

    @classmethod
    def all(cls, partials: Sequence[Kept]) -> Kept:
        """Sums of all parts; a state of bins has one."""
        if len(partials) == 1:
            return partials[0]
        return cls(*(total(column) for column in list(zip(*partials, strict=True))[:5])) if partials else cls(0, 0, 0)


@dataclass(frozen=True)
class GainSums(Basis):
    """Sums under the truncated gain curve, which ``agc`` and ``agc_ratio`` share.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.9, 0.9]))
    >>> [GainSums().partial(part)[:3] for part in state.parts()]
    [(8, 1, 3)]
    """

    truncate: float = 1

    def partial(self, part: ScorePart) -> Kept | None:
        """Sums over the groups kept; None where a histogram cannot tell what is kept."""
        points = kept_points(self.truncate, part.total.rows)
        keep = kept_groups(part, points)
        if part.exact or points >= part.total.rows:
            return Kept(*gain_sums(part, keep))
        if not counted(part.total):
            return None
        if not part.open[keep - 1]:
            return Kept(*gain_sums(part, keep))
        return cut_sums(part, keep - 1, points)


def cut_sums(part: ScorePart, at: int, points: int) -> Kept:
    """Sums over the groups above open bin `at`, which is cut."""
    sums = gain_sums(part, at)
    cut = Cut(int(part.n[at]), int(part.p[at]), points - sums[2])
    return Kept(*sums, int(part.p[:at].sum()), cut)


def quotient(sums: tuple[Any, Any, Any], N: Any, P: Any, *, ratio: bool, unit: int = 0) -> tuple[Any, Any]:
    """Numerator and denominator of ``agc``, or of ``agc_ratio``, each times 2, and those of ``agc`` times N + P too.

    Both are divided by 4**unit: products of three small weights may leave float64.

    Parameters
    ----------
    sums : Σ u·(2T + p), Σ u·(2F + n) and Σ u over the groups kept
    N, P : all negatives and positives
    ratio : whether the quotient is A/M instead of (A − R)/(M − R)
    unit : see `kept_unit`
    """
    area, below, kept = sums
    part, left, full = P, max(N + P - kept, 0), kept >= P
    if unit:
        area, below = (math.ldexp(each, -2 * unit) for each in (area, below))
        kept, part = (math.ldexp(each, -unit) for each in (kept, part))
    if ratio:
        return area, part * (2 * kept - part) if full else kept * kept
    return area * N - below * P, part * (N * kept + left * (kept - part)) if full else kept * kept * N


def kept_unit(kept: Any) -> int | None:
    """The unit of `quotient` for the weight kept; None if its square has lost digits, or if it is 0.

    Examples
    --------
    >>> kept_unit(3), kept_unit(0.25), kept_unit(1e-200)
    (0, -1, None)
    """
    if not isinstance(kept, float):
        return 0
    unit = math.frexp(kept)[1]
    return unit if kept and unit > _LEAST_UNIT else None


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
        choose(_ratio(*f(c)) for c in _weighted_candidates(f, first, n + p, (turn, P - weight)))
        for choose, f, turn in ((min, least, n), (max, most, p))
    )
    return min(1.0, value), *outward(min(lower, value), max(upper, value), least=-math.inf)


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else math.nan


def _weighted_candidates(f: Quotient, first: float, last: float, breaks: tuple[float, ...]) -> Iterator[float]:
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
