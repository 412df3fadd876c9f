"""Proper scoring rules: how far probabilities are from the labels.

A group has p positives and n negatives of score s, of P and N in all; with weights these are weights.

- Brier score: Σ [p·(1 − s)² + n·s²] / (P + N) (Brier 1950).
- Log loss: −Σ [p·ln s + n·ln(1 − s)] / (P + N), in nats.

Counts are multiplied by terms in fixed point and summed as integers, so results do not depend on the order of the rows.
From a histogram, results are bounded: each positive and each negative lies between the ends of its bin.

*Bins of the logit.* The log loss of many rows and logistic recalibration are computed without the groups, from counts
in narrow bins. A bin is 1/1024 wide. It keeps its negatives and positives, Σ u·dᵏ for k = 1 … 5 and Σ p·d, where
u = p + n and d is the distance of a group's logit from the bin's centre c. The likelihood's gradient at a and b follows
from a Taylor series, with σ and its derivatives at z = a + b·c:

    Σ p − u·σ(a + b·x) = Σ over bins p − [u·σ + b·σ'·Σud + b²/2·σ''·Σud² + b³/6·σ'''·Σud³ + b⁴/24·σ''''·Σud⁴]

and similarly for Σ (p − u·σ)·x. As |b·d| is at most b/2048, the truncation error is below 10⁻¹⁵ a row for slopes up to
8. The log loss −Σ p·ln σ(x) + n·ln(1 − σ(x)) follows in the same way; its derivatives with respect to d are
n·σ − p·(1 − σ), u·σ', u·σ'', …. All sums are integers in fixed point, so they do not depend on the order of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.calibration import logit_counts
from streameval.metrics.protocol import NO_ROWS, NO_WEIGHT, OUTSIDE, Metric, Partials
from streameval.metrics.scores.sums import SLACK, MeanOfRows, dot, integers, mean, outward, total
from streameval.results import Scalar
from streameval.states.scores.parts import ScorePart, leading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.protocol import Source, State
    from streameval.typing import Array


P = TypeVar("P")

GENTLE = 8.0  # largest slope for which the series is exact up to rounding
_SCALE, _SPAN = 1024, 40  # bins per unit of the logit; logits from −40 to 40 have bins
ROWS = 1 << 33  # number of rows from which on sums may overflow a word
LEAST = 4.25e-18  # smallest probability with a bin; every probability below 1 that is larger has one
_COLUMNS = 10  # negatives, positives, moments
MANY = 1 << 17  # number of rows from which on bins are faster than a logarithm for each score

Bins = tuple[int, "Array", tuple[float, float] | None]  # first bin, columns from there on, smallest and largest logit


@dataclass(frozen=True, eq=False)
class BinnedLogits:
    """The bins of all parts.

    Attributes
    ----------
    centre : float64 array of shape (n_bins,), logits
    n, p : float64 arrays of shape (n_bins,), negatives and positives
    moments : float64 array of shape (5, n_bins), Σ u·dᵏ
    hits : float64 array of shape (n_bins,), Σ p·d
    exact : whether every logit is within (−40, 40) and no sum can overflow its word
    """

    centre: Array
    n: Array
    p: Array
    moments: Array
    hits: Array
    exact: bool

    def derivatives(self, a: float, b: float, *, joint: bool = True) -> tuple[float, float, float, float, float]:
        """The likelihood's derivatives with respect to a and b, and its curvature (aa, ab, bb).

        The curvature has a relative error of about b·10⁻³. Without `joint`, b is fixed, and the derivatives
        that involve it are 0.
        """
        c, u, (m1, m2, m3, m4, m5) = self.centre, self.n + self.p, self.moments
        s, rest = _sides(a + b * c)
        s1 = s * rest
        s2, s3, s4 = s1 * (1 - 2 * s), s1 * (1 - 6 * s1), s1 * (1 - 2 * s) * (1 - 12 * s1)
        over = b * s1 * m1 + b**2 / 2 * s2 * m2 + b**3 / 6 * s3 * m3 + b**4 / 24 * s4 * m4
        slack, curve = self.p * rest - self.n * s - over, u * s1
        if not joint:
            return float(slack.sum()), 0.0, float(curve.sum()), 0.0, 0.0
        apart = s * m1 + b * s1 * m2 + b**2 / 2 * s2 * m3 + b**3 / 6 * s3 * m4 + b**4 / 24 * s4 * m5
        terms = slack, slack * c + (self.hits - apart), curve, curve * c, curve * c * c
        of_a, of_b, aa, ab, bb = (float(term.sum()) for term in terms)
        return of_a, of_b, aa, ab, bb

    def loss(self) -> float:
        """Σ −p·ln σ(x) − n·ln(1 − σ(x)) over the bins, in nats; small terms keep their relative precision."""
        c, n, p, (m1, m2, m3, m4, m5) = self.centre, self.n, self.p, self.moments
        s, rest = _sides(c)
        s1 = s * rest
        s2, s3, s4 = s1 * (1 - 2 * s), s1 * (1 - 6 * s1), s1 * (1 - 2 * s) * (1 - 12 * s1)
        at_centres = p * np.logaddexp(0.0, -c) + n * np.logaddexp(0.0, c)
        apart = s * (m1 - self.hits) - rest * self.hits + s1 / 2 * m2 + s2 / 6 * m3 + s3 / 24 * m4 + s4 / 120 * m5
        return float((at_centres + apart).sum())


def _sides(z: Array) -> tuple[Array, Array]:
    """σ(z) and 1 − σ(z), each with full relative precision."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-z)), 1.0 / (1.0 + np.exp(z))


