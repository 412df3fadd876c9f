"""Scores without a block: the remaining rows of each bin, cut into pieces of equal composition.

All pieces of a bin have the same counts. For the sums of areas they are therefore never stored (`rank_blocks`): the
pairs that they win are those of the bin, and their products with precisions are one product with a sum of precisions.
Sums are integers, so they equal those of `streameval.kernels.ranking` over the pieces to the last bit.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, multiply_add
from streameval.kernels.jit import inlined, jit

AREA, PRECISION = 0, 4  # first column of each sum: 128-bit words of the upper halves, then of the lower
SUMS = 8

_UNIT = float(1 << 62)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inlined
def _add_blocks(table, first, step, out):
    """Add the blocks ``first``, ``first + step`` and so on of a table to `out`."""
    for b in range(first, len(table), step):
        for i in range(len(out)):
            out[i, 0] += table[b, i, 0]
            out[i, 1] += table[b, i, 1]


@inlined
def displacement(blocks, whole, i, label, first, step, times, side):
    """What each upper piece of bin i gives to a lower one (see `tied_rows`); `blocks` has the rows of the block."""
    block = np.float64(blocks[i, label])
    away = min(block, abs(block - whole[i, label] / step)) * times
    mixed = np.uint64((i * step + first) * 2 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return -away if (mixed >> np.uint64(63)) ^ np.uint64(label == 1 and side < 0) else away


@jit
def tied_rows(whole, table, first, step, pieces, most, side):
    """What each upper piece of a bin gives to a lower one if the block's excess over its share is a single tie.

    The half that holds the tie is a hash of block, bin and label.

    Parameters
    ----------
    whole : array of shape (n_bins, 2), rows of all blocks, or their weights
    table : array of shape (n_blocks, n_bins, 2), the same for each block
    first, step : blocks ``first``, ``first + step`` and so on form one block
    pieces : int64 array of shape (n_bins,), number of pieces of each bin
    most : factor of the whole measure, divisible by each number of pieces
    side : 1, or −1 to put the ties of positives on the other side

    Returns
    -------
    float64 array of shape (n_bins, 2)
    """
    out = np.zeros(whole.shape, np.float64)
    _add_blocks(table, first, step, out)
    for i in range(len(whole)):
        for label in range(2):
            out[i, label] = displacement(out, whole, i, label, first, step, most // pieces[i], side)
    return out


@jit
def dealt_counts(bins, upto, whole, left, moved, rows, kept):
    """Rows of each sub-bin without a block whose rows lie evenly among the rows of their bin.

    Each bin loses exactly the rows of the block. Down to each sub-bin it loses the share of the sub-bin, rounded to
    whole rows.

    Parameters
    ----------
    bins : int64 array of shape (n_sub_bins,), the bin of each sub-bin; sub-bins of a bin are adjacent
    upto : int64 array of shape (n_sub_bins, n_sides), rows of the bin down to and including the sub-bin
    whole, left : int64 arrays of shape (n_bins, n_sides), rows of each bin, and its rows outside the block
    moved : float64 array of shape (n_bins, n_sides), by how many standard deviations of a random placement the block
        lies higher
    rows : int64 array of shape (n_sides, n_sub_bins), output: the rows of sub-bins that keep some
    kept : int64 array of shape (n_sub_bins,), output: the numbers of these sub-bins

    Returns
    -------
    int : number of sub-bins that keep rows
    """
    n, sides = 0, upto.shape[1]
    before, gone = np.zeros(sides, np.int64), np.zeros(sides, np.int64)
    for i in range(bins.size):
        b = bins[i]
        if i == 0 or bins[i - 1] != b:
            before[:] = 0
            gone[:] = 0
        some = np.int64(0)
        for side in range(sides):
            all_ = whole[b, side]
            block, now = all_ - left[b, side], upto[i, side]
            here = now - before[side]
            if block and here:
                share, lost = now / all_, block
                if now < all_:
                    place = block * share + 0.5
                    if moved[b, side]:
                        place += moved[b, side] * np.sqrt(block * (1 - block / all_) * share * (1 - share))
                    lost = min(max(np.int64(place), gone[side]), gone[side] + here, block)
                    lost = max(lost, block - (all_ - now))
                here -= lost - gone[side]
                gone[side] = lost
            before[side] = now
            rows[side, n] = here
            some |= here
        if some:
            kept[n] = i
            n += 1
    return n


@jit
def dealt_weights(bins, upto, whole, left, rows, moved):
    """Weight of each sub-bin without a block whose weight lies evenly within the weight of its bin.

    Parameters
    ----------
    bins, moved : as for `dealt_counts`
    upto : float64 array of shape (n_sub_bins, 2), weight of the bin by label down to and including the sub-bin
    whole, left : float64 arrays of shape (n_bins, 2), weight of each bin, and its weight outside the block
    rows : int64 array of shape (n_bins, 2), rows of the block

    Returns
    -------
    float64 array of shape (n_sub_bins, 2)
    """
    out = np.empty_like(upto)
    for side in range(2):
        before = gone = 0.0
        for i in range(bins.size):
            b = bins[i]
            if i == 0 or bins[i - 1] != b:
                before = gone = 0.0
            now, all_ = upto[i, side], whole[b, side]
            block, lost = max(0.0, all_ - left[b, side]), gone
            if rows[b, side] and all_ > 0.0:
                share = min(1.0, now / all_)
                spread = np.sqrt(max(0.0, (1 - block / all_) * share * (1 - share)) / rows[b, side])
                lost = min(max(block * (share + moved[b, side] * spread), gone), gone + now - before, block)
                lost = max(lost, block - (all_ - now))
            out[i, side] = max(0.0, now - before - (lost - gone))
            before, gone = now, lost
    return out


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
    _add_blocks(table, block, step, gone)
    negatives, positives = np.int64(0), np.int64(0)
    for i in range(len(whole)):
        negatives += whole[i, 0] - (gone[i, 0] if side == 0 else 0)
        positives += whole[i, 1] - (gone[i, 1] if side == 0 else 0)
    return negatives, positives


@inlined
def _add_precisions(sums, true, false, n, p, count, held):
    """Add `count` equal pieces with positives to the sum of precisions."""
    upper, lower = np.uint64(0), np.uint64(0)
    for _ in range(count):
        true += p
        false += n
        share = np.uint64(np.int64(true / (true + false) * _UNIT))
        upper += share >> _HALF
        lower += share & _LOW
    _add(sums, PRECISION, p, upper, lower, held)


@jit
def rank_blocks(whole, table, blocks, step, pieces, most, side, still, rows, sums):
    """Count the classes of each ranking and compute its two area sums.

    These are Σ p·(2B − n), with B the negatives in and below a piece, and Σ p·(precision after the piece). A precision
    is in units of 2⁻⁶², and all counts are multiplied by `most`.

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
                    factor = np.uint64(2 * below - some_n)
                    _add(own, AREA, some_p, factor >> _HALF, factor & _LOW, held)
                    if some_p:
                        _add_precisions(own, true, false, some_n, some_p, 1, held)
                    true, false, below = true + some_p, false + some_n, below - some_n
                continue
            factor = np.uint64(2 * below - n * count)
            _add(own, AREA, p * count, factor >> _HALF, factor & _LOW, held)
            below -= n * count
            if p:
                _add_precisions(own, true, false, n, p, count, held)
            true, false = true + p * count, false + n * count
