"""Sums of probabilities over the groups of equal score, from the best score to the worst.

A probability s is stored as a *word*, the integer nearest to s · 2⁶². Sums of counts times words are 128-bit integers,
so they do not depend on the order of summation. A group has p positives and n negatives.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, multiply_add
from streameval.kernels.jit import inlined, jit
from streameval.kernels.thresholds import STRIDE

_ONE = np.uint64(1 << 62)
_PER_WORD = 2.0**-62
_CLOSE = 2e-15  # relative; more than twice the rounding error of a sum of a few floats
_TOLD = 1 << 48  # rows whose floating-point sum of shares has an error below 1


@inlined
def square_word(share):
    """The square of a share as a word."""
    return np.int64(np.rint(share * share * 4611686018427387904.0))


@inlined
def share_word(share):
    """A share as a word."""
    return np.int64(np.rint(share * 4611686018427387904.0))


@jit
def stride_sums(neg, pos, score, before_neg, before_pos):
    """The sums behind Brier score, cumulative error and reliability, in one loop over descending scores.

    The sums over a stride are computed modulo 2⁶⁴. All scores of a stride lie between its first and its last; if these
    are near each other, they determine the upper word. In the few other strides, groups are added one by one.

    Returns
    -------
    levels : int64 array of shape (2, n_strides + 1), as `streameval.kernels.thresholds.stride_levels`
    starts : uint64 array of shape (n_strides + 1, 2), Σ (p + n)·s over the groups before each stride, in units of 2⁻⁶²
    squares : two words, Σ p·(1 − s)² + n·s² in units of 2⁻⁶²
    full : bool, whether no group is empty
    """
    strides = (neg.size + STRIDE - 1) // STRIDE
    levels, starts = np.empty((2, strides + 1), np.int64), np.zeros((strides + 1, 2), np.uint64)
    false, true, empty = np.int64(before_neg), np.int64(before_pos), 0
    levels[0, 0], levels[1, 0] = false, true
    high, low, square_high, square_low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for k in range(strides):
        n, p = neg[k * STRIDE : (k + 1) * STRIDE], pos[k * STRIDE : (k + 1) * STRIDE]
        s = score[k * STRIDE : (k + 1) * STRIDE]
        of_neg, of_pos, words, squares = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for i in range(n.size):
            of_neg += n[i]
            of_pos += p[i]
            empty += n[i] + p[i] == 0
            words += (n[i] + p[i]) * share_word(s[i])
            squares += p[i] * square_word(1.0 - s[i]) + n[i] * square_word(s[i])
        best, worst = s[0], s[s.size - 1]
        if (of_neg + of_pos) * (best - worst) < 1.0 and of_neg + of_pos < _TOLD:
            near = (of_neg + of_pos) * (best + worst) / 2
            high, low = _add_modulo(high, low, np.uint64(words), near)
            near = (of_pos * ((1.0 - best) ** 2 + (1.0 - worst) ** 2) + of_neg * (best**2 + worst**2)) / 2
            square_high, square_low = _add_modulo(square_high, square_low, np.uint64(squares), near)
        else:
            for i in range(n.size):
                high, low = multiply_add(high, low, np.uint64(n[i] + p[i]), np.uint64(share_word(s[i])))
                hit, miss = np.uint64(square_word(1.0 - s[i])), np.uint64(square_word(s[i]))
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(p[i]), hit)
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(n[i]), miss)
        false += of_neg
        true += of_pos
        levels[0, k + 1], levels[1, k + 1] = false, true
        starts[k + 1, 0], starts[k + 1, 1] = high, low
    return levels, starts, (square_high, square_low), empty == 0


@inlined
def _add_modulo(high, low, word, near):
    """128-bit ``(high, low)`` plus a sum, given by its low word and by its approximate value `near`.

    `near` is in units of 2⁶² and off by less than 1. So the upper word, in units of 2⁶⁴, is known to within ¼ plus a
    small rounding error.
    """
    total = low + word
    upper = np.uint64(np.int64(np.rint((near - np.float64(word) * _PER_WORD) / 4)))
    return high + upper + np.uint64(total < low), total


@jit
def _less(high, low, other_high, other_low):
    """Whether one 128-bit number in two's complement is less than another."""
    return low < other_low if high == other_high else np.int64(high) < np.int64(other_high)


