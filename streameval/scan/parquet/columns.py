"""Columns of few distinct numbers, decoded from the pages in which they are stored as codes.

Labels of one or two bits take 2.8 instead of 4.8 ns a row as Arrow decodes them, and scores of three digits as long.
Rows that share a dictionary much shorter than they are can be taken as its codes, by which states count them.
A column chunk is read a window at a time, and decoded a few pages at a time. Everything else is left to Arrow: other
types and encodings, plain values, nested columns, LZ4 and Brotli, and small row groups. The sections that are named are
those of the Parquet format (github.com/apache/parquet-format).

Bytes are not trusted: a length, width, count or code that lies is an `OSError` that names the column. A checksum is
verified where the writer stored one.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels.jit import read_only
from streameval.kernels.pages import (
    ABSENT,
    ADDRESS,
    CHECKSUM,
    COLUMNS,
    COMPRESSED,
    COUNT,
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    ENCODING,
    INDEX_PAGE,
    KIND,
    LENGTH,
    LEVELS,
    NBYTES,
    NESTED,
    PLACE,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    SIZE,
    START,
    STATED,
    STORED,
    VALUES,
    gather,
    parse_headers,
    unpack_pages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.typing import Array

    _Decompress = Callable[[pa.Buffer, int, int], pa.Buffer]  # of stored bytes, their size, and `STATED`


LEAST_ROWS = 1 << 15  # mean rows of a row group from which pages are decoded here, which takes 0.3 ms to begin
WINDOW = 1 << 20  # bytes of a column chunk that are read at a time
_PAGES, _ROWS = 16, 1 << 17  # pages that are decoded at a time, and rows after which no further page is added
_SPARE = 1 << 20  # bytes by which a page may exceed twice its chunk, whose size some writers count without headers
MOST_ROWS = 1 << 21  # rows of a row group, and so of a page, up to which pages are decoded here
REPEATS = 4  # mean rows of a value from which rows are taken as codes
CODED = 0.5  # share of the bytes of plain values up to which a chunk is decoded here; Arrow copies values as fast
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY"}
_CODECS = {"UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP"}
_STORED = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}
_TYPES = {
    "INT32": ["int8", "int16", "int32", "uint8", "uint16", "uint32"],
    "INT64": ["int64", "uint64"],
    "FLOAT": ["float32"],
    "DOUBLE": ["float64"],
}
_DTYPES = {pa.from_numpy_dtype(name): np.dtype(name) for names in _TYPES.values() for name in names}


def number_columns(
    handle: pa.NativeFile,
    file: pq.ParquetFile,
    groups: Sequence[int],
    columns: Sequence[str],
    window: int,
    coded: Collection[str] = (),
) -> dict[str, NumberColumn]:
    """The columns among these whose pages are decoded here in all of the row groups, by name.

    Those in `coded` may be taken as dictionaries.
    """
    footer, schema = file.metadata, file.schema_arrow
    rows = [footer.row_group(number).num_rows for number in groups]
    if sum(rows) < LEAST_ROWS * len(groups) or max(rows) > MOST_ROWS:
        return {}
    leaves: dict[str, list[int]] = {}
    for i in range(footer.num_columns):
        leaves.setdefault(footer.schema.column(i).path, []).append(i)
    decoded = {}
    for name in columns:
        places = leaves.get(name, [])
        if len(places) == 1 and schema.names.count(name) == 1:
            chunks = [footer.row_group(number).column(places[0]) for number in groups]
            column, kind = footer.schema.column(places[0]), schema.field(name).type
            if can_decode(column, kind, chunks):
                nullable = column.max_definition_level == 1
                pairs = list(zip(chunks, rows, strict=True))
                decoded[name] = NumberColumn(handle, kind, pairs, nullable, window, coded=name in coded)
    return decoded


def can_decode(column: pq.ColumnSchema, kind: pa.DataType, chunks: Sequence[pq.ColumnChunkMetaData]) -> bool:
    """Whether the pages of a column can be decoded here to an Arrow type, by what its footer says."""
    flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
    codecs, encodings = ({chunk.compression for chunk in chunks}, {e for chunk in chunks for e in chunk.encodings})
    known = kind in _DTYPES and _DTYPES[kind].name in _TYPES.get(column.physical_type, ())
    return flat and known and all(map(_is_coded, chunks)) and codecs <= _CODECS and encodings <= _ENCODINGS


def _is_coded(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a chunk has a dictionary that pays: with its codes, it takes at most `CODED` of the bytes of values."""
    width = np.dtype(_STORED[chunk.physical_type]).itemsize
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= CODED * width * chunk.num_values)


