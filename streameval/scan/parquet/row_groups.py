"""Row groups: how one Parquet file is opened, and its rows read.

Row groups are read without Arrow's own threads, because the caller runs one piece per thread; only the chunks of
objects are fetched in parallel (`streameval.scan.parquet.ranges`). Column chunks are read at once, unless they are so
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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from streameval.scan.faults import READ_ERRORS, opened, unreadable
from streameval.scan.parquet.pages import TEXT_BYTES, fitting_rows, largest_page
from streameval.scan.parquet.ranges import RangeFile, chunk_ranges, coalesced, footer_of
from streameval.scan.pieces import column_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyarrow import fs

    from streameval.scan.pieces import Piece
    from streameval.typing import Array


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
    """Rows of batches, to be taken in any number."""

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
    us, ns, ms = map(_numbers, (micros, nanos, millis))
    with np.errstate(over="ignore"):
        same = us * 1000 == ns
    if same.all() and (us // 10**3 == ms).all():
        return micros
    if (ns // 10**6 == ms).all():
        return pa.concat_arrays(nanos.chunks)
    raise Int96Error(
        f"column {column!r} has INT96 timestamps that no unit holds: nanoseconds end in the year 2262, microseconds in "
        "294247; write it as a timestamp in microseconds"
    )


def _numbers(array: pa.Array | pa.ChunkedArray) -> Array:
    """Timestamps as int64, with 0 for null."""
    numbers: Array = pc.fill_null(array.cast(pa.int64()), 0).to_numpy()
    return numbers


LARGE_CHUNK = 64 << 20  # bytes of the columns of a row group above which they are streamed
STREAM_BUFFER = 4 << 20  # bytes of the read buffer of each streamed column


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of one Parquet file; picklable, without an open handle.

    Within a process, the pieces of a file share its parsed footer. The footer is not pickled, since it would be larger
    than the piece; another process reads it again.

    Attributes
    ----------
    filesystem, path : location of the file
    groups : numbers of the row groups
    sizes : compressed bytes of the requested columns in each row group
    planned : size and modification time of the file, as listed
    encoded : columns to read as dictionaries, since decoding a code takes a fifth of the time of decoding a string
    footer : the parsed footer, if it is kept
    row_text : mean bytes of texts in a row that are not encoded, in the row group where it is largest
    dictionaries : bytes of the dictionaries of long texts, in the row group where they are largest
    plain : positions of the leaf columns with texts that are not encoded
    """

    filesystem: fs.FileSystem
    path: str
    groups: tuple[int, ...]
    sizes: tuple[int, ...]
    planned: tuple[int | None, int | None] = (None, None)
    encoded: frozenset[str] = frozenset()
    footer: Any = None
    row_text: int = 0
    dictionaries: int = 0
    plain: frozenset[int] = frozenset()

    def __reduce__(self) -> tuple[Any, ...]:
        given = self.filesystem, self.path, self.groups, self.sizes, self.planned, self.encoded
        return RowGroups, (*given, None, self.row_text, self.dictionaries, self.plain)

    def largest_texts(self) -> int:
        """Uncompressed bytes of the largest pages of plain texts together; 0 for an object: each page takes a request.

        Raises
        ------
        OSError, pyarrow.ArrowException
            If the file cannot be read, or has changed since it was planned.
        """
        if not self.plain or not isinstance(self.filesystem, pa.fs.LocalFileSystem):
            return 0
        with opened(self.filesystem, self.path, *self.planned) as handle:
            footer = self.footer or footer_of(handle)
            groups = [footer.row_group(number) for number in self.groups]
            return max(sum(largest_page(handle, group.column(leaf)) for leaf in self.plain) for group in groups)

    def read_footer(self) -> pq.FileMetaData:
        """The file's footer: the kept one if there is one, else read again."""
        if self.footer:
            return self.footer
        with opened(self.filesystem, self.path, *self.planned) as handle:
            return footer_of(handle)

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups; the file is closed with the iterator."""
        local = isinstance(self.filesystem, pa.fs.LocalFileSystem)
        with opened(self.filesystem, self.path, *self.planned) as handle:
            footer = self.footer if local or self.footer else footer_of(handle)
            yield from row_group_batches(
                handle, footer, self.groups, sum(self.sizes), columns, batch_rows, local=local, encoded=self.encoded
            )


def row_group_batches(
    handle: pa.NativeFile,
    footer: pq.FileMetaData,
    groups: Sequence[int],
    nbytes: int,
    columns: Sequence[str],
    batch_rows: int,
    *,
    local: bool,
    encoded: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of some row groups of an open file.

    Parameters
    ----------
    handle : pyarrow.NativeFile
    footer : its footer; may be None for a local file
    groups : numbers of the row groups
    nbytes : compressed bytes of the columns in all of them
    columns : columns to read
    batch_rows : largest number of rows of a batch; batches with long texts have fewer
    local : whether the file is on a local disk
    encoded : columns to read as dictionaries
    """
    large = nbytes > LARGE_CHUNK * len(groups)
    if not local:
        ranges = [] if large else coalesced(chunk_ranges(footer, groups, columns))
        handle = pa.PythonFile(RangeFile(handle, ranges), mode="r")

    def opened_in(unit: str) -> pq.ParquetFile:
        return _opened(
            handle,
            footer,
            read_dictionary=list(encoded),
            buffer_size=STREAM_BUFFER if large else 0,
            pre_buffer=False,
            coerce_int96_timestamp_unit=unit,
            page_checksum_verification=True,
        )

    file = opened_in("us")
    coded = {field.name for field in file.schema_arrow if pa.types.is_dictionary(field.type)}.union(encoded)
    coded &= set(columns)
    rows = fitting_rows(handle, file.metadata, groups, set(columns) - coded, batch_rows)
    longest = max((file.metadata.row_group(i).num_rows for i in groups), default=0)
    rows = min(rows, longest * max(1, TEXT_BYTES // max(1, _dictionary_bytes(file.metadata, groups, coded))))
    rows = longest if rows // 2 < longest <= rows else rows  # batches end with row groups: dictionaries are not joined
    how = {"batch_size": rows, "row_groups": list(groups), "use_threads": False}
    batches = file.iter_batches(columns=list(columns), **how)
    times = int96_columns(file.metadata, columns)
    if times:
        fine, coarse = (opened_in(unit).iter_batches(columns=times, **how) for unit in ("ns", "ms"))
        batches = exact_batches(batches, fine, coarse, times)
    yield from batches


def _dictionary_bytes(footer: pq.FileMetaData, groups: Sequence[int], coded: Collection[str]) -> int:
    """The most bytes that the dictionaries of a row group take; Arrow holds those of all row groups in a batch."""
    leaves = [i for i in range(footer.num_columns) if footer.schema.column(i).path in coded]
    sizes = (sum(footer.row_group(n).column(i).total_uncompressed_size for i in leaves) for n in groups if leaves)
    return max(sizes, default=0)


def _opened(handle: pa.NativeFile, footer: pq.FileMetaData, **options: Any) -> Any:
    """The file, with the footer that is known; see `footer_at` for types that Arrow does not know."""
    try:
        return pq.ParquetFile(handle, metadata=footer, **options)
    except READ_ERRORS:
        if footer is not None:
            raise
        return pq.ParquetFile(handle, metadata=footer_of(handle), **options)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Row groups without the rows that a Delta table has deleted.

    Attributes
    ----------
    source : the row groups
    deleted : one bit for each of their rows, set if the row is deleted, packed by `numpy.packbits`
    """

    source: RowGroups
    deleted: bytes

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not deleted."""
        keep = np.unpackbits(np.frombuffer(self.deleted, np.uint8)) == 0
        row = 0
        for batch in self.source.batches(columns, batch_rows):
            yield batch.filter(pa.array(keep[row : row + batch.num_rows]))
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
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and _adjoins(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return tuple(run[0] if len(run) == 1 else _concatenated(run) for run in runs)


def _adjoins(a: Piece, b: Piece) -> bool:
    """Whether `b` has row groups of the same file as `a`, from the row on at which `a` ends."""
    one, two = a.source, b.source
    if not (isinstance(one, RowGroups) and isinstance(two, RowGroups)):
        return False
    same_file = one.path == two.path and a.origin == b.origin and a.name == b.name
    return bool(same_file and a.row + a.rows == b.row and one.filesystem == two.filesystem)


def _concatenated(run: Sequence[Piece]) -> Piece:
    """The rows of adjoining pieces, in order."""
    sources = [piece.source for piece in run if isinstance(piece.source, RowGroups)]
    source = replace(
        sources[0],
        groups=tuple(group for source in sources for group in source.groups),
        sizes=tuple(size for source in sources for size in source.sizes),
        encoded=frozenset.intersection(*(source.encoded for source in sources)),
        row_text=max(source.row_text for source in sources),
        dictionaries=max(source.dictionaries for source in sources),
        plain=frozenset[int]().union(*(source.plain for source in sources)),
    )
    rows, nbytes = sum(piece.rows for piece in run), sum(piece.nbytes for piece in run)
    return replace(run[0], rows=rows, nbytes=nbytes, source=source)


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
    for group, nbytes in zip(source.groups, source.sizes, strict=True):
        rows = footer.row_group(group).num_rows
        single = replace(source, groups=(group,), sizes=(nbytes,), footer=footer)
        yield replace(piece, row=row, rows=rows, nbytes=nbytes, source=single)
        row += rows
