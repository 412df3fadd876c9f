"""Find the rows in clusters that several groups share.

Rows are gathered bucket by bucket with the number of their group. Two passes over a bucket find the slots, chosen by
some bits of the key, that rows of several groups share; a row in any other slot is in no shared cluster. The keys of
the remaining rows enter a hash table with the group they were first met in, or `_SHARED` once another group has them.
Then the rows of shared keys are counted by group.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.keyed.sizes import LARGEST, table_bits
from streameval.kernels.keys import ID_BUCKETS

__all__ = ["collect_rows", "count_shared"]

_SHARED = np.int64(-1)
_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_ONE, _HALF, _WORD = np.uint64(1), np.uint64(32), np.uint64(64)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_MARKS = 4  # least number of slots for each marked row
_PATIENCE = 32  # mean probes per row; more suggest that keys were chosen to collide


@jit
def collect_rows(words, rest, counts, pieces, buckets, group, cursor, out, out_rest, out_counts, owners):
    """Move the pieces of a segment of one group to the cursors of their buckets, and advance the cursors.

    Piece j is rows ``pieces[j]`` to ``pieces[j + 1]`` of the segment, of bucket ``buckets[j]``. `rest` and `counts` may
    be empty; a row without a count counts 1. ``owners[i]`` becomes the group of row i.
    """
    first = pieces[0]
    for j in range(buckets.size):
        at = np.uint64(cursor[buckets[j]])
        for i in range(pieces[j] - first, pieces[j + 1] - first):
            out[at] = words[i]
            owners[at] = group
            for c in range(out_rest.shape[1]):
                out_rest[at, c] = rest[i, c]
            if out_counts.size:
                out_counts[at] = counts[i] if counts.size else 1
            at += _ONE
        cursor[buckets[j]] = at


@inlined
def _place(words, rest, i, keys, seconds, bits):
    """The place of a row's key in the table, or the free place for it, and the number of probes."""
    mask, steps = (_ONE << bits) - _ONE, np.int64(0)
    key = (words[i] << _ONE) | _ONE  # the lost bit is the same for a whole bucket
    mixed = key
    for c in range(rest.shape[1]):
        mixed = (mixed ^ (mixed >> _HALF)) * _SPREAD + rest[i, c]
    at = ((mixed ^ (mixed >> _HALF)) * _SPREAD) >> (_WORD - bits)
    while keys[at]:
        same = keys[at] == key
        for c in range(rest.shape[1]):
            same &= seconds[at, c] == rest[i, c]
        if same:
            break
        at = (at + _ONE) & mask
        steps += 1
    return at, steps


@step
def _keep_shared(words, owners, start, stop, shift, marks, kept):
    """List the rows whose slot holds rows of several groups, so their key may too; returns how many there are."""
    for i in range(start, stop):
        slot = (words[i] << _BUCKET_BITS) >> shift
        mark = owners[i] + 1
        marks[slot] = mark if marks[slot] == 0 or marks[slot] == mark else _SHARED
    n = 0
    for i in range(start, stop):
        kept[n] = i
        n += marks[(words[i] << _BUCKET_BITS) >> shift] == _SHARED
    return n


@jit
def count_shared(words, rest, counts, owners, starts, first, shared):
    """Count the rows of each group whose key occurs in several groups, from bucket `first` on.

    Parameters
    ----------
    words, rest : uint64 arrays of shapes (n,) and (n, n_further), the keys
    counts : int64 array of shape (n,); empty where each row counts one
    owners : int32 array of shape (n,), the group of each row
    starts : int64 array of shape (n_buckets + 1,)
    first : number of the first bucket to count
    shared : int64 array of shape (n_groups,), added to

    Returns
    -------
    stop : the first bucket that was not counted, because it has more than `LARGEST` rows or colliding keys
    """
    most = np.int64(0)
    for b in range(first, starts.size - 1):
        most = max(most, min(starts[b + 1] - starts[b], LARGEST))
    marks, kept = np.empty(1 << table_bits(_MARKS * most), np.int32), np.empty(most + 1, np.int64)
    keys, held = np.empty(1 << table_bits(2 * most), np.uint64), np.empty(1 << table_bits(2 * most), np.int32)
    seconds = np.empty((held.size, rest.shape[1]), np.uint64)
    for b in range(first, starts.size - 1):
        items = starts[b + 1] - starts[b]
        if items > LARGEST:
            return b
        bits = table_bits(_MARKS * items)
        marks[: 1 << bits] = 0
        n = _keep_shared(words, owners, starts[b], starts[b + 1], _WORD - bits, marks, kept)
        bits = table_bits(2 * n)
        keys[: 1 << bits] = 0
        steps = np.int64(0)
        for k in range(n):
            i = kept[k]
            at, more = _place(words, rest, i, keys, seconds, bits)
            steps += more
            if not keys[at]:
                keys[at], held[at] = (words[i] << _ONE) | _ONE, owners[i]
                for c in range(rest.shape[1]):
                    seconds[at, c] = rest[i, c]
            elif held[at] != owners[i]:
                held[at] = _SHARED
            if steps > _PATIENCE * (k + 64):
                return b
        for k in range(n):
            i = kept[k]
            at, _ = _place(words, rest, i, keys, seconds, bits)
            if held[at] == _SHARED:
                shared[owners[i]] += counts[i] if counts.size else 1
    return starts.size - 1
