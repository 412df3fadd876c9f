"""Loops behind the clustering metrics: cell sums, logarithms to 100 bits, expected mutual information.

Some sums must not depend on the order of their terms, and some differences would lose every digit in float64. Both
are met with double-double numbers (`streameval.kernels.exact`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.exact import Pair, add_pairs, divide_pairs, multiply_pairs, two_product, two_sum
from streameval.kernels.jit import jit

__all__ = [
    "cell_sums",
    "expected_information",
    "log_pairs",
    "margin_sums",
    "squares_by_size",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXACT = 9007199254740992.0  # 2^53
_UNIT = 4503599627370496.0  # 2^52
_LN2_HI, _LN2_LO = 0.6931471805599453, 2.3190468138462996e-17
_THIRD_LO, _FIFTH_LO = 1.850371707708594e-17, -1.1102230246251566e-17
_NEGLIGIBLE = 2.0**-56
_LOGS = np.log(np.maximum(np.arange(64.0), 1.0))  # of small integers


@jit
def _quotient(n: float, r: float, c: float) -> Pair:
    """n²/(r·c) as a double-double number; one division and its exact remainder where both products are exact."""
    square, product = n * n, r * c
    if square < _EXACT and product < _EXACT:
        q = square / product
        p, e = two_product(q, product)
        return q, ((square - p) - e) / product
    ah, al = two_product(n, n)
    bh, bl = two_product(r, c)
    return divide_pairs(ah, al, bh, bl)


@jit
def cell_sums(
    rows: Ints,
    cols: Ints,
    counts: Ints,
    times: Ints,
    row_totals: Ints,
    col_totals: Ints,
    row_squares: Ints,
    col_squares: Ints,
    inertia: Ints,
) -> None:
    """Add each cell to Σ n² of its row and its column, and to Σ n²/(r·c) in fixed point.

    A cell stands for ``times[i]`` equal ones, at most 2^31 in all; empty `times` for itself. Counts and totals are
    below 2^53. Squares of a side are one word, or, where it has two columns, the sums of the high and of the low 32
    bits; a count of 2^31 and more is left to the caller. `inertia` has four words: high and low 32 bits of the first 52
    binary digits, then of the next 52. All are integer sums of terms that depend on one cell each, so no order of the
    cells, and no split of them, changes a bit.
    """
    wide_rows, wide_cols = row_squares.shape[1] == 2, col_squares.shape[1] == 2
    h0, l0, h1, l1 = inertia[0], inertia[1], inertia[2], inertia[3]
    for i in range(counts.size):
        n, row, col = counts[i], rows[i], cols[i]
        t = times[i] if times.size else np.int64(1)
        if n < 2147483648:
            square = n * n
            if wide_rows:
                row_squares[row, 0] += (square >> 32) * t
                row_squares[row, 1] += (square & 4294967295) * t
            else:
                row_squares[row, 0] += square * t
            if wide_cols:
                col_squares[col, 0] += (square >> 32) * t
                col_squares[col, 1] += (square & 4294967295) * t
            else:
                col_squares[col, 0] += square * t
        qh, ql = _quotient(float(n), float(row_totals[row]), float(col_totals[col]))
        digit = math.floor(qh * _UNIT)
        first = np.int64(digit)
        second = np.int64(math.floor(((qh * _UNIT - digit) + ql * _UNIT) * _UNIT))
        h0 += (first >> 32) * t
        l0 += (first & 4294967295) * t
        h1 += (second >> 32) * t
        l1 += (second & 4294967295) * t
    inertia[0], inertia[1], inertia[2], inertia[3] = h0, l0, h1, l1


@jit
def margin_sums(codes: Ints, counts: Ints, totals: Ints, maxima: Ints) -> None:
    """Total and largest count for each code."""
    for i in range(codes.size):
        code, n = codes[i], counts[i]
        totals[code] += n
        maxima[code] = max(maxima[code], n)


@jit
def squares_by_size(totals: Ints, squares: Ints, table: Ints) -> None:
    """Add the squares of each group to those of its size; sizes beyond the table, of 2^16 at most, are left.

    A count below 2^16 has a square below 2^32, and 2^31 of these are below 2^63: the low word has it all.
    """
    low = squares.shape[1] - 1
    for i in range(totals.size):
        if totals[i] < table.size:
            table[totals[i]] += squares[i, low]


@jit
def log_pairs(values: Ints, table_hi: Floats, table_lo: Floats, out_hi: Floats, out_lo: Floats) -> None:
    """Natural logarithms of integers in [1, 2^62) as double-double numbers, off by less than 2^-96.

    ln v = e·ln 2 + ln c + 2·artanh((m − c) / (m + c)), v = m·2^e with m in [1, 2) and c the middle of m's bin of 128;
    ``table`` holds ln c. The series in z ≤ 2^-9 has seven terms, of which the first three need two floats.
    """
    for i in range(values.size):
        v = values[i]
        hi = float(v)
        lo = float(v - np.int64(hi))
        exponent = math.frexp(hi)[1]
        exponent -= 1
        scale = math.ldexp(1.0, -exponent)
        mh, ml = hi * scale, lo * scale
        k = min(int((mh - 1.0) * 128.0), 127)
        c = 1.0 + (k + 0.5) / 128.0
        zh, zl = divide_pairs(*two_sum(mh - c, ml), *add_pairs(mh, ml, c, 0.0))
        sh, sl = multiply_pairs(zh, zl, zh, zl)
        tail = 1.0 / 7.0 + sh * (1.0 / 9.0 + sh * (1.0 / 11.0 + sh / 13.0))
        th, tl = add_pairs(*two_product(sh, tail), 0.2, _FIFTH_LO)
        th, tl = multiply_pairs(sh, sl, th, tl)
        th, tl = add_pairs(th, tl, 1.0 / 3.0, _THIRD_LO)
        th, tl = multiply_pairs(sh, sl, th, tl)
        th, tl = add_pairs(1.0, 0.0, th, tl)
        th, tl = multiply_pairs(2.0 * zh, 2.0 * zl, th, tl)
        th, tl = add_pairs(table_hi[k], table_lo[k], th, tl)
        eh, el = multiply_pairs(float(exponent), 0.0, _LN2_HI, _LN2_LO)
        out_hi[i], out_lo[i] = add_pairs(eh, el, th, tl)


@jit
def deviance(x: float, e: float, d: float) -> float:
    """Deviance x·ln(x/e) − d of a count x from its expectation e, d = x − e: at least 0 and free of cancellation.

    Reference: Loader (2000), *Fast and accurate computation of binomial probabilities*.
    """
    if x == 0.0:
        return e
    if abs(d) >= 0.1 * (x + e):
        return x * math.log(x / e) - d
    v = d / (x + e)
    total = d * v
    power = 2.0 * x * v
    v *= v
    for j in range(1, 1000):
        power *= v
        longer = total + power / (2 * j + 1)
        if longer == total:
            break
        total = longer
    return total


@jit
def _rare(a: float, b: float, n: float, m: float) -> float:
    """Mean deviance of a hypergeometric count whose mean m is below 1/2, from 0 on, until 2^-56 of it is left out.

    Both logarithms add to the deviance, so nothing cancels. A count of 64 has a probability below 2^-350.
    """
    others, below = n - a - b, math.log(m)
    weights, w, total, before = 1.0, 1.0, m, m
    ratio = a * b / (others + 1.0)
    for k in range(1, min(int(min(a, b)) + 1, _LOGS.size)):
        w *= ratio
        weights += w
        term = w * (k * (_LOGS[k] - below) - (k - m))
        total += term
        ratio = (a - k) * (b - k) / ((k + 1.0) * (others + k + 1.0))
        if k > 1 and 2.0 * w * ratio < _NEGLIGIBLE * weights and term * term < _NEGLIGIBLE * total * (before - term):
            break
        before = term
    return total / weights


@jit
def _summed(a: float, b: float, n: float, mh: float, ml: float) -> float:
    """Mean deviance of a hypergeometric count, term by term from the mode, until what is left out is below 2^-56."""
    low, high = max(0.0, a + b - n), min(a, b)
    mode = min(max(np.floor((a + 1.0) * (b + 1.0) / (n + 2.0)), low), high)
    start = deviance(mode, mh, (mode - mh) - ml)
    weights, total = 1.0, start
    w, k, before = 1.0, mode, start
    ratio = (a - k) * (b - k) / ((k + 1.0) * (n - a - b + k + 1.0))
    while k < high:
        w *= ratio
        k += 1.0
        term = w * deviance(k, mh, (k - mh) - ml)
        weights += w
        total += term
        ratio = (a - k) * (b - k) / ((k + 1.0) * (n - a - b + k + 1.0))
        if (  # the last factor of the terms, term / before, bounds the next ones
            k > mh + 1.0
            and ratio < 1.0
            and term < before
            and w * ratio < _NEGLIGIBLE * weights * (1.0 - ratio)
            and term * term < _NEGLIGIBLE * total * (before - term)
        ):
            break
        before = term
    w, k = 1.0, mode
    while k > low:
        w *= k * (n - a - b + k) / ((a - k + 1.0) * (b - k + 1.0))
        k -= 1.0
        weights += w
        total += w * deviance(k, mh, (k - mh) - ml)
        ratio = k * (n - a - b + k) / ((a - k + 1.0) * (b - k + 1.0))
        left_out = w * ratio
        if (
            ratio < 1.0
            and left_out < _NEGLIGIBLE * weights * (1.0 - ratio)
            and left_out * mh < _NEGLIGIBLE * total * (1.0 - ratio)
        ):
            break
    return total / weights


@jit
def _stirling(x: float) -> float:
    """Error of Stirling's formula for ln x!, for large x."""
    return (1.0 / 12.0 - 1.0 / (360.0 * x * x)) / x


