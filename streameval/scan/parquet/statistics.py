"""Statistics of row groups: which of them bound the values of a column, as arrays over row groups.

Not all statistics bound values. Before 2017, a column chunk had only `min` and `max`, which compare bytes as signed
numbers; these are right for booleans, signed integers and floats, and for types that are stored as these. For all other
types (unsigned integers, texts, bytes, decimals of fixed length), the format allows only `min_value` and `max_value`,
and only if the footer gives the order of the columns (`column_orders`). The statistics of INT96 timestamps have no
order, and those of float16 are left alone. Ends of floats leave NaN out, may be either zero for both, and may
themselves be NaN; they then bound nothing. Nor do ends that contradict each other, as where an unsigned integer was
compared as a signed one, or counts that do.

A survey lists the columns of files with their types, numbers of nulls, and ranges.
"""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from streameval.errors import MissingInputError
from streameval.kernels.footers import (
    COUNT,
    ENDS,
    FIELDS,
    MAX,
    MAX_EXACT,
    MIN,
    MIN_EXACT,
    NULLS,
    OLD_MAX,
    OLD_MIN,
    parse_footer,
)
from streameval.kernels.pages import ABSENT
from streameval.scan.faults import READ_ERRORS, unreadable
from streameval.scan.files.paths import locate_all
from streameval.scan.parquet.pages import footer_at
from streameval.scan.widen import EXACT, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow.parquet as pq

    from streameval.scan.parquet.row_groups import Group
    from streameval.typing import Array


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}  # in bytes, of ends that have an old order
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
    def _parsed(self) -> tuple[bytes, Array, Array]:
        """The footer as Arrow writes it, its chunks, and whether each column has an order; see `parse_footer`."""
        sink, groups, leaves = io.BytesIO(), self.footer.num_row_groups, self.footer.num_columns
        self.footer.write_metadata_file(sink)
        data = sink.getvalue()[4:-8]
        chunks, ordered = np.empty((groups, leaves, FIELDS), np.int64), np.empty(leaves, np.bool_)
        if not parse_footer(np.frombuffer(data, np.uint8), chunks, ordered):
            chunks[:], ordered[:] = ABSENT, False
        return data, chunks, ordered

    def null_count(self, group: int, leaf: int) -> int | None:
        """The number of nulls of a column chunk; None if it is not there, or not possible."""
        chunk = self._parsed[1][group, leaf]
        return int(chunk[NULLS]) if 0 <= chunk[NULLS] <= chunk[COUNT] else None

    def ends(self, group: int, column: _Stored) -> tuple[Any, Any, bool]:
        """The ends of the statistics of a column chunk, and whether its values include these; None if unknown."""
        data, chunks, ordered = self._parsed
        if column.read is None or (column.needs_order and not ordered[column.leaf]):
            return None, None, False
        chunk = chunks[group, column.leaf].tolist()
        impossible = chunk[NULLS] != ABSENT and not 0 <= chunk[NULLS] <= chunk[COUNT]
        fields = (MIN, MAX) if ordered[column.leaf] else (OLD_MIN, OLD_MAX)
        if impossible or ABSENT in (chunk[fields[0]], chunk[fields[1]]):
            return None, None, False
        raws = (data[chunk[field] : chunk[field] + chunk[field + ENDS]] for field in fields)
        low, high = (column.read(raw) if len(raw) == column.width or not column.width else None for raw in raws)
        exact = 0 not in (chunk[MIN_EXACT], chunk[MAX_EXACT])
        known = low is not None and high is not None and low <= high  # not NaN
        return (low, high, exact) if known else (None, None, False)

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
        needs_order = stored.physical_type not in _WIDTHS or types.is_unsigned_integer(field.type)
        width = stored.length if stored.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(stored.physical_type)
        return _Stored(leaves[0], _reader(stored, field.type), width or 0, needs_order)


