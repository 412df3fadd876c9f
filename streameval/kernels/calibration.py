"""Loops of calibration over the groups of equal score, from the best score to the worst.

A probability s is a *word*, the integer nearest to s · 2⁶². Sums of counts times words are integers of 128 bits, so
they do not depend on the order of summation. A group has p positives and n negatives.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add, two_sum
from streameval.kernels.jit import jit

__all__ = [
    "drift_counts",
    "drift_weights",
    "logit_counts",
    "newton_counts",
    "pool_counts",
    "pool_weights",
    "square_counts",
]

_ONE = np.uint64(1 << 62)
_SMALL = 1 << 31  # counts whose products fit a word


@jit
def square_counts(neg, pos, score):
    """Σ p·(1 − s)² + n·s² in units of 2⁻⁶², as two words."""
    high, low = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        s = score[i]
        if pos[i]:
            square = np.uint64(np.int64(np.rint((1.0 - s) * (1.0 - s) * 4611686018427387904.0)))
            high, low = multiply_add(high, low, np.uint64(pos[i]), square)
        if neg[i]:
            square = np.uint64(np.int64(np.rint(s * s * 4611686018427387904.0)))
            high, low = multiply_add(high, low, np.uint64(neg[i]), square)
    return high, low


@jit
def _less(high, low, other_high, other_low):
    """Whether one 128-bit number in two's complement is less than another."""
    return low < other_low if high == other_high else np.int64(high) < np.int64(other_high)


@jit
def drift_counts(neg, pos, words):
    """Running sums of p − (p + n)·s in units of 2⁻⁶²: the last, the least and the greatest, as rows of two words.

    The least and the greatest also range over the empty sum, 0.
    """
    high, low = np.uint64(0), np.uint64(0)
    least_high, least_low, most_high, most_low = high, low, high, low
    for i in range(neg.size):
        s = np.uint64(words[i])
        high, low = multiply_add(high, low, np.uint64(pos[i]), _ONE - s)
        down_high, down_low = multiply_add(np.uint64(0), np.uint64(0), np.uint64(neg[i]), s)
        high = high - down_high - np.uint64(low < down_low)
        low = low - down_low
        if _less(high, low, least_high, least_low):
            least_high, least_low = high, low
        if _less(most_high, most_low, high, low):
            most_high, most_low = high, low
    return np.array([[high, low], [least_high, least_low], [most_high, most_low]])


@jit
def drift_weights(neg, pos, score):
    """`drift_counts` for weights, compensated, in units of 1."""
    total, slip, least, most = 0.0, 0.0, 0.0, 0.0
    for i in range(neg.size):
        total, low = two_sum(total, pos[i] * (1.0 - score[i]))
        slip += low
        total, low = two_sum(total, -neg[i] * score[i])
        slip += low
        least, most = min(least, total + slip), max(most, total + slip)
    return np.array([total + slip, least, most])


@jit
def _at_least(a, b, c, d):
    """Whether a·b ≥ c·d, for counts."""
    if max(a, b) < _SMALL and max(c, d) < _SMALL:
        return a * b >= c * d
    zero = np.uint64(0)
    high, low = multiply_add(zero, zero, np.uint64(a), np.uint64(b))
    other_high, other_low = multiply_add(zero, zero, np.uint64(c), np.uint64(d))
    return low >= other_low if high == other_high else high > other_high


@jit
def pool_counts(neg, pos):
    """Pool adjacent violators: the blocks of the isotonic fit as negatives, positives and last group of each.

    The share of positives falls strictly from block to block, so the blocks are unique: the vertices of the convex hull
    of the cumulative sums.
    """
    n, p, last = np.empty(neg.size, np.int64), np.empty(neg.size, np.int64), np.empty(neg.size, np.int64)
    count = 0
    for i in range(neg.size):
        n[count], p[count], last[count] = neg[i], pos[i], i
        while count and _at_least(p[count], n[count - 1] + p[count - 1], p[count - 1], n[count] + p[count]):
            n[count - 1] += n[count]
            p[count - 1] += p[count]
            last[count - 1] = i
            count -= 1
        count += 1
    return n[:count].copy(), p[:count].copy(), last[:count].copy()


@jit
def pool_weights(neg, pos):
    """`pool_counts` for weights; groups without weight join the block before them."""
    n, p, last = np.empty(neg.size), np.empty(neg.size), np.empty(neg.size, np.int64)
    count = 0
    for i in range(neg.size):
        n[count], p[count], last[count] = neg[i], pos[i], i
        while count and p[count] * (n[count - 1] + p[count - 1]) >= p[count - 1] * (n[count] + p[count]):
            n[count - 1] += n[count]
            p[count - 1] += p[count]
            last[count - 1] = i
            count -= 1
        count += 1
    return n[:count].copy(), p[:count].copy(), last[:count].copy()


@jit
def logit_counts(neg, pos, logits, scale, span, negatives, positives, offsets):
    """Count groups in bins of width 1/scale over (−span, span), the outermost ones open.

    `offsets` takes Σ (p + n)·d in units of 2⁻²⁰, d the distance from a bin's centre in bins, within (−½, ½).
    """
    most = negatives.size - 1
    for i in range(neg.size):
        place = (logits[i] + span) * scale
        at = min(max(np.int64(np.floor(place)), 0), most)
        off = min(max(place - at - 0.5, -0.5), 0.5)
        negatives[at] += neg[i]
        positives[at] += pos[i]
        offsets[at] += (neg[i] + pos[i]) * np.int64(np.rint(off * 1048576.0))


@jit
def _add_fixed(sums, i, value):
    """Add a number to a sum in fixed point: whole units, and the rest in units of 2⁻⁶² below 1."""
    whole = np.floor(value)
    rest = sums[i, 1] + np.int64((value - whole) * 4611686018427387904.0)
    carry = rest >> 62
    sums[i, 0] += np.int64(whole) + carry
    sums[i, 1] = rest - (carry << 62)


@jit
def newton_counts(neg, pos, logits, lost, turn):
    """Gradient and curvature of the logistic likelihood, as five sums in fixed point, an int64 array of shape (5, 2).

    Parameters
    ----------
    neg, pos : counts of each group
    logits : x
    lost : exp(−|z|), z = a + b·x
    turn : whether z is negative
    """
    sums = np.zeros((5, 2), np.int64)
    for i in range(neg.size):
        one = 1.0 / (1.0 + lost[i])
        share, other = (lost[i] * one, one) if turn[i] else (one, lost[i] * one)
        slack = pos[i] * other - neg[i] * share
        curve = (neg[i] + pos[i]) * share * other
        x = logits[i]
        _add_fixed(sums, 0, slack)
        _add_fixed(sums, 1, slack * x)
        _add_fixed(sums, 2, curve)
        _add_fixed(sums, 3, curve * x)
        _add_fixed(sums, 4, curve * x * x)
    return sums
