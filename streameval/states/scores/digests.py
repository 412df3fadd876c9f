"""SampledDigests: t-digests of a sample of scores, one for each group and label.

After one pass over the data, bins with any edges can be read: between edges, the rows of each of the 64 cells (32
groups × two labels; `streameval.states.scores.draws`) are interpolated. The digests are like those of
`streameval.states.scores.quantile_sketch`, with compression 200. A merge concatenates centroids, and combines
neighbours only once there are more than 260,000 (7 MB). Until then it is associative and commutative.

With weights, a centroid also holds the sum of its rows' weights. Means, centroid sizes and edges depend on the rows
alone, not on their weights; between edges, both rows and weights are interpolated.

The drawn rows do not depend on how the data is divided into tasks, but the centroids do. A cell with up to 250 rows
keeps every row; larger cells are compressed a million drawn rows at a time, so counts interpolated between centroids
may differ in the fifth digit.

A frequent score has its own centroid, so counts at it are exact. A bin of digests, however, does not record that it
holds a single score; the bins of a second pass do (`SampledDigests.tied` gives the share of such scores, and
`SampledDigests.refine` the spec of the second pass). Scores are read as float64.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels.sampling import CELLS, GROUPS, compress, reduce_sorted
from streameval.states.facts import check_counts
from streameval.states.protocol import Batch, Small, Stored, Totals, mergeable
from streameval.states.scores.draws import BinsSpec, Draws, GroupedBins, SampleSpec, facts
from streameval.states.scores.quantile_sketch import FINE, QuantileSketch, QuantileSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import Header
    from streameval.typing import Array

COMPRESSION = 200
COLLECTED = 1 << 18  # centroids of all cells that are kept before neighbours are merged
MARGIN = 0.1  # edges extend below the truncated part by this share of it: there, replicates of 31 groups are truncated


@dataclass(frozen=True)
class DigestsSpec(SampleSpec):
    """Digests of a sample of one score column; attributes as in `SampleSpec`.

    Examples
    --------
    >>> DigestsSpec("score", sample=0.1).columns
    ('score',)
    """

    kind: ClassVar[str] = "sampled_digests"
    version: ClassVar[int] = 1

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: cell (2·group + label), mean, rows, whether of one score; with weights, their sum."""
        kinds = {"cell": pa.uint8(), "mean": pa.float64(), "rows": pa.float64(), "single": pa.bool_()}
        kinds |= {"weight": pa.float64()} if self.weighted else {}
        return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])

    def builder(self, budget: Budget, capacity: int) -> _DigestsBuilder:
        """A new builder of about 25 MiB, 40 MiB with weights."""
        return _DigestsBuilder(self)

    def empty(self) -> SampledDigests:
        """The empty state."""
        return SampledDigests(self)

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> SampledDigests:
        """The state that `SampledDigests.to_arrow` wrote; raises `ValueError` if the table is damaged."""
        table = pa.Table.from_batches(batches, self.schema)
        columns = [table.column(name).to_numpy() for name in self.schema.names]
        columns = columns if self.weighted else [*columns, columns[2]]
        cell, mean, rows, _, weight = columns
        for name, values, kind in (("rows", rows, int), ("weights", weight, float)):
            check_counts(name, values, kind)
        if not (np.isfinite(mean).all() and (rows > 0).all() and (cell < CELLS).all()):
            raise ValueError("centroids are finite means of 64 cells with positive rows and weights")
        return SampledDigests(self, CellCentroids(*columns).ordered(), **facts(header))


class CellCentroids(NamedTuple):
    """Centroids of all cells; arrays of shape (n_centroids,).

    Attributes
    ----------
    cell : uint8, 2·group + label
    mean, rows : float64
    single : bool, whether all rows of a centroid are known to have equal scores
    weight : float64, sums of weights; equal to `rows` without weights
    """

    cell: Array = np.empty(0, np.uint8)
    mean: Array = np.empty(0)
    rows: Array = np.empty(0)
    single: Array = np.empty(0, np.bool_)
    weight: Array = np.empty(0)

    def ordered(self) -> CellCentroids:
        """Sorted by cell and mean; single centroids of equal value are combined."""
        order = np.argsort(self.cell, kind="stable")
        cell, mean, rows, single, weight = columns = CellCentroids(*(column[order] for column in self))
        for a, b in _spans(cell):
            order = np.argsort(mean[a:b], kind="stable")  # fast, because the array consists of ascending runs
            if (mean[a:b][order][:-1] == mean[a:b][order][1:]).any():
                order = np.lexsort((weight[a:b], rows[a:b], single[a:b], mean[a:b]))
            for column in columns[1:]:
                column[a:b] = column[a:b][order]
        again = (mean[1:] == mean[:-1]) & (cell[1:] == cell[:-1]) & single[1:] & single[:-1]
        if not again.any():
            return columns
        first = np.flatnonzero(np.concatenate(([True], ~again)))
        rows, weight = (np.add.reduceat(column, first) for column in (rows, weight))
        return CellCentroids(cell[first], mean[first], rows, single[first], weight)

    @classmethod
    def joined(cls, parts: Sequence[CellCentroids], most: int) -> CellCentroids:
        """Concatenate lists of centroids; if there are more than `most`, neighbours within a cell are merged."""
        every = cls(*map(np.concatenate, zip(*parts, strict=True)))
        if every.cell.size <= most:
            return every
        cell, mean, rows, single, weight = every.ordered()
        merged = []
        for a, b in _spans(cell):
            *columns, starts = compress(mean[a:b], rows[a:b], single[a:b], float(FINE * COMPRESSION))
            merged.append((np.full(starts.size, cell[a]), *columns, np.add.reduceat(weight[a:b], starts)))
        return cls(*map(np.concatenate, zip(*merged, strict=True)))


