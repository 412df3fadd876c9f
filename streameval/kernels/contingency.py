"""Grouping rows into cells, clusters and classes without sorting: the loops behind the contingency state.

Rows come bucket by bucket, ``starts[b]`` the first of each, and equal keys lie in one bucket. A hash table with linear
probing, made anew for each bucket, stays in cache and gives every distinct key a number in the order of first
appearance. Equal keys may come in any order and any number, so a giant cluster costs no more than many small ones. The
numbers differ between orders; the sums taken over them do not.

Most clusters have rows of one class only: the class of a cluster's first row is counted beside the cluster, and only
rows of other classes, its *strays*, take a second table.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = [
    "add_margins",
    "group_classes",
    "group_clusters",
    "number_keys",
    "slots_for",
    "tally_small",
]

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def slots_for(starts: np.ndarray) -> np.ndarray:
    """A hash table for the largest bucket: a power of two, at least twice its rows.

    Examples
    --------
    >>> slots_for(np.array([0, 3, 8])).size
    16
    """
    largest = int(np.diff(starts).max(initial=0))
    return np.empty(1 << max(2 * largest - 1, 1).bit_length(), np.int32)


@jit
def _cleared(slots, rows):
    """Clear as many slots as so many rows need; returns the bits of their number."""
    bits = 1
    while (1 << bits) < 2 * rows:
        bits += 1
    slots[: 1 << bits] = -1
    return bits


@jit
def _hashed(word, rest, i, columns, bits):
    """Slot of a key."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + rest[i, c]
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@jit
def _equal(one, i, two, j, columns):
    """Whether row i of one array equals row j of another in the first columns."""
    same = True
    for c in range(columns):
        same = same and one[i, c] == two[j, c]
    return same


@jit
def number_keys(starts, words, rest, columns, slots, numbers, found):
    """Number the distinct keys, words and the first `columns` further words; returns how many there are.

    ``numbers[i]`` becomes the number of row i, ``found[k]`` the row in which key k came first.
    """
    count = 0
    for b in range(starts.size - 1):
        bits = _cleared(slots, starts[b + 1] - starts[b])
        mask = (1 << bits) - 1
        for i in range(starts[b], starts[b + 1]):
            at = _hashed(words[i], rest, i, columns, bits)
            k = slots[at]
            while k >= 0 and not (words[found[k]] == words[i] and _equal(rest, found[k], rest, i, columns)):
                at = (at + 1) & mask
                k = slots[at]
            if k < 0:
                k = count
                slots[at] = k
                found[k] = i
                count += 1
            numbers[i] = k
    return count


@jit
def group_clusters(starts, words, rest, counts, columns, slots, first, sizes, firsts, strays, owners, cuts):
    """Group rows by cluster; returns the numbers of clusters and of strays.

    A key is a word and further words: `columns` of the cluster, then those of the class. `counts` may be empty: ones.
    For cluster k, ``first[k]`` becomes its first row, ``sizes[k]`` its size and ``firsts[k]`` its rows of that row's
    class. ``strays[m]`` is a row of another class, ``owners[m]`` its cluster; those of bucket b begin at ``cuts[b]``.
    """
    clusters, stray = 0, 0
    for b in range(starts.size - 1):
        cuts[b] = stray
        bits = _cleared(slots, starts[b + 1] - starts[b])
        mask = (1 << bits) - 1
        for i in range(starts[b], starts[b + 1]):
            n = counts[i] if counts.size else np.int64(1)
            at = _hashed(words[i], rest, i, columns, bits)
            k = slots[at]
            while k >= 0 and not (words[first[k]] == words[i] and _equal(rest, first[k], rest, i, columns)):
                at = (at + 1) & mask
                k = slots[at]
            if k < 0:
                slots[at] = clusters
                first[clusters] = i
                sizes[clusters] = n
                firsts[clusters] = n
                clusters += 1
                continue
            sizes[k] += n
            if _equal(rest, first[k], rest, i, rest.shape[1]):
                firsts[k] += n
            else:
                strays[stray] = i
                owners[stray] = k
                stray += 1
    cuts[starts.size - 1] = stray
    return clusters, stray


