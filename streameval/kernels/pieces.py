"""Scores without a block: the remaining rows of each bin, cut into pieces of equal composition.

All pieces of a bin have the same counts. For the sums of areas they are therefore never stored (`rank_blocks`): the
pairs that they win are those of the bin, and their products with precisions are one product with a sum of precisions.
Sums are integers, so they equal those of `streameval.kernels.ranking` over the pieces to the last bit.

The rankings without each block advance together from bin to bin: processors divide several numbers at once, and the
table of counts is read once, in its order.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.exact import HELD, multiply_add
from streameval.kernels.jit import inline, jit

AREA, AFTER, BOTH, TERMS = 0, 4, 8, 12  # first column of each sum: 128-bit words of the upper halves, then of the lower
WORDS = 4

_UNIT = float(1 << 62)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_HALVED, _DOUBLED = 2.0**-32, 2.0**32


@inline
def displacement(rows, whole, i, label, first, step, times, side):
    """What each upper piece of bin i gives to a lower one (see `tied_rows`), from its rows in the block and in all."""
    block = np.float64(rows)
    away = min(block, abs(block - whole / step)) * times
    mixed = np.uint64((i * step + first) * 2 + label + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return -away if (mixed >> np.uint64(63)) ^ np.uint64(label == 1 and side < 0) else away


@jit
def tied_rows(whole, block, first, step, pieces, most, side):
    """What each upper piece of a bin gives to a lower one if the block's excess over its share is a single tie.

    The half that holds the tie is a hash of block, bin and label.

    Parameters
    ----------
    whole : array of shape (n_bins, 2), rows of all blocks, or their weights
    block : array of the same shape, those of the blocks ``first``, ``first + step`` and so on, which form one
    first, step : the blocks
    pieces : int64 array of shape (n_bins,), number of pieces of each bin
    most : factor of the whole measure, divisible by each number of pieces
    side : 1, or −1 to put the ties of positives on the other side

    Returns
    -------
    float64 array of shape (n_bins, 2)
    """
    out = np.empty(whole.shape, np.float64)
    for i in range(len(whole)):
        for label in range(2):
            rows, times = block[i, label], most // pieces[i]
            out[i, label] = displacement(rows, whole[i, label], i, label, first, step, times, side)
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


@inline
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


@inline
def _split_share(share, upper, lower):
    """Split shares in units of 2⁻⁶² into halves of 32 bits, which are whole numbers."""
    for r in range(share.size):
        high = np.floor(share[r] * _HALVED)
        upper[r] = high
        lower[r] = np.floor(share[r] - high * _DOUBLED)


@inline
def _add_shares(true, hits, rows, size, times, share, upper, lower):
    """Add the halves of the precisions after each of `times` equal pieces; `share` is left as that after the last.

    `true` of `rows` rows are positive above the pieces, `hits` of `size` rows in each of them.
    """
    upper[:] = 0.0
    lower[:] = 0.0
    for j in range(1, times + 1):
        for r in range(share.size):
            flagged = rows[r] + j * size[r]
            share[r] = (true[r] + j * hits[r]) / (flagged if flagged > 0.0 else 1.0) * _UNIT
        for r in range(share.size):
            high = np.floor(share[r] * _HALVED)
            upper[r] += high
            lower[r] += np.floor(share[r] - high * _DOUBLED)


@jit
def rank_blocks(whole, table, step, pieces, most, side, still, terms, rows, sums):
    """Compute the sums of the ranking without each block, and last of that of all rows.

    These are Σ p·(2B − n), with B the negatives in and below a piece; Σ p·(precision after the piece); the same plus
    Σ p·(precision before it, 1 at the top); and Σ n·f + p·g for each pair of functions f, g of the score. Precisions, f
    and g are in units of 2⁻⁶², and all counts are multiplied by `most`.

    Parameters
    ----------
    whole : int64 array of shape (n_bins, 2), rows of all blocks
    table : array of integers of shape (n_bins, n_blocks, 2)
    step : a ranking leaves out the blocks ``r``, ``r + step`` and so on
    pieces : int64 array of shape (n_bins,), number of pieces of each bin
    most : divisible by each number of pieces
    side : 0 to leave the blocks out; 1 or −1 to rank all rows, with the block's excess over its share as a tie
        (`tied_rows`); a bin with a tie has two pieces
    still : bool array of shape (n_bins,), True for bins without such a tie
    terms : uint64 array of shape (n_functions, n_bins, 2, 2, 2): by label and half of the bin, the sums over pieces of
        the upper and of the lower halves of f or g
    rows : int64 array of shape (step + 1, 2), negatives and positives of each ranking
    sums : uint64 array of shape (step + 1, `TERMS` + `WORDS` · n_functions), output, zeros: sums of products with the
        upper and with the lower halves of factors, each as high and low words
    """
    count = step + 1
    held = (whole[:, 0].sum() + whole[:, 1].sum()) * most < HELD
    gone, here, away = np.zeros((2, count), np.int64), np.zeros((2, count), np.int64), np.zeros((2, count), np.int64)
    true, flagged, hits, size, share, upper, lower, first_upper, first_lower = np.zeros((9, count))
    share[:] = _UNIT
    below = rows[:, 0] * most
    fresh = True  # whether `share` is the precision so far
    for i in range(len(whole) - 1, -1, -1):
        times = most // pieces[i]
        tied = side != 0 and pieces[i] > 1 and not still[i]
        gone[:] = 0
        if side == 0 or tied:
            for first in range(0, table.shape[1], step):
                for r in range(min(step, table.shape[1] - first)):
                    gone[0, r] += table[i, first + r, 0]
                    gone[1, r] += table[i, first + r, 1]
        if tied:
            for label in range(2):
                for r in range(count):
                    moved = displacement(gone[label, r], whole[i, label], i, label, r, step, times, side)
                    away[label, r] = np.int64(moved)
            gone[:] = 0
        groups = 2 if tied else 1
        each = pieces[i] // groups
        for group in range(groups):
            sign = 0 if not tied else -1 if group == 0 else 1
            for label in range(2):
                for r in range(count):
                    left = whole[i, label] - (gone[label, r] if side == 0 else 0)
                    here[label, r] = left * times + sign * away[label, r]
            for r in range(count):
                hits[r] = here[1, r]
                size[r] = here[0, r] + here[1, r]
            if whole[i, 1]:
                if not fresh:
                    for r in range(count):
                        share[r] = (true[r] if flagged[r] > 0.0 else 1.0) / (flagged[r] if flagged[r] > 0.0 else 1.0)
                        share[r] *= _UNIT
                _split_share(share, first_upper, first_lower)
                _add_shares(true, hits, flagged, size, each, share, upper, lower)
                for r in range(count):
                    positives = here[1, r]
                    if positives == 0:
                        continue
                    own = sums[r]
                    high, low = np.uint64(np.int64(upper[r])), np.uint64(np.int64(lower[r]))
                    _add(own, AFTER, positives, high, low, held)
                    last = np.floor(share[r] * _HALVED)
                    high = np.uint64(np.int64(2 * upper[r] + first_upper[r] - last))
                    rest = np.floor(share[r] - last * _DOUBLED)
                    low = np.uint64(np.int64(2 * lower[r] + first_lower[r] - rest))
                    _add(own, BOTH, positives, high, low, held)
                    factor = np.uint64(2 * below[r] - here[0, r] * each)
                    _add(own, AREA, positives * each, factor >> _HALF, factor & _LOW, held)
                for r in range(count):
                    if flagged[r] + size[r] == 0.0:
                        share[r] = _UNIT
            fresh = bool(whole[i, 1])
            for r in range(count):
                true[r] += each * hits[r]
                flagged[r] += each * size[r]
                below[r] -= here[0, r] * each
            for k in range(len(terms)):
                for label in range(2):
                    high, low = terms[k, i, label, group, 0], terms[k, i, label, group, 1]
                    if not tied:
                        high, low = high + terms[k, i, label, 1, 0], low + terms[k, i, label, 1, 1]
                    for r in range(count):
                        _add(sums[r], TERMS + WORDS * k, here[label, r], high, low, held)


@inline
def _rounded(high, low, divisor):
    """The float nearest to a 128-bit number over a number below 2⁶³; the quotient is below 2⁶⁴.

    Long division, until there are at least 55 bits; the last one also stands for all that remains.
    """
    left, found = np.uint64(0), np.uint64(0)
    one, word = np.uint64(1), high
    for part in range(2):
        if part or word:
            for k in range(63, -1, -1):
                left = (left << one) | ((word >> np.uint64(k)) & one)
                found <<= one
                if left >= divisor:
                    left -= divisor
                    found |= one
        word = low
    scale = 1.0
    if not (found or left):
        return 0.0
    while found >> np.uint64(54) == 0:
        left <<= one
        found <<= one
        scale *= 0.5
        if left >= divisor:
            left -= divisor
            found |= one
    if left:
        found |= one
    return np.float64(found) * scale


@jit
def mean_words(sums, at, counts):
    """The sum of `rank_blocks` at a column over each count, as the nearest float64; NaN where the count is 0."""
    out = np.empty(counts.size)
    for i in range(counts.size):
        if counts[i] == 0:
            out[i] = np.nan
            continue
        high = (sums[i, at] << _HALF) | (sums[i, at + 1] >> _HALF)
        shifted = sums[i, at + 1] << _HALF
        low = shifted + sums[i, at + 3]
        high += sums[i, at + 2] + np.uint64(low < shifted)
        out[i] = _rounded(high, low, np.uint64(counts[i]))
    return out
