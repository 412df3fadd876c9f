"""Fold partitions of the data into state files and rows of the ledger.

Each partition is folded separately, by the engine that evaluates raw files, and its states are written immediately, so
that memory holds only the states of the partitions that are being folded. Partitions are folded on the threads of this
process, or each as one task on a worker of a Dask client. Such a worker writes the state files to the location of the
store, which all machines must share, and returns the row for the ledger; the client commits. A task that runs twice,
because a worker died, publishes its files twice; vacuum deletes the unreferenced ones. Large partitions that are fewer
than the workers are folded by all of them, and this process writes the files.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from streameval import scan
from streameval.engine.fold import TASK_ROWS
from streameval.errors import (
    ClusterError,
    CorruptFileError,
    DataError,
    MissingColumnError,
    MissingInputError,
    SchemaError,
)
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.files import Files
from streameval.scan.derived import SlicingColumn
from streameval.scan.faults import cause, mending
from streameval.store.files.entries import Entry, Labels, StoredState, gather_facts, missing_scores
from streameval.store.nights.configuration import arrow_type
from streameval.store.nights.merge import finalize_nights
from streameval.store.nights.open_nights import ROW, labels_for, with_units, write_rows
from streameval.store.nights.partitions import fingerprint, is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.fold import Folded
    from streameval.engine.threads import ThreadEngine
    from streameval.evaluation.protocol import MetricRequest
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts
    from streameval.states.late import LateLabels
    from streameval.store.files.published import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.open_nights import OpenNight
    from streameval.store.nights.partitions import Partition

    _Planned = tuple[Partition, scan.Scan]  # a partition and its scan

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Night:
    """A folded partition.

    Attributes
    ----------
    entry : its row of the ledger
    evaluation : its evaluation; None if it has no rows, labels of only one class, or states that are not complete: some
        of them, of more nights, or of every row apart from labelled ones
    """

    entry: Entry
    evaluation: Evaluation | None


def find_types(partitions: Sequence[Partition], configuration: Configuration, engine: ThreadEngine) -> Configuration:
    """The configuration with key types wide enough for all these partitions, except those that cannot be read.

    Raises
    ------
    DataError
        If no partition can be read, or their types cannot be widened to a common one.
    """
    columns = [column for column, _ in configuration.untyped]
    if not columns:
        return configuration
    plan = partial(_scan, configuration, columns=columns, threads=engine.threads)
    try:
        return configuration.typed(plan([file for p in partitions for file in p.files]))
    except DataError:
        good = [p for p in partitions if isinstance(_attempt(partial(plan, list(p.files))), scan.Scan)]
        if len(good) in (0, len(partitions)):
            raise
        return configuration.typed(plan([file for p in good for file in p.files]))


def fold_partitions(
    partitions: Sequence[Partition],
    configuration: Configuration,
    engine: ThreadEngine,
    files: StateFiles,
    workers: ClusterEngine | None = None,
    *,
    skip: bool = False,
    late: LateLabels | None = None,
) -> tuple[dict[str, Night], dict[str, DataError]]:
    """Fold partitions and write their states; a partition that cannot be folded does not stop the others.

    Small partitions are folded in parallel, each by one thread or worker. Large ones are folded one after the other,
    each by all threads, or by all workers if there are fewer partitions than workers.

    Parameters
    ----------
    partitions, configuration : the partitions to fold, and the states to fold them into
    engine, workers : fold in this process, or on a cluster
    files : writes the states
    skip : whether to leave out unreadable files; otherwise their partition cannot be folded
    late : late labels of a store that takes them

    Returns
    -------
    dict of str to Night, dict of str to DataError
        Folded partitions, and the errors of those that cannot be folded, by name.

    Raises
    ------
    ClusterError
        If the workers write to a location that this process does not see.
    """
    plans = {p.name: _attempt(partial(_plan, p, configuration, engine.threads, skip=skip)) for p in partitions}
    due = [(p, planned) for p in partitions if isinstance(planned := plans[p.name], scan.Scan) and planned.pieces]
    rows = [planned.rows for _, planned in due]
    folding, results = Folding(configuration, files, skip, late), list[Night | DataError]()
    few = workers is not None and len(due) < workers.connection.workers
    if workers and few and max(rows, default=0) >= TASK_ROWS * workers.connection.threads:
        results = [folding.fold(one, replace(workers, local=engine, ranges=[])) for one in due]
    elif workers and due:
        engine.progress.begin(sum(rows))
        items = [(planned.pieces, (partition, planned)) for partition, planned in due]
        results = map_on_workers(workers, folding.fold, items, "partition", engine)
        check_written((night.entry for night in results if isinstance(night, Night)), files)
    elif len(due) >= engine.threads and max(rows, default=0) < TASK_ROWS * engine.threads:
        results = engine.each(partial(folding.fold, engine=replace(engine, threads=1)), due)
    else:
        results = [folding.fold(one, engine) for one in due]
    folded = {partition.name: result for (partition, _), result in zip(due, results, strict=True)}
    nights, errors = dict[str, Night](), dict[str, DataError]()
    for partition in partitions:
        name, planned = partition.name, plans[partition.name]
        result = folded.get(name) or planned
        if isinstance(result, DataError):
            errors[name] = result
        elif isinstance(result, Night):
            nights[name] = result
        else:  # no readable rows
            lost = "{}" if result is None else gather_facts((), (), (), result.skipped)
            nights[name] = Night(_entry(partition, configuration.folding.label.empty(), (), lost), None)
    return nights, errors


def _attempt(work: Callable[[], _Result]) -> _Result | DataError:
    """The result of `work`, or its error."""
    try:
        return work()
    except DataError as error:
        return error


def _plan(partition: Partition, configuration: Configuration, threads: int, *, skip: bool) -> scan.Scan | None:
    """Plan the scan of a partition, under its name in the ledger; None if it has no rows.

    Raises
    ------
    DataError
        If the partition cannot be read. With `skip`, unreadable files are left out and listed instead.
    """
    columns, files = configuration.columns, list(partition.files)
    try:
        planned = _scan(configuration, files, columns, threads)
    except MissingInputError as error:
        scan.details(partition.files)  # raises if a file is gone
        if not error.skipped:
            return None
        planned = scan.Scan(pa.schema([]), (), 0, 0, error.skipped)
    if planned.skipped and not skip:
        raise _unreadable_error(planned.skipped)
    name = partition.name  # also numbers the rows: every night is folded without knowing those before it
    pieces = tuple(replace(piece, partition=name, origin=name) for piece in planned.pieces)
    planned = replace(planned, pieces=pieces)
    for column in configuration.statements.further:
        if column in planned.schema.names:
            raise SchemaError(
                f"{name}: it has a column {column!r}, which arrives late in this store (--labels): leave it out, or "
                "create another store"
            )
    return configuration.widen_columns(planned) if pieces else planned


def _scan(configuration: Configuration, files: Sequence[scan.File], columns: Sequence[str], threads: int) -> scan.Scan:
    """Plan a scan; if classes or units are missing where labels arrive late, the error says how these may, too."""
    try:
        return scan.plan(files, columns, threads=threads, on_error="skip")
    except MissingColumnError as error:
        named = (configuration.options[name] for name in ("classes", "unit"))
        if configuration.late is None or configuration.design or error.column not in named:
            raise
        late = "to let it arrive late, name a table that has it in the first update (--labels)"
        raise MissingColumnError(f"{error}; {late}", error.column, error.similar) from None


def _unreadable_error(files: Sequence[tuple[str, str]]) -> CorruptFileError:
    """The error for unreadable files."""
    whys = {name: why if "cannot be read" in why else f"cannot be read: {why.removesuffix('.')}" for name, why in files}
    listed = "; ".join(f"{name}: {cause(why)}" for name, why in whys.items())
    them = "it" if len(files) == 1 else "them"
    foreign = all("not Parquet;" in why for why in whys.values())  # these say what reads them
    remedy = "" if foreign else f"; {mending(' '.join(whys.values()), them)}"
    msg = f"{listed}{remedy}; on_error='skip' (--on-error skip) leaves {them} out"
    return CorruptFileError(msg)


def map_on_workers(
    workers: ClusterEngine,
    function: Callable[[_Item, Engine], _Result],
    items: Sequence[tuple[Sequence[scan.Piece], _Item]],
    name: str,
    engine: Engine,
) -> list[_Result]:
    """Map a function over nights on workers, with the pieces that it reads; few nights use several threads each."""
    from streameval.engine.graphs import map_items

    connection, count = workers.connection, max(1, len(items))
    at_once = min(connection.width, -(-count // connection.workers))
    threads = min(connection.width, max(1, connection.threads // count))
    options = {"memory": max(1, workers.limit // at_once), "spill": workers.spill, "threads": threads}
    return map_items(connection, function, items, name, engine.progress, **options)


def check_written(entries: Iterable[Entry], files: StateFiles) -> None:
    """Raise `ClusterError` if this process does not see files that workers wrote."""
    absent, store = files.absent([state.file for entry in entries for state in entry.states]), files.location.name
    if absent:
        raise ClusterError(
            f"{store}: what the workers wrote is not there ({absent[0]}); a store on a cluster must be "
            "in a location that all workers and this process share"
        )


@dataclass(frozen=True)
class Folding:
    """The common parameters of folding partitions.

    Attributes
    ----------
    configuration : configuration of the store
    files : writes the states
    skip : whether to leave out unreadable files; otherwise their partition cannot be folded
    late : late labels of a store that takes them
    changed : the further columns that arrive late with new statements; None for all
    """

    configuration: Configuration
    files: StateFiles
    skip: bool
    late: LateLabels | None = None
    changed: Collection[str] | None = None

    def fold(self, due: _Planned, engine: Engine) -> Night | DataError:
        """Fold one partition, write its states, and compute its metrics; or the reason why it cannot be folded.

        If a file turns out to be damaged, the partition is read again to find all damaged files, which are left out or
        listed.
        """
        partition, planned = due
        result = _attempt(lambda: self._fold(partition, planned, engine, skip=bool(planned.skipped)))
        if isinstance(result, CorruptFileError):
            result = _attempt(lambda: self._fold(partition, planned, engine, skip=True))
            if isinstance(result, Night) and result.entry.left_out and not self.skip:
                self.files.delete(state.file for state in result.entry.states)
                return _unreadable_error(result.entry.left_out)
        return result

    def _fold(self, partition: Partition, planned: scan.Scan, engine: Engine, *, skip: bool) -> Night:
        """Fold a partition; damaged files are left out, or raise `DataError`."""
        configuration, request = self.configuration, self.configuration.folding
        kept, folded = self._states(planned, engine, skip=skip)
        if not is_same(fingerprint(partition.files)[0], partition.fingerprint):
            raise DataError(
                f"{partition.name}: its files changed while they were read, so it was not added; run the update again"
            )
        written = self._write_states(kept, folded, engine)
        if self.late is not None:
            lost = dict(folded.skipped)
            written = (*written, *write_rows(planned, request, self.late, self.files, engine.budget, lost))
        pairs = [(w, folded.states[w.spec]) for w in kept if w.metrics or w.group in FAMILIES]
        columns, filtered = planned.schema.names, request.where is not None
        facts = gather_facts(partition.files, columns, pairs, folded.skipped, filtered=filtered)
        entry = _entry(partition, folded.labels(request.label), written, facts)
        whole = configuration.due is None and not any(w.of_store or w.part == "rows" for w in kept)
        evaluation = _evaluation(partition.name, configuration, engine, folded) if whole else None
        return Night(entry, evaluation)

    def _states(
        self, planned: scan.Scan, engine: Engine, *, skip: bool = False, numbers: str | None = None
    ) -> tuple[list[MetricRequest], Folded]:
        """The states to keep, and all that are folded; labels are joined unless rows have numbers, and labels."""
        request, kept = self.configuration.folding, self.configuration.folded
        name = planned.pieces[0].name
        request.slicing.check(planned.schema, name)
        files = Files.of(engine, planned, request.label, request.where, skip=skip, empty=True)
        files = files.folding(kept, request=request)
        late = labels_for(self.late, planned.schema, name) if self.late is not None and numbers is None else None
        files = replace(files, plan=replace(files.plan, late=late, numbers=numbers))
        return kept, files.fold()

    def _write_states(self, kept: Sequence[MetricRequest], folded: Folded, engine: Engine) -> tuple[StoredState, ...]:
        """The files of states."""
        names = [self.files.write(folded.states[w.spec], engine.dump) for w in kept]
        return tuple(StoredState(w.group, w.of, w.spec.kind, *name) for w, name in zip(kept, names, strict=True))

    def only(self, entry: Entry, due: frozenset[tuple[str, str]]) -> Folding:
        """What folds those of the states that are due which a night has."""
        own = {(state.group, state.of) for state in entry.states}
        return replace(self, configuration=self.configuration.only(due & own))

    def fold_rows(self, night: OpenNight, engine: Engine, *, every: bool) -> tuple[list[MetricRequest], Folded]:
        """The states to keep, and all that are folded, of the rows of an open night: the labelled ones, or every one.

        Raises
        ------
        DataError
            If its rows cannot be read, or their labels are refused.
        """
        configuration, name = self.configuration, night.entry.partition
        columns = configuration.columns
        stored = [*columns, *configuration.slicing.sources]
        table = night.labelled_rows(cast("LateLabels", self.late), stored, every=every)
        for unit in configuration.folding.resampling.blocks.columns:
            table = with_units(table, unit, arrow_type(configuration.types[unit]))
        columns = [name for name in columns if name in table.column_names or isinstance(name, SlicingColumn)]
        planned = scan.plan(table, [*columns, ROW], threads=1)
        pieces = tuple(replace(piece, partition=name, origin=name, name=name) for piece in planned.pieces)
        return self._states(configuration.widen_columns(replace(planned, pieces=pieces)), engine, numbers=ROW)

    def relabel(self, night: OpenNight, engine: Engine) -> Entry:
        """Fold an open night anew from its rows into the states that depend on labels; raises as `fold_rows`."""
        entry = night.entry
        configuration, new, nulls = self.configuration, dict[tuple[str, str], StoredState](), dict[str, int]()
        for every, due in enumerate(dependent_states(configuration, self.changed)):
            folding = self.only(entry, due)
            if folding.configuration.due or not every:
                kept, folded = folding.fold_rows(night, engine, every=bool(every))
                new |= {(state.group, state.of): state for state in self._write_states(kept, folded, engine)}
                nulls |= missing_scores((w, folded.states[w.spec]) for w in kept)
                label = folded.labels(configuration.folding.label)
        states = tuple(new.get((state.group, state.of), state) for state in entry.states)
        rest = entry.rows - label.neg - label.pos - entry.labels.incomplete
        labels = _labels(label)._replace(null=rest, incomplete=entry.labels.incomplete)
        noted = entry.noted | {"folded": entry.folded}
        facts = json.dumps(noted | {"nulls": noted.get("nulls", {}) | nulls})
        return replace(entry, labels=labels, states=states, updated=datetime.now(UTC), facts=facts)


def dependent_states(
    configuration: Configuration, changed: Collection[str] | None = None
) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """The states that depend on labels: those of labelled rows, and those that count the other rows as well.

    The latter also depend on further columns that arrive late, if these have changed.
    """
    specs = configuration.specs
    late = {*configuration.statements.further} if changed is None else {*changed}
    some = frozenset(key for key, spec in specs.items() if not spec.traits.unlabelled)
    rest = specs.keys() - some
    every = frozenset(key for key in rest if not specs[key].traits.ignores_labels or late & {*specs[key].columns})
    return some, every


def _evaluation(name: str, configuration: Configuration, engine: Engine, folded: Folded) -> Evaluation | None:
    """The metrics of one partition; None if it has no rows, or its labels do not have both classes."""
    wanted = [w for w in configuration.wanted(configuration.request()) if w.spec in folded.states]
    states = {w.spec: folded.states[w.spec] for w in configuration.kept(wanted) if w.spec in folded.states}
    label = configuration.folding.label
    states[label] = folded.states[label]
    try:
        result = finalize_nights(engine, [name], configuration.request(), label, wanted, states)
    except DataError:
        return None
    return copy(result)  # as pickled: without the states, whose memory the next partition needs


def _entry(partition: Partition, counts: LabelCounts, states: tuple[StoredState, ...], facts: str = "{}") -> Entry:
    """The row of a partition in the ledger."""
    source = partition.name, partition.root, partition.fingerprint, len(partition.files), partition.bytes
    return Entry(*source, counts.seen, _labels(counts), states, datetime.now(UTC), facts)


def _labels(counts: LabelCounts) -> Labels:
    """The labels of a partition for the ledger."""
    values = json.dumps(counts.header()["values"])
    return Labels(counts.spec.column or "", values, counts.neg, counts.pos, counts.null, counts.incomplete)
