"""Gain curves and operating points: what a team gets that looks only at the top of the ranking.

The gain curve shows, for every score, the share of points at or above it (x) and of positives among them (y). Groups of
equal score in descending order have p positives and n negatives, u = p + n, with T positives and F negatives before
them, of P and N in all; with weights all of these are weights.

- Truncation keeps groups until their *count of points* reaches k, or ⌈q·count⌉ for a share q, also with weights; the
  group that reaches it is kept whole. With U the weight kept: A = Σ u·(T + p/2) is the area under the curve kept,
  R = U²·P / 2(P + N) that of a random order, M = P²/2 + (U − P)·P if P ≤ U else U²/2 that of a perfect one.
- ``agc`` = (A − R)/(M − R), 1 for a perfect order, 0 for a random one, 2·AUC − 1 where nothing is cut off.
- ``agc_ratio`` = A/M.
- Operating points: one threshold a team would deploy, and what it gives.

Counts are summed in integers and divided once. For weights the difference A − R is taken as N·Σ u·(T + p/2) minus
P·Σ u·(F + n/2), over N + P, and M − R is a sum of positive terms, so that neither loses digits where one class is rare.

A histogram's bin that is cut may keep any c of its points, at least as many as needed, in any order. For each c the
area is least with as few positives as possible and those last, greatest with as many as possible and those first. The
interval takes the extremes over all c, found where the quotient of two parabolas turns, in exact integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels import gain as kernels
from streameval.metrics.ranking import HALF, ONE_CLASS, _class_sizes, _integer, _nan_rows, _outward
from streameval.results import Scalar
from streameval.states.histogram import Bins
from streameval.states.scores import Groups, total_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.metrics.ranking import ScoreState
    from streameval.states.protocol import Array

__all__ = [
    "GAIN",
    "Agc",
    "GainSums",
    "OperatingPoint",
    "kept_groups",
    "kept_points",
    "operating_points",
    "parse_at",
    "quotient",
    "truncated",
]

NO_POSITIVES = "no positives"
NO_NEGATIVES = "no negatives"
NO_WEIGHT = "no weight in the part kept"
WEIGHTED = "a histogram cannot bound a weighted metric cut at a number of points; leave out approx (--approx)"
_TOLERANCE = 1e-12  # relative, of a sum of weights that is compared with a limit


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
    share = float(truncate)
    if not (0 < share <= 1 or (1 < share < math.inf and share == math.floor(share))):
        msg = f"truncate={truncate!r} is neither a share in (0, 1] nor a whole number of points above 1"
        raise OptionError(msg)
    return min(rows, int(share)) if share > 1 else math.ceil(Fraction(str(share)) * rows)


def kept_groups(part: Groups, points: int) -> int:
    """How many groups of a part are kept until `points` points are reached: those that begin before."""
    room = points - part.before.rows
    if room <= 0 or points >= part.total.rows:
        return 0 if room <= 0 else part.neg.size
    ends = _running(part.neg + part.pos, 0)
    return min(int(np.searchsorted(ends, room)) + 1, part.neg.size)


@dataclass(frozen=True)
class GainSums:
    """Sums under the truncated gain curve: what `Agc` needs of a part, with `ratio` or without.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.9, 0.9]))
    >>> [GainSums().partial(part) for part in state.parts()]
    [(8, 1, 3)]
    """

    truncate: float = 1

    def partial(self, part: Groups) -> tuple[Any, Any, Any]:
        """Σ u·(2T + p), Σ u·(2F + n) and Σ u over the groups kept."""
        keep = kept_groups(part, kept_points(self.truncate, part.total.rows))
        before = part.before
        if part.neg_weight is None or part.pos_weight is None:
            return _sums(part.neg[:keep], part.pos[:keep], before.neg, before.pos)
        area, below, pos, neg = (float(x) for x in kernels.gain_weights(part.neg_weight[:keep], part.pos_weight[:keep]))
        weight = neg + pos
        return area + 2 * before.pos_weight * weight, below + 2 * before.neg_weight * weight, weight


def _sums(neg: Array, pos: Array, before_neg: int, before_pos: int) -> tuple[int, int, int]:
    """The sums of `GainSums` for counts; Σ u·(2(T + F) + u) telescopes, which gives the second."""
    points = int(neg.sum()) + int(pos.sum())
    inside = int(kernels.gain_small(neg, pos)) if points <= kernels.SMALL else _integer(kernels.gain_counts(neg, pos))
    area = inside + 2 * before_pos * points
    return area, points * (2 * (before_neg + before_pos) + points) - area, points


def quotient(sums: tuple[Any, Any, Any], N: Any, P: Any, *, ratio: bool) -> tuple[Any, Any]:
    """Numerator and denominator of ``agc``, or of ``agc_ratio``, each times 2, and ``agc``'s times N + P too."""
    area, below, kept = sums
    if ratio:
        return area, P * (2 * kept - P) if kept >= P else kept * kept
    left = max(N + P - kept, 0)
    return area * N - below * P, P * (N * kept + left * (N - left)) if kept >= P else kept * kept * N


