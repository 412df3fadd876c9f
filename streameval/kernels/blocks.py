"""Units in blocks: assign them by a keyed hash, and find the clusters of each block.

A *cell* holds the rows of one cluster in one block. Its key is the mixed id of the cluster without the ten bits below
the highest bit, which the bucket fixes; the remaining bits move up, and the block takes the ten lowest bits. So cells
of one word sort like rows of plain clusters, and the cells of a cluster are adjacent.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inline, jit
from streameval.kernels.keys import ID_BUCKETS

BLOCK_BITS = ID_BUCKETS.bit_length() - 2  # bits of the number of a bucket, without the highest

_BITS = np.uint64(BLOCK_BITS)
_K = np.uint64(0x243F6A8885A308D3)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


@inline
def _hashed(word):
    """The keyed hash of a word: MurmurHash3's finalizer."""
    word ^= _K
    word = (word ^ (word >> _SHIFT)) * _FIRST
    word = (word ^ (word >> _SHIFT)) * _SECOND
    return word ^ (word >> _SHIFT)


@inline
def hashed_block(word, count):
    """Block of a unit, from its word. Powers of two as `count` need no division."""
    if count & (count - np.uint64(1)) == 0:
        return np.int64(_hashed(word) & (count - np.uint64(1)))
    return np.int64(_hashed(word) % count)


@jit
def row_blocks(first, rows, kept, file, count):
    """Block of each row of a file, as uint16; every row is a unit, and `count` is at most 65,536.

    Rows are consecutive, or those at the offsets `kept` from the first, unless that is empty.
    """
    out, blocks = np.empty(rows, np.uint16), np.uint64(count)
    for i in range(rows):
        row = first + (kept[i] if kept.size else i)
        out[i] = hashed_block(_hashed(np.uint64(row)) ^ file, blocks)
    return out


@jit
def unit_blocks(words, count):
    """Block of each unit, from its word, as uint16; `count` is at most 65,536."""
    out, blocks = np.empty(words.size, np.uint16), np.uint64(count)
    for i in range(words.size):
        out[i] = hashed_block(words[i], blocks)
    return out


@jit
def spread_rows(word, rows, out):
    """Count `rows` rows by block; every row is a unit. Row k has the word ``_hashed(k) ^ word``."""
    for k in range(rows):
        out[hashed_block(_hashed(np.uint64(k)) ^ word, np.uint64(out.size))] += 1


@jit
def lone_blocks(words, rows, blocks):
    """Rows by block of units of one row each; cluster i has ``words[i]`` and ``rows[i]`` such units.

    Returns three int64 arrays, ordered by cluster: the cluster i, the block, and its rows.
    """
    found, counts = 0, np.zeros(blocks, np.int64)
    for i in range(rows.size):
        found += min(rows[i], blocks)
    owners, at, each = np.empty(found, np.int64), np.empty(found, np.int64), np.empty(found, np.int64)
    n = 0
    for i in range(rows.size):
        if not rows[i]:
            continue
        counts[:] = 0
        spread_rows(words[i], rows[i], counts)
        for b in range(blocks):
            if counts[b]:
                owners[n], at[n], each[n] = i, b, counts[b]
                n += 1
    return owners[:n], at[:n], each[:n]


@jit
def cell_bounds(keys, second, starts):
    """Index of the first cell of each cluster, followed by the number of cells.

    `second` has the second words of the keys, or is empty. Buckets begin at `starts`.
    """
    bounds = np.empty(keys.size + 1, np.int64)
    n = 0
    one = second.size == 0
    above = _BITS if one else np.uint64(0)
    for j in range(starts.size - 1):
        for i in range(starts[j], starts[j + 1]):
            same = i > starts[j] and keys[i] >> above == keys[i - 1] >> above
            if same and not one:
                same = second[i] >> _BITS == second[i - 1] >> _BITS
            if not same:
                bounds[n] = i
                n += 1
    bounds[n] = keys.size
    return bounds[: n + 1].copy()


@jit
def count_rows(blocks, label, count):
    """Rows by block and label, as an int64 array of shape (count, 2)."""
    found = np.zeros((count, 2), np.int64)
    for i in range(blocks.size):
        found[blocks[i], np.int64(label[i])] += 1
    return found
