"""Samples of rows: draw them by a hash of their origin, sort them by cell, and compress them to centroids.

The rows of a file are processed in blocks of 64. One word tells which rows of a block are drawn: for every binary digit
of the share, from the last to the first, a random word is combined by *or* if the digit is 1 and by *and* if it is 0,
so each bit is set with exactly the probability of the share. This costs less than one hash per row. The random words
are hashes of the block's number by the finalizer of SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom
number generators*, 2014), under a seed for the file. Five further bits assign each drawn row to one of 32 groups. A
*cell* is a group and a label, 2·group + label.

The passes of a t-digest go from sorted numbers to centroids, and from sorted centroids to fewer centroids.
Both go from the smallest number to the largest and close a centroid when one more number would take it over one unit of
k₁(q) = δ/2π · asin(2q − 1), where q is the share of numbers up to its end and δ the compression (Dunning and Ertl,
2019). The first and the last centroid are closed after one number or one centroid, so a digest of raw numbers begins
with the smallest number and ends with the largest.

*Atoms.* A value that fills half a centroid or more gets a separate centroid, however heavy, and keeps it when centroids
are merged. A centroid is `single` if all its members are known to be the same value. Without repeated values the result
is that of the plain algorithm; with them there are at most four times as many centroids.
"""

from __future__ import annotations

import math

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.keys import scramble

GROUPS = 32
CELLS = 2 * GROUPS
BITS = 24  # binary digits of the share

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_ONE, _ALL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def _hash(seed, number):
    x = seed + (np.uint64(number) + _ONE) * _STEP
    x = (x ^ (x >> np.uint64(30))) * _MIX1
    x = (x ^ (x >> np.uint64(27))) * _MIX2
    return x ^ (x >> np.uint64(31))


@jit
def draw_smallest(words, keys, ends, limits, sizes, rows, hashes):
    """Count the rows of each stratum, and list those whose hash is within its limit; returns their number.

    Parameters
    ----------
    words, keys : uint64 arrays of shape (n,), words of ids and rank keys of scores
    ends : uint64 array of shape (n_strata - 1,), the last key of each stratum but the last
    limits : uint64 array of shape (n_strata,)
    sizes : int64 array of the same shape, to which the rows are added
    rows, hashes : int64 and uint64 arrays of shape (n,), which get the listed rows and their hashes
    """
    count = 0
    for i in range(words.size):
        low, high = 0, ends.size
        while low < high:
            middle = (low + high) // 2
            if ends[middle] < keys[i]:
                low = middle + 1
            else:
                high = middle
        sizes[low] += 1
        hashes[count], rows[count] = scramble(words[i] ^ _STEP), i
        count += hashes[count] <= limits[low]
    return count


@jit
def _mask(seed, block, share):
    """A word whose bits say which rows of a block are drawn."""
    drawn = np.uint64(0)
    if share >> BITS:
        return _ALL
    for digit in range(BITS):
        if (share >> digit) & 1:
            drawn |= _hash(seed, block * BITS + digit)
        elif drawn:
            drawn &= _hash(seed, block * BITS + digit)
    return drawn


@jit
def _cell(seed, row, group, label):
    if group < 0:
        group = np.int64(_hash(~seed, row) & np.uint64(GROUPS - 1))
    return 2 * group + label


@jit
def draw(values, label, row, kept, seed, share, group, drawn, cells, weights, carried):
    """Draw from rows of a file.

    Parameters
    ----------
    values : float array of shape (n,), scores; NaN is never drawn
    label : uint8 array of shape (n,)
    row : offset of the first row in its file
    kept : int64 array of shape (n,), offsets from `row`, ascending; empty for consecutive rows
    seed : uint64, the seed of the file
    share : int, the share to draw in units of 2⁻²⁴
    group : the group of all rows, or −1 to hash each row to a group
    drawn, cells : float64 and uint8 arrays of shape (n,) or longer, filled from the front
    weights, carried : float64 arrays; `carried` takes the weights of the drawn rows. Both are empty without weights

    Returns
    -------
    int, the number of rows drawn
    """
    count, block, mask = 0, np.int64(-1), np.uint64(0)
    for i in range(values.size):
        at = row + (kept[i] if kept.size else i)
        if at >> 6 != block:
            block = at >> 6
            mask = _mask(seed, block, share)
        if (mask >> np.uint64(at & 63)) & _ONE and values[i] == values[i]:
            drawn[count] = values[i]
            cells[count] = _cell(seed, at, group, label[i])
            if weights.size:
                carried[count] = weights[i]
            count += 1
    return count


