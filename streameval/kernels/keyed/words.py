"""Count the 16-bit words of whole buckets by label, directly from the segments, without gathering or sorting rows.

The table has one entry per word and fits into the second-level cache. For a small bucket, a bitmap records the entries
in use, so that only those are read.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.prefetch import lowest_bit, short_at, word_at

WORDS = 1 << 16

SPARSE = 1 << 12  # buckets with fewer items record their words in the bitmap
_ZERO, _ONE, _LOW, _HALF = np.uint64(0), np.uint64(1), np.uint64(0xFFFFFFFF), np.uint64(32)
_BITS, _INSIDE, _WORD_BITS = np.uint64(6), np.uint64(63), np.uint64(16)


@jit
def tally_words(rows, items, bucket, first, table, seen, keys, neg, pos):
    """Count the distinct keys of consecutive buckets, in ascending order.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of the buckets, with 16-bit words
    items : int64 array of shape (n_buckets,), the items of each bucket
    bucket : number of the first bucket in `rows`, the upper bits of its keys
    first : index of the bucket to begin with, relative to `bucket`
    table, seen : uint64 arrays of zeros of shapes (`WORDS`,) and (`WORDS` // 64,), zero again on return; each label
        must have fewer than 2³² rows
    keys, neg, pos : uint64 and int64 arrays of shape (n + 1,), outputs for at most n keys and their rows; n is at least
        `WORDS` or the number of items

    Returns
    -------
    stop : index of the bucket to continue with
    found : number of keys
    """
    n = _ZERO
    for b in range(first, items.size):
        if not items[b]:
            continue
        if np.int64(n) + min(items[b], WORDS) >= keys.size:
            return b, np.int64(n)
        for label in range(2):  # negatives are added to the lower half of an entry, positives to the upper half
            shift = _HALF * np.uint64(label)
            for r in range(rows.words.size):
                words, counts = rows.words[r], rows.counts[r]
                for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                    table[short_at(words, i)] += (word_at(counts, i) if counts else _ONE) << shift
        high = np.uint64(bucket + b) << _WORD_BITS
        if items[b] >= SPARSE:
            for k in range(table.size):
                both = table[k]
                keys[n] = high | np.uint64(k)
                neg[n] = both & _LOW
                pos[n] = both >> _HALF
                n += np.uint64(both != 0)
                table[k] = 0
            continue
        for r in range(rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
                word = short_at(words, i)
                seen[word >> _BITS] |= _ONE << (word & _INSIDE)
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
    return items.size, np.int64(n)
