"""The summary: a small, mergeable statistic of a contingency table that determines almost every clustering metric.

A table of two partitions can have 10⁸ cells; its metrics need far less. The histograms of *cell counts*, *class sizes*
and *cluster sizes* give pair counts, entropies, null models and the expected mutual information, and they are small: N
points have at most √(2N) distinct sizes, so 10⁸ clusters have a few thousand. Three kinds of sums need both margins of
a cell:

- Σ n² of the cells of all clusters of one size, and of all classes of one size (B-cubed divides them by that size);
- Σ n²/(r·c) (chi-square), in fixed point, an integer in units of 2^-104;
- Σ row maxima and Σ column maxima (split-join).

Every part is a sum of integers over cells, classes or clusters. So `Summary.merge` is addition, and the result has the
same bits for all shardings and orders::

    cells of a shard ──► summarize_cells     ┐
    class sizes, once ─► summarize_classes   ├─► merge ─► Summary
    clusters of a shard► summarize_clusters  ┘

Cells and clusters of a shard with complete clusters can be summarized if the sizes of all classes are known; the
largest cells of a class are combined over shards by maximum before `summarize_classes`. For a table sharded by class,
exchange the two sides.

Each type of counts has its own arithmetic: compiled loops for int64 below 2^53, Python numbers for larger counts and
fractions, float64 for fractional floats.

Memory: O(distinct sizes). Error: none for whole counts and fractions, except 2^-104 per chi-square term; fractional
float64 cells have the rounding errors of their margins.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.contingency.tables import add_margins, cell_sums, tally_small
from streameval.kernels.ranking import sum_of_products

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Number = int | float | Fraction
Values = NDArray[Any]

Codes = NDArray[np.int64]
Sums = tuple[dict["Number", "Number"], dict["Number", "Number"], int]  # see `sum_cells`

INERTIA_BITS = 104
_TABLE = 1 << 16  # sizes counted in a table; larger ones are rare
_ONCE = np.empty(0, dtype=np.int64)  # every cell counts once


@dataclass(frozen=True, eq=False)
class Sizes:
    """The frequency of each size.

    Parameters
    ----------
    values : int64, float64 or object array of shape (distinct,)
        Distinct positive sizes, ascending. Object arrays hold integers beyond int64, or fractions.
    times : int64 array of shape (distinct,)
        How often each occurs.

    Examples
    --------
    >>> h = Sizes.of(np.array([3, 1, 1, 0]))
    >>> h.values.tolist(), h.times.tolist(), h.count, h.total, h.squares
    ([1, 3], [2, 1], 3, 5, 11)
    """

    values: Values
    times: NDArray[np.int64]

    @classmethod
    def of(cls, sizes: Values, times: NDArray[np.int64] | None = None) -> Sizes:
        """Count sizes, each with its multiplicity; zeros are omitted."""
        sizes = np.asarray(sizes)
        if sizes.dtype.kind == "O":
            return cls._from_counter(Counter(size for size in sizes.tolist() if size))
        if sizes.dtype.kind == "f":
            values, times = np.unique(sizes[sizes > 0], return_counts=True)
            return cls(values, times.astype(np.int64))
        small = np.zeros(min(_TABLE, int(sizes.max(initial=0)) + 1), np.int64)
        if times is None:
            high = sizes[sizes >= _TABLE] if tally_small(sizes, small) else sizes[:0]
            values, more = np.unique(high, return_counts=True)
        else:
            low = sizes < _TABLE
            np.add.at(small, sizes[low], times[low])
            values, position = np.unique(sizes[~low], return_inverse=True)
            more = np.zeros(values.size, np.int64)
            np.add.at(more, position, times[~low])
        found, large = np.flatnonzero(small[1:]) + 1, more > 0
        counts = np.concatenate((small[found], more[large]))
        return cls(np.concatenate((found, values[large])).astype(np.int64), counts.astype(np.int64))

    @classmethod
    def repeat(cls, size: Number, times: int) -> Sizes:
        """One size that occurs `times` times."""
        if isinstance(size, float):
            return cls(np.array([size]), np.array([times], dtype=np.int64))
        return cls._from_counter({size: times} if size and times else {})

    @classmethod
    def _from_counter(cls, counter: Mapping[Number, int]) -> Sizes:
        whole = {(v.numerator if isinstance(v, Fraction) and v.denominator == 1 else v): v for v in counter}
        values = np.empty(len(counter), dtype=object)
        values[:] = sorted(whole)
        if all(isinstance(v, int) and v < 2**63 for v in values):  # equal histograms are equal arrays
            values = values.astype(np.int64)
        return cls(values, np.array([counter[whole[v]] for v in values.tolist()], dtype=np.int64))

    def pairs(self) -> Iterable[tuple[Number, int]]:
        """Sizes with their multiplicities, as Python numbers, ascending."""
        return zip(self.values.tolist(), self.times.tolist(), strict=True)

    @cached_property
    def count(self) -> int:
        """Number of sizes, with multiplicity."""
        return int(self.times.sum())

    @cached_property
    def total(self) -> Number:
        """Sum of the sizes, exact unless they are floats."""
        return self._sum(1)

    @cached_property
    def squares(self) -> Number:
        """Sum of the squared sizes, exact unless they are floats."""
        return self._sum(2)

    def _sum(self, power: int) -> Number:
        if self.values.dtype.kind == "i" and self.count * int(self.largest) < 2**63:
            return sum_of_products(self.values * self.times, self.values ** (power - 1))
        terms = (times * size**power for size, times in self.pairs())
        return math.fsum(terms) if self.values.dtype.kind == "f" else sum(terms)

    @property
    def fractional(self) -> bool:
        """Whether some size is not a whole number; floats count as fractions.

        Examples
        --------
        >>> Sizes.of(np.array([0.5])).merge(Sizes.repeat(2**70, 1)).fractional
        True
        """
        kind = self.values.dtype.kind
        return kind == "f" or (kind == "O" and any(isinstance(v, Fraction | float) for v in self.values))

    @cached_property
    def largest(self) -> Number:
        """The largest size, or 0 without sizes."""
        largest: Number = self.values[-1:].tolist()[0] if self.values.size else 0
        return largest

    def merge(self, *others: Sizes) -> Sizes:
        """Histogram of all sizes of both."""
        parts = [part for part in (self, *others) if part.values.size]
        if len(parts) < 2:
            return parts[0] if parts else self
        if any(part.values.dtype.kind == "O" for part in parts):
            counter: Counter[Number] = Counter()
            for part in parts:
                counter.update(dict(part.pairs()))
            return self._from_counter(counter)
        values, position = np.unique(np.concatenate([part.values for part in parts]), return_inverse=True)
        times = np.zeros(values.size, dtype=np.int64)
        np.add.at(times, position, np.concatenate([part.times for part in parts]))
        return Sizes(values, times)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sizes)
            and np.array_equal(self.values, other.values)
            and np.array_equal(self.times, other.times)
        )

    def __hash__(self) -> int:
        return hash((self.values.size, self.count, self.largest))


def sum_cells(
    rows: Codes, cols: Codes, counts: Values, row_totals: Values, col_totals: Values, times: Codes = _ONCE
) -> Sums:
    """Σ n² by class size and by cluster size, and Σ n²/(r·c) in units of 2^-104; with multiplicities.

    Parameters
    ----------
    rows, cols : int64 arrays of shape (n_cells,)
        Positions into the totals.
    counts : int64 array of shape (n_cells,)
    row_totals, col_totals : int64 arrays, below 2^53
    times : int64 array of shape (n_cells,), at most 2^31 in total; empty: 1 each
    """
    row_squares, col_squares = (np.zeros((t.size, 2), np.int64) for t in (row_totals, col_totals))
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
    small = np.flatnonzero(totals < table.size)  # squares of counts below 2^16: 2^31 of them fit into the low word
    np.add.at(table, totals[small], squares[small, 1])
    sizes = np.flatnonzero(table != 0)  # takes half the time of searching numbers
    result: defaultdict[Number, Number] = defaultdict(int, zip(sizes.tolist(), table[sizes].tolist(), strict=True))
    for i in np.flatnonzero(totals >= _TABLE) if table.size == _TABLE else ():
        high, low = squares[i].tolist()
        result[int(totals[i])] += (high << 32) + low
    return result


def exact_sums(rows: Codes, cols: Codes, counts: Values, row_totals: Values, col_totals: Values) -> Sums:
    """As `sum_cells`, in Python numbers: for counts beyond 2^53, and fractions."""
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


def float_sums(rows: Codes, cols: Codes, counts: Values, row_totals: Values, col_totals: Values) -> Sums:
    """As `sum_cells`, for fractional float64 counts."""
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
        fits = all(isinstance(t, int) and t < 2**63 for t in totals.tolist())
        return totals.astype(np.int64) if fits else totals, maxima
    totals, maxima = np.zeros(size, dtype=counts.dtype), np.zeros(size, dtype=counts.dtype)
    add_margins(codes, counts, counts, totals, maxima)
    return totals, maxima


def exact_sum(values: Values) -> Number:
    """Sum without overflow; for floats, correctly rounded."""
    if values.dtype.kind == "f":
        return math.fsum(values.tolist())
    if values.dtype.kind == "O" or (values.size and int(values.max()) * values.size >= 2**63):
        total: Number = sum(values.tolist())
        return total
    return int(values.sum())


_SAFE = 2**53
_NONE = Sizes(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Summary:
    """Statistic of a contingency table for almost every clustering metric; classes are rows, clusters columns.

    Parameters
    ----------
    cells, classes, clusters : Sizes
        Histograms of the nonzero cell counts n, the class sizes r and the cluster sizes c.
    class_squares, cluster_squares : dict
        Size -> Σ n² over the cells of all classes (clusters) of that size, exact.
    inertia : int or None
        Σ n²/(r·c) over the cells, in units of 2^-104; None if unknown, as in a table without a block of classes.
    row_maxima, column_maxima : int, float or Fraction
        Σ over classes of the largest cell, Σ over clusters of the largest cell.
    matching : (lower, upper) or None
        Certain interval of the largest total of a one-to-one matching, or None if it has not been computed; not
        additive.

    Examples
    --------
    >>> s = summarize(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), np.array([5, 1, 1, 3]))
    >>> s.total, s.shape, s.nonzero, s.row_maxima, s.column_maxima
    (10, (2, 3), 4, 8, 9)
    >>> s.merge(Summary()) == s
    True
    """

    cells: Sizes = _NONE
    classes: Sizes = _NONE
    clusters: Sizes = _NONE
    class_squares: Mapping[Number, Number] = field(default_factory=dict)
    cluster_squares: Mapping[Number, Number] = field(default_factory=dict)
    inertia: int | None = 0
    row_maxima: Number = 0
    column_maxima: Number = 0
    matching: tuple[Number, Number] | None = None

    @property
    def total(self) -> Number:
        """Number of points, N."""
        return self.cells.total

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of nonempty classes and clusters, (R, C)."""
        return self.classes.count, self.clusters.count

    @property
    def nonzero(self) -> int:
        """Number of nonzero cells, V."""
        return self.cells.count

    @property
    def fractional(self) -> bool:
        """Whether some cell is not a whole number."""
        return self.cells.fractional

    def merge(self, *others: Summary) -> Summary:
        """Sum of partial summaries, bit for bit the same in any order."""
        if not others:
            return self
        parts = (self, *others)
        known = [part.inertia for part in parts if part.inertia is not None]
        return Summary(
            Sizes.merge(*(part.cells for part in parts)),
            Sizes.merge(*(part.classes for part in parts)),
            Sizes.merge(*(part.clusters for part in parts)),
            _add_sums(part.class_squares for part in parts),
            _add_sums(part.cluster_squares for part in parts),
            sum(known) if len(known) == len(parts) else None,
            sum(part.row_maxima for part in parts),
            sum(part.column_maxima for part in parts),
        )

    def __hash__(self) -> int:
        return hash((self.cells, self.classes, self.clusters, self.inertia))


