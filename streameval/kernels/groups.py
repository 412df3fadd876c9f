"""Loops over the rows of many groups: by the code of their group, and over the scores of each group.

A word ends in a code of 32 bits, after a key or its index. A *tie* is the rows of one group with one score: n negatives
and p positives. Ties of a group are adjacent and descend from its best score; group g begins at ``starts[g]``. T and F
are the positives and negatives of the group before a tie. Sums are integers: 128 bits as (high, low) words where one
word may be too short.

`sweep_words` computes areas and precisions of all rows and of every group in one loop over the scores of all. A *cell*
is a 15-bit code that says to which group a row belongs, ``member[cell]``. A narrow word is the lower 16 bits of a rank
key, then the cell; its bucket is the rest of the key. A labelled word has the label between the two, 32 bits in all.
Long words, of 64-bit scores, have in place of the 16 bits the distance of the key from the *base* of its bucket, in 48
bits. No key of a bucket is below its base, so the words of a bucket sort like their keys; distances are checked before
keys are encoded. Within each key negatives come first.

The two sums of a group are Σ p·(2(N − F) − n), and Σ p·(T + p)/(T + p + F + n) in units of 2⁻⁶², where n and p are the
negatives and positives of a tie, F and T those above it, and N all negatives.

Labelled words are swept from the worst score to the best, and within each tie from positives to negatives. So a
positive knows the denominator of its precision, and a negative knows the positives of its tie: no tie has to be closed,
and a negative (there are many more of them) is little more than counted. Whether a score ties with the one before it is
hard to predict, so that positives, and negatives of all rows, do not branch on it. The state of a group is one cache
line (`STATE` integers): the key of the last positive, the numbers of positives and negatives not yet passed, the number
of positives at the start of that key, and four sums. The state of all rows, group 0, is kept in registers. The general
way to both sums is by group (`areas`, `precisions`).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import jit
from streameval.kernels.keyed.sorting import DIGIT, sort_bucket
from streameval.kernels.keys import rank_f4

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

_SHORT = 1 << 30  # rows of a group whose products fit into a word
_UNIT = float(1 << 62)

CELL_BITS = 15
STATE = 8  # key of the last positive, P and N left, P at its start, and what `AREA` … `LOWER` say
AREA, TIED, UPPER, LOWER = 4, 5, 6, 7  # Σ N left at positives, Σ tied positives at negatives, Σ precision as halves
MOST = 1 << 61  # words of a sweep times 2³⁰, or times the negatives of a group, for sums that fit into one word

_SHIFT = np.uint32(CELL_BITS)
_CELL, _LABEL = np.uint32((1 << CELL_BITS) - 1), np.uint32(1 << CELL_BITS)
_ONE = np.uint32(1)
KEY_SHIFT = np.uint32(CELL_BITS + 1)  # bits below the key of a labelled word
_PASSED, _LEFT, _OTHERS, _START = range(4)
_HALF_WORD, _LOWER_HALF = np.int64(32), np.int64((1 << 32) - 1)


@jit
def count_groups(words, counts, starts, codes, ends, low, tally):
    """Add the rows of each group to ``tally[interval, label, group]``, piece by piece; empty `counts` mean ones.

    Interval k ends before code ``ends[k]``.
    """
    k = np.uint64(0)
    for j in range(codes.size):
        while codes[j] >= ends[k]:
            k += np.uint64(1)
        side = tally[k, np.uint64(codes[j] & 1)]
        for i in range(starts[j], starts[j + 1]):
            side[words[i] & low] += counts[i] if counts.size else 1


@jit
def by_group(words, neg, pos, member, groups):
    """Group the counts of ascending words; returns the start of each group, and n, p and rank key of its ties.

    Code c lies in group 0, all rows, and in group ``member[c]``; codes of a group with equal keys are added up.
    """
    starts, last = np.zeros(groups + 1, np.int64), np.zeros(groups, np.int64)  # keys from 1 on
    for i in range(words.size):
        key = np.int64(words[i] >> _HALF) + 1
        for k in range(2):
            g = np.uint64(k * member[words[i] & _LOW])
            starts[g + np.uint64(1)] += last[g] != key
            last[g] = key
    cursor = np.zeros(groups, np.int64)
    for group in range(groups):
        cursor[group] = starts[group] - 1
        starts[group + 1] += starts[group]
        last[group] = 0
    ties = starts[groups]
    n, p, keys = np.zeros(ties, np.int64), np.zeros(ties, np.int64), np.zeros(ties, np.uint32)
    for i in range(words.size):
        key = np.int64(words[i] >> _HALF) + 1
        for k in range(2):
            g = np.uint64(k * member[words[i] & _LOW])
            cursor[g] += last[g] != key
            last[g] = key
            at = np.uint64(cursor[g])
            n[at] += neg[i]
            p[at] += pos[i]
            keys[at] = words[i] >> _HALF
    return starts, n, p, keys


@jit
def mark_codes(codes, occurs):
    """Set ``occurs[code]`` for the code of each row."""
    for i in range(codes.size):
        occurs[codes[i]] = True


@jit
def recode_rows(codes, table):
    """``table[code]`` for the code of each row, as an int64 array."""
    out = np.empty(codes.size, np.int64)
    for i in range(codes.size):
        out[i] = table[codes[i]]
    return out


@jit
def order_rows(places, count):
    """Rows in the order of their places, which are below `count`, and the start of each place."""
    starts = np.zeros(count + 1, np.int64)
    for i in range(places.size):
        starts[places[i] + 1] += 1
    for place in range(count):
        starts[place + 1] += starts[place]
    cursor, order = starts[:-1].copy(), np.empty(places.size, np.int64)
    for i in range(places.size):
        at = cursor[places[i]]
        cursor[places[i]] = at + 1
        order[np.uint64(at)] = i
    return order, starts


@jit
def tally_cells(keys, neg, pos, tag_bits, owners, clusters, positives, cut, large):
    """Count the clusters of all rows, group 0, and of each group by size, and sum their positives.

    Parameters
    ----------
    keys : uint64 array of shape (n_cells, n_words), ascending; the lowest bits of the last word are the tag
    neg, pos : int64 arrays of shape (n_cells,)
    tag_bits : uint64, the bits of the tag
    owners : int64 array of shape (n_tags,), the group of each tag, from 1 on
    clusters, positives : int64 arrays of shape (n_sizes, 1 + n_groups), updated in place
    cut : int64 array of shape (1 + n_groups,), incremented by the rows in clusters that several groups share
    large : int64 array with room for two rows for each cell: group, size and positives of clusters that are too large

    Returns
    -------
    int : number of rows written to `large`
    """
    first, found, last = 0, 0, keys.shape[1] - 1
    for i in range(1, keys.shape[0] + 1):
        if i < keys.shape[0]:
            differ = (keys[i, last] ^ keys[i - 1, last]) & ~tag_bits
            for c in range(last):
                differ |= keys[i, c] ^ keys[i - 1, c]
            if not differ:
                continue
        rows, positive = np.int64(0), np.int64(0)
        for j in range(first, i + 1):  # the cells of the cluster, then the whole
            whole = j == i
            size, own = (rows, positive) if whole else (neg[j] + pos[j], pos[j])
            owner = np.int64(0) if whole else owners[keys[j, last] & tag_bits]
            if size < clusters.shape[0]:
                clusters[size, owner] += 1
                positives[size, owner] += own
            else:
                large[found, 0], large[found, 1], large[found, 2] = owner, size, own
                found += 1
            if not whole:
                rows += size
                positive += own
                cut[owner] += size * np.int64(i - first > 1)
        first = i
    return found


@jit
def id_starts(words, rest):
    """First tie of each group, and the number of ties; ids are `words` and `rest` without its last column, sorted."""
    starts = np.zeros(words.size + 1, np.int64)
    group = np.int64(0)
    for i in range(1, words.size):
        same = words[i] == words[i - 1]
        for c in range(rest.shape[1] - 1):
            same &= rest[i, c] == rest[i - 1, c]
        group += np.int64(not same)
        starts[group] = i if not same else starts[group]
    starts[group + 1] = words.size
    return starts[: group + 2]


@jit
def sizes(starts, n, p):
    """Negatives and positives of each group, as int64 arrays."""
    neg, pos = np.zeros(starts.size - 1, np.int64), np.zeros(starts.size - 1, np.int64)
    for g in range(starts.size - 1):
        for i in range(starts[g], starts[g + 1]):
            neg[g] += n[i]
            pos[g] += p[i]
    return neg, pos


@jit
def areas(starts, n, p, true):
    """Σ n·(2T + p) of each group: twice the pairs in which the positive ranks first, ties as halves.

    Group g has ``true[g]`` positives before its first tie here. Returns high and low words.
    """
    groups = starts.size - 1
    high, low = np.zeros(groups, np.uint64), np.zeros(groups, np.uint64)
    for g in range(groups):
        upper, lower = np.uint64(0), np.uint64(0)
        T = np.int64(true[g])
        rows = T
        for i in range(starts[g], starts[g + 1]):
            rows += n[i] + p[i]
            if rows < _SHORT:
                lower += np.uint64(n[i] * (2 * T + p[i]))
            else:
                upper, lower = multiply_add(upper, lower, np.uint64(n[i]), np.uint64(2 * T + p[i]))
            T += p[i]
        high[g], low[g] = upper, lower
    return high, low


@jit
def precisions(starts, n, p, false, true):
    """Σ p·(T + p)/(T + p + F + n) of each group, each precision in units of 2⁻⁶², as high and low words."""
    groups = starts.size - 1
    high, low = np.zeros(groups, np.uint64), np.zeros(groups, np.uint64)
    for g in range(groups):
        upper, lower = np.uint64(0), np.uint64(0)
        T, F = np.int64(true[g]), np.int64(false[g])
        for i in range(starts[g], starts[g + 1]):
            T += p[i]
            F += n[i]
            if p[i]:
                share = np.uint64(np.int64(T / (T + F) * _UNIT))
                upper, lower = multiply_add(upper, lower, np.uint64(p[i]), share)
        high[g], low[g] = upper, lower
    return high, low


@jit
def quotients(high, low, divisors):
    """Quotients of 128-bit integers and divisors from 1 to 2³² − 1, rounded down; they must be below 2⁶⁴."""
    out = np.empty(high.size, np.uint64)
    for i in range(high.size):
        d = np.uint64(divisors[i])
        rest = high[i] % d
        rest = (rest << _HALF) | (low[i] >> _HALF)
        upper = rest // d
        rest = ((rest % d) << _HALF) | (low[i] & _LOW)
        out[i] = (upper << _HALF) + rest // d
    return out


@jit
def tops(starts, n, p, false, true, k):
    """Positives and rows of each group up to the tie at which it reaches `k` rows; −1 rows if no tie here does.

    A group with `k` rows or more before its first tie here also gets −1.
    """
    groups = starts.size - 1
    hits, rows = np.zeros(groups, np.int64), np.full(groups, -1, np.int64)
    for g in range(groups):
        T, F = np.int64(true[g]), np.int64(false[g])
        for i in range(starts[g], starts[g + 1]):
            before = T + F
            T += p[i]
            F += n[i]
            if before < k <= T + F:
                hits[g], rows[g] = T, T + F
    return hits, rows


@jit
def narrow_f4(bits, raw, table, label, words, codes):
    """Encode float32 scores without NaN, given as uint32 `bits`; ``table[raw]`` is the cell."""
    for i in range(bits.size):
        key = rank_f4(bits[i])
        words[i] = ((key & np.uint32(0xFFFF)) << _SHIFT) | table[raw[i]]
        codes[i] = ((key >> np.uint32(16)) << _ONE) | np.uint32(label[i])


@jit
def sort_words(words, starts, spare, low):
    """Sort labelled words within each bucket by their bits from `low` on, stably; the key has 16 bits, a word 32.

    `spare` is scratch of the same size; `low` is uint32.
    """
    places = np.zeros((2, DIGIT + 1), np.int64)
    for j in range(starts.size - 1):
        sort_bucket(words, spare, starts[j], starts[j + 1], low, places)


@jit
def sweep_words(words, starts, buckets, member, state):
    """Sweep over sorted labelled words, narrow or long, from the last to the first; sums are added to `state`.

    `state` is an int64 array of shape (n_groups, `STATE`): initially no key (−1), the rows of the group up to the last
    word, and zero sums. A word is in group 0 and in that of its cell, ``member[cell]``; a loop over more groups
    would leave no registers for group 0, and take twice the time. See `MOST` for the limit on the number of words.
    """
    passed, left, others, start = state[0, _PASSED], state[0, _LEFT], state[0, _OTHERS], state[0, _START]
    area = tied = upper = lower = np.int64(0)
    key_bits = np.int64(8 * words.itemsize - 16)  # of a word
    for bucket in range(buckets.size):
        j = buckets.size - 1 - bucket
        high = np.int64(buckets[j]) << key_bits
        part = words[starts[j] : starts[j + 1]]
        for i in range(part.size):
            word = part[part.size - 1 - i]
            key = high | np.int64(word >> KEY_SHIFT)
            g = np.uint64(member[np.uint64(word & _CELL)])
            if word & _LABEL:
                start = left if passed != key else start
                passed = key
                area += others
                share = np.int64(start / (start + others) * _UNIT)
                upper += share >> _HALF_WORD
                lower += share & _LOWER_HALF
                left -= 1
                T, F = state[g, _START] if state[g, _PASSED] == key else state[g, _LEFT], state[g, _OTHERS]
                state[g, _PASSED], state[g, _START] = key, T
                state[g, AREA] += F
                share = np.int64(T / (T + F) * _UNIT)
                state[g, UPPER] += share >> _HALF_WORD
                state[g, LOWER] += share & _LOWER_HALF
                state[g, _LEFT] -= 1
            else:
                others -= 1
                tied += (start - left) * np.int64(passed == key)  # whether scores tie is hard to predict: no branch
                state[g, _OTHERS] -= 1
                if state[g, _PASSED] == key:
                    state[g, TIED] += state[g, _START] - state[g, _LEFT]
    state[0, _PASSED], state[0, _LEFT], state[0, _OTHERS], state[0, _START] = passed, left, others, start
    state[0, AREA], state[0, TIED], state[0, UPPER], state[0, LOWER] = area, tied, upper, lower


DISTANCE_BITS = 48  # of a key from its bucket's base


@jit
def ties(words, starts, bases):
    """Keys, cells, negatives and positives of labelled words that are sorted within the buckets of `bases`.

    The key of a word is its upper bits above the base of the bucket. A key and cell may occur several times.
    """
    keys, cells = np.empty(words.size, np.uint64), np.empty(words.size, np.uint64)
    neg, pos = np.zeros(words.size, np.int64), np.zeros(words.size, np.int64)
    last = -1
    for j in range(bases.size):
        for i in range(starts[j], starts[j + 1]):
            word = words[i] | _LABEL
            if i == starts[j] or words[i - 1] | _LABEL != word:
                last += 1
                keys[last], cells[last] = bases[j] + np.uint64(word >> KEY_SHIFT), np.uint64(word & _CELL)
            positive = np.int64(words[i] & _LABEL != 0)
            pos[last] += positive
            neg[last] += 1 - positive
    return keys[: last + 1], cells[: last + 1], neg[: last + 1], pos[: last + 1]
