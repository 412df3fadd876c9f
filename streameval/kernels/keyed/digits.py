"""Steps that sorts share: choosing how many leading bits to use, sorting by two digits, and insertion sort.

`sort_bucket` sorts the rows of a bucket in 2 to 3 ns each. NumPy's vectorized sort takes up to 20 on processors that
are slow to store the part of a vector that a mask selects, such as AMD's Zen 4.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined

SHORT = 16  # items that are sorted by insertion
DIGIT = 0xFF  # largest digit of `by_two_digits`
MOST_BITS = 13  # largest number of leading bits used at once: 2¹³ places stay in the cache

_SOME = 64  # words up to which a bucket is sorted by one digit, then by insertion
_EACH = 1  # log2 of the mean number of items of a place
_ONE = np.uint64(1)
_MASK, _BITS = np.uint32(DIGIT), np.uint32(8)


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
def by_two_digits(words, spare, a, b, shift, places):
    """Sort 32-bit words stably by the 16 bits at `shift`, 8 at a time; `places` is scratch for the places of digits."""
    places[:] = 0
    for i in range(a, b):
        places[0, np.uint64((words[i] >> shift) & _MASK)] += 1
        places[1, np.uint64((words[i] >> (shift + _BITS)) & _MASK)] += 1
    low, high = a, a
    for digit in range(places.shape[1]):
        low, places[0, digit] = low + places[0, digit], low
        high, places[1, digit] = high + places[1, digit], high
    for i in range(a, b):
        digit = np.uint64((words[i] >> shift) & _MASK)
        spare[np.uint64(places[0, digit])] = words[i]
        places[0, digit] += 1
    for i in range(a, b):
        digit = np.uint64((spare[i] >> (shift + _BITS)) & _MASK)
        words[np.uint64(places[1, digit])] = spare[i]
        places[1, digit] += 1


@inlined
def _by_one_digit(words, spare, size, places):
    """Sort the first `size` words by the 8 leading bits of their spread, then by insertion."""
    low = high = words[0]
    for i in range(1, size):
        low, high = min(low, words[i]), max(high, words[i])
    shift = np.uint32(0)
    while (high - low) >> shift > _MASK:
        shift += np.uint32(1)
    places[:] = 0
    for i in range(size):
        places[np.uint64((words[i] - low) >> shift)] += 1
    end = 0
    for digit in range(places.size):
        end, places[digit] = end + places[digit], end
    for i in range(size):
        digit = np.uint64((words[i] - low) >> shift)
        spare[np.uint64(places[digit])] = words[i]
        places[digit] += 1
    words[:size] = spare[:size]
    insert(words, 0, size, np.uint32(0))


@inlined
def sort_bucket(words, spare, size, shift, places):
    """Sort the first `size` words, of 32 bits, which differ in the 16 bits at `shift` and perhaps below.

    Words with equal bits from `shift` on stay in their order or are sorted by the bits below. `spare` is scratch of at
    least `size` words, and `places`, an int64 array of shape (2, `DIGIT` + 1), for the places of digits.
    """
    if size <= SHORT:
        insert(words, 0, size, np.uint32(0))
    elif size <= _SOME:
        _by_one_digit(words, spare, size, places[0])
    else:
        by_two_digits(words, spare, 0, size, shift, places)
