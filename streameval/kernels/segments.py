"""Count the rows of hot keys (`streameval.states.keyed.hot`); scatter other words to buckets, and count them there."""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import add_compensated, two_sum
from streameval.kernels.jit import inline, jit
from streameval.kernels.prefetch import LINE, prefetch

LONG = 1 << 11  # rows of a piece that may be grouped before it is stored
_SAMPLE = 64
PAIR_BITS = 24  # bits of the rows of a pair
_TWICE = 1 << 15  # cells of a table of pairs up to which there are two
_PROBES = 16  # slots that are searched for a pair: codes may be chosen to collide

SLOT_BITS = 14  # log2 of the slots of a table, which stays in the second-level cache

_PAIR_SHIFT = np.uint64(64 - (SLOT_BITS - 1))
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FURTHER = np.uint64(0xFF51AFD7ED558CCD)
_PAIR = np.uint64(PAIR_BITS)
_ONE, _HALF_BITS = np.uint64(1), np.uint64(5)  # log2 of the 32 bits of a half


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
def tally_pairs(one, two, height, width):
    """Count the rows of each pair of codes in a table in which every possible pair has its place.

    Parameters
    ----------
    one, two : integer arrays of shape (n,), below `height` and `width`; n is below 2^32

    Returns
    -------
    counts, firsts, seconds : arrays of shape (n_pairs,), the rows and the codes of each pair, sorted by pair

    Examples
    --------
    >>> [column.tolist() for column in tally_pairs(np.array([1, 0, 1]), np.array([1, 0, 1], np.uint8), 2, 2)]
    [[1, 2], [0, 1], [0, 1]]
    """
    # rows of a hot pair would wait for each other: unless that takes much of the cache, every other row has a table
    cells, pairs, here = height * width, np.int64(0), np.uint64(0)
    other = np.uint64(cells if cells <= _TWICE else 0)
    table = np.zeros(cells + other, np.uint32)
    for i in range(one.size):
        table[here + np.uint64(one[i]) * np.uint64(width) + np.uint64(two[i])] += np.uint32(1)
        here ^= other
    for i in range(cells):
        table[i] += table[other + np.uint64(i)] if other else 0
        pairs += table[i] != 0
    counts, firsts, seconds = (
        np.empty(pairs + 1, np.int64),
        np.empty(pairs + 1, np.int32),
        np.empty(pairs + 1, two.dtype),
    )
    at, place = np.uint64(0), np.uint64(0)
    for first in range(height):  # without a branch: whether a pair occurs is unpredictable
        for second in range(width):
            counts[at], firsts[at], seconds[at] = table[place], first, second
            at += np.uint64(table[place] != 0)
            place += _ONE
    return counts[:pairs], firsts[:pairs], seconds[:pairs]


@jit
def hash_pairs(one, two, shift, bits):
    """Count the rows of pairs of codes in a hash table of 2^bits slots.

    Pairs get a slot in the order in which they occur, until half of the slots are taken. Rows of others stay apart.

    Parameters
    ----------
    one, two : integer arrays of shape (n,), n below 2^PAIR_BITS
    shift : bits of the codes of `two`; those of a pair are fewer than 64 - PAIR_BITS

    Returns
    -------
    counts, firsts, seconds : arrays of shape (n_items,), the rows and the codes of each item
    """
    slots, room, count, low = np.zeros(1 << bits, np.uint64), (1 << bits) >> 1, np.uint64(0), np.uint64(shift)
    items, last = np.empty(one.size, np.uint64), np.uint64(slots.size - 1)
    for i in range(one.size):
        pair = np.uint64(one[i]) << low | np.uint64(two[i])
        at = (pair * _MIX) >> np.uint64(64 - bits)
        word = slots[at]
        if word >> _PAIR != pair:
            for _ in range(_PROBES):
                if word == np.uint64(0) or word >> _PAIR == pair:
                    break
                at = (at + _ONE) & last
                word = slots[at]
            if word >> _PAIR != pair:
                if word != np.uint64(0) or room == 0:
                    items[count] = pair << _PAIR | _ONE
                    count += _ONE
                    continue
                word, room = pair << _PAIR, room - 1
        slots[at] = word + _ONE
    for word in slots:
        if word != np.uint64(0):
            items[count] = word
            count += _ONE
    counts, firsts, seconds = np.empty(count, np.int64), np.empty(count, np.int32), np.empty(count, two.dtype)
    for i in range(counts.size):
        pair = items[i] >> _PAIR
        counts[i] = items[i] & ((_ONE << _PAIR) - _ONE)
        firsts[i], seconds[i] = pair >> low, pair & ((_ONE << low) - _ONE)
    return counts, firsts, seconds


@jit
def sum_pieces(weights, starts):
    """Sum of the weights of each piece, and its rounding error, as a float64 array of shape (2, n_pieces)."""
    sums = np.zeros((2, starts.size - 1))
    for j in range(starts.size - 1):
        total, error = 0.0, 0.0
        for i in range(starts[j], starts[j + 1]):
            total, error = add_compensated(total, error, weights[i])
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


@inline
def _whole(word, code, bits):
    """`whole_keys` for one key, whose word has `bits` bits."""
    return np.uint64(word) | (np.uint64(code >> np.uint32(1)) << np.uint64(bits))


@inline
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
