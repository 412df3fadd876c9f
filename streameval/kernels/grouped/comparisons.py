"""Rankings of many small groups: the rows of a group are compared with each other instead of sorted.

A word is a row: the id of its group, then the rank key, then the label, as in `streameval.kernels.grouped.rankings`.
Rows are sorted by id and label (`by_group`), without the digits of the key. Then each positive of a group counts the
positives and negatives that score at least as high, in branch-free loops over several keys at a time. Groups of more
than `_MOST` positives are sorted by key.

The sums equal those over ties to the last bit; see `rankings.areas` and `rankings.precisions`.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import add_words, multiply_add
from streameval.kernels.jit import inlined, jit, step

_MOST = 64  # positives of a group that are compared with every row
_ID = np.uint64(33)  # bits below the id
_ZERO, _ONE, _HALF, _LOW = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
_KEY_DIGITS, _KEY_BITS = 3, 11  # digits of the key and the label, 33 bits; the counts of all digits stay in the cache
_UNIT = float(1 << 62)
_BELOW = np.uint64((1 << 33) - 1)  # the rank key and the label
_SHIFT, _MIX = np.uint64(33), np.uint64(0xFF51AFD7ED558CCD)  # as MurmurHash3 mixes: any ids spread over the table


def words_by_group(words: np.ndarray) -> np.ndarray:
    """Sort labelled words by id and label, as `by_group`; all ids agree in the bit that the words lack.

    Examples
    --------
    >>> words = np.array([7 << 33 | 0b11, 5 << 33 | 0b10, 7 << 33 | 0b100, 5 << 33], np.uint64)
    >>> [(int(word) >> 33, int(word) & 1) for word in words_by_group(words)]
    [(5, 0), (5, 0), (7, 0), (7, 1)]
    """
    if not words.size:
        return words
    bits = 1 + (int(words.min() ^ words.max()) >> 33).bit_length()
    digits = -(-bits // _KEY_BITS)
    out, spare = np.empty_like(words), np.empty_like(words)
    by_group(words, np.zeros((digits, 1 << -(-bits // digits)), np.uint32), out, spare)
    return out if digits % 2 else spare


@inlined
def _by_digits(words, low, kept, counts, out, spare):
    """Sort words stably by a key, from its lowest digit to the highest, alternating between `out` and `spare`.

    The key of a word is its bits from `low` on, followed by its lowest `kept` bits. Both are constants, so that the
    compiler simplifies the key. `counts` is a uint32 array of zeros of shape (n_digits, 2 ** bits of a digit). The
    result is in `out` if n_digits is odd.
    """
    mask, rest = np.uint64(counts.shape[1] - 1), (_ONE << kept) - _ONE
    bits = np.uint64(0)
    while mask >> bits:
        bits += _ONE
    for i in range(words.size):
        left = ((words[i] >> low) << kept) | (words[i] & rest)
        for digit in range(counts.shape[0]):
            counts[digit, left & mask] += np.uint32(1)
            left >>= bits
    given, taken, other = words, out, spare
    shift = np.uint64(0)
    for digit in range(counts.shape[0]):
        cursor, before = counts[digit], np.uint32(0)
        for value in range(cursor.size):
            cursor[value], before = before, before + cursor[value]
        for i in range(given.size):
            value = ((((given[i] >> low) << kept) | (given[i] & rest)) >> shift) & mask
            at = cursor[value]
            cursor[value] = at + np.uint32(1)
            taken[np.uint64(at)] = given[i]
        given, taken, other = taken, other, taken
        shift += bits


@jit
def by_group(words, counts, out, spare):
    """Sort words stably by id and label; see `_by_digits`."""
    _by_digits(words, _ID, _ONE, counts, out, spare)


@step
def _by_key(words, counts, out, spare):
    """Sort the words of one group by key and label; see `_by_digits`."""
    _by_digits(words, _ZERO, _ZERO, counts, out, spare)


@jit
def groups_of(words, every):
    """Find the groups of words in the order of `by_group`: the start of each, its negatives and its positives.

    Groups of one class are omitted unless `every` is set, except the first and the last group, which may have more rows
    elsewhere. The last result holds the number, negatives and positives of the omitted groups.
    """
    last, most = words.size - 1, min(words.size, 1)
    for i in range(last):
        most += np.int64(words[i + 1] >> _ID != words[i] >> _ID)
    starts, neg, pos = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    group, positives = np.uint64(0), np.int64(0)
    for i in range(words.size):  # no branch at the end of a group, which is unpredictable: each row writes its sums
        positives += np.int64(words[i] & _ONE)
        starts[group], pos[group] = i + 1, positives
        group += np.uint64(words[min(i + 1, last)] >> _ID != words[i] >> _ID)
    left_out = np.zeros(3, np.int64)
    kept, start, before = np.uint64(0), np.int64(0), np.int64(0)
    for g in range(most):
        end, after = starts[g], pos[g]
        p = after - before
        n = end - start - p
        starts[kept], neg[kept], pos[kept] = start, n, p
        keep = np.int64(every or g == 0 or g == most - 1 or ((n != 0) & (p != 0)))
        kept += np.uint64(keep)
        left_out[0] += 1 - keep
        left_out[1] += (1 - keep) * n
        left_out[2] += (1 - keep) * p
        start, before = end, after
    return starts[:kept], neg[:kept], pos[:kept], left_out


@inlined
def _precision(true, rows):
    """true/rows in units of 2⁻⁶²."""
    return np.uint64(np.int64(true / rows * _UNIT))


@inlined
def _area(keys, n, rows):
    """Twice the pairs won in a group whose first `n` keys are its negatives."""
    area = np.int64(0)
    for i in range(n, rows):
        key = keys[i]
        below, ahead = np.uint32(0), np.uint32(0)  # of 32 bits, so that several fit into a register
        for j in range(n):
            below = np.uint32(below + np.uint32(keys[j] > key))
            ahead = np.uint32(ahead + np.uint32(keys[j] < key))
        area += n + np.int64(below) - np.int64(ahead)
    return area


@inlined
def _precisions(keys, n, rows, false, true):
    """The precisions of a group, as for `_area`, summed as halves."""
    upper, lower = np.uint64(0), np.uint64(0)
    for i in range(n, rows):
        key = keys[i]
        reached, positives = np.uint32(0), np.uint32(0)
        for j in range(rows):
            reached = np.uint32(reached + np.uint32(keys[j] <= key))
        for j in range(n, rows):
            positives = np.uint32(positives + np.uint32(keys[j] <= key))
        share = _precision(true + np.int64(positives), false + true + np.int64(reached))
        upper += share >> _HALF
        lower += share & _LOW
    return upper, lower


@inlined
def _sorted_sums(words, false, true, precise):
    """Sums of a group of sorted words: twice the pairs won, and precisions if `precise`, each of 128 bits."""
    area_high, area_low, high, low = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    T, F, n, p = np.int64(true), np.int64(false), np.int64(0), np.int64(0)
    for i in range(words.size):
        label = np.int64(words[i] & _ONE)
        p += label
        n += 1 - label
        if i + 1 == words.size or words[i + 1] >> _ONE != words[i] >> _ONE:
            area_high, area_low = multiply_add(area_high, area_low, np.uint64(n), np.uint64(2 * T + p))
            T += p
            F += n
            if p and precise:
                high, low = multiply_add(high, low, np.uint64(p), _precision(T, T + F))
            n = p = np.int64(0)
    return area_high, area_low, high, low


@jit
def compared(words, starts, neg, pos, false, true, precise):
    """Sums of each group: twice the pairs won, and Σ precision in units of 2⁻⁶² if `precise`, both of 128 bits.

    Parameters
    ----------
    words : uint64 array of shape (n_rows,), in the order of `by_group`
    starts, neg, pos : int64 arrays of shape (n_groups,), see `groups_of`
    false, true : negatives and positives of the first group that score higher and lie in earlier words

    Returns
    -------
    areas, precisions : uint64 arrays of shape (2, n_groups), high words and low words; no precisions unless `precise`
    """
    areas = np.zeros((2, starts.size), np.uint64)
    precisions = np.zeros((2, starts.size if precise else 0), np.uint64)
    most = most_sorted = np.int64(0)
    for g in range(starts.size):
        if pos[g] <= _MOST:
            most = max(most, neg[g] + pos[g])
        else:
            most_sorted = max(most_sorted, neg[g] + pos[g])
    keys = np.empty(most, np.uint32)
    out, spare = np.empty(most_sorted, np.uint64), np.empty(most_sorted, np.uint64)
    counts = np.zeros((_KEY_DIGITS, 1 << _KEY_BITS), np.uint32)
    for g in range(starts.size):
        start, rows = starts[g], neg[g] + pos[g]
        if pos[g] <= _MOST:
            for i in range(rows):
                keys[i] = np.uint32(words[start + i] >> _ONE)
            area = np.uint64(_area(keys, neg[g], rows))
            areas[0, g], areas[1, g] = multiply_add(np.uint64(0), area, np.uint64(2 * true), np.uint64(neg[g]))
            if precise:
                upper, lower = _precisions(keys, neg[g], rows, np.int64(false), np.int64(true))
                precisions[0, g], precisions[1, g] = add_words(np.uint64(0), np.uint64(0), upper, lower)
        else:
            _by_key(words[start : start + rows], counts, out[:rows], spare[:rows])  # three digits end in `out`
            counts[:] = 0
            areas[0, g], areas[1, g], high, low = _sorted_sums(out[:rows], false, true, precise)
            if precise:
                precisions[0, g], precisions[1, g] = high, low
        false = true = 0
    return areas, precisions
