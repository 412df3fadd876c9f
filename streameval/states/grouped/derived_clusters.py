"""ClusterCounts computed from the cells of another state, which holds all of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.states.clusters.cell_words import as_clusters
from streameval.states.clusters.counts import ClusterCounts
from streameval.states.keyed.counts import KeyedCounts

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.clusters.size_blocks import SizeChanges
    from streameval.states.keyed.layout import Interval

__all__ = ["BothChanges", "DerivedClusters"]


class BothChanges(NamedTuple):
    """A size table with two kinds of changes.

    Attributes
    ----------
    own : SizeChanges without each block of clusters
    paired : SizeChanges without each block of another unit
    """

    own: SizeChanges
    paired: SizeChanges


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedClusters(ClusterCounts):
    """The clusters of cells; no row is copied.

    Attributes
    ----------
    cells : `streameval.states.grouped.cluster_blocks.BlockedClusters`, which holds the rows
    """

    cells: Any

    @classmethod
    def of(cls, cells: Any) -> DerivedClusters:
        """The clusters of all blocks."""
        inner, held = cells.spec.inner, cells.keyed
        keyed = KeyedCounts(inner.layout, tuple(map(as_clusters, held.segments)), held.full_outline)
        return cls(inner, keyed, cells.single_rows.sum(axis=0), cells.dropped_rows.sum(axis=0), cells=cells)

    @property
    def derived_from(self) -> Any:
        """The spec of the state that holds the rows."""
        return self.cells.spec

    def by_both(self, shard: Interval, budget: Budget | None = None) -> BothChanges:
        """Both kinds of changes of a shard, from one sweep."""
        found: BothChanges = self.cells.by_both(shard, budget)
        return found
