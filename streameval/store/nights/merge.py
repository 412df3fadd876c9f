"""Nights as the source of an evaluation: their states are read and merged, and finalized as if their files had been.

Exact results are the same to the last bit. Intervals are, unless rows without a unit lie in files outside of Hive
directories: these rows are numbered in each night. Nights can be sent to a worker, which reads their states itself.
"""

from __future__ import annotations

import json
from collections import UserDict
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from streameval.engine.fold import Folded
from streameval.errors import FormatError, OptionError
from streameval.evaluation.finalize import finalize_all
from streameval.options import as_json
from streameval.results import Scalar
from streameval.states.labels import LabelCounts
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec, histogram_spec, to_histogram
from streameval.store.files.compaction import ColumnFiles
from streameval.store.files.entries import Labels
from streameval.store.nights.configuration import REPORTED
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.request import Request
    from streameval.evaluation.result import Evaluation
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.labels import LabelSpec
    from streameval.states.protocol import State, StoredSpec
    from streameval.states.scores.counts import ScoreCounts
    from streameval.states.scores.histogram import ScoreHistogram
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.entries import Entry, StoredState
    from streameval.store.nights.configuration import Configuration


class LazyStates(UserDict[tuple[str, str], Any]):
    """States by (group, column), made of callables that read them on demand."""

    def __getitem__(self, key: tuple[str, str]) -> State:
        state: State = self.data[key]()
        return state


@dataclass(frozen=True)
class Column:
    """The metrics of a column of a store.

    Attributes
    ----------
    request : the request of an evaluation that computes them
    w : the state that they read
    given : the options of the request that differ from the store's
    """

    request: Request
    w: MetricRequest
    given: Mapping[str, object]

    @cached_property
    def options(self) -> str:
        """The options that affect the metrics, as text for keys."""
        return json.dumps({name: as_json(self.request.options[name]) for name in REPORTED})

    @property
    def states(self) -> set[tuple[str, str]]:
        """The states that an evaluation reads: those of the metrics, and the one whose replicates give intervals."""
        source = self.w.family.replication.source_family if self.request.resampling.level else ""
        return {(group, self.w.of) for group in (self.w.group, source) if group} | {*self.w.further}

    def undefined(self, reason: str, names: Iterable[str] | None = None) -> list[Scalar]:
        """All metrics, or those with some names, without a value for a reason."""
        names = [metric.name for metric in self.w.metrics] if names is None else names
        return [replace(Scalar.undefined(name, reason), of=self.w.of) for name in names]


@dataclass(frozen=True)
class Nights:
    """Some nights of a store.

    Attributes
    ----------
    entries : the nights, at least one
    configuration : what the store keeps of each night
    files : the states of the store
    stored : all nights of the store, of which some states are (`MetricRequest.of_store`); by default `entries`
    """

    entries: Sequence[Entry]
    configuration: Configuration
    files: Compaction
    stored: Sequence[Entry] = ()

    @property
    def names(self) -> list[str]:
        """The names of the nights."""
        return [entry.partition for entry in self.entries]

    def of(self, *entries: Entry) -> Nights:
        """Other nights of the store."""
        return replace(self, entries=entries)

    def lacking(self, group: str, of: str) -> list[str]:
        """Names of the nights with rows that lack a state."""
        return [entry.partition for entry in self.entries if entry.rows and not entry.state(group, of)]

    def label(self, request: Request) -> LabelSpec:
        """The labels of the nights: those of a request, of the rows that all kept columns have in common."""
        return replace(request.label, complete=self.configuration.folding.label.complete)

    def evaluate(
        self,
        engine: Engine,
        request: Request,
        only: Container[tuple[str, str]] | None = None,
        merge: Callable[[Nights, Engine, MetricRequest], State] | None = None,
    ) -> Evaluation:
        """Evaluate the nights by merging their states.

        Parameters
        ----------
        engine : the engine of the run
        request : the metrics, a result of `Configuration.request`
        only : (group, column) of the states to evaluate; by default all of the request
        merge : a `PrefixMerge`, for evaluations of growing prefixes of the nights

        Raises
        ------
        FormatError
            If a state file is missing or damaged.
        OptionError
            If compared columns cover different rows.
        DataError
            If there are no rows, or labels or weights cannot be evaluated.
        """
        wanted = [w for w in self.requests(request) if only is None or (w.group, w.of) in only]
        there = [w for w in wanted if not self.lacking(w.group, w.of)]
        label = self.label(request)
        states: dict[StoredSpec, State] = {label: labels_of(self.entries, label)}
        for w in [w for w in self.configuration.kept(there) if not self.lacking(w.group, w.of)]:
            try:
                merged = Nights.merged if merge is None or w.of_store else merge
                states[w.spec] = merged(self, engine, w)
            except FormatError as error:
                damaged = [e.partition for e in self.entries if any(s.file in str(error) for s in e.states)]
                raise FormatError(f"{', '.join(damaged)}: {error}" if damaged else str(error)) from error
        engine.budget.release_freed()
        result = finalize_nights(engine, self.names, request, label, there, states)
        if len(there) == len(wanted):
            return result
        values, results = iter(result.results), list[Scalar]()
        for w in wanted:
            if w in there:
                results += islice(values, len(w.metrics))
                continue
            absent = self.lacking(w.group, w.of)
            reason = f"no {w.of} in {len(absent)} of {plural(len(self.entries), 'partition')} ({few(absent)})"
            results += [replace(Scalar.undefined(metric.name, reason), of=w.of) for metric in w.metrics]
        return replace(result, results=tuple(results))

    def states(self, engine: Engine, request: Request) -> LazyStates:
        """The states that an evaluation of the nights needs, each read on demand."""
        there = [w for w in self.requests(request) if not self.lacking(w.group, w.of)]
        return LazyStates({(w.group, w.of): partial(self.merged, engine, w) for w in there})

    def merged(self, engine: Engine, w: MetricRequest) -> State:
        """The state of a column over all nights."""
        if len(w.stored) > 1:
            labelled, every = (self.merged(engine, part) for part in w.stored)
            return cast("ClusterCounts", every).with_labels(cast("ClusterCounts", labelled))
        entries = self.stored or self.entries if w.of_store else self.entries
        columns = {column.spec: column for column in _by_spec(entries, {(w.group, w.of): w.spec})}
        own = columns.pop(w.spec, ColumnFiles(w.spec, [], 0))
        parts = self.files.read_all(own.names, own.nbytes, engine.budget, w.spec, engine.each)
        for spec, column in columns.items():  # exact scores among histograms

            def read(name: str, spec: StoredSpec = spec) -> ScoreHistogram:
                return to_histogram(cast("ScoreCounts", self.files.files.read(name, engine.budget, spec)))

            parts += engine.each(read, column.names)
        merged: State = reduce(lambda a, b: a.merge(b), parts or [w.spec.empty()])
        return merged

    def requests(self, request: Request) -> list[MetricRequest]:
        """The states of a request, with their metrics: a histogram where a night no longer has exact scores."""
        requests = []
        for w in self.configuration.wanted(request):
            specs = {spec_as_kept(w.spec, stored) for entry in self.entries if (stored := entry.state(w.group, w.of))}
            histograms = [spec for spec in specs - {w.spec} if isinstance(spec, HistogramSpec)]
            requests.append(replace(w, spec=histograms[0]) if histograms else w)
        return requests


