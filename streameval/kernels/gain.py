"""Sums under the gain curve, over groups of equal score from the best to the worst.

A group has p positives and n negatives, u = p + n; T and F are the positives and negatives before it *within these
groups*. The caller adds what lies above them. For counts the sums are integers, of 64 bits up to 2³⁰ points and of 128
bits for more, so the order of summation does not matter. For weights they are compensated floats.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, multiply_add, two_sum
from streameval.kernels.jit import jit

SMALL = 1 << 30  # points up to which Σ u·(2T + p) ≤ 2·points² fits 63 bits


@jit
def gain_small(neg, pos):
    """Σ u·(2T + p) of at most `SMALL` points: twice the area under the gain curve, in points × positives."""
    total, twice = np.int64(0), np.int64(0)
    for i in range(neg.size):
        p = pos[i]
        total += (neg[i] + p) * (twice + p)
        twice += 2 * p
    return total


@jit
def gain_counts(neg, pos):
    """`gain_small` for any number of points, as (high, low) words of 64 bits."""
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
