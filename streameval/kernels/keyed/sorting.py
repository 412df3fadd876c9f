"""Sort 64-bit words; for shorter words NumPy has a radix sort.

Of the bits in which words differ, only the leading ones matter to nearly all of them: a radix sort by two digits of at
most 11 bits leaves few words out of order, and these are moved by insertion. Sorting by all digits took twice the time
on float64 scores, of whose 46 bits per bucket the lower half hardly ever decides. If words share their leading bits, so
that insertion would take many moves, NumPy sorts them.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.prefetch import LINE, prefetch

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_FEW = 1 << 8  # fewer words are sorted by NumPy
_MOST = 1 << 21  # more words have many neighbours out of order after two digits
_DIGIT = 11  # largest number of bits of a digit: the counts of both digits stay in the first-level cache
_LINE_WORDS = LINE // 8
_BEYOND = 5  # leading bits beyond those that number the words, so that few of these are out of order


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
        prefetch(spare, np.int64(at) + _LINE_WORDS)
    for i in range(size):
        word = spare[i]
        value = (word >> upper_shift) & mask
        at = upper[value]
        upper[value] = at + np.uint32(1)
        words[np.uint64(at)] = word
        prefetch(words, np.int64(at) + _LINE_WORDS)
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
