"""Families: for each kind of input, the states its metrics need, the rows they cover, and their replicates.

==========  ============================================  ========================================
family      input                                         state
==========  ============================================  ========================================
`score`     a score column                                exact counts, or a histogram (`approx`)
`cluster`   a cluster column                              sizes and positives of clusters
`groups`    a score column and a column of groups         scores by group
`sample`    a sample of a score column (`approx_agc`)     digests, or bins in a second pass
`classes`   a cluster column against the class column     contingency counts
`sketch`    a column of numbers                           a quantile sketch
==========  ============================================  ========================================

A family is the only place that knows which states go with which metrics.

A replicate is the value of a metric if a block of sampling units is left out. Scores count their blocks in a state of
their own. Clusters, classes and groups are units themselves: the states that hold their ids give the replicates in one
sweep. Clusterings are compared over the units that they have in common, which takes a second state of blocks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import pyarrow as pa

from streameval.errors import NullError, OptionError, SchemaError
from streameval.evaluation.labels.columns import is_late
from streameval.evaluation.labels.design import STRATA, LabelDesign, probabilities_of, ratios_of, sampled_classes
from streameval.metrics import resampling as resample
from streameval.metrics.contingency.assignment import summarize_rounds
from streameval.metrics.contingency.class_sample import OF_CLUSTERS, ClassSample, recorded_units, sample_classes
from streameval.metrics.finalize import compute_metrics, in_rounds
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.group_means import GroupMean, group_means
from streameval.metrics.scores.label_sample import LabelSample
from streameval.metrics.scores.label_strata import DrawnUnits, UnitSizes, sample_labels
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.scoring_rules import BrierScore
from streameval.results import Scalar
from streameval.states.cluster_counts import ClusterCounts, ClusterSpec, counts_both, of_rows
from streameval.states.cluster_sizes import SizeState
from streameval.states.contingency.by_cluster import ByCluster
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec, SummarisedCounts
from streameval.states.grouped.keys import By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.sweeps import tables
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.ids import id_type
from streameval.states.scores.blocks import BlockCounts, BlockSpec
from streameval.states.scores.counts import ScoreCounts, ScoreSpec
from streameval.states.scores.groups import GroupScores, GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec
from streameval.states.scores.types import check_threshold, halved, score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request, Resampling
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.scan import Scan
    from streameval.states.blocks import SizeChanges
    from streameval.states.contingency.cells import Watcher
    from streameval.states.contingency.summary import Summary
    from streameval.states.grouped.builder import LabelledGroups
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import Group
    from streameval.states.protocol import Source, Spec, State, StoredSpec
    from streameval.states.scores.digests import SampledDigests
    from streameval.states.scores.draws import SampledBins

    ScoreState = ScoreCounts | ScoreHistogram | GroupScores | SampledDigests | SampledBins
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
            return [_scalars(metrics, compute_metrics(state, metrics)) for state, metrics in (make() for make in some)]

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
        return [_scalars(some, [m.combine([m.partial(one)], one) for m in some]) for one, some in summaries]


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


@dataclass(frozen=True)
class Clusters(Family["ClusterCounts"]):
    """Metrics of a cluster column."""

    name = "cluster"
    column = "cluster"
    replication = ClusterReplication

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """Sizes of the clusters of every cluster column."""
        if request.selection.of(self.name) or not request.selection.of("classes"):
            for column in request.clusters:
                rows = "both" if request.label.nulls == "size" else "labelled"
                policies = request.scope, request.policy("nulls", column), rows
                spec = ClusterSpec(column, _key_type(id_type, scan, column), *policies)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))

    def counted(self, request: MetricRequest, state: ClusterCounts) -> Counted:
        """All rows in clusters."""
        total = state.totals()
        return Counted(total.rows, total.pos, ((f"null cluster {request.of}", int(state.dropped_rows.sum())),))


@dataclass(frozen=True)
class Contingency(Family["ContingencyCounts"]):
    """Metrics of clusters against classes."""

    name = "classes"
    column = "cluster"
    replication: ClassVar[type[Replication]] = ClassReplication

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """The table of classes and clusters of every cluster column."""
        metrics, samples = request.selection.of(self.name), sampled_classes(request.options)
        if request.classes is not None and metrics:
            kind = _key_type(id_type, scan, request.classes)
            for column in request.clusters:
                facts = _key_type(id_type, scan, column), request.scope, request.policy("nulls", column)
                if samples:
                    table = ContingencySpec(request.classes, column, kind, *facts[:2], "singleton")
                    recorded = probabilities_of(samples)
                    spec = GroupedSpec(table, By(recorded)) if recorded else table
                    ratios = ratios_of(request.selection.patterns, metrics, samples)
                    for how, of_clusters in samples:
                        own = [m for m in ratios if len(samples) == 1 or (m.name in OF_CLUSTERS) == of_clusters]
                        drawn = (SampledClusters if of_clusters else SampledClasses)(how, facts[2] == "drop")
                        yield MetricRequest(drawn, column, spec, tuple(own))
                    continue
                family, nulls = of_classes(scan.schema.field(request.classes), facts[2])
                labelled = request.label.nulls != "size"  # where labels are few, positives would be of some rows
                spec = ContingencySpec(request.classes, column, kind, *facts[:2], nulls, labelled)
                yield MetricRequest(family, column, spec, metrics)

    def counted(self, request: MetricRequest, state: ContingencyCounts) -> Counted:
        """All rows in the table."""
        total, (no_cluster, no_class) = state.totals(), state.dropped_rows.tolist()
        dropped = (
            (f"null cluster {request.of}", no_cluster),
            (f"null class {request.spec.classes} (with {request.of})", no_class),
        )
        return Counted(total.rows, total.pos if request.spec.labelled else None, dropped)

    def slice_states(
        self, engine: Engine, request: MetricRequest, grouped: Grouped, groups: Sequence[Group]
    ) -> list[State]:
        """The tables of some slices; small ones come summarised."""
        if not request.metrics or assignment_cells(request.metrics) is not None:
            return super().slice_states(engine, request, grouped, groups)
        return tables(cast("TaggedGroups", grouped), groups, engine.each, engine.budget)


@dataclass(frozen=True)
class LateClasses(Contingency):
    """Metrics of clusters against classes that arrive late: of the rows that have one.

    Attributes
    ----------
    nulls : the policy for null clusters, ``error`` or ``drop``
    """

    nulls: str

    def counted(self, request: MetricRequest, state: ContingencyCounts) -> Counted:
        """All rows in the table, and their share of those in clusters; raises `NullError` for null clusters."""
        counted, (no_cluster, no_class) = super().counted(request, state), state.dropped_rows.tolist()
        if no_cluster and self.nulls == "error":
            raise NullError(f"cluster column {request.of!r} has nulls; choose --nulls drop")
        return counted._replace(positives=None, share=counted.rows / max(1, counted.rows + no_class))


def of_classes(field: pa.Field, nulls: str) -> tuple[Contingency, str]:
    """The family of clusters against a column of classes, and the policy of its table, from that for null clusters.

    Raises
    ------
    OptionError
        If null ids are singletons, which would count rows that have no class yet.
    """
    if not is_late(field):
        return Contingency(), nulls
    if nulls == "singleton":
        raise OptionError(
            f"nulls='singleton' would count rows whose {field.name!r} has not arrived; choose nulls='drop' "
            "(--nulls drop)",
            "nulls",
        )
    return LateClasses(nulls), "drop"


@dataclass(frozen=True)
class SampledClasses(Contingency):
    """Metrics of clusters against classes, estimated from a sample of classes or clusters.

    Attributes
    ----------
    kind : ``uniform`` or ``size``, or the column of recorded probabilities
    drop : whether rows of null clusters are left out
    of_clusters : whether clusters were drawn
    """

    name = "class_sample"
    replication = LabelReplication
    of_clusters: ClassVar[bool] = False

    kind: str
    drop: bool

    def source(self, engine: Engine, request: MetricRequest, states: Mapping[StoredSpec, State]) -> State:
        """The sums over the sample."""
        state, recorded = states[request.spec], None
        if isinstance(state, TaggedGroups):
            place = state.spec.key.columns.index(self.kind)
            recorded = recorded_units(state, place, of_clusters=self.of_clusters, budget=engine.budget)
            state = state.total(engine.budget)
        table, how = cast("ContingencyCounts", state), {"of_clusters": self.of_clusters, "drop": self.drop}
        sample = sample_classes(table, self.kind, **how, budget=engine.budget, each=engine.each, recorded=recorded)
        return cast("State", sample)

    def counted(self, request: MetricRequest, state: ContingencyCounts) -> Counted:
        """All rows."""
        sample = cast("ClassSample", state)
        return Counted(sample.every, None, ((f"null cluster {request.of}", sample.dropped),))


class SampledClusters(SampledClasses):
    """Precisions of clusters against classes, estimated from a sample of clusters."""

    name = "cluster_sample"
    of_clusters = True


MIN_WEIGHT_RATIO = 1e-300  # least ratio of the weights of the two classes; below it, products leave float64


@dataclass(frozen=True)
class _OfScores(Family["ScoreState"]):
    """Common base of the families of score columns."""

    column = "score"

    def counted(self, request: MetricRequest, state: ScoreState) -> Counted:
        """All rows whose score is a number; with ``nan="half"`` also rows with a NaN score."""
        total, nan = state.totals(), state.nan_rows.tolist()
        if request.spec.nan == "half":
            return Counted(total.rows + sum(nan), total.pos + nan[1])
        return Counted(total.rows, total.pos, ((f"NaN or null score {request.of}", sum(nan)),))


@dataclass(frozen=True)
class Scores(_OfScores):
    """Metrics of a score column."""

    name = "score"
    replication = ScoreReplication

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """Exact counts of every score column, or its histogram."""
        kind = HistogramSpec if request.approx else ScoreSpec
        for column in request.scores if not request.mean_over else ():
            selection = request.selected(column)
            metrics = selection.of(self.name)
            sources = selection.behind(self.name) if request.resampling.level is not None else ()
            if request.selection.of(self.name) or not request.sampling or sources:
                policies = request.weight is not None, request.policy("nan", column)
                spec = kind(column, _key_type(score_type, scan, column), *policies)
                for metric in metrics:
                    if isinstance(metric, OperatingPoint) and metric.kind == "threshold":
                        check_threshold(metric.at, spec.type, column)
                if (design := request.design) is None:
                    yield MetricRequest(self, column, spec, metrics, interval_sources=sources)
                    continue
                if design.strata is not None and pa.types.is_floating(scan.schema.field(design.strata).type):
                    raise OptionError(f"sampled_by='strata={design.strata}': its numbers are not strata; {STRATA}")
                units = design.units(partial(_key_type, id_type, scan))
                sizes = () if units is None else (MetricRequest(Units(), units.column, units, (), of_store=True),)
                if column == request.scores[0]:
                    yield from sizes
                drawn = GroupedSpec(replace(spec, weighted=design.probability is not None), design.key)
                further = tuple((one.group, one.of) for w in sizes for one in w.stored)
                yield MetricRequest(LabelledScores(design, units), column, drawn, metrics, further=further)


@dataclass(frozen=True)
class Units(Clusters):
    """Units, only some of which are labelled; only their sizes are read. They were drawn from all nights of a store."""

    name = "units"


@dataclass(frozen=True)
class LabelledScores(_OfScores):
    """Metrics of a score column, estimated from a sample of labels.

    Attributes
    ----------
    design : how labels were drawn
    sizes : the spec of the units that were drawn; None if rows were drawn
    """

    name = "score"
    replication = LabelReplication

    design: LabelDesign
    sizes: ClusterSpec | None

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """Nothing: `Scores` makes these requests."""
        return iter(())

    def source(self, engine: Engine, request: MetricRequest, states: Mapping[StoredSpec, State]) -> State:
        """The weighted labels."""
        units, labels = None, cast("LabelledGroups | TaggedGroups", states[request.spec])
        if self.sizes is not None:
            [[table]] = engine.finalize([(states[self.sizes], [UnitSizes()])])
            units = DrawnUnits(self.sizes.column, self.sizes.type, self.design.kind, table)
        sample = sample_labels(labels, request.metrics, self.design.text, units, engine.budget)
        if any(isinstance(metric, BrierScore) for metric in request.metrics):
            rows = labels.total()
            [[loss]] = engine.finalize([(rows, [BrierScore()])])
            sample = sample.squared(loss, rows.totals(), weighted=rows.spec.weighted)
        return cast("State", sample)

    def counted(self, request: MetricRequest, state: ScoreState) -> Counted:
        """All rows whose score is a number; how many of them are positive is not known."""
        sample = cast("LabelSample", state)
        return Counted(sample.rows, None, ((f"NaN or null score {request.of}", sample.dropped),))


@dataclass(frozen=True)
class Groups(_OfScores):
    """Means of the metrics of a score column over groups."""

    name = "groups"
    replication = GroupReplication

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """The scores of every score column, by group."""
        if over := request.mean_over:
            for column in request.scores:
                selection = request.selected(column)
                defaults = replace(selection, patterns=(), own=(), truncate=(), at=()).of("score") * selection.usual
                metrics = group_means(selection.of("score"), over, request.options["mean_weight"], defaults)
                types = _key_type(score_type, scan, column), over, _key_type(id_type, scan, over)
                yield MetricRequest(
                    self, column, GroupScoreSpec(column, *types, request.policy("nan", column)), metrics
                )


@dataclass(frozen=True)
class Samples(_OfScores):
    """Metrics of a sampled score column."""

    name = "sample"
    replication = SampleReplication

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """A sample of every score column whose gain area is requested."""
        if request.sampling:
            for column in request.scores:
                facts = column, _key_type(score_type, scan, column), request.policy("nan", column)
                spec = request.sampling.spec(*facts, weighted=request.weight is not None)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))


@dataclass(frozen=True)
class Sketches(Family["QuantileSketch"]):
    """Quantiles of a column of numbers."""

    name = "sketch"
    column = "sketch"

    def requests(self, request: Request, scan: Scan) -> Iterator[MetricRequest]:
        """A sketch of every column."""
        for column in request.sketches:
            spec = QuantileSpec(column, _key_type(score_type, scan, column))
            yield MetricRequest(self, column, spec, request.selection.of(self.name))

    def counted(self, request: MetricRequest, state: QuantileSketch) -> Counted:
        """All rows with a number, labelled or not."""
        return Counted(state.totals().rows, None, ((f"NaN or null in the sketch of {request.of}", int(state.nan)),))


def _key_type(kind: Callable[..., str], scan: Scan, column: str) -> str:
    """The narrowest key type that holds all values of a column of a scan."""
    try:
        return kind(scan.schema.field(column).type, column)
    except SchemaError as error:
        raise SchemaError(f"{scan.pieces[0].name}: {error}") from None


_ALL: tuple[Family[Any], ...] = (Scores(), Groups(), Clusters(), Samples(), Contingency(), Sketches())
FAMILIES = {family.name: family for family in _ALL}


def planned(request: Request, scan: Scan) -> list[MetricRequest]:
    """The states to build for a request, with the metrics of each, family by family.

    Raises
    ------
    OptionError
        If the data do not allow what is requested.
    SchemaError
        If a column has a type that cannot be a score or an id; the message names a file that has it.
    """
    if request.clusters and request.scope == "partition" and not all(piece.partition for piece in scan.pieces):
        raise OptionError(
            "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
        )
    if request.sampling:
        request.sampling.check(scan)
    return [one for family in _ALL for one in family.requests(request, scan)]


def finalize_states(engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
    """The results of several states; metrics of a contingency table read its summary, so that is made first."""
    summarised = []
    for state, metrics in jobs:
        if isinstance(state, ContingencyCounts):
            state = SummarisedCounts(state, watch_table(engine, state, None, assignment_cells(metrics))[0])
        summarised.append((state, metrics))
    values = in_rounds(engine.finalize, summarised)
    return [_scalars(metrics, row) for (_, metrics), row in zip(jobs, values, strict=True)]


def _scalars(metrics: Sequence[Metric], values: Sequence[Scalar | float]) -> list[Scalar]:
    return [scalar(metric, value) for metric, value in zip(metrics, values, strict=True)]


def scalar(metric: Metric, value: Scalar | float) -> Scalar:
    """Wrap a value as a `Scalar`; a user-defined metric may return a plain number."""
    return value if isinstance(value, Scalar) else Scalar.certain(metric.name, float(value))


def finalize(engine: Engine, pairs: Sequence[tuple[MetricRequest, Source]]) -> Iterator[Scalar]:
    """The results of all states, in the order given, with their columns, rows and positives."""
    rows = finalize_states(engine, [(state, request.metrics) for request, state in pairs])
    for (request, state), row in zip(pairs, rows, strict=True):
        counted = request.family.counted(request, state)
        for metric, value in zip(request.metrics, row, strict=True):
            if isinstance(state, LabelSample | ClassSample):
                value = state.estimate(metric, value)
            yield counted.of_rows(replace(value, of=request.of))


def weight_problem(request: MetricRequest, state: State) -> str:
    """Why the weights of a state cannot be used: the ratio of those of the two classes leaves float64; else empty.

    Metrics of samples normalise weights by their sum first, and other families have none.
    """
    if request.family.name != "score":
        return ""
    total, missing = state.totals(), halved(state)
    neg, pos = total.neg_weight + missing.neg_weight, total.pos_weight + missing.pos_weight
    if not (neg and pos) or min(neg, pos) >= MIN_WEIGHT_RATIO * max(neg, pos):
        return ""
    sums = " and ".join(f"{math.ldexp(side, total.unit):g}" for side in (neg, pos))
    return f"sums to {sums} for the two classes; their ratio leaves float64: scale the weights"
