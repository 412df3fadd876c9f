"""Late labels of a store: the statements that arrived.

Statements (`streameval.evaluation.labels.statements`) form a set. They are kept as Parquet files, runs, of the words
that identify their ids, their times, labels and deliveries; a delivery adds a run, and `FAN` runs are merged into one.
From all of them follows the label of each id.

The rows that they label are those of open nights (`streameval.store.nights.open_nights`). `vacuum` deletes statements
that no open night uses and that arrived a span of open nights ago.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval import scan
from streameval.engine.fold import STATE_SHARE
from streameval.errors import FormatError, LabelError, OptionError, SchemaError
from streameval.evaluation.labels.statements import Listed, join_codes, label_type, resolve
from streameval.saving import save
from streameval.scan import READ_ERRORS, locate_all, reason
from streameval.states.late import (
    ABSENT,
    WITHDRAWN,
    IdColumn,
    IdTable,
    LateLabels,
    find_codes,
)
from streameval.store.nights.configuration import Delivered
from streameval.store.nights.open_nights import OPEN, WORDS, OpenNight, newest_day, open_days
from streameval.store.nights.partitions import day_of
from streameval.wording import plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.engine.threads import ThreadEngine
    from streameval.evaluation.labels.statements import LateSource, StatementPart
    from streameval.scan import File
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.typing import Array

    _Arrival = tuple[int, int]  # the number of a file of labels, and the newest night when it arrived

FAN = 8  # number of runs that are merged into one
_LISTED = 20  # ids in the message about conflicts
_ROW_BYTES = 160  # bytes of a statement while all are resolved
_DAY, _EPOCH = 86_400 * 10**6, date(1970, 1, 1).toordinal()  # microseconds of a day, and the day of time 0
_KEYS = ("first", "second", "time", "arrival", "night")


class Statements(NamedTuple):
    """Distinct statements.

    Attributes
    ----------
    first, second : uint64 arrays of shape (n,), the words of the ids; the second ones are 0 if integers are compared
    times : int64 array of shape (n,), microseconds since 1970; 0 without times
    arrivals : int64 array of shape (n,), number of the delivery
    nights : int64 array of shape (n,), the newest night at the arrival, as `date.toordinal`
    codes : uint8 array of shape (n,), places in `values`; `WITHDRAWN` for null
    values : the labels
    """

    first: Array
    second: Array
    times: Array
    arrivals: Array
    nights: Array
    codes: Array
    values: pa.Array

    @classmethod
    def of(cls, table: pa.Table) -> Statements:
        """The statements of a table as `to_arrow` gives it."""
        label = table["label"].combine_chunks().dictionary_encode()
        codes = label.indices.cast(pa.uint8()).fill_null(WITHDRAWN).to_numpy()
        return cls._make([*(table[name].to_numpy() for name in _KEYS), codes, label.dictionary])

    @classmethod
    def joined(cls, parts: Sequence[Statements], what: str) -> Statements:
        """The statements of several parts, whose labels fit together; raises `LabelError` if there are too many."""
        kind = label_type({part.values.type for part in parts})
        codes, values = join_codes([part._replace(values=part.values.cast(kind)) for part in parts], what)
        return cls._make([*(np.concatenate([part[i] for part in parts]) for i in range(len(_KEYS))), codes, values])

    def only(self, rows: Array) -> Statements:
        """Some of them."""
        return Statements._make([*(array[rows] for array in self[:-1]), self.values])

    def distinct(self, *, by_arrival: bool) -> Array:
        """Places of the first of equal statements; by arrival, those are left out that repeat the one before them."""
        between = (self.codes, self.arrivals) if by_arrival else (self.codes,)
        order = np.lexsort([*between, self.times, self.second, self.first])
        new = np.ones(order.size, np.bool_)
        keys = (self.first, self.second, self.times, self.codes)
        new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
        places: Array = order[new]
        return places

    def to_arrow(self) -> pa.Table:
        """A table with the labels in place of their codes."""
        label = self.values.take(pa.array(self.codes, mask=self.codes == WITHDRAWN))
        return pa.table({**dict(zip(_KEYS, self[: len(_KEYS)], strict=True)), "label": label})


@dataclass(frozen=True)
class Arrived:
    """The late labels of a store with those of a delivery.

    Attributes
    ----------
    configuration : that of the store, which refers to the statements
    labels : the label of each id
    new : the ids of new statements; None without new statements
    unknown : whether a file was read that the store did not know
    counts : statements ``read``, ``new``, ``known``, with ``null_ids``, and ids in ``conflicts``
    listed : the statements that were read, and those of them in effect; None unless they are to be listed
    """

    configuration: Configuration
    labels: LateLabels
    new: IdTable | None
    unknown: bool
    counts: Mapping[str, int]
    listed: tuple[Listed, Statements] | None = None

    def save_rejects(self, path: str, seen: Array) -> None:
        """Write the statements that label no row of an open night, with the reason; `seen` are the ids of `new`."""
        table = pa.table({"reason": pa.array([], pa.string())})
        if self.listed is not None:
            listed, used = self.listed
            table = listed.rejects(
                np.zeros(listed.rows.size, np.bool_) if self.new is None else _have(used, self.new, ~seen)
            )
        save(path, {}, lambda: table)


def deliver(
    configuration: Configuration,
    labels: Sequence[str],
    newest: int,
    engine: ThreadEngine,
    files: PublishedFiles,
    *,
    verify: bool = False,
    rejects: bool = False,
) -> Arrived:
    """Add files of labels to the statements of a store.

    Parameters
    ----------
    configuration : that of the store, with types
    labels : paths of the files; those that are known by name, size and time are left out, unless vacuum has deleted
        statements since, or `verify`
    newest : the newest night of the store, as `date.toordinal`
    engine : reads the files
    files : publishes a run of the new statements
    rejects : whether to list the statements

    Raises
    ------
    DataError
        If statements cannot be used, or contradict each other.
    """
    source, delivered = cast("LateSource", configuration.late), configuration.statements
    what, latest = f"label column {source.column!r}", source.conflicts == "latest"
    kept = _read_runs(files, delivered.runs)
    located = locate_all(labels)
    numbers, arrivals = _number(located, delivered, newest, verify=verify)
    due = [file for file in located if file.name in arrivals]
    theirs, parts = _read(due, source, configuration, engine) if due else ((), [])
    _check_types(kept, parts, what)
    read = sum(part.fates.size for part in parts)
    rows, needed = delivered.rows + read, (delivered.rows + read) * _ROW_BYTES
    if needed > engine.budget.limit / STATE_SHARE:
        raise OptionError(f"labels: {plural(rows, 'statement')} take about {size(needed)}: raise memory")
    arriving = [_statements(part, *arrivals[part.name]) for part in parts]
    every = Statements.joined([*kept, *arriving], what) if kept or arriving else _none()
    labels_by_id, conflicts, fates = _resolved(every, source, configuration)
    if conflicts.size and source.conflicts != "drop":
        raise _contradiction(conflicts, source, parts)
    places = every.distinct(by_arrival=latest)
    first = sum(one.first.size for one in kept)
    new = every.only(places[places >= first])
    counts = {"read": read, "new": new.first.size, "null_ids": read - sum(part.first.size for part in parts)}
    counts |= {"known": read - counts["null_ids"] - counts["new"], "conflicts": int(conflicts.size)}
    forgotten = sorted({*delivered.forgotten} - {number for number, _ in arrivals.values()})
    entries = [(*fact, night) for fact, (_, night) in numbers.items()]
    after, unknown = delivered._replace(files=entries, forgotten=forgotten), len(entries) > len(delivered.files)
    listed = None
    if rejects and parts:
        listed = _list(parts, theirs, fates[first:]), every.only(first + np.flatnonzero(fates[first:] == 0))
    if not new.first.size:  # what was read is known from the next commit on
        return Arrived(configuration.delivered(after), labels_by_id, None, False, counts, listed)
    merged = len(delivered.runs) + 1 >= FAN
    runs, new_run = ([], every.only(places)) if merged else (delivered.runs, new)
    name, nbytes = files.publish(lambda sink: pq.write_table(new_run.to_arrow(), sink, compression="zstd"))
    total = nbytes + (delivered.bytes if runs else 0)
    after = after._replace(runs=[*runs, name], rows=places.size, bytes=total)
    ids = _table_of(new, configuration)
    return Arrived(configuration.delivered(after), labels_by_id, ids, unknown, counts, listed)


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


def _check_types(kept: Sequence[Statements], parts: Sequence[StatementPart], what: str) -> None:
    """Raise `SchemaError` if a file has labels of another type than those that arrived before."""
    own = label_type({one.values.type for one in kept})
    for part in parts:
        if label_type({part.values.type, *([own] if kept else [])}) is None:
            raise SchemaError(
                f"{part.name}: {what} has type {part.values.type}, but this store has labels of type {own}: cast it"
            )


def _read(
    files: Sequence[File], source: LateSource, configuration: Configuration, engine: ThreadEngine
) -> tuple[Sequence[IdColumn], list[StatementPart]]:
    """The id columns of files, and their statements; each file is a delivery."""
    kinds = {column: configuration.types[name] for name, column in configuration.late_ids.items()}
    schema = pa.schema({column: WORDS[kind] for column, kind in kinds.items()})
    ours, theirs, parts = replace(source, data=[[[file] for file in files]]).read_parts(schema, "the store", engine)
    parts = [part for part in parts if part.fates.size]
    for own, other in zip(ours, theirs, strict=True) if parts else ():
        if own.kind != kinds[own.name]:
            raise SchemaError(
                f"{parts[0].name}: column {other.name!r} has texts or other numbers than the ids of the store, "
                f"which are {kinds[own.name]} integers: cast it"
            )
    return theirs, parts


def _statements(part: StatementPart, number: int, newest: int) -> Statements:
    """The statements of a part of a delivery."""
    count = part.first.size
    second = part.second if part.second.size else np.zeros(count, np.uint64)
    times = part.times if part.times.size else np.zeros(count, np.int64)
    arrivals, nights = (np.full(count, one, np.int64) for one in (number, newest))
    return Statements(part.first, second, times, arrivals, nights, part.codes, part.values)


def _none() -> Statements:
    words, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    return Statements(words, words, numbers, numbers, numbers, np.zeros(0, np.uint8), pa.nulls(0))


def _read_runs(files: PublishedFiles, runs: Iterable[str]) -> list[Statements]:
    """The statements of runs; raises `FormatError` if one cannot be read."""
    statements = []
    for name in runs:
        try:
            statements.append(Statements.of(pq.read_table(pa.BufferReader(files.load(name)))))
        except (FormatError, *READ_ERRORS) as error:
            why = "restore it from a backup, or create another store from all labels"
            raise FormatError(
                f"{files.location.name}/{name}: late labels cannot be read: {reason(error)}; {why}"
            ) from error
    return statements


def _resolved(every: Statements, source: LateSource, configuration: Configuration) -> tuple[LateLabels, Array, Array]:
    """The label of each id, the first words of the ids whose latest statements contradict each other, and all fates."""
    ids = _words(every, configuration)
    found = resolve(ids, [every.times], every.codes, every.arrivals if source.conflicts == "latest" else None)
    latest = found.order[found.last]
    codes = np.where(found.conflict, WITHDRAWN, every.codes[latest]).astype(np.uint8)
    words = every.first[latest], every.second[latest][: latest.size if len(ids) > 1 else 0]
    late = LateLabels.of(source.column, _columns(configuration), every.values, codes, words, own=False)
    fates = np.empty_like(found.fates)
    fates[found.order] = found.fates
    return late, words[0][found.conflict], fates


def _list(parts: Sequence[StatementPart], ids: Sequence[IdColumn], fates: Array) -> Listed:
    """The statements of a delivery, with what became of those that have an id."""
    all_fates = np.concatenate([part.fates for part in parts])
    all_fates[all_fates == 0] = fates
    return Listed(pa.concat_tables(part.table for part in parts), tuple(ids), np.flatnonzero(all_fates == 0), all_fates)


def _columns(configuration: Configuration) -> list[IdColumn]:
    """How the ids of the data are compared."""
    return [IdColumn(column, configuration.types[name]) for name, column in configuration.late_ids.items()]


def _words(statements: Statements, configuration: Configuration) -> list[Array]:
    """The words that identify the ids."""
    columns = _columns(configuration)
    single = len(columns) == 1 and columns[0].kind != "text"
    return [statements.first] if single else [statements.first, statements.second]


def _table_of(statements: Statements, configuration: Configuration) -> IdTable:
    """The distinct ids of some statements."""
    words = _words(statements, configuration)
    order = np.lexsort(list(reversed(words)))
    new = np.ones(order.size, np.bool_)
    new[1:] = np.any([word[order[1:]] != word[order[:-1]] for word in words], axis=0)
    first, *second = (word[order[new]] for word in words)
    return IdTable.of(first, second[0] if second else first[:0], np.zeros(first.size, np.uint8))


def _contradiction(words: Array, source: LateSource, parts: Sequence[StatementPart]) -> LabelError:
    """The error for ids whose latest statements contradict each other."""
    shown: dict[str, None] = {}
    concerned = [part for part in parts if np.isin(part.first, words).any()]
    for part in concerned:
        rows = np.flatnonzero(part.fates == 0)[np.isin(part.first, words)][: 100 * _LISTED]
        names = [other for _, other in source.on]
        shown |= dict.fromkeys(
            ", ".join(map(repr, row.values())) for row in part.table.select(names).take(rows).to_pylist()
        )
    ids = "; ".join(list(shown)[:_LISTED]) + (", …" if len(shown) > _LISTED else "")
    when = "in one delivery" if source.conflicts == "latest" else "at one time" if source.time else "and no times"
    remedies = [] if source.time else ["label_time (--label-time)"]
    remedy = " or ".join([*remedies, "other label_conflicts (--label-conflicts)"])
    return LabelError(
        f"{concerned[0].name if concerned else 'labels'}: {plural(words.size, 'id')} with different labels {when}: "
        f"{ids}; correct the file, or create a store with {remedy}"
    )


def read_statements(configuration: Configuration, files: PublishedFiles) -> Statements:
    """All statements of a store."""
    parts = _read_runs(files, configuration.statements.runs)
    return Statements.joined(parts, "the labels of the store") if parts else _none()


def read_labels(configuration: Configuration, files: PublishedFiles) -> LateLabels:
    """The label of each id that follows from all statements of a store."""
    return _resolved(read_statements(configuration, files), cast("LateSource", configuration.late), configuration)[0]


@dataclass(frozen=True)
class LabelsByAge:
    """The statements of a store by their age after the end of a night.

    A statement is as old as its time is later than the end of the night; without times, as the end of the newest night
    at its arrival.

    Attributes
    ----------
    every : the statements
    configuration : that of the store
    """

    every: Statements
    configuration: Configuration

    @cached_property
    def _ids(self) -> IdTable:
        return _table_of(self.every, self.configuration)

    @cached_property
    def _labels(self) -> LateLabels:
        return self._resolve(self.every)

    def _resolve(self, statements: Statements) -> LateLabels:
        return _resolved(statements, cast("LateSource", self.configuration.late), self.configuration)[0]

    @property
    def _is_timed(self) -> bool:
        return bool(cast("LateSource", self.configuration.late).time)

    def clock(self, newest: int) -> int:
        """Up to when labels are known, in microseconds since 1970: the end of the newest night or a later label."""
        end = (newest + 1 - _EPOCH) * _DAY
        return int(self.every.times.max(initial=end)) if self._is_timed else end

    def of(self, night: OpenNight) -> Statements:
        """The statements about rows of an open night."""
        return self.every.only(np.flatnonzero(_have(self.every, self._ids, night.find(self._ids, self._labels))))

    def resolve(self, own: Statements, name: str, ages: Sequence[int]) -> list[LateLabels]:
        """The labels of a night, from its own statements up to each age; those of equal statements are one object."""
        times = own.times if self._is_timed else (own.nights + 1 - _EPOCH) * _DAY
        resolved: dict[int, LateLabels] = {}
        labels = []
        for age in ages:
            rows = np.flatnonzero(times <= reach(name, age))
            if rows.size not in resolved:
                resolved[rows.size] = self._resolve(own.only(rows))
            labels.append(resolved[rows.size])
        return labels


def reach(name: str, age: int) -> int:
    """When a night reaches an age in days, in microseconds since 1970."""
    return (day_of(name, "").toordinal() + 1 - _EPOCH + age) * _DAY


def find_unused(entries: Sequence[Entry], configuration: Configuration, files: PublishedFiles) -> Statements | None:
    """The statements to keep, if others are of ids that no open night has, and all arrived a span of open nights ago.

    None if all are to be kept.
    """
    delivered = configuration.statements
    if not delivered.rows or not entries:
        return None
    every = read_statements(configuration, files)
    is_old = every.nights < newest_day(entry.partition for entry in entries) - open_days(configuration)
    if not is_old.any():
        return None
    ids, labels = (
        _table_of(every.only(np.flatnonzero(is_old)), configuration),
        _resolved(every, cast("LateSource", configuration.late), configuration)[0],
    )
    recent = _table_of(every.only(np.flatnonzero(~is_old)), configuration)
    used = _find(recent, ids) != ABSENT
    for entry in entries:
        used |= OpenNight.read(entry, files).find(ids, labels) if entry.state(OPEN, "") else False
    kept = np.flatnonzero(~_have(every, ids, ~used))
    return every.only(kept) if kept.size < every.first.size else None


def _have(every: Statements, ids: IdTable, chosen: Array) -> Array:
    """Which statements have one of the chosen ids, as a bool array."""
    table = IdTable.of(ids.first[chosen], ids.second[chosen] if ids.second.size else ids.second, ids.codes[chosen])
    words = IdTable(every.first, every.second if ids.second.size else ids.second, *ids[2:])
    own: Array = _find(table, words) != ABSENT
    return own


def _find(table: IdTable, ids: IdTable) -> Array:
    """The codes of ids in a table, `ABSENT` if it lacks them."""
    seen = np.zeros(table.first.size, np.bool_)
    codes: Array = find_codes(ids.first, ids.second, np.zeros(0, np.bool_), False, *table, seen)
    return codes


def write_all(statements: Statements, delivered: Delivered, files: PublishedFiles) -> Delivered:
    """Write all statements as one run, in place of those of `delivered`; its files may have had others."""
    name, nbytes = files.publish(lambda sink: pq.write_table(statements.to_arrow(), sink, compression="zstd"))
    forgotten = range(len(delivered.files))
    return Delivered([name], delivered.files, statements.first.size, nbytes, list(forgotten))
