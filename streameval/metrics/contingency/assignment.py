"""The best one-to-one matching of classes and clusters, exactly, or as a certain interval.

A matching takes cells of a table, no two in one row or column; the best one has the largest total. Dense solvers need
R×C memory and cubic time. Real tables are sparse and mostly easy, so the work shrinks in four steps:

1. **Settled cells.** If a cell is at least the sum of the largest *other* cell of its row and the largest *other* cell
   of its column, some best matching contains it: the cells that a matching without it takes from that row and column
   are worth no more. Row and column then leave the table, which settles more cells. A few sweeps settle every row or
   column with a single cell and nearly all of a good clustering, even if noise joins the rows into a giant component.
2. **Pruning.** A row needs only its k largest cells, k the smaller number of rows or columns of its component: at most
   k − 1 of their columns are taken by others. The same then holds for columns.
3. **Components.** The remaining cells form connected components of the bipartite graph, which are independent.
4. **Solving.** One compiled loop solves the components of a few rows and columns; there may be millions. scipy
   solves larger ones, dense (Jonker-Volgenant) or sparse (LAPJVsp). Scipy computes in float64, which is exact while
   every sum of counts along a path is a whole number below 2⁵³. Where a sum may be larger, counts are first divided by
   their greatest common divisor (fractions become whole), and components of up to about 200 rows and columns are solved
   in Python's integers. For larger components scipy solves the leading bits: its matching is a lower bound; adding the
   bits left out, at most the largest of each row, gives an upper bound. That interval is certain and narrow: with 1,000
   rows and columns at most 10⁻⁹ of the total.

A component above a fixed size (`assignment_cells`) is bounded, not solved: from below by the greedy matching, from
above by min(Σ row maxima, Σ column maxima). The size is an option and not a memory budget, so the answer does not
depend on the machine. Time: O(V log V) for the first three steps; memory: a few arrays of V words.

Float64 counts, which stand for fractional cells in memory, are compared and added in float64. Their total is rounded
like any sum of floats, and the interval carries that rounding.

References: Crouse (2016), *On implementing 2D rectangular assignment algorithms*, IEEE TAES 52, 1679-1696.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency.matching import greedy_matching, settled_cells, solve_small, solve_whole
from streameval.states.contingency.cells import Visit, add_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streameval.states.contingency.cells import Watcher
    from streameval.states.contingency.summary import Summary
    from streameval.typing import Array

    Number = int | float | Fraction

ASSIGNMENT_CELLS = 1_000_000
"""Default limit out of core: a component of 1,000,000 cells, after settling, takes up to a minute."""

_SIDE = 32  # rows and columns of the components that a compiled loop solves
_DENSE = 4_000_000
_WHOLE = 200**3  # steps of a component that is solved in Python's integers, a few seconds
_FLOAT_BITS = 53
_WIDE = 2**62
_SWEEPS = 100


class Matching(NamedTuple):
    """Certain interval of the best matching's total; both ends are equal if it was solved exactly."""

    lower: Number
    upper: Number


def summarize_rounds(rounds: Sequence[Sequence[Visit]], assignment_cells: int | None) -> tuple[Summary, Watcher | None]:
    """The summary of a table out of core and its watcher, from the visits of all rounds.

    Unless `assignment_cells` is None, the summary has the best matching.
    """
    summary, watcher, core = add_up(rounds)
    if assignment_cells is None or core is None:
        return summary, watcher
    best = best_matching(core.classes, core.clusters, core.counts, assignment_cells)
    matching = Matching(best.lower + core.settled, best.upper + core.settled)
    return replace(summary, matching=matching), watcher


