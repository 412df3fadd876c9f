"""Centroids of a quantile sketch: building them from numbers, merging them, and interpolating between them.

`streameval.states.scores.quantile_sketch` says how large a centroid may be, and how accurate quantiles are.

The tdigest package takes and gives them as `tdigest.TDigest` objects, and as the dictionaries of `TDigest.to_dict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from streameval.errors import FormatError
from streameval.kernels.sampling import compress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tdigest import TDigest

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


_K = 25  # capacity factor of the tdigest package, which compresses a digest at K/delta centroids


def parsed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sketch of a dictionary; centroids with infinite or NaN means are only counted.

    Raises
    ------
    FormatError
        If `values` is not the dictionary of a t-digest, or has counts that are not positive and finite.
    """
    try:
        if not isinstance(values, Mapping):
            raise TypeError(type(values))
        rows = [(c["m"], c["c"], bool(c.get("single", c["c"] == 1))) for c in values["centroids"]]
        table = np.array(rows, np.float64).reshape(-1, 3)
        counts = {name: int(values.get(name, 0)) for name in ("below", "above", "nan")}
        ends = float(values.get("min", math.inf)), float(values.get("max", -math.inf))
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise FormatError(
            f"this is not the dictionary of a t-digest, with 'centroids' of 'm' and 'c' "
            f"({type(error).__name__}: {error}); make it with to_dict()"
        ) from error
    mean, weight, single = table[np.argsort(table[:, 0], kind="stable")].T
    if not (np.isfinite(weight).all() and (weight > 0).all() and min(counts.values()) >= 0):
        raise FormatError(
            "a t-digest's counts are positive and finite; these are not: make the dictionary again with to_dict()"
        )
    for name, here in (("below", mean == -np.inf), ("above", mean == np.inf), ("nan", np.isnan(mean))):
        counts[name] += round(float(weight[here].sum()))
    finite = np.isfinite(mean)
    mean, weight, single = mean[finite], weight[finite], single[finite] > 0
    low, high = min([*mean[:1].tolist(), ends[0]]), max([*mean[-1:].tolist(), ends[1]])
    return {"mean": mean, "weight": weight, "single": single, "low": low, "high": high, **counts}


class TDigestExchange:
    """Conversion of a sketch to and from the digests of the tdigest package."""

    spec: Any
    mean: Array
    weight: Array
    single: Array
    low: float
    high: float
    below: int
    above: int
    nan: int

    def to_dict(self) -> dict[str, Any]:
        """The digest in the format of `tdigest.TDigest.to_dict`, which `TDigest.update_from_dict` reads.

        ``delta`` is 1/compression, so that the package does not merge the centroids. The keys ``min``, ``max``,
        ``below``, ``above`` and ``nan``, and ``single`` for centroids of several equal numbers, are additions that the
        package ignores.

        Examples
        --------
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> QuantileSketch.from_values([1.0, 2.0, 2.0]).to_dict()["centroids"]
        [{'m': 1.0, 'c': 1.0}, {'m': 2.0, 'c': 2.0, 'single': True}]
        """
        columns = (column.tolist() for column in (self.mean, self.weight, self.single))
        centroids = [
            {"m": m, "c": c} | ({"single": True} if single and c != 1 else {})
            for m, c, single in zip(*columns, strict=True)
        ]
        extra: dict[str, float] = {"below": self.below, "above": self.above, "nan": self.nan}
        if self.mean.size:
            extra |= {"min": self.low, "max": self.high}
        plain = {"n": float(self.weight.sum()), "delta": 1 / self.spec.compression, "K": _K}
        return plain | {"centroids": centroids} | extra

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], spec: Any = None) -> Self:
        """The sketch of a dictionary that `to_dict` or `tdigest.TDigest.to_dict` made.

        Centroids with infinite or NaN means, which corrupt the quantiles of a `TDigest`, are only counted.

        Parameters
        ----------
        values : mapping
            ``centroids`` is required; the additional keys of `to_dict` are optional.
        spec : QuantileSpec, optional
            The spec of the sketches with which this one will be merged; its compression applies from the next merge.

        Raises
        ------
        FormatError
            If `values` is not the dictionary of a t-digest.
        """
        made: Any = cls
        found: Self = made(**parsed(values), **({} if spec is None else {"spec": spec}))
        return found

    def to_tdigest(self) -> TDigest:
        """The digest of the finite numbers as a `tdigest.TDigest`, which can be updated and added to others.

        A `TDigest` stores neither counts of infinities and NaN, nor the smallest and largest number.

        Examples
        --------
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> QuantileSketch.from_values(np.arange(1000.0)).to_tdigest().percentile(50)
        499.5
        """
        from tdigest import TDigest

        return TDigest().update_from_dict(self.to_dict())

    @classmethod
    def from_tdigest(cls, digest: TDigest, spec: Any = None) -> Self:
        """The sketch of a `tdigest.TDigest`; see `from_dict`.

        Raises
        ------
        FormatError
            If `digest` is not a `tdigest.TDigest`.

        Examples
        --------
        >>> from tdigest import TDigest
        >>> from streameval.states.scores.quantile_sketch import QuantileSketch
        >>> theirs = TDigest()
        >>> theirs.batch_update([1.0, 2.0, 4.0])
        >>> QuantileSketch.from_tdigest(theirs).cdf(2.0)
        0.5
        """
        if not hasattr(digest, "centroids_to_list"):
            raise FormatError(
                f"this is {type(digest).__name__}, not a tdigest.TDigest; dictionaries are read by from_dict()"
            )
        return cls.from_dict(digest.to_dict(), spec)
