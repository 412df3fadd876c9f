"""Number and count keys without sorting, for the contingency state.

Rows come bucket by bucket: bucket b begins at ``starts[b]``, and equal keys lie in one bucket. A hash table with
linear probing, cleared for each bucket, numbers the distinct keys in order of first appearance. Its size follows the
number of distinct keys, not of rows, so it stays in cache, and a giant cluster costs no more than many small ones. The
numbers depend on the order of the rows; sums over them do not.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.contingency.tables import (
    FIRST_BITS,
    cleared,
    crowded,
    equal,
    find_or_last,
    grown,
    hashed,
    write,
)
from streameval.kernels.jit import jit
from streameval.kernels.prefetch import prefetch

_AHEAD = 32  # rows between prefetching a cache line of a large table and using it


@jit
def number_keys(starts, words, rest, further, slots, keys, numbers, found):
    """Number the distinct keys, made of a word and the first ``len(further)`` further words; returns their number.

    Outputs: ``numbers[i]``, the number of the key of row i; ``found[k]``, the first row with key k; ``keys[k]``, its
    words. `further` is a tuple because the compiler knows its length and unrolls the loop over it, which halves the
    time.
    """
    columns, count, bits = len(further), np.uint64(0), np.int64(FIRST_BITS)
    for b in range(starts.size - 1):
        first, bits = np.int64(count), cleared(slots, starts[b + 1] - starts[b], bits)
        for i in range(starts[b], starts[b + 1]):
            write(words[i], rest, i, columns, keys, count)
            found[count] = i
            at, k = find_or_last(words[i], rest, i, columns, keys, count, slots, bits)
            slots[at] = k
            numbers[i] = k
            count += np.uint64(k == count)
            if crowded(np.int64(count) - first, slots, bits):
                bits = grown(keys, columns, first, np.int64(count), slots, bits)
    return np.int64(count)


@jit
def count_dense(ids, table, others):
    """Count the ids that are indices of `table`; `others` takes the rows of other ids. Returns how many these are."""
    found, size = 0, np.uint64(table.size)
    for i in range(ids.size):
        if ids[i] < size:
            table[ids[i]] += 1
        else:
            others[found] = i
            found += 1
    return found


@jit
def count_keys(words, rest, counts, further, table, used, room):
    """Count keys in a table until it holds more than `room` keys; returns the rows counted and the number of keys.

    Each row of `table` holds the words of a key and its count; the count of a free row is 0. The number of rows is a
    power of two, and `used` rows are occupied. Keys have ``len(further)`` further words; empty `counts` mean 1 each.
    """
    columns, last = len(further), table.shape[1] - 1
    bits, mask, width = 0, np.uint64(table.shape[0] - 1), np.int64(table.shape[1])
    while (1 << bits) < table.shape[0]:
        bits += 1
    for i in range(words.size):
        ahead = min(i + _AHEAD, words.size - 1)
        prefetch(table, hashed(words[ahead], rest, ahead, columns, bits) * width)
        at = np.uint64(hashed(words[i], rest, i, columns, bits))
        while table[at, last] and not (table[at, 0] == words[i] and equal(table, at, rest, i, 0, columns)):
            at = (at + np.uint64(1)) & mask
        used += table[at, last] == 0
        table[at, 0] = words[i]
        for c in range(columns):
            table[at, 1 + c] = rest[i, c]
        table[at, last] += np.uint64(counts[i]) if counts.size else np.uint64(1)
        if used > room:
            return i + 1, used
    return words.size, used


@jit
def counted_keys(table, words, rest, counts):
    """Copy the keys and counts of a table of `count_keys` to arrays with room for all of them."""
    found, last = 0, table.shape[1] - 1
    for at in range(table.shape[0]):
        if table[at, last]:
            words[found] = table[at, 0]
            for c in range(rest.shape[1]):
                rest[found, c] = table[at, 1 + c]
            counts[found] = table[at, last]
            found += 1


@jit
def add_margins(numbers, counts, largest, totals, maxima):
    """Add each count to the total of its number, and update the maximum of the number with ``largest[i]``."""
    for i in range(numbers.size):
        k = numbers[i]
        totals[k] += counts[i]
        maxima[k] = max(maxima[k], largest[i])


@jit
def tally_small(sizes, table):
    """Count the sizes that are indices of `table`; returns the number of larger sizes."""
    larger = 0
    for i in range(sizes.size):
        if sizes[i] < table.size:
            table[sizes[i]] += 1
        else:
            larger += 1
    return larger
