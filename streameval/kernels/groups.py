"""Loops over the rows of many groups: by the code of their group, and over the scores of each group.

A word ends in a code of 32 bits, after a key or its index. A *tie* is the rows of one group with one score: n negatives
and p positives. Ties of a group are adjacent and descend from its best score; group g begins at ``starts[g]``. T and F
are the positives and negatives of the group before a tie. Sums are integers: 128 bits as (high, low) words where one
word may be too short.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import jit

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

_SHORT = 1 << 30  # rows of a group whose products fit into a word
_UNIT = float(1 << 62)


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

    Code c lies in one group of each slicing, ``member[c]``; codes of a group with equal keys are added up.
    """
    starts, last = np.zeros(groups + 1, np.int64), np.zeros(groups, np.int64)  # keys from 1 on
    for i in range(words.size):
        key = np.int64(words[i] >> _HALF) + 1
        for k in range(member.shape[1]):
            g = np.uint64(member[words[i] & _LOW, k])
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
        for k in range(member.shape[1]):
            g = np.uint64(member[words[i] & _LOW, k])
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
def recoded_rows(codes, table):
    """``table[code]`` for the code of each row, as an int64 array."""
    out = np.empty(codes.size, np.int64)
    for i in range(codes.size):
        out[i] = table[codes[i]]
    return out


@jit
def ordered(places, count):
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
