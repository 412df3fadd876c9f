"""Row groups: how one Parquet file is opened, and its rows read.

Row groups are read without Arrow's own threads, because the caller runs one piece per thread; only the chunks of
objects are fetched in parallel (`streameval.scan.parquet.pages`). Column chunks are read at once, unless they are so
large that a buffered stream takes less memory. Checksums of pages are verified if the writer stored them.

Arrow must not buffer chunks ahead, which its newer versions do by default: it would hold large ones as a whole, and
read others on threads of its own, for which the caller's thread waits.

*INT96 timestamps*, as Spark, Hive and Impala write them, are a day and nanoseconds of the day. Arrow reads them in one
unit for all columns of a file, and a value outside of the unit's range wraps: in nanoseconds, the year 9999 becomes
1816. Microseconds hold the years −290,000 to 294,000 but lose digits that Hive and Impala write. Every value is
therefore read in three units. Milliseconds hold every INT96; a finer unit is in its range if it rounds down to them.
Microseconds lose nothing if 1,000 times them are the nanoseconds, wrapped or not. A batch is in microseconds if these
hold it, else in nanoseconds; if neither does, it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from streameval.scan.faults import READ_ERRORS, opened, unreadable
from streameval.scan.nested import column_of, stored_names
from streameval.scan.parquet.columns import WINDOW, coded_columns
from streameval.scan.parquet.pages import (
    TEXT_BYTES,
    RangeFile,
    chunk_ranges,
    coalesce_ranges,
    fitting_rows,
    footer_of,
    largest_page,
)
from streameval.typing import pack_bits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pyarrow import fs

    from streameval.scan.pieces import Piece


class Int96Error(Exception):
    """Timestamps of a column that no unit of Arrow holds."""


def int96_columns(footer: pq.FileMetaData, columns: Collection[str]) -> list[str]:
    """The columns among these, with dots for fields of structs, that are stored as INT96."""
    leaves = map(footer.schema.column, range(footer.num_columns))
    return [leaf.path for leaf in leaves if leaf.physical_type == "INT96" and leaf.path in columns]


def exact_batches(
    micros: Iterator[pa.RecordBatch],
    nanos: Iterator[pa.RecordBatch],
    millis: Iterator[pa.RecordBatch],
    columns: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Batches read in microseconds, with some columns in the unit that holds their values.

    Parameters
    ----------
    micros : batches with these and other columns
    nanos, millis : the same rows with at least these columns, in batches of any size
    columns : the columns; a field of a struct becomes a column as well, with dots in its name

    Raises
    ------
    Int96Error
        If no unit holds the values of a batch.
    """
    others = [_Rows(nanos), _Rows(millis)]
    for batch in micros:
        if not batch.num_rows:
            continue
        fine, coarse = (rows.take(batch.num_rows) for rows in others)
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in columns:
            arrays[name] = _exact(name, *(column_of(data, name) for data in (batch, fine, coarse)))
        yield pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


