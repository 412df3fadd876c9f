"""Conditions in SQL: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL, parsed by sqlglot.

The module is imported only when a filter is parsed, because importing sqlglot is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUBSET = "a filter may have comparisons of a column with a value or a column, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL"
_MOMENTS = (exp.DataType.Type.DATE, exp.DataType.Type.TIME, exp.DataType.Type.TIMESTAMP)  # as in DATE '2026-01-31'


def parsed(text: str) -> exp.Expression:
    """The syntax tree of a condition.

    Raises
    ------
    OptionError
        If the text is not SQL (the message has the position of the error), or goes beyond the subset above.

    Examples
    --------
    >>> column_names(parsed("country = 'DE' AND NOT n_chars BETWEEN 1 AND 5"))
    ('country', 'n_chars')
    >>> parsed("country = 'DE' AND")
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
    _check(tree)
    return tree


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


def _syntax(text: str, found: dict[str, Any]) -> str:
    """The message for a syntax error; sqlglot reports the column of the last character of a token."""
    near = str(found.get("highlight") or "")
    lines = text.splitlines() or [""]
    before = sum(len(line) + 1 for line in lines[: int(found.get("line") or 1) - 1])
    place = before + int(found.get("col") or 1) - max(len(near) - 1, 0)
    told = str(found.get("description"))
    cause = "a value is missing after it" if "missing" in told else "it is unexpected here"
    cause = "a column is missing before it" if "'this' missing" in told else cause
    cause = "a closing bracket is missing after it" if "Expecting )" in told else cause
    return f'where: syntax error at character {max(place, 1)} of "{text}", near {near!r}: {cause}; {_SUBSET}'


def _check(node: exp.Expression) -> None:
    """Raise `OptionError` if a condition goes beyond the supported subset."""
    if isinstance(node, exp.And | exp.Or):
        for part in node.flatten():  # in a loop, since a chain may be longer than Python's stack
            _check(part)
    elif isinstance(node, exp.Not | exp.Paren):
        _check(node.this)
    elif isinstance(node, exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE):
        if not compares_columns(node):
            operands(node)
    elif isinstance(node, exp.Like):
        _values(node, [node.expression])
        if not node.expression.is_string:
            raise _refused(node)
    elif isinstance(node, exp.Between):
        _values(node, [node.args["low"], node.args["high"]])
    elif isinstance(node, exp.In):
        _values(node, node.expressions)
    elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        _values(node, [])
    elif isinstance(node, exp.Column):
        column_name(node)
    else:
        raise _refused(node)


def _values(node: exp.Expression, values: list[exp.Expression]) -> None:
    """Raise `OptionError` unless `node` compares a column with values."""
    idle = isinstance(node, exp.In) and not values
    if idle or not _given(node) <= {"this", "expressions", "low", "high", "expression", "negate"}:
        raise _refused(node)
    if not isinstance(node.this, exp.Column):
        raise _refused(node)
    column_name(node.this)
    for value in values:
        _check_value(node, value)


def _given(node: exp.Expression) -> set[str]:
    return {name for name, value in node.args.items() if value}


def compares_columns(node: exp.Expression) -> bool:
    """Whether a comparison is between two columns.

    Examples
    --------
    >>> compares_columns(parsed("sent < received")), compares_columns(parsed("sent < 5"))
    (True, False)
    """
    if not (isinstance(node.left, exp.Column) and isinstance(node.right, exp.Column)):
        return False
    return bool(column_name(node.left) and column_name(node.right))


def operands(node: exp.Expression) -> tuple[exp.Expression, exp.Expression, bool]:
    """The column and the value of a comparison, and whether the value comes first; raises `OptionError` for others."""
    flipped = isinstance(node.right, exp.Column)
    column, value = (node.right, node.left) if flipped else (node.left, node.right)
    if not isinstance(column, exp.Column):
        raise _refused(node)
    column_name(column)
    _check_value(node, value)
    return column, value, flipped


def _check_value(node: exp.Expression, value: exp.Expression) -> None:
    """Raise `OptionError` unless `value` is a number, a text, a date, a time, a timestamp or a boolean."""
    if isinstance(value, exp.Null):
        raise OptionError(
            f"where: {node.sql()!r} compares with NULL, which is never true; write IS NULL or IS NOT NULL"
        )
    bare = value.this if isinstance(value, exp.Neg) else value
    if isinstance(bare, exp.Cast) and bare.to.this in _MOMENTS:
        bare = bare.this
    if not isinstance(bare, exp.Literal | exp.Boolean):
        raise _refused(node)


def _refused(node: exp.Expression) -> OptionError:
    return OptionError(f"where: {node.sql()!r} is not supported: {_SUBSET}")


def column_name(node: exp.Expression) -> str:
    """The name of a column, with dots for a field of a struct; raises `OptionError` for anything else."""
    if not all(isinstance(part, exp.Identifier) and part.name for part in node.parts):
        raise _refused(node)
    return ".".join(part.name for part in node.parts)


def column_names(tree: exp.Expression) -> tuple[str, ...]:
    """The distinct columns of a condition, in the order of their first occurrence."""
    return tuple(dict.fromkeys(map(column_name, _columns(tree))))


def _columns(tree: exp.Expression) -> Iterator[exp.Expression]:
    yield from tree.find_all(exp.Column, bfs=False)
