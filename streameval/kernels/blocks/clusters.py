"""Loops over clusters in blocks.

A *cell* holds the rows of one cluster in one block. Its key is the cluster's mixed id without the ten bits below the
highest bit, which the bucket fixes. The remaining bits move up, and the block takes the ten lowest bits. One-word cells
therefore sort like rows of plain clusters, and the cells of a cluster are adjacent.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.blocks.changes import hashed_block
from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import ID_BUCKETS, MIX

__all__ = [
    "BLOCK_BITS",
    "cell_bounds",
    "cluster_blocks",
    "count_lone_cells",
    "count_lone_clusters",
    "count_lone_units",
    "count_rows",
    "encode_cells",
    "sorted_cells",
]

BLOCK_BITS = ID_BUCKETS.bit_length() - 2  # bits of a bucket's number, without the highest

_MIX = np.uint64(MIX)
_UNMIX = np.uint64(pow(MIX, -1, 1 << 64))
_BITS = np.uint64(BLOCK_BITS)
_FREE = np.uint64(64 - BLOCK_BITS)
_BLOCK = np.uint64((1 << BLOCK_BITS) - 1)
_TOP = np.uint64(1 << 63)
_CODE = np.uint64(63 - BLOCK_BITS)
_LOW = np.uint64((1 << (63 - BLOCK_BITS)) - 1)
_ONE = np.uint64(1)


@inlined
def _own_block(key, fixed, blocks):
    """The block of the cluster of a cell as a separate unit; `fixed` has the bits of its mixed id that keys lack."""
    return hashed_block((fixed | ((key >> _BITS) & _LOW)) * _UNMIX, blocks)


@jit
def encode_cells(ids, second, blocks, label, words, codes):
    """Encode rows by the id of their cluster and their block.

    `second` has the second words of ids, or is empty; it is overwritten with those of the keys.
    """
    for i in range(ids.size):
        mixed, low = ids[i] * _MIX, np.uint64(blocks[i])
        if second.size:
            low = second[i] >> _FREE
            second[i] = (second[i] << _BITS) | np.uint64(blocks[i])
        words[i] = (mixed & _TOP) | ((mixed << _BITS) & ~_TOP) | low
        codes[i] = (np.uint32(mixed >> _CODE) << np.uint32(1)) | np.uint32(label[i])


@jit
def sorted_cells(words, bounds):
    """Cells of rows, sorted as `streameval.states.keyed.grouping.Labelled` words, bucket by bucket.

    Returns the keys shifted left by one, their negatives and positives, and the first cell of each bucket.
    """
    keys, starts = np.empty(words.size, np.uint64), np.empty(bounds.size, np.int64)
    neg, pos = np.empty(words.size, np.int64), np.empty(words.size, np.int64)
    n = 0
    for j in range(bounds.size - 1):
        starts[j] = n
        rows = positives = np.int64(0)
        for i in range(bounds[j], bounds[j + 1]):
            rows += 1
            positives += np.int64(words[i] & _ONE)
            keys[n] = words[i] & ~_ONE
            neg[n] = rows - positives
            pos[n] = positives
            last = np.int64(1)
            if i + 1 < bounds[j + 1]:
                last = np.int64((words[i] ^ words[i + 1]) > _ONE)
            n += last
            rows &= last - 1  # 0 after the last row
            positives &= last - 1
    starts[bounds.size - 1] = n
    return keys[:n], neg[:n], pos[:n], starts


@jit
def cell_bounds(keys, second, starts, shift):
    """The first cell of each cluster, and one beyond the last.

    Keys are shifted left by `shift`; `second` has their second words, or is empty. A bucket begins at each of `starts`.
    """
    bounds = np.empty(keys.size + 1, np.int64)
    n = 0
    one = second.size == 0
    above = np.uint64(shift) + (_BITS if one else np.uint64(0))
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
def cluster_blocks(keys, bounds, starts, fixed, shift, count):
    """The block of each cluster as a separate unit, an int64 array.

    Parameters
    ----------
    keys, bounds, starts, shift : as `cell_bounds` takes and returns them
    fixed : uint64 array, for each bucket the bits of mixed ids that its keys lack; the highest may be in the keys
    count : number of blocks
    """
    out, blocks, n = np.empty(bounds.size - 1, np.int64), np.uint64(count), 0
    for j in range(starts.size - 1):
        while n < out.size and bounds[n] < starts[j + 1]:
            key = keys[bounds[n]] >> np.uint64(shift)
            out[n] = _own_block(key, fixed[j] | (key & _TOP), blocks)
            n += 1
    return out


@jit
def count_lone_clusters(words, bounds, fixed, count):
    """As `count_lone_cells`, of `sorted_cells` words bucket by bucket, by the blocks of clusters as units.

    `fixed` has the bits that keys lack for each bucket, which goes from one of `bounds` to the next.
    """
    found, blocks = np.zeros((count, 2), np.int64), np.uint64(count)
    for j in range(bounds.size - 1):
        for i in range(bounds[j], bounds[j + 1]):
            found[_own_block(words[i] >> _ONE, fixed[j], blocks), words[i] & _ONE] += 1
    return found


@jit
def count_rows(blocks, label, count):
    """Rows by block and label, an int64 array of shape (count, 2)."""
    found = np.zeros((count, 2), np.int64)
    for i in range(blocks.size):
        found[blocks[i], np.int64(label[i])] += 1
    return found


@jit
def count_lone_cells(words, count):
    """Rows by block and label, an int64 array of shape (count, 2), of `sorted_cells` words in any order."""
    found = np.zeros((count, 2), np.int64)
    for i in range(words.size):
        found[(words[i] >> _ONE) & _BLOCK, words[i] & _ONE] += 1
    return found


@jit
def count_lone_units(words, top, count):
    """As `count_lone_cells`, for words of plain clusters; blocks follow from the ids, and `top` is the lost bit."""
    found, blocks = np.zeros((count, 2), np.int64), np.uint64(count)
    for i in range(words.size):
        found[hashed_block(((words[i] >> _ONE) | top) * _UNMIX, blocks), words[i] & _ONE] += 1
    return found
