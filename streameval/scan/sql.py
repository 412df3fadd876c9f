"""Conditions in SQL: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL, parsed by sqlglot.

A condition is checked when it is parsed, and becomes an Arrow expression once the types of its columns are known.
Nothing is ever evaluated as code. The module is imported only when a filter is parsed, because importing sqlglot is
slow.

Two columns are compared exactly, as two numbers on paper. Arrow would round integers to floats, so that 2⁵³ + 1 equals
2⁵³.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from pyarrow import types
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from streameval.errors import OptionError
from streameval.scan.derived import is_date_key, is_integer_key, orders_as_text
from streameval.scan.widen import Bounds, numbers_around

_INVALID = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, InvalidOperation, ValueError)


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
            return Bounds.exact(pa.scalar(bool(value.this), kind))
        nearest = _text(text, kind) if what == "text" else numbers_around(text, kind) if what == "number" else None
        if nearest is not None:
            return nearest
    raise OptionError(
        f"where: column {column!r} has type {kind} and cannot be compared with {value.sql()}; {_remedy(kind)}"
    )


def _text_and_kind(value: exp.Expression) -> tuple[str, str]:
    """The text of a literal, and its kind: ``number``, ``text`` if it is in quotes, or empty for anything else."""
    if isinstance(value, exp.Neg):
        text, what = _text_and_kind(value.this)
        return f"-{text}", what if what == "number" else ""
    if isinstance(value, exp.Cast):
        return _text_and_kind(value.this)
    if isinstance(value, exp.Literal):
        return str(value.this), "text" if value.is_string else "number"
    return "", ""


def _text(text: str, kind: pa.DataType) -> Bounds | None:
    """A text in a type of strings, binaries, dates or times; None for any other type."""
    if types.is_string(kind) or types.is_large_string(kind):
        return Bounds.exact(pa.scalar(text, kind))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        is_uuid = kind == pa.binary(16) and len(text) == len(str(UUID(int=0)))
        return Bounds.exact(pa.scalar(UUID(text).bytes if is_uuid else text.encode("utf-8", "surrogateescape"), kind))
    if types.is_time(kind):  # Arrow reads a time of day only as a part of a timestamp
        return Bounds.exact(pa.scalar(f"1970-01-01 {text}").cast(pa.timestamp(kind.unit)).cast(kind))
    if types.is_date(kind) or types.is_timestamp(kind):
        return Bounds.exact(pa.scalar(text).cast(kind))
    return None


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
    if types.is_fixed_size_binary(kind):
        uuid = f", or '{UUID(int=1)}'" if kind.byte_width == len(UUID(int=0).bytes) else ""
        return f"write a text of {kind.byte_width} bytes in single quotes{uuid}"
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    return "write a text in single quotes (texts are compared as texts: '10' < '9')" if texts else "cast it in the data"


# from narrow to wide ranges; Arrow compares exactly within each
_RANKS = (types.is_signed_integer, types.is_unsigned_integer, types.is_floating)
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


def compare_numbers(
    name: str, one: pc.Expression, other: pc.Expression, kinds: tuple[pa.DataType, pa.DataType]
) -> pc.Expression | None:
    """A comparison of two columns of integers or floats; null if one of them is null; None for other types.

    Examples
    --------
    >>> data = pa.table({"n": [1, 2**53 + 1, -5, None], "x": [1.5, 2.0**53, float("nan"), 1.0]})
    >>> kinds = (pa.int64(), pa.float64())
    >>> data.filter(compare_numbers("GT", pc.field("n"), pc.field("x"), kinds))["n"].to_pylist()
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


Condition = Callable[[pa.Schema], pc.Expression]  # from the types of its columns; null where it is null in SQL
Notes = Callable[[pa.Schema], list[str]]  # from the types of its columns

_SUBSET = "a filter may have comparisons of a column with a value or a column, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL"
_MOMENTS = (exp.DataType.Type.DATE, exp.DataType.Type.TIME, exp.DataType.Type.TIMESTAMP)  # as in DATE '2026-01-31'
_ORDER: dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
}
_COLUMN = (exp.Column, exp.Bracket, exp.Dot)  # the last two for elements of lists, and fields below them


