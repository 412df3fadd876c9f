"""Loops over clusters."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["tally_sizes"]


@jit
def tally_sizes(neg, pos, clusters, positives):
    """Count clusters by size and sum their positives, for sizes within the tables.

    `clusters` and `positives` are int64 tables indexed by size; returns the positions of clusters that are larger.
    """
    large = np.empty(neg.size, np.int64)
    n = 0
    for i in range(neg.size):
        size = neg[i] + pos[i]
        if size < clusters.size:
            clusters[size] += 1
            positives[size] += pos[i]
        else:
            large[n] = i
            n += 1
    return large[:n]
