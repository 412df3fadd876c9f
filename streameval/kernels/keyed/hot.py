"""Count the rows of hot keys in a small table, before rows are partitioned; see `streameval.states.keyed.hot`."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import code_f4, code_id

__all__ = ["SLOT_BITS", "absorb", "absorb_f4", "absorb_id", "slots_of", "whole_keys"]

SLOT_BITS = 14  # of a table, which stays in the second-level cache

_PAIR_SHIFT = np.uint64(64 - (SLOT_BITS - 1))
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)
_ONE = np.uint64(1)


def slots_of(keys: np.ndarray) -> np.ndarray:
    """The first of the two slots that `absorb` looks into for each key, as a uint64 array; zeros have slots 0 and 1.

    Examples
    --------
    >>> slots_of(np.array([[0], [1], [2**64 - 1]], np.uint64)).tolist()
    [0, 13754, 2628]
    """
    found = keys[:, 0] * _MIX
    for column in keys[:, 1:].T:
        found ^= column * _FURTHER
    return (found >> _PAIR_SHIFT) << _ONE


def whole_keys(words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """First words of keys as uint64: a shorter word is completed by its bucket.

    Examples
    --------
    >>> [f"{key:x}" for key in whole_keys(np.array([7], np.uint16), np.array([0x21], np.uint32))]
    ['100007']
    """
    if words.itemsize == 8:
        return words
    return words | (codes >> 1).astype(np.uint64) << np.uint64(8 * words.itemsize)


@inlined
def _whole(word, code, bits):
    """`whole_keys` of one key whose word has so many bits."""
    return np.uint64(word) | (np.uint64(code >> np.uint32(1)) << np.uint64(bits))


@jit
def absorb(words, rest, codes, further, keys, tally):
    """Count the rows whose key is in one of its two slots and move the others to the front; returns how many these are.

    Keys have as many further words as the tuple `further` is long. ``tally[slot, label]`` counts the rows taken out. No
    branch depends on the data.
    """
    kept, columns = np.uint64(0), len(further)
    for i in range(words.size):
        code = codes[i]
        word = np.uint64(words[i]) if words.itemsize == 8 else _whole(words[i], code, 8 * words.itemsize)
        hashed = word * _MIX
        for c in range(columns):
            hashed ^= rest[i, c] * _FURTHER
        slot = (hashed >> _PAIR_SHIFT) << _ONE
        one, two = keys[slot, 0] == word, keys[slot + _ONE, 0] == word
        for c in range(columns):
            one &= keys[slot, np.uint64(1 + c)] == rest[i, c]
            two &= keys[slot + _ONE, np.uint64(1 + c)] == rest[i, c]
        hit = one | two
        tally[slot + np.uint64(two), np.uint64(code & 1)] += np.int64(hit)
        words[kept] = words[i]
        codes[kept] = code
        for c in range(columns):
            rest[kept, c] = rest[i, c]
        kept += np.uint64(not hit)
    return np.int64(kept)


@inlined
def _found(key, keys):
    """The slot of a key of one word, and 1 if it is there, else 0."""
    slot = ((key * _MIX) >> _PAIR_SHIFT) << _ONE
    two = np.uint64(keys[slot + _ONE, 0] == key)
    return slot + two, np.uint64(keys[slot, 0] == key) | two


@jit
def absorb_id(ids, label, shift, words, codes, keys, tally):
    """`encode_id` and `absorb` in one loop; returns how many rows are left."""
    kept = np.uint64(0)
    for i in range(ids.size):
        word, code = code_id(ids[i], label[i], shift)
        slot, hit = _found(word, keys)
        tally[slot, np.uint64(label[i])] += np.int64(hit)
        words[kept] = word
        codes[kept] = code
        kept += _ONE - hit
    return np.int64(kept)


@jit
def absorb_f4(bits, label, words, codes, keys, tally):
    """`encode_f4` and `absorb` in one loop; returns how many rows are left, and how many scores are NaN."""
    kept, missing = np.uint64(0), 0
    for i in range(bits.size):
        key, code, nan = code_f4(bits[i], label[i])
        slot, hit = _found(np.uint64(key), keys)
        tally[slot, np.uint64(label[i])] += np.int64(hit)
        words[kept] = np.uint16(key)
        codes[kept] = code
        kept += _ONE - hit
        missing += nan
    return np.int64(kept), missing
