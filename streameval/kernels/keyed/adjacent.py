"""Loops over runs of adjacent rows with equal keys."""

from __future__ import annotations

from streameval.kernels.jit import jit

__all__ = ["find_runs", "sum_runs"]


@jit
def find_runs(columns, starts):
    """Write the first row of each run of equal keys to `starts`; returns the number of runs, or −1 if they do not fit.

    Parameters
    ----------
    columns : tuple of uint64 arrays of shape (n,), the words of the keys
    starts : int64 array, filled from the front
    """
    runs = 0
    for i in range(columns[0].size):
        changed = i == 0
        for column in columns:
            changed |= column[i] != column[i - 1]
        if changed:
            if runs == starts.size:
                return -1
            starts[runs] = i
            runs += 1
    return runs


@jit
def sum_runs(values, starts, sums):
    """Sum the values of each run; a run ends where the next one starts."""
    for k in range(starts.size):
        total = 0
        for i in range(starts[k], starts[k + 1] if k + 1 < starts.size else values.size):
            total += values[i]
        sums[k] = total
