"""Rows of many groups by 64-bit scores, in 64-bit words.

A long word is the distance of a key from the *base* of its bucket, in 48 bits, then the cell
(`streameval.kernels.grouped.sweep`); the highest bit is free for the label. No key of a bucket is below its base, so
the words of a bucket sort like their keys. Distances are checked before keys are encoded.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.grouped.sweep import CELL_BITS
from streameval.kernels.jit import jit
from streameval.kernels.keyed.digits import MOST_BITS, SHORT, insert, shift_of

DISTANCE_BITS = 48  # of a key from its bucket's base

_SHIFT = np.uint64(CELL_BITS)
_CELL = np.uint64((1 << CELL_BITS) - 1)
_ONE = np.uint64(1)
_CODE_SHIFT = np.uint32(1)
_MAGNITUDE = np.uint64((1 << 63) - 1)
_LEAST, _MOST = np.uint64((1023 - 126) << 52), np.uint64((1023 + 127) << 52)  # 2⁻¹²⁶ and 2¹²⁷ as float64
_INFINITE = np.uint64(0x7FF << 52)


@jit
def fit_f8(bits):
    """Whether the distances of all float64 scores, given as uint64 `bits`, fit: magnitudes float32 holds, and ±inf."""
    beyond = False
    for i in range(bits.size):
        size = bits[i] & _MAGNITUDE
        beyond |= (size < _LEAST) & (size != 0)
        beyond |= (size > _MOST) & (size != _INFINITE)
    return not beyond


@jit
def shorten(words, codes, raw, table, bases):
    """Turn whole keys into long words, in place; ``table[raw]`` is the cell, and all distances must fit."""
    for i in range(words.size):
        words[i] = ((words[i] - bases[codes[i] >> _CODE_SHIFT]) << _SHIFT) | np.uint64(table[raw[i]])


@jit
def rank_keys(words, starts, codes, bases):
    """Whole keys, as uint64, of words that lie in pieces by code."""
    keys = np.empty(words.size, np.uint64)
    for j in range(codes.size):
        base = bases[codes[j] >> _CODE_SHIFT]
        for i in range(starts[j], starts[j + 1]):
            keys[i] = base + (words[i] >> _SHIFT)
    return keys


@jit
def sort_words(words, starts, spare, low):
    """Sort 64-bit words within each bucket by their bits from `low` on, stably; `spare` is scratch of the same size.

    Words are scattered by the leading bits in which they differ, a few to each place; larger places are scattered
    again.
    """
    room = np.zeros((1 << MOST_BITS) + 2, np.int64)
    for j in range(starts.size - 1):
        todo = [(starts[j], starts[j + 1])]
        while todo:
            a, b = todo.pop()
            if b - a <= SHORT:
                insert(words, a, b, low)
                continue
            least = most = words[a] >> low
            for i in range(a + 1, b):
                least, most = min(least, words[i] >> low), max(most, words[i] >> low)
            if least == most:
                continue
            shift = shift_of(b - a, most - least)
            ends = room[: ((most - least) >> shift) + np.uint64(2)]
            for i in range(a, b):
                ends[(((words[i] >> low) - least) >> shift) + _ONE] += 1
            ends[0] = a
            for place in range(1, ends.size):
                ends[place] += ends[place - 1]
            for i in range(a, b):
                place = ((words[i] >> low) - least) >> shift
                spare[np.uint64(ends[place])] = words[i]
                ends[place] += 1
            first = a
            for place in range(ends.size - 1):
                last = ends[place]
                if last - first > SHORT and shift:
                    todo.append((first, last))
                for i in range(first, last):
                    words[i] = spare[i]
                if last - first <= SHORT:
                    insert(words, first, last, low)
                first = last
            ends[:] = 0


@jit
def ties(words, starts, bases):
    """Keys, cells, negatives and positives of labelled words that are sorted within the buckets of `bases`.

    A key and cell may occur several times.
    """
    keys, cells = np.empty(words.size, np.uint64), np.empty(words.size, np.uint64)
    neg, pos = np.zeros(words.size, np.int64), np.zeros(words.size, np.int64)
    last = -1
    for j in range(bases.size):
        for i in range(starts[j], starts[j + 1]):
            word = words[i] >> _ONE
            if i == starts[j] or words[i - 1] >> _ONE != word:
                last += 1
                keys[last], cells[last] = bases[j] + (word >> _SHIFT), word & _CELL
            pos[last] += np.int64(words[i] & _ONE)
            neg[last] += np.int64(~words[i] & _ONE)
    return keys[: last + 1], cells[: last + 1], neg[: last + 1], pos[: last + 1]
