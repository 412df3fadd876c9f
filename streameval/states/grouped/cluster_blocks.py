"""ClusterCounts split by blocks of another unit, for paired comparisons: the rows of each cluster in each block.

Two clusterings have no blocks of clusters in common, but they share the blocks of a third unit, such as campaigns. The
rows of a cluster in one block are a *cell*. The tag of a row is the number of its block, so for integer ids a row is
one word, which sorts like the rows of plain clusters, and the cells of a cluster are adjacent
(`streameval.kernels.block_cells`). One sweep computes the size tables without each block (`by_block`). Unlike other
groups, these are shared out by cluster among workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.block_cells import (
    BLOCK_BITS,
    cell_bounds,
    cluster_blocks,
)
from streameval.states.blocks import BLOCKS, SizeChanges, Sweep
from streameval.states.clusters.counts import DerivedClusters, null_rows_by_block
from streameval.states.grouped.tagged import GroupCodes, TaggedGroups
from streameval.states.keyed.layout import Interval, fixed_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import SplitSpec

_BLOCK = np.uint64((1 << BLOCK_BITS) - 1)
_NONE = np.empty(0, np.uint64)


class BlockedClusters(TaggedGroups):
    """Clusters by block; the code of a block is its number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> from streameval.states.grouped.keys import Blocks
    >>> from streameval.states.grouped.spec import GroupedSpec
    >>> from streameval.states.protocol import Batch
    >>> builder = GroupedSpec(ClusterSpec("cluster"), Blocks("campaign")).builder(Budget(), 8)
    >>> columns = {"cluster": pa.array([1, 1, 1, 2]), "campaign": pa.array([7, 7, 8, 8])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> state = builder.state()
    >>> state.groups()
    (20, 125)
    >>> state.by_block(state.shards()[0]).without(125)  # campaign 7
    SizeTable(size=array([1]), clusters=array([2]), positives=array([0]))
    """

    @classmethod
    def empty(cls, spec: SplitSpec) -> BlockedClusters:
        """Without rows."""
        empty = super().empty(spec)
        codes = GroupCodes(map(spec.key.named, range(spec.key.count)))
        return cls(spec, codes, empty.table, empty.tagged)

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The rows."""
        return self.tagged

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> BlockedClusters:
        """The same state with other rows."""
        return replace(self, tagged=runs)

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of clusters that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The size table of a shard, and its changes without each block."""
        return self._swept(shard, budget, None)

    def by_both(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """As `ClusterCounts.by_block`, with the changes without each block of the unit as `SizeChanges.paired`."""
        own = Sweep(BLOCKS)
        paired = self._swept(shard, budget, own)
        return replace(own.result(), paired=paired)

    def _swept(self, shard: Interval, budget: Budget | None, own: Sweep | None) -> SizeChanges:
        """The changes without each block of the unit; if `own` is given, whole clusters are also added to it."""
        sweep = Sweep(self.spec.key.count)
        for stretch in self.keyed.rows_in(shard, budget):
            _sweep_cells(list(stretch.counts()), sweep, own)
        if shard == self.shards()[0]:
            single = np.zeros((self.spec.key.count, 2), np.int64)
            single[self.codes()] = self.table.facts[:, :2]
            sweep.add_lone(single)
            if own is not None:
                own.add_lone(null_rows_by_block(single.sum(axis=0)))
        return sweep.result()

    def total(self, budget: Budget | None = None) -> ClustersOfBlocks:
        """The inner state of all rows, without copying them."""
        inner = super().total(budget)
        keyed = replace(inner.keyed, full_outline=self.keyed.full_outline)
        return ClustersOfBlocks(inner.spec, keyed, inner.single_rows, inner.dropped_rows, cells=self)


class ClustersOfBlocks(DerivedClusters):
    """The clusters of all blocks, computed on reading from the cells of `BlockedClusters`."""

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The changes of a shard without each block of clusters; `paired` has those without each block of the unit."""
        changes: SizeChanges = self.cells.by_both(shard, budget)
        return changes


def _sweep_cells(buckets: list[Counts], sweep: Sweep, own: Sweep | None) -> None:
    """Add the clusters of whole buckets, given as cells."""
    starts = np.cumsum([0, *(counts.keys.size for counts in buckets)])
    keys, rest, neg, pos = (
        np.concatenate([getattr(c, name) for c in buckets]) for name in ("keys", "rest", "neg", "pos")
    )
    second = np.ascontiguousarray(rest[:, 0]) if rest.shape[1] else _NONE
    blocks = ((second if second.size else keys) & _BLOCK).astype(np.int64)
    clusters = cell_bounds(keys, second, starts)
    whole = sweep.add(clusters, blocks, neg, pos)
    if own is not None:
        fixed = fixed_bits(np.array([counts.bucket for counts in buckets]))
        own.add_units(cluster_blocks(keys, clusters, starts, fixed, len(own)), *whole)
