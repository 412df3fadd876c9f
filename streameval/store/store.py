"""Store: states of every night, so that a night is folded once and any nights are evaluated together."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.engine import Engine
from streameval.errors import MissingInputError, OptionError, StoreError
from streameval.store.configuration import Configuration
from streameval.store.files import StateFiles
from streameval.store.folding import evaluated, fold_partitions, labels_of, states_of, typed
from streameval.store.history import History, Point, Series, key_of
from streameval.store.joining import columns_of, join
from streameval.store.ledger import Ledger
from streameval.store.nightly import Nightly
from streameval.store.partitions import changes, chosen, discover, in_order
from streameval.store.place import Place
from streameval.store.remembered import Remembered
from streameval.store.rules import Rule, judge
from streameval.store.runs import Runs
from streameval.store.vacuum import Vacuumed, bound, columns_kept, older, seconds

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from streameval.outcome import Evaluation
    from streameval.store.folding import Night
    from streameval.store.ledger import Entry, Snapshot
    from streameval.store.partitions import Partition
    from streameval.store.rules import Check

__all__ = ["Store", "Update"]


@dataclass(frozen=True)
class Update:
    """What an update did, or would do.

    Attributes
    ----------
    version : version of the ledger after it
    new, changed, removed : partitions that were folded for the first time, folded again, taken out
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

    def __str__(self) -> str:
        lists = {"new": self.new, "changed": self.changed, "removed": self.removed}
        parts = [f"{len(names)} {what} ({_some(names)})" for what, names in lists.items() if names]
        parts += [f"{self.unchanged} unchanged"] if self.unchanged else []
        parts += [f"{len(self.gone)} gone from the data but kept ({_some(self.gone)})"] if self.gone else []
        return ", ".join(parts) or "nothing to do"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


