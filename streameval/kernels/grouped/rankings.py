"""Loops over the scores of many groups, such as users: each group is ranked separately.

A *tie* is the rows of one group with one score: n negatives and p positives. Ties of a group are adjacent and descend
from its best score; group g begins at ``starts[g]``. T and F are the positives and negatives of the group before a tie.
Sums are integers: 128 bits as (high, low) words where one word may be too short.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import jit

MIX32 = 0x9E3779B1  # odd, so that multiplying by it permutes the 32-bit integers
_UNMIX32 = pow(MIX32, -1, 1 << 32)

_WORD = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_SHORT = 1 << 30  # rows of a group whose products fit into a word
_UNIT = float(1 << 62)


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
