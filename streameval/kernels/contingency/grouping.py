"""Group rows into cells, clusters and classes without sorting, for the contingency state.

Rows come bucket by bucket: bucket b begins at ``starts[b]``, and equal keys lie in one bucket. A hash table with
linear probing, cleared for each bucket, numbers the distinct keys in order of first appearance. Its size follows the
number of distinct keys, not of rows, so it stays in cache, and a giant cluster costs no more than many small ones. The
numbers depend on the order of the rows; sums over them do not.

Most clusters have rows of one class only. Therefore rows of the same class as the first row of their cluster are
counted with the cluster, and only rows of other classes, its *strays*, go to a second table.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.contingency.tables import (
    FIRST_BITS,
    cleared,
    crowded,
    equal,
    find,
    find_or_last,
    grown,
    hashed,
    write,
)
from streameval.kernels.jit import jit
from streameval.kernels.prefetch import prefetch

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
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
def group_clusters(
    starts, words, rest, counts, cluster, class_, slots, clusters, first, firsts, sizes, strays, owners, cuts
):  # fmt: skip
    """Group rows by cluster; returns the number of clusters and the number of strays.

    A key is a word and further words: ``len(cluster)`` words of the cluster, then ``len(class_)`` of the class. The
    compiler knows these lengths and unrolls the loops over them, which halves the time. Empty `counts` mean 1 each.

    Outputs: for cluster k, its first row ``first[k]``, the number ``firsts[k]`` of its rows with the class of that row,
    and the number ``sizes[k]`` of all its rows; ``clusters[k]`` takes the words of the first row and both counts.
    ``strays[m]`` is a row of another class, ``owners[m]`` its cluster; the strays of bucket b begin at ``cuts[b]``.
    """
    columns, width = len(cluster), 1 + len(cluster) + len(class_)
    found, stray, one, bits = np.uint64(0), np.uint64(0), np.uint64(1), np.int64(FIRST_BITS)
    for b in range(starts.size - 1):
        cuts[b] = stray
        bits = cleared(slots, starts[b + 1] - starts[b], bits)
        before, j, stop = found, np.uint64(starts[b]), np.uint64(starts[b + 1])
        while j < stop:
            room = before + np.uint64((1 << bits) >> 2) if (1 << bits) < slots.size else np.uint64(words.size)
            while j < stop and found <= room:
                i = j
                j += one
                word, n = words[i], np.uint64(counts[i]) if counts.size else one
                at = find(word, rest, i, columns, clusters, slots, bits)
                if slots[at] < 0:
                    slots[at] = found
                    clusters[found, 0] = word
                    for c in range(width - 1):
                        clusters[found, 1 + c] = rest[i, c]
                    clusters[found, width] = n
                    clusters[found, width + 1] = n
                    first[found] = i
                    found += one
                    continue
                k = np.uint64(slots[at])
                same = equal(clusters, k, rest, i, columns, width - 1)
                clusters[k, width] += n * np.uint64(same)
                clusters[k, width + 1] += n
                strays[stray] = i
                owners[stray] = k
                stray += np.uint64(not same)
            if j < stop:
                bits = grown(clusters, columns, np.int64(before), np.int64(found), slots, bits)
        for k in range(before, found):
            firsts[k] = clusters[k, width]
            sizes[k] = clusters[k, width + 1]
    cuts[starts.size - 1] = stray
    return np.int64(found), np.int64(stray)


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
def group_classes(
    classes, class_rest, class_counts, class_starts, others, rest, counts, starts, further, packed, slots,
    keys, totals, singles, maxima, numbers, n, c,
):  # fmt: skip
    """Group cells by class; returns the number of classes.

    `classes` holds the class of each singleton cell (n = c = 1), `others` the class of each other cell. A class has
    ``1 + len(further)`` words; in `others`, n and c follow them, in one word if `packed`, else in two. Empty counts
    mean 1 each.

    Outputs: for class k, its size ``totals[k]``, its number of singleton cells ``singles[k]``, its largest cell
    ``maxima[k]`` and its words ``keys[k]``; for other cell i, its class ``numbers[i]`` and its counts ``n[i]`` and
    ``c[i]``.
    """
    columns, found, bits = len(further), np.uint64(0), np.int64(FIRST_BITS)
    for b in range(starts.size - 1):
        rows = class_starts[b + 1] - class_starts[b] + starts[b + 1] - starts[b]
        first, bits = np.int64(found), cleared(slots, rows, bits)
        for i in range(class_starts[b], class_starts[b + 1]):
            write(classes[i], class_rest, i, columns, keys, found)
            totals[found] = singles[found] = maxima[found] = 0
            at, k = find_or_last(classes[i], class_rest, i, columns, keys, found, slots, bits)
            slots[at] = k
            found += np.uint64(k == found)
            singles[k] += class_counts[i] if class_counts.size else np.int64(1)
            maxima[k] = 1
            if crowded(np.int64(found) - first, slots, bits):
                bits = grown(keys, columns, first, np.int64(found), slots, bits)
        for i in range(starts[b], starts[b + 1]):
            write(others[i], rest, i, columns, keys, found)
            totals[found] = singles[found] = maxima[found] = 0
            at, k = find_or_last(others[i], rest, i, columns, keys, found, slots, bits)
            slots[at] = k
            found += np.uint64(k == found)
            word = rest[i, columns]
            n[i] = word >> _HALF if packed else word
            c[i] = word & _LOW if packed else rest[i, columns + 1]
            numbers[i] = k
            totals[k] += n[i] * counts[i] if counts.size else n[i]
            maxima[k] = max(maxima[k], n[i])
            if crowded(np.int64(found) - first, slots, bits):
                bits = grown(keys, columns, first, np.int64(found), slots, bits)
        for k in range(first, np.int64(found)):
            totals[k] += singles[k]
    return np.int64(found)


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
