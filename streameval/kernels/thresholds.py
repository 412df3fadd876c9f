"""Scans over groups of equal score, best first: running sums, sums under the gain curve, the best threshold.

A group has p positives and n negatives, u = p + n. Under the gain curve, T and F are those before it *within these
groups*, and the caller adds what lies above them; in scans for a threshold they are those up to and including it. For
counts sums are integers of 128 bits, so that their order does not matter; for weights they are compensated floats.
Quotients of counts are compared by 128-bit products where floats cannot decide.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compare_products, compensated, multiply_add
from streameval.kernels.jit import jit

_CLOSE = 1e-14  # relative; floats order quotients of int64 numbers that differ by more


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
        total, slip = compensated(total, slip, values[i])
        out[i] = total + slip
    return out


def running(values: np.ndarray, start: float) -> np.ndarray:
    """`start` plus the sum of the values up to and including each: exact for counts, compensated for weights."""
    return np.cumsum(values) + start if values.dtype.kind == "i" else _running_weights(values, start)
