"""Scatter words to buckets, and count them there."""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import compensated, two_sum
from streameval.kernels.jit import jit
from streameval.kernels.prefetch import LINE, prefetch

LONG = 1 << 11  # rows of a piece that may be grouped before it is stored
_SAMPLE = 64


def flat(rows: np.ndarray) -> np.ndarray:
    """Rows in the form that `scatter` and `place` move: rows of one word as words, 64-bit numbers as uint64.

    Fewer types mean fewer compilations of the loops.
    """
    rows = rows.view(np.uint64) if rows.itemsize == 8 else rows
    return rows[:, 0] if rows.ndim == 2 and rows.shape[1] == 1 else rows


@jit
def _compare(one, i, two, j):
    """-1, 0 or 1 as row i of `one` is less than, equal to or greater than row j of `two`."""
    for c in range(one.shape[1]):
        if one[i, c] != two[j, c]:
            return -1 if one[i, c] < two[j, c] else 1
    return 0


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
def scatter_rows(values, codes, cursor, out, columns):
    """`scatter` for rows of several words that follow one another in flat arrays.

    `columns` is a tuple with one item for each word of a row, so that each width is compiled separately, with its short
    loop unrolled; its values are not used.
    """
    line, width = LINE // out.itemsize, np.uint64(len(columns))
    for i in range(codes.size):
        code = codes[i]
        at = np.uint64(cursor[code])
        cursor[code] += 1
        first, given = at * width, np.uint64(i) * width
        prefetch(out, np.int64(first) + line)
        for c in range(len(columns)):
            out[first + np.uint64(c)] = values[given + np.uint64(c)]


@jit
def place(values, starts, slots, cursor, out):
    """Copy piece ``values[starts[j] - starts[0] : starts[j + 1] - starts[0]]`` to the cursor of ``slots[j]``."""
    for j in range(slots.size):
        at, size = cursor[slots[j]], starts[j + 1] - starts[j]
        given, taken = values[starts[j] - starts[0] :], out[at : at + size]
        for i in range(size):
            taken[i] = given[i]
        cursor[slots[j]] = at + size


@jit
def place_labelled(values, starts, codes, cursor, out):
    """`place` for words shifted left by one, with the label of their code in the lowest bit; the top bit is lost."""
    for j in range(codes.size):
        at, size = cursor[codes[j]], starts[j + 1] - starts[j]
        given, taken, label = values[starts[j] - starts[0] :], out[at : at + size], np.uint64(codes[j] & 1)
        for i in range(size):
            taken[i] = (given[i] << np.uint64(1)) | label
        cursor[codes[j]] = at + size


@jit
def place_rows(values, starts, slots, cursor, out):
    """`place` for arrays of several columns."""
    for j in range(slots.size):
        at = cursor[slots[j]]
        for i in range(starts[j] - starts[0], starts[j + 1] - starts[0]):
            for c in range(values.shape[1]):
                out[at, c] = values[i, c]
            at += 1
        cursor[slots[j]] = at


@jit
def widen(words, starts, buckets):
    """64-bit keys of 16-bit words in pieces; piece j holds the words of bucket ``buckets[j]``."""
    keys = np.empty(words.size, np.uint64)
    for j in range(buckets.size):
        high = np.uint64(buckets[j]) << np.uint64(16)
        for i in range(starts[j], starts[j + 1]):
            keys[i] = high | np.uint64(words[i])
    return keys


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
                if words[sample[m]] == words[sample[k]] and _compare(rest, sample[m], rest, sample[k]) == 0:
                    new = False
                    break
            seen += new
            k += 1
        flags[j] = seen <= _SAMPLE // 2
    return flags


@jit
def tally(words, counts, table, label):
    """Add the count of each word (1 if `counts` is empty) to ``table[word, label]``."""
    if counts.size:
        for i in range(words.size):
            table[words[i], label] += counts[i]
    else:
        for i in range(words.size):
            table[words[i], label] += 1


@jit
def tally_pairs(numbers, label, table):
    """Count rows in ``table[number, label]``."""
    for i in range(numbers.size):
        table[np.uint64(numbers[i]), np.uint64(label[i])] += 1


@jit
def harvest(table, high, items):
    """Distinct keys, negatives and positives from a table by (word, label), at most `items` keys; clears the table.

    A key is `high` with the word as its lower bits.
    """
    room = min(items, table.shape[0]) + 1
    keys, neg, pos = np.empty(room, np.uint64), np.empty(room, np.int64), np.empty(room, np.int64)
    n = np.uint64(0)
    for i in range(table.shape[0]):
        keys[n] = high | np.uint64(i)
        neg[n] = table[i, 0]
        pos[n] = table[i, 1]
        n += np.uint64((table[i, 0] | table[i, 1]) != 0)
    table[:] = 0
    return keys[:n], neg[:n], pos[:n]


