"""Families: for each kind of input, which states its metrics need, what rows they speak of, how they are finalized.

==========  ============================================  ========================================
family      input                                         state
==========  ============================================  ========================================
`score`     a score column                                exact counts, or a histogram (`approx`)
`cluster`   a cluster column                              sizes and positives of clusters
`groups`    a score column and one of groups              scores by group
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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streameval.errors import OptionError, SchemaError, WeightError
from streameval.metrics.finalize import computed, in_rounds
from streameval.metrics.resampled_clusters import SweepClusters, SweptClusters, SweptTable, WithoutClasses, WithoutRows
from streameval.metrics.resampling import SplitState
from streameval.metrics.scores.group_means import group_means
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.results import Scalar
from streameval.states.clusters.counts import ClusterSpec, id_type
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped import GroupedSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.missing import halved
from streameval.states.scores.quantile_sketch import QuantileSpec
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine
    from streameval.engine.protocol import Job
    from streameval.evaluation.request import Request
    from streameval.evaluation.resampling import Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.scan import Scan
    from streameval.states.clusters.size_blocks import SizeChanges

__all__ = ["FAMILIES", "Counted", "Family", "MetricRequest", "finalize", "planned", "scalar"]

NO_BLOCKS = "its states keep no blocks to leave out"
_UNLABELLED = "the positives of rows without a label are an estimate of their own"
_LIGHTEST = 1e-300  # share of all weight that a class may have: below it, products leave float64


@dataclass(frozen=True)
class MetricRequest:
    """A state to build, and the metrics to compute of it.

    Attributes
    ----------
    group : its family's name
    of : the column
    spec : the state's spec
    metrics : the metrics
    """

    group: str
    of: str
    spec: Any
    metrics: tuple[Any, ...]

    @property
    def family(self) -> Family:
        """Its family."""
        return FAMILIES[self.group]

    def blocks(self, resampling: Resampling) -> MetricRequest | None:
        """The state to build beside this one for sampling intervals, such as ``score.blocks``; None where none is."""
        spec = self.family.blocks(self, resampling) if resampling.level is not None and self.metrics else None
        return None if spec is None else MetricRequest(f"{self.group}.blocks", self.of, spec, ())

    def remade(self, spec: Any, metrics: tuple[Any, ...]) -> MetricRequest:
        """The same with another state."""
        return replace(self, spec=spec, metrics=metrics)


class Counted(NamedTuple):
    """Rows that metrics were computed from, the positives among them if labels matter, and rows left out by reason."""

    rows: int
    positives: int | None
    dropped: tuple[tuple[str, int], ...] = ()


class Family(Protocol):
    """One kind of input."""

    name: str
    column: str  # the option that names its columns
    sharded: bool  # whether its states are finalized shard by shard
    own_blocks: bool  # whether intervals of its values need a state of blocks, which stores keep then

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The states that a request needs, with their metrics."""

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """What rows the metrics of a state speak of."""

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Raise `DataError` if a state cannot be evaluated; `where` names its weights."""

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """Whether the metrics need the best matching of a table."""

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """What takes the state's place where it is to have replicates: often one sweep gives these and its values."""

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """The results of several states."""

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """The spec of a state to fold for sampling intervals; None where there is none to fold."""

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """What gives the replicates of intervals, from a state and that of `blocks`; or why there are none."""

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """What gives the replicates of differences between columns; None if it is what gives those of intervals."""

    def replicates(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """The results of states that `Resampled.without` gave, which are in this process."""


@dataclass(frozen=True)
class KeyTypes:
    """How columns become keys: the types that hold all of their values."""

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
            msg = f"{self.found.pieces[0].name}: {error}"
            raise SchemaError(msg) from None


def _totals(state: Any) -> tuple[int, int]:
    total = state.totals()
    return total.rows, total.pos


class _Sharded:
    """States that metrics read part by part."""

    sharded = True
    own_blocks = False

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Nothing to refuse."""

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """There is no table."""
        return False

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """The state itself."""
        return state

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """All shards of all states side by side, once more for metrics that take several steps."""
        values = in_rounds(engine.finalize, jobs)
        return [
            [scalar(metric, value) for metric, value in zip(metrics, row, strict=True)]
            for (_, metrics), row in zip(jobs, values, strict=True)
        ]

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """None."""
        return None

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """None."""
        return NO_BLOCKS

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """Intervals and differences have the same replicates."""
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Replicates side by side."""
        return engine.each(_computed, jobs, "replicates")


def _computed(job: Job) -> list[Scalar]:
    state, metrics = job
    return [scalar(metric, value) for metric, value in zip(metrics, computed(state, metrics), strict=True)]


def scalar(metric: Metric, value: Any) -> Scalar:
    """A result; a user's own metric may give a plain number."""
    return value if isinstance(value, Scalar) else Scalar.certain(metric.name, float(value))


class _Scores(_Sharded):
    """Metrics of a score column."""

    name = "score"
    column = "score"
    own_blocks = True

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Exact counts of every score, or a histogram."""
        metrics = request.selection.of(self.name)
        if not request.mean_over and (metrics or not request.sampling):
            kind = HistogramSpec if request.approx else ScoreSpec
            for column in request.scores:
                policies = request.weight is not None, request.policy("nan", column)
                spec = kind(column, types.score(column), *policies)
                yield MetricRequest(self.name, column, spec, request.selected(column).of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows whose score is a number; with NaN scores where these count as halves."""
        rows, positives = _totals(state)
        nan = state.nan_rows.tolist()
        if wanted.spec.nan == "half":
            return Counted(rows + sum(nan), positives + nan[1])
        return Counted(rows, positives, ((f"NaN or null score {wanted.of}", sum(nan)),))

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """Counts by block on a coarse grid, or the exact state split by block."""
        facts = wanted.spec.column, wanted.spec.type, wanted.spec.weighted, wanted.spec.nan
        key = resampling.blocks
        if resampling.bins is None:
            return GroupedSpec(ScoreSpec(*facts), key)
        return BlockSpec(*facts, key.unit, key.count, resampling.bins)

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block."""
        if resampling.bins is not None:
            return BlockReplicates(blocks, resampling.named_unit, resampling.blocks.count)
        return SplitState(blocks, resampling.named_unit, resampling.blocks.count)

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Refuse weights of two classes whose ratio leaves float64."""
        total, missing = state.totals(), halved(state)
        neg, pos = total.neg_weight + missing.neg_weight, total.pos_weight + missing.pos_weight
        if neg and pos and min(neg, pos) < _LIGHTEST * max(neg, pos):
            sums = " and ".join(f"{math.ldexp(side, total.unit):g}" for side in (neg, pos))
            msg = f"{where} sums to {sums} for the two classes; their ratio leaves float64: scale the weights"
            raise WeightError(msg)


class _Groups(_Scores):
    """Means over groups of the metrics of a score column."""

    name = "groups"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The scores of every group."""
        over = request.mean_over
        if over:
            for column in request.scores:
                selection = request.selected(column)
                defaults = replace(selection, patterns=(), own=(), truncate=(), at=()).of("score") * selection.usual
                metrics = group_means(selection.of("score"), over, request.options["mean_weight"], defaults)
                policy = request.policy("nan", column)
                spec = GroupScoreSpec(column, types.score(column), over, types.id(over), policy)
                yield MetricRequest(self.name, column, spec, metrics)


class _Samples(_Scores):
    """Metrics of a sampled score column."""

    name = "sample"
    column = "score"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sample of every score, where its area is asked for."""
        if request.sampling:
            for column in request.scores:
                policy, weighted = request.policy("nan", column), request.weight is not None
                spec = request.sampling.spec(column, types.score(column), policy, weighted=weighted)
                yield MetricRequest(self.name, column, spec, request.selected(column).of(self.name))

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """None."""
        return None

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """None: the rows that were drawn decide the error, which the values have."""
        return "the rows that were drawn decide its error, see bound and stderr; agc has an interval"

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Nothing to refuse: its metrics divide weights by their sum first."""


class _Clusters(_Sharded):
    """Metrics of a cluster column."""

    name = "cluster"
    column = "cluster"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """Sizes of the clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if metrics or not request.selection.of("classes"):
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column), request.label.nulls == "size"
                spec = ClusterSpec(column, types.id(column), *policies)
                yield MetricRequest(self.name, column, spec, request.selected(column).of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows in clusters."""
        return Counted(*_totals(state), ((f"null cluster {wanted.of}", int(state.dropped_rows.sum())),))

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """Its size table, with and without each block of clusters."""
        if wanted.spec.unlabelled or not wanted.metrics:
            return state
        changes = _changes(engine, state)
        return SweptClusters(changes.table, state.dropped_rows, changes)

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """Clusters by block of the unit, which other clusterings have as well."""
        paired = resampling.unit is not None and not wanted.spec.unlabelled
        return GroupedSpec(wanted.spec, resampling.blocks) if paired else None

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The state without each block of clusters: these are the units."""
        if wanted.spec.unlabelled:
            return _UNLABELLED
        return WithoutRows(state.changes, wanted.of, int(state.table.clusters.sum()))

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """The state without each block of a unit that both clusterings have."""
        if wanted.spec.unlabelled:
            return _UNLABELLED
        if blocks is None:
            return "clusterings have no units in common: name a column of units (--unit)"
        return WithoutRows(_changes(engine, blocks), resampling.named_unit)


def _changes(engine: Engine, state: Any) -> SizeChanges:
    """The changes of a state with clusters, wherever its rows are."""
    found: SizeChanges = engine.finalize([(state, [SweepClusters()])])[0][0]
    return found


class _Contingency:
    """Metrics of clusters against classes."""

    name = "classes"
    column = "cluster"
    sharded = False
    own_blocks = False

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """The table of classes and clusters of every cluster column."""
        metrics = request.selection.of(self.name)
        if request.classes is not None and metrics:
            kind = types.id(request.classes)
            for column in request.clusters:
                policies = request.scope, request.policy("nulls", column)
                spec = ContingencySpec(request.classes, column, kind, types.id(column), *policies)
                yield MetricRequest(self.name, column, spec, metrics)

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows in the table."""
        no_cluster, no_class = state.dropped_rows.tolist()
        dropped = (
            (f"null cluster {wanted.of}", no_cluster),
            (f"null class {wanted.spec.classes} (with {wanted.of})", no_class),
        )
        return Counted(*_totals(state), dropped)

    def check(self, wanted: MetricRequest, state: Any, where: str) -> None:
        """Nothing to refuse."""

    def matched(self, metrics: Sequence[Metric]) -> bool:
        """Whether one of them is an assignment score."""
        return _assignment_cells(metrics) is not None

    def swept(self, engine: Engine, wanted: MetricRequest, state: Any) -> Any:
        """Its summary, with and without each block of classes."""
        summary, (first, *others) = engine.watched(state, ClassBlocks)
        replicates, limit = first.merge(others).replicates(summary), _assignment_cells(wanted.metrics)
        engine.budget.release_spares()
        return SweptTable(state, replicates, summary if limit is None else engine.summary(state, limit))

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """One table after the other: two passes summarise it, and the summary is the one part that metrics see."""
        results = []
        for state, metrics in jobs:
            known = isinstance(state, SweptTable)
            summary = state.summary if known else engine.summary(state, _assignment_cells(metrics))
            results.append([scalar(metric, metric.combine([metric.partial(summary)], state)) for metric in metrics])
            engine.budget.release_spares()
        return results

    def blocks(self, wanted: MetricRequest, resampling: Resampling) -> Any:
        """None: classes are in the state itself."""
        return None

    def resampled(self, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling) -> Resampled | str:
        """The table without each block of classes: these are the units."""
        return WithoutClasses(state.replicates, wanted.spec.classes)

    def paired(
        self, engine: Engine, wanted: MetricRequest, state: Any, blocks: Any, resampling: Resampling
    ) -> Resampled | str | None:
        """Classes are units of all clusterings, but for null classes, of which the state knows no origin."""
        if state.replicates.classless:
            return f"rows with a null class {wanted.spec.classes} have no block: leave them out (--nulls drop)"
        return None

    def replicates(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Each state is the one part that metrics see."""
        return [[scalar(metric, metric.combine([metric.partial(s)], s)) for metric in several] for s, several in jobs]


class _Sketches(_Sharded):
    """Quantiles of a column of numbers."""

    name = "sketch"
    column = "sketch"

    def requests(self, request: Request, types: KeyTypes) -> Iterator[MetricRequest]:
        """A sketch of every column."""
        for column in request.sketches:
            spec = QuantileSpec(column, types.score(column))
            yield MetricRequest(self.name, column, spec, request.selection.of(self.name))

    def counted(self, wanted: MetricRequest, state: Any) -> Counted:
        """All rows with a number, whatever their label."""
        return Counted(state.totals().rows, None, ((f"NaN or null in the sketch of {wanted.of}", int(state.nan)),))


def _assignment_cells(metrics: Sequence[Metric]) -> int | None:
    """The limit to the best matching that metrics ask for; None where none needs it."""
    limits = (getattr(metric, "assignment_cells", None) for metric in metrics)
    return next((limit for limit in limits if limit is not None), None)


_ALL: tuple[Family, ...] = (_Scores(), _Groups(), _Clusters(), _Samples(), _Contingency(), _Sketches())
FAMILIES = {family.name: family for family in _ALL}


def planned(request: Request, found: Scan) -> list[MetricRequest]:
    """The states to build for a request, with the metrics of each, family by family.

    Raises
    ------
    OptionError
        If the data do not allow what is asked.
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
    """Results of all states, in the order given, each with its column and its rows."""
    for _, group in groupby(answered, key=lambda pair: pair[0].family.sharded):  # whose shards share one graph
        pairs = list(group)
        rows = pairs[0][0].family.finalize(engine, [(state, wanted.metrics) for wanted, state in pairs])
        for (wanted, state), row in zip(pairs, rows, strict=True):
            counted = wanted.family.counted(wanted, state)
            for value in row:
                yield replace(value, of=wanted.of, rows=counted.rows, positives=counted.positives)
