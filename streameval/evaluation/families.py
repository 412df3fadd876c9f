"""Families: for each kind of input, the states its metrics need, the rows they cover, and how they are finalized.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from streameval.errors import OptionError, WeightError
from streameval.evaluation.family import Counted, Family, KeyTypes, MetricRequest, Sharded, scalar, totals
from streameval.evaluation.sharing import summarize_table, watch_table
from streameval.metrics.contingency.clustering import ClusteringMetric
from streameval.metrics.left_out import (
    SplitState,
    SumsByBlock,
    SweepClusters,
    SweptClusters,
    SweptGroups,
    SweptTable,
    WithoutClasses,
    WithoutGroups,
    WithoutRows,
)
from streameval.metrics.resampling import certificates
from streameval.metrics.scores.group_means import group_means
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.metrics.sliced import CutRows
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.small_tables import tables
from streameval.states.grouped.state import GroupedSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.missing import halved
from streameval.states.scores.quantile_sketch import QuantileSpec
from streameval.states.scores.types import check_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request, Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.results import Scalar
    from streameval.scan import Scan
    from streameval.states.clusters.size_blocks import SizeChanges
    from streameval.states.scores.blocks import BlockCounts


_UNLABELLED = "the positives of rows without a label are themselves an estimate"


@dataclass(frozen=True)
class Clusters(Sharded):
    """Metrics of a cluster column."""

    name = "cluster"
    column = "cluster"
    sweep_metrics: ClassVar[tuple[Metric, ...]] = (CutRows(),)

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Sizes of the clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if metrics or not request.selection.of("classes"):
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column), request.label.nulls == "size"
                spec = ClusterSpec(column, types.id(column), *policies)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows in clusters."""
        return Counted(*totals(state), ((f"null cluster {wanted.of}", int(state.dropped_rows.sum())),))

    def unlike(self, value: Scalar) -> str:
        """A slice that cuts clusters has smaller clusters, even if it is random."""
        return "the slice cuts clusters (cut_share), which alone changes their sizes" if value.cut_share else ""

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The size table, with its changes if each block of clusters is left out."""
        if wanted.spec.unlabelled or not wanted.metrics:
            return state
        changes = _changes(engine, state)
        return SweptClusters(changes.table, state.dropped_rows, changes)

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """Cluster counts by block of the unit, for differences between clusterings."""
        paired = resampling.unit is not None and not wanted.spec.unlabelled
        return GroupedSpec(wanted.spec, resampling.blocks) if paired else None

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block of clusters, which are the sampling units."""
        if wanted.spec.unlabelled:
            return _UNLABELLED
        return WithoutRows(state.changes, wanted.of, int(state.table.clusters.sum()))

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """The state without each block of the unit, which clusterings have in common."""
        if wanted.spec.unlabelled:
            return _UNLABELLED
        if blocks is None:
            return "clusterings have no units in common: evaluate the files with a column of units (--unit)"
        return WithoutRows(state.changes.paired or _changes(engine, blocks), resampling.named_unit)


def _changes(engine: Engine, state: Any) -> SizeChanges:
    """The changes of a state's size table if each block is left out, computed where its rows are held."""
    found: SizeChanges = engine.finalize([(state, [SweepClusters()])])[0][0]
    return found


