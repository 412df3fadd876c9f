"""The verbs that change the partitions of a store: fold them, write their states, commit once."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_changes
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, LabelError, MissingInputError, NullError, OptionError
from streameval.options import check_policies, honoured
from streameval.states.scores.histogram import HistogramSpec
from streameval.store.backfill import backfill, list_added, list_altered, widened, without
from streameval.store.files.location import check_apart, check_empty, check_files
from streameval.store.nights.configuration import KEPT, Configuration, plain_options
from streameval.store.nights.fold import Bad, Night, fold_partitions, typed
from streameval.store.nights.merge import labels_of
from streameval.store.nights.partitions import changes, chosen, discover, in_order
from streameval.store.vacuum import bound
from streameval.wording import few, plural, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.states.labels import LabelSpec
    from streameval.store.backfill import Place
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.nights.partitions import Changes, Partition


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
        return visible(", ".join(parts)) or "nothing to do"


def update(
    context: StoreContext,
    data: Any,
    options: Mapping[str, Any],
    *,
    dry_run: bool,
    verify: bool,
    on_error: str,
    delta_version: int | None,
) -> Update:
    """Fold new and changed partitions; see `Store.update`."""
    skip = _skips(on_error)
    snapshot, configuration, found = sought(context, data, options, delta_version)
    keeps = str(configuration) if snapshot.version < 0 else ""
    doubted = tuple(p for p in found.unchanged if verify or (skip and snapshot.entries[p.name].incomplete))
    if dry_run:
        told = _names(found.new), _names(found.changed), (), len(found.unchanged) - len(doubted), found.gone
        return Update(snapshot.version, *told, suspected=_names(doubted), keeps=keeps)
    configuration, nights, bad = _folded(context, configuration, [*found.new, *found.changed, *doubted], skip=skip)
    nights, bad = _fitting(snapshot, configuration, nights, bad)
    again = [name for name in _names([*found.changed, *doubted]) if name in nights]
    compared = again if verify else [name for name in again if name in _names(doubted)]
    same = {n for n in compared if _same(context, configuration, snapshot.entries[n], nights[n].entry)}
    kept = {name: night for name, night in nights.items() if name not in same}
    facts = _counted(kept)
    left = [name for name in _names(found.unchanged) if name not in kept and snapshot.entries[name].incomplete]
    done = Update(
        snapshot.version + bool(kept),
        tuple(name for name in _names(found.new) if name in kept),
        tuple(name for name in again if name in kept),
        unchanged=len(same) + len(found.unchanged) - len(doubted),
        gone=found.gone,
        keeps=keeps,
        **facts | {"incomplete": (*facts["incomplete"], *left)},
    )
    if kept:
        _commit(context, snapshot, configuration, kept, f"{done}; {keeps}" if keeps else str(done))
    _refuse(bad, done)
    return done


def replace(context: StoreContext, data: Any, on_error: str, delta_version: int | None) -> Update:
    """Fold partitions again; see `Store.replace`."""
    skip = _skips(on_error)
    snapshot, configuration, found = replaced(context, data, delta_version)
    configuration, nights, bad = _folded(context, configuration, found, skip=skip)
    nights, bad = _fitting(snapshot, configuration, nights, bad)
    done = Update(
        snapshot.version + bool(nights),
        changed=tuple(nights),
        **_counted(nights),
    )
    if nights:
        _commit(context, snapshot, configuration, nights, str(done))
    _refuse(bad, done)
    return done


def _counted(nights: Mapping[str, Night]) -> dict[str, Any]:
    """The fields `rows` and `incomplete` of an `Update` for folded nights."""
    return {
        "rows": sum(night.entry.rows for night in nights.values()),
        "incomplete": tuple(name for name, night in nights.items() if night.entry.incomplete),
    }


def sought(
    context: StoreContext, data: Any, options: Mapping[str, Any], delta_version: int | None
) -> tuple[Snapshot, Configuration, Changes]:
    """The snapshot, the configuration (new for a first update), and the new and changed partitions of the data."""
    check_apart(context.location, data)
    snapshot = context.ledger.read()
    if snapshot.version < 0:
        check_empty(context.location)
    configuration = _configuration(context, snapshot, options)
    return snapshot, configuration, changes(_discovered(context, data, snapshot, delta_version), snapshot.entries, data)


def replaced(
    context: StoreContext, data: Any, delta_version: int | None
) -> tuple[Snapshot, Configuration, list[Partition]]:
    """The snapshot, the configuration, and the partitions of the data.

    Raises
    ------
    MissingInputError
        If the store lacks one of the partitions.
    """
    snapshot, configuration = context.begun()
    check_apart(context.location, data)
    found = _discovered(context, data, snapshot, delta_version)
    absent = [partition.name for partition in found if partition.name not in snapshot.entries]
    if absent:
        msg = f"{absent[0]}: the store has no such partition to replace; use update"
        raise MissingInputError(msg)
    return snapshot, configuration, found


def _discovered(context: StoreContext, data: Any, snapshot: Snapshot, delta_version: int | None) -> list[Partition]:
    """The partitions of the data; raises `OptionError` if a file lies in the store."""
    found = discover(data, _roots(snapshot), delta_version)
    kind = context.location.filesystem.type_name
    same = (file.path for partition in found for file in partition.files if file.filesystem.type_name == kind)
    check_files(context.location, same)
    return found


def _skips(on_error: str) -> bool:
    """Whether files that cannot be read are left out."""
    return bool(honoured("update")["on_error"].plain(on_error) == "skip")


def _refuse(bad: Sequence[Bad], done: Update) -> None:
    """Raise the errors of the partitions that could not be folded, after the others are committed."""
    if not bad:
        return
    good = len(done.new) + len(done.changed)
    rest = f" ({plural(good, 'other partition')} folded; {'they count' if good > 1 else 'it counts'})" if good else ""
    if done.version >= 0 and any(isinstance(one.error, NullError) for one in bad):
        rest += (
            "; update keeps the policies of a store, and add changes them once: nan (--nan), nulls (--nulls) and "
            "unlabelled (--unlabelled)"
        )
    if len(bad) == 1:
        msg = f"{bad[0].error}{rest}"
        raise type(bad[0].error)(msg) from bad[0].error
    listed = "; ".join(f"[{i}] {one.partition}: {one.error}" for i, one in enumerate(bad, 1))
    msg = f"{plural(len(bad), 'partition')} cannot be folded{rest}: {listed}"
    raise DataError(msg) from bad[0].error


def remove(context: StoreContext, names: Sequence[str], columns: Sequence[str] = ()) -> Update:
    """Remove partitions and columns; see `Store.remove`."""
    snapshot, configuration = context.begun()
    out = tuple(entry.partition for entry in chosen(snapshot.entries, partition=names)) if names else ()
    entries = [entry for name, entry in snapshot.entries.items() if name not in out]
    for column in columns:
        configuration = without(configuration, column)
    if columns:
        kept = set(configuration.specs(["_"]))
        entries = [with_changes(e, states=tuple(s for s in e.states if (s.group, s.of) in kept)) for e in entries]
    done = Update(snapshot.version + 1, removed=out, left=tuple(columns))
    context.commit(snapshot, configuration, entries, str(done))
    return done


def add(context: StoreContext, named: Mapping[str, Any], place: Place, since: str | date | None) -> Update:
    """Add columns or metrics; see `Store.add`."""
    snapshot, before, after = begin_backfill(context, named, place)
    entries = list(snapshot.entries.values())
    some = chosen(snapshot.entries, since=since) if entries else []
    with context.files.undone() as files:
        filled = backfill(before, after, entries, some, place, context.engine(), files, context.workers())
    news = filled.folded or filled.configuration.to_dict() != before.to_dict()
    rows = sum(snapshot.entries[name].rows for name in filled.folded)
    gone = (*filled.gone, *filled.without)
    facts: dict[str, Any] = {"changed": filled.folded, "gone": gone, "lacking": filled.without, "rows": rows}
    done = Update(
        snapshot.version + bool(news), **facts, joined=list_added(after, before), altered=list_altered(after, before)
    )
    if news:
        context.commit(snapshot, filled.configuration, filled.entries, str(done))
    return done


def begin_backfill(
    context: StoreContext, named: Mapping[str, Any], place: Place
) -> tuple[Snapshot, Configuration, Configuration]:
    """The snapshot, the configuration, and the configuration with the added columns and metrics.

    Raises
    ------
    OptionError
        If nothing is named, or the store cannot add it.
    """
    named = {name: value for name, value in named.items() if value not in (None, ())}
    if not named:
        msg = "name the column or the metric to add (--score, --cluster, --sketch, --classes, --weight, --metric)"
        raise OptionError(msg)
    if place.data is not None:
        check_apart(context.location, place.data)
    snapshot, before = context.begun()
    after = widened(before, named)
    if before.options["common_rows"] and set(after.key_columns) > set(before.key_columns):
        msg = "the store counts only rows with a value in all columns (common_rows), and a new column may lack some; "
        msg += "create another store with this column as well"
        raise OptionError(msg)
    return snapshot, before, after


def _configuration(context: StoreContext, snapshot: Snapshot, given: Mapping[str, Any]) -> Configuration:
    """The store's configuration, or a new one for a first update."""
    given = {name: value for name, value in given.items() if value is not None}
    if snapshot.version < 0:
        made = Configuration.of(given)
        check_policies(plain_options(given), made.options, KEPT)
        return made
    configuration = context.configuration(snapshot)
    configuration.refuse_others(given)
    return configuration


