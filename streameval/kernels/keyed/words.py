"""Count the 16-bit words of whole buckets by label, straight from the segments: no row is gathered or sorted.

The table has one entry per word and fits into the second-level cache. For a small bucket, a bitmap records the entries
in use, so that only those are read.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.prefetch import lowest_bit, short_at, word_at
from streameval.kernels.singletons import items_of

__all__ = ["WORDS", "tally_words"]

WORDS = 1 << 16

_SPARSE = 1 << 12  # buckets with fewer items record their words in the bitmap
_ONE, _LOW, _HALF = np.uint64(1), np.uint64(0xFFFFFFFF), np.uint64(32)
_BITS, _INSIDE = np.uint64(6), np.uint64(63)


@inlined
def _count(rows, code, label, table):
    """Add the items of a code to the table: negatives to the lower half of an entry, positives to the upper half."""
    shift = _HALF * np.uint64(label)
    for r in range(rows.starts.shape[0]):
        words, counts = rows.words[r], rows.counts[r]
        for i in range(rows.starts[r, code], rows.starts[r, code + 1]):
            table[short_at(words, i)] += (word_at(counts, i) if counts else _ONE) << shift


@inlined
def _note(rows, b, seen):
    """Set the bits of a bucket's words."""
    for r in range(rows.starts.shape[0]):
        words = rows.words[r]
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
            word = short_at(words, i)
            seen[word >> _BITS] |= _ONE << (word & _INSIDE)


@jit
def tally_words(rows, bucket, first, room, table, seen):
    """Distinct keys of consecutive buckets in ascending order, with their negatives and positives.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of the buckets, their words 16 bits wide
    bucket : number of the first bucket in `rows`, the upper bits of its keys
    first : index of the bucket to begin with, relative to `bucket`
    room : maximum number of keys to return, at least `WORDS`
    table, seen : uint64 arrays of `WORDS` and `WORDS` // 64 zeros, zero again on return; a label must have fewer than
        2³² rows

    Returns
    -------
    stop : index of the bucket to continue with
    keys, neg, pos : uint64 and int64 arrays of shape (n,)
    """
    buckets, most = (rows.starts.shape[1] - 1) // 2, np.int64(0)
    for b in range(first, buckets):
        most += min(items_of(rows.starts, 2 * b, 2 * b + 2), WORDS)
    room = min(room, most)
    keys, neg, pos = np.empty(room + 1, np.uint64), np.empty(room + 1, np.int64), np.empty(room + 1, np.int64)
    n, stop = np.uint64(0), buckets
    for b in range(first, buckets):
        items = items_of(rows.starts, 2 * b, 2 * b + 2)
        if not items:
            continue
        if np.int64(n) + min(items, WORDS) > room:
            stop = b
            break
        _count(rows, 2 * b, 0, table)
        _count(rows, 2 * b + 1, 1, table)
        high = np.uint64(bucket + b) << np.uint64(16)
        if items < _SPARSE:
            _note(rows, b, seen)
            for k in range(seen.size):
                bits = seen[k]
                seen[k] = 0
                while bits:
                    word = (np.uint64(k) << _BITS) | lowest_bit(bits)
                    bits &= bits - _ONE
                    keys[n] = high | word
                    neg[n] = table[word] & _LOW
                    pos[n] = table[word] >> _HALF
                    table[word] = 0
                    n += _ONE
        else:
            for word in range(WORDS):
                both = table[word]
                keys[n] = high | np.uint64(word)
                neg[n] = both & _LOW
                pos[n] = both >> _HALF
                n += np.uint64(both != 0)
            table[:] = 0
    return stop, keys[:n], neg[:n], pos[:n]
