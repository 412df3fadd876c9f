"""Assign units to blocks by a keyed hash, and sum the changes that leaving out a block makes.

Sums by block are rows of a table: one row for every (size, block), one column for every sum. Small sizes have row
``size * n_blocks + block`` of a dense table; larger sizes are kept as a list of rows with their keys.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit

_K = np.uint64(0x243F6A8885A308D3)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_ONE = np.uint64(1)
_LOW = np.int64(0xFFFFFFFF)


@inlined
def _hashed(word):
    """The keyed hash of a word: MurmurHash3's finalizer."""
    word ^= _K
    word = (word ^ (word >> _SHIFT)) * _FIRST
    word = (word ^ (word >> _SHIFT)) * _SECOND
    return word ^ (word >> _SHIFT)


@inlined
def hashed_block(word, count):
    """Block of a unit, from its word. Powers of two as `count` need no division."""
    if count & (count - np.uint64(1)) == 0:
        return np.int64(_hashed(word) & (count - np.uint64(1)))
    return np.int64(_hashed(word) % count)


@jit
def row_blocks(first, rows, file, count):
    """Block of each of consecutive rows of a file, as uint16; every row is a unit, and `count` is at most 65,536."""
    out, blocks = np.empty(rows, np.uint16), np.uint64(count)
    for i in range(rows):
        out[i] = hashed_block(_hashed(np.uint64(first + i)) ^ file, blocks)
    return out


@jit
def unit_blocks(words, count):
    """Block of each unit, from its word, as uint16; `count` is at most 65,536."""
    out, blocks = np.empty(words.size, np.uint16), np.uint64(count)
    for i in range(words.size):
        out[i] = hashed_block(words[i], blocks)
    return out


@jit
def spread_rows(word, rows, out):
    """Count `rows` rows by block; every row is a unit. Row k has the word ``_hashed(k) ^ word``."""
    for k in range(rows):
        out[hashed_block(_hashed(np.uint64(k)) ^ word, np.uint64(out.size))] += 1


@jit
def lone_blocks(words, rows, blocks):
    """Rows by block of units of one row each; cluster i has ``words[i]`` and ``rows[i]`` such units.

    Returns three int64 arrays, ordered by cluster: the cluster i, the block, and its rows.
    """
    found, counts = 0, np.zeros(blocks, np.int64)
    for i in range(rows.size):
        found += min(rows[i], blocks)
    owners, at, each = np.empty(found, np.int64), np.empty(found, np.int64), np.empty(found, np.int64)
    n = 0
    for i in range(rows.size):
        if not rows[i]:
            continue
        counts[:] = 0
        spread_rows(words[i], rows[i], counts)
        for b in range(blocks):
            if counts[b]:
                owners[n], at[n], each[n] = i, b, counts[b]
                n += 1
    return owners[:n], at[:n], each[:n]


@inlined
def _square(n):
    """High and low 32 bits of n², for n < 2^47."""
    a, b = n >> 31, n & np.int64(0x7FFFFFFF)
    low = b * b
    return ((a * a) << 30) + a * b + (low >> 32), low & _LOW


@jit
def squared(rows):
    """Rows, and the high and low 32 bits of their squares, as an int64 array of shape (n, 3); rows are below 2^47."""
    out = np.empty((rows.size, 3), np.int64)
    for i in range(rows.size):
        out[i, 0] = rows[i]
        out[i, 1], out[i, 2] = _square(rows[i])
    return out


@jit
def occupied(table):
    """Indices of the rows of a table that are not all zeros, as an int64 array."""
    found, n = np.empty(table.shape[0], np.int64), 0
    for i in range(table.shape[0]):
        some = np.int64(0)
        for c in range(table.shape[1]):
            some |= table[i, c]
        found[n] = i
        n += some != 0
    return found[:n].copy()


@jit
def group_blocks(numbers, blocks, sums, largest, groups, count):
    """Add up the cells of each group and block.

    Parameters
    ----------
    numbers, blocks : int64 arrays of shape (n,), the group and the block of each cell
    sums : int64 array of shape (n, k)
    largest : int64 array of shape (n,), combined by maximum
    groups, count : number of groups and number of blocks

    Returns
    -------
    bounds : int64 array of shape (groups + 1,), the first entry of each group
    blocks, sums, largest : of each entry; there is one entry for each group and block that occurs
    """
    starts = np.zeros(groups + 1, np.int64)
    for i in range(numbers.size):
        starts[numbers[i] + 1] += 1
    for k in range(groups):
        starts[k + 1] += starts[k]
    order, cursor = np.empty(numbers.size, np.int64), starts[:-1].copy()
    for i in range(numbers.size):
        order[cursor[numbers[i]]] = i
        cursor[numbers[i]] += 1
    bounds, place = np.empty(groups + 1, np.int64), np.full(count, -1, np.int64)
    out_blocks, out_sums, out_largest = np.empty_like(blocks), np.empty_like(sums), np.empty_like(largest)
    n = 0
    for k in range(groups):
        bounds[k] = n
        for j in range(starts[k], starts[k + 1]):
            i = order[j]
            b = blocks[i]
            at = place[b]
            if at < bounds[k]:
                at = n
                n += 1
                place[b], out_blocks[at], out_largest[at] = at, b, largest[i]
                for c in range(sums.shape[1]):
                    out_sums[at, c] = sums[i, c]
            else:
                for c in range(sums.shape[1]):
                    out_sums[at, c] += sums[i, c]
                out_largest[at] = max(out_largest[at], largest[i])
    bounds[groups] = n
    return bounds, out_blocks[:n].copy(), out_sums[:n].copy(), out_largest[:n].copy()


