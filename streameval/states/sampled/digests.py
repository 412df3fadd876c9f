"""SampledDigests: t-digests of a sample of scores, one a group and label.

One pass over the data, any edges later: between edges the rows of each of the 64 cells (32 groups, two labels;
`streameval.states.sampled.draws`) are interpolated. Digests are like those of
`streameval.states.scores.quantile_sketch`, with compression 200. Centroids of different tasks are kept side by side,
and neighbours merged only when there are 260,000 (4.5 MB), so that merging is associative and commutative until then.

The drawn rows are always the same. A cell that folds up to 250 of them keeps them one by one; of more, a million drawn
rows at a time are gathered into centroids, so that other tasks give other centroids of the same rows, and what is
interpolated between them may differ in the fifth digit.

Where few distinct scores repeat, counts of a second pass are better than digests (`SampledDigests.tied` says whether it
is so, `SampledDigests.refine` what to count). Scores are taken as float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.kernels.sketch import compress, reduce_sorted
from streameval.states.compatible import mergeable
from streameval.states.protocol import Batch, Small, Totals
from streameval.states.sampled.bins import BinsSpec
from streameval.states.sampled.draws import CELLS, GROUPS, Draws, GroupedBins, check_sample, facts
from streameval.states.scores.quantile_sketch import FINE, QuantileSketch, QuantileSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.typing import Array

__all__ = ["DigestsSpec", "SampledDigests"]

COMPRESSION = 200
COLLECTED = 1 << 18  # centroids of all cells that are kept before neighbours are merged
MARGIN = 0.1  # of a truncated part, by which edges reach below it: samples of 31 groups are cut there


@dataclass(frozen=True)
class DigestsSpec:
    """Digests of a sample of one score column.

    Attributes
    ----------
    column : the score column
    type : see `streameval.states.scores.types.score_type`
    nan : ``error`` refuses NaN and null scores while folding; any other value counts them apart
    sample : share of the rows to draw, in (0, 1]
    seed : another one draws another sample
    whole : whether a piece of the scan is one group as a whole: row groups were drawn

    Examples
    --------
    >>> DigestsSpec("score", sample=0.1).columns
    ('score',)
    """

    kind: ClassVar[str] = "sampled_digests"
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

    def __post_init__(self) -> None:
        check_sample(self.sample)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: cell (2·group + label), mean and weight of each centroid."""
        kinds = {"cell": pa.uint8(), "mean": pa.float64(), "weight": pa.float64()}
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])

    def builder(self, budget: Budget, capacity: int) -> _DigestsBuilder:
        """A builder of about 25 MiB, less for small samples."""
        return _DigestsBuilder(self, budget)

    def empty(self) -> SampledDigests:
        """The state of no rows."""
        return SampledDigests(self)

    def from_arrow(
        self,
        header: Mapping[str, Any],
        batches: Iterable[pa.RecordBatch],
        budget: Budget,
    ) -> SampledDigests:
        """The state that `SampledDigests.to_arrow` wrote."""
        table = pa.Table.from_batches(batches, self.schema)
        cell, mean, weight = (table.column(name).to_numpy() for name in self.schema.names)
        if not (np.isfinite(mean).all() and np.isfinite(weight).all() and (weight > 0).all() and (cell < CELLS).all()):
            msg = "centroids are finite means of 64 cells with positive weights"
            raise ValueError(msg)
        return SampledDigests(self, *_ordered(cell, mean, weight), **facts(header))


