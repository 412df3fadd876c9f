"""Keys numbered by hash tables, and sums over the cells of a contingency table.

A table is an array of slots with linear probing; a slot holds the number of a key, or −1. The keys are rows of another
array: a word and further words. Rows come bucket by bucket: bucket b begins at ``starts[b]``, and equal keys lie in one
bucket. The table is cleared for each bucket. Its size follows the number of distinct keys, not of rows, so it stays in
cache, and a giant cluster costs no more than many small ones. Numbers depend on the order of the rows; sums over them
do not.

Sums of ratios must not depend on the order of their terms, and differences of logarithms would lose all digits in
float64; double-double numbers (`streameval.kernels.exact`) solve both problems.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streameval.kernels.exact import Pair, add_pairs, divide_pairs, multiply_pairs, two_product, two_sum
from streameval.kernels.jit import inline, jit
from streameval.kernels.prefetch import word_at

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
FIRST_BITS = 6  # log2 of the size of a new table


def slots_for(starts: np.ndarray) -> np.ndarray:
    """An array with room for the table of the largest bucket: a power of two, at least twice its rows.

    Examples
    --------
    >>> slots_for(np.array([0, 3, 8])).size, slots_for(np.array([0, 1000])).size
    (64, 2048)
    """
    largest = int(np.diff(starts).max(initial=0))
    return np.empty(1 << max((2 * largest - 1).bit_length(), FIRST_BITS), np.int32)


@inline
def hash_to_slot(word, rest, i, columns, bits):
    """Slot of a key."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + rest[i, c]
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@inline
def hash_at(word, rest, first, columns, bits):
    """As `hash_to_slot`; the further words are those from number `first` on at address `rest`."""
    for c in range(columns):
        word = (word ^ (word >> _HALF)) * _MIX + word_at(rest, first + c)
    return np.int64(((word ^ (word >> _HALF)) * _MIX) >> np.uint64(64 - bits))


@inline
def equal(table, at, rest, i, start, stop):
    """Whether the further words from `start` to `stop` of row i equal those stored in row `at` of the table."""
    same = True
    for c in range(start, stop):
        same = same and table[at, np.uint64(1 + c)] == rest[i, np.uint64(c)]
    return same


@inline
def find(word, rest, i, columns, keys, slots, bits):
    """The slot with a key's number, or the free slot where the number belongs."""
    mask = np.uint64((1 << bits) - 1)
    at = np.uint64(hash_to_slot(word, rest, i, columns, bits))
    k = slots[at]
    while k >= 0 and not (keys[np.uint64(k), 0] == word and equal(keys, np.uint64(k), rest, i, 0, columns)):
        at = (at + np.uint64(1)) & mask
        k = slots[at]
    return at


@inline
def find_or_last(word, rest, i, columns, keys, last, slots, bits):
    """As `find`, and the key's number, which is `last` if the key is new; ``keys[last]`` must be the key itself.

    No branch depends on whether the key is new. That is faster if many keys have few rows.
    """
    mask = np.uint64((1 << bits) - 1)
    at = np.uint64(hash_to_slot(word, rest, i, columns, bits))
    k = np.uint64(slots[at]) if slots[at] >= 0 else last
    while not (keys[k, 0] == word and equal(keys, k, rest, i, 0, columns)):
        at = (at + np.uint64(1)) & mask
        k = np.uint64(slots[at]) if slots[at] >= 0 else last
    return at, k


@inline
def write(word, rest, i, columns, keys, k):
    """Write the words of row i as key k."""
    keys[k, 0] = word
    for c in range(columns):
        keys[k, np.uint64(1 + c)] = rest[i, np.uint64(c)]


@inline
def is_crowded(keys, slots, bits):
    """Whether a table with this many keys must grow."""
    return 4 * keys > (1 << bits) and (1 << bits) < slots.size


@jit
def clear_table(slots, rows, bits):
    """Clear the table for a bucket; it shrinks if the bucket has few rows. Returns the bits of a slot."""
    while bits > FIRST_BITS and (1 << bits) > 4 * rows:
        bits -= 1
    slots[: 1 << bits] = -1
    return bits


