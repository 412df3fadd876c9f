"""Slices of nights, finalized from the states that a store keeps for each slice.

The state of a slice is the merge of its states over all nights; results equal those of the files to the last bit.

If a filter uses only the columns of a stored slicing, all rows of a slice meet it or none does. So the nights are
filtered without reading their files: the slices that meet the filter are merged.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import MissingInputError, OptionError
from streameval.evaluation.request import NO_INTERVALS
from streameval.evaluation.slice_intervals import sampled_slices
from streameval.evaluation.slices import SlicedStates, slice_results
from streameval.evaluation.slicing import Slicing
from streameval.results import Scalar, slice_column, slice_name
from streameval.scan.derived import mark, slicing
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.state import GroupedSpec, divisible
from streameval.states.grouped.table import parts_of, tag_of
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.nights.merge import finalize_nights, labels_of
from streameval.store.nights.partitions import keys_of
from streameval.wording import few, hint, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.request import Resampling
    from streameval.evaluation.result import Evaluation
    from streameval.scan import Where
    from streameval.scan.where import Test
    from streameval.states.grouped.keys import By
    from streameval.states.labels import LabelCounts
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.history import History
    from streameval.store.nights.merge import Nights


def kept_key(configuration: Configuration, columns: Sequence[str]) -> By | None:
    """The stored slicing by these columns, in any order; None if there is none."""
    return next((key for key in configuration.slicing.keys if set(key.columns) == set(columns)), None)


@dataclass(frozen=True)
class KeptSlices:
    """The stored slices of one slicing in some nights.

    Attributes
    ----------
    nights : Nights
    engine : Engine
    key : the slicing
    """

    nights: Nights
    engine: Engine
    key: By

    @classmethod
    def of(cls, nights: Nights, engine: Engine, text: str) -> KeptSlices:
        """The slices of the slicing that `text` describes.

        Raises
        ------
        OptionError
            If the store does not keep them.
        """
        key = kept_key(nights.configuration, list(slicing(text)))
        if key is None:
            have = nights.configuration.options["by"]
            there = f"slices by {'; '.join(have)}, not by {text}" if have else "no slices"
            raise OptionError(f"the store keeps {there}; {hint(text, have)}add them (add STORE DATA --by {text})")
        return cls(nights, engine, key)

    def results(
        self, only: tuple[str, str] | None = None, resampling: Resampling = NO_INTERVALS, **options: Any
    ) -> list[Scalar]:
        """The results of every slice over all nights, largest slices first.

        Parameters
        ----------
        only : (group, column) of a single state to evaluate
        resampling : the sampling intervals and comparisons to compute; if a night lacks the blocks of its slices,
            scores have a reason instead of intervals
        options : metrics and their options, if they differ from the store's

        Raises
        ------
        MissingInputError
            If a night lacks the slices.
        """
        configuration = self.nights.configuration
        wanted = configuration.wanted(self.nights.names, **options)
        wanted = [w for w in wanted if only in (None, (w.group, w.of)) and configuration.sliced([w])]
        states = {GroupedSpec(w.spec, self.key): self.state(w) for w in wanted}
        request = configuration.request(**options)
        weighted = request.weight is not None
        sliced = SlicedStates(self.engine, Slicing((self.key,)), states, wanted)
        scalars = list(slice_results(sliced, {}, weighted=weighted))
        if resampling.level is not None:
            sliced = replace(sliced, states=states | self.blocks(wanted))
            scalars, _ = sampled_slices(sliced, scalars, resampling)
        self.engine.budget.release_spares()
        return scalars if request.label.column is not None else [replace(one, positives=None) for one in scalars]

    def blocks(self, wanted: Sequence[MetricRequest]) -> dict[Any, Any]:
        """The unit blocks of every slice, for the columns whose blocks all nights have."""
        kept = self.nights.configuration.sliced_blocks(wanted, [self.key])
        there = [w for w in kept if not self.nights.lacking(w.group, w.of)]
        return {w.spec: self.nights.merged(self.engine, w) for w in there}

    def state(self, w: MetricRequest) -> Any:
        """The sliced state of a request, merged over nights.

        Raises
        ------
        MissingInputError
            If a night lacks it.
        """
        [kept] = self.nights.configuration.sliced([w], [self.key])
        if absent := self.nights.lacking(kept.group, w.of):
            by = ",".join(self.key.columns)
            raise MissingInputError(
                f"{plural(len(absent), 'night')} without slices of {w.of} by {by} ({few(absent)}); fold them from "
                f"their files (add STORE DATA --by {by}), or name other nights"
            )
        state: Any = self.nights.merged(self.engine, kept)
        self.key.check(len(state.groups()), state.named.values)
        return state

    def of_night(
        self,
        entry: Entry,
        metric: str,
        w: MetricRequest,
        options: Mapping[str, Any],
        resampling: Resampling = NO_INTERVALS,
    ) -> list[Scalar]:
        """A metric in every slice of one night; empty if the night has no rows."""
        night = replace(self, nights=self.nights.of(entry))
        results = night.results((w.group, w.of), resampling, **options) if entry.rows else []
        return [one for one in results if one.metric == metric]

    def histories(self, metric: str, w: MetricRequest, options: Mapping[str, Any], whole: History) -> list[History]:
        """The histories of a metric in every slice, largest slices first.

        Parameters
        ----------
        metric, w, options : the metric, the state that it reads, and the options that compute it
        whole : the history of the metric over all rows, for the same nights
        """
        resampling = self.nights.configuration.request(**options).resampling
        nights = [self.of_night(entry, metric, w, options, resampling) for entry in self.nights.entries]
        by_night = [{_values(one): one for one in night} for night in nights]
        rows: Counter[tuple[Any, ...]] = Counter()
        named: dict[tuple[Any, ...], dict[str, Any]] = {}
        for one in chain.from_iterable(nights):
            rows[_values(one)] += one.rows
            named.setdefault(_values(one), one.slice or {})
        series = []
        for name, _ in rows.most_common():
            scalars = [night.get(name) for night in by_night]
            values = [one or replace(Scalar.undefined(metric, "no rows"), of=w.of, rows=0) for one in scalars]
            points = zip(whole.points, values, strict=True)
            sliced = tuple(replace(point, night=value, cumulative=None) for point, value in points)
            series.append(replace(whole, points=sliced, slice=named[name]))
        return series


def _values(result: Scalar) -> tuple[Any, ...]:
    """The values of a result's slice with their types, because values of different types may compare equal."""
    return tuple((type(value), value) for value in (result.slice or {}).values())


