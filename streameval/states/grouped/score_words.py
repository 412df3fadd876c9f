"""Words of interleaved groups: part of a score's rank key in the high bits, the code of a group (*cell*) in the low.

*Narrow* words have 32 bits: the lower half of a 32-bit key, and 15 bits for the cell. *Wide* words have 64 bits: a
whole 32-bit key, and 32 bits for the cell. *Long* words have 64 bits: the distance of a 64-bit key from the base of its
bucket, and 15 bits for the cell (`streameval.states.scores.long_words`). Narrow and long words have one spare bit,
for the label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Computed
from streameval.kernels.grouped import interleave, long, sweep
from streameval.kernels.grouped.sweep import CELL_BITS
from streameval.kernels.keys import SCORE_BUCKETS, encode_f8
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.layout import NO_COUNTS, Layout
from streameval.states.scores.long_words import LONG_LAYOUT, bases, near_buckets, whole_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.budget import Buffer
    from streameval.states.keyed.layout import Segment
    from streameval.states.scores.counts import ScoreSpec
    from streameval.typing import Array

    Encode = Callable[[slice, Array, Array], None]  # fills words and codes of some rows

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_CELL = np.uint64((1 << CELL_BITS) - 1)


@dataclass(frozen=True)
class Words:
    """A form of words, for 32-bit keys.

    Attributes
    ----------
    layout : layout of segments with these words, without weights
    encode_f4, encode_keys : loops that fill words and codes, from the bits of float32 scores and from keys
    """

    layout: Layout
    encode_f4: Any
    encode_keys: Any

    @property
    def low(self) -> Any:
        """Mask of the cell in a word."""
        return self.layout.dtype.type((1 << self.layout.tag) - 1)

    def recoded(self, table: Array, words: Array) -> Array:
        """Words with each cell replaced by ``table[cell]``."""
        found: Array = interleave.recoded(words, table, self.low)
        return found

    def stored(self, inner: ScoreSpec) -> Layout:
        """The layout of these words together with the weights of the inner state."""
        return replace(self.layout, weighted=inner.weighted)

    def of_numbers(self, values: Array, raw: Array, table: Array, label: Array, kind: str) -> Encode | None:
        """A function that encodes rows from their scores and cells, ``table[raw]``; None if a key does not fit."""
        bits = values.view(np.uint32)
        return lambda i, *out: self.encode_f4(bits[i], raw[i], table, label[i], *out)

    def of_keys(self, keys: Array, raw: Array, table: Array, label: Array, inner: ScoreSpec) -> Encode | None:
        """As `of_numbers`, from rank keys."""
        return lambda i, *out: self.encode_keys(keys[i], raw[i], table, label[i], *out)

    def inner_words(self, kind: str, segment: Segment) -> Buffer:
        """The words of the inner state for the words of a segment: the 16 bits above the cell."""
        return segment.words.computed(partial(_upper, self.layout.tag), np.uint16)

    def bases(self, kind: str, codes: Array) -> Array:
        """For each code, the number to add to the keys in the words of its rows, as a uint64 array."""
        return np.zeros(codes.size, np.uint64)

    def wide_words(self, segment: Segment, start: int = 0, stop: int | None = None) -> Array:
        """The words `start` to `stop` of a segment as wide words."""
        words = segment.words.read(start, stop)
        if self.layout.bits == 64:
            return words
        starts = np.clip(segment.starts, start, start + words.size) - start
        wide: Array = sweep.wide_words(words, starts, segment.codes)
        return wide

    def keys_and_cells(self, kind: str, segment: Segment) -> tuple[Array, Array]:
        """The rank keys and the cells of the words of a segment."""
        words = self.wide_words(segment)
        return words >> _HALF, words & _LOW

    def sort(self, words: Array, starts: Array, spare: Array, low: Any) -> None:
        """Sort the words of each bucket in place."""
        sweep.sort_words(words, starts, spare, low)

    def counted(self, words: Array, starts: Array, buckets: Array, kind: str) -> Counts:
        """Sorted words of some buckets, with labels, as wide words with counts."""
        keys, neg, pos = sweep.narrow_ties(words, starts, buckets)
        return Counts(keys, np.empty((keys.size, 0), np.uint64), neg, pos)

    def joined(self, words: Array, starts: Array, buckets: Array, kind: str, counted: Sequence[Segment]) -> Counts:
        """As `counted`, together with the rows of segments with counts; a word may repeat."""
        found = [self.counted(words, starts, buckets, kind)]
        found += [Counts(self.wide_words(each), found[0].rest[:0], *_by_label(each)) for each in counted]
        keys, neg, pos = (np.concatenate([getattr(each, name) for each in found]) for name in ("keys", "neg", "pos"))
        order = np.argsort(keys)
        return Counts(keys[order], np.empty((keys.size, 0), np.uint64), neg[order], pos[order])


class _LongWords(Words):
    """The form of words for 64-bit keys."""

    def of_numbers(self, values: Array, raw: Array, table: Array, label: Array, kind: str) -> Encode | None:
        """As `Words.of_numbers`, from float64 scores."""
        if not long.fit_f8(values.view(np.uint64)):
            return None

        def encode(part: slice, words: Array, codes: Array) -> None:
            encode_f8(values[part], label[part], words, codes)
            long.shorten(words, codes, raw[part], table, bases(kind))

        return encode

    def of_keys(self, keys: Array, raw: Array, table: Array, label: Array, inner: ScoreSpec) -> Encode | None:
        """As `Words.of_keys`, from 64-bit rank keys."""
        buckets = near_buckets(inner, keys)
        if buckets is None:
            return None

        def encode(part: slice, words: Array, codes: Array) -> None:
            words[:], codes[:] = keys[part], (buckets[part] << np.uint32(1)) | label[part]
            long.shorten(words, codes, raw[part], table, bases(inner.type))

        return encode

    def inner_words(self, kind: str, segment: Segment) -> Buffer:
        """The whole keys."""
        return Computed(segment.words.shape, np.dtype(np.uint64), partial(whole_keys, kind, segment))

    def bases(self, kind: str, codes: Array) -> Array:
        """The bases of the buckets."""
        found: Array = bases(kind)[codes >> 1]
        return found

    def keys_and_cells(self, kind: str, segment: Segment) -> tuple[Array, Array]:
        """The whole keys and the cells."""
        return whole_keys(kind, segment), segment.words.read() & _CELL

    def sort(self, words: Array, starts: Array, spare: Array, low: Any) -> None:
        """Sort the words of each bucket in place."""
        long.sort_words(words, starts, spare, low)

    def counted(self, words: Array, starts: Array, buckets: Array, kind: str) -> Counts:
        """As `tied`."""
        return tied(*long.ties(words, starts, bases(kind)[buckets]))

    def joined(self, words: Array, starts: Array, buckets: Array, kind: str, counted: Sequence[Segment]) -> Counts:
        """As `tied`."""
        found = [long.ties(words, starts, bases(kind)[buckets])]
        found += [(*self.keys_and_cells(kind, each), *_by_label(each)) for each in counted]
        keys, *others = map(np.concatenate, zip(*found, strict=True))
        order = np.argsort(keys)
        return tied(keys[order], *(column[order] for column in others))


NARROW = Words(Layout(SCORE_BUCKETS, 32, tag=CELL_BITS), sweep.narrow_f4, sweep.narrow_keys)
WIDE = Words(Layout(SCORE_BUCKETS, 64, tag=32), interleave.encode_f4, interleave.encode_keys)
LONG = _LongWords(LONG_LAYOUT, None, None)
WORDS = {words.layout: words for words in (NARROW, WIDE, LONG)}


def first_words(inner: ScoreSpec) -> Words:
    """The form of words for few groups: narrow for 32-bit scores, long for 64-bit scores."""
    return NARROW if inner.layout.bits == 16 else LONG


def tied(keys: Array, cells: Array, neg: Array, pos: Array) -> Counts:
    """Rows of ascending 64-bit keys as wide words of the key's index and the cell; the further word is the key.

    Examples
    --------
    >>> keys, cells, one = np.array([7, 7, 9], np.uint64), np.array([0, 5, 0], np.uint64), np.ones(3, np.int64)
    >>> tied(keys, cells, one, one).keys >> np.uint64(32)
    array([0, 0, 1], dtype=uint64)
    """
    places = np.cumsum(np.append(False, keys[1:] != keys[:-1])[: keys.size])
    return Counts((places.astype(np.uint64) << _HALF) | cells, keys.reshape(-1, 1), neg, pos)


def _by_label(segment: Segment) -> tuple[Array, Array]:
    """Negatives and positives of each item of a segment with counts."""
    rows = segment.counts.read() if segment.counts else NO_COUNTS
    positive = np.repeat((segment.codes & 1).astype(np.bool_), np.diff(segment.starts))
    return np.where(positive, 0, rows), np.where(positive, rows, 0)


def _upper(shift: int, words: Array) -> Array:
    """The 16 bits of the key above the cell."""
    found: Array = (words >> words.dtype.type(shift)).astype(np.uint16)
    return found