@jit
def tally_weights(words, weights, table, errors):
    """Add each weight to ``table[word]``, and the rounding error of each addition to ``errors[word]``."""
    for i in range(words.size):
        w = words[i]
        table[w], low = two_sum(table[w], weights[i])
        errors[w] += low


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
def order_rest(words, rest, order):
    """Sort rows with equal words by their further words; `order` already sorts by word and is changed in place.

    `words` is in that order, `rest` is not. This is Shell's sort, with gaps that grow by 9/4; most stretches are short.
    """
    start = 0
    while start < words.size:
        stop = start + 1
        while stop < words.size and words[stop] == words[start]:
            stop += 1
        size = stop - start
        gap = 1
        while gap < size // 3:
            gap = gap * 9 // 4 + 1
        while size > 1 and gap:
            for i in range(start + gap, stop):
                row = order[i]
                j = i
                while j >= start + gap and _compare(rest, order[j - gap], rest, row) > 0:
                    order[j] = order[j - gap]
                    j -= gap
                order[j] = row
            gap = 0 if gap == 1 else max(1, (gap - 1) * 4 // 9)
        start = stop


@jit
def distinct(words, rest, counts, weights):
    """Add up sorted rows with equal keys.

    `rest` has shape (n, n_words - 1); `counts` and `weights` may be empty, for counts of 1 and for no weights. Rows of
    a group must be adjacent. Returns the same four columns with one row for each group, and the rounding error of each
    weight.
    """
    n = words.size
    keys = np.empty(n, words.dtype)
    others = np.empty((n, rest.shape[1]), np.uint64)
    totals = np.empty(n, np.int64)
    sums, errors = np.empty(weights.size), np.empty(weights.size)
    groups = 0
    i = 0
    while i < n:
        word = words[i]
        start = i
        count = np.int64(0)
        total, error = 0.0, 0.0
        while i < n and words[i] == word and _compare(rest, i, rest, start) == 0:
            count += counts[i] if counts.size else 1
            if weights.size:
                total, error = compensated(total, error, weights[i])
            i += 1
        keys[groups] = word
        totals[groups] = count
        for c in range(rest.shape[1]):
            others[groups, c] = rest[start, c]
        if weights.size:
            sums[groups], errors[groups] = two_sum(total, error)
        groups += 1
    weighed = min(groups, weights.size)
    return keys[:groups], others[:groups], totals[:groups], sums[:weighed], errors[:weighed]


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


@jit
def take_out(words, keys, neg, pos):
    """Remove the rows of some keys from sorted `labelled` words; returns the number of remaining words, now in front.

    `keys` ascend and are shifted left by one; their rows are added to `neg` and `pos`.
    """
    kept, i = 0, 0
    for k in range(keys.size + 1):
        low, stop = i, words.size
        while k < keys.size and low < stop:
            middle = (low + stop) // 2
            if words[middle] < keys[k]:
                low = middle + 1
            else:
                stop = middle
        for row in range(i, stop):
            words[kept] = words[row]
            kept += 1
        i = stop
        while k < keys.size and i < words.size and words[i] - keys[k] <= np.uint64(1):
            pos[k] += np.int64(words[i] & np.uint64(1))
            neg[k] += np.int64(~words[i] & np.uint64(1))
            i += 1
    return kept


@jit
def align(key0, rest0, key1, rest1):
    """Merge two strictly ascending key lists.

    Returns the keys and further words of the union, and for each list the position of its rows in the union.
    """
    n0, n1 = key0.size, key1.size
    keys = np.empty(n0 + n1, key0.dtype)
    rest = np.empty((n0 + n1, rest0.shape[1]), np.uint64)
    at0 = np.empty(n0, np.int64)
    at1 = np.empty(n1, np.int64)
    i, j, k = 0, 0, 0
    while i < n0 or j < n1:
        if i == n0:
            order = 1
        elif j == n1:
            order = -1
        elif key0[i] != key1[j]:
            order = -1 if key0[i] < key1[j] else 1
        else:
            order = _compare(rest0, i, rest1, j)
        keys[k] = key0[i] if order <= 0 else key1[j]
        for c in range(rest.shape[1]):
            rest[k, c] = rest0[i, c] if order <= 0 else rest1[j, c]
        if order <= 0:
            at0[i] = k
            i += 1
        if order >= 0:
            at1[j] = k
            j += 1
        k += 1
    return keys[:k], rest[:k], at0, at1
