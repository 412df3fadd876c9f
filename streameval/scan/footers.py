"""Footers: files to row groups, types and sizes.

Every footer is read once, here. From a local disk one after the other takes 0.1 ms each. When a block of them turns out
to be slow (a network mount), or the file system is remote, the next blocks are fetched on Arrow's own I/O threads: a
dataset that counts its rows reads its files' footers in parallel and keeps them. Files of one writer share a layout,
which is worked out once.

A piece is a row group, or neighbours gathered to about a million rows, because a task of a few thousand rows costs more
than it computes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streameval.errors import DataError
from streameval.scan.columns import Holding, find
from streameval.scan.paths import READ_ERRORS, File, labels, reason, unreadable
from streameval.scan.pieces import Piece, RowGroups

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["GATHER_ROWS", "holdings"]

GATHER_ROWS = 1 << 20  # rows to which small row groups are gathered
BLOCK_FILES = 256  # footers read together
SLOW_FOOTER = 2e-3  # seconds a footer beyond which the next blocks are read in parallel


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the requested columns are in a file and of which type; the same for all files of one writer.

    `leaves` are the positions of the columns among the file's, `absent` the names that its path must give.
    """

    writer: tuple[Any, ...]
    kinds: tuple[pa.DataType, ...]
    leaves: tuple[int, ...]
    absent: tuple[str, ...]


def holdings(
    files: Sequence[File], columns: Sequence[str], *, skip: bool, parallel: bool = True
) -> Iterator[Holding | tuple[str, str]]:
    """The holding of every file (without pieces if it has no rows), or its name and the reason why it is left out.

    Parameters
    ----------
    files : sequence of File
        In the order of the scan.
    columns : sequence of str
        The requested columns.
    skip : bool
        Whether a file whose footer cannot be read is left out instead of raised.
    parallel : bool
        Whether slow footers may be read on Arrow's I/O threads.
    """
    layout: Layout | None = None
    for (file, footer), label in zip(_footers(files, parallel=parallel), labels(files), strict=True):
        try:
            if isinstance(footer, Exception):
                raise footer
            if footer.num_rows:
                layout = _layout(file, footer, columns, layout)
                yield Holding(file.name, layout.kinds, tuple(_pieces(file, footer, layout, *label)))
            else:
                yield Holding(file.name, (), ())
        except DataError:
            raise
        except READ_ERRORS as error:
            if not skip:
                raise unreadable(file.name, error) from error
            yield file.name, reason(error)


def _footers(files: Sequence[File], *, parallel: bool) -> Iterator[tuple[File, Any]]:
    """Every file with its footer, or with the error that reading it gave."""
    slow = not all(isinstance(file.filesystem, fs.LocalFileSystem) for file in files)
    for start in range(0, len(files), BLOCK_FILES):
        block = files[start : start + BLOCK_FILES]
        began = time.perf_counter()
        if slow and parallel:
            from streameval.scan.datasets import prefetched  # here, because it is slow to import

            block = prefetched(block)
        footers = [_footer(file) for file in block]
        slow = slow or time.perf_counter() - began > SLOW_FOOTER * len(block)
        yield from zip(block, footers, strict=True)


def _footer(file: File) -> Any:
    """A file's footer, or the error to raise for it."""
    try:
        if file.fragment is not None:
            return file.fragment.metadata
        return pq.read_metadata(file.path, filesystem=file.filesystem)
    except READ_ERRORS as error:
        return error


def _layout(file: File, footer: Any, columns: Sequence[str], known: Layout | None) -> Layout:
    """The file's layout: the known one if the same writer made both files."""
    writer = (
        footer.schema,
        (footer.metadata or {}).get(b"ARROW:schema"),
        {key: constant.kind for key, constant in file.keys.items()},
    )
    if known is not None and known.writer[1:] == writer[1:] and known.writer[0].equals(writer[0]):
        return known
    schema = footer.schema.to_arrow_schema()
    kinds = find(schema, columns, file.name, file.keys)
    paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
    leaves = tuple(i for i, path in enumerate(paths) if path in columns)
    return Layout(writer, kinds, leaves, tuple(column for column in columns if column not in schema.names))


def _pieces(file: File, footer: Any, layout: Layout, partition: str, origin: str) -> Iterator[Piece]:
    """The file's pieces: runs of neighbouring row groups of about `GATHER_ROWS` rows."""
    constants = tuple((column, file.keys[column]) for column in layout.absent)
    groups = list(_row_groups(file, footer, layout.leaves))
    runs = list(_runs(groups))
    kept = footer if len(runs) > 1 else None
    for run in runs:
        rows, nbytes = sum(group[2] for group in run), sum(group[3] for group in run)
        source = RowGroups(file.filesystem, file.path, tuple(group[0] for group in run), nbytes, kept)
        yield Piece(partition, file.name, run[0][1], rows, nbytes, origin, constants, source=source)


def _row_groups(file: File, footer: Any, leaves: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Number, first row, rows and bytes of every row group that has rows (of the fragment, when there is one)."""
    wanted = None if file.fragment is None else {group.id for group in file.fragment.row_groups}
    row = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows and (wanted is None or number in wanted):
            nbytes = sum(group.column(leaf).total_compressed_size for leaf in leaves)
            yield number, row, group.num_rows, nbytes
        row += group.num_rows


def _runs(groups: Sequence[tuple[int, int, int, int]]) -> Iterator[list[tuple[int, int, int, int]]]:
    """Neighbours gathered as long as they stay within `GATHER_ROWS` rows."""
    run: list[tuple[int, int, int, int]] = []
    for group in groups:
        adjoins = run and run[-1][1] + run[-1][2] == group[1]
        if run and not (adjoins and sum(member[2] for member in run) + group[2] <= GATHER_ROWS):
            yield run
            run = []
        run.append(group)
    if run:
        yield run
