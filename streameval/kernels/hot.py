"""Count the rows of hot keys at once, before any of them is moved."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit

__all__ = ["SLOT_BITS", "absorb", "slots_of"]

SLOT_BITS = 14  # of a table that stays in the second-level cache

_SHIFT = np.uint64(64 - SLOT_BITS)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)


def slots_of(words: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The slot that `absorb` looks into for each key, as a uint64 array; the key of zeros has slot 0.

    Examples
    --------
    >>> slots_of(np.array([0, 1, 2**64 - 1], np.uint64), np.empty((3, 0), np.uint64)).tolist()
    [0, 13754, 2629]
    """
    return _hashed(words, rest) >> _SHIFT


def _hashed(words: np.ndarray, rest: np.ndarray) -> np.ndarray:
    found = words * _MIX
    for column in rest.T:
        found ^= column * _FURTHER
    return found


@jit
def absorb(words, rest, codes, further, keys, tally, table):
    """Count the rows whose key is in its slot of `keys`, and move the others to the front; returns how many these are.

    There are as many further words as the tuple `further` is long. ``tally[slot, label]`` counts the rows taken out,
    `table`, the rows of each code, loses them. There are no branches to mispredict.
    """
    kept, columns = np.uint64(0), len(further)
    for i in range(words.size):
        word, code = words[i], codes[i]
        hashed = word * _MIX
        for c in range(columns):
            hashed ^= rest[i, c] * _FURTHER
        slot = hashed >> _SHIFT
        hit = keys[slot, 0] == word
        for c in range(columns):
            hit &= keys[slot, np.uint64(1 + c)] == rest[i, c]
        tally[slot, np.uint64(code & 1)] += np.int64(hit)
        table[code] -= np.int64(hit)
        words[kept] = word
        codes[kept] = code
        for c in range(columns):
            rest[kept, c] = rest[i, c]
        kept += np.uint64(not hit)
    return np.int64(kept)
