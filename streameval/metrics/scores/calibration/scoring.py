"""Proper scoring rules: how far probabilities are from the labels.

A group has p positives and n negatives of score s, of P and N in all; with weights these are weights.

- Brier score: Σ [p·(1 − s)² + n·s²] / (P + N) (Brier 1950).
- Log loss: −Σ [p·ln s + n·ln(1 − s)] / (P + N), in nats.

Counts are multiplied by terms in fixed point and summed as integers, so results do not depend on the order of the rows.
The log loss of many rows is computed from bins of the logit (`streameval.metrics.scores.calibration.logit_table`). From
a histogram, results are bounded: each positive and each negative lies between the ends of its bin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.protocol import NO_ROWS, NO_WEIGHT, OUTSIDE, Metric, Partials
from streameval.metrics.scores.calibration.logit_table import LEAST, MANY, ROWS, binned, bins_of, joined
from streameval.metrics.scores.sums import SLACK, dot, integers, mean, outward, total
from streameval.results import Scalar
from streameval.states.scores.parts import leading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.scores.calibration.logit_table import BinnedLogits, Bins
    from streameval.states.protocol import State
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

Ends = tuple[float, float, float]  # lower bound, value, upper bound
_LOG_BITS = 52  # in fixed point: −ln of the smallest float is below 2^10
_MOST = math.nextafter(1.0, 0.0)


class Probabilities(NamedTuple):
    """Scores as probabilities: the lowest, the middle and the highest of each group, equal if the group is exact."""

    low: Array
    middle: Array
    high: Array

    @classmethod
    def of(cls, part: ScorePart) -> Probabilities | None:
        """The probabilities of a part; None if a score is outside [0, 1].

        An open bin of a histogram with an edge at 0 or 1 is cut there, although a score that is closer to 0 or 1 than
        float32 resolves may lie beyond it.
        """

        def make() -> Probabilities | None:
            scores, low, high = part.bounds
            if scores.size and not (scores[-1] >= 0.0 and scores[0] <= 1.0):  # they descend
                return None
            if part.exact:
                return cls(scores, scores, scores)
            low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
            return cls(low, low + (high - low) / 2, high)

        return part.once("probabilities", make)


def table_of(partials: Partials, bins: Sequence[Bins], state: State) -> BinnedLogits:
    """The bins of all parts, which log loss and recalibration share if their bins are the same."""
    return partials.once("logit table", bins, lambda: joined(bins, state.totals().rows))


class _Binned(NamedTuple):
    """Log loss of one part: the sum over scores outside the bins, in fixed point or infinite, and the bins."""

    ends: Any
    bins: Bins


def missing(partials: Sequence[Any], state: State) -> str | None:
    """Why a metric of probabilities is undefined; None if it is defined."""
    measure = state.totals()
    if not measure.rows:
        return NO_ROWS
    if any(part is None for part in partials):
        return OUTSIDE
    return None if measure.n + measure.p else NO_WEIGHT


def spread(name: str, ends: Ends, least: float = 0.0, most: float = 1.0, slack: float = SLACK) -> Scalar:
    """A value with its bounds (lower, value, upper), moved outward by their rounding error unless they agree."""
    lower, value, upper = ends
    if lower == upper:
        return Scalar.certain(name, min(most, max(least, lower)))
    lower, upper = outward(lower, upper, slack, least, most)
    return Scalar.between(name, min(upper, max(lower, value)), lower, upper)


@dataclass(frozen=True)
class BrierScore(Metric):
    """Mean squared difference between probability and label, in [0, 1]; 0 is best.

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
        """Σ p·(1 − s)² + n·s²: its lower bound, its value with scores at the middle of open bins, its upper bound."""
        return part.once("squares", lambda: self._sums(part))

    def _sums(self, part: ScorePart) -> tuple[Any, Any, Any] | None:
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None

        def loss(of_pos: Array, of_neg: Array) -> Any:
            return dot(part.p, (1.0 - of_pos) ** 2) + dot(part.n, of_neg**2)

        value = loss(probabilities.middle, probabilities.middle)
        if part.exact:
            return value, value, value
        return loss(probabilities.high, probabilities.low), value, loss(probabilities.low, probabilities.high)

    def combine(self, partials: Sequence[Any], state: State) -> Scalar:
        """Divide by the rows."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        size = state.totals().n + state.totals().p
        lower, value, upper = (mean(total(column), size) for column in zip(*partials, strict=True))
        return spread(self.name, (lower, value, upper))


@dataclass(frozen=True)
class LogLoss(Metric):
    """Mean negative log likelihood of the labels, in nats; 0 is best, and a wrong score of 0 or 1 makes it infinite.

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
            raise OptionError(f"clip={self.clip!r} must be a probability above 0 and below 0.5, such as 1e-15")

    def partial(self, part: ScorePart) -> Any:
        """−Σ p·ln s + n·ln(1 − s): lower bound, value at the middle of open bins, upper bound; or `_Binned`."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        if part.exact and integers(part.n) and MANY <= part.total.rows < ROWS:
            return self._binned(part, probabilities.middle)
        value = self._loss(part, slice(None), probabilities.middle, probabilities.middle)
        if part.exact:
            return value, value, value
        low, high = probabilities.low, probabilities.high
        return self._loss(part, slice(None), high, low), value, self._loss(part, slice(None), low, high)

    def _binned(self, part: ScorePart, scores: Any) -> _Binned:
        """The bins of scores that have a logit and are not clipped, and the sum over all other scores."""
        clip = self.clip or 0.0
        if not scores.size or (max(clip, LEAST) <= scores[-1] and scores[0] <= min(1.0 - clip, _MOST)):
            return _Binned(0, bins_of(part))
        first, stop = leading(scores, min(1.0 - clip, _MOST), above=True), leading(scores, max(clip, LEAST))
        ends = [self._loss(part, g, scores, scores) for g in (slice(first), slice(max(first, stop), None))]
        inside = slice(first, stop)
        return _Binned(sum(ends), binned(part.n[inside], part.p[inside], scores[inside]))

    def _loss(self, part: ScorePart, groups: slice, of_pos: Any, of_neg: Any) -> Any:
        """The sum over some groups, in fixed point or infinite; an infinite term without rows counts as 0."""
        n, p, of_pos, of_neg = (np.asarray(side[groups]) for side in (part.n, part.p, of_pos, of_neg))
        if self.clip is not None:
            of_pos, of_neg = (np.clip(side, self.clip, 1.0 - self.clip) for side in (of_pos, of_neg))
        sums: Any = 0
        for measure, logarithm, scores in ((p, np.log, of_pos), (n, np.log1p, -of_neg)):
            with np.errstate(divide="ignore"):
                terms = -logarithm(scores)
            endless = np.isinf(terms)
            if endless.any():
                if (measure[endless] > 0).any():
                    return math.inf
                terms[endless] = 0.0
            sums += dot(measure, terms, _LOG_BITS)
        return sums

    def combine(self, partials: Sequence[Any], state: State) -> Scalar:
        """Divide by the rows."""
        if reason := missing(partials, state):
            return Scalar.undefined(self.name, reason)
        size = state.totals().n + state.totals().p
        if isinstance(partials[0], _Binned):
            ends, bins = zip(*partials, strict=True)
            loss = math.inf if math.inf in ends else mean(total(ends), size, _LOG_BITS)
            return Scalar.certain(self.name, loss + table_of(Partials.of(partials), bins, state).loss() / size)
        columns = zip(*partials, strict=True)
        lower, value, upper = (
            math.inf if math.inf in column else mean(total(column), size, _LOG_BITS) for column in columns
        )
        slack = SLACK * max(1.0, upper if upper < math.inf else lower)
        return spread(self.name, (lower, value, upper), most=math.inf, slack=slack)
