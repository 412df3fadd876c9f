"""Decimals: the values of a decimal type around a number, and the floats nearest to decimals.

Arrow's cast of decimals to floats does not round to the nearest float.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["decimals_around", "nearest_floats", "quotients"]

_EXACT = Context(prec=400)  # more digits than any decimal type has
_WHOLE = 1 << 53  # all smaller integers are floats
_SPLIT = 2.0**27 + 1


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


def quotients(values: Array, scale: int) -> Array:
    """The floats nearest to ``values / 10**scale``, for an int64 array and a scale of at most 18.

    Up to 2**53, one division rounds once. Beyond, its remainder, which is exact in two floats (Dekker's product, 1971),
    gives what is missing.

    Examples
    --------
    >>> quotients(np.array([3, 12345678901234567]), 18)
    array([3.00000000e-18, 1.23456789e-02])
    """
    unit = 10.0**scale
    found = values / unit
    large = np.flatnonzero((values > _WHOLE) | (values < -_WHOLE))
    if large.size and scale:
        quotient, exact = found[large], values[large]
        product = quotient * unit
        (one, one_rest), (two, two_rest) = _halves(quotient), _halves(unit)
        error = ((one * two - product) + one * two_rest + one_rest * two) + one_rest * two_rest
        found[large] = quotient + ((exact - product.astype(np.int64)) - error) / unit
    return found


def _halves(values: Any) -> tuple[Any, Any]:
    """The upper 26 bits of floats, and the others."""
    scaled = values * _SPLIT
    upper = scaled - (scaled - values)
    return upper, values - upper
