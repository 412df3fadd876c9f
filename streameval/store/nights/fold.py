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
import sys
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from streameval import scan
from streameval.budget import parse_bytes
from streameval.engine.fold import TASK_ROWS, Folded, Plan
from streameval.errors import ClusterError, CorruptFileError, DataError, MissingInputError
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.families import planned as planned_metrics
from streameval.scan.faults import cause, mending
from streameval.store.files.entries import Entry, StoredState, gather_facts
from streameval.store.nights.merge import finalize_nights
from streameval.store.nights.partitions import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster.connection import Connection
    from streameval.engine.threads import ThreadEngine
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts
    from streameval.store.files.published import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition

    _Planned = tuple[Partition, scan.Scan]  # a partition and its scan

SMALL = 1 << 17  # rows that one thread folds in less time than importing Dask takes

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Night:
    """A folded partition.

    Attributes
    ----------
    entry : its row of the ledger
    evaluation : its evaluation; None if it has no rows, or labels of only one class
    """

    entry: Entry
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Bad:
    """A partition that cannot be folded.

    Attributes
    ----------
    partition : name of the partition
    error : the reason
    files : (file, reason) of unreadable files
    """

    partition: str
    error: DataError
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Workers:
    """The workers of a Dask client.

    Attributes
    ----------
    connection : Connection
    memory : bytes for the partitions that a worker folds
    spill : directory on its machine for data beyond that
    limited : whether the user set the memory
    """

    connection: Connection
    memory: int
    spill: Any
    limited: bool = False

    @classmethod
    def of(
        cls, client: Any, scheduler_timeout: float, *, threads: int | None, memory: int | str | None, spill: Any
    ) -> Workers | None:
        """The workers of a client, of the scheduler at an address, or of the active client; None without any.

        Raises
        ------
        OptionError, ClusterError
            As `streameval.engine.cluster.connect`.
        """
        if client is None and (threads is not None or "distributed" not in sys.modules):
            return None
        from streameval.engine.cluster import connect  # imported here because it is slow

        connection = connect(client, threads, scheduler_timeout)
        if connection is None:
            return None
        limit = connection.memory // 4 if memory is None else parse_bytes(memory)
        return cls(connection, limit, None if spill is None else str(spill), memory is not None)

    def share(self, rows: Sequence[int]) -> bool:
        """Whether all workers together should fold each partition, because few are large; `rows` are their rows."""
        most = max(rows, default=0)
        return len(rows) < self.connection.workers and most >= TASK_ROWS * self.connection.threads

    def engine(self, local: ThreadEngine) -> Engine:
        """The engine that folds a partition on all workers."""
        from streameval.engine.cluster import ClusterEngine

        return ClusterEngine(self.connection, local, self.memory, self.spill, self.limited)


def typed(partitions: Sequence[Partition], configuration: Configuration, engine: ThreadEngine) -> Configuration:
    """The configuration with key types wide enough for all these partitions, except those that cannot be read.

    Raises
    ------
    DataError
        If no partition can be read, or their types cannot be widened to a common one.
    """
    plan = partial(scan.plan, columns=configuration.typed_columns, on_error="skip", threads=engine.threads)
    try:
        return configuration.typed(plan([file for p in partitions for file in p.files]))
    except DataError:
        good = [p for p in partitions if isinstance(_tried(p, partial(plan, list(p.files))), scan.Scan)]
        if len(good) in (0, len(partitions)):
            raise
        return configuration.typed(plan([file for p in good for file in p.files]))


def fold_partitions(
    partitions: Sequence[Partition],
    configuration: Configuration,
    engine: ThreadEngine,
    files: StateFiles,
    workers: Workers | None = None,
    *,
    skip: bool = False,
) -> tuple[list[Night], list[Bad]]:
    """Fold partitions and write their states; a partition that cannot be folded does not stop the others.

    Small partitions are folded in parallel, each by one thread or worker. Large ones are folded one after the other,
    each by all threads, or by all workers if there are fewer partitions than workers.

    Parameters
    ----------
    partitions, configuration : the partitions to fold, and the states to fold them into
    engine, workers : fold in this process, or on a cluster
    files : writes the states
    skip : whether to leave out unreadable files; otherwise their partition is bad

    Returns
    -------
    list of Night, list of Bad
        Folded partitions, and those that cannot be folded.

    Raises
    ------
    ClusterError
        If the workers write to a location that this process does not see.
    """
    plans = {p.name: _tried(p, partial(_plan, p, configuration, engine.threads, skip=skip)) for p in partitions}
    full = [(p, found) for p in partitions if isinstance(found := plans[p.name], scan.Scan) and found.pieces]
    rows, alone = [found.rows for _, found in full], replace(engine, threads=1)
    folding, nights = _Folding(configuration, files, skip), list[Night | Bad]()
    if workers and workers.share(rows):
        nights = [folding.fold(one, workers.engine(engine)) for one in full]
    elif workers and full:
        engine.begin(sum(rows))
        nights = _on_workers(workers, full, folding, engine)
    elif sum(rows) < SMALL:
        nights = [folding.fold(one, alone) for one in full]
    elif len(full) >= engine.threads and max(rows, default=0) < TASK_ROWS * engine.threads:
        nights = engine.each(partial(folding.fold, engine=alone), full, "partition")
    else:
        nights = [folding.fold(one, engine) for one in full]
    folded = {(found.partition if isinstance(found, Bad) else found.entry.partition): found for found in nights}
    every = [folded.get(p.name) or _empty(p, plans[p.name], configuration) for p in partitions]
    good = [found for found in every if isinstance(found, Night)]
    return good, [found for found in every if isinstance(found, Bad)]


