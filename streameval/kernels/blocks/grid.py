"""Scores on a coarse grid: codes of numbers, and counting scores by prefix of the code, block and label.

The grid is made of prefixes of a *folded* order-preserving code of float64 numbers, which resolves numbers near 1 as
well as those near 0: in [½, 1] the code follows the bits of 1 − x, which is exact there (Sterbenz), and falls with
them. Codes ascend with the number; outside [½, 1] two neighbouring float64 may share one.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.prefetch import prefetch

__all__ = ["SLOTS_A_BIN", "codes", "count_blocks", "scores_of"]

SLOTS_A_BIN = 4  # of the table that finds the bin of a prefix
_ONE_BIT = np.uint64(1)
_ZERO = np.uint64(0)
_MIDDLE = np.uint64(1 << 62)  # code of 0
_HALF = np.uint64(0x3FE0 << 48)  # bits of 0.5
_UNIT = np.uint64(0x3FF0 << 48)  # bits of 1
_LEAST = np.uint64(0x3C90 << 48)  # bits of 2⁻⁵⁴: of 1 − x the next power of two below the least that is not 0
_AHEAD = 1 << 9  # rows


@inlined
def _code(x):
    """The folded code of a number; free of branches that scores around one half would mispredict."""
    if x < 0.0:
        return ~np.float64(x).view(np.uint64) >> _ONE_BIT
    mirrored, above = (x >= 0.5) & (x <= 1.0), x > 1.0
    bits = np.float64((1.0 - x) if mirrored else x + 0.0).view(np.uint64)
    folded = _HALF + _HALF - max(bits, _LEAST)
    offset = folded if mirrored else bits
    offset += (_HALF + _HALF - _LEAST - _UNIT) if above else _ZERO
    return _MIDDLE + (offset >> _ONE_BIT)


@jit
def codes(scores):
    """Folded codes of numbers, as uint64."""
    out = np.empty(scores.size, np.uint64)
    for i in range(scores.size):
        out[i] = _code(scores[i])
    return out


def scores_of(codes: np.ndarray) -> np.ndarray:
    """The numbers of folded codes, or their neighbours."""
    offset = (codes - _MIDDLE) << _ONE_BIT  # wraps below the middle
    upper = _HALF + (_HALF - _LEAST)
    above = np.where(offset > upper, offset - upper + _UNIT, _UNIT).view(np.float64)
    rest = np.maximum(_HALF + _HALF - np.minimum(offset, upper), _LEAST).view(np.float64)
    mirrored = np.where(rest == _LEAST.view(np.float64), 1.0, 1.0 - rest)
    found: np.ndarray = np.where(offset < _HALF, offset.view(np.float64), np.where(offset > upper, above, mirrored))
    return np.where(codes < _MIDDLE, (~(codes << _ONE_BIT)).view(np.float64), found)


@jit
def _seek(scores, start, down, mask, finder, prefixes, used, ends, found):
    """Find the bins of up to `found.size` scores, −1 for NaN; returns how many, fewer where there is no room."""
    rows = min(found.size, scores.size - start)
    for i in range(rows):
        x = np.float64(scores[start + i])
        if x != x:
            found[i] = -1
            continue
        code = _code(x)
        prefix = code >> down
        at = prefix & mask
        bin_ = finder[at]
        while bin_ >= 0 and prefixes[bin_] != prefix:
            at = (at + _ONE_BIT) & mask
            bin_ = finder[at]
        if bin_ < 0:
            bin_ = np.int32(used[0])
            if bin_ == prefixes.size:
                return i
            finder[at] = bin_
            prefixes[bin_] = prefix
            ends[bin_, 0], ends[bin_, 1] = code, code
            used[0] += 1
        ends[bin_, 0] = min(ends[bin_, 0], code)
        ends[bin_, 1] = max(ends[bin_, 1], code)
        found[i] = bin_
    return rows


@jit
def count_blocks(scores, labels, weights, blocks, start, shift, finder, prefixes, used, ends, table, sums, nans, lost):
    """Count scores from row `start` on; returns the row at which a bin more is needed than there is room for.

    Bins are found a few hundred rows ahead of counting, so that their counts are on their way from memory.

    Parameters
    ----------
    scores, labels, weights, blocks : of each row; `weights` is empty where rows have none
    shift : bits of the code below the prefix
    finder : int32 array whose size is a power of two: bins from the lower bits of their prefix on, −1 for none
    prefixes : uint64 array of shape (n_bins,), of which `used` (an array of one number) are occupied
    ends : uint64 array of shape (n_bins, 2): smallest and largest code
    table : uint32 array of shape (n_bins · n_blocks · 2,), rows by bin, block and label
    sums : float64 array of the same shape, their weights; empty without
    nans, lost : arrays of shape (n_blocks, 2): rows and weights whose score is NaN
    """
    mask, down = np.uint64(finder.size - 1), np.uint64(shift)
    found = np.empty(_AHEAD, np.int32)
    weighted, width = weights.size > 0, 2 * nans.shape[0]
    row = start
    while row < scores.size:
        rows = _seek(scores, row, down, mask, finder, prefixes, used, ends, found)
        for i in range(rows):
            found[i] = found[i] * width + 2 * blocks[row + i] + labels[row + i] if found[i] >= 0 else -1
            prefetch(table, max(found[i], 0))
        for i in range(rows):
            if found[i] < 0:
                b, side = blocks[row + i], labels[row + i]
                nans[b, side] += 1
                if weighted:
                    lost[b, side] += weights[row + i]
                continue
            table[found[i]] += np.uint32(1)
            if weighted:
                sums[found[i]] += weights[row + i]
        row += rows
        if rows < found.size:
            break
    return row
