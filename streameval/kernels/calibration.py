"""Loops of calibration over the groups of equal score, from the best score to the worst.

A probability s is a *word*, the integer nearest to s · 2⁶². Sums of counts times words are integers of 128 bits, so
they do not depend on the order of summation. A group has p positives and n negatives.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, add_words, multiply_add, two_sum
from streameval.kernels.jit import inlined, jit

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
_STRIDE = 64
_FIT = 1 << 31  # counts whose products fit a word
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@inlined
def _square(share):
    """The square of a share as a word."""
    return np.uint64(np.int64(np.rint(share * share * 4611686018427387904.0)))


@jit
def square_counts(neg, pos, score):
    """Σ p·(1 − s)² + n·s² in units of 2⁻⁶², as two words."""
    high, low = np.uint64(0), np.uint64(0)
    if neg.sum() + pos.sum() < HELD:
        upper, lower = np.uint64(0), np.uint64(0)
        for i in range(neg.size):
            of_pos, of_neg = _square(1.0 - score[i]), _square(score[i])
            upper += np.uint64(pos[i]) * (of_pos >> _HALF) + np.uint64(neg[i]) * (of_neg >> _HALF)
            lower += np.uint64(pos[i]) * (of_pos & _LOW) + np.uint64(neg[i]) * (of_neg & _LOW)
        return add_words(high, low, upper, lower)
    for i in range(neg.size):
        high, low = multiply_add(high, low, np.uint64(pos[i]), _square(1.0 - score[i]))
        high, low = multiply_add(high, low, np.uint64(neg[i]), _square(score[i]))
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
        if neg[i] + pos[i] == 1:
            step = np.uint64(pos[i]) * _ONE - s  # in two's complement
            low = low + step
            high = high + np.uint64(low < step) + np.uint64(np.int64(step) >> 63)
        else:
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
    if max(a, b) < _FIT and max(c, d) < _FIT:
        return a * b >= c * d
    zero = np.uint64(0)
    high, low = multiply_add(zero, zero, np.uint64(a), np.uint64(b))
    other_high, other_low = multiply_add(zero, zero, np.uint64(c), np.uint64(d))
    return low >= other_low if high == other_high else high > other_high


@jit
def pool_counts(neg, pos):
    """Pool adjacent violators: the blocks of the isotonic fit as negatives, positives and last group of each.

    The share of positives falls strictly from block to block, so the blocks are unique: the vertices of the convex hull
    of the cumulative sums. Every group holds something.

    A vertex is not below the hull of the sums after every 64th group, and few sums are above it: only these are pooled.
    """
    if neg.size < 4 * _STRIDE or neg.sum() + pos.sum() >= HELD:
        return _pooled(neg, pos)
    strides = (neg.size + _STRIDE - 1) // _STRIDE
    n, p = np.zeros(strides, np.int64), np.zeros(strides, np.int64)
    for i in range(neg.size):
        n[i // _STRIDE] += neg[i]
        p[i // _STRIDE] += pos[i]
    n, p, edges = _pooled(n, p)
    sums, place = np.empty((2, neg.size), np.int64), np.empty(neg.size, np.int64)
    count, start = 0, 0
    for k in range(edges.size):
        stop, width, rise = min((edges[k] + 1) * _STRIDE, neg.size), n[k] + p[k], p[k]
        x, y, x_before, y_before = 0, 0, 0, 0
        for i in range(start, stop):
            x += neg[i] + pos[i]
            y += pos[i]
            if y * width > rise * x or i == stop - 1:
                sums[0, count], sums[1, count], place[count] = x - x_before - y + y_before, y - y_before, i
                x_before, y_before = x, y
                count += 1
        start = stop
    n, p, last = _pooled(sums[0, :count], sums[1, :count])
    return n, p, place[last]


@jit
def _pooled(neg, pos):
    """`pool_counts`, group by group."""
    n, p, last = np.empty(neg.size, np.int64), np.empty(neg.size, np.int64), np.empty(neg.size, np.int64)
    count = 0
    for i in range(neg.size):
        of_neg, of_pos = neg[i], pos[i]
        while count and _at_least(of_pos, n[count - 1] + p[count - 1], p[count - 1], of_neg + of_pos):
            of_neg += n[count - 1]
            of_pos += p[count - 1]
            count -= 1
        n[count], p[count], last[count] = of_neg, of_pos, i
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
def logit_counts(neg, pos, score, scale, span, first, table):
    """Count groups in bins of the logit, of width 1/scale over (−span, span); logarithms are taken once for each bin.

    Parameters
    ----------
    neg, pos, score : of each group, scores descending between 0 and 1
    scale, span : of the bins
    first : number of the first bin of `table`
    table : int64 array of shape (10, n_bins)
        Takes Σn, Σp; Σu·d and Σp·d, each as two rows in units of 2⁻²⁰ and 2⁻⁴⁰; Σu·d² … Σu·d⁵ in units of 2⁻³⁰. u is
        p + n, d the distance from a bin's centre in bins, within (−½, ½).
    """
    i, size = 0, neg.size
    while i < size:
        upper = score[i] >= 0.5
        way = 1.0 if upper else -1.0  # a bin is known by 1 − s above ½ and by s below, which resolve it
        rare = 1.0 - score[i] if upper else score[i]
        at = np.int64(np.floor((span - way * np.log(rare / (1.0 - rare))) * scale))
        edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
        if way * (rare - edge) > 0.0:
            at -= 1
            edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
        elif way * (rare - 1.0 / (1.0 + np.exp(way * ((at + 1) / scale - span)))) <= 0.0:
            at += 1
            edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
        centre = 1.0 / (1.0 + np.exp(way * ((at + 0.5) / scale - span)))
        odds, per, unit = centre / (1.0 - centre), 1.0 / centre, -way * scale
        second, third, fourth = (odds**2 - 1.0) / 2, (1.0 + odds**3) / 3, (odds**4 - 1.0) / 4
        of_neg, of_pos, all_high, all_low, pos_high, pos_low = 0, 0, 0, 0, 0, 0
        squares, cubes, fourths, fifths = 0, 0, 0, 0
        while i < size and way * (rare - edge) <= 0.0:
            p, u = pos[i], neg[i] + pos[i]
            t = (rare - centre) * per
            d = min(max(unit * t * (1.0 + odds + t * (second + t * (third + t * fourth))), -0.5), 0.5)
            word, square = np.int64(np.rint(d * 1099511627776.0)), d * d
            of_neg += neg[i]
            of_pos += p
            all_high += u * (word >> 20)
            all_low += u * (word & 1048575)
            pos_high += p * (word >> 20)
            pos_low += p * (word & 1048575)
            squares += u * np.int64(np.rint(square * 1073741824.0))
            cubes += u * np.int64(np.rint(square * d * 1073741824.0))
            fourths += u * np.int64(np.rint(square * square * 1073741824.0))
            fifths += u * np.int64(np.rint(square * square * d * 1073741824.0))
            i += 1
            if i < size:
                rare = 1.0 - score[i] if upper else score[i]
        found = of_neg, of_pos, all_high, all_low, pos_high, pos_low, squares, cubes, fourths, fifths
        for k in range(10):
            table[k, at - first] += found[k]


@inlined
def _halves(value, whole):
    """The rest of a number above a whole one in units of 2⁻⁶², as its upper and its lower half."""
    rest = np.uint64(np.int64((value - whole) * 4611686018427387904.0))
    return rest >> _HALF, rest & _LOW


@jit
def _fixed(values, sums):
    """Sum numbers in fixed point: whole units, and the rest in units of 2⁻⁶² below 1."""
    whole, upper, lower = np.int64(0), np.uint64(0), np.uint64(0)
    for i in range(values.size):
        floor = np.floor(values[i])
        high, low = _halves(values[i], floor)
        whole += np.int64(floor)
        upper += high
        lower += low
    upper += lower >> _HALF
    sums[0] = whole + np.int64(upper >> np.uint64(30))
    sums[1] = np.int64((upper & np.uint64((1 << 30) - 1)) << _HALF | lower & _LOW)


@jit
def newton_counts(neg, pos, logits, lost, turn):
    """Gradient and curvature of the logistic likelihood, as five sums in fixed point, an int64 array of shape (5, 2).

    Parameters
    ----------
    neg, pos : counts of each group, fewer than 2³¹ groups
    logits : x
    lost : exp(−|z|), z = a + b·x
    turn : whether z is negative
    """
    sums, terms = np.zeros((5, 2), np.int64), np.empty((5, neg.size))
    for i in range(neg.size):
        one = 1.0 / (1.0 + lost[i])
        rest = lost[i] * one
        share = rest if turn[i] else one
        other = one if turn[i] else rest
        slack = pos[i] * other - neg[i] * share
        curve = (neg[i] + pos[i]) * share * other
        x = logits[i]
        terms[0, i], terms[1, i], terms[2, i], terms[3, i] = slack, slack * x, curve, curve * x
        terms[4, i] = curve * x * x
    for k in range(5):
        _fixed(terms[k], sums[k])
    return sums
