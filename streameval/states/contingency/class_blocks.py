"""Summaries of a contingency table without the classes of each block, from one sweep for all blocks together.

The keyed hash of `streameval.states.grouped.keys` assigns each class to a block by its id. Leaving out a block removes
the cells, sizes and largest cells of its classes and shrinks every cluster with rows in it: a cluster of c rows with d
rows in the block moves from size c to size c − d, or vanishes if d = c, and its Σ n² loses the part of the block's
cells. Other clusters do not change. So each cell is needed only once: `ClassBlocks` watches the rounds
(`streameval.states.contingency.rounds`) and adds up these changes by block and size, as integers.

`ClassReplicates.without` applies the changes to the summary of the whole table. It leaves out Σ n²/(r·c), which changes
with every cell of a smaller cluster.

A row without a class that counts as a singleton forms a separate class. The state does not know the origin of the row,
so its block depends on its cluster and its number k within the cluster: ``hash(k) ^ w``, hashed again, where w is the
first word of the cluster's id, or 0 without a cluster. Blocks of such rows do not match those of another clustering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks.changes import (
    add_cells,
    add_classes,
    add_clusters,
    group_blocks,
    lone_blocks,
    shared_maxima,
    spread_rows,
    squared,
)
from streameval.states.blocks import BLOCKS, BlockSums, Tally, blocks_of
from streameval.states.contingency.cells import Margins
from streameval.states.contingency.size_counts import Sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streameval.states.contingency.size_counts import Number
    from streameval.states.contingency.summary import Summary
    from streameval.states.contingency.watch import CellsOfClasses, Ids
    from streameval.typing import Array

_WORD = 32  # bits of the low word of Σ n²


@dataclass
class _Counts:
    """Counts of each block, int64 arrays of shape (blocks,).

    Attributes
    ----------
    singles : rows of its classes in singleton clusters
    classless : rows without a class
    alone : rows without a class in singleton clusters
    row_maxima : Σ of the largest cells of its classes
    lost_maxima : by how much Σ of the largest cells of clusters of several rows falls without the block
    """

    singles: Array
    classless: Array
    alone: Array
    row_maxima: Array
    lost_maxima: Array


class ClassBlocks:
    """A watcher that adds up the sums of each block of classes, and the changes from leaving it out.

    Parameters
    ----------
    blocks : number of blocks
    """

    def __init__(self, blocks: int = BLOCKS) -> None:
        self.blocks = blocks
        self.cells, self.classes, self.clusters = BlockSums.empty(1), BlockSums.empty(3), BlockSums.empty(3)
        self.counts = _Counts(*np.zeros((5, blocks), np.int64))
        self._open: _OpenClusters | None = None

    def _opened(self, clusters: Array) -> _OpenClusters:
        if self._open is None:
            self._open = _OpenClusters(Margins(clusters.shape[1] - 1), self.blocks)
        return self._open

    def add_clusters(self, clusters: Array, classes: Array, rows: Array, sizes: Array) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        if not rows.size:
            return
        blocks, whole = blocks_of(np.ascontiguousarray(classes), self.blocks), rows == sizes
        pure, impure = np.flatnonzero(whole), np.flatnonzero(~whole)
        own = rows[pure]
        self._remove_blocks(np.arange(own.size + 1), blocks[pure], squared(own), own, own)  # complete: not looked up
        if impure.size:
            found, words, rows = self._opened(clusters), clusters[impure], rows[impure]
            numbers = found.margins.add(words[:, 0], words[:, 1:], np.zeros_like(rows), sizes[impure])
            found.add(numbers, blocks[impure], squared(rows), rows)

    def add_classless(self, clusters: Array, rows: Array, sizes: Array) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        self._opened(clusters).margins.add(clusters[:, 0], clusters[:, 1:], rows, sizes)

    def close_clusters(self) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        found, self._open = self._open, None
        if found is None:
            return
        sizes, classless = found.margins.maxima, found.margins.totals
        if classless.any():
            which = np.flatnonzero(classless)
            words = np.ascontiguousarray(found.margins.ids(which)[:, 0])
            owners, blocks, rows = lone_blocks(words, classless[which], self.blocks)
            owners, none = which[owners], np.zeros(rows.size, np.int64)
            np.add.at(self.counts.classless, blocks, rows)
            np.add.at(self.counts.alone, blocks, rows * (sizes[owners] == 1))
            found.add(owners, blocks, np.column_stack((rows, none, rows)), np.ones(rows.size, np.int64))
        self._remove_blocks(*found.by_cluster(), sizes)

    def _remove_blocks(self, bounds: Array, blocks: Array, sums: Array, largest: Array, sizes: Array) -> None:
        """Add what changes without each block, given the entries of whole clusters (see `_OpenClusters`)."""
        changes = Tally(self.blocks, 3)
        room = 2 * changes.room(sizes, np.diff(bounds))
        changes.add(partial(add_clusters, bounds, blocks, sums, sizes, 2), room)
        self.clusters = self.clusters.merge(changes.result())
        shared_maxima(bounds, blocks, largest, sizes, 2, self.counts.lost_maxima)

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[CellsOfClasses]
    ) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        blocks = blocks_of(np.ascontiguousarray(ids(np.arange(totals.size))[:, 0]), self.blocks)
        np.add.at(self.counts.row_maxima, blocks, maxima)
        np.add.at(self.counts.singles, blocks, singles)
        squares = np.column_stack((np.zeros(singles.size, np.int64), singles))
        counted, classes = Tally(self.blocks, 1), Tally(self.blocks, 3)
        for numbers, rows, _, times in cells:
            given = numbers, rows, times, blocks
            counted.add(lambda *into, given=given: add_cells(*given, *into, squares), counted.room(rows))
        classes.add(partial(add_classes, blocks, totals, squares), classes.room(totals))
        self.classes, self.cells = self.classes.merge(classes.result()), self.cells.merge(counted.result())

    def add_alone(self, rows: int) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        found = np.zeros(self.blocks, np.int64)
        spread_rows(np.uint64(0), rows, found)
        self.counts.classless += found
        self.counts.alone += found

    def merge(self, others: Iterable[ClassBlocks]) -> ClassBlocks:
        """One watcher with the sums of all watchers."""
        parts, found = [self, *others], ClassBlocks(self.blocks)
        for name in ("cells", "classes", "clusters"):
            setattr(found, name, getattr(found, name).merge(*(getattr(part, name) for part in parts)))
        for part in parts:
            for name, count in vars(part.counts).items():
                getattr(found.counts, name)[:] += count
        return found

    def replicates(self, summary: Summary) -> ClassReplicates:
        """The replicates of the watched table; `summary` is that of the whole table."""
        here, counts = np.arange(self.blocks), self.counts
        ones, none = np.ones(self.blocks, np.int64), np.zeros(self.blocks, np.int64)
        lone = counts.singles + counts.alone  # clusters of one row

        def of_one(*columns: Array) -> BlockSums:
            return BlockSums.of(here, ones, np.column_stack(columns))

        return ClassReplicates(
            summary,
            self.blocks,
            self.cells.merge(of_one(counts.singles + counts.classless)),
            self.classes.merge(of_one(counts.classless, none, counts.classless)),
            self.clusters.merge(of_one(-lone, none, -lone)),
            counts.row_maxima + counts.classless,
            counts.lost_maxima + lone,
            int(counts.classless.sum()),
        )


@dataclass
class _OpenClusters:
    """The cells, by cluster and block, of clusters that are not complete yet.

    Attributes
    ----------
    margins : the clusters, with their rows without a class as totals and their sizes as maxima
    blocks : number of blocks
    entries : number of each cluster, blocks, sums (rows, and Σ n² in two words), and largest cells
    """

    margins: Margins
    blocks: int
    entries: tuple[Array, ...] = ()

    def add(self, *cells: Array) -> None:
        """Add cells to the entries."""
        if self.entries:
            cells = tuple(np.concatenate(pair) for pair in zip(self.entries, cells, strict=True))
        bounds, *others = group_blocks(*cells, self.margins.totals.size, self.blocks)
        self.entries = np.repeat(np.arange(bounds.size - 1), np.diff(bounds)), *others

    def by_cluster(self) -> tuple[Array, Array, Array, Array]:
        """The first entry of each cluster, and the blocks, sums and largest cells of all."""
        numbers, blocks, sums, largest = self.entries
        return np.searchsorted(numbers, np.arange(self.margins.totals.size + 1)), blocks, sums, largest


@dataclass(frozen=True, eq=False)
class ClassReplicates:
    """Summaries of a table without the classes of each block.

    Attributes
    ----------
    summary : Summary of the whole table
    blocks : number of blocks
    cells : BlockSums, number of cells of each count in each block
    classes : BlockSums, number of classes of each size in each block, and Σ n² of their cells (high and low words)
    clusters : BlockSums, change in the number of clusters of each size without the block, and change of Σ n² of their
        cells
    row_maxima, column_maxima : int64 arrays of shape (blocks,), by how much Σ of the largest cells falls without the
        block
    classless : number of rows without a class; each forms a class

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.counts import ContingencySpec
    >>> from streameval.states.contingency.rounds import ByCluster, add_up
    >>> from streameval.states.protocol import Batch
    >>> from streameval.states.rounds import run
    >>> builder = ContingencySpec("campaign", "cluster").builder(Budget(), 8)
    >>> columns = {"campaign": pa.array([7, 7, 7, 8]), "cluster": pa.array([1, 1, 2, 2])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> summary, blocks, _ = add_up(run(ByCluster(builder.state(), partial(ClassBlocks, 4)), Budget()))
    >>> replicates = blocks.replicates(summary)
    >>> replicates.rows, replicates.without(1).shape  # without campaign 7 one class is left, in one cluster
    (array([1., 3., 0., 0.]), (1, 1))
    """

    summary: Summary
    blocks: int
    cells: BlockSums
    classes: BlockSums
    clusters: BlockSums
    row_maxima: Array
    column_maxima: Array
    classless: int

    @property
    def rows(self) -> Array:
        """Rows of each block, as a float64 array of shape (blocks,)."""
        return self.classes.weighted(self.blocks, 1)

    @property
    def squared_sizes(self) -> Array:
        """Σ of the squared sizes of the classes of each block, as a float64 array of shape (blocks,)."""
        return self.classes.weighted(self.blocks, 2)

    def without(self, block: int) -> Summary:
        """The summary without the classes of a block; its `inertia` is None."""
        whole, cells, classes, clusters = (
            self.summary,
            *(part.only(block) for part in (self.cells, self.classes, self.clusters)),
        )
        return replace(
            whole,
            cells=_changed(whole.cells, cells[0], -cells[1][:, 0]),
            classes=_changed(whole.classes, classes[0], -classes[1][:, 0]),
            clusters=_changed(whole.clusters, clusters[0], clusters[1][:, 0]),
            class_squares=_moved(whole.class_squares, classes[0], -classes[1]),
            cluster_squares=_moved(whole.cluster_squares, *clusters),
            inertia=None,
            row_maxima=whole.row_maxima - int(self.row_maxima[block]),
            column_maxima=whole.column_maxima - int(self.column_maxima[block]),
            matching=None,
        )


def _changed(whole: Sizes, sizes: Array, change: Array) -> Sizes:
    """The histogram after adding `change` to the counts of some sizes."""
    values, times = whole.values, whole.times.copy()
    places = np.searchsorted(values, sizes)
    new = np.flatnonzero(np.append(values, 0)[places] != sizes)
    if new.size:
        values, times = np.insert(values, places[new], sizes[new]), np.insert(times, places[new], 0)
        places = np.searchsorted(values, sizes)
    times[places] += change
    kept = times != 0
    return Sizes(values[kept], times[kept])


def _moved(whole: Mapping[Number, Number], sizes: Array, change: Array) -> dict[Number, Number]:
    """Sums by size after some changes; the last two columns of `change` are the high and low words of an integer."""
    found = dict(whole)
    for size, high, low in zip(sizes.tolist(), *change[:, -2:].T.tolist(), strict=True):
        total = found.get(size, 0) + (high << _WORD) + low
        if total:
            found[size] = total
        else:
            found.pop(size, None)
    return found
