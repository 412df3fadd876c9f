"""Deferred footers: planning objects in object storage without reading their footers.

Reading the footer of an object takes a request, and thousands of requests take longer than the run. A plan needs little
from footers: the types of the columns, and rows and bytes to form tasks of about equal size. Objects small enough to be
one piece are therefore planned by the sizes in the listing; the types, and the rows and bytes per byte of a file, come
from one footer, that of the largest object. The task that reads a file also reads its footer and compares it with the
plan. If the types of the file would have changed the plan, the task raises `LayoutError`, and the caller plans again
from all footers. Results and type errors are therefore those of a plan from all footers, whatever the order of the
files.

*Why comparing with one file suffices.* The plan takes the type that holds every file's values. Suppose ``widen([p, k])
== widen([p])`` for the type p of the one file and the type k of each other file. Then each k is a type of p's family
that is not wider, or null, or an encoding of p's values; none of these changes the type to which a set with p widens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from streameval.errors import MissingColumnError, SchemaError
from streameval.scan.columns import Holding
from streameval.scan.fields import column_of
from streameval.scan.layout import Layout, encoded_in
from streameval.scan.messages import READ_ERRORS
from streameval.scan.parquet.ranges import footer_of
from streameval.scan.parquet.row_groups import row_group_batches
from streameval.scan.pieces import Piece
from streameval.scan.versions import opened
from streameval.scan.widen import widen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.scan.files.file import File
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

    filesystem: Any
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
                msg = f"its footer says {footer.num_rows:,} rows, but its row groups do not have as many"
                raise OSError(msg)

    def _checked(self, footer: Any) -> Layout:
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