class _Cells(NamedTuple):
    rows: NDArray[np.int64]
    cols: NDArray[np.int64]
    counts: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns, of cells that are numbered."""
        return int(self.rows.max()) + 1, int(self.cols.max()) + 1

    def at(self, which: Array | slice) -> _Cells:
        """Some of the cells, with their rows and columns numbered from 0."""
        cells, sides = _Cells(*(column[which] for column in self)), []
        for codes in cells[:2]:
            used = np.zeros(int(codes.max()) + 1 if codes.size else 0, dtype=np.bool_)
            used[codes] = True
            sides.append((np.cumsum(used) - 1)[codes])
        return _Cells(sides[0], sides[1], cells.counts)


def best_matching(
    rows: NDArray[np.int64], cols: NDArray[np.int64], counts: Array, assignment_cells: int | None = None
) -> Matching:
    """Total of the best one-to-one matching of rows and columns.

    Parameters
    ----------
    rows, cols : int64 arrays of shape (n_cells,)
        Position of each cell, at most once.
    counts : int64, float64 or object array of shape (n_cells,)
        Positive counts; objects are Python integers of any size, or fractions.
    assignment_cells : int or None
        Solve a component only if, after pruning, it has at most this many cells; None solves all.

    Examples
    --------
    >>> rows, cols, counts = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([8, 7, 6, 1])
    >>> best_matching(rows, cols, counts)
    Matching(lower=13, upper=13)
    >>> best_matching(rows, cols, counts, assignment_cells=0)
    Matching(lower=9, upper=14)
    """
    settled, cells = _settle(_Cells(rows, cols, counts))
    cells, starts = _by_component(_prune(cells))
    most = cells.counts.size if assignment_cells is None else assignment_cells
    small, large = _small(cells, starts, most)
    parts = [Matching(settled, settled), Matching(small, small)]
    for start, stop in large:
        part = cells.at(slice(start, stop))
        parts.append(_solve(part) if stop - start <= most else _bound(part))
    return Matching(*map(sum, zip(*parts, strict=True)))


def _total(counts: Array) -> Number:
    total: Number = sum(counts.tolist())
    return total


def _settle(cells: _Cells) -> tuple[Number, _Cells]:
    """Take the cells that some best matching contains, until a sweep finds none."""
    settled: Number = 0
    cells = cells.at(slice(None))
    if cells.counts.dtype.kind == "O" or (cells.counts.size and cells.counts.max() >= _WIDE):
        return settled, cells
    for _ in range(_SWEEPS):
        if not cells.counts.size:
            break
        chosen = settled_cells(*cells, *cells.shape)
        if not chosen.size:
            break
        settled += _total(cells.counts[chosen])
        taken = _mark(cells.rows, cells.rows[chosen]) | _mark(cells.cols, cells.cols[chosen])
        cells = cells.at(~taken)
    return settled, cells


def _mark(codes: NDArray[np.int64], chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    flags = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    flags[chosen] = True
    return flags[codes]


def _prune(cells: _Cells) -> _Cells:
    """Keep the k largest cells of each row, then of each column, k the smaller side of the component."""
    for flip in (False, True):
        if cells.counts.size == 0:
            break
        component, smaller = _sides(cells)
        lines, others = (cells.cols, cells.rows) if flip else (cells.rows, cells.cols)
        room = smaller[component[cells.rows]]
        crowded = np.flatnonzero(np.bincount(lines)[lines] > room)
        if crowded.size:
            keep = np.ones(lines.size, dtype=np.bool_)
            keep[crowded] = _rank_within(lines[crowded], others[crowded], cells.counts[crowded]) < room[crowded]
            cells = cells.at(keep)
    return cells


def _sides(cells: _Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Component of each row, and the smaller side of each component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n_rows, n_cols = cells.shape
    edges = np.ones(cells.rows.size, np.int8), (cells.rows, n_rows + cells.cols)
    count, component = connected_components(coo_array(edges, shape=(n_rows + n_cols,) * 2), directed=False)
    sides = (np.bincount(part, minlength=count) for part in (component[:n_rows], component[n_rows:]))
    return component[:n_rows].astype(np.int64), np.minimum(*sides)


def _rank_within(lines: NDArray[np.int64], others: NDArray[np.int64], counts: Array) -> NDArray[np.int64]:
    """Rank of each cell in its line, the largest 0; ties by position."""
    order = np.lexsort((others, -_sortable(counts), lines))
    ordered, ranks = lines[order], np.empty(order.size, dtype=np.int64)
    ranks[order] = np.arange(order.size) - np.searchsorted(ordered, ordered)
    return ranks


def _sortable(counts: Array) -> Array:
    return np.unique(counts, return_inverse=True)[1] if counts.dtype.kind == "O" else counts


def _by_component(cells: _Cells) -> tuple[_Cells, NDArray[np.int64]]:
    """Cells sorted by component, and the first of each."""
    if cells.counts.size == 0:
        return cells, np.zeros(1, dtype=np.int64)
    component, _ = _sides(cells)
    component = component[cells.rows]
    cells = cells.at(np.argsort(component, kind="stable"))
    return cells, np.concatenate(([0], np.cumsum(np.bincount(component))))


def _small(cells: _Cells, starts: NDArray[np.int64], most: int) -> tuple[Number, Iterator[tuple[int, int]]]:
    """Total of the components that a compiled loop solves, and the first and last cells of the others."""
    sizes = np.diff(starts)
    small = sizes < min(_SIDE, most + 1)  # n cells in one component have at most n rows and columns
    if cells.counts.dtype.kind != "i" or (cells.counts.size and cells.counts.max() >= _WIDE // (4 * _SIDE)):
        small = np.zeros(sizes.size, dtype=np.bool_)
    large = zip(starts[:-1][~small].tolist(), starts[1:][~small].tolist(), strict=True)
    if not small.any():
        return 0, large
    few = cells.at(np.repeat(small, sizes))
    ends = np.concatenate(([0], np.cumsum(sizes[small])))
    return _total(solve_small(*few, ends, *few.shape, _SIDE)), large


def _solve(cells: _Cells) -> Matching:
    """Solve one component: exactly, or in its leading bits where neither float64 nor Python's integers are enough."""
    sides = cells.shape
    if min(sides) == 1:
        best = max(cells.counts.tolist())
        return Matching(best, best)
    if cells.counts.dtype.kind == "f" or (cells.counts.dtype.kind == "i" and not _excess(cells.counts, sides)):
        total = _total(cells.counts[_choose(cells, *sides)])
        return Matching(total, total)
    whole, unit = _in_units(cells.counts)
    excess, cells = _excess(whole, sides), cells._replace(counts=whole)
    if excess and min(sides) ** 2 * max(sides) <= _WHOLE:
        table = np.zeros(sides, dtype=object)
        table[cells.rows, cells.cols] = cells.counts
        total = unit * solve_whole(table if sides[0] <= sides[1] else table.T)
        return Matching(total, total)
    leading = whole >> excess
    chosen = _choose(cells._replace(counts=leading), *sides)
    left_out = min(sides) * max((whole - (leading << excess)).tolist())
    return Matching(unit * _total(whole[chosen]), unit * (_total(leading[chosen]) * 2**excess + left_out))


