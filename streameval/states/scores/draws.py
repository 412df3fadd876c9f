"""Samples of rows: which rows are drawn, and SampledBins, counts of a sample between fixed edges by group and label.

A row is drawn if a keyed hash of its number (`streameval.scan.pieces`) lies below the requested share, so any worker
draws the same rows in any order, from any files. Five further bits of the hash assign the row to one of 32 random
groups; leaving out one group at a time gives the standard error of an estimate
(`streameval.metrics.scores.gain`). If row groups are drawn instead of rows, the scan omits the others; then all
rows that arrive are taken, and all rows of a row group are assigned to one group.

Rows are drawn uniformly, independently of their weights, and keep their weights.

The edges of bins come from digests of the same sample (`streameval.states.scores.digests`): a second pass over the data
counts exactly what the first could only estimate. Counts are integers and merge exactly, in any order. Each bin keeps
its smallest and largest score; if they are equal, the bin is a single score. Memory: 528 bytes a bin, 1,040 with
weights.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.kernels.exact import quotients
from streameval.kernels.groups import order_rows
from streameval.kernels.jit import read_only
from streameval.kernels.sampling import BITS, CELLS, GROUPS, draw
from streameval.states.facts import check_counts
from streameval.states.keyed.ids import hash_bytes
from streameval.states.protocol import Batch, Small, Stored, Totals, Traits, mergeable
from streameval.states.scores.types import MissingScores, float_limit, present, refuse_nan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.protocol import Header
    from streameval.typing import Array

FILL = 1 << 20  # number of drawn scores that are sorted together
SLICE = 1 << 16  # number of rows processed at a time
_NO_WEIGHTS, _NO_PLACES = read_only(np.empty(0)), read_only(np.empty(0, np.int64))


@lru_cache(maxsize=1024)
def origin_hash(seed: int, origin: str) -> int:
    """A 64-bit hash of a sequence of rows under a seed."""
    return hash_bytes(f"{seed}\0{origin}".encode(errors="surrogateescape"))[0]


def check_sample(sample: float) -> None:
    """Raise `OptionError` unless `sample` is a share in (0, 1]."""
    if not (isinstance(sample, int | float | np.number) and 0 < sample <= 1):
        raise OptionError(f"sample={sample!r} is not a share in (0, 1] (--sample)")


@dataclass(frozen=True)
class SampleSpec(MissingScores):
    """What is drawn of one score column.

    Attributes
    ----------
    column : the score column
    type : see `streameval.states.scores.types.score_type`
    nan : ``error`` refuses NaN and null scores while folding; any other value counts them separately
    sample : share of the rows to draw, in (0, 1]
    seed : determines which rows are drawn
    whole : whether row groups were drawn instead of rows; each row group then lies in one group
    weighted : whether rows carry their weights

    Raises
    ------
    OptionError
        If `sample` is not in (0, 1].
    """

    column: str
    type: str = "f4"
    nan: str = "error"
    sample: float = 1.0
    seed: int = 0
    whole: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        check_sample(self.sample)

    @property
    def traits(self) -> Traits:
        """States that depend on how rows are divided into tasks."""
        return Traits(associative=False, refuses_missing=self.nan == "error")


class Draws:
    """Draws rows from batches and passes them on, 2²⁰ at a time, cell by cell and in ascending order.

    The number of rows passed on together does not depend on the size of the batches, so neither do digests.

    Parameters
    ----------
    spec : SampleSpec
    take : function of a cell (2·group + label), its scores as an ascending float64 array, and their weights or None
    """

    def __init__(self, spec: SampleSpec, take: Callable[[int, Array, Array | None], None]) -> None:
        self.spec = spec
        self.seen = np.zeros(2, np.int64)
        self.nan_rows = np.zeros(2, np.int64)
        self._take = take
        self._share = math.ceil(spec.sample * (1 << BITS))
        rows = FILL + SLICE  # of buffers of 10 MiB, or 18 MiB with weights; their order takes 8 MiB more
        self._values, self._weights = np.empty(rows), np.empty(rows if spec.weighted else 0)
        self._cells = np.empty(rows, np.uint8)
        self._fill = 0

    def update(self, batch: Batch) -> None:
        """Draw rows from a batch; raises `NullError` if the policy refuses a missing score."""
        values, rows, missing = present(batch, self.spec.column, self.spec.type, nan=False)
        values = read_only(quotients(values, int(self.spec.type[1:])) if self.spec.type[0] == "d" else values)
        label, nan = read_only(batch.label[rows]), np.bincount(batch.label[missing], minlength=2)
        weight = batch.weight[rows] if self.spec.weighted and batch.weight is not None else _NO_WEIGHTS
        kept = batch.kept if batch.kept is None and not missing.size else (batch.offsets() - batch.row)[rows]
        if values.dtype.kind == "f" and values.size and np.isnan(values.min()):  # NaN if any score is: a fast check
            nan += np.bincount(label[np.isnan(values)], minlength=2)
        places, weight = _NO_PLACES if kept is None else read_only(kept), read_only(weight)
        seed = np.uint64(origin_hash(self.spec.seed, batch.origin))
        group = origin_hash(self.spec.seed, f"{batch.origin}\0{batch.start}") % GROUPS if self.spec.whole else -1
        for start in range(0, values.size, SLICE):
            part, row = slice(start, start + SLICE), batch.row + (start if kept is None else 0)
            drawn = self._values[self._fill :], self._cells[self._fill :]
            carried = weight[part], self._weights[self._fill :]
            self._fill += draw(values[part], label[part], row, places[part], seed, self._share, group, *drawn, *carried)
            if self._fill >= FILL:
                self._pass_on(FILL)
        refuse_nan(self.spec.nan, nan, batch.name, self.spec.column)
        positives = np.count_nonzero(batch.label)
        self.seen += (batch.label.size - positives, positives) - nan
        self.nan_rows += nan

    def _pass_on(self, size: int) -> None:
        order, starts = order_rows(self._cells[:size], CELLS)
        for cell, (a, b) in enumerate(pairwise(starts.tolist())):
            if b > a:
                self._take(cell, *self._ascending(order[a:b]))
        rest = self._fill - size
        buffers: tuple[Array, ...] = (self._values, self._cells, self._weights)
        for buffer in buffers[: 2 + self.spec.weighted]:
            buffer[:rest] = buffer[size : self._fill]
        self._fill = rest

    def _ascending(self, rows: Array) -> tuple[Array, Array | None]:
        """The scores of some rows in ascending order, with their weights."""
        scores = self._values[rows]
        if self.spec.weighted:
            order = np.argsort(scores, kind="stable")
            return scores[order], self._weights[rows[order]]
        scores.sort()
        return scores, None

    def finish(self) -> tuple[Array, Array]:
        """Pass on the remaining rows; returns the rows seen and those with a NaN or null score, both by label."""
        self._pass_on(self._fill)
        return self.seen, self.nan_rows


@dataclass(frozen=True)
class GroupedBins:
    """Counts of a sample by bin, from the best scores to the worst.

    Attributes
    ----------
    counts : array of shape (32, 2, n_bins), rows by group and label; int64, or float64 if interpolated
    weights : float64 array of shape (32, 2, n_bins), sums of weights; None without weights
    single : bool array of shape (n_bins,), whether a bin is known to hold a single score
    counted : whether counts and weights are exact rather than interpolated
    """

    counts: Array
    weights: Array | None
    single: Array
    counted: bool = True


def facts(header: Header) -> dict[str, Array]:
    """The arrays that a header stores besides the spec."""
    return {
        name: np.array(values, np.float64 if name == "infinite_weight" else np.int64)
        for name, values in header.items()
        if name != "spec"
    }


@dataclass(frozen=True)
class BinsSpec(SampleSpec):
    """Counts of a sample between fixed edges; other attributes as in `SampleSpec`.

    Attributes
    ----------
    edges : ascending and distinct; a score equal to an edge lies in the bin above it

    Raises
    ------
    OptionError
        If `sample` is not in (0, 1], or the edges do not ascend.

    Examples
    --------
    >>> BinsSpec("score", edges=(0.25, 0.5)).empty().binned().counts.shape
    (32, 2, 0)
    """

    kind: ClassVar[str] = "sampled_bins"
    version: ClassVar[int] = 1

    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if any(not a < b for a, b in pairwise(self.edges)):
            raise OptionError(f"edges={self.edges!r} do not ascend")

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table, one row per bin: its ends, the counts of its 64 cells and, with weights, their sums."""
        ends = [pa.field(name, pa.float64(), nullable=False) for name in ("low", "high")]
        sums = [pa.field("weights", pa.list_(pa.float64(), CELLS))] if self.weighted else []
        counts = pa.field("counts", pa.list_(pa.int64(), CELLS))
        return pa.schema([pa.field("bin", pa.int64(), nullable=False), *ends, counts, *sums])

    def builder(self, budget: Budget, capacity: int) -> _BinsBuilder:
        """A new builder of about 20 MiB, 37 MiB with weights; less for small samples."""
        return _BinsBuilder(self)

    def empty(self) -> SampledBins:
        """The empty state."""
        shape = CELLS, len(self.edges) + 1
        ends = np.full(shape[1], np.inf), np.full(shape[1], -np.inf)
        return SampledBins(self, np.zeros(shape, np.int64), *ends, np.zeros(shape) if self.weighted else None)

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> SampledBins:
        """The state that `SampledBins.to_arrow` wrote."""
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        empty = self.empty()
        state = SampledBins(self, empty.table, empty.low, empty.high, empty.weights, **facts(header))
        at, low, high = (table.column(name).to_numpy() for name in ("bin", "low", "high"))
        within = np.searchsorted(self.edges, [low, high], "right") == at if len(table) else np.ones(0, np.bool_)
        if not ((np.diff(at) > 0).all() and within.all() and (low <= high).all()):
            raise ValueError(f"bins ascend from 0 to {state.low.size - 1}, and their scores are between their edges")
        state.low[at], state.high[at] = low, high
        for name, cells in zip(("counts", "weights"), state.cells(), strict=False):
            if len(table):
                values = table.column(name).combine_chunks().flatten().to_numpy()
                check_counts(name, values)
                cells[:, at] = values.reshape(-1, CELLS).T
        return state


