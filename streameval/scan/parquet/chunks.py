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

from streameval.kernels import pages as kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from streameval.typing import Array


ARROW_CODECS = {"ZSTD": "zstd", "GZIP": "gzip", "LZ4": "lz4_raw", "BROTLI": "brotli"}
CODECS = {"UNCOMPRESSED", "SNAPPY", *(name for name, codec in ARROW_CODECS.items() if pa.Codec.is_available(codec))}
_PAGES, _ROWS = 64, 1 << 20  # pages that are decoded at a time, and rows after which no further page is added
_SNAPPY_GROWTH = 22  # of at most 64 bytes from three
_SUMMED = [kernels.PLACE, kernels.STORED, kernels.CHECKSUM]
_BODY = [kernels.PLACE, kernels.STORED, kernels.LEVELS_SIZE, kernels.SIZE, kernels.COMPRESSED]
_OTHER_SIZE = "a page has another size than its header says"
_SPARE = 1 << 20  # bytes by which a page may exceed twice its chunk, whose size some writers count without headers


def read_pages(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, rows: int, window: int
) -> Iterator[tuple[Array, list[pa.Buffer]]]:
    """A few data pages of a column chunk at a time, perhaps behind its dictionary, and the buffers that hold them.

    Parameters
    ----------
    handle : the open file
    chunk, rows : the column chunk, and its number of rows
    window : bytes that are read at a time

    Yields
    ------
    pages : int64 array of shape (n, COLUMNS), see `parse_headers`; it is overwritten by the next one
    buffers : list of pyarrow.Buffer
    """
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    place = min(chunk.data_page_offset, first or chunk.data_page_offset)
    end, data, size = place + chunk.total_compressed_size, pa.py_buffer(b""), window
    codec = {"UNCOMPRESSED": kernels.UNCOMPRESSED, "SNAPPY": kernels.SNAPPY}.get(chunk.compression, kernels.OTHER)
    most = 2 * chunk.total_uncompressed_size + _SPARE
    table = np.empty((_PAGES + 1, kernels.COLUMNS), np.int64)
    while rows and place < end:
        raw = np.frombuffer(data, np.uint8)
        count, held, unfinished = kernels.parse_headers(raw, min(rows, _ROWS), codec, most, table)
        if not count:  # the first page is cut off
            stored = int(table[0, kernels.STORED])
            size = max(size, stored + int(table[0, kernels.PLACE])) if stored != kernels.ABSENT else size
            check(data.size < min(size, end - place), chunk, "the header of a page is damaged")
            handle.seek(place)
            data = handle.read_buffer(min(size, end - place))
            continue
        rows -= held
        check(rows >= 0, chunk, "its pages have more rows than the footer says")
        if table[0, kernels.KIND] != kernels.INDEX_PAGE:
            yield table[:count], [data, *(_finish(table, unfinished, data, chunk) if unfinished else ())]
        done = int(table[count - 1, kernels.PLACE] + table[count - 1, kernels.STORED])
        data, place = data.slice(done), place + done
    check(not rows, chunk, f"its pages lack {rows:,} rows")


def _finish(table: Array, unfinished: int, data: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> Iterator[pa.Buffer]:
    """Verify checksums and decompress pages; the buffers have the bytes behind the levels of the second version."""
    numbers = table[:unfinished, kernels.UNFINISHED]
    for start, stored, checksum in table[numbers][:, _SUMMED].tolist():
        if checksum != kernels.ABSENT:
            same = zlib.crc32(data.slice(start, stored)) == checksum & 0xFFFFFFFF
            check(same, chunk, "the checksum of a page is wrong")
    numbers = numbers[table[numbers, kernels.ADDRESS] == kernels.ABSENT]
    pages = table[numbers][:, _BODY]
    if chunk.compression == "SNAPPY" and pages.size:
        stored, size = pages[:, _BODY.index(kernels.STORED)], pages[:, _BODY.index(kernels.SIZE)]
        check((size <= _SNAPPY_GROWTH * stored).all(), chunk, _OTHER_SIZE)
        room = pa.allocate_buffer(int(size.sum()) + kernels.SPARE)
        whole = kernels.decompress(np.frombuffer(data, np.uint8), unfinished, table, np.frombuffer(room, np.uint8))
        check(whole, chunk, "a page cannot be decompressed, or has another size than its header says")
        yield room
        return
    for number, (start, stored, levels, size, compressed) in zip(numbers.tolist(), pages.tolist(), strict=True):
        body = data.slice(start + levels, stored - levels)
        if chunk.compression != "UNCOMPRESSED" and compressed:  # or `ABSENT`
            try:
                body = _decompress(body, size, pa.Codec(ARROW_CODECS[chunk.compression]))
            except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
                check(False, chunk, f"a page cannot be decompressed: {error}")
        check(body.size == size, chunk, _OTHER_SIZE)
        table[number, kernels.ADDRESS] = body.address
        yield body


def _decompress(data: pa.Buffer, size: int, codec: pa.Codec) -> pa.Buffer:
    """As many bytes as `size`, or others if it is wrong: Arrow's codecs do not tell when they write fewer."""
    name = codec.name
    if name == "gzip":
        return pa.py_buffer(zlib.decompress(data, zlib.MAX_WBITS | 16, size))
    stated = _zstd_size(data) if name == "zstd" else -1
    if name == "lz4_raw":
        stated = kernels.find_lz4_size(np.frombuffer(data, np.uint8))
    if name == "brotli" or (name == "zstd" and stated < 0):
        with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
            return stream.read_buffer(size + 1)
    return codec.decompress(data, size) if stated == size else data.slice(0, 0)


def _zstd_size(data: pa.Buffer) -> int:
    """The size in the header of data compressed by Zstandard, −1 if it is not there (RFC 8878, section 3.1.1.1)."""
    raw = bytes(memoryview(data)[:18])
    flags = raw[4] if len(raw) > 4 else 0
    single = flags >> 5 & 1
    width = (0, 2, 4, 8)[flags >> 6] or single
    start = 6 - single + (0, 1, 2, 4)[flags & 3]
    size = int.from_bytes(raw[start : start + width], "little") + (256 if width == 2 else 0)
    return size if width else -1


def check(holds: bool | np.bool_, chunk: pq.ColumnChunkMetaData, fault: str) -> None:
    """Raise `OSError` that a column is damaged unless a condition holds."""
    if not holds:
        raise OSError(f"column {chunk.path_in_schema!r} is damaged: {fault}")
