"""Folding: partitions of the data → state files and entries of the ledger; and back, states → an evaluation.

Each partition is folded on its own, by the engine that evaluates raw files, and its states are written at once, so that
memory holds the states of as many partitions as there are threads, whatever their number. Evaluating merges the states
of any partitions and finalizes them exactly as if the files had been read: the numbers are the same to the last bit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import DataError, FormatError, MissingInputError
from streameval.fold import TASK_ROWS, Folded, Plan
from streameval.outcome import Evaluation, conclude
from streameval.results import Scalar
from streameval.states.bounded import bounded, bounded_spec
from streameval.states.histogram import HistogramSpec
from streameval.states.memory import Budget
from streameval.states.scores import ScoreSpec
from streameval.store.ledger import Entry, Kept
from streameval.store.partitions import fingerprint
from streameval.store.remembered import Later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.request import Wanted
    from streameval.states.labels import LabelCounts, LabelSpec
    from streameval.store.configuration import Configuration
    from streameval.store.files import StateFiles
    from streameval.store.partitions import Partition
    from streameval.store.runs import Runs

__all__ = ["Night", "evaluated", "fold_partitions", "labels_of", "merged", "states_of", "typed"]


@dataclass(frozen=True)
class Night:
    """A partition that was folded.

    Attributes
    ----------
    entry : what the ledger will say
    evaluation : its own metrics; None where they do not exist, as of a partition without rows
    """

    entry: Entry
    evaluation: Evaluation | None


def typed(partitions: Sequence[Partition], configuration: Configuration, engine: Engine) -> Configuration:
    """The configuration with the key types that hold the values of all these partitions."""
    files = [file for partition in partitions for file in partition.files]
    return configuration.typed(scan.plan(files, configuration.folding.columns, threads=engine.threads))


def fold_partitions(
    partitions: Sequence[Partition], configuration: Configuration, engine: Engine, files: StateFiles
) -> list[Night]:
    """Fold partitions and write their states.

    Small partitions are folded side by side, one a thread; large ones one after the other, each on all threads.

    Raises
    ------
    DataError
        If one of them cannot be evaluated; the message names the file. Nothing counts until the ledger says so.
    """
    request = configuration.folding
    plans = {p.name: _plan(p, configuration, engine.threads) for p in partitions}
    rows = max((found.rows for found in plans.values() if found), default=0)
    side_by_side = len(partitions) >= engine.threads and rows < TASK_ROWS * engine.threads
    inner = replace(engine, threads=1) if side_by_side else engine

    def one(partition: Partition) -> Night:
        found = plans[partition.name]
        if found is None:
            return Night(_entry(partition, Folded({request.label: request.label.empty()}), request.label, ()), None)
        wanted = request.wanted(found)
        plan = Plan(found.schema, request.label, request.weight, tuple({w.spec: None for w in wanted}))
        folded = inner.read(found.pieces, found.rows, plan)
        _refuse_changed(partition)
        kept = tuple(Kept(w.group, w.of, w.spec.kind, *files.write(folded.states[w.spec])) for w in wanted)
        entry = _entry(partition, folded, request.label, kept)
        return Night(entry, _own(inner, partition.name, plan, configuration, folded))

    return engine.each(one, list(partitions), "partition") if side_by_side else [one(p) for p in partitions]


def _plan(partition: Partition, configuration: Configuration, threads: int) -> scan.Scan | None:
    """The scan of a partition, named as the ledger names it; None if it has no rows."""
    try:
        found = scan.plan(list(partition.files), configuration.folding.columns, threads=threads)
    except MissingInputError:
        scan.details(partition.files)  # raises where a file is not there any more
        return None
    pieces = tuple(replace(piece, partition=partition.name) for piece in found.pieces)
    return configuration.conformed(replace(found, pieces=pieces))


def _refuse_changed(partition: Partition) -> None:
    """Raise if the files changed while they were read."""
    if fingerprint(partition.files)[0] != partition.fingerprint:
        msg = f"{partition.name}: its files changed while they were read; nothing of this update counts: run it again"
        raise DataError(msg)


def _entry(partition: Partition, folded: Folded, label: LabelSpec, kept: tuple[Kept, ...]) -> Entry:
    """The ledger's row of a partition."""
    labels: LabelCounts = folded.states[label]
    return Entry(
        partition.name,
        partition.root,
        partition.fingerprint,
        len(partition.files),
        partition.bytes,
        labels.neg + labels.pos + labels.null,
        json.dumps(labels.header(), sort_keys=True),
        kept,
        datetime.now(UTC),
    )


