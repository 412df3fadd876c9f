"""Centroids of a quantile sketch: building them from numbers, merging them, and interpolating between them.

`streameval.states.scores.quantile_sketch` says how large a centroid may be, and how accurate quantiles are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.sampling import compress, reduce_sorted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

FINE = 4  # a stored centroid spans at most 1/FINE of a k₁ unit
CHUNK = 1 << 18  # numbers sorted at a time; they fit into the cache
PENDING = 1 << 16  # centroids collected before they are merged


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


class Gathered(NamedTuple):
    """Centroids of the finite numbers, the extremes, and counts of all other numbers.

    Attributes
    ----------
    mean, weight, single : see `Centroids`
    low, high : smallest and largest finite number; ∞ and −∞ if there is none
    below, above : counts of −∞ and +∞
    nan : count of NaN
    """

    mean: Array
    weight: Array
    single: Array
    low: float
    high: float
    below: int
    above: int
    nan: int


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


class Gatherer:
    """Builds centroids from numbers, a batch at a time.

    Parameters
    ----------
    compression : δ of the sketch
    """

    def __init__(self, compression: float) -> None:
        self._compression = float(compression)
        self._parts: list[Centroids] = []
        self._pending = 0
        self._low, self._high = math.inf, -math.inf
        self._below = self._above = self._nan = 0

    def add(self, values: Array) -> None:
        """Add floats in any order, infinities and NaN included."""
        for start in range(0, values.size, CHUNK):
            self._add_sorted(np.sort(values[start : start + CHUNK]))

    def _add_sorted(self, values: Array) -> None:
        """Add ascending numbers: −∞ first, +∞ and NaN last."""
        start, end = np.searchsorted(values, np.array([-np.inf, np.inf], values.dtype), "right").tolist()
        stop = int(np.searchsorted(values, values.dtype.type(np.inf)))
        self._below += start
        self._above += end - stop
        self._nan += values.size - end
        if stop <= start:
            return
        self._low, self._high = min(self._low, float(values[start])), max(self._high, float(values[stop - 1]))
        self._parts.append(Centroids(*reduce_sorted(values[start:stop], FINE * self._compression)))
        self._pending += self._parts[-1].mean.size
        if self._pending > PENDING:
            self._parts = [joined(self._parts, self._compression)]
            self._pending = self._parts[0].mean.size

    def gathered(self) -> Gathered:
        """Centroids and counts of all numbers added so far."""
        centroids = joined(self._parts, self._compression)
        self._parts, self._pending = [centroids], centroids.mean.size
        return Gathered(*centroids, self._low, self._high, self._below, self._above, self._nan)


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
    def of(cls, found: Gathered) -> Distribution:
        """The distribution of the numbers in `found`."""
        mean, weight = found.mean, found.weight
        ends = np.concatenate(([0.0], np.cumsum(weight)))
        half = np.where(found.single, np.minimum(weight, 1.0), weight) / 2
        ranks = np.column_stack((ends[1:] - weight + half, ends[1:] - half)).ravel()
        points = np.repeat(mean, 2)
        kept = np.ones(ranks.size, np.bool_)
        kept[1::2] = ranks[1::2] > ranks[::2]
        first, last = found.low < mean[:1], found.high > mean[-1:]
        ranks = np.concatenate((np.zeros(1)[first], ranks[kept], ends[-1:][last]))
        points = np.concatenate((np.full(1, found.low)[first], points[kept], np.full(1, found.high)[last]))
        return cls(mean, ends, ranks, points, found.below, float(weight.sum()), found.above)

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
