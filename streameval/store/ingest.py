"""Updating: the verbs that make partitions count, or not: fold, write states, commit once, keep the nightly results."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

from streameval.errors import MissingInputError
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.backfill import columns_of, join
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.fold import fold_partitions, typed
from streameval.store.nights.merge import labels_of
from streameval.store.nights.partitions import Changes, changes, chosen, discover, in_order
from streameval.store.vacuum import bound
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.store.context import StoreContext
    from streameval.store.files.ledger import Entry, Snapshot
    from streameval.store.nights.night import Night
    from streameval.store.nights.partitions import Partition

__all__ = ["Update", "add", "remove", "replace", "update"]


@dataclass(frozen=True)
class Update:
    """What an update did, or would do.

    Attributes
    ----------
    version : version of the ledger after it
    new, changed, removed : partitions that were folded for the first time, folded again, taken out
    suspected : partitions that a dry run would fold again only to see whether they differ
    unchanged : number of partitions that were looked at and left alone
    gone : partitions that the store has and the data no more; they still count
    rows : rows folded
    """

    version: int
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    gone: tuple[str, ...] = ()
    rows: int = 0
    suspected: tuple[str, ...] = ()

    def __str__(self) -> str:
        lists = {"new": self.new, "changed": self.changed, "to verify": self.suspected, "removed": self.removed}
        parts = [f"{len(names)} {what} ({few(names)})" for what, names in lists.items() if names]
        parts += [f"{self.unchanged} unchanged"] if self.unchanged else []
        parts += [f"{len(self.gone)} gone from the data but kept ({few(self.gone)})"] if self.gone else []
        return ", ".join(parts) or "nothing to do"


def update(opened: StoreContext, data: Any, options: Mapping[str, Any], *, dry_run: bool, verify: bool) -> Update:
    """Fold what is new or changed; see `Store.update`."""
    snapshot = opened.ledger.read()
    configuration = _configuration(snapshot, options)
    found = changes(discover(data, _roots(snapshot)), snapshot.entries, data)
    again = (*found.changed, *(found.unchanged if verify else ()))
    if dry_run:
        done = _told(snapshot.version, found.new, found.changed, () if verify else found.unchanged, found.gone)
        return replaced(done, suspected=tuple(p.name for p in found.unchanged) if verify else ())
    return _fold(opened, snapshot, configuration, found.new, again, found, verify=verify)


def replace(opened: StoreContext, data: Any) -> Update:
    """Fold partitions again; see `Store.replace`."""
    snapshot = opened.begun()
    found = discover(data, _roots(snapshot))
    absent = [partition.name for partition in found if partition.name not in snapshot.entries]
    if absent:
        msg = f"{absent[0]}: the store has no such partition to replace; use update"
        raise MissingInputError(msg)
    return _fold(opened, snapshot, Configuration.read(snapshot.configuration), (), found)


def remove(opened: StoreContext, names: Sequence[str]) -> Update:
    """Take partitions out; see `Store.remove`."""
    snapshot = opened.begun()
    out = [entry.partition for entry in chosen(snapshot.entries, partition=names)] if names else []
    entries = [entry for name, entry in snapshot.entries.items() if name not in out]
    done = Update(snapshot.version + 1, removed=tuple(out))
    committed = opened.ledger.commit(snapshot, snapshot.configuration, entries, str(done))
    opened.derive(snapshot, committed, Configuration.read(committed.configuration), {})
    return done


def add(opened: StoreContext, score: Any, cluster: Any, data: Any, since: str | date | None) -> Update:
    """Let columns join; see `Store.add`."""
    snapshot, columns = opened.begun(), columns_of(score, cluster)
    entries = chosen(snapshot.entries, since=since)
    configuration = Configuration.read(snapshot.configuration)
    joined = join(configuration, columns, entries, data, opened.engine(), opened.files, opened.workers())
    names = tuple(entry.partition for entry in joined.entries)
    rows = sum(entry.rows for entry in joined.entries)
    before = joined.configuration.to_dict() == configuration.to_dict()
    absent = (*joined.gone, *joined.without)
    done = Update(snapshot.version + bool(names or not before), changed=names, gone=absent, rows=rows)
    if done.version > snapshot.version:
        changed = snapshot.entries | {entry.partition: entry for entry in joined.entries}
        said = f"add {', '.join(name for some in columns.values() for name in some)}: {done}"
        kept = joined.configuration.to_dict()
        committed = opened.ledger.commit(snapshot, kept, changed.values(), said)
        opened.derive(snapshot, committed, joined.configuration, {})
    return done


def _configuration(snapshot: Snapshot, given: Mapping[str, Any]) -> Configuration:
    """The store's configuration, or that of a first update."""
    given = {name: value for name, value in given.items() if value is not None}
    if snapshot.version < 0:
        return Configuration.of(given)
    configuration = Configuration.read(snapshot.configuration)
    configuration.refuse_others(given)
    return configuration