def bins_of(part: ScorePart) -> Bins:
    """The bins of a part of counts; every score must have a logit."""
    return part.once("logit bins", lambda: binned(part.n, part.p, part.scores))


def binned(n: Array, p: Array, scores: Array) -> Bins:
    """The bins of groups with descending scores between 0 and 1; groups with scores below `LEAST` are left out."""
    if not scores.size:
        return 0, np.zeros((_COLUMNS, 0), np.int64), None
    ends = [float(np.log(s / (1.0 - s))) for s in (scores[-1], scores[0])]
    low, high = (int(min(max((end + _SPAN) * _SCALE, 1), 2 * _SPAN * _SCALE)) for end in ends)
    first = low - 1  # rounding may move an end to the next bin
    table = np.zeros((_COLUMNS, high - low + 3), np.int64)
    groups = slice(leading(scores, LEAST))
    logit_counts(n[groups], p[groups], scores[groups], float(_SCALE), float(_SPAN), first, table)
    return first, table, (ends[0], ends[1])


def join_bins(parts: Sequence[Bins], rows: int) -> BinnedLogits:
    """The bins of all parts, which have this number of rows together."""
    filled = [(first, columns) for first, columns, _ in parts if columns.size]
    lowest = min((first for first, _ in filled), default=0)
    highest = max((first + columns.shape[1] for first, columns in filled), default=0)
    table = np.zeros((_COLUMNS, highest - lowest), np.int64)
    for first, columns in filled:
        table[:, first - lowest : first - lowest + columns.shape[1]] += columns
    occupied = np.flatnonzero(table[0] + table[1])
    at = occupied + lowest
    n, p, coarse, fine, hits, hits_fine, *higher = table[:, occupied].astype(float)
    d, unit = 1.0 / _SCALE, 1.0 / (1 << 30)
    first = (coarse / (1 << 20) + fine / (1 << 40)) * d
    moments = np.stack([first, *(m * unit * d**k for k, m in enumerate(higher, 2))])
    inside = all(ends is None or max(map(abs, ends)) < _SPAN for _, _, ends in parts)
    centre = (at + 0.5) / _SCALE - _SPAN
    return BinnedLogits(
        centre, n, p, moments, (hits / (1 << 20) + hits_fine / (1 << 40)) * d, exact=inside and rows < ROWS
    )


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
    return partials.once("logit table", bins, lambda: join_bins(bins, state.totals().rows))


class _Binned(NamedTuple):
    """Log loss of one part: the sum over scores outside the bins, in fixed point or infinite, and the bins."""

    ends: float
    bins: Bins


def missing(partials: Sequence[object], state: Source) -> str | None:
    """Why a metric of probabilities is undefined; None if it is defined."""
    measure = state.totals()
    if not measure.rows:
        return NO_ROWS
    if any(part is None for part in partials):
        return OUTSIDE
    return None if measure.n + measure.p else NO_WEIGHT


def present(partials: Sequence[P | None], state: Source) -> list[P] | str:
    """The partials, or why a metric of probabilities is undefined."""
    return missing(partials, state) or cast("list[P]", partials)


def spread(name: str, ends: Ends, least: float = 0.0, most: float = 1.0, slack: float = SLACK) -> Scalar:
    """A value with its bounds (lower, value, upper), moved outward by their rounding error unless they agree."""
    lower, value, upper = ends
    if lower == upper:
        return Scalar.certain(name, min(most, max(least, lower)))
    lower, upper = outward(lower, upper, slack, least, most)
    return Scalar.between(name, min(upper, max(lower, value)), lower, upper)


