"""Counts in narrow bins of the logit, from which log loss and logistic recalibration are computed without the groups.

A bin is 1/1024 wide. It keeps its negatives and positives, Σ u·dᵏ for k = 1 … 5 and Σ p·d, where u = p + n and
d is the distance of a group's logit from the bin's centre c. The likelihood's gradient at a and b follows from
a Taylor series, with σ and its derivatives at z = a + b·c:

    Σ p − u·σ(a + b·x) = Σ over bins p − [u·σ + b·σ'·Σud + b²/2·σ''·Σud² + b³/6·σ'''·Σud³ + b⁴/24·σ''''·Σud⁴]

and similarly for Σ (p − u·σ)·x. As |b·d| is at most b/2048, the truncation error is below 10⁻¹⁵ a row for slopes up to
8. The log loss −Σ p·ln σ(x) + n·ln(1 − σ(x)) follows in the same way; its derivatives with respect to d are
n·σ − p·(1 − σ), u·σ', u·σ'', …. All sums are integers in fixed point, so they do not depend on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.calibration import logit_counts
from streameval.states.scores.parts import leading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

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


def joined(parts: Sequence[Bins], rows: int) -> BinnedLogits:
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
