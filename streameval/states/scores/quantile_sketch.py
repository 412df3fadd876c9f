"""QuantileSketch: quantiles and cumulative distribution of a column of numbers, in bounded memory.

A t-digest (Dunning and Ertl, Computing Extremely Accurate Quantiles Using t-Digests, 2019) groups sorted numbers into
*centroids*, each a mean and a weight, which are small towards both ends and large in the middle. The scale function
k₁(q) = δ/2π · asin(2q − 1) with compression δ = 1,000 limits their size. While folding and merging, a centroid is kept
to a quarter of that limit (two-level compression, as in Dunning's own implementation), so that thousands of merges do
not degrade the sketch. For any number of rows, a sketch has about 2·δ centroids (35 KB), 2.6·δ (44 KB) after a thousand
merges, and up to four times that if values repeat. Compiled code sorts and groups whole batches; a sketch is never
updated number by number.

*Atoms.* A value that would fill half a centroid gets a separate centroid, which keeps its exact count
(`streameval.kernels.sampling`). If it is that frequent in every batch and in every merged sketch, quantiles inside the
atom and `cdf` at its value are exact. Up to 1,000 equally frequent values are all such atoms.

Error: **there is no guarantee.** Measured on five continuous distributions with 10⁶ rows, folded at once and merged
from 1,000 parts, the rank of an estimated quantile was off by at most 0.6 % of min(q, 1 − q) for q = 0.001 … 0.999;
with 10 and with 1,000 distinct values the quantiles were exact (``benchmarks/interval_coverage.py --sketch``). Rare
values between atoms are spread evenly between the means of their centroids. Digests describe distributions and choose
bin edges; where the count between two edges matters, it is counted exactly elsewhere.

NaN, nulls and infinities are counted separately. Infinities take part as the lowest and highest numbers; NaN and nulls
do not. Weights are ignored: every row counts once. The result depends on how rows are divided into batches and on the
order of folding and merging, but merging two states is commutative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, FormatError, OptionError
from streameval.kernels.sampling import compress, reduce_sorted
from streameval.states.facts import check_counts
from streameval.states.protocol import Batch, Small, Stored, Totals, Traits, mergeable
from streameval.states.scores.types import floats, numbers
from streameval.typing import pack_bits

if TYPE_CHECKING:
    from tdigest import TDigest

    from streameval.budget import Budget
    from streameval.states.protocol import Header
    from streameval.typing import Array, ArrayLike

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


def join_centroids(parts: Sequence[Centroids], compression: float) -> Centroids:
    """Combine lists of centroids: sorted by mean, neighbours merged as far as the compression δ allows."""
    parts = [part for part in parts if part.mean.size]
    if not parts:
        return Centroids(np.empty(0), np.empty(0), np.empty(0, np.bool_))
    if len(parts) == 1:
        return parts[0]
    means, weights, single = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((weights, single, means))
    return Centroids(*compress(means[order], weights[order], single[order], float(FINE * compression))[:3])


@dataclass(frozen=True)
class QuantileSpec:
    """A quantile sketch of one column.

    Attributes
    ----------
    column : a column of numbers
    type : how its numbers are read, see `streameval.states.scores.types.score_type`
    compression : δ, from 20 to 100,000; a sketch takes about 44·δ bytes, at most four times that

    Raises
    ------
    OptionError
        If the compression is out of its range.

    Examples
    --------
    >>> QuantileSpec("score").columns
    ('score',)
    """

    kind: ClassVar[str] = "quantile_sketch"
    version: ClassVar[int] = 1

    column: str = "value"
    type: str = "f8"
    compression: int = 1000

    def __post_init__(self) -> None:
        if not (isinstance(self.compression, int | float) and 20 <= self.compression <= 100_000):
            raise OptionError(f"compression={self.compression!r} is not between 20 and 100000")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def traits(self) -> Traits:
        """Rows need no label; the largest state is one in which values repeat."""
        return Traits(associative=False, unlabelled=True, ignores_labels=True, largest=4 * 44 * int(self.compression))

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: mean and weight of each centroid, and whether all its numbers are equal."""
        kinds = {"mean": pa.float64(), "weight": pa.float64(), "single": pa.bool_()}
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])

    def builder(self, budget: Budget, capacity: int) -> _SketchBuilder:
        """A builder of about 4 MiB."""
        return _SketchBuilder(self)

    def empty(self) -> QuantileSketch:
        """The empty sketch."""
        return QuantileSketch(self)

    def from_arrow(
        self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget
    ) -> QuantileSketch:
        """The sketch that `QuantileSketch.to_arrow` wrote; raises `ValueError` if the table is damaged."""
        table = pa.Table.from_batches(batches, self.schema)
        mean, weight, single = (table.column(name).to_numpy() for name in self.schema.names)
        check_counts("weights", weight, int)
        if not (np.isfinite(mean).all() and (weight > 0).all() and (np.diff(mean) >= 0).all()):
            raise ValueError("centroids are ascending finite means with positive weights")
        return QuantileSketch(self, mean, weight, single, *(header[name] for name in _FACTS))


