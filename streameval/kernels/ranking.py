"""Sums over the groups of equal score, from the best score to the worst.

A group has p positives and n negatives; T and F are the positives and negatives before it. For counts the sums are
128-bit integers, returned as (high, low) words, or as sums of products with the halves of a word, which the caller
joins; so the order of summation does not matter. Ratios are rounded to units
of 2⁻⁶² before they are summed, which makes their sums independent of the order too. For weights the sums are
compensated floats.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, add_words, multiply_add, two_sum
from streameval.kernels.jit import inlined, jit

__all__ = [
    "STRIDE",
    "UNIT",
    "area_counts",
    "area_weights",
    "best_counts",
    "best_weights",
    "deepest_counts",
    "deepest_weights",
    "delong_counts",
    "dot_counts",
    "exact_parts",
    "informedness_counts",
    "informedness_weights",
    "precision_counts",
    "precision_weights",
    "product_counts",
    "stride_levels",
    "thin",
]

UNIT = 1 << 62
STRIDE = 64  # groups
_UNIT = float(UNIT)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CLOSE = 1e-14  # relative; floats can order quotients of int64 that differ by more
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
        total, low = two_sum(total, term)
        error += low
        below, low = two_sum(below, -neg[i])
        slip += low
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
        true, low = two_sum(true, pos[i])
        true_slip += low
        false, low = two_sum(false, neg[i])
        false_slip += low
        t, f = true + true_slip, false + false_slip
        if pos[i] > 0.0:
            term += pos[i] * (t / (t + f))
        total, low = two_sum(total, term)
        error += low
    return total + error


@jit
def informedness_weights(neg, pos, before_neg, before_pos, total_neg, total_pos):
    """As `informedness_counts`, for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    best, where, best_true, best_false = 0.0, -1, 0.0, 0.0
    for i in range(neg.size):
        true, low = two_sum(true, pos[i])
        true_slip += low
        false, low = two_sum(false, neg[i])
        false_slip += low
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


# The best threshold: scans over T and F up to and including each group. The sums before and after a stride of groups
# bound what any of its groups may give, so that a scan follows few of them; quotients of counts are compared by 128-bit
# products where floats cannot decide.


@jit
def stride_levels(neg, pos, before_neg, before_pos):
    """F and T before each stride of 64 groups and after the last, as an int64 array of shape (2, n_strides + 1)."""
    strides = (neg.size + STRIDE - 1) // STRIDE
    levels = np.empty((2, strides + 1), np.int64)
    false, true = np.int64(before_neg), np.int64(before_pos)
    levels[0, 0], levels[1, 0] = false, true
    for k in range(strides):
        n, p = neg[k * STRIDE : (k + 1) * STRIDE], pos[k * STRIDE : (k + 1) * STRIDE]
        for i in range(n.size):
            false += n[i]
            true += p[i]
        levels[0, k + 1], levels[1, k + 1] = false, true
    return levels


@jit
def _compared(a, b, c, d):
    """The sign of a·b − c·d, for counts."""
    zero = np.uint64(0)
    high, low = multiply_add(zero, zero, np.uint64(a), np.uint64(b))
    other_high, other_low = multiply_add(zero, zero, np.uint64(c), np.uint64(d))
    if high != other_high:
        return 1 if high > other_high else -1
    return 0 if low == other_low else 1 if low > other_low else -1


@jit
def best_counts(neg, pos, levels, least, fixed, scale, later):
    """The group after which T/(fixed + scale·(T + F)) is largest where T ≥ `least` > 0, with its T and F; −1 if none.

    Of equals the last where `later`, else the first. `levels` are those of `stride_levels`. The quotients at the ends
    of strides bound the best from below; that of a stride whose positives all came first bounds its own quotients from
    above. Only strides whose upper bound reaches the lower one are followed group by group.
    """
    strides, bound = levels.shape[1] - 1, 0.0
    for k in range(1, strides + 1):
        if levels[1, k] >= least:
            bound = max(bound, levels[1, k] / (fixed + scale * (levels[1, k] + levels[0, k])))
    bound *= 1.0 - _CLOSE
    best, where, best_true, best_false = 0.0, -1, np.int64(0), np.int64(0)
    for k in range(strides):
        false, true, most = levels[0, k], levels[1, k], levels[1, k + 1]
        if most < least or most / (fixed + scale * (most + false)) < bound:
            continue
        for i in range(k * STRIDE, min((k + 1) * STRIDE, neg.size)):
            true += pos[i]
            false += neg[i]
            if true < least:
                continue
            whole = fixed + scale * (true + false)
            value = true / whole
            sign = 1 if where < 0 or value > best * (1.0 + _CLOSE) else -1 if value < best * (1.0 - _CLOSE) else 0
            if sign == 0:
                sign = _compared(true, fixed + scale * (best_true + best_false), best_true, whole)
            if sign > 0 or (later and sign == 0):
                best, where, best_true, best_false = value, i, true, false
    return where, best_true, best_false


@jit
def best_weights(neg, pos, before_neg, before_pos, least, fixed, scale, later):
    """`best_counts` for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    best, where, best_true, best_false = 0.0, -1, 0.0, 0.0
    for i in range(neg.size):
        true, low = two_sum(true, pos[i])
        true_slip += low
        false, low = two_sum(false, neg[i])
        false_slip += low
        t, f = true + true_slip, false + false_slip
        if t < least or t <= 0.0:
            continue
        value = t / (fixed + scale * (t + f))
        if where < 0 or value > best or (later and value == best):
            best, where, best_true, best_false = value, i, t, f
    return where, best_true, best_false


@jit
def deepest_counts(neg, pos, levels, part, whole):
    """The first group with the largest T among those where T/(T + F) ≥ part/whole and T > 0, with its T and F.

    It is the last group with positives of the last stride that has one; `levels` are those of `stride_levels`.
    """
    where, best_true, best_false = -1, np.int64(0), np.int64(0)
    for k in range(levels.shape[1] - 2, -1, -1):
        false, true, most = levels[0, k], levels[1, k], levels[1, k + 1]
        if most == true or float(most) * whole < float(part) * (most + false) * (1.0 - _CLOSE):
            continue  # too low even with all positives first
        for i in range(k * STRIDE, min((k + 1) * STRIDE, neg.size)):
            true += pos[i]
            false += neg[i]
            if pos[i]:
                found, due = float(true) * whole, float(part) * (true + false)
                if found < due * (1.0 - _CLOSE):
                    continue
                if found > due * (1.0 + _CLOSE) or _compared(true, whole, part, true + false) >= 0:
                    where, best_true, best_false = i, true, false
        if where >= 0:
            break
    return where, best_true, best_false


@jit
def deepest_weights(neg, pos, before_neg, before_pos, part, whole):
    """`deepest_counts` for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    where, best_true, best_false = -1, 0.0, 0.0
    for i in range(neg.size):
        true, low = two_sum(true, pos[i])
        true_slip += low
        false, low = two_sum(false, neg[i])
        false_slip += low
        t, f = true + true_slip, false + false_slip
        if t > best_true and pos[i] > 0.0 and t * whole >= part * (t + f):
            where, best_true, best_false = i, t, f
    return where, best_true, best_false
