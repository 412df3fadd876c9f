"""Late labels of an update: what was delivered, the nights that it touches, and those that close or open again.

A delivery adds a run of statements (`streameval.store.nights.statements`), and `FAN` runs are merged into one. The rows
that they label are those of open nights (`streameval.store.nights.open_nights`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streameval import scan
from streameval.engine.fold import STATE_SHARE
from streameval.errors import DataError, LabelError, MissingInputError, OptionError, SchemaError
from streameval.evaluation.labels.columns import split_columns, with_late_fields
from streameval.evaluation.labels.statements import FATES, Listed, count_statements, label_type
from streameval.kinds import Place
from streameval.options import verb_options
from streameval.saving import TABULAR, check_writable, ending, save
from streameval.scan import locate_all
from streameval.scan.derived import IdName, LateId
from streameval.scan.widen import widen
from streameval.states.keyed.ids import id_type
from streameval.states.late import are_labels
from streameval.store.nights.configuration import Runs
from streameval.store.nights.fold import Folding, Night, check_written, map_on_workers
from streameval.store.nights.maturity import Aging
from streameval.store.nights.merge import Nights
from streameval.store.nights.open_nights import (
    OPEN,
    WORDS,
    OpenNight,
    close_night,
    find_closing,
    find_reopening,
    newest_day,
)
from streameval.store.nights.statements import (
    Statements,
    have_ids,
    ids_of,
    join_ids,
    no_statements,
    read_labels,
    read_runs,
    resolve_all,
    sources_of,
    table_of,
    write_run,
)
from streameval.wording import few, plural, size

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.threads import ThreadEngine
    from streameval.evaluation.labels.statements import LateSource, Resolved, StatementPart
    from streameval.scan import File
    from streameval.states.late import IdColumn, IdTable, LateLabels
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.files.ledger import Snapshot
    from streameval.store.files.published import PublishedFiles, StateFiles
    from streameval.store.nights.configuration import Configuration, Delivered
    from streameval.store.nights.partitions import Partition
    from streameval.typing import Array

    _Arrival = tuple[int, int]  # the number of a file of labels, and the newest night when it arrived


class Delivery(NamedTuple):
    """Files of late labels.

    Attributes
    ----------
    labels : their paths
    verify : whether to read known ones again
    unmatched : whether none needs to match a row
    rejects : file for the statements that label no row; None without one
    """

    labels: Sequence[str] = ()
    verify: bool = False
    unmatched: bool = True
    rejects: str | None = None


NO_LABELS = Delivery()


def check_delivery(
    configuration: Configuration,
    labels: Any,
    rejects: str | os.PathLike[str] | None,
    *,
    verify: bool,
    unmatched: bool,
) -> Delivery:
    """The late labels of an update; raises `OptionError` if the store takes none."""
    named = verb_options("update")["labels"].plain(labels)
    paths = [one for one in named if isinstance(one, Place)]
    if named and configuration.late is None:
        raise OptionError(f"labels: {configuration.no_late_labels}", "labels")
    if len(paths) < len(named):
        raise OptionError("labels: a store reads labels from files: name paths", "labels")
    file = verb_options("update")["rejects"].plain(rejects)
    for name in ["allow_unmatched"] * unmatched + ["rejects"] * (file is not None) if not named else ():
        raise OptionError(f"{name} would change nothing without late labels: name their table (--labels)", name)
    if file is not None:
        ending(file, TABULAR, "rejects")
        check_writable(file)
    return Delivery([path.value for path in paths], verify, unmatched, file)


def find_late(
    configuration: Configuration, partitions: Sequence[Partition], delivery: Delivery, engine: ThreadEngine
) -> Configuration:
    """The configuration with columns of classes and units that the data lack and labels have: these arrive late.

    Raises
    ------
    DataError
        If the labels lack them as well, or have no ids in them.
    """
    source, given = configuration.late, configuration.options
    named = [given["classes"] if given["cluster"] else None, given["unit"]]
    names = [name for name in dict.fromkeys(filter(None, named)) if name not in configuration.types]
    if source is None or configuration.design or not (names and partitions and delivery.labels):
        return configuration
    ids = [IdName(name) for name, _ in source.on]
    where = configuration.folding.where
    there = {
        *given["score"],
        *given["cluster"],
        *configuration.slicing.columns,
        *(where.columns if where else ()),
        *ids,
    }
    columns = [IdName(name) if name in there else LateId(name, ids[0]) for name in names]
    try:
        files = [file for partition in partitions for file in partition.files]
        planned = scan.plan(files, [*columns, *ids], threads=engine.threads, on_error="skip")
    except MissingInputError:
        return configuration
    lacking = tuple(name for name in names if name not in planned.schema.names)
    if not lacking:
        return configuration
    source = replace(source, data=[[[file] for file in locate_all(delivery.labels)]], further=lacking, needed=False)
    schema = with_late_fields(source, planned, engine).schema
    for name in lacking:
        if pa.types.is_null(schema.field(name).type):
            raise SchemaError(
                f"{few(delivery.labels)}: column {name!r} has no values, whose type the first update fixes: name a "
                "table that has some"
            )
    return configuration.with_late({name: id_type(schema.field(name).type, name) for name in lacking})


def is_closed(entry: Entry, configuration: Configuration) -> bool:
    """Whether a night is closed for late labels."""
    return bool(configuration.late is not None and entry.rows and entry.state(OPEN, "") is None)


def closed_errors(
    snapshot: Snapshot, configuration: Configuration, partitions: Sequence[Partition]
) -> dict[str, DataError]:
    """The errors of partitions that are to be folded again, though their nights are closed for late labels."""
    return {
        name: DataError(
            f"{name}: is closed for late labels, so its rows cannot be labelled again; remove it, then update with its "
            "data and its labels (--labels)"
        )
        for name in (partition.name for partition in partitions)
        if name in snapshot.entries and is_closed(snapshot.entries[name], configuration)
    }


def relabel_nights(
    snapshot: Snapshot,
    arrived: Arrived,
    nights: Mapping[str, Night],
    engine: ThreadEngine,
    files: StateFiles,
    delivery: Delivery,
    workers: ClusterEngine | None,
) -> tuple[dict[str, Night], Array, list[Entry]]:
    """Fold the open nights anew that have the id of a new statement, except those that were just folded.

    Also returns which of these ids an open night has, and all nights that have one.
    """
    ids = arrived.new
    if ids is None:
        if arrived.counts["read"] and arrived.counts["read"] == arrived.counts["null_ids"] and not delivery.unmatched:
            raise LabelError(
                f"labels: no statement of {few(delivery.labels)} has an id; name the ids with on (--on), or accept "
                "that no row has a label with allow_unmatched (--allow-unmatched)"
            )
        return {}, np.zeros(0, np.bool_), []
    new = [night.entry for night in nights.values()]
    others = [entry for name, entry in snapshot.entries.items() if name not in nights]
    open_nights = [entry for entry in (*new, *others) if entry.state(OPEN, "")]
    folding = Folding(arrived.configuration, files, False, arrived.labels, arrived.changed)
    touch = partial(_touch, folding=folding, ids=ids, nights={*nights})
    try:
        if workers is None:
            touched = engine.each(partial(touch, engine=replace(engine, threads=1)), open_nights)
        else:
            touched = map_on_workers(workers, touch, [((), entry) for entry in open_nights], "night", engine)
            check_written((entry for _, entry in touched if entry is not None), files)
    except LabelError as error:
        raise labels_error(str(error), delivery) from error
    if arrived.unknown and not any(seen.any() for seen, _ in touched) and not delivery.unmatched:
        raise LabelError(
            "labels: none of the new ids is that of a row of an open night; name the ids with on (--on), or accept "
            "that no row has a label with allow_unmatched (--allow-unmatched)"
        )
    seen = np.any([np.zeros(ids.first.size, np.bool_), *(seen for seen, _ in touched)], axis=0)
    pairs = zip(touched, open_nights, strict=True)
    reached = [before if after is None else after for (own, after), before in pairs if own.any()]
    return {entry.partition: Night(entry, None) for _, entry in touched if entry is not None}, seen, reached


def _touch(
    entry: Entry, engine: Engine, *, folding: Folding, ids: IdTable, nights: set[str]
) -> tuple[Array, Entry | None]:
    """The new ids that a night has, and the night with its new labels unless it is one of the `nights` just folded."""
    night = OpenNight.read(entry, folding.files)
    if entry.partition in nights:
        return night.has(ids), None
    seen, rows = night.find(ids)
    return seen, folding.relabel(night.add(rows), engine) if seen.any() else None


def labels_error(why: str, delivery: Delivery) -> LabelError:
    """The error for labels that cannot be those of a night; nothing is committed."""
    return LabelError(
        f"{few(delivery.labels)}: {why.partition(';')[0]}; correct the labels, or create another store with pos_label "
        "(--pos-label)"
    )


def close_nights(context: StoreContext, configuration: Configuration, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The nights that close: without their rows, and with their values by the age of labels."""
    closing = find_closing([*entries.values()], configuration)
    if not closing:
        return {}
    engine, newest = context.engine(), newest_day(entries)
    with engine.progress:
        stored = Nights([*entries.values()], configuration, context.compaction)
        aging = Aging.of(stored, replace(engine, threads=1), newest)
        closed = engine.each(lambda entry: close_night(aging.close(entry)), closing)
    return {entry.partition: entry for entry in closed}


