"""Statistics of row groups: which of them bound the values of a column, as arrays over row groups.

Not all statistics bound values. Before 2017, a column chunk had only `min` and `max`, which compare bytes as signed
numbers; these are right for booleans, signed integers and floats, and for types that are stored as these. For all other
types (unsigned integers, texts, bytes, decimals and floats of fixed length), the format allows only `min_value` and
`max_value`, and only if the footer gives the order of the columns (`column_orders`). Arrow does not say which of the
fields it read; a footer that Arrow writes again shows whether the orders are there. The statistics of INT96 timestamps
have no order. Those of floats leave NaN out, and may themselves be NaN; they then bound nothing.

A survey lists the columns of files with their types, numbers of nulls, and ranges.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from streameval.errors import MissingInputError
from streameval.scan.faults import READ_ERRORS, unreadable
from streameval.scan.files.paths import locate_all
from streameval.scan.parquet.ranges import footer_at
from streameval.scan.widen import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from decimal import Decimal

    import pyarrow.parquet as pq

    from streameval.typing import Array


_SIGNED = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_BYTES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_SCALE = 76  # the most digits behind the point of a decimal


@dataclass(frozen=True)
class ColumnBounds:
    """The range of a column in each of n units, such as row groups.

    Attributes
    ----------
    family : values of one family compare with each other; None for a type without an order
    low, high : arrays of shape (n,) of comparable values (see `comparable`)
    known : bool array of shape (n,), whether the values lie from `low` to `high`
    nulls, values : bool arrays of shape (n,), whether there may be nulls, and whether there may be values
    nan : whether there may be NaNs, which lie outside of all bounds
    """

    family: str | None
    low: Array
    high: Array
    known: Array
    nulls: Array
    values: Array
    nan: bool


def unknown_bounds(kind: pa.DataType, size: int) -> ColumnBounds:
    """The bounds of a column without statistics, for `size` units."""
    return _bounds(kind, [None] * size, np.ones(size, np.bool_), np.ones(size, np.bool_))


def exact_bounds(array: pa.Array) -> ColumnBounds:
    """The bounds of a column with one value in each unit."""
    ends = [None if (value := comparable(scalar)) is None else (value, value) for scalar in array]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return _bounds(array.type, ends, ~valid, valid)


@dataclass(frozen=True)
class StoredColumns:
    """How a file stores its columns; what its footer says of all of them is worked out once.

    Attributes
    ----------
    footer : pyarrow.parquet.FileMetaData
    """

    footer: pq.FileMetaData

    @cached_property
    def schema(self) -> pa.Schema:
        """Its Arrow schema."""
        return self.footer.schema.to_arrow_schema()

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Positions of the leaf columns by path; a field of a struct may have the path of a column with a dot."""
        schema, leaves = self.footer.schema, dict[str, list[int]]()
        for i in range(self.footer.num_columns):
            leaves.setdefault(schema.column(i).path, []).append(i)
        return leaves

    @cached_property
    def ordered(self) -> bool:
        """Whether the footer gives the order of its columns; see `orders_columns`."""
        return orders_columns(self.footer)

    @cached_property
    def writer(self) -> tuple[Any, bytes | None]:
        """The schemas, which are equal in files of one writer."""
        return self.footer.schema, (self.footer.metadata or {}).get(b"ARROW:schema")

    def is_like(self, other: StoredColumns) -> bool:
        """Whether another file stores its columns in the same way."""
        return self.writer[1] == other.writer[1] and bool(self.writer[0].equals(other.writer[0]))

    def find(self, field: pa.Field) -> _Stored | None:
        """A top-level column; None if the file does not have it with this type."""
        leaves, place = self.leaves.get(field.name, []), self.schema.get_field_index(field.name)
        if len(leaves) != 1 or place < 0 or plain(self.schema.field(place).type) != field.type:
            return None
        stored = self.footer.schema.column(leaves[0])
        needs_order = stored.physical_type not in _SIGNED or types.is_unsigned_integer(field.type)
        return _Stored(leaves[0], _reader(stored, field.type), needs_order)

    def has_bounds(self, column: _Stored | None) -> bool:
        """Whether the ends of the statistics bound the values of a column."""
        return column is not None and column.read is not None and (not column.needs_order or self.ordered)


@dataclass(frozen=True)
class _Stored:
    """How a file stores a column: its leaf, how the ends of its statistics are read, and whether these need an order.

    Without `read`, only its nulls are known.
    """

    leaf: int
    read: Any
    needs_order: bool


