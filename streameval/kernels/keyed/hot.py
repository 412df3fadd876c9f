"""Count the rows of hot keys in a small table before partitioning the others; see `streameval.states.keyed.hot`."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import code_id

SLOT_BITS = 14  # log2 of the slots of a table, which stays in the second-level cache

_PAIR_SHIFT = np.uint64(64 - (SLOT_BITS - 1))
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)
_ONE, _HALF_BITS = np.uint64(1), np.uint64(5)  # log2 of the 32 bits of a half


def slots_of(keys: np.ndarray) -> np.ndarray:
    """The first of the two slots of each key in `absorb`, as a uint64 array; a key of zeros has slots 0 and 1.

    Examples
    --------
    >>> slots_of(np.array([[0], [1], [2**64 - 1]], np.uint64)).tolist()
    [0, 13754, 2628]
    """
    further = np.zeros(keys.shape[0], np.uint64)
    for column in keys[:, 1:].T:
        further = (further + column) * _FURTHER
    return ((keys[:, 0] * _MIX - further) >> _PAIR_SHIFT) << _ONE


def whole_keys(words: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """First words of keys as uint64; the bucket completes shorter words.

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
    """`whole_keys` for one key, whose word has `bits` bits."""
    return np.uint64(word) | (np.uint64(code >> np.uint32(1)) << np.uint64(bits))


@inlined
def _count_row(word, label, rest, row, columns, table):
    """Count a row if its key is in one of its two slots; returns 1 if it is, else 0. No branch depends on the data.

    The key is `word` and the further words ``rest[row]``: the place to which the row moves would depend on the row
    before, so that rows would wait for each other.
    """
    further, width = np.uint64(0), np.uint64(2 * columns + 4)  # of a pair
    for c in range(columns):
        further = (further + rest[row, c]) * _FURTHER
    at = ((word * _MIX - further) >> _PAIR_SHIFT) * width
    one, two = table[at] == word, table[at + np.uint64(columns + 1)] == word
    for c in range(columns):
        one &= table[at + np.uint64(c + 1)] == rest[row, c]
        two &= table[at + np.uint64(columns + 2 + c)] == rest[row, c]
    hit = np.uint64(one | two)
    table[at + np.uint64(2 * columns + 2) + np.uint64(two)] += hit << (np.uint64(label) << _HALF_BITS)
    return hit


@jit
def absorb(words, rest, codes, further, table):
    """Count the rows whose key is in one of its two slots, and move the other rows to the front; returns their number.

    Keys have as many further words as the tuple `further` has items.

    Parameters
    ----------
    table : flat uint64 array; each pair of slots holds the words of its two keys, then two counts. A count has the
        negatives in its lower half and the positives in its upper half, so that a row touches one cache line and
        changes one number. The caller empties the halves before they overflow.
    """
    kept, columns = np.uint64(0), len(further)
    for i in range(words.size):
        code = codes[i]
        word = np.uint64(words[i]) if words.itemsize == 8 else _whole(words[i], code, 8 * words.itemsize)
        hit = _count_row(word, code & 1, rest, i, columns, table)
        words[kept] = words[i]
        codes[kept] = code
        for c in range(columns):
            rest[kept, c] = rest[i, c]
        kept += _ONE - hit
    return np.int64(kept)


@jit
def absorb_ids(ids, label, more, further, shift, words, codes, rest, table):
    """`encode_id` and `absorb` in one loop, for rows whose further words are `more`, of shape (n, n_further)."""
    kept, columns = np.uint64(0), len(further)
    for i in range(ids.size):
        word, code = code_id(ids[i], label[i], shift)
        words[kept], codes[kept] = word, code
        for c in range(columns):
            rest[kept, c] = more[i, c]
        kept += _ONE - _count_row(word, label[i], more, i, columns, table)
    return np.int64(kept)


@jit
def find_runs(columns, starts):
    """Write the first row of each run of equal keys to `starts`; returns the number of runs, or −1 if they fill it.

    Parameters
    ----------
    columns : tuple of uint64 arrays of shape (n,), the words of the keys
    starts : int64 array of at least two items, filled from the front
    """
    starts[0], runs = 0, np.uint64(1)
    for i in range(1, columns[0].size):
        changed = False
        for column in columns:
            changed |= column[i] != column[i - 1]
        starts[runs] = i
        runs += np.uint64(changed)
        if runs == np.uint64(starts.size):
            return -1
    return np.int64(runs)
