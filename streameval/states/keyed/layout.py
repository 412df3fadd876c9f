"""Segments of rows partitioned by code, the layout of their words, outlines (totals for each code), and intervals.

A *code* is ``2 * bucket + label``. An *item* is a stored word; it represents one row, or several if it has a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.blocks import BLOCK_BITS
from streameval.kernels.keyed.sizes import Addresses
from streameval.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.budget import Budget, Buffer

Interval = tuple[int, int]  # of buckets
Columns = tuple[Array, Array, Array, Array]  # words, further words, counts, weights

NO_COUNTS = np.empty(0, np.int64)  # each item is one row
NO_WEIGHTS = np.empty(0, np.float64)  # rows have none


@dataclass(frozen=True, slots=True)
class Layout:
    """How keys are stored: the part of a spec that determines whether segments can be merged.

    Attributes
    ----------
    buckets : int
        Number of buckets.
    bits : int
        Bits of a stored word: 16 (the bucket is the upper half of the 32-bit key), 32 (part of a key that the bucket
        completes) or 64 (the whole key, apart from the bits that `partial` counts).
    words : int
        Words of a key; the first one determines the bucket.
    weighted : bool
        Whether rows have weights.
    halved : bool
        Whether the top bit of a 64-bit word is clear in the lower half of the buckets and set in the upper half.
    tag : int
        Number of low bits of the last word that hold the tag of a row, the code of its group or block: 0, 10, 15 or 32.
        Tags distinguish keys but never partition them.
    """

    buckets: int
    bits: int
    words: int = 1
    weighted: bool = False
    halved: bool = True
    tag: int = 0

    @property
    def partial(self) -> int:
        """Number of bits, just below the highest, that the first of 64-bit words omits to make place for a tag.

        Their bucket determines these bits, so keys are distinct only within a bucket. A tag of 32 bits needs no place:
        it follows a key of 32 bits, or is a further word.
        """
        return self.tag if self.bits == 64 and self.tag < 32 else 0

    @property
    def codes(self) -> int:
        """Number of (bucket, label) codes."""
        return 2 * self.buckets

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Type of a stored word."""
        return np.dtype(f"u{self.bits // 8}")


_LARGEST, _SHIFT = np.uint64((1 << BLOCK_BITS) - 1), np.uint64(63 - BLOCK_BITS)


def fixed_bits(buckets: Array) -> Array:
    """The bits of mixed ids whose place tags take, as uint64, from the numbers of their buckets."""
    found: Array = (buckets.astype(np.uint64) & _LARGEST) << _SHIFT
    return found


