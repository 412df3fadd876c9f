"""The isotonic fit of groups of equal score, best score first; a group has p positives and n negatives."""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, compare_products
from streameval.kernels.jit import jit
from streameval.kernels.thresholds import STRIDE

_FIT = 1 << 31  # counts below this have products within 64 bits


@jit
def _at_least(a, b, c, d):
    """Whether a·b ≥ c·d, for counts."""
    if max(a, b) < _FIT and max(c, d) < _FIT:
        return a * b >= c * d
    return compare_products(a, b, c, d) >= 0


@jit
def pool_counts(neg, pos, levels):
    """Pool adjacent violators: returns the negatives, positives and last group of each block of the isotonic fit.

    The share of positives falls strictly from block to block, so the blocks are unique: their ends are the vertices of
    the upper convex hull of the cumulative sums. No group may be empty.

    A vertex is not below the hull of the sums at the ends of strides, and few sums are above that hull: only these are
    pooled. A stride is skipped if its sums would stay below the hull even with all positives first.

    Parameters
    ----------
    neg, pos : int64 arrays of shape (n_groups,)
    levels : cumulative sums of these groups (see `streameval.kernels.thresholds.stride_levels`), or shape (2, 0)
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
