"""ClusterCounts computed on reading from the cells of another state, which holds the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.states.clusters.cell_words import NARROW
from streameval.states.clusters.counts import ClusterCounts
from streameval.states.keyed.counts import KeyedCounts

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.clusters.size_blocks import SizeChanges
    from streameval.states.keyed.layout import Interval

__all__ = ["DerivedClusters"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedClusters(ClusterCounts):
    """The clusters of all blocks of a `BlockedClusters`, without copying rows.

    Attributes
    ----------
    cells : `streameval.states.grouped.cluster_blocks.BlockedClusters`, which holds the rows
    """

    cells: Any

    @classmethod
    def of(cls, cells: Any) -> DerivedClusters:
        """The clusters of all blocks."""
        inner, held = cells.spec.inner, cells.keyed
        keyed = KeyedCounts(inner.layout, tuple(map(NARROW.as_clusters, held.segments)), held.full_outline)
        return cls(inner, keyed, cells.single_rows.sum(axis=0), cells.dropped_rows.sum(axis=0), cells=cells)

    @property
    def holder(self) -> Any:
        """The spec of the state that holds the rows."""
        return self.cells.spec

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The changes of a shard without each block of clusters; `paired` has those without each block of the unit."""
        found: SizeChanges = self.cells.by_both(shard, budget)
        return found
