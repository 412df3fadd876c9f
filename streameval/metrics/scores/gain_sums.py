"""Sums under the gain curve, and the ratio that normalises their area; see `streameval.metrics.scores.gain`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels import gain as kernels
from streameval.metrics.scores.undefined import integer

if TYPE_CHECKING:
    from streameval.states.scores.counts import Groups
    from streameval.typing import Array

__all__ = [
    "NO_NEGATIVES",
    "NO_POSITIVES",
    "NO_WEIGHT",
    "WEIGHTED",
    "GainSums",
    "gain_sums",
    "kept_groups",
    "kept_points",
    "quotient",
    "running",
]

NO_POSITIVES = "no positives"
NO_NEGATIVES = "no negatives"
NO_WEIGHT = "no weight in the part kept"
WEIGHTED = "a histogram cannot bound a weighted metric cut at a number of points; leave out approx (--approx)"


_ENDLESS = 1e300  # an integer above may be no float


def kept_points(truncate: float, rows: int) -> int:
    """Points that a truncation asks for, of `rows`.

    Parameters
    ----------
    truncate : a share of the points in (0, 1], read as the decimal it is written as, or a number of points above 1

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> kept_points(0.07, 100), kept_points(0.01, 45), kept_points(200, 45), kept_points(1, 45)
    (7, 1, 45, 45)
    """
    share = float(truncate) if isinstance(truncate, int | float | np.number) and truncate < _ENDLESS else math.nan
    if not (0 < share <= 1 or (1 < share < math.inf and share == math.floor(share))):
        msg = f"truncate={truncate!r} is neither a share in (0, 1] nor a whole number of points above 1"
        raise OptionError(msg)
    return min(rows, int(share)) if share > 1 else math.ceil(Fraction(str(share)) * rows)


def kept_groups(part: Groups, points: int) -> int:
    """How many groups of a part are kept until `points` points are reached: those that begin before."""
    room = points - part.before.rows
    if room <= 0 or points >= part.total.rows:
        return 0 if room <= 0 else part.neg.size
    ends = running(part.neg + part.pos, 0)
    return min(int(np.searchsorted(ends, room)) + 1, part.neg.size)


@dataclass(frozen=True)
class GainSums:
    """Sums under the truncated gain curve: what `Agc` needs of a part, with `ratio` or without.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.9, 0.9]))
    >>> [GainSums().partial(part) for part in state.parts()]
    [(8, 1, 3)]
    """

    truncate: float = 1

    def partial(self, part: Groups) -> tuple[Any, Any, Any]:
        """Σ u·(2T + p), Σ u·(2F + n) and Σ u over the groups kept."""
        keep = kept_groups(part, kept_points(self.truncate, part.total.rows))
        before = part.before
        if part.neg_weight is None or part.pos_weight is None:
            return gain_sums(part.neg[:keep], part.pos[:keep], before.neg, before.pos)
        area, below, pos, neg = (float(x) for x in kernels.gain_weights(part.neg_weight[:keep], part.pos_weight[:keep]))
        weight = neg + pos
        return area + 2 * before.pos_weight * weight, below + 2 * before.neg_weight * weight, weight


def gain_sums(neg: Array, pos: Array, before_neg: int, before_pos: int) -> tuple[int, int, int]:
    """The sums of `GainSums` for counts; Σ u·(2(T + F) + u) telescopes, which gives the second."""
    points = int(neg.sum()) + int(pos.sum())
    inside = int(kernels.gain_small(neg, pos)) if points <= kernels.SMALL else integer(kernels.gain_counts(neg, pos))
    area = inside + 2 * before_pos * points
    return area, points * (2 * (before_neg + before_pos) + points) - area, points


def quotient(sums: tuple[Any, Any, Any], N: Any, P: Any, *, ratio: bool) -> tuple[Any, Any]:
    """Numerator and denominator of ``agc``, or of ``agc_ratio``, each times 2, and ``agc``'s times N + P too."""
    area, below, kept = sums
    if ratio:
        return area, P * (2 * kept - P) if kept >= P else kept * kept
    left = max(N + P - kept, 0)
    return area * N - below * P, P * (N * kept + left * (N - left)) if kept >= P else kept * kept * N


def running(values: Array, start: Any) -> Array:
    """Sums of `start` and the values up to and including each: integers of counts, compensated floats of weights."""
    run = kernels.running_counts if values.dtype.kind == "i" else kernels.running_weights
    sums: Array = run(values, start)
    return sums
