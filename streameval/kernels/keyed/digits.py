"""Steps that sorts share: choosing how many leading bits to use, sorting by one digit, and insertion sort."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined

__all__ = ["DIGIT", "MOST_BITS", "SHORT", "by_digit", "insert", "shift_of"]

SHORT = 16  # items that are sorted by insertion
DIGIT = 0xFF  # largest digit of `by_digit`
MOST_BITS = 13  # largest number of leading bits used at once: 2¹³ places stay in the cache

_EACH = 1  # log2 of the mean number of items of a place
_ONE = np.uint64(1)
_MASK = np.uint32(DIGIT)


@inlined
def _bit_length(value):
    """Number of bits of a number."""
    bits = 0
    while value:
        value >>= _ONE
        bits += 1
    return bits


@inlined
def shift_of(items, spread):
    """By how many bits to shift numbers up to `spread`, so that each place gets about two of the items."""
    bits = min(max(2, _bit_length(np.uint64(items)) - _EACH), MOST_BITS)
    return np.uint64(max(0, _bit_length(spread) - bits))


@inlined
def insert(words, a, b, low):
    """Sort the words from a to b by their bits from `low` on, stably, by insertion."""
    for i in range(a + 1, b):
        word, at = words[i], i
        while at > a and words[at - 1] >> low > word >> low:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word


@inlined
def by_digit(given, taken, a, b, shift, places):
    """Sort 32-bit words stably by their 8-bit digit at `shift`, from `given` to `taken`."""
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
