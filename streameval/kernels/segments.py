"""Scatter words to buckets, and count them there."""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, two_sum
from streameval.kernels.jit import jit
from streameval.kernels.prefetch import LINE, prefetch

LONG = 1 << 11  # rows of a piece that may be grouped before it is stored
_SAMPLE = 64


def columns(rows: np.ndarray) -> np.ndarray:
    """The columns of some rows, or the only one, as `scatter` and `place` move them: 64-bit numbers as uint64.

    Fewer types mean fewer compilations of the loops.
    """
    return np.atleast_2d((rows.view(np.uint64) if rows.itemsize == 8 else rows).T)


@jit
def scatter(values, codes, cursor, out):
    """Write ``values[i]`` at the cursor of its code, stably; `cursor` advances."""
    line = LINE // out.itemsize
    for i in range(values.size):
        code = codes[i]
        at = cursor[code]
        cursor[code] = at + 1
        out[np.uint64(at)] = values[i]  # unsigned: no index from the end
        prefetch(out, at + line)  # for every row: whether it begins a line is unpredictable


@jit
def place(values, starts, slots, cursor, out):
    """Copy piece ``values[starts[j] - starts[0] : starts[j + 1] - starts[0]]`` to the cursor of ``slots[j]``.

    The caller moves the cursors, which serve several columns.
    """
    for j in range(slots.size):
        at, size = cursor[slots[j]], starts[j + 1] - starts[j]
        given, taken = values[starts[j] - starts[0] :], out[at : at + size]
        for i in range(size):
            taken[i] = given[i]


@jit
def place_labelled(values, starts, codes, cursor, out, low):
    """`place` for words whose bits from `low` on move up by one, to make place for the label; the top bit is lost.

    `cursor` advances.
    """
    upper = ~((np.uint64(1) << np.uint64(low)) - np.uint64(1))
    for j in range(codes.size):
        at, size = cursor[codes[j]], starts[j + 1] - starts[j]
        given, taken = values[starts[j] - starts[0] :], out[at : at + size]
        label = np.uint64(codes[j] & 1) << np.uint64(low)
        for i in range(size):
            taken[i] = (given[i] + (given[i] & upper)) | label
        cursor[codes[j]] = at + size


@jit
def repetitive(words, rest, starts):
    """Whether each piece has `LONG` or more rows and repeats keys: of 64 spaced rows, at most 32 are distinct."""
    flags = np.zeros(starts.size - 1, np.bool_)
    sample = np.empty(_SAMPLE, np.int64)
    for j in range(starts.size - 1):
        size = starts[j + 1] - starts[j]
        if size < LONG:
            continue
        step = size // _SAMPLE
        for k in range(_SAMPLE):
            sample[k] = starts[j] + k * step
        seen, k = 0, 0
        while k < _SAMPLE and seen <= _SAMPLE // 2:  # of most pieces, half of the sample decides
            new = True
            for m in range(k):
                same = words[sample[m]] == words[sample[k]]
                for c in range(rest.shape[1]):
                    same &= rest[sample[m], c] == rest[sample[k], c]
                if same:
                    new = False
                    break
            seen += new
            k += 1
        flags[j] = seen <= _SAMPLE // 2
    return flags


@jit
def tally_pairs(numbers, label, table):
    """Count rows in ``table[number, label]``."""
    for i in range(numbers.size):
        table[np.uint64(numbers[i]), np.uint64(label[i])] += 1


@jit
def sum_pieces(weights, starts):
    """Sum of the weights of each piece, and its rounding error, as a float64 array of shape (2, n_pieces)."""
    sums = np.zeros((2, starts.size - 1))
    for j in range(starts.size - 1):
        total, error = 0.0, 0.0
        for i in range(starts[j], starts[j + 1]):
            total, error = compensated(total, error, weights[i])
        sums[0, j], sums[1, j] = two_sum(total, error)
    return sums


@jit
def tally_sorted(words, top, keys, neg, pos):
    """Distinct keys of sorted `labelled` words with their negatives and positives; returns the number of keys.

    `top` is the bit that the words lack; `keys`, `neg` and `pos` have room for all words. The end of a key is
    unpredictable, so the loop does not branch on it: every row writes the counts of its group so far, and the write
    position advances after the last row of the group.
    """
    if not words.size:
        return np.int64(0)
    group, rows, positives, word = np.uint64(0), np.int64(0), np.int64(0), words[0]
    for i in range(1, words.size):
        after = words[i]
        rows += 1
        positives += np.int64(word & np.uint64(1))
        keys[group] = (word >> np.uint64(1)) | top
        neg[group] = rows - positives
        pos[group] = positives
        last = np.int64(word ^ after > np.uint64(1))
        group += np.uint64(last)
        rows &= last - 1  # 0 after the last row
        positives &= last - 1
        word = after
    positives += np.int64(word & np.uint64(1))
    keys[group] = (word >> np.uint64(1)) | top
    neg[group] = rows + 1 - positives
    pos[group] = positives
    return np.int64(group) + 1
