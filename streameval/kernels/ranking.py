"""Sums over the groups of equal score, from the best score to the worst.

A group has p positives and n negatives; T and F are the positives and negatives before it. For counts the sums are
128-bit integers, returned as (high, low) words, or as sums of products with the halves of a word, which the caller
joins; so the order of summation does not matter. Ratios are rounded to units
of 2⁻⁶² before they are summed, which makes their sums independent of the order too. For weights the sums are
compensated floats.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, add_words, compensated, integer, multiply_add
from streameval.kernels.jit import inlined, jit

__all__ = [
    "UNIT",
    "area_counts",
    "area_weights",
    "delong_counts",
    "dot_counts",
    "exact_parts",
    "informedness_counts",
    "informedness_weights",
    "precision_counts",
    "precision_weights",
    "product_counts",
    "sum_of_products",
    "thin",
]

UNIT = 1 << 62
_UNIT = float(UNIT)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_GROUPS_AT_ONCE = 1 << 9


@jit
def area_counts(neg, pos, below):
    """Σ p·(2B − n), with B the negatives in and after the group: twice the pairs won, ties as halves.

    `below` is B of the first group. Returns the sums of the products with the upper and the lower halves of the
    factors; the sum of `pos` must be less than `HELD`.
    """
    upper, lower = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        p, factor = np.uint64(pos[i]), np.uint64(2 * below - neg[i])
        upper += p * (factor >> _HALF)
        lower += p * (factor & _LOW)
        below -= neg[i]
    return upper, lower


@jit
def _hold(words, first, upper, lower):
    """Add to two sums of 128 bits: one word, and halves as `add_words` takes them."""
    words[0], words[1] = add_words(words[0], words[1], np.uint64(0), first)
    words[2], words[3] = add_words(words[2], words[3], upper, lower)


@inlined
def _held_squares(counts, factors):
    """Σ c·f, and Σ c·f² from the upper and the lower halves of f², of words of 32 bits."""
    first, upper, lower = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(counts.size):
        count, factor = np.uint64(counts[i]), np.uint64(factors[i])
        square = factor * factor
        first += count * factor
        upper += count * (square >> _HALF)
        lower += count * (square & _LOW)
    return first, upper, lower


@inlined
def _add_squares(words, counts, factors):
    """Add Σ c·f and Σ c·f² to two sums of 128 bits, however large the counts."""
    for i in range(counts.size):
        count, factor = np.uint64(counts[i]), np.uint64(factors[i])
        words[0], words[1] = multiply_add(words[0], words[1], count, factor)
        words[2], words[3] = multiply_add(words[2], words[3], count, factor * factor)


@jit
def delong_counts(neg, pos, before_neg, before_pos, total_pos, drop_neg, drop_pos):
    """Σ p·a, Σ p·a², Σ n·b and Σ n·b², with a = 2F + n and b = 2(P − T) − p, which are halved counts of pairs.

    F and T count rows above the group. `a` and `b` are shifted right by `drop` bits, so that they fit into 32 bits.
    Groups are taken some hundred at a time; where their counts fit into 32 bits too, several are multiplied at once.
    """
    words = np.zeros(8, np.uint64)
    a, b = np.empty(_GROUPS_AT_ONCE, np.uint32), np.empty(_GROUPS_AT_ONCE, np.uint32)
    n, p = np.empty_like(a), np.empty_like(a)
    true, false = np.int64(total_pos - before_pos), np.int64(before_neg)
    for first in range(0, neg.size, _GROUPS_AT_ONCE):
        some_neg, some_pos = neg[first : first + _GROUPS_AT_ONCE], pos[first : first + _GROUPS_AT_ONCE]
        start = false + total_pos - true
        for i in range(some_neg.size):
            a[i] = (2 * false + some_neg[i]) >> drop_neg
            b[i] = (2 * true - some_pos[i]) >> drop_pos
            n[i], p[i] = some_neg[i], some_pos[i]
            false += some_neg[i]
            true -= some_pos[i]
        size = some_neg.size
        if false + total_pos - true - start < HELD:
            _hold(words[:4], *_held_squares(p[:size], a[:size]))
            _hold(words[4:], *_held_squares(n[:size], b[:size]))
        else:
            _add_squares(words[:4], some_pos, a[:size])
            _add_squares(words[4:], some_neg, b[:size])
    return words


@jit
def product_counts(neg, pos):
    """Σ p·n: the pairs within groups."""
    high, low = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        high, low = multiply_add(high, low, np.uint64(neg[i]), np.uint64(pos[i]))
    return high, low


def sum_of_products(one: np.ndarray, other: np.ndarray) -> int:
    """Σ one·other of int64 arrays without negative numbers, of any size; compiled only where NumPy's sum may overflow.

    >>> sum_of_products(np.array([3, 2**40]), np.array([1, 2**40])) - 2**80
    3
    """
    if float(one.sum(dtype=float)) * float(other.max(initial=0)) < _UNIT:
        return int(np.dot(one, other))
    return integer(product_counts(one, other))


@jit
def dot_counts(counts, values, unit):
    """Σ counts·values, the values rounded to multiples of 1/unit, which makes them words below 2⁶³; in that unit."""
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
def precision_counts(neg, pos, false, true, trapezoid):
    """Σ p·(T + p)/(T + p + F + n) in units of 2⁻⁶²; with `trapezoid` plus the precision before each group.

    `false` and `true` are F and T of the first group. Returns halves, as `area_counts`.
    """
    upper, lower = np.uint64(0), np.uint64(0)
    for i in range(neg.size):
        before, rows = true, true + false
        true += pos[i]
        false += neg[i]
        if pos[i]:
            rate = np.uint64(np.int64(true / (true + false) * _UNIT))  # the processor converts to signed words
            if trapezoid:
                rate += np.uint64(np.int64((before / rows if rows else 1.0) * _UNIT))
            upper += np.uint64(pos[i]) * (rate >> _HALF)
            lower += np.uint64(pos[i]) * (rate & _LOW)
    return upper, lower


@jit
def informedness_counts(neg, pos, before_neg, before_pos, total_neg, total_pos):
    """Largest T/P − F/N, the group after which it is reached (first of equals; −1 for none above 0), its T and F."""
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
def area_weights(neg, pos, before_neg, total_neg):
    """Σ p·(N − F − n/2) for weights."""
    total, error = 0.0, 0.0
    below, slip = total_neg - before_neg, 0.0
    for i in range(neg.size):
        term = pos[i] * ((below + slip) - 0.5 * neg[i])
        total, error = compensated(total, error, term)
        below, slip = compensated(below, slip, -neg[i])
    return total + error


@jit
def precision_weights(neg, pos, before_neg, before_pos, trapezoid):
    """Σ p·(T + p)/(T + p + F + n) for weights; with `trapezoid` the precision before the group is added to each."""
    total, error = 0.0, 0.0
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    for i in range(neg.size):
        term = 0.0
        t, f = true + true_slip, false + false_slip
        if trapezoid and pos[i] > 0.0:
            term = pos[i] * (t / (t + f) if t + f > 0.0 else 1.0)
        true, true_slip = compensated(true, true_slip, pos[i])
        false, false_slip = compensated(false, false_slip, neg[i])
        t, f = true + true_slip, false + false_slip
        if pos[i] > 0.0:
            term += pos[i] * (t / (t + f))
        total, error = compensated(total, error, term)
    return total + error


@jit
def informedness_weights(neg, pos, before_neg, before_pos, total_neg, total_pos):
    """As `informedness_counts`, for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    best, where, best_true, best_false = 0.0, -1, 0.0, 0.0
    for i in range(neg.size):
        true, true_slip = compensated(true, true_slip, pos[i])
        false, false_slip = compensated(false, false_slip, neg[i])
        t, f = true + true_slip, false + false_slip
        value = t / total_pos - f / total_neg
        if value > best:
            best, where, best_true, best_false = value, i, t, f
    return best, where, best_true, best_false


@jit
def exact_parts(values):
    """A few floats with exactly the sum of all values, all finite: what `math.fsum` keeps (Shewchuk, 1997)."""
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
    """The cell of a point of the curve by recall, false positive rate and log rank; about 2.25 × `slots` cells."""
    by_true = np.int64(slots * (true / total_pos)) if total_pos > 0 else 0
    by_false = np.int64(slots * (false / total_neg)) if total_neg > 0 else 0
    share = (true + false) / (total_pos + total_neg)
    by_rank = np.int64((slots / 128.0) * (32.0 + np.log2(share))) if share > 2.4e-10 else 0
    return by_true + by_false + by_rank


@jit
def thin(neg, pos, before_neg, before_pos, total_neg, total_pos, slots):
    """Groups to keep in a drawing, the last of each cell of the curve, with T and F after each."""
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
