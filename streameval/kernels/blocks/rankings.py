"""Area sums over the ranking without each block, bin by bin, as `streameval.kernels.ranking` sums them over pieces.

All pieces of a bin have the same counts. So the pairs that they win are those of the bin, and their products with
precisions are one product with a sum of precisions. Pieces are never stored. Sums are integers, so results are equal to
the last bit.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.blocks.pieces import displacement
from streameval.kernels.exact import HELD, multiply_add
from streameval.kernels.jit import inlined, jit

AREA, PRECISION, TRAPEZOID = 0, 4, 8  # first column of each sum: 128-bit words of the upper halves, then of the lower
SUMS = 12

_UNIT = float(1 << 62)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inlined
def _share(true, false):
    """The precision of some rows in units of 2⁻⁶², or 1 without rows."""
    rows = true + false
    return np.uint64(np.int64((true / rows if rows else 1.0) * _UNIT))


@inlined
def _add(sums, at, count, upper, lower, held):
    """Add the product of a count with the sum of some words, given as the sums of their upper and lower halves.

    The sums are words of 128 bits; if `held`, all counts together are below `HELD`, and their low words suffice.
    """
    count = np.uint64(count)
    if held:
        sums[at + 1] += count * upper
        sums[at + 3] += count * lower
    else:
        sums[at], sums[at + 1] = multiply_add(sums[at], sums[at + 1], count, upper)
        sums[at + 2], sums[at + 3] = multiply_add(sums[at + 2], sums[at + 3], count, lower)


@inlined
def _leave_out(whole, table, block, step, side, gone):
    """Write the rows of the omitted blocks to `gone`, by bin; returns the negatives and positives of the ranking."""
    gone[:] = 0
    for b in range(block, len(table), step):
        for i in range(len(whole)):
            gone[i, 0] += table[b, i, 0]
            gone[i, 1] += table[b, i, 1]
    negatives, positives = np.int64(0), np.int64(0)
    for i in range(len(whole)):
        negatives += whole[i, 0] - (gone[i, 0] if side == 0 else 0)
        positives += whole[i, 1] - (gone[i, 1] if side == 0 else 0)
    return negatives, positives


@inlined
def _add_piece(sums, true, false, below, n, p, held):
    """Add one piece to the three sums."""
    before, after = _share(true, false), _share(true + p, false + n)
    factor = np.uint64(2 * below - n)
    _add(sums, AREA, p, factor >> _HALF, factor & _LOW, held)
    _add(sums, PRECISION, p, after >> _HALF, after & _LOW, held)
    upper, lower = (after >> _HALF) + (before >> _HALF), (after & _LOW) + (before & _LOW)
    _add(sums, TRAPEZOID, p, upper, lower, held)


@inlined
def _add_precisions(sums, true, false, n, p, count, held):
    """Add `count` equal pieces with positives to the two sums with precisions."""
    before, after = _share(true, false), np.uint64(0)
    upper, lower = np.uint64(0), np.uint64(0)
    for _ in range(count):
        true += p
        false += n
        after = np.uint64(np.int64(true / (true + false) * _UNIT))
        upper += after >> _HALF
        lower += after & _LOW
    _add(sums, PRECISION, p, upper, lower, held)
    # the precision before a piece is that after the piece before it
    upper += upper - (after >> _HALF) + (before >> _HALF)
    lower += lower - (after & _LOW) + (before & _LOW)
    _add(sums, TRAPEZOID, p, upper, lower, held)


@jit
def rank_blocks(whole, table, blocks, step, pieces, most, side, still, rows, sums):
    """Count the classes of each ranking and compute its three area sums.

    These are Σ p·(2B − n), with B the negatives in and below a piece; Σ p·(precision after the piece); and Σ
    p·(precision before + precision after). A precision is in units of 2⁻⁶², and all counts are multiplied by `most`.

    Parameters
    ----------
    whole : int64 array of shape (n_bins, 2), rows of all blocks
    table : int64 array of shape (n_blocks, n_bins, 2)
    blocks : int64 array of shape (n,); a ranking leaves out ``blocks[i]``, ``blocks[i] + step`` and so on
    pieces : int64 array of shape (n_bins,), number of pieces of each bin
    most : divisible by each number of pieces
    side : 0 to leave the blocks out; 1 or −1 to rank all rows, with the block's excess over its share as a tie
        (`tied_rows`)
    still : bool array of shape (n_bins,), True for bins without such a tie
    rows : int64 array of shape (n, 2), output: negatives and positives of each ranking
    sums : uint64 array of shape (n, `SUMS`), output: sums of products with the upper and with the lower halves of
        factors, each as high and low words
    """
    gone = np.empty(whole.shape, np.int64)
    for r in range(blocks.size):
        negatives, positives = _leave_out(whole, table, blocks[r], step, side, gone)
        rows[r, 0], rows[r, 1] = negatives, positives
        true, false, below = np.int64(0), np.int64(0), negatives * most
        own, held = sums[r], positives * most < HELD
        own[:] = 0
        for i in range(len(whole) - 1, -1, -1):
            neg, pos = whole[i, 0], whole[i, 1]
            if side == 0:
                neg -= gone[i, 0]
                pos -= gone[i, 1]
            if neg | pos == 0:
                continue
            count = pieces[i]
            times = most // count
            n, p = neg * times, pos * times
            if side != 0 and count > 1 and not still[i]:
                away_n = np.int64(displacement(gone, whole, i, 0, blocks[r], step, times, side))
                away_p = np.int64(displacement(gone, whole, i, 1, blocks[r], step, times, side))
                for j in range(count):
                    sign = -1 if 2 * j < count else 1
                    some_n, some_p = n + sign * away_n, p + sign * away_p
                    _add_piece(own, true, false, below, some_n, some_p, held)
                    true, false, below = true + some_p, false + some_n, below - some_n
                continue
            factor = np.uint64(2 * below - n * count)
            _add(own, AREA, p * count, factor >> _HALF, factor & _LOW, held)
            below -= n * count
            if p:
                _add_precisions(own, true, false, n, p, count, held)
            true, false = true + p * count, false + n * count
