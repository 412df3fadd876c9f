"""Passing cells on: the loops that leave rows alone in their cluster out, and write cells by class.

Rows come bucket by bucket, ``starts[b]`` the first of each, and all rows of a cluster lie in one bucket; see
`streameval.states.pairs`.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import ID_BUCKETS

__all__ = ["SLOTS", "emit_others", "shared_rows"]

SLOTS = 8  # for each row of the largest bucket, at least

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_HALF = np.uint64(32)


@jit
def shared_rows(starts, words, counts, marks, which, kept):
    """Move the words and counts of rows that may share their cluster to the front; returns how many there are.

    A row has a slot by the bits of its word below those of the bucket: `marks` counts the rows of each, of which there
    are SLOTS a row. A row alone in its slot is alone in its cluster; nine of ten lone rows are. ``which`` takes where
    the others were and has room for one more; those of bucket b begin at ``kept[b]``. `counts` may be empty: ones.
    There are no branches to mispredict.
    """
    found = np.uint64(0)
    for b in range(starts.size - 1):
        kept[b] = found
        bits = 3
        while (1 << bits) < SLOTS * (starts[b + 1] - starts[b]):
            bits += 1
        marks[: 1 << bits] = 0
        shift = np.uint64(64 - bits)
        for i in range(starts[b], starts[b + 1]):
            slot = (words[i] << _BUCKET_BITS) >> shift
            again = np.uint8(marks[slot] != 0)
            if counts.size:
                again |= np.uint8(counts[i] > 1)
            marks[slot] = np.uint8(1) + again
        for i in range(starts[b], starts[b + 1]):
            word = words[i]
            which[found] = i
            words[found] = word
            if counts.size:
                counts[found] = counts[i]
            found += np.uint64(marks[(word << _BUCKET_BITS) >> shift] > 1)
    kept[starts.size - 1] = found
    return np.int64(found)


@jit
def emit_others(rows, counts, sizes, owners, rest, column, packed, words, more):
    """Write the cells of clusters of several rows; returns how many.

    The words of the class are followed by count and size, in one word if `packed`, and, where `more` has room, by the
    words of the cluster: the row's first one, in `owners`, and its further words before `column`.
    """
    at = 0
    columns = rest.shape[1] - column - 1
    after = columns + (1 if packed else 2)
    for k in range(counts.size):
        if sizes[k] == 1:
            continue
        i, n, c = rows[k], np.uint64(counts[k]), np.uint64(sizes[k])
        words[at] = rest[i, column]
        for m in range(columns):
            more[at, m] = rest[i, column + 1 + m]
        if packed:
            more[at, columns] = (n << _HALF) | c
        else:
            more[at, columns] = n
            more[at, columns + 1] = c
        if more.shape[1] > after:
            more[at, after] = owners[i]
            for m in range(column):
                more[at, after + 1 + m] = rest[i, m]
        at += 1
    return at