def reopen_nights(context: StoreContext, configuration: Configuration, entries: Sequence[Entry]) -> dict[str, Entry]:
    """The nights that open again for late labels, with all labels that arrived."""
    reopened = find_reopening(entries, configuration)
    if not reopened:
        return {}
    engine = context.engine()
    with engine.progress, context.files.undone() as files:
        labels = read_labels(configuration, files)
        folding = Folding(configuration, files, False, labels)
        alone = replace(engine, threads=1)

        def relabel(entry: Entry) -> Entry:
            night = OpenNight.read(entry, files)
            return folding.relabel(night.add(night.find(ids_of(labels))[1]), alone)

        return {entry.partition: entry for entry in engine.each(relabel, reopened)}


FAN = 8  # number of runs that are merged into one
_ROW_BYTES = 160  # bytes of a statement while all are resolved


@dataclass(frozen=True)
class Arrived:
    """The late labels of a store with those of a delivery.

    Attributes
    ----------
    configuration : that of the store, which refers to the statements
    labels : the label of each id, and the values of further columns
    new : the ids of new statements; None without new statements
    changed : the columns that new statements are about, ``""`` for the label
    unknown : whether a file was read that the store did not know
    counts : numbers of statements and ids, see `streameval.store.changing.Update`
    used : the statements about each column that were read and are in effect
    listed : the statements that were read; None unless they are to be listed
    """

    configuration: Configuration
    labels: LateLabels
    new: IdTable | None
    changed: Collection[str]
    unknown: bool
    counts: Mapping[str, int]
    used: tuple[Statements, ...]
    listed: Listed | None = None

    def _with_ids(self, used: Statements, chosen: Array) -> Array:
        """Which of some statements have one of the chosen ids of `new`."""
        none = np.zeros(used.first.size, np.bool_)
        return none if self.new is None else have_ids(used, self.new, chosen)

    def count(self, seen: Array, nights: Sequence[Entry]) -> dict[str, int]:
        """All counts; `seen` are the ids of `new` that the rows of `nights` have."""
        used, orphans = (
            sum(int(np.count_nonzero(are_labels(one.codes) & self._with_ids(one, ids))) for one in self.used)
            for ids in (seen, ~seen)
        )
        rows = sum(night.labels.neg + night.labels.pos for night in nights)
        return {**self.counts, "used": used, "orphans": orphans, "labelled_rows": rows, "nights": len(nights)}

    def save_rejects(self, path: str, seen: Array) -> None:
        """Write the statements that label no row of an open night, with the reason; `seen` are the ids of `new`."""
        table = pa.table({"reason": pa.array([], pa.string())})
        if self.listed is not None:
            table = self.listed.rejects(self._with_ids(self.used[0], ~seen))
        save(path, {}, lambda: table)


