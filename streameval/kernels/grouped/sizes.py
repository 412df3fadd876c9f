"""Count the clusters of all rows and of every group by size, bucket by bucket, directly from the segments.

A row is a cell, the key of a cluster with the code of a group, which takes the lowest bits of the last word
(`streameval.kernels.blocks.clusters`) or all of it. As in
`streameval.kernels.keyed.sizes`, a row that is alone in its slot is a singleton, of all rows and of its group. The
others are counted in a hash table of clusters, each with the group of its rows, or `_SHARED` if several groups have
rows in it. Rows of shared clusters are counted again, by cluster and group; these are the rows of cut clusters.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.keyed.sizes import LARGEST, table_bits
from streameval.kernels.prefetch import word_at

_SPREAD = np.uint64(0xD6E8FEB86659FD93)
_NONE, _ONE, _HALF, _WORD_BITS = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(64)
_MARKS = 4  # least number of slots per marked row
_PATIENCE = 32  # mean probes per row; more suggest that keys were chosen to collide
_SHARED = np.uint64(0)  # no group; groups are numbered from 1
_KEY, _NEG, _OWNER, _FURTHER = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(4)  # columns of a table


@inlined
def _spread(key, bits):
    """Slot at which the search for a key begins."""
    return ((key ^ (key >> _HALF)) * _SPREAD) >> (_WORD_BITS - bits)


@inlined
def _items_of(starts, code, stop):
    """Number of items with codes from `code` to before `stop`, over all segments."""
    items = np.int64(0)
    for r in range(starts.shape[0]):
        items += starts[r, stop] - starts[r, code]
    return items


@inlined
def _mark(rows, b, known, shift, marks):
    """Count the items of each slot, up to 2; an item with a count counts as several."""
    for r in range(rows.starts.shape[0]):
        words, again = rows.words[r], np.uint8(rows.counts[r] != 0)
        for i in range(rows.starts[r, 2 * b], rows.starts[r, 2 * b + 2]):
            slot = (word_at(words, i) << known) >> shift
            marks[slot] = np.uint8(1) + (np.uint8(marks[slot] != 0) | again)


@inlined
def _keep(rows, owners, b, columns, code_bits, known, shift, marks, kept, tags, alone):
    """Count the items of a bucket that are alone in their slots; write the others to `kept`, and return how many."""
    n = np.uint64(0)
    for r in range(rows.starts.shape[0]):
        words, rest, counts = rows.words[r], rows.rest[r], rows.counts[r]
        for label in range(2):
            for i in range(rows.starts[r, 2 * b + label], rows.starts[r, 2 * b + label + 1]):
                word = last = word_at(words, i)
                kept[n, 0] = ((word << _ONE) if columns else (word & ~code_bits)) | _ONE
                kept[n, 1] = word_at(counts, i) if counts else _ONE
                for c in range(columns):
                    last = word_at(rest, i * columns + c)
                    kept[n, 2 + c] = last & ~(code_bits if c == columns - 1 else _NONE)
                tag = 2 * owners[last & code_bits] + label
                tags[n] = tag
                shared = np.uint64(marks[(word << known) >> shift] != 1)
                alone[tag] += np.int64(_ONE - shared)
                n += shared
    return np.int64(n)


@inlined
def _count(kept, tags, stop, columns, table, bits, used, places):
    """Count kept items by cluster; returns the number of clusters, or −1 if they collide too often."""
    mask, steps, keys = (_ONE << bits) - _ONE, np.int64(0), 0
    for i in range(stop):
        key = kept[i, 0]
        mixed = key
        for c in range(columns):
            mixed = (mixed ^ (mixed >> _HALF)) * _SPREAD + kept[i, 2 + c]
        at, owner = _spread(mixed, bits), np.uint64(tags[i] >> 1)
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
            table[at, _KEY], table[at, _OWNER] = key, owner
            table[at, _NEG] = table[at, _NEG + _ONE] = 0
            for c in range(columns):
                table[at, _FURTHER + np.uint64(c)] = kept[i, 2 + c]
            used[keys] = at
            keys += 1
        elif table[at, _OWNER] != owner:
            table[at, _OWNER] = _SHARED
        table[at, _NEG + np.uint64(tags[i] & 1)] += kept[i, 1]
        places[i] = at
    return keys


@inlined
def _count_parts(kept, tags, stop, table, places, parts, bits, used):
    """Count the items of shared clusters by cluster and group; returns the number of such pairs."""
    mask, pairs = (_ONE << bits) - _ONE, 0
    for i in range(stop):
        if table[places[i], _OWNER] != _SHARED:
            continue
        key = (places[i] << _HALF) | np.uint64(tags[i] >> 1)
        at = _spread(key * _SPREAD, bits)
        while parts[at, _KEY] and parts[at, _KEY] != key:
            at = (at + _ONE) & mask
        if not parts[at, _KEY]:
            parts[at, _KEY] = key
            parts[at, _NEG] = parts[at, _NEG + _ONE] = 0
            used[pairs] = at
            pairs += 1
        parts[at, _NEG + np.uint64(tags[i] & 1)] += kept[i, 1]
    return pairs


@inlined
def _add(size, pos, owner, clusters, positives, large, found):
    """Add a cluster to the tables of all rows or of a group; returns how many were too large for the tables."""
    if size < clusters.shape[0]:
        clusters[size, owner] += 1
        positives[size, owner] += pos
        return found
    large[found, 0], large[found, 1], large[found, 2] = owner, size, pos
    return found + 1


@step
def _add_alone(alone, clusters, positives):
    """Add the singletons, counted by tag, to the tables, and clear their counts."""
    for tag in range(2, alone.size):
        for owner in (0, tag >> 1):
            clusters[1, owner] += alone[tag]
            positives[1, owner] += alone[tag] * (tag & 1)
        alone[tag] = 0


@step
def _add_whole(table, used, keys, clusters, positives, large, found):
    """Add each cluster to the tables of all rows, and of its group if it has one; returns how many were too large."""
    for k in range(keys):
        at = used[k]
        pos = np.int64(table[at, _NEG + _ONE])
        size, owner = np.int64(table[at, _NEG]) + pos, np.int64(table[at, _OWNER])
        found = _add(size, pos, 0, clusters, positives, large, found)
        if owner:
            found = _add(size, pos, owner, clusters, positives, large, found)
    return found


@step
def _add_parts(parts, used, pairs, clusters, positives, cut, large, found):
    """Add the part of a cut cluster in each group to the tables of the group; returns how many were too large."""
    for k in range(pairs):
        at = used[k]
        pos, owner = np.int64(parts[at, _NEG + _ONE]), np.int64(parts[at, _KEY] & ((_ONE << _HALF) - _ONE))
        size = np.int64(parts[at, _NEG]) + pos
        found = _add(size, pos, owner, clusters, positives, large, found)
        cut[owner] += size
        parts[at, _KEY] = 0
    return found


@inlined
def _room(rows, first, small):
    """Items in the largest bucket to count, and an upper bound on the clusters with at least `small` rows."""
    most, room = np.int64(0), np.int64(0)
    for b in range(first, (rows.starts.shape[1] - 1) // 2):
        items = _items_of(rows.starts, 2 * b, 2 * b + 2)
        most = max(most, min(items, LARGEST))
        room += items // small
        for r in range(rows.starts.shape[0]):
            if rows.counts[r]:
                room += rows.starts[r, 2 * b + 2] - rows.starts[r, 2 * b]
    return most, 2 * room


@inlined
def _cleared(table, clean, bits):
    """Clear the part of a table that is used for the first time; returns how much of it is clear."""
    for at in range(clean, 1 << bits):
        table[at, 0] = 0
    return max(clean, 1 << bits)


@jit
def tally_groups(rows, owners, further, code_bits, known, first, clusters, positives, cut):
    """Count the clusters of each bucket by size and sum their positives, for all rows and for each group.

    Parameters
    ----------
    rows : `streameval.kernels.singletons.Addresses` of the buckets
    owners : int64 array of shape (n_codes,), the group of each code, from 1 on; all rows together are group 0
    further : tuple whose length is the number of further words in a key
    code_bits : uint64, the bits of the last word that hold the code
    known : uint64, the number of the highest bits of the first word that are equal in a bucket
    first : number of the first bucket to count
    clusters, positives : int64 arrays of shape (n_sizes, n_groups + 1), updated in place
    cut : int64 array of shape (n_groups + 1,), rows of each group in clusters shared with other groups; updated in
        place

    Returns
    -------
    stop : the first bucket that was not counted, because it has more than `LARGEST` items or colliding keys
    large : int64 array of shape (n, 3): group, size and positives of clusters too large for the tables
    """
    columns, buckets = len(further), (rows.starts.shape[1] - 1) // 2
    most, room = _room(rows, first, clusters.shape[0])
    marks = np.empty(1 << table_bits(_MARKS * most), np.uint8)
    kept, tags = np.empty((most + 1, 2 + columns), np.uint64), np.empty(most + 1, np.int64)
    places, used, used_parts = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(most, np.uint64)
    table = np.empty((1 << table_bits(2 * most), 4 + columns), np.uint64)
    parts = np.empty((table.shape[0], 3), np.uint64)
    large, found, clean, parts_clean = np.empty((room, 3), np.int64), 0, 0, 0
    alone = np.zeros(2 * clusters.shape[1], np.int64)
    for b in range(first, buckets):
        items = _items_of(rows.starts, 2 * b, 2 * b + 2)
        if items > LARGEST:
            return b, large[:found]
        bits = table_bits(_MARKS * items)
        marks[: 1 << bits] = 0
        _mark(rows, b, known, _WORD_BITS - bits, marks)
        n = _keep(rows, owners, b, columns, code_bits, known, _WORD_BITS - bits, marks, kept, tags, alone)
        bits = table_bits(2 * n)
        clean = _cleared(table, clean, bits)
        keys = _count(kept, tags, n, columns, table, bits, used, places)
        if keys < 0:
            return b, large[:found]
        _add_alone(alone, clusters, positives)
        parts_clean = _cleared(parts, parts_clean, bits)
        found = _add_whole(table, used, keys, clusters, positives, large, found)
        pairs = _count_parts(kept, tags, n, table, places, parts, bits, used_parts)
        found = _add_parts(parts, used_parts, pairs, clusters, positives, cut, large, found)
        for k in range(keys):
            table[used[k], _KEY] = 0
    return buckets, large[:found]