@jit
def grow_table(keys, columns, start, stop, slots, bits):
    """Move the keys from `start` to `stop` to a larger table; returns the bits of a slot."""
    bits = bits + 2 if (4 << bits) <= slots.size else bits + 1
    slots[: 1 << bits] = -1
    more = keys[:, 1:]
    for k in range(start, stop):
        slots[find(keys[k, 0], more, k, columns, keys, slots, bits)] = k
    return bits


@jit
def number_keys(starts, words, rest, further, slots, keys, numbers, found):
    """Number the distinct keys, made of a word and the first ``len(further)`` further words; returns their number.

    Outputs: ``numbers[i]``, the number of the key of row i; ``found[k]``, the first row with key k; ``keys[k]``, its
    words. `further` is a tuple because the compiler knows its length and unrolls the loop over it, which halves the
    time.
    """
    columns, count, bits = len(further), np.uint64(0), np.int64(FIRST_BITS)
    for b in range(starts.size - 1):
        first, bits = np.int64(count), clear_table(slots, starts[b + 1] - starts[b], bits)
        for i in range(starts[b], starts[b + 1]):
            write(words[i], rest, i, columns, keys, count)
            found[count] = i
            at, k = find_or_last(words[i], rest, i, columns, keys, count, slots, bits)
            slots[at] = k
            numbers[i] = k
            count += np.uint64(k == count)
            if is_crowded(np.int64(count) - first, slots, bits):
                bits = grow_table(keys, columns, first, np.int64(count), slots, bits)
    return np.int64(count)


@jit
def positions(groups, ids):
    """Position of each id in `groups`, or −1; uint64 arrays of shape (n, n_words), the groups distinct."""
    columns, bits = groups.shape[1] - 1, np.int64(FIRST_BITS)
    while (1 << bits) < 2 * len(groups):
        bits += 1
    slots, out = np.full(1 << bits, -1, np.int32), np.empty(len(ids), np.int64)
    further, rest = groups[:, 1:], ids[:, 1:]
    for k in range(len(groups)):
        slots[find(groups[k, 0], further, k, columns, groups, slots, bits)] = k
    for i in range(len(ids)):
        out[i] = slots[find(ids[i, 0], rest, i, columns, groups, slots, bits)]
    return out


@jit
def add_margins(numbers, counts, largest, totals, maxima):
    """Add each count to the total of its number, and update the maximum of the number with ``largest[i]``."""
    for i in range(numbers.size):
        k = numbers[i]
        totals[k] += counts[i]
        maxima[k] = max(maxima[k], largest[i])


@jit
def tally_small(sizes, table):
    """Count the sizes that are indices of `table`; returns the number of larger sizes."""
    larger = 0
    for i in range(sizes.size):
        if sizes[i] < table.size:
            table[sizes[i]] += 1
        else:
            larger += 1
    return larger


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_EXACT = 9007199254740992.0  # 2^53
_UNIT = 4503599627370496.0  # 2^52
_LN2_HI, _LN2_LO = 0.6931471805599453, 2.3190468138462996e-17
_THIRD_LO, _FIFTH_LO = 1.850371707708594e-17, -1.1102230246251566e-17


@jit
def _quotient(n: float, r: float, c: float) -> Pair:
    """n²/(r·c) as a double-double number: one division with its exact remainder if both products are exact."""
    square, product = n * n, r * c
    if square < _EXACT and product < _EXACT:
        q = square / product
        p, e = two_product(q, product)
        return q, ((square - p) - e) / product
    ah, al = two_product(n, n)
    bh, bl = two_product(r, c)
    return divide_pairs(ah, al, bh, bl)


