"""The coarse grid of block counts: a bin is a prefix of the score's code, as long as the number of bins permits.

`streameval.states.scores.blocks` explains why grids chosen from different rows merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks.grid import codes
from streameval.kernels.jit import read_only

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["sampled_codes", "shift_for"]

_SAMPLE = 1 << 14  # rows from which the prefix length is chosen, at first and whenever bins run out


def sampled_codes(scores: Array) -> Array:
    """Codes of the first 16,384 scores, without those that are NaN; a uint64 array."""
    some = scores[:_SAMPLE]
    found: Array = codes(read_only(some[~np.isnan(some)].astype(np.float64)))
    return found


def shift_for(prefixes: Array, most: int) -> int:
    """The number of low bits to drop so that at most `most` of the prefixes stay distinct.

    Parameters
    ----------
    prefixes : uint64 array of shape (n,), ascending and distinct
    most : largest number of distinct prefixes afterwards, at least 1

    Examples
    --------
    >>> shift_for(np.array([0b000, 0b001, 0b100], np.uint64), 2)
    1
    """
    if prefixes.size <= most:
        return 0
    differing = prefixes[1:] ^ prefixes[:-1]  # neighbours become equal once their highest differing bit is dropped
    bits = np.zeros(differing.size, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        higher = differing >> np.uint64(step) > 0
        bits += step * higher
        differing = np.where(higher, differing >> np.uint64(step), differing)
    apart = np.sort(bits + 1)[::-1]  # each pair stays distinct while fewer bits are dropped
    return int(apart[most - 1])
