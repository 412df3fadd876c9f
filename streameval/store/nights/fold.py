"""Folding: partitions of the data → state files and entries of the ledger.

Each partition is folded on its own, by the engine that evaluates raw files, and its states are written at once, so that
memory holds the states of as many partitions as there are threads, whatever their number. Where there are workers, they
fold the partitions and write the states; what comes back is what the ledger will say.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streameval import scan
from streameval.engine.fold import TASK_ROWS, Folded, Plan
from streameval.errors import DataError, MissingInputError
from streameval.evaluation.conclude import Evaluation, conclude
from streameval.store.files.ledger import Entry, Kept
from streameval.store.nights.partitions import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine.threads import Engine
    from streameval.states.labels import LabelCounts, LabelSpec
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition
    from streameval.store.nights.workers import Workers

__all__ = ["Night", "fold_partition", "fold_partitions", "typed"]


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
    partitions: Sequence[Partition],
    configuration: Configuration,
    engine: Engine,
    files: StateFiles,
    workers: Workers | None = None,
) -> list[Night]:
    """Fold partitions and write their states.

    Small partitions are folded side by side, one a thread; large ones one after the other, each on all threads. With
    `workers` it is they who fold.

    Raises
    ------
    DataError
        If one of them cannot be evaluated; the message names the file. Nothing counts until the ledger says so.
    """
    label = configuration.folding.label
    plans = {p.name: _plan(p, configuration, engine.threads) for p in partitions}
    full = [(p, found) for p in partitions if (found := plans[p.name])]
    rows = [found.rows for _, found in full]
    if workers and full:
        engine.begin(sum(rows))
        nights = workers.fold(full, configuration, files, engine.progress)
    elif len(full) >= engine.threads and max(rows, default=0) < TASK_ROWS * engine.threads:
        alone = replace(engine, threads=1)
        nights = engine.each(
            lambda pair: fold_partition(pair[0], pair[1], configuration, alone, files), full, "partition"
        )
    else:
        nights = [fold_partition(p, found, configuration, engine, files) for p, found in full]
    folded = {night.entry.partition: night for night in nights}
    nothing = Folded({label: label.empty()})
    return [folded.get(p.name) or Night(_entry(p, nothing, label, ()), None) for p in partitions]


def fold_partition(
    partition: Partition, found: scan.Scan, configuration: Configuration, engine: Engine, files: StateFiles
) -> Night:
    """Fold one partition and write its states.

    Raises
    ------
    DataError
        If it cannot be evaluated, or its files change meanwhile.
    """
    request = configuration.folding
    wanted = request.wanted(found)
    plan = Plan(found.schema, request.label, request.weight, tuple({w.spec: None for w in wanted}))
    folded = engine.read(found.pieces, found.rows, plan)
    _refuse_changed(partition)
    kept = tuple(Kept(w.group, w.of, w.spec.kind, *files.write(folded.states[w.spec])) for w in wanted)
    own = _own(engine, partition.name, plan, configuration, folded)
    return Night(_entry(partition, folded, request.label, kept), own)


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
        return conclude(engine, [name], plan, wanted, Folded(states), threshold=configuration.request().threshold)
    except DataError:
        return None  # its labels alone are no two classes, or it has no rows: what counts is the whole