def slices_of(
    nights: Nights, engine: Engine, text: str, resampling: Resampling, options: Mapping[str, Any]
) -> list[Scalar]:
    """The results of every slice over all nights; see `KeptSlices.results`."""
    return KeptSlices.of(nights, engine, text).results(None, resampling, **options)


def slice_histories(
    nights: Nights, engine: Engine, text: str, asked: Sequence[tuple[str, MetricRequest, Mapping[str, Any], History]]
) -> list[History]:
    """The histories of metrics in every slice; `asked` holds the arguments of `KeptSlices.histories`."""
    slices = KeptSlices.of(nights, engine, text)
    return [one for arguments in asked for one in slices.histories(*arguments)]


def slice_facts(night: Nights, engine: Engine) -> dict[str, float]:
    """The share of rows, and the first metric of each column, in every stored slice of a night."""
    facts: dict[str, float] = {}
    [entry] = night.entries
    for key in night.configuration.slicing.keys if entry.rows else ():
        try:
            results = KeptSlices(night, engine, key).results()
        except MissingInputError:
            continue
        first: dict[str | None, str] = {}
        for one in results:
            if first.setdefault(one.of, one.metric) == one.metric:
                facts[f"{slice_name(one.slice)[1:-1]} (share)"] = one.rows / entry.rows
                facts |= {f"{one.metric}[{one.of}]{slice_name(one.slice)}": one.value} if one.value == one.value else {}
    return facts


_TYPES = {b"b": pa.bool_(), b"i": pa.int64(), b"s": pa.string()}  # slices keep other values as text, or rounded


def evaluate_where(nights: Nights, engine: Engine, **changes: Any) -> Evaluation:
    """Evaluate the rows of nights that match a filter, from stored slices.

    Parameters
    ----------
    nights, engine : as for `Nights.evaluate`
    changes : ``where``, and metrics and their options, if they differ from the store's

    Raises
    ------
    OptionError
        If the store keeps no slicing by the columns of the filter, or no slices of a column to evaluate.
    MissingInputError
        If a night lacks the slices, or no row meets the filter.
    """
    request = nights.configuration.request(**changes)
    where: Any = request.where
    slices = KeptSlices(nights, engine, _covering(nights.configuration, where, nights.entries))
    wanted = nights.configuration.wanted(nights.names, **changes)
    if apart := list(dict.fromkeys(w.of for w in wanted if not divisible(w.spec))):
        raise OptionError(
            f"where={where.text!r}: the store does not slice {few(apart)}; evaluate other columns", "where"
        )
    states: dict[Any, Any] = {}
    groups: dict[Any, None] = {}  # matching groups of all states
    for w in wanted:
        grouped = slices.state(w)
        here = _meeting(grouped, slices.key, where)
        states[w.spec] = _union(grouped.several(here, engine.budget), w.spec)
        groups |= dict.fromkeys(here)
    kept = slices.blocks(wanted) if request.resampling.level is not None else {}
    blocks = {spec.inner: _union(map(state.only, groups), spec.inner) for spec, state in kept.items()}
    label = nights.label(request)
    labels = _labels(labels_of(nights.entries, label), wanted, states, where.text)
    states |= {label: labels, **blocks}
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
        raise OptionError(
            f"where={where.text!r} reads {by}, and the store keeps {f'slices by {have}' if have else 'no slices'}; "
            f"{_instead(configuration, where, entries)}add them (add STORE DATA --by {by}), or evaluate the files",
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
    parts = [parts_of(name) for name in grouped.named.values()]
    at = {name: i for i, name in enumerate(key.columns) if name in where.columns}
    kinds = {name: {tag_of(each[i]) for each in parts} - {b"n"} for name, i in at.items()}
    for name, found in kinds.items():
        if not found <= _TYPES.keys() or len(found) > 1:
            raise OptionError(
                f"where={where.text!r}: slices answer filters of booleans, integers and texts, and {name} has other "
                "values; evaluate the files",
                "where",
            )
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
        raise OptionError(
            f"where={text!r}: {plural(left, 'row')} of these nights have no label or lack a column, and slices do not "
            "count them; evaluate the files",
            "where",
        )
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
