"""Sum the weights of 16-bit words by label, directly from the segments: by a table or, for small buckets, by sorting.

The table of a large bucket has an entry for every word, 2 MiB in all; a small bucket would touch a different place with
every row. The rows of a small bucket are sorted by digits instead, as 32-bit words: the 16-bit word, then the index of
the row in the bucket, which leads to its weight. In both cases weights are added in the order of the segments.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated
from streameval.kernels.jit import jit
from streameval.kernels.keyed.digits import DIGIT, by_two_digits, insert
from streameval.kernels.keyed.words import WORDS
from streameval.kernels.prefetch import float_at, short_at, word_at

__all__ = ["SUMS", "sum_words", "weigh_words"]

SUMS = 4  # columns of a table of weights: compensated sums of negatives and of positives

_FEW = 48  # rows of a bucket that is sorted by insertion
_ONE, _PLACE_BITS, _WORD_BITS = np.uint64(1), np.uint32(16), np.uint64(16)
_PLACE = np.uint32(0xFFFF)


@jit
def sum_words(rows, weights, b, keys, table, neg, pos):
    """Sum the weights of the words of one bucket by label, in the order of the segments.

    Parameters
    ----------
    rows : as `tally_words` takes them
    weights : uint64 array of shape (n_runs,), the addresses of the weights
    b : index of the bucket
    keys : uint64 array of shape (n,), the distinct keys of the bucket
    table : float64 array of shape (`WORDS`, `SUMS`) of zeros, zero again on return
    neg, pos : float64 arrays of shape (n,), outputs: the weights of each key
    """
    for label in range(2):
        for r in range(rows.words.size):
            words, own = rows.words[r], weights[r]
            for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                word = short_at(words, i)
                total, slip = compensated(table[word, 2 * label], table[word, 2 * label + 1], float_at(own, i))
                table[word, 2 * label], table[word, 2 * label + 1] = total, slip
    for k in range(keys.size):
        word = keys[k] & np.uint64(WORDS - 1)
        neg[k], pos[k] = table[word, 0] + table[word, 1], table[word, 2] + table[word, 3]
        table[word, :] = 0


@jit
def weigh_words(rows, weights, items, buckets, first, keys, neg, pos, neg_weight, pos_weight):
    """Count the distinct keys of some small buckets in ascending order, and sum their weights by label.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` whose words are 16 bits wide
    weights : uint64 array of shape (n_runs,), the addresses of the weights
    items, buckets : int64 arrays of shape (n_buckets,), the items of each bucket, at most 2¹⁶, and its number, the
        upper bits of its keys
    first : index in `rows` of the first of these buckets
    keys, neg, pos, neg_weight, pos_weight : outputs of shape (n_items,)

    Returns
    -------
    int64, the number of distinct keys
    """
    most = items.max()
    order, spare, places = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty((2, DIGIT + 1), np.int64)
    own, counts = np.empty(most), np.empty(most, np.int64)
    n = 0
    for b in range(items.size):
        size = middle = 0
        for label in range(2):
            middle = size
            for r in range(rows.words.size):
                code = 2 * (first + b) + label
                for i in range(rows.starts[r, code], rows.starts[r, code + 1]):
                    order[size] = (np.uint32(short_at(rows.words[r], i)) << _PLACE_BITS) | np.uint32(size)
                    own[size] = float_at(weights[r], i)
                    counts[size] = word_at(rows.counts[r], i) if rows.counts[r] else _ONE
                    size += 1
        if size <= _FEW:
            insert(order, 0, size, _PLACE_BITS)
        else:
            by_two_digits(order, spare, 0, size, np.uint32(16), places)
        high = np.uint64(buckets[b]) << _WORD_BITS
        i = 0
        while i < size:
            word = order[i] >> _PLACE_BITS
            rows_neg = rows_pos = 0
            total_neg = slip_neg = total_pos = slip_pos = 0.0
            while i < size and order[i] >> _PLACE_BITS == word:
                at = np.int64(order[i] & _PLACE)
                if at < middle:
                    rows_neg += counts[at]
                    total_neg, slip_neg = compensated(total_neg, slip_neg, own[at])
                else:
                    rows_pos += counts[at]
                    total_pos, slip_pos = compensated(total_pos, slip_pos, own[at])
                i += 1
            keys[n] = high | np.uint64(word)
            neg[n], pos[n] = rows_neg, rows_pos
            neg_weight[n], pos_weight[n] = total_neg + slip_neg, total_pos + slip_pos
            n += 1
    return n
