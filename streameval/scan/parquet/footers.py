"""Footers: the row groups, types and sizes of files.

Footers are read once, here. From a local disk, they are read one by one in 0.1 ms each. If a block of footers turns out
to be slow (a network mount), or the file system is remote, the next blocks are read in threads. Files of one writer
share a layout, which is computed once.

A piece is a row group, or neighbouring row groups of up to about a million rows together, because the overhead of a
task exceeds the work on a few thousand rows.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import DataError, SchemaError
from streameval.scan.columns import Holding
from streameval.scan.faults import READ_ERRORS, reason, unreadable
from streameval.scan.files.file import File, labels
from streameval.scan.parquet.layout import Layout
from streameval.scan.parquet.pages import Dictionary
from streameval.scan.parquet.ranges import footer_at
from streameval.scan.parquet.row_groups import Int96Error, KeptRows, RowGroups, encoded_in
from streameval.scan.pieces import Piece, Source, column_of
from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.parquet.row_groups import Group


GATHER_ROWS = 1 << 20  # largest number of rows to which small row groups are combined
BLOCK_FILES = 256  # number of footers read together
SPARK = b"org.apache.spark."  # begins keys of the metadata that Spark writes
THREADS = 32  # a footer of an object takes a request, for which its thread only waits
SLOW_FOOTER = 2e-3  # seconds per footer above which the next blocks are read in parallel


def holdings(
    files: Sequence[File], columns: Sequence[str], *, skip: bool, parallel: bool = True
) -> Iterator[Holding | tuple[str, str]]:
    """The holding of every file (without pieces if it has no rows), or its name and the reason why it is left out.

    Parameters
    ----------
    files : sequence of File
        Files in the order of the scan.
    columns : sequence of str
        The requested columns.
    skip : bool
        Whether a file whose footer cannot be read is left out instead of raising an error.
    parallel : bool
        Whether slow footers may be read in threads.

    Raises
    ------
    MissingColumnError, SchemaError
        If a column does not exist, or cannot be used.
    DataError
        If a footer cannot be read and `skip` is false; the message names the file.
    """
    layout: Layout | None = None
    for (file, footer), label in zip(_footers(files, parallel=parallel), labels(files), strict=True):
        try:
            if isinstance(footer, Exception):
                raise footer
            # a damaged footer may give 0 rows although its row groups have some
            if not footer.num_rows and not any(footer.row_group(i).num_rows for i in range(footer.num_row_groups)):
                yield Holding(file.name, (), ())
                continue
            layout = Layout.of(footer, columns, file.name, file.keys, layout)
            groups = _groups(file, footer, layout)
            kinds = {**layout.kinds, **_times(file, footer, layout, groups)}
            for column in encoded_in(groups) if groups else ():
                kinds[column] = pa.dictionary(pa.int32(), plain(kinds[column]))
            yield Holding(file.name, tuple(kinds.values()), tuple(_pieces(file, footer, layout, groups, *label)))
        except DataError:
            raise
        except Int96Error as error:
            raise SchemaError(f"{file.name}: {error}") from None
        except READ_ERRORS as error:
            if not skip:
                raise unreadable(file.name, error) from error
            yield file.name, reason(error)


def _footers(files: Sequence[File], *, parallel: bool) -> Iterator[tuple[File, Any]]:
    """Every file with its footer, or with the exception that reading it raised."""
    slow = not all(isinstance(file.filesystem, fs.LocalFileSystem) for file in files)
    for start in range(0, len(files), BLOCK_FILES):
        block = files[start : start + BLOCK_FILES]
        began = time.perf_counter()
        if slow and parallel:
            with ThreadPoolExecutor(min(len(block), THREADS)) as pool:
                footers = list(pool.map(_fetched_footer, block))
        else:
            footers = list(map(_footer, block))
        slow = slow or time.perf_counter() - began > SLOW_FOOTER * len(block)
        yield from zip(block, footers, strict=True)


def _fetched_footer(file: File) -> Any:
    """As `_footer`, in one request: a dataset's fragment is opened without asking for the size, which is listed."""
    import pyarrow.dataset as pads  # here, because it is slow to import

    if file.fragment is None:
        with suppress(*READ_ERRORS):
            return pads.ParquetFileFormat().make_fragment(file.path, file.filesystem, file_size=file.size).metadata
    return _footer(file)


