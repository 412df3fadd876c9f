"""Ranges: the column chunks of an object, fetched in parallel, each checked for its length.

Arrow assumes that an object store answers with as many bytes as were requested. If a proxy truncates an answer, Arrow
decodes whatever was in memory. Footers and chunks are therefore fetched here: nearby chunks in one request, and
requests in parallel on as many threads as Arrow uses for I/O. Each answer is written into a buffer that ends with
random bytes. If these have not been overwritten, the answer was truncated, and the request is repeated once.
"""

from __future__ import annotations

import base64
import bisect
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyarrow import fs

_TYPES, _IGNORED = b"ARROW:schema", b"ARROW-schema"  # the key of the types, and one that Arrow passes over
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

    def read(self, size: int = -1) -> Any:
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
    """The footer of an open file, whose bytes are checked to be complete; see `footer_at`."""
    try:
        return pq.read_metadata(pa.PythonFile(RangeFile(handle, []), mode="r"))
    except _UNKNOWN as error:
        return _untyped(handle, error)


def footer_at(filesystem: fs.FileSystem, path: str) -> pq.FileMetaData:
    """The footer of a file.

    A writer notes the types of all columns under one key. If Arrow does not know one of them, such as the 128-bit
    integers of polars, it reads nothing of the file. The footer is then read without the key, and columns have the
    types of Parquet; see `typed`.
    """
    try:
        return pq.read_metadata(path, filesystem=filesystem)
    except _UNKNOWN as error:
        with filesystem.open_input_file(path) as handle:
            return _untyped(handle, error)


def _untyped(handle: pa.NativeFile, error: Exception) -> pq.FileMetaData:
    """The footer without the types that its writer noted; raises `error` if these are not what it is about."""
    size = handle.size()
    length = int.from_bytes(exactly(handle, size - 8, 4).to_pybytes(), "little") if size >= 12 else size
    if length > size - 12:
        raise error
    raw = exactly(handle, size - 8 - length, length + 8).to_pybytes()
    if _TYPES not in raw:
        raise error
    try:
        footer = pq.read_metadata(pa.BufferReader(b"PAR1" + raw.replace(_TYPES, _IGNORED)))
        pa.ipc.read_message(base64.b64decode(footer.metadata[_IGNORED], validate=True))  # else it is damaged
    except (OSError, *_UNKNOWN):
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


def coalesced(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Combine ranges that are at most `HOLE` bytes apart, up to `LARGEST` bytes together.

    >>> coalesced([(200_000, 10), (4, 100), (104, 50)])
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
