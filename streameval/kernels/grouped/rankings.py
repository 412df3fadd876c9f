"""Loops over the scores of many groups, such as users: each group is ranked separately.

A *tie* is the rows of one group with one score: n negatives and p positives. Ties of a group are adjacent and descend
from its best score; group g begins at ``starts[g]``. T and F are the positives and negatives of the group before a tie.
Sums are integers: 128 bits as (high, low) words where one word may be too short.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import jit
from streameval.kernels.keys import rank_f4

MIX32 = 0x9E3779B1  # odd, so that multiplying by it permutes the 32-bit integers
_UNMIX32 = pow(MIX32, -1, 1 << 32)

_MIX = np.uint32(MIX32)
_WORD = np.uint64(32)
_MAGNITUDE, _INFINITE = np.uint32((1 << 31) - 1), np.uint32(0x7F800000)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_SHORT = 1 << 30  # rows of a group whose products fit into a word
_UNIT = float(1 << 62)


@jit
def encode(ids, keys, label, shift, words, codes):
    """Encode rows with 32-bit ids (the lower half of `ids`) and 32-bit keys; a word is the mixed id, then the key."""
    for i in range(ids.size):
        mixed = np.uint32(np.uint32(ids[i]) * _MIX)
        words[i] = (np.uint64(mixed) << _WORD) | keys[i]
        codes[i] = (np.uint32(mixed >> shift) << np.uint32(1)) | np.uint32(label[i])


@jit
def narrow_f4(bits, ids, bias):
    """Whether no float32 score, given as uint32 `bits`, is NaN, and all ``ids + bias`` fit into 32 bits."""
    beyond = False
    for i in range(ids.size):
        beyond |= (bits[i] & _MAGNITUDE) > _INFINITE
        beyond |= (ids[i] + bias) > _LOW
    return not beyond


@jit
def encode_f4(ids, bits, label, shift, words, codes):
    """As `encode`, for float32 scores without NaN, given as uint32 `bits`."""
    for i in range(ids.size):
        mixed = np.uint32(np.uint32(ids[i]) * _MIX)
        key = rank_f4(bits[i])
        words[i] = (np.uint64(mixed) << _WORD) | np.uint64(key)
        codes[i] = (np.uint32(mixed >> shift) << np.uint32(1)) | np.uint32(label[i])


def unmix(mixed: np.ndarray) -> np.ndarray:
    """Ids from mixed 32-bit ids, as a uint64 array.

    Examples
    --------
    >>> mixed = np.array([0, 7 * MIX32 % 2**32], np.uint64)
    >>> unmix(mixed).tolist()
    [0, 7]
    """
    ids: np.ndarray = (mixed * np.uint64(_UNMIX32)) & _LOW
    return ids


@jit
def row_ties(words, starts, rows):
    """Ties of groups of rows; a row is a word of id and key shifted left by one, with the label in the lowest bit.

    Group g has ``rows[g]`` words from ``starts[g]`` on, in any order. Returns the start of each group, and n and p of
    the ties.
    """
    items = rows.sum()
    n, p = np.zeros(items, np.int64), np.zeros(items, np.int64)
    firsts = np.zeros(starts.size + 1, np.int64)
    ties = 0
    for g in range(starts.size):
        own = np.sort(words[starts[g] : starts[g] + rows[g]])
        for i in range(own.size):
            ties += np.int64(i == 0 or own[i] >> _ONE != own[i - 1] >> _ONE)
            p[ties - 1] += np.int64(own[i] & _ONE)
            n[ties - 1] += np.int64(~own[i] & _ONE)
        firsts[g + 1] = ties
    return firsts, n[:ties], p[:ties]


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
        rest = (rest << _WORD) | (low[i] >> _WORD)
        upper = rest // d
        rest = ((rest % d) << _WORD) | (low[i] & _LOW)
        out[i] = (upper << _WORD) + rest // d
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
