"""Size tables of clusters without each block, from one sweep over the clusters for all blocks together.

A block has d rows of a cluster of size c with p positives, q of them positive. Without the block, the cluster leaves
size c and, unless d = c, joins size c − d with p − q positives. If the clusters themselves are the units, a block has
whole clusters. The changes are added up by block and size (`streameval.states.blocks.BlockSums`), as integers: the size
table without a block is the whole table plus the changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks.changes import add_clusters
from streameval.kernels.lift import tally_sizes
from streameval.states.blocks import BlockSums, Tally
from streameval.states.clusters.sizes import SizeTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

_SMALL = 1 << 12  # sizes tallied in a table; larger clusters are rare


@dataclass(frozen=True, eq=False)
class SizeChanges:
    """A size table, and how it changes without each block.

    Attributes
    ----------
    blocks : number of blocks
    table : SizeTable of all clusters
    changes : BlockSums, change of the number of clusters of each size, and of their positives, without the block
    paired : SizeChanges without each block of another unit, from the same sweep; None if there is no such unit

    Examples
    --------
    >>> sweep = Sweep(2)  # a cluster of three rows: two in block 0, one of them positive, and one in block 1
    >>> negatives, positives = sweep.add(np.array([0, 2]), np.array([0, 1]), np.array([1, 1]), np.array([1, 0]))
    >>> found = sweep.result()
    >>> found.table, found.without(0)
    (SizeTable(size=array([3]), clusters=array([1]), positives=array([1])), \
SizeTable(size=array([1]), clusters=array([1]), positives=array([0])))
    >>> found.rows, found.positives
    (array([2., 1.]), array([1., 0.]))
    """

    blocks: int
    table: SizeTable
    changes: BlockSums
    paired: SizeChanges | None = None

    @classmethod
    def union(cls, parts: Sequence[SizeChanges]) -> SizeChanges:
        """The changes for the clusters of all parts, at least one."""
        changes = parts[0].changes.merge(*(part.changes for part in parts[1:]))
        paired = [part.paired for part in parts if part.paired is not None]
        table = SizeTable.union([part.table for part in parts])
        return cls(parts[0].blocks, table, changes, cls.union(paired) if paired else None)

    def without(self, block: int) -> SizeTable:
        """The size table of the rows of all other blocks."""
        sizes, sums = self.changes.only(block)
        found = SizeTable.union([self.table, SizeTable(sizes, sums[:, 0], sums[:, 1])])
        kept = found.clusters > 0
        return SizeTable(found.size[kept], found.clusters[kept], found.positives[kept])

    @property
    def rows(self) -> Array:
        """Rows of each block, as a float64 array of shape (blocks,)."""
        return 0.0 - self.changes.weighted(self.blocks, 1)

    @property
    def positives(self) -> Array:
        """Positives of each block, as a float64 array of shape (blocks,)."""
        return 0.0 - self.changes.weighted(self.blocks, 0, column=1)


class Sweep:
    """Adds up `SizeChanges` from clusters given as cells by block."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._changes = Tally(blocks, 2)
        self._clusters, self._positives = np.zeros((2, _SMALL), np.int64)
        self._large: list[SizeTable] = []

    def __len__(self) -> int:
        """Number of blocks."""
        return self._blocks

    def add(self, bounds: Array, blocks: Array, neg: Array, pos: Array) -> tuple[Array, Array]:
        """Add whole clusters; returns the negatives and the positives of each.

        Parameters
        ----------
        bounds : int64 array of shape (n_clusters + 1,), the first cell of each cluster
        blocks, neg, pos : int64 arrays of shape (n_cells,), the block of each cell, its negatives and its positives
        """
        if not blocks.size:
            return neg, pos
        first = bounds[:-1]
        whole = np.add.reduceat(neg, first), np.add.reduceat(pos, first)
        self._take(*whole)
        sizes = whole[0] + whole[1]
        room = 2 * self._changes.room(sizes, np.diff(bounds))
        self._changes.add(partial(add_clusters, bounds, blocks, np.column_stack((neg + pos, pos)), sizes, 1), room)
        return whole

    def add_units(self, blocks: Array, neg: Array, pos: Array) -> None:
        """Add whole clusters, each in one block."""
        self._take(neg, pos)
        bounds, sizes = np.arange(neg.size + 1), neg + pos
        sums = np.column_stack((sizes, pos))
        self._changes.add(partial(add_clusters, bounds, blocks, sums, sizes, 1), self._changes.room(sizes))

    def add_lone(self, rows: Array) -> None:
        """Add clusters of one row by block and label, an int64 array of shape (blocks, 2)."""
        self._clusters[1] += rows.sum()
        self._positives[1] += rows[:, 1].sum()
        self._changes.add_single(-np.column_stack((rows.sum(axis=1), rows[:, 1])))

    def _take(self, neg: Array, pos: Array) -> None:
        """Count clusters in the table of all clusters."""
        sizes, positives = tally_sizes(neg, pos, self._clusters, self._positives)
        if sizes.size:
            self._large.append(SizeTable.of(sizes, positives))

    def result(self) -> SizeChanges:
        """The table and its changes."""
        found = np.flatnonzero(self._clusters)
        table = SizeTable(found, self._clusters[found], self._positives[found])
        return SizeChanges(self._blocks, SizeTable.union([table, *self._large]), self._changes.result())