@dataclass(frozen=True)
class ClassQuantileSpec(QuantileSpec):
    """A quantile sketch of the rows of one class.

    Attributes
    ----------
    positive : whether it is that of the positives
    """

    positive: bool = False

    @property
    def traits(self) -> Traits:
        """As for all rows, but only for labelled ones."""
        return super().traits._replace(unlabelled=False)


_FACTS = ("low", "high", "below", "above", "nan")
_K = 25  # capacity factor of the tdigest package, which compresses a digest at K/delta centroids
CHUNK = 1 << 18  # numbers sorted at a time; they fit into the cache
PENDING = 1 << 16  # centroids collected before they are merged


class _SketchBuilder:
    def __init__(self, spec: QuantileSpec) -> None:
        self.spec = spec
        self._parts: list[Centroids] = []
        self._pending = 0
        self._low, self._high = math.inf, -math.inf
        self._below = self._above = self._nan = 0

    def update(self, batch: Batch) -> None:
        array = batch.columns[self.spec.column]
        if isinstance(self.spec, ClassQuantileSpec):
            array = array.filter(pack_bits(batch.label == self.spec.positive))
        self._nan += array.null_count
        self.add(numbers(array.drop_null() if array.null_count else array, self.spec.type))

    def add(self, values: Array) -> None:
        """Fold numbers, infinities and NaN included; those of a decimal type are given unscaled."""
        values = floats(values, self.spec.type)
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
        self._parts.append(Centroids(*reduce_sorted(values[start:stop], FINE * float(self.spec.compression))))
        self._pending += self._parts[-1].mean.size
        if self._pending > PENDING:
            self._parts = [join_centroids(self._parts, self.spec.compression)]
            self._pending = self._parts[0].mean.size

    def state(self) -> QuantileSketch:
        centroids = join_centroids(self._parts, self.spec.compression)
        return QuantileSketch(self.spec, *centroids, self._low, self._high, self._below, self._above, self._nan)


