"""Protocol of families: the states to build with their metrics, the rows that they cover, and their replicates.

A replicate is the value of a metric if a block of sampling units is left out. Scores count their blocks in a state of
their own. Clusters, classes and groups are units themselves: the states that hold their ids give the replicates in one
sweep. Clusterings are compared over the units that they have in common, which takes a second state of blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from streameval.metrics import resampling as resample
from streameval.metrics.contingency.assignment import summarize_rounds
from streameval.metrics.finalize import compute_metrics, scalars
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.results import Scalar
from streameval.states.cluster_counts import counts_both, of_rows
from streameval.states.cluster_sizes import SizeState
from streameval.states.contingency.by_cluster import ByCluster
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.contingency.counts import ContingencyCounts, SummarisedCounts
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.scores.blocks import BlockCounts, BlockSpec
from streameval.states.scores.counts import ScoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request, Resampling
    from streameval.metrics.contingency.class_sample import ClassSample
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.metrics.scores.group_means import GroupMean
    from streameval.metrics.scores.label_sample import LabelSample
    from streameval.scan import Scan
    from streameval.states.blocks import SizeChanges
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.contingency.cells import Watcher
    from streameval.states.contingency.summary import Summary
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import Group
    from streameval.states.protocol import Source, Spec, State, StoredSpec

    W = TypeVar("W", bound=Watcher)


def assignment_cells(metrics: Sequence[Metric]) -> int | None:
    """The limit on cells of the best matching, set by metrics; None if no metric needs the matching."""
    limits = (metric.assignment_cells for metric in metrics)
    return next((limit for limit in limits if limit is not None), None)


def watch_table(
    engine: Engine, table: ContingencyCounts, watch: Callable[[], W] | None = None, assignment_cells: int | None = None
) -> tuple[Summary, W]:
    """The summary of a contingency table, and the watcher of all clusters and classes, whose parts `watch` creates.

    If `assignment_cells` is given, the summary has the optimal assignment of clusters to classes, exact for connected
    components of at most that number of cells and bounded for larger ones.
    """
    first = ByCluster(table, watch, matched=assignment_cells is not None)
    summary, watcher = engine.rounds(first, partial(summarize_rounds, assignment_cells=assignment_cells))
    return summary, cast("W", watcher)


F = TypeVar("F")  # a folded state

_NO_BLOCKS = "its states keep no blocks to leave out"
_UNLABELLED = "the positives of rows without a label are themselves an estimate"
_NOT_KEPT = "blocks of its units are not kept for all of these rows; add the unit to the store (add --unit COLUMN)"
_NO_UNIT = "the store keeps no blocks of units; add the column of units to it (add --unit COLUMN)"
_REPEATED = "a row counts once for each class: name a unit (--unit)"
_NO_CELLS = (
    "a difference of two clusterings needs the rows of each unit in each cluster, which neither stores nor slices "
    "keep: evaluate the files with --unit and --baseline, without slices (--by)"
)
_NO_COMMON_UNITS = "clusterings have no units in common: evaluate the files with a column of units (--unit)"
_COARSE = 1 << 11  # bins of a grid beside which points have a finer one
_REPLICATES = 16  # replicates finalized per task


class Sources(NamedTuple):
    """A state whose values are computed, and the states without each block that give its intervals.

    Attributes
    ----------
    state : the state, or what one sweep over it gives for both its values and its replicates
    own : of the intervals; a text says why there are none
    paired : of differences between columns, if they are others
    """

    state: Source
    own: resample.Resampled | str = _NO_BLOCKS
    paired: resample.Resampled | str | None = None


@dataclass(frozen=True)
class Replication:
    """The replicates of the metrics of a request; the defaults have none.

    Attributes
    ----------
    request : the state and its metrics
    resampling : the requested sampling intervals
    own_blocks : whether intervals need a state of blocks; stores then keep it
    source_family : family whose replicates for the same column serve the metrics; empty if they have their own
    """

    request: MetricRequest
    resampling: Resampling
    own_blocks: ClassVar[bool] = False
    source_family: ClassVar[str] = ""

    @property
    def single(self) -> bool:
        """Whether each row is a unit of weight 1, so that counts of scores give standard errors."""
        return False

    def blocks(self) -> Spec | None:
        """The spec of a state to fold for sampling intervals; None if none is needed."""
        return None

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """Where replicates come from, given a state and that of its blocks, if there is one."""
        return Sources(state)

    def certificates(self, own: resample.Resampled | str) -> tuple[Metric, ...]:
        """Further metrics of a state that its intervals need."""
        return ()

    def refined(self, estimates: list[Estimate], state: Source, metrics: Sequence[Metric]) -> list[Estimate]:
        """The estimates of metrics from their replicates, with what the state knows besides."""
        return estimates

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results of the states without a block (`Resampled.without`), each built on demand in this process.

        Several are finalized per task, because one takes about as long as scheduling a task.
        """
        several = [jobs[i : i + _REPLICATES] for i in range(0, len(jobs), _REPLICATES)]

        def compute(some: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
            return [scalars(metrics, compute_metrics(state, metrics)) for state, metrics in (make() for make in some)]

        return [row for rows in engine.each(compute, several) for row in rows]


class ScoreReplication(Replication):
    """Blocks of units, counted on a coarse grid or exactly."""

    own_blocks = True

    @property
    def single(self) -> bool:
        """Whether no unit is named, no row has a weight, and none counts several times."""
        return self.resampling.unit is None and not (self.request.spec.weighted or self.request.repeated)

    def blocks(self) -> Spec:
        """Counts by block on a coarse grid, or the exact state split by block."""
        spec, key = self.request.spec, self.resampling.blocks
        facts = spec.column, spec.type, spec.weighted, spec.nan
        if self.resampling.bins is None:
            return GroupedSpec(ScoreSpec(*facts), key)
        pointed = self.resampling.pointed and self.resampling.bins <= _COARSE
        return BlockSpec(*facts, key.unit, key.count, self.resampling.bins, pointed=pointed)

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The state without each block."""
        if blocks is None:
            lacking = _REPEATED if self.request.repeated else _NO_UNIT
            return Sources(state, lacking if self.resampling.unit is None else _NOT_KEPT)
        unit, count = self.resampling.named_unit, self.resampling.blocks.count
        if self.resampling.bins is None:
            return Sources(state, resample.SplitState(cast("Grouped", blocks), unit, count, self.single))
        exact = state.spec.kind == ScoreSpec.kind
        return Sources(state, BlockReplicates(cast("BlockCounts", blocks), unit, count, exact, self.single))

    def certificates(self, own: resample.Resampled | str) -> tuple[Metric, ...]:
        """Standard errors with each row as a unit; they show whether the grid is fine enough unless that is certain."""
        coarse = isinstance(own, BlockReplicates) and not own.sure
        return resample.certificates(self.request.computed, coarse=coarse, single=self.single)


class LabelReplication(Replication):
    """Blocks of labels: a sample of labels weights the others anew without each."""

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The sample itself."""
        sample = cast("LabelSample | ClassSample", state)
        return Sources(sample, resample.LeftOut(sample.block_sizes, sample.without))

    def refined(self, estimates: list[Estimate], state: Source, metrics: Sequence[Metric]) -> list[Estimate]:
        """With the error of positives that were not drawn."""
        return cast("LabelSample | ClassSample", state).refined(estimates, metrics)


class ClusterReplication(Replication):
    """Blocks of clusters for intervals, of units for differences between clusterings."""

    def blocks(self) -> Spec | None:
        """Cluster counts by block of the unit, for differences between clusterings."""
        paired = self.resampling.unit is not None and not self.request.spec.traits.unlabelled
        return GroupedSpec(self.request.spec, self.resampling.blocks) if paired else None

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The size table without each block of clusters, and of the unit, which clusterings have in common."""
        if self.request.spec.traits.unlabelled:
            return Sources(state, _UNLABELLED, _UNLABELLED)
        changes = _changes(engine, state)
        own = resample.without_rows(changes, self.request.of, int(changes.table.clusters.sum()))
        paired: resample.Resampled | str = _NO_COMMON_UNITS if self.resampling.unit is None else _NO_CELLS
        if blocks is not None:
            paired = resample.without_rows(_changes(engine, blocks), self.resampling.named_unit)
        return Sources(SizeState(changes.table, cast("ClusterCounts", state).dropped_rows), own, paired)


def _changes(engine: Engine, state: State) -> SizeChanges:
    """The changes of a state's size table if each block is left out, computed where its rows are held."""
    changes: SizeChanges = engine.finalize([(state, [resample.SweepClusters()])])[0][0]
    return changes


class ClassReplication(Replication):
    """Blocks of classes, which are units that all clusterings have in common."""

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The summary of the table without each block of classes; rows with a null class have no block."""
        table, classes = cast("ContingencyCounts", state), self.request.spec.classes
        summary, watcher = watch_table(engine, table, ClassBlocks, assignment_cells(self.request.metrics))
        replicates, lacking = watcher.replicates(summary), None
        if replicates.classless:
            lacking = f"rows with a null class {classes} have no block: leave them out (--nulls drop)"
        return Sources(SummarisedCounts(table, summary), resample.without_classes(replicates, classes), lacking)

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """Finalize each summary as a single part."""
        summaries = (make() for make in jobs)
        return [scalars(some, [m.combine([m.partial(one)], one) for m in some]) for one, some in summaries]


class GroupReplication(Replication):
    """Blocks of groups over which a metric is averaged."""

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The means without each block of groups, which are the sampling units; the state itself holds their ids."""
        means = cast("Sequence[GroupMean]", self.request.metrics)  # the only metrics of its requests
        sums = engine.finalize([(state, [resample.SumsByBlock(mean) for mean in means])])[0]
        by_name = {mean.name: one for mean, one in zip(means, sums, strict=True)}
        return Sources(state, resample.without_groups(by_name, self.request.spec.groups))

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results without each block, from the sums over the remaining groups."""
        values = (make() for make in jobs)
        return [[Scalar.certain(metric.name, means[metric.name]) for metric in some] for means, some in values]


class SampleReplication(Replication):
    """The replicates of all rows serve a sample, whose own error is larger."""

    source_family = "score"

    def sources(self, engine: Engine, state: State, blocks: State | None) -> Sources:
        """The reason why there are none of a sample, for metrics that estimate none of all rows (`of_all_rows`)."""
        return Sources(
            state, "a sample has no replicates, and the metric names no metric of all rows that has (of_all_rows)"
        )


@dataclass(frozen=True)
class MetricRequest:
    """A state to build, and the metrics to compute from it.

    Attributes
    ----------
    family : the family of the input
    of : the column
    spec : the spec of the state
    metrics : the metrics
    part : ``blocks`` if the state holds resampling blocks, which intervals need in addition to the family's state;
        ``rows`` if it is that of every row, which stores keep apart from that of labelled rows; otherwise empty
    by : slicing columns, if this is the sliced state that a store keeps; otherwise empty
    interval_sources : metrics without results of their own: the intervals of other metrics are made of their replicates
    repeated : whether the state has each row once for each of several classes
    further : group and column of the states that the metrics read besides this one
    of_store : whether the state is that of all nights of a store, whichever are evaluated
    """

    family: Family[Any]
    of: str
    spec: Any
    metrics: tuple[Metric, ...]
    part: str = ""
    by: str = ""
    interval_sources: tuple[Metric, ...] = ()
    repeated: bool = False
    further: tuple[tuple[str, str], ...] = ()
    of_store: bool = False

    @property
    def group(self) -> str:
        """The name of the family, such as ``score``; with its part, such as ``score.blocks``."""
        name = f"{self.family.name}.{self.part}" if self.part else self.family.name
        return f"{name}.by {self.by}" if self.by else name

    @property
    def stored(self) -> tuple[MetricRequest, ...]:
        """The requests of the states that a store keeps for it: labelled rows change where labels arrive late."""
        if not counts_both(self.spec):
            return (self,)
        every = replace(self, spec=of_rows(self.spec, "every"), metrics=(), part="rows")
        return replace(self, spec=of_rows(self.spec, "labelled")), every

    @property
    def computed(self) -> tuple[Metric, ...]:
        """The metrics, and those of whose replicates the intervals of others are made."""
        return self.metrics + self.interval_sources

    def replication(self, resampling: Resampling) -> Replication:
        """How replicates are computed."""
        return self.family.replication(self, resampling)

    def blocks(self, resampling: Resampling) -> MetricRequest | None:
        """The additional state that sampling intervals need, such as ``score.blocks``; None if they need none."""
        spec = self.replication(resampling).blocks() if resampling.level is not None and self.computed else None
        return None if spec is None else replace(self, spec=spec, metrics=(), interval_sources=(), part="blocks")


class Counted(NamedTuple):
    """Rows that metrics were computed from, and rows left out.

    Attributes
    ----------
    rows, positives : counts; `positives` is None if the metrics ignore labels
    dropped : (reason, rows) left out
    share : the share of rows that have a class, if classes arrive late; else None
    """

    rows: int
    positives: int | None
    dropped: tuple[tuple[str, int], ...] = ()
    share: float | None = None

    def of_rows(self, value: Scalar) -> Scalar:
        """A value with these counts; it is of labelled rows if some rows have no class yet."""
        value = replace(value, rows=self.rows, positives=self.positives)
        if self.share is None or self.share == 1:
            return value
        return replace(value, basis="labelled rows", labelled_share=self.share if value.slice is None else None)


class Family(ABC, Generic[F]):
    """One kind of input; the defaults are those of states that keep no blocks.

    Attributes
    ----------
    name : name of the family
    column : the option that names its columns
    replication : how the replicates of its metrics are computed
    """

    name: ClassVar[str]
    column: ClassVar[str]
    replication: ClassVar[type[Replication]] = Replication

    @abstractmethod
    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """The states that a request needs, with their metrics."""

    @abstractmethod
    def counted(self, request: MetricRequest, state: F) -> Counted:
        """The rows that the metrics of a state cover."""

    def source(self, engine: Engine, request: MetricRequest, states: Mapping[StoredSpec, State]) -> State:
        """What metrics are computed from: the state of the request itself, or what is made of the folded states."""
        return states[request.spec]

    def slice_states(
        self, engine: Engine, request: MetricRequest, grouped: Grouped, groups: Sequence[Group]
    ) -> list[State]:
        """Some slices of a sliced state, for `finalize_states`; one sweep may compute what they need."""
        states: list[State] = grouped.several(groups, engine.budget, engine.each)
        return states
