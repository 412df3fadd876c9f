"""The family of cluster columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from streameval.evaluation.families.protocol import Counted, MetricRequest
from streameval.evaluation.families.sharded import Sharded, totals
from streameval.metrics.resampled_clusters import SweepClusters, SweptClusters, WithoutRows
from streameval.metrics.sliced import CutRows
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.state import GroupedSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.engine import Engine
    from streameval.evaluation.families.protocol import KeyTypes
    from streameval.evaluation.request import Request
    from streameval.evaluation.resampling import Resampling
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampled import Resampled
    from streameval.results import Scalar
    from streameval.states.clusters.size_blocks import SizeChanges

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
