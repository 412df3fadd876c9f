"""A family: for one kind of input, the states that its metrics need, how they are finalized, and their replicates.

A replicate is the value of a metric if a block of sampling units is left out. Scores count their blocks in a state of
their own. Clusters, classes and groups are units themselves: the states that hold their ids give the replicates in one
sweep. Clusterings are compared over the units that they have in common, which takes a second state of blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streameval.errors import SchemaError
from streameval.evaluation.contingency import assignment_cells, watch_table
from streameval.metrics.finalize import computed, in_rounds
from streameval.metrics.left_out import (
    SplitState,
    SumsByBlock,
    SweepClusters,
    SweptClusters,
    SweptGroups,
    SweptTable,
    without_classes,
    without_groups,
    without_rows,
)
from streameval.metrics.resampling import certificates
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.results import Scalar
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.grouped.state import GroupedSpec
from streameval.states.keyed.ids import id_type
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request, Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.scan import Scan
    from streameval.states.blocks import SizeChanges
    from streameval.states.grouped.groups import Grouped
    from streameval.states.protocol import Spec, State
    from streameval.states.scores.blocks import BlockCounts


_NO_BLOCKS = "its states keep no blocks to leave out"
_UNLABELLED = "the positives of rows without a label are themselves an estimate"
_NOT_KEPT = "blocks of its units are not kept for all of these rows; add the unit to the store (add --unit COLUMN)"
_NO_UNIT = "the store keeps no blocks of units; add the column of units to it (add --unit COLUMN)"
_NO_CELLS = (
    "a difference of two clusterings needs the rows of each unit in each cluster, which neither stores nor slices "
    "keep: evaluate the files with --unit and --baseline, without slices (--by)"
)
_NO_COMMON_UNITS = "clusterings have no units in common: evaluate the files with a column of units (--unit)"
_REPLICATES = 16  # replicates finalized per task


class Replication:
    """The replicates of the metrics of a family; the defaults have none.

    Attributes
    ----------
    own_blocks : whether intervals need a state of blocks; stores then keep it
    source_family : family whose replicates for the same column serve the metrics; empty if they have their own
    """

    own_blocks: ClassVar[bool] = False
    source_family: ClassVar[str] = ""

    def blocks(self, request: MetricRequest, resampling: Resampling) -> Spec | None:
        """The spec of a state to fold for sampling intervals; None if none is needed."""
        return None

    def swept(self, engine: Engine, request: MetricRequest, state: State) -> Any:
        """The replacement of the state if replicates are needed; one sweep may give both values and replicates."""
        return state

    def certificates(
        self, request: MetricRequest, state: State, blocks: Any, resampling: Resampling
    ) -> tuple[Metric, ...]:
        """Further metrics of a state that its intervals need, given its blocks (None if it has none)."""
        return ()

    def own(self, request: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The source of the replicates for intervals, from a state and its blocks; or the reason why there is none."""
        return _NO_BLOCKS

    def paired(
        self, engine: Engine, request: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """The source of the replicates for differences between columns; None if it is that of the intervals."""
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results of the states without a block (`Resampled.without`), each built on demand in this process.

        Several are finalized per task, because one takes about as long as scheduling a task.
        """
        several = [jobs[i : i + _REPLICATES] for i in range(0, len(jobs), _REPLICATES)]
        return [row for rows in engine.each(_computed, several, "replicates") for row in rows]


class ScoreReplication(Replication):
    """Blocks of units, counted on a coarse grid or exactly."""

    own_blocks = True

    def blocks(self, request: MetricRequest, resampling: Resampling) -> Spec:
        """Counts by block on a coarse grid, or the exact state split by block."""
        facts = request.spec.column, request.spec.type, request.spec.weighted, request.spec.nan
        key = resampling.blocks
        if resampling.bins is None:
            return GroupedSpec(ScoreSpec(*facts), key)
        return BlockSpec(*facts, key.unit, key.count, resampling.bins)

    def certificates(
        self, request: MetricRequest, state: State, blocks: BlockCounts | None, resampling: Resampling
    ) -> tuple[Metric, ...]:
        """Standard errors with each row as a unit; they show whether the grid is fine enough unless that is certain."""
        single = resampling.unit is None and not request.spec.weighted
        grid = None if resampling.bins is None or blocks is None else _grid(state, blocks, resampling)
        return certificates(request.computed, coarse=grid is not None and not grid.sure, single=single)

    def own(self, request: MetricRequest, state: State, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block."""
        if blocks is None:
            return _NO_UNIT if resampling.unit is None else _NOT_KEPT
        if resampling.bins is not None:
            return _grid(state, blocks, resampling)
        return SplitState(blocks, resampling.named_unit, resampling.blocks.count)


def _grid(state: State, blocks: BlockCounts, resampling: Resampling) -> BlockReplicates:
    exact = state.spec.kind == ScoreSpec.kind
    return BlockReplicates(blocks, resampling.named_unit, resampling.blocks.count, exact)


class ClusterReplication(Replication):
    """Blocks of clusters for intervals, of units for differences between clusterings."""

    def blocks(self, request: MetricRequest, resampling: Resampling) -> Spec | None:
        """Cluster counts by block of the unit, for differences between clusterings."""
        paired = resampling.unit is not None and not request.spec.unlabelled
        return GroupedSpec(request.spec, resampling.blocks) if paired else None

    def swept(self, engine: Engine, request: MetricRequest, state: Any) -> Any:
        """The size table, with its changes if each block of clusters is left out."""
        if request.spec.unlabelled or not request.metrics:
            return state
        changes = _changes(engine, state)
        return SweptClusters(changes.table, state.dropped_rows, changes)

    def own(self, request: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block of clusters, which are the sampling units."""
        if request.spec.unlabelled:
            return _UNLABELLED
        return without_rows(state.changes, request.of, int(state.table.clusters.sum()))

    def paired(
        self, engine: Engine, request: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str:
        """The state without each block of the unit, which clusterings have in common."""
        if request.spec.unlabelled:
            return _UNLABELLED
        if blocks is None:
            return _NO_COMMON_UNITS if resampling.unit is None else _NO_CELLS
        return without_rows(state.changes.paired or _changes(engine, blocks), resampling.named_unit)


def _changes(engine: Engine, state: State) -> SizeChanges:
    """The changes of a state's size table if each block is left out, computed where its rows are held."""
    changes: SizeChanges = engine.finalize([(state, [SweepClusters()])])[0][0]
    return changes


class ClassReplication(Replication):
    """Blocks of classes, which are units that all clusterings have in common."""

    def swept(self, engine: Engine, request: MetricRequest, state: Any) -> SweptTable:
        """The summary of the table, with its replicates if each block of classes is left out."""
        summary, blocks = watch_table(engine, state, ClassBlocks, assignment_cells(request.metrics))
        return SweptTable(state, summary, blocks.replicates(summary))

    def own(self, request: MetricRequest, state: SweptTable, blocks: Any, resampling: Resampling) -> Resampled:
        """The table without each block of classes, which are the sampling units; the state itself holds them."""
        return without_classes(state.replicates, request.spec.classes)

    def paired(
        self, engine: Engine, request: MetricRequest, state: SweptTable, blocks: Any, resampling: Resampling
    ) -> str | None:
        """None, since classes are units common to all clusterings; but rows with a null class have no block."""
        if state.replicates.classless:
            return f"rows with a null class {request.spec.classes} have no block: leave them out (--nulls drop)"
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """Finalize each state as a single part."""
        states = (make() for make in jobs)
        return [[scalar(metric, metric.combine([metric.partial(s)], s)) for metric in some] for s, some in states]


class GroupReplication(Replication):
    """Blocks of groups over which a metric is averaged."""

    def swept(self, engine: Engine, request: MetricRequest, state: State) -> Any:
        """The scores of the groups, with the sums of each block of groups."""
        if not request.metrics:
            return state
        sums = engine.finalize([(state, [SumsByBlock(mean) for mean in request.metrics])])[0]  # type: ignore[arg-type]  # its requests hold means only
        by_name = {metric.name: each for metric, each in zip(request.metrics, sums, strict=True)}
        return SweptGroups(**vars(state), block_sums=by_name)

    def own(self, request: MetricRequest, state: SweptGroups, blocks: Any, resampling: Resampling) -> Resampled:
        """The means without each block of groups, which are the sampling units; the state itself holds their ids."""
        return without_groups(state.block_sums, request.spec.groups)

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results without each block, from the sums over the remaining groups."""
        values = (make() for make in jobs)
        return [[Scalar.certain(metric.name, means[metric.name]) for metric in some] for means, some in values]


class SampleReplication(Replication):
    """The replicates of all rows serve a sample, whose own error is larger."""

    source_family = "score"

    def own(self, request: MetricRequest, state: State, blocks: Any, resampling: Resampling) -> str:
        """The reason why there are none of a sample, for metrics that estimate none of all rows (`of_all_rows`)."""
        return "a sample has no replicates, and the metric names no metric of all rows that has (of_all_rows)"


def _computed(jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
    rows = []
    for make in jobs:
        state, metrics = make()
        values = zip(metrics, computed(state, metrics), strict=True)
        rows.append([scalar(metric, value) for metric, value in values])
    return rows


def scalar(metric: Metric, value: Any) -> Scalar:
    """Wrap a value as a `Scalar`; a user-defined metric may return a plain number."""
    return value if isinstance(value, Scalar) else Scalar.certain(metric.name, float(value))


@dataclass(frozen=True)
class MetricRequest:
    """A state to build, and the metrics to compute from it.

    Attributes
    ----------
    family : the family of the input
    of : the column
    spec : the spec of the state
    metrics : the metrics
    of_blocks : whether the state holds resampling blocks, which intervals need in addition to the family's state
    by : slicing columns, if this is the sliced state that a store keeps; otherwise empty
    interval_sources : metrics without results of their own: the intervals of other metrics are made of their replicates
    """

    family: Family
    of: str
    spec: Any
    metrics: tuple[Metric, ...]
    of_blocks: bool = False
    by: str = ""
    interval_sources: tuple[Metric, ...] = ()

    @property
    def group(self) -> str:
        """The name of the family, such as ``score``; ``score.blocks`` for blocks."""
        own = f"{self.family.name}.blocks" if self.of_blocks else self.family.name
        return f"{own}.by {self.by}" if self.by else own

    @property
    def computed(self) -> tuple[Metric, ...]:
        """The metrics, and those of whose replicates the intervals of others are made."""
        return self.metrics + self.interval_sources

    def blocks(self, resampling: Resampling) -> MetricRequest | None:
        """The additional state that sampling intervals need, such as ``score.blocks``; None if they need none."""
        blocks = self.family.replication.blocks
        spec = blocks(self, resampling) if resampling.level is not None and self.computed else None
        return None if spec is None else replace(self, spec=spec, metrics=(), interval_sources=(), of_blocks=True)

    def remade(self, spec: Spec, metrics: tuple[Metric, ...]) -> MetricRequest:
        """The same request with another state."""
        return replace(self, spec=spec, metrics=metrics)


class Counted(NamedTuple):
    """Rows that metrics were computed from, and rows left out.

    Attributes
    ----------
    rows, positives : counts; `positives` is None if the metrics ignore labels
    dropped : (reason, rows) left out
    """

    rows: int
    positives: int | None
    dropped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class KeyTypes:
    """The key types of columns: the narrowest types that hold all of their values."""

    found: Scan

    def score(self, column: str) -> str:
        """Key type of a score column."""
        return self._typed(score_type, column)

    def id(self, column: str) -> str:
        """Key type of an id column."""
        return self._typed(id_type, column)

    def _typed(self, kind: Callable[..., str], column: str) -> str:
        try:
            return kind(self.found.schema.field(column).type, column)
        except SchemaError as error:
            raise SchemaError(f"{self.found.pieces[0].name}: {error}") from None


class Family(ABC):
    """One kind of input; the defaults are those of states that are finalized shard by shard and have no blocks.

    Attributes
    ----------
    name : name of the family
    column : the option that names its columns
    sharded : whether its states are finalized shard by shard
    sweep_metrics : what to count in the sweep over all slices, for `Scalar.cut_share`; empty without clusters
    replication : how the replicates of its metrics are computed
    """

    name: ClassVar[str]
    column: ClassVar[str]
    sharded: ClassVar[bool] = True
    sweep_metrics: ClassVar[tuple[Metric, ...]] = ()
    replication: ClassVar[Replication] = Replication()

    @abstractmethod
    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The states that a request needs, with their metrics."""

    @abstractmethod
    def counted(self, request: MetricRequest, state: State) -> Counted:
        """The rows that the metrics of a state cover."""

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """The results of several states; metrics that need several passes are finalized in rounds."""
        values = in_rounds(engine.finalize, jobs)
        return [
            [scalar(metric, value) for metric, value in zip(metrics, row, strict=True)]
            for (_, metrics), row in zip(jobs, values, strict=True)
        ]

    def slice_states(
        self, engine: Engine, request: MetricRequest, grouped: Grouped, groups: Sequence[Any]
    ) -> list[State]:
        """Some slices of a sliced state, as states that `finalize` takes; one sweep may compute what they need."""
        states: list[State] = grouped.several(groups, engine.budget, engine.each)
        return states

    def size_bias_reason(self, value: Scalar) -> str:
        """The reason why a slice may differ from other rows merely because of its size; empty if there is none."""
        return ""


def totals(state: State) -> tuple[int, int]:
    """Rows of a state, and the positives among them."""
    total = state.totals()
    return total.rows, total.pos