def _roots(snapshot: Snapshot) -> set[str]:
    return {entry.root for entry in snapshot.entries.values()}


def _names(partitions: Sequence[Partition]) -> tuple[str, ...]:
    return tuple(partition.name for partition in partitions)


def _folded(
    context: StoreContext, configuration: Configuration, partitions: Sequence[Partition], *, skip: bool
) -> tuple[Configuration, dict[str, Night], list[Bad]]:
    """The configuration with key types, the folded partitions by name, and those that cannot be folded."""
    if not partitions:
        return configuration, {}, []
    engine, workers = context.engine(), context.workers()
    try:
        if not configuration.complete:
            configuration = typed(partitions, configuration, engine)
        with context.files.undone() as files:
            nights, bad = fold_partitions(partitions, configuration, engine, files, workers, skip=skip)
    except BaseException:
        engine.progress.cancel()
        raise
    return configuration, {night.entry.partition: night for night in nights}, bad


def _fitting(
    snapshot: Snapshot, configuration: Configuration, nights: dict[str, Night], bad: list[Bad]
) -> tuple[dict[str, Night], list[Bad]]:
    """Split nights: those whose labels form two classes together with the store's, and bad nights, including others."""
    spec, kept = configuration.folding.label, dict(snapshot.entries)
    try:
        labels_of([*(kept | {name: night.entry for name, night in nights.items()}).values()], spec).check()
    except LabelError:
        pass
    else:
        return nights, bad
    good, refused = dict[str, Night](), dict[str, LabelError]()
    for name, night in nights.items():
        joined = kept | {name: night.entry}
        try:
            labels_of(list(joined.values()), spec).check()
        except LabelError as error:
            refused[name] = error
        else:
            kept, good[name] = joined, night
    return good, [*bad, *(Bad(name, _misfit(nights[name].entry, kept, spec, why)) for name, why in refused.items())]


