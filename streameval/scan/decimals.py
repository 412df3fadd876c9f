"""Decimals: the values of a decimal type around a number."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import pyarrow as pa

__all__ = ["decimals_around"]

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