@dataclass(frozen=True, slots=True)
class Segment:
    """Items partitioned by code; the items of one code are a *piece*.

    Attributes
    ----------
    codes : uint32 array of shape (n_pieces,), ascending
    starts : int64 array of shape (n_pieces + 1,), index of the first item of each piece, then of the end
    rows_of : int64 array of shape (n_pieces,), rows of each piece if items have counts; None if each item is a row
    sums : float64 array of shape (2, n_pieces), the rounded weight of each piece and its rounding error, so that totals
        do not depend on how rows are divided into segments; None without weights
    words, rest, counts, weights : buffers of equal length, or None if the layout or the segment lacks them; `rest`
        holds the further words, one column each
    """

    codes: Array
    starts: Array
    rows_of: Array | None
    sums: Array | None
    words: Buffer
    rest: Buffer | None = None
    counts: Buffer | None = None
    weights: Buffer | None = None

    @classmethod
    def held(
        cls, budget: Budget, codes: Array, starts: Array, rows_of: Array | None, sums: Array | None, *columns: Array
    ) -> Segment:
        """A segment whose memory is accounted to a budget, which may spill its items.

        Parameters
        ----------
        budget : Budget
        codes, starts, rows_of, sums : see `Segment`
        *columns : words, further words, counts and weights; empty arrays after the first become None
        """
        unspilled = sum(array.nbytes for array in (codes, starts, rows_of, sums) if array is not None)
        words, *others = columns
        further = [budget.hold(column) if column.size else None for column in others]
        return cls(codes, starts, rows_of, sums, budget.hold(words, unspilled), *further)

    @property
    def rows(self) -> Array:
        """Rows of each piece, an int64 array of shape (n_pieces,)."""
        return np.diff(self.starts) if self.rows_of is None else self.rows_of

    @property
    def piece_bytes(self) -> int:
        """Bytes that stay in memory when items are spilled: codes, starts, rows and sums."""
        columns = (self.codes, self.starts, self.rows_of, self.sums)
        return sum(column.nbytes for column in columns if column is not None)

    def between(self, start: int, stop: int) -> tuple[int, int]:
        """The range of the pieces of the buckets `start` to `stop`."""
        # the type of the codes, since NumPy would otherwise convert all codes
        a, b = self.codes.searchsorted(np.array((2 * start, 2 * stop), self.codes.dtype)).tolist()
        return a, b

    def range(self, start: int, stop: int) -> Segment | None:
        """The pieces of the buckets `start` to `stop`, without copying items; None if there are none."""
        a, b = self.between(start, stop)
        if b - a in (0, self.codes.size):
            return self if a < b else None
        return self.pieces(a, b)

    def pieces(self, a: int, b: int) -> Segment:
        """The pieces `a` to `b` as a segment, without copying items."""
        first, last = int(self.starts[a]), int(self.starts[b])
        columns = (self.rest, self.counts, self.weights)
        parts = (None if column is None else column.part(first, last) for column in columns)
        rows, sums = (None if column is None else column[..., a:b] for column in (self.rows_of, self.sums))
        starts = self.starts[a : b + 1] - first
        return Segment(self.codes[a:b], starts, rows, sums, self.words.part(first, last), *parts)


@dataclass(frozen=True, slots=True)
class Side:
    """Items of one label in an interval, bucket by bucket; absent columns are empty arrays."""

    starts: Array  # int64 of shape (n_buckets + 1,), index of the first item of each bucket
    words: Array
    rest: Array
    counts: Array
    weights: Array

    def cut(self, i: int, j: int) -> Columns:
        """Items of the buckets `i` to `j`, numbered from the start of the interval."""
        a, b = self.starts[i], self.starts[j]
        return self.words[a:b], self.rest[a:b], self.counts[a:b], self.weights[a:b]


@dataclass(frozen=True, slots=True)
class SegmentAddresses:
    """Addresses of the items of an interval of buckets, for one loop over the pieces of all segments.

    Attributes
    ----------
    at : Addresses of words, further words and counts
    columns : the arrays at these addresses, referenced to keep them alive
    weights : uint64 array of shape (n_segments,), addresses of the weights; 0 for segments without weights
    """

    at: Addresses
    columns: list[Array]
    weights: Array

    @classmethod
    def of(cls, segments: Sequence[Segment], start: int, stop: int, buckets: Array | None = None) -> SegmentAddresses:
        """Addresses of the items of the buckets `start` to `stop`; spilled segments are read into memory.

        If `buckets` is given, an ascending int64 array of all buckets with items, only these are indexed.
        """
        width = 2 * (stop - start if buckets is None else buckets.size)
        starts, addresses = np.zeros((len(segments), width + 1), np.int64), np.zeros((4, len(segments)), np.uint64)
        columns: list[Array] = []
        bounds = np.array((2 * start, 2 * stop), np.uint32)  # the type of the codes, which are converted otherwise
        spans = [segment.codes.searchsorted(bounds).tolist() for segment in segments]
        own = [(r, segments[r], a, b) for r, (a, b) in enumerate(spans) if a < b]
        if own:  # the pieces of all segments together: a call takes longer than the pieces of one segment
            codes = np.concatenate([segment.codes[a:b] for _, segment, a, b in own])
            begins = np.concatenate([segment.starts[a:b] for _, segment, a, b in own])
            ends = np.concatenate([segment.starts[a + 1 : b + 1] for _, segment, a, b in own])
            lengths = np.array([b - a for *_, a, b in own])
            at = codes - bounds[0] if buckets is None else 2 * buckets.searchsorted(codes >> 1) + (codes & 1)
            starts[np.repeat([r for r, *_ in own], lengths), at + 1] = ends - begins
            np.cumsum(starts, axis=1, out=starts)
            last = np.cumsum(lengths)
            rows = zip(own, begins[last - lengths].tolist(), ends[last - 1].tolist(), strict=True)
            for (r, segment, *_), i, j in rows:
                for c, column in enumerate((segment.words, segment.rest, segment.counts, segment.weights)):
                    if column is not None:
                        addresses[c, r], held = column.located(i, j)
                        columns.append(held)
        return cls(Addresses(starts, *addresses[:3]), columns, addresses[3])


