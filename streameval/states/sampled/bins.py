"""SampledBins: counts of a sample of scores between fixed edges, by group and label.

The edges come from digests of the same sample (`streameval.states.sampled.digests`), so that a second pass counts what
the first could only estimate. Counts are integers and merge exactly, in any order. Each bin knows its smallest and
largest score: a bin of one score hides nothing. Memory: 528 bytes a bin.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.states.compatible import mergeable
from streameval.states.protocol import Batch, Small, Totals
from streameval.states.sampled.draws import CELLS, GROUPS, Draws, GroupedBins, check_sample, facts
from streameval.states.scores.types import float_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.typing import Array

__all__ = ["BinsSpec", "SampledBins"]


@dataclass(frozen=True)
class BinsSpec:
    """Counts of a sample between fixed edges; other attributes as `DigestsSpec`.

    Attributes
    ----------
    edges : ascending and distinct; a score at an edge lies in the bin above it

    Examples
    --------
    >>> BinsSpec("score", edges=(0.25, 0.5)).empty().binned().counts.shape
    (32, 2, 0)
    """

    kind: ClassVar[str] = "sampled_bins"
    version: ClassVar[int] = 1
    additive: ClassVar[bool] = False
    associative: ClassVar[bool] = False
    packing: ClassVar[None] = None

    column: str
    type: str = "f4"
    nan: str = "error"
    sample: float = 1.0
    seed: int = 0
    whole: bool = False
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_sample(self.sample)
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if any(not a < b for a, b in pairwise(self.edges)):
            msg = f"edges={self.edges!r} do not ascend"
            raise OptionError(msg)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: a bin a row, with its ends and the counts of its 64 cells."""
        ends = [pa.field(name, pa.float64(), nullable=False) for name in ("low", "high")]
        return pa.schema(
            [pa.field("bin", pa.int64(), nullable=False), *ends, pa.field("counts", pa.list_(pa.int64(), CELLS))]
        )

    def builder(self, budget: Budget, capacity: int) -> _BinsBuilder:
        """A builder of about 20 MiB, less for small samples."""
        return _BinsBuilder(self, budget)

    def empty(self) -> SampledBins:
        """The state of no rows."""
        size = len(self.edges) + 1
        return SampledBins(self, np.zeros((CELLS, size), np.int64), np.full(size, np.inf), np.full(size, -np.inf))

    def from_arrow(
        self,
        header: Mapping[str, Any],
        batches: Iterable[pa.RecordBatch],
        budget: Budget,
    ) -> SampledBins:
        """The state that `SampledBins.to_arrow` wrote."""
        table = pa.Table.from_batches(batches, self.schema).combine_chunks()
        state = SampledBins(self, *(array.copy() for array in self.empty().arrays()), **facts(header))
        at = table.column("bin").to_numpy()
        state.low[at], state.high[at] = (table.column(name).to_numpy() for name in ("low", "high"))
        if len(table):
            state.table[:, at] = table.column("counts").combine_chunks().flatten().to_numpy().reshape(-1, CELLS).T
        return state


class _BinsBuilder:
    def __init__(self, spec: BinsSpec, budget: Budget) -> None:
        self.spec = spec
        self._draws = Draws(spec, self._take, budget)
        self._edges = np.array(spec.edges)
        self._table, self._low, self._high = (array.copy() for array in spec.empty().arrays())

    def update(self, batch: Batch) -> None:
        self._draws.update(batch)

    def _take(self, cell: int, ascending: Array) -> None:
        """Count the scores of a cell."""
        cuts = np.concatenate(([0], np.searchsorted(ascending, self._edges), [ascending.size]))
        sizes = np.diff(cuts)
        full = np.flatnonzero(sizes)
        self._table[cell] += sizes
        self._low[full] = np.minimum(self._low[full], ascending[cuts[full]])
        self._high[full] = np.maximum(self._high[full], ascending[cuts[full + 1] - 1])

    def state(self) -> SampledBins:
        seen, nan_rows = self._draws.finish()
        return SampledBins(self.spec, self._table, self._low, self._high, seen, nan_rows)


@dataclass(frozen=True, eq=False)
class SampledBins(Small):
    """Counts of a sample in bins.

    Attributes
    ----------
    spec : BinsSpec
    table : int64 array of shape (64, n_bins), rows by cell, from the lowest bin
    low, high : float64 arrays of shape (n_bins,), smallest and largest score of each bin
    seen, nan_rows : see `SampledDigests`
    """

    spec: BinsSpec
    table: Array
    low: Array
    high: Array
    seen: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def arrays(self) -> tuple[Array, Array, Array]:
        """Counts and ends."""
        return self.table, self.low, self.high

    def merge(self, other: SampledBins) -> SampledBins:
        """The sample of both inputs."""
        mergeable(self, other)
        ends = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        seen = self.seen + other.seen, self.nan_rows + other.nan_rows
        return SampledBins(self.spec, self.table + other.table, *ends, *seen)

    def binned(self, share: float = 1, quantiles: int = 0) -> GroupedBins:
        """Counts of all occupied bins; edges of several shares serve every one of them."""
        found = np.flatnonzero(self.low <= self.high)[::-1]
        single = (self.low[found] == self.high[found]) & (abs(self.low[found]) <= float_limit(self.spec.type))
        return GroupedBins(self.table[:, found].reshape(GROUPS, 2, -1), single)

    def totals(self) -> Totals:
        """Drawn rows of both classes."""
        neg, pos = (int(self.table[label::2].sum()) for label in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + sum(array.nbytes for array in self.arrays())

    def header(self) -> dict[str, Any]:
        """Facts beside the table."""
        spec = asdict(self.spec) | {"edges": list(self.spec.edges)}
        return {"spec": spec, "seen": self.seen.tolist(), "nan_rows": self.nan_rows.tolist()}

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """Occupied bins: columns bin, low, high and counts."""
        found = np.flatnonzero(self.low <= self.high)
        counts = pa.FixedSizeListArray.from_arrays(pa.array(self.table[:, found].T.ravel()), CELLS)
        arrays = [pa.array(found), pa.array(self.low[found]), pa.array(self.high[found]), counts]
        yield pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state."""
        if not isinstance(other, SampledBins):
            return NotImplemented
        same = all(np.array_equal(a, b) for a, b in zip(self.arrays(), other.arrays(), strict=True))
        return same and self.header() == other.header()
