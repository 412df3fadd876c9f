"""Decimals: the values of a decimal type around a number, and the floats nearest to decimals.

Arrow's cast of decimals to floats does not round to the nearest float.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from streameval.typing import Array

_EXACT = Context(prec=400)  # more digits than any decimal type has


def decimals_around(number: Decimal, kind: pa.DataType) -> tuple[Any, Any]:
    """The largest value of a decimal type that is at most `number`, and the smallest that is at least `number`.

    Both are Arrow scalars, and the same object if the type has the number; None if there is no such value.

    Examples
    --------
    >>> [[end and str(end.as_py()) for end in decimals_around(Decimal(text), pa.decimal128(3, 1))]
    ...  for text in ("1.5", "1.52", "99.95", "-1e500")]
    [['1.5', '1.5'], ['1.5', '1.6'], ['99.9', None], [None, '-99.9']]
    """
    step = Decimal((0, (1,), -kind.scale))
    most = _EXACT.multiply(step, Decimal(10**kind.precision - 1))
    if number.copy_abs() > most:  # `abs` would round to 28 digits
        end = pa.scalar(most.copy_sign(number), kind)
        return (end, None) if number > 0 else (None, end)
    down, up = (pa.scalar(number.quantize(step, rounding, _EXACT), kind) for rounding in (ROUND_FLOOR, ROUND_CEILING))
    return (down, down) if down == up else (down, up)


def nearest_floats(array: pa.Array) -> Array:
    """The floats nearest to the numbers of an array without nulls; Arrow rounds right when it reads texts.

    Examples
    --------
    >>> column = pa.array([Decimal("0.3")], pa.decimal128(38, 18))
    >>> nearest_floats(column), column.cast(pa.float64())[0].as_py()
    (array([0.3]), 0.30000000000000004)
    """
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    found: Array = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found
