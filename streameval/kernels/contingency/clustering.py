"""Loops of the clustering metrics: cell sums, and logarithms to 100 bits.

Some sums must not depend on the order of their terms, and some differences would lose all digits in float64.
Double-double numbers (`streameval.kernels.exact`) solve both problems.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.exact import Pair, add_pairs, divide_pairs, multiply_pairs, two_product, two_sum
from streameval.kernels.jit import jit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXACT = 9007199254740992.0  # 2^53
_UNIT = 4503599627370496.0  # 2^52
_LN2_HI, _LN2_LO = 0.6931471805599453, 2.3190468138462996e-17
_THIRD_LO, _FIFTH_LO = 1.850371707708594e-17, -1.1102230246251566e-17


@jit
def _quotient(n: float, r: float, c: float) -> Pair:
    """n²/(r·c) as a double-double number: one division with its exact remainder if both products are exact."""
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

    Cell i stands for ``times[i]`` equal cells (1 if `times` is empty), at most 2^31 in total. Counts and totals are
    below 2^53. The squares of a side are stored as one word or, if the array has two columns, as sums of their high
    and of their low 32 bits; counts of 2^31 or more are left to the caller. `inertia` has four words: high and low 32
    bits of the first 52 binary digits, then of the next 52. All sums are integers, and each term depends on one cell,
    so the result does not depend on the order or the division of the cells.
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
    """Add each count to the total of its code, and update the largest count of the code."""
    for i in range(codes.size):
        code, n = codes[i], counts[i]
        totals[code] += n
        maxima[code] = max(maxima[code], n)


@jit
def squares_by_size(totals: Ints, squares: Ints, table: Ints) -> None:
    """Add the squares of each group to ``table[size]``; sizes beyond the table, of at most 2^16 entries, are skipped.

    A count below 2^16 has a square below 2^32, and 2^31 such squares sum to less than 2^63, so the low word suffices.
    """
    low = squares.shape[1] - 1
    for i in range(totals.size):
        if totals[i] < table.size:
            table[totals[i]] += squares[i, low]


@jit
def log_pairs(values: Ints, table_hi: Floats, table_lo: Floats, out_hi: Floats, out_lo: Floats) -> None:
    """Natural logarithms of integers in [1, 2^62) as double-double numbers, with an error below 2^-96.

    ln v = e·ln 2 + ln c + 2·artanh((m − c) / (m + c)), v = m·2^e with m in [1, 2) and c the middle of m's bin of 128;
    ``table_hi`` and ``table_lo`` hold ln c. The series in z ≤ 2^-9 has seven terms; the first three need two floats.
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
