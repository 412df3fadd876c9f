"""Footers of Parquet files, edited in place: Thrift's compact protocol, as far as footers use it.

A value is (type, value): a struct is a dict of its fields, a list the type of its items with them, an integer an int, a
text or bytes bytes, a flag a bool.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
INTEGERS = (4, 5, 6)
COLUMN_ORDERS, ROW_GROUPS, CREATED_BY = 7, 4, 6  # fields of the footer
STATISTICS = 12  # field of a column chunk
DEPRECATED_MAX, DEPRECATED_MIN, MAX, MIN = 1, 2, 5, 6  # fields of the statistics


def edit_footer(path: Path, change: Callable[[dict[int, Any]], None]) -> None:
    """Rewrite the footer of a file; `change` edits its fields."""
    data = path.read_bytes()
    size = struct.unpack("<I", data[-8:-4])[0]
    footer, _ = _read(data[-8 - size : -8], 0, STRUCT)
    change(footer)
    written = _written(STRUCT, footer)
    path.write_bytes(data[: -8 - size] + written + struct.pack("<I", len(written)) + b"PAR1")


def chunks(footer: dict[int, Any]) -> Iterator[list[dict[int, Any]]]:
    """The metadata of the column chunks of each row group."""
    for group in footer[ROW_GROUPS][1][1]:
        yield [column[3][1] for column in group[1][1][1]]


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A value of some type at an offset, and the offset behind it."""
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind in INTEGERS:
        number, at = _varint(data, at)
        return number >> 1 ^ -(number & 1), at
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if kind == BINARY:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind in (LIST, SET):
        size, item, at = data[at] >> 4, data[at] & 15, at + 1
        if size == 15:
            size, at = _varint(data, at)
        items = []
        for _ in range(size):
            value, at = (data[at] == TRUE, at + 1) if item in (TRUE, FALSE) else _read(data, at, item)
            items.append(value)
        return (item, items), at
    fields: dict[int, Any] = {}
    field = 0
    while data[at]:
        step, inner, at = data[at] >> 4, data[at] & 15, at + 1
        if not step:
            number, at = _varint(data, at)
            field = (number >> 1 ^ -(number & 1)) - step
        field += step
        value, at = _read(data, at, inner)
        fields[field] = inner, value
    return fields, at + 1


def _written(kind: int, value: Any) -> bytes:
    """A value as bytes."""
    if kind == BYTE:
        return bytes([value])
    if kind in INTEGERS:
        return _as_varint(value << 1 ^ value >> 63)
    if kind == DOUBLE:
        return bytes(value)
    if kind == BINARY:
        return _as_varint(len(value)) + value
    if kind in (LIST, SET):
        item, items = value
        head = bytes([len(items) << 4 | item]) if len(items) < 15 else bytes([0xF0 | item]) + _as_varint(len(items))
        flags = item in (TRUE, FALSE)
        return head + b"".join(bytes([TRUE if one else FALSE]) if flags else _written(item, one) for one in items)
    out, last = b"", 0
    for field, (inner, one) in sorted(value.items()):
        inner = (TRUE if one else FALSE) if inner in (TRUE, FALSE) else inner
        out += bytes([field - last << 4 | inner]) + (b"" if inner in (TRUE, FALSE) else _written(inner, one))
        last = field
    return out + b"\x00"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number, shift, at = number | (data[at] & 127) << shift, shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at


def _as_varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
