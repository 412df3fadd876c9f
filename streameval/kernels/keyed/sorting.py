"""Sort words of 32 bits, and rows of several words; and count sorted rows by key and label.

*Words of a bucket*, of 32 bits (`sort_bucket`), are sorted in 2 to 3 ns each. NumPy's vectorized sort takes up to 20 on
processors that are slow to store the part of a vector that a mask selects, such as AMD's Zen 4. For words of 64 bits,
it takes 9 to 16 ns there; a radix sort by their leading bits took 9 ns, some 3 % less of a whole call.

*Rows* (`sort_rows`) are the words of a key, then the index of an item, which leads to the item's label, count and
weight; they follow one another in a flat array. They are scattered by the leading bits in which their words differ, in
the first column that differs, a few to each place; larger places are scattered again. Each level resolves at least two
bits of a key, so the work is linear in the rows for any keys. The sort is stable. The loops take a tuple with one item
for each column of a row, so that each width is compiled separately, with its short loops unrolled.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import add_compensated, two_sum
from streameval.kernels.jit import inline, jit

_ZERO, _ONE = np.uint64(0), np.uint64(1)


SHORT = 16  # items that are sorted by insertion
_SOME = 32  # words of a bucket that are
DIGIT = 0xFF  # largest digit of `sort_bucket`
MOST_BITS = 13  # largest number of leading bits used at once: 2¹³ places stay in the cache

_EACH = 1  # log2 of the mean number of items of a place
_MASK, _BITS = np.uint32(DIGIT), np.uint32(8)


@inline
def _bit_length(value):
    """Number of bits of a number."""
    bits = 0
    while value:
        value >>= _ONE
        bits += 1
    return bits


@inline
def shift_of(items, spread):
    """By how many bits to shift numbers up to `spread`, so that each place gets about two of the items."""
    bits = min(max(2, _bit_length(np.uint64(items)) - _EACH), MOST_BITS)
    return np.uint64(max(0, _bit_length(spread) - bits))


@inline
def insert(words, a, b, low):
    """Sort the words from a to b by their bits from `low` on, stably, by insertion."""
    for i in range(a + 1, b):
        word, at = words[i], i
        while at > a and words[at - 1] >> low > word >> low:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word


@inline
def sort_bucket(words, spare, a, b, shift, places):
    """Sort the 32-bit words from a to b stably by the 16 bits at `shift`, or few words by all bits from `shift` on.

    `spare` is scratch of the same size, and `places`, an int64 array of shape (2, `DIGIT` + 1), for the places of
    digits of 8 bits.
    """
    if b - a <= _SOME:
        insert(words, a, b, shift)
        return
    places[:] = 0
    for i in range(a, b):
        places[0, np.uint64((words[i] >> shift) & _MASK)] += 1
        places[1, np.uint64((words[i] >> (shift + _BITS)) & _MASK)] += 1
    low, high = a, a
    for digit in range(places.shape[1]):
        low, places[0, digit] = low + places[0, digit], low
        high, places[1, digit] = high + places[1, digit], high
    for i in range(a, b):
        digit = np.uint64((words[i] >> shift) & _MASK)
        spare[np.uint64(places[0, digit])] = words[i]
        places[0, digit] += 1
    for i in range(a, b):
        digit = np.uint64((spare[i] >> (shift + _BITS)) & _MASK)
        words[np.uint64(places[1, digit])] = spare[i]
        places[1, digit] += 1


@jit
def index_rows(words, rest, first, out):
    """Write rows to `out`, a flat array: words, further words, and the index of the item, from `first` on."""
    width = rest.shape[1] + 2
    for i in range(words.size):
        out[i * width] = words[i]
        for c in range(rest.shape[1]):
            out[i * width + c + 1] = rest[i, c]
        out[i * width + width - 1] = first + i


@inline
def _insert(rows, spare, a, b, column, width):
    """Sort the rows from a to b, which are equal in the columns before `column`, by insertion."""
    for i in range(a + 1, b):
        word, at = rows[i * width + column], i
        while at > a:
            other, mine, c = rows[(at - 1) * width + column], word, column
            while other == mine and c < width - 2:
                c += 1
                other, mine = rows[(at - 1) * width + c], rows[i * width + c]
            if other <= mine:
                break
            at -= 1
        if at == i:
            continue
        for c in range(width):
            spare[c] = rows[i * width + c]
        for j in range(i, at, -1):
            for c in range(width):
                rows[j * width + c] = rows[(j - 1) * width + c]
        for c in range(width):
            rows[at * width + c] = spare[c]


@jit
def sort_rows(rows, spare, columns):
    """Sort rows stably by all columns except the last.

    Parameters
    ----------
    rows : uint64 array of shape (n_rows * width,)
    spare : scratch, of the same shape
    columns : tuple of length `width`; its values are not used
    """
    width = np.int64(len(columns))
    starts = np.zeros((1 << MOST_BITS) + 2, np.int64)
    todo = [(np.int64(0), np.int64(rows.size) // width, np.int64(0))]
    while todo:
        a, b, column = todo.pop()
        low = high = np.uint64(0)
        while low == high and column < width - 1:
            low = high = rows[a * width + column]
            for i in range(a + 1, b):
                low, high = min(low, rows[i * width + column]), max(high, rows[i * width + column])
            column += np.int64(low == high)
        if low == high:
            continue
        shift = shift_of(b - a, high - low)
        ends = starts[: ((high - low) >> shift) + np.uint64(2)]
        for i in range(a, b):
            ends[((rows[i * width + column] - low) >> shift) + _ONE] += 1
        ends[0] = a
        for place in range(1, ends.size):
            ends[place] += ends[place - 1]
        for i in range(a, b):
            place = (rows[i * width + column] - low) >> shift
            at = ends[place]
            ends[place] = at + 1
            for c in range(width):
                spare[at * width + c] = rows[i * width + c]
        rows[a * width : b * width] = spare[a * width : b * width]
        first = a
        for place in range(ends.size - 1):
            last = ends[place]
            if last - first > SHORT:
                todo.append((first, last, column))
            elif last - first > 1:
                _insert(rows, spare, first, last, column, width)
            first = last
        ends[:] = 0


@jit
def count_rows(rows, columns, middle, counts, keys, rest, neg, pos):
    """Write the distinct keys of sorted rows with their negatives and positives; returns the number of keys.

    Items from index `middle` on are positive; `counts` has the rows of each item, or is empty if each is one row.
    As in `segments.tally_sorted`, the loop does not branch on the end of a key.
    """
    width = np.int64(len(columns))
    size = np.int64(rows.size) // width
    group, count, positives = np.int64(0), np.int64(0), np.int64(0)
    for i in range(size):
        after = min(i + 1, size - 1)
        same = np.int64(1)
        for c in range(width - 1):
            same &= np.int64(rows[i * width + c] == rows[after * width + c])
        item = np.int64(rows[i * width + width - 1])
        own = counts[np.uint64(item)] if counts.size else np.int64(1)
        count += own
        positives += own * np.int64(item >= middle)
        keys[group] = rows[i * width]
        for c in range(width - 2):
            rest[group, c] = rows[i * width + c + 1]
        neg[group] = count - positives
        pos[group] = positives
        group += 1 - same
        count &= -same
        positives &= -same
    return group + (size > 0)


@jit
def weigh_rows(rows, columns, middle, weights, sums, errors):
    """Sum the weights of each key of sorted rows by label; `sums` and `errors` have shape (2, n_keys).

    Weights are added in the order of the items; `errors` are the rounding errors of the sums.
    """
    width = np.int64(len(columns))
    size = np.int64(rows.size) // width
    group = np.int64(0)
    totals, slips = np.zeros(2), np.zeros(2)
    for i in range(size):
        item = np.int64(rows[i * width + width - 1])
        side = np.int64(item >= middle)
        totals[side], slips[side] = add_compensated(totals[side], slips[side], weights[item])
        last = i + 1 == size
        for c in range(width - 1):
            last |= rows[i * width + c] != rows[min(i + 1, size - 1) * width + c]
        if last:
            for k in range(2):
                sums[k, group], errors[k, group] = two_sum(totals[k], slips[k])
                totals[k] = slips[k] = 0.0
            group += 1
