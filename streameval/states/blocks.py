"""Resampling blocks of states that count clusters: how size histograms change if a block of units is left out.

Metrics of clusters read histograms: the number of clusters of each size, and sums over them. Leaving out a block of
units removes some clusters and shrinks others. `BlockSums` holds these changes by block and size. They are exact
integers, merge by addition, and take memory proportional to the number of distinct (block, size) pairs.

The block of a unit is a keyed hash of its id modulo `BLOCKS` (`streameval.states.grouped.keys`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streameval.kernels.blocks.changes import occupied, unit_blocks
from streameval.kernels.jit import read_only

if TYPE_CHECKING:
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
    found: Array = unit_blocks(read_only(np.ascontiguousarray(words)), blocks)
    return found


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
        kept = sums.any(axis=1)
        return cls(keys[kept], sums[kept])

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


class _Adds(Protocol):
    """A loop of `streameval.kernels.blocks.changes`; returns the number of rows that it has listed."""

    def __call__(self, count: int, table: Array, keys: Array, large: Array, /) -> int: ...


class Tally:
    """Collects sums by block and size: small sizes in a table, larger ones in a list.

    Parameters
    ----------
    blocks : number of blocks
    sums : number of columns
    """

    def __init__(self, blocks: int, sums: int) -> None:
        self._blocks = blocks
        self._table = np.zeros((_SMALL * blocks, sums), np.int64)
        self._listed: list[tuple[Array, Array]] = []

    def add(self, adds: _Adds, most: int) -> None:
        """Call a loop that adds rows and lists at most `most` of them."""
        keys, large = np.empty(most, np.int64), np.empty((most, self._table.shape[1]), np.int64)
        listed = adds(self._blocks, self._table, keys, large)
        if listed:
            self._listed.append((keys[:listed], large[:listed]))

    def add_single(self, sums: Array) -> None:
        """Add sums of size 1, an int64 array of shape (blocks, n_sums)."""
        self._table[self._blocks : 2 * self._blocks] += sums

    def room(self, sizes: Array, times: Array | None = None) -> int:
        """Number of sizes that are too large for the table, each counted `times` times."""
        large = sizes >= _SMALL
        return int(np.count_nonzero(large) if times is None else times[large].sum())

    def result(self) -> BlockSums:
        """Everything added so far, as `BlockSums`."""
        rows = occupied(self._table)
        parts = [(rows, self._table[rows]), *self._listed]
        places, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        return BlockSums.of(places % self._blocks, places // self._blocks, sums)
