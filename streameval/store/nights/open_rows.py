"""Rows of an open night: what late labels are joined with.

Rows are kept in the order of the words of their ids, which look random, in three files:

- the *index*, which is read whole: 16 bits of each word, below those of its range of about 16 rows; the first row of
  each range; and of each batch of rows, its place and its CRC-32. An id that a night lacks has the range and bits of
  one of its rows with a probability of 1/4000, so only batches with new ids are read. It takes 2.3 bytes a row;
- the *rows*: batches of `BATCH` rows, the messages of an Arrow stream without its schema;
- the *labelled* rows, a copy of those that have the id of a statement, or a label of their own: states are folded anew
  from them alone. They are written again when the night gets labels.

Large nights have several segments of up to `SEGMENT` rows, or fewer under a small memory limit, each in this order.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from streameval import scan
from streameval.engine.fold import row_width
from streameval.errors import FormatError, NullError, SchemaError, WeightError
from streameval.evaluation.labels.statements import cast_labels
from streameval.scan import READ_ERRORS, reason
from streameval.scan.derived import UUIDS
from streameval.states.late import ABSENT, IdTable, LateLabels, comparison, find_candidates, order_words, read_ids
from streameval.states.late_parts import Ids
from streameval.store.files.entries import StoredState
from streameval.store.files.published import DAMAGED
from streameval.typing import pack_bits, valid_rows, view_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import BinaryIO

    from streameval.budget import Budget
    from streameval.evaluation.request import Request
    from streameval.scan import Scan
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.typing import Array

OPEN = "open"  # the group of these files among the states of a night, each with its name in place of a column
ROWS, INDEX, LABELLED = "", "ids", "labelled"
ROW = "row number"  # column of the numbers of rows, from which units follow if rows have none
WORDS = {"signed": pa.int64(), "unsigned": pa.uint64(), "text": pa.large_string()}  # of the ids, by their kind
BATCH, SEGMENT = 1 << 11, 1 << 20
_COPIES, _LEAST = 4, 1 << 15  # of rows while a segment is written; rows of a segment under any memory limit
_FIRST, _SECOND, _PLACE = "id word", "id second word", "id place"  # further columns of rows; the last of labelled ones
_LOW = np.uint64(0xFFFFFFFF)
_MOST_BITS = 16  # of the number of a range
_PER_RANGE = 16
_INDEX = pa.schema(
    {
        "rows": pa.int64(),
        "starts": pa.large_list(pa.uint32()),
        "tags": pa.large_list(pa.uint16()),
        "places": pa.large_list(pa.int64()),
        "sums": pa.large_list(pa.uint32()),
    }
)


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


class Segment(NamedTuple):
    """Some rows of a night, in the order of their ids; those without an id come last.

    Attributes
    ----------
    rows : number of rows
    starts : uint32 array of shape (2**bits + 1,), the first row of each range of words with equal leading bits
    tags : uint16 array, the next bits of the word of each row that has an id
    places : int64 array of shape (n_batches + 1,), where each batch begins in the file of rows, and the end
    sums : uint32 array of shape (n_batches,), their CRC-32
    """

    rows: int
    starts: Array
    tags: Array
    places: Array
    sums: Array


class _RowWriter:
    """Writes the rows of a night, a segment at a time."""

    def __init__(
        self, sink: BinaryIO, schema: pa.Schema, labels: LateLabels, budget: Budget, *, numbered: bool
    ) -> None:
        more = {_FIRST: pa.uint64()}
        more |= {} if len(labels.ids) == 1 and labels.ids[0].kind != "text" else {_SECOND: pa.uint32()}
        more |= {ROW: pa.int64()} if numbered else {}
        fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
        self.schema, self._labels = pa.schema([*fields, *more.items()]), labels
        self._packed = None if all(pa.types.is_primitive(field.type) for field in fields) else "lz4"
        self._sink, self._held, self._rows, self._start = sink, list[pa.Table](), 0, 0
        self._row_bytes = _COPIES * row_width(self.schema)
        self.room = min(SEGMENT, max(_LEAST, budget.scratch // self._row_bytes))
        self.segments, self.labelled = list[Segment](), [self.schema.append(pa.field(_PLACE, pa.int64())).empty_table()]

    @property
    def nbytes(self) -> int:
        """Bytes in memory while a segment is written."""
        return self.room * self._row_bytes

    def add(self, batch: pa.RecordBatch, numbers: Array) -> None:
        """Add rows with their numbers."""
        while batch.num_rows > (room := self.room - self._rows):
            self._add(batch.slice(0, room), numbers[:room])
            self.flush()
            batch, numbers = batch.slice(room), numbers[room:]
        self._add(batch, numbers)

    def _add(self, batch: pa.RecordBatch, numbers: Array) -> None:
        """Add rows of one segment."""
        ids = read_ids(batch, self._labels.ids)
        mask = ~ids.valid if ids.valid.size else None
        more = {_FIRST: pa.array(ids.scrambled, mask=mask), _SECOND: (ids.second & _LOW).astype(np.uint32)}
        more[ROW] = numbers
        columns = [more[name] if name in more else _decoded(batch.column(name)) for name in self.schema.names]
        self._held.append(pa.Table.from_arrays(list(map(pa.array, columns)), schema=self.schema))
        self._rows += batch.num_rows

    def flush(self) -> None:
        """Write the rows that were added as a segment."""
        if not self._rows:
            return
        table, self._held = pa.concat_tables(self._held).combine_chunks(), []
        valid = table[_FIRST].is_valid().to_numpy()
        with_id = np.flatnonzero(valid)
        order, words = order_words(table[_FIRST].fill_null(0).to_numpy()[with_id])
        table = table.take(pa.array(np.append(with_id[order], np.flatnonzero(~valid)))).combine_chunks()
        bits = np.uint64(min(_MOST_BITS, max(1, (words.size // _PER_RANGE).bit_length())))
        counts = np.bincount((words >> (np.uint64(64) - bits)).astype(np.int64), minlength=1 << int(bits))
        starts, tags = np.append(0, np.cumsum(counts)), (words << bits) >> np.uint64(64 - 16)
        sink, ends = pa.BufferOutputStream(), [table.schema.serialize().size]
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=self._packed)) as stream:
            for batch in table.to_batches(max_chunksize=BATCH):
                stream.write_batch(batch)
                ends.append(sink.tell())
        written, before = sink.getvalue(), self._sink.tell() - ends[0]
        sums = [zlib.crc32(written[start:end]) for start, end in pairwise(ends)]
        self._sink.write(written[ends[0] : ends[-1]])
        columns = starts.astype(np.uint32), tags.astype(np.uint16), before + np.array(ends), np.array(sums, np.uint32)
        self.segments.append(Segment(self._rows, *columns))
        labelled = _find(table, self._labels.table) != ABSENT
        if self._labels.own:
            labelled |= table[self._labels.column].is_valid().to_numpy()
        at = np.flatnonzero(labelled)
        self.labelled.append(_placed(table, at, self._start + at))
        self._start += self._rows
        self._rows = 0


def _decoded(column: pa.Array) -> pa.Array:
    """A column without a dictionary, since batches are read one by one."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _placed(rows: pa.Table, at: Array, places: Array) -> pa.Table:
    """Some rows of a table with their places in the night."""
    return rows.take(pa.array(at)).append_column(_PLACE, pa.array(places))


