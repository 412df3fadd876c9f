"""Rows of contingency tables of many groups: separate them by group.

The first word of a row has the code of its group in place of some bits that all plain words of the bucket share; see
`streameval.states.grouped.interleaved.cells`. A group, or several of them together, has a *place* in the output.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.prefetch import word_at

__all__ = ["count_places", "separate"]


@inlined
def _place(word, places, bits, shift):
    """The place of a row, from its first word; negative if the row is left out."""
    return places[(word & bits) >> shift]


@jit
def count_places(rows, places, bits, shift, items):
    """Count the items of each place in each bucket: increments ``items[place, bucket]``.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of items of label 0
    places : int64 array of shape (n_codes,), the place of each code; items with a negative place are left out
    bits, shift : uint64, the bits of the first word that hold the code, and the lowest of them
    items : int64 array of shape (n_places, n_buckets)
    """
    for b in range(items.shape[1]):
        for r in range(rows.words.size):
            words = rows.words[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
                place = _place(word_at(words, i), places, bits, shift)
                if place >= 0:
                    items[np.uint64(place), b] += 1


@jit
def separate(rows, places, bits, shift, plain, further, cursor, words, rest, counts, sums):
    """Write the items of each place, bucket by bucket, as plain words.

    Parameters
    ----------
    rows, places, bits, shift : see `count_places`
    plain : uint64 array of shape (n_buckets,), what the code replaced in the words of each bucket
    further : tuple whose length is the number of further words in a key
    cursor : int64 array of shape (n_places, n_buckets), where the items begin; moved to where they end
    words, rest, counts : outputs; counts are empty if each item is one row
    sums : int64 array of the shape of `cursor`, incremented by the counts
    """
    columns, more = len(further), rest.reshape(-1)
    for b in range(cursor.shape[1]):
        for r in range(rows.words.size):
            word_column, rest_column, count_column = rows.words[r], rows.rest[r], rows.counts[r]
            for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
                word = word_at(word_column, i)
                place = np.int64(_place(word, places, bits, shift))
                if place < 0:
                    continue
                at = np.uint64(cursor[np.uint64(place), b])
                cursor[np.uint64(place), b] += 1
                words[at] = (word & ~bits) | plain[b]
                for c in range(columns):
                    more[at * np.uint64(columns) + np.uint64(c)] = word_at(rest_column, i * columns + c)
                if counts.size:
                    count = np.int64(word_at(count_column, i)) if count_column else 1
                    counts[at] = count
                    sums[np.uint64(place), b] += count