def _roots(snapshot: Snapshot) -> set[str]:
    return {entry.root for entry in snapshot.entries.values()}


def _fold(
    opened: StoreContext,
    snapshot: Snapshot,
    configuration: Configuration,
    new: Sequence[Partition],
    again: Sequence[Partition],
    found: Changes | None = None,
    *,
    verify: bool = False,
) -> Update:
    """Fold, write, commit."""
    nights: list[Night] = []
    if new or again:
        configuration, nights = _folded(opened, configuration, [*new, *again])
    kept = {night.entry.partition: night for night in nights}
    same = [p for p in again if verify and _same(snapshot.entries[p.name], kept[p.name].entry, configuration, opened)]
    for partition in same:
        del kept[partition.name]
    done = _told(
        snapshot.version + bool(kept),
        new,
        [partition for partition in again if partition.name in kept],
        () if found is None else (*(() if verify else found.unchanged), *same),
        () if found is None else found.gone,
        sum(night.entry.rows for night in kept.values()),
    )
    if kept:
        _commit(opened, snapshot, configuration, kept, str(done))
    return done


def _folded(
    opened: StoreContext, configuration: Configuration, partitions: Sequence[Partition]
) -> tuple[Configuration, list[Night]]:
    """Partitions folded here or on workers, with the configuration that knows their types."""
    engine, workers = opened.engine(), opened.workers()
    try:
        if not configuration.types:
            configuration = typed(partitions, configuration, engine)
        return configuration, fold_partitions(partitions, configuration, engine, opened.files, workers)
    except BaseException:
        engine.progress.cancel()
        raise


def _commit(
    opened: StoreContext, snapshot: Snapshot, configuration: Configuration, nights: Mapping[str, Night], action: str
) -> None:
    """Make folded partitions count, if all labels together are two classes."""
    entries = snapshot.entries | {name: night.entry for name, night in nights.items()}
    labels_of(list(entries.values()), configuration.folding.label).check()
    done = opened.ledger.commit(snapshot, configuration.to_dict(), in_order(entries.values()), action)
    opened.derive(snapshot, done, configuration, {name: night.evaluation for name, night in nights.items()})


def _same(entry: Entry, again: Entry, configuration: Configuration, opened: StoreContext) -> bool:
    """Whether a partition that was folded again has the states that it had, in whatever order they joined.

    What vacuum turned into histograms is compared as histograms.
    """
    specs = configuration.specs([entry.partition])
    kept = {(state.group, state.of) for state in entry.states if state.kind == HistogramSpec.kind}
    again = bound(again, {name: specs[name] for name in kept}, opened.files, opened.engine().budget)
    return (set(entry.states), entry.labels, entry.fingerprint) == (set(again.states), again.labels, again.fingerprint)


def _told(
    version: int,
    new: Sequence[Partition],
    again: Sequence[Partition],
    unchanged: Sequence[Partition],
    gone: tuple[str, ...],
    rows: int = 0,
) -> Update:
    """The update in words."""
    first, second = (tuple(partition.name for partition in some) for some in (new, again))
    return Update(version, first, second, unchanged=len(unchanged), gone=gone, rows=rows)
