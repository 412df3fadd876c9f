"""Pruning: pieces that contain no row of a filter are not read.

A file is skipped if the keys of its path contradict the filter, and a row group if its statistics do. Arrow decides
both (`pyarrow.dataset`). No row groups are skipped if a NaN may meet the filter, because statistics ignore NaN; if the
type of a column differs between files; or if the filter reads fields of structs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import DataError, MissingInputError
from streameval.scan.messages import READ_ERRORS, unreadable
from streameval.scan.parquet.row_groups import RowGroups, join, row_groups
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.scan.pieces import Piece, Scan
    from streameval.scan.where.condition import Test

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True)
class Pruned:
    """The numbers of files and row groups that a filter leaves to read.

    Attributes
    ----------
    where : the filter
    files, all_files : number of files to read, and of all files
    groups, all_groups : number of row groups to read, and of all row groups that were inspected

    Examples
    --------
    >>> print(Pruned("night = '2026-01-01'", 1, 14, 1, 14))
    night = '2026-01-01' leaves 1 of 14 files and 1 of 14 row groups to read
    """

    where: str
    files: int
    all_files: int
    groups: int
    all_groups: int

    def __str__(self) -> str:
        groups = f" and {self.groups:,} of {plural(self.all_groups, 'row group')}" if self.all_groups else ""
        return f"{self.where} leaves {self.files:,} of {plural(self.all_files, 'file')}{groups} to read"


def prune(found: Scan, test: Test) -> tuple[Scan, Pruned]:
    """The scan without pieces that contain no row of a filter, and how much is left.

    Raises
    ------
    MissingInputError
        If no piece is left.
    """
    from pyarrow import dataset  # here, because it is slow to import

    pieces: list[Piece] = []
    counts = [0, 0]
    for piece in found.pieces:
        try:
            kept, groups, whole = _pruned(piece, test, dataset)
        except (DataError, *READ_ERRORS):  # the task that reads the file reports the error
            kept, groups, whole = [piece], 0, 0
        pieces += kept
        counts = [counts[0] + groups, counts[1] + whole]
    if not pieces:
        names = sorted({piece.name for piece in found.pieces})
        msg = f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: no row meets where: {test.text}"
        raise MissingInputError(msg)
    files, left = ({piece.name for piece in several} for several in (found.pieces, pieces))
    rows = -1 if found.rows < 0 else sum(piece.rows for piece in pieces)
    nbytes = sum(piece.nbytes for piece in pieces)
    narrow = replace(found, pieces=tuple(pieces), rows=rows, nbytes=nbytes)
    return narrow, Pruned(test.text, len(left), len(files), *counts)


def _pruned(piece: Piece, test: Test, dataset: Any) -> tuple[list[Piece], int, int]:
    """The pieces to read of a piece, the number of their row groups, and that of all its row groups."""
    source = piece.source if isinstance(piece.source, RowGroups) else None
    every = 0 if source is None else len(source.groups)
    keys = _keys(piece, test)
    if keys is not None and not _possible(keys, test, dataset):
        return [], 0, every
    if source is None or not test.prunes or not _types_match(piece, source, test):
        return [piece], every, every
    fragment = dataset.ParquetFileFormat().make_fragment(
        source.path, source.filesystem, partition_expression=keys, row_groups=list(source.groups)
    )
    left = {group.id for group in fragment.subset(filter=test.expression, schema=test.schema).row_groups}
    if len(left) == every:
        return [piece], every, every
    singles = dict(zip(source.groups, row_groups(piece), strict=True))
    return list(join([single for group, single in singles.items() if group in left])), len(left), every


def _keys(piece: Piece, test: Test) -> pc.Expression | None:
    """The filter's columns that are keys of the path, as an expression; None if there are none."""
    known = []
    for name, constant in piece.constants:
        if name in test.schema.names:
            try:
                value = constant.scalar(test.schema.field(name).type)
            except UnicodeEncodeError as error:
                raise unreadable(piece.name, error) from error
            known.append(pc.field(name) == value if value.is_valid else pc.field(name).is_null())
    return reduce(lambda one, other: one & other, known) if known else None


def _possible(keys: pc.Expression, test: Test, dataset: Any) -> bool:
    """Whether a file with these keys may contain a row of the filter."""
    layout = dataset.ParquetFileFormat()
    fragment = layout.make_fragment("file", pa.fs.LocalFileSystem(), partition_expression=keys)
    found: Iterator[Any] = dataset.FileSystemDataset(
        [fragment], test.schema, layout, fragment.filesystem
    ).get_fragments(filter=test.expression)
    return next(iter(found), None) is not None


def _types_match(piece: Piece, source: RowGroups, test: Test) -> bool:
    """Whether the filter reads columns of the file, and all of them have the types that the filter compares."""
    constants = dict(piece.constants)
    own = source.read_footer().schema.to_arrow_schema()
    asked = [field for field in test.schema if field.name not in constants]
    return bool(asked) and all(field.name in own.names and own.field(field.name).type == field.type for field in asked)
