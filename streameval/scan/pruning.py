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

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from streameval.errors import DataError, MissingInputError, OptionError
from streameval.scan.faults import READ_ERRORS, unreadable
from streameval.scan.files.paths import File
from streameval.scan.parquet.footers import THREADS
from streameval.scan.parquet.row_groups import RowGroups, join, row_groups
from streameval.scan.parquet.statistics import Bounds, StoredColumns, statistics_bounds
from streameval.scan.pieces import ExcludedSource
from streameval.scan.where import Node, Test, Where, evaluate_expression, expression_tree
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.pieces import Constant, Piece, Scan
    from streameval.typing import Array


class Possible(NamedTuple):
    """Whether a condition may be true, false or null for a row of each unit: bool arrays of shape (n,)."""

    true: Array
    false: Array
    null: Array

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
    bounds: Mapping[str, Bounds]

    @classmethod
    def of(cls, schema: pa.Schema, size: int, keys: pa.Table, bounds: Mapping[str, Bounds]) -> Units:
        """Units with these keys, and bounds of other columns."""
        yes = np.ones(size, np.bool_)
        unknown = {field.name: pa.nulls(size, field.type) for field in schema}
        every = {name: Bounds(ends, ends, yes, yes) for name, ends in unknown.items()}
        for name, column in zip(keys.column_names, keys.columns, strict=True):
            ends, valid = column.combine_chunks(), column.is_valid().to_numpy()
            if types.is_floating(ends.type):
                ends = pc.if_else(pc.is_nan(ends), None, ends)
            every[name] = Bounds(ends, ends, ~valid, valid)
        return cls(size, schema, keys, {**every, **bounds})

    def possible(self, node: Node) -> Possible:
        """What a part of a filter may be for each unit."""
        if node.call in _LOGIC:
            return reduce(_LOGIC[node.call], map(self.possible, node.arguments))
        if node.call == "invert":
            return self.possible(node.arguments[0]).negated()
        if node.call == "if_else":
            condition, *choices = map(self.possible, node.arguments)
            return condition.choice(*choices)
        known = None
        with suppress(pa.ArrowException):  # the task that reads the rows reports the error
            if node.columns and set(node.columns) <= set(self.keys.column_names):
                return Possible.exactly(evaluate_expression(node.expression(), self.keys))
            known = _TESTS[node.call](self, node) if node.call in _TESTS else None
        return known or Possible(*[np.ones(self.size, np.bool_)] * 3)

    def _operand(self, node: Node) -> Bounds | None:
        """The bounds of a column or of a literal; None for anything else."""
        if node.call == "field":
            return self.bounds[node.value]
        if node.call != "literal" or not node.value.is_valid or pc.equal(node.value, node.value).as_py() is False:
            return None
        ends, yes = pa.repeat(node.value, self.size), np.ones(self.size, np.bool_)
        return Bounds(ends, ends, ~yes, yes)

    def null(self, node: Node) -> Possible | None:
        """Of IS NULL."""
        if node.arguments[0].call != "field" or (node.value is not None and node.value["nan_is_null"].as_py()):
            return None
        bounds = self.bounds[node.arguments[0].value]
        return Possible(bounds.nulls, bounds.values, np.zeros(self.size, np.bool_))

    def valid(self, node: Node) -> Possible | None:
        """Of IS NOT NULL."""
        null = self.null(node)
        return null and null.negated()

    def compared(self, node: Node) -> Possible | None:
        """Of a comparison."""
        one, other = map(self._operand, node.arguments)
        if one is None or other is None:
            return None
        values = one.values & other.values
        true, false = (values & may_be for may_be in _COMPARISONS[node.call](one, other))
        columns = [self.schema.field(part.value).type for part in node.arguments if part.call == "field"]
        if any(map(types.is_floating, columns)):  # a NaN differs from all numbers; no other comparison with it is true
            true, false = (values, false) if node.call == "not_equal" else (true, values)
        return Possible(true, false, one.nulls | other.nulls)

    def among(self, node: Node) -> Possible | None:
        """Of a value in a list; a null is in a list that has one."""
        value_set = node.value and node.value.get("value_set")
        if node.arguments[0].call != "field" or not isinstance(value_set, pa.ListScalar) or not value_set.is_valid:
            return None
        kind, listed = self.schema.field(node.arguments[0].value).type, value_set.values.drop_null()
        real = types.is_floating(kind)
        if listed.type != kind or (real and pc.any(pc.is_nan(listed)).as_py()):
            return None
        low, high, nulls, values = self.bounds[node.arguments[0].value]
        ranks = pc.rank(pa.concat_arrays([low, high, listed]), tiebreaker="dense").to_numpy()
        least, most, ordered = np.split(ranks, [self.size, 2 * self.size])
        ordered = np.sort(ordered)
        hits = np.searchsorted(ordered, most, "right") > np.searchsorted(ordered, least, "left")
        known = low.is_valid().to_numpy(zero_copy_only=False)
        single = known & (least == most) & (not real)  # NaN lies outside of all bounds
        true, false = values & (hits | ~known), values & ~(hits & single)
        return Possible(true | nulls, false | nulls, np.zeros(self.size, np.bool_))

    def truth(self, node: Node) -> Possible | None:
        """Of a column of booleans, or of TRUE, FALSE or NULL."""
        if node.call == "literal":
            return Possible.exactly(pa.repeat(node.value, self.size)) if types.is_boolean(node.value.type) else None
        low, high, nulls, values = self.bounds[node.value]
        if not types.is_boolean(low.type):
            return None
        return Possible(values & _may_be(high), values & _may_be(pc.invert(low)), nulls)


