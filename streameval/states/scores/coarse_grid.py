"""The coarse grid of block counts: bins are prefixes of the codes of scores, as long as there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks.grid import codes
from streameval.kernels.jit import read_only

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["sampled_codes", "shift_for"]

_SAMPLE = 1 << 14  # rows that set the length of prefixes, first or when bins run out


def sampled_codes(scores: Array) -> Array:
    """Codes of the first scores that are not missing."""
    some = scores[:_SAMPLE]
    found: Array = codes(read_only(some[~np.isnan(some)].astype(np.float64)))
    return found


def shift_for(prefixes: Array, most: int) -> int:
    """The bits to take off so that at most `most` of the ascending distinct prefixes stay distinct."""
    if prefixes.size <= most:
        return 0
    differing = prefixes[1:] ^ prefixes[:-1]  # two neighbours are one once all bits up to their highest difference go
    bits = np.zeros(differing.size, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        higher = differing >> np.uint64(step) > 0
        bits += step * higher
        differing = np.where(higher, differing >> np.uint64(step), differing)
    apart = np.sort(bits + 1)[::-1]  # the pair stays apart while fewer bits are taken off
    return int(apart[most - 1])