@jit
def _log_weight(k: float, e1: float, e2: float, e3: float, e4: float, ml: float) -> float:
    """Logarithm of a hypergeometric probability but for a constant, from the deviances of the four cells."""
    d = (k - e1) - ml
    x2, x3, x4 = e2 - d, e3 - d, e4 + d
    result = -(deviance(k, e1, d) + deviance(x2, e2, -d) + deviance(x3, e3, -d) + deviance(x4, e4, d))
    result -= 0.5 * (math.log1p(d / e1) + math.log1p(-d / e2) + math.log1p(-d / e3) + math.log1p(d / e4))
    return result - (_stirling(k) + _stirling(x2) + _stirling(x3) + _stirling(x4))


@jit
def _sampled(a: float, b: float, n: float, mh: float, ml: float, sigma: float) -> float:
    """Mean deviance where the standard deviation is large: every half of a σ, from −9 σ to 9 σ.

    The trapezoidal rule on a smooth bell with step h errs by exp(−2π²σ²/h²), here below 1e-34; the ends left out weigh
    below 1e-17. Measured against the sum: 4e-15 relative.
    """
    e2, e3 = (a - mh) - ml, (b - mh) - ml
    e4 = n - a - e3
    step = np.floor(sigma / 2.0)  # floats: integers of 64 bits end at 9.2e18
    centre = np.floor(mh)
    top = _log_weight(centre, mh, e2, e3, e4, ml)
    weights, total = 0.0, 0.0
    for j in range(-18, 19):
        k = centre + j * step
        w = math.exp(_log_weight(k, mh, e2, e3, e4, ml) - top)
        weights += w
        total += w * deviance(k, mh, (k - mh) - ml)
    return total / weights


