"""Count clusters by size, for the lift curve."""

from __future__ import annotations

import heapq

import numpy as np

from streameval.kernels.jit import jit


@jit
def tally_sizes(neg, pos, clusters, positives):
    """Count clusters by size and sum their positives.

    `clusters` and `positives` are int64 tables indexed by size, updated in place; returns the sizes and positives of
    the clusters that are larger than the tables.
    """
    sizes = np.empty(neg.size, np.int64)
    large = np.empty(neg.size, np.int64)
    n = 0
    for i in range(neg.size):
        size = neg[i] + pos[i]
        if size < clusters.size:
            clusters[size] += 1
            positives[size] += pos[i]
        else:
            sizes[n] = size
            large[n] = pos[i]
            n += 1
    return sizes[:n], large[:n]


@jit
def undominated(lacking, top):
    """Indices of the values that fewer than `top` earlier values equal or exceed, as an int64 array."""
    found = np.empty(lacking.size, np.int64)
    n = 0
    largest = [np.int64(0) for _ in range(0)]  # a heap of the `top` largest values so far
    for i in range(lacking.size):
        if len(largest) < top:
            heapq.heappush(largest, lacking[i])
        elif lacking[i] > largest[0]:
            heapq.heapreplace(largest, lacking[i])
        else:
            continue
        found[n] = i
        n += 1
    return found[:n].copy()
