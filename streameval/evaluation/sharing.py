"""Sharing: clusters against labels and against classes from one state, if both have the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.states.clusters.sizes import SizeState
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.labelled import LabelledSpec, size_table

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.request import Request

    Answered = Sequence[tuple[MetricRequest, Any]]

__all__ = ["shared", "summarised"]


def shared(wanted: Sequence[MetricRequest], request: Request, schema: pa.Schema) -> list[MetricRequest]:
    """The requests, with labels in the tables from which the clusters of another request follow.

    That needs a label and both ids in every row. Intervals and slices read clusters in other ways, the best matching
    reads cells with the ids of their clusters, and a user's metric, or one that says what it reads, needs more than
    sizes. Clusters in a dictionary are counted by entry, which costs less than carrying labels.
    """
    if request.resampling.level is not None or request.slicing.keys or request.label.nulls != "error":
        return list(wanted)
    plain = (w for w in wanted if not pa.types.is_dictionary(schema.field(w.of).type))
    specs = {w.spec for w in plain if not any(metric.user_defined or metric.reads for metric in w.metrics)}
    return [_labelled(w, specs) if w.spec in specs else w for w in wanted]


def _labelled(wanted: MetricRequest, specs: Collection[Any]) -> MetricRequest:
    """The request with labels in its table, if the clusters of its rows are among the specs."""
    spec = wanted.spec
    if not isinstance(spec, ContingencySpec) or spec.nulls != "error" or wanted.family.matched(wanted.metrics):
        return wanted
    made = LabelledSpec.of(spec)
    return wanted.remade(made, wanted.metrics) if made.derived in specs else wanted


def summarised(engine: Engine, answered: Answered) -> tuple[Answered, Answered]:
    """The states, and what their values are computed from: of states that share rows, the results of one sweep."""
    found = {w.spec: engine.summary(state, None) for w, state in answered if isinstance(w.spec, LabelledSpec)}
    if not found:
        return answered, answered
    tables = {spec.derived: size_table(summary) for spec, summary in found.items()}
    engine.budget.release_spares()
    kept = [(w, replace(state, table=tables[w.spec]) if w.spec in tables else state) for w, state in answered]
    made: dict[Any, Any] = {spec: SizeState(table) for spec, table in tables.items()}
    made |= {w.spec: SummarisedCounts(state, found[w.spec]) for w, state in answered if w.spec in found}
    return kept, [(w, made.get(w.spec, state)) for w, state in answered]
