"""Footers: the row groups, types and sizes of files.

Footers are read once, here, except those of small objects (`streameval.scan.deferred_footers`). From a local disk, they
are read one by one in 0.1 ms each. If a block of footers turns out to be slow (a network mount), or the file system is
remote, the next blocks are read in threads. Files of one writer share a layout, which is computed once.

A piece is a row group, or neighbouring row groups of up to about a million rows together, because the overhead of a
task exceeds the work on a few thousand rows.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import DataError, SchemaError
from streameval.scan.columns import Holding
from streameval.scan.deferred_footers import Sample
from streameval.scan.fields import column_of
from streameval.scan.files.file import File, labels
from streameval.scan.layout import Layout, encoded_in
from streameval.scan.messages import READ_ERRORS, reason, unreadable
from streameval.scan.parquet.int96 import Int96Error
from streameval.scan.parquet.pages import Dictionary
from streameval.scan.parquet.ranges import footer_at
from streameval.scan.parquet.row_groups import KeptRows, RowGroups
from streameval.scan.pieces import Piece, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.scan.layout import Group

GATHER_ROWS = 1 << 20  # largest number of rows to which small row groups are combined
BLOCK_FILES = 256  # number of footers read together
SPARK = b"org.apache.spark."  # begins keys of the metadata that Spark writes
SLOW_FOOTER = 2e-3  # seconds per footer above which the next blocks are read in parallel


def holdings(
    files: Sequence[File],
    columns: Sequence[str],
    *,
    skip: bool,
    parallel: bool = True,
    estimate: bool = False,
    computed: Sequence[str] = (),
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
    estimate : bool
        Whether the footers of small objects may be deferred; see `streameval.scan.deferred_footers`.
    computed : sequence of str
        Columns that are computed; a file must not have them.

    Raises
    ------
    MissingColumnError, SchemaError
        If a column does not exist, or cannot be used.
    DataError
        If a footer cannot be read and `skip` is false; the message names the file.
    """
    layout: Layout | None = None
    sample = Sample.of(files, columns, GATHER_ROWS, computed) if estimate else None
    unasked = [sample is not None and sample.covers(file) for file in files]
    footers = _footers([file for file, known in zip(files, unasked, strict=True) if not known], parallel=parallel)
    for at, known, label in zip(files, unasked, labels(files), strict=True):
        if sample is not None and known:
            yield sample.holding(at, *label)
            continue
        file, footer = next(footers)
        try:
            if isinstance(footer, Exception):
                raise footer
            # a damaged footer may give 0 rows although its row groups have some
            if footer.num_rows or any(footer.row_group(i).num_rows for i in range(footer.num_row_groups)):
                layout = Layout.of(footer, columns, file.name, file.keys, layout, computed)
                groups = _groups(file, footer, layout)
                kinds = layout.kinds_where(columns, encoded_in(groups), _times(file, footer, layout, groups))
                yield Holding(file.name, kinds, tuple(_pieces(file, footer, layout, groups, *label)))
            else:
                yield Holding(file.name, (), ())
        except DataError:
            raise
        except Int96Error as error:
            msg = f"{file.name}: {error}"
            raise SchemaError(msg) from None
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
            with ThreadPoolExecutor(min(len(block), pa.io_thread_count())) as pool:
                footers = list(pool.map(_footer, block))
        else:
            footers = list(map(_footer, block))
        slow = slow or time.perf_counter() - began > SLOW_FOOTER * len(block)
        yield from zip(block, footers, strict=True)


def _footer(file: File) -> Any:
    """A file's footer, or the exception to raise for it."""
    try:
        return footer_at(file.filesystem, file.path) if file.fragment is None else file.fragment.metadata
    except READ_ERRORS as error:
        return error


def _groups(file: File, footer: Any, layout: Layout) -> list[Group]:
    """The row groups of the file that are in its fragment; raises `OSError` if rows do not add up."""
    wanted = None if file.fragment is None else {group.id for group in file.fragment.row_groups}
    groups = list(layout.groups(footer, wanted, partial(_dictionary, file)))
    held = sum(group.rows for group in groups)
    if wanted is None and held != footer.num_rows:
        msg = f"its footer says {footer.num_rows:,} rows, but its row groups have {held:,}"
        raise OSError(msg)
    return groups


def _dictionary(file: File, chunk: Any) -> Dictionary:
    """The dictionary of a column chunk of a local file; empty for an object, since reading it takes a request."""
    if not isinstance(file.filesystem, fs.LocalFileSystem):
        return Dictionary()
    with pa.OSFile(file.path) as handle:
        return Dictionary.of(handle, chunk)


def _times(file: File, footer: Any, layout: Layout, groups: Sequence[Group]) -> dict[str, pa.DataType]:
    """The types of INT96 timestamps that need nanoseconds, from the first rows; Spark writes microseconds.

    The reader checks every value, so a file whose first rows mislead is refused, not read wrongly.
    """
    found: dict[str, pa.DataType] = {}
    if not layout.times or any(key.startswith(SPARK) for key in footer.metadata or ()):
        return found
    before = accumulate((group.rows for group in groups), initial=0)
    first = [group for group, rows in zip(groups, before, strict=False) if rows < GATHER_ROWS]
    numbers, sizes = tuple(group.number for group in first), tuple(group.nbytes for group in first)
    rows = 0
    source = RowGroups(file.filesystem, file.path, numbers, sizes, footer=footer)
    for batch in source.batches(layout.times, 1 << 16):
        kinds = {name: column_of(batch, name).type for name in layout.times}
        found |= {name: kind for name, kind in kinds.items() if kind.unit == "ns"}
        rows += batch.num_rows
        if rows >= GATHER_ROWS or len(found) == len(layout.times):
            break
    return found


def _pieces(
    file: File, footer: Any, layout: Layout, groups: Sequence[Group], partition: str, origin: str
) -> Iterator[Piece]:
    """The file's pieces: neighbouring row groups of up to `GATHER_ROWS` rows together."""
    constants = tuple((column, file.keys[column]) for column in layout.absent)
    runs = list(_combined(groups))
    # Arrow does not notice a short answer from an object store, so the footer of an object is read again with its data
    kept = footer if len(runs) > 1 and isinstance(file.filesystem, fs.LocalFileSystem) else None
    for run in runs:
        rows, sizes = sum(group.rows for group in run), tuple(group.nbytes for group in run)
        numbers = tuple(group.number for group in run)
        listed = file.size, file.mtime
        means = max(group.row_text for group in run), max(group.dictionaries for group in run)
        texts = *means, frozenset[int]().union(*(group.plain for group in run))
        plain = RowGroups(file.filesystem, file.path, numbers, sizes, listed, encoded_in(run), kept, *texts)
        source: Source = plain
        left = rows
        if file.deleted:
            deleted = file.deleted_rows(run[0].row, rows)
            left -= int(deleted.sum())
            source = KeptRows(plain, np.packbits(deleted).tobytes())
        if left:
            yield Piece(partition, file.name, run[0].row, left, sum(sizes), origin, constants, source=source)


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
