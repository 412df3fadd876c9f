"""Resampling blocks of states that count clusters: how size histograms change if a block of units is left out.

Metrics of clusters read histograms: the number of clusters of each size, and sums over them. Leaving out a block of
units removes some clusters and shrinks others. `BlockSums` holds these changes by block and size. They are exact
integers, merge by addition, and take memory proportional to the number of distinct (block, size) pairs.

`SizeChanges` has the size table of clusters and its changes without each block, from one sweep over the clusters for
all blocks together (`Sweep`). A block has d rows of a cluster of size c with p positives, q of them positive. Without
the block, the cluster leaves size c and, unless d = c, joins size c − d with p − q positives. If the clusters
themselves are the units, a block has whole clusters.

The block of a unit is a keyed hash of its id modulo `BLOCKS` (`streameval.states.grouped.keys`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks import unit_blocks
from streameval.kernels.jit import read_only
from streameval.kernels.keyed.sizes import tally_sizes
from streameval.states.cluster_sizes import SizeTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array


BLOCKS = 128

_SIZE_BITS = 47  # sizes are below 2^47, blocks below 2^16
_SIZE = (1 << _SIZE_BITS) - 1
_SMALL = 256  # sizes below this are summed in a table; larger groups are rare


def blocks_of(words: Array, blocks: int) -> Array:
    """Block of each unit, as an int64 array of shape (n,).

    Parameters
    ----------
    words : uint64 array of shape (n,), first words of ids as `streameval.states.keyed.ids.identify` gives them
    blocks : number of blocks
    """
    return block_codes(words, blocks).astype(np.int64)


def block_codes(words: Array, blocks: int) -> Array:
    """As `blocks_of`, as uint16: for batches of rows, where memory bandwidth limits the speed."""
    codes: Array = unit_blocks(read_only(np.ascontiguousarray(words)), blocks)
    return codes


@dataclass(frozen=True, eq=False)
class BlockSums:
    """Sums for each block and size.

    Attributes
    ----------
    keys : int64 array of shape (n,), ascending: the block, then the size in the lower 47 bits
    sums : int64 array of shape (n, n_sums); no row is all zeros

    Examples
    --------
    >>> one = BlockSums.of(np.array([0, 1, 1]), np.array([3, 2, 2]), np.array([[1], [1], [1]]))
    >>> one.only(1), one.merge(one).only(0)
    ((array([2]), array([[2]])), (array([3]), array([[2]])))
    """

    keys: Array
    sums: Array

    @classmethod
    def empty(cls, sums: int) -> BlockSums:
        """Without entries; `sums` is the number of columns."""
        return cls(np.empty(0, np.int64), np.empty((0, sums), np.int64))

    @classmethod
    def of(cls, blocks: Array, sizes: Array, sums: Array) -> BlockSums:
        """Sums by block and size, in any order; equal pairs of block and size are added up.

        Parameters
        ----------
        blocks, sizes : int64 arrays of shape (n,)
        sums : int64 array of shape (n, n_sums)
        """
        return cls._summed((blocks << _SIZE_BITS) | sizes, sums)

    @classmethod
    def _summed(cls, keys: Array, sums: Array) -> BlockSums:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        if first.size:
            keys, sums = keys[first], np.add.reduceat(sums[order], first, axis=0)
        occurring = sums.any(axis=1)
        return cls(keys[occurring], sums[occurring])

    def merge(self, *others: BlockSums) -> BlockSums:
        """Sum of `self` and the others."""
        parts = [part for part in (self, *others) if part.keys.size]
        if len(parts) < 2:
            return parts[0] if parts else self
        return self._summed(np.concatenate([p.keys for p in parts]), np.concatenate([p.sums for p in parts]))

    def only(self, block: int) -> tuple[Array, Array]:
        """Sizes and sums of a block: int64 arrays of shape (n,) and (n, n_sums), sizes ascending."""
        a, b = np.searchsorted(self.keys, (block << _SIZE_BITS, (block + 1) << _SIZE_BITS)).tolist()
        return self.keys[a:b] & _SIZE, self.sums[a:b]

    def weighted(self, blocks: int, power: int, column: int = 0) -> Array:
        """Σ size**power · sums[:, column] for each block, as a float64 array of shape (blocks,)."""
        sizes = (self.keys & _SIZE).astype(np.float64)
        return np.bincount(self.keys >> _SIZE_BITS, self.sums[:, column] * sizes**power, blocks)


class Tally:
    """Collects sums by block and size: small sizes in a table, larger ones in a list.

    Parameters
    ----------
    blocks : number of blocks
    sums : number of columns
    """

    def __init__(self, blocks: int, sums: int) -> None:
        self._blocks = blocks
        self._table = np.zeros((sums, _SMALL * blocks), np.int64)
        self._listed: list[BlockSums] = []

    def add(self, blocks: Array, sizes: Array, *sums: Array) -> None:
        """Add rows, given by int64 arrays of shape (n,)."""
        small = sizes < _SMALL
        rows, large = sizes[small] * self._blocks + blocks[small], ~small
        for column, values in zip(self._table, sums, strict=True):
            np.add.at(column, rows, values[small])
        if large.any():
            listed = np.column_stack([values[large] for values in sums])
            self._listed.append(BlockSums.of(blocks[large], sizes[large], listed))

    def result(self) -> BlockSums:
        """Everything added so far, as `BlockSums`."""
        rows = np.flatnonzero(self._table.any(axis=0))
        table = BlockSums.of(rows % self._blocks, rows // self._blocks, self._table[:, rows].T)
        return table.merge(*self._listed)


def add_changes(tally: Tally, bounds: Array, blocks: Array, sizes: Array, *sums: Array) -> None:
    """Add the changes that leaving out each block makes to the clusters with rows in it.

    Without block b, a cluster of size c with d rows in b moves to size c − d, or vanishes if d = c. The sums of all its
    rows are subtracted from size c; the sums of its remaining rows are added to size c − d.

    Parameters
    ----------
    tally : collects the number of clusters, then the sums
    bounds : int64 array of shape (n_clusters + 1,), the first entry of each cluster
    blocks, sizes : int64 arrays of shape (n_entries,), the block of each entry and its rows
    sums : arrays of the same shape
    """
    if not blocks.size:
        return
    lengths = np.diff(bounds)
    whole, *totals = (np.repeat(np.add.reduceat(column, bounds[:-1]), lengths) for column in (sizes, *sums))
    ones = np.ones_like(blocks)
    tally.add(blocks, whole, -ones, *(-total for total in totals))
    rest = np.flatnonzero(sizes < whole)
    left = (total[rest] - column[rest] for total, column in zip(totals, sums, strict=True))
    tally.add(blocks[rest], (whole - sizes)[rest], ones[rest], *left)


_SWEPT = 1 << 12  # sizes tallied in a table; larger clusters are rare


@dataclass(frozen=True, eq=False)
class SizeChanges:
    """A size table, and how it changes without each block.

    Attributes
    ----------
    blocks : number of blocks
    table : SizeTable of all clusters
    changes : BlockSums, change of the number of clusters of each size, and of their positives, without the block

    Examples
    --------
    >>> sweep = Sweep(2)  # a cluster of three rows: two in block 0, one of them positive, and one in block 1
    >>> sweep.add(np.array([0, 2]), np.array([0, 1]), np.array([1, 1]), np.array([1, 0]))
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

    @classmethod
    def union(cls, parts: Sequence[SizeChanges]) -> SizeChanges:
        """The changes for the clusters of all parts, at least one."""
        changes = parts[0].changes.merge(*(part.changes for part in parts[1:]))
        return cls(parts[0].blocks, SizeTable.union([part.table for part in parts]), changes)

    def without(self, block: int) -> SizeTable:
        """The size table of the rows of all other blocks."""
        sizes, sums = self.changes.only(block)
        table = SizeTable.union([self.table, SizeTable(sizes, sums[:, 0], sums[:, 1])])
        occurring = table.clusters > 0
        return SizeTable(table.size[occurring], table.clusters[occurring], table.positives[occurring])

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
        self._clusters, self._positives = np.zeros((2, _SWEPT), np.int64)
        self._large: list[SizeTable] = []

    def __len__(self) -> int:
        """Number of blocks."""
        return self._blocks

    def add(self, bounds: Array, blocks: Array, neg: Array, pos: Array) -> None:
        """Add whole clusters.

        Parameters
        ----------
        bounds : int64 array of shape (n_clusters + 1,), the first cell of each cluster
        blocks, neg, pos : int64 arrays of shape (n_cells,), the block of each cell, its negatives and its positives
        """
        if not blocks.size:
            return
        first = bounds[:-1]
        self._take(np.add.reduceat(neg, first), np.add.reduceat(pos, first))
        add_changes(self._changes, bounds, blocks, neg + pos, pos)

    def add_units(self, blocks: Array, neg: Array, pos: Array) -> None:
        """Add whole clusters, each in one block."""
        self._take(neg, pos)
        self._changes.add(blocks, neg + pos, np.full(neg.size, -1), -pos)

    def add_lone(self, rows: Array) -> None:
        """Add clusters of one row by block and label, an int64 array of shape (blocks, 2)."""
        self._clusters[1] += rows.sum()
        self._positives[1] += rows[:, 1].sum()
        ones = np.ones(self._blocks, np.int64)
        self._changes.add(np.arange(self._blocks), ones, -rows.sum(axis=1), -rows[:, 1])

    def _take(self, neg: Array, pos: Array) -> None:
        """Count clusters in the table of all clusters."""
        sizes, positives = tally_sizes(neg, pos, self._clusters, self._positives)
        if sizes.size:
            self._large.append(SizeTable.of(sizes, positives))

    def result(self) -> SizeChanges:
        """The table and its changes."""
        sizes = np.flatnonzero(self._clusters)
        table = SizeTable(sizes, self._clusters[sizes], self._positives[sizes])
        return SizeChanges(self._blocks, SizeTable.union([table, *self._large]), self._changes.result())