def _add_sums(parts: Iterable[Mapping[Number, Number]]) -> dict[Number, Number]:
    result: dict[Number, Number] = {}
    for part in parts:
        if not result:
            result = dict(part)
            continue
        for size, squares in part.items():
            result[size] = result.get(size, 0) + squares
    return {size: result[size] for size in sorted(result)}


def summarize(class_codes: Codes, cluster_codes: Codes, counts: Values) -> Summary:
    """Summary of a whole table, given as cells.

    Parameters
    ----------
    class_codes, cluster_codes : int64 arrays of shape (n_cells,)
        Row and column of each cell, from 0; each pair at most once.
    counts : int64, float64 or object array of shape (n_cells,)
        Positive counts.
    """
    class_totals, class_maxima = margin(class_codes, counts)
    cluster_totals, cluster_maxima = margin(cluster_codes, counts)
    cells = summarize_cells(class_codes, cluster_codes, counts, class_totals, cluster_totals)
    margins = summarize_classes(class_totals, class_maxima), summarize_clusters(cluster_totals, cluster_maxima)
    return cells.merge(*margins)


def summarize_classes(totals: Values, maxima: Values) -> Summary:
    """The part of a summary that depends on classes only: their sizes and largest cells.

    Parameters
    ----------
    totals, maxima : arrays of shape (n_classes,)
        Sums and maxima over all cells of a class.
    """
    return Summary(classes=Sizes.of(totals), row_maxima=exact_sum(maxima))


