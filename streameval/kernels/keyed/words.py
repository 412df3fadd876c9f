"""Count the 16-bit words of whole buckets by label, directly from the segments, without gathering or sorting rows.

A bitmap records which words occur, so the number of bits below that of a word is its place among the keys. Bitmap and
numbers fit into the first-level cache. Words of a bucket with many rows are their own places, and empty places are
dropped in the end.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.prefetch import count_bits, float_at, short_at, word_at

WORDS = 1 << 16

_ONE, _BITS, _INSIDE, _WORD_BITS = np.uint64(1), np.uint64(6), np.uint64(63), np.uint64(16)


@jit
def tally_words(rows, weights, first, items, buckets, keys, sides, sums):
    """Count the distinct keys of some buckets in ascending order; returns their number.

    Weights are added in the order of the segments.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses`, with 16-bit words
    weights : uint64 array of shape (n_segments,), the addresses of the weights; 0 for segments without weights
    first : index in `rows` of the first of these buckets
    items, buckets : int64 arrays of shape (n_buckets,), the items of each bucket, and its number, the upper bits of its
        keys
    keys, sides : uint64 array of shape (n,) and int64 array of shape (2, n), outputs for the keys and their rows by
        label; n is at least the sum of the items, at most `WORDS` for each bucket
    sums : float64 array of shape (4, n), outputs: for each label, the rounded sums of the weights and the sums of
        rounding errors; of shape (4, 0) without weights
    """
    seen, before, n = np.zeros(WORDS // 64, np.uint64), np.empty(WORDS // 64, np.uint64), np.uint64(0)
    for j in range(items.size):
        b, begin, dense = first + j, n, items[j] >= WORDS
        high = np.uint64(buckets[j]) << _WORD_BITS
        if dense:
            n += np.uint64(WORDS)
        for r in range(0 if dense else rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
                word = short_at(words, i)
                seen[word >> _BITS] |= _ONE << (word & _INSIDE)
        for k in range(0 if dense else seen.size):
            before[k], bits = n, seen[k]
            while bits:
                keys[n] = high | (np.uint64(k) << _BITS) | count_bits(~bits & (bits - _ONE))  # the lowest set bit
                bits &= bits - _ONE
                n += _ONE
        for at in range(begin, n):
            sides[0, at] = sides[1, at] = 0
        for at in range(begin, n if sums.size else begin):
            sums[0, at] = sums[1, at] = sums[2, at] = sums[3, at] = 0.0
        for label in range(2):
            side = sides[label]
            for r in range(rows.words.size):
                words, counts, own = rows.words[r], rows.counts[r], weights[r]
                for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                    word = short_at(words, i)
                    block, below = word >> _BITS, (_ONE << (word & _INSIDE)) - _ONE
                    at = begin + word if dense else before[block] + count_bits(seen[block] & below)
                    side[at] += np.int64(word_at(counts, i)) if counts else 1
                    if own:  # as `compensated`, which would be one more loop to compile for rows without weights
                        old, weight = sums[2 * label, at], float_at(own, i)
                        total = old + weight
                        low = total - old
                        sums[2 * label, at] = total
                        sums[2 * label + 1, at] += (old - (total - low)) + (weight - low)
        if dense:
            at, n = begin, begin
            for word in range(WORDS):
                keys[n], sides[0, n], sides[1, n] = high | np.uint64(word), sides[0, at], sides[1, at]
                for column in range(4 if sums.size else 0):
                    sums[column, n] = sums[column, at]
                n += np.uint64(sides[0, at] + sides[1, at] != 0)
                at += _ONE
        for k in range(seen.size):
            seen[k] = 0
    return np.int64(n)
