"""Slices of nights, evaluated from the states that a store keeps for each slice.

The state of a slice is the merge of its states over all nights; results equal those of the files to the last bit.

If a filter uses only the columns of a stored slicing, all rows of a slice meet it or none does. So the nights are
filtered without reading their files: the slices that meet the filter are merged.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import compress, product
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from streameval.errors import MissingInputError, OptionError
from streameval.evaluation.comparison import compare_slices, estimate_slices
from streameval.evaluation.finalize import as_labelled
from streameval.evaluation.request import NO_INTERVALS
from streameval.evaluation.slices import SlicedStates, slice_results, sweep
from streameval.evaluation.slicing import Slicing
from streameval.results import Scalar, slice_column, slice_name
from streameval.scan.derived import mark, slicing
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.grouped.spec import GroupedSpec, divisible
from streameval.states.grouped.table import parts_of, tag_of
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.nights.configuration import sliced
from streameval.store.nights.merge import finalize_nights, labels_of
from streameval.store.nights.partitions import keys_of
from streameval.wording import few, hint, plural, shell

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.request import Request, Resampling
    from streameval.evaluation.result import Evaluation
    from streameval.scan import Where
    from streameval.scan.where import Test
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import By
    from streameval.states.labels import LabelCounts
    from streameval.states.protocol import State, StoredSpec
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.history import History
    from streameval.store.nights.merge import Column, Nights


def find_slicing(configuration: Configuration, text: str) -> By | None:
    """The stored slicing by the columns in a text, in any order; None if there is none."""
    columns = set(slicing(text))
    return next((key for key in configuration.slicing.keys if set(key.columns) == columns), None)


def stored_slicing(configuration: Configuration, text: str) -> By:
    """The stored slicing by the columns in a text; raises `OptionError` if the store does not keep it."""
    key = find_slicing(configuration, text)
    if key is None:
        have = configuration.options["by"]
        there = f"slices by {'; '.join(have)}, not by {text}" if have else "no slices"
        raise OptionError(f"the store keeps {there}; {hint(text, have)}{configuration.more_slices(text)}")
    return key


def _merge_sliced(nights: Nights, engine: Engine, w: MetricRequest, key: By) -> Grouped:
    """The sliced state of a request, merged over nights; raises `MissingInputError` if a night lacks it."""
    [of_slices] = sliced([w], key)
    if absent := nights.lacking(of_slices.group, w.of):
        by = ",".join(key.columns)
        raise MissingInputError(
            f"{plural(len(absent), 'night')} without slices of {w.of} by {by} ({few(absent)}); fold them from "
            f"their files (add STORE DATA --by {shell([by])}), or name other nights"
        )
    state = cast("Grouped", nights.merged(engine, of_slices))
    key.check(len(state.groups()), state.named.values)
    return state


def _merge_blocks(
    nights: Nights, engine: Engine, wanted: Sequence[MetricRequest], key: By
) -> dict[StoredSpec, Grouped]:
    """The unit blocks of every slice, for the columns whose blocks all nights have."""
    requests = [w for w in nights.configuration.kept(wanted) if isinstance(w.spec, BlockSpec)]
    present = [w for w in sliced(requests, key) if not nights.lacking(w.group, w.of)]
    return {w.spec: cast("Grouped", nights.merged(engine, w)) for w in present}


def evaluate_slices(
    nights: Nights,
    engine: Engine,
    request: Request,
    keys: Sequence[By],
    resampling: Resampling = NO_INTERVALS,
    only: Container[tuple[str, str]] | None = None,
) -> list[Scalar]:
    """The results of every slice over all nights: slicing by slicing, largest slices first.

    Parameters
    ----------
    nights, engine, request, only : as for `Nights.evaluate`
    keys : stored slicings
    resampling : the sampling intervals and comparisons to compute; if a night lacks the blocks of its slices, scores
        have a reason instead of intervals

    Returns
    -------
    list of Scalar
        Empty if there are no rows.

    Raises
    ------
    MissingInputError
        If a night lacks the slices.
    """
    sliced = _sliced_states(nights, engine, request, keys, resampling, only)
    if sliced is None:
        return []
    slices, labels = sliced
    results = list(slice_results(slices, sweep(slices), weighted=request.weight is not None))
    if resampling.level is not None:
        results, _ = compare_slices(slices, results, resampling)
    engine.budget.release_freed()
    return [*as_labelled(results, labels, late=request.late is not None)]


def slice_estimates(
    nights: Nights, engine: Engine, request: Request, key: By, only: Container[tuple[str, str]]
) -> list[Estimated]:
    """The results of some states in every slice, with their replicates; see `evaluate_slices`."""
    sliced = _sliced_states(nights, engine, request, [key], request.resampling, only)
    if sliced is None:
        return []
    results = list(slice_results(sliced[0], sweep(sliced[0]), weighted=request.weight is not None))
    by_key = list(estimate_slices(sliced[0], results, request.resampling))
    engine.budget.release_freed()
    return [one for _, slices in by_key for some in slices for one in some]


def _sliced_states(
    nights: Nights,
    engine: Engine,
    request: Request,
    keys: Sequence[By],
    resampling: Resampling,
    only: Container[tuple[str, str]] | None,
) -> tuple[SlicedStates, LabelCounts] | None:
    """The states of slices and their labels; None if there are no rows."""
    wanted = [w for w in nights.configuration.wanted(request) if only is None or (w.group, w.of) in only]
    wanted = [w for w in wanted if divisible(w.spec)]
    if not wanted or not any(entry.rows for entry in nights.entries):
        return None
    labels = labels_of(nights.entries, nights.label(request))
    states: dict[StoredSpec, State] = {}
    for key in keys:
        states |= {GroupedSpec(w.spec, key): _merge_sliced(nights, engine, w, key) for w in wanted}
        if resampling.level is not None:
            states |= _merge_blocks(nights, engine, wanted, key)
    return SlicedStates(engine, Slicing(tuple(keys)), states, wanted), labels


def slice_histories(nights: Nights, engine: Engine, key: By, series: Sequence[tuple[Column, History]]) -> list[History]:
    """The histories of metrics in every slice, largest slices first.

    Parameters
    ----------
    nights, engine : as for `Nights.evaluate`
    key : a stored slicing
    series : for each metric its column, and its history over all rows for the same nights
    """
    histories = []
    for column, whole in series:
        request, metric = column.request, whole.metric
        rows, named = Counter[tuple[Any, ...]](), dict[tuple[Any, ...], dict[str, Any]]()
        by_night: list[dict[tuple[Any, ...], Scalar]] = []
        for entry in nights.entries:
            by_night.append({})
            night = nights.of(entry)
            for one in evaluate_slices(night, engine, request, [key], request.resampling, column.states):
                if one.metric == metric and one.slice is not None:
                    values = tuple((type(value), value) for value in one.slice.values())  # 1 and True are two slices
                    rows[values] += one.rows
                    named.setdefault(values, one.slice)
                    by_night[-1][values] = one
        absent = replace(Scalar.undefined(metric, "no rows"), of=whole.of, rows=0)
        for values, _ in rows.most_common():
            pairs = zip(whole.points, by_night, strict=True)
            points = tuple(replace(point, night=some.get(values, absent), cumulative=None) for point, some in pairs)
            histories.append(replace(whole, points=points, slice=named[values]))
    return histories


def slice_facts(night: Nights, engine: Engine) -> dict[str, float]:
    """The share of rows, and the first metric of each column, in every stored slice of a night."""
    facts: dict[str, float] = {}
    [entry] = night.entries
    for key in night.configuration.slicing.keys if entry.rows else ():
        results, first = list[Scalar](), dict[str | None, str]()
        with suppress(MissingInputError):
            results = evaluate_slices(night, engine, night.configuration.request(), [key])
        for one in results:
            if first.setdefault(one.of, one.metric) == one.metric:
                facts[f"{slice_name(one.slice)[1:-1]} (share)"] = one.rows / entry.rows
                facts |= {f"{one.metric}[{one.of}]{slice_name(one.slice)}": one.value} if one.value == one.value else {}
    return facts


_TYPES = {b"b": pa.bool_(), b"i": pa.int64(), b"s": pa.string()}  # slices keep other values as text, or rounded


def evaluate_where(nights: Nights, engine: Engine, request: Request) -> Evaluation:
    """Evaluate the rows of nights that match a filter, from stored slices.

    Parameters
    ----------
    nights, engine, request : as for `Nights.evaluate`

    Raises
    ------
    OptionError
        If the store keeps no slicing by the columns of the filter, or no slices of a column to evaluate.
    MissingInputError
        If a night lacks the slices, or no row meets the filter.
    """
    wanted = nights.configuration.wanted(request)
    where = cast("Where", request.where)
    key = _covering(nights.configuration, where, nights.entries)
    if apart := list(dict.fromkeys(w.of for w in wanted if not divisible(w.spec))):
        raise OptionError(
            f"where={where.text!r}: the store does not slice {few(apart)}; evaluate other columns", "where"
        )
    grouped = {w.spec: _merge_sliced(nights, engine, w, key) for w in wanted}
    matching = set[bytes]().union(*(_matching(state, key, where) for state in grouped.values()))
    if request.resampling.level is not None:
        blocks = _merge_blocks(nights, engine, wanted, key)
        grouped |= {cast("GroupedSpec", spec).inner: state for spec, state in blocks.items()}
    states: dict[StoredSpec, State] = {}
    for spec, state in grouped.items():
        others = [group for group, name in state.named.items() if name not in matching]
        states[spec] = state.without(*others, budget=engine.budget)
    label = nights.label(request)
    states[label] = _labels(labels_of(nights.entries, label), wanted, states, where.text)
    return finalize_nights(engine, nights.names, request, label, wanted, states)


def _covering(configuration: Configuration, where: Where, entries: Sequence[Entry]) -> By:
    """The stored slicing with the fewest columns that has all columns of a filter.

    Raises
    ------
    OptionError
        If there is none; the message suggests alternatives.
    """
    keys = [key for key in configuration.slicing.keys if set(where.columns) <= set(key.columns)]
    if not keys:
        have, by = "; ".join(configuration.options["by"]), ",".join(where.columns)
        files = "" if configuration.design else ", or evaluate the files"
        raise OptionError(
            f"where={where.text!r} reads {by}, and the store keeps {f'slices by {have}' if have else 'no slices'}; "
            f"{_instead(configuration, where, entries)}{configuration.more_slices(by)}{files}",
            "where",
        )
    return min(keys, key=lambda key: len(key.columns))


def _instead(configuration: Configuration, where: Where, entries: Sequence[Entry]) -> str:
    """Suggestions for other columns of a filter: slices between stored edges, keys of nights, similar names."""
    sliced = dict.fromkeys(name for key in configuration.slicing.keys for name in key.columns)
    text = ""
    for name in (name for name in where.columns if name not in sliced):
        if edges := [kept for kept in sliced if kept.startswith(f"{name}=")]:
            *_, last = edges[0].split(",")
            example = f"\"{edges[0]}\" = '>={last.rpartition('=')[2]}'"
            text += f"name slices between its edges, such as {example}; "
        elif any(name in keys_of(entry.partition) for entry in entries):
            text += f"choose nights by their {name} (--partition {name}=…, --since, --until, --last); "
        else:
            text += hint(name, sliced)
    return text


def _matching(grouped: Grouped, key: By, where: Where) -> set[bytes]:
    """The names of the slices that match a filter.

    Raises
    ------
    OptionError
        If the filter compares a column with a value of another kind, or slices keep the values only as text.
    """
    parts = [parts_of(name) for name in grouped.named.values()]
    at = {name: i for i, name in enumerate(key.columns) if name in where.columns}
    kinds = {name: {tag_of(each[i]) for each in parts} - {b"n"} for name, i in at.items()}
    for name, tags in kinds.items():
        if not tags <= _TYPES.keys() or len(tags) > 1:
            raise OptionError(
                f"where={where.text!r}: slices answer filters of booleans, integers and texts, and {name} has other "
                "values; evaluate the files",
                "where",
            )
    values = {name: [group[i] for group in grouped.named] for name, i in at.items()}
    marks = {name: mark(values[name]) for name in at if kinds[name] == {b"s"}}
    accepted = {name: [_TYPES[kind] for kind in tags or _TYPES] for name, tags in kinds.items()}
    accepted |= {name: [slice_column(values[name]).type] for name in at if kinds[name] == {b"i"}}
    test = _bound(where, accepted, marks)
    columns = [pa.array(values[name], test.schema.field(name).type) for name in at]
    return set(compress(grouped.named.values(), test.kept(pa.record_batch(columns, names=list(at))).tolist()))


def _bound(
    where: Where, accepted: Mapping[str, list[pa.DataType]], marks: Mapping[str, dict[bytes, bytes] | None]
) -> Test:
    """Bind a filter to the columns of slices; a column without values gets any type that the filter accepts.

    Slices do not record whether texts are Hive keys; texts that are all integers are treated as such.
    """
    choices = [[pa.field(name, kind, metadata=marks.get(name)) for kind in kinds] for name, kinds in accepted.items()]
    *others, last = map(pa.schema, product(*choices))
    for schema in others:
        with suppress(OptionError):
            return where.bound(schema)
    return where.bound(last)


def _labels(
    labels: LabelCounts, wanted: Sequence[MetricRequest], states: Mapping[StoredSpec, State], text: str
) -> LabelCounts:
    """The label counts of the chosen slices, derived from their states."""
    left = labels.incomplete + (labels.null if labels.spec.column is not None else 0)
    if left:
        raise OptionError(
            f"where={text!r}: {plural(left, 'row')} of these nights have no label or lack a column, and slices do not "
            "count them; evaluate the files",
            "where",
        )
    for w in wanted:
        if isinstance(w.spec, ScoreSpec | HistogramSpec | ClusterSpec):
            state: Any = states[w.spec]
            missing = state.dropped_rows if isinstance(w.spec, ClusterSpec) else state.nan_rows
            neg, pos = (int(side) for side in (state.totals().neg + missing[0], state.totals().pos + missing[1]))
            break
    else:
        counted = wanted[0].family.counted(wanted[0], states[wanted[0].spec])
        neg, pos = counted.rows + sum(rows for _, rows in counted.dropped), 0
    return replace(labels, null=neg + pos) if labels.spec.column is None else replace(labels, neg=neg, pos=pos)
