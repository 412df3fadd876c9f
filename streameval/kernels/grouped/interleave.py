"""Rows of many groups in the order of their scores: a word is a 32-bit rank key, then the 32-bit code of the group.

Keys and buckets are those of `streameval.kernels.keys`. All groups together form one ranking; each group is a part of
that ranking.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, two_sum
from streameval.kernels.jit import jit
from streameval.kernels.keys import rank_f4

__all__ = [
    "by_group",
    "count_groups",
    "encode_f4",
    "encode_keys",
    "kept_words",
    "mark_codes",
    "ordered",
    "part_sizes",
    "parted",
    "recoded",
    "recoded_rows",
    "replaced_bits",
    "without",
]

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@jit
def encode_f4(bits, raw, table, label, words, codes):
    """Encode float32 scores without NaN, given as uint32 `bits`; ``table[raw]`` is the code of the group."""
    for i in range(bits.size):
        key = rank_f4(bits[i])
        words[i] = (np.uint64(key) << _HALF) | np.uint64(table[raw[i]])
        codes[i] = ((key >> np.uint32(16)) << np.uint32(1)) | np.uint32(label[i])


@jit
def encode_keys(keys, raw, table, label, words, codes):
    """As `encode_f4`, for 32-bit rank keys in uint64 words."""
    for i in range(keys.size):
        words[i] = (keys[i] << _HALF) | np.uint64(table[raw[i]])
        codes[i] = (np.uint32(keys[i] >> np.uint64(16)) << np.uint32(1)) | np.uint32(label[i])


@jit
def recoded(words, table, low):
    """Words with each code replaced by ``table[code]``; `low` is the mask of the code."""
    out = np.empty_like(words)
    for i in range(words.size):
        code = words[i] & low
        out[i] = words[i] ^ code ^ table[code]
    return out


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
def kept_words(words, counts, starts, added, marks, shift, low, kept, kept_counts, ends, rows):
    """Extract the words of marked groups from their pieces; returns how many there are.

    Parameters
    ----------
    words : narrow, wide or long words; `low` is the mask of the group, and the key begins at bit `shift`
    counts : rows of each word; empty if each is one row
    starts : first word of each piece, and the end
    added : uint64 array of shape (n_pieces,), what is added to the keys of each piece
    marks : bool array of shape (n_groups,)
    kept, kept_counts : outputs, one longer than needed: keys (uint16 ones keep only their lower bits), and int64 counts
    ends, rows : outputs: the end of each piece, and its rows
    """
    n = np.uint64(0)
    for j in range(starts.size - 1):
        found, first = np.int64(0), n
        for i in range(starts[j], starts[j + 1]):
            kept[n] = added[j] + np.uint64(words[i] >> shift)
            here = marks[words[i] & low]
            if counts.size:
                kept_counts[n] = counts[i]
                found += counts[i] * here
            n += np.uint64(here)
        ends[j] = n
        rows[j] = found if counts.size else np.int64(n - first)
    return n


@jit
def part_sizes(words, starts, low, groups):
    """Items and pieces of each group, as an int64 array of shape (2, n_groups)."""
    sizes, last = np.zeros((2, groups), np.int64), np.full(groups, -1)
    for j in range(starts.size - 1):
        for i in range(starts[j], starts[j + 1]):
            group = np.uint64(words[i] & low)
            sizes[0, group] += 1
            sizes[1, group] += last[group] != j
            last[group] = j
    return sizes


@jit
def parted(words, counts, weights, starts, codes, added, shift, low, firsts, kept, kept_counts, kept_weights, pieces):
    """Gather the rows of each group, in their order.

    Parameters
    ----------
    words, counts, starts, added, shift, low : as `kept_words` takes them
    weights : weight of each word; empty without weights
    codes : uint32 array of shape (n_pieces,)
    firsts : int64 array of shape (2, n_groups), the first item and the first piece of each group
    kept, kept_counts, kept_weights : outputs: keys, counts and weights; empty if there are no counts or weights
    pieces : outputs: code, first item (within the group), rows, and weight of each piece, arrays of shape (n_pieces,);
        the last is as `streameval.kernels.segments.sum_pieces` has it
    """
    kept_codes, kept_starts, rows, sums = pieces
    cursor, last = firsts.copy(), np.full(firsts.shape[1], -1)
    for j in range(codes.size):
        for i in range(starts[j], starts[j + 1]):
            group = np.uint64(words[i] & low)
            at = np.uint64(cursor[0, group])
            cursor[0, group] += 1
            if last[group] != j:
                last[group] = j
                piece = np.uint64(cursor[1, group])
                cursor[1, group] += 1
                kept_codes[piece], kept_starts[piece] = codes[j], np.int64(at) - firsts[0, group]
                rows[piece], sums[:, piece] = 0, 0.0
            piece = np.uint64(cursor[1, group] - 1)
            kept[at] = added[j] + np.uint64(words[i] >> shift)
            if counts.size:
                kept_counts[at] = counts[i]
                rows[piece] += counts[i]
            if weights.size:
                kept_weights[at] = weights[i]
                sums[0, piece], sums[1, piece] = compensated(sums[0, piece], sums[1, piece], weights[i])
    for piece in range(sums.shape[1]):
        sums[0, piece], sums[1, piece] = two_sum(sums[0, piece], sums[1, piece])


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
def without(keys, n, p, places, own_n, own_p, left_keys, left_n, left_p):
    """Subtract the ties of a group from the ties of all rows; returns how many ties are left.

    Parameters
    ----------
    keys, n, p : ties of all rows
    places, own_n, own_p : ties of the group: their places among those of all rows, ascending, and their rows
    left_keys, left_n, left_p : outputs, one longer than `keys`
    """
    j, left = np.uint64(0), np.uint64(0)
    for i in range(keys.size):
        left_keys[left], left_n[left], left_p[left] = keys[i], n[i], p[i]
        if j < places.size and places[j] == i:
            left_n[left] -= own_n[j]
            left_p[left] -= own_p[j]
            j += np.uint64(1)
        left += np.uint64((left_n[left] | left_p[left]) != 0)
    return np.int64(left)


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
def replaced_bits(words, starts, bits, kept):
    """Words with the bits of `kept`, and otherwise those of their piece; piece j begins at ``starts[j]``."""
    out = np.empty_like(words)
    for j in range(bits.size):
        for i in range(starts[j], starts[j + 1]):
            out[i] = (words[i] & kept) | bits[j]
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
