"""QuantileSketch: quantiles and cumulative distribution of a column of numbers, in bounded memory.

A t-digest (Dunning and Ertl, Computing Extremely Accurate Quantiles Using t-Digests, 2019): sorted numbers are
gathered into *centroids*, a mean and a weight each, small towards both ends and large in the middle. The scale
k₁(q) = δ/2π · asin(2q − 1) with compression δ = 1,000 says how large. While folding and merging, a centroid is kept to
a quarter of that (two-level compression, as in Dunning's own implementation), so that thousands of merges do not show.
That makes about 2.6·δ centroids, 44 KB, however many rows; up to four times as many where values repeat. Batches are
sorted and gathered by compiled code; a sketch is never updated number by number.

*Atoms.* A value that would fill half a centroid gets its own centroid, which keeps its exact count
(`streameval.kernels.sketch`). If it is that heavy in every batch and in every sketch merged, quantiles inside the atom
and `cdf` at its value are exact. Up to 1,000 equally frequent values are all such atoms.

Error: **there is no guarantee.** Measured on five continuous distributions with 10⁶ rows, in one piece and merged from
1,000, the rank of an estimated quantile was off by at most 0.6 % of min(q, 1 − q) for q = 0.001 … 0.999; with 10 and
1,000 distinct values by nothing (``benchmarks/sketch.py``). Rare values between atoms are spread evenly between the
means of their centroids. A digest describes a distribution and chooses bin edges; what lies between edges is counted
exactly elsewhere.

NaN, nulls and infinities are counted apart: infinities take part as the lowest and highest numbers, NaN and nulls do
not. Weights are not used: every row counts once. The result depends on the order in which batches are folded and
states are merged, but not on which of two states is merged into which, and on nothing else.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, OptionError
from streameval.states.compatible import mergeable
from streameval.states.protocol import Batch, PlainSpec, Small, Totals
from streameval.states.scores.centroids import Centroids, Distribution, Gathered, Gatherer, joined
from streameval.states.scores.digest_dict import TDigestExchange
from streameval.states.scores.types import floats, numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tdigest import TDigest

    from streameval.budget import Budget
    from streameval.typing import Array

__all__ = ["QuantileSketch", "QuantileSpec"]


@dataclass(frozen=True)
class QuantileSpec(PlainSpec):
    """A quantile sketch of one column.

    Attributes
    ----------
    column : a column of numbers
    type : how its numbers are read, see `streameval.states.scores.types.score_type`
    compression : δ; the memory is about 44·δ bytes

    Examples
    --------
    >>> QuantileSpec("score").columns
    ('score',)
    """

    kind: ClassVar[str] = "quantile_sketch"
    version: ClassVar[int] = 2
    additive: ClassVar[bool] = False
    associative: ClassVar[bool] = False
    packing: ClassVar[None] = None

    column: str = "value"
    type: str = "f8"
    compression: int = 1000

    def __post_init__(self) -> None:
        if not (isinstance(self.compression, int | float) and 20 <= self.compression <= 100_000):
            msg = f"compression={self.compression!r} is not between 20 and 100000"
            raise OptionError(msg)

    @property
    def counts_unlabelled(self) -> bool:
        """Rows need no label."""
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def largest(self) -> int:
        """Bytes of a state of values that repeat."""
        return 4 * 44 * int(self.compression)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: mean and weight of each centroid, and whether it is a single value."""
        kinds = {"mean": pa.float64(), "weight": pa.float64(), "single": pa.bool_()}
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])

    def builder(self, budget: Budget, capacity: int) -> _SketchBuilder:
        """A builder of about 4 MiB."""
        return _SketchBuilder(self)

    def empty(self) -> QuantileSketch:
        """The empty sketch."""
        return QuantileSketch(self)

    def from_arrow(
        self,
        header: Mapping[str, Any],
        batches: Iterable[pa.RecordBatch],
        budget: Budget,
    ) -> QuantileSketch:
        """The sketch that `QuantileSketch.to_arrow` wrote."""
        table = pa.Table.from_batches(batches, self.schema)
        mean, weight, single = (table.column(name).to_numpy() for name in self.schema.names)
        if not (
            np.isfinite(mean).all() and np.isfinite(weight).all() and (weight > 0).all() and (np.diff(mean) >= 0).all()
        ):
            msg = "centroids are ascending finite means with positive weights"
            raise ValueError(msg)
        return QuantileSketch(self, mean, weight, single, *(header[name] for name in _FACTS))


_FACTS = ("low", "high", "below", "above", "nan")


class _SketchBuilder:
    def __init__(self, spec: QuantileSpec) -> None:
        self.spec = spec
        self._gatherer = Gatherer(spec.compression)
        self._null = 0

    def update(self, batch: Batch) -> None:
        array = batch.columns[self.spec.column]
        self._null += array.null_count
        self.add(numbers(array.drop_null() if array.null_count else array, self.spec.type))

    def add(self, values: Array) -> None:
        """Fold numbers; of a decimal type unscaled."""
        self._gatherer.add(floats(values, self.spec.type))

    def state(self) -> QuantileSketch:
        found = self._gatherer.gathered()
        return QuantileSketch(self.spec, *found._replace(nan=found.nan + self._null))


