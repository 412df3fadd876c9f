"""SampledBins: counts of a sample of scores between fixed edges, by group and label.

The edges come from digests of the same sample (`streameval.states.sampled.digests`): a second pass over the data counts
exactly what the first could only estimate. Counts are integers and merge exactly, in any order. Each bin keeps its
smallest and largest score; if they are equal, the bin is a single score. Memory: 528 bytes a bin, 1,040 with weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.states.facts import check_counts
from streameval.states.protocol import Batch, Small, Totals, Traits, mergeable
from streameval.states.sampled.draws import CELLS, GROUPS, Draws, GroupedBins, check_sample, facts
from streameval.states.scores.types import MissingScores, float_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.typing import Array


@dataclass(frozen=True)
class BinsSpec(MissingScores):
    """Counts of a sample between fixed edges; other attributes as in `DigestsSpec`.

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

    column: str
    type: str = "f4"
    nan: str = "error"
    sample: float = 1.0
    seed: int = 0
    whole: bool = False
    weighted: bool = False
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_sample(self.sample)
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if any(not a < b for a, b in pairwise(self.edges)):
            raise OptionError(f"edges={self.edges!r} do not ascend")

    @property
    def traits(self) -> Traits:
        """States that depend on how rows are divided into tasks."""
        return Traits(associative=False, refuses_missing=self.nan == "error")

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table, one row per bin: its ends, the counts of its 64 cells and, with weights, their sums."""
        ends = [pa.field(name, pa.float64(), nullable=False) for name in ("low", "high")]
        sums = [pa.field("weights", pa.list_(pa.float64(), CELLS))] if self.weighted else []
        counts = pa.field("counts", pa.list_(pa.int64(), CELLS))
        return pa.schema([pa.field("bin", pa.int64(), nullable=False), *ends, counts, *sums])

    def builder(self, budget: Budget, capacity: int) -> _BinsBuilder:
        """A new builder of about 20 MiB, 37 MiB with weights; less for small samples."""
        return _BinsBuilder(self, budget)

    def empty(self) -> SampledBins:
        """The empty state."""
        size = len(self.edges) + 1
        tables = (np.zeros((CELLS, size), kind) for kind in (np.int64, *((np.float64,) if self.weighted else ())))
        table, *weights = tables
        return SampledBins(self, table, np.full(size, np.inf), np.full(size, -np.inf), *weights)

    def from_arrow(
        self,
        header: Mapping[str, Any],
        batches: Iterable[pa.RecordBatch],
        budget: Budget,
    ) -> SampledBins:
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
    def __init__(self, spec: BinsSpec, budget: Budget) -> None:
        self.spec = spec
        self._draws = Draws(spec, self._take, budget)
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
class SampledBins(Small):
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
        seen, nan_rows = self.seen + other.seen, self.nan_rows + other.nan_rows
        return replace(SampledBins(self.spec, table, *ends, *weights), seen=seen, nan_rows=nan_rows)

    def binned(self, share: float = 1, quantiles: int = 0) -> GroupedBins:
        """Counts of all occupied bins. The arguments are ignored: the edges already serve every share."""
        found = np.flatnonzero(self.low <= self.high)[::-1]
        single = (self.low[found] == self.high[found]) & (abs(self.low[found]) <= float_limit(self.spec.type))
        counts, *weights = (cells[:, found].reshape(GROUPS, 2, -1) for cells in self.cells())
        return GroupedBins(counts, weights[0] if weights else None, single)

    def totals(self) -> Totals:
        """Drawn rows of both classes."""
        rows = [int(self.table[label::2].sum()) for label in (0, 1)]
        sums = rows if self.weights is None else [float(self.weights[label::2].sum()) for label in (0, 1)]
        (neg, pos), (neg_weight, pos_weight) = rows, map(float, sums)
        return Totals(neg, pos, neg_weight, pos_weight, weighted=self.weights is not None)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + sum(array.nbytes for array in (*self.cells(), self.low, self.high))

    def header(self) -> dict[str, Any]:
        """The spec and the numbers of rows seen and missing, as JSON values."""
        spec = asdict(self.spec) | {"edges": list(self.spec.edges)}
        return {"spec": spec, "seen": self.seen.tolist(), "nan_rows": self.nan_rows.tolist()}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One batch of all occupied bins."""
        found = np.flatnonzero(self.low <= self.high)
        cells = [pa.FixedSizeListArray.from_arrays(pa.array(part[:, found].T.ravel()), CELLS) for part in self.cells()]
        arrays = [pa.array(found), pa.array(self.low[found]), pa.array(self.high[found]), *cells]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state."""
        if not isinstance(other, SampledBins):
            return NotImplemented
        mine, theirs = ((*state.cells(), state.low, state.high) for state in (self, other))
        same = all(map(np.array_equal, mine, theirs))
        return same and self.header() == other.header()
