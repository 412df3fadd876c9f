"""Pruning: pieces that contain no row of a filter are not read.

A file is skipped if the keys of its path contradict the filter, and a row group if its statistics do; `Units.possible`
says what the filter may be for each, for all files or row groups together. Statistics count only if they bound the
values (`streameval.scan.parquet.statistics`), and if the column has the same type in the file as in the filter. Fields
of structs have none.

A unit is a file or a row group. The keys of its path are known, and statistics bound its other columns. Each part of a
filter is evaluated for all units together: exactly if it reads keys alone, else from the bounds. A part that is not
understood may be anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import DataError, MissingInputError
from streameval.scan.faults import READ_ERRORS, unreadable
from streameval.scan.parquet.row_groups import RowGroups, join, row_groups
from streameval.scan.parquet.statistics import (
    ColumnBounds,
    StoredColumns,
    as_array,
    comparable,
    exact_bounds,
    statistics_bounds,
    unknown_bounds,
)
from streameval.scan.where.expressions import Node, evaluated, expression_tree
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.scan.pieces import Constant, Piece, Scan
    from streameval.scan.where import Test
    from streameval.typing import Array


class Possible(NamedTuple):
    """Whether a condition may be true, false or null for a row of each unit: bool arrays of shape (n,)."""

    true: Array
    false: Array
    null: Array

    @classmethod
    def anything(cls, size: int) -> Possible:
        """Of a condition that is not understood."""
        return cls(*(np.ones(size, np.bool_) for _ in range(3)))

    @classmethod
    def exactly(cls, values: pa.Array | pa.ChunkedArray) -> Possible:
        """Of a condition whose value is the same for all rows of a unit."""
        true = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        null = values.is_null().to_numpy(zero_copy_only=False)
        return cls(true, ~true & ~null, null)

    def negated(self) -> Possible:
        """Of NOT."""
        return Possible(self.false, self.true, self.null)

    def both(self, other: Possible) -> Possible:
        """Of AND."""
        null = (self.null & (other.null | other.true)) | (self.true & other.null)
        return Possible(self.true & other.true, self.false | other.false, null)

    def either(self, other: Possible) -> Possible:
        """Of OR."""
        return self.negated().both(other.negated()).negated()

    def choice(self, one: Possible, other: Possible) -> Possible:
        """Of one condition where this one is true, and of another where it is false."""
        true, false, null = ((self.true & a) | (self.false & b) for a, b in zip(one, other, strict=True))
        return Possible(true, false, null | self.null)


@dataclass(frozen=True)
class Units:
    """What is known of some units.

    Attributes
    ----------
    size : number of units
    schema : the columns of the filter
    keys : the columns that are constant in each unit, with a row for each unit
    bounds : bounds of all columns of the filter, by name
    """

    size: int
    schema: pa.Schema
    keys: pa.Table
    bounds: Mapping[str, ColumnBounds]

    @classmethod
    def of(cls, schema: pa.Schema, size: int, keys: pa.Table, bounds: Mapping[str, ColumnBounds]) -> Units:
        """Units with these keys, and bounds of other columns."""
        unknown = {field.name: unknown_bounds(field.type, size) for field in schema if field.name not in bounds}
        exact = {name: exact_bounds(keys.column(name).combine_chunks()) for name in keys.column_names}
        return cls(size, schema, keys, {**unknown, **bounds, **exact})

    def possible(self, node: Node) -> Possible:
        """What a part of a filter may be for each unit."""
        if node.call in _LOGIC:
            return reduce(_LOGIC[node.call], map(self.possible, node.arguments))
        if node.call == "invert":
            return self.possible(node.arguments[0]).negated()
        if node.call == "if_else":
            condition, *choices = map(self.possible, node.arguments)
            return condition.choice(*choices)
        found = _TESTS[node.call](self, node) if node.call in _TESTS else None
        if found is None and node.columns and set(node.columns) <= set(self.keys.column_names):
            with suppress(pa.ArrowException):  # the task that reads the rows reports the error
                found = Possible.exactly(evaluated(node.expression(), self.keys))
        return Possible.anything(self.size) if found is None else found

    def _operand(self, node: Node) -> ColumnBounds | None:
        """The bounds of a column or of a literal; None for anything else."""
        if node.call == "field":
            return self.bounds[node.value]
        if node.call != "literal" or (value := comparable(node.value)) is None or value != value:
            return None
        one = unknown_bounds(node.value.type, 1)
        ends, yes = as_array([value], 1), np.ones(1, np.bool_)
        return ColumnBounds(one.family, ends, ends, yes, ~yes, yes, nan=False)

    def null(self, node: Node) -> Possible | None:
        """Of IS NULL."""
        bounds = self._operand(node.arguments[0]) if node.arguments[0].call == "field" else None
        if bounds is None or (node.value is not None and node.value["nan_is_null"].as_py()):
            return None
        return Possible(bounds.nulls, bounds.values, np.zeros(self.size, np.bool_))

    def valid(self, node: Node) -> Possible | None:
        """Of IS NOT NULL."""
        found = self.null(node)
        return None if found is None else found.negated()

    def compared(self, node: Node) -> Possible | None:
        """Of a comparison."""
        one, other = map(self._operand, node.arguments)
        if one is None or other is None or one.family is None or one.family != other.family:
            return None
        known, values = one.known & other.known, one.values & other.values
        true, false = (values & (np.asarray(end, np.bool_) | ~known) for end in _COMPARISONS[node.call](one, other))
        if one.nan or other.nan:  # a NaN differs from every number, and no other comparison with it is true
            true, false = (true | values, false) if node.call == "not_equal" else (true, false | values)
        true, false, null = (np.broadcast_to(part, self.size) for part in (true, false, one.nulls | other.nulls))
        return Possible(true, false, null)

    def among(self, node: Node) -> Possible | None:
        """Of a value in a list; a null is in a list that has one."""
        bounds, values = self._operand(node.arguments[0]), _list(node.value)
        if bounds is None or bounds.family is None or node.arguments[0].call != "field" or values is None:
            return None
        listed = [value for value in map(comparable, values) if value is not None]
        same = values.type == self.schema.field(node.arguments[0].value).type
        if not same or any(value != value for value in listed):
            return None
        ordered = as_array(sorted(listed), len(listed))
        hits = np.searchsorted(ordered, bounds.high, "right") > np.searchsorted(ordered, bounds.low, "left")
        single = bounds.known & np.asarray(bounds.low == bounds.high, np.bool_)
        true, false = bounds.values & (hits | ~bounds.known), bounds.values & (~(hits & single) | bounds.nan)
        return Possible(true | bounds.nulls, false | bounds.nulls, np.zeros(self.size, np.bool_))

    def truth(self, node: Node) -> Possible | None:
        """Of a column of booleans, or of TRUE, FALSE or NULL."""
        bounds = self._operand(node)
        if node.call == "literal" and pa.types.is_boolean(node.value.type):
            return Possible.exactly(pa.repeat(node.value, self.size))
        if bounds is None or bounds.family != "boolean":
            return None
        true, false = bounds.high.astype(np.bool_) | ~bounds.known, ~bounds.low.astype(np.bool_) | ~bounds.known
        return Possible(bounds.values & true, bounds.values & false, bounds.nulls)


def _list(options: Any) -> pa.Array | None:
    """The values of a list in the options of `is_in`."""
    values = None if options is None else options.get("value_set")
    return values.values if isinstance(values, pa.ListScalar) and values.is_valid else None


_LOGIC: dict[str, Callable[[Possible, Possible], Possible]] = {
    "and_kleene": Possible.both,
    "or_kleene": Possible.either,
}


def _equal(one: ColumnBounds, other: ColumnBounds) -> tuple[Array, Array]:
    same = (one.low == one.high) & (other.low == other.high) & (one.low == other.low)
    return (one.low <= other.high) & (other.low <= one.high), ~np.asarray(same, np.bool_)


# whether a comparison may be true, and whether it may be false, of values within bounds
_COMPARISONS: dict[str, Callable[[ColumnBounds, ColumnBounds], tuple[Array, Array]]] = {
    "equal": _equal,
    "not_equal": lambda one, other: _equal(one, other)[::-1],
    "less": lambda one, other: (one.low < other.high, one.high >= other.low),
    "less_equal": lambda one, other: (one.low <= other.high, one.high > other.low),
    "greater": lambda one, other: (one.high > other.low, one.low <= other.high),
    "greater_equal": lambda one, other: (one.high >= other.low, one.low < other.high),
}
_TESTS: dict[str, Callable[[Units, Node], Possible | None]] = {
    "is_null": Units.null,
    "is_valid": Units.valid,
    "is_in": Units.among,
    "field": Units.truth,
    "literal": Units.truth,
    **dict.fromkeys(_COMPARISONS, Units.compared),
}


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
        raise MissingInputError(
            f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: no row meets where: {test.text}"
        )
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
