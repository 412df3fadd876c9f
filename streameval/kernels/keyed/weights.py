"""Sum the weights of 16-bit words by label, directly from the segments: by a table or, for small buckets, by sorting.

The table of a large bucket has an entry for every word, 1 MiB for each label, whose rows are added one label after the
other; a small bucket would touch a different place with every row. The rows of a small bucket are sorted by digits
instead, as 32-bit words: the 16-bit word, then the index of the row in the bucket, which leads to its weight. In both
cases weights are added in the order of the segments.

64-bit words come gathered and sorted, with the order of their items (`rank_items`).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated
from streameval.kernels.jit import inlined, jit
from streameval.kernels.keyed.digits import DIGIT, sort_bucket
from streameval.kernels.keyed.words import WORDS
from streameval.kernels.prefetch import float_at, short_at, word_at
from streameval.kernels.ranking import RANKED, ranked_end, ranked_groups

SUMS = 2, WORDS, 2  # shape of a table of weights: compensated sums by label and word

_AT_ONCE = 512  # keys after which their terms are added up
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


@jit
def rank_sums(rows, weights, b, table, before_neg, before_pos, all_neg):
    """`rank_words` of one bucket, by the table that `sum_words` takes."""
    _tally(rows, weights, b, table)
    sums, sides = RANKED, np.empty((2, _AT_ONCE))
    for start in range(0, WORDS, _AT_ONCE):
        found = np.uint64(0)
        for word in range(start, start + _AT_ONCE):
            n, p = table[0, word, 0] + table[0, word, 1], table[1, word, 0] + table[1, word, 1]
            sides[0, found], sides[1, found] = n, p
            found += np.uint64(n + p > 0.0)
        sums = ranked_groups(sums, sides[0], sides[1], np.int64(found), before_neg, before_pos, all_neg)
    table[:] = 0
    return ranked_end(sums), (_rows_of(rows, 2 * b), _rows_of(rows, 2 * b + 1))


@inlined
def _rows_of(rows, code):
    """The rows of a code, in all segments."""
    total = np.int64(0)
    for r in range(rows.words.size):
        first, stop = rows.starts[r, code], rows.starts[r, code + 1]
        total += 0 if rows.counts[r] else stop - first
        for i in range(first, stop if rows.counts[r] else first):
            total += np.int64(word_at(rows.counts[r], i))
    return total


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


@jit
def rank_words(rows, weights, items, first, before_neg, before_pos, all_neg):
    """What `streameval.kernels.ranking.ranked_weights` returns for the keys that `weigh_words` finds, and their rows.

    Returns
    -------
    area, share, neg_weight, pos_weight : floats
    neg, pos : numbers of rows
    """
    order, spare, places, own, counts = _scratch(rows, items)
    above, sums, sides = (before_neg, before_pos, all_neg), RANKED, np.zeros((2, _AT_ONCE + order.size + 1))
    n = neg = pos = np.int64(0)
    for b in range(items.size):
        size, middle = _bucket(rows, weights, 2 * (first + b), order, spare, places, own, counts)
        neg += counts[:middle].sum() if counts.size else middle
        pos += counts[middle:size].sum() if counts.size else size - middle
        n = _sum_sides(order, size, middle, own, sides, n)
        if n >= _AT_ONCE:
            sums, n = ranked_groups(sums, sides[0], sides[1], n, *above), np.int64(0)
            sides[:, 0] = 0.0
    return ranked_end(ranked_groups(sums, sides[0], sides[1], n, *above)), (neg, pos)


@inlined
def _sum_sides(order, size, middle, own, sides, n):
    """Append the weights of the keys of a bucket by label; returns the new number of keys.

    The end of a key is unpredictable, so the loop does not branch on it: every row writes the sum so far, and after the
    last row of a label the sum begins again.
    """
    key, total, slip = np.uint64(n), 0.0, 0.0
    order[size] = ~order[size - 1]
    label = np.uint64((order[0] & _PLACE) >= middle)
    for i in range(size):
        word, after = order[i], order[i + 1]
        total, slip = compensated(total, slip, own[np.uint64(word & _PLACE)])
        sides[0, key + _ONE], sides[1, key + _ONE] = 0.0, 0.0
        sides[label, key] = total + slip
        last, its = np.uint64(word ^ after > _PLACE), np.uint64((after & _PLACE) >= middle)
        key += last
        again = (last | (its ^ label)) == 0
        total, slip, label = total if again else 0.0, slip if again else 0.0, its
    return np.int64(key)


@jit
def rank_items(words, order, middle, weights, before_neg, before_pos, all_neg):
    """What `streameval.kernels.ranking.ranked_weights` returns for the keys of sorted items.

    Parameters
    ----------
    words : uint64 array of shape (n,), the keys in ascending order
    order : int64 array of shape (n,), the item of each word; the items before `middle` are negatives
    weights : float64 array of shape (n,), the weight of each item
    """
    above, sums, sides = (before_neg, before_pos, all_neg), RANKED, np.empty((2, _AT_ONCE))
    n, neg, neg_slip, pos, pos_slip = np.uint64(0), 0.0, 0.0, 0.0, 0.0
    for i in range(words.size):  # the end of a key and the label are unpredictable: no branch
        weight, negative = weights[np.uint64(order[i])], order[i] < middle
        neg, neg_slip = compensated(neg, neg_slip, weight if negative else 0.0)
        pos, pos_slip = compensated(pos, pos_slip, 0.0 if negative else weight)
        sides[0, n], sides[1, n] = neg + neg_slip, pos + pos_slip
        last = (i + 1 == words.size) | (words[min(i + 1, words.size - 1)] != words[i])
        n += np.uint64(last)
        neg, neg_slip = 0.0 if last else neg, 0.0 if last else neg_slip
        pos, pos_slip = 0.0 if last else pos, 0.0 if last else pos_slip
        if n == _AT_ONCE:
            sums, n = ranked_groups(sums, sides[0], sides[1], np.int64(n), *above), np.uint64(0)
    return ranked_end(ranked_groups(sums, sides[0], sides[1], np.int64(n), *above))
