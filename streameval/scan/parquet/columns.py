"""Columns of few distinct numbers or texts, decoded from the pages in which they are stored as codes.

Labels take 1.3 instead of 4.6 ns a row as Arrow decodes them, and a thousand texts 2.0 instead of 5.0. Rows that share
a dictionary much shorter than they are can be taken as its codes, by which states count them; texts are codes always,
and booleans are codes of themselves. Everything else is left to Arrow: other types and encodings, plain values, nested
columns, small row groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels import pages as kernels
from streameval.kernels.jit import read_only
from streameval.scan.parquet.chunks import CODECS, check, read_pages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.typing import Array


LEAST_ROWS = 1 << 15  # mean rows of a row group from which pages are decoded here, which takes 0.3 ms to begin
WINDOW = 1 << 20  # bytes of a column chunk that are read at a time: many windows take time, few take memory
MOST_ROWS = 1 << 21  # rows of a row group, and so of a page, up to which pages are decoded here
REPEATS = 4  # mean rows of a value from which rows are taken as codes
CODED = 2.25  # bytes of a row up to which rows that may be codes are decoded here; with more, dictionaries are long
NARROW = 1  # bytes of a row up to which a chunk of values is decoded here; Arrow gathers others as fast
_NARROW = 1 << 8  # entries of a dictionary whose codes are unpacked to bytes
_FRAME = 4  # bytes of the length of a plain text, the least that it takes
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"}  # the last one of levels
_STORED = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}
_TYPES = {
    "INT32": ["int8", "int16", "int32", "uint8", "uint16", "uint32"],
    "INT64": ["int64", "uint64"],
    "FLOAT": ["float32"],
    "DOUBLE": ["float64"],
}
_DTYPES = {pa.from_numpy_dtype(name): np.dtype(name) for names in _TYPES.values() for name in names}
_DICTIONARY = [kernels.KIND, kernels.SIZE, kernels.COUNT, kernels.ADDRESS]
_DAMAGED = "the levels or codes of a page are damaged"


def coded_columns(
    handle: pa.NativeFile,
    footer: pq.FileMetaData,
    schema: pa.Schema,
    groups: Sequence[int],
    columns: Sequence[str],
    window: int = WINDOW,
    texts: Collection[str] = (),
    coded: Collection[str] = (),
) -> dict[str, NumberColumn | TextColumn | BooleanColumn]:
    """The columns among these whose pages are decoded here in all of the row groups, by name.

    Those in `texts` are dictionaries, and numbers in `coded` may be.
    """
    rows = [footer.row_group(number).num_rows for number in groups]
    if sum(rows) < LEAST_ROWS * len(groups) or max(rows) > MOST_ROWS:
        return {}
    leaves: dict[str, list[int]] = {}
    for i in range(footer.num_columns):
        leaves.setdefault(footer.schema.column(i).path, []).append(i)
    decoded: dict[str, NumberColumn | TextColumn | BooleanColumn] = {}
    for name in columns:
        places = leaves.get(name, [])
        if len(places) != 1 or schema.names.count(name) != 1:
            continue
        chunks = [footer.row_group(number).column(places[0]) for number in groups]
        column, kind = footer.schema.column(places[0]), schema.field(name).type
        if name in texts or (name in coded and pa.types.is_fixed_size_binary(kind)):
            kind = kind if pa.types.is_dictionary(kind) else pa.dictionary(pa.int32(), kind)
        if can_decode(column, kind, chunks, name in coded or name in texts):
            tables = [read_pages(handle, *each, window) for each in zip(chunks, rows, strict=True)]
            of = TextColumn if pa.types.is_dictionary(kind) else NumberColumn if kind in _DTYPES else BooleanColumn
            nullable = column.max_definition_level == 1
            decoded[name] = of(kind, [*zip(chunks, tables, strict=True)], nullable, name in coded)
    return decoded


def can_decode(
    column: pq.ColumnSchema, kind: pa.DataType, chunks: Sequence[pq.ColumnChunkMetaData], coded: bool
) -> bool:
    """Whether to decode the pages of a column here to an Arrow type, perhaps as codes, by what its footer says."""
    flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
    codecs, encodings = ({chunk.compression for chunk in chunks}, {e for chunk in chunks for e in chunk.encodings})
    physical, most = column.physical_type, CODED if coded else NARROW
    few = all(c.has_dictionary_page and c.total_uncompressed_size <= most * c.num_values for c in chunks)
    known = flat and _is_known(physical, kind) and codecs <= CODECS and encodings <= _ENCODINGS
    return known and (few or kind == pa.bool_())


@cache
def _is_known(physical: str, kind: pa.DataType) -> bool:
    """Whether values that are stored in a physical type are decoded here to an Arrow type."""
    if kind in _DTYPES:
        return _DTYPES[kind].name in _TYPES.get(physical, ())
    if pa.types.is_dictionary(kind) and kind == pa.dictionary(pa.int32(), kind.value_type):
        if pa.types.is_fixed_size_binary(kind.value_type):
            return physical == "FIXED_LEN_BYTE_ARRAY"
        return physical == "BYTE_ARRAY" and kind.value_type in (pa.string(), pa.binary())
    return physical == "BOOLEAN" and kind == pa.bool_()


class _Dictionary(NamedTuple):
    """The values that codes stand for.

    Attributes
    ----------
    entries : the values
    numbers : the values if they are numbers, and one more for nulls
    """

    entries: pa.Array
    numbers: Array = np.empty(0)

    def gather(self, codes: Array, values: Array) -> None:
        """Write the numbers of some codes, as unsigned ones of as many bytes, so that few loops are compiled."""
        word = np.dtype(f"u{values.itemsize}")
        kernels.gather(self.numbers.view(word), read_only(codes), values.view(word))


class _Pages(NamedTuple):
    """Neighbouring data pages, either all of codes or all of plain values.

    Attributes
    ----------
    table : the pages, an int64 array of shape (n, COLUMNS), see `streameval.kernels.pages`
    holders : buffers that hold their decompressed bytes
    dictionary : that of the codes; None if values are plain
    chunk : their column chunk
    """

    table: Array
    holders: Sequence[pa.Buffer]
    dictionary: _Dictionary | None
    chunk: pq.ColumnChunkMetaData

    @property
    def rows(self) -> int:
        """Their number of rows."""
        return int(self.table[:, kernels.COUNT].sum())

    def plain(self) -> Iterator[tuple[int, pa.Buffer]]:
        """The number of values of each page that has some, and their bytes ("Plain")."""
        for address, size, count, form in self.table[:, kernels.VALUES_ADDRESS :].tolist():
            if count:
                check(form == kernels.BITS, self.chunk, "the encoding of a page is not supported")
                yield count, pa.foreign_buffer(address, size, self.holders)

    def present(self) -> Array | None:
        """Which rows are not null, as uint8; None if all are. The number of values of each page is corrected."""
        table, present = self.table, _room(self.rows, np.dtype(np.uint8))
        streams = table[:, [kernels.LEVELS_ADDRESS, kernels.LEVELS_SIZE, kernels.COUNT, kernels.LEVELS]].T.copy()
        streams[-1] = np.where(streams[-1] == kernels.BIT_PACKED, kernels.REVERSED, kernels.BARE)
        check(kernels.unpack(streams, 2, present), self.chunk, _DAMAGED)
        ends = np.cumsum(streams[2]).tolist()
        table[:, kernels.VALUES] = [np.count_nonzero(present[a:b]) for a, b in pairwise([0, *ends])]
        return present if table[:, kernels.VALUES].sum() < self.rows else None


class _Rows(NamedTuple):
    """Rows of neighbouring pages.

    Attributes
    ----------
    values : array of shape (n,), the values, or codes in a dictionary
    dictionary : that of the codes, or None
    present : uint8 array of shape (n,), 0 where a value is null, or None
    """

    values: Array
    dictionary: _Dictionary | None = None
    present: Array | None = None


class _CodedColumn(ABC):
    """The rows of a column, to be taken in any number."""

    _encodings: tuple[int, ...] = (kernels.PLAIN_DICTIONARY, kernels.RLE_DICTIONARY)  # those of codes

    def __init__(
        self,
        kind: pa.DataType,
        chunks: Sequence[tuple[pq.ColumnChunkMetaData, Iterable[tuple[Array, list[pa.Buffer]]]]],
        nullable: bool,
        coded: bool,
    ) -> None:
        """Of an Arrow type, from chunks and their pages, which are read when they are needed."""
        self._kind, self._nullable, self._coded = kind, nullable, coded
        self._dtype = _DTYPES.get(kind, np.dtype(np.uint8))  # of values
        self._tables = ((chunk, each) for chunk, tables in chunks for each in tables)
        self._queue: list[_Pages] = []
        self._chunk: pq.ColumnChunkMetaData | None = None
        self._entries: _Dictionary | None = None  # the dictionary of the chunk
        self._rows, self._row = _Rows(np.empty(0)), 0
        self._scratch = np.empty(0, np.int32)  # codes of the rows last decoded

    def take(self, rows: int) -> pa.Array:
        """The next rows, of which there are as many."""
        parts: list[pa.Array] = []
        while rows:
            parts.append(self._part(rows, self._shared_dictionary(rows)))
            rows -= len(parts[-1])
        return parts[0] if len(parts) == 1 else self._joined(parts)

    @abstractmethod
    def _shared_dictionary(self, rows: int) -> _Dictionary | None:
        """The dictionary of the next row, if the next rows are taken as its codes."""

    def _joined(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Parts of some rows, which are of different dictionaries."""
        plain = (part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part for part in parts)
        return pa.concat_arrays([pa.array([], self._kind), *plain])

    @abstractmethod
    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        """The values of a dictionary page ("Plain")."""

    def _plain_rows(self, pages: _Pages, present: Array | None) -> _Rows:
        """The rows of pages whose values are not codes ("Plain")."""
        check(False, pages.chunk, "the encoding of a page is not supported")
        return _Rows(np.empty(0), None, present)

    def _part(self, rows: int, shared: _Dictionary | None) -> pa.Array:
        """The next rows: codes of a dictionary, up to the end of its rows, or else values."""
        out = _room(rows, self._dtype if shared is None else np.dtype(np.int32))
        present, done, placed = None, 0, False
        while done < rows:
            if self._row == self._rows.values.size:
                pages = self._coming(rows - done)
                if shared is not None and pages.dictionary is not shared:
                    break
                placed = shared is not None and pages.rows <= rows - done
                self._decode(pages, out[done:] if placed else None)
            count = min(rows - done, self._rows.values.size - self._row)
            here, there = slice(self._row, self._row + count), slice(done, done + count)
            if shared is None and self._rows.dictionary is not None:
                self._rows.dictionary.gather(self._rows.values[here], out[there])
            elif not placed:
                out[there] = self._rows.values[here]
            if self._rows.present is not None:
                present = np.ones(rows, np.uint8) if present is None else present
                present[there] = self._rows.present[here]
            self._row, done = self._row + count, done + count
        nulls = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        if shared is None:
            return self._values(out[:done], nulls)
        codes = pa.Array.from_buffers(pa.int32(), done, [nulls, pa.py_buffer(out)])
        return pa.DictionaryArray.from_arrays(codes, shared.entries, safe=False)  # the codes have been checked

    def _values(self, values: Array, nulls: pa.Buffer | None) -> pa.Array:
        """Rows as values."""
        return pa.Array.from_buffers(self._kind, values.size, [nulls, pa.py_buffer(values)])

    def _coming(self, rows: int) -> _Pages:
        """The next pages, as many as `rows` hold but at least one; raises `OSError` if their chunk is damaged."""
        while not self._queue:
            chunk, (table, holders) = next(self._tables)
            if chunk is not self._chunk:
                self._chunk, self._entries = chunk, None
            kind, size, count, address = table[0, _DICTIONARY].tolist()
            if kind == kernels.DICTIONARY_PAGE:
                self._entries = self._dictionary(count, pa.foreign_buffer(address, size, holders), chunk)
                table = table[1:]
            encodings, a = table[:, kernels.ENCODING].tolist(), 0
            for coded, same in groupby(encodings, self._encodings.__contains__):
                b = a + len([*same])
                if coded and self._entries is None:  # of no values, or of booleans
                    self._entries = self._dictionary(0, pa.py_buffer(b""), chunk)
                self._queue.append(_Pages(table[a:b], holders, self._entries if coded else None, chunk))
                a = b
        pages = self._queue[0]
        if pages.rows > rows and len(pages.table) > 1:
            count = max(1, int(np.searchsorted(np.cumsum(pages.table[:, kernels.COUNT]), rows, "right")))
            self._queue[:1] = [pages._replace(table=part) for part in np.split(pages.table, [count])]
        return self._queue[0]

    def _decode(self, pages: _Pages, room: Array | None) -> None:
        """Decode the coming pages; their codes go to the front of `room` if it is given."""
        del self._queue[0]
        table, _, dictionary, chunk = pages
        rows = pages.rows
        whole = kernels.find_values(table, self._nullable)
        check(whole >= 0, chunk, _DAMAGED)
        present = None if whole else pages.present()
        if dictionary is None:
            self._rows = self._plain_rows(pages, present)
        else:
            limit = len(dictionary.entries)
            if rows > self._scratch.size:
                self._scratch = _room(rows, np.dtype(np.int32))
            scratch = self._scratch if limit > _NARROW else self._scratch.view(np.uint8)
            codes = scratch if room is None or present is not None else room
            codes = codes[: rows if present is None else int(table[:, kernels.VALUES].sum())]
            check(kernels.unpack(table[:, kernels.VALUES_ADDRESS :].T.copy(), limit, codes), chunk, _DAMAGED)
            if present is not None:
                codes = _spread(codes, present, None if room is None else room[:rows])
            self._rows = _Rows(codes, dictionary, present)
        self._row = 0


