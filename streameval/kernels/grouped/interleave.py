"""Rows of many groups in the order of their scores: a word is a 32-bit rank key, then the 32-bit code of the group.

Keys and buckets are those of `streameval.kernels.keys`. All groups together form one ranking; each group is a part of
that ranking.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, two_sum
from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import rank_f4
from streameval.kernels.prefetch import LINE, float_at, half_at, prefetch, word_at

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_BEGUN = np.uint64(LINE // 8 - 1)  # bits of the place of a row that are zero where a cache line of weights begins


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


@inlined
def _word_at(words, i, bits):
    """A word of 32 or 64 bits of an array given by its address."""
    return half_at(words, i) if bits == 32 else word_at(words, i)


@jit
def part_sizes(rows, bits, low, groups):
    """Items and pieces of each group, as an int64 array of shape (2, n_groups); arguments as of `parted`."""
    sizes, last = np.zeros((2, groups), np.int64), np.full(groups, -1)
    for code in range(rows.starts.shape[1] - 1):
        for r in range(rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, code], rows.starts[r, code + 1]):
                group = _word_at(words, i, bits) & low
                sizes[0, group] += 1
                sizes[1, group] += last[group] != code
                last[group] = code
    return sizes


@inlined
def _settled(own):
    """Add the compensated sum of a segment's rows to that of the segments before; returns whether that was inexact."""
    high, rest = two_sum(own[0], own[1])
    total, error = two_sum(own[2], high)
    errors, further = two_sum(own[3], error)
    own[2], error = two_sum(total, rest)
    own[3], last = two_sum(errors, error)
    own[0], own[1] = 0.0, 0.0
    return (further != 0.0) | (last != 0.0)


@jit
def parted(rows, weights, codes, added, bits, low, shift, firsts, kept, kept_counts, kept_weights, pieces):
    """Gather the rows of each group by code, and by segment within a code, in their order.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of narrow, wide or long words
    weights : uint64 array of shape (n_segments,), the addresses of the weights; 0 without weights
    codes, added : uint32 and uint64 arrays of shape (n_codes,), what is added to the keys of each code
    bits : size of a word; the mask `low` selects the group, and the key begins at bit `shift`
    firsts : int64 array of shape (2, n_groups), the first item and the first piece of each group
    kept, kept_counts, kept_weights : outputs: keys (uint16 ones keep only their lower bits), counts and weights; empty
        if there are no counts or weights
    pieces : outputs: code, first item (within the group), rows, and weight of each piece, arrays of shape (n_pieces,);
        the last as in `streameval.states.keyed.layout.Segment`, with the exact sum of the segments' rounded sums

    Returns
    -------
    bool, whether two floats can hold the weight of each piece; always true for a single segment
    """
    kept_codes, kept_starts, kept_rows, sums = pieces
    groups, exact, line = firsts.shape[1], True, LINE // kept.itemsize
    cursor, last, place = firsts.copy(), np.full(groups, -1), np.full(groups, -1)
    own = np.zeros((groups, 4))  # compensated sum of a group's rows in one segment, then of those before
    for code in range(codes.size):
        for r in range(rows.words.size):
            words, here = rows.words[r], code * rows.words.size + r
            for i in range(rows.starts[r, code], rows.starts[r, code + 1]):
                word = _word_at(words, i, bits)
                group = word & low
                at = np.uint64(cursor[0, group])
                cursor[0, group] += 1
                if place[group] != here:
                    place[group] = here
                    if kept_weights.size:
                        exact &= not _settled(own[group])
                    if last[group] != code:
                        piece = np.uint64(cursor[1, group])
                        if kept_weights.size and last[group] >= 0:
                            sums[0, piece - _ONE], sums[1, piece - _ONE] = two_sum(own[group, 2], own[group, 3])
                            own[group, 2], own[group, 3] = 0.0, 0.0
                        cursor[1, group] += 1
                        kept_codes[piece], kept_starts[piece] = codes[code], np.int64(at) - firsts[0, group]
                        kept_rows[piece], last[group] = 0, code
                kept[at] = added[code] + (word >> shift)
                if kept_counts.size:
                    count = np.int64(word_at(rows.counts[r], i)) if rows.counts[r] else 1
                    kept_counts[at] = count
                    kept_rows[np.uint64(cursor[1, group] - 1)] += count
                if kept_weights.size:
                    weight = float_at(weights[r], i)
                    kept_weights[at] = weight
                    if at & _BEGUN == 0:
                        prefetch(kept_weights, np.int64(at) + LINE // 8)
                        prefetch(kept, np.int64(at) + line)
                    own[group, 0], own[group, 1] = compensated(own[group, 0], own[group, 1], weight)
    for group in range(groups if kept_weights.size else 0):
        if last[group] >= 0:
            exact &= not _settled(own[group])
            piece = np.uint64(cursor[1, group] - 1)
            sums[0, piece], sums[1, piece] = two_sum(own[group, 2], own[group, 3])
    return exact


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


@inlined
def _place(word, places, bits, shift):
    """The place of a row, from its first word; negative if the row is left out."""
    return places[(word & bits) >> shift]


@jit
def count_places(rows, places, bits, shift, items):
    """Count the items of each place in each bucket: increments ``items[place, bucket]``.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of items of label 0
    places : int64 array of shape (n_codes,), the place of each code; items with a negative place are left out
    bits, shift : uint64, the bits of the first word that hold the code, and the lowest of them
    items : int64 array of shape (n_places, n_buckets)
    """
    for b in range(items.shape[1]):
        for r in range(rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
                place = _place(word_at(words, i), places, bits, shift)
                if place >= 0:
                    items[np.uint64(place), b] += 1


@jit
def separate(rows, places, bits, shift, plain, further, cursor, words, rest, counts, sums):
    """Write the items of each place, bucket by bucket, as plain words.

    Parameters
    ----------
    rows, places, bits, shift : see `count_places`
    plain : uint64 array of shape (n_buckets,), what the code replaced in the words of each bucket
    further : tuple whose length is the number of further words in a key
    cursor : int64 array of shape (n_places, n_buckets), where the items begin; moved to where they end
    words, rest, counts : outputs; counts are empty if each item is one row
    sums : int64 array of the shape of `cursor`, incremented by the counts
    """
    columns, more = len(further), rest.reshape(-1)
    for b in range(cursor.shape[1]):
        for r in range(rows.words.size):
            word_column, rest_column, count_column = rows.words[r], rows.rest[r], rows.counts[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
                word = word_at(word_column, i)
                place = np.int64(_place(word, places, bits, shift))
                if place < 0:
                    continue
                at = np.uint64(cursor[np.uint64(place), b])
                cursor[np.uint64(place), b] += 1
                words[at] = (word & ~bits) | plain[b]
                for c in range(columns):
                    more[at * np.uint64(columns) + np.uint64(c)] = word_at(rest_column, i * columns + c)
                if counts.size:
                    count = np.int64(word_at(count_column, i)) if count_column else 1
                    counts[at] = count
                    sums[np.uint64(place), b] += count