@dataclass(frozen=True)
class Agc:
    """Normalised area under the gain curve.

    Attributes
    ----------
    truncate : share of the points in (0, 1], or a number of points above 1; the top group that reaches it is kept whole
    ratio : A/M instead of (A − R)/(M − R)

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores import fold_arrays
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
        return ("agc_ratio" if self.ratio else "agc") + ("" if self.truncate == 1 else f"@{self.truncate:g}")

    @property
    def sums(self) -> GainSums:
        """What the partials of groups are of; metrics with equal sums may share them."""
        return GainSums(self.truncate)

    def partial(self, part: Groups | Bins) -> Any:
        """The sums of `GainSums`; for bins the bounds."""
        return self.sums.partial(part) if isinstance(part, Groups) else self.bounds(part)

    def bounds(self, bins: Bins) -> Any:
        """Sums and the pairs in doubt; value, lower and upper where a bin is cut; None where neither can be had."""
        total = bins.total
        points = kept_points(self.truncate, total.rows)
        if bins.neg_weight is None or bins.pos_weight is None:
            at = int(np.searchsorted(np.cumsum(bins.neg + bins.pos), points))
            if points >= total.rows or bins.single[at]:
                return _open_sums(bins, at + 1)
            return _cut_bounds(bins, at, points, ratio=self.ratio) if total.pos and (total.neg or self.ratio) else None
        if points < total.rows:
            return None
        area, below, pos, neg = (float(x) for x in kernels.gain_weights(bins.neg_weight, bins.pos_weight))
        return area, below, neg + pos, float((bins.neg_weight * bins.pos_weight)[~bins.single].sum())

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """One division."""
        halves = _nan_rows(state) > 0
        N, P = _class_sizes(state.totals(), weighted=state.spec.weighted)
        if halves and (self.ratio or self.truncate != 1):
            return Scalar.undefined(self.name, HALF)
        nan = (state.nan_weights if state.spec.weighted else state.nan_rows).tolist() if halves else (0, 0)
        if not P + nan[1]:
            return Scalar.undefined(self.name, NO_POSITIVES)
        if not N + nan[0] and not self.ratio:
            return Scalar.undefined(self.name, NO_NEGATIVES)
        if None in partials:
            return Scalar.undefined(self.name, WEIGHTED)
        if len(partials) == 1 and isinstance(partials[0], _Cut):
            return Scalar.between(self.name, *partials[0])
        *sums, doubt = _added(partials)
        if not sums[2]:
            return Scalar.certain(self.name, 0.0) if halves else Scalar.undefined(self.name, NO_WEIGHT)
        return self._divided(sums, doubt, N, P, (N + nan[0]) * (P + nan[1]) if halves else None)

    def _divided(self, sums: Sequence[Any], doubt: Any, N: Any, P: Any, pairs: Any) -> Scalar:
        """The value, and its interval if pairs are in doubt; `pairs` with a NaN count one half and so add nothing."""

        def at(shift: Any) -> float:
            top, bottom = quotient((sums[0] + shift, sums[1] - shift, sums[2]), N, P, ratio=self.ratio)
            return float(top / ((N + P) * pairs if pairs else bottom))

        value, weighted = at(0), isinstance(sums[0], float)
        if not doubt:
            return Scalar.certain(self.name, min(1.0, value) if weighted else value)
        ends = at(-doubt), at(doubt)
        return Scalar.between(self.name, value, *(_outward(*ends, least=-math.inf) if weighted else ends))


class _Cut(tuple[float, float, float]):
    """Value, lower and upper of a metric whose truncation cuts a bin."""

    __slots__ = ()


def _added(partials: Sequence[Any]) -> list[Any]:
    """Sums of the partials and of the pairs in doubt: exact integers, or correctly rounded floats."""
    columns = list(zip(*(part if len(part) == 4 else (*part, 0) for part in partials), strict=True)) or [(0,)] * 4
    return [math.fsum(column) if any(isinstance(x, float) for x in column) else sum(column) for column in columns]


def _open_sums(bins: Bins, count: int) -> tuple[int, int, int, int]:
    """Sums over the first bins, each tied, and the pairs of a positive and a negative in one bin."""
    mixed = ~bins.single[:count]
    pairs = sum(n * p for n, p in zip(bins.neg[:count][mixed].tolist(), bins.pos[:count][mixed].tolist(), strict=True))
    return *_sums(bins.neg[:count], bins.pos[:count], 0, 0), pairs


def _cut_bounds(bins: Bins, at: int, points: int, *, ratio: bool) -> _Cut:
    """Value, lower and upper if bin `at` is cut: see the head of this file. The value keeps a proportional part."""
    area, _, above, doubt = _open_sums(bins, at)
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
    return _Cut((float(share[0] / share[1]), *ends))


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


@dataclass(frozen=True)
class OperatingPoint:
    """What one threshold gives: all points with at least that score are taken, so ties stay whole.

    - ``fpr``: the best true positive rate among thresholds whose false positive rate is at most `at`, at the highest
      threshold that reaches it; 0 at threshold infinity where even the first group has too many negatives.
    - ``recall``: the precision at the highest threshold whose recall is at least `at`.
    - ``k``: the precision among the top `at` points, groups whole until that many *points* are reached; all if there
      are fewer. Rates are of weights, `at` counts points.

    Numbers are compared exactly, `at` as the decimal it is written as; weights with a relative tolerance of 1e-12.
    A histogram gives value and threshold at a bin's edge, and the extremes over every order within the bin that is cut.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> for at in ("fpr=0", "recall=0.9", "k=1"):
    ...     point = compute(state, parse_at(at))
    ...     print(point.metric, round(point.value, 4), point.threshold)
    tpr@fpr=0 0.5 0.8
    precision@recall=0.9 0.6667 0.35
    precision@k=1 1.0 0.8
    """

    kind: str
    at: float

    def __post_init__(self) -> None:
        allowed = {
            "fpr": 0 <= self.at <= 1,
            "recall": 0 < self.at <= 1,
            "k": 1 <= self.at < math.inf and self.at % 1 == 0,
        }
        if not allowed.get(self.kind):
            text = f"{self.kind}={self.at:g}"
            raise _no_point(text)

    @property
    def name(self) -> str:
        """``tpr@fpr=0.0001``, ``precision@recall=0.9``, ``precision@k=1000``."""
        return f"{'tpr' if self.kind == 'fpr' else 'precision'}@{self.kind}={self.at:g}"

    def _limit(self, size: Any, *, most: bool) -> Any:
        """`at` times the size of a class: the largest count that is at most that, or the smallest that is at least."""
        if isinstance(size, float):
            return self.at * size * (1 + _TOLERANCE if most else 1 - _TOLERANCE)
        exact = Fraction(str(float(self.at))) * size
        return math.floor(exact) if most else math.ceil(exact)

    def partial(self, part: Groups | Bins) -> Any:
        """The candidate of a part: position, T and F at its threshold, the threshold; None if it has none."""
        if isinstance(part, Bins):
            return self.bounds(part)
        before, total = part.before, part.total
        neg, pos, sizes = part.neg, part.pos, (total.neg, total.pos)
        F: Any = before.neg
        T: Any = before.pos
        if part.neg_weight is not None and part.pos_weight is not None:
            neg, pos, F, T = part.neg_weight, part.pos_weight, before.neg_weight, before.pos_weight
            sizes = total.neg_weight, total.pos_weight  # type: ignore[assignment]
        if self.kind == "k":
            at = _last(part.neg + part.pos, before.rows, min(int(self.at), total.rows))
        elif self.kind == "recall":
            at = _last(pos, T, self._limit(sizes[1], most=False))
        else:
            at = _best(neg, pos, F, self._limit(sizes[0], most=True))
        if at is None:
            return None
        return before.rows + at, T + _sum(pos[: at + 1]), F + _sum(neg[: at + 1]), float(part.scores[at])

    def combine(self, partials: Sequence[Any], state: ScoreState) -> Scalar:
        """The first candidate; for ``fpr`` the last."""
        if _nan_rows(state):
            return Scalar.undefined(self.name, HALF)
        N, P = _class_sizes(state.totals(), weighted=state.spec.weighted)
        if self.kind == "fpr" and not (N and P):
            return Scalar.undefined(self.name, ONE_CLASS)
        if self.kind == "recall" and not P:
            return Scalar.undefined(self.name, NO_POSITIVES)
        found = [part for part in partials if part is not None]
        if found and isinstance(found[0], Scalar):
            return found[0]
        if not found:
            return (
                Scalar.certain(self.name, 0.0, math.inf)
                if self.kind == "fpr"
                else Scalar.undefined(self.name, "no rows")
            )
        _, true, false, threshold = max(found) if self.kind == "fpr" else min(found)
        if self.kind != "fpr" and not true + false:
            return Scalar.undefined(self.name, NO_WEIGHT)
        value = true / P if self.kind == "fpr" else true / (true + false)
        return Scalar.certain(self.name, min(1.0, value), threshold)

    def bounds(self, bins: Bins) -> Scalar | None:
        """Value at an edge and its extremes; None where nothing is defined."""
        neg, pos, weighted = bins.neg, bins.pos, False
        if bins.neg_weight is not None and bins.pos_weight is not None:
            neg, pos, weighted = bins.neg_weight, bins.pos_weight, True
        false, true = _running(neg, 0), _running(pos, 0)
        if not true.size or (self.kind != "k" and not true[-1]) or (self.kind == "fpr" and not false[-1]):
            return None
        if self.kind == "fpr":
            return self._rate_bounds(bins, pos, false, true)
        limit = min(int(self.at), bins.total.rows) if self.kind == "k" else self._limit(true[-1].item(), most=False)
        reach = _running(bins.neg + bins.pos, 0) if self.kind == "k" else true
        at = int(np.searchsorted(reach, limit))
        T, F, p, n = (x.item() for x in (true[at] - pos[at], false[at] - neg[at], pos[at], neg[at]))
        if self.kind == "k" and weighted and (not bins.single[at] or not T + F + p + n):
            return Scalar.undefined(self.name, NO_WEIGHT if bins.single[at] else WEIGHTED)
        value = (T + p) / (T + p + F + n)
        if bins.single[at]:
            return Scalar.certain(self.name, min(1.0, value), float(bins.scores[at]))
        if self.kind == "recall":
            ends = limit / (limit + F + n), (T + p) / (T + p + F)
        else:
            least, most = max(limit - T - F, n), max(limit - T - F, p)
            ends = (T + least - n) / (T + F + least), (T + p) / (T + F + most)
        return self._bounded(value, ends, float(bins.scores[at]), weighted=weighted)

    def _rate_bounds(self, bins: Bins, pos: Array, false: Array, true: Array) -> Scalar:
        """Bounds of the true positive rate: between the last edge allowed and all positives of the next bin."""
        edge = int(np.searchsorted(false, self._limit(false[-1].item(), most=True), side="right"))
        hits = np.flatnonzero(pos[:edge] > 0)
        T, P = true[edge - 1].item() if edge else 0, true[-1].item()
        more = 0 if edge == pos.size or bins.single[edge] else pos[edge].item()
        threshold = float(bins.scores[hits[-1]]) if hits.size else math.inf
        return self._bounded(T / P, (T / P, (T + more) / P), threshold, weighted=bins.neg_weight is not None)

    def _bounded(self, value: float, ends: tuple[float, float], threshold: float, *, weighted: bool) -> Scalar:
        lower, upper = _outward(*ends) if weighted and ends[0] < ends[1] else ends
        return Scalar(self.name, value, lower=lower, upper=upper, exact=lower == upper, threshold=threshold)


def _sum(values: Array) -> Any:
    """Sum of counts as an integer, of weights compensated."""
    return int(values.sum()) if values.dtype.kind == "i" else total_weight(values)


def _running(values: Array, start: Any) -> Array:
    run = kernels.running_counts if values.dtype.kind == "i" else kernels.running_weights
    return run(values, start)  # type: ignore[no-any-return]


def _last(values: Array, start: Any, limit: Any) -> int | None:
    """First group at which the running sum reaches `limit`; the first of all for weights that reached it before."""
    if start >= limit:
        return 0 if isinstance(limit, float) and values.size else None
    if start + values.sum() < limit * (1 - _TOLERANCE if isinstance(limit, float) else 1):
        return None
    at = int(np.searchsorted(_running(values, start), limit))
    return at if at < values.size else None


def _best(neg: Array, pos: Array, start: Any, limit: Any) -> int | None:
    """Last group with positives up to which negatives stay within `limit`."""
    if start > limit:
        return None
    hits = np.flatnonzero(pos[: int(np.searchsorted(_running(neg, start), limit, side="right"))] > 0)
    return int(hits[-1]) if hits.size else None


def _no_point(text: str) -> OptionError:
    return OptionError(
        f"at={text} is no operating point; write fpr=X (0 to 1), recall=X (above 0 to 1) or k=N (1, 2, …)"
    )


def parse_at(text: str) -> OperatingPoint:
    """An operating point as it is written: ``fpr=1e-4``, ``recall=0.9``, ``k=1000``.

    Raises
    ------
    OptionError
        If it is none of these.

    Examples
    --------
    >>> parse_at("fpr=1e-4").name
    'tpr@fpr=0.0001'
    """
    kind, _, number = text.partition("=")
    try:
        at = float(number)
    except ValueError:
        raise _no_point(text) from None
    return OperatingPoint(kind.strip(), at)


def truncated(truncate: Sequence[float]) -> tuple[Agc, ...]:
    """`agc` and `agc_ratio` for each truncation, each once.

    Examples
    --------
    >>> [metric.name for metric in truncated((0.01, 200))]
    ['agc@0.01', 'agc_ratio@0.01', 'agc@200', 'agc_ratio@200']
    """
    return tuple(Agc(share, ratio) for share in dict.fromkeys(truncate) for ratio in (False, True))


def operating_points(at: Sequence[str]) -> tuple[OperatingPoint, ...]:
    """The operating points asked for, each once."""
    return tuple(dict.fromkeys(parse_at(text) for text in at))


GAIN = truncated((1,))
