"""Cells of whole classes to their sums by size in one loop, for the second pass over a contingency table.

Items are read at their addresses in the segments, bucket by bucket; what is kept of a bucket stays in the second-level
cache. A hash table numbers the classes. At the end of the bucket their sizes are known, and each cell is counted by
class size r, cluster size c and count n: most cells of a large table are small, so that few such triples occur. Cells
that are not small are listed. If the bucket before had many classes of one row, these are removed first, by a test that
costs less than the table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.kernels.contingency.tables import FIRST_BITS, cleared, crowded, find_or_last, grown
from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.prefetch import word_at
from streameval.kernels.singletons import LONELY, clear_marks, mark_others, separate, size_of

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


class ClassArrays(NamedTuple):
    """What `tally_classes` keeps of one bucket: room for the items of the largest one, and one item more.

    Attributes
    ----------
    slots : int32 array, see `streameval.kernels.contingency.tables.slots_for`
    classes : uint64 array of shape (n, n_words + 3), for each class its words, its singleton cells, its rows in other
        cells (in the end, all its rows), and its largest cell
    owners : int32 array of shape (n,), the class of each other cell
    marks : uint8 array, see `streameval.kernels.singletons.clear_marks`
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
        slot_bits = cleared(own.slots, singles + size, slot_bits)
        if lonely:
            found, alone, slot_bits = _group_shared(rows, others, b, singles, further, own, slot_bits)
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
def _group_shared(rows, others, b, size, further, own, bits):
    """Group the singleton cells of a bucket without those alone in their class, whose number is returned as well."""
    shift = clear_marks(own.marks, size)
    mark_others(others, b, own.marks, shift)
    lone = own.rest[:, :0]
    given = own.marks, shift, _NONE, own.words, own.rest, own.counts, _NONE, lone
    kept, alone, _ = separate(rows, b, further, (), (), *given)
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
        if crowded(np.int64(found), slots, bits):
            bits = grown(classes, columns, np.int64(0), np.int64(found), slots, bits)
    return found, bits


@inlined
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
            if crowded(np.int64(found), slots, bits):
                bits = grown(classes, columns, np.int64(0), np.int64(found), slots, bits)
    return found, bits


@inlined
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


@inlined
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