def _footer(file: File) -> Any:
    """A file's footer, or the exception to raise for it."""
    try:
        return footer_at(file.filesystem, file.path) if file.fragment is None else file.fragment.metadata
    except READ_ERRORS as error:
        return error


def _groups(file: File, footer: pq.FileMetaData, layout: Layout) -> list[Group]:
    """The row groups of the file that are in its fragment; raises `OSError` if rows do not add up."""
    wanted = None if file.fragment is None else {group.id for group in file.fragment.row_groups}
    groups = list(layout.groups(footer, wanted, partial(_dictionary, file)))
    held = sum(group.rows for group in groups)
    if wanted is None and held != footer.num_rows:
        raise OSError(f"its footer says {footer.num_rows:,} rows, but its row groups have {held:,}")
    return groups


def _dictionary(file: File, chunk: pq.ColumnChunkMetaData) -> Dictionary:
    """The dictionary of a column chunk of a local file; empty for an object, since reading it takes a request."""
    if not isinstance(file.filesystem, fs.LocalFileSystem):
        return Dictionary()
    with pa.OSFile(file.path) as handle:
        return Dictionary.of(handle, chunk)


def _times(file: File, footer: pq.FileMetaData, layout: Layout, groups: Sequence[Group]) -> dict[str, pa.DataType]:
    """The types of INT96 timestamps that need nanoseconds in the first piece; Spark writes microseconds.

    The reader checks every value, so a file whose first rows mislead is refused, not read wrongly.
    """
    if not (layout.times and groups) or any(key.startswith(SPARK) for key in footer.metadata or ()):
        return {}
    source = RowGroups(file.filesystem, file.path, tuple(next(_combined(groups))), footer=footer)
    kinds: dict[str, pa.DataType] = {}
    for batch in source.batches(layout.times, 1 << 16):
        types = {name: column_of(batch, name).type for name in layout.times}
        kinds |= {name: kind for name, kind in types.items() if kind.unit == "ns"}
    return kinds


def _pieces(
    file: File, footer: pq.FileMetaData, layout: Layout, groups: Sequence[Group], partition: str, origin: str
) -> Iterator[Piece]:
    """The file's pieces: neighbouring row groups of up to `GATHER_ROWS` rows together."""
    constants = tuple((column, file.keys[column]) for column in layout.absent)
    runs = list(_combined(groups))
    # Arrow does not notice a short answer from an object store, so the footer of an object is read again with its data
    kept = footer if len(runs) > 1 and isinstance(file.filesystem, fs.LocalFileSystem) else None
    for run in runs:
        rows, nbytes = sum(group.rows for group in run), sum(group.nbytes for group in run)
        stored = RowGroups(file.filesystem, file.path, tuple(run), (file.size, file.mtime), kept)
        source: Source = stored
        if file.deleted:
            deleted = file.deleted_rows(run[0].row, rows)
            rows, source = rows - int(deleted.sum()), KeptRows(stored, np.packbits(deleted).tobytes())
        if rows:
            yield Piece(partition, file.name, run[0].row, rows, nbytes, origin, constants, source=source)


def _combined(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Combine neighbouring row groups while they have at most `GATHER_ROWS` rows together."""
    run: list[Group] = []
    rows = 0
    for group in groups:
        adjoins = run and run[-1].row + run[-1].rows == group.row
        if run and not (adjoins and rows + group.rows <= GATHER_ROWS):
            yield run
            run, rows = [], 0
        run.append(group)
        rows += group.rows
    if run:
        yield run
