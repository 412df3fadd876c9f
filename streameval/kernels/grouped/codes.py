"""Loops over the codes of groups, and over words that end in one: a key or its index, then a tag of 32 bits."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


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
