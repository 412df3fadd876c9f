"""Hand cells from the cluster pass to the class pass, skipping singleton clusters.

Rows come bucket by bucket, ``starts[b]`` the first of each, and all rows of a cluster lie in one bucket; see
`streameval.states.contingency.pass_by_cluster`.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.prefetch import word_at

__all__ = ["SLOTS", "emit_others", "shared_rows"]

SLOTS = 8  # for each row of the largest bucket, at least

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_HALF = np.uint64(32)


@jit
def shared_rows(starts, words_at, rest_at, counts_at, further, marks, kept, words, rest, counts):
    """Collect the rows that may share their cluster, bucket by bucket; returns how many there are.

    Run r has rows of bucket b from ``starts[r, 2 * b]`` to ``starts[r, 2 * b + 1]`` of its columns, whose addresses are
    given, 0 where there is none: counts of 1. There are as many further words as the tuple `further` is long. The
    outputs have room for all rows and one more; those of bucket b begin at ``kept[b]``.
    A row has a slot by the bits of its word below those of the bucket: `marks` counts the rows of each, of which there
    are SLOTS a row. A row alone in its slot is alone in its cluster; nine of ten lone rows are.
    There are no branches to mispredict.
    """
    columns, found = len(further), np.uint64(0)
    for b in range(kept.size - 1):
        kept[b] = found
        rows, bits = 0, 3
        for r in range(starts.shape[0]):
            rows += starts[r, 2 * b + 1] - starts[r, 2 * b]
        while (1 << bits) < SLOTS * rows:
            bits += 1
        marks[: 1 << bits] = 0
        shift = np.uint64(64 - bits)
        for r in range(starts.shape[0]):
            word_column, count_column = words_at[r], counts_at[r]
            for i in range(starts[r, 2 * b], starts[r, 2 * b + 1]):
                slot = (word_at(word_column, i) << _BUCKET_BITS) >> shift
                again = np.uint8(marks[slot] != 0)
                if count_column:
                    again |= np.uint8(word_at(count_column, i) > 1)
                marks[slot] = np.uint8(1) + again
        for r in range(starts.shape[0]):
            word_column, rest_column, count_column = words_at[r], rest_at[r], counts_at[r]
            for i in range(starts[r, 2 * b], starts[r, 2 * b + 1]):
                word = word_at(word_column, i)
                words[found] = word
                for c in range(columns):
                    rest[found, c] = word_at(rest_column, i * columns + c)
                if counts.size:
                    counts[found] = word_at(count_column, i) if count_column else 1
                found += np.uint64(marks[(word << _BUCKET_BITS) >> shift] > 1)
    kept[kept.size - 1] = found
    return np.int64(found)


@jit
def emit_others(rows, counts, sizes, owners, rest, column, packed, words, more):
    """Write the cells of clusters of several rows; returns how many. The outputs have room for all cells and one more.

    The words of the class are followed by count and size, in one word if `packed`, and, where `more` has room, by the
    words of the cluster: the row's first one, in `owners`, and its further words before `column`.
    """
    at = np.uint64(0)
    columns = rest.shape[1] - column - 1
    after = columns + (1 if packed else 2)
    for k in range(counts.size):
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
        at += np.uint64(sizes[k] != 1)
    return np.int64(at)
