"""Assign units to blocks by a keyed hash."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit

_K = np.uint64(0x243F6A8885A308D3)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


@inlined
def _hashed(word):
    """The keyed hash of a word: MurmurHash3's finalizer."""
    word ^= _K
    word = (word ^ (word >> _SHIFT)) * _FIRST
    word = (word ^ (word >> _SHIFT)) * _SECOND
    return word ^ (word >> _SHIFT)


@inlined
def hashed_block(word, count):
    """Block of a unit, from its word. Powers of two as `count` need no division."""
    if count & (count - np.uint64(1)) == 0:
        return np.int64(_hashed(word) & (count - np.uint64(1)))
    return np.int64(_hashed(word) % count)


@jit
def row_blocks(first, rows, file, count):
    """Block of each of consecutive rows of a file, as uint16; every row is a unit, and `count` is at most 65,536."""
    out, blocks = np.empty(rows, np.uint16), np.uint64(count)
    for i in range(rows):
        out[i] = hashed_block(_hashed(np.uint64(first + i)) ^ file, blocks)
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
