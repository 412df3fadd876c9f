"""Footers: the row groups, types and sizes of files.

Footers are read once, here, except those of small objects (below). From a local disk, they are read one by one in
0.1 ms each. If a block of footers turns out to be slow (a network mount), or the file system is remote, the next blocks
are read in threads. Files of one writer share a layout, which is computed once.

A piece is a row group, or neighbouring row groups of up to about a million rows together, because the overhead of a
task exceeds the work on a few thousand rows.

*Deferred footers.* Reading the footer of an object takes a request, and thousands of requests take longer than the run.
A plan needs little from footers: the types of the columns, and rows and bytes to form tasks of about equal size.
Objects small enough to be one piece are therefore planned by the sizes in the listing; the types, and the rows and
bytes per byte of a file, come from one footer, that of the largest object. The task that reads a file also reads its
footer and compares it with the plan. If the types of the file would have changed the plan, the task raises
`LayoutError`, and the caller plans again from all footers. Results and type errors are therefore those of a plan from
all footers, whatever the order of the files.

*Why comparing with one file suffices.* The plan takes the type that holds every file's values. Suppose ``widen([p, k])
== widen([p])`` for the type p of the one file and the type k of each other file. Then each k is a type of p's family
that is not wider, or null, or an encoding of p's values; none of these changes the type to which a set with p widens.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from streameval.errors import DataError, MissingColumnError, SchemaError
from streameval.scan.columns import Holding
from streameval.scan.faults import READ_ERRORS, opened, reason, unreadable
from streameval.scan.files.file import File, labels
from streameval.scan.parquet.layout import Layout, encoded_in
from streameval.scan.parquet.pages import Dictionary
from streameval.scan.parquet.ranges import footer_at, footer_of
from streameval.scan.parquet.row_groups import Int96Error, KeptRows, RowGroups, row_group_batches
from streameval.scan.pieces import Piece, Source, column_of
from streameval.scan.widen import widen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.parquet.layout import Group
    from streameval.scan.pieces import Constant


SMALL = 64 << 20  # bytes; footers of larger files are read
ASKED = 16  # largest number of files whose footers are read in search of one with rows


class LayoutError(Exception):
    """A file differs from the one that the plan assumed; the scan must be planned again from all footers."""


def fits(kind: pa.DataType, planned: pa.DataType) -> bool:
    """Whether a file with a column of type `kind` leaves a plan for type `planned` unchanged.

    Examples
    --------
    >>> fits(pa.int16(), pa.int32()), fits(pa.int32(), pa.int16())
    (True, False)
    """
    return widen([planned, kind]) == widen([planned])


@dataclass(frozen=True, slots=True)
class DeferredFile:
    """All row groups of a Parquet file that has not been opened yet.

    Attributes
    ----------
    filesystem, path : location of the file
    name : name of the file in messages
    columns, kinds : the requested columns, and their types in the file from which the plan was made
    absent : requested columns that are not in the file, so must be keys of its path
    keys : keys of the path, with their values
    planned : size and modification time of the file, as listed
    computed : columns that are computed, so must not be in the file
    """

    filesystem: fs.FileSystem
    path: str
    name: str
    columns: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    absent: tuple[str, ...]
    keys: tuple[tuple[str, Constant], ...]
    planned: tuple[int | None, int | None]
    computed: tuple[str, ...] = ()

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the file's rows; the file is closed with the iterator.

        Raises
        ------
        LayoutError
            If the file differs from the plan.
        OSError
            If the footer and the row groups disagree about the number of rows.
        """
        with opened(self.filesystem, self.path, *self.planned) as handle:
            footer = footer_of(handle)
            layout = self._checked(footer) if footer.num_rows else None
            groups = list(layout.groups(footer)) if layout else []
            times = [pair for pair in zip(self.columns, self.kinds, strict=True) if layout and pair[0] in layout.times]
            rows, nbytes = sum(group.rows for group in groups), sum(group.nbytes for group in groups)
            numbers = [group.number for group in groups]
            if groups:
                given = handle, footer, numbers, nbytes, columns, batch_rows
                for batch in row_group_batches(*given, local=False, encoded=encoded_in(groups)):
                    if not all(fits(column_of(batch, name).type, kind) for name, kind in times):
                        raise LayoutError(self.name)
                    rows -= batch.num_rows
                    yield batch
            if rows or sum(group.rows for group in groups) != footer.num_rows:
                raise OSError(f"its footer says {footer.num_rows:,} rows, but its row groups do not have as many")

    def _checked(self, footer: pq.FileMetaData) -> Layout:
        """The file's layout; raises `LayoutError` if it does not agree with the plan."""
        try:
            layout = Layout.of(footer, self.columns, self.name, dict(self.keys), computed=self.computed)
        except (MissingColumnError, SchemaError) as error:
            raise LayoutError(str(error)) from None
        if layout.absent != self.absent or not all(map(fits, layout.kinds, self.kinds)):
            raise LayoutError(self.name)
        return layout


