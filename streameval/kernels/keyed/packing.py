"""Delta encoding of sorted words, piece by piece.

A piece is the words of one code in ascending order. It is stored as its first word and the differences between
neighbours, each in as many bytes as the largest needs. If that is shorter, a difference takes one byte, and the byte
255 means: add 255 and the next byte. The rows of a word are stored either as differences of 0, or as a count with seven
bits per byte and the highest bit set in every byte except the last.

The bytes come from files, so every write is checked against the remaining room; damaged pieces are reported.
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.prefetch import eight_at

_ON = 255  # this byte continues a difference in the next byte
_NARROW = 1 << 16  # differences below this may be cheaper byte by byte


@jit
def _bytes_of(value):
    """Number of bytes that a number needs; 0 for 0."""
    width = 0
    while width < 8 and value >> np.uint64(8 * width):
        width += 1
    return width


@jit
def piece_starts(codes, most):
    """The first item of each piece, then the end; a piece begins where the code changes, and after `most` items."""
    count, first = 0, 0
    for i in range(codes.size):
        if i == 0 or codes[i] != codes[i - 1] or i - first == most:
            count, first = count + 1, i
    starts = np.empty(count + 1, np.int64)
    count, first = 0, 0
    for i in range(codes.size):
        if i == 0 or codes[i] != codes[i - 1] or i - first == most:
            starts[count] = i
            count, first = count + 1, i
    starts[count] = codes.size
    return starts


@jit
def measure(words, counts, starts, repeat):
    """How each piece is stored: bytes of a difference, whether it is plain, bytes of words, bytes of counts.

    A plain piece has no counts: each item is one row or, if `repeat` allows it, is repeated for every row.
    """
    n = starts.size - 1
    widths, plain = np.empty(n, np.uint8), np.empty(n, np.bool_)
    word_bytes, count_bytes = np.empty(n, np.int64), np.empty(n, np.int64)
    for j in range(n):
        most, goes_on = np.uint64(0), np.int64(0)
        rows, digits = np.int64(0), np.int64(0)
        for i in range(starts[j], starts[j + 1]):
            rows += counts[i]
            left = counts[i]
            while left:
                digits += 1
                left >>= 7
            if i > starts[j]:
                gap = np.uint64(words[i]) - np.uint64(words[i - 1])
                most = max(most, gap)
                goes_on += np.int64(min(gap, np.uint64(_NARROW))) // _ON
        items = starts[j + 1] - starts[j]
        width, more = _bytes_of(most), np.int64(0)
        if width and most < _NARROW and items - 1 + goes_on <= (items - 1) * max(width, 2):
            width, more = 1, goes_on
        repeated, counted = (rows - 1) * width, (items - 1) * width + digits
        plain[j] = rows == items or (repeat and repeated <= counted)
        widths[j] = width
        word_bytes[j] = (repeated if plain[j] else counted - digits) + more
        count_bytes[j] = 0 if plain[j] else digits
    return widths, plain, word_bytes, count_bytes


@jit
def _put(gap, width, out, at):
    """Write a difference; returns the next position."""
    if width == 1:
        while gap >= _ON:
            out[at] = _ON
            gap -= np.uint64(_ON)
            at += 1
    for b in range(width):
        out[at + b] = np.uint8((gap >> np.uint64(8 * b)) & np.uint64(255))
    return at + width


@jit
def pack(words, counts, starts, widths, plain, word_out, count_out):
    """Write all pieces, one after another, in the sizes that `measure` found."""
    at, to = 0, 0
    for j in range(starts.size - 1):
        for i in range(starts[j], starts[j + 1]):
            if i > starts[j]:
                at = _put(np.uint64(words[i]) - np.uint64(words[i - 1]), widths[j], word_out, at)
            if plain[j]:
                for _ in range(counts[i] - 1):
                    at = _put(np.uint64(0), widths[j], word_out, at)
            else:
                left = counts[i]
                while left >= 128:
                    count_out[to] = np.uint8(left & 127) | np.uint8(128)
                    left >>= 7
                    to += 1
                count_out[to] = np.uint8(left)
                to += 1


@jit
def _words(first, width, data, n, out, at):
    """Write the `n` words of a piece from `at` on; returns False unless `data` holds exactly n − 1 differences."""
    word = np.uint64(first)
    out[at] = word
    if width == 1:
        return _narrow(word, data, n, out, at)
    if width > 8 or data.size != (n - 1) * width:
        return False
    address = np.uint64(data.ctypes.data)
    mask = ~np.uint64(0) >> np.uint64(64 - 8 * width) if width else np.uint64(0)
    full = min(n - 1, (data.size - 8) // width + 1) if data.size >= 8 else 0  # those with eight bytes to read
    for i in range(full):
        word += eight_at(address, i * width) & mask
        out[at + 1 + i] = word
    for i in range(full, n - 1):
        for b in range(width):
            word += np.uint64(data[i * width + b]) << np.uint64(8 * b)
        out[at + 1 + i] = word
    return True


@jit
def _narrow(word, data, n, out, at):
    """`_words` for differences of one byte, or of several where the byte is 255."""
    ends = 0
    for i in range(data.size):
        ends += data[i] != _ON
    if ends != n - 1 or (data.size and data[-1] == _ON):
        return False
    to = np.uint64(at + 1)
    for i in range(data.size):  # overwrites the item until its difference is complete
        word += np.uint64(data[i])
        out[to] = word
        to += np.uint64(data[i] != _ON)
    return True


@jit
def _counts(data, rows, n, out):
    """Write the counts of `n` items; returns False unless `data` holds n positive counts that sum to `rows`."""
    at = 0
    for i in range(n):
        count, shift, more = np.int64(0), 0, True
        while more and at < data.size and shift < 63:
            count |= np.int64(data[at] & 127) << shift
            more = data[at] >= 128
            shift += 7
            at += 1
        rows -= count
        out[i] = count
        if more or count <= 0 or rows < 0:
            return False
    return rows == 0 and at == data.size


@jit
def _copy_further(rest, weights, item, to_rest, to_weights, at):
    """Copy an item's further words and weight."""
    for c in range(rest.shape[1]):
        to_rest[at, c] = rest[item, c]
    if weights.size:
        to_weights[at] = weights[item]


