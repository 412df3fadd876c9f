"""Scores without a block: what is left of each bin, cut into pieces of equal composition."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["cut_counts", "left_counts", "left_weights"]


@jit
def left_counts(whole, table, first, step):
    """Rows of all blocks but ``first``, ``first + step`` and so on: an int64 array of shape (n_bins, 2), and its sums.

    Parameters
    ----------
    whole : int64 array of shape (n_bins, 2), rows of all blocks
    table : int64 array of shape (n_bins, n_blocks, 2)
    """
    out = np.empty_like(whole)
    negatives, positives = np.int64(0), np.int64(0)
    for i in range(len(whole)):
        neg, pos = whole[i, 0], whole[i, 1]
        for b in range(first, table.shape[1], step):
            neg -= table[i, b, 0]
            pos -= table[i, b, 1]
        out[i, 0], out[i, 1] = neg, pos
        negatives += neg
        positives += pos
    return out, negatives, positives


@jit
def left_weights(whole, sums, left, first, step):
    """Weights of all blocks but some, as `left_counts`; 0 where no row is left, not a rounding error."""
    out = np.zeros_like(whole)
    for i in range(len(whole)):
        for side in range(2):
            if left[i, side]:
                taken = 0.0
                for b in range(first, sums.shape[1], step):
                    taken += sums[i, b, side]
                out[i, side] = max(whole[i, side] - taken, 0.0)
    return out


@jit
def cut_counts(rows, measure, pieces, most, neg, pos):
    """The measure of the pieces of bins that have rows, from the last bin to the first; returns how many pieces.

    Parameters
    ----------
    rows : int64 array of shape (n_bins, 2)
    measure : the same rows or their weights
    pieces : int64 array of shape (n_bins,), pieces of each bin
    most : what all is multiplied by, divisible by the number of pieces
    neg, pos : arrays that take the pieces
    """
    n = 0
    for i in range(len(rows) - 1, -1, -1):
        if rows[i, 0] | rows[i, 1]:
            times = most // pieces[i]
            a, b = measure[i, 0] * times, measure[i, 1] * times
            for _ in range(pieces[i]):
                neg[n], pos[n] = a, b
                n += 1
    return n
