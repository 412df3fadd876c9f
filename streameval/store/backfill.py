"""Backfill: fold nights again for new columns alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streameval import scan
from streameval.errors import DataError, MissingColumnError, MissingInputError, OptionError
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.fold import fold_partitions, typed
from streameval.store.nights.partitions import discover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.engine.threads import ThreadEngine
    from streameval.store.files.ledger import Entry
    from streameval.store.files.states import StateFiles
    from streameval.store.nights.fold import Workers
    from streameval.store.nights.partitions import Partition

__all__ = ["Backfill", "Place", "backfill", "columns_of"]


@dataclass(frozen=True)
class Place:
    """Where the files of nights are.

    Attributes
    ----------
    data : paths; None where they were folded from
    delta_version : version of Delta tables, None for the current one
    """

    data: Any = None
    delta_version: int | None = None


@dataclass(frozen=True)
class Backfill:
    """Outcome of a backfill.

    Attributes
    ----------
    configuration : the store's, with the new columns
    entries : nights that were folded for them
    gone, without : nights whose files are gone, or lack the columns
    """

    configuration: Configuration
    entries: tuple[Entry, ...]
    gone: tuple[str, ...]
    without: tuple[str, ...]


def backfill(
    configuration: Configuration,
    columns: dict[str, tuple[str, ...]],
    entries: Sequence[Entry],
    place: Place,
    engine: ThreadEngine,
    files: StateFiles,
    workers: Workers | None = None,
) -> Backfill:
    """Fold nights for new columns alone.

    Parameters
    ----------
    configuration : the store's
    columns : new columns, under ``score``, ``cluster`` and ``sketch``
    entries : the nights
    place : where their files are
    engine, workers : fold the nights here, or on a cluster
    files : keep the states

    Raises
    ------
    DataError
        If the files of a night changed since it was folded, or no night has the columns.
    """
    if configuration.options["common_rows"]:
        msg = "the store counts the rows that all its columns have (common_rows), which another column may lack; "
        msg += "begin another store with this column as well"
        raise OptionError(msg)
    narrow = _narrow(configuration, columns)
    due = [entry for entry in entries if entry.rows and _lacks(entry, columns)]
    found, gone = _there(due, place)
    has = [partition for partition in found if _has(partition, narrow, engine)]
    widened = _widened(configuration, columns)
    if not has and not set(widened.key_columns) <= set(widened.types):
        names = ", ".join(name for some in columns.values() for name in some)
        msg = f"no night at hand has a column {names}; add it once one has"
        raise MissingColumnError(msg)
    nights: dict[str, Entry] = {}
    if has:
        narrow = typed(has, narrow, engine)
        folded, bad = fold_partitions(has, narrow, engine, files, workers)
        if bad:
            raise bad[0].error
        nights = {night.entry.partition: night.entry for night in folded}
    joined = tuple(_with(entry, nights[entry.partition]) for entry in due if entry.partition in nights)
    without = tuple(partition.name for partition in found if partition.name not in nights)
    return Backfill(replace(widened, types=widened.types | narrow.types), joined, tuple(gone), without)


def _narrow(configuration: Configuration, columns: dict[str, tuple[str, ...]]) -> Configuration:
    """The configuration of the new columns alone."""
    classes = configuration.options["classes"] if columns["cluster"] else None
    narrow = Configuration(configuration.options | columns | {"classes": classes, "metrics": (), "clip": None}, {})
    known = {name: kind for name, kind in configuration.types.items() if name in narrow.key_columns}
    return replace(narrow, types=known)


def _widened(configuration: Configuration, columns: dict[str, tuple[str, ...]]) -> Configuration:
    """The configuration with the new columns among the others."""
    options = configuration.options
    lists = {name: tuple(dict.fromkeys((*options[name], *new))) for name, new in columns.items()}
    return replace(configuration, options=options | lists)


def _lacks(entry: Entry, columns: dict[str, tuple[str, ...]]) -> bool:
    """Whether a night has no state of one of the columns."""
    return any(entry.state(group, of) is None for group, some in columns.items() for of in some)


def _there(entries: Sequence[Entry], place: Place) -> tuple[list[Partition], list[str]]:
    """The nights whose files are there, and the names of the others."""
    roots = {entry.root for entry in entries}
    data, version = place.data, place.delta_version
    at_hand = {} if data is None else {partition.name: partition for partition in discover(data, roots, version)}
    found, gone = [], []
    for entry in entries:
        partition = at_hand.get(entry.partition) if data is not None else _unmoved(entry, version)
        if partition is None:
            gone.append(entry.partition)
        elif partition.fingerprint != entry.fingerprint:
            msg = f"{entry.partition}: its files changed since it was folded; update or replace it first"
            raise DataError(msg)
        else:
            found.append(partition)
    return found, gone


def _unmoved(entry: Entry, delta_version: int | None) -> Partition | None:
    """A night in the place that it was folded from; None if it is gone."""
    try:
        found = discover(f"{entry.root.rstrip('/')}/{entry.partition}", [entry.root], delta_version)
    except MissingInputError:
        return None
    return next((partition for partition in found if partition.name == entry.partition), None)


def _has(partition: Partition, configuration: Configuration, engine: ThreadEngine) -> bool:
    """Whether a night has rows and the columns."""
    try:
        scan.plan(list(partition.files), configuration.folding.columns, threads=engine.threads)
    except (MissingColumnError, MissingInputError):
        return False
    return True


def _with(entry: Entry, folded: Entry) -> Entry:
    """The entry with the states of new columns."""
    if folded.labels != entry.labels:
        msg = f"{entry.partition}: its labels are not those that were folded; update or replace it first"
        raise DataError(msg)
    known = {(kept.group, kept.of) for kept in entry.states}
    new = (kept for kept in folded.states if (kept.group, kept.of) not in known)
    return replace(entry, states=(*entry.states, *new))


def columns_of(score: Any, cluster: Any, sketch: Any = ()) -> dict[str, tuple[str, ...]]:
    """The names of new columns.

    Raises
    ------
    OptionError
        If there are none.
    """
    from streameval.options.kinds import texts

    columns = {"score": texts("score", score), "cluster": texts("cluster", cluster)}
    columns["sketch"] = texts("sketch", sketch)
    if not any(columns.values()):
        msg = "name the column that joins (--score, --cluster, --sketch)"
        raise OptionError(msg)
    return columns