class _Pages(NamedTuple):
    """Neighbouring data pages, either all of codes or all of plain values.

    Attributes
    ----------
    table : the pages, see `streameval.kernels.pages`
    rows : their number of rows
    bodies : their decompressed bytes
    dictionary : the values of the codes, and one more for nulls; None if values are plain
    chunk : their column chunk
    """

    table: Array
    rows: int
    bodies: Sequence[pa.Buffer]
    dictionary: Array | None
    chunk: pq.ColumnChunkMetaData


class _Rows(NamedTuple):
    """Rows of neighbouring pages.

    Attributes
    ----------
    values : array of shape (n,), the values, or codes in a dictionary
    dictionary : the values of the codes, or None
    present : uint8 array of shape (n,), 0 where a value is null, or None
    """

    values: Array
    dictionary: Array | None = None
    present: Array | None = None


class NumberColumn:
    """The rows of a column, to be taken in any number.

    Parameters
    ----------
    handle : the open file
    kind : Arrow type
    chunks : column chunks with their numbers of rows
    nullable : whether pages have definition levels
    window : bytes that are read at a time
    coded : whether rows that share a short dictionary are taken as its codes
    """

    def __init__(
        self,
        handle: pa.NativeFile,
        kind: pa.DataType,
        chunks: Sequence[tuple[pq.ColumnChunkMetaData, int]],
        nullable: bool,
        window: int = WINDOW,
        *,
        coded: bool = False,
    ) -> None:
        self._handle, self._kind, self._nullable, self._window, self._coded = handle, kind, nullable, window, coded
        self._dtype = _DTYPES[kind]
        self._word = np.dtype(f"u{self._dtype.itemsize}")  # the dictionary's values, so that few loops are compiled
        self._pages = (pages for chunk, count in chunks for pages in self._pages_of(chunk, count))
        self._next: _Pages | None = None
        self._rows, self._row = _Rows(np.empty(0)), 0
        self._codes, self._present = np.empty(0, np.int32), np.empty(0, np.uint8)  # of the rows last decoded

    def take(self, rows: int) -> pa.Array:
        """The next rows, of which there are as many; a dictionary only if they have one, which pays."""
        shared = self._shared_dictionary(rows)
        out = _room(rows, self._dtype if shared is None else np.dtype(np.int32))
        present, done, placed = None, 0, False
        while done < rows:
            if self._row == self._rows.values.size:
                pages = self._coming()
                placed = shared is not None and pages.dictionary is not None and pages.rows <= rows - done
                self._rows, self._row, self._next = self._unpack(pages, out[done:] if placed else None), 0, None
            count = min(rows - done, self._rows.values.size - self._row)
            here, there = slice(self._row, self._row + count), slice(done, done + count)
            if shared is not None and self._rows.dictionary is not shared:  # one row group ends, or its dictionary
                values = _room(rows, self._dtype)
                gather(shared, read_only(out[:done]), values[:done].view(self._word))
                shared, out, placed = None, values, False
            if not placed and (shared is not None or self._rows.dictionary is None):
                out[there] = self._rows.values[here]
            elif shared is None:
                gather(self._rows.dictionary, read_only(self._rows.values[here]), out[there].view(self._word))
            if self._rows.present is not None:
                present = np.ones(rows, np.uint8) if present is None else present
                present[there] = self._rows.present[here]
            self._row, done = self._row + count, done + count
        nulls = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        if shared is None:
            return pa.Array.from_buffers(self._kind, rows, [nulls, pa.py_buffer(out)])
        codes = pa.Array.from_buffers(pa.int32(), rows, [nulls, pa.py_buffer(out)])
        entries = pa.Array.from_buffers(self._kind, shared.size - 1, [None, pa.py_buffer(shared)])
        return pa.DictionaryArray.from_arrays(codes, entries, safe=False)  # the codes have been checked

    def _shared_dictionary(self, rows: int) -> Array | None:
        """The dictionary of the next row, if the next rows may be taken as its codes."""
        if not (self._coded and rows):
            return None
        dictionary = self._rows.dictionary if self._row < self._rows.values.size else self._coming().dictionary
        return None if dictionary is None or REPEATS * dictionary.size > rows else dictionary

    def _coming(self) -> _Pages:
        """The next pages."""
        if self._next is None:
            self._next = next(self._pages)
        return self._next

    def _pages_of(self, chunk: pq.ColumnChunkMetaData, rows: int) -> Iterator[_Pages]:
        """The data pages of a column chunk, a few at a time; raises `OSError` if it is damaged."""
        dictionary = np.zeros(1, self._word)  # without entries
        decompress = _decompressor(chunk.compression)
        for table, data in self._stored_pages(chunk, rows):
            pages = table.tolist()
            bodies = [_body(page, data, chunk, self._nullable, decompress) for page in pages]
            if pages[0][KIND] == DICTIONARY_PAGE:
                sound = pages[0][ENCODING] in (PLAIN, PLAIN_DICTIONARY)
                _check(sound, chunk, "the encoding of a dictionary is not supported")
                dictionary = self._dictionary(pages[0][COUNT], bodies[0], chunk)
                continue
            coded = [page[ENCODING] in (PLAIN_DICTIONARY, RLE_DICTIONARY) for page in pages]
            ends = [0, *(i for i in range(1, len(pages)) if coded[i] != coded[i - 1]), len(pages)]
            for a, b in pairwise(ends):
                count = sum(page[COUNT] for page in pages[a:b])
                yield _Pages(table[a:b], count, bodies[a:b], dictionary if coded[a] else None, chunk)

    def _dictionary(self, size: int, body: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> Array:
        """The values of a dictionary page, and one more for the codes of nulls."""
        stored = np.dtype(_STORED[chunk.physical_type])
        _check(size <= body.size // stored.itemsize, chunk, "a dictionary is shorter than its header says")
        values = np.zeros(size + 1, self._dtype)
        values[:size] = np.frombuffer(body, stored, size) if size else 0
        return values.view(self._word)

    def _stored_pages(self, chunk: pq.ColumnChunkMetaData, rows: int) -> Iterator[tuple[Array, pa.Buffer]]:
        """Tables of a few data pages or a dictionary page (`parse_headers`), and the bytes that hold them."""
        first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
        place = min(chunk.data_page_offset, first or chunk.data_page_offset)
        end, data = place + chunk.total_compressed_size, pa.py_buffer(b"")
        table, size = np.empty((_PAGES + 1, COLUMNS), np.int64), self._window
        while rows and place < end:
            count = parse_headers(np.frombuffer(data, np.uint8), min(rows, _ROWS), table)
            if not count:  # the first page is cut off
                stored = int(table[0, STORED])
                size = max(size, stored + int(table[0, PLACE])) if stored != ABSENT else size
                _check(data.size < min(size, end - place), chunk, "the header of a page is damaged")
                self._handle.seek(place)
                data = self._handle.read_buffer(min(size, end - place))
                continue
            last = table[count - 1]
            done = int(last[PLACE] + last[STORED])
            kind = int(last[KIND])
            if kind in (DATA_PAGE, DATA_PAGE_V2):
                rows -= int(table[:count, COUNT].sum())
                _check(rows >= 0, chunk, "its pages have more rows than the footer says")
            if kind != INDEX_PAGE:
                _check(0 <= kind <= DATA_PAGE_V2, chunk, "a page is of an unknown kind")
                yield table[:count], data
            data, place = data.slice(done), place + done
        _check(not rows, chunk, f"its pages lack {rows:,} rows")

    def _unpack(self, pages: _Pages, room: Array | None) -> _Rows:
        """The rows of some pages; their codes go to the front of `room` if it is given."""
        table, rows, bodies, dictionary, chunk = pages
        table[:, ADDRESS], table[:, SIZE] = [body.address for body in bodies], [body.size for body in bodies]
        if rows > self._present.size:
            self._codes, self._present = _room(rows, np.dtype(np.int32)), _room(rows, np.dtype(np.uint8))
        codes, present = (self._codes if room is None else room)[:rows], self._present[:rows]
        limit = 0 if dictionary is None else dictionary.size - 1
        count = unpack_pages(table, self._nullable, limit, codes, present)
        _check(count >= 0, chunk, "the levels or codes of a page are damaged")
        has_nulls = count < rows
        values = codes if dictionary is not None else np.zeros(rows, self._dtype)
        if dictionary is None:
            ends = np.cumsum(table[:, COUNT]).tolist()
            for page, body, end in zip(table.tolist(), bodies, ends, strict=True):
                here = slice(end - page[COUNT], end)
                stored = _plain_values(body, page, chunk)
                values[here][present[here].view(np.bool_) if has_nulls else ...] = stored
        return _Rows(values, dictionary, present if has_nulls else None)


def _body(
    page: Sequence[int], data: pa.Buffer, chunk: pq.ColumnChunkMetaData, nullable: bool, decompress: _Decompress
) -> pa.Buffer:
    """The decompressed bytes of a page; levels are framed as in pages of the first version."""
    body, nbytes = data.slice(page[PLACE], page[STORED]), page[NBYTES]
    _check(nbytes <= 2 * chunk.total_uncompressed_size + _SPARE, chunk, "a page is larger than its column chunk")
    if page[CHECKSUM] != ABSENT:
        _check(zlib.crc32(body) == page[CHECKSUM] & 0xFFFFFFFF, chunk, "the checksum of a page is wrong")
    if page[KIND] == DATA_PAGE_V2:  # levels are not compressed, and without their length
        length, nested = page[LENGTH], page[NESTED]
        sound = 0 <= length <= min(body.size, nbytes) and nested in (0, ABSENT)
        _check(sound, chunk, "the levels of a page are damaged")
        levels, body, nbytes = body.slice(0, length), body.slice(length), nbytes - length
    elif nullable and page[KIND] == DATA_PAGE:
        _check(page[LEVELS] == RLE, chunk, "the encoding of levels is not supported")
    if not nbytes:
        body = body.slice(0, 0)
    elif page[COMPRESSED]:
        try:
            body = decompress(body, nbytes, page[STATED])
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            _check(False, chunk, f"a page cannot be decompressed: {error}")
    _check(body.size == nbytes, chunk, "a page has another size than its header says")
    if page[KIND] == DATA_PAGE_V2 and nullable:
        body = pa.py_buffer(b"".join((length.to_bytes(4, "little"), levels, body)))
    return body


def _room(rows: int, dtype: np.dtype[np.generic]) -> Array:
    """An array in memory of Arrow's pool, which is reused: fresh memory is slow."""
    return np.frombuffer(pa.allocate_buffer(rows * dtype.itemsize), dtype)


def _plain_values(body: pa.Buffer, page: Sequence[int], chunk: pq.ColumnChunkMetaData) -> Array:
    """The values of a page that are not codes ("Plain")."""
    count, start, size = page[VALUES], page[START], body.size - page[START]
    _check(page[ENCODING] == PLAIN or not count, chunk, f"the encoding {page[ENCODING]} of a page is not supported")
    stored = np.dtype(_STORED[chunk.physical_type])
    _check(count <= size // stored.itemsize, chunk, "a page is too short")
    return np.frombuffer(body, stored, count, start) if count else np.empty(0, stored)


def _decompressor(codec: str) -> _Decompress:
    """How a page is decompressed to a size, which it must state: Arrow's codecs do not tell when they write less."""
    if codec == "UNCOMPRESSED":
        return lambda data, _size, _stated: data
    if codec == "GZIP":
        return lambda data, size, _: pa.py_buffer(zlib.decompress(data, zlib.MAX_WBITS | 16, size))
    decompress = pa.Codec(codec.lower()).decompress
    if codec == "SNAPPY":
        return lambda data, size, stated: decompress(data, size) if stated == size else data.slice(0, 0)

    def of_zstandard(data: pa.Buffer, size: int, _: int) -> pa.Buffer:
        stated = _zstd_size(data)
        if stated < 0:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return stream.read_buffer(size + 1)
        return decompress(data, size) if stated == size else data.slice(0, 0)

    return of_zstandard


def _zstd_size(data: pa.Buffer) -> int:
    """The size in the header of data compressed by Zstandard, −1 if it is not there (RFC 8878, section 3.1.1.1)."""
    raw = bytes(memoryview(data)[:18])
    flags = raw[4] if len(raw) > 4 else 0
    single = flags >> 5 & 1
    width = (0, 2, 4, 8)[flags >> 6] or single
    start = 6 - single + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(raw[start : start + width], "little") + (256 if width == 2 else 0)
    return size if width else -1


def _check(holds: bool, chunk: pq.ColumnChunkMetaData, fault: str) -> None:
    """Raise `OSError` that a column is damaged unless a condition holds."""
    if not holds:
        raise OSError(f"column {chunk.path_in_schema!r} is damaged: {fault}")
