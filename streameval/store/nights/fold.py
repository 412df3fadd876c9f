"""Folding: partitions of the data → state files and rows of the ledger.

Each partition is folded on its own, by the engine that evaluates raw files, and its states are written at once: memory
holds the states of as many partitions as are folded in parallel, whatever their number. Partitions are folded on the
threads of this process, or each as one task on a worker of a Dask client. A worker writes the state files to the
location of the store, which every machine must see, and returns the row for the ledger; the commit is the client's. A
task that runs twice, because a worker died, publishes its files twice; vacuum removes the spare ones.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.budget import parse_bytes
from streameval.engine.fold import TASK_ROWS, Folded, Plan
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError, DataError, MissingInputError
from streameval.evaluation.conclude import finalize_all
from streameval.evaluation.families import planned as planned_metrics
from streameval.store.files.ledger import Entry, StoredState
from streameval.store.nights.facts import gathered
from streameval.store.nights.partitions import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster.connection import Connection
    from streameval.evaluation.result import Evaluation
    from streameval.states.labels import LabelCounts
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition

__all__ = ["Night", "Workers", "fold_partitions", "typed"]


@dataclass(frozen=True)
class Night:
    """A folded partition.

    Attributes
    ----------
    entry : its row of the ledger
    evaluation : its own metrics; None if they are not defined, for instance without rows
    """

    entry: Entry
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Workers:
    """The workers of a Dask client.

    Attributes
    ----------
    connection : Connection
    memory : bytes that a worker gives to the partitions it folds
    spill : directory on its machine for what exceeds them
    """

    connection: Connection
    memory: int
    spill: Any

    @classmethod
    def of(
        cls, client: Any, scheduler_timeout: float, *, threads: int | None, memory: int | str | None, spill: Any
    ) -> Workers | None:
        """The workers of a client, of the scheduler at an address, or of the active client; None to fold here.

        Raises
        ------
        OptionError, ClusterError
            As `streameval.engine.cluster.connect`.
        """
        if client is None and (threads is not None or "distributed" not in sys.modules):
            return None
        from streameval.engine.cluster import connect  # here, because a cluster takes long to import

        connection = connect(client, threads, scheduler_timeout)
        if connection is None:
            return None
        limit = connection.memory // 4 if memory is None else parse_bytes(memory)
        return cls(connection, limit, None if spill is None else str(spill))


def typed(partitions: Sequence[Partition], configuration: Configuration, engine: ThreadEngine) -> Configuration:
    """The configuration with key types that hold the values of all these partitions."""
    files = [file for partition in partitions for file in partition.files]
    return configuration.typed(scan.plan(files, configuration.folding.columns, threads=engine.threads))


def fold_partitions(
    partitions: Sequence[Partition],
    configuration: Configuration,
    engine: ThreadEngine,
    files: StateFiles,
    workers: Workers | None = None,
) -> list[Night]:
    """Fold partitions and write their states.

    In this process, small partitions are folded in parallel, one on each thread, and large ones one after the other,
    each on all threads.

    Raises
    ------
    DataError
        If one of them cannot be evaluated; the message names the file. Nothing counts until the ledger is committed.
    ClusterError
        If the workers write where this process does not look.
    """
    plans = {p.name: _plan(p, configuration, engine.threads) for p in partitions}
    full = [(p, found) for p in partitions if (found := plans[p.name])]
    rows = [found.rows for _, found in full]
    if workers and full:
        engine.begin(sum(rows))
        nights = _on_workers(workers, full, configuration, engine, files)
    elif len(full) >= engine.threads and max(rows, default=0) < TASK_ROWS * engine.threads:
        alone = replace(engine, threads=1)
        nights = engine.each(lambda one: _fold(one, configuration, alone, files), full, "partition")
    else:
        nights = [_fold(one, configuration, engine, files) for one in full]
    folded = {night.entry.partition: night for night in nights}
    label = configuration.folding.label
    return [folded.get(p.name) or Night(_entry(p, label.empty(), ()), None) for p in partitions]


def _plan(partition: Partition, configuration: Configuration, threads: int) -> scan.Scan | None:
    """The scan of a partition, under its name in the ledger; None if it has no rows."""
    try:
        found = scan.plan(list(partition.files), configuration.folding.columns, threads=threads)
    except MissingInputError:
        scan.details(partition.files)  # raises if a file is gone
        return None
    pieces = tuple(replace(piece, partition=partition.name) for piece in found.pieces)
    return configuration.conformed(replace(found, pieces=pieces))


def _on_workers(
    workers: Workers,
    planned: Sequence[tuple[Partition, scan.Scan]],
    configuration: Configuration,
    engine: ThreadEngine,
    files: StateFiles,
) -> list[Night]:
    """Fold each partition on a worker; if they are few, each uses several threads."""
    from streameval.engine.cluster import mapped

    connection, count = workers.connection, len(planned)
    at_once = min(connection.width, -(-count // connection.workers))
    threads = min(connection.width, max(1, connection.threads // count))
    options = {"memory": max(1, workers.memory // at_once), "spill": workers.spill, "threads": threads}
    task = partial(_fold_on_worker, configuration=configuration, files=files, options=options)
    items = [(found.pieces, (partition, found)) for partition, found in planned]
    nights: list[Night] = mapped(connection, task, items, "partition", engine.progress)
    absent = files.absent([kept.file for night in nights for kept in night.entry.states])
    if absent:
        msg = (
            f"{files.location.name}: what the workers wrote is not there ({absent[0]}); a store on a cluster must be "
            "in a place that all workers and this process share"
        )
        raise ClusterError(msg)
    return nights


def _fold_on_worker(
    planned: tuple[Partition, scan.Scan], configuration: Configuration, files: StateFiles, options: dict[str, Any]
) -> Night:
    """Fold a partition with an engine of the worker's own."""
    return _fold(planned, configuration, ThreadEngine.start(**options), files)