class Store:
    """States of partitions that arrive one after the other, on a local disk or S3-compatible storage.

    Parameters
    ----------
    path : path or URI
        Directory of the store; the first `update` makes it.
    storage_options : mapping of str to str, optional
        As deltalake takes them, such as ``AWS_ENDPOINT_URL``; see `streameval.store.place`.
    memory, spill, threads, progress
        As `streameval.evaluate`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> folder = tempfile.TemporaryDirectory()
    >>> for night, scores in [("2026-01-14", [0.1, 0.4, 0.8]), ("2026-01-15", [0.2, 0.9, 0.3])]:
    ...     where = Path(folder.name, "data", f"night={night}")
    ...     where.mkdir(parents=True)
    ...     pq.write_table(pa.table({"label": [0, 0, 1], "score": scores}), where / "part-0.parquet")
    >>> store = Store(Path(folder.name, "store"))
    >>> print(store.update(Path(folder.name, "data"), score="score"))
    2 new (night=2026-01-14, night=2026-01-15)
    >>> store.evaluate(last=1).value("roc_auc"), store.evaluate().value("roc_auc")
    (0.5, 0.625)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._place = Place.of(path, storage_options)
        self._run: dict[str, Any] = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
        self._ledger = Ledger(self._place.child("ledger"))
        self._files = StateFiles(self._place.child("states"))
        self._runs = Runs(self._place.child("merged"), self._files)
        self._remembered = Remembered(self._place.child("results"))

    def __repr__(self) -> str:
        return f"Store({self._place.name!r})"

    def partitions(self, as_of: str | int | None = None) -> list[Entry]:
        """The partitions that count, in order, each with its rows and state files."""
        snapshot = self._ledger.read(as_of)
        return chosen(snapshot.entries) if snapshot.entries else []

    def versions(self) -> list[dict[str, Any]]:
        """Every version of the ledger, newest first: ``version``, ``when``, and the ``action`` that made it."""
        return self._ledger.versions()

    def update(self, data: Any, *, dry_run: bool = False, verify: bool = False, **options: Any) -> Update:
        """Fold the partitions that are new or changed since the last update, and nothing else, in one commit.

        Parameters
        ----------
        data : path, pattern, URI, or list of those
            A tree of partitions, or some of them.
        dry_run : bool
            Only say what would be done.
        verify : bool
            Fold every partition again, whatever its size and time, and keep those whose states differ.
        **options
            Of the first update, as `streameval.evaluate` has them: ``label, pos_label, score, cluster, classes, weight,
            nan, nulls, cluster_scope, approx`` decide what is kept for good; ``metrics, truncate, threshold, at`` are
            defaults.

        Returns
        -------
        Update

        Raises
        ------
        OptionError
            If an option contradicts the store.
        DataError
            If a partition cannot be evaluated; then nothing of the update counts.
        StoreError
            If another update was committed meanwhile.
        """
        snapshot = self._ledger.read()
        configuration = self._configuration(snapshot, options)
        found = changes(discover(data, self._roots(snapshot)), snapshot.entries, data)
        again = (*found.changed, *(found.unchanged if verify else ()))
        if dry_run:
            return _told(snapshot.version, found.new, again, found.unchanged if not verify else (), found.gone)
        return self._fold(snapshot, configuration, found.new, again, found, verify=verify)

    def replace(self, data: Any) -> Update:
        """Fold partitions again that the store has, whatever their files look like: corrections that came late.

        Raises
        ------
        MissingInputError
            If the store does not have one of them.
        """
        snapshot = self._begun()
        found = discover(data, self._roots(snapshot))
        absent = [partition.name for partition in found if partition.name not in snapshot.entries]
        if absent:
            msg = f"{absent[0]}: the store has no such partition to replace; use update"
            raise MissingInputError(msg)
        return self._fold(snapshot, Configuration.read(snapshot.configuration), (), found)

    def remove(self, names: str | Sequence[str]) -> Update:
        """Take partitions out by their names, such as ``night=2026-01-11``; earlier versions still have them."""
        snapshot = self._begun()
        given = [names] if isinstance(names, str) else list(names)
        out = [entry.partition for entry in chosen(snapshot.entries, partition=given)] if given else []
        entries = [entry for name, entry in snapshot.entries.items() if name not in out]
        done = Update(snapshot.version + 1, removed=tuple(out))
        self._nightly(self._ledger.commit(snapshot, snapshot.configuration, entries, str(done))).write()
        return done

    def evaluate(
        self,
        partition: str | Sequence[str] = (),
        *,
        since: str | None = None,
        until: str | None = None,
        last: int | None = None,
        as_of: str | int | None = None,
        **metrics: Any,
    ) -> Evaluation:
        """Evaluate all partitions, or some, from their states: as `streameval.evaluate` of their files, bit for bit.

        Parameters
        ----------
        partition : str or sequence of str
            Names.
        since, until : str, optional
            Dates that the names hold, both included; a month means all of it.
        last : int, optional
            The last few of these.
        as_of : str or int, optional
            What the store knew at a version, date or time.
        **metrics
            ``metrics, truncate, threshold, at`` where they are to differ from the store's own.
        """
        snapshot = self._begun(as_of)
        named = [partition] if isinstance(partition, str) else partition
        entries = chosen(snapshot.entries, partition=named, since=since, until=until, last=last)
        configuration, engine = Configuration.read(snapshot.configuration), Engine.start(**self._run)
        request = configuration.request(**metrics)
        asked = repr([getattr(request, name) for name in ("patterns", "truncate", "at", "threshold")])
        key = key_of(__version__, asked, *(text for e in entries for text in (e.labels, *(s.file for s in e.states))))
        later = states_of(entries, configuration, engine, self._runs, **metrics)
        known = self._remembered.recall(snapshot.version, key, later, engine, request.threshold)
        if known is not None:
            return known
        found = evaluated(entries, configuration, engine, self._runs, **metrics)
        if as_of is None:
            self._remembered.keep(snapshot.version, key, found)
        return found

    def add(
        self,
        *,
        score: str | Sequence[str] = (),
        cluster: str | Sequence[str] = (),
        data: Any = None,
        since: str | None = None,
    ) -> Update:
        """A new column joins: nights whose files are still there are folded for it alone, in one commit.

        Nights that lack it have null metrics of it, and so has every set of nights that one of them is in. Nights that
        land later must have it.

        Parameters
        ----------
        score, cluster : str or sequence of str
            The columns.
        data : path, URI, or list of those, optional
            Where the files of the nights are; by default where they were.
        since : str, optional
            Only nights from this date on are folded.

        Returns
        -------
        Update
            `changed` are the nights that were folded, `gone` those that were not: without files, or without the column.

        Raises
        ------
        DataError
            If the files of a night changed since it was folded, or no night has the column.
        """
        snapshot, columns = self._begun(), columns_of(score, cluster)
        entries = chosen(snapshot.entries, since=since)
        engine = Engine.start(**self._run)
        joined = join(Configuration.read(snapshot.configuration), columns, entries, data, engine, self._files)
        names = tuple(entry.partition for entry in joined.entries)
        rows = sum(entry.rows for entry in joined.entries)
        before = joined.configuration.to_dict() == Configuration.read(snapshot.configuration).to_dict()
        absent = (*joined.gone, *joined.without)
        done = Update(snapshot.version + bool(names or not before), changed=names, gone=absent, rows=rows)
        if done.version > snapshot.version:
            changed = snapshot.entries | {entry.partition: entry for entry in joined.entries}
            said = f"add {', '.join(name for some in columns.values() for name in some)}: {done}"
            kept = joined.configuration.to_dict()
            self._nightly(self._ledger.commit(snapshot, kept, changed.values(), said)).write()
        return done

    def vacuum(self, *, keep: str | None = None, grace: str = "1d") -> Vacuumed:
        """Delete the files that no version needs, and merge the states of old nights into larger files.

        Parameters
        ----------
        keep : str, optional
            A span such as ``90d``: exact scores of nights further back than this from the newest one are turned into
            fixed histograms, for good. Their metrics are certain intervals then, and earlier versions of the ledger
            cannot be evaluated over them.
        grace : str
            Files younger than this are left alone: another update may be about to name them.

        Raises
        ------
        OptionError
            If a span is none, or `keep` is given and a partition has no date.
        """
        wait, snapshot, engine = seconds(grace), self._begun(), Engine.start(**self._run)
        old = {entry.partition for entry in older(snapshot.entries.values(), keep)} if keep else set()
        configuration = Configuration.read(snapshot.configuration)
        specs = configuration.specs(list(snapshot.entries))
        entries = [
            bound(entry, specs, self._files, engine.budget) if entry.partition in old else entry
            for entry in snapshot.entries.values()
        ]
        turned = tuple(entry.partition for entry in entries if entry != snapshot.entries[entry.partition])
        if turned:
            action = f"{len(turned)} nights turned into histograms"
            snapshot = self._ledger.commit(snapshot, snapshot.configuration, entries, action)
            self._nightly(snapshot, configuration).write()
        runs = self._runs.compact(columns_kept(entries, specs), engine.budget)
        needed, now = self._needed(old), time.time()
        dead = {n: size for n, size, when in self._files.list() if n not in needed and now - when >= wait}
        self._files.delete(dead)
        return Vacuumed(snapshot.version, len(dead), sum(dead.values()), turned, runs)

    def _needed(self, old: set[str]) -> set[str]:
        """State files that a version names, without the exact scores of old nights."""
        needed = set()
        for fact in self._ledger.versions():
            for name, entry in self._ledger.read(fact["version"]).entries.items():
                needed |= {s.file for s in entry.states if not (name in old and s.kind == "score_counts")}
        return needed

    def history(
        self,
        metric: str,
        of: str | None = None,
        *,
        cumulative: bool = True,
        since: str | None = None,
        until: str | None = None,
        last: int | None = None,
        as_of: str | int | None = None,
    ) -> History:
        """A metric night by night, and of all nights up to each.

        Per night it is there since the update. The cumulative values are computed when they are first asked for, in
        time linear in the stored keys for each night, and kept until a night before them changes.

        Parameters
        ----------
        metric, of : str
            Name, and column where there are several.
        cumulative : bool
            Whether to give the values over all nights from the first of those chosen.
        since, until, last, as_of
            As `evaluate`.

        Raises
        ------
        OptionError
            If there is no such metric.
        """
        snapshot = self._begun(as_of)
        entries = chosen(snapshot.entries, since=since, until=until, last=last)
        nightly = self._nightly(snapshot)
        nights = nightly.nights(entries, metric, of)
        totals: list[Any] = nightly.cumulative(entries, metric, of) if cumulative else [None] * len(nights)
        if as_of is None:
            nightly.write()
        points = (Point(e.partition, night, total) for e, night, total in zip(entries, nights, totals, strict=True))
        return History(metric, nights[0].of, tuple(points))

    def check(self, rules: str | Sequence[str], partition: str | None = None) -> Check:
        """Judge the last night, or the one named, by rules such as ``roc_auc[score] >= 0.97``.

        See `streameval.store.rules` for what they mean.

        Parameters
        ----------
        rules : str or sequence of str
        partition : str, optional

        Returns
        -------
        Check
            Whether it `passed`, and a verdict on each rule.

        Raises
        ------
        OptionError
            If a rule is none, or names what the store does not keep.
        """
        read = [Rule.read(text) for text in ([rules] if isinstance(rules, str) else rules)]
        if not read:
            msg = "name a rule, such as 'roc_auc[score] >= 0.97' (--rule)"
            raise OptionError(msg)
        snapshot = self._begun()
        entries = chosen(snapshot.entries)
        if partition is not None:
            [tonight] = chosen(snapshot.entries, partition=[partition])
            entries = entries[: entries.index(tonight) + 1]
        nightly = self._nightly(snapshot)
        names = [entry.partition for entry in entries]
        columns = [(rule, nightly.nights(entries, rule.metric, rule.of)) for rule in read]
        nightly.write()
        return judge(
            read, names, {(night, rule): r for rule, row in columns for night, r in zip(names, row, strict=True)}
        )

    def _nightly(self, snapshot: Snapshot, configuration: Configuration | None = None) -> Nightly:
        """What is kept of every night."""
        configuration = configuration or Configuration.read(snapshot.configuration)
        engine = Engine.start(**self._run | {"progress": None})
        return Nightly(snapshot, configuration, engine, self._files, Series(self._place.child("history")).read())

    def _begun(self, as_of: str | int | None = None) -> Snapshot:
        """The snapshot of a store that is there."""
        snapshot = self._ledger.read(as_of)
        if snapshot.version < 0:
            msg = f"{self._place.name}: there is no store; begin it with update"
            raise StoreError(msg)
        return snapshot

    def _configuration(self, snapshot: Snapshot, given: Mapping[str, Any]) -> Configuration:
        """The store's configuration, or that of a first update."""
        given = {name: value for name, value in given.items() if value is not None}
        if snapshot.version < 0:
            return Configuration.of(given)
        configuration = Configuration.read(snapshot.configuration)
        configuration.refuse_others(given)
        return configuration

    @staticmethod
    def _roots(snapshot: Snapshot) -> set[str]:
        return {entry.root for entry in snapshot.entries.values()}

    def _fold(
        self,
        snapshot: Snapshot,
        configuration: Configuration,
        new: Sequence[Partition],
        again: Sequence[Partition],
        found: Any = None,
        *,
        verify: bool = False,
    ) -> Update:
        """Fold, write, commit."""
        engine = Engine.start(**self._run)
        try:
            if not configuration.types:
                configuration = typed([*new, *again], configuration, engine)
            nights = fold_partitions([*new, *again], configuration, engine, self._files)
        except BaseException:
            engine.progress.cancel()
            raise
        kept = {night.entry.partition: night for night in nights}
        same = [p for p in again if verify and _same(snapshot.entries[p.name], kept[p.name])]
        for partition in same:
            del kept[partition.name]
        unchanged = () if found is None else (*(() if verify else found.unchanged), *same)
        done = _told(
            snapshot.version + bool(kept),
            new,
            [partition for partition in again if partition.name in kept],
            unchanged,
            () if found is None else found.gone,
            sum(night.entry.rows for night in kept.values()),
        )
        if kept:
            self._commit(snapshot, configuration, kept, str(done))
        return done

    def _commit(
        self, snapshot: Snapshot, configuration: Configuration, nights: Mapping[str, Night], action: str
    ) -> None:
        """Make folded partitions count, if all labels together are two classes."""
        entries = snapshot.entries | {name: night.entry for name, night in nights.items()}
        labels_of(list(entries.values()), configuration.folding.label).check()
        done = self._ledger.commit(snapshot, configuration.to_dict(), in_order(entries.values()), action)
        nightly = self._nightly(done, configuration)
        for name, night in nights.items():
            if night.evaluation is not None:
                nightly.record(name, night.evaluation)
        nightly.write()


def _same(entry: Entry, night: Night) -> bool:
    """Whether a partition that was folded again has the states that it had."""
    return (entry.states, entry.labels, entry.fingerprint) == (
        night.entry.states,
        night.entry.labels,
        night.entry.fingerprint,
    )


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
