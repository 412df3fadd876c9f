"""Sums over the groups of equal score, from the best score to the worst.

A group has p positives and n negatives; T and F are the positives and negatives before it. For counts the sums are
128-bit integers, returned either as (high, low) words or as the sums of products with the upper and with the lower
halves of a word, which the caller combines; so the order of summation does not matter. Ratios are rounded to units of
2⁻⁶² before they are summed, so their sums do not depend on the order either. For weights the sums are compensated
floats.

Under the gain curve, T and F are those before a group *within these groups*, and the caller adds what lies above them;
in scans for a threshold they are those up to and including it. Quotients of counts are compared by 128-bit products
where floats cannot decide.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, add_compensated, add_words, compare_products, integer, multiply_add, two_sum
from streameval.kernels.jit import inline, jit

UNIT = 1 << 62
_UNIT = float(UNIT)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
GROUPS_AT_ONCE = 1 << 9
_CLOSE = 1e-14  # relative; floats order quotients of int64 numbers that differ by more


@jit
def area_counts(neg, pos, below):
    """Σ p·(2B − n), with B the negatives in and after the group: twice the pairs won, ties as halves.

    `below` is B of the first group. Returns the sums of the products with the upper and with the lower halves of the
    factors; the sum of `pos` must be below `HELD`.
    """
    upper, lower = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        p, factor = np.uint64(pos[i]), np.uint64(2 * below - neg[i])
        upper += p * (factor >> _HALF)
        lower += p * (factor & _LOW)
        below -= neg[i]
    return upper, lower


@inline
def _add_squares(words, at, count, factor):
    """Add c·f and c·f² to the two 128-bit sums from column `at` on; f has 32 bits."""
    words[at], words[at + 1] = multiply_add(words[at], words[at + 1], count, factor)
    words[at + 2], words[at + 3] = multiply_add(words[at + 2], words[at + 3], count, factor * factor)


@jit
def delong_counts(neg, pos, before_neg, before_pos, total_pos, drop_neg, drop_pos):
    """Σ p·a, Σ p·a², Σ n·b and Σ n·b², with a = 2F + n and b = 2(P − T) − p: twice the pairs of a row, ties as halves.

    F and T are the rows above the group. `a` and `b` are shifted right by `drop_neg` and `drop_pos` bits, so that they
    fit into 32 bits. Returns high and low words of the four sums, a uint64 array of shape (8,).
    """
    words = np.zeros(8, np.uint64)
    true, false = np.int64(total_pos - before_pos), np.int64(before_neg)
    for i in range(neg.size):
        _add_squares(words, 0, np.uint64(pos[i]), np.uint64((2 * false + neg[i]) >> drop_neg))
        _add_squares(words, 4, np.uint64(neg[i]), np.uint64((2 * true - pos[i]) >> drop_pos))
        false += neg[i]
        true -= pos[i]
    return words


@jit
def product_counts(neg, pos):
    """Σ p·n, the number of pairs within groups, as (high, low) words."""
    high, low = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        high, low = multiply_add(high, low, np.uint64(neg[i]), np.uint64(pos[i]))
    return high, low


def sum_of_products(one: np.ndarray, other: np.ndarray) -> int:
    """Σ one·other of nonnegative int64 arrays, as an integer of any size; uses the loop only if NumPy might overflow.

    >>> sum_of_products(np.array([3, 2**40]), np.array([1, 2**40])) - 2**80
    3
    """
    if float(one.sum(dtype=float)) * float(other.max(initial=0)) < _UNIT:
        return int(np.dot(one, other))
    return integer(product_counts(one, other))


@jit
def dot_counts(counts, values, unit):
    """Σ counts·values as (high, low) words in units of 1/unit; values are rounded to that unit, below 2⁶³ units."""
    high, low = np.uint64(0), np.uint64(0)
    if counts.sum() < HELD:
        upper, lower = np.uint64(0), np.uint64(0)
        for i in range(counts.size):
            word = np.uint64(np.int64(np.rint(values[i] * unit)))
            upper += np.uint64(counts[i]) * (word >> _HALF)
            lower += np.uint64(counts[i]) * (word & _LOW)
        return add_words(high, low, upper, lower)
    for i in range(counts.size):
        word = np.uint64(np.int64(np.rint(values[i] * unit)))
        high, low = multiply_add(high, low, np.uint64(counts[i]), word)
    return high, low


@jit
def precision_counts(neg, pos, false, true, trapezoid, scratch):
    """Σ p·(T + p)/(T + p + F + n) in units of 2⁻⁶²; with `trapezoid`, Σ p·(precision before + precision after).

    `false` and `true` are F and T of the first group. Returns sums of halves, as `area_counts`. Whether a group has
    positives is unpredictable, so groups are processed in batches: one loop collects those that have, without a branch;
    the divisions of a batch are vectorized. `scratch` is an int64 array of shape (4, n), for batches of n groups.
    """
    upper, lower = np.uint64(0), np.uint64(0)
    before, after, rows, weights = scratch
    for first in range(0, neg.size, rows.size):
        some_neg, some_pos = neg[first : first + rows.size], pos[first : first + rows.size]
        found = np.uint64(0)
        for i in range(some_neg.size):
            before[found] = true + false
            true += some_pos[i]
            false += some_neg[i]
            after[found], rows[found], weights[found] = true, true + false, some_pos[i]
            found += np.uint64(some_pos[i] != 0)
        for k in range(np.int64(found)):
            rate = np.uint64(np.int64(after[k] / rows[k] * _UNIT))  # processors convert floats to signed words
            if trapezoid:
                above = (after[k] - weights[k]) / before[k] if before[k] else 1.0
                rate += np.uint64(np.int64(above * _UNIT))
            upper += np.uint64(weights[k]) * (rate >> _HALF)
            lower += np.uint64(weights[k]) * (rate & _LOW)
    return upper, lower


@jit
def informedness_counts(neg, pos, before_neg, before_pos, total_neg, total_pos):
    """Largest T/P − F/N, the index of the first group that reaches it (−1 if none is above 0), and T and F after it."""
    per_pos, per_neg = 1.0 / total_pos, 1.0 / total_neg
    true, false = np.int64(before_pos), np.int64(before_neg)
    best, where, best_true, best_false = 0.0, -1, np.int64(0), np.int64(0)
    for i in range(neg.size):
        true += pos[i]
        false += neg[i]
        value = true * per_pos - false * per_neg
        if value > best:
            best, where, best_true, best_false = value, i, true, false
    return best, where, best_true, best_false


@jit
def ranked_weights(neg, pos, before_neg, before_pos, total_neg):
    """Σ p·(N − F − n/2), Σ p·(T + p)/(T + p + F + n), Σ n and Σ p for weights, each compensated.

    N − F and the denominators follow from the sums of n and of p, which are added to what lies above. Whether a group
    has positives is unpredictable; without them it has no term. So one loop collects the groups with positives without
    a branch, and another one adds up their terms.
    """
    area, area_slip, share, share_slip, n, n_slip, p, p_slip = (0.0,) * 8
    hits, lost, passed, slips = np.empty((4, GROUPS_AT_ONCE))
    for start in range(0, neg.size, GROUPS_AT_ONCE):
        found = np.uint64(0)
        for i in range(start, min(start + GROUPS_AT_ONCE, neg.size)):
            n, n_slip = add_compensated(n, n_slip, neg[i])
            hits[found], lost[found], passed[found], slips[found] = pos[i], neg[i], n, n_slip
            found += np.uint64(pos[i] > 0.0)
        for k in range(np.int64(found)):
            p, p_slip = add_compensated(p, p_slip, hits[k])
            F, F_slip = two_sum(before_neg, passed[k])
            F_slip += slips[k]
            T, T_slip = two_sum(before_pos, p)
            T += T_slip + p_slip
            left, left_slip = two_sum(total_neg, -F)
            left += left_slip - F_slip
            area, area_slip = add_compensated(area, area_slip, hits[k] * (left + 0.5 * lost[k]))
            share, share_slip = add_compensated(share, share_slip, hits[k] * (T / (T + (F + F_slip))))
    return area + area_slip, share + share_slip, n + n_slip, p + p_slip


@jit
def trapezoid_weights(neg, pos, before_neg, before_pos):
    """Σ p·(precision before + precision after) for weights, compensated."""
    total, error = 0.0, 0.0
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    for i in range(neg.size):
        term = 0.0
        t, f = true + true_slip, false + false_slip
        if pos[i] > 0.0:
            term = pos[i] * (t / (t + f) if t + f > 0.0 else 1.0)
        true, true_slip = add_compensated(true, true_slip, pos[i])
        false, false_slip = add_compensated(false, false_slip, neg[i])
        t, f = true + true_slip, false + false_slip
        if pos[i] > 0.0:
            term += pos[i] * (t / (t + f))
        total, error = add_compensated(total, error, term)
    return total + error


@jit
def informedness_weights(neg, pos, before_neg, before_pos, total_neg, total_pos):
    """As `informedness_counts`, for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    best, where, best_true, best_false = 0.0, -1, 0.0, 0.0
    for i in range(neg.size):
        true, true_slip = add_compensated(true, true_slip, pos[i])
        false, false_slip = add_compensated(false, false_slip, neg[i])
        t, f = true + true_slip, false + false_slip
        value = t / total_pos - f / total_neg
        if value > best:
            best, where, best_true, best_false = value, i, t, f
    return best, where, best_true, best_false


