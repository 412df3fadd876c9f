"""Comparisons: values of a condition in the type of their column, and columns of numbers of different types.

Two columns are compared exactly, as two numbers on paper. Arrow would round integers to floats, so that 2⁵³ + 1 equals
2⁵³.
"""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from sqlglot import exp

from streameval.errors import OptionError
from streameval.scan.widen import decimals_around

_INVALID = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidOperation, ValueError)


class Bounds(NamedTuple):
    """The values of a column's type that are nearest to a literal.

    Attributes
    ----------
    down : the largest value that is at most the literal; None if there is none
    up : the smallest value that is at least the literal; None if there is none
    """

    down: pa.Scalar | None
    up: pa.Scalar | None

    @property
    def is_exact(self) -> bool:
        """Whether the type contains the value of the literal."""
        return self.down is self.up


def bounds(value: exp.Expression, kind: pa.DataType, column: str) -> Bounds:
    """A literal, given as a sqlglot node, in the type of a column.

    For a floating type, a number is rounded to the nearest value: for a float32 column, 0.1 means the float32 number
    nearest to 0.1. Integer columns are compared exactly: no integer equals 2.5, and 3 is the first above it.

    Raises
    ------
    OptionError
        If the type cannot be compared with such a literal.

    Examples
    --------
    >>> from sqlglot import exp
    >>> bounds(exp.Literal.number("2.5"), pa.int32(), "length")
    Bounds(down=<pyarrow.Int32Scalar: 2>, up=<pyarrow.Int32Scalar: 3>)
    >>> bounds(exp.Literal.number("300"), pa.int8(), "length")
    Bounds(down=<pyarrow.Int8Scalar: 127>, up=None)
    """
    kind = kind.value_type if types.is_dictionary(kind) else kind
    text, what = _text_and_kind(value)
    with suppress(*_INVALID):
        if isinstance(value, exp.Boolean) and types.is_boolean(kind):
            return _exact(pa.scalar(bool(value.this), kind))
        nearest = _text(text, kind) if what == "text" else _number(text, kind) if what == "number" else None
        if nearest is not None:
            return nearest
    raise OptionError(
        f"where: column {column!r} has type {kind} and cannot be compared with {value.sql()}; {_remedy(kind)}"
    )


def kind_of(value: exp.Expression) -> str:
    """The kind of a literal: ``number``, ``text`` if it is in quotes, or empty for anything else."""
    return _text_and_kind(value)[1]


def _text_and_kind(value: exp.Expression) -> tuple[str, str]:
    """The text of a literal, and its kind."""
    if isinstance(value, exp.Neg):
        text, what = _text_and_kind(value.this)
        return f"-{text}", what if what == "number" else ""
    if isinstance(value, exp.Cast):
        return _text_and_kind(value.this)
    if isinstance(value, exp.Literal):
        return str(value.this), "text" if value.is_string else "number"
    return "", ""


def _exact(scalar: pa.Scalar) -> Bounds:
    return Bounds(scalar, scalar)


def _text(text: str, kind: pa.DataType) -> Bounds | None:
    """A text in a type of strings, binaries, dates or times; None for any other type."""
    if types.is_string(kind) or types.is_large_string(kind):
        return _exact(pa.scalar(text, kind))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _exact(pa.scalar(text.encode("utf-8", "surrogateescape"), kind))
    if types.is_time(kind):  # Arrow reads a time of day only as a part of a timestamp
        return _exact(pa.scalar(f"1970-01-01 {text}").cast(pa.timestamp(kind.unit)).cast(kind))
    if types.is_date(kind) or types.is_timestamp(kind):
        return _exact(pa.scalar(text).cast(kind))
    return None


def _number(text: str, kind: pa.DataType) -> Bounds | None:
    """A number in a numeric type; None for any other type."""
    number = Decimal(text)
    if types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        if not limits.min <= number <= limits.max:
            low, high = (pa.scalar(int(end), kind) for end in (limits.min, limits.max))
            return Bounds(high, None) if number > 0 else Bounds(None, low)
        down, up = (pa.scalar(end, kind) for end in (math.floor(number), math.ceil(number)))
        return _exact(down) if down == up else Bounds(down, up)
    if types.is_float16(kind):
        kind = pa.float32()  # the type it is read as
    if types.is_floating(kind):
        with np.errstate(over="ignore"):
            return _exact(pa.scalar(kind.to_pandas_dtype()(text), kind))
    return Bounds(*decimals_around(number, kind)) if types.is_decimal(kind) else None