def _spans(cell: Array) -> list[tuple[int, int]]:
    """Start and stop of each cell that has centroids, in an ascending array of cells."""
    return [(a, b) for a, b in pairwise(np.searchsorted(cell, np.arange(CELLS + 1)).tolist()) if b > a]


_FACTS = ("infinite", "infinite_weight", "seen", "nan_rows")


class _DigestsBuilder:
    def __init__(self, spec: DigestsSpec) -> None:
        self.spec = spec
        self._draws = Draws(spec, self._take)
        self._parts: list[CellCentroids] = []
        self._size = 0
        self._infinite, self._infinite_weight = np.zeros((2, CELLS), np.int64), np.zeros((2, CELLS))

    def update(self, batch: Batch) -> None:
        self._draws.update(batch)
        if self._size > COLLECTED:
            self._parts = [CellCentroids.joined(self._parts, 0)]
            self._size = self._parts[0].cell.size

    def _take(self, cell: int, ascending: Array, weights: Array | None) -> None:
        """Compress the ascending scores of a cell into centroids."""
        first, last = np.searchsorted(ascending, -np.inf, "right"), np.searchsorted(ascending, np.inf)
        self._infinite[:, cell] += (first, ascending.size - last)
        if weights is not None:
            self._infinite_weight[:, cell] += (weights[:first].sum(), weights[last:].sum())
        if last > first:
            mean, rows, single = reduce_sorted(ascending[first:last], float(FINE * COMPRESSION))
            starts = np.cumsum(rows.astype(np.int64)) - rows.astype(np.int64)
            weight = rows if weights is None else np.add.reduceat(weights[first:last], starts)
            self._parts.append(CellCentroids(np.full(mean.size, cell, np.uint8), mean, rows, single, weight))
            self._size += mean.size

    def state(self) -> SampledDigests:
        seen, nan_rows = self._draws.finish()
        centroids = CellCentroids.joined([CellCentroids(), *self._parts], COLLECTED)
        return SampledDigests(self.spec, centroids, self._infinite, self._infinite_weight, seen, nan_rows)


