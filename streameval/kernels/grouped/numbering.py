"""Number the ids of rows: rows with long ids, such as texts, become words that hold a short number instead.

The ids of some buckets are few, so that their table stays in the cache, and a word of 8 bytes takes the place of a row
of 24 or 32. The words are those of `streameval.kernels.grouped.comparisons`: number, rank key, label.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["number_ids", "renumber"]

_ID = np.uint64(33)  # bits below the number in a word
_ONE, _LOW = np.uint64(1), np.uint64((1 << 33) - 1)
_SHIFT, _MIX = np.uint64(33), np.uint64(0xFF51AFD7ED558CCD)  # as MurmurHash3 mixes: any ids spread over the table


@jit
def number_ids(words, rest, label, slots, ids, known, out):
    """Number the ids of rows from 0 on, in the order in which they are met; returns how many are known afterwards.

    Parameters
    ----------
    words : uint64 array of shape (n,), the first words of the ids
    rest : uint64 array of shape (n, 1) or (n, 2), the second words, if there are any, and the 32-bit rank keys
    label : 0 or 1
    slots : int32 array, a hash table: 0, or the number of an id plus 1; a power of two of at least 2 * n_ids slots
    ids : uint64 array of shape (n_ids, 2), both words of each known id (0 for a missing second word), then room
    known : number of known ids
    out : output of shape (n,): number, rank key, label
    """
    mask, key, long = np.uint64(slots.size - 1), rest.shape[1] - 1, rest.shape[1] > 1
    for i in range(words.size):
        first, second = words[i], rest[i, 0] if long else np.uint64(0)
        place = (first ^ (first >> _SHIFT)) * _MIX
        place = (place ^ (place >> _SHIFT)) & mask
        number = slots[place]
        while number and (ids[number - 1, 0] != first or ids[number - 1, 1] != second):
            place = (place + _ONE) & mask
            number = slots[place]
        if not number:
            ids[known, 0], ids[known, 1] = first, second
            known += 1
            slots[place] = number = known
        out[i] = (np.uint64(number - 1) << _ID) | (rest[i, key] << _ONE) | np.uint64(label)
    return known


@jit
def renumber(words, ranks):
    """Replace each number by its rank, in place."""
    for i in range(words.size):
        words[i] = (np.uint64(ranks[words[i] >> _ID]) << _ID) | (words[i] & _LOW)