def _misfit(entry: Entry, kept: Mapping[str, Entry], spec: LabelSpec, why: LabelError) -> LabelError:
    """The error of a night whose labels do not form two classes, by themselves or with those that the store keeps."""
    others = [other for name, other in kept.items() if name != entry.partition]
    own, rest = (", ".join(map(str, sorted(labels_of(some, spec).values))) for some in ([entry], others))
    msg = f"{entry.root}/{entry.partition}: {why}"
    if rest:
        msg = (
            f"{entry.root}/{entry.partition}: label column {spec.column!r} has the values {own}, which do not form two "
            f"classes with those of the store's other partitions, {rest}; write them alike, or create another store "
            "with pos_label (--pos-label)"
        )
    return LabelError(msg)


def _commit(
    context: StoreContext, snapshot: Snapshot, configuration: Configuration, nights: Mapping[str, Night], action: str
) -> None:
    """Commit folded partitions; `_fitting` has checked that all labels together have two classes."""
    entries = snapshot.entries | {name: night.entry for name, night in nights.items()}
    evaluations = {name: night.evaluation for name, night in nights.items()}
    context.commit(snapshot, configuration, in_order(entries.values()), action, evaluations)


def _same(context: StoreContext, configuration: Configuration, entry: Entry, again: Entry) -> bool:
    """Whether a partition that was folded again has the same states as before, in undamaged files.

    Scores that vacuum turned into histograms are compared as histograms. Unreferenced new files are deleted.
    """
    specs, files = configuration.specs([entry.partition]), context.files
    kept = {(state.group, state.of) for state in entry.states if state.kind == HistogramSpec.kind}
    alike = bound(again, {name: specs[name] for name in kept & specs.keys()}, files, context.engine().budget)
    one, other = ((e.counted, e.fingerprint, {state.content for state in e.states}) for e in (entry, alike))
    same = one == other and all(files.sound(state.file) for state in entry.states)
    needed = set() if same else {state.file for state in again.states}
    files.delete({state.file for e in (again, alike) for state in e.states} - needed)
    return same
