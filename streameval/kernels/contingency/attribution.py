"""Find the rows of a few clusters and classes, and the largest cells of each."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import ID_BUCKETS, MIX

_MIX = np.uint64(MIX)
_HALF = np.uint64(32)
_SPARSE = 9  # the table has 2⁹ entries for each word, within the limits below
_FEWEST, _MOST = ID_BUCKETS.bit_length() - 1, 16  # log2 of its least and its largest size


def mark_table(words: np.ndarray) -> np.ndarray:
    """A filter for a few words: a table of marks, indexed by the top bits of the hash of a word.

    A word without a mark is none of the given words. A word with a mark may be another word with the same index: the
    table is large enough to make that rare, and small enough to stay in the first-level cache.

    Parameters
    ----------
    words : uint64 array of shape (n,)

    Returns
    -------
    uint8 array, 1 where a word has its mark; its size is a power of two

    Examples
    --------
    >>> table = mark_table(np.array([3, 5], np.uint64))
    >>> table.size, marked(np.array([4, 5, 3, 6], np.uint64), table)
    (2048, array([1, 2]))
    """
    bits = min(max(words.size.bit_length() + _SPARSE, _FEWEST), _MOST)
    table = np.zeros(1 << bits, np.uint8)
    table[(words * _MIX) >> np.uint64(64 - bits)] = 1
    return table


@inlined
def _shift(table):
    """How far a mixed word is shifted right to give its index in the table."""
    bits = 0
    while (1 << bits) < table.size:
        bits += 1
    return np.uint64(64 - bits)


@jit
def marked(words, marks):
    """Positions of the words whose entry in `marks` (see `mark_table`) is set, as an int64 array."""
    found, shift = np.empty(words.size, np.int64), _shift(marks)
    n = 0
    for i in range(words.size):
        found[n] = i
        n += marks[(words[i] * _MIX) >> shift]
    return found[:n].copy()


@jit
def marked_rows(codes, starts, words, rest, column, clusters, classes):
    """Positions of the rows of label 0 whose cluster or class has a mark.

    Parameters
    ----------
    codes, starts : code and first row of each piece (see `streameval.states.keyed.layout.Segment`)
    words : uint64 array of shape (n,), the first word of each row's cluster, mixed
    rest : uint64 array of shape (n, n_further), the further words; column `column` holds the first word of the class
    clusters, classes : tables of marks (see `mark_table`)

    Returns
    -------
    int64 array
    """
    found, one, other = np.empty(words.size, np.int64), _shift(clusters), _shift(classes)
    n, near = 0, clusters.size // ID_BUCKETS
    for p in range(codes.size):
        bucket = np.int64(codes[p] >> 1)
        if codes[p] & 1:
            continue
        if clusters[bucket * near : (bucket + 1) * near].any():
            for i in range(starts[p], starts[p + 1]):
                found[n] = i
                n += (clusters[words[i] >> one] | classes[(rest[i, column] * _MIX) >> other]) != 0
        else:
            for i in range(starts[p], starts[p + 1]):
                found[n] = i
                n += classes[(rest[i, column] * _MIX) >> other] != 0
    return found[:n].copy()


@inlined
def _slot(ids, i, shift):
    """Slot of id i in a hash table."""
    word = ids[i, 0] * _MIX
    for c in range(1, ids.shape[1]):
        word = ((word ^ (word >> _HALF)) + ids[i, c]) * _MIX
    return word >> shift


@inlined
def _same(ids, i, others, k):
    """Whether two ids are equal."""
    same = True
    for c in range(ids.shape[1]):
        same = same and ids[i, c] == others[k, c]
    return same


@jit
def positions(groups, ids):
    """Position of each id in `groups`, or −1; uint64 arrays of shape (n, n_words), the groups distinct."""
    size = 4
    while size < 2 * len(groups):
        size *= 2
    slots, found = np.full(size, -1, np.int32), np.empty(len(ids), np.int64)
    shift, mask = _shift(slots), np.uint64(size - 1)
    for k in range(len(groups)):
        at = _slot(groups, k, shift)
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = k
    for i in range(len(ids)):
        at = _slot(ids, i, shift)
        while slots[at] >= 0 and not _same(ids, i, groups, slots[at]):
            at = (at + np.uint64(1)) & mask
        found[i] = slots[at]
    return found


@jit
def keep_largest(group, ids, rows, flip, kept, kept_ids, kept_rows):
    """Keep the largest cells of each group in descending order; equal cells rank by ascending id.

    Parameters
    ----------
    group : int64 array of shape (n_cells,), the group of each cell
    ids : uint64 array of shape (n_cells, n_words)
    rows : int64 array of shape (n_cells,)
    flip : uint64, mask of the bits of the first word that are flipped before ids are compared
    kept : int64 array of shape (n_groups,), number of cells kept so far
    kept_ids : uint64 array of shape (n_groups, most, n_words)
    kept_rows : int64 array of shape (n_groups, most)
    """
    most, words = kept_rows.shape[1], ids.shape[1]
    for i in range(group.size):
        g, n = group[i], rows[i]
        at = kept[g]
        while at > 0 and _before(n, ids, i, kept_rows[g, at - 1], kept_ids, g, at - 1, flip):
            at -= 1
        if at == most:
            continue
        last = min(kept[g], most - 1)
        for j in range(last, at, -1):
            kept_rows[g, j] = kept_rows[g, j - 1]
            for c in range(words):
                kept_ids[g, j, c] = kept_ids[g, j - 1, c]
        kept_rows[g, at] = n
        for c in range(words):
            kept_ids[g, at, c] = ids[i, c]
        kept[g] = last + 1


@inlined
def _before(n, ids, i, rows, kept, g, at, flip):
    """Whether a cell of n rows ranks before a kept cell."""
    if n != rows:
        return n > rows
    if ids[i, 0] != kept[g, at, 0]:
        return (ids[i, 0] ^ flip) < (kept[g, at, 0] ^ flip)
    for c in range(1, ids.shape[1]):
        if ids[i, c] != kept[g, at, c]:
            return ids[i, c] < kept[g, at, c]
    return False