def deliver(
    configuration: Configuration, delivery: Delivery, newest: int, engine: ThreadEngine, files: PublishedFiles
) -> Arrived:
    """Add files of labels to the statements of a store.

    Parameters
    ----------
    configuration : that of the store, with types
    delivery : the files; those that are known by name, size and time are left out, unless vacuum has deleted statements
        since, or they are to be read again
    newest : the newest night of the store, as `date.toordinal`
    engine : reads the files
    files : publishes a run of the new statements

    Raises
    ------
    DataError
        If statements cannot be used, or contradict each other.
    """
    delivered, rejects = configuration.statements, delivery.rejects is not None
    if rejects and delivered.further:
        raise OptionError(
            f"rejects lists statements about labels alone, and {delivered.further[0]!r} arrives late as well: leave "
            "out rejects (--rejects)",
            "rejects",
        )
    located = locate_all(delivery.labels)
    numbers, arrivals = _number(located, delivered, newest, verify=delivery.verify)
    due = [file for file in located if file.name in arrivals]
    parts = [
        _resolve_column(source, runs, configuration, arrivals, engine, files)
        for source, runs in zip(_having(due, configuration, engine), delivered.runs.values(), strict=True)
    ]
    late = replace(parts[0].labels, others=tuple(part.labels for part in parts[1:]))
    counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
    forgotten = sorted({*delivered.forgotten} - {number for number, _ in arrivals.values()})
    entries = [(*fact, night) for fact, (_, night) in numbers.items()]
    after, unknown = delivered._replace(files=entries, forgotten=forgotten), len(entries) > len(delivered.files)
    listed, used = parts[0].listed if rejects else None, tuple(part.used for part in parts)
    if not counts["new"]:  # what was read is known from the next commit on
        return Arrived(configuration.delivered(after), late, None, (), False, counts, used, listed)
    named = dict(zip(delivered.runs, parts, strict=True))
    runs = {name: part.write(files) for name, part in named.items()}
    ids = join_ids([table_of(part.new, configuration) for part in parts])
    changed = [name for name, part in named.items() if part.new.first.size]
    configuration = configuration.delivered(after._replace(runs=runs))
    return Arrived(configuration, late, ids, changed, unknown, counts, used, listed)


