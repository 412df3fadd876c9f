"""Count the clusters of whole buckets by size, straight from the segments: no row is gathered or sorted.

A bucket fits into the second-level cache, and two passes read it. The first counts the rows of each slot in a byte that
saturates at 2; there are at least four slots per row. In the second, a row that is alone in its slot is a singleton and
is only counted; the other rows are gathered and then counted in a hash table. So singletons never enter the table, and
the table stays small.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.prefetch import word_at
from streameval.kernels.singletons import items_of

__all__ = ["LARGEST", "table_bits", "tally_clusters"]

LARGEST = 1 << 19  # items in a bucket; the tables of larger ones leave the cache and take too much memory

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_ONE, _HALF, _WORD_BITS = np.uint64(1), np.uint64(32), np.uint64(64)
_TOP, _LAST_BUCKET_BIT = np.uint64(63), ID_BUCKETS.bit_length() - 2
_MARKS = 4  # least number of slots per marked row
_PATIENCE = 32  # mean probes per row; more suggest that keys were chosen to collide

_KEY, _NEG, _FURTHER = np.uint64(0), np.uint64(1), np.uint64(3)  # columns of a table; positives follow negatives


@inlined
def table_bits(slots):
    """Base-2 logarithm of the size of a table that holds `slots` slots; at least 3."""
    bits = 3
    while (1 << bits) < slots:
        bits += 1
    return np.uint64(bits)


@inlined
def _mark(rows, b, shift, marks):
    """Count the items of each slot; an item that carries a count counts as several."""
    for r in range(rows.starts.shape[0]):
        words, again = rows.words[r], np.uint8(rows.counts[r] != 0)
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
            slot = (word_at(words, i) << _BUCKET_BITS) >> shift
            marks[slot] = np.uint8(1) + (np.uint8(marks[slot] != 0) | again)


@inlined
def _keep(rows, code, columns, shift, marks, kept, n):
    """Write the items of a code that share their slot to `kept`, from index `n` on; returns the end index."""
    for r in range(rows.starts.shape[0]):
        words, rest, counts = rows.words[r], rows.rest[r], rows.counts[r]
        for i in range(rows.starts[r, code], rows.starts[r, code + 1]):
            word = word_at(words, i)
            kept[n, 0] = (word << _ONE) | _ONE
            kept[n, 1] = word_at(counts, i) if counts else _ONE
            for c in range(columns):
                kept[n, 2 + c] = word_at(rest, i * columns + c)
            n += np.uint64(marks[(word << _BUCKET_BITS) >> shift] != 1)
    return n


@inlined
def _count(kept, start, stop, label, columns, table, bits, used, keys):
    """Count kept items in the table; returns the number of keys, or −1 if they collide too often.

    Appends the number of every slot in use to `used`.
    """
    shift, mask, steps = _WORD_BITS - bits, (_ONE << bits) - _ONE, np.int64(0)
    for i in range(start, stop):
        key = kept[i, 0]
        mixed = key
        for c in range(columns):
            mixed = (mixed ^ (mixed >> _HALF)) * _SPREAD + kept[i, 2 + c]
        at = ((mixed ^ (mixed >> _HALF)) * _SPREAD) >> shift
        while table[at, _KEY]:
            same = table[at, _KEY] == key
            for c in range(columns):
                same &= table[at, _FURTHER + np.uint64(c)] == kept[i, 2 + c]
            if same:
                break
            at = (at + _ONE) & mask
            steps += 1
        if not table[at, _KEY]:
            if steps > _PATIENCE * (i + 64):
                return -1
            table[at, _KEY] = key
            table[at, _NEG] = table[at, _NEG + _ONE] = 0
            for c in range(columns):
                table[at, _FURTHER + np.uint64(c)] = kept[i, 2 + c]
            used[keys] = at
            keys += 1
        table[at, _NEG + label] += kept[i, 1]
    return keys


@inlined
def _room(rows, first, small):
    """Items in the largest bucket to count, and an upper bound on the number of clusters with at least `small` rows."""
    most, room = np.int64(0), np.int64(0)
    for b in range(first, (rows.starts.shape[1] - 1) // 2):
        items = items_of(rows.starts, 2 * b, 2 * b + 2)
        most = max(most, min(items, LARGEST))
        room += items // small
        for r in range(rows.starts.shape[0]):
            if rows.counts[r]:
                room += rows.starts[r, 2 * b + 2] - rows.starts[r, 2 * b]
    return most, room


@inlined
def _keep_shared(rows, b, columns, marks, kept):
    """Mark the items of a bucket and keep those that share a slot, negatives first; returns both ends."""
    bits = table_bits(_MARKS * items_of(rows.starts, 2 * b, 2 * b + 2))
    marks[: 1 << bits] = 0
    _mark(rows, b, _WORD_BITS - bits, marks)
    half = _keep(rows, 2 * b, columns, _WORD_BITS - bits, marks, kept, np.uint64(0))
    stop = _keep(rows, 2 * b + 1, columns, _WORD_BITS - bits, marks, kept, half)
    return np.int64(half), np.int64(stop)


@inlined
def _drain(table, used, keys, clusters, positives, sizes, large, found):
    """Tally the keys of the table by size and clear it; returns the number of clusters too large for the tallies."""
    for k in range(keys):
        at = used[k]
        size, pos = np.int64(table[at, 1] + table[at, 2]), np.int64(table[at, 2])
        table[at, 0] = 0
        if size < clusters.size:
            clusters[size] += 1
            positives[size] += pos
        else:
            sizes[found] = size
            large[found] = pos
            found += 1
    return found


@jit
def _gather(table, used, keys, columns, top, ids, facts, n):
    """Write the impure clusters of the table from place `n` on; returns the end."""
    for k in range(keys):
        at = used[k]
        neg, pos = np.int64(table[at, _NEG]), np.int64(table[at, _NEG + _ONE])
        ids[n, 0] = (table[at, _KEY] >> _ONE) | top
        for c in range(columns):
            ids[n, 1 + c] = table[at, _FURTHER + np.uint64(c)]
        facts[n, 0], facts[n, 1] = neg, pos
        n += neg > 0 and neg + pos > 1
    return n


@jit
def _with_room(array, used, more):
    """The array with its first `used` rows, or a larger one that has room for more."""
    if used + more <= array.shape[0]:
        return array
    larger = np.empty((2 * array.shape[0] + more, array.shape[1]), array.dtype)
    for i in range(used):  # which compiles in a fraction of the time of a slice's assignment
        for c in range(array.shape[1]):
            larger[i, c] = array[i, c]
    return larger


@jit
def tally_clusters(rows, further, first, clusters, positives, start, impure):
    """Count the clusters of buckets by size and sum their positives, from bucket `first` on.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of the buckets
    further : tuple whose length is the number of further words in a key
    first : number of the first bucket to count
    clusters, positives : int64 tables indexed by size, updated in place
    start : bucket of ids that the buckets here are counted from
    impure : whether clusters of several rows, not all positive, are returned as well

    Returns
    -------
    stop : the first bucket that was not counted, because it has more than `LARGEST` items or colliding keys
    sizes, large : int64 arrays with the sizes and positives of clusters too large for the tables
    ids, facts : impure clusters, uint64 array of shape (n, 1 + further words) and their negatives and positives
    """
    columns, buckets = len(further), (rows.starts.shape[1] - 1) // 2
    most, room = _room(rows, first, clusters.size)
    marks = np.empty(1 << table_bits(_MARKS * most), np.uint8)
    kept = np.empty(
        (most + 1, 2 + columns), np.uint64
    )  # key shifted left, lowest bit set so that it is not 0; count; further words
    table = np.empty((1 << table_bits(2 * most), 3 + columns), np.uint64)
    used = np.empty(most, np.uint64)
    sizes, large = np.empty(room, np.int64), np.empty(room, np.int64)
    ids, facts, mixed = np.empty((1 << 10, 1 + columns), np.uint64), np.empty((1 << 10, 2), np.int64), 0
    found, clean = 0, 0
    for b in range(first, buckets):
        items = items_of(rows.starts, 2 * b, 2 * b + 2)
        if items > LARGEST:
            return b, sizes[:found], large[:found], ids[:mixed], facts[:mixed]
        half, stop = _keep_shared(rows, b, columns, marks, kept)
        bits = table_bits(2 * stop)
        for at in range(clean, 1 << bits):
            table[at, 0] = 0
        clean = max(clean, 1 << bits)
        keys = _count(kept, 0, half, np.uint64(0), columns, table, bits, used, 0)
        if keys >= 0:
            keys = _count(kept, half, stop, np.uint64(1), columns, table, bits, used, keys)
        if keys < 0:
            return b, sizes[:found], large[:found], ids[:mixed], facts[:mixed]
        clusters[1] += items - stop
        positives[1] += items_of(rows.starts, 2 * b + 1, 2 * b + 2) - (stop - half)
        if impure:
            ids, facts = _with_room(ids, mixed, keys + 1), _with_room(facts, mixed, keys + 1)
            top = np.uint64((start + b) >> _LAST_BUCKET_BIT) << _TOP  # of the key, which its shift lost
            mixed = _gather(table, used, keys, columns, top, ids, facts, mixed)
        found = _drain(table, used, keys, clusters, positives, sizes, large, found)
    return buckets, sizes[:found], large[:found], ids[:mixed], facts[:mixed]