@dataclass(frozen=True)
class Contingency(Sharded):
    """Metrics of clusters against classes."""

    name = "classes"
    column = "cluster"
    sharded = False

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The table of classes and clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if request.classes is not None and metrics:
            kind = types.id(request.classes)
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column)
                spec = ContingencySpec(request.classes, column, kind, types.id(column), *policies)
                yield MetricRequest(self, column, spec, metrics)

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows in the table."""
        no_cluster, no_class = state.dropped_rows.tolist()
        dropped = (
            (f"null cluster {wanted.of}", no_cluster),
            (f"null class {wanted.spec.classes} (with {wanted.of})", no_class),
        )
        return Counted(*totals(state), dropped)

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """Whether one of them is an assignment score."""
        return _assignment_cells(metrics) is not None

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The summary of the table, with its replicates if each block of classes is left out."""
        summary, blocks = watch_table(engine, state, ClassBlocks, _assignment_cells(wanted.metrics))
        return SweptTable(state, summary, blocks.replicates(summary))

    def several(self, engine: Engine, wanted: MetricRequest, grouped: Any, groups: Sequence[Any]) -> list[Any]:
        """The tables of some slices; small ones come summarised."""
        if not wanted.metrics or self.matched(wanted.metrics):
            return super().several(engine, wanted, grouped, groups)
        found: list[Any] = tables(grouped, groups, engine.each, engine.budget)
        return found

    def unlike(self, value: Scalar) -> str:
        """Such values do not converge as classes are added."""
        return "values against classes depend on how many classes and clusters there are, fewer in a slice"

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Finalize one table after the other: two passes summarise it, and metrics read only the summary."""
        results = []
        for state, metrics in jobs:
            cells = _assignment_cells(metrics)
            summary = state.summarised(lambda table, cells=cells: summarize_table(engine, table, cells))
            results.append([scalar(metric, metric.combine([metric.partial(summary)], state)) for metric in metrics])
        return results

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The table without each block of classes, which are the sampling units; the state itself holds them."""
        return WithoutClasses(state.replicates, wanted.spec.classes)

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """None, since classes are units common to all clusterings; but rows with a null class have no block."""
        if state.replicates.classless:
            return f"rows with a null class {wanted.spec.classes} have no block: leave them out (--nulls drop)"
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """Finalize each state as a single part."""
        made = (make() for make in jobs)
        return [[scalar(metric, metric.combine([metric.partial(s)], s)) for metric in several] for s, several in made]


def _assignment_cells(metrics: Sequence[Metric]) -> int | None:
    """The limit on cells of the best matching, set by metrics; None if no metric needs the matching."""
    limits = (metric.assignment_cells for metric in metrics if isinstance(metric, ClusteringMetric))
    return next((limit for limit in limits if limit is not None), None)


_LIGHTEST = 1e-300  # least ratio of the weights of the two classes; below it, products leave float64


@dataclass(frozen=True)
class _OfScores(Sharded):
    """Common base of the families of score columns: counted rows, and the check of weights."""

    column = "score"

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows whose score is a number; with ``nan="half"`` also rows with a NaN score."""
        rows, positives = totals(state)
        nan = state.nan_rows.tolist()
        if wanted.spec.nan == "half":
            return Counted(rows + sum(nan), positives + nan[1])
        return Counted(rows, positives, ((f"NaN or null score {wanted.of}", sum(nan)),))

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Raise `WeightError` if the ratio of the weights of the two classes leaves float64."""
        total, missing = state.totals(), halved(state)
        neg, pos = total.neg_weight + missing.neg_weight, total.pos_weight + missing.pos_weight
        if neg and pos and min(neg, pos) < _LIGHTEST * max(neg, pos):
            sums = " and ".join(f"{math.ldexp(side, total.unit):g}" for side in (neg, pos))
            msg = f"{where} sums to {sums} for the two classes; their ratio leaves float64: scale the weights"
            raise WeightError(msg)


@dataclass(frozen=True)
class Scores(_OfScores):
    """Metrics of a score column."""

    name = "score"
    own_blocks = True

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Exact counts of every score column, or its histogram."""
        kind = HistogramSpec if request.approx else ScoreSpec
        asked = request.selection.of(self.name) or not request.sampling
        for column in request.scores if not request.mean_over else ():
            selection = request.selected(column)
            behind = selection.behind(self.name) if request.resampling.level is not None else ()
            if asked or behind:
                policies = request.weight is not None, request.policy("nan", column)
                spec = kind(column, types.score(column), *policies)
                for metric in selection.of(self.name):
                    if isinstance(metric, OperatingPoint) and metric.kind == "threshold":
                        check_threshold(metric.at, spec.type, column)
                yield MetricRequest(self, column, spec, selection.of(self.name), behind=behind)

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """Counts by block on a coarse grid, or the exact state split by block."""
        facts = wanted.spec.column, wanted.spec.type, wanted.spec.weighted, wanted.spec.nan
        key = resampling.blocks
        if resampling.bins is None:
            return GroupedSpec(ScoreSpec(*facts), key)
        return BlockSpec(*facts, key.unit, key.count, resampling.bins)

    def certificates(
        self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> tuple[Metric, ...]:
        """Standard errors with each row as a unit; they show whether the grid is fine enough unless that is certain."""
        single = resampling.unit is None and not wanted.spec.weighted
        grid = None if resampling.bins is None or blocks is None else self._grid(state, blocks, resampling)
        return certificates(wanted.computed, coarse=grid is not None and not grid.sure, single=single)

    @staticmethod
    def _grid(state: Any, blocks: BlockCounts, resampling: Resampling) -> BlockReplicates:
        exact = state.spec.kind == ScoreSpec.kind
        return BlockReplicates(blocks, resampling.named_unit, resampling.blocks.count, exact)

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block."""
        if resampling.bins is not None:
            return self._grid(state, blocks, resampling)
        return SplitState(blocks, resampling.named_unit, resampling.blocks.count)