def _remedy(kind: pa.DataType) -> str:
    """The end of the message: what to write instead."""
    if types.is_boolean(kind):
        return "write TRUE or FALSE"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "write a number without quotes"
    if types.is_timestamp(kind):
        zone = "Z" if kind.tz else ""
        return f"write a time such as '2026-01-31 12:00:00{zone}'"
    if types.is_date(kind) or types.is_time(kind):
        return "write a date such as '2026-01-31'" if types.is_date(kind) else "write a time such as '12:00:00'"
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    return "write a text in single quotes (texts are compared as texts: '10' < '9')" if texts else "cast it in the data"


_RANKS = (types.is_signed_integer, types.is_unsigned_integer, types.is_floating)  # from narrow to wide ranges
_WIDE = 64  # bits of integers that float64 and int64 do not all hold
MIRRORED = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE", "EQ": "EQ", "NEQ": "NEQ"}  # with the sides exchanged


class _Order(NamedTuple):
    """How the value of one column compares with that of another; all false for a NaN."""

    less: pc.Expression
    equal: pc.Expression
    more: pc.Expression

    @classmethod
    def of(cls, one: pc.Expression, other: pc.Expression) -> _Order:
        """Of two columns of one type."""
        return cls(one < other, one == other, one > other)


def compared_numbers(
    name: str, one: pc.Expression, other: pc.Expression, kinds: tuple[pa.DataType, pa.DataType]
) -> pc.Expression | None:
    """A comparison of two columns of integers or floats; null if one of them is null; None for other types.

    Examples
    --------
    >>> data = pa.table({"n": [1, 2**53 + 1, -5, None], "x": [1.5, 2.0**53, float("nan"), 1.0]})
    >>> kinds = (pa.int64(), pa.float64())
    >>> data.filter(compared_numbers("GT", pc.field("n"), pc.field("x"), kinds))["n"].to_pylist()
    [9007199254740993]
    """
    ranks = [next((i for i, test in enumerate(_RANKS) if test(kind)), -1) for kind in kinds]
    if -1 in ranks:
        return None
    if ranks[0] > ranks[1]:
        one, other, kinds, name = other, one, kinds[::-1], MIRRORED[name]
    less, equal, more = _order(one, other, *kinds)
    orders = {"LT": less, "EQ": equal, "GT": more, "LTE": less | equal, "GTE": more | equal, "NEQ": ~equal}
    return pc.if_else(one.is_valid() & other.is_valid(), orders[name], pa.scalar(None, pa.bool_()))


def _order(one: pc.Expression, other: pc.Expression, kind: pa.DataType, of_other: pa.DataType) -> _Order:
    """Of integers and numbers of a higher rank."""
    if types.is_floating(of_other):
        if kind.bit_width < _WIDE:
            return _Order.of(one.cast(pa.float64()), other.cast(pa.float64()))
        return _among_floats(one, other.cast(pa.float64()), kind)
    if of_other.bit_width < _WIDE:
        return _Order.of(one.cast(pa.int64()), other.cast(pa.int64()))
    negative, wide = one < 0, one.cast(pa.int64())
    sizes = _Order.of(pc.if_else(negative, pa.scalar(0, pa.int64()), wide).cast(pa.uint64()), other)
    return _Order(negative | sizes.less, ~negative & sizes.equal, ~negative & sizes.more)


def _among_floats(one: pc.Expression, other: pc.Expression, kind: pa.DataType) -> _Order:
    """Of 64-bit integers and floats, which are compared as integers once rounded down."""
    limits = np.iinfo(kind.to_pandas_dtype())
    below, above = other < float(limits.min), other >= float(limits.max)  # the latter is rounded up to a power of two
    inside, down = (other >= float(limits.min)) & (other < float(limits.max)), pc.floor(other)
    whole = _Order.of(one, pc.if_else(inside, down, pa.scalar(0.0)).cast(kind))
    return _Order(
        above | (inside & (whole.less | (whole.equal & (other > down)))),
        inside & whole.equal & (other == down),
        below | (inside & whole.more),
    )
