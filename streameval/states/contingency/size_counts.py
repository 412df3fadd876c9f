"""Histograms of sizes: how often each cell count, class size or cluster size occurs.

N points have at most √(2N) distinct sizes, so a histogram of 10⁸ cluster sizes has a few thousand entries. Sums over it
are exact: Python integers of any size, or fractions; only fractional float64 sizes give floats.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.contingency.tables import tally_small
from streameval.kernels.ranking import sum_of_products

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Number = int | float | Fraction
Values = NDArray[Any]

_SMALL = 1 << 16


@dataclass(frozen=True, eq=False)
class Sizes:
    """How often each size occurs.

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
        if times is not None:
            return cls._repeated(sizes, times)
        if sizes.dtype.kind == "O":
            return cls._from_counter(Counter(size for size in sizes.tolist() if size))
        if sizes.dtype.kind == "f":
            values, times = np.unique(sizes[sizes > 0], return_counts=True)
            return cls(values, times.astype(np.int64))
        small = np.zeros(min(_SMALL, int(sizes.max(initial=0)) + 1), np.int64)
        larger = tally_small(sizes, small)
        low = np.flatnonzero(small[1:]) + 1
        high, times = np.unique(sizes[sizes >= _SMALL] if larger else sizes[:0], return_counts=True)
        return cls(np.concatenate([low, high]).astype(np.int64), np.concatenate([small[low], times]).astype(np.int64))

    @classmethod
    def _repeated(cls, sizes: Values, times: NDArray[np.int64]) -> Sizes:
        small = np.zeros(min(_SMALL, int(sizes.max(initial=0)) + 1), np.int64)
        low = sizes < _SMALL
        np.add.at(small, sizes[low], times[low])
        found = np.flatnonzero(small[1:]) + 1
        values, position = np.unique(sizes[~low], return_inverse=True)
        large = np.zeros(values.size, np.int64)
        np.add.at(large, position, times[~low])
        return cls(np.concatenate([found, values[large > 0]]), np.concatenate([small[found], large[large > 0]]))

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

    def scaled(self, times: int) -> Sizes:
        """Histogram of `times` copies.

        Examples
        --------
        >>> Sizes.repeat(5, 2).scaled(3).times.tolist()
        [6]
        """
        return Sizes(self.values, self.times * times)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sizes)
            and np.array_equal(self.values, other.values)
            and np.array_equal(self.times, other.times)
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.values.size, self.count, self.largest))


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
