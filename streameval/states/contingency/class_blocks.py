"""Summaries of a contingency table without the classes of each block, from one sweep for all blocks together.

The keyed hash of `streameval.states.grouped.keys` assigns each class to a block by its id. Leaving out a block removes
the cells, sizes and largest cells of its classes and shrinks every cluster with rows in it: a cluster of c rows with d
rows in the block moves from size c to size c − d, or vanishes if d = c, and its Σ n² loses the part of the block's
cells. Other clusters do not change. So each cell is needed only once: `ClassBlocks` watches the rounds
(`streameval.states.contingency.by_cluster`) and adds up these changes by block and size, as integers.

`ClassReplicates.without` applies the changes to the summary of the whole table. It leaves out Σ n²/(r·c), which changes
with every cell of a smaller cluster.

A row without a class that counts as a singleton forms a separate class. The state does not know the origin of the row,
so its block depends on its cluster and its number k within the cluster: ``hash(k) ^ w``, hashed again, where w is the
first word of the cluster's id, or 0 without a cluster. Blocks of such rows do not match those of another clustering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks import lone_blocks, spread_rows
from streameval.states.blocks import BLOCKS, BlockSums, Tally, add_changes, blocks_of
from streameval.states.contingency.summary import Number, Sizes, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.states.contingency.cells import Ids
    from streameval.typing import Array

_WORD, _LOW = 32, (1 << 32) - 1  # bits of the low word of Σ n²
_SINGLES, _CLASSLESS, _ALONE, _ROW_MAXIMA, _LOST_MAXIMA = range(5)  # rows of `ClassBlocks.counts`


class ClassBlocks:
    """A watcher that adds up the sums of each block of classes, and the changes from leaving it out.

    Parameters
    ----------
    blocks : number of blocks

    Attributes
    ----------
    counts : int64 array of shape (5, blocks): rows of the block's classes in singleton clusters; rows without a class,
        and those of them in singleton clusters; Σ of the largest cells of its classes; by how much Σ of the largest
        cells of clusters of several rows falls without the block
    """

    def __init__(self, blocks: int = BLOCKS) -> None:
        self.blocks = blocks
        self.cells, self.classes, self.clusters = BlockSums.empty(1), BlockSums.empty(3), BlockSums.empty(3)
        self.counts = np.zeros((5, blocks), np.int64)

    def add_clusters(
        self, ids: Ids, sizes: Array, classless: Array, cells: Iterable[tuple[Array, Array, Array]]
    ) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        entries: list[tuple[Array, ...]] = []
        for part in chain(self._classless_cells(ids, sizes, classless), map(self._block_cells, cells)):
            several = sizes[part[0]] > 1
            entries.append(tuple(column[several] for column in part))
            if len(entries) > 1:
                entries = [_by_block(*map(np.concatenate, zip(*entries, strict=True)))]
        if not entries or not entries[0][0].size:
            return
        numbers, blocks, rows, high, low, largest = _by_block(*entries[0])
        changes, bounds = Tally(self.blocks, 3), _bounds(numbers)
        add_changes(changes, bounds, blocks, rows, high, low)
        self.clusters = self.clusters.merge(changes.result())
        most = np.maximum.reduceat(largest, bounds[:-1])
        equal = np.flatnonzero(largest == np.repeat(most, np.diff(bounds)))
        first = equal[_bounds(numbers[equal])[:-1]]  # the largest cell of each cluster
        largest[first] = 0
        np.add.at(self.counts[_LOST_MAXIMA], blocks[first], most - np.maximum.reduceat(largest, bounds[:-1]))

    def _block_cells(self, cells: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        """The cluster, the block, the sums and the rows of each cell."""
        numbers, classes, rows = cells
        return numbers, blocks_of(np.ascontiguousarray(classes), self.blocks), rows, *_square(rows), rows

    def _classless_cells(self, ids: Ids, sizes: Array, classless: Array) -> Iterator[tuple[Array, ...]]:
        """Rows without a class, by cluster and block, as `_block_cells`."""
        which = np.flatnonzero(classless)
        if which.size:
            owners, blocks, rows = lone_blocks(np.ascontiguousarray(ids(which)[:, 0]), classless[which], self.blocks)
            owners, none = which[owners], np.zeros_like(rows)
            np.add.at(self.counts[_CLASSLESS], blocks, rows)
            np.add.at(self.counts[_ALONE], blocks, rows * (sizes[owners] == 1))
            yield owners, blocks, rows, none, rows, np.ones_like(rows)

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[tuple[Array, Array, Array, Array]]
    ) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        blocks = blocks_of(np.ascontiguousarray(ids(np.arange(totals.size))[:, 0]), self.blocks)
        np.add.at(self.counts[_ROW_MAXIMA], blocks, maxima)
        np.add.at(self.counts[_SINGLES], blocks, singles)
        squares = np.stack((np.zeros(singles.size, np.int64), singles))
        counted, classes = Tally(self.blocks, 1), Tally(self.blocks, 3)
        for numbers, rows, _, times in cells:
            copies = times if times.size else np.ones_like(rows)
            counted.add(blocks[numbers], rows, copies)
            high, low = _square(rows)
            for column, words in zip(
                squares, (high * copies + (low * copies >> _WORD), low * copies & _LOW), strict=True
            ):
                np.add.at(column, numbers, words)
        classes.add(blocks, totals, np.ones_like(totals), *squares)
        self.classes, self.cells = self.classes.merge(classes.result()), self.cells.merge(counted.result())

    def add_alone(self, rows: int) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        blocks = np.zeros(self.blocks, np.int64)
        spread_rows(np.uint64(0), rows, blocks)
        self.counts[[_CLASSLESS, _ALONE]] += blocks

    def merge(self, others: Iterable[ClassBlocks]) -> ClassBlocks:
        """One watcher with the sums of all watchers."""
        parts, merged = [self, *others], ClassBlocks(self.blocks)
        merged.cells = merged.cells.merge(*(part.cells for part in parts))
        merged.classes = merged.classes.merge(*(part.classes for part in parts))
        merged.clusters = merged.clusters.merge(*(part.clusters for part in parts))
        merged.counts = np.sum([part.counts for part in parts], axis=0)
        return merged

    def replicates(self, summary: Summary) -> ClassReplicates:
        """The replicates of the watched table; `summary` is that of the whole table."""
        here, ones = np.arange(self.blocks), np.ones(self.blocks, np.int64)
        singles, classless, alone, row_maxima, lost_maxima = self.counts
        lone, none = singles + alone, np.zeros_like(ones)  # clusters of one row

        def of_one(*columns: Array) -> BlockSums:
            return BlockSums.of(here, ones, np.column_stack(columns))

        return ClassReplicates(
            summary,
            self.blocks,
            self.cells.merge(of_one(singles + classless)),
            self.classes.merge(of_one(classless, none, classless)),
            self.clusters.merge(of_one(-lone, none, -lone)),
            row_maxima + classless,
            lost_maxima + lone,
            int(classless.sum()),
        )


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
    >>> from functools import partial
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.counts import ContingencySpec
    >>> from streameval.states.contingency.by_cluster import ByCluster, add_up
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
        whole = self.summary
        cells, classes, clusters = (part.only(block) for part in (self.cells, self.classes, self.clusters))
        return replace(
            whole,
            cells=_change(whole.cells, cells[0], -cells[1][:, 0]),
            classes=_change(whole.classes, classes[0], -classes[1][:, 0]),
            clusters=_change(whole.clusters, clusters[0], clusters[1][:, 0]),
            class_squares=_move(whole.class_squares, classes[0], -classes[1]),
            cluster_squares=_move(whole.cluster_squares, *clusters),
            inertia=None,
            row_maxima=whole.row_maxima - int(self.row_maxima[block]),
            column_maxima=whole.column_maxima - int(self.column_maxima[block]),
            matching=None,
        )


def _bounds(numbers: Array) -> Array:
    """The first of each run of equal numbers, and the end."""
    return np.append(np.flatnonzero(np.diff(numbers, prepend=-1)), numbers.size)


def _by_block(numbers: Array, blocks: Array, *columns: Array) -> tuple[Array, ...]:
    """Cells added up by cluster and block, in this order; of the last column, the largest."""
    keys = numbers * (1 << 16) + blocks
    order = np.argsort(keys)
    first = order[:0] if not order.size else _bounds(keys[order])[:-1]
    *sums, largest = (column[order] for column in columns)
    added = (np.add.reduceat(column, first) if first.size else column for column in sums)
    at = order[first]
    return numbers[at], blocks[at], *added, np.maximum.reduceat(largest, first) if first.size else largest


def _square(rows: Array) -> tuple[Array, Array]:
    """High and low 32 bits of the squares of rows, which are below 2⁴⁷."""
    upper, lower = rows >> 31, rows & ((1 << 31) - 1)
    square = lower * lower
    return ((upper * upper) << 30) + upper * lower + (square >> _WORD), square & _LOW


def _change(whole: Sizes, sizes: Array, change: Array) -> Sizes:
    """The histogram after adding `change` to the counts of some sizes."""
    merged = whole.merge(Sizes(sizes, change))
    left = merged.times != 0
    return Sizes(merged.values[left], merged.times[left])


def _move(whole: Mapping[Number, Number], sizes: Array, change: Array) -> dict[Number, Number]:
    """Sums by size after some changes; the last two columns of `change` are the high and low words of an integer."""
    sums = dict(whole)
    for size, high, low in zip(sizes.tolist(), *change[:, -2:].T.tolist(), strict=True):
        sums[size] = sums.get(size, 0) + (high << _WORD) + low
    return {size: total for size, total in sums.items() if total}