@dataclass(frozen=True)
class Groups(_OfScores):
    """Means of the metrics of a score column over groups."""

    name = "groups"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The scores of every score column, by group."""
        over = request.mean_over
        if over:
            for column in request.scores:
                selection = request.selected(column)
                defaults = replace(selection, patterns=(), own=(), truncate=(), at=()).of("score") * selection.usual
                metrics = group_means(selection.of("score"), over, request.options["mean_weight"], defaults)
                policy = request.policy("nan", column)
                spec = GroupScoreSpec(column, types.score(column), over, types.id(over), policy)
                yield MetricRequest(self, column, spec, metrics)

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The scores of the groups, with the sums of each block of groups."""
        if not wanted.metrics:
            return state
        found = engine.finalize([(state, [SumsByBlock(mean) for mean in wanted.metrics])])[0]
        sums = {metric.name: each for metric, each in zip(wanted.metrics, found, strict=True)}
        return SweptGroups(**vars(state), block_sums=sums)

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The means without each block of groups, which are the sampling units; the state itself holds their ids."""
        return WithoutGroups(state.block_sums, wanted.spec.groups)

    def replicates(self, engine: Engine, jobs: Sequence[Callable[[], Job]]) -> list[list[Scalar]]:
        """The results without each block, from the sums over the remaining groups."""
        return [state.scalars(metrics) for state, metrics in (make() for make in jobs)]


@dataclass(frozen=True)
class Samples(_OfScores):
    """Metrics of a sampled score column."""

    name = "sample"
    replicated_by: ClassVar[str] = "score"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sample of every score column whose gain area is requested."""
        if request.sampling:
            for column in request.scores:
                policy, weighted = request.policy("nan", column), request.weight is not None
                spec = request.sampling.spec(column, types.score(column), policy, weighted=weighted)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The reason why there are none of a sample, for metrics that estimate none of all rows (`of_all_rows`)."""
        return "a sample has no replicates, and the metric names no metric of all rows that has (of_all_rows)"

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """No check: the metrics normalise weights by their sum first."""


@dataclass(frozen=True)
class Sketches(Sharded):
    """Quantiles of a column of numbers."""

    name = "sketch"
    column = "sketch"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sketch of every column."""
        for column in request.sketches:
            spec = QuantileSpec(column, types.score(column))
            yield MetricRequest(self, column, spec, request.selection.of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows with a number, labelled or not."""
        return Counted(state.totals().rows, None, ((f"NaN or null in the sketch of {wanted.of}", int(state.nan)),))


_ALL: tuple[Family, ...] = (Scores(), Groups(), Clusters(), Samples(), Contingency(), Sketches())
FAMILIES = {family.name: family for family in _ALL}


def planned(request: Request, found: Scan) -> list[MetricRequest]:
    """The states to build for a request, with the metrics of each, family by family.

    Raises
    ------
    OptionError
        If the data do not allow what is requested.
    SchemaError
        If a column has a type that cannot be a score or an id; the message names a file that has it.
    """
    if request.clusters and request.scope == "partition" and not all(piece.partition for piece in found.pieces):
        msg = "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
        raise OptionError(msg)
    if request.sampling:
        request.sampling.check(found)
    types = KeyTypes(found)
    return [wanted for family in FAMILIES.values() for wanted in family.requests(request, types)]


def finalize(engine: Engine, answered: Sequence[tuple[MetricRequest, Any]]) -> Iterator[Scalar]:
    """The results of all states, in the order given, with their columns, rows and positives."""
    for _, group in groupby(answered, key=lambda pair: pair[0].family.sharded):  # all shards of a group in one graph
        pairs = list(group)
        rows = pairs[0][0].family.finalize(engine, [(state, wanted.metrics) for wanted, state in pairs])
        for (wanted, state), row in zip(pairs, rows, strict=True):
            counted = wanted.family.counted(wanted, state)
            for value in row:
                yield replace(value, of=wanted.of, rows=counted.rows, positives=counted.positives)
