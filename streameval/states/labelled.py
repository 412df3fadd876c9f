"""LabelledCounts: a contingency table whose rows carry their labels, which gives the clusters of its rows as well.

Scattering rows by cluster takes most of the time of both states. Here rows are scattered once: the label of a row takes
bits of the first word that its bucket determines (`streameval.states.keyed.tags`), and the first pass over the table
counts the positives of each cluster with its rows. The summary then has the number of clusters of each size and their
positives, which is all that `streameval.states.clusters.counts.ClusterCounts` gives to metrics.

Both states have the same rows only if every row has a label and both ids, so null ids are an error. For whatever needs
the clusters or the table alone, labels are separated on reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.states.clusters.counts import ClusterCounts, ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.contingency.builder import ContingencyBuilder
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.tags import by_label, plain
from streameval.states.protocol import PlainState, Traits

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.states.blocks import SizeChanges
    from streameval.states.contingency.cells import ShardRows
    from streameval.states.contingency.summary import Summary
    from streameval.states.keyed.grouping import Counts
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Totals
    from streameval.typing import Array


@dataclass(frozen=True)
class LabelledSpec(ContingencySpec):
    """Spec of a contingency table whose rows have labels; it is never stored.

    Examples
    --------
    >>> LabelledSpec("campaign", "cluster").clusters
    ClusterSpec(column='cluster', type='signed', scope='global', nulls='error', unlabelled=False)
    """

    labelled: ClassVar[bool] = True

    @classmethod
    def of(cls, spec: ContingencySpec) -> LabelledSpec:
        """The spec of the same table with labels."""
        return cls(spec.classes, spec.cluster, spec.class_type, spec.cluster_type, spec.scope, spec.nulls)

    @property
    def plain(self) -> ContingencySpec:
        """The spec of the same table without labels."""
        return ContingencySpec(self.classes, self.cluster, self.class_type, self.cluster_type, self.scope, self.nulls)

    @property
    def clusters(self) -> ClusterSpec:
        """The spec of the clusters of its rows."""
        return ClusterSpec(self.cluster, self.cluster_type, self.scope, self.nulls)

    @property
    def traits(self) -> Traits:
        """Those of the table without labels; the clusters are derived."""
        return super().traits._replace(derived=self.clusters)

    def builder(self, budget: Budget, capacity: int) -> ContingencyBuilder:
        """A builder whose segments hold about `capacity` rows."""
        return ContingencyBuilder(self, budget, capacity, partial(LabelledCounts, self), labelled=True)

    def empty(self) -> LabelledCounts:
        """The empty state."""
        return LabelledCounts(self, KeyedCounts(self.layout), KeyedCounts(self.class_layout))


@dataclass(frozen=True, eq=False)
class LabelledCounts(ContingencyCounts):
    """Exact counts of every (class, cluster) cell by label.

    Attributes
    ----------
    spec : LabelledSpec
    cells : KeyedCounts
        Rows by cluster, class and label.
    """

    spec: LabelledSpec

    @property
    def plain(self) -> ContingencyCounts:
        """The table without labels; no rows are copied."""
        return ContingencyCounts(
            self.spec.plain, plain(self.cells), self.without_cluster, self.label_rows, self.dropped_rows
        )

    def total(self, budget: Budget | None = None) -> LabelledClusters:
        """The clusters of its rows, without copying them."""
        return LabelledClusters(self)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[Counts]:
        """Cells of the table without labels."""
        return self.plain.parts(shard, budget)

    def rows_of(self, shard: Interval, budget: Budget | None = None) -> ShardRows:
        """Rows of the table without labels."""
        return self.plain.rows_of(shard, budget)

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """The table without labels."""
        return self.plain.to_arrow(budget)


@dataclass(frozen=True, eq=False)
class LabelledClusters(PlainState):
    """The clusters of a table with labels.

    Attributes
    ----------
    cells : LabelledCounts, which holds the rows
    table : SizeTable of all clusters; None if the rows have not been swept
    """

    cells: LabelledCounts
    table: SizeTable | None = None

    @property
    def spec(self) -> ClusterSpec:
        """The spec of the clusters."""
        return self.cells.spec.clusters

    @property
    def holder(self) -> LabelledSpec:
        """The spec of the state that holds the rows."""
        return self.cells.spec

    @property
    def dropped_rows(self) -> Array:
        """Zeros: every row has an id."""
        return np.zeros(2, np.int64)

    def totals(self) -> Totals:
        """Rows in clusters."""
        return self.cells.totals()

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently."""
        return self.cells.cells.intervals() or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[SizeTable]:
        """The size table of a shard; if all clusters are known, the first shard has them."""
        if self.table is None:
            yield from self._clusters(shard, budget).parts(shard, budget)
        elif shard == self.shards()[0]:
            yield self.table

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """As `ClusterCounts.by_block`."""
        return self._clusters(shard, budget).by_block(shard, budget)

    def impure(self, shard: Interval, budget: Budget | None = None) -> tuple[SizeTable, list[Counts]]:
        """As `ClusterCounts.impure`."""
        return self._clusters(shard, budget).impure(shard, budget)

    def _clusters(self, shard: Interval, budget: Budget | None) -> ClusterCounts:
        """The clusters of a shard, with copies of its rows."""
        held = self.cells.cells
        return ClusterCounts(self.spec, by_label(held, shard, self.spec.layout, held.holding(budget)))

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled bytes do not count."""
        return object.__sizeof__(self) + self.cells.__sizeof__()


def size_table(summary: Summary) -> SizeTable:
    """The size table of all clusters, from the summary of a table with labels.

    Examples
    --------
    >>> from streameval.states.contingency.size_counts import Sizes
    >>> from streameval.states.contingency.summary import Summary
    >>> size_table(Summary(clusters=Sizes.of(np.array([1, 3, 3])), positives=Sizes.of(np.array([3]), np.array([4]))))
    SizeTable(size=array([1, 3]), clusters=array([1, 2]), positives=array([0, 4]))
    """
    sizes, found = summary.clusters, summary.positives
    positives = np.zeros(sizes.values.size, np.int64)
    positives[np.searchsorted(sizes.values, found.values)] = found.times
    return SizeTable(sizes.values, sizes.times, positives)