def _having(due: Sequence[File], configuration: Configuration, engine: ThreadEngine) -> list[LateSource]:
    """What arrives late, column by column, with the files that have it."""
    sources = sources_of(configuration)
    every = replace(sources[0], data=[[[file] for file in due]])
    if len(sources) == 1:
        return [every]
    data = {one.column: one.data for one in split_columns(every, sources[1:], engine)[0]}
    return [replace(one, data=data.get(one.column, [])) for one in sources]


class _Column(NamedTuple):
    """The statements of a column, with those of a delivery.

    Attributes
    ----------
    runs : those before
    every : all statements; `places` are those of distinct ones, `new` is what was not known, and `used` what was read
        and is in effect
    labels : the value of each id
    counts : numbers of statements, see `Arrived`
    listed : the statements that were read; None without
    """

    runs: Runs
    every: Statements
    places: Array
    new: Statements
    used: Statements
    labels: LateLabels
    counts: dict[str, int]
    listed: Listed | None

    def write(self, files: PublishedFiles) -> Runs:
        """Write the new statements as a run, or one run of all; returns the runs."""
        if not self.new.first.size:
            return self.runs
        merged = len(self.runs.runs) + 1 >= FAN
        names, new = ([], self.every.only(self.places)) if merged else (self.runs.runs, self.new)
        name, nbytes = write_run(new, files)
        return Runs([*names, name], self.places.size, nbytes + (self.runs.bytes if names else 0))


def _resolve_column(
    source: LateSource, runs: Runs, configuration: Configuration, arrivals: Mapping[str, _Arrival],
    engine: ThreadEngine, files: PublishedFiles,
) -> _Column:  # fmt: skip
    """Add the statements of a delivery about a column to those before; raises as `deliver`."""
    what, latest = source.what, source.conflicts == "latest"
    kept = read_runs(files, runs.runs, wide=source.wide)
    theirs, parts = _read(source, configuration, engine) if any(source.inputs()) else ((), [])
    _check_types(kept, parts, source, configuration)
    read = sum(part.fates.size for part in parts)
    rows = read + sum(one.rows for one in configuration.statements.runs.values())  # those of all columns are held
    needed = rows * _ROW_BYTES
    if needed > engine.budget.limit / STATE_SHARE:
        raise OptionError(f"labels: {plural(rows, 'statement')} take about {size(needed)}: raise memory")
    arriving = [_statements(part, *arrivals[part.name]) for part in parts]
    every = Statements.joined([*kept, *arriving], what) if kept or arriving else no_statements(wide=source.wide)
    labels_by_id, conflicts, found = resolve_all(every, source, configuration)
    first = sum(one.first.size for one in kept)
    own = found.fates[first:]
    used = np.flatnonzero(own == 0)
    listed = Listed.of(parts, theirs, own, used) if parts else None
    if listed is not None and conflicts.size and source.conflicts != "drop":
        wrong = f"different {f'values of {what}' if source.wide else 'labels'} {source.when}"
        remedy = "correct the file"
        remedy += ", give a correction a later time" if source.time else ""
        if not latest:
            within = resolve_all(every, replace(source, conflicts="latest"), configuration)[1].size  # one file
            remedy += "; or " if within else "; or let the later file win (add --label-conflicts latest), or "
            remedy += "leave such ids unlabelled (add --label-conflicts drop)"
        elif not np.isin(conflicts, resolve_all(Statements.joined(arriving, what), source, configuration)[1]).any():
            wrong = "other labels than it had when it was read with the same size and time"
            remedy = "touch it, so that it counts as a new delivery"
        raise listed.contradiction(parts, conflicts.size, wrong, remedy)
    places = every.distinct(found.order)
    new = every.only(places[places >= first])
    effective = every.only(first + used)
    tally = np.bincount(listed.fates, minlength=FATES) if listed is not None else np.zeros(FATES, np.int64)
    withdrawn = int(np.count_nonzero(~are_labels(effective.codes)))
    counts = {"read": read, "new": new.first.size, "known": own.size - new.first.size}
    counts |= {"corrected": _count_corrected(found, every.codes, first)}
    counts |= count_statements(read, tally, withdrawn, int(conflicts.size))
    return _Column(runs, every, places, new, effective, labels_by_id, counts, listed)