@jit
def exact_parts(values):
    """Nonoverlapping floats with the exact sum of all values, as `math.fsum` keeps them (Shewchuk, 1997).

    Parameters
    ----------
    values : float64 array of shape (n,), all finite
    """
    parts = np.empty(64)
    count = 0
    for x in values:
        if count == parts.size:
            parts = np.append(parts, np.empty(count))
        kept = 0
        for j in range(count):
            y = parts[j]
            if abs(x) < abs(y):
                x, y = y, x
            high = x + y
            low = y - (high - x)
            if low != 0.0:
                parts[kept] = low
                kept += 1
            x = high
        parts[kept] = x
        count = kept + 1
    return parts[:count]


@jit
def _slot(true, false, total_pos, total_neg, slots):
    """Cell of a point of the curve by recall, false positive rate and log rank; about 2.25 × `slots` cells exist."""
    by_true = np.int64(slots * (true / total_pos)) if total_pos > 0 else 0
    by_false = np.int64(slots * (false / total_neg)) if total_neg > 0 else 0
    share = (true + false) / (total_pos + total_neg)
    by_rank = np.int64((slots / 128.0) * (32.0 + np.log2(share))) if share > 2.4e-10 else 0
    return by_true + by_false + by_rank


@jit
def thin(neg, pos, before_neg, before_pos, total_neg, total_pos, slots):
    """The groups that a drawing of the curve needs, the last of each cell of `_slot`, with T and F after each."""
    kept = np.empty(neg.size, np.int64)
    trues = np.empty(neg.size, pos.dtype)
    falses = np.empty(neg.size, neg.dtype)
    true, false = before_pos, before_neg
    n = 0
    here = _slot(true, false, total_pos, total_neg, slots)
    for i in range(neg.size):
        true += pos[i]
        false += neg[i]
        slot = _slot(true, false, total_pos, total_neg, slots)
        if slot == here and n:
            n -= 1
        here = slot
        kept[n], trues[n], falses[n] = i, true, false
        n += 1
    return kept[:n], trues[:n], falses[:n]


