"""Sum the weights of 16-bit words by label, directly from the segments: by a table or, for small buckets, by sorting.

The table of a large bucket has an entry for every word, 1 MiB for each label, whose rows are added one label after the
other; a small bucket would touch a different place with every row. The rows of a small bucket are sorted by digits
instead, as 32-bit words: the 16-bit word, then the index of the row in the bucket, which leads to its weight. In both
cases weights are added in the order of the segments.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated
from streameval.kernels.jit import inlined, jit
from streameval.kernels.keyed.digits import DIGIT, sort_bucket
from streameval.kernels.keyed.words import WORDS
from streameval.kernels.prefetch import float_at, short_at, word_at

SUMS = 2, WORDS, 2  # shape of a table of weights: compensated sums by label and word

_ONE, _PLACE_BITS, _WORD_BITS = np.uint64(1), np.uint32(16), np.uint64(16)
_PLACE = np.uint32(0xFFFF)


@inlined
def _tally(rows, weights, b, table):
    """Add the weights of one bucket to the table, in the order of the segments."""
    for label in range(2):
        side = table[label]
        for r in range(rows.words.size):
            words, own = rows.words[r], weights[r]
            for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                word = short_at(words, i)
                side[word, 0], side[word, 1] = compensated(side[word, 0], side[word, 1], float_at(own, i))


@jit
def sum_words(rows, weights, b, keys, table, neg, pos):
    """Sum the weights of the words of one bucket by label, in the order of the segments.

    Parameters
    ----------
    rows : as `tally_words` takes them
    weights : uint64 array of shape (n_runs,), the addresses of the weights
    b : index of the bucket
    keys : uint64 array of shape (n,), the distinct keys of the bucket
    table : float64 array of shape `SUMS` of zeros, zero again on return
    neg, pos : float64 arrays of shape (n,), outputs: the weights of each key
    """
    _tally(rows, weights, b, table)
    for k in range(keys.size):
        word = keys[k] & np.uint64(WORDS - 1)
        neg[k], pos[k] = table[0, word, 0] + table[0, word, 1], table[1, word, 0] + table[1, word, 1]
        table[0, word, :], table[1, word, :] = 0, 0


@inlined
def _bucket(rows, weights, code, order, spare, places, own, counts):
    """Sort the words of a small bucket with their places in it, and copy their weights, and their counts if needed.

    Returns the items of the bucket, and those of its negatives, which come first.
    """
    size = middle = 0
    for label in range(2):
        middle = size
        for r in range(rows.words.size):
            for i in range(rows.starts[r, code + label], rows.starts[r, code + label + 1]):
                order[size] = (np.uint32(short_at(rows.words[r], i)) << _PLACE_BITS) | np.uint32(size)
                own[size] = float_at(weights[r], i)
                if counts.size:
                    counts[size] = word_at(rows.counts[r], i) if rows.counts[r] else _ONE
                size += 1
    sort_bucket(order, spare, size, _PLACE_BITS, places)
    return size, middle


@inlined
def _scratch(rows, items):
    """The arrays that `_bucket` fills; no counts if each item is one row."""
    most, counted = items.max(), False
    for r in range(rows.counts.size):
        counted |= rows.counts[r] != 0
    order, spare, places = np.empty(most + 1, np.uint32), np.empty(most, np.uint32), np.empty((2, DIGIT + 1), np.int64)
    return order, spare, places, np.empty(most), np.empty(most if counted else 0, np.int64)


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
    order, spare, places, own, counts = _scratch(rows, items)
    n = 0
    for b in range(items.size):
        size, middle = _bucket(rows, weights, 2 * (first + b), order, spare, places, own, counts)
        high = np.uint64(buckets[b]) << _WORD_BITS
        i = 0
        while i < size:
            word = order[i] >> _PLACE_BITS
            rows_neg = rows_pos = 0
            total_neg = slip_neg = total_pos = slip_pos = 0.0
            while i < size and order[i] >> _PLACE_BITS == word:
                at = np.int64(order[i] & _PLACE)
                count = counts[at] if counts.size else 1
                if at < middle:
                    rows_neg += count
                    total_neg, slip_neg = compensated(total_neg, slip_neg, own[at])
                else:
                    rows_pos += count
                    total_pos, slip_pos = compensated(total_pos, slip_pos, own[at])
                i += 1
            keys[n] = high | np.uint64(word)
            neg[n], pos[n] = rows_neg, rows_pos
            neg_weight[n], pos_weight[n] = total_neg + slip_neg, total_pos + slip_pos
            n += 1
    return n