def _may_be(values: pa.Array) -> Array:
    """Whether each value may be true: it is, or is unknown."""
    may_be: Array = pc.fill_null(values, True).to_numpy(zero_copy_only=False)
    return may_be


def _equal(one: Bounds, other: Bounds) -> tuple[Array, Array]:
    true = _may_be(pc.less_equal(one.low, other.high)) & _may_be(pc.less_equal(other.low, one.high))
    return true, _may_be(pc.not_equal(one.low, other.high)) | _may_be(pc.not_equal(one.high, other.low))


def _less(one: Bounds, other: Bounds) -> tuple[Array, Array]:
    return _may_be(pc.less(one.low, other.high)), _may_be(pc.greater_equal(one.high, other.low))


def _less_equal(one: Bounds, other: Bounds) -> tuple[Array, Array]:
    return _may_be(pc.less_equal(one.low, other.high)), _may_be(pc.greater(one.high, other.low))


_LOGIC: dict[str, Callable[[Possible, Possible], Possible]] = {
    "and_kleene": Possible.both,
    "or_kleene": Possible.either,
}
# whether a comparison may be true, and whether it may be false, of values within bounds
_COMPARISONS: dict[str, Callable[[Bounds, Bounds], tuple[Array, Array]]] = {
    "equal": _equal,
    "not_equal": lambda one, other: _equal(one, other)[::-1],
    "less": _less,
    "less_equal": _less_equal,
    "greater": lambda one, other: _less(other, one),
    "greater_equal": lambda one, other: _less_equal(other, one),
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
            f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: no row meets where: {test}"
        )
    files, left = ({piece.name for piece in several} for several in (found.pieces, pieces))
    rows = -1 if found.rows < 0 else sum(piece.rows for piece in pieces)
    nbytes = sum(piece.nbytes for piece in pieces)
    narrow = replace(found, pieces=pieces, rows=rows, nbytes=nbytes)
    groups, all_groups = (
        sum(len(piece.source.groups) for piece in several if isinstance(piece.source, RowGroups))
        for several in (pieces, found.pieces)
    )
    return narrow, Pruned(str(test), len(left), len(files), groups, all_groups)


def exclude(items: Sequence[object], where: Where) -> list[object]:
    """The inputs of a plan; files of tables whose partitions contradict a filter are excluded.

    Unless a file may have rows of the filter, none is excluded, so that the types of its columns are known.
    """
    files = [(i, item) for i, item in enumerate(items) if isinstance(item, File) and item.rows is not None]
    left = list(items)
    for _, several in itertools.groupby(files, lambda pair: pair[1].columns):
        places, chosen = zip(*several, strict=True)
        kinds = {name: constant.kind for name, constant in (*chosen[0].columns, *chosen[0].constants)}
        if not kinds.keys() >= {*where.columns}:
            continue
        with suppress(OptionError):  # raised again where the types of all inputs are known
            test = where.bound(pa.schema([(name, kinds[name]) for name in where.columns]))
            tree, given = expression_tree(test.expression), [dict(file.constants) for file in chosen]
            keys = _keys(chosen, [name for name in where.columns if all(name in one for one in given)], test.schema)
            bounds = {
                field.name: _times_of(field, given) for field in test.schema if field.name not in keys.column_names
            }
            known = {name: one for name, one in bounds.items() if one}
            may = tree is None or Units.of(test.schema, len(chosen), keys, known).possible(tree).true
            for i in np.flatnonzero(np.invert(may)).tolist():
                left[places[i]] = replace(chosen[i], excluded=True)
    opened = any(not (isinstance(item, File) and item.excluded) for item in left)
    return left if opened else list(items)