def summarize_clusters(totals: Values, maxima: Values) -> Summary:
    """The part of a summary that depends on clusters only; see `summarize_classes`."""
    return Summary(clusters=Sizes.of(totals), column_maxima=exact_sum(maxima))


def summarize_cells(
    class_codes: Codes,
    cluster_codes: Codes,
    counts: Values,
    class_totals: Values,
    cluster_totals: Values,
    times: Codes | None = None,
) -> Summary:
    """The part of a summary that depends on cells, given both margins; valid for any subset of the cells.

    Parameters
    ----------
    class_codes, cluster_codes : int64 arrays of shape (n_cells,)
        Indices into the totals.
    counts : array of shape (n_cells,)
    class_totals, cluster_totals : arrays
        Sizes over the whole table.
    times : int64 array of shape (n_cells,), optional
        Number of equal cells that each stands for; counts and totals are then int64.

    Examples
    --------
    >>> one, sizes = np.zeros(1, np.int64), (np.array([9]), np.array([3]))
    >>> summarize_cells(one, one, np.array([2]), *sizes, times=np.array([10**12])).class_squares
    {9: 4000000000000}
    """
    arrays = class_codes, cluster_codes, counts, class_totals, cluster_totals
    if times is not None:
        sums = _sum_repeated(*arrays, times)
    elif counts.dtype.kind == "f":
        sums = float_sums(*arrays)
    elif all(a.dtype.kind == "i" and a.max(initial=0) < _SAFE for a in arrays[2:]):
        sums = sum_cells(*arrays)
    else:
        sums = exact_sums(*arrays)
    return Summary(Sizes.of(counts, times), class_squares=sums[0], cluster_squares=sums[1], inertia=sums[2])


