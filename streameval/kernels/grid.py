"""Scores on a coarse grid: encode numbers, and count scores by prefix of their code, block and label.

The grid consists of prefixes of a *folded* order-preserving code of float64 numbers, which resolves numbers near 1 as
well as numbers near 0: in [½, 1] the code follows the bits of 1 − x, which is exact there (Sterbenz), and falls as they
rise. Codes ascend with the number; outside [½, 1] two neighbouring float64 numbers may share a code.

Rows are counted in batches of a few hundred, with one loop for each step: codes, bins, counts. Most codes lie between
the smallest and the largest code that their bin has seen, so one comparison finds the bin. Counts are bytes, so that
they fit into the second-level cache; overflows are carried to wider counts.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inline, jit
from streameval.kernels.prefetch import prefetch

SLOTS_A_BIN = 4  # in the hash table that finds the bin of a prefix
_ONE_BIT = np.uint64(1)
_ZERO = np.uint64(0)
_MIDDLE = np.uint64(1 << 62)  # code of 0
_HALF = np.uint64(0x3FE0 << 48)  # bits of 0.5
_UNIT = np.uint64(0x3FF0 << 48)  # bits of 1
_LEAST = np.uint64(0x3C90 << 48)  # bits of 2⁻⁵⁴, the power of two below the smallest nonzero 1 − x
_NAN = np.uint64(0xFFFFFFFFFFFFFFFF)  # in place of a code
_AT_ONCE = 1 << 9  # rows
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio
_WORD = np.uint64(32)
_CACHED = 1 << 20  # bytes; larger tables are prefetched


@jit
def add_bins(values, places, out):
    """Add ``values[i]`` to ``out[places[i]]`` in the order of i; both arrays have one row per bin."""
    for i in range(places.size):
        at = np.uint64(places[i])
        for j in range(values.shape[1]):
            out[at, j] += values[i, j]


@inline
def _code(x):
    """The folded code of a number, all ones for NaN; free of branches, so that it can be vectorized."""
    mirrored, above = (x >= 0.5) & (x <= 1.0), x > 1.0
    bits = np.float64((1.0 - x) if mirrored else x + 0.0).view(np.uint64)
    folded = _HALF + _HALF - max(bits, _LEAST)
    offset = folded if mirrored else bits
    offset += (_HALF + _HALF - _LEAST - _UNIT) if above else _ZERO
    code = ~np.float64(x).view(np.uint64) >> _ONE_BIT if x < 0.0 else _MIDDLE + (offset >> _ONE_BIT)
    return code if x == x else _NAN


@jit
def codes(scores):
    """Folded codes of numbers, as uint64."""
    out = np.empty(scores.size, np.uint64)
    for i in range(scores.size):
        out[i] = _code(scores[i])
    return out


def scores_of(codes: np.ndarray) -> np.ndarray:
    """The numbers of folded codes; where two numbers share a code, one of them."""
    offset = (codes - _MIDDLE) << _ONE_BIT  # wraps below the middle
    upper = _HALF + (_HALF - _LEAST)
    above = np.where(offset > upper, offset - upper + _UNIT, _UNIT).view(np.float64)
    rest = np.maximum(_HALF + _HALF - np.minimum(offset, upper), _LEAST).view(np.float64)
    mirrored = np.where(rest == _LEAST.view(np.float64), 1.0, 1.0 - rest)
    found: np.ndarray = np.where(offset < _HALF, offset.view(np.float64), np.where(offset > upper, above, mirrored))
    below = ~(codes << _ONE_BIT | np.uint64(1))  # of -∞, the other number of its code is NaN
    return np.where(codes < _MIDDLE, below.view(np.float64), found)


@inline
def _slot(prefix, slots):
    """The slot where the search for a prefix begins; hashing spreads neighbouring prefixes, so probes stay short."""
    return ((prefix * _SPREAD) >> _WORD) * np.uint64(slots) >> _WORD


@jit
def take_slots(prefixes, finder, free):
    """Clear the hash table and enter some bins, as `count_blocks` reads it.

    Parameters
    ----------
    prefixes : uint64 array of shape (n,), the prefix of each bin
    finder : the hash table; see `count_blocks`
    free : value of a free slot, a bin number that is never used
    """
    mask = np.uint64(finder.size - 1)
    finder[:] = free
    for i in range(prefixes.size):
        at = _slot(prefixes[i], finder.size)
        while finder[at] != free:
            at = (at + _ONE_BIT) & mask
        finder[at] = i


@inline
def _place(code, down, finder, prefixes, used, ends):
    """The bin of a code; the bin is created or extended as needed. `_NAN` if a new bin has no room."""
    mask, prefix = np.uint64(finder.size - 1), code >> down
    at = _slot(prefix, finder.size)
    while finder[at] < prefixes.size:
        bin_ = np.uint64(finder[at])
        if prefixes[bin_] == prefix:
            ends[bin_, 0] = min(ends[bin_, 0], code)
            ends[bin_, 1] = max(ends[bin_, 1], code)
            return bin_
        at = (at + _ONE_BIT) & mask
    if used[0] == prefixes.size:
        return _NAN
    bin_ = np.uint64(used[0])
    finder[at], prefixes[bin_] = bin_, prefix
    ends[bin_, 0], ends[bin_, 1] = code, code
    used[0] += 1
    return bin_


@inline
def _down(code, shift, cuts):
    """Bits of a code below its prefix."""
    for j in range(cuts.size):
        shift -= np.uint64(code >= cuts[j])
    return shift


@inline
def _seek(scores, shift, cuts, finder, prefixes, used, ends, found, slots, missed):
    """Find the bins of some scores, `_NAN` for NaN. Returns the scores done and the NaN count.

    It stops early at a score that needs a new bin when there is no room. Scores outside the ends of the bin in their
    slot are handled afterwards, in order.

    """
    for i in range(scores.size):
        found[i] = _code(np.float64(scores[i]))
    for i in range(scores.size):
        slots[i] = np.uint32(_slot(found[i] >> _down(found[i], shift, cuts), finder.size))
    misses, nans = np.int64(0), np.int64(0)
    for i in range(scores.size):
        bin_, code = np.uint64(finder[np.uint64(slots[i])]), found[i]
        inside = (ends[bin_, 0] <= code) & (code <= ends[bin_, 1])
        found[i] = bin_ if inside else code
        missed[misses] = i
        misses += np.int64(not inside)
    for k in range(misses):
        i = missed[k]
        if found[i] == _NAN:
            nans += 1
            continue
        found[i] = _place(found[i], _down(found[i], shift, cuts), finder, prefixes, used, ends)
        if found[i] == _NAN:
            return np.int64(i), nans
    return scores.size, nans


@inline
def _count_missing(bins, labels, blocks, weights, nans, lost):
    """Count rows whose bin is `_NAN`."""
    for i in range(bins.size):
        if bins[i] == _NAN:
            nans[blocks[i], labels[i]] += 1
            if weights.size:
                lost[blocks[i], labels[i]] += weights[i]


@jit
def count_blocks(
    scores, labels, weights, blocks, start, shift, cuts, finder, prefixes, used, ends, table, carries, sums, nans, lost
):
    """Count scores from row `start` on. Returns the row that needs a new bin when there is no room, else the row count.

    Parameters
    ----------
    scores, labels, weights, blocks : arrays with one entry per row; `weights` is empty for unweighted rows
    shift : bits of the code below the prefix
    cuts : uint64 array of shape (n_cuts,), ascending; prefixes of codes from each cut on are one bit longer
    finder : hash table of bins by prefix, an array of unsigned integers; its size is a power of two, and free slots
        hold n_bins
    prefixes : uint64 array of shape (n_bins,)
    used : array of shape (1,), the number of bins in use
    ends : uint64 array of shape (n_bins + 1, 2), smallest and largest code of each bin; smallest > largest for unused
        bins
    table : uint8 array of shape (n_bins · n_blocks · 2,), rows by bin, block and label
    carries : int32 array of the same shape, how often the bytes of `table` have wrapped around
    sums : float64 array of the same shape, the sums of weights; empty for unweighted rows
    nans, lost : arrays of shape (n_blocks, 2), rows and weights with NaN scores
    """
    found = np.empty(_AT_ONCE, np.uint64)
    slots, missed = np.empty(_AT_ONCE, np.uint32), np.empty(_AT_ONCE, np.int32)
    weighted, width = weights.size > 0, np.uint64(2 * nans.shape[0])
    row = start
    while row < scores.size:
        some = scores[row : row + _AT_ONCE]
        rows, lacking = _seek(some, np.uint64(shift), cuts, finder, prefixes, used, ends, found, slots, missed)
        label, block, at = labels[row : row + rows], blocks[row : row + rows], found[:rows]  # signed indices are slow
        if lacking:
            _count_missing(at, label, block, weights[row : row + rows] if weighted else weights, nans, lost)
        for i in range(at.size):
            place = at[i] * width + np.uint64(2 * block[i] + label[i])
            at[i] = place if at[i] != _NAN else _NAN
        if table.size > _CACHED:
            for i in range(at.size):
                prefetch(table, at[i] if at[i] != _NAN else _ZERO)
        for i in range(at.size):
            if at[i] == _NAN:
                continue
            count = np.uint8(table[at[i]] + np.uint8(1))  # wraps around
            table[at[i]] = count
            if count == 0:
                carries[at[i]] += np.int32(1)
        if weighted:
            weight = weights[row : row + rows]
            for i in range(at.size):
                prefetch(sums, at[i] if at[i] != _NAN else _ZERO)
            for i in range(at.size):
                if at[i] != _NAN:
                    sums[at[i]] += weight[i]
        row += rows
        if rows < some.size:
            break
    return row
