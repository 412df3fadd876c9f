"""Operating points among exact groups: the best vertex of a part.

A *vertex* takes all points at or above a threshold. The counts above a part and above its end tell which points the
part can hold, and points that every group of a part satisfies share its best vertex. Counts are found by bisection of
the sums after each stride of groups (`ScorePart.levels`), weights group by group. T and F are the positives and
negatives up to and including a group, not before it as in `streameval.metrics.scores.ranking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.metrics.scores.sums import (
    FALSE,
    ROWS,
    TRUE,
    above,
    best_share,
    deepest,
    first_reaching,
    held,
    integers,
    last_within,
    reached,
)

if TYPE_CHECKING:
    from streameval.states.scores.parts import ScorePart


class Vertex(NamedTuple):
    """The points at or above a threshold: their number, positives and negatives."""

    rows: int
    true: Any
    false: Any
    threshold: float


def best_vertex(part: ScorePart, kind: str, due: Any) -> Vertex | None:
    """The best vertex of an exact part; None if there is none, or another part has a better one.

    If no vertex has the requested precision, it is the one with the highest precision, with −1 rows.

    Parameters
    ----------
    part : the groups
    kind : see `streameval.metrics.scores.operating_points.OperatingPoint`
    due : what the threshold, the precision or the running sum must reach, or may not exceed
    """
    if not part.n.size:
        return None
    find = _OF_COUNTS if integers(part.n) and part.counts is None else _OF_WEIGHTS
    return find[kind](part, due)


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