@jit
def best_counts(neg, pos, false, true, least, fixed, scale, later):
    """The group after which T/(fixed + scale·(T + F)) is largest where T ≥ `least` > 0, and its T and F; −1 if none.

    `false` and `true` are F and T above the groups. Of equal values the last is taken if `later`, else the first.
    """
    best, where, best_true, best_false = 0.0, -1, 0, 0
    for i in range(neg.size):
        true += pos[i]
        false += neg[i]
        if true < least:
            continue
        whole = fixed + scale * (true + false)
        value = true / whole
        sign = 1 if where < 0 or value > best * (1.0 + _CLOSE) else -1 if value < best * (1.0 - _CLOSE) else 0
        if sign == 0:
            sign = compare_products(true, fixed + scale * (best_true + best_false), best_true, whole)
        if sign > 0 or (later and sign == 0):
            best, where, best_true, best_false = value, i, true, false
    return where, best_true, best_false


@jit
def deepest_counts(false, true, pos, part, whole):
    """The last group with positives where T/(T + F) ≥ part/whole, which has the largest T of these; −1 if none."""
    for i in range(pos.size - 1, -1, -1):
        if pos[i] and compare_products(true[i], whole, part, true[i] + false[i]) >= 0:
            return i
    return -1


@jit
def gain_counts(neg, pos):
    """Σ u·(2T + p), twice the area under the gain curve in points × positives, as (high, low) words of 64 bits."""
    high, low = np.uint64(0), np.uint64(0)
    twice = np.int64(0)
    for i in range(neg.size):
        high, low = multiply_add(high, low, np.uint64(neg[i] + pos[i]), np.uint64(twice + pos[i]))
        twice += 2 * pos[i]
    return high, low


@jit
def _running_weights(values, start):
    out = np.empty(values.size)
    total, slip = np.float64(start), 0.0
    for i in range(values.size):
        total, slip = add_compensated(total, slip, values[i])
        out[i] = total + slip
    return out


def running(values: np.ndarray, start: float) -> np.ndarray:
    """`start` plus the sum of the values up to and including each: exact for counts, compensated for weights."""
    return np.cumsum(values) + start if values.dtype.kind == "i" else _running_weights(values, start)
