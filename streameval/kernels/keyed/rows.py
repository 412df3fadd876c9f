"""Count the rows of hot keys, and partition the other rows by their first id.

A key is a word and further words; every row counts 1. Rows of hot keys are counted while rows are collected. See
`streameval.states.contingency.rows`.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import MIX
from streameval.kernels.prefetch import LINE, prefetch

SLOT_BITS = 13  # so that the table of hot keys stays in the second-level cache

_PAIR_SHIFT = np.uint64(64 - (SLOT_BITS - 1))
_ONE = np.uint64(1)
_MIX = np.uint64(MIX)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)
_LINE_WORDS = LINE // 8


def slots_of_rows(keys: np.ndarray) -> np.ndarray:
    """The first of the two slots of each key in `absorb_rows`, as a uint64 array; a key of zeros has slots 0 and 1.

    Examples
    --------
    >>> slots_of_rows(np.array([[0, 0], [1, 0], [2**64 - 1, 2**64 - 1]], np.uint64)).tolist()
    [0, 5062, 3106]
    """
    further = np.zeros(keys.shape[0], np.uint64)
    for column in keys[:, 1:].T:
        further = (further + column) * _FURTHER
    found = keys[:, 0] * _MIX - further
    return (found >> _PAIR_SHIFT) << _ONE


@jit
def collect_words(words, shift, out, counts):
    """Copy words, and count the rows of each bucket; the bits of the mixed word above `shift` are the bucket."""
    for i in range(words.size):
        counts[(words[i] * _MIX) >> shift] += 1
        out[i] = words[i]


@jit
def count_pairs(first, second, rows, columns, table):
    """Count pairs of codes in ``table[rows[first[i]] + columns[second[i]]]``."""
    for i in range(first.size):
        table[np.uint64(rows[np.uint64(first[i])] + columns[np.uint64(second[i])])] += np.uint32(1)


@jit
def absorb_rows(words, rest, further, tagged, labelled, table, shift, out, out_rest, out_tags, counts):
    """Count rows whose key is in one of its two slots; collect the others as `collect_words`, and return how many.

    Parameters
    ----------
    words : uint64 array of shape (n,)
    rest : uint64 array of shape (n_further, n), the further words
    further : tuple of n_further items; the compiler knows its length
    tagged : tuple of the tags of the rows, a uint16 array of shape (n,), as the last part of their keys; or empty
    labelled : tuple of their labels, likewise, but the positives of a key are counted instead; or empty
    table : uint64 array of shape (n_slots * width,), in each slot the words of a key, its tag, its count, and its
        positives
    shift : see `collect_words`
    out, out_rest : uint64 arrays of shape (n,) and (n, n_further); every row is written, so that no branch depends on
        data
    out_tags : uint16 array of shape (n,), or empty
    counts : int64 array of shape (n_buckets,), incremented by the remaining rows
    """
    kept, columns = np.uint64(0), len(further)
    last = np.uint64(columns + 1)
    count = last + np.uint64(len(tagged))
    width = count + _ONE + np.uint64(len(labelled))
    for i in range(words.size):
        word, more = words[i], np.uint64(0)
        for c in range(columns):
            more = (more + rest[c, i]) * _FURTHER
        if len(tagged):
            more = (more + np.uint64(tagged[0][i])) * _FURTHER
        one = (((word * _MIX - more) >> _PAIR_SHIFT) << _ONE) * width
        two = one + width
        first, second = table[one] == word, table[two] == word
        for c in range(columns):
            first &= table[one + np.uint64(1 + c)] == rest[c, i]
            second &= table[two + np.uint64(1 + c)] == rest[c, i]
        if len(tagged):
            first &= table[one + last] == tagged[0][i]
            second &= table[two + last] == tagged[0][i]
        hit = np.uint64(first | second)
        at = one + np.uint64(second) * width + count
        table[at] += hit
        if len(labelled):
            table[at + _ONE] += hit & np.uint64(labelled[0][i])
            out_tags[kept] = labelled[0][i]
        out[kept] = word
        for c in range(columns):
            out_rest[kept, c] = rest[c, i]
        if len(tagged):
            out_tags[kept] = tagged[0][i]
        kept += _ONE - hit
    for i in range(kept):  # a loop of few rows costs less than a count that is mostly 0
        counts[(out[i] * _MIX) >> shift] += 1
    return np.int64(kept)


@jit
def scatter_ids(words, rest, further, tagged, tag, shift, cursor, out, out_rest):
    """Write the mixed word and the further words of each row to the cursor of its bucket, stably; `cursor` advances.

    Parameters
    ----------
    further : tuple of n_further items; the compiler knows its length
    tagged : tuple of a uint16 array of shape (n,), the tags that are to replace bits of the mixed words that their
        buckets determine; or empty
    tag : uint64, these bits and the lowest of them
    out, out_rest : uint64 arrays of shape (n,) and (n, n_further)
    """
    columns, more = len(further), out_rest.reshape(-1)
    for i in range(words.size):
        word = words[i] * _MIX
        bucket = word >> shift
        if len(tagged):
            word = (word & ~tag[0]) | (np.uint64(tagged[0][i]) << tag[1])
        at = cursor[bucket]
        cursor[bucket] = at + 1
        out[np.uint64(at)] = word
        prefetch(out, at + _LINE_WORDS)
        first = np.uint64(at) * np.uint64(columns)
        for c in range(columns):
            more[first + np.uint64(c)] = rest[i, c]
            prefetch(more, np.int64(first) + (c + 1) * _LINE_WORDS)
