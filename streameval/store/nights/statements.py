"""Statements of a store: the set of all labels that arrived late, and the label of each id that follows from it.

Statements (`streameval.evaluation.labels.statements`) are kept as Parquet files, runs, of the words that identify their
ids, their times, labels and deliveries. `vacuum` deletes statements that no open night uses and that arrived a span of
open nights ago.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streameval.errors import FormatError
from streameval.evaluation.labels.statements import join_codes, label_type, resolve
from streameval.scan import READ_ERRORS, reason
from streameval.scan.widen import widen
from streameval.states.late import (
    ABSENT,
    WIDE_WITHDRAWN,
    WITHDRAWN,
    IdColumn,
    IdTable,
    LateLabels,
    are_labels,
    find_codes,
)
from streameval.store.nights.configuration import Delivered, Runs, arrow_type
from streameval.store.nights.open_nights import OPEN, OpenNight, newest_day, open_days
from streameval.store.nights.partitions import day_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.evaluation.labels.statements import LateSource, Resolved
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.typing import Array

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
    codes : uint8 array of shape (n,), places in `values`, and `WITHDRAWN` for null; of ids uint32, and `WIDE_WITHDRAWN`
    values : the labels, or ids
    """

    first: Array
    second: Array
    times: Array
    arrivals: Array
    nights: Array
    codes: Array
    values: pa.Array

    @classmethod
    def of(cls, table: pa.Table, *, wide: bool) -> Statements:
        """The statements of a table as `to_arrow` gives it; `wide` if they are about ids."""
        label = table["label"].combine_chunks().dictionary_encode()
        kind, none = (pa.uint32(), WIDE_WITHDRAWN) if wide else (pa.uint8(), WITHDRAWN)
        codes = label.indices.cast(kind).fill_null(none).to_numpy()
        return cls._make([*(table[name].to_numpy() for name in _KEYS), codes, label.dictionary])

    @classmethod
    def joined(cls, parts: Sequence[Statements], what: str) -> Statements:
        """The statements of several parts, whose labels fit together; raises `LabelError` if there are too many."""
        kinds = {part.values.type for part in parts}
        kind = label_type(kinds) if parts[0].codes.dtype == np.uint8 else widen(kinds)
        codes, values = join_codes([part._replace(values=part.values.cast(kind)) for part in parts], what)
        return cls._make([*(np.concatenate([part[i] for part in parts]) for i in range(len(_KEYS))), codes, values])

    def only(self, rows: Array) -> Statements:
        """Some of them."""
        return Statements._make([*(array[rows] for array in self[:-1]), self.values])

    def distinct(self, order: Array) -> Array:
        """Places without those of statements that repeat the one before; `order` is that of `resolve_all`."""
        new, ids = np.ones(order.size, np.bool_), self.first[order]
        again = np.flatnonzero(ids[1:] == ids[:-1]) + 1
        keys = self.second, self.times, self.codes
        new[again] = np.any([key[order[again]] != key[order[again - 1]] for key in keys], axis=0)
        places: Array = order[new]
        return places

    def to_arrow(self) -> pa.Table:
        """A table with the labels in place of their codes."""
        label = self.values.take(pa.array(self.codes, mask=~are_labels(self.codes)))
        return pa.table({**dict(zip(_KEYS, self[: len(_KEYS)], strict=True)), "label": label})


def write_run(statements: Statements, files: PublishedFiles) -> tuple[str, int]:
    """Publish statements in ascending order of their words; returns the name and the size in bytes."""
    layout = {"use_dictionary": ["arrival", "night", "label"], "column_encoding": {"first": "DELTA_BINARY_PACKED"}}
    table = statements.to_arrow()
    return files.publish(lambda sink: pq.write_table(table, sink, compression="zstd", write_statistics=False, **layout))


