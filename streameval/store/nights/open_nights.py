"""Open nights of a store: the rows that it keeps for late labels, and which nights are closed.

An open night has a file of the words of its ids, and one of the columns from which it was folded, both in the order of
its rows. If it has the id of a new statement, its labelled rows are folded anew by the ordinary builders into the
states that depend on labels (those that also count the other rows take every row): the result equals a fold of the
joined files, in whatever order nights and labels arrived. Nothing is added to states or subtracted.

A night that is older than the newest by the span `labels_open` is closed by the next commit, and `vacuum` deletes its
rows. If the newest night is removed before, the nights that it closed are opened again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from streameval import scan
from streameval.errors import FormatError, NullError, SchemaError, WeightError
from streameval.evaluation.labels.statements import cast_labels
from streameval.scan import READ_ERRORS, reason
from streameval.scan.derived import UUIDS
from streameval.states.late import IdColumn, Ids, IdTable, LateLabels, comparison, read_ids
from streameval.store.files.entries import StoredState
from streameval.store.nights.partitions import day_of
from streameval.typing import view_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from typing import BinaryIO

    from streameval.evaluation.request import Request
    from streameval.scan import Scan
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.typing import Array

OPEN, IDS = "open", "ids"  # the group of the rows among the states of an open night, and their ids in place of a column
_CLOSED = {"closed ids": IDS, "closed rows": ""}  # what the rows of a night are called once it is closed
ROW = "row number"  # column of the numbers of rows, from which units follow if rows have none
_LOW = np.uint64(0xFFFFFFFF)
GAP = 8  # days: a night that is later than this after the one before it closes no other
WORDS = {"signed": pa.int64(), "unsigned": pa.uint64(), "text": pa.large_string()}  # of the ids, by their kind


def labels_for(labels: LateLabels, schema: pa.Schema, name: str) -> LateLabels:
    """The labels for a night whose columns have this schema.

    Raises
    ------
    SchemaError
        If its ids or labels have another type than those of the store.
    """
    ids = []
    for one in labels.ids:
        field = schema.field(one.name)
        if (comparison(field.type, WORDS[one.kind]) or "") != one.kind:
            raise SchemaError(
                f"{name}: column {one.name!r} has type {field.type}, but the ids of the store are {one.kind}: cast it"
            )
        ids.append(replace(one, uuid=(field.metadata or {}).items() >= UUIDS.items()))
    if labels.column not in schema.names:
        return replace(labels, ids=tuple(ids))
    values = cast_labels(labels.values, schema.field(labels.column).type, f"{name}: label column {labels.column!r}")
    return replace(labels, ids=tuple(ids), values=values, own=True)


def write_rows(
    planned: Scan, request: Request, late: LateLabels, files: PublishedFiles, lost: Collection[str] = ()
) -> list[StoredState]:
    """Write the rows of an open night and their ids, but for those of the files that were `lost`.

    Raises
    ------
    NullError
        If a row lacks a score or an id that the policies of the store require: its label may arrive later.
    """
    name, ids, words = planned.pieces[0].name, labels_for(late, planned.schema, planned.pieces[0].name).ids, []
    test = None if request.where is None else request.where.bound(planned.schema, name)
    others = {one.name for one in ids} - {*replace(request, late=None).columns}
    schema = pa.schema([field for field in planned.schema if field.name not in others])

    def write(sink: BinaryIO) -> None:
        words.append(files.publish(lambda other: write_both(sink, other)))

    def write_both(sink: BinaryIO, other: BinaryIO) -> None:
        with _stream(sink, schema) as rows_writer, _stream(other, _id_schema(ids)) as id_writer:
            for piece in (one for one in planned.pieces if one.name not in lost):
                for batch in scan.read(piece, planned.schema):
                    rows = (
                        batch if test is None else batch.filter(pa.array(test.kept_of_each([batch], [piece.name])[0]))
                    )
                    _check_rows(rows, request, piece.name)
                    rows_writer.write_batch(batch.select(schema.names))
                    id_writer.write_batch(_id_batch(read_ids(batch, ids), _id_schema(ids)))

    rows = files.publish(write)
    return [StoredState(OPEN, "", "rows", *rows), StoredState(OPEN, IDS, "ids", *words[0])]


def _stream(sink: BinaryIO, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
    return pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))


def _id_schema(ids: Sequence[IdColumn]) -> pa.Schema:
    """The words of ids; 32 bits of the second one, so that 96 bits identify a text or a tuple."""
    return pa.schema([("first", pa.uint64())] if _are_raw(ids) else [("first", pa.uint64()), ("second", pa.uint32())])


def _are_raw(ids: Sequence[IdColumn]) -> bool:
    """Whether ids are compared as integers."""
    return len(ids) == 1 and ids[0].kind != "text"


def _id_batch(ids: Ids, schema: pa.Schema) -> pa.RecordBatch:
    """The ids of rows, with nulls."""
    words = [ids.first, (ids.second & _LOW).astype(np.uint32)][: len(schema)]
    mask = ~ids.valid if ids.valid.size else None
    return pa.record_batch([pa.array(words[0], mask=mask), *map(pa.array, words[1:])], schema=schema)


def _check_rows(batch: pa.RecordBatch, request: Request, name: str) -> None:
    """Raise `NullError` if a row without a label has a value that is refused in rows with one."""
    policies = [("nan", column) for column in request.scores] + [("nulls", column) for column in request.clusters]
    for option, column in policies:
        array = batch.column(column)
        lacks = array.null_count or (pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py())
        if lacks and column not in request.label.complete and request.policy(option, column) == "error":
            raise NullError(f"{name}: column {column!r} has nulls or NaN; choose {option} (--{option})")
    if request.weight is not None:
        weight = batch.column(request.weight).cast(pa.float64())
        if weight.null_count or not pc.all(pc.and_(pc.is_finite(weight), pc.greater_equal(weight, 0))).as_py():
            raise WeightError(f"{name}: weight column {request.weight!r} must be finite and at least 0 in every row")


class OpenNight(NamedTuple):
    """An open night with the ids of its rows in batches, which are looked up several times.

    Attributes
    ----------
    entry : its row of the ledger
    ids : words of ids, by batches of rows
    """

    entry: Entry
    ids: Sequence[pa.RecordBatch]

    @classmethod
    def read(cls, entry: Entry, files: PublishedFiles) -> OpenNight:
        """Read the ids of an open night; raises `FormatError` if they cannot be read."""
        return cls(entry, list(_read(entry, IDS, files)))

    def find(self, ids: IdTable, labels: LateLabels) -> Array:
        """Which of some ids the night has, as a bool array."""
        seen = np.zeros(ids.first.size, np.bool_)
        for batch in self.ids:
            _find(batch, labels.ids, ids, seen)
        return seen

    def labelled(self, labels: LateLabels, columns: Sequence[str], files: PublishedFiles, *, every: bool) -> pa.Table:
        """The rows that have a label, or `every` row, with their labels and their numbers (`ROW`).

        Of no labelled row, a single one without a label: a scan needs a row.

        Raises
        ------
        FormatError
            If the rows cannot be read.
        SchemaError
            If the labels have another type.
        """
        names, start, parts = [*columns, labels.column], 0, list[pa.RecordBatch]()
        for ids, batch in zip(self.ids, _read(self.entry, "", files, names), strict=True):
            own = batch.column(labels.column) if labels.column in batch.schema.names else None
            if own is not None and not labels.own:
                what = f"{self.entry.partition}: label column {labels.column!r}"
                labels = replace(labels, values=cast_labels(labels.values, own.type, what), own=True)
            codes = _find(ids, labels.ids, labels.table, np.zeros(labels.table.first.size, np.bool_))
            kept = np.ones(codes.size, np.bool_) if every else labels.have_label(codes, own)
            at = np.flatnonzero(kept)
            at = at if at.size or parts else np.arange(min(1, codes.size))
            rows = pa.array(at)
            label = labels.of_codes(codes[at], None if own is None else own.take(rows))
            batch = batch if own is None else batch.drop_columns([labels.column])
            batch = batch if at.size == batch.num_rows else batch.take(rows)
            parts.append(batch.append_column(labels.column, label).append_column(ROW, pa.array(start + at)))
            start += codes.size
        return pa.Table.from_batches(parts)


def _find(batch: pa.RecordBatch, columns: Sequence[IdColumn], ids: IdTable, seen: Array) -> Array:
    """The code of each row of a batch of ids; sets `seen` for the ids that occur."""
    first, *second = batch.columns
    valid = first.is_valid().to_numpy(zero_copy_only=False) if first.null_count else np.zeros(0, np.bool_)
    words = view_numbers(first.fill_null(0)) if first.null_count else view_numbers(first)
    rest = view_numbers(second[0]).astype(np.uint64) if second else words[:0]
    return Ids(words, rest, valid, _are_raw(columns)).codes(ids._replace(second=ids.second & _LOW), seen)


def _read(
    entry: Entry, of: str, files: PublishedFiles, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an open night, or their ids; raises `FormatError` if they cannot be read."""
    state = cast("StoredState", entry.state(OPEN, of))
    try:
        data = files.load(state.file)
        names = pa.ipc.read_schema(data).names
        fields = [i for i, name in enumerate(names) if columns is None or name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
        yield from pa.ipc.open_stream(pa.BufferReader(data), options=options)
    except (FormatError, *READ_ERRORS) as error:
        where = f"{entry.partition}: {files.location.name}/{state.file}"
        raise FormatError(f"{where}: {reason(error)}; fold its partition again with replace") from error


def newest_day(names: Iterable[str], today: date | None = None) -> int:
    """The newest night as `date.toordinal`, today if there is none; those in the future or after a gap do not count.

    Of a version of the store, `today` is the day of its commit.

    Raises
    ------
    OptionError
        If the name of a night has no date.
    """
    days = sorted({day_of(name, ", so it cannot be closed for late labels by its age").toordinal() for name in names})
    last = (datetime.now(UTC).date() if today is None else today).toordinal()
    near = [later for earlier, later in pairwise(days) if later - earlier <= GAP and later <= last]
    return max([*days[:1], *near], default=last)


def find_ahead(names: Iterable[str], new: Iterable[str]) -> list[str]:
    """The new nights that are later than the newest one that counts, so that they close no others."""
    newest = newest_day(names)
    return [name for name in new if day_of(name, "").toordinal() > newest]


def find_closing(entries: Collection[Entry], configuration: Configuration, newest: int | None = None) -> list[Entry]:
    """The open nights that are older than the newest, by default of all these, by the span of open ones."""
    recent = find_recent([entry.partition for entry in entries], configuration, newest)
    return [entry for entry in entries if entry.state(OPEN, "") and entry.partition not in recent]


def find_recent(names: Collection[str], configuration: Configuration, newest: int | None = None) -> set[str]:
    """The nights that are not older than the newest by the span of open ones; empty without late labels."""
    if configuration.late is None or not names:
        return set()
    newest = newest_day(names) if newest is None else newest
    return {name for name in names if day_of(name, "").toordinal() >= newest - open_days(configuration)}


def open_days(configuration: Configuration) -> int:
    """The span of open nights."""
    return int(configuration.options["labels_open"][:-1])


def close_night(entry: Entry) -> Entry:
    """A night that is closed; the files of its rows are those of no column until vacuum deletes them."""
    return _renamed(entry, {rows: closed for closed, rows in _CLOSED.items()})


def find_reopening(entries: Collection[Entry], configuration: Configuration) -> list[Entry]:
    """The nights, open again, that were closed by one that is no longer there, and whose rows were not deleted."""
    reopened = [_renamed(e, _CLOSED) for e in entries if e.state(OPEN, min(_CLOSED))]
    if configuration.late is None or not reopened:
        return []
    names = {entry.partition for entry in entries}
    closing = {e.partition for e in find_closing(reopened, configuration, newest_day(names))}
    return [entry for entry in reopened if entry.partition not in closing]


def forget_rows(entry: Entry) -> Entry:
    """A night without the rows that it had when it was closed."""
    return replace(entry, states=tuple(s for s in entry.states if s.group != OPEN or s.of not in _CLOSED))


def _renamed(entry: Entry, names: Mapping[str, str]) -> Entry:
    states = (replace(s, of=names.get(s.of, s.of)) if s.group == OPEN else s for s in entry.states)
    return replace(entry, states=tuple(states))
