"""Sums over the cells of a contingency table that need both margins of a cell, and margins from cells.

Each type of counts has its own arithmetic: compiled loops for int64 below 2^53, Python numbers for larger counts and
fractions, float64 for fractional floats. The first two are exact; the third has the rounding errors of its terms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.contingency.clustering import cell_sums, margin_sums, squares_by_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.states.contingency.size_counts import Number, Values

Codes = NDArray[np.int64]

INERTIA_BITS = 104
_TABLE = 1 << 16
_ONCE = np.empty(0, dtype=np.int64)  # every cell counts once


def compiled_sums(
    rows: Codes,
    cols: Codes,
    counts: Values,
    row_totals: Values,
    col_totals: Values,
    times: Codes = _ONCE,
) -> tuple[dict[Number, Number], dict[Number, Number], int]:
    """Σ n² by class size and by cluster size, and Σ n²/(r·c) in units of 2^-104; with multiplicities.

    Parameters
    ----------
    rows, cols : int64 arrays of shape (n_cells,)
        Positions into the totals.
    counts : int64 array of shape (n_cells,)
    row_totals, col_totals : int64 arrays, below 2^53
    times : int64 array of shape (n_cells,), at most 2^31 in total; empty: 1 each
    """
    wide = times.size > 0 or (counts.size > 0 and int(counts.max()) * int(counts.sum()) >= 2**63)  # Σ n² ≤ max n · Σ n
    row_squares, col_squares = (np.zeros((t.size, 2 if wide else 1), np.int64) for t in (row_totals, col_totals))
    words = np.zeros(4, np.int64)
    cell_sums(rows, cols, counts, times, row_totals, col_totals, row_squares, col_squares, words)
    by_class, by_cluster = _by_size(row_totals, row_squares), _by_size(col_totals, col_squares)
    for i in np.flatnonzero(counts >= 2**31) if counts.size else ():
        square = int(counts[i]) ** 2 * (int(times[i]) if times.size else 1)
        by_class[int(row_totals[rows[i]])] += square
        by_cluster[int(col_totals[cols[i]])] += square
    h0, l0, h1, l1 = words.tolist()
    inertia = (((h0 << 32) + l0) << 52) + (h1 << 32) + l1
    return _positive(by_class), _positive(by_cluster), inertia


def _by_size(totals: Values, squares: NDArray[np.int64]) -> defaultdict[Number, Number]:
    """Group Σ n² of the classes (or clusters) by size."""
    table = np.zeros(min(_TABLE, int(totals.max(initial=0)) + 1), np.int64)
    squares_by_size(totals, squares, table)
    sizes = np.flatnonzero(table != 0)  # takes half the time of searching numbers
    result: defaultdict[Number, Number] = defaultdict(int, zip(sizes.tolist(), table[sizes].tolist(), strict=True))
    for i in np.flatnonzero(totals >= _TABLE) if table.size == _TABLE else ():
        high, low = squares[i].tolist() if squares.shape[1] == 2 else (0, int(squares[i, 0]))
        result[int(totals[i])] += (high << 32) + low
    return result


def exact_sums(
    rows: Codes, cols: Codes, counts: Values, row_totals: Values, col_totals: Values
) -> tuple[dict[Number, Number], dict[Number, Number], int]:
    """As `compiled_sums`, in Python numbers: for counts beyond 2^53, and fractions."""
    by_class: defaultdict[Number, Number] = defaultdict(int)
    by_cluster: defaultdict[Number, Number] = defaultdict(int)
    inertia = 0
    r, c, unit = row_totals.tolist(), col_totals.tolist(), 1 << INERTIA_BITS
    for row, col, n in zip(rows.tolist(), cols.tolist(), counts.tolist(), strict=True):
        square = n * n
        by_class[r[row]] += square
        by_cluster[c[col]] += square
        inertia += math.floor(Fraction(square) / Fraction(r[row] * c[col]) * unit)
    return _positive(by_class), _positive(by_cluster), inertia


def float_sums(
    rows: Codes, cols: Codes, counts: Values, row_totals: Values, col_totals: Values
) -> tuple[dict[Number, Number], dict[Number, Number], int]:
    """As `compiled_sums`, for fractional float64 counts."""
    squares = counts * counts
    sides = []
    for codes, totals in ((rows, row_totals), (cols, col_totals)):
        sizes, position = np.unique(totals, return_inverse=True)
        sums = np.bincount(position[codes], weights=squares, minlength=sizes.size)
        sides.append(_positive(dict(zip(sizes.tolist(), sums.tolist(), strict=True))))
    inertia = math.fsum((squares / (row_totals[rows] * col_totals[cols])).tolist())
    return sides[0], sides[1], int(inertia * 2.0**INERTIA_BITS)


def _positive(sums: Mapping[Number, Number]) -> dict[Number, Number]:
    return {size: sums[size] for size in sorted(sums) if sums[size]}


def margin(codes: Codes, counts: Values) -> tuple[Values, Values]:
    """Total and largest cell for each code."""
    size = int(codes.max()) + 1 if codes.size else 0
    wide = counts.dtype.kind == "O" or (counts.size > 0 and int(counts.max()) * counts.size >= 2**63)
    if wide and counts.dtype.kind != "f":
        totals, maxima = np.zeros(size, dtype=object), np.zeros(size, dtype=counts.dtype)
        np.add.at(totals, codes, counts.astype(object))
        np.maximum.at(maxima, codes, counts)
        return totals.astype(np.int64) if _fits(totals) else totals, maxima
    totals, maxima = np.zeros(size, dtype=counts.dtype), np.zeros(size, dtype=counts.dtype)
    margin_sums(codes, counts, totals, maxima)
    return totals, maxima


def _fits(totals: Values) -> bool:
    return all(isinstance(t, int) and t < 2**63 for t in totals.tolist())


def exact_sum(values: Values) -> Number:
    """Sum without overflow; for floats, correctly rounded."""
    if values.dtype.kind == "f":
        return math.fsum(values.tolist())
    if values.dtype.kind == "O" or (values.size and int(values.max()) * values.size >= 2**63):
        total: Number = sum(values.tolist())
        return total
    return int(values.sum())
