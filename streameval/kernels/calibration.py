"""Loops of calibration over the groups of equal score, from the best score to the worst.

A probability s is a *word*, the integer nearest to s · 2⁶². Sums of counts times words are integers of 128 bits, so
they do not depend on the order of summation. A group has p positives and n negatives.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, multiply_add, two_sum
from streameval.kernels.jit import inlined, jit
from streameval.kernels.ranking import STRIDE

__all__ = [
    "drift_counts",
    "drift_weights",
    "logit_counts",
    "moments",
    "newton_counts",
    "pool_counts",
    "pool_weights",
    "stride_sums",
]

_ONE = np.uint64(1 << 62)
_PER_WORD = 2.0**-62
_CLOSE = 2e-15  # relative: more than twice what rounding moves a sum of a few floats
_TOLD = 1 << 48  # rows whose sum of shares is right to 1 in floating point
_FIT = 1 << 31  # counts whose products fit a word
_TAKEN = 4096  # groups of a bin that are summed at a time
_LEAP = 64  # groups that are looked past for the end of a bin
_BY_WORD, _BY_POWER = 1.5 * 2.0**12, 1.5 * 2.0**22  # what rounds a float to 2⁻⁴⁰ and to 2⁻³⁰
_FEW = 1 << 22  # rows whose sum of words of 40 bits fits a word
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@inlined
def _square(share):
    """The square of a share as a word."""
    return np.int64(np.rint(share * share * 4611686018427387904.0))


@inlined
def _word(share):
    """A share as a word."""
    return np.int64(np.rint(share * 4611686018427387904.0))


@jit
def stride_sums(neg, pos, score, before_neg, before_pos):
    """What Brier score, cumulative error and reliability sum up, in one loop over scores that descend.

    Sums over a stride are taken modulo 2⁶⁴. How far its scores lie apart bounds them well enough to tell the rest, but
    for few strides, since all scores lie between 0 and 1: these are added up group by group.

    Returns
    -------
    levels : int64 array of shape (2, n_strides + 1), as `streameval.kernels.ranking.stride_levels`
    starts : uint64 array of shape (n_strides + 1, 2), Σ (p + n)·s of the groups before each stride in units of 2⁻⁶²
    squares : two words, Σ p·(1 − s)² + n·s² in units of 2⁻⁶²
    full : bool, whether every group holds something
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
            words += (n[i] + p[i]) * _word(s[i])
            squares += p[i] * _square(1.0 - s[i]) + n[i] * _square(s[i])
        best, worst = s[0], s[s.size - 1]
        if (of_neg + of_pos) * (best - worst) < 1.0 and of_neg + of_pos < _TOLD:
            near = (of_neg + of_pos) * (best + worst) / 2
            high, low = _add_modulo(high, low, np.uint64(words), near)
            near = (of_pos * ((1.0 - best) ** 2 + (1.0 - worst) ** 2) + of_neg * (best**2 + worst**2)) / 2
            square_high, square_low = _add_modulo(square_high, square_low, np.uint64(squares), near)
        else:
            for i in range(n.size):
                high, low = multiply_add(high, low, np.uint64(n[i] + p[i]), np.uint64(_word(s[i])))
                hit, miss = np.uint64(_square(1.0 - s[i])), np.uint64(_square(s[i]))
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(p[i]), hit)
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(n[i]), miss)
        false += of_neg
        true += of_pos
        levels[0, k + 1], levels[1, k + 1] = false, true
        starts[k + 1, 0], starts[k + 1, 1] = high, low
    return levels, starts, (square_high, square_low), empty == 0


@inlined
def _add_modulo(high, low, word, near):
    """128-bit ``(high, low)`` plus a sum of which the lower word is given, and its value in units of 2⁶² to within 1.

    The upper word, in units of 2⁶⁴, is then known to within ¼, and a little for rounding.
    """
    total = low + word
    upper = np.uint64(np.int64(np.rint((near - np.float64(word) * _PER_WORD) / 4)))
    return high + upper + np.uint64(total < low), total


@jit
def _less(high, low, other_high, other_low):
    """Whether one 128-bit number in two's complement is less than another."""
    return low < other_low if high == other_high else np.int64(high) < np.int64(other_high)


@jit
def drift_counts(neg, pos, score, levels, starts):
    """Running sums of p − (p + n)·s in units of 2⁻⁶²: the last, the least and the greatest, as rows of two words.

    The least and the greatest also range over the empty sum, 0. The sums at the ends of strides are known, from
    `stride_sums`; in floating point they bound both extremes. Within a stride a sum rises and falls by no more than its
    positives, so few strides may hold an extreme: these are followed group by group.
    """
    strides = levels.shape[1] - 1
    found, ends = np.zeros((3, 2), np.uint64), np.zeros(strides + 1)
    for k in range(1, strides + 1):
        ends[k] = (levels[1, k] - levels[1, 0]) - (starts[k, 0] * 4.0 + starts[k, 1] * _PER_WORD)
    slack = _CLOSE * (levels[:, strides] - levels[:, 0]).sum()
    least, most = ends.min() + slack, ends.max() - slack
    for k in range(strides):
        hits = levels[1, k + 1] - levels[1, k]
        if ends[k] + hits >= most or ends[k + 1] - hits <= least:
            high, low = _ended(levels, starts, k)
            for i in range(k * STRIDE, min((k + 1) * STRIDE, neg.size)):
                high, low = _drifted(high, low, neg[i], pos[i], _word(score[i]))
                _fall(found, high, low)
                _rise(found, high, low)
    found[0, 0], found[0, 1] = _ended(levels, starts, strides)
    return found