def parse_condition(text: str) -> tuple[tuple[str, ...], Condition, Notes]:
    """The distinct columns of a condition, in the order of their first occurrence, the condition, and its notes.

    The condition raises `OptionError` if it compares a column with a value of another kind. A note says what a number
    is compared with that is no value of the type of its column.

    Raises
    ------
    OptionError
        If the text is not SQL (the message has the position of the error), or goes beyond the subset above.

    Examples
    --------
    >>> columns, condition, notes = parse_condition("2.5 < length OR country IS NULL")
    >>> schema = pa.schema({"length": "int32", "country": "string"})
    >>> columns, str(condition(schema))
    (('length', 'country'), '((length > 2) or is_null(country, {nan_is_null=false}))')
    >>> notes(schema)
    ['2.5 is no value of length (int32): it lies above 2 and below 3']
    >>> parse_condition("country = 'DE' AND")
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: where: syntax error at character 16 of "country = 'DE' AND", near 'AND': ...
    """
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except ParseError as error:
        raise OptionError(_syntax(text, error.errors[0] if error.errors else {})) from None
    except (TokenError, RecursionError):
        at = _open_quote(text)
        msg = f'where: syntax error in "{text}": brackets are nested too deeply'
        if at:
            msg = f'where: syntax error at character {at} of "{text}": a quote is not closed'
        raise OptionError(msg) from None
    condition = _condition(tree)
    columns = (node for node in tree.find_all(*_COLUMN, bfs=False) if not isinstance(node.parent, _COLUMN))
    return tuple(dict.fromkeys(map(_name, columns))), condition, partial(_notes, list(_literals(tree)))


def _literals(tree: exp.Expression) -> Iterator[tuple[str, exp.Expression]]:
    """The values of a condition, each with the column that it is compared with."""
    for node in tree.find_all(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE):
        if not _compares_columns(node):
            yield _operands(node)[:2]
    for node in tree.find_all(exp.In, exp.Between):
        ends = filter(None, (node.args.get("low"), node.args.get("high")))
        yield from ((_name(node.this), value) for value in (*node.expressions, *ends))


def _notes(literals: Sequence[tuple[str, exp.Expression]], schema: pa.Schema) -> list[str]:
    """What numbers are compared with that are no values of the types of their columns."""
    notes = dict[str, None]()
    for column, value in literals:
        text, what = _text_and_kind(value)
        kind = _for_values(column, [value], schema).field(column).type
        if what != "number":
            continue
        down, up = bounds(value, kind, column)
        column = f"{column} ({kind})"
        if types.is_floating(kind):
            with np.errstate(over="ignore"):  # beyond the type's range it is infinite, and the note says so
                near = kind.to_pandas_dtype()(text)  # printed in as few digits as tell it apart
            if Decimal(text) not in (Decimal(str(near)), Decimal(str(float(near))), Decimal(float(near))):
                notes[f"{text} is no value of {column}: it is compared with {near}"] = None
        elif down is not up:
            ends = f"above {down}" if down else "", f"below {up}" if up else ""
            notes[f"{text} is no value of {column}: it lies {' and '.join(filter(None, ends))}"] = None
    return list(notes)


def _open_quote(text: str) -> int:
    """The position of a quote that is not closed, counted from 1; 0 if there is none.

    Examples
    --------
    >>> _open_quote("s = 'it''s' AND t = 'x"), _open_quote("s = 'x'")
    (21, 0)
    """
    quote, at = "", 0
    for place, character in enumerate(text, start=1):
        if not quote and character in "'\"`":
            quote, at = character, place
        elif character == quote:  # a doubled quote opens again
            quote, at = "", 0
    return at


def _syntax(text: str, error: Mapping[str, object]) -> str:
    """The message for a syntax error; sqlglot reports the column of the last character of a token."""
    near = str(error.get("highlight") or "")
    lines = text.splitlines() or [""]
    before = sum(len(line) + 1 for line in lines[: int(str(error.get("line") or 1)) - 1])
    place = before + int(str(error.get("col") or 1)) - max(len(near) - 1, 0)
    description = str(error.get("description"))
    cause = "a value is missing after it" if "missing" in description else "it is unexpected here"
    cause = "a column is missing before it" if "'this' missing" in description else cause
    cause = "a closing bracket is missing after it" if "Expecting )" in description else cause
    return f'where: syntax error at character {max(place, 1)} of "{text}", near {near!r}: {cause}; {_SUBSET}'


def _condition(node: exp.Expression) -> Condition:
    """A part of a condition; raises `OptionError` if it goes beyond the supported subset."""
    if isinstance(node, exp.Paren):
        return _condition(node.this)
    if isinstance(node, exp.Not):
        inner = _condition(node.this)
        return lambda schema: ~inner(schema)
    if isinstance(node, exp.And):
        parts = list(map(_condition, node.flatten()))  # in a loop, since a chain may be longer than Python's stack
        return lambda schema: _join_conditions(operator.and_, [part(schema) for part in parts])
    if isinstance(node, exp.Or):
        return _either(list(node.flatten()))
    if isinstance(node, _COLUMN):
        return partial(_truth, _name(node))
    if isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        return _comparison(node)
    given = {name for name, value in node.args.items() if value}
    if given <= {"this", "expressions", "low", "high", "expression", "negate"} and isinstance(node.this, _COLUMN):
        column, value = node.this, node.args.get("expression")
        if isinstance(node, exp.In) and node.expressions:
            return _either([exp.EQ(this=column, expression=one) for one in node.expressions])
        if isinstance(node, exp.Between):
            low, high = (node.args[end] for end in ("low", "high"))
            ends = exp.GTE(this=column, expression=low), exp.LTE(this=column, expression=high)
            return _condition(exp.and_(*ends, copy=False))
        if isinstance(node, exp.Like) and value.is_string:
            return partial(_like, _name(column), value.name, negated=bool(node.args.get("negate")))
        if isinstance(node, exp.Is) and isinstance(value, exp.Null):
            name = _name(column)
            return lambda _: pc.field(name).is_null()
    raise _refuse(node)