def _find(rows: pa.Table, ids: IdTable, seen: Array | None = None) -> Array:
    """The code of each row's id in a table, `ABSENT` if it lacks it; sets `seen` for the ids that occur."""
    words = rows[_FIRST].combine_chunks()
    valid = valid_rows(words) if words.null_count else np.zeros(0, np.bool_)
    rest = rows[_SECOND].to_numpy().astype(np.uint64) if _SECOND in rows.column_names else np.zeros(0, np.uint64)
    seen = np.zeros(ids.first.size, np.bool_) if seen is None else seen
    ids = ids._replace(second=ids.second & _LOW)
    return Ids(view_numbers(words.fill_null(0)), rest, valid, raw=False).codes(ids, seen)


def write_rows(
    planned: Scan, request: Request, late: LateLabels, files: PublishedFiles, budget: Budget,
    lost: Collection[str] = (),
) -> list[StoredState]:  # fmt: skip
    """Write the rows of an open night, but for those of the files that were `lost`.

    Raises
    ------
    NullError
        If a row lacks a score or an id that the policies of the store require: its label may arrive later.
    """
    name = planned.pieces[0].name
    labels = labels_for(late, planned.schema, name)
    test = None if request.where is None else request.where.bound(planned.schema, name)
    others = {one.name for one in labels.ids} - {*replace(request, late=None).columns}
    schema = pa.schema([field for field in planned.schema if field.name not in others])
    numbered = any(request.options[name] for name in ("unit", "sampled_by", "label_probability"))
    writers: list[_RowWriter] = []

    def write(sink: BinaryIO) -> None:
        writer = _RowWriter(sink, schema, labels, budget, numbered=numbered)
        writers.append(writer)
        with budget.reserved(writer.nbytes):
            for piece in (one for one in planned.pieces if one.name not in lost):
                row = piece.row
                for batch in scan.read(piece, planned.schema, writer.room):
                    rows, numbers = batch, np.arange(row, row + batch.num_rows)
                    if test is not None:
                        kept = test.kept(batch, piece.name)
                        rows, numbers = batch.filter(pack_bits(kept)), numbers[kept]
                    row += batch.num_rows
                    _check_rows(rows, request, piece.name)
                    writer.add(rows, numbers)
            writer.flush()

    rows = StoredState(OPEN, ROWS, "rows", *files.publish(write))
    index = pa.Table.from_pylist([one._asdict() for one in writers[0].segments], _INDEX)
    labelled = pa.concat_tables(writers[0].labelled)
    return [rows, _write(index, INDEX, files), _write(labelled, LABELLED, files)]


