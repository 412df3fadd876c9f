"""A fixed, data-independent grid of bins over the real numbers, and counts on it.

Bins follow the bits of the float: each octave has a fixed number of bins, many where scores are common (probabilities
near 0, their complements near 1, logits) and few elsewhere. Probabilities above one half are binned by their distance
from 1, so scores near 1 are resolved as well as scores near 0. All histograms have the same bins, so any two merge.

The grid has four zones: negative numbers, [0, ½), [½, 1], and numbers above 1. In each zone the number v (x, x, 1 − x,
x) lands in bin ``first[zone, exponent] ± (mantissa >> shift[zone, exponent])`` of float32(v), which is monotone.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import two_sum
from streameval.kernels.jit import inline, jit
from streameval.kernels.prefetch import prefetch

# bits of mantissa kept, by zone, for exponents e with 2^e <= v < 2^(e + 1): (from, to, bits); others keep `_COARSE`
_FINE = (
    ((-8, -2, 12), (-1, 4, 13), (5, 11, 11)),  # negative: logits
    ((-15, -2, 14), (-25, -16, 12)),  # rare events
    ((-14, -1, 14), (-25, -15, 12), (-40, -26, 8)),  # saturated; -1 holds one half alone
    ((0, 4, 13), (5, 11, 11)),  # logits, counts
)
_COARSE = 4


def _grid() -> tuple[np.ndarray, np.ndarray, int]:
    """The first bin and the direction of every index that `_bin` forms, the shifts, and the number of bins.

    The index is the sign and exponent bits of v, with bit 9 set in the mirrored zone.
    """
    bits = np.full((4, 256), _COARSE)
    for zone, spans in enumerate(_FINE):
        for low, high, kept in spans:
            bits[zone, low + 127 : high + 128] = kept
    bits[:, 255] = 0  # infinity
    bits[1:3, 126] = 0  # one half, the only number of the two inner zones with this exponent
    sizes = 1 << bits
    sizes[1:3, 127:] = 0
    sizes[3, :127] = 0
    starts = np.cumsum(sizes, axis=1) - sizes
    ends = np.cumsum(sizes.sum(axis=1))
    firsts = np.zeros((1024, 2), np.int64)
    shifts = np.zeros(1024, np.int64)
    for zone, (index, rising) in enumerate(((256, False), (0, True), (512, False), (0, True))):
        here = np.flatnonzero(sizes[zone])
        zero = ends[zone] - sizes[zone].sum() if rising else ends[zone] - 1
        firsts[index + here, 1] = 1 if rising else -1
        firsts[index + here, 0] = zero + firsts[index + here, 1] * starts[zone, here]
        shifts[index + here] = 23 - bits[zone, here]
    return firsts, shifts, int(ends[-1])


def _order() -> tuple[np.ndarray, np.ndarray]:
    """Indices that have bins, by ascending bin, and the smallest bin of each."""
    owned = np.flatnonzero(FIRSTS[:, 1])
    sizes = 1 << (23 - SHIFTS[owned])
    lowest = np.where(FIRSTS[owned, 1] > 0, FIRSTS[owned, 0], FIRSTS[owned, 0] - sizes + 1)
    by_bin = np.argsort(lowest)
    return owned[by_bin], lowest[by_bin]


FIRSTS, SHIFTS, BINS = _grid()
EMPTY = 0  # the complements of EMPTY and MIXED are bits of NaNs, so no score is either
MIXED = 1
_TWO = np.int64(-(1 << 63))
_BLOCK = 1 << 9  # scores
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)  # float32, so that float32 scores stay float32


@inline
def _word(x):
    """Bits of v as float32, with bit 32 set in the mirrored zone: the index of the grid, above 23 bits of mantissa."""
    mirrored = (x >= _HALF) & (x <= _ONE)
    bits = np.float32((_ONE - x) if mirrored else x).view(np.uint32)
    return np.uint64(bits) | (np.uint64(mirrored) << np.uint64(32))


@inline
def _place(word, firsts, shifts):
    """Bin of the number with this word."""
    index = word >> np.uint64(23)  # unsigned: not from the end
    inside = np.int64(word & np.uint64(0x7FFFFF)) >> shifts[index]
    return firsts[index, 0] + firsts[index, 1] * inside


@jit
def _bin(x, firsts, shifts):
    """Bin of a number, monotone."""
    return _place(_word(x), firsts, shifts)


@jit
def _seek(score, packed, firsts, shifts, words, found):
    """Find the bins of some scores, and prefetch their words in the table.

    The first loop is vectorized. In one loop, the zone would be a branch, which scores around one half mispredict: that
    takes 5.5 instead of 1.6 ns.
    """
    for i in range(score.size):
        words[i] = _word(score[i] + _ZERO)
    for i in range(score.size):
        found[i] = _place(words[i], firsts, shifts)
        prefetch(packed, found[i])


@jit
def _add(score, label, limit, packed, only, found, nans):
    """Count scores whose bins are already in `found`."""
    for i in range(score.size):
        x = score[i] + _ZERO  # -0.0 becomes 0.0
        if x != x:
            nans[label[i]] += 1
            continue
        b = np.uint64(found[i])
        word = packed[b]
        if word >= 0:
            bits = np.int64(np.float64(x).view(np.int64))
            exact = abs(x) <= limit
            if word == 0 and exact:
                only[b] = bits
            elif only[b] != bits or not exact:
                word |= _TWO
        packed[b] = word + (np.int64(1) << (np.int64(label[i]) << 5))


@jit
def bin_counts(score, label, limit, packed, only, firsts, shifts):
    """Count scores by bin and label; returns the NaN scores of each label.

    The tables have one word for each bin, so that the bins in use stay in the second-level cache; bins are located a
    block of scores ahead and prefetched. `packed` counts negatives in the lower half of a word and positives in the
    upper half, for fewer than 2³¹ rows; the top bit is set once the bin has seen two different scores. Until then
    `only` holds the bits of its only score. Beyond ±`limit`, equal floats may stand for different scores, so bins there
    count as having seen two.
    """
    nans = np.zeros(2, np.int64)
    words, found = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.int64)
    for start in range(0, score.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        _seek(score[part], packed, firsts, shifts, words, found)
        _add(score[part], label[part], limit, packed, only, found, nans)
    return nans


@jit
def unpacked(packed, only, found):
    """The counts of some bins in the tables of `bin_counts`, as an int64 array of shape (3, n_bins).

    Its rows are negatives, positives, and the complement of the bits of the bin's only score, or `MIXED` if it has seen
    two.
    """
    out = np.empty((3, found.size), np.int64)
    for i in range(found.size):
        b = found[i]
        out[0, i] = packed[b] & np.int64(0xFFFFFFFF)
        out[1, i] = (packed[b] & ~_TWO) >> 32
        out[2, i] = MIXED if packed[b] < 0 else ~only[b]
    return out


@jit
def _joined(mine, theirs):
    """The only score of two merged bins, `EMPTY` or `MIXED`."""
    if mine in (EMPTY, theirs):
        return theirs
    return mine if theirs == EMPTY else MIXED


@jit
def absorb(table, places, neg, pos, only):
    """Add counts at some places, each listed once, to a table of shape (3, n_bins)."""
    for i in range(places.size):
        b = places[i]
        table[0, b] += neg[i]
        table[1, b] += pos[i]
        table[2, b] = _joined(table[2, b], only[i])


@jit
def add_groups(score, neg, pos, limit, table, firsts, shifts):
    """Add groups of equal score without NaN to a table of shape (3, n_bins); `limit` as for `bin_counts`."""
    for i in range(score.size):
        x = score[i] + _ZERO
        b = _bin(x, firsts, shifts)
        table[0, b] += neg[i]
        table[1, b] += pos[i]
        only = ~np.int64(np.float64(x).view(np.int64)) if abs(x) <= limit else np.int64(MIXED)
        table[2, b] = _joined(table[2, b], only)


@jit
def bin_weights(score, label, weight, sums, errors, firsts, shifts):
    """Add weights and their rounding errors by bin and label; NaN scores have no bin."""
    for i in range(score.size):
        x = score[i] + _ZERO
        if x != x:
            continue
        b = _bin(x, firsts, shifts)
        sums[b, label[i]], low = two_sum(sums[b, label[i]], weight[i])
        errors[b, label[i]] += low


def edges(bins: np.ndarray) -> np.ndarray:
    """Lower edge of each bin as float64: scores of the bin are at least that, scores of lower bins are below it.

    For scores wider than float32, the precision of the grid, this holds to half a unit in the last place of float32.
    """
    found: np.ndarray = _edges(bins, _ORDER, _ORDER_STARTS, FIRSTS, SHIFTS)
    return found


@jit
def _edges(bins, order, starts, firsts, shifts):
    """As `edges`; fast for bins whose neighbours in the list are close."""
    out = np.empty(bins.size)
    at = 0
    for i in range(bins.size):
        while bins[i] < starts[at]:
            at -= 1
        while at + 1 < starts.size and bins[i] >= starts[at + 1]:
            at += 1
        slot = order[at]
        inside = abs(bins[i] - firsts[slot, 0])
        near = _number(slot, inside, firsts[slot, 1], shifts)
        if firsts[slot, 1] < 0:
            near = min(np.nextafter(_number(slot, inside + 1, firsts[slot, 1], shifts), np.inf), near)
        out[i] = near
    return out


@jit
def _number(slot, inside, rising, shifts):
    """The number at position `inside` of an index of the grid; infinity beyond the last position."""
    bits = min(((slot & 255) << 23) + (inside << shifts[slot]), np.int64(0x7F800000))
    v = np.float64(np.uint32(bits).view(np.float32))
    if slot >= 512:
        return 1.0 - min(v, 0.5)  # mirrored down to one half
    return v if rising > 0 else -v


_ORDER, _ORDER_STARTS = _order()
