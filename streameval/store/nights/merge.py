"""Merge the states of partitions and evaluate them.

States are merged and finalized as if the files had been read; exact results are the same to the last bit. Intervals
are, unless rows without a unit lie in files outside of Hive directories: these rows are numbered in each night.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

from streameval.budget import Budget
from streameval.engine.fold import Folded, Plan
from streameval.errors import FormatError, OptionError
from streameval.evaluation.run import finalize_all
from streameval.results import Scalar
from streameval.states.facts import check_facts
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec, ScoreHistogram
from streameval.states.scores.to_histogram import histogram_spec, to_histogram
from streameval.store.files.compaction import ColumnFiles
from streameval.wording import few, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts, LabelSpec
    from streameval.store.files.compaction import Compaction
    from streameval.store.files.entries import Entry, StoredState
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.fold import Workers


_LABEL_COUNTS = ("neg", "pos", "null", "incomplete")


class LazyStates(Mapping[tuple[str, str], Any]):
    """States that are read on demand.

    Parameters
    ----------
    readers : mapping of (group, column) to a callable that reads the state
    """

    def __init__(self, readers: Mapping[tuple[str, str], Callable[[], Any]]) -> None:
        self._readers = readers

    def __getitem__(self, key: tuple[str, str]) -> Any:
        return self._readers[key]()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def labels_of(entries: Sequence[Entry], spec: LabelSpec) -> LabelCounts:
    """The sum of the label counts of several partitions.

    Raises
    ------
    FormatError
        If the labels in the ledger are damaged.
    """
    try:
        headers = _join_labels(json.loads(f"[{','.join(entry.labels for entry in entries)}]"))
        for header in headers:
            check_facts(spec, header)
        counts = spec.empty().merge(*(spec.from_arrow(header, (), Budget(1)) for header in headers))
        if counts.seen != sum(entry.rows for entry in entries):
            msg = "they are not those of all rows"
            raise ValueError(msg)
        return counts
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"the labels in the ledger are damaged ({error}); restore the ledger from a backup"
        raise FormatError(msg) from error


def _join_labels(headers: Sequence[Any]) -> list[dict[str, Any]]:
    """One header for those of equal label values, with the sums of their counts: nights are many, and labels are few.

    Raises
    ------
    ValueError
        If a count is negative or not an integer, which its sum would hide, or the values are not in a list.
    """
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    for header in headers:
        if not isinstance(header["values"], list):
            msg = f"values is {str(header['values'])[:60]!r}"
            raise ValueError(msg)
        empty = {"values": header["values"]} | dict.fromkeys(_LABEL_COUNTS, 0)
        total = joined.setdefault(tuple(header["values"]), empty)
        for name in _LABEL_COUNTS:
            count = header.get(name, 0) if name == "incomplete" else header[name]
            if type(count) is not int or count < 0:
                msg = f"{name} is {str(count)[:60]}"
                raise ValueError(msg)
            total[name] += count
    return list(joined.values())


def evaluated(
    entries: Sequence[Entry],
    configuration: Configuration,
    engine: Engine,
    files: Compaction,
    *,
    only: tuple[str, str] | None = None,
    merge: Callable[..., Any] | None = None,
    **changes: Any,
) -> Evaluation:
    """Evaluate partitions by merging their states.

    Parameters
    ----------
    entries : the partitions, at least one
    configuration, engine, files : the store
    only : (group, column) of a single state to evaluate; the states that its intervals need are read as well
    merge : a `PrefixMerge`, for evaluations of growing prefixes of the partitions
    changes : metrics and their options, if they differ from the store's

    Raises
    ------
    FormatError
        If a state file is missing or damaged.
    OptionError
        If the store cannot honour an option, or compared columns cover different rows.
    DataError
        If there are no rows, or labels or weights cannot be evaluated.
    """
    names = [entry.partition for entry in entries]
    wanted, request = configuration.wanted(names, **changes), configuration.request(**changes)
    if only is not None:
        further = {w.family.replicated_by for w in wanted if (w.group, w.of) == only and request.resampling.level}
        wanted = [w for w in wanted if w.of == only[1] and w.group in (only[0], *further)]
    complete, wanted = [_complete(w, entries) for w in wanted], [_as_kept(w, entries) for w in wanted]
    there = [w for w, has in zip(wanted, complete, strict=True) if has]
    label = replace(request.label, complete=configuration.folding.label.complete)  # common rows of all kept columns
    states: dict[Any, Any] = {label: labels_of(entries, label)}
    for w in [w for w in configuration.kept(there) if _complete(w, entries)]:
        try:
            states[w.spec] = (merge or merged)(w, entries, engine, files)
        except FormatError as error:
            damaged = ", ".join(e.partition for e in entries if any(state.file in str(error) for state in e.states))
            msg = f"{damaged}: {error}" if damaged else str(error)
            raise FormatError(msg) from error
    engine.budget.release_spares()
    plan = Plan(None, label, request.weight, tuple(w.spec for w in there))
    check_common(request.resampling.baselines, there, states, label)
    threshold, resampling = request.options["aul_threshold"], request.resampling
    found = finalize_all(engine, names, plan, there, Folded(states), threshold=threshold, resampling=resampling)
    return found if all(complete) else _with_absent(found, wanted, there, entries)


def states_of(
    entries: Sequence[Entry], configuration: Configuration, engine: Engine, files: Compaction, **changes: Any
) -> LazyStates:
    """The states that an evaluation of these partitions needs, each read on demand."""
    wanted = [_as_kept(w, entries) for w in configuration.wanted([e.partition for e in entries], **changes)]
    there = [w for w in wanted if _complete(w, entries)]
    return LazyStates({(w.group, w.of): partial(merged, w, entries, engine, files) for w in there})


def check_common(
    baselines: Sequence[str], there: Sequence[MetricRequest], states: Mapping[Any, Any], label: LabelSpec
) -> None:
    """Raise `OptionError` if compared columns cover different rows."""
    for w in there if baselines and not label.complete else ():
        for reason, rows in w.family.counted(w, states[w.spec]).dropped:
            if rows:
                msg = (
                    f"baseline: {plural(rows, 'row')} left out ({reason}) that other columns have; columns can only "
                    "be compared on common rows: create a store with common_rows (--common-rows)"
                )
                raise OptionError(msg)


def _complete(w: MetricRequest, entries: Sequence[Entry]) -> bool:
    """Whether every partition with rows has the state."""
    return all(entry.state(w.group, w.of) for entry in entries if entry.rows)


def _as_kept(w: MetricRequest, entries: Sequence[Entry]) -> MetricRequest:
    """The request with the available state: a histogram if a partition no longer has exact scores."""
    specs = {spec_as_kept(w.spec, kept) for entry in entries if (kept := entry.state(w.group, w.of))} - {w.spec}
    histogram = next((spec for spec in specs if isinstance(spec, HistogramSpec)), None)
    return w if histogram is None else w.remade(histogram, w.metrics)


def merged(w: MetricRequest, entries: Sequence[Entry], engine: Engine, files: Compaction) -> Any:
    """The state of a column over all partitions."""
    kept: dict[Any, list[StoredState]] = {}
    for entry in entries:
        if state := entry.state(w.group, w.of):
            kept.setdefault(spec_as_kept(w.spec, state), []).append(state)
    parts = files.read_all(*_files(kept.pop(w.spec, [])), engine.budget, w.spec, engine.each)
    for spec, states in kept.items():
        exact = [state.file for state in states]
        parts += engine.each(partial(_histogram, files, engine.budget, spec), exact, "bounded")
    return reduce(lambda a, b: a.merge(b), parts or [w.spec.empty()])


def _files(states: Sequence[StoredState]) -> tuple[list[str], int]:
    """The names of the files of states, and their size together."""
    return [state.file for state in states], sum(state.bytes for state in states)


def _histogram(files: Compaction, budget: Budget, spec: ScoreSpec, name: str) -> ScoreHistogram:
    """The histogram of exact scores in a file."""
    return to_histogram(files.read(name, budget, spec))


class PrefixMerge:
    """The state of a column over growing prefixes of the partitions; merged partitions are not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Any, int]] = {}

    def __call__(self, w: MetricRequest, entries: Sequence[Entry], engine: Engine, files: Compaction) -> Any:
        """The state over all partitions; they must begin with those of the previous call."""
        state, nights = self._known.get((w.group, w.of), (None, 0))
        if state is None or state.spec != w.spec:  # the states were exact so far, and now there is a histogram
            state, nights = None, 0
        new = merged(w, entries[nights:], engine, files)
        state = state.merge(new) if state else new
        self._known[w.group, w.of] = state, len(entries)
        return state


