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
points. `streameval.metrics.scores.point_search` finds the threshold in a part, and
`streameval.metrics.scores.point_search` computes the bounds from a histogram.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_POSITIVES, NO_ROWS, NO_WEIGHT, NOTHING_FLAGGED, ONE_CLASS, Metric
from streameval.metrics.scores.point_search import Search, bounds
from streameval.metrics.scores.sums import limit
from streameval.results import Scalar
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.point_search import Vertex
    from streameval.states.protocol import Totals
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


@dataclass(frozen=True)
class OperatingPoint(Metric):
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
        asked = "" if self.measure == "lift" else f"{self.kind}="
        return f"{self.measure}@{asked}{format_number(self.at)}"

    def points(self, rows: int) -> int | None:
        """Number of points that are taken of `rows` points; None if the constraint is on a rate."""
        if self.kind == "k":
            return min(int(self.at), rows)
        return limit(self.at, rows, most=False) if self.kind == "share" else None

    def shrunk(self, share: float) -> OperatingPoint:
        """The point for a part of the rows: a number of points is scaled so that it stays the same share of them."""
        return self if self.kind != "k" else replace(self, at=max(1, round(self.at * share)))

    def basis(self, part: ScorePart) -> OperatingPoint:
        """The point that all measures at one threshold share; from a histogram, each measure has its own bounds."""
        return self._first if part.exact else self

    @cached_property
    def _first(self) -> OperatingPoint:
        """The same point with the first of its measures, computed once for all parts."""
        return replace(self, measure=KINDS[self.kind][0])

    def due(self, total: Totals) -> Any:
        """The bound of the constraint, to be reached (`fpr`: not exceeded), in rows or in the measure."""
        if self.kind in ("k", "share"):
            return min(int(self.at), total.rows) if self.kind == "k" else limit(self.at, total.rows, most=False)
        size = total.n if self.kind == "fpr" else total.p
        return limit(self.at, size, most=self.kind == "fpr")

    def value(self, true: Any, false: Any, total: Totals) -> float:
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

    def partial(self, part: ScorePart) -> Any:
        """The best vertex of exact groups, or None; for a histogram, the result."""
        return Search((self,), part).partial(part)[0] if part.exact else bounds(self, part)

    def together(self, bases: Sequence[OperatingPoint], part: ScorePart) -> Search | None:
        """Computes the partials of several points together; None for bins, which are all in one part."""
        return Search(bases, part) if part.exact else None

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

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """The best vertex of all parts."""
        total = state.totals()
        if reason := self.undefined(total):
            return Scalar.undefined(self.name, reason)
        found = [part for part in partials if part is not None]
        if found and isinstance(found[0], Scalar):
            return found[0]
        if self.kind == "precision" and not any(vertex.rows >= 0 for vertex in found):
            return self.unreachable(found)
        found = [vertex for vertex in found if vertex.rows >= 0]
        if not found and self.kind == "threshold":
            return self.nothing(total)
        if not found:
            none = Scalar.certain(self.name, 0.0, math.inf)
            return none if self.kind == "fpr" else Scalar.undefined(self.name, NO_ROWS)
        _, true, false, threshold = self._best(found)
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
