"""Which rows lie in clusters that several groups have a part of.

The rows of a bucket are looked at twice: first every cluster's key is entered in a hash table with the group that it
was met in, or with `SHARED` once another one has it; then the rows of shared clusters are counted by group.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keyed.sizes import LARGEST
from streameval.kernels.prefetch import word_at

__all__ = ["count_shared"]

_SHARED = np.uint64(0)
_ONE, _HALF, _WORD = np.uint64(1), np.uint64(32), np.uint64(64)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_PATIENCE = 32  # steps for each row, on average, after which keys are taken to collide on purpose
_KEY, _GROUP, _FURTHER = np.uint64(0), np.uint64(1), np.uint64(2)  # columns of a table


@inlined
def _found(rows, r, i, further, width, table, bits):
    """Where the key of a row is in the table, or would be, and the steps to get there."""
    mask, steps = (_ONE << bits) - _ONE, np.int64(0)
    key = (word_at(rows.words[r], i) << _ONE) | _ONE
    mixed = key
    for c in range(len(further)):
        mixed = (mixed ^ (mixed >> _HALF)) * _SPREAD + word_at(rows.rest[r], i * width + c)
    at = ((mixed ^ (mixed >> _HALF)) * _SPREAD) >> (_WORD - bits)
    while table[at, _KEY]:
        same = table[at, _KEY] == key
        for c in range(len(further)):
            same &= table[at, _FURTHER + np.uint64(c)] == word_at(rows.rest[r], i * width + c)
        if same:
            break
        at = (at + _ONE) & mask
        steps += 1
    return at, steps


@jit
def count_shared(rows, groups, further, width, first, shared):
    """Add the rows of each group in clusters of several groups, bucket by bucket, from bucket `first` on.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of the buckets; the rows of a run are of one group
    groups : int64 array of shape (n_runs,), the group of each run
    further : tuple as long as a cluster's key has further words
    width : further words of a row, at least as many
    first : number of the first bucket to count
    shared : int64 array of shape (n_groups,), added to

    Returns
    -------
    stop : the first bucket that is not counted, as it has more than `LARGEST` items or keys that collide
    """
    buckets, most = (rows.starts.shape[1] - 1) // 2, np.int64(0)
    for b in range(first, buckets):
        most = max(most, min(_items(rows.starts, b), LARGEST))
    table = np.empty((np.int64(1) << np.int64(_bits(2 * most)), 2 + len(further)), np.uint64)
    for b in range(first, buckets):
        items = _items(rows.starts, b)
        bits = _bits(2 * items)
        if items > LARGEST or not _entered(rows, b, groups, further, width, table, bits):
            return b
        for r in range(groups.size):
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
                at, _ = _found(rows, r, i, further, width, table, bits)
                if table[at, _GROUP] == _SHARED:
                    shared[groups[r]] += np.int64(word_at(rows.counts[r], i)) if rows.counts[r] else 1
    return buckets


@inlined
def _entered(rows, b, groups, further, width, table, bits):
    """Enter the clusters of a bucket; whether they do not collide too often."""
    for at in range(np.int64(1) << np.int64(bits)):
        table[at, _KEY] = 0
    steps, seen = np.int64(0), np.int64(64)
    for r in range(groups.size):
        group = np.uint64(groups[r] + 1)
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
            at, more = _found(rows, r, i, further, width, table, bits)
            steps += more
            seen += 1
            if not table[at, _KEY]:
                table[at, _KEY], table[at, _GROUP] = (word_at(rows.words[r], i) << _ONE) | _ONE, group
                for c in range(len(further)):
                    table[at, _FURTHER + np.uint64(c)] = word_at(rows.rest[r], i * width + c)
            elif table[at, _GROUP] != group:
                table[at, _GROUP] = _SHARED
        if steps > _PATIENCE * seen:
            return False
    return True


@inlined
def _items(starts, b):
    """Items of a bucket, over all runs."""
    items = np.int64(0)
    for r in range(starts.shape[0]):
        items += starts[r, 2 * b + 2] - starts[r, 2 * b]
    return items


@inlined
def _bits(slots):
    """Base-2 logarithm of the size of a table with room for `slots` slots, at least 3."""
    bits = 3
    while (1 << bits) < slots:
        bits += 1
    return np.uint64(bits)
