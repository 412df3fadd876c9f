"""Proper scoring rules: how far probabilities are from the labels.

A group has p positives and n negatives of score s, of P and N in all; with weights these are weights.

- Brier score: Σ [p·(1 − s)² + n·s²] / (P + N) (Brier 1950).
- Log loss: −Σ [p·ln s + n·ln(1 − s)] / (P + N), in nats.

Counts are multiplied by terms in fixed point and summed as integers, so results do not depend on the order of the rows.
In a bin of a histogram each positive and each negative may lie at either end, which bounds its term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.scores.sums import SLACK, dot, mean, outward, squares, total
from streameval.metrics.scores.undefined import NO_ROWS, NO_WEIGHT, OUTSIDE
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["BrierScore", "Ends", "LogLoss", "Probabilities", "missing", "spread"]

Ends = tuple[float, float, float]  # the lower end, the value, the upper end
_LOG_BITS = 52  # in fixed point: −ln of the smallest float is below 2^10


class Probabilities(NamedTuple):
    """Scores as probabilities: for each group the lowest, the middle and the highest it may hold; equal where exact."""

    low: Array
    middle: Array
    high: Array

    @classmethod
    def of(cls, part: ScorePart) -> Probabilities | None:
        """The probabilities of a part; None if a score is outside [0, 1].

        An open bin of a histogram whose lower edge is 0 or 1 is cut at 0 and 1: scores closer to these than a unit of
        float32 cannot be told from them.
        """
        found: Probabilities | None = part.once("probabilities", lambda: cls._made(part))
        return found

    @classmethod
    def _made(cls, part: ScorePart) -> Probabilities | None:
        scores, low, high = part.bounds
        if scores.size and not (scores[-1] >= 0.0 and scores[0] <= 1.0):  # they descend
            return None
        if part.exact:
            return cls(scores, scores, scores)
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
        return cls(low, low + (high - low) / 2, high)


def missing(partials: Sequence[Any], state: Any) -> str | None:
    """Why a metric of probabilities is undefined; None where it is defined."""
    measure = state.totals()
    if not measure.rows:
        return NO_ROWS
    if any(part is None for part in partials):
        return OUTSIDE
    return None if measure.n + measure.p else NO_WEIGHT


def spread(name: str, ends: Ends, least: float = 0.0, most: float = 1.0, slack: float = SLACK) -> Scalar:
    """A value between its ends (lower, value, upper), which are moved outward by their rounding unless they agree."""
    lower, value, upper = ends
    if lower == upper:
        return Scalar.certain(name, min(most, max(least, lower)))
    lower, upper = outward(lower, upper, slack, least, most)
    return Scalar.between(name, min(upper, max(lower, value)), lower, upper)


@dataclass(frozen=True)
class BrierScore:
    """Mean squared difference of the probability and the label, in [0, 1]; 0 is best.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.8, 0.3]))
    >>> round(compute(state, BrierScore()).value, 4)  # as sklearn.metrics.brier_score_loss
    0.0375
    """

    name: str = "brier_score"

    def partial(self, part: ScorePart) -> tuple[Any, Any, Any] | None:
        """Σ p·(1 − s)² + n·s²: the least, at the middle of open bins, the most."""
        sums: tuple[Any, Any, Any] | None = part.once("squares", lambda: self._sums(part))
        return sums

    def _sums(self, part: ScorePart) -> tuple[Any, Any, Any] | None:
        found = Probabilities.of(part)
        if found is None:
            return None

        def loss(of_pos: Array, of_neg: Array) -> Any:
            return dot(part.p, (1.0 - of_pos) ** 2) + dot(part.n, of_neg**2)

        value = squares(part.n, part.p, found.middle) if part.exact else loss(found.middle, found.middle)
        if part.exact:
            return value, value, value
        return loss(found.high, found.low), value, loss(found.low, found.high)

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """Divide by the rows."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        size = state.totals().n + state.totals().p
        lower, value, upper = (mean(total(column), size) for column in zip(*partials, strict=True))
        return spread(self.name, (lower, value, upper))


@dataclass(frozen=True)
class LogLoss:
    """Mean negative log likelihood of the labels, in nats; 0 is best, infinite where a score of 0 or 1 is wrong.

    Attributes
    ----------
    clip : probabilities are moved into [clip, 1 − clip] first; None leaves them unchanged

    Raises
    ------
    OptionError
        If `clip` is not in (0, 0.5).

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.metrics.finalize import compute
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.0, 0.3]))
    >>> compute(state, LogLoss()).value, round(compute(state, LogLoss(1e-15)).value, 4)
    (inf, 8.7765)
    """

    clip: float | None = None
    name: str = "log_loss"

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < 0.5:
            msg = f"clip={self.clip!r} must be a probability above 0 and below 0.5, such as 1e-15"
            raise OptionError(msg)

    def partial(self, part: ScorePart) -> tuple[Any, Any, Any] | None:
        """−Σ p·ln s + n·ln(1 − s): the least, at the middle of open bins, the most."""
        found = Probabilities.of(part)
        if found is None:
            return None
        if self.clip is not None:
            found = Probabilities(*(np.clip(side, self.clip, 1.0 - self.clip) for side in found))
        value = self._loss(part, found.middle, found.middle)
        if part.exact:
            return value, value, value
        return self._loss(part, found.high, found.low), value, self._loss(part, found.low, found.high)

    def _loss(self, part: ScorePart, of_pos: Array, of_neg: Array) -> Any:
        """The sum in fixed point, or infinity; a logarithm is taken where there are rows."""
        sums: Any = 0
        for measure, logarithm, scores in ((part.p, np.log, of_pos), (part.n, np.log1p, -of_neg)):
            with np.errstate(divide="ignore"):
                terms = -logarithm(scores)
            endless = np.isinf(terms)
            if endless.any():
                if (measure[endless] > 0).any():
                    return math.inf
                terms[endless] = 0.0
            sums += dot(measure, terms, _LOG_BITS)
        return sums

    def combine(self, partials: Sequence[Any], state: Any) -> Scalar:
        """Divide by the rows."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        size = state.totals().n + state.totals().p
        columns = zip(*partials, strict=True)
        lower, value, upper = (
            math.inf if math.inf in column else mean(total(column), size, _LOG_BITS) for column in columns
        )
        slack = SLACK * max(1.0, upper if upper < math.inf else lower)
        return spread(self.name, (lower, value, upper), most=math.inf, slack=slack)
