"""Count the clusters of whole buckets by size, directly from the segments, without gathering or sorting rows.

A bucket fits into the second-level cache and is read twice. The first pass counts the rows of each slot in a byte that
saturates at 2; there are at least four slots per row, and eight as long as all slots fit into the cache as well. In the
second pass, a row that is alone in its slot is a singleton and is only counted; the other rows are gathered and then
counted in a hash table. So singletons never enter the table, and the table stays small. If the last bucket had hardly
any singletons and few clusters, all rows go to the table.

The loops neither make nor slice arrays: each array would take as long to compile as a loop over it.

The first pass serves contingency tables as well, which skip the rows that are alone in their cluster or class. Rows
come bucket by bucket, bucket b from ``starts[b]`` on, and equal keys lie in one bucket.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from streameval.kernels.jit import inline, jit, step
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.prefetch import prefetch_at, word_at

LONELY = 2  # singletons are removed first if they were at least 1/2 of the items of the bucket before
_SLOTS = 8  # for each row of the largest bucket, at least

LARGEST = 1 << 19  # items in a bucket; the tables of larger ones leave the cache and take too much memory

_BUCKET_BITS = np.uint64(ID_BUCKETS.bit_length() - 1)
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_ZERO, _ONE, _TWO, _HALF = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(32)
_LOW = np.uint64((1 << 32) - 1)
_WORD_BITS, _TOP, _LAST_BUCKET_BIT = np.uint64(64), np.uint64(63), ID_BUCKETS.bit_length() - 2
_MARKS = 4  # least number of slots per marked row
_CACHED = 1 << 18  # bytes of slots up to which there are twice as many, so that fewer singletons share one
_PATIENCE = np.uint64(32)  # mean probes per row; more suggest that keys were chosen to collide
_ALONE = np.uint8(1)
_FULL = 1 << 32  # rows in a bucket; the table has 32 bits for the rows of a label
_AHEAD = 384  # words by which rows are prefetched, since the pieces of a bucket are short
_REPEATS = 4  # mean rows per key from which the next bucket is not searched for singletons


class Addresses(NamedTuple):
    """Addresses of the rows of consecutive buckets in several segments.

    Attributes
    ----------
    starts : int64 array of shape (n_segments, n_codes + 1), the first row of each code within the columns
    words, rest, counts : uint64 arrays of shape (n_segments,), addresses of the columns; 0 for a missing column
    """

    starts: np.ndarray
    words: np.ndarray
    rest: np.ndarray
    counts: np.ndarray


@inline
def size_of(rows, b):
    """Items of label 0 in bucket b."""
    size = np.int64(0)
    for r in range(rows.starts.shape[0]):
        size += rows.starts[r, 2 * b + 1] - rows.starts[r, 2 * b]
    return size


def marks_for(rows: int) -> np.ndarray:
    """An array with room for the marks of the largest bucket, which has `rows` rows.

    Examples
    --------
    >>> marks_for(0).size, marks_for(1000).size
    (8, 8192)
    """
    return np.empty(_SLOTS << max(rows - 1, 0).bit_length(), np.uint8)


@step
def clear_marks(marks, size):
    """Clear the marks for a bucket of `size` rows; returns by how many bits a word is shifted to its slot.

    There are at least `_SLOTS` slots per row. The bits of a word below those of the bucket choose its slot.
    """
    bits = 3
    while (1 << bits) < _SLOTS * size:
        bits += 1
    marks[: 1 << bits] = 0
    return np.uint64(64 - bits)


@step
def mark_others(others, b, marks, shift):
    """Mark the slots of the items of label 0 in bucket b as if two rows had each."""
    for r in range(others.starts.shape[0]):
        word_column = others.words[r]
        for i in range(others.starts[r, 2 * b], others.starts[r, 2 * b + 1]):
            marks[(word_at(word_column, i) << _BUCKET_BITS) >> shift] = 2


@step
def separate(rows, b, further, last, marks, shift, found, words, rest, counts, alone, lone):
    """Separate the rows of label 0 in bucket b; returns the numbers of rows and of singletons collected so far.

    `marks` counts the rows of each slot; a row alone in its slot is a singleton, which finds nine of ten. No branch
    depends on the data. Keys have ``len(further)`` further words; `lone` takes the last ``len(last)`` of these for
    singletons, then the words before them if there is room. `found` and `alone` rows are already in the outputs, which
    have room for all rows and one more.
    """
    columns, wanted = len(further), len(last)
    for r in range(rows.starts.shape[0]):
        word_column, count_column = rows.words[r], rows.counts[r]
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
            slot = (word_at(word_column, i) << _BUCKET_BITS) >> shift
            again = np.uint8(marks[slot] != 0)
            if count_column:
                again |= np.uint8(word_at(count_column, i) > 1)
            marks[slot] = np.uint8(1) + again
    for r in range(rows.starts.shape[0]):
        word_column, rest_column, count_column = rows.words[r], rows.rest[r], rows.counts[r]
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 1]):
            word = word_at(word_column, i)
            words[found] = word
            for c in range(columns):
                rest[found, c] = word_at(rest_column, i * columns + c)
            if counts.size:
                counts[found] = word_at(count_column, i) if count_column else 1
            again = np.uint64(marks[(word << _BUCKET_BITS) >> shift] > 1)
            for c in range(wanted):
                lone[alone, c] = word_at(rest_column, i * columns + columns - wanted + c)
            for c in range(lone.shape[1] - wanted):
                lone[alone, wanted + c] = word_at(rest_column, i * columns + c - 1) if c else word
            found += again
            alone += np.uint64(1) - again
    return found, alone


def tally_clusters(
    rows: Addresses,
    items: np.ndarray,
    words: int,
    first: int,
    clusters: np.ndarray,
    positives: np.ndarray,
    start: int | None = None,
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Count the clusters of buckets by size and sum their positives, from bucket `first` on.

    Parameters
    ----------
    rows : `streameval.kernels.keyed.sizes.Addresses` of the buckets
    items : int64 array of shape (n_codes,), items of each code of the buckets
    words : number of words of a key
    first : number of the first bucket to count
    clusters, positives : int64 tables indexed by size, updated in place
    start : id bucket of the first bucket here; None to skip impure clusters

    Returns
    -------
    stop : the first bucket that was not counted, because it has more than `LARGEST` items, 2³² rows or colliding keys
    sizes, large : int64 arrays with the sizes and positives of clusters too large for the tables
    ids, facts : impure clusters, those of several rows that are not all positive: uint64 array of shape (n, words), and
        their negatives and positives, an array of shape (n, 2)
    """
    buckets = items[2 * first :].reshape(-1, 2).sum(axis=1)
    most, counted = int(buckets.clip(max=LARGEST).max()), rows.counts != 0
    several = int((rows.starts[counted, -1] - rows.starts[counted, 2 * first]).sum())  # items with counts
    large = np.empty((2, int((buckets // clusters.size).sum()) + several), np.int64)
    room = 0 if start is None else (int(buckets.sum()) + several) // 2 + 1  # most of the memory is never touched
    ids, facts = np.empty((room, words), np.uint64), np.empty((room, 2), np.int64)
    lengths = most + 1, (most + 1) * (words - 1), most + 1 if counted.any() else 0
    kept = tuple(np.empty(length, np.uint64) for length in lengths)
    places = (np.array([column.ctypes.data if column.size else 0], np.uint64) for column in kept)
    slots = _slots(_MARKS * most)
    marks = np.empty(max(slots, min(2 * slots, _CACHED)), np.uint8)
    stop, found, mixed = _tally(
        rows, items, (0,) * (words - 1), first, clusters, positives, marks,
        kept, Addresses(np.zeros((1, 3), np.int64), *places), np.empty(_slots(2 * most) * (1 + words), np.uint64),
        np.empty(most, np.uint64), large, start, ids, facts,
    )  # fmt: skip
    return stop, large[0, :found], large[1, :found], ids[:mixed], facts[:mixed]


def _slots(least: int) -> int:
    """Size of the table that `table_bits` chooses."""
    return 1 << max(3, (least - 1).bit_length())


@inline
def table_bits(slots):
    """Base-2 logarithm of the size of a table that holds `slots` slots; at least 3."""
    bits = 3
    while (1 << bits) < slots:
        bits += 1
    return np.uint64(bits)


@jit
def _tally(
    rows, items, further, first, clusters, positives, marks, kept, shared, table, used, large, start, ids, facts
):
    """Fill the arrays of `tally_clusters`; returns where it stopped, and the lengths of `large` and `ids`.

    Scratch: a byte for each slot; the columns of rows that share a slot, and their addresses as those of one bucket; a
    hash table of key, counts and further words; its slots in use. A key is a word shifted left with the lowest bit set,
    so it is never 0. The counts hold the negatives and, 32 bits higher, the positives, so a row changes one number.
    """
    columns, found, mixed, clean, direct, half = len(further), 0, 0, _ZERO, False, _ZERO
    for b in range(first, items.size >> 1):
        total = items[2 * b] + items[2 * b + 1]
        if not total:
            continue
        if total > LARGEST or _rows_in(rows, b, total) >= _FULL:
            return b, found, mixed
        source, bucket, stop = rows, b, total
        if not direct:
            shift = _mark(rows, b, total, marks)
            half = _keep(rows, further, 2 * b, shift, marks, kept, _ZERO)
            stop = np.int64(_keep(rows, further, 2 * b + 1, shift, marks, kept, half))
            shared.starts[0, 1], shared.starts[0, 2] = half, stop
            source, bucket = shared, 0
        keys, clean = _count(source, further, bucket, stop, table, clean, used)
        if keys < 0:
            return b, found, mixed
        if not direct:
            clusters[1] += total - stop
            positives[1] += items[2 * b + 1] - (stop - np.int64(half))
        direct = 2 * stop > total and _REPEATS * keys < total
        for k in range(keys):
            row = used[k]
            neg, pos = np.int64(table[row + _ONE] & _LOW), np.int64(table[row + _ONE] >> _HALF)
            if start is not None:
                top = np.uint64((start + b) >> _LAST_BUCKET_BIT) << _TOP  # the top bit of the key, which the shift lost
                ids[mixed, 0] = (table[row] >> _ONE) | top
                for c in range(columns):
                    ids[mixed, 1 + c] = table[row + _TWO + np.uint64(c)]
                facts[mixed, 0], facts[mixed, 1] = neg, pos
                mixed += neg > 0 and neg + pos > 1
            table[row] = table[row + _ONE] = 0
            if neg + pos < clusters.size:
                clusters[neg + pos] += 1
                positives[neg + pos] += pos
            else:
                large[0, found], large[1, found] = neg + pos, pos
                found += 1
    return items.size >> 1, found, mixed


@step
def _rows_in(rows, b, total):
    """Number of rows in a bucket of `total` items, some of which stand for several rows."""
    starts, words, _, counts = rows
    for r in range(words.size):
        column = counts[r]
        if column:
            for i in range(starts[r, 2 * b], starts[r, 2 * b + 2]):
                total += np.int64(word_at(column, i)) - 1
    return total


@step
def _mark(rows, b, total, marks):
    """Count the rows of each slot, up to 2; returns by how many bits words are shifted to give their slots."""
    starts, words, _, counts = rows
    bits = table_bits(_MARKS * total)
    bits += np.uint64(_ONE << bits < np.uint64(_CACHED))
    shift = _WORD_BITS - bits
    for slot in range(np.int64(_ONE << bits)):
        marks[slot] = 0
    for r in range(words.size):
        column, again = words[r], np.uint8(counts[r] != 0)  # a count stands for several rows
        for i in range(starts[r, 2 * b], starts[r, 2 * b + 2]):
            prefetch_at(column, i + _AHEAD)
            slot = (word_at(column, i) << _BUCKET_BITS) >> shift
            marks[slot] = _ALONE + (np.uint8(marks[slot] != 0) | again)
    return shift


@step
def _keep(rows, further, code, shift, marks, kept, stop):
    """Copy the rows of a code that share a slot, from row `stop` on; returns the end.

    If no item has a count, `kept` has no room for counts.
    """
    columns = np.uint64(len(further))
    starts, words, rest, counts = rows
    kept_words, kept_rest, kept_counts = kept
    for r in range(words.size):
        word_column, rest_column, count_column = words[r], rest[r], counts[r]
        for i in range(starts[r, code], starts[r, code + 1]):
            word = word_at(word_column, i)
            if columns:
                prefetch_at(rest_column, i * columns + _AHEAD)
            kept_words[stop] = word
            if kept_counts.size:
                kept_counts[stop] = word_at(count_column, i) if count_column else _ONE
            for c in range(columns):
                kept_rest[stop * columns + np.uint64(c)] = word_at(rest_column, i * columns + c)
            stop += np.uint64(marks[(word << _BUCKET_BITS) >> shift] != _ALONE)
    return stop


@step
def _count(rows, further, b, total, table, clean, used):
    """Count the rows of a bucket by key; returns the number of keys, or −1 if too many collide.

    The second result says up to which row the table has been cleaned. Whether a row is the first of its key is
    unpredictable, so no branch depends on it.
    """
    columns = len(further)
    starts, words, rest, counts = rows
    wide, bits = np.uint64(2 + columns), table_bits(2 * total)
    shift, mask, steps, keys, done = _WORD_BITS - bits, (_ONE << bits) - _ONE, _ZERO, _ZERO, _ZERO
    while clean <= mask:
        table[clean * wide] = table[clean * wide + _ONE] = 0
        clean += _ONE
    for code in range(2 * b, 2 * b + 2):
        side = _HALF * np.uint64(code & 1)
        for r in range(words.size):
            word_column, rest_column, count_column = words[r], rest[r], counts[r]
            for i in range(starts[r, code], starts[r, code + 1]):
                prefetch_at(word_column, i + _AHEAD)
                if columns:
                    prefetch_at(rest_column, i * columns + _AHEAD)
                key = (word_at(word_column, i) << _ONE) | _ONE
                hashed = key
                for c in range(columns):
                    hashed = (hashed ^ (hashed >> _HALF)) * _SPREAD + word_at(rest_column, i * columns + c)
                slot = ((hashed ^ (hashed >> _HALF)) * _SPREAD) >> shift
                while True:
                    at = slot * wide
                    there = table[at]
                    other = there ^ key
                    for c in range(columns):
                        other |= table[at + _TWO + np.uint64(c)] ^ word_at(rest_column, i * columns + c)
                    if not other * there:  # a key is odd, so this is 0 if one of the two is: one branch
                        break
                    slot = (slot + _ONE) & mask
                    steps += _ONE
                    if steps > _PATIENCE * (done + _PATIENCE):
                        return np.int64(-1), clean
                done += _ONE
                table[at] = key
                for c in range(columns):
                    table[at + _TWO + np.uint64(c)] = word_at(rest_column, i * columns + c)
                table[at + _ONE] += (word_at(count_column, i) if count_column else _ONE) << side
                used[keys] = at
                keys += np.uint64(there == _ZERO)
    return np.int64(keys), clean


@jit
def tally_sizes(neg, pos, clusters, positives):
    """Count clusters by size and sum their positives.

    `clusters` and `positives` are int64 tables indexed by size, updated in place; returns the sizes and positives of
    the clusters that are larger than the tables.
    """
    sizes = np.empty(neg.size, np.int64)
    large = np.empty(neg.size, np.int64)
    n = 0
    for i in range(neg.size):
        size = neg[i] + pos[i]
        if size < clusters.size:
            clusters[size] += 1
            positives[size] += pos[i]
        else:
            sizes[n] = size
            large[n] = pos[i]
            n += 1
    return sizes[:n], large[:n]


@jit
def find_undominated(lacking, top):
    """Indices of the values that fewer than `top` earlier values equal or exceed, as an int64 array."""
    found = np.empty(lacking.size, np.int64)
    n = 0
    largest = [np.int64(0) for _ in range(0)]  # a heap of the `top` largest values so far
    for i in range(lacking.size):
        if len(largest) < top:
            heapq.heappush(largest, lacking[i])
        elif lacking[i] > largest[0]:
            heapq.heapreplace(largest, lacking[i])
        else:
            continue
        found[n] = i
        n += 1
    return found[:n].copy()