def columns_kept(entries: Sequence[Entry], configuration: Configuration) -> list[ColumnFiles]:
    """The state files of every column, exact scores apart from histograms.

    Digests are left out: their values depend on the order of merging, which compaction would change.
    """
    found: dict[Any, list[StoredState]] = {}
    for column, spec in configuration.specs([entry.partition for entry in entries]).items():
        for kept in (state for entry in entries if spec.associative and (state := entry.state(*column))):
            found.setdefault(spec_as_kept(spec, kept), []).append(kept)
    return [ColumnFiles(spec, *_files(states)) for spec, states in found.items()]


def spec_as_kept(spec: Any, kept: StoredState) -> Any:
    """The spec of a stored state: the configuration's, or for scores that of the histogram that vacuum made of them.

    Raises
    ------
    FormatError
        If it has the kind of another state.
    """
    if kept.kind == spec.kind:
        return spec
    if kept.kind == HistogramSpec.kind and isinstance(spec, ScoreSpec):
        return histogram_spec(spec)
    if kept.kind == ScoreSpec.kind and isinstance(spec, HistogramSpec):
        return ScoreSpec(**asdict(spec))
    msg = f"{kept.file}: the ledger has it as {kept.kind!r}, not {spec.kind!r}; restore the ledger from a backup"
    raise FormatError(msg)


