"""Passing cells on: the loops that take rows alone in their cluster out, and write cells by class.

Rows come bucket by bucket, ``starts[b]`` the first of each, and all rows of a cluster lie in one bucket; see
`streameval.states.pairs`.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import ID_BUCKETS, MIX

__all__ = ["emit_ones", "emit_others", "split_lone"]

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_HALF = np.uint64(32)
_ID_MIX = np.uint64(MIX)


@jit
def split_lone(starts, words, rest, counts, column, marks, lone, more, which, kept):
    """Take out rows that are certainly alone in their cluster; returns how many, and how many rows are left.

    Two bits of `marks` for each of at least eight slots a row of a bucket say whether one row or several fell there,
    by the bits of the cluster's word below those of the bucket; of ten lone rows nine have a slot for themselves.
    ``lone`` takes the first words of their classes, `more` the others, `which` the rows left, all with room for one
    more; the rows left move to the front of their arrays, those of bucket b from ``kept[b]`` on. There are no branches
    to mispredict.
    """
    found, at = 0, 0
    for b in range(starts.size - 1):
        kept[b] = at
        bits = 5
        while (1 << bits) < 8 * (starts[b + 1] - starts[b]):
            bits += 1
        marks[: (1 << bits) >> 2] = 0
        shift = np.uint64(64 - bits)
        for i in range(starts[b], starts[b + 1]):
            slot = (words[i] << _BUCKET_BITS) >> shift
            bit = (slot & np.uint64(3)) << np.uint64(1)
            mark = marks[slot >> np.uint64(2)]
            again = (np.uint64(mark) >> bit) & np.uint64(1)
            if counts.size:
                again |= np.uint64(counts[i] > 1)
            marks[slot >> np.uint64(2)] = mark | np.uint8((np.uint64(1) | (again << np.uint64(1))) << bit)
        for i in range(starts[b], starts[b + 1]):
            slot = (words[i] << _BUCKET_BITS) >> shift
            bit = (slot & np.uint64(3)) << np.uint64(1)
            several = np.int64((np.uint64(marks[slot >> np.uint64(2)]) >> (bit + np.uint64(1))) & np.uint64(1))
            lone[found] = rest[i, column]
            for m in range(more.shape[1]):
                more[found, m] = rest[i, column + 1 + m]
            which[at] = i
            found += 1 - several
            at += several
    kept[starts.size - 1] = at
    for k in range(at):
        i = which[k]
        words[k] = words[i]
        for m in range(rest.shape[1]):
            rest[k, m] = rest[i, m]
        if counts.size:
            counts[k] = counts[i]
    return found, at


@jit
def emit_ones(rows, sizes, rest, column, start, shift, words, codes, more, counts):
    """Fill `words` with the classes of cells whose cluster has one row, from cell `start` on; returns the next cell.

    A cell has a row whose words from `column` on are its class, and its cluster's size. The first word is mixed, and
    its code counted, as ``encode_id`` does; the others go to `more`.
    """
    at = 0
    k = start
    while at < words.size:
        if sizes[k] == 1:
            i = rows[k]
            word = rest[i, column] * _ID_MIX
            code = np.uint32(word >> shift) << np.uint32(1)
            words[at] = word
            codes[at] = code
            counts[code] += 1
            for m in range(more.shape[1]):
                more[at, m] = rest[i, column + 1 + m]
            at += 1
        k += 1
    return k


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
