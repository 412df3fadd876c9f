"""Pairs within groups, for the attribution of a loss to single clusters and classes.

A group of b rows has b·(b − 1)/2 pairs, which is within 64 bits for fewer than 2³² rows.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import ID_BUCKETS, MIX

__all__ = ["add_parts", "add_shares", "keep_largest", "marked", "marked_rows", "marks_of", "positions"]

_MIX = np.uint64(MIX)
_HALF = np.uint64(32)
_SPARSE = 9  # bits of a table of marks beyond those of its number of words
_FEWEST, _MOST = ID_BUCKETS.bit_length() - 1, 16  # bits of such a table: some entries for each bucket


@inlined
def _pairs(n):
    """Pairs of n rows, even where n·(n − 1) exceeds 63 bits."""
    return (n // 2) * (n - 1) if n % 2 == 0 else n * ((n - 1) // 2)


@jit
def add_parts(numbers, rows, times, parts, agreeing):
    """Add cells to the groups that they are parts of.

    Cell i has ``rows[i]`` rows and stands for ``times[i]`` equal cells (1 if `times` is empty). Group ``numbers[i]``
    gains that number of `parts`, and their pairs in `agreeing`.
    """
    for i in range(numbers.size):
        k, t = numbers[i], times[i] if times.size else 1
        parts[k] += t
        agreeing[k] += t * _pairs(rows[i])


@jit
def add_shares(numbers, rows, sizes, times, pure, joined):
    """As `add_parts`, for cells that fill their cluster: adds their rows to `pure`, and their pairs to `joined`."""
    for i in range(numbers.size):
        if rows[i] == sizes[i]:
            k, t = numbers[i], times[i] if times.size else 1
            pure[k] += t * rows[i]
            joined[k] += t * _pairs(rows[i])


def marks_of(words: np.ndarray) -> np.ndarray:
    """A table of marks by the top bits of the mixed word, set for a few words: a quick test whether a word is one.

    It is as small as leaves few other words marked, so that it stays in the first-level cache.

    Examples
    --------
    >>> table = marks_of(np.array([3, 5], np.uint64))
    >>> table.size, marked(np.array([4, 5, 3, 6], np.uint64), table)
    (2048, array([1, 2]))
    """
    bits = min(max(words.size.bit_length() + _SPARSE, _FEWEST), _MOST)
    table = np.zeros(1 << bits, np.uint8)
    table[(words * _MIX) >> np.uint64(64 - bits)] = 1
    return table


@inlined
def _shift(table):
    """The bits of a mixed word below those that choose its entry."""
    bits = 0
    while (1 << bits) < table.size:
        bits += 1
    return np.uint64(64 - bits)


@jit
def marked(words, marks):
    """Positions of the words whose entry in `marks` (`marks_of`) is set."""
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
    codes, starts : the pieces of the rows (`streameval.states.keyed.layout.Segment`)
    words, rest : mixed first word of each row's cluster, and further words; that at `column` is the class's first word
    clusters, classes : tables of marks (`marks_of`)

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
    """Slot of an id."""
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
    """Position of each id among the distinct ids of some groups, −1 for others; uint64 arrays of shape (n, n_words)."""
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
    """Keep the largest cells of each group in order, of equal cells those with the smaller ids.

    Parameters
    ----------
    group : int64 array of shape (n_cells,)
    ids : uint64 array of shape (n_cells, n_words)
    rows : int64 array of shape (n_cells,)
    flip : uint64, bits of the first word that are flipped before ids are compared
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
    """Whether a cell of n rows ranks before one that is kept."""
    if n != rows:
        return n > rows
    if ids[i, 0] != kept[g, at, 0]:
        return (ids[i, 0] ^ flip) < (kept[g, at, 0] ^ flip)
    for c in range(1, ids.shape[1]):
        if ids[i, c] != kept[g, at, c]:
            return ids[i, c] < kept[g, at, c]
    return False
