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
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.typing import Array


ARROW_CODECS = {"SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip", "LZ4": "lz4_raw", "BROTLI": "brotli"}
CODECS = {"UNCOMPRESSED", *(name for name, codec in ARROW_CODECS.items() if pa.Codec.is_available(codec))}
_PAGES, _ROWS = 64, 1 << 20  # pages that are decoded at a time, and rows after which no further page is added
_SPARE = 1 << 20  # bytes by which a page may exceed twice its chunk, whose size some writers count without headers


def read_pages(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, rows: int, window: int
) -> Iterator[tuple[Array, list[pa.Buffer]]]:
    """A dictionary page, or a few data pages of a column chunk at a time, as a table and the buffers that hold them.

    Parameters
    ----------
    handle : the open file
    chunk, rows : the column chunk, and its number of rows
    window : bytes that are read at a time
    """
    for table, data in _stored_pages(handle, chunk, rows, window):
        dictionary = table[0]["kind"] == kernels.DICTIONARY_PAGE
        sound = not dictionary or table[0]["encoding"] in (kernels.PLAIN, kernels.PLAIN_DICTIONARY)
        check(sound, chunk, "the encoding of a dictionary is not supported")
        most = 2 * chunk.total_uncompressed_size + _SPARE
        check(table["nbytes"].max() <= most, chunk, "a page is larger than its column chunk")
        for page in table[table["checksum"] != kernels.ABSENT]:
            checksum = zlib.crc32(data.slice(page["place"], page["stored"]))
            check(checksum == page["checksum"] & 0xFFFFFFFF, chunk, "the checksum of a page is wrong")
        stored = np.flatnonzero(table["address"] == kernels.ABSENT)
        pages = [_decompressed(page, data, chunk) for page in numbers(table)[stored].tolist()]
        table["address"][stored] = [page.address for page in pages]
        yield table, [data, *pages]


def _stored_pages(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, rows: int, window: int
) -> Iterator[tuple[Array, pa.Buffer]]:
    """Tables of a few data pages or a dictionary page (`parse_headers`), and the bytes that hold them."""
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    place = min(chunk.data_page_offset, first or chunk.data_page_offset)
    end, data = place + chunk.total_compressed_size, pa.py_buffer(b"")
    codec = {"UNCOMPRESSED": kernels.UNCOMPRESSED, "SNAPPY": kernels.SNAPPY}.get(chunk.compression, kernels.OTHER)
    table, size = np.empty(_PAGES + 1, kernels.PAGE), window
    while rows and place < end:
        count = kernels.parse_headers(np.frombuffer(data, np.uint8), min(rows, _ROWS), codec, numbers(table))
        if not count:  # the first page is cut off
            stored = int(table[0]["stored"])
            size = max(size, stored + int(table[0]["place"])) if stored != kernels.ABSENT else size
            check(data.size < min(size, end - place), chunk, "the header of a page is damaged")
            handle.seek(place)
            data = handle.read_buffer(min(size, end - place))
            continue
        kind, done = int(table[count - 1]["kind"]), int(table[count - 1]["place"] + table[count - 1]["stored"])
        if kind in (kernels.DATA_PAGE, kernels.DATA_PAGE_V2):
            rows -= int(table["count"][:count].sum())
            check(rows >= 0, chunk, "its pages have more rows than the footer says")
        if kind != kernels.INDEX_PAGE:
            check(0 <= kind <= kernels.DATA_PAGE_V2, chunk, "a page is of an unknown kind")
            yield table[:count], data
        data, place = data.slice(done), place + done
    check(not rows, chunk, f"its pages lack {rows:,} rows")


def numbers(table: Array) -> Array:
    """A table of pages as loops take it, an int64 array of shape (n, COLUMNS)."""
    return table.view(np.int64).reshape(-1, kernels.COLUMNS)


def _decompressed(page: Sequence[int], data: pa.Buffer, chunk: pq.ColumnChunkMetaData) -> pa.Buffer:
    """The bytes of a page, in the second version those behind its levels."""
    levels, size = page[kernels.LEVELS_SIZE], page[kernels.SIZE]
    body = data.slice(page[kernels.PLACE] + levels, page[kernels.STORED] - levels)
    if page[kernels.COMPRESSED]:  # or `ABSENT`
        try:
            body = _decompress(body, size, page[kernels.STATED], chunk.compression)
        except (pa.ArrowException, OSError, ValueError, zlib.error) as error:
            check(False, chunk, f"a page cannot be decompressed: {error}")
    check(body.size == size, chunk, "a page has another size than its header says")
    return body


def _decompress(data: pa.Buffer, size: int, stated: int, codec: str) -> pa.Buffer:
    """As many bytes as `size`, or others if it is wrong: Arrow's codecs do not tell when they write fewer."""
    if codec == "UNCOMPRESSED":
        return data
    if codec == "GZIP":
        return pa.py_buffer(zlib.decompress(data, zlib.MAX_WBITS | 16, size))
    if codec in ("ZSTD", "LZ4"):
        stated = _zstd_size(data) if codec == "ZSTD" else kernels.find_lz4_size(np.frombuffer(data, np.uint8))
    if codec == "BROTLI" or (codec == "ZSTD" and stated < 0):
        with pa.CompressedInputStream(pa.BufferReader(data), codec.lower()) as stream:
            return stream.read_buffer(size + 1)
    return pa.Codec(ARROW_CODECS[codec]).decompress(data, size) if stated == size else data.slice(0, 0)


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
