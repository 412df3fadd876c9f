"""Names of groups: byte strings that encode the values of a group.

For each column, a name has the length of a tagged text, a colon and the text: ``3:sDE`` for the string ``DE``, ``2:i7``
for the integer 7. The tag is the kind of the value. Equal values have equal names in all files and on all workers,
whatever the width of their type.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

_NAN = float("nan")  # a single object, so that tuples that contain it are equal


@lru_cache(maxsize=1 << 15)
def parts_of(name: bytes) -> tuple[bytes, ...]:
    """Split the name of a group into the parts of its columns; raises `ValueError` for other bytes.

    Examples
    --------
    >>> parts_of(b"3:sDE2:i7")
    (b'3:sDE', b'2:i7')
    """
    parts = []
    while name:
        size = name.partition(b":")[0]
        end = len(size) + 1 + int(size)
        if not size.isdigit() or not len(size) + 1 < end <= len(name):
            msg = f"{name!r} is not the name of a group"
            raise ValueError(msg)
        parts.append(name[:end])
        name = name[end:]
    return tuple(parts)


def tag_of(part: bytes) -> bytes:
    """The tag of one part of a name, such as ``s`` for a string.

    Examples
    --------
    >>> tag_of(b"3:sDE"), tag_of(b"1:n")
    (b's', b'n')
    """
    return part.partition(b":")[2][:1]


def slice_type(kind: pa.DataType, column: str, file: str) -> str:
    """The type that determines the names of a column's slices; files in which it differs cannot be merged.

    It is the tag if names do not depend on the width of the type, else the Arrow type; empty for a column of nulls.

    Raises
    ------
    SchemaError
        If rows cannot be grouped by values of the type.

    Examples
    --------
    >>> slice_type(pa.int8(), "length", "f"), slice_type(pa.float32(), "ratio", "f"), slice_type(pa.null(), "x", "f")
    ('i', 'float', '')
    """
    tag = type_tag(kind, column, file)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return "" if tag == b"n" else tag.decode() if tag in (b"b", b"i", b"s", b"x") else str(plain)


def hashable(array: pa.Array) -> pa.Array:
    """The array in a type that Arrow can hash: float32 for float16, decimal128 for shorter decimals."""
    kind = array.type
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    return array.cast(pa.float32()) if pa.types.is_float16(kind) else array


_TAGS: tuple[tuple[bytes, tuple[Any, ...]], ...] = (
    (b"n", (pa.types.is_null,)),
    (b"b", (pa.types.is_boolean,)),
    (b"i", (pa.types.is_integer,)),
    (b"f", (pa.types.is_floating,)),
    (b"d", (pa.types.is_decimal,)),
    (b"s", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (b"x", (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)),
    (b"t", (pa.types.is_date, pa.types.is_timestamp, pa.types.is_time)),
)


def type_tag(kind: pa.DataType, column: str, file: str) -> bytes:
    """The tag of a type; raises `SchemaError` for a type by which rows cannot be grouped."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tag = next((tag for tag, tests in _TAGS if any(test(kind) for test in tests)), None)
    if tag is None:
        msg = f"{file}: column {column!r} has type {kind}; rows are grouped by plain values: cast it"
        raise SchemaError(msg)
    return tag


def tagged(values: pa.Array, tag: bytes) -> pa.Array:
    """Each value as tagged text."""
    if tag == b"n":
        return nulls(len(values))
    values = hashable(values)
    if tag == b"f":
        values = pc.add(values, pa.scalar(0.0, values.type))  # −0.0 becomes 0.0
    text = values if tag == b"x" else values.cast(pa.string())
    joined = pc.binary_join_element_wise(binary(tag), text.cast(pa.large_binary()), binary(b""))
    return pc.fill_null(joined, binary(b"n"))


def binary(value: bytes) -> pa.Scalar:
    """Bytes as an Arrow scalar of type large_binary."""
    return pa.scalar(value, pa.large_binary())


def nulls(size: int) -> pa.Array:
    """The tagged text of null, `size` times."""
    return pa.array([b"n"] * size, pa.large_binary())


def framed(texts: pa.Array) -> pa.Array:
    """Each text, preceded by its length and a colon."""
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.large_binary())
    return pc.binary_join_element_wise(lengths, texts, binary(b":"))


_VALUES: dict[bytes, Callable[[bytes], Any]] = {
    b"n": lambda _: None,
    b"b": lambda text: text == b"true",
    b"i": int,
    b"f": lambda text: _NAN if text == b"nan" else float(text),
    b"d": lambda text: Decimal(text.decode()),
    b"s": bytes.decode,
    b"x": bytes,
    b"t": bytes.decode,
}


def value_of(text: bytes) -> Any:
    """The value of a tagged text."""
    return _VALUES[text[:1]](text[1:])
