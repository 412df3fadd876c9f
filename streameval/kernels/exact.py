"""Arithmetic beyond one word: rounding errors of floats, double-double numbers, integers of 128 bits.

Knuth's two-sum and Dekker's two-product compute the rounding error of one operation. A *compensated* sum also adds up
these errors. A *double-double* number is the unevaluated sum hi + lo of two floats, with about 104 bits.

References: Knuth, *The Art of Computer Programming*, volume 2, section 4.2.2, theorem B; Dekker (1971), *A
floating-point technique for extending the available precision*, Numerische Mathematik 18, 224-242;
https://doi.org/10.1007/BF01397083.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from streameval.kernels.jit import inline, jit

Pair = tuple[float, float]
F = TypeVar("F", float, np.ndarray)

HELD = 1 << 31  # number of points whose products with 32-bit halves sum to less than 2⁶³

_SPLIT = 134217729.0  # 2^27 + 1
_WHOLE = 1 << 53  # all smaller integers are floats
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@jit
def two_sum(a: float, b: float) -> Pair:
    """Rounded sum of two floats, and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inline
def add_compensated(total, slip, value):
    """Add a value to a compensated sum; returns the rounded sum, and the sum of the rounding errors."""
    total, low = two_sum(total, value)
    return total, slip + low


@jit
def add_at(places, values, sums, errors, inexact):
    """Add each value to ``sums`` at its place, and the rounding error to ``errors``.

    `inexact` is set where the sum of errors was rounded as well; elsewhere sum + error is exact before its one
    rounding.
    """
    for i in range(values.size):
        at = np.uint64(places[i])
        sums[at], error = two_sum(sums[at], values[i])
        errors[at], further = two_sum(errors[at], error)
        inexact[at] |= further != 0


@jit
def two_product(a: float, b: float) -> Pair:
    """Rounded product of two floats, and its rounding error."""
    p = a * b
    t = _SPLIT * a
    a_hi = t - (t - a)
    a_lo = a - a_hi
    t = _SPLIT * b
    b_hi = t - (t - b)
    b_lo = b - b_hi
    return p, ((a_hi * b_hi - p) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo


@jit
def add_pairs(ah: float, al: float, bh: float, bl: float) -> Pair:
    """Sum of two double-double numbers."""
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    s, e = two_sum(s, e + t)
    return two_sum(s, e + f)


@jit
def multiply_pairs(ah: float, al: float, bh: float, bl: float) -> Pair:
    """Product of two double-double numbers."""
    p, e = two_product(ah, bh)
    return two_sum(p, e + (ah * bl + al * bh))


@jit
def divide_pairs(ah: float, al: float, bh: float, bl: float) -> Pair:
    """Quotient of two double-double numbers, by two steps of long division."""
    q1 = ah / bh
    ph, pl = multiply_pairs(q1, 0.0, bh, bl)
    rh, rl = add_pairs(ah, al, -ph, -pl)
    q2 = rh / bh
    ph, pl = multiply_pairs(q2, 0.0, bh, bl)
    rh, rl = add_pairs(rh, rl, -ph, -pl)
    q, e = two_sum(q1, q2)
    return two_sum(q, e + rh / bh)


@inline
def multiply_add(high, low, a, b):
    """128-bit ``(high, low) + a * b`` of non-negative 64-bit words."""
    a0, a1 = a & _LOW, a >> _HALF
    b0, b1 = b & _LOW, b >> _HALF
    cross0, cross1 = a0 * b1, a1 * b0
    bottom = a0 * b0
    middle = (bottom >> _HALF) + (cross0 & _LOW) + (cross1 & _LOW)
    total = low + ((bottom & _LOW) | (middle << _HALF))
    carry = np.uint64(1) if total < low else np.uint64(0)
    return high + a1 * b1 + (cross0 >> _HALF) + (cross1 >> _HALF) + (middle >> _HALF) + carry, total


@jit
def compare_products(a, b, c, d):
    """The sign of a·b − c·d, for nonnegative int64 numbers."""
    zero = np.uint64(0)
    high, low = multiply_add(zero, zero, np.uint64(a), np.uint64(b))
    other_high, other_low = multiply_add(zero, zero, np.uint64(c), np.uint64(d))
    if high != other_high:
        return 1 if high > other_high else -1
    return 0 if low == other_low else 1 if low > other_low else -1


@inline
def add_words(high, low, upper, lower):
    """128-bit ``(high, low) + upper * 2³² + lower``."""
    high, low = multiply_add(high, low, upper, _LOW + np.uint64(1))
    total = low + lower
    return high + np.uint64(total < low), total


def integer(words: tuple[int, int]) -> int:
    """A 128-bit sum of a kernel as a Python integer.

    Parameters
    ----------
    words : high and low word of 64 bits
    >>> integer((1, 5)) - 2**64
    5
    """
    return (int(words[0]) << 64) | int(words[1])


def join_halves(sums: tuple[int, int]) -> int:
    """Σ of products with words, from the sums of the products with their upper and with their lower halves.

    Examples
    --------
    >>> join_halves((3, 5)) - 3 * 2**32
    5
    """
    return (int(sums[0]) << 32) + int(sums[1])


def quotients(values: np.ndarray, scale: int) -> np.ndarray:
    """The floats nearest to ``values / 10**scale``, for int64 values of |value| < 10**18 and a scale of at most 18.

    Up to 2**53, one division rounds once. Beyond, its remainder, which is exact in two floats (Dekker's product, 1971),
    gives what is missing.

    Examples
    --------
    >>> quotients(np.array([3, 12345678901234567]), 18)
    array([3.00000000e-18, 1.23456789e-02])
    """
    unit = 10.0**scale
    found: np.ndarray = values / unit
    large = np.flatnonzero((values > _WHOLE) | (values < -_WHOLE))
    if large.size and scale:
        quotient, exact = found[large], values[large]
        product = quotient * unit
        (one, one_rest), (two, two_rest) = _halves(quotient), _halves(unit)
        error = ((one * two - product) + one * two_rest + one_rest * two) + one_rest * two_rest
        found[large] = quotient + ((exact - product.astype(np.int64)) - error) / unit
    return found


def _halves(values: F) -> tuple[F, F]:
    """The upper 26 bits of floats, and the others."""
    scaled = values * _SPLIT
    upper = scaled - (scaled - values)
    return upper, values - upper
