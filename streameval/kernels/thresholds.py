"""Scans over groups of equal score, best first: running sums, sums under the gain curve, the best threshold.

A group has p positives and n negatives, u = p + n. Under the gain curve, T and F are those before it *within these
groups*, and the caller adds what lies above them; in scans for a threshold they are those up to and including it. For
counts sums are integers of 128 bits, so that their order does not matter; for weights they are compensated floats.

The sums before and after a stride of groups bound the values of its groups, so a scan for the best threshold visits few
of them one by one. Quotients of counts are compared by 128-bit products where floats cannot decide.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compare_products, compensated, multiply_add, two_sum
from streameval.kernels.jit import jit

STRIDE = 64  # groups
_CLOSE = 1e-14  # relative; floats order quotients of int64 numbers that differ by more


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
def best_counts(neg, pos, levels, least, fixed, scale, later):
    """The group after which T/(fixed + scale·(T + F)) is largest where T ≥ `least` > 0, and its T and F; −1 if none.

    Of equal values the last is taken if `later`, else the first. `levels` are those of `stride_levels`. The quotients
    at the ends of strides are a lower bound for the largest; an upper bound for a stride is its quotient with all
    positives first. Only strides whose upper bound reaches the lower bound are followed group by group.
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
                sign = compare_products(true, fixed + scale * (best_true + best_false), best_true, whole)
            if sign > 0 or (later and sign == 0):
                best, where, best_true, best_false = value, i, true, false
    return where, best_true, best_false


@jit
def best_weights(neg, pos, before_neg, before_pos, least, fixed, scale, later):
    """`best_counts` for weights."""
    true, true_slip, false, false_slip = before_pos, 0.0, before_neg, 0.0
    best, where, best_true, best_false = 0.0, -1, 0.0, 0.0
    for i in range(neg.size):
        true, true_slip = compensated(true, true_slip, pos[i])
        false, false_slip = compensated(false, false_slip, neg[i])
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
                if found > due * (1.0 + _CLOSE) or compare_products(true, whole, part, true + false) >= 0:
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
        true, true_slip = compensated(true, true_slip, pos[i])
        false, false_slip = compensated(false, false_slip, neg[i])
        t, f = true + true_slip, false + false_slip
        if t > best_true and pos[i] > 0.0 and t * whole >= part * (t + f):
            where, best_true, best_false = i, t, f
    return where, best_true, best_false


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
def gain_weights(neg, pos):
    """Σ u·(2T + p), Σ u·(2F + n), Σ p and Σ n, compensated, as a float64 array."""
    sums, slips = np.zeros(4), np.zeros(4)
    for i in range(neg.size):
        p, n = pos[i], neg[i]
        u = p + n
        terms = (u * (2.0 * (sums[2] + slips[2]) + p), u * (2.0 * (sums[3] + slips[3]) + n), p, n)
        for j in range(4):
            sums[j], low = two_sum(sums[j], terms[j])
            slips[j] += low
    return sums + slips


@jit
def running_counts(values, start):
    """`start` plus the sum of the values up to and including each, as an int64 array."""
    out = np.empty(values.size, np.int64)
    total = np.int64(start)
    for i in range(values.size):
        total += values[i]
        out[i] = total
    return out


@jit
def running_weights(values, start):
    """`running_counts` for floats, compensated."""
    out = np.empty(values.size)
    total, slip = np.float64(start), 0.0
    for i in range(values.size):
        total, slip = compensated(total, slip, values[i])
        out[i] = total + slip
    return out