def _ordered(cell: Array, mean: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Centroids by cell, mean and weight."""
    order = np.argsort(cell, kind="stable")
    cell, mean, weight = cell[order], mean[order], weight[order]
    for a, b in _spans(cell):
        order = np.argsort(mean[a:b], kind="stable")  # merges the ascending runs of which it is made
        mean[a:b], weight[a:b] = mean[a:b][order], weight[a:b][order]
        if (mean[a : b - 1] == mean[a + 1 : b]).any():
            weight[a:b] = weight[a:b][np.lexsort((weight[a:b], mean[a:b]))]
    return cell, mean, weight


def _joined(parts: Sequence[tuple[Array, Array, Array]], most: int) -> tuple[Array, Array, Array]:
    """Centroids of several lists, side by side; neighbours of a cell are merged if there are more than `most`."""
    cell, mean, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    if cell.size <= most:
        return cell, mean, weight
    cell, mean, weight = _ordered(cell, mean, weight)
    spans = _spans(cell)
    kept = [compress(mean[a:b], weight[a:b], float(FINE * COMPRESSION)) for a, b in spans]
    cells = np.repeat(cell[[a for a, _ in spans]], [means.size for means, _ in kept])
    return cells, np.concatenate([means for means, _ in kept]), np.concatenate([weights for _, weights in kept])


def _spans(cell: Array) -> list[tuple[int, int]]:
    """Where each cell that has centroids begins and ends."""
    return [(a, b) for a, b in pairwise(np.searchsorted(cell, np.arange(CELLS + 1)).tolist()) if b > a]


class _DigestsBuilder:
    def __init__(self, spec: DigestsSpec, budget: Budget) -> None:
        self.spec = spec
        self._draws = Draws(spec, self._take, budget)
        self._parts: list[tuple[Array, Array, Array]] = []
        self._size = 0
        self._infinite = np.zeros((2, CELLS), np.int64)

    def update(self, batch: Batch) -> None:
        self._draws.update(batch)
        if self._size > COLLECTED:
            self._parts = [_joined(self._parts, 0)]
            self._size = self._parts[0][0].size

    def _take(self, cell: int, ascending: Array) -> None:
        """Gather the scores of a cell into centroids."""
        first, last = np.searchsorted(ascending, -np.inf, "right"), np.searchsorted(ascending, np.inf)
        self._infinite[:, cell] += (first, ascending.size - last)
        if last > first:
            mean, weight = reduce_sorted(ascending[first:last], float(FINE * COMPRESSION))
            self._parts.append((np.full(mean.size, cell, np.uint8), mean, weight))
            self._size += mean.size

    def state(self) -> SampledDigests:
        seen, nan_rows = self._draws.finish()
        centroids = _joined(self._parts, COLLECTED) if self._parts else _none()
        return SampledDigests(self.spec, *centroids, self._infinite, seen, nan_rows)


def _none() -> tuple[Array, Array, Array]:
    return np.empty(0, np.uint8), np.empty(0), np.empty(0)


@dataclass(frozen=True, eq=False)
class SampledDigests(Small):
    """Digests of a sample, one a group and label.

    Attributes
    ----------
    spec : DigestsSpec
    cell : uint8 array of shape (n_centroids,), 2·group + label, in any order
    mean, weight : float64 arrays of shape (n_centroids,)
    infinite : int64 array of shape (2, 64), scores −∞ and +∞ of each cell
    seen : int64 array of shape (2,), rows by label the sample was drawn from
    nan_rows : int64 array of shape (2,), rows whose score is NaN or null, by label

    Examples
    --------
    >>> DigestsSpec("score").empty().totals().rows
    0
    """

    spec: DigestsSpec
    cell: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    mean: Array = field(default_factory=lambda: np.empty(0))
    weight: Array = field(default_factory=lambda: np.empty(0))
    infinite: Array = field(default_factory=lambda: np.zeros((2, CELLS), np.int64))
    seen: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def merge(self, other: SampledDigests) -> SampledDigests:
        """The sample of both inputs."""
        mergeable(self, other)
        centroids = _joined([(part.cell, part.mean, part.weight) for part in (self, other)], COLLECTED)
        infinite, seen = self.infinite + other.infinite, self.seen + other.seen
        return SampledDigests(self.spec, *centroids, infinite, seen, self.nan_rows + other.nan_rows)

    @cached_property
    def centroids(self) -> tuple[Array, Array, Array]:
        """Cell, mean and weight of all centroids, ordered by them."""
        return _ordered(self.cell, self.mean, self.weight)

    @cached_property
    def all(self) -> QuantileSketch:
        """The digest of the whole sample."""
        spec = QuantileSpec(self.spec.column)
        below, above = self.infinite.sum(1).tolist()
        if not self.mean.size:
            return QuantileSketch(spec, below=below, above=above)
        order = np.lexsort((self.weight, self.mean))
        mean, weight = compress(self.mean[order], self.weight[order], float(FINE * spec.compression))
        return QuantileSketch(spec, mean, weight, float(mean[0]), float(mean[-1]), below, above)

    @property
    def tied(self) -> float:
        """Share of the sample in scores so frequent that a digest shows them: neighbours of equal mean in a cell."""
        cell, mean, weight = self.centroids
        frequent = float(weight[_repeated(mean, cell)].sum()) + float(self.infinite.sum())
        return frequent / max(float(weight.sum() + self.infinite.sum()), 1.0)

    @property
    def whole(self) -> bool:
        """Whether every centroid is one drawn row, so that nothing is interpolated."""
        return bool((self.weight == 1).all())

    def edges(self, share: float, quantiles: int) -> Array:
        """Edges that cut the top `share` of the sample into `quantiles` bins, and a few below; ascending."""
        steps = np.arange(1, quantiles + max(1, math.ceil(MARGIN * quantiles)) + 1)
        levels = 1 - share * steps / quantiles
        return np.unique(self.all.quantile(levels[levels > 0])) if self.totals().rows else np.empty(0)

    def refine(self, shares: Iterable[float], quantiles: int) -> BinsSpec:
        """The second pass: counts of the same sample between the edges of every share asked for."""
        edges = np.unique(np.concatenate([np.empty(0), *(self.edges(share, quantiles) for share in shares)]))
        return BinsSpec(**asdict(self.spec), edges=tuple(edges.tolist()))

    def binned(self, share: float, quantiles: int) -> GroupedBins:
        """Counts between the edges of a share, interpolated; exact as long as every centroid is one score."""
        edges = self.edges(share, quantiles)
        cell, mean, weight = self.centroids
        cuts = np.searchsorted(cell, np.arange(CELLS + 1)).tolist()
        above = np.stack([_count_above(mean[a:b], weight[a:b], edges) for a, b in pairwise(cuts)])
        infinite = np.where(edges > -np.inf, self.infinite[1][:, None], self.infinite.sum(0)[:, None])
        rows = np.bincount(self.cell, self.weight, CELLS) + self.infinite.sum(0)
        reached = np.column_stack([rows, above + infinite, np.zeros(CELLS)])
        counts = (reached[:, :-1] - reached[:, 1:])[:, ::-1].reshape(GROUPS, 2, -1)
        return GroupedBins(counts, np.zeros(counts.shape[2], np.bool_), self.whole)

    def totals(self) -> Totals:
        """Drawn rows of both classes."""
        rows = np.bincount(self.cell, self.weight, CELLS) + self.infinite.sum(0)
        neg, pos = (round(float(rows[label::2].sum())) for label in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + self.cell.nbytes + self.mean.nbytes + self.weight.nbytes + self.infinite.nbytes

    def header(self) -> dict[str, Any]:
        """Facts beside the table."""
        arrays = {name: getattr(self, name).tolist() for name in ("infinite", "seen", "nan_rows")}
        return {"spec": asdict(self.spec)} | arrays

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """One batch: columns cell, mean and weight."""
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in self.centroids], schema=self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state, centroid by centroid."""
        if not isinstance(other, SampledDigests):
            return NotImplemented
        same = all(np.array_equal(a, b) for a, b in zip(self.centroids, other.centroids, strict=True))
        return same and self.header() == other.header()


def _repeated(mean: Array, cell: Array | None = None) -> Array:
    """Whether a centroid and a neighbour, of the same cell, have the same mean."""
    same = mean[1:] == mean[:-1]
    if cell is not None:
        same &= cell[1:] == cell[:-1]
    before, after = np.zeros((2, mean.size), np.bool_)
    before[1:], after[:-1] = same, same
    return np.asarray(before | after)


def _count_above(mean: Array, weight: Array, edges: Array) -> Array:
    """Numbers of a digest at or above each edge; infinite edges are allowed.

    A centroid of several numbers is spread evenly about its mean, half before and half after; one that is a single
    number, or whose neighbour has the same mean, stands at it.
    """
    if not mean.size:
        return np.zeros(edges.size)
    ends = np.cumsum(weight)
    before = np.where((weight == 1) | _repeated(mean), weight, weight / 2)  # of a centroid, up to its mean inclusive
    left, right = ends - before, ends - weight + before
    after = np.searchsorted(mean, edges)
    i, j = np.maximum(after - 1, 0), np.minimum(after, mean.size - 1)
    gap = mean[j] / 2 - mean[i] / 2  # halves, which cannot overflow
    way = np.where(np.isfinite(edges), edges, 0.0) / 2 - mean[i] / 2
    below = right[i] + np.divide(way, gap, out=np.zeros(edges.size), where=gap > 0) * (left[j] - right[i])
    below = np.where(mean[j] == edges, left[j], below)
    below = np.where(after == 0, 0.0, np.where(after == mean.size, ends[-1], below))
    return np.asarray(ends[-1] - below)