@jit
def _ended(levels, starts, k):
    """The running sum before a stride, as two words."""
    high, low = multiply_add(np.uint64(0), np.uint64(0), np.uint64(levels[1, k] - levels[1, 0]), _ONE)
    return high - starts[k, 0] - np.uint64(low < starts[k, 1]), low - starts[k, 1]


@jit
def _drifted(high, low, neg, pos, word):
    """A running sum of two words after another group."""
    s = np.uint64(word)
    high, low = multiply_add(high, low, np.uint64(pos), _ONE - s)
    of_neg_high, of_neg_low = multiply_add(np.uint64(0), np.uint64(0), np.uint64(neg), s)
    return high - of_neg_high - np.uint64(low < of_neg_low), low - of_neg_low


@jit
def _fall(found, high, low):
    """Take a sum as the least one if it is less."""
    if _less(high, low, found[1, 0], found[1, 1]):
        found[1, 0], found[1, 1] = high, low


@jit
def _rise(found, high, low):
    """Take a sum as the greatest one if it is greater."""
    if _less(found[2, 0], found[2, 1], high, low):
        found[2, 0], found[2, 1] = high, low


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
def pool_counts(neg, pos, levels):
    """Pool adjacent violators: the blocks of the isotonic fit as negatives, positives and last group of each.

    The share of positives falls strictly from block to block, so the blocks are unique: the vertices of the convex hull
    of the cumulative sums. Every group holds something.

    A vertex is not below the hull of the sums after every stride, and few sums are above it: only these are pooled.
    Strides whose sums would stay below it with all positives first are skipped.

    Parameters
    ----------
    neg, pos : of each group
    levels : of these groups (`stride_levels`), or an array of shape (2, 0)
    """
    strides = levels.shape[1] - 1
    if strides < 4 or (levels[:, strides] - levels[:, 0]).sum() >= HELD:
        return _pooled(neg, pos)
    sums = levels[:, 1:] - levels[:, :-1]
    n, p, edges = _pooled(sums[0], sums[1])
    kept, place = np.empty((2, neg.size), np.int64), np.empty(neg.size, np.int64)
    count, first = 0, 0
    for k in range(edges.size):
        width, rise = n[k] + p[k], p[k]
        x, y, x_before, y_before = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        for stride in range(first, edges[k] + 1):
            hits = sums[1, stride]
            if stride < edges[k] and (y + hits) * width <= rise * (x + hits):
                x += sums[0, stride] + sums[1, stride]
                y += hits
                continue
            stop = min((stride + 1) * STRIDE, neg.size)
            for i in range(stride * STRIDE, stop):
                x += neg[i] + pos[i]
                y += pos[i]
                if y * width > rise * x or (i == stop - 1 and stride == edges[k]):
                    kept[0, count], kept[1, count], place[count] = x - x_before - y + y_before, y - y_before, i
                    x_before, y_before = x, y
                    count += 1
        first = edges[k] + 1
    n, p, last = _pooled(kept[0, :count], kept[1, :count])
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
    i, at, size, way, edge = 0, 0, neg.size, 0.0, 0.0
    found = np.zeros(10, np.int64)
    while i < size:
        side = 1.0 if score[i] >= 0.5 else -1.0  # a bin is known by 1 − s above ½ and by s below, which resolve it
        rare, follows = _rare(score[i], side), side == way
        if follows:  # of many groups the next bin is the one below
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


@inlined
def _rare(score, way):
    """The probability of the class that is rarer at this score."""
    return 1.0 - score if way > 0.0 else score


@inlined
def _bits(value):
    """The bits of a float: in units of its last place, where an offset leaves the exponent as it is."""
    return np.float64(value).view(np.int64)


@jit
def moments(neg, pos, score, way, centre, scale, found):
    """Sums over the groups of one bin of the logit, as rows of `logit_counts`.

    The end of the bin is known and all sums are integers, so that the compiler can take several groups at a time. A
    number is rounded to a unit when an offset is added whose last place is that unit; the bits of the sum, less those
    of the offset, are the number in units. The offsets are taken off the sums, modulo 2⁶⁴.
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
    if rows >= _FEW:  # the sums of words may have left theirs
        found[2:6] = 0
        for i in range(neg.size):
            t = (_rare(score[i], way) - centre) * per
            d = min(max(unit * t * (1.0 + odds + t * (second + t * (third + t * fourth))), -0.5), 0.5)
            word = np.int64(np.rint(d * 1099511627776.0))
            found[2] += (neg[i] + pos[i]) * (word >> 20)
            found[3] += (neg[i] + pos[i]) * (word & 1048575)
            found[4] += pos[i] * (word >> 20)
            found[5] += pos[i] * (word & 1048575)


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