@dataclass(frozen=True, eq=False)
class QuantileSketch(TDigestExchange, Small):
    """A t-digest, and what it leaves out: quantiles and cumulative distribution of numbers.

    Made by `from_values`, by `from_dict` or `from_tdigest` of another digest, or by `streameval.quantile_sketch` out of
    core.

    Attributes
    ----------
    spec : QuantileSpec
    mean : float64 array of shape (n_centroids,), ascending and finite
    weight : float64 array of shape (n_centroids,), positive; numbers in each
    single : bool array of shape (n_centroids,), whether all numbers of a centroid are known to be equal
    low, high : smallest and largest finite number; ∞ and −∞ where there is none
    below, above : how many −∞ and +∞
    nan : how many NaN and nulls

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
        compression : δ, from 20 to 100,000; the memory is about 44·δ bytes

        Raises
        ------
        DataError
            If the values are not numbers.
        OptionError
            If the compression is out of its range.

        Examples
        --------
        Estimates next to the truth, and merged nights:

        >>> values = np.random.default_rng(0).normal(size=100_000)
        >>> estimate = QuantileSketch.from_values(values).quantile([0.001, 0.5])
        >>> [float(round((values < x).mean(), 4)) for x in estimate]
        [0.001, 0.5]
        >>> nights = [QuantileSketch.from_values(np.arange(n)) for n in (50_000, 100_001)]
        >>> round(nights[0].merge(nights[1]).quantile(0.5), -2)  # the median is 37,500
        37500.0
        """
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            msg = f"a sketch takes numbers, and these values have type {array.dtype}: convert them"
            raise DataError(msg)
        builder = _SketchBuilder(QuantileSpec(compression=compression))
        builder.add(np.ascontiguousarray(array).ravel())
        return builder.state()

    @property
    def finite(self) -> float:
        """How many finite numbers."""
        return self._distribution.finite

    def gathered(self) -> Gathered:
        """The centroids, and what they leave out."""
        return Gathered(self.mean, self.weight, self.single, *(getattr(self, name) for name in _FACTS))

    @property
    def count(self) -> float:
        """How many numbers, infinities included."""
        return self._distribution.count

    def merge(self, other: QuantileSketch | TDigest) -> QuantileSketch:
        """The sketch of both inputs; the same whichever of two sketches comes first.

        Parameters
        ----------
        other : a sketch of the same compression, or a `tdigest.TDigest` of any

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
        centroids = joined([Centroids(*each.gathered()[:3]) for each in (self, other)], self.spec.compression)
        counts = self.below + other.below, self.above + other.above, self.nan + other.nan
        return QuantileSketch(self.spec, *centroids, min(self.low, other.low), max(self.high, other.high), *counts)

    def quantile(self, q: Any) -> Any:
        """Estimated quantiles.

        Parameters
        ----------
        q : float in [0, 1], or array of any shape of them

        Returns
        -------
        float, or float64 array of the same shape; NaN without numbers. 0 and 1 give the smallest and the largest.

        Raises
        ------
        OptionError
            If `q` is not in [0, 1].
        """
        share = _floats("q", q)
        if not ((share >= 0) & (share <= 1)).all():
            msg = f"q={q!r} is not in [0, 1]"
            raise OptionError(msg)
        return _plain(self._distribution.quantile(share))

    def cdf(self, x: Any) -> Any:
        """Estimated share of the numbers below `x`, plus half of those equal to it.

        Parameters
        ----------
        x : float, or array of any shape

        Returns
        -------
        float in [0, 1], or float64 array of the same shape; NaN without numbers and where `x` is NaN

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
        return _plain(self._distribution.cdf(_floats("x", x)))

    @cached_property
    def _distribution(self) -> Distribution:
        return Distribution.of(self.gathered())

    def totals(self) -> Totals:
        """All numbers; a sketch has no classes, so they count as negatives."""
        rows = round(self.count)
        return Totals(rows, 0, float(rows), 0.0)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + self.mean.nbytes + self.weight.nbytes + self.single.nbytes

    def header(self) -> dict[str, Any]:
        """What the header stores in addition to the table."""
        return {"spec": asdict(self.spec)} | {name: getattr(self, name) for name in _FACTS}

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """One batch: columns mean, weight and single."""
        columns = [pa.array(column) for column in (self.mean, self.weight, self.single)]
        yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same sketch, centroid by centroid."""
        if not isinstance(other, QuantileSketch):
            return NotImplemented
        pairs = ((getattr(self, name), getattr(other, name)) for name in self.spec.schema.names)
        return all(np.array_equal(a, b) for a, b in pairs) and self.header() == other.header()


def _floats(name: str, given: Any) -> Array:
    """Numbers as float64 array."""
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"{name}={given!r} is neither a number nor an array of numbers"
        raise OptionError(msg) from error


def _plain(values: Array) -> Any:
    """A float for a number, the array otherwise."""
    return values if values.ndim else float(values)