def finalize_nights(
    engine: Engine,
    names: Sequence[str],
    request: Request,
    label: LabelSpec,
    wanted: Sequence[MetricRequest],
    states: Mapping[StoredSpec, State],
) -> Evaluation:
    """Finalize the states of nights, by spec, and those of their labels; see `finalize_all`.

    Raises
    ------
    OptionError
        If compared columns cover different rows.
    """
    for w in wanted if request.resampling.baselines and not label.complete else ():
        for reason, rows in w.family.counted(w, states[w.spec]).dropped:
            if rows:
                raise OptionError(
                    f"baseline: {plural(rows, 'row')} left out ({reason}) that other columns have; columns can only "
                    "be compared on common rows: create a store with common_rows (update --common-rows)"
                )
    return finalize_all(engine, replace(request, label=label), names, wanted, Folded(dict(states)))


def labels_of(entries: Sequence[Entry], spec: LabelSpec) -> LabelCounts:
    """The sum of the label counts of several partitions.

    Raises
    ------
    FormatError
        If the label values in the ledger are damaged.
    """
    labels = [entry.labels for entry in entries]
    try:
        values = frozenset(value for text in {counts.values for counts in labels} for value in json.loads(text))
        neg, pos, null, incomplete = (sum(getattr(one, name) for one in labels) for name in Labels._fields[2:])
        return spec.empty().merge(LabelCounts(spec, neg, pos, null, values, incomplete))
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(
            f"the labels in the ledger are damaged ({error}); restore the ledger from a backup"
        ) from error


class PrefixMerge:
    """The state of a column over growing prefixes of the nights; merged nights are not read again."""

    def __init__(self) -> None:
        self._merged: dict[tuple[str, str], tuple[State, int]] = {}

    def __call__(self, nights: Nights, engine: Engine, w: MetricRequest) -> State:
        """The state over all nights; they must begin with those of the previous call."""
        state, merged = self._merged.get((w.group, w.of), (None, 0))
        if state is None or state.spec != w.spec:  # the states were exact so far, and now there is a histogram
            state, merged = None, 0
        new = nights.of(*nights.entries[merged:]).merged(engine, w)
        state = state.merge(new) if state else new
        self._merged[w.group, w.of] = state, len(nights.entries)
        return state


def columns_kept(entries: Sequence[Entry], configuration: Configuration) -> list[ColumnFiles]:
    """The state files of every column, exact scores apart from histograms.

    Digests are left out: their values depend on the order of merging, which compaction would change.
    """
    return _by_spec(entries, {column: spec for column, spec in configuration.specs.items() if spec.traits.associative})


def _by_spec(entries: Sequence[Entry], specs: Mapping[tuple[str, str], StoredSpec]) -> list[ColumnFiles]:
    """The state files of some columns by their stored spec; `specs` are those of the configuration."""
    by_spec: dict[StoredSpec, list[StoredState]] = {}
    for column, spec in specs.items():
        for stored in filter(None, (entry.state(*column) for entry in entries)):
            by_spec.setdefault(spec_as_kept(spec, stored), []).append(stored)
    return [ColumnFiles(spec, [s.file for s in kept], sum(s.bytes for s in kept)) for spec, kept in by_spec.items()]


def spec_as_kept(spec: StoredSpec, stored: StoredState) -> StoredSpec:
    """The spec of a stored state: the configuration's, or for scores that of the histogram that vacuum made of them.

    Raises
    ------
    FormatError
        If it has the kind of another state.
    """
    if stored.kind == spec.kind:
        return spec
    if stored.kind == HistogramSpec.kind and isinstance(spec, ScoreSpec):
        return histogram_spec(spec)
    if stored.kind == ScoreSpec.kind and isinstance(spec, HistogramSpec):
        return ScoreSpec(**asdict(spec))
    raise FormatError(
        f"{stored.file}: the ledger has it as {stored.kind!r}, not {spec.kind!r}; restore the ledger from a backup"
    )
