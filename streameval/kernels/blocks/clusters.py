"""Loops over clusters in blocks.

A *cell* holds the rows of one cluster in one block. Its key is the mixed id of the cluster without the ten bits below
the highest bit, which the bucket fixes; the remaining bits move up, and the block takes the ten lowest bits. So cells
of one word sort like rows of plain clusters, and the cells of a cluster are adjacent.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.blocks.changes import hashed_block
from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import ID_BUCKETS, MIX

BLOCK_BITS = ID_BUCKETS.bit_length() - 2  # bits of the number of a bucket, without the highest

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
    """Block of a cell's cluster as a separate unit; `fixed` has the bits of the mixed id that the key lacks."""
    return hashed_block((fixed | ((key >> _BITS) & _LOW)) * _UNMIX, blocks)


@jit
def encode_cells(ids, second, blocks, label, words, codes):
    """Encode rows by the id of their cluster and their block.

    `second` holds the second words of the ids, or is empty; the second words of the keys overwrite it.
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
    """Group sorted words (see `streameval.states.keyed.grouping.LabelledWords`) into cells, bucket by bucket.

    Returns the keys shifted left by one, their negatives and positives, and the index of each bucket's first cell.
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
    """Index of the first cell of each cluster, followed by the number of cells.

    Keys are shifted left by `shift`; `second` has their second words, or is empty. Buckets begin at `starts`.
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
    """Block of each cluster as a separate unit, as an int64 array.

    Parameters
    ----------
    keys, bounds, starts, shift : as `cell_bounds` takes and returns them
    fixed : uint64 array, the bits of mixed ids that the keys of each bucket lack; the highest may be in the keys
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
    """Rows by block and label, as `count_lone_cells`, where each cluster is a unit.

    Words are in the order of `sorted_cells`; bucket j goes from ``bounds[j]`` to ``bounds[j + 1]``, and its keys lack
    the bits ``fixed[j]``.
    """
    found, blocks = np.zeros((count, 2), np.int64), np.uint64(count)
    for j in range(bounds.size - 1):
        for i in range(bounds[j], bounds[j + 1]):
            found[_own_block(words[i] >> _ONE, fixed[j], blocks), words[i] & _ONE] += 1
    return found


@jit
def count_rows(blocks, label, count):
    """Rows by block and label, as an int64 array of shape (count, 2)."""
    found = np.zeros((count, 2), np.int64)
    for i in range(blocks.size):
        found[blocks[i], np.int64(label[i])] += 1
    return found


@jit
def count_lone_cells(words, count):
    """Rows by block and label, as an int64 array of shape (count, 2), from `sorted_cells` words in any order."""
    found = np.zeros((count, 2), np.int64)
    for i in range(words.size):
        found[(words[i] >> _ONE) & _BLOCK, words[i] & _ONE] += 1
    return found


@jit
def count_lone_units(words, top, count):
    """As `count_lone_cells`, for words of plain clusters: blocks are hashed from the ids; `top` is the missing bit."""
    found, blocks = np.zeros((count, 2), np.int64), np.uint64(count)
    for i in range(words.size):
        found[hashed_block(((words[i] >> _ONE) | top) * _UNMIX, blocks), words[i] & _ONE] += 1
    return found