def _excess(counts: Array, sides: tuple[int, int]) -> int:
    """Bits to leave out so that no sum of counts along a path through all rows and columns, and back, rounds."""
    return max(0, int(counts.max()).bit_length() + sum(sides).bit_length() + 1 - _FLOAT_BITS)


def _in_units(counts: Array) -> tuple[Array, Number]:
    """Integers or fractions as integers, in units of their greatest common divisor."""
    ratios = [count.as_integer_ratio() for count in counts.tolist()]
    common = math.lcm(*(denominator for _, denominator in ratios))
    numerators = [numerator * (common // denominator) for numerator, denominator in ratios]
    divisor = math.gcd(*numerators)
    whole = np.empty(counts.size, dtype=object)
    whole[:] = [numerator // divisor for numerator in numerators]
    return whole, Fraction(divisor, common) if common > 1 else divisor


def _choose(cells: _Cells, n_rows: int, n_cols: int) -> NDArray[np.int64]:
    """Cells of the matching that scipy finds."""
    dense = n_rows * n_cols <= max(_DENSE, 8 * cells.counts.size)
    return (_dense if dense else _sparse)(cells, n_rows, n_cols)


def _dense(cells: _Cells, n_rows: int, n_cols: int) -> NDArray[np.int64]:
    from scipy.optimize import linear_sum_assignment

    where = np.full((n_rows, n_cols), -1, dtype=np.int64)
    where[cells.rows, cells.cols] = np.arange(cells.counts.size)
    weights = np.zeros((n_rows, n_cols))
    weights[cells.rows, cells.cols] = cells.counts.astype(np.float64)
    chosen = where[linear_sum_assignment(weights, maximize=True)]
    return chosen[chosen >= 0]


def _sparse(cells: _Cells, n_rows: int, n_cols: int) -> NDArray[np.int64]:
    """Add a column of weight 0 for each row, so that a matching of all rows exists."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    if n_rows > n_cols:
        return _sparse(_Cells(cells.cols, cells.rows, cells.counts), n_cols, n_rows)
    rows = np.concatenate([cells.rows, np.arange(n_rows)])
    cols = np.concatenate([cells.cols, n_cols + np.arange(n_rows)])
    weights = np.concatenate([cells.counts.astype(np.float64), np.zeros(n_rows)]) + 1.0  # explicit zeros are not edges
    graph = coo_array((weights, (rows, cols)), shape=(n_rows, n_cols + n_rows)).tocsr()
    matched = np.stack(min_weight_full_bipartite_matching(graph, maximize=True))
    keys = matched[0].astype(np.int64) * (n_cols + n_rows) + matched[1]
    return np.flatnonzero(np.isin(cells.rows * (n_cols + n_rows) + cells.cols, keys))


def _bound(cells: _Cells) -> Matching:
    """Bounds: the greedy matching from below, the smaller sum of maxima from above."""
    n_rows, n_cols = cells.shape
    order = np.lexsort((cells.cols, cells.rows, -_sortable(cells.counts)))
    free = np.ones(n_rows, dtype=np.bool_), np.ones(n_cols, dtype=np.bool_)
    greedy = cells.counts[greedy_matching(cells.rows, cells.cols, order, *free)]
    sides = []
    for codes, size in ((cells.rows, n_rows), (cells.cols, n_cols)):
        maxima = np.zeros(size, dtype=cells.counts.dtype)
        np.maximum.at(maxima, codes, cells.counts)
        sides.append(_total(maxima))
    return Matching(_total(greedy), min(sides))
