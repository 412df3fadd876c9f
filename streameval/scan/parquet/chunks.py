"""Pages of a column chunk: found by their headers, decompressed, and checked.

A chunk is read a window at a time. Bytes are not trusted: a length, width, count or code that lies is an `OSError` that
names the column. A checksum is verified where the writer stored one. The sections that are named are those of the
Parquet format (github.com/apache/parquet-format).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streameval.kernels.pages import (
    ABSENT,
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
    STATED,
    STORED,
    parse_headers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.typing import Array

    _Decompress = Callable[[pa.Buffer, int, int], pa.Buffer]  # of stored bytes, their size, and `STATED`


CODECS = {"UNCOMPRESSED", "SNAPPY", "ZSTD", "GZIP"}
_PAGES, _ROWS = 16, 1 << 18  # pages that are decoded at a time, and rows after which no further page is added
_SPARE = 1 << 20  # bytes by which a page may exceed twice its chunk, whose size some writers count without headers


def read_pages(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, rows: int, window: int, *, nullable: bool
) -> Iterator[tuple[Array, list[pa.Buffer]]]:
    """A dictionary page, or a few data pages of a column chunk at a time, as a table and their decompressed bytes.

    Parameters
    ----------
    handle : the open file
    chunk, rows : the column chunk, and its number of rows
    window : bytes that are read at a time
    nullable : whether data pages have definition levels
    """
    decompress = _decompressor(chunk.compression)
    for table, data in _stored_pages(handle, chunk, rows, window):
        pages = table.tolist()
        dictionary = pages[0][KIND] == DICTIONARY_PAGE
        sound = not dictionary or pages[0][ENCODING] in (PLAIN, PLAIN_DICTIONARY)
        check(sound, chunk, "the encoding of a dictionary is not supported")
        yield table, [_body(page, data, chunk, nullable, decompress) for page in pages]


def _stored_pages(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, rows: int, window: int
) -> Iterator[tuple[Array, pa.Buffer]]:
    """Tables of a few data pages or a dictionary page (`parse_headers`), and the bytes that hold them."""
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    place = min(chunk.data_page_offset, first or chunk.data_page_offset)
    end, data = place + chunk.total_compressed_size, pa.py_buffer(b"")
    table, size = np.empty((_PAGES + 1, COLUMNS), np.int64), window
    while rows and place < end:
        count = parse_headers(np.frombuffer(data, np.uint8), min(rows, _ROWS), table)
        if not count:  # the first page is cut off
            stored = int(table[0, STORED])
            size = max(size, stored + int(table[0, PLACE])) if stored != ABSENT else size
            check(data.size < min(size, end - place), chunk, "the header of a page is damaged")
            handle.seek(place)
            data = handle.read_buffer(min(size, end - place))
            continue
        last = table[count - 1]
        done = int(last[PLACE] + last[STORED])
        kind = int(last[KIND])
        if kind in (DATA_PAGE, DATA_PAGE_V2):
            rows -= int(table[:count, COUNT].sum())
            check(rows >= 0, chunk, "its pages have more rows than the footer says")
        if kind != INDEX_PAGE:
            check(0 <= kind <= DATA_PAGE_V2, chunk, "a page is of an unknown kind")
            yield table[:count], data
        data, place = data.slice(done), place + done
    check(not rows, chunk, f"its pages lack {rows:,} rows")


def _body(
    page: Sequence[int], data: pa.Buffer, chunk: pq.ColumnChunkMetaData, nullable: bool, decompress: _Decompress
) -> pa.Buffer:
    """The decompressed bytes of a page; levels are framed as in pages of the first version."""
    body, nbytes = data.slice(page[PLACE], page[STORED]), page[NBYTES]
    check(nbytes <= 2 * chunk.total_uncompressed_size + _SPARE, chunk, "a page is larger than its column chunk")
    if page[CHECKSUM] != ABSENT:
        check(zlib.crc32(body) == page[CHECKSUM] & 0xFFFFFFFF, chunk, "the checksum of a page is wrong")
    if page[KIND] == DATA_PAGE_V2:  # levels are not compressed, and without their length
        length, nested = page[LENGTH], page[NESTED]
        sound = 0 <= length <= min(body.size, nbytes) and nested in (0, ABSENT)
        check(sound, chunk, "the levels of a page are damaged")
        levels, body, nbytes = body.slice(0, length), body.slice(length), nbytes - length
    elif nullable and page[KIND] == DATA_PAGE:
        check(page[LEVELS] == RLE, chunk, "the encoding of levels is not supported")
    if not nbytes:
        body = body.slice(0, 0)
    elif page[COMPRESSED]:
        try:
            body = decompress(body, nbytes, page[STATED])
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            check(False, chunk, f"a page cannot be decompressed: {error}")
    check(body.size == nbytes, chunk, "a page has another size than its header says")
    if page[KIND] == DATA_PAGE_V2 and nullable:
        body = pa.py_buffer(b"".join((length.to_bytes(4, "little"), levels, body)))
    return body


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


def check(holds: bool, chunk: pq.ColumnChunkMetaData, fault: str) -> None:
    """Raise `OSError` that a column is damaged unless a condition holds."""
    if not holds:
        raise OSError(f"column {chunk.path_in_schema!r} is damaged: {fault}")
