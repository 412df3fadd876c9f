"""Rows of many groups in the order of their scores: a word is a 32-bit rank key, then the 32-bit code of the group.

Keys and buckets are those of `streameval.kernels.keys`, so that all groups together are one ranking, and every group is
its part of it.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import jit

__all__ = [
    "add_areas",
    "add_precisions",
    "add_rows",
    "compacted",
    "count_codes",
    "encode_f4",
    "encode_keys",
    "ordered",
    "recoded",
    "unwoven",
]

_SIGN = np.uint32(1 << 31)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_UNIT = float(1 << 62)


@jit
def encode_f4(bits, groups, label, words, codes):
    """Encode float32 scores that are not NaN, given as uint32 `bits`, with the uint32 codes of their groups."""
    for i in range(bits.size):
        b = np.uint32(0) if bits[i] == _SIGN else bits[i]
        key = np.uint32(~(b ^ (_SIGN | np.uint32(np.int32(b) >> np.int32(31)))))
        words[i] = (np.uint64(key) << _HALF) | np.uint64(groups[i])
        codes[i] = ((key >> np.uint32(16)) << np.uint32(1)) | np.uint32(label[i])


@jit
def encode_keys(keys, groups, label, words, codes):
    """As `encode_f4`, of 32-bit rank keys in uint64 words."""
    for i in range(keys.size):
        words[i] = (keys[i] << _HALF) | np.uint64(groups[i])
        codes[i] = (np.uint32(keys[i] >> np.uint64(16)) << np.uint32(1)) | np.uint32(label[i])


@jit
def recoded(words, table):
    """Words with other codes: ``table[code]`` in place of each."""
    out = np.empty(words.size, np.uint64)
    for i in range(words.size):
        out[i] = (words[i] & ~_LOW) | np.uint64(table[words[i] & _LOW])
    return out


@jit
def count_codes(words, counts, starts, codes, tally):
    """Add the rows of each group to ``tally[label, group]``, piece by piece; one an item where `counts` is empty."""
    for j in range(codes.size):
        side = tally[np.int64(codes[j]) & 1]
        for i in range(starts[j], starts[j + 1]):
            side[words[i] & _LOW] += counts[i] if counts.size else 1


@jit
def unwoven(words, neg, pos, groups):
    """Counts of ascending words, moved group by group: where each of the groups starts, its n, p and rank keys."""
    starts = np.zeros(groups + 1, np.int64)
    for i in range(words.size):
        starts[(words[i] & _LOW) + np.uint64(1)] += 1
    for g in range(groups):
        starts[g + 1] += starts[g]
    cursor = starts[:-1].copy()
    n, p = np.empty(words.size, np.int64), np.empty(words.size, np.int64)
    keys = np.empty(words.size, np.uint32)
    for i in range(words.size):
        g = words[i] & _LOW
        at = np.uint64(cursor[g])
        cursor[g] += 1
        n[at], p[at], keys[at] = neg[i], pos[i], np.uint32(words[i] >> _HALF)
    return starts, n, p, keys


@jit
def add_areas(words, neg, pos, true, high, low):
    """Add Σ n·(2T + p) of each group over ascending words to 128-bit sums; `true`, the T of each group, goes on."""
    for i in range(words.size):
        g = words[i] & _LOW
        T, p = true[g], pos[i]
        high[g], low[g] = multiply_add(high[g], low[g], np.uint64(neg[i]), np.uint64(2 * T + p))
        true[g] = T + p


@jit
def add_precisions(words, neg, pos, false, true, high, low):
    """Add Σ p·(T + p)/(T + p + F + n) in units of 2⁻⁶² as `add_areas` does; `false` and `true` go on."""
    for i in range(words.size):
        g = words[i] & _LOW
        p = pos[i]
        T, F = true[g] + p, false[g] + neg[i]
        true[g], false[g] = T, F
        if p:
            share = np.uint64(np.int64(T / (T + F) * _UNIT))
            high[g], low[g] = multiply_add(high[g], low[g], np.uint64(p), share)


@jit
def add_rows(words, neg, pos, false, true):
    """Add the negatives and positives of each group."""
    for i in range(words.size):
        g = words[i] & _LOW
        false[g] += neg[i]
        true[g] += pos[i]


@jit
def compacted(codes, bound):
    """The codes below `bound` that occur, ascending, and the place of each row's code among them."""
    places = np.zeros(bound, np.int64)
    for i in range(codes.size):
        places[codes[i]] = 1
    found = np.empty(bound, np.int64)
    count = 0
    for code in range(bound):
        if places[code]:
            found[count] = code
            places[code] = count
            count += 1
    out = np.empty(codes.size, np.int64)
    for i in range(codes.size):
        out[i] = places[codes[i]]
    return found[:count], out


@jit
def ordered(places, count):
    """Rows in the order of their places below `count`, and where each place starts."""
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
