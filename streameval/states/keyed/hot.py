"""Counting before rows are partitioned: by the codes of dictionaries, hot keys in a small table, runs of equal keys.

In heavy-tailed data, or data with one giant cluster, a few thousand keys have a large part of the rows. They are
learned from a sample of the first rows that a builder collects: keys that occur `SEEN` times or more are hot. A hash
assigns each key to a pair of slots in a table; each pair keeps its two most frequent keys. Rows of these keys are
counted and take no further memory; all other rows are partitioned. The table affects speed and memory only: its counts
are exact, and a key may have rows both in the table and outside. Every builder learns from its own rows, so that a fold
task that is repeated elsewhere gives the same segments.

Rows of dictionary columns are counted by pair of codes, or by code and label. The pairs have a table in which each has
its place if they are few; otherwise those that occur first have a hash table that fits into the cache.

In data that is sorted by id, or written in bursts, most equal keys are in adjacent rows. Counting runs affects speed
and memory only: a key may have any number of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.kernels import segments as kernels
from streameval.kernels.jit import read_only
from streameval.kernels.keys import MIX
from streameval.states.keyed.layout import NO_COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

LEARN = 1 << 18  # rows from which keys are learned: for fewer, compiling takes longer than it saves
FULL = 1 << 31  # rows after which keys are learned again, because a count of the table has 32 bits for each label
SEEN = 3  # smallest number of rows of a hot key in the sample
# by bytes of a word: keys are learned if one row in this many has one, and kept if half as many have; moving short
# words is fast
WORTH = {2: 2, 4: 8, 8: 8}

_HALF = np.uint64((1 << 32) - 1)
_SAMPLE = 1 << 15  # approximate number of rows of the sample


class HotKeys:
    """A table that counts the rows of learned keys; owned by one builder.

    Examples
    --------
    >>> words = np.array([7, 7, 9, 7, 5, 7, 7], np.uint64)
    >>> codes, none = np.array([2, 3, 4, 2, 2, 2, 3], np.uint32), np.empty((7, 0), np.uint64)
    >>> hot = HotKeys.learned(words, none, codes, 6)
    >>> left = hot.absorb(words, none, codes)
    >>> words[:left].tolist(), codes[:left].tolist()
    ([9, 5], [4, 2])
    >>> hot.items()[0].tolist(), hot.items()[-1].tolist()
    ([2, 3], [3, 2])
    """

    def __init__(self, keys: Array, buckets: Array, dtype: np.dtype[np.generic]) -> None:
        """Create the table from the keys and buckets by slot; see `_in_slots`."""
        self._keys, self._buckets, self._dtype = keys, buckets, dtype
        words = keys.shape[1]
        self._further = tuple(range(words - 1))
        pairs = np.zeros((keys.shape[0] // 2, 2 * words + 2), np.uint64)
        pairs[:, : 2 * words] = keys.reshape(-1, 2 * words)
        self._table, self._halves = pairs.reshape(-1), pairs[:, 2 * words :]
        self._rows, self._counted = 0, 0

    @classmethod
    def learned(cls, words: Array, rest: Array, codes: Array, known: int) -> HotKeys | None:
        """The hot keys of some rows; None if these keys have too few rows. Codes from `known` on are of NaN scores."""
        step, worth = max(1, words.size // _SAMPLE), WORTH[words.itemsize]
        words, rest, codes = words[::step], rest[::step], codes[::step]
        keys, whole = _keys_of(words, rest, codes)
        ordered = np.sort(whole)
        if np.count_nonzero(ordered[SEEN - 1 :] == ordered[: 1 - SEEN]) * worth < words.size:
            return None
        order = np.argsort(whole)
        starts = np.append(np.flatnonzero(np.diff(ordered, prepend=~ordered[:1])), ordered.size)
        first, times = order[starts[:-1]], np.diff(starts)
        hot = (times >= SEEN) & (codes[first] < known)
        first, times = first[hot], times[hot]
        first = first[np.argsort(times, kind="stable")]
        return cls(*_in_slots(keys[first], codes[first] >> 1), words.dtype)

    def absorb(self, words: Array, rest: Array, codes: Array) -> int:
        """Count the rows of hot keys and move the other rows to the front; returns the number of other rows."""
        self._rows += words.size
        left: int = kernels.absorb(words, rest, codes, self._further, self._table)
        self._counted += words.size - left
        return left

    @property
    def worth(self) -> bool:
        """Whether enough rows had a hot key, or too few rows have been seen to tell; and the counts have room.

        Half as many as to learn keys are enough: otherwise, keys with about that share of the rows would be learned and
        forgotten again and again.
        """
        many = self._counted * 2 * WORTH[self._dtype.itemsize] >= self._rows
        return self._rows < LEARN or (many and self._rows < FULL)

    def items(self) -> tuple[Array, Array, Array, Array]:
        """Codes, words, further words and counts of all keys with rows, sorted by code."""
        counts = self._halves.reshape(-1)
        tally = np.column_stack((counts & _HALF, counts >> np.uint64(32))).astype(np.int64)
        slots, labels = np.nonzero(tally)
        codes = (2 * self._buckets[slots] + labels).astype(np.uint32)
        order = np.argsort(codes, kind="stable")
        slots, labels = slots[order], labels[order]
        keys = self._keys[slots]
        return codes[order], keys[:, 0].astype(self._dtype), keys[:, 1:].copy(), tally[slots, labels]


def hash_keys(columns: Sequence[Array]) -> Array:
    """Hashes of keys by which a sample of them is grouped; a collision hardly changes the sample.

    Parameters
    ----------
    columns : uint64 arrays of shape (n,), the words of the keys

    Examples
    --------
    >>> one, other, again = hash_keys([np.array([7, 7, 7], np.uint64), np.array([1, 2, 1], np.uint64)]).tolist()
    >>> one == again != other
    True
    """
    found = columns[0]
    for column in columns[1:]:
        found = (found ^ (found >> np.uint64(32))) * np.uint64(MIX) + column
    return found


def _keys_of(words: Array, rest: Array, codes: Array) -> tuple[Array, Array]:
    """Keys as a uint64 array of shape (n, words), and hashes of them."""
    first = kernels.whole_keys(words, codes)
    return np.column_stack((first, rest)), hash_keys([first, *rest.T])


def _in_slots(keys: Array, buckets: Array) -> tuple[Array, Array]:
    """Keys and their buckets by slot, from keys ordered from the least to the most frequent."""
    slots = kernels.slots_of(keys)
    table, of = np.zeros((1 << kernels.SLOT_BITS, keys.shape[1]), np.uint64), np.zeros(1 << kernels.SLOT_BITS, np.int64)
    table[:2] = ~np.uint64(0)  # a free slot holds a key of other slots, so no row is found there
    for _ in range(2):  # of the keys that share a slot, the last one keeps it
        table[slots], of[slots] = keys, buckets
        left = (table[slots] != keys).any(axis=1)
        keys, buckets, slots = keys[left], buckets[left], slots[left] + np.uint64(1)
    return table, of


_TABLE_BITS = 14  # log2 of the slots of a hash table of pairs, which stays in the second-level cache
_PLACES = 2  # mean rows per possible pair from which each has its place in a table
_NO_LABELS = np.empty(0, np.uint8)
_DRAWN, _DISTINCT = 1 << 12, 0.375  # rows that are drawn, and share of distinct pairs up to which codes are counted
LONG_RUN = 3  # mean length of runs from which rows are counted by run

_GLANCES, _GLANCE = 4, 1 << 10  # number and length of the stretches of rows that are checked for long runs


def run_starts(columns: Sequence[Array]) -> Array | None:
    """The first row of each run of equal keys; None if runs have fewer than `LONG_RUN` rows on average.

    Parameters
    ----------
    columns : unsigned arrays of shape (n,), the words of the keys; the first one is uint64

    Returns
    -------
    starts : int64 array of shape (n_runs,), ascending from 0

    Examples
    --------
    >>> words = np.repeat(np.array([7, 9, 7], np.uint64), [5, 6, 4])
    >>> run_starts([words]).tolist()
    [0, 5, 11]
    >>> run_starts([words, np.arange(15, dtype=np.uint64) % 2]) is None
    True
    """
    rows = columns[0].size
    glances = range(0, max(0, rows - _GLANCE) + 1, max(_GLANCE, rows // _GLANCES))
    if rows < LONG_RUN or not all(_has_long_runs([column[at : at + _GLANCE] for column in columns]) for at in glances):
        return None
    starts = np.flatnonzero(_begins_run(columns))
    return starts if starts.size * LONG_RUN <= rows else None


def _begins_run(columns: Sequence[Array]) -> Array:
    """Whether each row differs from the one before it."""
    differs = np.append(True, np.logical_or.reduce([column[1:] != column[:-1] for column in columns]))
    return differs[: columns[0].size]


def _has_long_runs(columns: Sequence[Array]) -> bool:
    """Whether runs are long in a stretch of rows, and not only those of a few hot keys, which `hot` counts faster."""
    keys = hash_keys(columns)
    first = keys[_begins_run([keys])]
    return bool(first.size * LONG_RUN <= keys.size and np.unique(first).size * 2 > first.size)


def by_code(arrays: Sequence[pa.Array], label: Array = _NO_LABELS) -> tuple[list[pa.Array], Array, Array]:
    """Arrays, counts and labels of items if the rows have few pairs of codes; otherwise the rows, with empty counts.

    A pair, of the codes of two dictionary arrays or of a code and a label, may be several items.

    Examples
    --------
    >>> array = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 1, 1, None, 0, 1] * 2), [7, 9])
    >>> [items], counts, label = by_code([array], np.array([0, 1, 0, 1, 0, 1, 1, 1] * 2, np.uint8))
    >>> items.to_pylist(), counts.tolist(), label.tolist()
    ([7, 9, 9, None], [4, 6, 4, 2], [1, 0, 1, 1])
    """
    if not all(pa.types.is_dictionary(array.type) and len(array.dictionary) <= len(array) for array in arrays):
        return [*arrays], NO_COUNTS, label
    columns = [(_codes_of(array), len(array.dictionary) + 1) for array in arrays]
    items = _count_pairs(*[*columns, (read_only(label), 2)][:2])
    if items is None:
        return [*arrays], NO_COUNTS, label
    counts, *codes = items
    entries = [_entries_of(array, code) for array, code in zip(arrays, codes, strict=False)]
    return entries, counts, codes[1] if len(arrays) == 1 else label


def _entries_of(array: pa.DictionaryArray, codes: Array) -> pa.DictionaryArray:
    """The entries of some codes of an array, as `_codes_of` gives them."""
    nulls = codes == len(array.dictionary) if array.null_count else None
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=nulls), array.dictionary, safe=False)


def _codes_of(array: pa.DictionaryArray) -> Array:
    """The codes of an array, int32; a null has the one after those of all entries."""
    codes = array.indices
    if codes.null_count:
        codes = pc.fill_null(codes.cast(pa.int32()), len(array.dictionary))
    return read_only(codes.to_numpy().astype(np.int32, copy=False))


def _count_pairs(first: tuple[Array, int], second: tuple[Array, int]) -> tuple[Array, Array, Array] | None:
    """Rows and both codes of pairs, given the codes of two columns and their numbers; None if hardly any are equal."""
    (one, height), (two, width) = first, second
    items: tuple[Array, Array, Array] | None = None
    if _PLACES * height * width <= one.size:
        items = kernels.tally_pairs(one, two, height, width)
    elif one.size < 1 << kernels.PAIR_BITS and height * width < 1 << (63 - kernels.PAIR_BITS):
        some = slice(None, None, max(1, one.size // _DRAWN))
        drawn = one[some].astype(np.int64) * width + two[some]
        if np.unique(drawn).size <= _DISTINCT * drawn.size:
            bits = min(_TABLE_BITS, (2 * one.size).bit_length())
            items = kernels.hash_pairs(one, two, (width - 1).bit_length(), bits)
    return items


def by_run(
    columns: Sequence[Array], counts: Array = NO_COUNTS, label: Array | None = None
) -> tuple[Sequence[Array], Array, Array | None]:
    """Keys, counts and labels of runs if runs are long; otherwise the rows unchanged, and items that have counts.

    A run that has both labels is an item for each.

    Examples
    --------
    >>> label = np.array([0, 1, 0, 1, 1, *([0] * 10)], np.uint8)
    >>> [words], counts, labels = by_run([np.repeat(np.array([7, 9, 7], np.uint64), [5, 6, 4])], label=label)
    >>> words.tolist(), counts.tolist(), labels.tolist()
    ([7, 7, 9, 7], [2, 3, 6, 4], [0, 1, 0, 0])
    """
    starts = None if counts.size else run_starts(columns)
    if starts is None:
        return columns, counts, label
    lengths = np.diff(starts, append=columns[0].size)
    if label is None:
        return [column[starts] for column in columns], lengths, None
    positives = np.diff(np.cumsum(label, dtype=np.int64)[starts + lengths - 1], prepend=0)
    counts = np.column_stack((lengths - positives, positives))
    runs, labels = np.nonzero(counts)
    return [column[starts[runs]] for column in columns], counts[runs, labels], labels.astype(np.uint8)
