"""The loop of the first round over a contingency table: rows to cells by cluster.

Items are read at their addresses in the segments, bucket by bucket, and only results are written; what is kept of a
bucket stays in the second-level cache.

`cluster_cells` numbers the clusters in a hash table. Rows of the same class as the first row of their cluster are
counted with the cluster; rows of other classes, its *strays*, are merged to cells at the end of the bucket.

"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.kernels.contingency.tables import FIRST_BITS, cleared, crowded, find_or_last, grown, hash_at
from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.prefetch import word_at

_HALF = np.uint64(32)
_ONE = np.uint64(1)


class BucketArrays(NamedTuple):
    """What `cluster_cells` keeps of one bucket: room for the rows of the largest one, and one row more.

    Attributes
    ----------
    slots : int32 array, see `streameval.kernels.contingency.tables.slots_for`
    clusters : uint64 array of shape (n, n_words + 2), for each cluster the words of its first row, the number of rows
        with the class of that row, and the number of all rows
    strays : uint64 array of shape (n, n_class + 2), for each row of another class its cluster, the words of its class
        and its number of rows
    """

    slots: np.ndarray
    clusters: np.ndarray
    strays: np.ndarray


class CellArrays(NamedTuple):
    """Where `cluster_cells` writes: room for a cell of each row, and one more.

    Attributes
    ----------
    words, rest : uint64 arrays of shape (n,) and (n, n_further), the cells of clusters of several rows: the words of
        the class, then count n and cluster size c, in one word or in two, then the words of the cluster if there is
        room for them
    lone : uint64 array of shape (n, n_class), the classes of singleton cells (n = c = 1)
    sizes : int64 array, incremented at the size of each cluster
    large : int64 array of shape (n,), sizes that are no indices of `sizes`
    """

    words: np.ndarray
    rest: np.ndarray
    lone: np.ndarray
    sizes: np.ndarray
    large: np.ndarray


@jit
def cluster_cells(rows, start, stop, cluster, class_, packed, own, out):
    """Write the cells of the buckets `start` to `stop`, whose rows all have label 0.

    Parameters
    ----------
    rows : Addresses of the rows
    start, stop : buckets, counted from the first bucket of the addresses
    cluster, class_ : tuples with an item for each further word of a cluster, and for each word of a class; the compiler
        knows their lengths and unrolls the loops over them
    packed : whether n and c share a word
    own : BucketArrays
    out : CellArrays

    Returns
    -------
    cells, singletons, large : numbers of cells of larger clusters, of singleton cells, and of sizes in ``out.large``
    maxima : sum of the largest cells of all clusters
    """
    at = alone = big = maxima = np.uint64(0)
    bits = stray_bits = np.int64(FIRST_BITS)
    for b in range(start, stop):
        size = np.int64(0)
        for r in range(rows.starts.shape[0]):
            size += rows.starts[r, 2 * b + 1] - rows.starts[r, 2 * b]
        if not size:
            continue
        found, stray, bits = _group_bucket(rows, b, size, cluster, class_, own, bits)
        at, alone, big, maxima = _emit_clusters(found, cluster, class_, packed, own, out, at, alone, big, maxima)
        if stray:
            stray, stray_bits = _merge_strays(stray, class_, own, stray_bits)
            at, maxima = _emit_strays(stray, cluster, class_, packed, own, out, at, maxima)
    return np.int64(at), np.int64(alone), np.int64(big), np.int64(maxima)


@step
def _group_bucket(rows, b, size, cluster, class_, own, bits):
    """Group all rows of a bucket; returns the number of clusters, of strays, and the bits of a slot."""
    found, stray = np.uint64(0), np.uint64(0)
    bits = cleared(own.slots, size, bits)
    for r in range(rows.starts.shape[0]):
        given = rows.words[r], rows.rest[r], rows.counts[r], rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]
        found, stray, bits = _group(*given, cluster, class_, own, found, stray, bits)
    return found, stray, bits


@step
def _group(words, rest, counts, start, stop, cluster, class_, own, found, stray, bits):
    """Group rows at these addresses with those of the bucket so far; returns as `_group_bucket`."""
    columns, further = len(cluster), len(cluster) + len(class_)
    slots, clusters, strays = own.slots, own.clusters, own.strays
    for i in range(start, stop):
        word, first = word_at(words, i), i * further
        n = word_at(counts, i) if counts else _ONE
        mask, place = np.uint64((1 << bits) - 1), np.uint64(hash_at(word, rest, first, columns, bits))
        known = slots[place]
        while known >= 0 and not (
            clusters[np.uint64(known), 0] == word and _equal_at(clusters, np.uint64(known), rest, first, 0, columns)
        ):
            place = (place + _ONE) & mask
            known = slots[place]
        if known < 0:
            slots[place] = found
            clusters[found, 0] = word
            for c in range(further):
                clusters[found, np.uint64(1 + c)] = word_at(rest, first + c)
            clusters[found, further + 1] = n
            clusters[found, further + 2] = n
            found += _ONE
            if crowded(np.int64(found), slots, bits):
                bits = grown(clusters, columns, np.int64(0), np.int64(found), slots, bits)
            continue
        k = np.uint64(known)
        same = _equal_at(clusters, k, rest, first, columns, further)
        clusters[k, further + 1] += n * np.uint64(same)
        clusters[k, further + 2] += n
        strays[stray, 0] = k
        for c in range(len(class_)):
            strays[stray, np.uint64(1 + c)] = word_at(rest, first + columns + c)
        strays[stray, 1 + len(class_)] = n
        stray += np.uint64(not same)
    return found, stray, bits


@inlined
def _equal_at(clusters, k, rest, first, start, stop):
    """Whether the further words from `start` to `stop` of a row equal those of cluster k's first row."""
    same = True
    for c in range(start, stop):
        same = same and clusters[k, np.uint64(1 + c)] == word_at(rest, first + c)
    return same