def _own(engine: Engine, name: str, plan: Plan, configuration: Configuration, folded: Folded) -> Evaluation | None:
    """The metrics of one partition alone."""
    wanted = configuration.wanted([name])
    states = {w.spec: folded.states[w.spec] for w in wanted} | {plan.label: folded.states[plan.label]}
    try:
        return conclude(engine, [name], plan, wanted, Folded(states))
    except DataError:
        return None  # its labels alone are no two classes, or it has no rows: what counts is the whole


def labels_of(entries: Sequence[Entry], spec: LabelSpec) -> LabelCounts:
    """The labels of several partitions."""
    try:
        headers = json.loads(f"[{','.join(entry.labels for entry in entries)}]")
        found = [spec.from_arrow(header, (), Budget(1)) for header in headers]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"the labels in the ledger are damaged ({error}); restore the ledger from a copy"
        raise FormatError(msg) from error
    return reduce(type(spec.empty()).merge, found, spec.empty())


def evaluated(
    entries: Sequence[Entry],
    configuration: Configuration,
    engine: Engine,
    files: StateFiles | Runs,
    *,
    only: tuple[str, str] | None = None,
    **changes: Any,
) -> Evaluation:
    """Evaluate partitions by merging their states.

    Parameters
    ----------
    entries : the partitions, at least one
    only : the one state to evaluate, by its group and column
    changes : metrics and their options, where they are not the store's own
    """
    names = [entry.partition for entry in entries]
    wanted = [w for w in configuration.wanted(names, **changes) if only in (None, (w.group, w.of))]
    request = configuration.request(**changes)
    complete = [all(entry.state(w.group, w.of) for entry in entries if entry.rows) for w in wanted]
    wanted = [_as_kept(w, entries) for w in wanted]
    whole = [w for w, there in zip(wanted, complete, strict=True) if there]
    states: dict[Any, Any] = {request.label: labels_of(entries, request.label)}
    for w in whole:
        states[w.spec] = merged(w, entries, engine, files)
    engine.budget.settle()
    plan = Plan(None, request.label, request.weight, tuple(w.spec for w in whole))
    found = conclude(engine, names, plan, whole, Folded(states))
    return found if len(whole) == len(wanted) else _with_absent(found, wanted, whole, entries)


def states_of(
    entries: Sequence[Entry], configuration: Configuration, engine: Engine, files: Runs, **changes: Any
) -> Later:
    """The states that an evaluation of these partitions would have, each read when it is asked for."""
    wanted = [_as_kept(w, entries) for w in configuration.wanted([e.partition for e in entries], **changes)]
    whole = [w for w in wanted if all(entry.state(w.group, w.of) for entry in entries if entry.rows)]
    return Later({(w.group, w.of): partial(merged, w, entries, engine, files) for w in whole})


def _as_kept(w: Wanted, entries: Sequence[Entry]) -> Wanted:
    """The state to be had: a histogram where a partition has no exact scores any more."""
    kinds = {kept.kind for entry in entries if (kept := entry.state(w.group, w.of))}
    return w.remade(bounded_spec(w.spec), w.metrics) if kinds - {w.spec.kind} == {HistogramSpec.kind} else w


def merged(w: Wanted, entries: Sequence[Entry], engine: Engine, files: StateFiles | Runs) -> Any:
    """The state of a column over all partitions."""
    kept = [state for entry in entries if (state := entry.state(w.group, w.of))]
    same = [state.file for state in kept if state.kind == w.spec.kind]
    parts = files.read_all(same, engine.budget, w.spec, engine.each)
    exact = [state.file for state in kept if state.kind != w.spec.kind]
    if exact:
        spec = ScoreSpec(**asdict(w.spec))
        parts += engine.each(lambda name: bounded(files.read(name, engine.budget, spec)), exact, "bounded")
    return reduce(lambda a, b: a.merge(b), parts, w.spec.empty())


def _with_absent(
    found: Evaluation, wanted: Sequence[Wanted], whole: Sequence[Wanted], entries: Sequence[Entry]
) -> Evaluation:
    """The evaluation with null results of the columns that some partitions do not have."""
    known, results = iter(found.results), list[Scalar]()
    for w in wanted:
        if w in whole:
            results += islice(known, len(w.metrics))
            continue
        absent = [entry.partition for entry in entries if entry.rows and not entry.state(w.group, w.of)]
        some = ", ".join(absent[:3]) + ", …" * (len(absent) > 3)
        reason = f"no {w.of} in {len(absent)} of {len(entries)} partitions ({some})"
        results += [replace(Scalar.undefined(metric.name, reason), of=w.of) for metric in w.metrics]
    return replace(found, results=tuple(results))
