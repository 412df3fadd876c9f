"""Translation of a parsed condition to an Arrow expression, once the types of its columns are known."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types
from sqlglot import exp

from streameval.errors import OptionError
from streameval.scan.derived import as_integers, is_date_key, is_integer_key, orders_as_text
from streameval.scan.where.comparisons import MIRRORED, Bounds, bounds, compared_numbers, is_number, is_text
from streameval.scan.where.sql import column_name, compares_columns, operands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def translated(node: exp.Expression, schema: pa.Schema) -> pc.Expression:
    """The Arrow expression of a condition; it is null where the condition is null in SQL.

    Raises
    ------
    OptionError
        If a column is compared with a value of another kind.

    Examples
    --------
    >>> from streameval.scan.where.sql import parsed
    >>> schema = pa.schema({"length": "int32", "country": "string"})
    >>> print(translated(parsed("2.5 < length OR country IS NULL"), schema))
    ((length > 2) or is_null(country, {nan_is_null=false}))
    """
    if isinstance(node, exp.And):
        return _joined(operator.and_, [translated(part, schema) for part in node.flatten()])
    if isinstance(node, exp.Or):
        return _either(list(node.flatten()), schema)
    if isinstance(node, exp.Not):
        return ~translated(node.this, schema)
    if isinstance(node, exp.Paren):
        return translated(node.this, schema)
    if isinstance(node, exp.Column):
        return _truth(column_name(node), schema)
    if isinstance(node, exp.Is):
        return pc.field(column_name(node.this)).is_null()
    if isinstance(node, exp.In):
        column = column_name(node.this)
        return _among(column, node.expressions, schema)
    if isinstance(node, exp.Between):
        column = column_name(node.this)
        schema = _for_values(column, [node.args["low"], node.args["high"]], schema, ordered=True)
        low, high = (_bounds(column, node.args[end], schema) for end in ("low", "high"))
        return _compared("GTE", column, low, schema) & _compared("LTE", column, high, schema)
    if isinstance(node, exp.Like):
        found = _like(column_name(node.this), node.expression.name, schema)
        return ~found if node.args.get("negate") else found
    if compares_columns(node):
        return _both(type(node).__name__, column_name(node.left), column_name(node.right), schema)
    named, value, flipped = operands(node)
    name, column = type(node).__name__, column_name(named)
    schema = _for_values(column, [value], schema, ordered=name not in ("EQ", "NEQ"))
    return _compared(MIRRORED[name] if flipped else name, column, _bounds(column, value, schema), schema)


_ORDER: dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "GT": operator.gt,
    "GTE": operator.ge,
    "LT": operator.lt,
    "LTE": operator.le,
}
_KINDS = (types.is_floating, types.is_signed_integer, types.is_unsigned_integer)  # Arrow compares exactly within


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
    if is_integer_key(schema.field(at)) and all(is_number(value) for value in values):
        return schema.set(at, as_integers(schema.field(at)))
    texts = [value.name for value in values if ordered and is_text(value)]
    wrong = next((text for text in texts if not orders_as_text(schema.field(at), text)), None)
    if wrong is not None:
        what, remedy = "integers, but texts are ordered differently ('10' < '9')", f"write {wrong} without quotes"
        if is_date_key(schema.field(at)):
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
            schema = schema.set(at, as_integers(schema.field(at)))
        elif ordered:
            raise OptionError(
                f"where: the values of {key!r} are integers, but texts are ordered differently ('10' < '9'); compare "
                f"it with a number or a column of integers or floats, not with {against!r} ({field.type})"
            )
    return schema


def _field(column: str, schema: pa.Schema) -> pc.Expression:
    """A column for a comparison; a Hive key of integers is cast if the schema says so."""
    field = schema.field(column)
    read = pc.field(column)
    return read.cast(field.type) if is_integer_key(field) and types.is_integer(field.type) else read


def _both(name: str, one: str, other: str, schema: pa.Schema) -> pc.Expression:
    """A comparison of two columns; null if one of them is null."""
    schema = _for_columns(one, other, schema, ordered=name not in ("EQ", "NEQ"))
    kinds = schema.field(one).type, schema.field(other).type
    if kinds[0] != kinds[1] and not any(all(map(test, kinds)) for test in _KINDS):
        found = compared_numbers(name, _field(one, schema), _field(other, schema), kinds)
        if found is None:
            kept = " and ".join(f"{column!r} ({kind})" for column, kind in zip((one, other), kinds, strict=True))
            raise OptionError(f"where: columns {kept} have different kinds of values; cast one of them in the data")
        return found
    if types.is_boolean(kinds[0]) and name not in ("EQ", "NEQ"):
        raise OptionError(f"where: column {one!r} is true or false, which have no order; compare with = or <>")
    return _ORDER[name](_field(one, schema), _field(other, schema))


def _like(column: str, pattern: str, schema: pa.Schema) -> pc.Expression:
    """Whether a text matches a pattern: % is any text, _ any character; a backslash makes either literal."""
    kind = schema.field(column).type
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise OptionError(f"where: column {column!r} has type {kind}; LIKE is for texts: compare it with a value")
    return pc.match_like(pc.field(column), pattern)


def _bounds(column: str, value: exp.Expression, schema: pa.Schema) -> Bounds:
    return bounds(value, schema.field(column).type, column)


def _truth(column: str, schema: pa.Schema) -> pc.Expression:
    """A boolean column as a condition; raises `OptionError` for a column of another type."""
    kind = schema.field(column).type
    if not types.is_boolean(kind):
        raise OptionError(f"where: column {column!r} has type {kind} and is not true or false; compare it with a value")
    return pc.field(column)


def _compared(name: str, column: str, literal: Bounds, schema: pa.Schema) -> pc.Expression:
    """A comparison of a column with a value; null if the column is null."""
    field, (down, up) = _field(column, schema), (_typed(end, schema.field(column).type) for end in literal)
    if types.is_boolean(schema.field(column).type) and name not in ("EQ", "NEQ"):
        raise OptionError(f"where: column {column!r} is true or false, which have no order; compare with = or <>")
    if name == "EQ":
        return field == down if _is_exact(literal) else field != field
    if name == "NEQ":
        return field != down if _is_exact(literal) else field == field
    if name in ("GT", "LTE"):
        always = name == "GT"
        if down is None:
            return field == field if always else field != field
        return field > down if always else field <= down
    if up is None:
        return field == field if name == "LT" else field != field
    return field < up if name == "LT" else field >= up


def _typed(end: Any, kind: pa.DataType) -> Any:
    """A value of `Bounds` as an Arrow scalar, or None."""
    return pa.scalar(end, kind) if isinstance(end, int) else end


def _is_exact(literal: Bounds) -> bool:
    """Whether the column's type contains the value of the literal exactly."""
    return literal.down is literal.up or (isinstance(literal.down, int) and literal.down == literal.up)


