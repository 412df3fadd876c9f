"""Replicates of metrics of clusters, and of clusters against classes.

One sweep over a state yields its replicates and its value; `SweptClusters` and `SweptTable` then replace the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from streameval.metrics.protocol import Metric
from streameval.metrics.resampled import Resampled
from streameval.metrics.units import Sizes, class_counts
from streameval.states.clusters.size_blocks import SizeChanges
from streameval.states.clusters.sizes import SizeState
from streameval.states.contingency.counts import SummarisedCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.contingency.class_blocks import ClassReplicates
    from streameval.states.contingency.summary import Summary


@dataclass(frozen=True)
class SweepClusters(Metric):
    """A metric whose value is the `SizeChanges` of a state with clusters."""

    reads: ClassVar[str] = "by_block"
    name: str = "size changes"

    def partial(self, part: SizeChanges) -> SizeChanges:
        """The changes of a shard."""
        return part

    def combine(self, partials: Sequence[SizeChanges], state: Any) -> SizeChanges:
        """Those of all shards."""
        return SizeChanges.union(partials)


@dataclass(frozen=True, eq=False)
class SweptClusters(SizeState):
    """The size table of a state, which was swept for its replicates as well.

    Attributes
    ----------
    changes : SizeChanges without each block of clusters
    """

    changes: SizeChanges | None = None


@dataclass(frozen=True, eq=False)
class SweptTable(SummarisedCounts):
    """The summary of a contingency table, which was swept for its replicates as well.

    Attributes
    ----------
    replicates : ClassReplicates
    """

    replicates: ClassReplicates


@dataclass(frozen=True, eq=False)
class WithoutRows(Resampled):
    """Gives the size table of clusters without the rows of each block (`streameval.metrics.resampled.Resampled`).

    Attributes
    ----------
    changes : SizeChanges
    unit : what is drawn together
    units : number of units; None where it is not known
    """

    changes: SizeChanges
    unit: str
    units: int | None = None

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of each block."""
        rows, positives = self.changes.rows, self.changes.positives
        return Sizes(self.unit, class_counts(rows - positives, positives), self.units)

    def without(self, block: int) -> SizeState:
        """The rows of all other blocks."""
        return SizeState(self.changes.without(block))


@dataclass(frozen=True, eq=False)
class WithoutClasses(Resampled):
    """Gives the summary of a table without the classes of each block (`streameval.metrics.resampled.Resampled`).

    Attributes
    ----------
    replicates : ClassReplicates
    unit : the class column
    """

    replicates: ClassReplicates
    unit: str

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of each block, and the squared sizes of its classes, to which pair counts are proportional."""
        counts = {"rows": self.replicates.rows, "pairs": self.replicates.squared_sizes}
        return Sizes(self.unit, counts, self.replicates.summary.classes.count)

    def without(self, block: int) -> Summary:
        """The classes of all other blocks."""
        return self.replicates.without(block)
