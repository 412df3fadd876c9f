"""Dictionary pages: their size, and how many rows to decode at a time if their texts are long.

A footer gives the bytes of a column chunk, but not the length of its texts. A chunk that repeats one text of a megabyte
takes little more than a megabyte, but decodes to gigabytes. Such a chunk stores each distinct text once, in its first
page. The header of that page gives its size and its number of texts, and the page itself their lengths.

*Ranges of an object.* Arrow assumes that an object store answers with as many bytes as were requested. If a proxy
truncates an answer, Arrow decodes whatever was in memory. Footers and chunks are therefore fetched here: nearby chunks
in one request, and requests in parallel on as many threads as Arrow uses for I/O. Each answer is written into a buffer
that ends with random bytes. If these have not been overwritten, the answer was truncated, and the request is repeated
once.
"""

from __future__ import annotations

import base64
import bisect
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streameval.kernels.keys import longest_framed
from streameval.kernels.pages import (
    ABSENT,
    COLUMNS,
    COUNT,
    DICTIONARY_PAGE,
    KIND,
    NBYTES,
    OTHER,
    PLACE,
    STORED,
    parse_headers,
)
from streameval.scan.widen import is_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyarrow import fs


TEXT_BYTES = 1 << 23  # bytes that the texts of a batch of several rows may take
_HEADER = 256  # bytes to read; most headers take 20 to 60
_LONG_HEADER = 1 << 15  # bytes to read; the header of a data page has up to four texts of 4 kB in its statistics
_PAGES = 1 << 14  # most pages of a chunk to look at
_CODECS = {"LZ4": "lz4_raw"}  # Parquet's names that differ from those of Arrow's codecs


def read_header(handle: pa.NativeFile, start: int, end: int) -> list[int] | None:
    """The header of the page that begins at an offset of a file, by the columns of `streameval.kernels.pages`.

    None if it is damaged; few bytes are enough unless its statistics are long.
    """
    pages = np.empty((2, COLUMNS), np.int64)
    for most in (_HEADER, _LONG_HEADER):
        handle.seek(start)
        parse_headers(np.frombuffer(handle.read(min(most, end - start)), np.uint8), 1, OTHER, -ABSENT, pages)
        if pages[0, STORED] != ABSENT:
            header: list[int] = pages[0].tolist()
            return header
    return None


