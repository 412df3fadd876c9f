"""Operating points of a histogram: the value at a bin's edge, and the interval that is certain to hold the exact one.

Every edge of a bin is a threshold that could be chosen. Inside an open bin the best order has all positives first, so
the best that a threshold within it may give is the vertex (T + p, F). Notation as in
`streameval.metrics.scores.ranking`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from streameval.metrics.protocol import NO_WEIGHT, NOTHING_FLAGGED, WEIGHTED
from streameval.metrics.scores.sums import (
    FALSE,
    ROWS,
    TRUE,
    above,
    best_share,
    counted,
    deepest,
    first_reaching,
    held,
    integers,
    last_within,
    outward,
    reached,
    rounding,
    running,
)
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import Totals
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array


class Vertex(NamedTuple):
    """The points at or above a threshold: their number, positives and negatives."""

    rows: int
    true: Any
    false: Any
    threshold: float


class Point(Protocol):
    """The part of a `streameval.metrics.scores.operating_points.OperatingPoint` that bounds need."""

    @property
    def kind(self) -> str:
        """The constraint."""

    @property
    def at(self) -> float:
        """The number in the constraint."""

    @property
    def measure(self) -> str:
        """The measure that is the value."""

    @property
    def name(self) -> str:
        """The name in results."""

    def due(self, total: Totals) -> Any:
        """The bound of the constraint, to be reached or not to be exceeded."""

    def value(self, true: Any, false: Any, total: Totals) -> float:
        """The measure of a vertex."""

    def undefined(self, total: Totals) -> str | None:
        """Why the value is undefined at every threshold."""

    def nothing(self, total: Totals) -> Scalar:
        """The value if no score reaches the threshold."""

    def unreachable(self, found: Sequence[Vertex]) -> Scalar:
        """The undefined result, with the reason why no threshold satisfies the constraint."""


def bounds(point: Point, part: ScorePart) -> Scalar | None:
    """The value at an edge with its extremes; None if it is undefined at every threshold."""
    if not part.n.size or point.undefined(part.total):
        return None
    find = {
        "fpr": _bound_rate,
        "tpr": _bound_hits,
        "recall": _bound_recall,
        "precision": _bound_precision,
        "k": _bound_rows,
        "share": _bound_rows,
        "threshold": _bound_threshold,
    }
    return find[point.kind](point, part)


def _between(point: Point, part: ScorePart, value: float, ends: tuple[float, float], threshold: float) -> Scalar:
    most = math.inf if point.measure == "lift" else 1.0
    lower, upper = outward(*ends, rounding(part.total), most=most) if ends[0] < ends[1] else ends
    value = min(upper, max(lower, value))
    return Scalar(point.name, value, lower=lower, upper=upper, exact=lower == upper, threshold=threshold)


def _bound_rate(point: Point, part: ScorePart) -> Scalar:
    """Between the last edge allowed and all positives of the next bin."""
    false, true = running(part.n, 0), running(part.p, 0)
    edge = int(np.searchsorted(false, point.due(part.total), side="right"))
    hits = np.flatnonzero(part.p[:edge] > 0)
    T, P = true[edge - 1].item() if edge else 0, true[-1].item()
    more = part.p[edge].item() if edge < part.p.size and part.open[edge] else 0
    threshold = part.score(int(hits[-1])) if hits.size else math.inf
    return _between(point, part, T / P, (T / P, (T + more) / P), threshold)


def _bound_hits(point: Point, part: ScorePart) -> Scalar:
    """Between the first edge that is deep enough and the same point without the negatives of its bin."""
    false, true = running(part.n, 0), running(part.p, 0)
    at = min(int(np.searchsorted(true, point.due(part.total))), true.size - 1)
    F, N = false[at].item(), part.total.n
    less = part.n[at].item() if part.open[at] else 0
    return _between(point, part, F / N, (max(0.0, (F - less) / N), min(1.0, F / N)), part.score(at))


def _inside(part: ScorePart) -> tuple[Array, Array]:
    """T + p and F of every open bin."""
    false, true = running(part.n, 0), running(part.p, 0)
    return true[part.open].astype(float), (false - part.n)[part.open].astype(float)


def _bound_recall(point: Point, part: ScorePart) -> Scalar | None:
    """The largest precision that is deep enough: of edges, and at most of open bins with their positives first."""
    at, T, F = best_share(part, due := point.due(part.total), later=True)
    if at < 0:
        return None
    hits, misses = _inside(part)
    deep = (hits >= due) & (hits > 0)
    upper = max(T / (T + F), float((hits[deep] / (hits[deep] + misses[deep])).max(initial=0.0)))
    return _between(point, part, T / (T + F), (T / (T + F), upper), part.score(at))


def _bound_precision(point: Point, part: ScorePart) -> Scalar:
    """The largest recall that is precise enough: of edges, and at most of open bins with their positives first."""
    at, T, F = deepest(part, point.at)
    P = part.total.p
    hits, misses = _inside(part)
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


def _bound_rows(point: Point, part: ScorePart) -> Scalar:
    """Over every order within the bin that is cut."""
    false, true = running(part.n, 0), running(part.p, 0)
    due = point.due(part.total)
    at = reached(part.rows, 0, due)
    at = part.n.size - 1 if at is None else at
    p, n, hidden = part.p[at].item(), part.n[at].item(), bool(part.open[at])
    T, F = (true[at] - p).item(), (false[at] - n).item()
    if not counted(part.total) and (hidden or not T + F + p + n):
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


def _bound_threshold(point: Point, part: ScorePart) -> Scalar:
    """The bins above the threshold, and any of the rows of the bin that it cuts."""
    total, (scores, low, high), at = part.total, part.ends(slice(None)), part.compared(point.at)
    loose = part.open & (low < at) & (at < high)
    sure = (scores >= at) & ~loose
    T, F = (float(column[sure].sum()) for column in (part.p, part.n))
    p, n = (float(column[loose].sum()) for column in (part.p, part.n))
    shown = scores >= at
    if not shown.any():
        return point.nothing(total) if not loose.any() else Scalar.undefined(point.name, NOTHING_FLAGGED)
    at_edge: tuple[Any, Any] = tuple(column[shown].sum().item() for column in (part.p, part.n))
    if point.measure == "precision":
        if not T + F:
            return Scalar.undefined(point.name, NO_WEIGHT if not loose.any() else NOTHING_FLAGGED)
        ends = T / (T + F + n), (T + p) / (T + p + F)
    else:
        ends = point.value(T, F, total), point.value(T + p, F + n, total)
    value = point.value(*at_edge, total) if sum(at_edge) else ends[0]
    return _between(point, part, value, ends, point.at)


class Search:
    """Operating points that are searched together, in the exact parts of one state.

    Parameters
    ----------
    points : the points; each has a single threshold
    part : any part of the state
    """

    def __init__(self, points: Sequence[Point], part: ScorePart) -> None:
        self._points = [(point, _due(point, part)) for point in points]

    def partial(self, part: ScorePart) -> list[Vertex | None]:
        """The best vertex of a part for each point; None if there is none, or another part has a better one.

        If no vertex has the requested precision, it is the one with the highest precision, with −1 rows.
        """
        if not part.n.size:
            return [None] * len(self._points)
        plain = integers(part.n) and part.counts is None
        find = _OF_COUNTS if plain else _OF_WEIGHTS
        return [find[point.kind](part, due) for point, due in self._points]


def _due(point: Point, part: ScorePart) -> Any:
    """The bound that the threshold, the precision or the running sum must reach, or may not exceed."""
    if point.kind == "threshold":
        return float(part.compared(point.at))
    return point.at if point.kind == "precision" else point.due(part.total)


def _at(part: ScorePart, group: int) -> Vertex:
    """The vertex after a group of counts."""
    false, true = above(part, group + 1)
    return Vertex(true + false, true, false, part.score(group))


def _ended(part: ScorePart, end: int) -> Vertex | None:
    """The vertex after the last positive among the first `end` groups of counts."""
    true = above(part, end)[TRUE]
    return _at(part, first_reaching(part, TRUE, true)) if true > part.before.p else None


def _free(part: ScorePart, group: int) -> Vertex | None:
    """The vertex after the last positive that costs no negatives beyond those up to a group."""
    return _ended(part, first_reaching(part, FALSE, above(part, group + 1)[FALSE] + 1))


def _rate_of(part: ScorePart, due: int) -> Vertex | None:
    """The last positive within a number of negatives."""
    if due < part.before.n:
        return None
    end = part.n.size
    if above(part, end)[FALSE] <= due:
        found: Vertex | None = part.once("last positive", lambda: _ended(part, end))
        return found
    return _ended(part, first_reaching(part, FALSE, due + 1))


def _hits_of(part: ScorePart, due: int) -> Vertex | None:
    """The first group that reaches a number of positives, and the positives after it that cost no negatives."""
    if part.before.p >= due:  # a vertex of an earlier part does, and is better if the first group has negatives
        found: Vertex | None = None if part.n[0] else part.once("free", lambda: _free(part, 0))
        return found
    return _free(part, first_reaching(part, TRUE, due)) if above(part, part.n.size)[TRUE] >= due else None


def _of_recall(part: ScorePart, due: int) -> Vertex | None:
    """The last of the groups with the largest precision that reach a number of positives."""
    if part.before.p >= due:  # every group does
        found: Vertex | None = part.once("most precise", lambda: _precise(part, 0))
        return found
    return _precise(part, due) if above(part, part.n.size)[TRUE] >= due else None


def _precise(part: ScorePart, due: Any) -> Vertex | None:
    at, true, false = best_share(part, due, later=True)
    return _shared(part, at, true, false)


def _of_precision(part: ScorePart, share: float) -> Vertex | None:
    """The first group with the largest T of those that reach a precision, or how near the part comes to it."""
    at, true, false = deepest(part, share)
    return _shared(part, at, true, false) if at >= 0 else part.once("nearest", lambda: _nearest(part))


def _nearest(part: ScorePart) -> Vertex | None:
    at, true, false = best_share(part)
    return Vertex(-1, true, false, part.score(at)) if at >= 0 else None


def _shared(part: ScorePart, at: int, true: Any, false: Any) -> Vertex | None:
    """The vertex after a group, whose T and F are known; None if there is no group."""
    if at < 0:
        return None
    rows = true + false if part.counts is None else part.before.rows + held(part, at + 1)[0]
    return Vertex(rows, true, false, part.score(at))


def _of_rows(part: ScorePart, due: int) -> Vertex | None:
    """The first group that reaches a number of rows."""
    inside = part.before.rows < due <= sum(above(part, part.n.size))
    return _at(part, first_reaching(part, ROWS, due)) if inside else None


def _of_threshold(part: ScorePart, threshold: float) -> Vertex | None:
    """The last group at or above a threshold."""
    end = _reaching(part, threshold)
    if end == part.n.size:
        found: Vertex | None = part.once("end", lambda: _at(part, end - 1))
        return found
    return _at(part, end - 1) if end else None


def _reaching(part: ScorePart, threshold: float) -> int:
    """Groups at or above a threshold, by bisection: scores are decoded only as the search reads them."""
    low, high = 0, part.n.size
    first, last = part.once("edges", lambda: (part.score(0), part.score(high - 1)))
    if last >= threshold:
        return high
    if first < threshold:
        return 0
    while low < high:
        middle = (low + high) // 2
        if part.score(middle) >= threshold:
            low = middle + 1
        else:
            high = middle
    return low


# Weights: running sums are rounded, so that the sums above a part decide nothing.


def _weighed(part: ScorePart, last: int | None) -> Vertex | None:
    """The vertex after a group; None if there is no group."""
    if last is None or last < 0:
        return None
    before, (rows, n, p) = part.before, held(part, last + 1)
    return Vertex(before.rows + rows, before.p + p, before.n + n, part.score(last))


def _weight_of_hits(part: ScorePart, due: Any) -> Vertex | None:
    last = 0 if part.before.p >= due else reached(part.p, part.before.p, due)
    if last is None:
        return None
    misses = part.n[last + 1 :] > 0
    free = part.p[last + 1 :][: misses.argmax() if misses.any() else None]  # groups that add no negatives
    hits = np.flatnonzero(free > 0)
    return _weighed(part, last + (int(hits[-1]) + 1 if hits.size else 0))


def _weight_of_rows(part: ScorePart, due: int) -> Vertex | None:
    rows = part.before.rows
    inside = rows < due <= rows + held(part, part.n.size)[0]
    return _weighed(part, reached(part.rows, rows, due)) if inside else None


_OF_COUNTS = {
    "fpr": _rate_of,
    "tpr": _hits_of,
    "recall": _of_recall,
    "precision": _of_precision,
    "k": _of_rows,
    "share": _of_rows,
    "threshold": _of_threshold,
}
_OF_WEIGHTS = _OF_COUNTS | {
    "fpr": lambda part, due: _weighed(part, last_within(part, due)),
    "tpr": _weight_of_hits,
    "recall": _precise,
    "k": _weight_of_rows,
    "share": _weight_of_rows,
    "threshold": lambda part, threshold: _weighed(part, _reaching(part, threshold) - 1),
}
