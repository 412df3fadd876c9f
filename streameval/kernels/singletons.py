"""Singletons: skip the rows that are alone in their cluster or class, and the cells of singleton clusters.

Rows come bucket by bucket, bucket b from ``starts[b]`` on, and equal keys lie in one bucket; see
`streameval.states.contingency.by_cluster`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.kernels.jit import inlined, step
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.prefetch import word_at

LONELY = 2  # singletons are removed first if they were at least 1/2 of the items of the bucket before
_SLOTS = 8  # for each row of the largest bucket, at least

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)


class Addresses(NamedTuple):
    """Addresses of the rows of consecutive buckets in several segments.

    Attributes
    ----------
    starts : int64 array of shape (n_segments, n_codes + 1), the first row of each code within the columns
    words, rest, counts : uint64 arrays of shape (n_segments,), addresses of the columns; 0 for a missing column
    """

    starts: np.ndarray
    words: np.ndarray
    rest: np.ndarray
    counts: np.ndarray


@inlined
def size_of(rows, b):
    """Items of label 0 in bucket b."""
    size = np.int64(0)
    for r in range(rows.starts.shape[0]):
        size += rows.starts[r, 2 * b + 1] - rows.starts[r, 2 * b]
    return size


def marks_for(rows: int) -> np.ndarray:
    """An array with room for the marks of the largest bucket, which has `rows` rows.

    Examples
    --------
    >>> marks_for(0).size, marks_for(1000).size
    (8, 8192)
    """
    return np.empty(_SLOTS << max(rows - 1, 0).bit_length(), np.uint8)


@step
def clear_marks(marks, size):
    """Clear the marks for a bucket of `size` rows; returns by how many bits a word is shifted to its slot.

    There are at least `_SLOTS` slots per row. The bits of a word below those of the bucket choose its slot.
    """
    bits = 3
    while (1 << bits) < _SLOTS * size:
        bits += 1
    marks[: 1 << bits] = 0
    return np.uint64(64 - bits)


@step
def mark_others(others, b, marks, shift):
    """Mark the slots of the items of label 0 in bucket b as if two rows had each."""
    for r in range(others.starts.shape[0]):
        word_column = others.words[r]
        for i in range(others.starts[r, 2 * b], others.starts[r, 2 * b + 1]):
            marks[(word_at(word_column, i) << _BUCKET_BITS) >> shift] = 2


@step
def separate(rows, b, further, last, marks, shift, found, words, rest, counts, alone, lone):
    """Separate the rows of label 0 in bucket b; returns the numbers of rows and of singletons collected so far.

    `marks` counts the rows of each slot; a row alone in its slot is a singleton, which finds nine of ten. No branch
    depends on the data. Keys have ``len(further)`` further words; `lone` takes the last ``len(last)`` of these for
    singletons. `found` and `alone` rows are already in the outputs, which have room for all rows and one more.
    """
    columns, wanted = len(further), len(last)
    for r in range(rows.starts.shape[0]):
        word_column, count_column = rows.words[r], rows.counts[r]
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
            slot = (word_at(word_column, i) << _BUCKET_BITS) >> shift
            again = np.uint8(marks[slot] != 0)
            if count_column:
                again |= np.uint8(word_at(count_column, i) > 1)
            marks[slot] = np.uint8(1) + again
    for r in range(rows.starts.shape[0]):
        word_column, rest_column, count_column = rows.words[r], rows.rest[r], rows.counts[r]
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
            word = word_at(word_column, i)
            words[found] = word
            for c in range(columns):
                rest[found, c] = word_at(rest_column, i * columns + c)
            if counts.size:
                counts[found] = word_at(count_column, i) if count_column else 1
            again = np.uint64(marks[(word << _BUCKET_BITS) >> shift] > 1)
            for c in range(wanted):
                lone[alone, c] = word_at(rest_column, i * columns + columns - wanted + c)
            found += again
            alone += np.uint64(1) - again
    return found, alone
