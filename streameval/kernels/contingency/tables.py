"""Hash tables that number the distinct keys of one bucket in order of first appearance.

A table is an array of slots with linear probing; a slot holds the number of a key, or −1. The keys are rows of another
array: a word and further words. The table is cleared for each bucket. Its size follows the number of distinct keys, not
of rows, so it stays in cache.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.prefetch import word_at

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
FIRST_BITS = 6  # log2 of the size of a new table


def slots_for(starts: np.ndarray) -> np.ndarray:
    """An array with room for the table of the largest bucket: a power of two, at least twice its rows.

    Examples
    --------
    >>> slots_for(np.array([0, 3, 8])).size, slots_for(np.array([0, 1000])).size
    (64, 2048)
    """
    largest = int(np.diff(starts).max(initial=0))
    return np.empty(1 << max((2 * largest - 1).bit_length(), FIRST_BITS), np.int32)


@inlined
def hashed(word, rest, i, columns, bits):
    """Slot of a key."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + rest[i, c]
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@inlined
def hash_at(word, rest, first, columns, bits):
    """As `hashed`; the further words are those from number `first` on at address `rest`."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + word_at(rest, first + c)
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@inlined
def equal(table, at, rest, i, start, stop):
    """Whether the further words from `start` to `stop` of row i equal those stored in row `at` of the table."""
    same = True
    for c in range(start, stop):
        same = same and table[at, np.uint64(1 + c)] == rest[i, np.uint64(c)]
    return same


@inlined
def find(word, rest, i, columns, keys, slots, bits):
    """The slot with a key's number, or the free slot where the number belongs."""
    mask = np.uint64((1 << bits) - 1)
    at = np.uint64(hashed(word, rest, i, columns, bits))
    k = slots[at]
    while k >= 0 and not (keys[np.uint64(k), 0] == word and equal(keys, np.uint64(k), rest, i, 0, columns)):
        at = (at + np.uint64(1)) & mask
        k = slots[at]
    return at


@inlined
def find_or_last(word, rest, i, columns, keys, last, slots, bits):
    """As `find`, and the key's number, which is `last` if the key is new; ``keys[last]`` must be the key itself.

    No branch depends on whether the key is new. That is faster if many keys have few rows.
    """
    mask = np.uint64((1 << bits) - 1)
    at = np.uint64(hashed(word, rest, i, columns, bits))
    k = np.uint64(slots[at]) if slots[at] >= 0 else last
    while not (keys[k, 0] == word and equal(keys, k, rest, i, 0, columns)):
        at = (at + np.uint64(1)) & mask
        k = np.uint64(slots[at]) if slots[at] >= 0 else last
    return at, k


@inlined
def write(word, rest, i, columns, keys, k):
    """Write the words of row i as key k."""
    keys[k, 0] = word
    for c in range(columns):
        keys[k, np.uint64(1 + c)] = rest[i, np.uint64(c)]


@inlined
def crowded(keys, slots, bits):
    """Whether a table with this many keys must grow."""
    return 4 * keys > (1 << bits) and (1 << bits) < slots.size


@jit
def cleared(slots, rows, bits):
    """Clear the table for a bucket; it shrinks if the bucket has few rows. Returns the bits of a slot."""
    while bits > FIRST_BITS and (1 << bits) > 4 * rows:
        bits -= 1
    slots[: 1 << bits] = -1
    return bits


@jit
def grown(keys, columns, start, stop, slots, bits):
    """Move the keys from `start` to `stop` to a larger table; returns the bits of a slot."""
    bits = bits + 2 if (4 << bits) <= slots.size else bits + 1
    slots[: 1 << bits] = -1
    more = keys[:, 1:]
    for k in range(start, stop):
        slots[find(keys[k, 0], more, k, columns, keys, slots, bits)] = k
    return bits
