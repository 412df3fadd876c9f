"""The loops of the rounds over a contingency table: rows to cells by cluster, and cells to sums by class.

Items are read at their addresses in the segments, bucket by bucket, and only results are written; what is kept of a
bucket stays in the second-level cache. If the bucket before had many singletons, they are removed first, by a test that
costs less than the table.

`cluster_cells` numbers the clusters in a hash table. Rows of the same class as the first row of their cluster are
counted with the cluster; rows of other classes, its *strays*, are merged to cells at the end of the bucket.

`tally_classes` numbers the classes. At the end of the bucket their sizes are known, and each cell is counted by class
size r, cluster size c and count n: most cells of a large table are small, so that few such triples occur. Cells that
are not small are listed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.kernels.contingency.tables import FIRST_BITS, clear_table, find_or_last, grow_table, hash_at, is_crowded
from streameval.kernels.jit import inline, jit, step
from streameval.kernels.keyed.sizes import LONELY, clear_marks, mark_others, separate, size_of
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
    marks : uint8 array, see `streameval.kernels.keyed.sizes.clear_marks`
    words, rest, counts : rows without singletons, uint64, uint64 and int64 arrays of shape (n,), (n, n_words - 1) and
        (n,); `counts` is empty if every item is one row
    """

    slots: np.ndarray
    clusters: np.ndarray
    strays: np.ndarray
    marks: np.ndarray
    words: np.ndarray
    rest: np.ndarray
    counts: np.ndarray