class _BinsBuilder:
    def __init__(self, spec: BinsSpec) -> None:
        self.spec = spec
        self._draws = Draws(spec, self._take)
        self._edges = np.array(spec.edges)
        self._state = spec.empty()

    def update(self, batch: Batch) -> None:
        self._draws.update(batch)

    def _take(self, cell: int, ascending: Array, weights: Array | None) -> None:
        """Count the ascending scores of a cell."""
        cuts = np.concatenate(([0], np.searchsorted(ascending, self._edges), [ascending.size]))
        sizes = np.diff(cuts)
        full = np.flatnonzero(sizes)
        state = self._state
        state.table[cell] += sizes
        if state.weights is not None and weights is not None:
            state.weights[cell, full] += np.add.reduceat(weights, cuts[full])
        state.low[full] = np.minimum(state.low[full], ascending[cuts[full]])
        state.high[full] = np.maximum(state.high[full], ascending[cuts[full + 1] - 1])

    def state(self) -> SampledBins:
        seen, nan_rows = self._draws.finish()
        return replace(self._state, seen=seen, nan_rows=nan_rows)


@dataclass(frozen=True, eq=False)
class SampledBins(Small, Stored):
    """Counts of a sample by bin, group and label.

    Attributes
    ----------
    spec : BinsSpec
    table : int64 array of shape (64, n_bins), rows by cell (2·group + label) and bin, from the lowest bin
    low, high : float64 arrays of shape (n_bins,), smallest and largest score of each bin; ∞ and −∞ for empty bins
    weights : float64 array of shape (64, n_bins), sums of weights; None without weights
    seen, nan_rows : see `SampledDigests`
    """

    spec: BinsSpec
    table: Array
    low: Array
    high: Array
    weights: Array | None = None
    seen: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def cells(self) -> tuple[Array, ...]:
        """The table of counts and, with weights, that of their sums."""
        return (self.table,) if self.weights is None else (self.table, self.weights)

    def merge(self, other: SampledBins) -> SampledBins:
        """The sample of both inputs."""
        mergeable(self, other)
        ends = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        table, *weights = (mine + theirs for mine, theirs in zip(self.cells(), other.cells(), strict=True))
        weight = weights[0] if weights else None
        return SampledBins(self.spec, table, *ends, weight, self.seen + other.seen, self.nan_rows + other.nan_rows)

    def binned(self, share: float = 1, quantiles: int = 0) -> GroupedBins:
        """Counts of all occupied bins. The arguments are ignored: the edges already serve every share."""
        full = np.flatnonzero(self.low <= self.high)[::-1]
        single = (self.low[full] == self.high[full]) & (abs(self.low[full]) <= float_limit(self.spec.type))
        counts, *weights = (cells[:, full].reshape(GROUPS, 2, -1) for cells in self.cells())
        return GroupedBins(counts, weights[0] if weights else None, single)

    def totals(self) -> Totals:
        """Drawn rows of both classes."""
        (neg, pos), *weights = ([cells[label::2].sum().item() for label in (0, 1)] for cells in self.cells())
        of_neg, of_pos = weights[0] if weights else (float(neg), float(pos))
        return Totals(neg, pos, of_neg, of_pos, weighted=self.weights is not None)

    def header(self) -> Header:
        """The spec and the numbers of rows seen and missing, as JSON values."""
        spec = asdict(self.spec) | {"edges": list(self.spec.edges)}
        return {"spec": spec, "seen": self.seen.tolist(), "nan_rows": self.nan_rows.tolist()}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One batch of all occupied bins."""
        full = np.flatnonzero(self.low <= self.high)
        cells = [pa.FixedSizeListArray.from_arrays(pa.array(part[:, full].T.ravel()), CELLS) for part in self.cells()]
        arrays = [pa.array(full), pa.array(self.low[full]), pa.array(self.high[full]), *cells]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)
