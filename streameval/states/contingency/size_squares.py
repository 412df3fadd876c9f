"""Σ n² over the cells of all classes, or of all clusters, of each size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streameval.states.contingency.size_counts import Number, Values

__all__ = ["SizeSquares"]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class SizeSquares:
    """Sum of the squared cells of all groups of one size.

    Parameters
    ----------
    sizes : int64 or object array of shape (distinct,)
        Distinct positive sizes, ascending.
    sums : int64 or object array of shape (distinct,)
        Positive sums. Object arrays hold integers beyond int64, fractions or floats.

    Examples
    --------
    >>> squares = SizeSquares.of(np.array([1, 2, 5]), np.array([3, 0, 17]))
    >>> dict(squares.merge(SizeSquares.from_mapping({5: 2**64})).pairs())
    {1: 3, 5: 18446744073709551633}
    """

    sizes: Values = field(default_factory=lambda: _NONE)
    sums: Values = field(default_factory=lambda: _NONE)

    @classmethod
    def of(cls, sizes: Values, sums: Values) -> SizeSquares:
        """Sums of distinct ascending sizes, both int64; zeros are left out."""
        kept = np.flatnonzero(sums)
        return cls(sizes[kept], sums[kept])

    @classmethod
    def from_mapping(cls, sums: Mapping[Number, Number]) -> SizeSquares:
        """Sums of Python numbers; zeros are left out."""
        items = sorted(item for item in sums.items() if item[1])
        return cls(_array([size for size, _ in items]), _array([total for _, total in items]))

    def pairs(self) -> Iterable[tuple[Number, Number]]:
        """Sizes with their sums, as Python numbers, ascending."""
        return zip(self.sizes.tolist(), self.sums.tolist(), strict=True)

    def merge(self, *others: SizeSquares) -> SizeSquares:
        """Sums of all parts."""
        parts = [part for part in (self, *others) if part.sizes.size]
        if len(parts) < 2:
            return parts[0] if parts else self
        kinds = {array.dtype.kind for part in parts for array in (part.sizes, part.sums)}
        if kinds == {"i"} and sum(int(part.sums.max()) for part in parts) < 2**63:
            sizes, position = np.unique(np.concatenate([part.sizes for part in parts]), return_inverse=True)
            sums = np.zeros(sizes.size, np.int64)
            np.add.at(sums, position, np.concatenate([part.sums for part in parts]))
            return SizeSquares.of(sizes, sums)
        added: defaultdict[Number, Number] = defaultdict(int)
        for part in parts:
            for size, total in part.pairs():
                added[size] += total
        return self.from_mapping(added)

    def scaled(self, times: int) -> SizeSquares:
        """Sums of several copies."""
        return self.from_mapping({size: total * times for size, total in self.pairs()})

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SizeSquares)
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.sums, other.sums)
        )

    def __hash__(self) -> int:
        return hash((self.sizes.size, str(self.sums[-1:])))


def _array(numbers: list[Number]) -> Values:
    if all(isinstance(number, int) and number < 2**63 for number in numbers):  # equal sums are equal arrays
        return np.array(numbers, dtype=np.int64)
    array = np.empty(len(numbers), dtype=object)
    array[:] = numbers
    return array
