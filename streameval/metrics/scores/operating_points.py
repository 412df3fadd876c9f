"""Operating points: what a ranking gives at the one threshold that a team would deploy.

Notation as in `streameval.metrics.scores.ranking`: groups of equal score in descending order have p positives and n
negatives, with T positives and F negatives before them, of P and N in all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.scores.sums import counted, last_within, limit, outward, reached, rounding, running, sum_of
from streameval.metrics.scores.undefined import NO_POSITIVES, NO_ROWS, NO_WEIGHT, ONE_CLASS, WEIGHTED
from streameval.results import Scalar
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["OperatingPoint", "operating_points", "parse_at"]


@dataclass(frozen=True)
class OperatingPoint:
    """What one threshold gives when all points with at least that score are taken, ties included.

    - ``fpr``: the best true positive rate among thresholds whose false positive rate is at most `at`, at the highest
      threshold that reaches it; 0 at threshold infinity where even the first group has too many negatives.
    - ``recall``: the precision at the highest threshold whose recall is at least `at`.
    - ``k``: the precision among the top `at` points, groups whole until that many *points* are reached; all if there
      are fewer. Rates are of weights, `at` counts points.

    Counts are compared exactly, with `at` as the decimal it is written as; weights with a relative tolerance of 1e-12.
    From a histogram, value and threshold are those at a bin's edge, and the interval spans the extremes over every
    order within the bin that is cut.

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

    def partial(self, part: ScorePart) -> Any:
        """The candidate of exact groups: position, T and F at its threshold, the threshold; None if they have none.

        Of bins the result.
        """
        if not part.exact:
            return self._bounds(part)
        before, total = part.before, part.total
        if self.kind == "k":
            at = reached(part.rows, before.rows, min(int(self.at), total.rows))
        elif self.kind == "recall":
            at = reached(part.p, before.p, limit(self.at, total.p, most=False))
        else:
            at = last_within(part.n, part.p, before.n, limit(self.at, total.n, most=True))
        if at is None:
            return None
        end = at + 1
        return before.rows + at, before.p + sum_of(part.p[:end]), before.n + sum_of(part.n[:end]), part.score(at)

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """The first candidate; for ``fpr`` the last."""
        total = state.totals()
        if self.kind == "fpr" and not (total.n and total.p):
            return Scalar.undefined(self.name, ONE_CLASS)
        if self.kind == "recall" and not total.p:
            return Scalar.undefined(self.name, NO_POSITIVES)
        found = [part for part in partials if part is not None]
        if not found:
            none = Scalar.certain(self.name, 0.0, math.inf)
            return none if self.kind == "fpr" else Scalar.undefined(self.name, NO_ROWS)
        if isinstance(found[0], Scalar):
            return found[0]
        _, true, false, threshold = max(found) if self.kind == "fpr" else min(found)
        if self.kind != "fpr" and not true + false:
            return Scalar.undefined(self.name, NO_WEIGHT)
        value = true / total.p if self.kind == "fpr" else true / (true + false)
        return Scalar.certain(self.name, min(1.0, value), threshold)

    def _bounds(self, part: ScorePart) -> Scalar | None:
        """Value at an edge and its extremes; None where nothing is defined."""
        false, true = running(part.n, 0), running(part.p, 0)
        if not true.size or (self.kind != "k" and not true[-1]) or (self.kind == "fpr" and not false[-1]):
            return None
        if self.kind == "fpr":
            return self._rate_bounds(part, false, true)
        by_rows = self.kind == "k"
        least = min(int(self.at), part.total.rows) if by_rows else limit(self.at, true[-1].item(), most=False)
        at = int(np.searchsorted(running(part.rows, 0) if by_rows else true, least))
        p, n, hidden = part.p[at].item(), part.n[at].item(), bool(part.open[at])
        T, F = (true[at] - p).item(), (false[at] - n).item()
        if by_rows and not counted(part.total) and (hidden or not T + F + p + n):
            return Scalar.undefined(self.name, WEIGHTED if hidden else NO_WEIGHT)
        value, threshold = (T + p) / (T + p + F + n), part.score(at)
        if not hidden:
            return Scalar.certain(self.name, min(1.0, value), threshold)
        if self.kind == "recall":
            ends = least / (least + F + n), (T + p) / (T + p + F)
        else:
            few, many = max(least - T - F, n), max(least - T - F, p)
            ends = (T + few - n) / (T + F + few), (T + p) / (T + F + many)
        return self._bounded(value, ends, threshold, rounding(part.total))

    def _rate_bounds(self, part: ScorePart, false: Array, true: Array) -> Scalar:
        """Bounds of the true positive rate: between the last edge allowed and all positives of the next bin."""
        edge = int(np.searchsorted(false, limit(self.at, false[-1].item(), most=True), side="right"))
        hits = np.flatnonzero(part.p[:edge] > 0)
        T, P = true[edge - 1].item() if edge else 0, true[-1].item()
        more = part.p[edge].item() if edge < part.p.size and part.open[edge] else 0
        threshold = part.score(int(hits[-1])) if hits.size else math.inf
        return self._bounded(T / P, (T / P, (T + more) / P), threshold, rounding(part.total))

    def _bounded(self, value: float, ends: tuple[float, float], threshold: float, slack: float) -> Scalar:
        lower, upper = outward(*ends, slack) if ends[0] < ends[1] else ends
        return Scalar(self.name, value, lower=lower, upper=upper, exact=lower == upper, threshold=threshold)


def _no_point(text: str) -> OptionError:
    return OptionError(
        f"at={text} is not an operating point; write fpr=X (0 to 1), recall=X (above 0 to 1) or k=N (1, 2, …)"
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
        at = float(number)
    except ValueError:
        raise _no_point(text) from None
    return OperatingPoint(kind.strip(), at)


def operating_points(at: Sequence[str]) -> tuple[OperatingPoint, ...]:
    """The operating points requested, without repetitions."""
    return tuple(dict.fromkeys(parse_at(text) for text in at))
