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
def _slot_bits(rows):
    """Number of bits of a slot number: two to four slots for each row."""
    bits = 2
    while rows:
        bits += 1
        rows >>= 1
    return np.int64(bits)


@jit
def keep_shared(words, bounds, known, lone):
    """Move the rows that may share their cluster with other rows to the front, stretch by stretch; others to `lone`.

    A stretch goes from one of `bounds` to the next and holds all rows of its clusters. The bits of a row's word below
    the `known` highest, which are the same for most rows, give its slot in the stretch. A row alone in its slot is a
    singleton cluster and need not be sorted. With a few slots per row, this finds most singletons. `lone` has room for
    all rows and one more.

    Returns the bounds of the remaining rows of each stretch.
    """
    largest = np.int64(0)
    for j in range(bounds.size - 1):
        largest = max(largest, _slot_bits(bounds[j + 1] - bounds[j]))
    marks = np.empty(1 << largest, np.uint8)  # rows of each slot: none, one, or more
    left = np.zeros(bounds.size, np.int64)
    known, kept, alone = np.uint64(known), np.uint64(0), np.uint64(0)
    for j in range(bounds.size - 1):
        stretch = words[bounds[j] : bounds[j + 1]]
        bits = _slot_bits(stretch.size)
        shift = np.uint64(64 - bits)
        marks[: 1 << bits] = 0
        for i in range(stretch.size):
            slot = (stretch[i] << known) >> shift
            marks[slot] = np.uint8(1) + np.uint8(marks[slot] != 0)
        for i in range(stretch.size):
            word = stretch[i]
            shared = np.uint64(marks[(word << known) >> shift] != 1)
            words[kept], lone[alone] = word, word
            kept += shared
            alone += np.uint64(1) - shared
        left[j + 1] = kept
    return left


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