def _times_of(field: pa.Field, given: Sequence[Mapping[str, Constant]]) -> Bounds | None:
    """The bounds of times in files whose partitions tell their days; None if one does not."""
    days = [constants.get(f"day({field.name})") for constants in given]
    if not types.is_timestamp(field.type) or None in days:
        return None
    starts = pa.array([day.value for day in days if day], pa.string()).cast(pa.date32())
    ends = pc.add(starts.cast(pa.int32()), pa.scalar(1, pa.int32())).cast(pa.date32())
    values = starts.is_valid().to_numpy(zero_copy_only=False)
    with suppress(pa.ArrowInvalid):  # nanoseconds end in 2262
        low, after = (one.cast(pa.timestamp(field.type.unit)).cast(pa.int64()) for one in (starts, ends))
        return Bounds(low.cast(field.type), pc.subtract(after, 1).cast(field.type), ~values, values)
    return None


def _possible_pieces(pieces: Sequence[Piece], test: Test, tree: Node) -> tuple[Piece, ...]:
    """The pieces that may contain rows of the filter, without row groups that do not."""
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for i, piece in enumerate(pieces):
        given = {name for name, _ in piece.constants}
        if not isinstance(piece.source, ExcludedSource):
            by_keys.setdefault(tuple(name for name in test.schema.names if name in given), []).append(i)
    left: dict[int, tuple[Piece, ...]] = {}
    for names, places in by_keys.items():
        keys = _keys([pieces[i] for i in places], names, test.schema)
        may = np.flatnonzero(Units.of(test.schema, len(places), keys, {}).possible(tree).true)
        places = [places[i] for i in may]
        kept = _possible_groups([pieces[i] for i in places], _rows(keys, may), test, tree)
        left |= zip(places, kept, strict=True)
    return tuple(piece for i in sorted(left) for piece in left[i])


def _possible_groups(pieces: Sequence[Piece], keys: pa.Table, test: Test, tree: Node) -> Iterator[tuple[Piece, ...]]:
    """For each of some pieces whose keys meet the filter, the row groups that may contain rows of it."""
    read = [field for field in test.schema if field.name not in keys.column_names]
    footers = _footers(pieces) if read else [None] * len(pieces)
    stored = {id(footer): StoredColumns(footer) for footer in footers}  # one for a file
    places = [
        (stored[id(footer)], piece.source.groups)
        for footer, piece in zip(footers, pieces, strict=True)
        if footer is not None and isinstance(piece.source, RowGroups)
    ]
    counts = [len(groups) for _, groups in places]
    owners = np.repeat([i for i, footer in enumerate(footers) if footer is not None], counts).astype(np.int64)
    bounds = {field.name: statistics_bounds(places, field) for field in read}
    possible = Units.of(test.schema, owners.size, _rows(keys, owners), bounds).possible(tree).true
    parts = iter(np.split(possible, np.cumsum(counts)[:-1]))
    for piece, footer in zip(pieces, footers, strict=True):
        stays = None if footer is None else next(parts)
        if stays is None or stays.all():
            yield (piece,)
        else:
            yield join([single for single, stay in zip(row_groups(piece), stays, strict=True) if stay])


def _footers(pieces: Sequence[Piece]) -> list[pq.FileMetaData | None]:
    """The footers of pieces: each file's is read once, since an object's takes two requests, in parallel threads."""
    files = {(piece.name, getattr(piece.source, "path", "")): piece for piece in pieces}
    with ThreadPoolExecutor(THREADS) as pool:
        footers = dict(zip(files, pool.map(_footer, files.values()), strict=True))
    return [footers[piece.name, getattr(piece.source, "path", "")] for piece in pieces]


def _footer(piece: Piece) -> pq.FileMetaData | None:
    """The footer of a piece of row groups; None if it cannot be read again, or the piece is of another kind."""
    with suppress(DataError, *READ_ERRORS):  # the task that reads the file reports the error
        return piece.source.read_footer() if isinstance(piece.source, RowGroups) else None
    return None


def _rows(keys: pa.Table, rows: Array) -> pa.Table:
    """Some rows of a table; a table without columns is returned unchanged."""
    return keys.take(pa.array(rows)) if keys.column_names else keys


def _keys(pieces: Sequence[Piece | File], names: Sequence[str], schema: pa.Schema) -> pa.Table:
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