def _with_absent(
    found: Evaluation, wanted: Sequence[MetricRequest], there: Sequence[MetricRequest], entries: Sequence[Entry]
) -> Evaluation:
    """Insert null results for the columns that some partitions lack."""
    known, results = iter(found.results), list[Scalar]()
    for w in wanted:
        if w in there:
            results += islice(known, len(w.metrics))
            continue
        absent = [entry.partition for entry in entries if entry.rows and not entry.state(w.group, w.of)]
        reason = f"no {w.of} in {len(absent)} of {plural(len(entries), 'partition')} ({few(absent)})"
        results += [replace(Scalar.undefined(metric.name, reason), of=w.of) for metric in w.metrics]
    return replace(found, results=tuple(results))


def evaluated_on_worker(
    workers: Workers,
    entries: Sequence[Entry],
    configuration: Configuration,
    engine: Engine,
    files: Any,
    *,
    only: tuple[str, str] | None = None,
    merge: Any = None,
    **changes: Any,
) -> Evaluation:
    """`streameval.store.nights.merge.evaluated` on one worker, which reads the states from the store.

    Only results are returned; curves read the states in this process on demand. Incremental merges (`merge`) are
    evaluated in this process.
    """
    if merge is not None:
        return evaluated(entries, configuration, engine, files, only=only, merge=merge, **changes)
    one = partial(_one, configuration=configuration, files=files, options={"only": only, **changes})
    found: Evaluation = on_worker(workers, one, entries)
    states: Any = states_of(entries, configuration, engine, files, **changes)
    return replace(
        found, _states=states, _engine=engine, _threshold=configuration.request(**changes).options["aul_threshold"]
    )


def on_worker(workers: Workers, function: Callable[[Any, Engine], Any], item: Any) -> Any:
    """Call ``function(item, engine)`` on one worker, with an engine of that worker."""
    from streameval.engine.cluster import mapped  # imported here because it is slow

    run = {"memory": max(1, workers.memory), "spill": workers.spill, "threads": workers.connection.width}
    return mapped(workers.connection, function, [((), item)], "evaluate", lambda _: None, **run)[0]


def _one(
    entries: Sequence[Entry], engine: Engine, configuration: Configuration, files: Compaction, options: dict[str, Any]
) -> Evaluation:
    """The evaluation that runs on the worker."""
    return evaluated(entries, configuration, engine, files, **options)
