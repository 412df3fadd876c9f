"""Filter nights without reading their files: merge the stored slices that match the filter.

If a filter uses only the columns of a stored slicing, all rows of a slice match or none does. The results equal those
of the files with the same filter, to the last bit.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.engine.fold import Folded, Plan
from streameval.errors import OptionError
from streameval.evaluation.finalize import finalize_all
from streameval.results import slice_column
from streameval.scan.marked_keys import mark
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.names import parts_of, tag_of
from streameval.states.grouped.state import divisible
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.nights.keys import keys_of
from streameval.store.nights.merge import check_common, labels_of
from streameval.store.nights.slices import KeptSlices
from streameval.wording import few, hint, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.scan import Where
    from streameval.scan.where.condition import Test
    from streameval.states.grouped.keys import By
    from streameval.states.labels import LabelCounts
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration

_TYPES = {b"b": pa.bool_(), b"i": pa.int64(), b"s": pa.string()}  # slices keep other values as text, or rounded


def evaluated_where(
    entries: Sequence[Entry], configuration: Configuration, engine: Engine, files: Compaction, **changes: Any
) -> Evaluation:
    """Evaluate the rows of partitions that match a filter, from stored slices.

    Parameters
    ----------
    entries : the partitions, at least one
    configuration, engine, files : the store
    changes : ``where``, and metrics and their options, if they differ from the store's

    Raises
    ------
    OptionError
        If the store keeps no slicing by the columns of the filter, or no slices of a column to evaluate.
    MissingInputError
        If a night lacks the slices, or no row meets the filter.
    """
    request, names = configuration.request(**changes), [entry.partition for entry in entries]
    where: Any = request.where
    slices = KeptSlices(configuration, engine, files, _covering(configuration, where, entries))
    wanted = configuration.wanted(names, **changes)
    if apart := list(dict.fromkeys(w.of for w in wanted if not divisible(w.spec))):
        msg = f"where={where.text!r}: the store does not slice {few(apart)}; evaluate other columns"
        raise OptionError(msg, "where")
    states: dict[Any, Any] = {}
    groups: dict[Any, None] = {}  # matching groups of all states
    for w in wanted:
        grouped = slices.state(entries, w)
        here = _meeting(grouped, slices.key, where)
        states[w.spec] = _union(grouped.several(here, engine.budget), w.spec)
        groups |= dict.fromkeys(here)
    kept = slices.blocks(entries, wanted) if request.resampling.level is not None else {}
    blocks = {spec.inner: _union(map(state.only, groups), spec.inner) for spec, state in kept.items()}
    label = replace(request.label, complete=configuration.folding.label.complete)
    labels: Any = _labels(labels_of(entries, label), wanted, states, where.text)
    check_common(request.resampling.baselines, wanted, states, label)
    plan = Plan(None, label, request.weight, tuple(states))
    return finalize_all(
        engine, names, plan, wanted, Folded({label: labels, **states, **blocks}),
        threshold=request.options["aul_threshold"], resampling=request.resampling, filtered=where.text,
    )  # fmt: skip


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
        msg = (
            f"where={where.text!r} reads {by}, and the store keeps {f'slices by {have}' if have else 'no slices'}; "
            f"{_instead(configuration, where, entries)}add them (add STORE DATA --by {by}), or evaluate the files"
        )
        raise OptionError(msg, "where")
    return min(keys, key=lambda key: len(key.columns))


def _instead(configuration: Configuration, where: Where, entries: Sequence[Entry]) -> str:
    """Suggestions for other columns of a filter: slices between stored edges, keys of nights, similar names."""
    sliced = dict.fromkeys(name for key in configuration.slicing.keys for name in key.columns)
    found = ""
    for name in (name for name in where.columns if name not in sliced):
        if edges := [kept for kept in sliced if kept.startswith(f"{name}=")]:
            *_, last = edges[0].split(",")
            example = f"\"{edges[0]}\" = '>={last.rpartition('=')[2]}'"
            found += f"name slices between its edges, such as {example}; "
        elif any(name in keys_of(entry.partition) for entry in entries):
            found += f"choose nights by their {name} (--partition {name}=…, --since, --until, --last); "
        else:
            found += hint(name, sliced)
    return found


def _union(states: Iterable[Any], spec: Any) -> Any:
    """The merge of several states."""
    return reduce(lambda one, other: one.merge(other), states, spec.empty())


def _meeting(grouped: Any, key: By, where: Where) -> list[Any]:
    """The slices that match a filter.

    Raises
    ------
    OptionError
        If the filter compares a column with a value of another kind, or slices keep the values only as text.
    """
    parts = [parts_of(name) for name in grouped.names()]
    at = {name: i for i, name in enumerate(key.columns) if name in where.columns}
    kinds = {name: {tag_of(each[i]) for each in parts} - {b"n"} for name, i in at.items()}
    for name, found in kinds.items():
        if not found <= _TYPES.keys() or len(found) > 1:
            msg = (
                f"where={where.text!r}: slices answer filters of booleans, integers and texts, and {name} has other "
                "values; evaluate the files"
            )
            raise OptionError(msg, "where")
    groups = grouped.groups()
    values = {name: [group[i] for group in groups] for name, i in at.items()}
    marks = {name: mark(values[name]) for name in at if kinds[name] == {b"s"}}
    accepted = {name: [_TYPES[kind] for kind in found or _TYPES] for name, found in kinds.items()}
    accepted |= {name: [slice_column(values[name]).type] for name in at if kinds[name] == {b"i"}}
    test = _bound(where, accepted, marks)
    columns = [pa.array(values[name], test.schema.field(name).type) for name in at]
    kept = test.kept(pa.record_batch(columns, names=list(at))).tolist()
    return [group for group, here in zip(groups, kept, strict=True) if here]


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


def _labels(labels: LabelCounts, wanted: Sequence[MetricRequest], states: dict[Any, Any], text: str) -> LabelCounts:
    """The label counts of the chosen slices, derived from their states."""
    left = labels.incomplete + (labels.null if labels.spec.column is not None else 0)
    if left:
        msg = (
            f"where={text!r}: {plural(left, 'row')} of these nights have no label or lack a column, and slices do not "
            "count them; evaluate the files"
        )
        raise OptionError(msg, "where")
    for w in wanted:
        state = states[w.spec]
        if isinstance(w.spec, ScoreSpec | HistogramSpec | ClusterSpec):
            missing = state.dropped_rows if isinstance(w.spec, ClusterSpec) else state.nan_rows
            neg, pos = (int(side) for side in (state.totals().neg + missing[0], state.totals().pos + missing[1]))
            break
    else:
        counted = wanted[0].family.counted(wanted[0], states[wanted[0].spec])
        neg, pos = counted.rows + sum(rows for _, rows in counted.dropped), 0
    if labels.spec.column is None:
        return replace(labels, null=neg + pos)
    return replace(labels, neg=neg, pos=pos)