def index_codes(codes: Sequence[Array], layout: Layout) -> tuple[Array, list[Array]]:
    """The distinct codes of a layout in ascending order, as uint32, and the index of each given code among them.

    Examples
    --------
    >>> distinct, places = index_codes([np.array([3, 7], np.uint32), np.array([0, 7], np.uint32)], Layout(4, 64))
    >>> distinct.tolist(), [place.tolist() for place in places]
    ([0, 3, 7], [[1, 2], [0, 2]])
    """
    occurs = np.zeros(layout.codes, np.bool_)
    for some in codes:
        occurs[some] = True
    distinct = np.flatnonzero(occurs).astype(np.uint32)
    place = np.empty(layout.codes, np.uint32)  # only those that occur are written and read
    place[distinct] = np.arange(distinct.size)
    return distinct, [place[some] for some in codes]


@dataclass(frozen=True)
class BucketCounts:
    """The outline of keyed counts: rows, items and weights of each code that occurs.

    It suffices for totals, shards and ranges, without the rows themselves.

    Attributes
    ----------
    codes : int64 array of shape (n,), ascending
    rows, items : int64 arrays of shape (n,)
    sums : float64 array of shape (n,); zeros without weights
    nbytes : bytes of the items
    """

    codes: Array
    rows: Array
    items: Array
    sums: Array
    nbytes: int

    def __add__(self, other: BucketCounts) -> BucketCounts:
        """The outline of both multisets together."""
        codes = np.union1d(self.codes, other.codes)
        columns = (np.zeros(codes.size, np.int64), np.zeros(codes.size, np.int64), np.zeros(codes.size))
        for part in (self, other):
            at = np.searchsorted(codes, part.codes)
            for column, values in zip(columns, (part.rows, part.items, part.sums), strict=True):
                column[at] += values
        return BucketCounts(codes, *columns, self.nbytes + other.nbytes)


def cut(sizes: Array, items: int, used: Array | None = None) -> list[Interval]:
    """Divide buckets into intervals of about `items` items; larger buckets are intervals, empty ends are omitted.

    Parameters
    ----------
    sizes : int64 array, items of each bucket, or of each bucket in `used`
    items : target number of items of an interval
    used : ascending int64 array, the buckets with items; all buckets are given if it is None

    Examples
    --------
    >>> cut(np.array([0, 2, 1, 9, 0, 1]), 3)
    [(1, 3), (3, 4), (5, 6)]
    """
    if used is None:
        used = np.flatnonzero(sizes)
        sizes = sizes[used]
    before = np.cumsum(sizes) - sizes
    first = np.flatnonzero((np.diff(before // items, prepend=-1) > 0) | (sizes > items))
    last = np.append(first[1:], used.size)[: first.size] - 1
    return list(zip(used[first].tolist(), (used[last] + 1).tolist(), strict=True))


def stretches(sizes: Array, most: int, dense: int) -> Iterator[Interval]:
    """Intervals of at most `most` items, as long as possible; a bucket with more than `dense` items is an interval.

    `dense` must not exceed `most`, so that every other bucket fits into an interval.

    Examples
    --------
    >>> list(stretches(np.array([0, 2, 1, 9, 0, 1]), 10, 5))
    [(1, 3), (3, 4), (5, 6)]
    """
    used = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[used])
    alone = np.append(np.flatnonzero(sizes[used] > dense), used.size).tolist()
    first, k = 0, 0
    while first < used.size:
        fits = int(ends.searchsorted((ends[first - 1] if first else 0) + most, "right"))
        k += alone[k] < first
        stop = first + 1 if alone[k] == first else min(fits, alone[k])
        yield int(used[first]), int(used[stop - 1]) + 1
        first = stop
