"""Steps that sorts share: how many leading bits to look at together, and sorting a few words by insertion."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined

__all__ = ["MOST_BITS", "SHORT", "insert", "shift_of"]

SHORT = 16  # items that are sorted by insertion
MOST_BITS = 13  # of words that are looked at together: 2¹³ places stay in the cache

_EACH = 1  # base-2 logarithm of the items of a place, about
_ONE = np.uint64(1)


@inlined
def _bit_length(value):
    """Bits of a number."""
    bits = 0
    while value:
        value >>= _ONE
        bits += 1
    return bits


@inlined
def shift_of(items, spread):
    """The bits of numbers up to `spread` below their leading digit, by which about two of the items come to a place."""
    bits = min(max(2, _bit_length(np.uint64(items)) - _EACH), MOST_BITS)
    return np.uint64(max(0, _bit_length(spread) - bits))


@inlined
def insert(words, a, b, low):
    """Sort a few words by their bits from `low` on, stably."""
    for i in range(a + 1, b):
        word, at = words[i], i
        while at > a and words[at - 1] >> low > word >> low:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word
