"""Look ids up in a table of many: a filter that stays in the cache, then sorted words behind a directory.

Ids are words that look random (`streameval.kernels.keys.scramble`). A table of n ids has

- a filter of about a byte per id: two bits for each id within one word, so that a row without an entry costs one read,
  and about 3 % of these rows pass;
- the first words of all ids, sorted, and the second ones if ids are hashed to 128 bits;
- the start of each range of equal leading bits, with one to two ids per range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streameval.kernels.jit import inline, jit
from streameval.kernels.keys import scramble

ABSENT = 255  # code of rows whose id is not in the table
_BIT, _OTHER, _BITS = np.uint64(6), np.uint64(12), np.uint64(63)


class IdTable(NamedTuple):
    """A table of n distinct ids.

    Attributes
    ----------
    first : uint64 array of shape (n,), ascending
    second : uint64 array of shape (n,), or (0,) if the first words identify the ids
    codes : uint8 array of shape (n,), below `ABSENT`; or uint32, below its largest number
    starts : uint32 array, the first id of each range, and n
    marks : uint64 array, the filter
    """

    first: np.ndarray
    second: np.ndarray
    codes: np.ndarray
    starts: np.ndarray
    marks: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, codes: np.ndarray) -> IdTable:
        """The table of distinct ids in ascending order of their first words.

        Examples
        --------
        >>> words = scramble_words(np.arange(1000, dtype=np.uint64))
        >>> words.sort()
        >>> table = IdTable.of(words, words[:0], np.zeros(1000, np.uint8))
        >>> seen = np.zeros(1000, np.bool_)
        >>> asked = np.array([words[7], words[7] + np.uint64(1)])
        >>> codes = find_codes(asked, asked[:0], np.zeros(0, np.bool_), False, *table, seen)
        >>> codes.tolist(), np.flatnonzero(seen).tolist()
        ([0, 255], [7])
        """
        marks = no_marks(first.size)
        mark_words(first, marks)
        return cls(first, second, codes, range_starts(first), marks)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(array.nbytes for array in self)


def no_marks(ids: int) -> np.ndarray:
    """The empty filter for a number of ids, of one to two bytes each."""
    return np.zeros(1 << max(0, (ids >> 3).bit_length()), np.uint64)


@jit
def scramble_words(words):
    """Permute 64-bit words so that they look random; returns a uint64 array."""
    out = np.empty(words.size, np.uint64)
    for i in range(words.size):
        out[i] = scramble(words[i])
    return out


@inline
def _marks_of(word):
    """The two bits of a word in its place of the filter."""
    return (np.uint64(1) << (word & _BITS)) | (np.uint64(1) << ((word >> _BIT) & _BITS))


@jit
def range_starts(words):
    """The `IdTable.starts` of words."""
    shift, ranges = np.uint64(63), 2
    while ranges <= words.size:
        ranges *= 2
        shift -= np.uint64(1)
    starts = np.zeros(ranges + 1, np.uint32)
    for i in range(words.size):
        starts[(words[i] >> shift) + np.uint64(1)] += np.uint32(1)
    for place in range(ranges):
        starts[place + 1] += starts[place]
    return starts


@inline
def _shift_of(starts):
    """By how many bits a word is shifted to give its range."""
    shift, ranges = np.uint64(64), starts.size - 1
    while ranges > 1:
        ranges >>= 1
        shift -= np.uint64(1)
    return shift


@jit
def mark_words(words, marks):
    """Set the bits of all words in the filter."""
    last = np.uint64(marks.size - 1)
    for i in range(words.size):
        marks[(words[i] >> _OTHER) & last] |= _marks_of(words[i])


@jit
def order_words(words):
    """Sort words that look random; returns their order, an int64 array, and the sorted words.

    They are scattered to ranges by their leading bits, then sorted by insertion within each range. There is about one
    distinct word per range, so this takes time proportional to the words, even if they are repeated.
    """
    ends = range_starts(words)
    shift = _shift_of(ends)
    order, ascending = np.empty(words.size, np.int64), np.empty(words.size, np.uint64)
    for i in range(words.size):  # `ends` are the starts of the ranges before, and their ends afterwards
        place = words[i] >> shift
        at = np.int64(ends[place])
        ends[place] += np.uint32(1)
        order[at], ascending[at] = i, words[i]
    at = np.int64(0)
    for place in range(ends.size - 1):
        low = at
        while at < ends[place]:
            word, i, to = ascending[at], order[at], at
            while to > low and ascending[to - 1] > word:
                ascending[to], order[to] = ascending[to - 1], order[to - 1]
                to -= 1
            ascending[to], order[to] = word, i
            at += 1
    return order, ascending


@jit
def find_marked(words, valid, raw, marks):
    """The rows, an int32 array, with an id that passes the filter, and their scrambled words; see `find_codes`."""
    rows, asked, count = np.empty(words.size, np.int32), np.empty(words.size, np.uint64), 0
    last = np.uint64(marks.size - 1)
    for i in range(words.size):
        word = scramble(words[i]) if raw else words[i]
        bits = _marks_of(word)
        rows[count], asked[count] = i, word
        passes = (marks[(word >> _OTHER) & last] & bits) == bits
        count += np.int64(passes and (valid.size == 0 or valid[i]))
    return rows[:count], asked[:count]


_BLOCK = 64  # rows that are looked up at a time, so that their cache misses overlap


@jit
def find_codes(words, rest, valid, raw, first, second, codes, starts, marks, seen):
    """The code of each id, the largest number of their type if the table lacks it; sets ``seen`` for ids that occur.

    Parameters
    ----------
    words, rest : uint64 arrays, both words of the ids of n rows; `rest` is empty if `second` is
    valid : bool array of shape (n,), false for null ids; empty if there are none
    raw : whether words are not scrambled yet
    first, second, codes, starts, marks : see `IdTable`
    seen : bool array, one for each id of the table, updated in place
    """
    out = np.empty(words.size, codes.dtype)
    out[:] = -1
    if not first.size:
        return out
    rows, asked = find_marked(words, valid, raw, marks)
    count = rows.size
    shift = _shift_of(starts)
    places, found = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint64)
    for begin in range(0, count, _BLOCK):
        size = min(_BLOCK, count - begin)
        for k in range(size):
            places[k] = starts[asked[begin + k] >> shift]
        for k in range(size):
            found[k] = first[min(np.int64(places[k]), first.size - 1)]
        for k in range(size):
            i, word = rows[begin + k], asked[begin + k]
            end, j = starts[(word >> shift) + np.uint64(1)], places[k]
            while j < end and (first[j] != word or (second.size > 0 and second[j] != rest[i])):
                j += np.uint32(1)
            if j < end:
                out[i] = codes[j]
                seen[j] = True
    return out


@jit
def find_tags(words, starts, tags):
    """The rows, an int64 array, that have the range and the tag of a word; repeated if several words have them.

    Parameters
    ----------
    words : uint64 array
    starts : uint32 array of shape (2**bits + 1,), the first row of each range of words with equal leading bits
    tags : uint16 array, the next bits of the word of each row
    """
    bits = np.uint64(64) - _shift_of(starts)
    rows, count = np.empty(64 + words.size, np.int64), 0
    for i in range(words.size):
        place, tag = np.int64(words[i] >> (np.uint64(64) - bits)), np.uint16((words[i] << bits) >> np.uint64(48))
        for row in range(starts[place], starts[place + 1]):
            if tags[row] == tag:
                if count == rows.size:
                    rows = np.append(rows, np.empty_like(rows))
                rows[count] = row
                count += 1
    return rows[:count]