class Dictionary(NamedTuple):
    """The dictionary of a column chunk, as the header of its page describes it.

    Attributes
    ----------
    nbytes : uncompressed size; 0 if there is no dictionary
    texts : number of texts
    start, stored : offset and size of the page in the file, without its header
    """

    nbytes: int = 0
    texts: int = 0
    start: int = 0
    stored: int = 0

    @classmethod
    def of(cls, handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> Dictionary:
        """Read the header of the chunk's first page.

        Parameters
        ----------
        handle : pyarrow.NativeFile
        chunk : pyarrow.parquet.ColumnChunkMetaData
        """
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        header = read_header(handle, start, start + chunk.total_compressed_size)
        if header is None or header[KIND] != DICTIONARY_PAGE:
            return cls()
        return cls(header[NBYTES], header[COUNT], start + header[PLACE], header[STORED])

    def longest(self, handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int:
        """Bytes of the longest text; those of all texts together if the page cannot be decompressed."""
        if self.nbytes <= 0 or self.stored <= 0:
            return 0
        handle.seek(self.start)
        page = handle.read(self.stored)
        try:
            if chunk.compression != "UNCOMPRESSED":
                page = pa.Codec(_CODECS.get(chunk.compression, chunk.compression.lower())).decompress(page, self.nbytes)
        except (pa.ArrowException, ValueError, OSError):
            return self.nbytes
        return min(self.nbytes, int(longest_framed(np.frombuffer(page, np.uint8))))


def largest_page(handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> int:
    """Uncompressed bytes of the largest page of a column chunk, from the headers of its pages.

    Parameters
    ----------
    handle : pyarrow.NativeFile
    chunk : pyarrow.parquet.ColumnChunkMetaData

    Returns
    -------
    int
        Only of the pages before the first header that is damaged, and of the first 16,384.
    """
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end, largest = start + chunk.total_compressed_size, 0
    for _ in range(_PAGES):
        header = read_header(handle, start, end)
        if header is None:
            break
        largest = max(largest, header[NBYTES])
        start += header[PLACE] + header[STORED]
        if start >= end:
            break
    return largest


def decodable_rows(arrays: Iterable[pa.Array]) -> int:
    """Number of rows of these columns whose dictionaries decode to at most `TEXT_BYTES` of text; at least 1.

    >>> decodable_rows([pa.array(["a" * 1000, "b"]).dictionary_encode()]) == TEXT_BYTES // 1000
    True
    """
    coded = (array.dictionary for array in arrays if pa.types.is_dictionary(array.type))
    longest = sum(pc.max(pc.binary_length(texts)).as_py() or 0 for texts in coded if is_text(texts.type))
    return max(1, TEXT_BYTES // max(1, longest))


def fitting_rows(
    handle: pa.NativeFile, footer: pq.FileMetaData, groups: Sequence[int], columns: Collection[str], most: int
) -> int:
    """Number of rows to decode at a time, so that their texts take at most `TEXT_BYTES`; from 1 to `most`.

    It is computed from the longest text in each dictionary.

    Parameters
    ----------
    handle, footer : handle and footer of the file
    groups : numbers of the row groups
    columns : columns whose texts are decoded to plain values
    most : largest number of rows
    """
    schema, longest = footer.schema, 0
    leaves = [leaf for leaf in range(len(schema)) if schema.column(leaf).physical_type == "BYTE_ARRAY"]
    leaves = [leaf for leaf in leaves if schema.column(leaf).path in columns]
    for number in groups if leaves else ():
        group = footer.row_group(number)
        texts = map(group.column, leaves)
        large = (c for c in texts if min(most, group.num_rows) * c.total_uncompressed_size > TEXT_BYTES)
        longest = max(longest, sum(Dictionary.of(handle, chunk).longest(handle, chunk) for chunk in large))
    return max(1, min(most, TEXT_BYTES // max(1, longest)))


_TYPES, _IGNORED = b"ARROW:schema", b"ARROW-schema"  # the key of the types, and one that Arrow passes over
_TAIL = 1 << 16  # bytes to read at the end of a file, as Arrow does
_SIGNATURE = 28  # bytes behind a footer that is not encrypted itself, where columns are
_UNKNOWN = (pa.ArrowException, ValueError, KeyError, TypeError)
GUARD = 16  # random bytes that every answer must overwrite
HOLE = 8 << 10  # gap in bytes up to which one request fetches two chunks
LARGEST = 32 << 20  # bytes up to which chunks are fetched in one request


class RangeFile(io.RawIOBase):
    """A read-only file with some ranges in memory; other ranges are fetched when they are read.

    Parameters
    ----------
    handle : pyarrow.NativeFile
    ranges : sequence of (int, int)
        Offset and length of each range to prefetch, ascending.
    """

    def __init__(self, handle: pa.NativeFile, ranges: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._handle, self._size, self._at = handle, handle.size(), 0
        self._starts = [start for start, _ in ranges]
        if len(ranges) < 2:
            self._data = [exactly(handle, *one) for one in ranges]
        else:
            with ThreadPoolExecutor(min(len(ranges), pa.io_thread_count())) as pool:
                self._data = list(pool.map(lambda one: exactly(handle, *one), ranges))

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the offset of the next byte, relative to the start (0), the current offset (1) or the end (2)."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> object:
        """The next `size` bytes, or all remaining bytes."""
        return self.read_buffer(size).to_pybytes()

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """The next `size` bytes, or all remaining bytes; without a copy if they are in memory."""
        size = self._size - self._at if size is None or size < 0 else max(0, min(size, self._size - self._at))
        start, self._at = self._at, self._at + size
        i = bisect.bisect_right(self._starts, start) - 1
        if i >= 0 and start + size <= self._starts[i] + self._data[i].size:
            return self._data[i].slice(start - self._starts[i], size)
        return exactly(self._handle, start, size)


def footer_of(handle: pa.NativeFile) -> pq.FileMetaData:
    """The footer of an open file, whose bytes are checked to be complete; one request unless it is long.

    A writer notes the types of all columns under one key. If Arrow does not know one of them, such as the 128-bit
    integers of polars, it reads nothing of the file. The footer is then read without the key, and columns have the
    types of Parquet; see `typed`.

    Raises
    ------
    OSError
        If columns are encrypted: Arrow would abort the process.
    """
    size = handle.size()
    tail = exactly(handle, max(0, size - _TAIL), min(size, _TAIL)).to_pybytes()
    length = int.from_bytes(tail[-8:-4], "little")
    if len(tail) < length + 8 <= size:
        tail = exactly(handle, size - 8 - length, length + 8).to_pybytes()
    try:
        footer = pq.read_metadata(pa.BufferReader(tail))
    except _UNKNOWN as error:
        footer = _untyped(tail, length, error)
    return _unless_encrypted(footer, length)


def footer_at(filesystem: fs.FileSystem, path: str) -> pq.FileMetaData:
    """The footer of a file; see `footer_of`."""
    with filesystem.open_input_file(path) as handle:
        if filesystem.type_name != "local":
            return footer_of(handle)
        try:
            footer = pq.read_metadata(handle)
        except _UNKNOWN:
            return footer_of(handle)
        return _unless_encrypted(footer, int.from_bytes(handle.read_at(4, handle.size() - 8), "little"))


def _unless_encrypted(footer: pq.FileMetaData, length: int) -> pq.FileMetaData:
    if length == footer.serialized_size + _SIGNATURE:
        raise OSError("some of its columns are encrypted, and Arrow would abort; write it without encryption")
    return footer


def _untyped(tail: bytes, length: int, error: Exception) -> pq.FileMetaData:
    """The footer without the types that its writer noted; raises `error` if these are not what it is about."""
    raw = tail[-8 - length :]
    if len(raw) != length + 8 or _TYPES not in raw:
        raise error
    try:
        footer = pq.read_metadata(pa.BufferReader(b"PAR1" + raw.replace(_TYPES, _IGNORED)))
        pa.ipc.read_message(base64.b64decode(footer.metadata[_IGNORED], validate=True))  # else it is damaged
    except (OSError, EOFError, *_UNKNOWN):
        raise error from None
    return footer


def typed(footer: pq.FileMetaData) -> bool:
    """Whether the types are those that the writer noted; without them, time zones are not known."""
    return _IGNORED not in (footer.metadata or {})


def exactly(handle: pa.NativeFile, start: int, length: int) -> pa.Buffer:
    """Read `length` bytes of a file from `start`.

    Raises
    ------
    OSError
        If the answer was too short twice.
    """
    data = np.empty(length, np.uint8)
    guard = np.frombuffer(os.urandom(min(GUARD, length)), np.uint8)
    for unread in (guard, ~guard):
        data[length - len(unread) :] = unread
        got = handle.get_stream(start, length).readinto(data) if length else 0
        if got == length and (not length or data[-1] != unread[-1]):
            return pa.py_buffer(data)
    raise OSError(f"the storage answered with fewer than the {length:,} bytes requested from offset {start:,}")


def chunk_ranges(footer: pq.FileMetaData, groups: Iterable[int], columns: Sequence[str]) -> list[tuple[int, int]]:
    """Offset and length of the chunks of some columns, and of all fields below them."""
    found = []
    wanted = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    leaves = [i for path, i in wanted.items() if any(path == name or path.startswith(f"{name}.") for name in columns)]
    for number in groups:
        group = footer.row_group(number)
        for leaf in leaves:
            chunk = group.column(leaf)
            first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
            start = min(chunk.data_page_offset, first or chunk.data_page_offset)
            found.append((start, chunk.total_compressed_size))
    return found


def coalesce_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Combine ranges that are at most `HOLE` bytes apart, up to `LARGEST` bytes together.

    >>> coalesce_ranges([(200_000, 10), (4, 100), (104, 50)])
    [(4, 150), (200000, 10)]
    """
    joined: list[tuple[int, int]] = []
    for start, length in sorted(ranges):
        if joined:
            before, have = joined[-1]
            if start - before - have <= HOLE and start + length - before <= LARGEST:
                joined[-1] = before, max(have, start + length - before)
                continue
        joined.append((start, length))
    return joined