def _tried(partition: Partition, work: Callable[[], _Made]) -> _Made | Bad:
    """The result of `work` on a partition, or the reason why it failed."""
    try:
        return work()
    except DataError as error:
        return Bad(partition.name, error)


def _empty(partition: Partition, planned: Any, configuration: Configuration) -> Night | Bad:
    """The night of a partition without readable rows, or the reason why it is bad."""
    if isinstance(planned, Bad):
        return planned
    facts = "{}" if planned is None else gather_facts((), (), (), planned.skipped)
    return Night(_entry(partition, configuration.folding.label.empty(), (), facts), None)


def _plan(partition: Partition, configuration: Configuration, threads: int, *, skip: bool) -> scan.Scan | Bad | None:
    """Plan the scan of a partition, under its name in the ledger; None if it has no rows.

    With `skip`, the scan leaves out unreadable files and lists them; otherwise the partition is bad.
    """
    columns, files = configuration.folding.columns, list(partition.files)
    try:
        found = scan.plan(files, columns, threads=threads, on_error="skip")
    except MissingInputError:
        scan.details(partition.files)  # raises if a file is gone
        lost = [(file.name, _unreadable(file, columns)) for file in files]
        skipped = tuple((name, why) for name, why in lost if why)
        if not skipped:
            return None
        found = scan.Scan(pa.schema([]), (), 0, 0, skipped)
    if found.skipped and not skip:
        return Bad(partition.name, _lost(found.skipped), found.skipped)
    name = partition.name  # also numbers the rows: every night is folded without knowing those before it
    pieces = tuple(replace(piece, partition=name, origin=name) for piece in found.pieces)
    found = replace(found, pieces=pieces)
    return configuration.conformed(found) if pieces else found


def _unreadable(file: scan.File, columns: Sequence[str]) -> str:
    """The reason why a file cannot be read; empty if it can."""
    try:
        scan.plan([file], columns)
    except CorruptFileError as error:
        said = error.__cause__ or error
        return scan.reason(said).removeprefix(f"{file.name}: ")
    except MissingInputError:
        pass
    return ""


def _lost(files: Sequence[tuple[str, str]]) -> CorruptFileError:
    """The error for unreadable files."""
    whys = {name: why if "cannot be read" in why else f"cannot be read: {why}" for name, why in files}
    listed = "; ".join(f"{name}: {cause(why)}" for name, why in whys.items())
    them = "it" if len(files) == 1 else "them"
    msg = f"{listed}; {mending(' '.join(whys.values()), them)}; on_error='skip' (--on-error skip) leaves {them} out"
    return CorruptFileError(msg)


