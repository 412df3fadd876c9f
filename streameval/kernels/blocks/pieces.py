"""Scores without a block: what is left of each bin, cut into pieces of equal composition."""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit

__all__ = ["cut_counts", "dealt_counts", "dealt_weights", "displacement", "left_counts", "left_weights", "tied_rows"]


@jit
def left_counts(whole, table, first, step):
    """Rows of all blocks but ``first``, ``first + step`` and so on: an int64 array of shape (n_bins, 2), and its sums.

    Parameters
    ----------
    whole : int64 array of shape (n_bins, 2), rows of all blocks
    table : int64 array of shape (n_blocks, n_bins, 2)
    """
    out = whole.copy()
    negatives, positives = np.int64(0), np.int64(0)
    for b in range(first, len(table), step):
        for i in range(len(whole)):
            out[i, 0] -= table[b, i, 0]
            out[i, 1] -= table[b, i, 1]
    for i in range(len(whole)):
        negatives += out[i, 0]
        positives += out[i, 1]
    return out, negatives, positives


@jit
def left_weights(whole, sums, left, first, step):
    """Weights of all blocks but some, as `left_counts`; 0 where no row is left, not a rounding error."""
    out = np.zeros_like(whole)
    for b in range(first, len(sums), step):
        for i in range(len(whole)):
            out[i, 0] += sums[b, i, 0]
            out[i, 1] += sums[b, i, 1]
    for i in range(len(whole)):
        for side in range(2):
            out[i, side] = max(whole[i, side] - out[i, side], 0.0) if left[i, side] else 0.0
    return out


@jit
def cut_counts(rows, measure, pieces, most, moved, neg, pos):
    """The measure of the pieces of bins that have rows, from the last bin to the first; returns how many pieces.

    Parameters
    ----------
    rows : int64 array of shape (n_bins, 2)
    measure : the same rows or their weights
    pieces : int64 array of shape (n_bins,), pieces of each bin
    most : what all is multiplied by, divisible by the number of pieces
    moved : array of shape (n_bins, 2), what each piece of the upper half of a bin gives to one of the lower half; of
        shape (0, 2) for nothing
    neg, pos : arrays that take the pieces
    """
    n = 0
    for i in range(len(rows) - 1, -1, -1):
        if rows[i, 0] | rows[i, 1]:
            times = most // pieces[i]
            a, b = measure[i, 0] * times, measure[i, 1] * times
            for j in range(pieces[i]):
                neg[n], pos[n] = a, b
                if len(moved) and pieces[i] > 1:
                    upper = 2 * j < pieces[i]
                    neg[n] += -moved[i, 0] if upper else moved[i, 0]
                    pos[n] += -moved[i, 1] if upper else moved[i, 1]
                n += 1
    return n


@inlined
def displacement(blocks, whole, i, label, first, step, times, side):
    """What pieces of the upper half of bin i give to lower ones, see `tied_rows`; `blocks` has a block's rows."""
    block = np.float64(blocks[i, label])
    away = min(block, abs(block - whole[i, label] / step)) * times
    mixed = np.uint64((i * step + first) * 2 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return -away if (mixed >> np.uint64(63)) ^ np.uint64(label == 1 and side < 0) else away


@jit
def tied_rows(whole, table, first, step, pieces, most, side):
    """What pieces of upper halves of bins give to lower ones where what a block has beyond its share is one tie.

    Which half the tie is in varies with block, bin and label.

    Parameters
    ----------
    whole : array of shape (n_bins, 2), rows of all blocks or their weights
    table : array of shape (n_blocks, n_bins, 2), of each block
    first, step : the block is all those from ``first`` on in steps of ``step``
    pieces, most : as for `cut_counts`
    side : 1, or −1 for positives on the other side

    Returns
    -------
    float64 array of shape (n_bins, 2)
    """
    out = np.zeros(whole.shape, np.float64)
    for b in range(first, len(table), step):
        for i in range(len(whole)):
            out[i, 0] += table[b, i, 0]
            out[i, 1] += table[b, i, 1]
    for i in range(len(whole)):
        for label in range(2):
            out[i, label] = displacement(out, whole, i, label, first, step, most // pieces[i], side)
    return out


@jit
def dealt_counts(bins, upto, whole, left, moved, rows, kept):
    """Rows of each cell without those of a block, which lie evenly among the rows of their bin.

    Of each bin exactly the rows of the block are missing; down to a cell, their share, rounded to whole rows.

    Parameters
    ----------
    bins : int64 array of shape (n_cells,), the bin of each cell; those of a bin follow each other
    upto : int64 array of shape (n_cells, n_sides), rows of the bin down to the cell, this included
    whole, left : int64 arrays of shape (n_bins, n_sides), rows of each bin, and those without the block
    moved : float64 array of shape (n_sides,): standard deviations of random places by which the block lies higher
    rows : int64 array of shape (n_sides, n_cells) that takes the rows of cells that have some
    kept : int64 array of shape (n_cells,) that takes the numbers of these cells

    Returns
    -------
    int : number of cells that have rows
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
                    if moved[side]:
                        place += moved[side] * np.sqrt(block * (1 - block / all_) * share * (1 - share))
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
    """Weight of each cell without that of a block, which lies evenly within the weight of its bin.

    Parameters
    ----------
    bins, moved : as for `dealt_counts`
    upto : float64 array of shape (n_cells, 2), weight of the bin by label down to the cell, this included
    whole, left : float64 arrays of shape (n_bins, 2), weight of each bin, and that without the block
    rows : int64 array of shape (n_bins, 2), rows of the block

    Returns
    -------
    float64 array of shape (n_cells, 2)
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
                lost = min(max(block * (share + moved[side] * spread), gone), gone + now - before, block)
                lost = max(lost, block - (all_ - now))
            out[i, side] = max(0.0, now - before - (lost - gone))
            before, gone = now, lost
    return out