@jit
def _limit(q, compression):
    """Share at which a centroid that begins at share `q` is full: k₁⁻¹(k₁(q) + 1)."""
    angle = math.asin(2.0 * q - 1.0) + 2.0 * math.pi / compression
    return 0.5 * (math.sin(angle) + 1.0) if angle < 0.5 * math.pi else 1.0


@jit
def _mean(values, i, j):
    """Mean of ``values[i:j]``.

    Four partial sums keep additions independent of each other; each term is divided first, so that no sum overflows.
    """
    share = 1.0 / (j - i)
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    k = i
    while k + 4 <= j:
        a += values[k] * share
        b += values[k + 1] * share
        c += values[k + 2] * share
        d += values[k + 3] * share
        k += 4
    while k < j:
        a += values[k] * share
        k += 1
    return min(max((a + b) + (c + d), np.float64(values[i])), np.float64(values[j - 1]))


@jit
def _run(values, i, k):
    """Start, at or after `i`, and end of the run of numbers equal to ``values[k]``."""
    start = i + np.searchsorted(values[i : k + 1], values[k])
    return start, k + np.searchsorted(values[k:], values[k], "right")


@jit
def _atom(values, i, j):
    """Start and end of a run of equal numbers that would fill half of ``values[i:j]``; (j, j) if there is no such run.

    Such a run contains two neighbours of a grid of quarters, or reaches beyond the end.
    """
    n, step = values.size, max(1, (j - i) // 4)
    k = i
    while k < j:
        last = min(k + step, n - 1)
        if k < last and values[k] == values[last]:
            start, end = _run(values, i, k)
            if 2 * (end - start) >= j - i:
                return start, end
        k += step
    if j < n and values[j - 1] == values[j]:
        start, end = _run(values, i, j)
        if 2 * (end - start) >= j - i:
            return start, end
    return j, j


@jit
def reduce_sorted(values, compression):
    """Means and weights of the centroids of ascending finite numbers, and whether each is a single value."""
    n = values.size
    size = min(n, 8 * int(compression) + 8)
    means, weights, single = np.empty(size), np.empty(size), np.empty(size, np.bool_)
    count, i = 0, np.int64(0)
    while i < n:
        j = 1 if i == 0 else min(n - 1, int(_limit(i / n, compression) * n))
        j = min(max(j, i + 1), n)
        start, end = _atom(values, i, j)
        if start > i:
            means[count], weights[count] = _mean(values, i, start), start - i
            single[count] = values[i] == values[start - 1]
            count += 1
        if end > start:
            means[count], weights[count], single[count] = values[start], end - start, True
            count += 1
        i = end
    return means[:count].copy(), weights[:count].copy(), single[:count].copy()


@jit
def compress(means, weights, single, compression):
    """Merge neighbouring centroids, in ascending order, while they fit; overwrites the arrays and returns them shorter.

    Single centroids of the same value are merged, however heavy.

    Returns
    -------
    means, weights, single : the centroids
    starts : int64 array, index of the first given centroid in each
    """
    n = means.size
    total = weights.sum()
    starts = np.zeros(n, np.int64)
    count, done = 0, 0.0
    limit = 0.0
    for i in range(1, n):
        grown = weights[count] + weights[i]
        if single[count] and single[i] and means[count] == means[i]:
            weights[count] = grown
            continue
        heavy = 0.0
        if single[count]:
            heavy = weights[count]
        if single[i]:
            heavy = max(heavy, weights[i])
        if count and i < n - 1 and done + grown <= limit and (heavy <= 1.0 or 2.0 * heavy < limit - done):
            share = weights[i] / grown
            mean = means[count] * (1.0 - share) + means[i] * share
            means[count] = min(max(mean, means[count]), means[i])
            weights[count], single[count] = grown, False
        else:
            done += weights[count]
            count += 1
            means[count], weights[count], single[count], starts[count] = means[i], weights[i], single[i], i
            limit = total * _limit(min(done / total, 1.0), compression)
    count = min(count + 1, n)
    return means[:count], weights[:count], single[:count], starts[:count]
