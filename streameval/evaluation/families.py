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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from streameval.errors import NullError, OptionError, SchemaError
from streameval.evaluation.labels.columns import is_late
from streameval.evaluation.labels.design import STRATA, LabelDesign, probabilities_of, ratios_of, sampled_classes
from streameval.evaluation.protocol import (
    ClassReplication,
    ClusterReplication,
    Counted,
    Family,
    GroupReplication,
    LabelReplication,
    MetricRequest,
    Replication,
    SampleReplication,
    ScoreReplication,
    assignment_cells,
    watch_table,
)
from streameval.metrics.contingency.class_sample import OF_CLUSTERS, ClassSample, recorded_units, sample_classes
from streameval.metrics.finalize import in_rounds, scalars
from streameval.metrics.scores.group_means import group_means
from streameval.metrics.scores.label_sample import LabelSample
from streameval.metrics.scores.label_strata import DrawnUnits, UnitSizes, sample_labels
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.metrics.scores.scoring_rules import BrierScore
from streameval.states.cluster_counts import ClusterCounts, ClusterSpec
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec, SummarisedCounts
from streameval.states.grouped.keys import By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.sweeps import tables
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.ids import id_type
from streameval.states.scores.counts import ScoreCounts, ScoreSpec
from streameval.states.scores.groups import GroupScores, GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.quantile_sketch import QuantileSketch, QuantileSpec
from streameval.states.scores.types import check_threshold, halved, score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.engine import Engine, Job
    from streameval.evaluation.request import Request
    from streameval.results import Scalar
    from streameval.scan import Scan
    from streameval.states.grouped.builder import LabelledGroups
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import Group
    from streameval.states.protocol import Source, State, StoredSpec
    from streameval.states.scores.digests import SampledDigests
    from streameval.states.scores.draws import SampledBins

    ScoreState = ScoreCounts | ScoreHistogram | GroupScores | SampledDigests | SampledBins


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
    return [scalars(metrics, row) for (_, metrics), row in zip(jobs, values, strict=True)]


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