def _spread(values: Array, present: Array, rows: Array | None = None) -> Array:
    """Values of the rows that are not null among all rows; a null is 0."""
    rows = np.empty(present.size, values.dtype) if rows is None else rows
    rows[:] = 0
    rows[present.view(np.bool_)] = values
    return rows


class NumberColumn(_CodedColumn):
    """The rows of a column of numbers; if coded, rows that share a short dictionary are taken as its codes."""

    def _shared_dictionary(self, rows: int) -> _Dictionary | None:
        if not self._coded:
            return None
        dictionary = self._rows.dictionary if self._row < self._rows.values.size else self._coming(rows).dictionary
        return None if dictionary is None or REPEATS * len(dictionary.entries) > rows else dictionary

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        stored = np.dtype(_STORED[chunk.physical_type])
        check(size <= body.size // stored.itemsize, chunk, "a dictionary is shorter than its header says")
        values = np.zeros(size + 1, self._dtype)
        values[:size] = np.frombuffer(body, stored, size) if size else 0
        return _Dictionary(pa.Array.from_buffers(self._kind, size, [None, pa.py_buffer(values)]), values)

    def _plain_rows(self, pages: _Pages, present: Array | None) -> _Rows:
        stored, parts = np.dtype(_STORED[pages.chunk.physical_type]), [np.empty(0, self._dtype)]
        for count, body in pages.plain():
            check(count <= body.size // stored.itemsize, pages.chunk, "a page is too short")
            parts.append(np.frombuffer(body, stored, count).astype(self._dtype, copy=False))
        values = np.concatenate(parts)
        return _Rows(values if present is None else _spread(values, present), None, present)


class BooleanColumn(_CodedColumn):
    """The rows of a column of booleans, which are codes of themselves ("Plain", "RLE")."""

    _encodings = (kernels.PLAIN, kernels.RLE)

    def _shared_dictionary(self, rows: int) -> None:
        return None

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        check(not size, chunk, "it has a dictionary of booleans")
        return _Dictionary(pa.array([False, True]), np.array([0, 1, 0], np.uint8))

    def _values(self, values: Array, nulls: pa.Buffer | None) -> pa.Array:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(self._kind, values.size, [nulls, bits])


class TextColumn(_CodedColumn):
    """The rows of a column of texts or binaries, taken as codes."""

    def _shared_dictionary(self, rows: int) -> _Dictionary | None:
        while self._row == self._rows.values.size:
            pages = self._coming(rows)
            if pages.dictionary is not None:
                return pages.dictionary
            self._decode(pages, None)
        return self._rows.dictionary

    def _joined(self, parts: Sequence[pa.Array]) -> pa.Array:
        return pa.chunked_array(parts, self._kind).unify_dictionaries().combine_chunks()

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        kind, fixed = self._kind.value_type, pa.types.is_fixed_size_binary(self._kind.value_type)
        width = kind.byte_width if fixed else _FRAME
        check(size * width <= body.size, chunk, "a dictionary is shorter than its header says")
        if fixed:
            return _Dictionary(pa.Array.from_buffers(kind, size, [None, pa.py_buffer(body.to_pybytes())]))
        offsets, data = np.zeros(size + 1, np.int32), np.empty(body.size, np.uint8)
        whole = kernels.unframe(np.frombuffer(body, np.uint8), offsets, data)
        check(whole, chunk, "a text ends beyond its page")
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return _Dictionary(pa.Array.from_buffers(kind, size, buffers))

    def _plain_rows(self, pages: _Pages, present: Array | None) -> _Rows:
        texts = [self._dictionary(count, body, pages.chunk).entries for count, body in pages.plain()]
        texts.append(pa.array([], self._kind.value_type))
        codes = np.arange(pages.rows) if present is None else np.cumsum(present, dtype=np.int64) - present
        return _Rows(
            codes.astype(np.int32),
            _Dictionary(pa.concat_arrays(texts)),
            present,
        )


def _room(rows: int, dtype: np.dtype[np.generic]) -> Array:
    """An array in memory of Arrow's pool, which is reused: fresh memory is slow."""
    return np.frombuffer(pa.allocate_buffer(rows * dtype.itemsize), dtype)
