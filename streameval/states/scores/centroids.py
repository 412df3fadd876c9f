"""Centroids of a quantile sketch: building them from numbers, merging them, and interpolating between them.

`streameval.states.scores.quantile_sketch` says how large a centroid may be, and how accurate quantiles are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.sampling import compress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

FINE = 4  # a stored centroid spans at most 1/FINE of a k₁ unit


class Centroids(NamedTuple):
    """Centroids by ascending mean.

    Attributes
    ----------
    mean : float64 array of shape (n_centroids,)
    weight : float64 array of shape (n_centroids,), numbers in each
    single : bool array of shape (n_centroids,), whether all numbers of a centroid are known to be equal
    """

    mean: Array
    weight: Array
    single: Array


def joined(parts: Sequence[Centroids], compression: float) -> Centroids:
    """Combine lists of centroids: sorted by mean, neighbours merged as far as the compression allows.

    Parameters
    ----------
    parts : sequence of Centroids
    compression : δ of the sketch
    """
    parts = [part for part in parts if part.mean.size]
    if not parts:
        return Centroids(np.empty(0), np.empty(0), np.empty(0, np.bool_))
    if len(parts) == 1:
        return parts[0]
    means, weights, single = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((weights, single, means))
    return Centroids(*compress(means[order], weights[order], single[order], float(FINE * compression))[:3])


@dataclass(frozen=True)
class Distribution:
    """The distribution that centroids describe: linear interpolation of values over ranks.

    The mean of a centroid is placed at the middle of its ranks. A centroid of equal numbers covers the ranks from the
    middle of its first number to the middle of its last. The smallest and the largest number are added as end points
    unless they are means.

    Attributes
    ----------
    mean : float64 array of shape (n_centroids,)
    ends : float64 array of shape (n_centroids + 1,), cumulative count of finite numbers before each centroid, then all
    ranks, points : float64 arrays of equal length, ascending: the nodes of the interpolation
    below, finite, above : counts of −∞, finite numbers and +∞
    """

    mean: Array
    ends: Array
    ranks: Array
    points: Array
    below: int
    finite: float
    above: int

    @classmethod
    def of(cls, centroids: Centroids, low: float, high: float, below: int, above: int) -> Distribution:
        """The distribution of finite numbers from `low` to `high`, with the counts of −∞ and +∞."""
        mean, weight, single = centroids
        ends = np.concatenate(([0.0], np.cumsum(weight)))
        half = np.where(single, np.minimum(weight, 1.0), weight) / 2
        ranks = np.column_stack((ends[1:] - weight + half, ends[1:] - half)).ravel()
        points = np.repeat(mean, 2)
        kept = np.ones(ranks.size, np.bool_)
        kept[1::2] = ranks[1::2] > ranks[::2]
        first, last = low < mean[:1], high > mean[-1:]
        ranks = np.concatenate((np.zeros(1)[first], ranks[kept], ends[-1:][last]))
        points = np.concatenate((np.full(1, low)[first], points[kept], np.full(1, high)[last]))
        return cls(mean, ends, ranks, points, below, float(weight.sum()), above)

    @property
    def count(self) -> float:
        """Count of all numbers, infinities included."""
        return self.below + self.finite + self.above

    def quantile(self, share: Array) -> Array:
        """Estimated quantiles at shares in [0, 1]; NaN if there are no numbers."""
        if not self.count:
            return np.full(share.shape, np.nan)
        rank = share * self.count - self.below
        found = _between(rank, self.ranks, self.points) if self.mean.size else np.where(rank < 0, -np.inf, np.inf)
        outside = rank < 0, (rank > self.finite) & (self.above > 0)
        return np.where(outside[0], -np.inf, np.where(outside[1], np.inf, found))

    def cdf(self, value: Array) -> Array:
        """Estimated share of the numbers below each value, plus half of those equal to it; NaN if there are none."""
        if not self.count:
            return np.full(value.shape, np.nan)
        inside = self._finite_below(value) if self.mean.size else np.zeros(value.shape)
        below = np.where(value == np.inf, self.below + self.finite + self.above / 2, self.below + inside)
        share = np.where(value == -np.inf, self.below / 2, below) / self.count
        return np.where(np.isnan(value), np.nan, share)

    def _finite_below(self, value: Array) -> Array:
        """Estimated count of finite numbers below each value, plus half of those equal to it."""
        between = _between(value, self.points, self.ranks)
        between = np.where(value < self.points[0], 0.0, np.where(value > self.points[-1], self.finite, between))
        first, last = (np.searchsorted(self.mean, value, side) for side in ("left", "right"))
        return np.where(first < last, (self.ends[first] + self.ends[last]) / 2, between)


def _between(x: Array, nodes: Array, values: Array) -> Array:
    """Linear interpolation as by `numpy.interp`, between any finite floats: no difference or slope overflows."""
    if nodes.size < 2:
        return np.interp(x, nodes, values)
    at = np.clip(np.searchsorted(nodes, x, "right") - 1, 0, nodes.size - 2)
    left, right = nodes[at], nodes[at + 1]
    unit = -np.frexp(np.maximum(np.abs(left), np.abs(right)))[1] - 1  # scales both to at most one half
    start, end = np.ldexp(left, unit), np.ldexp(right, unit)
    way = np.ldexp(np.clip(x, left, right), unit) - start
    share = np.divide(way, end - start, out=np.ones(way.shape), where=end > start)
    low, high = values[at], values[at + 1]
    with np.errstate(over="ignore", invalid="ignore"):
        span = high - low
        found: Array = np.where(np.isfinite(span), low + span * share, low * (1.0 - share) + high * share)
    return np.clip(found, low, high)
