"""Numbering equal keys, and taking cells apart: the loops behind the contingency state.

Cells are counted without sorting: a hash table in cache, with linear probing, gives every distinct key a number in the
order of first appearance. Equal keys may come in any order and any number, so one giant cluster costs no more than many
small ones. The numbers differ between orders; the sums taken over them do not.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["add_margins", "emit_cells", "number_keys"]

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


@jit
def number_keys(words, rest, columns, slots, numbers, found):  # type: ignore[no-untyped-def]
    """Number the distinct keys, words and the first `columns` further words; returns how many there are.

    `slots` is an int32 array of a power of two elements, more than there are keys. ``numbers[i]`` becomes the number of
    row i, ``found[k]`` the row in which key k came first.
    """
    bits = 0
    while (1 << bits) < slots.size:
        bits += 1
    shift, mask = np.uint64(64 - bits), slots.size - 1
    slots[:] = -1
    count = 0
    for i in range(words.size):
        word = words[i]
        hashed = word
        for c in range(columns):
            hashed = (hashed ^ (hashed >> _HALF)) * _MIX + rest[i, c]
        hashed = (hashed ^ (hashed >> _HALF)) * _MIX
        at = np.int64(hashed >> shift)
        while True:
            k = slots[at]
            if k < 0:
                slots[at] = count
                found[count] = i
                numbers[i] = count
                count += 1
                break
            j = found[k]
            same = words[j] == word
            for c in range(columns):
                same = same and rest[j, c] == rest[i, c]
            if same:
                numbers[i] = k
                break
            at = (at + 1) & mask
    return count


@jit
def add_margins(numbers, counts, times, totals, maxima):  # type: ignore[no-untyped-def]
    """Add counts to the totals of their numbers and note the largest; empty arrays stand for ones."""
    for i in range(numbers.size):
        n = counts[i] if counts.size else np.int64(1)
        k = numbers[i]
        totals[k] += n * times[i] if times.size else n
        maxima[k] = max(maxima[k], n)


@jit
def emit_cells(counts, clusters, totals, rest, column, ones, ones_rest, others, others_rest):  # type: ignore[no-untyped-def]
    """Split cells into those of one row that is alone in its cluster and the others; returns how many of each.

    The words of the class are those of `rest` from `column` on. The first kind is written as these words; the others are
    followed by the count n and the cluster's size c, in one word where `others_rest` has one column for both.
    """
    one, other = 0, 0
    more = ones_rest.shape[1]
    packed = others_rest.shape[1] == more + 1
    for k in range(counts.size):
        n, c = np.uint64(counts[k]), np.uint64(totals[clusters[k]])
        if c == 1:
            ones[one] = rest[k, column]
            for m in range(more):
                ones_rest[one, m] = rest[k, column + 1 + m]
            one += 1
            continue
        others[other] = rest[k, column]
        for m in range(more):
            others_rest[other, m] = rest[k, column + 1 + m]
        if packed:
            others_rest[other, more] = (n << _HALF) | c
        else:
            others_rest[other, more] = n
            others_rest[other, more + 1] = c
        other += 1
    return one, other
