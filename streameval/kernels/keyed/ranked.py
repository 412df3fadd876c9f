"""Areas of the curves from words that are sorted or counted in a table, without the groups of equal score.

The sums are those of `streameval.kernels.ranking.area_counts` and `precision_counts`: only groups with positives have a
term. Rows are counted from the best score down, so the rows and positives before and after such a group give its
negatives and its positives, and those above. Whether a row ends a group with positives is unpredictable, so one loop
collects several hundred of these groups without a branch; another one, which is vectorized, adds up their terms.

`tally_words` counts the words of whole buckets by label, without gathering or sorting rows. A bitmap records which
words occur, so the number of bits below that of a word is its place among the keys. Bitmap and numbers fit into the
first-level cache. Words of a bucket with many rows are their own places, and empty places are dropped in the end.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import two_sum
from streameval.kernels.jit import inline, jit
from streameval.kernels.keyed.sorting import DIGIT, sort_bucket
from streameval.kernels.prefetch import count_bits, float_at, lowest_bit, short_at, word_at
from streameval.kernels.ranking import UNIT

_UNIT = float(UNIT)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ZERO, _ONE, _BITS, _INSIDE = np.uint64(0), np.uint64(1), np.uint64(6), np.uint64(63)
_LABEL_BITS = np.uint32(1)
_GROUPS_AT_ONCE = 1 << 9
_SPARSE = 1 << 12  # buckets with fewer items record their words in the bitmap
WORDS = 1 << 16
_WORD_BITS = np.uint64(16)


@inline
def _scratch():
    """Rows before and after each collected group, and positives after it, preceded by those before the first."""
    room = _GROUPS_AT_ONCE + 1
    return np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room + 1, np.int64)


@inline
def _add_up(groups, found, twice, sums):
    """Add the terms of the first groups to the sums; `twice` is twice the number of all negatives."""
    begin, end, hits = groups
    area, area_low, share, share_low = sums[0], sums[1], sums[2], sums[3]
    for k in range(np.int64(found)):
        pos = np.uint64(hits[k + 1] - hits[k])
        factor = np.uint64(twice - (begin[k] - hits[k]) - (end[k] - hits[k + 1]))
        area += pos * (factor >> _HALF)
        area_low += pos * (factor & _LOW)
        rate = np.uint64(np.int64(hits[k + 1] / end[k] * _UNIT))  # processors convert floats to signed words
        share += pos * (rate >> _HALF)
        share_low += pos * (rate & _LOW)
    sums[0], sums[1], sums[2], sums[3] = area, area_low, share, share_low


@jit
def rank_sorted(words, above, twice, sums):
    """Add the terms of sorted `labelled` words to the sums.

    Parameters
    ----------
    words : uint32 or uint64 array of shape (n,): the key, and the label in the lowest bit
    above : int64 array of shape (2,), rows and positives above; those of the words are added
    twice : twice the number of all negatives
    sums : uint64 array of shape (4,): the sums of `area_counts` and of `precision_counts`
    """
    if not words.size:
        return
    groups = begin, end, hits = _scratch()
    rows, true, one, word = above[0], above[1], words.dtype.type(1), words[0]
    first, before = rows, true  # of the group
    for start in range(1, words.size, _GROUPS_AT_ONCE):
        found = _ZERO
        hits[0] = before
        for i in range(start, min(start + _GROUPS_AT_ONCE, words.size)):
            after = words[i]
            true += np.int64(word & one)
            rows += 1
            begin[found], end[found], hits[found + _ONE] = first, rows, true
            last = (word ^ after) > one
            found += np.uint64(last & (true != before))
            before = true if last else before
            first = rows if last else first
            word = after
        _add_up(groups, found, twice, sums)
    true += np.int64(word & one)
    begin[0], end[0], hits[0], hits[1] = first, rows + 1, before, true
    _add_up(groups, true != before, twice, sums)
    above[0], above[1] = rows + 1, true


@jit
def rank_buckets(rows, items, tallied, table, seen, above, twice, sums):
    """Add the terms of consecutive buckets of 16-bit words to the sums, as `rank_sorted`.

    Parameters
    ----------
    rows : `streameval.kernels.keyed.sizes.Addresses` of the buckets
    items : int64 array of shape (n_buckets,), the items of each bucket
    tallied : bool array of shape (n_buckets,), whether the words of a bucket are counted in the table, not sorted;
        items with counts must be in buckets that are tallied
    table, seen : uint64 arrays of zeros of shapes (2¹⁶,) and (2¹⁰,), zero again on return; each label must have fewer
        than 2³² rows
    """
    most = np.int64(0)
    for b in range(items.size):
        most = most if tallied[b] else max(most, items[b])
    words, spare, places = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty((2, DIGIT + 1), np.int64)
    for b in range(items.size):
        if tallied[b]:
            _tally(rows, b, table, above, twice, sums, items[b], seen)
        elif items[b]:
            _gather(rows, b, words)
            sort_bucket(words, spare, 0, items[b], _LABEL_BITS, places)
            rank_sorted(words[: items[b]], above, twice, sums)


@inline
def _gather(rows, b, out):
    """Copy the words of a bucket from all segments, as labelled words."""
    n = _ZERO
    for label in range(2):
        for r in range(rows.words.size):
            words, first = rows.words[r], rows.starts[r, 2 * b + label]
            size = rows.starts[r, 2 * b + label + 1] - first
            taken = out[n : n + np.uint64(size)]
            for i in range(size):
                taken[i] = np.uint32(short_at(words, first + i) << _ONE) | np.uint32(label)
            n += np.uint64(size)


@jit
def _tally(rows, b, table, above, twice, sums, items, seen):
    """Count the words of one bucket in the table, and add the terms of its keys to the sums."""
    for label in range(2):  # negatives are added to the lower half of an entry, positives to the upper half
        shift = _HALF * np.uint64(label)
        for r in range(rows.words.size):
            words, counts = rows.words[r], rows.counts[r]
            for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                table[short_at(words, i)] += (word_at(counts, i) if counts else _ONE) << shift
    groups, counted = _scratch(), (above[0], above[1])
    if items >= _SPARSE:
        for start in range(0, table.size, _GROUPS_AT_ONCE):
            found = _ZERO
            groups[2][0] = counted[1]
            for word in range(start, start + _GROUPS_AT_ONCE):
                found, counted = _collect(groups, found, counted, table, word)
            _add_up(groups, found, twice, sums)
    else:
        for r in range(rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
                word = short_at(words, i)
                seen[word >> _BITS] |= _ONE << (word & _INSIDE)
        for k in range(seen.size):
            bits = seen[k]
            seen[k] = 0
            found = _ZERO
            groups[2][0] = counted[1]
            while bits:
                word = (np.uint64(k) << _BITS) | lowest_bit(bits)
                bits &= bits - _ONE
                found, counted = _collect(groups, found, counted, table, word)
            _add_up(groups, found, twice, sums)
    above[0], above[1] = counted


@inline
def _collect(groups, found, counted, table, word):
    """Count and clear the entry of a word, which is a group if it has positives; `counted` are rows and positives."""
    begin, end, hits = groups
    both = table[word]
    table[word] = 0
    pos = np.int64(both >> _HALF)
    rows, true = counted[0] + np.int64(both & _LOW) + pos, counted[1] + pos
    begin[found], end[found], hits[found + _ONE] = counted[0], rows, true
    return found + np.uint64(pos != 0), (rows, true)


@jit
def tally_words(rows, weights, first, items, buckets, keys, sides, sums, seen, before):
    """Count the distinct keys of some buckets in ascending order; returns their number.

    Weights are added in the order of the segments.

    Parameters
    ----------
    rows : `streameval.kernels.keyed.sizes.Addresses`, with 16-bit words
    weights : uint64 array of shape (n_segments,), the addresses of the weights; 0 for segments without weights
    first : index in `rows` of the first of these buckets
    items, buckets : int64 arrays of shape (n_buckets,), the items of each bucket, and its number, the upper bits of its
        keys
    keys, sides : uint64 array of shape (n,) and int64 array of shape (2, n), outputs for the keys and their rows by
        label; n is at least the sum of the items, at most `WORDS` for each bucket
    sums : float64 array of shape (4, n), outputs: for each label, the rounded sums of the weights and the sums of
        rounding errors; None without weights, for which this is then compiled separately
    seen, before : uint64 arrays of shape (2¹⁰,), scratch; `seen` is zero, also on return
    """
    n = _ZERO
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
        if sums is not None:
            sums[:, begin:n] = 0.0
        for label in range(2):
            side = sides[label]
            for r in range(rows.words.size):
                words, counts = rows.words[r], rows.counts[r]
                for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                    word = short_at(words, i)
                    block, below = word >> _BITS, (_ONE << (word & _INSIDE)) - _ONE
                    at = begin + word if dense else before[block] + count_bits(seen[block] & below)
                    side[at] += np.int64(word_at(counts, i)) if counts else 1
                    if sums is not None and weights[r]:
                        sums[2 * label, at], low = two_sum(sums[2 * label, at], float_at(weights[r], i))
                        sums[2 * label + 1, at] += low
        if dense:
            at, n = begin, begin
            for word in range(WORDS):
                keys[n], sides[0, n], sides[1, n] = high | np.uint64(word), sides[0, at], sides[1, at]
                if sums is not None:
                    for column in range(4):
                        sums[column, n] = sums[column, at]
                n += np.uint64(sides[0, at] + sides[1, at] != 0)
                at += _ONE
        for k in range(seen.size):
            seen[k] = 0
    return np.int64(n)
