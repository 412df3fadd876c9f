"""The passes of a t-digest: sorted numbers to centroids, and sorted centroids to fewer.

Both walk from the smallest number to the largest and close a centroid when one more would take it over one unit of
k₁(q) = δ/2π · asin(2q − 1), where q is the share of the numbers up to its end and δ the compression (Dunning and Ertl,
2019). The first and the last centroid are closed after one number or one centroid, so that a digest of raw numbers
begins with the smallest and ends with the largest.
"""

from __future__ import annotations

import math

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["compress", "reduce_sorted"]


@jit
def _limit(q, compression):
    """Share at which a centroid that begins at share `q` is full: k₁⁻¹(k₁(q) + 1)."""
    angle = math.asin(2.0 * q - 1.0) + 2.0 * math.pi / compression
    return 0.5 * (math.sin(angle) + 1.0) if angle < 0.5 * math.pi else 1.0


@jit
def reduce_sorted(values, compression):
    """Means and weights of the centroids of ascending finite numbers.

    Four sums are kept side by side, so that additions need not wait for each other; each term is divided first, so that
    no sum overflows.
    """
    n = values.size
    size = min(n, int(compression) + 8)
    means, weights = np.empty(size), np.empty(size)
    count, i = 0, 0
    while i < n:
        j = 1 if i == 0 else min(n - 1, int(_limit(i / n, compression) * n))
        j = min(max(j, i + 1), n)
        share = 1.0 / (j - i)
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        k = i
        while k + 4 <= j:
            a += values[k] * share
            b += values[k + 1] * share
            c += values[k + 2] * share
            d += values[k + 3] * share
            k += 4
        while k < j:
            a += values[k] * share
            k += 1
        means[count] = min(max((a + b) + (c + d), np.float64(values[i])), np.float64(values[j - 1]))
        weights[count] = j - i
        count += 1
        i = j
    return means[:count], weights[:count]


@jit
def compress(means, weights, compression):
    """Merge neighbours of ascending centroids while they fit; both arrays are overwritten, and returned shorter."""
    n = means.size
    total = weights.sum()
    count, done = 0, 0.0
    limit = 0.0
    for i in range(1, n):
        grown = weights[count] + weights[i]
        if count and i < n - 1 and done + grown <= limit:
            share = weights[i] / grown
            mean = means[count] * (1.0 - share) + means[i] * share
            means[count] = min(max(mean, means[count]), means[i])
            weights[count] = grown
        else:
            done += weights[count]
            count += 1
            means[count], weights[count] = means[i], weights[i]
            limit = total * _limit(min(done / total, 1.0), compression)
    return means[: min(count + 1, n)], weights[: min(count + 1, n)]
