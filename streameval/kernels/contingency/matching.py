"""Loops of the best one-to-one matching: settled cells, the greedy matching, and the assignment of a component.

Rows and columns are numbered from 0. All counts are integers, and results depend only on the numbers: if both sides are
numbered in the order of their ids, the matching does not depend on the order of the cells. `solve_whole` is the only
loop that is not compiled, because its integers may be of any size.

Reference: Kuhn (1955), *The Hungarian method for the assignment problem*, Naval Research Logistics Quarterly 2, 83-97,
in the form with potentials and one augmentation a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.jit import jit

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FAR = np.int64(1) << np.int64(62)


@jit
def greedy_matching(rows: Ints, cols: Ints, order: Ints, row_free: Flags, col_free: Flags) -> Ints:
    """Greedy matching: take cells in the given order if their row and column are free; returns their indices."""
    chosen = np.empty(min(row_free.size, col_free.size), np.int64)
    size = 0
    for i in order:
        if row_free[rows[i]] and col_free[cols[i]]:
            row_free[rows[i]] = False
            col_free[cols[i]] = False
            chosen[size] = i
            size += 1
    return chosen[:size]


@jit
def settled_cells(rows: Ints, cols: Ints, counts: Ints, n_rows: int, n_cols: int) -> Ints:
    """Find the cells that are at least the largest other cell of their row plus the largest other cell of their column.

    These cells are in a best matching. Of several such cells in a row or column, the first is taken. Returns their
    indices, ascending.

    """
    first_row, second_row = np.zeros(n_rows, counts.dtype), np.zeros(n_rows, counts.dtype)
    first_col, second_col = np.zeros(n_cols, counts.dtype), np.zeros(n_cols, counts.dtype)
    for i in range(counts.size):
        n, row, col = counts[i], rows[i], cols[i]
        if n > first_row[row]:
            first_row[row], second_row[row] = n, first_row[row]
        elif n > second_row[row]:
            second_row[row] = n
        if n > first_col[col]:
            first_col[col], second_col[col] = n, first_col[col]
        elif n > second_col[col]:
            second_col[col] = n
    row_free, col_free = np.ones(n_rows, np.bool_), np.ones(n_cols, np.bool_)
    chosen = np.empty(min(n_rows, n_cols), np.int64)
    size = 0
    for i in range(counts.size):
        n, row, col = counts[i], rows[i], cols[i]
        largest = n == first_row[row] and n == first_col[col]
        if largest and n >= second_row[row] + second_col[col] and row_free[row] and col_free[col]:
            row_free[row], col_free[col] = False, False
            chosen[size] = i
            size += 1
    return chosen[:size]


def _hungarian(weights: NDArray[Any], n: int, m: int, chosen: Ints, far: int) -> int:
    """Largest total of a matching of n rows with m ≥ n columns; ``chosen[j]`` becomes the row of column j, from 1.

    `far` must exceed any sum of weights along a path.
    """
    rows, cols = np.zeros(n + 1, weights.dtype), np.zeros(m + 1, weights.dtype)
    way, least, seen = np.zeros(m + 1, np.int64), np.zeros(m + 1, weights.dtype), np.zeros(m + 1, np.bool_)
    chosen[: m + 1] = 0
    for i in range(1, n + 1):
        chosen[0] = i
        at = 0
        least[:] = far
        seen[:] = False
        while True:
            seen[at] = True
            row, delta, best = chosen[at], far, 0
            for j in range(1, m + 1):
                if not seen[j]:
                    slack = -weights[row - 1, j - 1] - rows[row] - cols[j]
                    if slack < least[j]:
                        least[j] = slack
                        way[j] = at
                    if least[j] < delta:
                        delta, best = least[j], j
            for j in range(m + 1):
                if seen[j]:
                    rows[chosen[j]] += delta
                    cols[j] -= delta
                else:
                    least[j] -= delta
            at = best
            if chosen[at] == 0:
                break
        while at:
            chosen[at] = chosen[way[at]]
            at = way[at]
    total = 0
    for j in range(1, m + 1):
        if chosen[j]:
            total += weights[chosen[j] - 1, j - 1]
    return total


_compiled_hungarian = jit(_hungarian)


@jit
def solve_small(rows: Ints, cols: Ints, counts: Ints, starts: Ints, n_rows: int, n_cols: int, side: int) -> Ints:
    """Largest total of a matching in each component; the cells of component k begin at ``starts[k]``.

    No component has more than `side` rows or columns, and counts times 4·`side` stay below 2^62.
    """
    totals = np.zeros(starts.size - 1, np.int64)
    row_number, col_number = np.full(n_rows, -1, np.int64), np.full(n_cols, -1, np.int64)
    weights, chosen = np.zeros((side, side), np.int64), np.empty(side + 1, np.int64)
    for k in range(starts.size - 1):
        n, m = 0, 0
        for i in range(starts[k], starts[k + 1]):
            if row_number[rows[i]] < 0:
                row_number[rows[i]] = n
                n += 1
            if col_number[cols[i]] < 0:
                col_number[cols[i]] = m
                m += 1
        flip = n > m
        if flip:
            n, m = m, n
        weights[:n, :m] = 0
        for i in range(starts[k], starts[k + 1]):
            row, col = row_number[rows[i]], col_number[cols[i]]
            if flip:
                row, col = col, row
            weights[row, col] = counts[i]
        totals[k] = _compiled_hungarian(weights, n, m, chosen, _FAR)
    return totals


def solve_whole(weights: NDArray[Any]) -> int:
    """Largest total of a matching in a dense table of Python integers of any size.

    Takes about n²·m steps of half a microsecond.

    Parameters
    ----------
    weights : object array of shape (n, m), n ≤ m, nonnegative integers

    Returns
    -------
    int

    Examples
    --------
    >>> solve_whole(np.array([[2**60, 2**60 + 1], [2**60 + 2, 2**60]], dtype=object)) - 2**61
    3
    """
    n, m = weights.shape
    return _hungarian(weights, n, m, np.zeros(m + 1, np.int64), 1 + 2 * (n + m) * max(weights.ravel().tolist()))