def _fold(
    planned: tuple[Partition, scan.Scan], configuration: Configuration, engine: Engine, files: StateFiles
) -> Night:
    """Fold one partition, write its states, and compute its own metrics."""
    (partition, found), request = planned, configuration.folding
    wanted = planned_metrics(request, found)
    plan = Plan(found.schema, request.label, request.weight, tuple({w.spec: None for w in wanted}))
    folded = engine.read(found.pieces, found.rows, plan)
    if fingerprint(partition.files)[0] != partition.fingerprint:
        msg = f"{partition.name}: its files changed while they were read; nothing of this update counts: run it again"
        raise DataError(msg)
    kept = tuple(StoredState(w.group, w.of, w.spec.kind, *files.write(folded.states[w.spec])) for w in wanted)
    evaluation = _evaluation(partition.name, plan, configuration, engine, folded)
    pairs = [(w, folded.states[w.spec]) for w in wanted]
    facts = gathered(partition.files, found.schema.names, pairs, ())
    return Night(_entry(partition, folded.states[request.label], kept, facts), evaluation)


def _evaluation(
    name: str, plan: Plan, configuration: Configuration, engine: Engine, folded: Folded
) -> Evaluation | None:
    """The metrics of one partition alone; None if it has no rows, or its labels alone are not two classes."""
    wanted = configuration.wanted([name])
    states = {w.spec: folded.states[w.spec] for w in wanted} | {plan.label: folded.states[plan.label]}
    try:
        return finalize_all(
            engine, [name], plan, wanted, Folded(states), threshold=configuration.request().aul_threshold
        )
    except DataError:
        return None


def _entry(partition: Partition, labels: LabelCounts, kept: tuple[StoredState, ...], facts: str = "{}") -> Entry:
    """The ledger's row of a partition."""
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
        facts,
    )
