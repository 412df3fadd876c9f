"""Operating points: the value of a ranking at the one threshold that a team would deploy.

A request says what the threshold must satisfy. The threshold is one of the scores, and all points with at least that
score are taken, ties included; nothing is interpolated between two thresholds.

===============  =============================================================  ==========================
asked for        the threshold                                                  results
===============  =============================================================  ==========================
``fpr=X``        largest TPR with an FPR of at most X, then the lowest FPR      ``tpr@fpr=X``
``tpr=X``        smallest FPR with a TPR of at least X, then the highest TPR    ``fpr@tpr=X``
``recall=X``     largest precision with a recall of at least X, then recall     ``precision@recall=X``
``precision=X``  largest recall with a precision of at least X, then precision  ``recall@precision=X``
``k=N``          the first that takes N points; all if there are fewer          ``precision@k=N``
``share=Q``      the first that takes a share Q of the points                   ``precision@share=Q``, …
``threshold=T``  T                                                              ``precision@threshold=T``, …
===============  =============================================================  ==========================

Notation as in `streameval.metrics.scores.ranking`: groups of equal score in descending order have p positives and n
negatives, with T positives and F negatives before them, of P and N in all. Rates are of weights; `k` and `share` count
points. T and F of exact groups are running sums down to and including a group; the points at or above a threshold are
a `Vertex`. In a histogram every edge of a bin is a threshold that could be chosen; inside an open bin the best order
has all positives first, so the best that a threshold within it may give is the vertex (T + p, F).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_POSITIVES, NO_ROWS, NO_WEIGHT, NOTHING_FLAGGED, ONE_CLASS, WEIGHTED, Metric
from streameval.metrics.scores.sums import best_share, deepest, is_counted, limit, open_corners, outward, rounding
from streameval.results import Scalar
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import State, Totals
    from streameval.states.scores.parts import ScorePart


KINDS = {
    "fpr": ("tpr",),
    "tpr": ("fpr",),
    "recall": ("precision",),
    "precision": ("recall",),
    "k": ("precision", "recall"),
    "share": ("precision", "recall", "lift"),
    "threshold": ("precision", "recall", "fpr", "flagged"),
}
_ALONE = {"k": ("precision",)}  # measures that `at` adds, if not all of `KINDS`


class Vertex(NamedTuple):
    """The points at or above a threshold: their number, positives and negatives."""

    rows: int
    true: float
    false: float
    threshold: float


@dataclass(frozen=True)
class OperatingPoint(Metric[Scalar, "ScorePart", "Vertex | Scalar | None", "State"]):
    """A measure at one threshold, where all points with at least that score are taken, ties included.

    Counts are compared exactly, with `at` as the decimal it is written as; weights with a relative tolerance of 1e-12.
    From a histogram, value and threshold are those at a bin's edge, and the interval spans the extremes over every
    order within the bins. Float32 scores are compared with the float32 number nearest to a threshold, as NumPy and
    pandas compare them.

    Attributes
    ----------
    kind : the constraint, a key of `KINDS`
    at : the number in the constraint
    measure : the measure that is the value, one of those that `KINDS` lists for the kind; by default the first
    asked : the name in results; empty for the usual one

    Raises
    ------
    OptionError
        If `at` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> for at in ("fpr=0", "recall=0.9", "precision=0.6", "k=1"):
    ...     point = compute(state, parse_at(at))
    ...     print(point.metric, round(point.value, 4), point.threshold)
    tpr@fpr=0 0.5 0.8
    precision@recall=0.9 0.6667 0.35
    recall@precision=0.6 1.0 0.35
    precision@k=1 1.0 0.8
    """

    kind: str
    at: float
    measure: str = ""
    asked: str = ""

    def __post_init__(self) -> None:
        share = 0 < self.at <= 1
        allowed = {
            "fpr": 0 <= self.at <= 1,
            "tpr": share,
            "recall": share,
            "precision": share,
            "share": share,
            "k": 1 <= self.at < math.inf and self.at % 1 == 0,
            "threshold": -math.inf < self.at < math.inf,
        }
        object.__setattr__(self, "measure", self.measure or KINDS.get(self.kind, ("",))[0])
        if not allowed.get(self.kind):
            raise _no_point(self.name)

    @property
    def name(self) -> str:
        """``tpr@fpr=0.0001``, ``precision@recall=0.9``, ``precision@k=1000``, ``lift@0.01``."""
        constraint = "" if self.measure == "lift" else f"{self.kind}="
        return self.asked or f"{self.measure}@{constraint}{format_number(self.at)}"

    def points(self, rows: int) -> int | None:
        """Number of points that are taken of `rows` points; None if the constraint is on a rate."""
        if self.kind == "k":
            return min(int(self.at), rows)
        return int(limit(self.at, rows, most=False)) if self.kind == "share" else None

    def shrunk(self, share: float) -> OperatingPoint:
        """The point for a part of the rows: a number of points is scaled so that it stays the same share of them."""
        return self if self.kind != "k" else replace(self, at=max(1, round(self.at * share)))

    def basis(self, part: ScorePart) -> OperatingPoint:
        """The point that all measures at one threshold share; from a histogram, each measure has its own bounds."""
        return self._first if part.exact else self

    @cached_property
    def _first(self) -> OperatingPoint:
        """The point with the first measure of its kind."""
        first = KINDS[self.kind][0]
        return self if self.measure == first else replace(self, measure=first)

    def due(self, total: Totals) -> float:
        """The bound of the constraint, to be reached (`fpr`: not exceeded), in rows or in the measure."""
        if self.kind in ("k", "share"):
            return min(int(self.at), total.rows) if self.kind == "k" else limit(self.at, total.rows, most=False)
        size = total.n if self.kind == "fpr" else total.p
        return limit(self.at, size, most=self.kind == "fpr")

    def value(self, true: float, false: float, total: Totals) -> float:
        """The measure of a vertex."""
        top, bottom = {
            "precision": (true, true + false),
            "recall": (true, total.p),
            "tpr": (true, total.p),
            "fpr": (false, total.n),
            "flagged": (true + false, total.n + total.p),
            "lift": (true * (total.n + total.p), (true + false) * total.p),
        }[self.measure]
        return float(top / bottom) if self.measure == "lift" else min(1.0, top / bottom)

    def partial(self, part: ScorePart) -> Vertex | Scalar | None:
        """The best vertex of exact groups, or None; for a histogram, the result."""
        if not part.exact:
            return _BOUNDS[self.kind](self, part) if part.n.size and not self.undefined(part.total) else None
        at = self._search(part) if part.n.size else -1
        if at >= 0:
            return _vertex(part, at)
        nearest = best_share(part)[0] if self.kind == "precision" and part.n.size else -1
        return _vertex(part, nearest)._replace(rows=-1) if nearest >= 0 else None

    def _search(self, part: ScorePart) -> int:
        """The group at the best threshold; −1 if there is none, or another part has a better one."""
        (false, true), before = part.sums, part.before
        if self.kind == "threshold":  # only the scores that the search compares are decoded
            return bisect_right(range(part.n.size), -float(part.compared(self.at)), key=lambda i: -part.score(i)) - 1
        if self.kind == "precision":
            return deepest(part, self.at)[0]
        due = self.due(part.total)
        if self.kind == "recall":
            return best_share(part, due, later=True)[0]
        if self.kind == "fpr":
            return _last_positive(part, int(np.searchsorted(false, due, side="right")))
        if self.kind == "tpr":
            first = 0 if before.p >= due else int(np.searchsorted(true, due))
            costly = np.flatnonzero(part.n[first + 1 :])  # positives that cost no negatives follow until there
            last = first + int(costly[0]) if costly.size else part.n.size - 1
            return max(first, _last_positive(part, last + 1)) if first < part.n.size else -1
        rows = before.rows + np.cumsum(part.rows)
        return int(np.searchsorted(rows, due)) if before.rows < due <= rows[-1] else -1

    def _best(self, found: Sequence[Vertex]) -> Vertex:
        """The best vertex of all parts."""
        if self.kind in ("fpr", "threshold"):
            return max(found)
        if self.kind in ("k", "share"):
            return min(found)
        if self.kind == "tpr":
            return min(found, key=lambda v: (v.false, -v.true, v.rows))
        if self.kind == "precision":
            return max(found, key=lambda v: (v.true, -v.false))
        most = max(v.true / (v.true + v.false) for v in found) * (1 - 1e-14)  # floats leave few to compare exactly
        close = [v for v in found if v.true / (v.true + v.false) >= most]
        return max(close, key=lambda v: (Fraction(v.true) / (Fraction(v.true) + Fraction(v.false)), v.rows))

    def undefined(self, total: Totals) -> str | None:
        """Why the value is undefined at every threshold."""
        if not total.rows:
            return ONE_CLASS if self.kind in ("fpr", "tpr") else NO_POSITIVES if self.kind == "recall" else NO_ROWS
        if not (total.n and total.p) and (self.kind in ("fpr", "tpr") or self.measure == "fpr"):
            return ONE_CLASS
        if self.measure == "flagged" and not total.n + total.p:
            return NO_WEIGHT
        of_positives = self.kind in ("recall", "precision") or self.measure in ("recall", "lift")
        return NO_POSITIVES if of_positives and not total.p else None

    def combine(self, partials: Sequence[Vertex | Scalar | None], state: State) -> Scalar:
        """The best vertex of all parts."""
        total = state.totals()
        if reason := self.undefined(total):
            return Scalar.undefined(self.name, reason)
        for part in partials:
            if isinstance(part, Scalar):
                return part
        every = [part for part in partials if isinstance(part, Vertex)]
        vertices = [vertex for vertex in every if vertex.rows >= 0]
        if not vertices:
            if self.kind == "precision":
                return self.unreachable(every)
            if self.kind == "threshold":
                return self.nothing(total)
            none = Scalar.certain(self.name, 0.0, math.inf)
            return none if self.kind == "fpr" else Scalar.undefined(self.name, NO_ROWS)
        _, true, false, threshold = self._best(vertices)
        if self.measure in ("precision", "lift") and not true + false:
            return Scalar.undefined(self.name, NO_WEIGHT)
        return Scalar.certain(
            self.name, self.value(true, false, total), self.at if self.kind == "threshold" else threshold
        )

    def nothing(self, total: Totals) -> Scalar:
        """The value where no score reaches the threshold, whose table is known: no row is flagged."""
        if self.measure == "precision":
            return replace(Scalar.undefined(self.name, NOTHING_FLAGGED), threshold=self.at)
        return Scalar.certain(self.name, 0.0, self.at)

    def unreachable(self, found: Sequence[Vertex]) -> Scalar:
        """Why no threshold satisfies it, with the nearest that is reachable."""
        reason = f"no threshold has a precision of {format_number(self.at)}"
        if found:
            best = max(found, key=lambda v: (v.true / (v.true + v.false), v.threshold))
            value = best.true / (best.true + best.false)
            reason += f"; the highest is {value:.6g}, at threshold {best.threshold:.6g}"
        return Scalar.undefined(self.name, reason)


def _vertex(part: ScorePart, at: int) -> Vertex:
    """The vertex after a group."""
    false, true = part.sums
    rows = part.before.rows + int(part.rows[: at + 1].sum())
    return Vertex(rows, true[at].item(), false[at].item(), part.score(at))


def _last_positive(part: ScorePart, end: int) -> int:
    """The last of the first `end` groups that has positives; −1 if none has."""
    hits = np.flatnonzero(part.p[:end])
    return int(hits[-1]) if hits.size else -1


def _between(
    point: OperatingPoint, part: ScorePart, value: float, ends: tuple[float, float], threshold: float
) -> Scalar:
    most = math.inf if point.measure == "lift" else 1.0
    lower, upper = outward(*ends, rounding(part.total), most=most) if ends[0] < ends[1] else ends
    value = min(upper, max(lower, value))
    return Scalar(point.name, value, lower=lower, upper=upper, exact=lower == upper, threshold=threshold)


def _bound_rate(point: OperatingPoint, part: ScorePart) -> Scalar:
    """Between the last edge allowed and all positives of the next bin."""
    false, true = part.sums
    edge = int(np.searchsorted(false, point.due(part.total), side="right"))
    hits = np.flatnonzero(part.p[:edge] > 0)
    T, P = true[edge - 1].item() if edge else 0, true[-1].item()
    more = part.p[edge].item() if edge < part.p.size and part.open[edge] else 0
    threshold = part.score(int(hits[-1])) if hits.size else math.inf
    return _between(point, part, T / P, (T / P, (T + more) / P), threshold)


def _bound_hits(point: OperatingPoint, part: ScorePart) -> Scalar:
    """Between the first edge that is deep enough and the same point without the negatives of its bin."""
    false, true = part.sums
    at = min(int(np.searchsorted(true, point.due(part.total))), true.size - 1)
    F, N = false[at].item(), part.total.n
    less = part.n[at].item() if part.open[at] else 0
    return _between(point, part, F / N, (max(0.0, (F - less) / N), min(1.0, F / N)), part.score(at))


def _bound_recall(point: OperatingPoint, part: ScorePart) -> Scalar | None:
    """The largest precision that is deep enough: of edges, and at most of open bins with their positives first."""
    at, T, F = best_share(part, due := point.due(part.total), later=True)
    if at < 0:
        return None
    hits, misses = open_corners(part)
    deep = (hits >= due) & (hits > 0)
    upper = max(T / (T + F), float((hits[deep] / (hits[deep] + misses[deep])).max(initial=0.0)))
    return _between(point, part, T / (T + F), (T / (T + F), upper), part.score(at))


def _bound_precision(point: OperatingPoint, part: ScorePart) -> Scalar:
    """The largest recall that is precise enough: of edges, and at most of open bins with their positives first."""
    at, T, F = deepest(part, point.at)
    P = part.total.p
    hits, misses = open_corners(part)
    whole = hits + misses
    enough = (hits > 0) & (hits >= point.at * (1 - 1e-12) * whole)
    upper = float(hits[enough].max(initial=0.0)) / P
    if at >= 0:
        return _between(point, part, T / P, (T / P, max(T / P, min(1.0, upper))), part.score(at))
    if upper:
        reason = (
            "no edge of the histogram's bins is precise enough, and a threshold within one may be; leave out approx"
        )
        return Scalar.undefined(point.name, f"{reason} (--approx)")
    at, T, F = best_share(part)
    return point.unreachable([Vertex(0, T, F, part.score(at))] if at >= 0 else [])


def _bound_rows(point: OperatingPoint, part: ScorePart) -> Scalar:
    """Over every order within the bin that is cut."""
    (false, true), due = part.sums, point.due(part.total)
    at = min(int(np.searchsorted(np.cumsum(part.rows), due)), part.n.size - 1)
    p, n, hidden = part.p[at].item(), part.n[at].item(), bool(part.open[at])
    T, F = (true[at] - p).item(), (false[at] - n).item()
    if not is_counted(part.total) and (hidden or not T + F + p + n):
        return Scalar.undefined(point.name, WEIGHTED if hidden else NO_WEIGHT)
    value, threshold = point.value(T + p, F + n, part.total), part.score(at)
    if not hidden:
        return Scalar.certain(point.name, value, threshold)
    m = due - T - F
    if point.measure == "recall":
        ends = (T + max(m - n, 0), part.total.p), (T + p, part.total.p)
    else:
        few, many = max(m, n), max(m, p)
        ends = (T + few - n, T + F + few), (T + p, T + F + many)
    scale = (part.total.n + part.total.p) / part.total.p if point.measure == "lift" else 1.0
    lower, upper = (top / bottom * scale for top, bottom in ends)
    return _between(point, part, value, (lower, upper), threshold)


def _bound_threshold(point: OperatingPoint, part: ScorePart) -> Scalar:
    """The bins above the threshold, and any of the rows of the bin that it cuts."""
    total, (scores, low, high), at = part.total, part.ends(slice(None)), part.compared(point.at)
    loose = part.open & (low < at) & (at < high)
    sure = (scores >= at) & ~loose
    T, F = (float(column[sure].sum()) for column in (part.p, part.n))
    p, n = (float(column[loose].sum()) for column in (part.p, part.n))
    shown = scores >= at
    if not shown.any():
        return point.nothing(total) if not loose.any() else Scalar.undefined(point.name, NOTHING_FLAGGED)
    at_edge: tuple[float, float] = tuple(column[shown].sum().item() for column in (part.p, part.n))
    if point.measure == "precision":
        if not T + F:
            return Scalar.undefined(point.name, NO_WEIGHT if not loose.any() else NOTHING_FLAGGED)
        ends = T / (T + F + n), (T + p) / (T + p + F)
    else:
        ends = point.value(T, F, total), point.value(T + p, F + n, total)
    value = point.value(*at_edge, total) if sum(at_edge) else ends[0]
    return _between(point, part, value, ends, point.at)


_BOUNDS = {
    "fpr": _bound_rate,
    "tpr": _bound_hits,
    "recall": _bound_recall,
    "precision": _bound_precision,
    "k": _bound_rows,
    "share": _bound_rows,
    "threshold": _bound_threshold,
}


def _no_point(text: str) -> OptionError:
    return OptionError(
        f"{text} is not an operating point; write fpr=X (0 to 1), tpr=X, recall=X, precision=X or share=X (above 0 "
        "to 1), k=N (1, 2, …) or threshold=X"
    )


def parse_at(text: str) -> OperatingPoint:
    """Read an operating point: ``fpr=1e-4``, ``recall=0.9``, ``k=1000``.

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
        return OperatingPoint(kind.strip(), float(number))
    except ValueError:
        given = f"at={text}"
        raise _no_point(given) from None


def operating_points(at: Sequence[str]) -> tuple[OperatingPoint, ...]:
    """The metrics of the operating points requested, without repetitions.

    Examples
    --------
    >>> [metric.name for metric in operating_points(["fpr=1e-4", "share=0.1"])]
    ['tpr@fpr=0.0001', 'precision@share=0.1', 'recall@share=0.1', 'lift@0.1']
    """
    points = [parse_at(text) for text in at]
    return tuple(
        dict.fromkeys(
            OperatingPoint(point.kind, point.at, measure)
            for point in points
            for measure in _ALONE.get(point.kind, KINDS[point.kind])
        )
    )
