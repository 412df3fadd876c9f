"""Dictionary pages: their size, and how many rows to decode at a time if their texts are long.

A footer gives the bytes of a column chunk, but not the length of its texts. A chunk that repeats one text of a megabyte
takes little more than a megabyte, but decodes to gigabytes. Such a chunk stores each distinct text once, in its first
page. The header of that page gives its size and its number of texts, and the page itself their lengths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.kernels.keys import longest_framed
from streameval.scan.widen import is_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

TEXT_BYTES = 1 << 23  # bytes that the texts of a batch of several rows may take
_HEADER = 64  # bytes to read; the header of a dictionary page takes about 20
_LONG_HEADER = 1 << 15  # bytes to read; the header of a data page has up to four texts of 4 kB in its statistics
_PAGES = 1 << 14  # most pages of a chunk to look at
_STOP, _FLAGS, _INTEGERS, _TEXT, _STRUCT = 0, (1, 2), (4, 5, 6), 8, 12  # types of Thrift's compact protocol
_DEPTH = 3  # structs in a header: of the page, of its kind, of its statistics
_DICTIONARY_PAGE = 2
_CODECS = {"LZ4": "lz4_raw"}  # Parquet's names that differ from those of Arrow's codecs
_TYPE, _SIZE, _STORED, _TEXTS = (0, 1), (0, 2), (0, 3), (7, 1)  # (enclosing struct or 0, field) in a page's header


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
        handle.seek(start)
        found, size = _integers(handle.read(_HEADER))
        if found.get(_TYPE) != _DICTIONARY_PAGE or not size:
            return cls()
        return cls(found.get(_SIZE, 0), found.get(_TEXTS, 0), start + size, found.get(_STORED, 0))

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
        found, size = _header(handle, start, end)
        if not size or found.get(_STORED, -1) < 0:
            break
        largest = max(largest, found.get(_SIZE, 0))
        start += size + found[_STORED]
        if start >= end:
            break
    return largest


def _header(handle: pa.NativeFile, start: int, end: int) -> tuple[dict[tuple[int, int], int], int]:
    """`_integers` of the header at `start`: few bytes are enough unless its statistics are long."""
    for most in (4 * _HEADER, _LONG_HEADER):
        handle.seek(start)
        found, size = _integers(handle.read(min(most, end - start)))
        if size:
            break
    return found, size


def _integers(header: bytes) -> tuple[dict[tuple[int, int], int], int]:
    """Parse a page's header: its integers, and its size in bytes, which is 0 if the header is not understood.

    The key of an integer is the field of the enclosing struct (0 if there is none) and its own field.
    """
    found: dict[tuple[int, int], int] = {}
    end = _struct(header, 0, (0,), found)
    return (found, end) if end else ({}, 0)


def _struct(header: bytes, at: int, path: tuple[int, ...], found: dict[tuple[int, int], int]) -> int:
    """Add the integers of the struct at an offset to `found`; returns the offset behind it, 0 if not understood."""
    field = 0
    while at < len(header) and len(path) <= _DEPTH:
        field, kind, at = field + (header[at] >> 4), header[at] & 15, at + 1
        if kind == _STOP:
            return at
        if kind in _INTEGERS:
            value, at = _integer(header, at)
            if len(path) <= 2:
                found[path[-1], field] = value
        elif kind == _TEXT:
            value, at = _integer(header, at)
            at += value << 1 if value >= 0 else ~value << 1 | 1  # a length is not in zigzag
        elif kind == _STRUCT:
            at = _struct(header, at, (*path, field), found)
            if not at:
                break
        elif kind not in _FLAGS:
            break
    return 0


def _integer(header: bytes, at: int) -> tuple[int, int]:
    """Decode the zigzag varint at an offset; returns it and the offset behind it."""
    value = shift = 0
    while at < len(header):
        value, shift, at = value | (header[at] & 127) << shift, shift + 7, at + 1
        if header[at - 1] < 128:
            break
    return value >> 1 ^ -(value & 1), at


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
    longest = 0
    for number in groups:
        chunks = _large_chunks(footer.row_group(number), columns, most)
        longest = max(longest, sum(Dictionary.of(handle, chunk).longest(handle, chunk) for chunk in chunks))
    return max(1, min(most, TEXT_BYTES // max(1, longest)))


def _large_chunks(group: pq.RowGroupMetaData, columns: Collection[str], rows: int) -> Iterator[Any]:
    """Text chunks of which `rows` rows may decode to more than `TEXT_BYTES`."""
    for i in range(group.num_columns):
        chunk = group.column(i)
        texts = chunk.physical_type == "BYTE_ARRAY" and chunk.path_in_schema in columns
        if texts and min(rows, group.num_rows) * chunk.total_uncompressed_size > TEXT_BYTES:
            yield chunk
