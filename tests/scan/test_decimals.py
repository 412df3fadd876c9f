"""Values of a decimal type around a number, against integers."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streameval.kernels.exact import quotients
from streameval.scan.widen import decimals_around, nearest_floats

KINDS = [pa.decimal32(5, 2), pa.decimal64(18, 0), pa.decimal128(38, 0), pa.decimal128(38, 37), pa.decimal256(76, 2)]


@given(st.integers(-(10**80), 10**80) | st.integers(-(10**6), 10**6), st.integers(-80, 5), st.sampled_from(KINDS))
@example(10**38 - 1, 0, pa.decimal128(38, 0))  # the largest value, which has more digits than Python's context
@example(1 - 10**76, -2, pa.decimal256(76, 2))
@example(10**38, 0, pa.decimal128(38, 0))
def test_the_nearest_values_are_those_of_integers(digits: int, exponent: int, kind: pa.DataType) -> None:
    """Numbers of any length, and the ends of a type."""
    found = decimals_around(Decimal(f"{digits}e{exponent}"), kind)
    down, up = (None if end is None else int(Fraction(end.as_py()) * 10**kind.scale) for end in found)
    exact, most = digits * Fraction(10) ** (exponent + kind.scale), 10**kind.precision - 1
    assert down == (None if exact < -most else min(math.floor(exact), most))
    assert up == (None if exact > most else max(math.ceil(exact), -most))


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_the_exponents_of_pythons_context_have_neighbours(sign: int) -> None:
    """`decimal.Overflow` was raised."""
    kind = pa.decimal128(3, 1)
    small, large = (decimals_around(Decimal(f"{sign}e{exponent}"), kind) for exponent in (-2_000_000, 2_000_000))
    assert {end.as_py() for end in small} == {0, sign * Decimal("0.1")}
    assert [end and end.as_py() for end in large][::sign] == [sign * Decimal("99.9"), None]


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1), st.integers(0, 18))
@example([10 * (2**53 + 1), -10 * (2**53 + 3), 2**53 + 1, 0], 1)  # half way between two floats
@example([345_678_901_234_567_890], 18)
def test_decimals_become_the_nearest_floats(unscaled: list[int], scale: int) -> None:
    """Python divides integers exactly and rounds once; so do scores and weights, of any width of the type."""
    nearest = [number / 10**scale for number in unscaled]
    assert quotients(np.array(unscaled), scale).tolist() == nearest
    exact = [Decimal(number).scaleb(-scale) for number in unscaled]
    for kind in (
        pa.decimal64(18, scale),
        pa.decimal128(18, scale),
        pa.decimal128(38, scale + 9),
        pa.decimal256(76, 40),
    ):
        assert nearest_floats(pa.array(exact, kind)).tolist() == nearest