class _Rows:
    """Rows of batches, to be taken in any number, so that no more than two batches are in memory."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def take(self, count: int) -> pa.Table:
        """The next rows; at least one."""
        while sum(batch.num_rows for batch in self._held) < count:
            batch = next(self._batches, None)
            if batch is None:
                raise OSError("its INT96 timestamps have fewer rows than its other columns")
            self._held.append(batch)
        table = pa.Table.from_batches(self._held)
        self._held = table.slice(count).to_batches()
        return table.slice(0, count)


def _exact(column: str, micros: pa.Array, nanos: pa.ChunkedArray, millis: pa.ChunkedArray) -> pa.Array:
    """The values in microseconds, or in nanoseconds; raises `Int96Error` if neither holds all."""
    us, ns, ms = (pc.fill_null(times.cast(pa.int64()), 0).to_numpy() for times in (micros, nanos, millis))
    with np.errstate(over="ignore"):
        same = us * 1000 == ns
    if same.all() and (us // 10**3 == ms).all():
        return micros
    if (ns // 10**6 == ms).all():
        return nanos.combine_chunks()
    raise Int96Error(
        f"column {column!r} has INT96 timestamps that no unit holds: nanoseconds end in the year 2262, microseconds in "
        "294247; write it as a timestamp in microseconds"
    )


LARGE_CHUNK = 64 << 20  # bytes of the columns of a row group above which they are streamed
STREAM_BUFFER = 4 << 20  # bytes of the read buffer of each streamed column


class Group(NamedTuple):
    """A row group.

    Attributes
    ----------
    number, row, rows : its number, the offset of its first row in the file, and its number of rows
    nbytes : compressed bytes of the requested columns
    encoded : names of the text columns to read as codes, which takes a fifth of the time of decoding texts
    row_text : mean uncompressed bytes of all other texts in a row
    dictionaries : uncompressed bytes of the dictionaries of long texts
    plain : positions of the leaf columns with those other texts
    """

    number: int
    row: int
    rows: int
    nbytes: int
    encoded: frozenset[str] = frozenset()
    row_text: int = 0
    dictionaries: int = 0
    plain: frozenset[int] = frozenset()


def encoded_in(groups: Iterable[Group]) -> frozenset[str]:
    """The columns that are encoded in all of the row groups, of which there is at least one."""
    return frozenset.intersection(*(group.encoded for group in groups))


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of one Parquet file; picklable, without an open handle.

    Within a process, the pieces of a file share its parsed footer. The footer is not pickled, since it would be larger
    than the piece; another process reads it again.

    Attributes
    ----------
    filesystem, path : location of the file
    groups : the row groups, at least one
    planned : size and modification time of the file, as listed
    footer : the parsed footer, if it is kept
    """

    filesystem: fs.FileSystem
    path: str
    groups: tuple[Group, ...]
    planned: tuple[int | None, int | None] = (None, None)
    footer: pq.FileMetaData | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return RowGroups, (self.filesystem, self.path, self.groups, self.planned)

    @property
    def is_local(self) -> bool:
        """Whether the file is on a local disk."""
        return isinstance(self.filesystem, pa.fs.LocalFileSystem)

    def largest_texts(self) -> int:
        """Uncompressed bytes of the largest pages of plain texts together; 0 for an object: each page takes a request.

        Raises
        ------
        OSError, pyarrow.ArrowException
            If the file cannot be read, or has changed since it was planned.
        """
        plain = frozenset[int]().union(*(group.plain for group in self.groups))
        if not plain or not self.is_local:
            return 0
        with opened(self.filesystem, self.path, *self.planned) as handle:
            footer = self.footer or footer_of(handle)
            groups = [footer.row_group(group.number) for group in self.groups]
            return max(sum(largest_page(handle, group.column(leaf)) for leaf in plain) for group in groups)

    def read_footer(self) -> pq.FileMetaData:
        """The file's footer: the kept one if there is one, else read again."""
        if self.footer:
            return self.footer
        with opened(self.filesystem, self.path, *self.planned) as handle:
            return footer_of(handle)

    def batches(
        self, columns: Sequence[str], batch_rows: int, by_code: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups; the file is closed with the iterator. Batches of long texts are smaller.

        The columns `by_code` may be dictionaries of numbers in some batches.
        """
        columns, numbers = stored_names(columns), [group.number for group in self.groups]
        encoded = encoded_in(self.groups)
        large = sum(group.nbytes for group in self.groups) > LARGE_CHUNK * len(numbers)
        with opened(self.filesystem, self.path, *self.planned) as handle:
            footer = self.footer or footer_of(handle)
            if not self.is_local:
                ranges = [] if large else coalesce_ranges(chunk_ranges(footer, numbers, columns))
                handle = pa.PythonFile(RangeFile(handle, ranges), mode="r")
            opened_in, schema = partial(_open, handle, footer, encoded, large), footer.schema.to_arrow_schema()
            coded = {field.name for field in schema if pa.types.is_dictionary(field.type)}.union(encoded)
            coded &= set(columns)
            rows = fitting_rows(handle, footer, numbers, set(columns) - coded, batch_rows)
            longest = max(group.rows for group in self.groups)
            rows = min(rows, longest * max(1, TEXT_BYTES // max(1, _dictionary_bytes(footer, numbers, coded))))
            if rows // 2 < longest <= rows:
                rows = longest  # batches end with row groups: dictionaries are not joined
            window = STREAM_BUFFER if large else WINDOW
            decoded = coded_columns(handle, footer, schema, numbers, columns, window, coded, by_code)
            left = [name for name in columns if name not in decoded]
            if left:
                batches = opened_in("us").iter_batches(rows, numbers, left, use_threads=False)
            else:
                batches = _without_columns(sum(group.rows for group in self.groups), rows)
            times = int96_columns(footer, columns)
            if times:
                nanos, millis = (
                    opened_in(unit).iter_batches(rows, numbers, times, use_threads=False) for unit in ("ns", "ms")
                )
                batches = exact_batches(batches, nanos, millis, times)
            for batch in batches:
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True)) if left else {}
                arrays |= {name: column.take(batch.num_rows) for name, column in decoded.items()}
                yield pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)) if decoded else batch


def _without_columns(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of nothing but a number of rows."""
    for start in range(0, rows, batch_rows):
        yield pa.RecordBatch.from_arrays([pa.nulls(min(batch_rows, rows - start))], [""])


def _dictionary_bytes(footer: pq.FileMetaData, groups: Sequence[int], coded: Collection[str]) -> int:
    """The most bytes that the dictionaries of a row group take; Arrow holds those of all row groups in a batch."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path in coded]
    sizes = (sum(footer.row_group(n).column(i).total_uncompressed_size for i in leaves) for n in groups if leaves)
    return max(sizes, default=0)


def _open(
    handle: pa.NativeFile, footer: pq.FileMetaData, encoded: Collection[str], large: bool, unit: str
) -> pq.ParquetFile:
    """The file as Arrow reads it, INT96 timestamps in a unit."""
    return pq.ParquetFile(
        handle,
        metadata=footer,
        read_dictionary=list(encoded),
        buffer_size=STREAM_BUFFER if large else 0,
        pre_buffer=False,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=True,
    )


@dataclass(frozen=True, slots=True)
class TableRows:
    """Row groups without the rows that a table has deleted, with the names that the table has for its columns.

    Attributes
    ----------
    source : the row groups
    deleted : one bit for each of their rows, set if the row is deleted, packed by `numpy.packbits`; empty if none is
    stored : path in the file of each column that has another one in the table
    """

    source: RowGroups
    deleted: bytes = b""
    stored: Mapping[str, str] = field(default_factory=dict)

    def batches(
        self, columns: Sequence[str], batch_rows: int, by_code: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not deleted; see `RowGroups.batches`."""
        keep, row = np.unpackbits(np.frombuffer(self.deleted, np.uint8)) == 0, 0
        paths, coded = ([self.stored.get(name, name) for name in names] for names in (columns, by_code))
        for stored in self.source.batches(paths, batch_rows, coded):
            batch = stored
            if self.stored and columns:  # a batch without columns has its number of rows
                arrays = [column_of(stored, self.stored.get(name, name)) for name in columns]
                batch = pa.RecordBatch.from_arrays(arrays, list(columns))
            yield batch.filter(pack_bits(keep[row : row + batch.num_rows])) if keep.size else batch
            row += batch.num_rows


def join(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Join consecutive pieces of a file, so that it is opened once for all of them.

    Parameters
    ----------
    pieces : sequence of Piece
        Pieces of one task, in the order of the scan.

    Returns
    -------
    tuple of Piece
        The same rows in the same order, in as few pieces as possible. Only row groups can be joined.
    """
    joined: list[Piece] = []
    for piece in pieces:
        last, source = joined[-1] if joined else piece, piece.source
        before = last.source
        if (
            last is not piece
            and isinstance(before, RowGroups)
            and isinstance(source, RowGroups)
            and (last.origin, last.name, last.row + last.rows) == (piece.origin, piece.name, piece.row)
            and before.path == source.path
            and before.filesystem == source.filesystem
        ):
            rows, nbytes = last.rows + piece.rows, last.nbytes + piece.nbytes
            both = replace(before, groups=before.groups + source.groups)
            joined[-1] = replace(last, rows=rows, nbytes=nbytes, source=both)
        else:
            joined.append(piece)
    return tuple(joined)


def row_groups(piece: Piece) -> Iterator[Piece]:
    """Split a piece into one piece for each row group; a piece of another kind is yielded unchanged.

    Parameters
    ----------
    piece : Piece
        Row groups that the plan combined. If their piece does not keep the footer, it is read again.

    Raises
    ------
    DataError
        If the footer cannot be read, or the file has changed since it was planned; the message names the file.
    """
    source = piece.source
    if not isinstance(source, RowGroups) or len(source.groups) == 1:
        yield piece
        return
    try:
        footer = source.read_footer()
    except READ_ERRORS as error:
        raise unreadable(piece.name, error) from error
    row = piece.row
    for group in source.groups:
        single = replace(source, groups=(group,), footer=footer)
        yield replace(piece, row=row, rows=group.rows, nbytes=group.nbytes, source=single)
        row += group.rows
