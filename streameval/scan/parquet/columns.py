"""Columns of few distinct numbers or texts, decoded from the pages in which they are stored as codes.

Labels take 1.3 instead of 4.6 ns a row as Arrow decodes them, and a thousand texts 2.0 instead of 5.0. Rows that share
a dictionary much shorter than they are can be taken as its codes, by which states count them; texts are codes always,
and booleans are codes of themselves. Everything else is left to Arrow: other types and encodings, plain values, nested
columns, LZ4 and Brotli, small row groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels.jit import read_only
from streameval.kernels.pages import (
    ADDRESS,
    COUNT,
    DICTIONARY_PAGE,
    ENCODING,
    KIND,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    SIZE,
    START,
    VALUES,
    gather,
    unframe,
    unpack_pages,
)
from streameval.scan.parquet.chunks import CODECS, check, read_pages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.typing import Array


LEAST_ROWS = 1 << 15  # mean rows of a row group from which pages are decoded here, which takes 0.3 ms to begin
WINDOW = 1 << 18  # bytes of a column chunk that are read at a time, so that they are decompressed in the cache
MOST_ROWS = 1 << 21  # rows of a row group, and so of a page, up to which pages are decoded here
REPEATS = 4  # mean rows of a value from which rows are taken as codes
CODED = 0.5  # share of the bytes of plain values up to which a chunk of rows that may be codes is decoded here
NARROW = 1  # bytes of a row up to which a chunk of values is decoded here; Arrow gathers others as fast
_NARROW = 1 << 8  # entries of a dictionary whose codes are unpacked to bytes
_FRAME = 4  # bytes of the length of a plain text, the least that it takes
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY"}
_STORED = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}
_TYPES = {
    "INT32": ["int8", "int16", "int32", "uint8", "uint16", "uint32"],
    "INT64": ["int64", "uint64"],
    "FLOAT": ["float32"],
    "DOUBLE": ["float64"],
}
_DTYPES = {pa.from_numpy_dtype(name): np.dtype(name) for names in _TYPES.values() for name in names}
_TEXTS = {pa.dictionary(pa.int32(), values) for values in (pa.string(), pa.binary())}


def coded_columns(
    handle: pa.NativeFile,
    file: pq.ParquetFile,
    groups: Sequence[int],
    columns: Sequence[str],
    window: int = WINDOW,
    texts: Collection[str] = (),
    coded: Collection[str] = (),
) -> dict[str, NumberColumn | TextColumn | BooleanColumn]:
    """The columns among these whose pages are decoded here in all of the row groups, by name.

    Those in `texts` are dictionaries, and numbers in `coded` may be.
    """
    footer, schema = file.metadata, file.schema_arrow
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
        if name in texts and not pa.types.is_dictionary(kind):
            kind = pa.dictionary(pa.int32(), kind)
        if can_decode(column, kind, chunks, name in coded or name in texts):
            stored = _Stored(handle, list(zip(chunks, rows, strict=True)), column.max_definition_level == 1, window)
            if kind in _DTYPES:
                decoded[name] = NumberColumn(kind, stored, name in coded)
            else:
                decoded[name] = (TextColumn if kind in _TEXTS else BooleanColumn)(kind, stored)
    return decoded


def can_decode(
    column: pq.ColumnSchema, kind: pa.DataType, chunks: Sequence[pq.ColumnChunkMetaData], coded: bool
) -> bool:
    """Whether to decode the pages of a column here to an Arrow type, perhaps as codes, by what its footer says."""
    flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
    codecs, encodings = ({chunk.compression for chunk in chunks}, {e for chunk in chunks for e in chunk.encodings})
    number = kind in _DTYPES and _DTYPES[kind].name in _TYPES.get(column.physical_type, ())
    boolean = kind == pa.bool_() and column.physical_type == "BOOLEAN"
    known = number or boolean or (kind in _TEXTS and column.physical_type == "BYTE_ARRAY")
    width = np.dtype(_STORED[column.physical_type]).itemsize if number else _FRAME
    most = CODED * width if coded else NARROW
    pays = boolean or all(c.has_dictionary_page and c.total_uncompressed_size <= most * c.num_values for c in chunks)
    return flat and known and pays and codecs <= CODECS and encodings <= _ENCODINGS


class _Stored(NamedTuple):
    """How a column is stored.

    Attributes
    ----------
    handle : the open file
    chunks : column chunks with their numbers of rows
    nullable : whether pages have definition levels
    window : bytes that are read at a time
    """

    handle: pa.NativeFile
    chunks: Sequence[tuple[pq.ColumnChunkMetaData, int]]
    nullable: bool
    window: int


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
        gather(self.numbers.view(word), read_only(codes), values.view(word))


class _Pages(NamedTuple):
    """Neighbouring data pages, either all of codes or all of plain values.

    Attributes
    ----------
    table : the pages, see `streameval.kernels.pages`
    rows : their number of rows
    bodies : their decompressed bytes
    dictionary : that of the codes; None if values are plain
    chunk : their column chunk
    """

    table: Array
    rows: int
    bodies: Sequence[pa.Buffer]
    dictionary: _Dictionary | None
    chunk: pq.ColumnChunkMetaData


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

    _encodings: tuple[int, ...] = (PLAIN_DICTIONARY, RLE_DICTIONARY)  # those of codes

    def __init__(self, kind: pa.DataType, stored: _Stored) -> None:
        self._kind, self._nullable = kind, stored.nullable
        self._dtype = _DTYPES.get(kind, np.dtype(np.uint8))  # of values
        self._pages = (pages for chunk in stored.chunks for pages in self._pages_of(stored, *chunk))
        self._next: _Pages | None = None
        self._rows, self._row = _Rows(np.empty(0)), 0
        self._codes, self._present = np.empty(0, np.int32), np.empty(0, np.uint8)  # of the rows last decoded

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
                pages = self._coming()
                if shared is not None and pages.dictionary is not shared:
                    break
                placed = shared is not None and pages.rows <= rows - done
                self._decode(out[done:] if placed else None)
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

    def _coming(self) -> _Pages:
        """The next pages."""
        if self._next is None:
            self._next = next(self._pages)
        return self._next

    def _pages_of(self, stored: _Stored, chunk: pq.ColumnChunkMetaData, rows: int) -> Iterator[_Pages]:
        """The data pages of a column chunk, a few at a time; raises `OSError` if it is damaged."""
        dictionary = self._dictionary(0, pa.py_buffer(b""), chunk)
        for table, bodies in read_pages(stored.handle, chunk, rows, stored.window, nullable=stored.nullable):
            pages = table.tolist()
            if pages[0][KIND] == DICTIONARY_PAGE:
                dictionary = self._dictionary(pages[0][COUNT], bodies[0], chunk)
                continue
            coded = [page[ENCODING] in self._encodings for page in pages]
            ends = [0, *(i for i in range(1, len(pages)) if coded[i] != coded[i - 1]), len(pages)]
            for a, b in pairwise(ends):
                count = sum(page[COUNT] for page in pages[a:b])
                yield _Pages(table[a:b], count, bodies[a:b], dictionary if coded[a] else None, chunk)

    def _decode(self, room: Array | None) -> None:
        """Decode the coming pages; their codes go to the front of `room` if it is given."""
        pages = self._coming()
        table, rows, bodies, dictionary, chunk = pages
        table[:, ADDRESS], table[:, SIZE] = [body.address for body in bodies], [body.size for body in bodies]
        limit = 0 if dictionary is None else len(dictionary.entries)
        if rows > self._present.size:
            self._codes, self._present = _room(rows, np.dtype(np.int32)), _room(rows, np.dtype(np.uint8))
        scratch = self._codes if limit > _NARROW else self._codes.view(np.uint8)
        codes, present = (scratch if room is None else room)[:rows], self._present[:rows]
        values = unpack_pages(table, self._nullable, self._kind == pa.bool_(), limit, codes, present)
        check(values >= 0, chunk, "the levels or codes of a page are damaged")
        valid = present if values < rows else None
        plain = dictionary is None
        self._rows = self._plain_rows(pages, valid) if plain else _Rows(codes, dictionary, valid)
        self._row, self._next = 0, None


class NumberColumn(_CodedColumn):
    """The rows of a column of numbers; if `coded`, rows that share a short dictionary are taken as its codes."""

    def __init__(self, kind: pa.DataType, stored: _Stored, coded: bool = False) -> None:
        super().__init__(kind, stored)
        self._coded = coded

    def _shared_dictionary(self, rows: int) -> _Dictionary | None:
        if not self._coded:
            return None
        dictionary = self._rows.dictionary if self._row < self._rows.values.size else self._coming().dictionary
        return None if dictionary is None or REPEATS * len(dictionary.entries) > rows else dictionary

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        stored = np.dtype(_STORED[chunk.physical_type])
        check(size <= body.size // stored.itemsize, chunk, "a dictionary is shorter than its header says")
        values = np.zeros(size + 1, self._dtype)
        values[:size] = np.frombuffer(body, stored, size) if size else 0
        return _Dictionary(pa.Array.from_buffers(self._kind, size, [None, pa.py_buffer(values)]), values)

    def _plain_rows(self, pages: _Pages, present: Array | None) -> _Rows:
        stored, values, row = np.dtype(_STORED[pages.chunk.physical_type]), np.zeros(pages.rows, self._dtype), 0
        for page, body in _plain_pages(pages):
            count, here = page[VALUES], slice(row, row + page[COUNT])
            check(count <= (body.size - page[START]) // stored.itemsize, pages.chunk, "a page is too short")
            if count:
                where = ... if present is None else present[here].view(np.bool_)
                values[here][where] = np.frombuffer(body, stored, count, page[START])
            row += page[COUNT]
        return _Rows(values, None, present)


class BooleanColumn(_CodedColumn):
    """The rows of a column of booleans, which are codes of themselves ("Plain", "RLE")."""

    _encodings = (PLAIN, RLE)

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
            if self._coming().dictionary is not None:
                return self._coming().dictionary
            self._decode(None)
        return self._rows.dictionary

    def _joined(self, parts: Sequence[pa.Array]) -> pa.Array:
        return pa.chunked_array(parts, self._kind).unify_dictionaries().combine_chunks()

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> _Dictionary:
        check(size <= body.size // _FRAME, chunk, "a dictionary is shorter than its header says")
        offsets, data = np.zeros(size + 1, np.int32), np.empty(body.size, np.uint8)
        whole = unframe(np.frombuffer(body, np.uint8), offsets, data)
        check(whole, chunk, "a text ends beyond its page")
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return _Dictionary(pa.Array.from_buffers(self._kind.value_type, size, buffers))

    def _plain_rows(self, pages: _Pages, present: Array | None) -> _Rows:
        texts = [
            self._dictionary(page[VALUES], body.slice(page[START]), pages.chunk).entries
            for page, body in _plain_pages(pages)
        ]
        codes = np.arange(pages.rows) if present is None else np.cumsum(present, dtype=np.int64) - present
        return _Rows(codes.astype(np.int32), _Dictionary(pa.concat_arrays(texts)), present)


def _plain_pages(pages: _Pages) -> Iterator[tuple[Sequence[int], pa.Buffer]]:
    """Pages whose values are not codes, with their bytes."""
    for page, body in zip(pages.table.tolist(), pages.bodies, strict=True):
        sound = page[ENCODING] == PLAIN or not page[VALUES]
        check(sound, pages.chunk, f"the encoding {page[ENCODING]} of a page is not supported")
        yield page, body


def _room(rows: int, dtype: np.dtype[np.generic]) -> Array:
    """An array in memory of Arrow's pool, which is reused: fresh memory is slow."""
    return np.frombuffer(pa.allocate_buffer(rows * dtype.itemsize), dtype)
