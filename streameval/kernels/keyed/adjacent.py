"""Loops over runs of adjacent rows with equal keys; none branches at the end of a run, which is unpredictable."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

_STRETCH = 1 << 11  # rows whose running totals are held at a time, in the first-level cache


@jit
def find_runs(columns, starts):
    """Write the first row of each run of equal keys to `starts`; returns the number of runs, or −1 if they fill it.

    Parameters
    ----------
    columns : tuple of uint64 arrays of shape (n,), the words of the keys
    starts : int64 array of at least two items, filled from the front
    """
    starts[0], runs = 0, np.uint64(1)
    for i in range(1, columns[0].size):
        changed = False
        for column in columns:
            changed |= column[i] != column[i - 1]
        starts[runs] = i
        runs += np.uint64(changed)
        if runs == np.uint64(starts.size):
            return -1
    return np.int64(runs)


@jit
def sum_runs(values, starts, sums):
    """Sum the values of each run, as a difference of running totals; a run ends where the next one starts."""
    totals = np.empty(_STRETCH, np.int64)
    total, k = np.int64(0), 0
    for first in range(0, values.size, _STRETCH):
        stop = min(first + _STRETCH, values.size)
        for i in range(first, stop):
            totals[i - first] = total
            total += values[i]
        while k < starts.size and starts[k] < stop:
            sums[k] = totals[starts[k] - first]
            k += 1
    for k in range(starts.size - 1):
        sums[k] = sums[k + 1] - sums[k]
    if starts.size:
        sums[starts.size - 1] = total - sums[starts.size - 1]


@jit
def label_runs(starts, rows, positive, firsts, counts, labels):
    """Write an item for each label that a run has: its first row, its number of rows and its label.

    Returns the number of items. `rows` and `positive` have the rows and positives of each run; the outputs have room
    for two items a run, and one more.
    """
    at = np.uint64(0)
    for k in range(starts.size):
        for label in range(2):
            n = positive[k] if label else rows[k] - positive[k]
            firsts[at], counts[at], labels[at] = starts[k], n, label
            at += np.uint64(n > 0)
    return np.int64(at)