@jit
def _group_ones(ones, rest, counts, start, stop, columns, slots, bits, found, totals, singles, maxima, classes):
    """Number the classes of the cells n = c = 1 of one bucket, from `classes` on; returns how many there are then."""
    mask = (1 << bits) - 1
    before = classes
    for i in range(start, stop):
        at = _hashed(ones[i], rest, i, columns, bits)
        k = slots[at]
        while k >= 0 and not (ones[found[k]] == ones[i] and _equal(rest, found[k], rest, i, columns)):
            at = (at + 1) & mask
            k = slots[at]
        if k < 0:
            k = classes
            slots[at] = k
            found[k] = i
            singles[k] = 0
            classes += 1
        singles[k] += counts[i] if counts.size else np.int64(1)
    for k in range(before, classes):
        totals[k] = singles[k]
        maxima[k] = 1
    return classes


@jit
def _class_of(ones, one_rest, others, rest, i, columns, slots, bits, found, middle):
    """Slot of the class of other cell i; classes below `middle` were found among the ones."""
    mask = (1 << bits) - 1
    at = _hashed(others[i], rest, i, columns, bits)
    k = slots[at]
    while k >= 0:
        j = found[k]
        if k < middle:
            if ones[j] == others[i] and _equal(one_rest, j, rest, i, columns):
                break
        elif others[j] == others[i] and _equal(rest, j, rest, i, columns):
            break
        at = (at + 1) & mask
        k = slots[at]
    return at


@jit
def group_classes(
    ones, one_rest, one_counts, one_starts, others, rest, counts, starts, columns, packed, slots,
    found, totals, singles, maxima, numbers, n, c,
):  # fmt: skip
    """Group cells by class, both kinds of cells at once; returns the number of classes.

    `ones` are classes of cells n = c = 1, `others` those of other cells, with n and c after the first `columns` further
    words, in one word if `packed`, or in two; counts may be empty: ones. ``totals[k]`` becomes the size of class k,
    ``singles[k]`` how many of its cells are ones, ``maxima[k]`` its largest cell; ``numbers[i]`` the class of other
    cell i, ``n[i]`` and ``c[i]`` its counts.
    """
    classes = 0
    for b in range(starts.size - 1):
        start, stop = one_starts[b], one_starts[b + 1]
        bits = _cleared(slots, stop - start + starts[b + 1] - starts[b])
        classes = _group_ones(
            ones, one_rest, one_counts, start, stop, columns, slots, bits, found, totals, singles, maxima, classes
        )
        middle = classes
        for i in range(starts[b], starts[b + 1]):
            at = _class_of(ones, one_rest, others, rest, i, columns, slots, bits, found, middle)
            k = slots[at]
            if k < 0:
                k = classes
                slots[at] = k
                found[k] = i
                totals[k], singles[k], maxima[k] = 0, 0, 0
                classes += 1
            word = rest[i, columns]
            n[i] = word >> _HALF if packed else word
            c[i] = word & _LOW if packed else rest[i, columns + 1]
            numbers[i] = k
            totals[k] += n[i] * counts[i] if counts.size else n[i]
            maxima[k] = max(maxima[k], n[i])
    return classes


@jit
def add_margins(numbers, counts, largest, totals, maxima):
    """Add counts to the totals of their numbers, and raise the maxima of these to the largest."""
    for i in range(numbers.size):
        k = numbers[i]
        totals[k] += counts[i]
        maxima[k] = max(maxima[k], largest[i])


@jit
def tally_small(sizes, table):
    """Count the sizes that the table has room for; returns how many are larger."""
    larger = 0
    for i in range(sizes.size):
        if sizes[i] < table.size:
            table[sizes[i]] += 1
        else:
            larger += 1
    return larger