class _Stored(NamedTuple):
    """How a file stores a column: its leaf, how an end of its statistics is read, and whether these need an order.

    Without `read`, only its nulls are known. An end has `width` bytes, any number if that is 0.
    """

    leaf: int
    read: Callable[[bytes], Any] | None
    width: int
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
    ends: list[tuple[Any, Any, bool]] = []
    nulls, values = np.ones(size, np.bool_), np.ones(size, np.bool_)
    stored = last = None
    for columns, groups in places:
        if last is None or not columns.is_like(last):
            stored, last = columns.find(field), columns
        for group in groups:
            count = columns.null_count(group.number, stored.leaf) if stored else None
            of_chunk = columns.ends(group.number, stored) if stored else (None, None, False)
            if count is not None:
                nulls[len(ends)] = count > 0
                values[len(ends)] = count < group.rows or of_chunk[0] is not None  # with ends, it has values
            ends.append(of_chunk)
    texts = types.is_string(field.type) or types.is_large_string(field.type)
    kind = pa.binary() if texts else field.type  # the end of a text may be cut within a character
    try:
        low, high = (pa.array([end[i] for end in ends], kind).cast(field.type, safe=False) for i in (0, 1))
    except (pa.ArrowException, OverflowError):  # of a damaged footer: the task that reads the file judges it
        low = high = pa.nulls(size, field.type)
    return Bounds(low, high, nulls, values)


def _reader(stored: pq.ColumnSchema, kind: pa.DataType) -> Callable[[bytes], object] | None:
    """How an end of a column's statistics is read as a value; None if its type has no order that is known here.

    A type is known only if the file stores exactly it: an Arrow schema in the footer may give another unit.
    """
    physical, logical = stored.physical_type, stored.logical_type.type
    said = str(stored.logical_type)
    unit = next((unit for word, unit in _UNITS.items() if f"timeUnit={word}" in said), "")
    same_unit = (types.is_timestamp(kind) or types.is_time(kind)) and unit == kind.unit
    texts = types.is_string(kind) or types.is_large_string(kind)
    binaries = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    whole = physical in ("INT32", "INT64")
    signed = partial(int.from_bytes, byteorder="little", signed=True)
    if types.is_boolean(kind) and physical == "BOOLEAN":
        return lambda raw: bool(raw[0])
    if types.is_integer(kind) and whole and logical in ("NONE", "INT"):
        return partial(signed, signed=types.is_signed_integer(kind))
    if types.is_floating(kind) and physical in ("FLOAT", "DOUBLE"):
        code = "<f" if physical == "FLOAT" else "<d"
        return lambda raw: struct.unpack(code, raw)[0]
    if (same_unit and whole) or (types.is_date32(kind) and logical == "DATE"):
        return signed
    if types.is_decimal(kind) and logical == "DECIMAL" and stored.scale == kind.scale:
        unscaled = signed if whole else partial(int.from_bytes, byteorder="big", signed=True)
        return lambda raw: EXACT.scaleb(Decimal(unscaled(raw)), -kind.scale)
    if physical.endswith("BYTE_ARRAY") and ((texts and logical == "STRING") or (binaries and logical == "NONE")):
        return bytes
    return None


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
    return tuple(map(_join, found.values()))


def _facts_of(columns: StoredColumns, field: pa.Field) -> ColumnFacts:
    """A flat column of one file."""
    leaf, groups = columns.leaves[field.name][-1], range(columns.footer.num_row_groups)
    nulls = [columns.null_count(group, leaf) for group in groups]
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    stored = columns.find(field.with_type(plain(field.type)))
    ends = [columns.ends(group, stored) for group in groups] if stored else []
    low = high = None
    if ends and all(exact for *_, exact in ends):
        with suppress(pa.ArrowException, OverflowError):
            low, high = (
                pa.array([end(one[i] for one in ends)], plain(field.type))[0].as_py() for end, i in ((min, 0), (max, 1))
            )
    counted = None if None in nulls else sum(filter(None, nulls))
    return ColumnFacts(field.name, str(kind), columns.footer.num_rows, counted, low, high)


def _join(parts: Sequence[ColumnFacts]) -> ColumnFacts:
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