class CellArrays(NamedTuple):
    """Where `cluster_cells` writes: room for a cell of each row, and one more.

    Attributes
    ----------
    words, rest : uint64 arrays of shape (n,) and (n, n_further), the cells of clusters of several rows: the words of
        the class, then count n and cluster size c, in one word or in two, then the words of the cluster if there is
        room for them
    lone : uint64 array of shape (n, n_class), the classes of singleton cells (n = c = 1); then the words of the cluster
        if there is room for them
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
    lonely = False
    for b in range(start, stop):
        size, before = size_of(rows, b), alone
        if not size:
            continue
        if lonely:
            found, stray, alone, bits = _group_shared(rows, b, size, cluster, class_, own, bits, alone, out.lone)
            out.sizes[1] += np.int64(alone - before)
            maxima += alone - before
        else:
            found, stray, bits = _group_bucket(rows, b, size, cluster, class_, own, bits)
        at, alone, big, maxima = _emit_clusters(found, cluster, class_, packed, own, out, at, alone, big, maxima)
        lonely = np.int64(alone - before) * LONELY >= size
        if stray:
            stray, stray_bits = _merge_strays(stray, class_, own, stray_bits)
            at, maxima = _emit_strays(stray, cluster, class_, packed, own, out, at, maxima)
    return np.int64(at), np.int64(alone), np.int64(big), np.int64(maxima)


@step
def _group_bucket(rows, b, size, cluster, class_, own, bits):
    """Group all rows of a bucket; returns the number of clusters, of strays, and the bits of a slot."""
    found, stray = np.uint64(0), np.uint64(0)
    bits = clear_table(own.slots, size, bits)
    for r in range(rows.starts.shape[0]):
        given = rows.words[r], rows.rest[r], rows.counts[r], rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]
        found, stray, bits = _group(*given, cluster, class_, own, found, stray, bits)
    return found, stray, bits


@step
def _group_shared(rows, b, size, cluster, class_, own, bits, alone, lone):
    """As `_group_bucket`, after most singletons are removed and their classes written.

    Returns as well the number of singletons so far.
    """
    shift, none = clear_marks(own.marks, size), np.uint64(0)
    given = own.marks, shift, none, own.words, own.rest, own.counts, alone, lone
    kept, alone = separate(rows, b, cluster + class_, class_, *given)
    bits = clear_table(own.slots, np.int64(kept), bits)
    counts = np.uint64(own.counts.ctypes.data) if own.counts.size else none
    given = np.uint64(own.words.ctypes.data), np.uint64(own.rest.ctypes.data), counts, np.int64(0), np.int64(kept)
    found, stray, bits = _group(*given, cluster, class_, own, none, none, bits)
    return found, stray, alone, bits


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
            if is_crowded(np.int64(found), slots, bits):
                bits = grow_table(clusters, columns, np.int64(0), np.int64(found), slots, bits)
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


@inline
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
    more, bits = strays[:, 1:], clear_table(slots, np.int64(count), bits)
    for s in range(count):
        for c in range(columns + 2):
            strays[cells, np.uint64(c)] = strays[s, np.uint64(c)]
        n = strays[s, columns + 1]
        place, k = find_or_last(strays[cells, 0], more, cells, columns, strays, cells, slots, bits)
        slots[place] = k
        new = np.uint64(k == cells)
        strays[k, columns + 1] += n * (_ONE - new)
        cells += new
        if is_crowded(np.int64(cells), slots, bits):
            bits = grow_table(strays, columns, np.int64(0), np.int64(cells), slots, bits)
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
        for m in range(out.lone.shape[1] - classes):
            out.lone[alone, classes + m] = clusters[k, m]
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


@inline
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


_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0)


class ClassArrays(NamedTuple):
    """What `tally_classes` keeps of one bucket: room for the items of the largest one, and one item more.

    Attributes
    ----------
    slots : int32 array, see `streameval.kernels.contingency.tables.slots_for`
    classes : uint64 array of shape (n, n_words + 3), for each class its words, its singleton cells, its rows in other
        cells (in the end, all its rows), and its largest cell
    owners : int32 array of shape (n,), the class of each other cell
    marks : uint8 array, see `streameval.kernels.keyed.sizes.clear_marks`
    words, rest, counts : singleton cells without those of classes of one row, uint64, uint64 and int64 arrays of shape
        (n,), (n, n_words - 1) and (n,); `counts` is empty if every item is one cell
    """

    slots: np.ndarray
    classes: np.ndarray
    owners: np.ndarray
    marks: np.ndarray
    words: np.ndarray
    rest: np.ndarray
    counts: np.ndarray


class Tallies(NamedTuple):
    """Where `tally_classes` adds and lists.

    Attributes
    ----------
    cells : int64 array of shape (8^bits,), incremented at ``(((r << bits) | c) << bits) | n`` for each cell whose r and
        c are below 2^bits
    sizes, singles : int64 arrays, incremented at the size of each class by 1 and by its singleton cells
    large_cells : int64 array of shape (n, 4), for each other cell r, c, n and its multiplicity
    large_classes : int64 array of shape (n, 2), sizes that are no indices of `sizes`, with the singleton cells
    """

    cells: np.ndarray
    sizes: np.ndarray
    singles: np.ndarray
    large_cells: np.ndarray
    large_classes: np.ndarray


@jit
def tally_classes(rows, others, start, stop, further, width, packed, bits, own, out):
    """Add up the classes of the buckets `start` to `stop`, whose items all have label 0.

    Parameters
    ----------
    rows, others : Addresses of the singleton cells (n = c = 1), by class, and of the other cells, with n and c after
        the words of the class
    start, stop : buckets, counted from the first bucket of the addresses
    further : tuple with an item for each further word of a class; the compiler knows its length
    width : further words of another cell
    packed : whether n and c share a word
    bits : see `Tallies`
    own : ClassArrays
    out : Tallies

    Returns
    -------
    cells, classes : numbers of listed cells and of listed classes
    maxima : sum of the largest cells of all classes
    """
    cells = classes = maxima = np.uint64(0)
    slot_bits = np.int64(FIRST_BITS)
    lonely = False
    for b in range(start, stop):
        singles, size = size_of(rows, b), size_of(others, b)
        if not singles + size:
            continue
        found, alone = np.uint64(0), np.uint64(0)
        slot_bits = clear_table(own.slots, singles + size, slot_bits)
        if lonely:
            found, alone, slot_bits = _group_shared_cells(rows, others, b, singles, further, own, slot_bits)
        elif singles:
            for r in range(rows.starts.shape[0]):
                given = rows.words[r], rows.rest[r], rows.counts[r], rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]
                found, slot_bits = _group_singles(*given, further, own, found, slot_bits)
        found, slot_bits = _group_cells(others, b, further, width, packed, own, found, slot_bits)
        once, classes, maxima = _add_classes(found, further, own, out, classes, maxima)
        out.sizes[1] += np.int64(alone)
        out.singles[1] += np.int64(alone)
        maxima += alone
        cells = _add_cells(others, b, further, width, packed, bits, own, out, cells)
        lonely = np.int64(once + alone) * LONELY >= singles > 0
    return np.int64(cells), np.int64(classes), np.int64(maxima)


@step
def _group_shared_cells(rows, others, b, size, further, own, bits):
    """Group the singleton cells of a bucket without those alone in their class, whose number is returned as well."""
    shift = clear_marks(own.marks, size)
    mark_others(others, b, own.marks, shift)
    lone = own.rest[:, :0]
    given = own.marks, shift, _NONE, own.words, own.rest, own.counts, _NONE, lone
    kept, alone = separate(rows, b, further, (), *given)
    counts = np.uint64(own.counts.ctypes.data) if own.counts.size else _NONE
    given = np.uint64(own.words.ctypes.data), np.uint64(own.rest.ctypes.data), counts, np.int64(0), np.int64(kept)
    found, bits = _group_singles(*given, further, own, _NONE, bits)
    return found, alone, bits


@step
def _group_singles(words, rest, counts, start, stop, further, own, found, bits):
    """Group singleton cells at these addresses with the classes so far; returns their number, and the bits of a slot.

    No branch depends on whether a class is new, since that is unpredictable.
    """
    columns, slots, classes = len(further), own.slots, own.classes
    more = classes[:, 1:]
    for i in range(start, stop):
        classes[found, 0] = word_at(words, i)
        for c in range(columns):
            classes[found, np.uint64(1 + c)] = word_at(rest, i * columns + c)
        classes[found, columns + 1] = classes[found, columns + 2] = _NONE
        classes[found, columns + 3] = _ONE
        place, k = find_or_last(classes[found, 0], more, found, columns, classes, found, slots, bits)
        slots[place] = k
        classes[k, columns + 1] += word_at(counts, i) if counts else _ONE
        found += np.uint64(k == found)
        if is_crowded(np.int64(found), slots, bits):
            bits = grow_table(classes, columns, np.int64(0), np.int64(found), slots, bits)
    return found, bits


@inline
def _group_cells(others, b, further, width, packed, own, found, bits):
    """Group the other cells of a bucket as `_group_singles`."""
    columns, slots, classes, owners, cell = len(further), own.slots, own.classes, own.owners, np.uint64(0)
    more = classes[:, 1:]
    for r in range(others.starts.shape[0]):
        words, rest, counts = others.words[r], others.rest[r], others.counts[r]
        for i in range(others.starts[r, 2 * b], others.starts[r, 2 * b + 1]):
            classes[found, 0] = word_at(words, i)
            for c in range(columns):
                classes[found, np.uint64(1 + c)] = word_at(rest, i * width + c)
            classes[found, columns + 1] = classes[found, columns + 2] = classes[found, columns + 3] = _NONE
            place, k = find_or_last(classes[found, 0], more, found, columns, classes, found, slots, bits)
            slots[place] = k
            n = word_at(rest, i * width + columns)
            n = n >> _HALF if packed else n
            classes[k, columns + 2] += n * (word_at(counts, i) if counts else _ONE)
            classes[k, columns + 3] = max(classes[k, columns + 3], n)
            owners[cell] = k
            cell += _ONE
            found += np.uint64(k == found)
            if is_crowded(np.int64(found), slots, bits):
                bits = grow_table(classes, columns, np.int64(0), np.int64(found), slots, bits)
    return found, bits


@inline
def _add_classes(count, further, own, out, listed, maxima):
    """Add up complete classes; returns how many have one row, the number of listed classes, and the sum of maxima."""
    columns, classes, once = len(further), own.classes, np.uint64(0)
    for k in range(count):
        singles = classes[k, columns + 1]
        size = classes[k, columns + 2] + singles
        classes[k, columns + 2] = size
        maxima += classes[k, columns + 3]
        once += np.uint64(size == _ONE)
        if size < np.uint64(out.sizes.size):
            out.sizes[size] += 1
            out.singles[size] += np.int64(singles)
        else:
            out.large_classes[listed, 0] = size
            out.large_classes[listed, 1] = singles
            listed += _ONE
    return once, listed, maxima


@inline
def _add_cells(others, b, further, width, packed, bits, own, out, listed):
    """Count the other cells of complete classes by size, or list them; returns the number of listed cells."""
    columns, classes, owners, cell, bits = len(further), own.classes, own.owners, np.uint64(0), np.uint64(bits)
    for r in range(others.starts.shape[0]):
        rest, counts = others.rest[r], others.counts[r]
        for i in range(others.starts[r, 2 * b], others.starts[r, 2 * b + 1]):
            size = classes[np.uint64(owners[cell]), columns + 2]
            cell += _ONE
            n = word_at(rest, i * width + columns)
            c = n & _LOW if packed else word_at(rest, i * width + columns + 1)
            n = n >> _HALF if packed else n
            times = np.int64(word_at(counts, i)) if counts else np.int64(1)
            if (size | c) >> bits == _NONE:
                out.cells[(((size << bits) | c) << bits) | n] += times
            else:
                out.large_cells[listed, 0] = size
                out.large_cells[listed, 1] = c
                out.large_cells[listed, 2] = n
                out.large_cells[listed, 3] = times
                listed += _ONE
    return listed
