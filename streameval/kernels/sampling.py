"""Drawing rows by a hash of where they come from, and sorting the drawn ones by cell.

The hash of a row is the finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number
Generators, 2014) of its offset in its file, under a seed that stands for the file. A row is drawn if the upper 53 bits
lie below the share asked for; the lowest five, which are independent of them, put it into one of 32 groups. A *cell* is
a group and a label, 2·group + label.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["BITS", "CELLS", "GROUPS", "draw", "gather"]

GROUPS = 32
CELLS = 2 * GROUPS
BITS = 53  # of the hash that are compared with the share

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@jit
def _hash(seed, row):  # type: ignore[no-untyped-def]
    x = seed + (np.uint64(row) + np.uint64(1)) * _STEP
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


@jit
def draw(values, label, row, kept, seed, limit, group, drawn, cells, nan):  # type: ignore[no-untyped-def]
    """Draw rows.

    Parameters
    ----------
    values : array of shape (n,), scores
    label : uint8 array of shape (n,)
    row : offset of the first row in its file
    kept : int64 array of shape (n,), offsets from `row`; of shape (0,) for 0, 1, 2, …
    seed : uint64, stands for the file
    limit : uint64, share to draw in units of 2⁻⁵³
    group : the group of all rows, or −1 for that of each row's hash
    drawn, cells : float64 and uint8 arrays of shape (n,) at least, overwritten from the start
    nan : int64 array of shape (2,), increased by NaN scores of each label, drawn or not

    Returns
    -------
    Number of rows drawn.
    """
    count = 0
    for i in range(values.size):
        value = values[i]
        h = _hash(seed, row + (kept[i] if kept.size else i))
        own = np.int64(h & np.uint64(31)) if group < 0 else group
        drawn[count] = value
        cells[count] = 2 * own + label[i]
        if value != value:
            nan[label[i]] += 1
        elif (h >> np.uint64(11)) < limit:
            count += 1
    return count


@jit
def gather(values, cells):  # type: ignore[no-untyped-def]
    """Values sorted by cell, in the order given within each; and where each cell begins."""
    starts = np.zeros(CELLS + 1, np.int64)
    for i in range(cells.size):
        starts[cells[i] + 1] += 1
    for cell in range(CELLS):
        starts[cell + 1] += starts[cell]
    place = starts.copy()
    out = np.empty(values.size)
    for i in range(values.size):
        out[place[cells[i]]] = values[i]
        place[cells[i]] += 1
    return out, starts
