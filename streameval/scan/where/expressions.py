"""Columns of an Arrow expression.

Arrow does not expose them, so the expression is bound to growing schemas, and the columns are read from the errors.
"""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa

from streameval.errors import OptionError

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = ["expression_columns"]

_ABSENT = re.compile(r"No match for FieldRef\.(Name|Nested)\((.*?)\) in ", re.DOTALL)
_TRIED = (pa.null(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.binary())
_GUESSED = 2  # columns whose types are guessed at a time


def expression_columns(expression: pc.Expression) -> tuple[str, ...]:
    """The columns that an expression reads.

    Raises
    ------
    OptionError
        If they cannot be found.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> expression_columns((pc.hour(pc.field("sent_at")) > 3) & (pc.field("country") == "DE"))
    ('sent_at', 'country')
    """
    known: dict[str, pa.DataType] = {}
    while (missing := _missing(expression, known)) is not None:
        if not missing:
            msg = f"where: the columns of {expression} cannot be determined; write it as SQL text"
            raise OptionError(msg)
        known[missing] = pa.null()
    return tuple(known)


def _missing(expression: pc.Expression, known: dict[str, pa.DataType]) -> str | None:
    """A column that is not known yet; None if all are known; empty if Arrow raises another error."""
    names = list(known)
    late = names[-_GUESSED:]
    for kinds in product(_TRIED, repeat=len(late)):
        typed = known | dict(zip(late, kinds, strict=True))
        try:
            pa.schema(typed).empty_table().filter(expression)
        except (pa.ArrowException, ValueError, TypeError) as error:
            found = _ABSENT.search(str(error))
            if "evaluate to bool" in str(error) or "Filter expression" in str(error):
                return None
            if found and found[1] == "Name" and found[2] not in known:
                known |= typed
                return found[2]
        else:
            return None
    return ""
