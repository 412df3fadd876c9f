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
    find_or_last,
    grown,
    write,
)
from streameval.kernels.jit import jit


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