@jit
def extreme_strides(levels, starts):
    """Indices of the strides that may hold the minimum or maximum of the running sum of p − (p + n)·s, ascending.

    `stride_sums` gives the sums at the ends of strides; in floating point they bound both extremes. Within a stride the
    sum rises by at most its positives, so few strides may hold an extreme.
    """
    strides = levels.shape[1] - 1
    found, ends = np.empty(strides, np.int64), np.zeros(strides + 1)
    for k in range(1, strides + 1):
        ends[k] = (levels[1, k] - levels[1, 0]) - (starts[k, 0] * 4.0 + starts[k, 1] * _PER_WORD)
    slack = _CLOSE * (levels[:, strides] - levels[:, 0]).sum()
    least, most, count = ends.min() + slack, ends.max() - slack, 0
    for k in range(strides):
        hits = levels[1, k + 1] - levels[1, k]
        if ends[k] + hits >= most or ends[k + 1] - hits <= least:
            found[count] = k
            count += 1
    return found[:count].copy()


@jit
def drift_counts(neg, pos, score, levels, starts, followed):
    """Running sums of p − (p + n)·s: the last, the minimum and the maximum, in units of 2⁻⁶².

    The minimum and maximum include the empty sum, 0.

    Parameters
    ----------
    neg, pos : int64 arrays of shape (n_groups,)
    score : scores of the groups in the strides `followed`, one after the other
    levels, starts : from `stride_sums`
    followed : strides that are summed group by group, from `extreme_strides`

    Returns
    -------
    uint64 array of shape (3, 2), high and low words in two's complement
    """
    found, at = np.zeros((3, 2), np.uint64), 0
    for k in followed:
        high, low = _ended(levels, starts, k)
        for i in range(k * STRIDE, min((k + 1) * STRIDE, neg.size)):
            high, low = _drifted(high, low, neg[i], pos[i], share_word(score[at]))
            at += 1
            _fall(found, high, low)
            _rise(found, high, low)
    found[0, 0], found[0, 1] = _ended(levels, starts, levels.shape[1] - 1)
    return found


@jit
def _ended(levels, starts, k):
    """The running sum before a stride, as two words."""
    high, low = multiply_add(np.uint64(0), np.uint64(0), np.uint64(levels[1, k] - levels[1, 0]), _ONE)
    return high - starts[k, 0] - np.uint64(low < starts[k, 1]), low - starts[k, 1]


@jit
def _drifted(high, low, neg, pos, word):
    """A running sum of two words after one more group."""
    s = np.uint64(word)
    high, low = multiply_add(high, low, np.uint64(pos), _ONE - s)
    of_neg_high, of_neg_low = multiply_add(np.uint64(0), np.uint64(0), np.uint64(neg), s)
    return high - of_neg_high - np.uint64(low < of_neg_low), low - of_neg_low


@jit
def _fall(found, high, low):
    """Update the minimum, row 1."""
    if _less(high, low, found[1, 0], found[1, 1]):
        found[1, 0], found[1, 1] = high, low


@jit
def _rise(found, high, low):
    """Update the maximum, row 2."""
    if _less(found[2, 0], found[2, 1], high, low):
        found[2, 0], found[2, 1] = high, low


@jit
def drift_weights(neg, pos, score):
    """`drift_counts` for weights: compensated sums in units of 1, as a float64 array of shape (3,)."""
    total, slip, least, most = 0.0, 0.0, 0.0, 0.0
    for i in range(neg.size):
        total, slip = compensated(total, slip, pos[i] * (1.0 - score[i]))
        total, slip = compensated(total, slip, -neg[i] * score[i])
        least, most = min(least, total + slip), max(most, total + slip)
    return np.array([total + slip, least, most])
