"""Spread: how many groups have which value, for the deciles of groups (`streameval.metrics.scores.group_means`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.metrics.scores.sums import BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

__all__ = ["Spread", "bins_of"]

_BITS = 12  # bits of a value that determine its bin
_BIN = np.int64(-1 << (BITS - _BITS))  # keeps those bits


def bins_of(words: Array) -> Array:
    """The bins of values, from 0 to 4,096 for the value 1."""
    bins: Array = words >> (BITS - _BITS)
    return bins


class Spread(NamedTuple):
    """How many groups have which value.

    Attributes
    ----------
    words : distinct values in units of 2⁻⁶², ascending
    counts : groups of each value
    exact : whether values are not rounded down to the lower ends of bins

    Examples
    --------
    >>> half, one = 1 << (BITS - 1), 1 << BITS
    >>> spread = Spread.joined([Spread.of(np.array([one, half + 1, one])), Spread.of(np.array([half]))])
    >>> spread.counts.tolist(), spread.bounded(2).counts.tolist(), bins_of(spread.bounded(2).words).tolist()
    ([1, 1, 2], [2, 2], [2048, 4096])
    """

    words: Array
    counts: Array
    exact: bool = True

    @classmethod
    def of(cls, words: Array) -> Spread:
        """Count groups by their values."""
        return cls(*np.unique(words, return_counts=True))

    @classmethod
    def joined(cls, spreads: Sequence[Spread]) -> Spread:
        """The groups of several; in bins if those of one are."""
        none, exact = np.zeros(0, np.int64), all(each.exact for each in spreads)
        words, counts = (np.concatenate([none, *(each[i] for each in spreads)]) for i in range(2))
        words, places = np.unique(words if exact else words & _BIN, return_inverse=True)
        found = np.zeros(words.size, np.int64)
        np.add.at(found, places, counts)
        return cls(words, found, exact)

    def bounded(self, most: int) -> Spread:
        """The same, in bins if there are more than `most` values."""
        return self if self.words.size <= most else Spread.joined([self._replace(exact=False)])
