"""Sharing: clusters against labels and against classes from one state, if both have the same rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pyarrow as pa

from streameval.metrics.contingency.assignment import summarize_rounds
from streameval.metrics.protocol import user_defined
from streameval.states.clusters.sizes import SizeState
from streameval.states.contingency.counts import ContingencySpec, SummarisedCounts
from streameval.states.contingency.rounds import ByCluster
from streameval.states.labelled import LabelledSpec, size_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.request import Request
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.contingency.watch import Watcher

    W = TypeVar("W", bound=Watcher)


class AllRows(NamedTuple):
    """The state of all rows for a spec.

    Attributes
    ----------
    state : what the evaluation keeps, from which curves and attributions are computed later
    source : what the values are computed from: the state, or the result of a sweep over its rows
    """

    state: Any
    source: Any


def shared(wanted: Sequence[MetricRequest], request: Request, schema: pa.Schema) -> list[MetricRequest]:
    """The requests, with labels in the tables from which the clusters of another request follow.

    That needs a label and both ids in every row. Intervals and slices read clusters in other ways, the best matching
    reads cells with the ids of their clusters, and a user's metric, or one that says what it reads, needs more than
    sizes. Clusters in a dictionary are counted by entry, which costs less than carrying labels.
    """
    if request.resampling.level is not None or request.slicing.keys or request.label.nulls != "error":
        return list(wanted)
    plain = (w for w in wanted if not pa.types.is_dictionary(schema.field(w.of).type))
    specs = {w.spec for w in plain if not any(user_defined(metric) or metric.reads for metric in w.metrics)}
    return [_labelled(w, specs) if w.spec in specs else w for w in wanted]


def _labelled(wanted: MetricRequest, specs: Collection[Any]) -> MetricRequest:
    """The request with labels in its table, if the clusters of its rows are among the specs."""
    spec = wanted.spec
    if not isinstance(spec, ContingencySpec) or spec.nulls != "error" or wanted.family.matched(wanted.metrics):
        return wanted
    made = LabelledSpec.of(spec)
    return wanted.remade(made, wanted.metrics) if made.derived in specs else wanted


def from_one_sweep(engine: Engine, states: Mapping[Any, Any]) -> dict[Any, AllRows]:
    """The states of all rows, by spec; the summary of a table with labels gives the clusters of its rows as well."""
    found = {spec: AllRows(state, state) for spec, state in states.items()}
    labelled = [spec for spec in states if isinstance(spec, LabelledSpec)]
    for spec in labelled:
        summary = summarize_table(engine, states[spec])
        sizes = size_table(summary)
        found[spec] = AllRows(states[spec], SummarisedCounts(states[spec], summary))
        found[spec.derived] = AllRows(replace(states[spec.derived], table=sizes), SizeState(sizes))
    return found


def summarize_table(engine: Engine, table: ContingencyCounts, assignment_cells: int | None = None) -> Summary:
    """Summarise a contingency table.

    If `assignment_cells` is given, the summary has the optimal assignment of clusters to classes, exact for connected
    components of at most that number of cells and bounded for larger ones.
    """
    first = ByCluster(table, matched=assignment_cells is not None)
    return engine.rounds(first, partial(summarize_rounds, assignment_cells=assignment_cells))[0]


def watch_table(
    engine: Engine, table: ContingencyCounts, watch: Callable[[], W], assignment_cells: int | None = None
) -> tuple[Summary, W]:
    """As `summarize_table`; also returns the watcher of all clusters and classes; `watch` creates its parts."""
    first = ByCluster(table, watch, matched=assignment_cells is not None)
    summary, watcher = engine.rounds(first, partial(summarize_rounds, assignment_cells=assignment_cells))
    return summary, cast("W", watcher)
