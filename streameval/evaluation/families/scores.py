"""Families of score columns: all rows, groups of rows, and samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from streameval.errors import WeightError
from streameval.evaluation.families.protocol import Counted, MetricRequest
from streameval.evaluation.families.sharded import Sharded, totals
from streameval.metrics.resampling import certificates
from streameval.metrics.scores.group_means import group_means
from streameval.metrics.scores.sampling.block_replicates import BlockReplicates
from streameval.metrics.scores.sampling.group_blocks import SumsByBlock, SweptGroups, WithoutGroups
from streameval.metrics.scores.sampling.split import SplitState
from streameval.metrics.scores.thresholds.operating_points import OperatingPoint
from streameval.states.grouped.state import GroupedSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.groups import GroupScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.states.scores.missing import halved
from streameval.states.scores.types import check_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.engine import Engine
    from streameval.engine.protocol import Job
    from streameval.evaluation.families.protocol import KeyTypes
    from streameval.evaluation.request import Request
    from streameval.evaluation.resampling import Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampled import Resampled
    from streameval.results import Scalar
    from streameval.states.scores.blocks import BlockCounts

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