def _sum_repeated(rows: Codes, cols: Codes, counts: Codes, row_totals: Codes, col_totals: Codes, times: Codes) -> Sums:
    """Split multiplicities into digits small enough that the compiled sums of all cells stay within 64 bits."""
    width = 30 - counts.size.bit_length()
    parts, shift = [], 0
    while counts.size and (times >> shift).any():
        digit = (times >> shift) & ((1 << width) - 1)
        *sides, inertia = sum_cells(rows, cols, counts, row_totals, col_totals, digit)
        by_class, by_cluster = ({size: squares * (1 << shift) for size, squares in side.items()} for side in sides)
        parts.append((by_class, by_cluster, inertia << shift))
        shift += width
    return _add_sums(part[0] for part in parts), _add_sums(part[1] for part in parts), sum(part[2] for part in parts)


def aligned_sum(left: Sizes, right: Sizes) -> Number:
    """Σ over k of the product of the k-th largest sizes of both sides: the best matching of a table of products.

    Examples
    --------
    >>> aligned_sum(Sizes.of(np.array([1, 5, 2])), Sizes.of(np.array([10, 3])))
    56
    """
    result: Number = 0
    ours, theirs = list(left.pairs()), list(right.pairs())
    while ours and theirs:
        (a, m), (b, k) = ours.pop(), theirs.pop()
        both = min(m, k)
        result += a * b * both
        if m > both:
            ours.append((a, m - both))
        if k > both:
            theirs.append((b, k - both))
    return result
