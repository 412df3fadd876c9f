"""The family of cluster columns against a class column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.evaluation.families.protocol import Counted, MetricRequest
from streameval.evaluation.families.sharded import Sharded, scalar, totals
from streameval.metrics.resampled_clusters import SweptTable, WithoutClasses
from streameval.states.contingency.class_blocks import ClassBlocks
from streameval.states.contingency.counts import ContingencySpec

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
        summary, (first, *others) = engine.watched(state, ClassBlocks)
        replicates, limit = first.merge(others).replicates(summary), _assignment_cells(wanted.metrics)
        engine.budget.release_spares()
        return SweptTable(state, summary if limit is None else engine.summary(state, limit), replicates)

    def several(self, engine: Engine, wanted: MetricRequest, grouped: Any, groups: Sequence[Any]) -> list[Any]:
        """The tables of some slices; small ones come summarised."""
        if not wanted.metrics or self.matched(wanted.metrics):
            return super().several(engine, wanted, grouped, groups)
        found: list[Any] = grouped.tables(groups, engine.each, engine.budget)
        return found

    def unlike(self, value: Scalar) -> str:
        """Such values do not converge as classes are added."""
        return "values against classes depend on how many classes and clusters there are, fewer in a slice"

    def finalize(self, engine: Engine, jobs: Sequence[Job]) -> list[list[Scalar]]:
        """Finalize one table after the other: two passes summarise it, and metrics read only the summary."""
        results = []
        for state, metrics in jobs:
            summary = state.summarised(partial(engine.summary, assignment_cells=_assignment_cells(metrics)))
            results.append([scalar(metric, metric.combine([metric.partial(summary)], state)) for metric in metrics])
            engine.budget.release_spares()
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
    limits = (metric.assignment_cells for metric in metrics)
    return next((limit for limit in limits if limit is not None), None)
