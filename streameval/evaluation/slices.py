"""Slices: the results of every slice, each finalized as if there were no other rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from streameval.evaluation.families import finalize, finalize_states, weight_problem
from streameval.evaluation.protocol import MetricRequest
from streameval.metrics.finalize import CutRows, Sliced, scalars
from streameval.metrics.protocol import Metric
from streameval.results import Scalar, same_slice
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.grouped.keys import By, Group, rank
from streameval.states.grouped.sweeps import ClusterSweep, sweep_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.slicing import Slicing
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.sweeps import SweptGroup
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.protocol import Source, State, StoredSpec

    Named = dict[str, object]  # the values of a slice by column

_CHUNK = 64  # slices that are finalized together


@dataclass(frozen=True, eq=False)
class SlicedStates:
    """The states of all slices of a run.

    Attributes
    ----------
    engine : finalizes values and replicates
    slicing : how the rows are sliced
    states : what was folded, by spec
    requests : the states and their metrics
    """

    engine: Engine
    slicing: Slicing
    states: Mapping[StoredSpec, State]
    requests: Sequence[MetricRequest]

    @cached_property
    def _named(self) -> dict[tuple[By, Group], Named]:
        return {}

    def named(self, key: By, group: Group) -> Named:
        """The values of a slice by column, one object for all of its results."""
        return self._named.setdefault((key, group), dict(zip(key.columns, group, strict=True)))

    def grouped(self, request: MetricRequest, key: By) -> Grouped:
        """The state of a request by the groups of a slicing."""
        return self.slicing.grouped(self.states, request.spec, key)

    def state(self, family: str, of: str, slice: Mapping[str, object]) -> State | None:
        """The state of a column in a slice; None if there is no such slice."""
        request = next(w for w in self.requests if (w.group, w.of) == (family, of))
        for key in self.slicing.keys:
            grouped = self.grouped(request, key)
            for group in grouped.groups() if key.columns == tuple(slice) else ():
                if same_slice(dict(zip(key.columns, group, strict=True)), slice):
                    return grouped.several([group], self.engine.budget)[0]
        return None


_SliceResult = tuple[int, list[Scalar]]  # rows of a slice, those left out included, and its results with its name

Swept = dict[MetricRequest, dict[Any, dict[Any, _SliceResult]]]
"""What one sweep finalized, by slicing and group; all rows are slicing and group None."""


def slice_results(sliced: SlicedStates, swept: Swept, *, weighted: bool) -> Iterator[Scalar]:
    """The results of every slice: slicing by slicing, slices with the most rows first, ties ordered by value."""
    for key in sliced.slicing.keys:
        done = [swept[w][key] if w in swept else None for w in sliced.requests]
        present = (
            sliced.grouped(w, key).groups() if results is None else results
            for w, results in zip(sliced.requests, done, strict=True)
        )
        groups = sorted({group for some in present for group in some}, key=rank)  # whatever the layout
        by_request = [
            _finalize_slices(sliced, key, w, groups, results, weighted=weighted)
            for w, results in zip(sliced.requests, done, strict=True)
        ]
        rows = {group: max(results[group][0] for results in by_request) for group in groups}
        for group in sorted(groups, key=lambda group: -rows[group]):
            for results in by_request:
                yield from results[group][1]


def _finalize_slices(
    sliced: SlicedStates,
    key: By,
    request: MetricRequest,
    groups: Sequence[Group],
    swept: Mapping[Group, _SliceResult] | None,
    *,
    weighted: bool,
) -> Mapping[Group, _SliceResult]:
    """The results of a request in some slices; those that no sweep has finalized are finalized some at a time.

    A slice may have rows in some states only: without a label a row has a class, but is in no lift curve.
    """
    results, engine = dict(swept or {}), sliced.engine
    missing = [group for group in groups if group not in results]
    if not missing:
        return results
    grouped = sliced.grouped(request, key)
    cut: dict[Group, int] = {}
    if swept is None and request.metrics and isinstance(request.spec, ClusterSpec):
        sweep = ClusterSweep.of(cast("TaggedGroups", grouped), engine.budget)
        [[rows_by_name]] = engine.finalize([(sweep, [CutRows()])])
        cut = {key.group(name): rows for name, rows in rows_by_name.items()}
    for start in range(0, len(missing), _CHUNK):
        some = missing[start : start + _CHUNK]
        states = request.family.slice_states(engine, request, grouped, some)
        engine.budget.release_freed()
        rows = finalize_states(engine, [(state, request.metrics) for state in states])
        for group, state, row in zip(some, states, rows, strict=True):
            values = usable(request, state, row) if weighted else row
            results[group] = _result(request, state, values, sliced.named(key, group), cut.get(group))
    return results


def _result(
    request: MetricRequest, state: State | SweptGroup, values: Iterable[Scalar], named: Named | None, cut: int | None
) -> _SliceResult:
    """The rows of all rows or of a slice, and the results; `cut` are rows in clusters that other slices share."""
    counted = request.family.counted(request, state)
    share = None if cut is None else cut / max(1, counted.rows)
    results = [counted.of_rows(replace(value, of=request.of, slice=named, cut_share=share)) for value in values]
    return counted.rows + sum(rows for _, rows in counted.dropped), results


def sweep(sliced: SlicedStates) -> Swept:
    """All rows and all slices side by side, of the states whose layout allows it."""
    engine, swept = sliced.engine, Swept()
    for w in sliced.requests if sliced.slicing.keys else ():
        results: dict[Any, dict[Any, _SliceResult]] = {None: {}}
        for key in sliced.slicing.keys:
            sweep = sweep_groups(sliced.grouped(w, key), engine.each, engine.budget)
            if sweep is None:
                break
            metrics = [Sliced(metric) for metric in w.metrics]
            shared = [CutRows()] if isinstance(sweep, ClusterSweep) else []
            values = engine.finalize([(sweep, [*metrics, *shared])])[0]
            if any(isinstance(value, Metric) for by_name in values for value in by_name.values()):
                break  # a metric takes several steps
            cut, results[key] = values.pop() if shared else {}, {}
            for name, (_, state) in sweep.groups.items():
                group = key.group(name) if name else None
                named = sliced.named(key, group) if name else None
                own = scalars(w.metrics, [by_name[name] for by_name in values])
                results[key if name else None][group] = _result(w, state, own, named, cut.get(name))
        else:
            swept[w] = results
    return swept


def whole_results(engine: Engine, states: Sequence[tuple[MetricRequest, Source]], swept: Swept) -> Iterator[Scalar]:
    """The results of all rows, in the order given."""
    others = iter(finalize(engine, [(w, state) for w, state in states if w not in swept]))
    for w, _ in states:
        yield from swept[w][None][None][1] if w in swept else islice(others, len(w.metrics))


def usable(request: MetricRequest, state: State, values: Sequence[Scalar]) -> list[Scalar]:
    """The values of some rows, undefined where their weights cannot be used."""
    problem = weight_problem(request, state)
    if not problem:
        return list(values)
    return [
        Scalar(one.metric, math.nan, one.of, exact=False, rows=one.rows, positives=one.positives,
               reason=f"the weights of the slice {problem}")
        for one in values
    ]  # fmt: skip
