"""The verbs that change the nights of a store: fold them, write their states, commit once.

An update killed before its commit leaves the store as it was. A night that cannot be folded does not stop the others:
these are committed, and then the error names the bad ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, LabelError, MissingInputError, NullError, OptionError
from streameval.options import check_policies, refuse, verb_options
from streameval.scan.files.tables import Tables
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.backfill import Backfill, extend_configuration, list_added, list_altered, remove_column
from streameval.store.delivery import (
    NO_LABELS,
    Delivery,
    check_delivery,
    close_nights,
    closed_errors,
    deliver,
    find_late,
    is_closed,
    labels_error,
    relabel_nights,
    reopen_nights,
)
from streameval.store.files.location import check_apart, check_empty, check_files
from streameval.store.nights.configuration import KEPT, Configuration, plain_options
from streameval.store.nights.fold import Night, find_types, fold_partitions
from streameval.store.nights.judgements import POLICIES
from streameval.store.nights.merge import labels_of
from streameval.store.nights.open_nights import OPEN, find_ahead, newest_day
from streameval.store.nights.partitions import Changes, compare_partitions, discover, select_entries
from streameval.store.vacuum import bound_scores, vacuum
from streameval.wording import few, plural, visible

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date

    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.nights.partitions import Partition
    from streameval.store.vacuum import Vacuumed


@dataclass(frozen=True)
class Update:
    """Outcome of an update, or of a dry run.

    Attributes
    ----------
    version : version of the ledger after the update
    new, changed, removed : names of the partitions that were folded for the first time, folded again, removed
    unchanged : number of partitions that were compared and left unchanged
    gone : partitions of the store whose data no longer exist, or lack the added columns
    lacking : the partitions among `gone` that lack the columns
    rows : number of rows folded
    suspected : partitions that a dry run would fold again to see whether they differ
    incomplete : partitions of the data from which files were left out, now or earlier
    joined, left : columns and metrics that were added or removed
    altered : options that changed: the name of each, its old and its new value
    keeps : the configuration of the store in words; only for its first update
    closed : nights that are closed for late labels from now on
    ahead : new nights that close no others, as they are in the future or more than 8 days after the one before
    labels : what became of late labels: statements ``read``; of these ``new``, ``known`` or repeated by others, without
        an id (``null_ids``), ``duplicates``, or ``superseded`` by later ones; of those in effect, labels that were
        ``withdrawn``, ``used`` for rows of open nights, or ``orphans`` without a row; ids whose label was
        ``corrected``, and those of the store in ``conflicts``; then the number of ``nights`` with rows that have new
        statements, and of their ``labelled_rows``
    """

    version: int
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0
    gone: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    rows: int = 0
    suspected: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    keeps: str = ""
    altered: tuple[tuple[str, Any, Any], ...] = ()
    closed: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lists = {"new": self.new, "changed": self.changed, "to verify": self.suspected, "removed": self.removed}
        parts = [f"{few(names)} {what}" for names, what in ((self.joined, "added"), (self.left, "removed")) if names]
        parts += [
            f"{name} set to {new}" if old is None else f"{name} changed from {old} to {new}"
            for name, old, new in self.altered
        ]
        parts += [f"{len(names)} {what} ({few(names)})" for what, names in lists.items() if names]
        parts += [f"{'' if parts else 'nothing new: '}{self.unchanged} unchanged"] if self.unchanged else []
        parts += [f"{len(self.incomplete)} incomplete ({few(self.incomplete)})"] if self.incomplete else []
        gone = [name for name in self.gone if name not in self.lacking]
        parts += [f"{len(gone)} gone from the data but kept ({few(gone)})"] if gone else []
        parts += [f"{len(self.lacking)} without the column ({few(self.lacking)})"] if self.lacking else []
        parts += [f"{len(self.closed)} closed for late labels ({few(self.closed)})"] if self.closed else []
        ahead = "in the future or long after the others, so that it closes none"
        parts += [f"{len(self.ahead)} {ahead} ({few(self.ahead)})"] if self.ahead else []
        if self.labels:
            counts = [f"{count:,} {what.replace('_', ' ')}" for what, count in self.labels.items() if count]
            parts.append(f"labels: {', '.join(counts) or 'none that are new'}")
        return visible(", ".join(parts)) or "nothing to do"


class Changing:
    """The verbs that change a store."""

    _context: StoreContext

    def update(
        self,
        data: Any = None,
        *,
        labels: Any = None,
        allow_unmatched: bool = False,
        rejects: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        verify: bool = False,
        on_error: str = "raise",
        delta_version: int | None = None,
        snapshot: int | None = None,
        **options: Any,
    ) -> Update:
        """Fold the partitions that are new or changed since the last update, in one commit.

        A partition that cannot be folded does not stop the others.

        Parameters
        ----------
        data : path, pattern, URI, or list of those
            A tree of partitions, or some of them. May be left out if there are labels for nights of the store.
        labels : path, pattern, URI, or list of those, optional
            Files of late labels, in the order of their delivery, for a store that was created with ``on``: labels for
            rows of nights that are here, or that come later. The nights that have one of the ids are folded anew, in
            the same commit, from rows that the store keeps of the nights of the last `labels_open`. Files that are
            known by name, size and time are not read, unless `vacuum` deleted statements since: name all files again
            with a night that was removed and comes back. A file without a new statement makes no commit and is known
            from the next one on. See ``labels`` of `streameval.evaluate`.

            If the data of the first update lack its `classes` or `unit`, and its labels have them, these arrive late as
            well: each column has statements of its own, in any of the files, and the counts are of all of them. The
            table of classes of a night is then folded from all of its rows, which takes longer than its labels.

            Labelled rows are rarely a random sample: if they were drawn, name inverse probabilities as ``weight``.
            Values of young nights are provisional: see `maturity`, and ``mature`` of `check`. A full dump with
            corrections in place needs ``label_time``, or ``label_conflicts="latest"``; rows that it lacks are not
            withdrawn. An open night keeps its rows, and 6 bytes of an integer id or 10 of the hash of another one, or 6
            more if it has less than 2¹⁷ rows: hashes of ids that can be guessed are pseudonyms only. If more than a
            third of a night is labelled, `replace` with a label column takes as long.
        allow_unmatched : bool
            Accept labels of which none has the id of a row; they wait for their night.
        rejects : path, optional
            Write the new statements that label no row of an open night to a ``.csv`` or ``.parquet`` file, with the
            reason: null id, superseded, conflict or no row. Those that came before and had no row are not listed again.
        dry_run : bool
            Only report what would be done.
        verify : bool
            Fold every partition again, even if its size and time are unchanged, and keep those whose states differ;
            read known files of labels again.
        on_error : {"raise", "skip"}
            Whether an unreadable file fails its partition, or is left out: the partition is then incomplete, and later
            updates with ``"skip"`` fold it again until it is complete. A readable file that lacks a column, or has
            nulls without a policy, always fails its partition: leaving out its rows would give wrong values that look
            plausible.
        delta_version, snapshot : int, optional
            Version of the Delta tables, and id of the snapshot of the Iceberg tables among the data; by default the
            current ones. Partitions whose rows were only written to other files (compaction) are unchanged.
        **options
            Options of the first update, as in `streameval.evaluate`. ``label, pos_label, score, cluster, sketch,
            classes, weight, where, by, timezone, max_slices, unit, nan, nulls, unlabelled, cluster_scope, common_rows,
            approx, approx_agc, sample, sample_seed, on, label_time, label_conflicts, labels_open, sampled_by,
            label_probability`` fix the states that are kept; ``where`` must be SQL. Labels that are a sample were drawn
            from the rows of all nights alike, and units by their rows in all nights; if each night has a number of
            labels of its own, name its column (``sampled_by="strata=night"``). Slices by parts of times
            are in `timezone`, by default in the zone of the column in the first night; nights of several zones in the
            first update need it. ``metrics, truncate, aul_threshold, assignment_cells, at, clip, ci, quantiles`` are
            defaults that an evaluation may change.

        Returns
        -------
        Update

        Raises
        ------
        OptionError
            If an option contradicts the store.
        DataError
            If partitions cannot be folded, after the others are committed; the message names all unreadable files.
        StoreError
            If another update was committed meanwhile.
        """
        context, skip, tables = self._context, _skips(on_error), Tables(delta_version, snapshot)
        before, configuration, changes = find_changes(context, data, options, tables)
        delivery = check_delivery(configuration, labels, rejects, verify=verify, unmatched=allow_unmatched)
        entries, keeps = before.entries, str(configuration) if before.version < 0 else ""
        closed = closed_errors(before, configuration, changes.changed)
        doubted = [
            p
            for p in changes.unchanged
            if (verify or (skip and entries[p.name].incomplete)) and not is_closed(entries[p.name], configuration)
        ]
        unchanged = len(changes.unchanged) - len(doubted)
        done = Update(before.version, unchanged=unchanged, gone=changes.gone, keeps=keeps)
        if dry_run and delivery.labels:
            raise OptionError("dry_run does not read labels; leave out one of them (--dry-run, --labels)", "dry_run")
        if dry_run:
            new, changed, suspected = map(_names, (changes.new, changes.changed, doubted))
            return with_changes(done, new=new, changed=changed, suspected=suspected)
        due = [p for p in (*changes.new, *changes.changed, *doubted) if p.name not in closed]
        configuration, nights, errors, counts = _fold(context, before, configuration, due, delivery, skip=skip)
        compared = _names([*doubted, *(changes.changed if verify else ())])
        again = [name for name in nights if name in compared]
        same = [name for name in again if _same(context, configuration, entries[name], nights[name].entry)]
        nights = {name: night for name, night in nights.items() if name not in same}
        left = [name for name in _names(changes.unchanged) if name not in nights and entries[name].incomplete]
        touched = len([name for name in nights if name not in _names(due)])
        done = with_changes(
            done, unchanged=max(0, unchanged + len(same) - touched), incomplete=tuple(left), labels=counts
        )
        return _commit(context, before, configuration, nights, errors | closed, done)

    def replace(
        self,
        data: Any,
        *,
        on_error: str = "raise",
        delta_version: int | None = None,
        snapshot: int | None = None,
    ) -> Update:
        """Fold partitions of the store again, even if their files look unchanged; for late corrections.

        Parameters
        ----------
        data, on_error, delta_version, snapshot
            As `update`.

        Raises
        ------
        MissingInputError
            If the store lacks one of the partitions.
        DataError, StoreError
            As `update`.
        """
        context, skip = self._context, _skips(on_error)
        before, configuration, partitions = find_replaced(context, data, Tables(delta_version, snapshot))
        for error in closed_errors(before, configuration, partitions).values():
            raise error
        configuration, nights, errors, _ = _fold(context, before, configuration, partitions, skip=skip)
        return _commit(context, before, configuration, nights, errors, Update(before.version))

    def remove(self, names: str | Sequence[str] = (), *, columns: str | Sequence[str] = ()) -> Update:
        """Remove partitions by name, such as ``night=2026-01-11``, or columns; earlier versions still have them.

        An update that finds the files of a partition adds it again; `add` adds a column again. Without the newest
        night, nights that it closed for late labels are opened again, unless `vacuum` has deleted their rows: the
        labels that came meanwhile count.

        Parameters
        ----------
        names : str or sequence of str
            Partitions.
        columns : str or sequence of str
            Columns of scores, clusters, classes or sketches, with everything computed from them.

        Raises
        ------
        OptionError
            If the store has no such column, or it is the only column.
        """
        snapshot, configuration = self._context.begun()
        named, left = several(names), several(columns)
        removed = tuple(e.partition for e in select_entries(snapshot.entries, partition=named)) if named else ()
        entries = [entry for name, entry in snapshot.entries.items() if name not in removed]
        for column in left:
            configuration = remove_column(configuration, column)
        if left:
            staying = configuration.specs
            states = [tuple(s for s in e.states if s.group == OPEN or (s.group, s.of) in staying) for e in entries]
            entries = [with_changes(entry, states=own) for entry, own in zip(entries, states, strict=True)]
        opened = reopen_nights(self._context, configuration, entries) if removed else {}
        done = Update(snapshot.version + 1, removed=removed, left=tuple(left), changed=tuple(opened))
        entries = [opened.get(entry.partition, entry) for entry in entries]
        self._context.commit(snapshot, configuration, entries, str(done))
        return done

    def add(
        self,
        *,
        data: Any = None,
        since: str | date | None = None,
        delta_version: int | None = None,
        snapshot: int | None = None,
        **options: Any,
    ) -> Update:
        """Add columns or metrics in one commit; nights whose files still exist are folded for the new columns only.

        Metrics of a new column are null for nights that lack it, and for every selection that contains such a night.
        Later nights must have the column. A weight column changes the states of all scores: nights whose files no
        longer exist then have no scores, except in earlier versions (`as_of`).

        Parameters
        ----------
        **options
            Additions, as in `streameval.evaluate`: ``score, cluster, sketch, classes, weight, unit`` name columns,
            ``by`` names slicings, and `timezone` the zone of the first by parts of times; ``metrics, truncate,
            aul_threshold, at, ci`` extend or set the store's defaults and need no file. The policies ``nan, nulls``
            apply to added columns, and to others that had ``"error"``; ``unlabelled`` may replace ``"error"``.
            ``max_slices`` and ``labels_open`` replace the store's limits. With ``on``, the store takes late labels:
            nights of the last `labels_open` whose files exist are opened, as are those that a longer span reaches.
            ``label_conflicts`` may replace ``"error"``. Closed nights get no column.
        data : path, URI, or list of those, optional
            The files of the nights, if they have moved.
        since : str or date, optional
            Only nights from this date on are folded.
        delta_version, snapshot : int, optional
            As `update`.

        Returns
        -------
        Update
            `changed` are the nights that were folded, `gone` those whose files no longer exist or lack the column.

        Raises
        ------
        OptionError
            If an option is unknown, or contradicts the store.
        DataError
            If the files of a night changed since it was folded, or no night has the column.
        StoreError
            If another update was committed meanwhile.
        """
        for name in options:
            if name not in verb_options("add"):
                refuse("add", name)
        context = self._context
        before, backfill = begin_backfill(context, options, data, Tables(delta_version, snapshot))
        chosen = select_entries(before.entries, since=since) if before.entries else []
        engine = context.engine()
        with engine.progress, context.files.undone() as files:
            after, entries, folded, gone, without = backfill.fold(
                list(before.entries.values()), chosen, engine, files, context.workers()
            )
        changed = folded or after.to_dict() != backfill.before.to_dict()
        done = Update(
            before.version + bool(changed),
            changed=folded,
            gone=(*gone, *without),
            lacking=without,
            rows=sum(before.entries[name].rows for name in folded),
            joined=list_added(backfill.after, backfill.before),
            altered=list_altered(backfill.after, backfill.before),
        )
        if changed:
            context.commit(before, after, entries, str(done))
        return done

    def vacuum(
        self,
        *,
        keep: str | None = None,
        versions: str | None = None,
        forget: str | None = None,
        grace: str = "1d",
        dry_run: bool = False,
    ) -> Vacuumed:
        """Delete the files that no version needs, and merge exact states of nights into larger files.

        Histograms are merged by updates. An update that runs while vacuum deletes files is refused and can be run
        again.

        Parameters
        ----------
        keep : str, optional
            A span such as ``90d``: exact scores of nights older than the newest night by at least this span are
            permanently turned into fixed histograms. Their metrics then have bounds instead of exact values, and
            earlier versions of the ledger cannot be evaluated over these nights.
        versions : str, optional
            A span such as ``90d``: versions of the store that were replaced longer ago are forgotten, with the files
            that only they need; `as_of` reaches back by this span, which `Store.info` states. By default, all are kept.
        forget : str, optional
            A span such as ``30d``: delete the states that only versions need which were replaced longer ago. These
            versions stay in the list (`versions`), but cannot be evaluated. Each delivery of late labels replaces the
            states of the nights that it touches.
        grace : str
            Keep files younger than this span, because an update may be about to commit them.
        dry_run : bool
            Only report what would be deleted, and the nights that would lose their exact scores.

        Raises
        ------
        OptionError
            If a span is malformed, or `keep` is given and a partition has no date, or the labels are a sample.
        StoreError
            If an update was committed meanwhile; nothing is deleted then.
        """
        return vacuum(self._context, keep, grace, versions, forget, dry_run=dry_run)


def several(given: str | Sequence[str] | None) -> list[str]:
    """One name or several as a list; empty for None."""
    return [given] if isinstance(given, str) else list(given or ())


def find_changes(
    context: StoreContext, data: object, options: Mapping[str, object], tables: Tables
) -> tuple[Snapshot, Configuration, Changes]:
    """The snapshot, the configuration (new for a first update), and the new and changed partitions of the data."""
    snapshot = context.ledger.read()
    if data is None and snapshot.version < 0:
        raise OptionError("the first update of a store needs data: name their path", "data")
    if data is not None:
        check_apart(context.location, data)
    given = {name: value for name, value in options.items() if value is not None}
    if snapshot.version < 0:
        check_empty(context.location)
        configuration = Configuration.of(given)
        check_policies(plain_options(given), configuration.options, KEPT)
    else:
        configuration = context.configuration(snapshot)
        configuration.refuse_others(given)
    if data is None:
        return snapshot, configuration, Changes((), (), (), ())
    partitions = _discover(context, data, snapshot, tables, configuration.readable)
    return snapshot, configuration, compare_partitions(partitions, snapshot.entries, data, tables)


def find_replaced(
    context: StoreContext, data: object, tables: Tables
) -> tuple[Snapshot, Configuration, list[Partition]]:
    """The snapshot, the configuration, and the partitions of the data.

    Raises
    ------
    MissingInputError
        If the store lacks one of the partitions.
    """
    snapshot, configuration = context.begun()
    check_apart(context.location, data)
    partitions = _discover(context, data, snapshot, tables, configuration.readable)
    absent = [partition.name for partition in partitions if partition.name not in snapshot.entries]
    if absent:
        raise MissingInputError(f"{absent[0]}: the store has no such partition to replace; use update")
    return snapshot, configuration, partitions


def _discover(
    context: StoreContext, data: object, snapshot: Snapshot, tables: Tables, columns: Sequence[str]
) -> list[Partition]:
    """The partitions of the data; raises `OptionError` if a file lies in the store."""
    partitions = discover(data, {entry.root for entry in snapshot.entries.values()}, tables, columns)
    kind = context.location.filesystem.type_name
    files = (file for partition in partitions for file in partition.files)
    check_files(context.location, (file.path for file in files if file.filesystem.type_name == kind))
    return partitions


def begin_backfill(
    context: StoreContext, named: Mapping[str, object], data: object, tables: Tables
) -> tuple[Snapshot, Backfill]:
    """The snapshot, and its change by the added columns and metrics.

    Raises
    ------
    OptionError
        If nothing is named, or the store cannot add it.
    """
    named = {name: value for name, value in named.items() if value not in (None, ())}
    if not named:
        raise OptionError(
            "name the column or the metric to add (--score, --cluster, --sketch, --classes, --weight, --metric)"
        )
    if data is not None:
        check_apart(context.location, data)
    snapshot, before = context.begun()
    after = extend_configuration(before, named)
    if before.options["common_rows"] and set(after.key_columns) > set(before.key_columns):
        raise OptionError(
            "the store counts only rows with a value in all columns (common_rows), and a new column may lack some; "
            "create another store with this column as well"
        )
    return snapshot, Backfill(before, after, data, tables)


def _skips(on_error: str) -> bool:
    """Whether files that cannot be read are left out."""
    return bool(verb_options("update")["on_error"].plain(on_error) == "skip")


def _names(partitions: Iterable[Partition]) -> tuple[str, ...]:
    return tuple(partition.name for partition in partitions)


def _fold(
    context: StoreContext,
    snapshot: Snapshot,
    configuration: Configuration,
    partitions: Sequence[Partition],
    delivery: Delivery = NO_LABELS,
    *,
    skip: bool,
) -> tuple[Configuration, dict[str, Night], dict[str, DataError], dict[str, int]]:
    """Fold partitions, and nights with new late labels.

    Returns the configuration with key types and late labels, the folded nights, the errors of partitions that cannot be
    folded, and counts of late labels.
    """
    if not partitions and not delivery.labels:
        return configuration, {}, {}, {}
    engine, workers, late = context.engine(), context.workers(), configuration.late is not None
    with engine.progress:
        configuration = find_late(configuration, partitions, delivery, engine) if late else configuration
        configuration = find_types(partitions, configuration, engine) if partitions else configuration
        with context.files.undone() as files:
            if not late:
                nights, errors = fold_partitions(partitions, configuration, engine, files, workers, skip=skip)
                counts = {}
            else:
                newest = newest_day([*snapshot.entries, *_names(partitions)])
                arrived = deliver(configuration, delivery, newest, engine, files)
                configuration = arrived.configuration
                nights, errors = fold_partitions(
                    partitions, configuration, engine, files, workers, skip=skip, late=arrived.labels
                )
                relabelled, seen, reached = relabel_nights(snapshot, arrived, nights, engine, files, delivery, workers)
                nights |= relabelled
                counts = arrived.count(seen, reached) if delivery.labels else {}
                if delivery.rejects is not None:
                    arrived.save_rejects(delivery.rejects, seen)
            refused = _refuse_labels(snapshot, configuration, nights)
            stale = [name for name in refused if name not in _names(partitions)]
            if stale or (refused and delivery.labels):  # the labels must not be committed beside the old states
                raise labels_error(str(refused[[*stale, *refused][0]]), delivery)
    nights = {n: night for n, night in nights.items() if n not in refused}
    return configuration, nights, errors | refused, counts


def _refuse_labels(
    snapshot: Snapshot, configuration: Configuration, nights: Mapping[str, Night]
) -> dict[str, DataError]:
    """The errors of the nights whose labels do not form two classes, by themselves or with those of the store."""
    spec, refused, errors = configuration.folding.label, dict[str, str](), dict[str, DataError]()
    labels = labels_of([entry for name, entry in snapshot.entries.items() if name not in nights], spec)
    for name, night in nights.items():
        try:
            merged = labels.merge(labels_of([night.entry], spec))
            merged.check()
        except LabelError as error:
            refused[name] = str(error)
            merged = labels.merge(labels_of([e for n, e in snapshot.entries.items() if n == name], spec))
        labels = merged
    for name, why in refused.items():
        entry = nights[name].entry
        own, rest = (", ".join(map(str, sorted(one.values))) for one in (labels_of([entry], spec), labels))
        if rest:
            why = (
                f"label column {spec.column!r} has the values {own}, which do not form two classes with those of the "
                f"store's other partitions, {rest}; write them alike, or create another store with pos_label "
                "(--pos-label)"
            )
        errors[name] = LabelError(f"{entry.root}/{entry.partition}: {why}")
    return errors


def _commit(
    context: StoreContext,
    snapshot: Snapshot,
    configuration: Configuration,
    nights: Mapping[str, Night],
    errors: Mapping[str, DataError],
    done: Update,
) -> Update:
    """Commit folded partitions, complete the outcome, then raise the errors of those that cannot be folded."""
    entries = {name: night.entry for name, night in nights.items()}
    changed = bool(nights or done.labels.get("new"))
    done = with_changes(
        done,
        version=snapshot.version + changed,
        new=tuple(name for name in nights if name not in snapshot.entries),
        changed=tuple(name for name in nights if name in snapshot.entries),
        rows=sum(entry.rows for entry in entries.values()),
        incomplete=(*(name for name, entry in entries.items() if entry.incomplete), *done.incomplete),
    )
    if changed:
        after = snapshot.entries | entries
        ahead = tuple(find_ahead(after, done.new)) if configuration.late is not None else ()
        closed = close_nights(context, configuration, after)
        after |= closed
        done = with_changes(done, closed=tuple(closed), ahead=ahead)
        action = f"{done}; {done.keeps}" if done.keeps else str(done)
        evaluations = {name: night.evaluation for name, night in nights.items()}
        context.commit(snapshot, configuration, after.values(), action, evaluations)
    if not errors:
        return done
    if done.version >= 0:
        context.judgements().record_unfolded(errors, snapshot.entries)
    good = len(nights)
    rest = f" ({plural(good, 'other partition')} folded; {'they count' if good > 1 else 'it counts'})" if good else ""
    if done.version >= 0 and any(isinstance(error, NullError) for error in errors.values()):
        rest += POLICIES
    first = next(iter(errors.values()))
    if len(errors) == 1:
        raise type(first)(f"{first}{rest}") from first
    alike: dict[str, list[tuple[str, DataError]]] = {}
    for name, error in errors.items():
        reason = str(error).partition(f"{name}/")[2].partition(": ")[2]  # without the file
        alike.setdefault(reason or str(error), []).append((name, error))
    listed = "; ".join(
        f"[{i}] {some[0][0]}{f' and {len(some) - 1} more' if some[1:] else ''}: {some[0][1]}"
        for i, some in enumerate(alike.values(), 1)
    )
    raise DataError(f"{plural(len(errors), 'partition')} cannot be folded{rest}: {listed}") from first


def _same(context: StoreContext, configuration: Configuration, entry: Entry, again: Entry) -> bool:
    """Whether a partition that was folded again has the same states as before, in undamaged files.

    Scores that vacuum turned into histograms are compared as histograms. Unreferenced new files are deleted.
    """
    specs, files = configuration.specs, context.files
    bounded = {(state.group, state.of) for state in entry.states if state.kind == HistogramSpec.kind}
    alike = bound_scores(again, {name: specs[name] for name in bounded & specs.keys()}, files, context.engine().budget)
    one, other = ((e.labels, e.fingerprint, {state.content for state in e.states}) for e in (entry, alike))
    same = one == other and all(files.sound(state.file) for state in entry.states)
    needed = set() if same else {state.file for state in again.states}
    files.delete({state.file for e in (again, alike) for state in e.states} - needed)
    return same