@dataclass(frozen=True, eq=False)
class QuantileSketch(Small, Stored):
    """Quantiles and cumulative distribution of numbers, estimated by a t-digest.

    Create one with `from_values`; with `from_dict` or `from_tdigest` from another digest; or out of core with
    `streameval.quantile_sketch`.

    Attributes
    ----------
    spec : QuantileSpec
    mean : float64 array of shape (n_centroids,), ascending and finite
    weight : float64 array of shape (n_centroids,), positive; numbers in each
    single : bool array of shape (n_centroids,), whether all numbers of a centroid are known to be equal
    low, high : smallest and largest finite number; ∞ and −∞ if there is none
    below, above : counts of −∞ and +∞
    nan : count of NaN and nulls

    Examples
    --------
    >>> state = QuantileSketch.from_values([3.0, 1.0, 2.0, float("nan"), float("inf")])
    >>> state.quantile([0, 0.5, 1]), state.cdf(2.0), state.nan
    (array([1. , 2.5, inf]), 0.375, 1)
    """

    spec: QuantileSpec = field(default_factory=QuantileSpec)
    mean: Array = field(default_factory=lambda: np.empty(0))
    weight: Array = field(default_factory=lambda: np.empty(0))
    single: Array = field(default_factory=lambda: np.empty(0, np.bool_))
    low: float = math.inf
    high: float = -math.inf
    below: int = 0
    above: int = 0
    nan: int = 0

    @classmethod
    def from_values(cls, values: Any, compression: int = 1000) -> QuantileSketch:
        """The sketch of an array of numbers.

        Parameters
        ----------
        values : array of floats or integers, of any shape
        compression : δ, from 20 to 100,000; a sketch takes about 44·δ bytes

        Raises
        ------
        DataError
            If the values are not numbers.
        OptionError
            If the compression is out of its range.

        Examples
        --------
        The true ranks of two estimates, and the median of two merged nights:

        >>> values = np.random.default_rng(0).normal(size=100_000)
        >>> estimate = QuantileSketch.from_values(values).quantile([0.001, 0.5])
        >>> [float(round((values < x).mean(), 4)) for x in estimate]
        [0.001, 0.5]
        >>> nights = [QuantileSketch.from_values(np.arange(n)) for n in (50_000, 100_001)]
        >>> round(nights[0].merge(nights[1]).quantile(0.5), -2)  # the median is 37,500
        37500.0
        """
        try:
            array = np.asarray(values)
        except Exception as error:  # whatever the container of the values raises
            raise DataError(f"a sketch takes numbers, and these values are not an array: {error}") from error
        if array.dtype.kind not in "biuf":
            raise DataError(f"a sketch takes numbers, and these values have type {array.dtype}: convert them")
        builder = _SketchBuilder(QuantileSpec(compression=compression))
        builder.add(np.ascontiguousarray(array).ravel())
        return builder.state()

    @cached_property
    def finite(self) -> float:
        """Count of finite numbers."""
        return float(self.weight.sum())

    @property
    def centroids(self) -> Centroids:
        """The centroids of the finite numbers."""
        return Centroids(self.mean, self.weight, self.single)

    @property
    def count(self) -> float:
        """Count of numbers, infinities included, NaN and nulls excluded."""
        return self.below + self.finite + self.above

    def merge(self, other: QuantileSketch | TDigest) -> QuantileSketch:
        """The sketch of both inputs; merging is commutative.

        Parameters
        ----------
        other : a sketch with the same spec, or a `tdigest.TDigest` of any compression

        Raises
        ------
        IncompatibleStatesError
            If `other` is neither, or was folded with other options.

        Examples
        --------
        >>> from tdigest import TDigest
        >>> theirs = TDigest()
        >>> theirs.batch_update([1.0, 2.0, 2.0])
        >>> QuantileSketch.from_values([4.0]).merge(theirs).quantile([0, 0.5, 1])
        array([1., 2., 4.])
        """
        if not isinstance(other, QuantileSketch) and hasattr(other, "centroids_to_list"):
            other = self.from_tdigest(other, self.spec)
        mergeable(self, other)
        other = cast("QuantileSketch", other)
        centroids = join_centroids([self.centroids, other.centroids], self.spec.compression)
        counts = self.below + other.below, self.above + other.above, self.nan + other.nan
        return QuantileSketch(self.spec, *centroids, min(self.low, other.low), max(self.high, other.high), *counts)

    def quantile(self, q: Any) -> Any:
        """Estimated quantiles.

        Parameters
        ----------
        q : float in [0, 1], or array of any shape

        Returns
        -------
        float, or float64 array of the same shape. 0 and 1 give the smallest and the largest number. NaN if the sketch
        is empty.

        Raises
        ------
        OptionError
            If `q` is not in [0, 1].
        """
        share = _floats("q", q)
        if not ((share >= 0) & (share <= 1)).all():
            raise OptionError(f"q={q!r} is not in [0, 1]")
        if not self.count:
            return _plain(np.full(share.shape, np.nan))
        rank = share * self.count - self.below
        inside = _between(rank, *self._nodes) if self.mean.size else np.where(rank < 0, -np.inf, np.inf)
        high = (rank > self.finite) & (self.above > 0)
        return _plain(np.where(rank < 0, -np.inf, np.where(high, np.inf, inside)))

    def cdf(self, x: Any) -> Any:
        """Estimated share of the numbers below `x`, plus half of those equal to it.

        Parameters
        ----------
        x : float, or array of any shape

        Returns
        -------
        float in [0, 1], or float64 array of the same shape; NaN if the sketch is empty or `x` is NaN

        Raises
        ------
        OptionError
            If `x` is neither a number nor an array of numbers.

        Examples
        --------
        A die:

        >>> QuantileSketch.from_values(np.tile(np.arange(1, 7), 500)).cdf([1, 6, 3.5]) * 12
        array([ 1., 11.,  6.])
        """
        value = _floats("x", x)
        if not self.count:
            return _plain(np.full(value.shape, np.nan))
        inside = self._finite_below(value) if self.mean.size else np.zeros(value.shape)
        below = np.where(value == np.inf, self.below + self.finite + self.above / 2, self.below + inside)
        share = np.where(value == -np.inf, self.below / 2, below) / self.count
        return _plain(np.where(np.isnan(value), np.nan, share))

    def _finite_below(self, value: Array) -> Array:
        """Estimated count of finite numbers below each value, plus half of those equal to it."""
        ranks, points = self._nodes
        between = _between(value, points, ranks)
        between = np.where(value < points[0], 0.0, np.where(value > points[-1], self.finite, between))
        first, last = (np.searchsorted(self.mean, value, side) for side in ("left", "right"))
        ends = np.append(0.0, np.cumsum(self.weight))
        return np.where(first < last, (ends[first] + ends[last]) / 2, between)

    @cached_property
    def _nodes(self) -> tuple[Array, Array]:
        """Ranks among the finite numbers and their values, ascending, between which values are interpolated.

        The mean of a centroid is placed at the middle of its ranks. A centroid of equal numbers covers the ranks from
        the middle of its first number to the middle of its last. The smallest and the largest number are added as end
        points unless they are means.
        """
        mean, weight, single = self.centroids
        ends = np.cumsum(weight)
        half = np.where(single, np.minimum(weight, 1.0), weight) / 2
        ranks, points = np.column_stack((ends - weight + half, ends - half)).ravel(), np.repeat(mean, 2)
        distinct = np.ones(ranks.size, np.bool_)
        distinct[1::2] = ranks[1::2] > ranks[::2]
        first, last = self.low < mean[:1], self.high > mean[-1:]
        ranks = np.concatenate((np.zeros(1)[first], ranks[distinct], ends[-1:][last]))
        return ranks, np.concatenate((np.full(1, self.low)[first], points[distinct], np.full(1, self.high)[last]))

    def to_dict(self) -> dict[str, Any]:
        """The digest in the format of `tdigest.TDigest.to_dict`, which `TDigest.update_from_dict` reads.

        ``delta`` is 1/compression, so that the package does not merge the centroids. The keys ``min``, ``max``,
        ``below``, ``above`` and ``nan``, and ``single`` for centroids of several equal numbers, are additions that the
        package ignores.

        Examples
        --------
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
    def from_dict(cls, values: Mapping[str, Any], spec: QuantileSpec | None = None) -> QuantileSketch:
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
        mean = mean[finite]
        low, high = min([*mean[:1].tolist(), ends[0]]), max([*mean[-1:].tolist(), ends[1]])
        return cls(spec or QuantileSpec(), mean, weight[finite], single[finite] > 0, low, high, **counts)

    def to_tdigest(self) -> TDigest:
        """The digest of the finite numbers as a `tdigest.TDigest`, which can be updated and added to others.

        A `TDigest` stores neither counts of infinities and NaN, nor the smallest and largest number.

        Examples
        --------
        >>> QuantileSketch.from_values(np.arange(1000.0)).to_tdigest().percentile(50)
        499.5
        """
        from tdigest import TDigest

        return TDigest().update_from_dict(self.to_dict())

    @classmethod
    def from_tdigest(cls, digest: TDigest, spec: QuantileSpec | None = None) -> QuantileSketch:
        """The sketch of a `tdigest.TDigest`; see `from_dict`.

        Raises
        ------
        FormatError
            If `digest` is not a `tdigest.TDigest`.

        Examples
        --------
        >>> from tdigest import TDigest
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

    def totals(self) -> Totals:
        """All numbers, counted as negatives because a sketch has no classes."""
        rows = round(self.count)
        return Totals(rows, 0, float(rows), 0.0)

    def header(self) -> Header:
        """The spec, the extremes, and the counts of infinities and NaN, as JSON values."""
        return {"spec": asdict(self.spec)} | {name: getattr(self, name) for name in _FACTS}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One batch: columns mean, weight and single."""
        columns = [pa.array(column) for column in (self.mean, self.weight, self.single)]
        yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)


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


def _floats(name: str, given: ArrayLike | float) -> Array:
    """Numbers as a float64 array; raises `OptionError` for anything else."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"{name}={given!r} is neither a number nor an array of numbers") from error


def _plain(values: Array) -> Array | float:
    """A float if the array has no dimensions, else the array."""
    return values if values.ndim else float(values)