@dataclass(frozen=True, eq=False)
class SampledDigests(Small, Stored):
    """Digests of a sample, one for each group and label.

    Attributes
    ----------
    spec : DigestsSpec
    unordered : the centroids, in any order
    infinite : int64 array of shape (2, 64), rows of each cell with score −∞, then +∞
    infinite_weight : float64 array of shape (2, 64), sums of their weights; 0 without weights
    seen : int64 array of shape (2,), rows from which the sample was drawn, by label
    nan_rows : int64 array of shape (2,), rows whose score is NaN or null, by label

    Examples
    --------
    >>> DigestsSpec("score").empty().totals().rows
    0
    """

    spec: DigestsSpec
    unordered: CellCentroids = field(default_factory=CellCentroids)
    infinite: Array = field(default_factory=lambda: np.zeros((2, CELLS), np.int64))
    infinite_weight: Array = field(default_factory=lambda: np.zeros((2, CELLS)))
    seen: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def merge(self, other: SampledDigests) -> SampledDigests:
        """The sample of both inputs."""
        mergeable(self, other)
        centroids = CellCentroids.joined([self.unordered, other.unordered], COLLECTED)
        sums = (getattr(self, name) + getattr(other, name) for name in _FACTS)
        return SampledDigests(self.spec, centroids, *sums)

    @cached_property
    def centroids(self) -> CellCentroids:
        """The centroids sorted by cell and mean; single centroids of equal value are combined."""
        return self.unordered.ordered()

    @cached_property
    def all(self) -> QuantileSketch:
        """The digest of the whole sample, without weights."""
        spec = QuantileSpec(self.spec.column)
        below, above = self.infinite.sum(1).tolist()
        _, mean, rows, single, _ = self.unordered
        if not mean.size:
            return QuantileSketch(spec, below=below, above=above)
        order = np.lexsort((rows, single, mean))
        columns = mean[order], rows[order], single[order]
        mean, rows, single, _ = compress(*columns, float(FINE * spec.compression))
        return QuantileSketch(spec, mean, rows, single, float(mean[0]), float(mean[-1]), below, above)

    @property
    def tied(self) -> float:
        """Share of the sample that lies in frequent scores: single centroids of several rows, and infinities."""
        _, _, rows, single, _ = self.centroids
        frequent = float(rows[single & (rows > 1)].sum()) + float(self.infinite.sum())
        return frequent / max(float(rows.sum() + self.infinite.sum()), 1.0)

    @property
    def exact(self) -> bool:
        """Whether every centroid is a single score, so that nothing is interpolated."""
        return bool(self.unordered.single.all())

    def edges(self, share: float, quantiles: int) -> Array:
        """Ascending edges that divide the top `share` of the sample into `quantiles` bins, with a few bins below."""
        steps = np.arange(1, quantiles + max(1, math.ceil(MARGIN * quantiles)) + 1)
        levels = 1 - share * steps / quantiles
        return np.unique(self.all.quantile(levels[levels > 0])) if self.totals().rows else np.empty(0)

    def refine(self, shares: Iterable[float], quantiles: int) -> BinsSpec:
        """The spec of the second pass, which counts the same sample between the edges of all given shares."""
        edges = np.unique(np.concatenate([np.empty(0), *(self.edges(share, quantiles) for share in shares)]))
        return BinsSpec(**asdict(self.spec), edges=tuple(edges.tolist()))

    def binned(self, share: float, quantiles: int) -> GroupedBins:
        """Interpolated counts between the edges of a share; exact if every centroid is a single score."""
        edges = self.edges(share, quantiles)
        cell, mean, rows, single, weight = self.centroids
        measures = np.stack([rows, weight] if self.spec.weighted else [rows])
        cuts = np.searchsorted(cell, np.arange(CELLS + 1)).tolist()
        above = np.stack([_above(mean[a:b], single[a:b], measures[:, a:b], edges) for a, b in pairwise(cuts)], 1)
        infinite = np.stack([self.infinite, self.infinite_weight][: len(measures)])
        above += np.where(edges > -np.inf, infinite[:, 1, :, None], infinite.sum(1)[:, :, None])
        ends = self._by_cell()[: len(measures), :, None], np.zeros((len(measures), CELLS, 1))
        reached = np.concatenate([ends[0], above, ends[1]], 2)
        bins = (reached[:, :, :-1] - reached[:, :, 1:])[:, :, ::-1].reshape(len(measures), GROUPS, 2, -1)
        known = np.zeros(bins.shape[-1], np.bool_)
        return GroupedBins(bins[0], bins[1] if self.spec.weighted else None, known, self.exact)

    def _by_cell(self) -> Array:
        """Rows and weights of each cell, infinities included: a float64 array of shape (2, 64)."""
        cell, _, rows, _, weight = self.unordered
        sums = [np.bincount(cell, measure, CELLS) for measure in (rows, weight)]
        return np.asarray(np.stack(sums) + np.stack([self.infinite.sum(0), self.infinite_weight.sum(0)]))

    def totals(self) -> Totals:
        """Drawn rows of both classes."""
        rows, weights = (tuple(float(side[label::2].sum()) for label in (0, 1)) for side in self._by_cell())
        neg, pos = map(round, rows)
        if not self.spec.weighted:
            return Totals(neg, pos, float(neg), float(pos))
        return Totals(neg, pos, weights[0], weights[1], weighted=True)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + sum(column.nbytes for column in self.unordered)

    def header(self) -> Header:
        """The spec, the infinite scores, and the numbers of rows seen and missing, as JSON values."""
        names = [name for name in _FACTS if self.spec.weighted or name != "infinite_weight"]
        return {"spec": asdict(self.spec)} | {name: getattr(self, name).tolist() for name in names}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """One batch of all centroids."""
        columns = [pa.array(column) for column in self.centroids[: len(self.spec.schema)]]
        yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)


def _above(mean: Array, single: Array, measures: Array, edges: Array) -> Array:
    """Rows, or sums of weights, of a digest at or above each edge; edges may be infinite.

    The rows of a centroid are spread evenly around its mean, half below and half above; those of a single centroid lie
    at its mean.

    Parameters
    ----------
    mean, single : arrays of shape (n_centroids,)
    measures : array of shape (n_measures, n_centroids)
    edges : array of shape (n_edges,), ascending

    Returns
    -------
    float64 array of shape (n_measures, n_edges)
    """
    if not mean.size:
        return np.zeros((len(measures), edges.size))
    ends = np.cumsum(measures, 1)
    before = np.where(single, measures, measures / 2)  # part of each centroid up to and including its mean
    left, right = ends - before, ends - measures + before
    after = np.searchsorted(mean, edges)
    i, j = np.maximum(after - 1, 0), np.minimum(after, mean.size - 1)
    gap = mean[j] / 2 - mean[i] / 2  # halves, which cannot overflow
    way = np.where(np.isfinite(edges), edges, 0.0) / 2 - mean[i] / 2
    part = np.divide(way, gap, out=np.zeros(edges.size), where=gap > 0)
    below = right[:, i] + part * (left[:, j] - right[:, i])
    below = np.where(mean[j] == edges, left[:, j], below)
    below = np.where(after == 0, 0.0, np.where(after == mean.size, ends[:, -1:], below))
    return np.asarray(ends[:, -1:] - below)