def _among(column: str, values: Sequence[exp.Expression], schema: pa.Schema) -> pc.Expression:
    """Whether a column has one of some values; null if the column is null.

    Arrow looks values up by their bits, so −0.0 is listed with 0.0; no literal is a NaN.
    """
    schema = _for_values(column, values, schema)
    kind = schema.field(column).type
    ends = [_bounds(column, value, schema) for value in values]
    listed = pa.array([_typed(end.down, kind) for end in ends if _is_exact(end)], kind)
    if types.is_floating(kind) and pc.any(pc.equal(listed, 0.0)).as_py():
        listed = pa.concat_arrays([listed, pa.array([0.0, -0.0], kind)])
    field = _field(column, schema)
    return pc.if_else(field.is_valid(), field.isin(listed), pa.scalar(None, pa.bool_()))


def _either(conditions: Sequence[exp.Expression], schema: pa.Schema) -> pc.Expression:
    """OR: values with which one column is compared by = are looked up together, in one pass over its rows."""
    equals: dict[tuple[str, bool], list[Any]] = {}
    others = []
    for node in conditions:
        if isinstance(node, exp.EQ) and not compares_columns(node):
            named, value, _ = operands(node)
            equals.setdefault((column_name(named), is_number(value)), []).append(value)
        else:
            others.append(translated(node, schema))
    looked_up = [_among(column, values, schema) for (column, _), values in equals.items()]
    return _joined(operator.or_, [*looked_up, *others])


def _joined(
    join: Callable[[pc.Expression, pc.Expression], pc.Expression], parts: Sequence[pc.Expression]
) -> pc.Expression:
    """AND or OR of some conditions, as a balanced tree: Arrow evaluates by recursion."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return join(_joined(join, parts[:half]), _joined(join, parts[half:]))
