"""Gain curves: the share of positives that a team finds at the top of the ranking.

The gain curve shows, for every score, the share of points at or above it (x) and of positives among them (y). Groups of
equal score in descending order have p positives and n negatives, u = p + n, with T positives and F negatives before
them, of P and N in all; with weights all of these are weights.

- Truncation keeps groups until their *count of points* reaches k, or ⌈q·count⌉ for a share q, also with weights; the
  group that reaches it is kept whole. With U the weight kept: A = Σ u·(T + p/2) is the area under the curve kept,
  R = U²·P / 2(P + N) that of a random order, M = P²/2 + (U − P)·P if P ≤ U else U²/2 that of a perfect one.
- ``agc`` = (A − R)/(M − R), 1 for a perfect order, 0 for a random one, 2·AUC − 1 where nothing is cut off.
- ``agc_ratio`` = A/M.

Counts are summed in integers and divided once. For weights the difference A − R is taken as N·Σ u·(T + p/2) minus
P·Σ u·(F + n/2), over N + P, and M − R is a sum of positive terms, so that neither loses digits where one class is rare.

From a histogram the value comes with its bounds. If the truncation cuts an open bin, the bin may keep any c of its
points, at least those needed, in any order. For each c the area is least with as few positives as possible, placed
last, and greatest with as many as possible, placed first. The interval takes the extremes over all c. They lie where
the quotient of two parabolas turns, and are found in exact integers; for weights, in floating point, as a bin that is
cut may keep any part of its weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_NEGATIVES, NO_POSITIVES, NO_WEIGHT, WEIGHTED, Basis, Metric
from streameval.metrics.scores.ranking import RocAuc
from streameval.metrics.scores.rankings import OfRankings
from streameval.metrics.scores.sums import counted, gain_sums, outward, rounding, sum_of, total
from streameval.results import Scalar
from streameval.states.scores.types import halved
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.metrics.scores.rankings import Rankings
    from streameval.states.protocol import State, Totals
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

    Sums = tuple[float, float, float]


_LEAST_UNIT = -480  # squares of smaller weights begin to lose digits
_ENDLESS = 1e300  # an integer above may exceed the floats
_LEAST = 1e-9  # part of a cut bin's weight that is kept at least


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
    return min(int(np.searchsorted(np.cumsum(part.rows), room)) + 1, part.n.size)


def cut_at(sizes: Array, points: float) -> int:
    """The bin that reaches the points."""
    return min(int(np.searchsorted(np.cumsum(sizes), points)), sizes.size - 1)


class Cut(NamedTuple):
    """The open bin that a truncation cuts: its negatives and positives, and what is kept of both: expected, at least.

    Of counts, the points needed are kept at least.
    """

    n: Any
    p: Any
    share: Any
    least: Any


class Kept(NamedTuple):
    """Sums over the groups kept: Σ u·(2T + p), Σ u·(2F + n), Σ u, the pairs in doubt, Σ p; and the bin that is cut."""

    area: float
    below: float
    weight: float
    doubt: float = 0
    true: float = 0
    cut: Cut | None = None

    @classmethod
    def all(cls, partials: Sequence[Kept]) -> Kept:
        """Sums of all parts; a state of bins has one."""
        if len(partials) == 1:
            return partials[0]
        return cls(*(total(column) for column in list(zip(*partials, strict=True))[:5])) if partials else cls(0, 0, 0)

    @classmethod
    def of_pairs(cls, partials: Sequence[tuple[int, int]], N: int, P: int) -> Kept:
        """Sums under the whole curve from the partials of `RocAuc`."""
        won, doubt = (total(column) for column in zip(*partials, strict=True)) if partials else (0, 0)
        area = P * P + won
        return cls(area, (N + P) ** 2 - area, N + P, doubt)

    def shifted(self, shift: float) -> Sums:
        """The sums that decide the value, with some pairs in the other order."""
        return self.area + shift, self.below - shift, self.weight


@dataclass(frozen=True)
class GainSums(Basis["ScorePart", "Kept | None"]):
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
    n, p, need = part.n[at].item(), part.p[at].item(), points - int(part.rows[:at].sum())
    share = need if counted(part.total) else need / int(part.rows[at]) * (n + p)
    least = need if counted(part.total) else 0.0 if sums[2] else _LEAST * (n + p)
    return Kept(*sums, sum_of(part.p[:at]), Cut(n, p, share, least))


def quotient(sums: Sums, N: float, P: float, *, ratio: bool, unit: int = 0) -> tuple[float, float]:
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


def kept_unit(kept: int | float) -> int | None:
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


def cut_bounds(kept: Kept, N: float, P: float, *, ratio: bool) -> tuple[float, float, float]:
    """Value, lower and upper end if a bin is cut; the value keeps a proportional part of it.

    Parameters
    ----------
    kept : the bin, and sums over the groups above it
    N, P : all negatives and positives
    ratio : whether A/M is bounded instead of (A − R)/(M − R)
    """
    above, doubt = kept.weight, kept.doubt
    n, p, share, first = kept.cut or (0, 0, 0, 0)

    def value(c: float, gained: float | Fraction) -> tuple[float, float]:
        twice = kept.area + 2 * kept.true * c + gained
        return quotient((twice, (above + c) ** 2 - twice, above + c), N, P, ratio=ratio)

    def least(c: float) -> tuple[float, float]:
        return value(c, max(0, c - n) ** 2 - doubt)

    def most(c: float) -> tuple[float, float]:
        return value(c, min(p, c) * (2 * c - min(p, c)) + doubt)

    gained = share * share * p
    proportional = value(share, Fraction(gained, n + p) if isinstance(gained, int) else gained / (n + p))
    lower, upper = (
        choose(divided(*f(c)) for c in _candidates(f, first, n + p, (turn, P - above)))
        for choose, f, turn in ((min, least, n), (max, most, p))
    )
    return divided(*proportional), lower, upper


def divided(top: float, bottom: float) -> float:
    """A quotient; NaN where weights vanish."""
    return float(top / bottom) if bottom > 0 else math.nan


def _candidates(f: Callable[[Any], tuple[Any, Any]], first: Any, last: Any, breaks: tuple[Any, ...]) -> Iterator[Any]:
    """Where a quotient may be extreme from `first` to `last`: at the ends of its pieces, and where a piece turns.

    Of integers, those around a turn.
    """
    bounds, whole = sorted({first, last, *(b for b in breaks if first < b < last)}), isinstance(last, int)
    yield from bounds
    for low, high in pairwise(bounds):
        if whole and high - low < 4:
            yield from range(low, high)
            continue
        step = 1 if whole else (high - low) / 2
        (g0, g1, g2), (h0, h1, h2) = (
            (2 * a, 4 * b - 3 * a - c, a - 2 * b + c)  # of 1, t, t²: the parabola through the values at 0, 1 and 2
            for a, b, c in zip(*(f(low + t * step) for t in range(3)), strict=True)
        )
        turns = (_whole_roots if whole else _roots)(g2 * h1 - g1 * h2, g2 * h0 - g0 * h2, g1 * h0 - g0 * h1)
        for turn in turns:
            yield from (min(max(low + (turn + more) * step, low), high) for more in ((-1, 0, 1, 2) if whole else (0,)))


def _whole_roots(a: int, b: int, c: int) -> list[int]:
    """Roots of a·t² + 2b·t + c, rounded to a neighbouring integer."""
    if not a:
        return [-c // (2 * b)] if b else []
    inside = b * b - a * c
    return [] if inside < 0 else [(-b + sign * math.isqrt(inside)) // a for sign in (-1, 1)]


def _roots(a: float, b: float, c: float) -> list[float]:
    """Roots of a·t² + 2b·t + c."""
    return [float(t.real) for t in np.roots([a, 2 * b, c]) if abs(t.imag) < 1e-6]


@dataclass(frozen=True)
class Agc(Metric[Scalar, "ScorePart", "tuple[float, float] | Kept | None", "State"], OfRankings):
    """Normalised area under the gain curve.

    Attributes
    ----------
    truncate : share of the points in (0, 1], or a number of points above 1; the top group that reaches it is kept whole
    ratio : whether the value is A/M instead of (A − R)/(M − R)

    Raises
    ------
    OptionError
        If `truncate` is neither a share in (0, 1] nor a whole number above 1.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> [(r.metric, round(r.value, 4)) for r in (compute(state, Agc(t)) for t in (1, 0.5, 3))]
    [('agc', 0.5), ('agc@0.5', 0.5), ('agc@3', 0.4286)]
    """

    truncate: float = 1
    ratio: bool = False

    def __post_init__(self) -> None:
        kept_points(self.truncate, 1)

    @property
    def name(self) -> str:
        """``agc``, ``agc_ratio``, ``agc@0.01``, ``agc_ratio@200``."""
        name = "agc_ratio" if self.ratio else "agc"
        return name if self.truncate == 1 else f"{name}@{format_number(self.truncate)}"

    @property
    def counts_nan(self) -> bool:
        """Whether NaN scores may count as halves: only without a truncation, where the value is 2·AUC − 1."""
        return self.truncate == 1 and not self.ratio

    def points(self, rows: int) -> int | None:
        """Points that the truncation keeps of `rows` points; None without a truncation."""
        return None if self.truncate == 1 else kept_points(self.truncate, rows)

    def shrunk(self, share: float) -> Agc:
        """The metric for a part of the rows: a number of points is scaled so that it stays the same share of them."""
        return self if self.truncate <= 1 else replace(self, truncate=max(2, round(self.truncate * share)))

    def _by_pairs(self, measure: Totals) -> bool:
        """Whether the area comes from the pairs won: Σ u·(2T + p) is Σ p·(2T + p) = P² plus Σ n·(2T + p), those pairs.

        Only without a truncation, and for counts: with weights the digits of A − R would cancel.
        """
        return self.truncate == 1 and counted(measure)

    def basis(self, part: ScorePart) -> GainSums | RocAuc:
        """The pairs won, which `roc_auc` shares, or the sums that ``agc`` and ``agc_ratio`` share."""
        return RocAuc() if self._by_pairs(part.total) else GainSums(self.truncate)

    def combine(self, partials: Sequence[tuple[float, float] | Kept | None], state: State) -> Scalar:
        """One division; a pair with a halved score adds nothing to A − R."""
        numbers, nan = state.totals(), halved(state)
        N, P = numbers.n, numbers.p
        if not P + nan.p:
            return Scalar.undefined(self.name, NO_POSITIVES)
        if not N + nan.n and not self.ratio:
            return Scalar.undefined(self.name, NO_NEGATIVES)
        if None in partials:
            return Scalar.undefined(self.name, WEIGHTED)
        if self._by_pairs(numbers):
            kept = Kept.of_pairs(cast("Sequence[tuple[int, int]]", partials), N, P)
        else:
            kept = Kept.all(cast("Sequence[Kept]", partials))
        if kept.cut:
            return Scalar.between(self.name, *cut_bounds(kept, N, P, ratio=self.ratio))
        if nan.rows and not kept.weight:
            return Scalar.certain(self.name, 0.0)
        pairs = (N + nan.n) * (P + nan.p) if nan.rows else 0
        unit = 0 if pairs else kept_unit(kept.weight)
        if unit is None or not kept.weight:
            return Scalar.undefined(self.name, NO_WEIGHT)

        def ends(shift: float) -> tuple[float, float]:
            top, bottom = quotient(kept.shifted(shift), N, P, ratio=self.ratio, unit=unit)
            return top, (N + P) * pairs if pairs else bottom

        top, bottom = ends(0)
        if not bottom:  # a product of weights may vanish
            return Scalar.undefined(self.name, NO_WEIGHT)
        if not kept.doubt:
            return Scalar.certain(self.name, min(1.0, float(top / bottom)))
        value, lower, upper = (float(top / bottom) for top, bottom in map(ends, (0, -kept.doubt, kept.doubt)))
        return Scalar.between(self.name, value, *outward(lower, upper, rounding(numbers), least=-math.inf))

    def of_rankings(self, rankings: Rankings) -> Array:
        """As `combine` without a truncation, where A − R is (N + P)(won − N·P) / 2."""
        N, P, halved_neg, halved_pos = rankings[1:5]
        if self.ratio:
            values = rankings.divided(P * P + rankings.won, P * (P + 2 * N))
            values[(halved_neg + halved_pos != 0).astype(np.bool_)] = math.nan
        else:
            values = rankings.divided(rankings.won - N * P, (N + halved_neg) * (P + halved_pos))
        return np.minimum(1.0, values)


def truncated(truncate: Sequence[float]) -> tuple[Agc, ...]:
    """`agc` and `agc_ratio` for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in truncated((0.01, 200))]
    ['agc@0.01', 'agc_ratio@0.01', 'agc@200', 'agc_ratio@200']
    """
    return tuple(Agc(share, ratio) for share in dict.fromkeys(truncate) for ratio in (False, True))