@step
def _merge_strays(count, class_, own, bits):
    """Merge the strays of one cluster and class, in place; returns the number of cells, and the bits of a slot."""
    strays, slots, columns, cells = own.strays, own.slots, len(class_), np.uint64(0)
    more, bits = strays[:, 1:], cleared(slots, np.int64(count), bits)
    for s in range(count):
        for c in range(columns + 2):
            strays[cells, np.uint64(c)] = strays[s, np.uint64(c)]
        n = strays[s, columns + 1]
        place, k = find_or_last(strays[cells, 0], more, cells, columns, strays, cells, slots, bits)
        slots[place] = k
        new = np.uint64(k == cells)
        strays[k, columns + 1] += n * (_ONE - new)
        cells += new
        if crowded(np.int64(cells), slots, bits):
            bits = grown(strays, columns, np.int64(0), np.int64(cells), slots, bits)
    return cells, bits


@step
def _emit_clusters(count, cluster, class_, packed, own, out, at, alone, big, maxima):
    """Write the first cell of each cluster; returns the positions in the outputs and the sum of these cells."""
    clusters, columns, classes = own.clusters, len(cluster), len(class_)
    for k in range(count):
        n, c = clusters[k, columns + classes + 1], clusters[k, columns + classes + 2]
        _emit(clusters, k, columns, classes, clusters, k, n, c, packed, out, at)
        for m in range(classes):
            out.lone[alone, m] = clusters[k, 1 + columns + m]
        at += np.uint64(c != _ONE)
        alone += np.uint64(c == _ONE)
        maxima += n
        if c < np.uint64(out.sizes.size):
            out.sizes[c] += 1
        else:
            out.large[big] = c
            big += _ONE
    return at, alone, big, maxima


@step
def _emit_strays(count, cluster, class_, packed, own, out, at, maxima):
    """Write the other cells; returns the position in the output and the sum of the largest cells."""
    clusters, strays, classes = own.clusters, own.strays, len(class_)
    rows = len(cluster) + classes + 1
    for s in range(count):
        k, n = strays[s, 0], strays[s, classes + 1]
        _emit(strays, s, 0, classes, clusters, k, n, clusters[k, rows + 1], packed, out, at)
        at += _ONE
        if n > clusters[k, rows]:
            maxima += n - clusters[k, rows]
            clusters[k, rows] = n
    return at, maxima


@inlined
def _emit(cells, i, column, classes, clusters, k, n, c, packed, out, at):
    """Write the cell in row i of an array, whose class follows `column` further words; its cluster is k."""
    rest = out.rest
    out.words[at] = cells[i, 1 + column]
    for m in range(classes - 1):
        rest[at, m] = cells[i, 2 + column + m]
    if packed:
        rest[at, classes - 1] = (n << _HALF) | c
    else:
        rest[at, classes - 1] = n
        rest[at, classes] = c
    after = classes if packed else classes + 1
    for m in range(rest.shape[1] - after):
        rest[at, after + m] = clusters[k, m]