def statistics_bounds(places: Sequence[tuple[StoredColumns, Sequence[int]]], field: pa.Field) -> ColumnBounds:
    """The bounds of a top-level column in row groups of some files.

    They are known where the file has the column with the same type, and statistics that bound its values.

    Parameters
    ----------
    places : sequence of (StoredColumns, sequence of int)
        The columns of each file, and numbers of row groups.
    field : pyarrow.Field
        The column, with its type without dictionary encoding.
    """
    size = sum(len(groups) for _, groups in places)
    ends: list[Any] = []
    nulls, values = np.ones(size, np.bool_), np.ones(size, np.bool_)
    stored = last = None
    for columns, groups in places:
        if last is None or not columns.is_like(last):
            stored, last = columns.find(field), columns
        if stored is None:
            ends += [None] * len(groups)
            continue
        ordered = columns.has_bounds(stored)
        for group in groups:
            chunk = columns.footer.row_group(group).column(stored.leaf)
            statistics = chunk.statistics
            if statistics is not None and statistics.has_null_count:
                nulls[len(ends)] = statistics.null_count > 0
                values[len(ends)] = statistics.null_count < chunk.num_values
            known = ordered and statistics is not None and statistics.has_min_max
            ends.append((stored.read(statistics.min_raw), stored.read(statistics.max_raw)) if known else None)
    return _bounds(field.type, ends, nulls, values)


def orders_columns(footer: pq.FileMetaData) -> bool:
    """Whether a footer says that all columns have the order of their types, so that `min_value` and `max_value` count.

    The orders are the last field of a footer that Arrow writes: a list of structs, each with an empty struct.
    """
    sink = io.BytesIO()
    footer.write_metadata_file(sink)
    written = sink.getvalue()[:-8]
    count = footer.num_columns
    header = bytes([count << 4 | 12]) if count < 15 else b"\xfc" + _varint(count)
    orders = header + b"\x1c\x00\x00" * count + b"\x00"
    return written.endswith(orders) and written[-len(orders) - 1] in (0x19, 0x29, 0x39)  # a list, some fields later


def comparable(scalar: pa.Scalar) -> Any:
    """An Arrow scalar as a Python value with the order that Arrow gives it; None for a null or a type without one."""
    kind = scalar.type
    if not scalar.is_valid or _family(kind) is None:
        return None
    if types.is_decimal(kind):
        return _unscaled(scalar.as_py())
    if types.is_timestamp(kind):
        return scalar.value * (_PER_SECOND["ns"] // _PER_SECOND[kind.unit])
    if types.is_date(kind) or types.is_time(kind) or types.is_duration(kind):
        return scalar.value
    return scalar.as_buffer().to_pybytes() if _family(kind) in ("text", "binary") else scalar.as_py()


def _bounds(kind: pa.DataType, ends: Sequence[Any], nulls: Array, values: Array) -> ColumnBounds:
    family = _family(kind)
    known = [end is not None and end[0] == end[0] and end[1] == end[1] for end in ends]  # not NaN
    neutral = {"text": b"", "binary": b"", "float": 0.0, "boolean": False}.get(str(family), 0)
    low, high = (
        as_array((end[i] if sure else neutral for end, sure in zip(ends, known, strict=True)), len(ends))
        for i in (0, 1)
    )
    return ColumnBounds(family, low, high, np.array(known, np.bool_), nulls, values, types.is_floating(kind))


def as_array(values: Iterable[Any], size: int) -> Array:
    """Comparable values as an array that compares exactly: of int64 or float64 if that holds all, else of objects."""
    array = np.empty(size, object)
    array[:] = list(values)
    kinds = set(map(type, array))
    if kinds == {float}:
        return array.astype(np.float64)
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in (array.min(), array.max())):
        return array.astype(np.int64)
    return array


_FAMILIES: tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    ("boolean", (types.is_boolean,)),
    ("integer", (types.is_integer,)),
    ("float", (types.is_floating,)),
    ("decimal", (types.is_decimal,)),
    ("text", (types.is_string, types.is_large_string)),
    ("binary", (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)),
)


def _family(kind: pa.DataType) -> str | None:
    """The family of a type: values of one family compare as Arrow compares them."""
    if types.is_timestamp(kind):
        return "instant" if kind.tz else "timestamp"
    if types.is_date(kind) or types.is_time(kind) or types.is_duration(kind):
        return str(kind)
    return next((name for name, tests in _FAMILIES if any(test(kind) for test in tests)), None)