@jit
def expected_information(sizes_a: Floats, times_a: Ints, sizes_b: Floats, times_b: Ints, n: float) -> float:
    """N times the expected mutual information in nats, over distinct pairs of sizes with their multiplicities.

    A pair (a, b) contributes E[x·ln(x·n/(a·b))], x hypergeometric. Since E[x] = a·b/n that is the mean deviance of x
    from its expectation, whose terms are not negative: nothing cancels. Weights come from the ratio of neighbouring
    probabilities and are normalised by their own sum, so no log-factorial is needed and no digit of one is lost.
    """
    total, carry = 0.0, 0.0
    for i in range(sizes_a.size):
        a = sizes_a[i]
        for j in range(sizes_b.size):
            b = sizes_b[j]
            if 2.0 * a * b < n and 2.0 * (a + b) < n:
                mean = _rare(a, b, n, a * b / n)
            else:
                mh, ml = divide_pairs(*two_product(a, b), n, 0.0)
                sigma = math.sqrt(mh * ((n - a) / n) * ((n - b) / max(n - 1.0, 1.0)))
                mean = _sampled(a, b, n, mh, ml, sigma) if sigma > 32.0 else _summed(a, b, n, mh, ml)
            total, error = two_sum(total, float(times_a[i]) * float(times_b[j]) * mean)
            carry += error
    return total + carry
