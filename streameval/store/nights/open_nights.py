"""Open nights of a store: their rows, which wait for late labels, and which nights are closed.

If an open night has the id of a new statement, its labelled rows are folded anew by the ordinary builders into the
states that depend on labels (those that also count the other rows take every row): the result equals a fold of the
joined files, in whatever order nights and labels arrived. Nothing is added to states or subtracted.

A night that is older than the newest by the span `labels_open` is closed by the next commit, and `vacuum` deletes its
rows. If the newest night is removed before, the nights that it closed are opened again.

Rows are kept in the order of the words of their ids, which look random, in three files:

- the *index*, which is read whole: 16 bits of each word, below those of its range of 2 to 16 rows; the first row of
  each range; and of each batch of rows, its place and its CRC-32. An id that a night lacks has the range and bits of
  one of its rows with a probability of at most 1/4000, so only batches with new ids are read. It takes 2.3 bytes a row,
  up to 4 in small nights;
- the *rows*: batches of `BATCH` rows, the messages of an Arrow stream without its schema. Of a word they have the bits
  that the index lacks, in 4 bytes, or 8 in nights of less than 2¹⁷ rows. Of a unit they have its block, if nothing else
  reads its column;
- the *labelled* rows, a copy of those that have the id of a statement, or a label of their own: states are folded anew
  from them alone. They are written again when the night gets labels.

Large nights have several segments of up to `SEGMENT` rows, or fewer under a small memory limit, each in this order.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from streameval.evaluation.request import NO_INTERVALS
from streameval.scan import READ_ERRORS, reason
from streameval.scan.derived import UUIDS
from streameval.states.grouped.keys import Blocks
from streameval.states.late import ABSENT, IdTable, LateLabels, comparison, find_candidates, order_words, read_ids
from streameval.states.late_parts import Ids
from streameval.states.protocol import Batch
from streameval.store.files.entries import StoredState
from streameval.store.files.published import DAMAGED
from streameval.store.nights.partitions import day_of
from streameval.typing import pack_bits, valid_rows, view_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from typing import BinaryIO

    from streameval.budget import Budget
    from streameval.evaluation.request import Request
    from streameval.scan import Scan
    from streameval.store.files.entries import Entry
    from streameval.store.files.published import PublishedFiles
    from streameval.store.nights.configuration import Configuration
    from streameval.typing import Array

OPEN = "open"  # the group of these files among the states of a night, each with its name in place of a column
ROWS, INDEX, LABELLED = "", "ids", "labelled"
ROW = "row number"  # column of the numbers of rows, from which units follow if rows have none
WORDS = {"signed": pa.int64(), "unsigned": pa.uint64(), "text": pa.large_string()}  # of the ids, by their kind
BATCH, SEGMENT = 1 << 11, 1 << 20
_COPIES, _LEAST = 5, 1 << 15  # of rows while a segment is written; rows of a segment under any memory limit
_FIRST, _SECOND, _REST, _BLOCK = "id word", "id second word", "id rest", "unit block"  # further columns of rows
_PLACE = "id place"  # and of labelled ones
_LOW = np.uint64(0xFFFFFFFF)
_TAG_BITS = 16
_TRIED = 1 << 12  # integers, or their digits, among which every block of units has one
_MOST_BITS = 16  # of the number of a range
_PER_RANGE = 4  # rows at least
_INDEX = pa.schema(
    {
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
    labels = replace(labels, ids=tuple(ids), others=tuple(replace(one, ids=tuple(ids)) for one in labels.others))
    if labels.column not in schema.names:
        return labels
    values = cast_labels(labels.values, schema.field(labels.column).type, f"{name}: label column {labels.column!r}")
    return replace(labels, values=values, own=True)


class Segment(NamedTuple):
    """Some rows of a night, in the order of their ids; those without an id come last.

    Attributes
    ----------
    starts : uint32 array of shape (2**bits + 1,), the first row of each range of words with equal leading bits
    tags : uint16 array of shape (rows,), the next bits of the word of each row
    places : int64 array of shape (n_batches + 1,), where each batch begins in the file of rows, and the end
    sums : uint32 array of shape (n_batches,), their CRC-32
    """

    starts: Array
    tags: Array
    places: Array = np.zeros(1, np.int64)
    sums: Array = np.zeros(0, np.uint32)

    @classmethod
    def of(cls, words: Array, nulls: int) -> tuple[Segment, pa.Array]:
        """The segment of rows with these words, ascending, and of some without; and the bits that it lacks, by row.

        Examples
        --------
        >>> segment, rest = Segment.of(np.array([7, 1 << 63], np.uint64), 1)
        >>> segment.words(np.arange(3), rest.to_numpy()).to_pylist()
        [7, 9223372036854775808, None]
        """
        bits = min(_MOST_BITS, max(1, (words.size // _PER_RANGE).bit_length()))
        counts = np.bincount((words >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
        starts = np.append(0, np.cumsum(counts)).astype(np.uint32)
        words = np.append(words, np.zeros(nulls, np.uint64))
        segment = cls(starts, ((words << np.uint64(bits)) >> np.uint64(64 - _TAG_BITS)).astype(np.uint16))
        return segment, pa.array(words & np.uint64((1 << segment.shift) - 1)).cast(segment.rest)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.tags.size)

    @property
    def shift(self) -> int:
        """By how many bits a word is shifted to give its range and its tag."""
        return 64 - _TAG_BITS - (self.starts.size - 1).bit_length() + 1

    @property
    def rest(self) -> pa.DataType:
        """The type of the bits of a word below."""
        return pa.uint32() if self.shift <= 32 else pa.uint64()

    def words(self, rows: Array, rest: Array) -> pa.Array:
        """The words of the ids of some rows, from their bits below."""
        high = (np.searchsorted(self.starts, rows, "right") - 1).astype(np.uint64) << np.uint64(_TAG_BITS)
        words = ((high | self.tags[rows]) << np.uint64(self.shift)) | rest
        null = rows >= self.starts[-1]
        return pa.array(words, mask=null if null.any() else None)


class _RowWriter:
    """Writes the rows of a night, a segment at a time; `blocks` are those of its units, if nothing else needs these."""

    def __init__(
        self, sink: BinaryIO, schema: pa.Schema, labels: LateLabels, budget: Budget, blocks: Blocks | None, *,
        numbered: bool,
    ) -> None:  # fmt: skip
        more = {_FIRST: pa.uint64()}
        more |= {} if len(labels.ids) == 1 and labels.ids[0].kind != "text" else {_SECOND: pa.uint32()}
        more |= {ROW: pa.int64()} if numbered else {}
        more |= {_BLOCK: pa.uint8()} if blocks else {}
        fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
        fields = [field for field in fields if blocks is None or field.name not in blocks.columns]
        self.schema, self._labels, self._blocks = pa.schema([*fields, *more.items()]), labels, blocks
        self._packed = None if all(pa.types.is_primitive(field.type) for field in fields) else "lz4"
        self._sink, self._held, self._rows, self._start = sink, list[pa.Table](), 0, 0
        self._row_bytes = _COPIES * row_width(self.schema)
        self.room = min(SEGMENT, max(_LEAST, budget.scratch // self._row_bytes))
        self.segments, self.labelled = list[Segment](), [self.schema.append(pa.field(_PLACE, pa.int64())).empty_table()]

    @property
    def nbytes(self) -> int:
        """Bytes in memory while a segment is written."""
        return self.room * self._row_bytes

    def add(self, batch: pa.RecordBatch, numbers: Array, origin: str) -> None:
        """Add rows with their numbers in their sequence, `origin`."""
        while batch.num_rows > (room := self.room - self._rows):
            self._add(batch.slice(0, room), numbers[:room], origin)
            self.flush()
            batch, numbers = batch.slice(room), numbers[room:]
        self._add(batch, numbers, origin)

    def _add(self, batch: pa.RecordBatch, numbers: Array, origin: str) -> None:
        """Add rows of one segment."""
        ids = read_ids(batch, self._labels.ids)
        mask = ~ids.valid if ids.valid.size else None
        more = {_FIRST: pa.array(ids.scrambled, mask=mask), _SECOND: (ids.second & _LOW).astype(np.uint32)}
        more[ROW] = numbers
        if self._blocks is not None:
            units = {name: batch.column(name) for name in self._blocks.columns}
            rows = Batch(np.zeros(numbers.size, np.uint8), None, units, kept=numbers, origin=origin)
            more[_BLOCK] = self._blocks.numbers(rows).astype(np.uint8)
        columns = [pa.array(more[name] if name in more else batch.column(name)) for name in self.schema.names]
        # batches are read one by one, so they have no dictionaries
        columns = [one.dictionary_decode() if isinstance(one, pa.DictionaryArray) else one for one in columns]
        self._held.append(pa.Table.from_arrays(columns, schema=self.schema))
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
        segment, rest = Segment.of(words, self._rows - words.size)
        rows = table.drop_columns(_FIRST).append_column(_REST, rest)
        sink, ends = pa.BufferOutputStream(), [rows.schema.serialize().size]
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=self._packed)) as stream:
            for batch in rows.to_batches(max_chunksize=BATCH):
                stream.write_batch(batch)
                ends.append(sink.tell())
        written, before = sink.getvalue(), self._sink.tell() - ends[0]
        sums = [zlib.crc32(written[start:end]) for start, end in pairwise(ends)]
        self._sink.write(written[ends[0] : ends[-1]])
        self.segments.append(segment._replace(places=before + np.array(ends), sums=np.array(sums, np.uint32)))
        labelled = np.zeros(self._rows, np.bool_)
        for one in (self._labels, *self._labels.others):
            codes = _find(table, one.table)
            labelled |= codes != np.iinfo(codes.dtype).max
        if self._labels.own:
            labelled |= table[self._labels.column].is_valid().to_numpy()
        at = np.flatnonzero(labelled)
        self.labelled.append(table.take(pa.array(at)).append_column(_PLACE, pa.array(self._start + at)))
        self._start += self._rows
        self._rows = 0


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
    blocks = _own_blocks(request)
    numbered = blocks is None and any(request.options[name] for name in ("unit", "sampled_by", "label_probability"))
    writers: list[_RowWriter] = []

    def write(sink: BinaryIO) -> None:
        writer = _RowWriter(sink, schema, labels, budget, blocks, numbered=numbered)
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
                    writer.add(rows, numbers, piece.origin)
            writer.flush()

    rows = StoredState(OPEN, ROWS, "rows", *files.publish(write))
    index = pa.Table.from_pylist([one._asdict() for one in writers[0].segments], _INDEX)
    labelled = pa.concat_tables(writers[0].labelled)
    return [rows, _write(index, INDEX, files), _write(labelled, LABELLED, files)]


def _own_blocks(request: Request) -> Blocks | None:
    """The blocks of the units of a request; None without units, or if their column serves another purpose."""
    unit = request.resampling.unit
    kept = replace(request, resampling=NO_INTERVALS, late=None).columns
    late = request.late.further if request.late else ()
    shared = unit in {*kept, *request.slicing.sources, *late}
    return None if unit is None or shared or request.design else request.resampling.blocks


def with_units(rows: pa.Table, unit: str, kind: pa.DataType) -> pa.Table:
    """Rows with an id of the same block in place of their unit, if only its block was kept."""
    if _BLOCK not in rows.column_names:
        return rows
    ids = pa.array(np.arange(_TRIED)).cast(kind)
    numbers = Blocks(unit).numbers(Batch(np.zeros(_TRIED, np.uint8), None, {unit: ids}))
    units = ids.take(pa.array(np.unique(numbers, return_index=True)[1]))
    column = [pa.DictionaryArray.from_arrays(chunk, units) for chunk in rows[_BLOCK].chunks]
    return rows.drop_columns(_BLOCK).append_column(unit, pa.chunked_array(column, pa.dictionary(pa.uint8(), kind)))


def _write(table: pa.Table, of: str, files: PublishedFiles) -> StoredState:
    """Publish a table as an Arrow stream."""
    stored = pa.BufferOutputStream()
    with pa.ipc.new_stream(stored, table.schema) as stream:
        stream.write(table.combine_chunks())
    data = stored.getvalue()
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
        done = np.append(self.labelled[_PLACE].to_numpy(), -1)
        parts = [self.labelled.slice(0, 0)]
        for segment in self._segments:
            rows = find_candidates(ids, segment.starts, segment.tags)
            near = np.searchsorted(done[:-1], start + rows)
            rows = rows[done[near] != start + rows]
            parts.append(self._read(segment, rows).append_column(_PLACE, pa.array(start + rows)))
            start += segment.rows
        rows = pa.concat_tables(parts).combine_chunks()
        return seen, rows.filter(pack_bits(_find(rows, ids, seen) != ABSENT))

    @cached_property
    def _segments(self) -> list[Segment]:
        """The index."""
        with _reading(self.entry, INDEX, self.files) as name:
            table = pa.ipc.open_stream(self.files.load(name)).read_all()
        columns = [[one.values.to_numpy() for one in table[name]] for name in table.column_names]
        return [Segment(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def _rows(self) -> pa.Buffer:
        """The rows, of which batches are verified one by one."""
        with _reading(self.entry, ROWS, self.files) as name:
            return self.files.load(name, verified=False)

    @property
    def _no_rows(self) -> pa.Table:
        return self.labelled.slice(0, 0).drop_columns(_PLACE)

    def _read(self, segment: Segment, rows: Array) -> pa.Table:
        """Some rows of a segment, ascending."""
        schema = self._no_rows.schema
        names = schema.names
        schema = schema.remove(names.index(_FIRST)).append(pa.field(_REST, segment.rest))
        number, batches = rows // BATCH, []
        new = np.append(True, number[1:] != number[:-1])[: rows.size]
        with _reading(self.entry, ROWS, self.files):
            for i in number[new].tolist():
                piece = self._rows[slice(*segment.places[i : i + 2].tolist())]
                if zlib.crc32(piece) != segment.sums[i]:
                    raise FormatError(DAMAGED)
                batches.append(pa.ipc.read_record_batch(piece, schema))
        at = (np.cumsum(new) - 1) * BATCH + rows % BATCH  # of the batches that were read, only the last may be short
        table = pa.Table.from_batches(batches, schema).take(pa.array(at)).combine_chunks()
        return table.append_column(_FIRST, segment.words(rows, table[_REST].to_numpy())).select(names)

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
            read = (self._read(one, np.arange(one.rows if every else 1)) for one in self._segments)
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
        kept = {*columns, _BLOCK} - {labels.column}
        others = [(one.column, one.of_codes(_find(rows, one.table), None)) for one in labels.others]
        rows = rows.select([name for name in rows.column_names if name in kept])
        for name, values in others:
            rows = rows.append_column(name, values)
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


_CLOSED = {"closed ids": INDEX, "closed labelled": LABELLED, "closed rows": ROWS}  # the files of a closed night
GAP = 8  # days: a night that is later than this after the one before it closes no other


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
    return _rename(entry, {rows: closed for closed, rows in _CLOSED.items()})


def find_reopening(entries: Collection[Entry], configuration: Configuration) -> list[Entry]:
    """The nights, open again, that were closed by one that is no longer there, and whose rows were not deleted."""
    reopened = [_rename(e, _CLOSED) for e in entries if e.state(OPEN, min(_CLOSED))]
    if configuration.late is None or not reopened:
        return []
    names = {entry.partition for entry in entries}
    closing = {e.partition for e in find_closing(reopened, configuration, newest_day(names))}
    return [entry for entry in reopened if entry.partition not in closing]


def forget_rows(entry: Entry) -> Entry:
    """A night without the rows that it had when it was closed."""
    return replace(entry, states=tuple(s for s in entry.states if s.group != OPEN or s.of not in _CLOSED))


def _rename(entry: Entry, names: Mapping[str, str]) -> Entry:
    states = (replace(s, of=names.get(s.of, s.of)) if s.group == OPEN else s for s in entry.states)
    return replace(entry, states=tuple(states))
