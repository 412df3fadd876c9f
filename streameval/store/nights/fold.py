"""Folding: partitions of the data → state files and entries of the ledger.

Each partition is folded on its own, by the engine that evaluates raw files, and its states are written at once, so that
memory holds the states of as many partitions as there are threads, whatever their number. Where there are workers, they
fold the partitions and write the states; what comes back is what the ledger will say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streameval import scan
from streameval.engine.fold import TASK_ROWS
from streameval.errors import MissingInputError
from streameval.store.nights.night import Night, empty_night, fold_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine.threads import ThreadEngine
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.partitions import Partition
    from streameval.store.nights.workers import Workers

__all__ = ["fold_partitions", "typed"]


def typed(partitions: Sequence[Partition], configuration: Configuration, engine: ThreadEngine) -> Configuration:
    """The configuration with the key types that hold the values of all these partitions."""
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
    return [folded.get(p.name) or empty_night(p, label) for p in partitions]


def _plan(partition: Partition, configuration: Configuration, threads: int) -> scan.Scan | None:
    """The scan of a partition, named as the ledger names it; None if it has no rows."""
    try:
        found = scan.plan(list(partition.files), configuration.folding.columns, threads=threads)
    except MissingInputError:
        scan.details(partition.files)  # raises where a file is not there any more
        return None
    pieces = tuple(replace(piece, partition=partition.name) for piece in found.pieces)
    return configuration.conformed(replace(found, pieces=pieces))