@dataclass(frozen=True)
class Sample:
    """A file whose footer is known, from which the rows and types of similar files are estimated.

    Attributes
    ----------
    columns : the requested columns
    layout : layout of the file
    rows, nbytes : rows, and bytes of the requested columns, per byte of the file
    most : largest number of rows of a file that is one piece
    computed : columns that are computed
    """

    columns: tuple[str, ...]
    layout: Layout
    rows: float
    nbytes: float
    most: int
    computed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, files: Sequence[File], columns: Sequence[str], most: int, computed: Sequence[str] = ()
    ) -> Sample | None:
        """The largest file with rows among those whose footers can be deferred; None if there is none."""
        listed = sorted((file for file in files if _listed(file)), key=lambda file: -(file.size or 0))
        for file in listed[:ASKED]:
            try:
                with file.filesystem.open_input_file(file.path) as handle:
                    footer = footer_of(handle)
            except READ_ERRORS:
                continue  # the task that reads it reports the error
            if footer.num_rows and file.size:
                layout = Layout.of(footer, columns, file.name, file.keys)
                nbytes = sum(group.nbytes for group in layout.groups(footer))
                return cls(
                    tuple(columns), layout, footer.num_rows / file.size, nbytes / file.size, most, tuple(computed)
                )
        return None

    def covers(self, file: File) -> bool:
        """Whether the footer of a file can be deferred."""
        return _listed(file) and self._rows(file) <= self.most

    def holding(self, file: File, partition: str, origin: str) -> Holding:
        """The holding of another file, assumed to be like this one."""
        keys = file.keys
        given = tuple(keys.items())
        absent = self.layout.absent
        source = DeferredFile(
            file.filesystem,
            file.path,
            file.name,
            self.columns,
            self.layout.kinds,
            absent,
            given,
            (file.size, file.mtime),
            self.computed,
        )
        nbytes = round((file.size or 0) * self.nbytes)
        constants = tuple((column, keys[column]) for column in absent if column in keys)
        piece = Piece(
            partition, file.name, 0, self._rows(file), nbytes, origin, constants, source=source, estimated=True
        )
        return Holding(file.name, self.layout.kinds, (piece,))

    def _rows(self, file: File) -> int:
        return max(1, round((file.size or 0) * self.rows))


def _listed(file: File) -> bool:
    """Whether a file is remote, has a known size, and is small."""
    remote = not isinstance(file.filesystem, fs.LocalFileSystem)
    return remote and file.size is not None and file.size <= SMALL and not (file.fragment or file.deleted)


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
        Whether the footers of small objects may be deferred.
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
            with ThreadPoolExecutor(min(len(block), pa.io_thread_count())) as pool:
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
    file: File, footer: pq.FileMetaData, layout: Layout, groups: Sequence[Group], partition: str, origin: str
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