@jit
def unpack(
    places, rows, items, first, widths, words, word_starts, counts, count_starts, rest, weights, few, lone, several,
    one, one_rest, one_weights, many, many_rest, many_weights, many_counts,
):  # fmt: skip
    """Decode pieces into `one` and `many`, at the cursors of their codes, which are at `places`.

    Returns the number of pieces decoded; if that is less than all, the next piece is damaged.

    Pieces with at most `few` rows per item go to `one`, with every row as an item; others go to `many`, with counts.
    """
    most = items.max() if items.size else 0
    scratch, tally = np.empty(most, one.dtype), np.empty(most, np.int64)
    further = rest.shape[1] > 0 or weights.size > 0
    item = 0
    for j in range(places.size):
        data = words[word_starts[j] : word_starts[j + 1]]
        digits = counts[count_starts[j] : count_starts[j + 1]]
        n, together = items[j], rows[j] > few * items[j]
        cursor = several if together else lone
        at = cursor[places[j]]
        cursor[places[j]] = at + (n if together else rows[j])
        if not digits.size:  # one word per row
            if together or (further and rows[j] != n) or not _words(first[j], widths[j], data, rows[j], one, at):
                return j
            for i in range(n if further else 0):
                _copy_further(rest, weights, item + i, one_rest, one_weights, at + i)
        elif not _counts(digits, rows[j], n, tally):
            return j
        elif together:
            if not _words(first[j], widths[j], data, n, many, at):
                return j
            for i in range(n):
                many_counts[at + i] = tally[i]
                _copy_further(rest, weights, item + i, many_rest, many_weights, at + i)
        else:
            if not _words(first[j], widths[j], data, n, scratch, 0):
                return j
            for i in range(n):
                for k in range(at, at + tally[i]):
                    one[k] = scratch[i]
                    _copy_further(rest, weights, item + i, one_rest, one_weights, k)
                at += tally[i]
        item += n
    return places.size