def _count_corrected(found: Resolved, codes: Array, first: int) -> int:
    """The ids whose label a new statement changes; those from number `first` on are new."""
    last = found.order[found.last]
    starts = np.append(-1, found.last)[: last.size] + 1
    some = np.flatnonzero((last >= first) & (starts < found.last) & are_labels(codes[last]) & ~found.conflict)
    if not some.size:
        return 0
    sizes = found.last[some] - starts[some] + 1
    begins = np.cumsum(sizes) - sizes
    places = np.repeat(starts[some] - begins, sizes) + np.arange(sizes.sum())
    before = np.maximum.reduceat(np.where(found.order[places] < first, places, -1), begins)
    earlier = codes[found.order[before]]
    return int(np.count_nonzero((before >= 0) & are_labels(earlier) & (earlier != codes[last[some]])))


def _number(
    files: Sequence[File], delivered: Delivered, newest: int, *, verify: bool
) -> tuple[dict[tuple[str | int, ...], _Arrival], dict[str, _Arrival]]:
    """The arrivals of all files of labels, by name, size and time; and of those to read, by name."""
    numbers: dict[tuple[str | int, ...], _Arrival] = {
        tuple(fact): (i, int(night)) for i, (*fact, night) in enumerate(delivered.files)
    }
    due: dict[str, _Arrival] = {}
    for file, detail in zip(files, scan.details(files), strict=True):
        fact = (file.name, *detail)
        if verify or fact not in numbers or numbers[fact][0] in delivered.forgotten:
            due[file.name] = numbers.setdefault(fact, (len(numbers), newest))
    return numbers, due


def _check_types(
    kept: Sequence[Statements], parts: Sequence[StatementPart], source: LateSource, configuration: Configuration
) -> None:
    """Raise `SchemaError` if a file has labels of another type than those that arrived before."""
    common = widen if source.wide else label_type
    own = common({one.values.type for one in kept})
    for part in parts:
        there, kind = part.values.type, configuration.types.get(source.column)
        alike = common({there, *([own] if kept else [])}) is not None
        if source.wide and not pa.types.is_null(there):
            own_kind = None
            with suppress(SchemaError):
                own_kind = id_type(there, source.column)
            alike = alike and own_kind == kind
        if not alike:
            raise SchemaError(
                f"{part.name}: {source.what} has type {there}, but this store has {'ids' if source.wide else 'labels'} "
                f"of type {own if kept else kind}: cast it"
            )


def _read(
    source: LateSource, configuration: Configuration, engine: ThreadEngine
) -> tuple[Sequence[IdColumn], list[StatementPart]]:
    """The id columns of files, and their statements; each file is a delivery."""
    kinds = {column: configuration.types[name] for name, column in configuration.late_ids.items()}
    schema = pa.schema({column: WORDS[kind] for column, kind in kinds.items()})
    tables = source.find_tables(schema, "the store", engine)
    parts = [part for part in source.read_parts(tables, engine) if part.fates.size]
    for own, other in zip(tables.ours, tables.theirs, strict=True) if parts else ():
        if own.kind != kinds[own.name]:
            raise SchemaError(
                f"{parts[0].name}: column {other.name!r} has texts or other numbers than the ids of the store, "
                f"which are {kinds[own.name]} integers: cast it"
            )
    return tables.theirs, parts


def _statements(part: StatementPart, number: int, newest: int) -> Statements:
    """The statements of a part of a delivery."""
    count = part.first.size
    second = part.second if part.second.size else np.zeros(count, np.uint64)
    times = part.times if part.times.size else np.zeros(count, np.int64)
    arrivals, nights = (np.full(count, one, np.int64) for one in (number, newest))
    return Statements(part.first, second, times, arrivals, nights, part.codes, part.values)
