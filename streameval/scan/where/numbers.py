"""Comparisons of two columns of numbers of different types: exact, as of two numbers on paper.

Arrow would round integers to floats, so that 2⁵³ + 1 equals 2⁵³.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

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

    def named(self, name: str) -> pc.Expression:
        """The comparison with the name of its node, such as ``GTE``."""
        found = {"LT": self.less, "EQ": self.equal, "GT": self.more}
        found |= {"LTE": self.less | self.equal, "GTE": self.more | self.equal, "NEQ": ~self.equal}
        return found[name]


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
    ranks = [_rank(kind) for kind in kinds]
    if -1 in ranks:
        return None
    if ranks[0] > ranks[1]:
        one, other, kinds, name = other, one, kinds[::-1], MIRRORED[name]
    found = _order(one, other, *kinds).named(name)
    return pc.if_else(one.is_valid() & other.is_valid(), found, pa.scalar(None, pa.bool_()))


def _rank(kind: pa.DataType) -> int:
    """Signed integers before unsigned ones before floats; −1 for other types."""
    return next((i for i, test in enumerate(_RANKS) if test(kind)), -1)


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
