"""Steps that sorts share: how many leading bits to look at together, sorting by a digit, and by insertion."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined

__all__ = ["DIGIT", "MOST_BITS", "SHORT", "by_digit", "insert", "shift_of"]

SHORT = 16  # items that are sorted by insertion
DIGIT = 0xFF  # the largest digit of `by_digit`
MOST_BITS = 13  # of words that are looked at together: 2¹³ places stay in the cache

_EACH = 1  # base-2 logarithm of the items of a place, about
_ONE = np.uint64(1)
_MASK = np.uint32(DIGIT)


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


@inlined
def by_digit(given, taken, a, b, shift, places):
    """Move words of 32 bits to the order of the digit of 8 bits at `shift`, stably."""
    places[:] = 0
    for i in range(a, b):
        places[(given[i] >> shift) & _MASK] += 1
    before = a
    for digit in range(places.size):
        before, places[digit] = before + places[digit], before
    for i in range(a, b):
        digit = (given[i] >> shift) & _MASK
        taken[np.uint64(places[digit])] = given[i]
        places[digit] += 1