def no_statements(*, wide: bool) -> Statements:
    """The statements of a store before any delivery."""
    words, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    codes = np.zeros(0, np.uint32 if wide else np.uint8)
    return Statements(words, words, numbers, numbers, numbers, codes, pa.nulls(0))


def read_runs(files: PublishedFiles, runs: Iterable[str], *, wide: bool) -> list[Statements]:
    """The statements of runs; raises `FormatError` if one cannot be read."""
    statements = []
    for name in runs:
        try:
            statements.append(Statements.of(pq.read_table(pa.BufferReader(files.load(name))), wide=wide))
        except (FormatError, *READ_ERRORS) as error:
            why = "restore it from a backup, or create another store from all labels"
            raise FormatError(
                f"{files.location.name}/{name}: late labels cannot be read: {reason(error)}; {why}"
            ) from error
    return statements


def read_statements(configuration: Configuration, files: PublishedFiles, column: str = "") -> Statements:
    """All statements of a store about the label or a further column."""
    parts = read_runs(files, configuration.statements.runs[column].runs, wide=bool(column))
    return Statements.joined(parts, "the labels of the store") if parts else no_statements(wide=bool(column))


def read_labels(configuration: Configuration, files: PublishedFiles) -> LateLabels:
    """The label of each id that follows from all statements of a store, and the values of further columns."""
    labels, _, _ = resolve_all(read_statements(configuration, files), sources_of(configuration)[0], configuration)
    return replace(labels, others=read_others(configuration, files))


def read_others(configuration: Configuration, files: PublishedFiles) -> tuple[LateLabels, ...]:
    """The values of each id in the further columns that arrive late."""
    sources = sources_of(configuration)[1:]
    every = [read_statements(configuration, files, source.column) for source in sources]
    return tuple(resolve_all(one, source, configuration)[0] for one, source in zip(every, sources, strict=True))


def sources_of(configuration: Configuration) -> list[LateSource]:
    """What arrives late, column by column, labels first."""
    source = cast("LateSource", configuration.late)
    return [source, *(replace(source, column=name, wide=True) for name in source.further)]


def resolve_all(
    every: Statements, source: LateSource, configuration: Configuration
) -> tuple[LateLabels, Array, Resolved]:
    """The label of each id, the first words of the ids whose latest statements contradict each other, and the order."""
    ids = _words(every, configuration)
    found = resolve(ids, [every.times], every.codes, every.arrivals if source.conflicts == "latest" else None)
    latest = found.order[found.last]
    codes = np.where(found.conflict, np.iinfo(every.codes.dtype).max - 1, every.codes[latest]).astype(every.codes.dtype)
    words = every.first[latest], every.second[latest if len(ids) > 1 else latest[:0]]
    values = every.values
    if source.wide and pa.types.is_null(values.type):  # before any statement
        values = values.cast(arrow_type(configuration.types[source.column]))
    late = LateLabels.of(source.column, _columns(configuration), values, codes, words, own=False)
    return late, words[0][found.conflict], found


def _columns(configuration: Configuration) -> list[IdColumn]:
    """How the ids of the data are compared."""
    return [IdColumn(column, configuration.types[name]) for name, column in configuration.late_ids.items()]


def _words(statements: Statements, configuration: Configuration) -> list[Array]:
    """The words that identify the ids."""
    columns = _columns(configuration)
    single = len(columns) == 1 and columns[0].kind != "text"
    return [statements.first] if single else [statements.first, statements.second]


def table_of(statements: Statements, configuration: Configuration) -> IdTable:
    """The distinct ids of some statements."""
    return _distinct(_words(statements, configuration))


