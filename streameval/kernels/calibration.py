"""Loops of calibration over groups of equal score, best score first: drift, isotonic fit and logits.

A group has p positives and n negatives of score s. Sums of counts are fixed-point integers, so they do not depend on
the order of the groups.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compare_products, multiply_add
from streameval.kernels.jit import inline, jit

_ONE = np.uint64(1 << 62)
_FIT = 1 << 31  # counts below this have products within 64 bits
_TAKEN = 4096  # groups of a bin that are summed at a time
_LEAP = 64  # groups that are skipped at once in the search for the end of a bin
_BY_WORD, _BY_POWER = 1.5 * 2.0**12, 1.5 * 2.0**22  # adding these rounds a float to 2⁻⁴⁰ and to 2⁻³⁰
_FEW = 1 << 22  # rows whose sum of 40-bit words fits into 64 bits


@inline
def _less(high, low, other_high, other_low):
    """Whether one 128-bit number in two's complement is less than another."""
    return low < other_low if high == other_high else np.int64(high) < np.int64(other_high)


@jit
def drift_counts(neg, pos, score):
    """Running sums of p − (p + n)·s: the last, the minimum and the maximum, in units of 2⁻⁶².

    The minimum and maximum include the empty sum, 0. A score is rounded to these units first.

    Returns
    -------
    uint64 array of shape (3, 2), high and low words in two's complement
    """
    zero = np.uint64(0)
    high, low, least_high, least_low, most_high, most_low = zero, zero, zero, zero, zero, zero
    for i in range(neg.size):
        s = np.uint64(np.int64(np.rint(score[i] * 4611686018427387904.0)))
        if pos[i]:
            high, low = multiply_add(high, low, np.uint64(pos[i]), _ONE - s)
        if neg[i]:
            fall_high, fall_low = multiply_add(zero, zero, np.uint64(neg[i]), s)
            high, low = high - fall_high - np.uint64(low < fall_low), low - fall_low
        if _less(high, low, least_high, least_low):
            least_high, least_low = high, low
        elif _less(most_high, most_low, high, low):
            most_high, most_low = high, low
    return np.array([[high, low], [least_high, least_low], [most_high, most_low]], np.uint64)


@jit
def _at_least(a, b, c, d):
    """Whether a·b ≥ c·d, for counts."""
    if max(a, b) < _FIT and max(c, d) < _FIT:
        return a * b >= c * d
    return compare_products(a, b, c, d) >= 0


@jit
def pool_counts(neg, pos):
    """Pool adjacent violators: returns the negatives, positives and last group of each block of the isotonic fit.

    The share of positives falls strictly from block to block, so the blocks are unique: their ends are the vertices of
    the upper convex hull of the cumulative sums. No group may be empty.
    """
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
    """`pool_counts` for weights; a group with zero weight joins the block before it."""
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
    """Count groups in bins of the logit of width 1/scale over (−span, span); one logarithm per bin.

    Parameters
    ----------
    neg, pos, score : arrays with one entry per group; scores descend between 0 and 1
    scale, span : see above
    first : number of the first bin of `table`
    table : int64 array of shape (10, n_bins)
            Added to: Σn; Σp; Σu·d and Σp·d, each as two rows in units of 2⁻²⁰ and 2⁻⁴⁰; Σu·d² to Σu·d⁵ in units of
            2⁻³⁰. Here u = p + n, and d is the distance from the centre of the bin in bins, within (−½, ½).
    """
    i, at, size, way, edge = 0, 0, neg.size, 0.0, 0.0
    found = np.zeros(10, np.int64)
    while i < size:
        side = 1.0 if score[i] >= 0.5 else -1.0  # compare 1 − s above ½ and s below it, to keep precision
        rare, follows = _rare(score[i], side), side == way
        if follows:  # with many groups, the next bin is usually the one below
            at -= 1
            edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
        way = side
        if not follows or way * (rare - edge) > 0.0:
            at = np.int64(np.floor((span - way * np.log(rare / (1.0 - rare))) * scale))
            edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
            if way * (rare - edge) > 0.0:
                at -= 1
                edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
            elif way * (rare - 1.0 / (1.0 + np.exp(way * ((at + 1) / scale - span)))) <= 0.0:
                at += 1
                edge = 1.0 / (1.0 + np.exp(way * (at / scale - span)))
        centre = 1.0 / (1.0 + np.exp(way * ((at + 0.5) / scale - span)))
        stop, leap = i + 1, _LEAP
        while leap:
            while stop + leap <= size and way * (_rare(score[stop + leap - 1], way) - edge) <= 0.0:
                stop += leap
            leap >>= 1
        while i < stop:
            end = min(stop, i + _TAKEN)
            moments(neg[i:end], pos[i:end], score[i:end], way, centre, scale, found)
            for k in range(10):
                table[k, at - first] += found[k]
            i = end


@inline
def _rare(score, way):
    """The probability of the rarer class at this score."""
    return 1.0 - score if way > 0.0 else score


@inline
def _bits(value):
    """The bits of a float, as a number of units in the last place while the exponent is fixed."""
    return np.float64(value).view(np.int64)


@jit
def moments(neg, pos, score, way, centre, scale, found):
    """Sum over the groups of one bin of the logit; the sums are the rows of `logit_counts`.

    The end of the bin is known and all sums are integers, so the compiler can vectorize the loop. Adding an offset
    rounds a number to the unit in the last place of the offset; the bits of the sum minus the bits of the offset are
    the number in these units. The bits of the offset are subtracted once, from the sums, modulo 2⁶⁴.
    """
    odds, per, unit = centre / (1.0 - centre), 1.0 / centre, -way * scale
    second, third, fourth = (odds**2 - 1.0) / 2, (1.0 + odds**3) / 3, (odds**4 - 1.0) / 4
    of_neg, of_pos, every, hits, squares, cubes, fourths, fifths = 0, 0, 0, 0, 0, 0, 0, 0
    for i in range(neg.size):
        p, u = pos[i], neg[i] + pos[i]
        t = (_rare(score[i], way) - centre) * per
        d = min(max(unit * t * (1.0 + odds + t * (second + t * (third + t * fourth))), -0.5), 0.5)
        word, square = _bits(d + _BY_WORD), d * d
        of_neg += neg[i]
        of_pos += p
        every += u * word
        hits += p * word
        squares += u * _bits(square + _BY_POWER)
        cubes += u * _bits(square * d + _BY_POWER)
        fourths += u * _bits(square * square + _BY_POWER)
        fifths += u * _bits(square * square * d + _BY_POWER)
    rows, offset = of_neg + of_pos, _bits(_BY_POWER)
    every -= rows * _bits(_BY_WORD)
    hits -= of_pos * _bits(_BY_WORD)
    found[0], found[1], found[2], found[3] = of_neg, of_pos, every >> 20, every & 1048575
    found[4], found[5] = hits >> 20, hits & 1048575
    found[6], found[7] = squares - rows * offset, cubes - rows * offset
    found[8], found[9] = fourths - rows * offset, fifths - rows * offset
    if rows >= _FEW:  # the sums of words may have overflowed
        found[2:6] = 0
        for i in range(neg.size):
            t = (_rare(score[i], way) - centre) * per
            d = min(max(unit * t * (1.0 + odds + t * (second + t * (third + t * fourth))), -0.5), 0.5)
            word = np.int64(np.rint(d * 1099511627776.0))
            found[2] += (neg[i] + pos[i]) * (word >> 20)
            found[3] += (neg[i] + pos[i]) * (word & 1048575)
            found[4] += pos[i] * (word >> 20)
            found[5] += pos[i] * (word & 1048575)