def _stream_of(rows: pa.Table | pa.RecordBatch, packed: str | None = None) -> pa.Buffer:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=packed)) as stream:
        stream.write(rows)
    return sink.getvalue()


def _write(table: pa.Table, of: str, files: PublishedFiles) -> StoredState:
    """Publish a table."""
    data = _stream_of(table.combine_chunks())
    return StoredState(OPEN, of, "rows", *files.publish(lambda sink: sink.write(data)))


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


@dataclass(frozen=True, eq=False)
class OpenNight:
    """An open night and its labelled rows.

    Attributes
    ----------
    entry : its row of the ledger
    files : the files of the store
    labelled : its labelled rows, ascending by their places
    """

    entry: Entry
    files: PublishedFiles
    labelled: pa.Table

    @classmethod
    def read(cls, entry: Entry, files: PublishedFiles) -> OpenNight:
        """Read the labelled rows of an open night; raises `FormatError` if they cannot be read."""
        with _reading(entry, LABELLED, files) as name:
            return cls(entry, files, pa.ipc.open_stream(files.load(name)).read_all())

    def has(self, ids: IdTable) -> Array:
        """Which of some ids are those of labelled rows, as a bool array."""
        seen = np.zeros(ids.first.size, np.bool_)
        _find(self.labelled, ids, seen)
        return seen

    def find(self, ids: IdTable) -> tuple[Array, pa.Table]:
        """Which of some ids the night has, as a bool array; and their rows that are not among the labelled ones.

        Raises
        ------
        FormatError
            If the index or the rows cannot be read.
        """
        seen, start = self.has(ids), 0
        done = self.labelled[_PLACE].to_numpy()
        parts = [self.labelled.slice(0, 0)]
        for segment in self._segments:
            rows = find_candidates(ids, segment.starts, segment.tags)
            near = np.searchsorted(done, start + rows)
            rows = rows[np.append(done, -1)[near] != start + rows]
            numbers, batch = np.unique(rows // BATCH, return_inverse=True)
            at = batch * BATCH + rows % BATCH  # among the batches that are read, of which only the last may be short
            parts.append(_placed(self._read(segment, numbers), at, start + rows))
            start += segment.rows
        rows = pa.concat_tables(parts).combine_chunks()
        return seen, rows.filter(pa.array(_find(rows, ids, seen) != ABSENT))

    @cached_property
    def _segments(self) -> list[Segment]:
        """The index."""
        with _reading(self.entry, INDEX, self.files) as name:
            table = pa.ipc.open_stream(self.files.load(name)).read_all()
        columns = [[one.values.to_numpy() for one in table[name]] for name in table.column_names[1:]]
        return [Segment(*row) for row in zip(table["rows"].to_pylist(), *columns, strict=True)]

    @cached_property
    def _rows(self) -> pa.Buffer:
        """The rows, of which batches are verified one by one."""
        with _reading(self.entry, ROWS, self.files) as name:
            return self.files.load(name, verified=False)

    @property
    def _no_rows(self) -> pa.Table:
        return self.labelled.slice(0, 0).drop_columns(_PLACE)

    def _read(self, segment: Segment, numbers: Array) -> pa.Table:
        """Some batches of the rows of a segment."""
        schema, batches = self._no_rows.schema, []
        with _reading(self.entry, ROWS, self.files):
            for number in numbers.tolist():
                piece = self._rows[slice(*segment.places[number : number + 2].tolist())]
                if zlib.crc32(piece) != segment.sums[number]:
                    raise FormatError(DAMAGED)
                batches.append(pa.ipc.read_record_batch(piece, schema))
        return pa.Table.from_batches(batches, schema)

    def add(self, rows: pa.Table) -> OpenNight:
        """The night with further labelled rows, which are written."""
        if not rows.num_rows:
            return self
        labelled = pa.concat_tables([self.labelled, rows]).sort_by(_PLACE)
        new = _write(labelled, LABELLED, self.files)
        states = tuple(new if (one.group, one.of) == (OPEN, LABELLED) else one for one in self.entry.states)
        return replace(self, entry=replace(self.entry, states=states), labelled=labelled)

    def labelled_rows(self, labels: LateLabels, columns: Sequence[str], *, every: bool) -> pa.Table:
        """The rows that have a label, or `every` row, with their labels and their numbers (`ROW`).

        Of no labelled row, a single one without a label: a scan needs a row.

        Raises
        ------
        FormatError
            If the rows cannot be read.
        SchemaError
            If the labels have another type.
        """
        rows = self.labelled
        if every or not rows.num_rows:
            read = (self._read(one, np.arange(one.sums.size if every else 1)) for one in self._segments)
            rows = pa.concat_tables([self._no_rows, *islice(read, None if every else 1)])
            rows = rows.combine_chunks()
        own = rows[labels.column].combine_chunks() if labels.column in rows.column_names else None
        if own is not None and not labels.own:
            what = f"{self.entry.partition}: label column {labels.column!r}"
            labels = replace(labels, values=cast_labels(labels.values, own.type, what), own=True)
        codes = _find(rows, labels.table)
        at = np.flatnonzero(np.ones(codes.size, np.bool_) if every else labels.have_label(codes, own))
        at = at if at.size else np.arange(min(1, codes.size))
        rows, own = rows.take(pa.array(at)), own if own is None else own.take(pa.array(at))
        number = rows[ROW] if ROW in rows.column_names else pa.array(at)
        rows = rows.select([name for name in rows.column_names if name in columns and name != labels.column])
        return rows.append_column(labels.column, labels.of_codes(codes[at], own)).append_column(ROW, number)


@contextmanager
def _reading(entry: Entry, of: str, files: PublishedFiles) -> Iterator[str]:
    """The name of a file of an open night; raises `FormatError` if it cannot be read."""
    name = cast("StoredState", entry.state(OPEN, of)).file
    try:
        yield name
    except (FormatError, *READ_ERRORS) as error:
        where = f"{entry.partition}: {files.location.name}/{name}"
        raise FormatError(f"{where}: {reason(error)}; fold its partition again with replace") from error
