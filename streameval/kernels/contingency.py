"""Grouping rows into cells, clusters and classes without sorting: the loops behind the contingency state.

Rows come bucket by bucket, ``starts[b]`` the first of each, and equal keys lie in one bucket. A hash table with linear
probing, made anew for each bucket, gives every distinct key a number in the order of first appearance. It grows with
the distinct keys, not with the rows, so it stays in cache, and a giant cluster costs no more than many small ones. The
numbers differ between orders; the sums taken over them do not.

Most clusters have rows of one class only: the class of a cluster's first row is counted beside the cluster, and only
rows of other classes, its *strays*, take a second table.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit

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
_FIRST_BITS = 6  # of a new table


def slots_for(starts: np.ndarray) -> np.ndarray:
    """Room for the table of the largest bucket: a power of two, at least twice its rows.

    Examples
    --------
    >>> slots_for(np.array([0, 3, 8])).size, slots_for(np.array([0, 1000])).size
    (64, 2048)
    """
    largest = int(np.diff(starts).max(initial=0))
    return np.empty(1 << max((2 * largest - 1).bit_length(), _FIRST_BITS), np.int32)


@inlined
def _hashed(word, rest, i, columns, bits):
    """Slot of a key."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + rest[i, c]
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@inlined
def _equal(one, i, two, j, columns):
    """Whether row i of one array equals row j of another in the first columns."""
    same = True
    for c in range(columns):
        same = same and one[i, c] == two[j, c]
    return same


@inlined
def _find(word, rest, i, columns, keys, more, slots, bits):
    """The slot that has a key's number, or the free one that is to have it."""
    mask = (1 << bits) - 1
    at = _hashed(word, rest, i, columns, bits)
    k = slots[at]
    while k >= 0 and not (keys[k] == word and _equal(more, k, rest, i, columns)):
        at = (at + 1) & mask
        k = slots[at]
    return at


@jit
def _cleared(slots):
    """Begin a table; returns the bits of its number of slots."""
    slots[: 1 << _FIRST_BITS] = -1
    return _FIRST_BITS


@jit
def _insert(word, rest, i, columns, keys, more, first, k, slots, at, bits):
    """Give number k to a new key whose slot is `at`; those of the table begin at `first`. Returns the table's bits."""
    slots[at] = k
    keys[k] = word
    for c in range(columns):
        more[k, c] = rest[i, c]
    if 4 * (k + 1 - first) <= (1 << bits) or (1 << bits) == slots.size:
        return bits
    bits = bits + 2 if (4 << bits) <= slots.size else bits + 1
    slots[: 1 << bits] = -1
    for j in range(first, k + 1):
        slots[_find(keys[j], more, j, columns, keys, more, slots, bits)] = j
    return bits


@jit
def number_keys(starts, words, rest, columns, slots, keys, more, numbers, found):
    """Number the distinct keys, words and the first `columns` further words; returns how many there are.

    ``numbers[i]`` becomes the number of row i, ``found[k]`` the row in which key k came first; `keys` and `more` take
    the words of key k.
    """
    count = 0
    for b in range(starts.size - 1):
        first, bits = count, _cleared(slots)
        for i in range(starts[b], starts[b + 1]):
            at = _find(words[i], rest, i, columns, keys, more, slots, bits)
            k = slots[at]
            if k < 0:
                k = count
                bits = _insert(words[i], rest, i, columns, keys, more, first, k, slots, at, bits)
                found[k] = i
                count += 1
            numbers[i] = k
    return count


@jit
def group_clusters(
    starts, words, rest, counts, columns, slots, keys, more, first, sizes, firsts, strays, owners, cuts
):  # fmt: skip
    """Group rows by cluster; returns the numbers of clusters and of strays.

    A key is a word and further words: `columns` of the cluster, then those of the class. `counts` may be empty: ones.
    For cluster k, ``first[k]`` becomes its first row, ``sizes[k]`` its size and ``firsts[k]`` its rows of that row's
    class. ``strays[m]`` is a row of another class, ``owners[m]`` its cluster; those of bucket b begin at ``cuts[b]``.
    `keys` and `more` take the words of cluster k.
    """
    clusters, stray = 0, 0
    for b in range(starts.size - 1):
        cuts[b] = stray
        before, bits = clusters, _cleared(slots)
        for i in range(starts[b], starts[b + 1]):
            n = counts[i] if counts.size else np.int64(1)
            at = _find(words[i], rest, i, columns, keys, more, slots, bits)
            k = slots[at]
            if k < 0:
                bits = _insert(words[i], rest, i, columns, keys, more, before, clusters, slots, at, bits)
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
def group_classes(
    ones, one_rest, one_counts, one_starts, others, rest, counts, starts, columns, packed, slots,
    keys, more, totals, singles, maxima, numbers, n, c,
):  # fmt: skip
    """Group cells by class, both kinds of cells at once; returns the number of classes.

    `ones` are classes of cells n = c = 1, `others` those of other cells, with n and c after the first `columns` further
    words, in one word if `packed`, or in two; counts may be empty: ones. ``totals[k]`` becomes the size of class k,
    ``singles[k]`` how many of its cells are ones, ``maxima[k]`` its largest cell; ``numbers[i]`` the class of other
    cell i, ``n[i]`` and ``c[i]`` its counts. `keys` and `more` take the words of class k.
    """
    classes = 0
    for b in range(starts.size - 1):
        first, bits = classes, _cleared(slots)
        for i in range(one_starts[b], one_starts[b + 1]):
            at = _find(ones[i], one_rest, i, columns, keys, more, slots, bits)
            k = slots[at]
            if k < 0:
                k = classes
                bits = _insert(ones[i], one_rest, i, columns, keys, more, first, k, slots, at, bits)
                singles[k] = 0
                classes += 1
            singles[k] += one_counts[i] if one_counts.size else np.int64(1)
        for k in range(first, classes):
            totals[k] = singles[k]
            maxima[k] = 1
        for i in range(starts[b], starts[b + 1]):
            at = _find(others[i], rest, i, columns, keys, more, slots, bits)
            k = slots[at]
            if k < 0:
                k = classes
                bits = _insert(others[i], rest, i, columns, keys, more, first, k, slots, at, bits)
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
