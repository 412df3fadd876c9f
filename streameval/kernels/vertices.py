"""The best threshold: scans over the running counts T, F after each group, from the best score to the worst.

Counts are compared by products of 128 bits, where floats cannot tell them apart.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import multiply_add, two_sum
from streameval.kernels.jit import jit

__all__ = ["best_counts", "best_weights", "deepest_counts", "deepest_weights"]

_CLOSE = 1e-14  # relative; quotients of int64 that differ by more are told apart in floating point


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
def best_counts(neg, pos, before_neg, before_pos, least, fixed, scale, later):
    """The group after which T/(fixed + scale·(T + F)) is largest where T ≥ `least` > 0, with its T and F; −1 if none.

    Of equals the last where `later`, else the first.
    """
    true, false = np.int64(before_pos), np.int64(before_neg)
    best, where, best_true, best_false = 0.0, -1, np.int64(0), np.int64(0)
    for i in range(neg.size):
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
def deepest_counts(neg, pos, before_neg, before_pos, part, whole):
    """The first group with the largest T among those where T/(T + F) ≥ part/whole and T > 0, with its T and F."""
    true, false = np.int64(before_pos), np.int64(before_neg)
    where, best_true, best_false = -1, np.int64(0), np.int64(0)
    for i in range(neg.size):
        true += pos[i]
        false += neg[i]
        if true > best_true and pos[i] and _compared(true, whole, part, true + false) >= 0:
            where, best_true, best_false = i, true, false
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