def _distinct(words: Sequence[Array]) -> IdTable:
    """The table of distinct ids, from their words."""
    order = np.lexsort(list(reversed(words)))
    new = np.ones(order.size, np.bool_)
    new[1:] = np.any([word[order[1:]] != word[order[:-1]] for word in words], axis=0)
    first, *second = (word[order[new]] for word in words)
    return IdTable.of(first, second[0] if second else first[:0], np.zeros(first.size, np.uint8))


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
        return table_of(self.every, self.configuration)

    @property
    def _is_timed(self) -> bool:
        return bool(cast("LateSource", self.configuration.late).time)

    def clock(self, newest: int) -> int:
        """Up to when labels are known, in microseconds since 1970: the end of the newest night or a later label."""
        end = (newest + 1 - _EPOCH) * _DAY
        return int(self.every.times.max(initial=end)) if self._is_timed else end

    def of_night(self, night: OpenNight) -> Statements:
        """The statements about rows of an open night."""
        return self.every.only(np.flatnonzero(have_ids(self.every, self._ids, night.has(self._ids))))

    def resolve(self, own: Statements, name: str, ages: Sequence[int]) -> list[LateLabels]:
        """The labels of a night, from its own statements up to each age; those of equal statements are one object."""
        source = cast("LateSource", self.configuration.late)
        times = own.times if self._is_timed else (own.nights + 1 - _EPOCH) * _DAY
        resolved: dict[int, LateLabels] = {}
        labels = []
        for age in ages:
            rows = np.flatnonzero(times <= reach(name, age))
            if rows.size not in resolved:
                resolved[rows.size] = resolve_all(own.only(rows), source, self.configuration)[0]
            labels.append(resolved[rows.size])
        return labels


def reach(name: str, age: int) -> int:
    """When a night reaches an age in days, in microseconds since 1970."""
    return (day_of(name, "").toordinal() + 1 - _EPOCH + age) * _DAY


def find_unused(entries: Sequence[Entry], configuration: Configuration, files: PublishedFiles) -> dict[str, Statements]:
    """The statements to keep, if others are of ids that no open night has, and all arrived a span of open nights ago.

    By their column, but for those of which all are to be kept.
    """
    columns = [column for column, runs in configuration.statements.runs.items() if runs.rows and entries]
    kept = {column: _find_used(entries, configuration, files, column) for column in columns}
    return {column: statements for column, statements in kept.items() if statements is not None}


def _find_used(
    entries: Sequence[Entry], configuration: Configuration, files: PublishedFiles, column: str
) -> Statements | None:
    """The statements about a column to keep; None if all are."""
    every = read_statements(configuration, files, column)
    is_old = every.nights < newest_day(entry.partition for entry in entries) - open_days(configuration)
    if not is_old.any():
        return None
    ids = table_of(every.only(np.flatnonzero(is_old)), configuration)
    recent = table_of(every.only(np.flatnonzero(~is_old)), configuration)
    used = _find(recent, ids) != ABSENT
    for entry in entries:
        used |= OpenNight.read(entry, files).has(ids) if entry.state(OPEN, "") else False
    kept = np.flatnonzero(~have_ids(every, ids, ~used))
    return every.only(kept) if kept.size < every.first.size else None


def have_ids(every: Statements, ids: IdTable, chosen: Array) -> Array:
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


def write_all(kept: Mapping[str, Statements], delivered: Delivered, files: PublishedFiles) -> Delivered:
    """Write all statements about some columns as one run each, in place of those of `delivered`.

    Its files may have had others.
    """
    runs = dict(delivered.runs)
    for column, statements in kept.items():
        name, nbytes = write_run(statements, files)
        runs[column] = Runs([name], statements.first.size, nbytes)
    return Delivered(runs, delivered.files, list(range(len(delivered.files))))


def ids_of(labels: LateLabels) -> IdTable:
    """The ids of all statements."""
    return join_ids([one.table for one in (labels, *labels.others)])


def join_ids(tables: Sequence[IdTable]) -> IdTable:
    """The distinct ids of several tables."""
    if len(tables) == 1:
        return tables[0]
    first, second = (np.concatenate([table[i] for table in tables]) for i in (0, 1))
    return _distinct([first, second] if second.size else [first])