def _reader(stored: Any, kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How a raw end of a column's statistics becomes comparable; None if its type has no order that is known here.

    A type is known only if the file stores exactly it: an Arrow schema in the footer may give another unit.
    """
    physical, logical = stored.physical_type, stored.logical_type.type
    if types.is_boolean(kind) and physical == "BOOLEAN":
        return bool
    if types.is_integer(kind) and physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
        bits = 32 if physical == "INT32" else 64
        return (lambda raw: raw % (1 << bits)) if types.is_unsigned_integer(kind) else int
    if types.is_floating(kind) and physical in ("FLOAT", "DOUBLE"):
        return float
    if types.is_timestamp(kind) and physical == "INT64" and _unit(stored) == kind.unit:
        return lambda raw: int(raw) * (_PER_SECOND["ns"] // _PER_SECOND[kind.unit])
    if (types.is_date32(kind) and logical == "DATE") or (types.is_time(kind) and _unit(stored) == kind.unit):
        return int
    if types.is_decimal(kind) and logical == "DECIMAL" and stored.scale == kind.scale:
        return lambda raw: _whole(raw) * 10 ** (_SCALE - kind.scale)
    if physical in _BYTES and (
        (_family(kind) == "text" and logical == "STRING") or (_family(kind) == "binary" and logical == "NONE")
    ):
        return bytes
    return None


def _unit(stored: Any) -> str:
    """The unit of a column of timestamps or times of day, as Arrow abbreviates it; empty for other columns."""
    said = str(stored.logical_type)
    return next((unit for word, unit in _UNITS.items() if f"timeUnit={word}" in said), "")


def _whole(raw: int | bytes) -> int:
    return raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)


def _unscaled(value: Decimal) -> int:
    """A decimal as a number of units of the smallest decimal."""
    sign, digits, exponent = value.as_tuple()
    whole: int = int("".join(map(str, digits))) * 10 ** (_SCALE + int(exponent))
    return -whole if sign else whole


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


@dataclass(frozen=True)
class ColumnFacts:
    """A column of some files.

    Attributes
    ----------
    name, kind : its name and type; types that differ between files are joined by "or"
    rows : number of rows of the files that have it
    nulls : number of nulls; None if the statistics of a file lack it
    low, high : smallest and largest value; None if the statistics of a file lack them, or types differ
    """

    name: str
    kind: str
    rows: int
    nulls: int | None
    low: Any
    high: Any


def survey(paths: Iterable[str]) -> tuple[ColumnFacts, ...]:
    """The columns of the files that paths, patterns or URIs name.

    Raises
    ------
    MissingInputError
        If no file is found, or the files have no flat columns.
    DataError
        If a footer cannot be read; the message names the file.
    """
    found: dict[str, list[tuple[str, int, int | None, Any, Any]]] = {}
    for file in locate_all(paths):
        try:
            footer = footer_at(file.filesystem, file.path)
            for name, facts in _columns(footer):
                found.setdefault(name, []).append(facts)
        except READ_ERRORS as error:
            raise unreadable(file.name, error) from error
    if not found:
        raise MissingInputError(f"{', '.join(paths)}: no files with columns")
    return tuple(_joined(name, parts) for name, parts in found.items())


def _columns(footer: pq.FileMetaData) -> Iterator[tuple[str, tuple[str, int, int | None, Any, Any]]]:
    """Name, type, rows, nulls and range of each flat column of a file."""
    columns, groups = StoredColumns(footer), [footer.row_group(i) for i in range(footer.num_row_groups)]
    for field in columns.schema:
        if field.name in columns.leaves:
            said = [group.column(columns.leaves[field.name][-1]).statistics for group in groups]
            bounded = columns.has_bounds(columns.find(field.with_type(plain(field.type))))
            ends = _range(said) if bounded else (None, None)
            yield field.name, (_kind(field.type), footer.num_rows, _nulls(said), *ends)


def _kind(kind: pa.DataType) -> str:
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _nulls(said: list[Any]) -> int | None:
    if any(one is None or not one.has_null_count for one in said):
        return None
    return sum(int(one.null_count) for one in said)


def _range(said: list[Any]) -> tuple[Any, Any]:
    known = [one for one in said if one is not None and one.has_min_max]
    if len(known) < len(said) or not known:
        return None, None
    try:
        return min(one.min for one in known), max(one.max for one in known)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException):  # a type without an order in Python
        return None, None


def _joined(name: str, parts: list[tuple[str, int, int | None, Any, Any]]) -> ColumnFacts:
    """Combine the facts of several files about a column."""
    kinds, rows, nulls, lows, highs = zip(*parts, strict=True)
    known = all(_plain(end) for end in (*lows, *highs)) and len(dict.fromkeys(kinds)) == 1
    return ColumnFacts(
        name,
        " or ".join(dict.fromkeys(kinds)),
        sum(rows),
        None if None in nulls else sum(nulls),
        min(lows) if known else None,
        max(highs) if known else None,
    )


def _plain(end: Any) -> bool:
    """Whether an end of a range is known and not NaN."""
    return end is not None and not (isinstance(end, float) and math.isnan(end))