@jit
def cell_sums(
    rows: Ints,
    cols: Ints,
    counts: Ints,
    times: Ints,
    row_totals: Ints,
    col_totals: Ints,
    row_squares: Ints,
    col_squares: Ints,
    inertia: Ints,
) -> None:
    """Add each cell to Σ n² of its row and its column, and to Σ n²/(r·c) in fixed point.

    Cell i stands for ``times[i]`` equal cells (1 if `times` is empty), at most 2^31 in total. Counts and totals are
    below 2^53. The squares of a side are stored as sums of their high and of their low 32 bits; counts of 2^31 or more
    are left to the caller. `inertia` has four words: high and low 32 bits of the first 52 binary digits, then of the
    next 52. All sums are integers, and each term depends on one cell, so the result does not depend on the order or the
    division of the cells.
    """
    h0, l0, h1, l1 = inertia[0], inertia[1], inertia[2], inertia[3]
    for i in range(counts.size):
        n, row, col = counts[i], rows[i], cols[i]
        t = times[i] if times.size else np.int64(1)
        if n < 2147483648:
            upper, lower = ((n * n) >> 32) * t, ((n * n) & 4294967295) * t
            row_squares[row, 0] += upper
            row_squares[row, 1] += lower
            col_squares[col, 0] += upper
            col_squares[col, 1] += lower
        qh, ql = _quotient(float(n), float(row_totals[row]), float(col_totals[col]))
        digit = math.floor(qh * _UNIT)
        first = np.int64(digit)
        second = np.int64(math.floor(((qh * _UNIT - digit) + ql * _UNIT) * _UNIT))
        h0 += (first >> 32) * t
        l0 += (first & 4294967295) * t
        h1 += (second >> 32) * t
        l1 += (second & 4294967295) * t
    inertia[0], inertia[1], inertia[2], inertia[3] = h0, l0, h1, l1


@jit
def first_largest(owners, rows, ids, best):
    """Set ``best[k]`` to the largest cell of owner k, of several the one with the smallest id; −1 at the beginning."""
    for i in range(owners.size):
        j = best[owners[i]]
        better = j < 0 or rows[i] > rows[j]
        if not better and rows[i] == rows[j]:
            for c in range(ids.shape[1]):
                if ids[i, c] != ids[j, c]:
                    better = ids[i, c] < ids[j, c]
                    break
        if better:
            best[owners[i]] = i


@jit
def log_pairs(values: Ints, table_hi: Floats, table_lo: Floats, out_hi: Floats, out_lo: Floats) -> None:
    """Natural logarithms of integers in [1, 2^62) as double-double numbers, with an error below 2^-96.

    ln v = e·ln 2 + ln c + 2·artanh((m − c) / (m + c)), v = m·2^e with m in [1, 2) and c the middle of m's bin of 128;
    ``table_hi`` and ``table_lo`` hold ln c. The series in z ≤ 2^-9 has seven terms; the first three need two floats.
    """
    for i in range(values.size):
        v = values[i]
        hi = float(v)
        lo = float(v - np.int64(hi))
        exponent = math.frexp(hi)[1]
        exponent -= 1
        scale = math.ldexp(1.0, -exponent)
        mh, ml = hi * scale, lo * scale
        k = min(int((mh - 1.0) * 128.0), 127)
        c = 1.0 + (k + 0.5) / 128.0
        zh, zl = divide_pairs(*two_sum(mh - c, ml), *add_pairs(mh, ml, c, 0.0))
        sh, sl = multiply_pairs(zh, zl, zh, zl)
        tail = 1.0 / 7.0 + sh * (1.0 / 9.0 + sh * (1.0 / 11.0 + sh / 13.0))
        th, tl = add_pairs(*two_product(sh, tail), 0.2, _FIFTH_LO)
        th, tl = multiply_pairs(sh, sl, th, tl)
        th, tl = add_pairs(th, tl, 1.0 / 3.0, _THIRD_LO)
        th, tl = multiply_pairs(sh, sl, th, tl)
        th, tl = add_pairs(1.0, 0.0, th, tl)
        th, tl = multiply_pairs(2.0 * zh, 2.0 * zl, th, tl)
        th, tl = add_pairs(table_hi[k], table_lo[k], th, tl)
        eh, el = multiply_pairs(float(exponent), 0.0, _LN2_HI, _LN2_LO)
        out_hi[i], out_lo[i] = add_pairs(eh, el, th, tl)
