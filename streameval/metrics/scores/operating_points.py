"""Operating points: one threshold that a team would deploy, and what it gives.

Notation as in `streameval.metrics.scores.ranking`: groups of equal score in descending order have p positives and n
negatives, with T positives and F negatives before them, of P and N in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.scores.gain_sums import NO_POSITIVES, NO_WEIGHT, WEIGHTED, running
from streameval.metrics.scores.undefined import HALF, ONE_CLASS, class_sizes, halved_rows, outward
from streameval.results import Scalar
from streameval.states.scores.counts import total_weight
from streameval.states.scores.histogram import Bins
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.undefined import ScoreState
    from streameval.states.scores.counts import Groups
    from streameval.typing import Array

__all__ = ["OperatingPoint", "operating_points", "parse_at"]

_TOLERANCE = 1e-12  # relative, of a sum of weights that is compared with a limit


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
    >>> from streameval.states.scores.counts import fold_arrays
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
        return f"{'tpr' if self.kind == 'fpr' else 'precision'}@{self.kind}={format_number(self.at)}"

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
        neg, pos = part.neg, part.pos
        sizes: tuple[Any, Any] = total.neg, total.pos
        F: Any = before.neg
        T: Any = before.pos
        if part.neg_weight is not None and part.pos_weight is not None:
            neg, pos, F, T = part.neg_weight, part.pos_weight, before.neg_weight, before.pos_weight
            sizes = total.neg_weight, total.pos_weight
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
        if halved_rows(state):
            return Scalar.undefined(self.name, HALF)
        N, P = class_sizes(state.totals(), weighted=state.spec.weighted)
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
        false, true = running(neg, 0), running(pos, 0)
        if not true.size or (self.kind != "k" and not true[-1]) or (self.kind == "fpr" and not false[-1]):
            return None
        if self.kind == "fpr":
            return self._rate_bounds(bins, pos, false, true)
        limit = min(int(self.at), bins.total.rows) if self.kind == "k" else self._limit(true[-1].item(), most=False)
        reach = running(bins.neg + bins.pos, 0) if self.kind == "k" else true
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
        lower, upper = outward(*ends) if weighted and ends[0] < ends[1] else ends
        return Scalar(self.name, value, lower=lower, upper=upper, exact=lower == upper, threshold=threshold)


def _sum(values: Array) -> Any:
    """Sum of counts as an integer, of weights compensated."""
    return int(values.sum()) if values.dtype.kind == "i" else total_weight(values)


def _last(values: Array, start: Any, limit: Any) -> int | None:
    """First group at which the running sum reaches `limit`; the first of all for weights that reached it before."""
    if start >= limit:
        return 0 if isinstance(limit, float) and values.size else None
    if start + values.sum() < limit * (1 - _TOLERANCE if isinstance(limit, float) else 1):
        return None
    at = int(np.searchsorted(running(values, start), limit))
    return at if at < values.size else None


def _best(neg: Array, pos: Array, start: Any, limit: Any) -> int | None:
    """Last group with positives up to which negatives stay within `limit`."""
    if start > limit:
        return None
    hits = np.flatnonzero(pos[: int(np.searchsorted(running(neg, start), limit, side="right"))] > 0)
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


def operating_points(at: Sequence[str]) -> tuple[OperatingPoint, ...]:
    """The operating points asked for, each once."""
    return tuple(dict.fromkeys(parse_at(text) for text in at))