@jit
def add_clusters(bounds, blocks, sums, sizes, least, count, table, keys, large):
    """Add the changes that leaving out each block makes to the clusters with rows in it.

    Without block b, a cluster of size c with d rows in b moves to size c − d, or vanishes if d = c. The sums of all its
    rows are subtracted from size c; the sums of its remaining rows are added to size c − d. Clusters smaller than
    `least` are skipped.

    Parameters
    ----------
    bounds, blocks, sums : entries as `group_blocks` returns them; the first column of `sums` is the number of rows
    sizes : int64 array of shape (n_clusters,)
    count : number of blocks
    table : int64 array of shape (n_sizes · count, 1 + columns), changes of the number of clusters and of their sums
    keys, large : outputs for sizes beyond the table: (size, block) as one number, and the changes; two rows per entry

    Returns
    -------
    int : number of rows written to `large`
    """
    found, columns = 0, sums.shape[1]
    total = np.empty(columns, np.int64)
    for k in range(sizes.size):
        c, first, last = sizes[k], bounds[k], bounds[k + 1]
        if c < least:
            continue
        total[:] = 0
        for e in range(first, last):
            for column in range(1, columns):
                total[column] += sums[e, column]
        for e in range(first, last):
            d = sums[e, 0]
            for sign in (-1, 1):  # subtract all rows, then add the rest; inline, because a call counts references
                if sign > 0 and d == c:
                    break
                row = (c if sign < 0 else c - d) * count + blocks[e]
                left = np.int64(sign > 0)
                if row < table.shape[0]:
                    table[row, 0] += sign
                    for column in range(1, columns):
                        table[row, column] += sign * (total[column] - left * sums[e, column])
                else:
                    keys[found], large[found, 0] = row, sign
                    for column in range(1, columns):
                        large[found, column] = sign * (total[column] - left * sums[e, column])
                    found += 1
    return found


@jit
def shared_maxima(bounds, blocks, largest, sizes, least, lost):
    """Add to ``lost[b]`` by how much the sum of the clusters' largest cells falls without block b."""
    for k in range(sizes.size):
        if sizes[k] < least:
            continue
        first = second = block = np.int64(0)
        for e in range(bounds[k], bounds[k + 1]):
            if largest[e] > first:
                second, first, block = first, largest[e], blocks[e]
            else:
                second = max(second, largest[e])
        lost[block] += first - second


@jit
def add_cells(numbers, n, times, blocks, count, table, keys, large, squares):
    """Count the cells of classes by their rows n and their block, and add n² to their class.

    Parameters
    ----------
    numbers, n : int64 arrays of shape (n_cells,), the class of each cell and its rows
    times : int64 array of shape (n_cells,), number of equal cells that each stands for; empty: 1 each
    blocks : int64 array of shape (n_classes,), the block of each class
    count : number of blocks
    table : int64 array of shape (n_sizes · count, 1), number of cells
    keys, large : outputs for cells beyond the table, as in `add_clusters`; one row per cell
    squares : int64 array of shape (n_classes, 2), high and low 32 bits of Σ n²

    Returns
    -------
    int : number of rows written to `large`
    """
    found = 0
    for i in range(numbers.size):
        k, t = numbers[i], times[i] if times.size else np.int64(1)
        row = n[i] * count + blocks[k]
        if row < table.shape[0]:
            table[row, 0] += t
        else:
            keys[found], large[found, 0] = row, t
            found += 1
        high, low = _square(n[i])
        low *= t
        squares[k, 0] += high * t + (low >> 32)
        squares[k, 1] += low & _LOW
    return found


@jit
def add_classes(blocks, totals, squares, count, table, keys, large):
    """Add each class, with its sums, to its size and block; arguments and result as for `add_clusters`."""
    found = 0
    for k in range(totals.size):
        row = totals[k] * count + blocks[k]
        if row < table.shape[0]:
            table[row, 0] += 1
            for c in range(squares.shape[1]):
                table[row, 1 + c] += squares[k, c]
        else:
            keys[found] = row
            large[found, 0] = 1
            for c in range(squares.shape[1]):
                large[found, 1 + c] = squares[k, c]
            found += 1
    return found