def _either(nodes: Sequence[exp.Expression]) -> Condition:
    """OR: values with which one column is compared by = are looked up together, in one pass over its rows."""
    equals: dict[tuple[str, bool], list[exp.Expression]] = {}
    others: list[Condition] = []
    for node in nodes:
        if isinstance(node, exp.EQ) and not _compares_columns(node):
            column, value, _ = _operands(node)
            equals.setdefault((column, _text_and_kind(value)[1] == "number"), []).append(value)
        else:
            others.append(_condition(node))
    parts: list[Condition] = [partial(_among, column, values) for (column, _), values in equals.items()]
    parts += others
    return lambda schema: _join_conditions(operator.or_, [part(schema) for part in parts])


def _join_conditions(
    join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: Sequence[pc.Expression]
) -> pc.Expression:
    """AND or OR of some conditions, as a balanced tree: Arrow evaluates by recursion."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return join(_join_conditions(join, parts[:half]), _join_conditions(join, parts[half:]))


def _comparison(node: exp.Expression) -> Condition:
    """A comparison of a column with a value or a column."""
    name = type(node).__name__
    ordered = name not in ("EQ", "NEQ")
    if _compares_columns(node):
        one, other = _name(node.left), _name(node.right)
        return lambda schema: _both(name, one, other, _for_columns(one, other, schema, ordered=ordered))
    column, value, flipped = _operands(node)
    name = MIRRORED[name] if flipped else name

    def compared(schema: pa.Schema) -> pc.Expression:
        schema = _for_values(column, [value], schema, ordered=ordered)
        return _compare(name, column, bounds(value, schema.field(column).type, column), schema)

    return compared


def _compares_columns(node: exp.Expression) -> bool:
    """Whether a comparison is between two columns."""
    return isinstance(node.left, _COLUMN) and isinstance(node.right, _COLUMN)


def _operands(node: exp.Expression) -> tuple[str, exp.Expression, bool]:
    """The column and the value of a comparison, and whether the value comes first.

    Raises
    ------
    OptionError
        Unless it compares a column with a number, a text, a date, a time, a timestamp or a boolean.
    """
    flipped = isinstance(node.right, _COLUMN)
    column, value = (node.right, node.left) if flipped else (node.left, node.right)
    if not isinstance(column, _COLUMN):
        raise _refuse(node)
    if isinstance(value, exp.Null):
        raise OptionError(
            f"where: {node.sql()!r} compares with NULL, which is never true; write IS NULL or IS NOT NULL"
        )
    bare = value.this if isinstance(value, exp.Neg) else value
    if isinstance(bare, exp.Cast) and bare.to.this in _MOMENTS:
        bare = bare.this
    if not isinstance(bare, exp.Literal | exp.Boolean):
        raise _refuse(node)
    return _name(column), value, flipped


def _refuse(node: exp.Expression) -> OptionError:
    return OptionError(f"where: {node.sql()!r} is not supported: {_SUBSET}")


def _name(node: exp.Expression) -> str:
    """The name of a column, or the path to a nested value; raises `OptionError` for anything else."""
    if isinstance(node, exp.Dot):
        return f"{_name(node.this)}.{node.expression.name}"
    if isinstance(node, exp.Bracket):
        index = node.expressions[0] if len(node.expressions) == 1 else None
        if not (isinstance(index, exp.Literal) and index.name.isdigit() and not index.is_string):
            raise _refuse(node)
        return f"{_name(node.this)}[{index.name}]"
    if not isinstance(node, exp.Column) or not all(
        isinstance(part, exp.Identifier) and part.name for part in node.parts
    ):
        raise _refuse(node)
    return ".".join(part.name for part in node.parts)


def _for_values(
    column: str, values: Sequence[exp.Expression], schema: pa.Schema, *, ordered: bool = False
) -> pa.Schema:
    """The schema for a comparison with values: a Hive key of integers that is compared with numbers becomes int64.

    Raises
    ------
    OptionError
        If an ordered comparison with a text would differ from that with the integers or dates of a Hive key.
    """
    at = schema.get_field_index(column)
    field = schema.field(at)
    if is_integer_key(field) and all(_text_and_kind(value)[1] == "number" for value in values):
        return schema.set(at, field.with_type(pa.int64()))
    texts = [value.name for value in values if ordered and _text_and_kind(value)[1] == "text"]
    wrong = next((text for text in texts if not orders_as_text(field, text)), None)
    if wrong is not None:
        what, remedy = "integers, but texts are ordered differently ('10' < '9')", f"write {wrong} without quotes"
        if is_date_key(field):
            what, remedy = f"dates, and {wrong!r} has no order among them", "write a date such as '2026-01-31'"
        raise OptionError(f"where: the values of {column!r} are {what}; {remedy}")
    return schema


def _for_columns(one: str, other: str, schema: pa.Schema, *, ordered: bool) -> pa.Schema:
    """As `_for_values`, for a comparison with another column."""
    for key, against in ((one, other), (other, one)):
        at, field = schema.get_field_index(key), schema.field(against)
        if not is_integer_key(schema.field(at)):
            continue
        if is_integer_key(field) or types.is_integer(field.type) or types.is_floating(field.type):
            schema = schema.set(at, schema.field(at).with_type(pa.int64()))
        elif ordered:
            raise OptionError(
                f"where: the values of {key!r} are integers, but texts are ordered differently ('10' < '9'); compare "
                f"it with a number or a column of integers or floats, not with {against!r} ({field.type})"
            )
    return schema


def _field(column: str, schema: pa.Schema) -> pc.Expression:
    """A column for a comparison; a Hive key of integers is cast if the schema says so."""
    field, read = schema.field(column), pc.field(column)
    return read.cast(field.type) if is_integer_key(field) and types.is_integer(field.type) else read


def _both(name: str, one: str, other: str, schema: pa.Schema) -> pc.Expression:
    """A comparison of two columns; null if one of them is null."""
    fields, kinds = (_field(one, schema), _field(other, schema)), (schema.field(one).type, schema.field(other).type)
    if kinds[0] != kinds[1] and not any(all(map(test, kinds)) for test in _RANKS):
        mixed = compare_numbers(name, *fields, kinds)
        if mixed is None:
            shown = " and ".join(f"{column!r} ({kind})" for column, kind in zip((one, other), kinds, strict=True))
            raise OptionError(f"where: columns {shown} have different kinds of values; cast one of them in the data")
        return mixed
    _refuse_order(name, one, kinds[0])
    return _ORDER[name](*fields)


def _refuse_order(name: str, column: str, kind: pa.DataType) -> None:
    if types.is_boolean(kind) and name not in ("EQ", "NEQ"):
        raise OptionError(f"where: column {column!r} is true or false, which have no order; compare with = or <>")


def _like(column: str, pattern: str, schema: pa.Schema, *, negated: bool) -> pc.Expression:
    """Whether a text matches a pattern: % is any text, _ any character; a backslash makes either literal."""
    kind = schema.field(column).type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise OptionError(f"where: column {column!r} has type {kind}; LIKE is for texts: compare it with a value")
    like = pc.match_like(pc.field(column), pattern)
    return ~like if negated else like


def _truth(column: str, schema: pa.Schema) -> pc.Expression:
    """A boolean column as a condition; raises `OptionError` for a column of another type."""
    kind = schema.field(column).type
    if not types.is_boolean(kind):
        raise OptionError(f"where: column {column!r} has type {kind} and is not true or false; compare it with a value")
    return pc.field(column)


def _compare(name: str, column: str, literal: Bounds, schema: pa.Schema) -> pc.Expression:
    """A comparison of a column with a value; null if the column is null."""
    field, kind = _field(column, schema), schema.field(column).type
    _refuse_order(name, column, kind)
    if name in ("EQ", "NEQ"):
        end = literal.down if literal.is_exact else None
    else:
        end = literal.down if name in ("GT", "LTE") else literal.up
    if end is None:  # no value of the type equals the literal, or all are on one side of it
        return field == field if name in ("NEQ", "GT", "LT") else field != field
    return _ORDER[name](field, end)


def _among(column: str, values: Sequence[exp.Expression], schema: pa.Schema) -> pc.Expression:
    """Whether a column has one of some values; null if the column is null.

    Arrow looks values up by their bits, so −0.0 is listed with 0.0; no literal is a NaN.
    """
    schema = _for_values(column, values, schema)
    kind = schema.field(column).type
    ends = [bounds(value, kind, column) for value in values]
    listed = pa.array([end.down for end in ends if end.is_exact], kind)
    if types.is_floating(kind) and pc.any(pc.equal(listed, 0.0)).as_py():
        listed = pa.concat_arrays([listed, pa.array([0.0, -0.0], kind)])
    field = _field(column, schema)
    return pc.if_else(field.is_valid(), field.isin(listed), pa.scalar(None, pa.bool_()))
