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
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from streameval.errors import MissingInputError
from streameval.scan.faults import READ_ERRORS, unreadable
from streameval.scan.files.paths import locate_all
from streameval.scan.parquet.pages import footer_at
from streameval.scan.widen import EXACT, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.parquet.row_groups import Group
    from streameval.typing import Array


_SIGNED = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


class Bounds(NamedTuple):
    """The range of a column in each of n units, such as row groups.

    Attributes
    ----------
    low, high : Arrow arrays of shape (n,), the ends of the values but NaN; null where they are unknown
    nulls, values : bool arrays of shape (n,), whether there may be nulls, and whether there may be values
    """

    low: pa.Array
    high: pa.Array
    nulls: Array
    values: Array


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

    def is_like(self, other: StoredColumns) -> bool:
        """Whether another file has the same schemas, as those of one writer have."""
        one, two = ((file.footer.metadata or {}).get(b"ARROW:schema") for file in (self, other))
        return one == two and bool(self.footer.schema.equals(other.footer.schema))

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


class _Stored(NamedTuple):
    """How a file stores a column: its leaf, how the ends of its statistics are read, and whether these need an order.

    Without `read`, only its nulls are known.
    """

    leaf: int
    read: Callable[[Any], Any] | None
    needs_order: bool


def statistics_bounds(places: Sequence[tuple[StoredColumns, Sequence[Group]]], field: pa.Field) -> Bounds:
    """The bounds of a top-level column in row groups of some files.

    They are known where the file has the column with the same type, and statistics that bound its values.

    Parameters
    ----------
    places : sequence of (StoredColumns, sequence of Group)
        The columns of each file, and row groups of it.
    field : pyarrow.Field
        The column, with its type without dictionary encoding.
    """
    size = sum(len(groups) for _, groups in places)
    ends: list[tuple[Any, Any]] = []
    nulls, values = np.ones(size, np.bool_), np.ones(size, np.bool_)
    stored = last = None
    for columns, groups in places:
        if last is None or not columns.is_like(last):
            stored, last = columns.find(field), columns
        read = stored.read if stored and columns.has_bounds(stored) else None
        for group in groups:
            chunk = columns.footer.row_group(group.number).column(stored.leaf) if stored else None
            statistics = chunk and chunk.statistics
            if chunk and statistics and statistics.has_null_count:
                nulls[len(ends)] = statistics.null_count > 0
                values[len(ends)] = statistics.null_count < chunk.num_values
            low = high = None
            if read and statistics and statistics.has_min_max:
                low, high = read(statistics.min_raw), read(statistics.max_raw)
            ends.append((low, high) if low == low and high == high else (None, None))  # not NaN
    texts = types.is_string(field.type) or types.is_large_string(field.type)
    kind = pa.binary() if texts else field.type  # the end of a text may be cut within a character
    try:
        low_ends, high_ends = (pa.array([end[i] for end in ends], kind).cast(field.type, safe=False) for i in (0, 1))
    except (pa.ArrowException, OverflowError):  # of a damaged footer: the task that reads the file judges it
        low_ends = high_ends = pa.nulls(size, field.type)
    return Bounds(low_ends, high_ends, nulls, values)


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


def _reader(stored: pq.ColumnSchema, kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How Arrow takes a raw end of a column's statistics as a value; None if its type has no order that is known here.

    A type is known only if the file stores exactly it: an Arrow schema in the footer may give another unit.
    """
    physical, logical = stored.physical_type, stored.logical_type.type
    said = str(stored.logical_type)
    unit = next((unit for word, unit in _UNITS.items() if f"timeUnit={word}" in said), "")
    same_unit = (types.is_timestamp(kind) or types.is_time(kind)) and unit == kind.unit
    texts = types.is_string(kind) or types.is_large_string(kind)
    binaries = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    if types.is_boolean(kind) and physical == "BOOLEAN":
        return bool
    if types.is_integer(kind) and physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
        bits = 32 if physical == "INT32" else 64
        return (lambda raw: raw % (1 << bits)) if types.is_unsigned_integer(kind) else int
    if types.is_floating(kind) and physical in ("FLOAT", "DOUBLE"):
        return float
    if (same_unit and physical in ("INT32", "INT64")) or (types.is_date32(kind) and logical == "DATE"):
        return int
    if types.is_decimal(kind) and logical == "DECIMAL" and stored.scale == kind.scale:
        whole = int if physical in ("INT32", "INT64") else partial(int.from_bytes, byteorder="big", signed=True)
        return lambda raw: EXACT.scaleb(Decimal(whole(raw)), -kind.scale)
    if physical.endswith("BYTE_ARRAY") and ((texts and logical == "STRING") or (binaries and logical == "NONE")):
        return bytes
    return None


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
    found: dict[str, list[ColumnFacts]] = {}
    for file in locate_all(paths):
        try:
            columns = StoredColumns(footer_at(file.filesystem, file.path))
            for field in columns.schema:
                if field.name in columns.leaves:
                    found.setdefault(field.name, []).append(_facts_of(columns, field))
        except READ_ERRORS as error:
            raise unreadable(file.name, error) from error
    if not found:
        raise MissingInputError(f"{', '.join(paths)}: no files with columns")
    return tuple(map(_joined, found.values()))


def _facts_of(columns: StoredColumns, field: pa.Field) -> ColumnFacts:
    """A flat column of one file."""
    footer, leaf = columns.footer, columns.leaves[field.name][-1]
    chunks = [footer.row_group(i).column(leaf).statistics for i in range(footer.num_row_groups)]
    counted = all(one is not None and one.has_null_count for one in chunks)
    low = high = None
    bounded = columns.has_bounds(columns.find(field.with_type(plain(field.type))))
    if chunks and bounded and all(one is not None and one.has_min_max for one in chunks):
        with suppress(TypeError, ValueError, NotImplementedError, pa.ArrowException):  # a type without an order
            low, high = min(one.min for one in chunks), max(one.max for one in chunks)
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    nulls = sum(int(one.null_count) for one in chunks) if counted else None
    return ColumnFacts(field.name, str(kind), footer.num_rows, nulls, low, high)


def _joined(parts: Sequence[ColumnFacts]) -> ColumnFacts:
    """A column of several files."""
    kinds, nulls = dict.fromkeys(part.kind for part in parts), [part.nulls for part in parts if part.nulls is not None]
    ends = [end for part in parts for end in (part.low, part.high)]
    known = len(kinds) == 1 and all(end is not None and end == end for end in ends)  # not NaN
    return ColumnFacts(
        parts[0].name,
        " or ".join(kinds),
        sum(part.rows for part in parts),
        sum(nulls) if len(nulls) == len(parts) else None,
        min(part.low for part in parts) if known else None,
        max(part.high for part in parts) if known else None,
    )
