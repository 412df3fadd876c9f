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

from streameval.errors import OptionError
from streameval.evaluation.contingency import assignment_cells, summarize_table
from streameval.evaluation.family import (
    ClassReplication,
    ClusterReplication,
    Counted,
    Family,
    GroupReplication,
    KeyTypes,
    MetricRequest,
    SampleReplication,
    ScoreReplication,
    scalar,
    totals,
)
from streameval.metrics.scores.group_means import group_means
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.sliced import CutRows
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.small_tables import tables
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.quantile_sketch import QuantileSpec
from streameval.states.scores.types import check_threshold, halved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request
    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.scan import Scan
    from streameval.states.protocol import State


@dataclass(frozen=True)
class Clusters(Family):
    """Metrics of a cluster column."""

    name = "cluster"
    column = "cluster"
    sweep_metrics: ClassVar[tuple[Metric, ...]] = (CutRows(),)
    replication = ClusterReplication()

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Sizes of the clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if metrics or not request.selection.of("classes"):
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column), request.label.nulls == "size"
                spec = ClusterSpec(column, types.id(column), *policies)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))

    def counted(self, request: MetricRequest, state: Any) -> Counted:
        """All rows in clusters."""
        return Counted(*totals(state), ((f"null cluster {request.of}", int(state.dropped_rows.sum())),))

    def size_bias_reason(self, value: Scalar) -> str:
        """A slice that cuts clusters has smaller clusters, even if it is random."""
        return "the slice cuts clusters (cut_share), which alone changes their sizes" if value.cut_share else ""


@dataclass(frozen=True)
class Contingency(Family):
    """Metrics of clusters against classes."""

    name = "classes"
    column = "cluster"
    sharded = False
    replication = ClassReplication()

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The table of classes and clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if request.classes is not None and metrics:
            kind = types.id(request.classes)
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column)
                spec = ContingencySpec(request.classes, column, kind, types.id(column), *policies)
                yield MetricRequest(self, column, spec, metrics)

    def counted(self, request: MetricRequest, state: Any) -> Counted:
        """All rows in the table."""
        no_cluster, no_class = state.dropped_rows.tolist()
        dropped = (
            (f"null cluster {request.of}", no_cluster),
            (f"null class {request.spec.classes} (with {request.of})", no_class),
        )
        return Counted(*totals(state), dropped)

    def slice_states(self, engine: Engine, request: MetricRequest, grouped: Any, groups: Sequence[Any]) -> list[Any]:
        """The tables of some slices; small ones come summarised."""
        if not request.metrics or assignment_cells(request.metrics) is not None:
            return super().slice_states(engine, request, grouped, groups)
        states: list[State] = tables(grouped, groups, engine.each, engine.budget)
        return states

    def size_bias_reason(self, value: Scalar) -> str:
        """Such values do not converge as classes are added."""
        return "values against classes depend on how many classes and clusters there are, fewer in a slice"

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Finalize one table after the other: two passes summarise it, and metrics read only the summary."""
        results = []
        for state, metrics in jobs:
            cells = assignment_cells(metrics)
            summary = state.summarised(lambda table, cells=cells: summarize_table(engine, table, cells))
            results.append([scalar(metric, metric.combine([metric.partial(summary)], state)) for metric in metrics])
        return results


MIN_WEIGHT_RATIO = 1e-300  # least ratio of the weights of the two classes; below it, products leave float64


@dataclass(frozen=True)
class _OfScores(Family):
    """Common base of the families of score columns."""

    column = "score"

    def counted(self, request: MetricRequest, state: Any) -> Counted:
        """All rows whose score is a number; with ``nan="half"`` also rows with a NaN score."""
        rows, positives = totals(state)
        nan = state.nan_rows.tolist()
        if request.spec.nan == "half":
            return Counted(rows + sum(nan), positives + nan[1])
        return Counted(rows, positives, ((f"NaN or null score {request.of}", sum(nan)),))


@dataclass(frozen=True)
class Scores(_OfScores):
    """Metrics of a score column."""

    name = "score"
    replication = ScoreReplication()

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Exact counts of every score column, or its histogram."""
        kind = HistogramSpec if request.approx else ScoreSpec
        asked = request.selection.of(self.name) or not request.sampling
        for column in request.scores if not request.mean_over else ():
            selection = request.selected(column)
            sources = selection.behind(self.name) if request.resampling.level is not None else ()
            if asked or sources:
                policies = request.weight is not None, request.policy("nan", column)
                spec = kind(column, types.score(column), *policies)
                for metric in selection.of(self.name):
                    if isinstance(metric, OperatingPoint) and metric.kind == "threshold":
                        check_threshold(metric.at, spec.type, column)
                yield MetricRequest(self, column, spec, selection.of(self.name), interval_sources=sources)


@dataclass(frozen=True)
class Groups(_OfScores):
    """Means of the metrics of a score column over groups."""

    name = "groups"
    replication = GroupReplication()

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


@dataclass(frozen=True)
class Samples(_OfScores):
    """Metrics of a sampled score column."""

    name = "sample"
    replication = SampleReplication()

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sample of every score column whose gain area is requested."""
        if request.sampling:
            for column in request.scores:
                policy, weighted = request.policy("nan", column), request.weight is not None
                spec = request.sampling.spec(column, types.score(column), policy, weighted=weighted)
                yield MetricRequest(self, column, spec, request.selected(column).of(self.name))


@dataclass(frozen=True)
class Sketches(Family):
    """Quantiles of a column of numbers."""

    name = "sketch"
    column = "sketch"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sketch of every column."""
        for column in request.sketches:
            spec = QuantileSpec(column, types.score(column))
            yield MetricRequest(self, column, spec, request.selection.of(self.name))

    def counted(self, request: MetricRequest, state: Any) -> Counted:
        """All rows with a number, labelled or not."""
        return Counted(state.totals().rows, None, ((f"NaN or null in the sketch of {request.of}", int(state.nan)),))


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
        raise OptionError(
            "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
        )
    if request.sampling:
        request.sampling.check(found)
    types = KeyTypes(found)
    return [one for family in FAMILIES.values() for one in family.requests(request, types)]


def finalize(engine: Engine, answered: Sequence[tuple[MetricRequest, State]]) -> Iterator[Scalar]:
    """The results of all states, in the order given, with their columns, rows and positives."""
    for _, group in groupby(answered, key=lambda pair: pair[0].family.sharded):  # all shards of a group in one graph
        pairs = list(group)
        rows = pairs[0][0].family.finalize(engine, [(state, request.metrics) for request, state in pairs])
        for (request, state), row in zip(pairs, rows, strict=True):
            counted = request.family.counted(request, state)
            for value in row:
                yield replace(value, of=request.of, rows=counted.rows, positives=counted.positives)


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
