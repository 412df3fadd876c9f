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
from streameval.kernels.keys import ID_BUCKETS, MIX

__all__ = [
    "add_margins",
    "emit_ones",
    "emit_others",
    "group_classes",
    "group_clusters",
    "number_keys",
    "slots_for",
    "split_lone",
    "tally_small",
]

_MIX = np.uint64(0xD6E8FEB86659FD93)
_ID_MIX = np.uint64(MIX)
_HALF = np.uint64(32)
_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
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
def split_lone(starts, words, rest, counts, column, marks, lone, more, kept):
    """Take out rows that are certainly alone in their cluster; returns how many, and how many rows are left.

    Two bits of `marks` for each of at least eight slots a row of a bucket say whether one row or several fell there,
    by the bits of the cluster's word below those of the bucket; of ten lone rows nine have a slot for themselves.
    ``lone`` takes the first words of their classes, `more` the others, both with room for one more; the rows left move
    to the front of their arrays, those of bucket b from ``kept[b]`` on. There are no branches to mispredict.
    """
    found, at = 0, 0
    for b in range(starts.size - 1):
        kept[b] = at
        bits = 5
        while (1 << bits) < 8 * (starts[b + 1] - starts[b]):
            bits += 1
        marks[: (1 << bits) >> 2] = 0
        shift = np.uint64(64 - bits)
        for i in range(starts[b], starts[b + 1]):
            slot = (words[i] << _BUCKET_BITS) >> shift
            bit = (slot & np.uint64(3)) << np.uint64(1)
            mark = marks[slot >> np.uint64(2)]
            again = (np.uint64(mark) >> bit) & np.uint64(1)
            if counts.size:
                again |= np.uint64(counts[i] > 1)
            marks[slot >> np.uint64(2)] = mark | np.uint8((np.uint64(1) | (again << np.uint64(1))) << bit)
        for i in range(starts[b], starts[b + 1]):
            slot = (words[i] << _BUCKET_BITS) >> shift
            bit = (slot & np.uint64(3)) << np.uint64(1)
            several = np.int64((np.uint64(marks[slot >> np.uint64(2)]) >> (bit + np.uint64(1))) & np.uint64(1))
            lone[found] = rest[i, column]
            for m in range(more.shape[1]):
                more[found, m] = rest[i, column + 1 + m]
            words[at] = words[i]
            for m in range(rest.shape[1]):
                rest[at, m] = rest[i, m]
            if counts.size:
                counts[at] = counts[i]
            found += 1 - several
            at += several
    kept[starts.size - 1] = at
    return found, at


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
        bits = _cleared(slots, one_starts[b + 1] - one_starts[b] + starts[b + 1] - starts[b])
        mask = (1 << bits) - 1
        before = classes
        for i in range(one_starts[b], one_starts[b + 1]):
            at = _hashed(ones[i], one_rest, i, columns, bits)
            k = slots[at]
            while k >= 0 and not (ones[found[k]] == ones[i] and _equal(one_rest, found[k], one_rest, i, columns)):
                at = (at + 1) & mask
                k = slots[at]
            if k < 0:
                k = classes
                slots[at] = k
                found[k] = i
                singles[k] = 0
                classes += 1
            singles[k] += one_counts[i] if one_counts.size else np.int64(1)
        for k in range(before, classes):
            totals[k] = singles[k]
            maxima[k] = 1
        middle = classes
        for i in range(starts[b], starts[b + 1]):
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


@jit
def emit_ones(rows, sizes, rest, column, start, shift, words, codes, more, counts):
    """Fill `words` with the classes of cells whose cluster has one row, from cell `start` on; returns the next cell.

    A cell has a row whose words from `column` on are its class, and its cluster's size. The first word is mixed, and
    its code counted, as ``encode_id`` does; the others go to `more`.
    """
    at = 0
    k = start
    while at < words.size:
        if sizes[k] == 1:
            i = rows[k]
            word = rest[i, column] * _ID_MIX
            code = np.uint32(word >> shift) << np.uint32(1)
            words[at] = word
            codes[at] = code
            counts[code] += 1
            for m in range(more.shape[1]):
                more[at, m] = rest[i, column + 1 + m]
            at += 1
        k += 1
    return k


@jit
def emit_others(rows, counts, sizes, owners, rest, column, packed, words, more):
    """Write the cells of clusters of several rows; returns how many.

    The words of the class are followed by count and size, in one word if `packed`, and, where `more` has room, by the
    words of the cluster: the row's first one, in `owners`, and its further words before `column`.
    """
    at = 0
    columns = rest.shape[1] - column - 1
    after = columns + (1 if packed else 2)
    for k in range(counts.size):
        if sizes[k] == 1:
            continue
        i, n, c = rows[k], np.uint64(counts[k]), np.uint64(sizes[k])
        words[at] = rest[i, column]
        for m in range(columns):
            more[at, m] = rest[i, column + 1 + m]
        if packed:
            more[at, columns] = (n << _HALF) | c
        else:
            more[at, columns] = n
            more[at, columns + 1] = c
        if more.shape[1] > after:
            more[at, after] = owners[i]
            for m in range(column):
                more[at, after + 1 + m] = rest[i, m]
        at += 1
    return at
