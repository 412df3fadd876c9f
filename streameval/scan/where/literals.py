"""Literals: a value of a condition in the type of the column that it is compared with."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from streameval.errors import OptionError
from streameval.scan.decimals import decimals_around

_INVALID = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidOperation, ValueError)


class Bounds(NamedTuple):
    """The values of a column's type that are nearest to a literal.

    Attributes
    ----------
    down : the largest value that is at most the literal; None if there is none
    up : the smallest value that is at least the literal; None if there is none
    """

    down: Any
    up: Any


def bounds(value: Any, kind: pa.DataType, column: str) -> Bounds:
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
    Bounds(down=2, up=3)
    >>> bounds(exp.Literal.number("300"), pa.int8(), "length")
    Bounds(down=127, up=None)
    """
    from sqlglot import exp

    kind = kind.value_type if types.is_dictionary(kind) else kind
    text, what = _text_and_kind(value)
    try:
        if isinstance(value, exp.Boolean) and types.is_boolean(kind):
            return _exact(pa.scalar(bool(value.this), kind))
        found = {"text": _text, "number": _number}.get(what, _incomparable)(text, kind)
    except _INVALID:
        found = None
    if found is None:
        shown = value.sql()
        msg = f"where: column {column!r} has type {kind} and cannot be compared with {shown}; {_remedy(kind)}"
        raise OptionError(msg)
    return found


def is_number(value: Any) -> bool:
    """Whether a literal is a number."""
    return _text_and_kind(value)[1] == "number"


def is_text(value: Any) -> bool:
    """Whether a literal is a text in quotes."""
    return _text_and_kind(value)[1] == "text"


def _text_and_kind(value: Any) -> tuple[str, str]:
    """The text of a literal, and its kind: ``number``, ``text``, or empty for anything else."""
    from sqlglot import exp

    if isinstance(value, exp.Neg):
        text, what = _text_and_kind(value.this)
        return f"-{text}", what if what == "number" else ""
    if isinstance(value, exp.Cast):
        return _text_and_kind(value.this)
    if isinstance(value, exp.Literal):
        return str(value.this), "text" if value.is_string else "number"
    return "", ""


def _exact(scalar: Any) -> Bounds:
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


def _incomparable(text: str, kind: pa.DataType) -> None:
    """None: a literal of another kind is comparable with no type but its own."""


def _number(text: str, kind: pa.DataType) -> Bounds | None:
    """A number in a numeric type; None for any other type."""
    number = Decimal(text)
    if types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        low, high = int(limits.min), int(limits.max)
        if number > high or number < low:
            return Bounds(high, None) if number > high else Bounds(None, low)
        down = int(number // 1) if number >= 0 or number == int(number) else int(number) - 1
        return Bounds(down, down + (number != down))
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
