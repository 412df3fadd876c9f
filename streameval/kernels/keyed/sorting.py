"""Sort 64-bit words; for shorter words NumPy has a radix sort.

Of the bits in which words differ, only the leading ones matter to nearly all of them: a radix sort by two digits of at
most 11 bits leaves few words out of order, and these are moved by insertion. Sorting by all digits took twice the time
on float64 scores, of whose 46 bits per bucket the lower half hardly ever decides. If words share their leading bits, so
that insertion would take many moves, NumPy sorts them.

`sorted_order` scatters words by their leading bits, which are uniform in mixed ids, to places of a few words each; a
place is sorted by insertion, or by NumPy if it is large.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit

__all__ = ["sort_words", "sorted_order", "sorted_words"]

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_FEW = 1 << 8  # fewer words are sorted by NumPy
_MOST = 1 << 21  # more words have many neighbours out of order after two digits
_DIGIT = 11  # largest number of bits of a digit: the counts of both digits stay in the first-level cache
_BEYOND = 5  # leading bits beyond those that number the words, so that few of these are out of order
_EACH = 2  # log2 of the mean number of words of a place
_SHORT = 48  # words of a place that is sorted by insertion


def sorted_words(words: np.ndarray) -> np.ndarray:
    """Words in ascending order, as a new array.

    Parameters
    ----------
    words : unsigned array of shape (n,)

    Examples
    --------
    >>> sorted_words(np.array([7, 2**40, 3, 2**40 + 1, 3], np.uint64)).tolist()
    [3, 3, 7, 1099511627776, 1099511627777]
    """
    out = words.copy()
    sort_words(out, np.empty_like(out))
    return out


def sort_words(words: np.ndarray, spare: np.ndarray) -> None:
    """Sort words in place.

    Parameters
    ----------
    words : contiguous unsigned array of shape (n,)
    spare : scratch of the same type and at least the same size

    Examples
    --------
    >>> words = np.array([7, 2**40, 3], np.uint64)
    >>> sort_words(words, np.empty(3, np.uint64))
    >>> words.tolist()
    [3, 7, 1099511627776]
    """
    if words.itemsize < 8 or not _FEW <= words.size <= _MOST:
        words.sort()
        return
    if not _sort_leading(words, spare, np.zeros((2, 1 << _DIGIT), np.uint32)):
        words.sort()


def sorted_order(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words in ascending order, and the index of each in the input; equal words are in any order.

    Parameters
    ----------
    words : unsigned array of shape (n,)

    Examples
    --------
    >>> sorted_order(np.array([7, 2**40, 3], np.uint64))
    (array([            3,             7, 1099511627776], dtype=uint64), array([2, 0, 1]))
    """
    if words.size < _FEW or words.itemsize < 8:
        order = np.argsort(words)
        return words[order], order
    low, shift, starts = _places(words)
    out, order = np.empty_like(words), np.empty(words.size, np.int64)
    _scatter_order(words, low, shift, starts, np.empty(starts.size - 1, np.int64), out, order)
    for place in np.flatnonzero(np.diff(starts) > _SHORT).tolist():
        here = slice(starts[place], starts[place + 1])
        at = np.argsort(out[here])
        out[here], order[here] = out[here][at], order[here][at]
    return out, order


def _places(words: np.ndarray) -> tuple[np.uint64, np.uint64, np.ndarray]:
    """The smallest word, the number of bits below those that choose a place, and zeros for the starts of places."""
    low, high = words.min(), words.max()
    shift = np.uint64(max(0, int(high - low).bit_length() - (words.size.bit_length() - _EACH)))
    return low, shift, np.zeros(int((high - low) >> shift) + 2, np.int64)


@jit
def _sort_leading(words, spare, counts):
    """Sort words in place by two digits of the leading bits in which they differ, then by insertion.

    `counts` is a uint32 array of zeros of shape (2, 2 ** `_DIGIT`). Returns False, with the words in any order, if
    insertion takes more moves than there are words.
    """
    size, differ = words.size, _ZERO
    for i in range(size):
        differ |= words[i] ^ words[0]
    length, enough = 0, _BEYOND
    while length < 64 and differ >> np.uint64(length):
        length += 1
    while size >> (enough - _BEYOND):
        enough += 1
    half = min(_DIGIT, (min(length, enough) + 1) // 2)
    bits, shift = np.uint64(half), np.uint64(max(0, length - 2 * half))
    upper_shift, mask, lower, upper = shift + bits, (_ONE << bits) - _ONE, counts[0], counts[1]
    for i in range(size):
        word = words[i]
        lower[(word >> shift) & mask] += np.uint32(1)
        upper[(word >> upper_shift) & mask] += np.uint32(1)
    before, above = np.uint32(0), np.uint32(0)
    for value in range(np.int64(mask) + 1):
        lower[value], before = before, before + lower[value]
        upper[value], above = above, above + upper[value]
    for i in range(size):
        word = words[i]
        value = (word >> shift) & mask
        at = lower[value]
        lower[value] = at + np.uint32(1)
        spare[np.uint64(at)] = word
    for i in range(size):
        word = spare[i]
        value = (word >> upper_shift) & mask
        at = upper[value]
        upper[value] = at + np.uint32(1)
        words[np.uint64(at)] = word
    moves = 0
    for i in range(1, size):
        word, at = words[i], i
        while at > 0 and words[at - 1] > word:
            words[at] = words[at - 1]
            at -= 1
        words[at] = word
        moves += i - at
        if moves > size:
            return False
    return True


@inlined
def _count(words, low, shift, starts, cursor):
    """Count the start of each place; `cursor` takes a copy that may advance."""
    for i in range(words.size):
        starts[((words[i] - low) >> shift) + _ONE] += 1
    for place in range(1, starts.size):
        starts[place] += starts[place - 1]
        cursor[place - 1] = starts[place - 1]


@jit
def _scatter_order(words, low, shift, starts, cursor, out, order):
    """Scatter words, and sort places of at most `_SHORT`; `order` takes the index of each word.

    `cursor` is scratch, one shorter than `starts`.
    """
    _count(words, low, shift, starts, cursor)
    for i in range(words.size):
        place = (words[i] - low) >> shift
        at = np.uint64(cursor[place])
        cursor[place] = at + _ONE
        out[at] = words[i]
        order[at] = i
    for place in range(starts.size - 1):
        a, b = starts[place], starts[place + 1]
        for i in range(a + 1, b if b - a <= _SHORT else a):
            word, row, at = out[i], order[i], i
            while at > a and out[at - 1] > word:
                out[at] = out[at - 1]
                order[at] = order[at - 1]
                at -= 1
            out[at] = word
            order[at] = row