@dataclass(frozen=True)
class BrierScore(Metric[Scalar, "ScorePart", "Ends | None", "State"], MeanOfRows):
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

    def partial(self, part: ScorePart) -> Ends | None:
        """Σ p·(1 − s)² + n·s²: its lower bound, its value with scores at the middle of open bins, its upper bound."""
        return part.once("squares", lambda: self._sums(part))

    def _sums(self, part: ScorePart) -> Ends | None:
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None

        def loss(of_pos: Array, of_neg: Array) -> float:
            return dot(part.p, self.terms(of_pos, positive=True)) + dot(part.n, self.terms(of_neg, positive=False))

        value = loss(probabilities.middle, probabilities.middle)
        if part.exact:
            return value, value, value
        return loss(probabilities.high, probabilities.low), value, loss(probabilities.low, probabilities.high)

    def combine(self, partials: Sequence[Ends | None], state: State) -> Scalar:
        """Divide by the rows."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        size = state.totals().n + state.totals().p
        lower, value, upper = (mean(total(column), size) for column in zip(*sums, strict=True))
        return spread(self.name, (lower, value, upper))

    def terms(self, scores: Array, *, positive: bool) -> Array:
        """The squared distance of each score from the label."""
        squares: Array = (1.0 - scores) ** 2 if positive else scores**2
        return squares


@dataclass(frozen=True)
class LogLoss(Metric[Scalar, "ScorePart", "Ends | _Binned | None", "State"]):
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

    def partial(self, part: ScorePart) -> Ends | _Binned | None:
        """−Σ p·ln s + n·ln(1 − s): lower bound, value at the middle of open bins, upper bound; or `_Binned`."""
        probabilities = Probabilities.of(part)
        if probabilities is None:
            return None
        if part.exact and integers(part.n) and MANY <= part.total.rows < ROWS:
            return self._bin_logits(part, probabilities.middle)
        value = self._loss(part, slice(None), probabilities.middle, probabilities.middle)
        if part.exact:
            return value, value, value
        low, high = probabilities.low, probabilities.high
        return self._loss(part, slice(None), high, low), value, self._loss(part, slice(None), low, high)

    def _bin_logits(self, part: ScorePart, scores: Array) -> _Binned:
        """The bins of scores that have a logit and are not clipped, and the sum over all other scores."""
        clip = self.clip or 0.0
        if not scores.size or (max(clip, LEAST) <= scores[-1] and scores[0] <= min(1.0 - clip, _MOST)):
            return _Binned(0, bins_of(part))
        first, stop = leading(scores, min(1.0 - clip, _MOST), above=True), leading(scores, max(clip, LEAST))
        ends = [self._loss(part, g, scores, scores) for g in (slice(first), slice(max(first, stop), None))]
        inside = slice(first, stop)
        return _Binned(sum(ends), binned(part.n[inside], part.p[inside], scores[inside]))

    def _loss(self, part: ScorePart, groups: slice, of_pos: Array, of_neg: Array) -> float:
        """The sum over some groups, in fixed point or infinite; an infinite term without rows counts as 0."""
        n, p, of_pos, of_neg = (np.asarray(side[groups]) for side in (part.n, part.p, of_pos, of_neg))
        if self.clip is not None:
            of_pos, of_neg = (np.clip(side, self.clip, 1.0 - self.clip) for side in (of_pos, of_neg))
        sums: float = 0
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

    def combine(self, partials: Sequence[Ends | _Binned | None], state: State) -> Scalar:
        """Divide by the rows."""
        if isinstance(sums := present(partials, state), str):
            return Scalar.undefined(self.name, sums)
        size = state.totals().n + state.totals().p
        if binned := [part for part in sums if isinstance(part, _Binned)]:  # then all are
            ends, bins = zip(*binned, strict=True)
            loss = math.inf if math.inf in ends else mean(total(ends), size, _LOG_BITS)
            return Scalar.certain(self.name, loss + table_of(Partials.of(partials), bins, state).loss() / size)
        columns = zip(*cast("list[Ends]", sums), strict=True)
        lower, value, upper = (
            math.inf if math.inf in column else mean(total(column), size, _LOG_BITS) for column in columns
        )
        slack = SLACK * max(1.0, upper if upper < math.inf else lower)
        return spread(self.name, (lower, value, upper), most=math.inf, slack=slack)
