"""Pruning: pieces that contain no row of a filter are not read.

A file is skipped if the keys of its path contradict the filter, and a row group if its statistics do; `possible` says
what the filter may be for each, for all files or row groups together. Statistics count only if they bound the values
(`streameval.scan.parquet.statistics`), and if the column has the same type in the file as in the filter. Fields of
structs have none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, MissingInputError
from streameval.scan.messages import READ_ERRORS, unreadable
from streameval.scan.parquet.row_groups import RowGroups, join, row_groups
from streameval.scan.parquet.statistics import StoredColumns, statistics_bounds
from streameval.scan.where.expressions import expression_tree
from streameval.scan.where.possible import Units
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.scan.pieces import Constant, Piece, Scan
    from streameval.scan.where.condition import Test
    from streameval.scan.where.expressions import Node
    from streameval.typing import Array


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
    tree = expression_tree(test.expression)
    pieces = found.pieces if tree is None else _possible_pieces(found.pieces, test, tree)
    if not pieces:
        names = sorted({piece.name for piece in found.pieces})
        msg = f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: no row meets where: {test.text}"
        raise MissingInputError(msg)
    files, left = ({piece.name for piece in several} for several in (found.pieces, pieces))
    rows = -1 if found.rows < 0 else sum(piece.rows for piece in pieces)
    nbytes = sum(piece.nbytes for piece in pieces)
    narrow = replace(found, pieces=pieces, rows=rows, nbytes=nbytes)
    groups, all_groups = (sum(map(_group_count, several)) for several in (pieces, found.pieces))
    return narrow, Pruned(test.text, len(left), len(files), groups, all_groups)


def _group_count(piece: Piece) -> int:
    return len(piece.source.groups) if isinstance(piece.source, RowGroups) else 0


def _possible_pieces(pieces: Sequence[Piece], test: Test, tree: Node) -> tuple[Piece, ...]:
    """The pieces that may contain rows of the filter, without row groups that do not."""
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for i, piece in enumerate(pieces):
        given = {name for name, _ in piece.constants}
        by_keys.setdefault(tuple(name for name in test.schema.names if name in given), []).append(i)
    left: list[tuple[Piece, ...]] = [()] * len(pieces)
    for names, places in by_keys.items():
        keys = _keys([pieces[i] for i in places], names, test.schema)
        may = Units.of(test.schema, len(places), keys, {}).possible(tree).true
        places, keys = (
            [i for i, possible in zip(places, may, strict=True) if possible],
            _rows(keys, np.flatnonzero(may)),
        )
        kept = _possible_groups([pieces[i] for i in places], keys, test, tree)
        for i, parts in zip(places, kept, strict=True):
            left[i] = parts
    return tuple(piece for kept in left for piece in kept)


def _possible_groups(pieces: Sequence[Piece], keys: pa.Table, test: Test, tree: Node) -> Iterator[tuple[Piece, ...]]:
    """For each of some pieces whose keys meet the filter, the row groups that may contain rows of it."""
    read = [field for field in test.schema if field.name not in keys.column_names]
    footers = [_footer(piece) if read else None for piece in pieces]
    stored = {id(footer): StoredColumns(footer) for footer in footers if footer is not None}  # one for a file
    places = [
        (stored[id(footer)], piece.source.groups)  # type: ignore[attr-defined]
        for footer, piece in zip(footers, pieces, strict=True)
        if footer is not None
    ]
    counts = [len(groups) for _, groups in places]
    owners = np.repeat([i for i, footer in enumerate(footers) if footer is not None], counts).astype(np.int64)
    bounds = {field.name: statistics_bounds(places, field) for field in read}
    units = Units.of(test.schema, owners.size, _rows(keys, owners), bounds)
    kept = units.possible(tree).true if places else owners
    parts = iter(np.split(kept, np.cumsum(counts)[:-1]))
    for piece, footer in zip(pieces, footers, strict=True):
        yield (piece,) if footer is None else _kept_groups(piece, next(parts))


def _footer(piece: Piece) -> Any:
    """The footer of a piece of row groups; None if it cannot be read again, or the piece is of another kind."""
    if not isinstance(piece.source, RowGroups):
        return None
    try:
        return piece.source.read_footer()
    except (DataError, *READ_ERRORS):  # the task that reads the file reports the error
        return None


def _kept_groups(piece: Piece, kept: Array) -> tuple[Piece, ...]:
    """A piece with those of its row groups that `kept` marks."""
    if kept.all():
        return (piece,)
    return join([single for single, stays in zip(row_groups(piece), kept, strict=True) if stays])


def _rows(keys: pa.Table, rows: Array) -> pa.Table:
    """Some rows of a table; a table without columns is returned unchanged."""
    return keys.take(pa.array(rows)) if keys.column_names else keys


def _keys(pieces: Sequence[Piece], names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The keys of each piece, in the types of the filter."""
    columns = {}
    for name in names:
        kind = schema.field(name).type
        given = [next(constant for key, constant in piece.constants if key == name) for piece in pieces]
        places: dict[Constant, int] = {}
        codes = [places.setdefault(constant, len(places)) for constant in given]
        try:
            values = pa.concat_arrays([constant.array(kind, 1) for constant in places])
        except UnicodeEncodeError as error:
            raise unreadable(pieces[0].name, error) from error
        columns[name] = values.take(pa.array(codes))
    return pa.table(columns)
