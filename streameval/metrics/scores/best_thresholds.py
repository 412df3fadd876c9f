"""The best threshold by one criterion: the largest F-measure, or the least expected cost.

A vertex flags all points with at least the score of a group: T positives and F negatives of P and N in all. Of equally
good thresholds, the highest is reported.

- F_β = (1 + β²)·T / (β²·P + T + F) (van Rijsbergen 1979).
- Expected cost of a point: (fp·F + fn·(P − T)) / (P + N). Flagging nothing is allowed too; its
  threshold is infinity.

From a histogram, the thresholds are the edges of bins; the bound assumes that in an open bin all positives come first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_POSITIVES, NO_ROWS, NO_WEIGHT, Metric
from streameval.metrics.scores.sums import SLACK, best_share, is_counted, open_corners, outward
from streameval.results import Scalar
from streameval.wording import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.protocol import Sizes
    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart


_LARGEST = 1 << 62


class _Best(NamedTuple):
    """The best vertex of a part, and the value of the best (T + p, F) within its open bins."""

    true: float
    false: float
    threshold: float
    inside: float


@dataclass(frozen=True)
class FbetaMax(Metric[Scalar, "ScorePart", "_Best | None", "State"]):
    """Largest F_β over all thresholds, in [0, 1], with its threshold.

    Attributes
    ----------
    beta : weight of recall against precision, in (0, 10⁶)

    Raises
    ------
    OptionError
        If `beta` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> found = compute(state, FbetaMax())
    >>> found.metric, found.value, found.threshold
    ('f1_max', 0.8, 0.35)
    """

    beta: float = 1

    def __post_init__(self) -> None:
        if not 0 < self.beta < 1e6:
            raise OptionError(
                f"fbeta_max@{self.beta:g} is not a weight of recall; write a number above 0 and below 1e6, such as "
                "fbeta_max@2"
            )

    @property
    def name(self) -> str:
        """``f1_max``, ``fbeta_max@2``."""
        return "f1_max" if self.beta == 1 else f"fbeta_max@{format_number(self.beta)}"

    @property
    def _square(self) -> Fraction:
        return Fraction(str(float(self.beta))) ** 2

    def partial(self, part: ScorePart) -> _Best | None:
        """The best vertex; None without positives."""
        at, true, false = best_share(part, fixed=self._square)
        if at < 0:
            return None
        inside, square = 0.0, float(self._square)
        if not part.certain:
            T, F = open_corners(part)
            whole = square * float(part.total.p) + T + F
            inside = float(np.divide(T, whole, out=np.zeros_like(T), where=whole > 0).max()) * (1 + square)
        return _Best(true, false, part.score(at), inside)

    def combine(self, partials: Sequence[_Best | None], state: State) -> Scalar:
        """The best of all parts."""
        P = state.totals().p
        values = {part: self._value(part, P) for part in partials if part is not None} if P else {}
        if not values:
            return Scalar.undefined(self.name, NO_POSITIVES)
        best = max(values, key=lambda part: (values[part], part.threshold))
        value = min(1.0, float(values[best]))
        upper = min(1.0, max(value, *(part.inside for part in values)))
        if upper > value * (1 + SLACK):
            lower, upper = outward(value, upper)
            return Scalar(self.name, value, lower=lower, upper=upper, exact=False, threshold=best.threshold)
        return Scalar.certain(self.name, value, best.threshold)

    def _value(self, part: _Best, P: float) -> Fraction:
        square, true, false = self._square, Fraction(part.true), Fraction(part.false)
        return (1 + square) * true / (square * Fraction(P) + true + false)


@dataclass(frozen=True)
class CostMin(Metric[Scalar, "ScorePart", "_Best | None", "State"]):
    """Least expected cost of a point over all thresholds, with its threshold, which is infinity if nothing is flagged.

    Attributes
    ----------
    fp, fn : cost of a flagged negative, and of a positive that is not flagged

    Raises
    ------
    OptionError
        If a cost is negative or not finite, or both are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 0, 1, 1], np.uint8), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> found = compute(state, CostMin(1, 10))
    >>> found.metric, found.value, found.threshold
    ('cost_min@fp=1,fn=10', 0.25, 0.35)
    """

    fp: float
    fn: float

    def __post_init__(self) -> None:
        if not (0 <= self.fp < math.inf and 0 <= self.fn < math.inf and self.fp + self.fn > 0):
            raise OptionError(f"cost_min@fp={self.fp:g},fn={self.fn:g}: costs are numbers of at least 0, not both 0")

    @property
    def name(self) -> str:
        """``cost_min@fp=1,fn=10``."""
        return f"cost_min@fp={format_number(self.fp)},fn={format_number(self.fn)}"

    @property
    def _costs(self) -> tuple[Fraction, Fraction]:
        return Fraction(str(float(self.fp))), Fraction(str(float(self.fn)))

    def of_flagging_all_or_nothing(self, sizes: Sizes) -> float:
        """The value of a useless score."""
        negatives, positives = (float(sizes.counts[side].sum()) for side in ("negatives", "positives"))
        return min(self.fp * negatives, self.fn * positives) / (negatives + positives)

    def partial(self, part: ScorePart) -> _Best | None:
        """The best vertex; None without groups."""
        if not part.n.size:
            return None
        false, true = part.sums
        fp, fn = self._costs
        unit = math.lcm(fp.denominator, fn.denominator)
        of_fp, of_fn = int(fp * unit), int(fn * unit)
        if not is_counted(part.total) or of_fp * part.total.n + of_fn * part.total.p >= _LARGEST:
            cost = self.fp * false.astype(float) - self.fn * true.astype(float)
        else:
            cost = of_fp * false - of_fn * true
        at, inside = int(np.argmin(cost)), math.inf
        if not part.certain:
            T, F = open_corners(part)
            inside = float((self.fp * F + self.fn * (float(part.total.p) - T)).min())
        return _Best(true[at].item(), false[at].item(), part.score(at), inside)

    def combine(self, partials: Sequence[_Best | None], state: State) -> Scalar:
        """The best vertex of all parts, or flagging nothing."""
        total = state.totals()
        size = total.n + total.p
        if not size:
            return Scalar.undefined(self.name, NO_WEIGHT if total.rows else NO_ROWS)
        nothing = _Best(0, 0, math.inf, math.inf)
        values = {part: self._value(part, total.p) for part in (nothing, *partials) if part is not None}
        best = min(values, key=lambda part: (values[part], -part.threshold))
        value = max(0.0, float(values[best] / (Fraction(total.n) + Fraction(total.p))))
        lower = min(value, *(part.inside / float(size) for part in values))
        if lower < value * (1 - SLACK):
            lower = max(0.0, lower * (1 - SLACK))
            return Scalar(self.name, value, lower=lower, upper=value, exact=False, threshold=best.threshold)
        return Scalar.certain(self.name, value, best.threshold)

    def _value(self, part: _Best, P: float) -> Fraction:
        fp, fn = self._costs
        return fp * Fraction(part.false) + fn * (Fraction(P) - Fraction(part.true))