def _on_workers(
    workers: Workers, planned: Sequence[_Planned], folding: _Folding, engine: ThreadEngine
) -> list[Night | Bad]:
    """Fold each partition on a worker; with few partitions, each uses several threads."""
    from streameval.engine.cluster import mapped

    connection, count = workers.connection, len(planned)
    at_once = min(connection.width, -(-count // connection.workers))
    threads = min(connection.width, max(1, connection.threads // count))
    options = {"memory": max(1, workers.memory // at_once), "spill": workers.spill, "threads": threads}
    items = [(found.pieces, (partition, found)) for partition, found in planned]
    nights: list[Night | Bad] = mapped(connection, folding.fold, items, "partition", engine.progress, **options)
    written = [kept.file for night in nights if isinstance(night, Night) for kept in night.entry.states]
    absent, store = folding.files.absent(written), folding.files.location.name
    if absent:
        msg = (
            f"{store}: what the workers wrote is not there ({absent[0]}); a store on a cluster must be "
            "in a location that all workers and this process share"
        )
        raise ClusterError(msg)
    return nights


@dataclass(frozen=True)
class _Folding:
    """The common parameters of folding partitions.

    Attributes
    ----------
    configuration : configuration of the store
    files : writes the states
    skip : whether to leave out unreadable files; otherwise their partition is bad
    """

    configuration: Configuration
    files: StateFiles
    skip: bool

    def fold(self, planned: _Planned, engine: Engine) -> Night | Bad:
        """Fold one partition, write its states, and compute its metrics.

        If a file turns out to be damaged, the partition is read again to find all damaged files, which are left out or
        listed.
        """
        partition, found = planned
        try:
            return self._folded(partition, found, engine, skip=bool(found.skipped))
        except CorruptFileError:
            pass
        except DataError as error:
            return Bad(partition.name, error)
        return _tried(partition, lambda: self._sifted(partition, found, engine))

    def _sifted(self, partition: Partition, found: scan.Scan, engine: Engine) -> Night | Bad:
        """Fold the readable files of a partition; the partition is bad if others may not be left out."""
        night = self._folded(partition, found, engine, skip=True)
        if self.skip or not night.entry.left_out:
            return night
        self.files.delete(kept.file for kept in night.entry.states)
        return Bad(partition.name, _lost(night.entry.left_out), tuple(night.entry.left_out))

    def _folded(self, partition: Partition, found: scan.Scan, engine: Engine, *, skip: bool) -> Night:
        """Fold a partition; damaged files are left out, or raise `DataError`."""
        configuration = self.configuration
        request = configuration.folding
        request.slicing.check(found.schema, found.pieces[0].name)
        where = None if request.where is None else request.where.bound(found.schema, found.pieces[0].name)
        asked = planned_metrics(request, found)
        kept = [
            w
            for w in (*configuration.kept(asked), *configuration.sliced(asked), *configuration.sliced_blocks(asked))
            if configuration.due is None or (w.group, w.of) in configuration.due
        ]
        wanted = [w for w in kept if w.metrics or w.group in FAMILIES]
        specs = tuple({w.spec: None for w in kept})
        label, derived = request.label, request.slicing.derived(found.schema)
        plan = Plan(found.schema, label, request.weight, specs, skip, where=where, derived=derived)
        needed = _pruned(found, where)
        folded = engine.read(needed.pieces, needed.rows, plan)
        if fingerprint(partition.files)[0] != partition.fingerprint:
            msg = f"{partition.name}: its files changed while they were read, so it was not added; run the update again"
            raise DataError(msg)
        files = [self.files.write(folded.states[w.spec], engine.dump) for w in kept]
        written = tuple(StoredState(w.group, w.of, w.spec.kind, *file) for w, file in zip(kept, files, strict=True))
        evaluation = _evaluation(partition.name, configuration, engine, folded)
        pairs = [(w, folded.states[w.spec]) for w in wanted]
        left_out = (*found.skipped, *folded.skipped)
        facts = gather_facts(partition.files, found.schema.names, pairs, left_out, filtered=where is not None)
        return Night(_entry(partition, folded.states[label], written, facts), evaluation)


def _pruned(found: scan.Scan, where: scan.Test | None) -> scan.Scan:
    """The pieces that may hold rows to fold; if none does, all pieces, so that an empty night is kept."""
    try:
        return found if where is None else scan.prune(found, where)[0]
    except MissingInputError:
        return found


def _evaluation(name: str, configuration: Configuration, engine: Engine, folded: Folded) -> Evaluation | None:
    """The metrics of one partition; None if it has no rows, or its labels do not have both classes."""
    wanted = [w for w in configuration.wanted([name]) if w.spec in folded.states]
    states = {w.spec: folded.states[w.spec] for w in configuration.kept(wanted) if w.spec in folded.states}
    label = configuration.folding.label
    states[label] = folded.states[label]
    try:
        result = finalize_nights(engine, [name], configuration.request(), label, wanted, states)
    except DataError:
        return None
    return copy(result)  # as pickled: without the states, whose memory the next partition needs


def _entry(partition: Partition, labels: LabelCounts, kept: tuple[StoredState, ...], facts: str = "{}") -> Entry:
    """The row of a partition in the ledger."""
    return Entry(
        partition.name,
        partition.root,
        partition.fingerprint,
        len(partition.files),
        partition.bytes,
        labels.seen,
        json.dumps(labels.header(), sort_keys=True),
        kept,
        datetime.now(UTC),
        facts,
    )
