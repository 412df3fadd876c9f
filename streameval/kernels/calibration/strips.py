"""Calibration sums over float32 scores, directly from their rank keys, without decoding scores.

A *strip* is the set of scores that share all but their last few bits, at most ten. Within it a score is s₀ + w·ulp with
an integer w, so Σ u·wᵏ and Σ p·wᵏ up to k = 3 are integers; everything else is computed from them once per strip. A
strip is at most 2⁻¹² times as wide as the probability of the rarer class, so the first omitted term of the series of
the logit is below 2⁻⁵⁴. A bucket of keys contains whole strips, so the sums do not depend on how groups are divided
into parts. A group has p positives and n negatives, u = p + n.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.calibration.strides import share_word, square_word
from streameval.kernels.exact import multiply_add
from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.thresholds import STRIDE

FIRST, STOP = 0x2C800000, 0x3F800000  # bits of 2⁻³⁸, from which on the last place is a multiple of 2⁻⁶², and of 1
_BITS, _WIDE = 10, 0x3F400000  # largest bits of a strip; bits of ¾, above which strips have fewer
_LOW, _POSITIVE = np.int64(0xFFFFFFFF), np.int64(0x7FFFFFFF)
_MOST = np.int64((1 << _BITS) - 1)  # the largest w
_UNITS = 2.0**30


@inlined
def _bits(key):
    """The bits of a nonnegative float32 score, from its rank key."""
    return ~np.int64(key) & _POSITIVE


@inlined
def _score(bits):
    """The float32 number with these bits."""
    return np.float64(np.uint32(bits).view(np.float32))


@inlined
def _width(bits):
    """Number of last bits in which the scores of a strip differ; above ¾ it falls by one whenever 1 − s halves."""
    if bits < _WIDE:
        return np.int64(_BITS)
    width = np.int64(0)
    while (STOP - 1 - bits) >> (width + 13):
        width += 1
    return width


@inlined
def _add(neg, pos, keys, mask, sums):
    """Add Σn, Σp, Σu·w, Σu·w², Σu·w³, Σp·w, Σp·w², Σp·w³ of groups of one strip to its sums.

    Masks tell the compiler how many bits the factors have, so that it can vectorize the multiplications. There are
    fewer than 2³² rows, so one word holds Σp in its upper half and Σu in its lower.

    Returns
    -------
    negatives, positives, Σu·w, and the number of empty groups
    """
    both, u1, u2, u3, p1, p2, p3, empty = 0, 0, 0, 0, 0, 0, 0, 0
    for i in range(neg.size):
        u, p, w = (neg[i] + pos[i]) & _LOW, pos[i] & _LOW, ~np.int64(keys[i]) & mask & _MOST
        square = (w * w) & _LOW
        cube = (square * w) & _LOW
        both += u + (p << 32)
        u1 += u * w
        u2 += u * square
        u3 += u * cube
        p1 += p * w
        p2 += p * square
        p3 += p * cube
        empty += u == 0
    of_pos = (both >> 32) & _LOW
    of_neg = (both & _LOW) - of_pos
    sums[0] += of_neg
    sums[1] += of_pos
    sums[2] += u1
    sums[3] += u2
    sums[4] += u3
    sums[5] += p1
    sums[6] += p2
    sums[7] += p3
    return of_neg, of_pos, u1, empty


@inlined
def _plus(high, low, value):
    """128-bit ``(high, low)``, in units of 2⁻⁶², plus a float."""
    floor = np.floor(value)
    whole, rest = np.int64(floor), np.uint64((value - floor) * 4611686018427387904.0)
    total = low + rest
    high += np.uint64(total < low) + np.uint64(whole >> 2)
    low = total + (np.uint64(whole) << np.uint64(62))
    return high + np.uint64(low < total), low


@step
def _close(sums, lowest, width, scale, span, first, table, high, low):
    """Add a strip to the bins of the logit, and return the sum of squares including the strip.

    Everything is computed from integer sums around the centre c of the strip, at which v = 0 and scores are c + v·ulp.
    """
    half = (1 << width) >> 1
    neg, pos, u1, u2, u3, p1, p2, p3 = sums
    rows = neg + pos
    u3, p3 = u3 - half * (3 * u2 - half * (3 * u1 - half * rows)), p3 - half * (3 * p2 - half * (3 * p1 - half * pos))
    u2, p2 = u2 - half * (2 * u1 - half * rows), p2 - half * (2 * p1 - half * pos)
    u1, p1 = u1 - half * rows, p1 - half * pos
    c, ulp = _score(lowest + half), _score(lowest + 1) - _score(lowest)
    high, low = multiply_add(high, low, np.uint64(pos), np.uint64(square_word(1.0 - c)))
    high, low = multiply_add(high, low, np.uint64(neg), np.uint64(square_word(c)))
    high, low = _plus(high, low, ulp * (2.0 * (c * u1 - p1) + ulp * u2))
    if not table.shape[1]:
        return high, low
    way = 1.0 if c >= 0.5 else -1.0
    rare = 1.0 - c if c >= 0.5 else c
    odds, per, logit = rare / (1.0 - rare), -way * ulp / rare, -way * np.log(rare / (1.0 - rare))
    at = np.int64(np.floor((span + logit) * scale))
    apart = (logit - ((at + 0.5) / scale - span)) * scale  # of the strip's centre from the bin's, in bins
    one = -way * scale * per * (1.0 + odds)  # coefficients of v, v² and v³ in the logit, in bins
    two, three = -way * scale * per**2 * (odds**2 - 1.0) / 2, -way * scale * per**3 * (1.0 + odds**3) / 3
    m1, hits = one * u1 + two * u2 + three * u3, one * p1 + two * p2 + three * p3
    m2, m3 = one * (one * u2 + 2.0 * two * u3), one**3 * u3
    row = at - first
    table[0, row] += neg
    table[1, row] += pos
    _split(table, 2, row, apart * rows + m1)
    _split(table, 4, row, apart * pos + hits)
    moment = apart * (apart * rows + 2.0 * m1) + m2
    table[6, row] += np.int64(np.rint(_UNITS * moment))
    moment = apart * (apart * (apart * rows + 3.0 * m1) + 3.0 * m2) + m3
    table[7, row] += np.int64(np.rint(_UNITS * moment))
    moment = apart * (apart * (apart * (apart * rows + 4.0 * m1) + 6.0 * m2) + 4.0 * m3)
    table[8, row] += np.int64(np.rint(_UNITS * moment))
    moment = apart**2 * (apart * (apart * (apart * rows + 5.0 * m1) + 10.0 * m2) + 10.0 * m3)
    table[9, row] += np.int64(np.rint(_UNITS * moment))
    return high, low


@inlined
def _split(table, column, row, value):
    """Add a sum in units of 2⁻²⁰ and, in the next row, the remainder in units of 2⁻⁴⁰."""
    coarse = np.floor(value * 1048576.0)
    table[column, row] += np.int64(coarse)
    table[column + 1, row] += np.int64(np.rint((value * 1048576.0 - coarse) * 1048576.0))


@jit
def strip_sums(neg, pos, keys, before_neg, before_pos, scale, span, first, table):
    """Compute `stride_sums` (`kernels.calibration.strides`) and `logit_counts` (`kernels.calibration.logits`).

    Scores of 1 and scores below 2⁻³⁸ belong to no strip; they enter all sums except `table`.

    Parameters
    ----------
    neg, pos : int64 arrays of shape (n_groups,), fewer than 2³² rows in all
    keys : uint64 array of shape (n_groups,), ascending rank keys of float32 scores between 0 and 1
    before_neg, before_pos : negatives and positives above the first group
    scale, span, first, table : see `logit_counts`; a table without bins is left empty

    Returns
    -------
    levels, starts, squares, full : see `stride_sums`
    """
    strides = (neg.size + STRIDE - 1) // STRIDE
    levels, starts = np.empty((2, strides + 1), np.int64), np.zeros((strides + 1, 2), np.uint64)
    false, true, empty, sums = np.int64(before_neg), np.int64(before_pos), 0, np.zeros(8, np.int64)
    levels[0, 0], levels[1, 0] = false, true
    high, low, square_high, square_low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    i, lowest, width = 0, np.int64(-1), np.int64(0)
    for k in range(strides):
        stop = min((k + 1) * STRIDE, neg.size)
        while i < stop:
            bits = _bits(keys[i])
            if not FIRST <= bits < STOP:
                score, u = _score(bits), np.uint64(neg[i] + pos[i])
                high, low = multiply_add(high, low, u, np.uint64(share_word(score)))
                hit, miss = np.uint64(square_word(1.0 - score)), np.uint64(square_word(score))
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(pos[i]), hit)
                square_high, square_low = multiply_add(square_high, square_low, np.uint64(neg[i]), miss)
                false, true, empty, i = false + neg[i], true + pos[i], empty + (u == 0), i + 1
                continue
            if bits < lowest or lowest < 0:
                if lowest >= 0:
                    square_high, square_low = _close(
                        sums, lowest, width, scale, span, first, table, square_high, square_low
                    )
                    sums[:] = 0
                width = _width(bits)
                lowest = bits >> width << width
            end = stop
            if _bits(keys[stop - 1]) < lowest:
                end = i + 1
                while _bits(keys[end]) >= lowest:
                    end += 1
            of_neg, of_pos, steps, none = _add(neg[i:end], pos[i:end], keys[i:end], (1 << width) - 1, sums)
            start = _score(lowest)
            high, low = multiply_add(high, low, np.uint64(of_neg + of_pos), np.uint64(share_word(start)))
            high, low = multiply_add(high, low, np.uint64(steps), np.uint64(share_word(_score(lowest + 1) - start)))
            false, true, empty, i = false + of_neg, true + of_pos, empty + none, end
        levels[0, k + 1], levels[1, k + 1] = false, true
        starts[k + 1, 0], starts[k + 1, 1] = high, low
    if lowest >= 0:
        square_high, square_low = _close(sums, lowest, width, scale, span, first, table, square_high, square_low)
    return levels, starts, (square_high, square_low), empty == 0
