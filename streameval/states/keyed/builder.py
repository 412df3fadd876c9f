"""SegmentBuilder: partitions encoded rows into segments, by one counting pass and one scatter each."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from streameval.budget import Budget, fresh_array
from streameval.kernels import segments as kernels
from streameval.kernels.jit import read_only
from streameval.kernels.keys import count_codes, encode_id
from streameval.kernels.ranking import exact_parts
from streameval.states.keyed import hot
from streameval.states.keyed.grouping import compact
from streameval.states.keyed.ids import SHIFT
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Columns, Layout, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streameval.typing import Array

K = TypeVar("K")

MANY = 8  # mean rows per value of the `partial` low bits, from which pieces are checked for repetition without these
REPETITIVE = 8  # items of a kind are kept apart if they are at least 1/8 of all, since all others are copied
CHUNK = 1 << 16  # items of a repetitive piece that are grouped at a time
_ITEMS, _SHARE = 1 << 16, 8  # items with counts: at least as many at a time, or this part of the rows
_FEW = 1 << 14  # rows for which a builder has room at first: the system must clear all memory of larger buffers
_LEAST = 1 << 12  # smallest number of rows that are collected at a time, for any budget
_READ = 1 << 20  # items of stored tables that are collected at a time
BLOCK = 1 << 16  # rows from which hot keys are counted at a time, so that they stay in the cache


class SegmentBuilder:
    """Collects encoded rows and turns every `capacity` of them into a segment; owned by one task.

    Parameters
    ----------
    layout : Layout
    budget : Budget
        Owns the segments' arrays.
    capacity : int
        Largest number of rows of a segment.
    counted : bool
        Whether items have counts.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.kernels.keys import ID_BUCKETS
    >>> from streameval.states.keyed.layout import Layout
    >>> builder = SegmentBuilder(Layout(ID_BUCKETS, 64, words=2), Budget(), 8)
    >>> builder.add_ids([np.array([7, 9, 7], np.uint64), np.array([1, 2, 1], np.uint64)])
    >>> [int(segment.rows.sum()) for segment in builder.finish()]
    [3]
    """

    def __init__(self, layout: Layout, budget: Budget, capacity: int, *, counted: bool = False) -> None:
        self.layout = layout
        self.budget = budget
        self._items: SegmentBuilder | None = None  # items with counts, if others have none
        self._counted = counted
        self.capacity = max(capacity, 1)
        self._allocate(min(self.capacity, _FEW))
        self._size = 0
        self._hot: hot.HotKeys | None = None
        self._may_learn = not (counted or layout.weighted or layout.partial)
        self._learns = self._may_learn
        self._segments: list[Segment] = []
        self.nan_seen = False  # whether a NaN score was added
        self.nan_rows = np.zeros(2, np.int64)  # rows stored so far whose score is NaN, by label
        self.nan_weights: tuple[list[float], list[float]] = ([], [])  # by label; the sum of a list is their weight

    @classmethod
    def fitting(
        cls, layout: Layout, budget: Budget, rows: int, *, counted: bool = False, share: int = 1
    ) -> SegmentBuilder:
        """A builder that collects `rows` rows at a time, or fewer if the scratch memory of a thread requires it.

        `share` is the number of pairs of builders that share this memory.

        Examples
        --------
        >>> from streameval.budget import Budget
        >>> from streameval.states.keyed.layout import Layout
        >>> SegmentBuilder.fitting(Layout(4, 64), Budget(1 << 23), 1 << 20).capacity
        52428
        """
        width = layout.dtype.itemsize + 8 * (layout.words - 1 + layout.weighted + counted)
        return cls(layout, budget, min(rows, max(_LEAST, budget.scratch // share // (2 * width + 4))), counted=counted)

    def _allocate(self, rows: int) -> None:
        """Make the buffers for a number of rows."""
        layout = self.layout
        self._words = fresh_array((rows,), layout.dtype)
        self._codes = fresh_array((rows,), np.uint32)
        self._rest = fresh_array((rows, layout.words - 1), np.uint64)
        self._counts = fresh_array((rows if self._counted else 0,), np.int64)
        self._weights = fresh_array((rows if layout.weighted else 0,), np.float64)

    def _grow(self) -> None:
        """Make the buffers for as many rows as the capacity, and move the collected rows to them."""
        few = self._words, self._codes, self._rest, self._counts, self._weights
        self._allocate(self.capacity)
        buffers = self._words, self._codes, self._rest, self._counts, self._weights
        for buffer, values in zip(buffers, few, strict=True):
            buffer[: len(values)] = values

    def shrink(self, capacity: int) -> None:
        """Collect at most `capacity` rows at a time from now on, because another builder shares the memory."""
        self._flush()
        self.capacity = max(capacity, 1)
        self._allocate(min(self.capacity, _FEW))

    def add(
        self,
        rows: int,
        encode: Callable[[slice, Array, Array], int | None],
        rest: Array | None = None,
        weights: Array = NO_WEIGHTS,
        counts: Array = NO_COUNTS,
    ) -> None:
        """Add rows.

        Parameters
        ----------
        rows : int
        encode : callable
            ``encode(part, words, codes)`` fills words and codes of a slice of the rows, and may return the number of
            NaNs among them.
        rest, weights, counts : arrays of shape (rows, …), optional
            Further words, weights, and the number of rows of each item.
        """
        if counts.size and not self._counted:
            self._counted_items.add(rows, encode, rest, weights, counts)
            return
        for part, room in self._rooms(rows):
            self.nan_seen |= bool(encode(part, self._words[room], self._codes[room]))
            if rest is not None:
                self._rest[room] = rest[part]
            self._fill(room, part, counts, weights)
            self._take_hot(room)

    def add_ids(self, columns: Sequence[Array], counts: Array = NO_COUNTS, label: Array | None = None) -> None:
        """Add rows by the words of their ids, uint64 arrays of shape (n,); the first words are not mixed.

        Parameters
        ----------
        columns : the words
        counts : int64 array of shape (n,), the rows of each item; if it is empty, each is one row
        label : uint8 array of shape (n,); 0 if it is None
        """
        first, *more = columns
        first = read_only(np.ascontiguousarray(first, np.uint64))
        label = read_only(np.zeros(first.size, np.uint8) if label is None else label)
        if counts.size and not self._counted:
            once = np.flatnonzero(counts == 1)
            if once.size * REPETITIVE > counts.size:  # rows take less room than items with counts
                self.add_ids([column[once] for column in columns], label=label[once])
                often = np.flatnonzero(counts > 1)
                columns, counts, label = [column[often] for column in columns], counts[often], label[often]
            self._counted_items.add_ids(columns, counts, label)
            return

        def encode(part: slice, words: Array, codes: Array) -> None:
            encode_id(first[part], label[part], SHIFT, words, codes)

        self.add(first.size, encode, np.array(more, np.uint64).T if more else None, counts=counts)

    @property
    def _counted_items(self) -> SegmentBuilder:
        """The builder of items with counts, which needs less room than the rows."""
        if self._items is None:
            items = max(min(self.capacity, _ITEMS), self.capacity // _SHARE)
            self._items = SegmentBuilder(self.layout, self.budget, items, counted=True)
        return self._items

    def _take_hot(self, room: slice) -> None:
        """Count the rows of hot keys among those just encoded, or learn the hot keys from all collected rows.

        Keys of which few rows are left are forgotten.
        """
        if self._hot is None and self._learns and hot.LEARN <= self._size < hot.FULL:
            room, self._learns = slice(0, self._size), False
            columns = self._words[room], self._rest[room], self._codes[room]
            self._hot = hot.HotKeys.learned(*columns, self.layout.codes)
        if self._hot is not None:
            columns = self._words[room], self._rest[room], self._codes[room]
            self._size = room.start + self._hot.absorb(*columns)
            if not self._hot.worth:
                self._store_hot()
                self._learns = True

    def _store_hot(self) -> None:
        """Store the counts of the hot keys as a segment and forget the keys."""
        if self._hot is not None:
            codes, words, rest, counts = self._hot.items()
            self._hot = None
            if codes.size:
                codes, starts = np.unique(codes, return_index=True)
                self._store(codes, np.append(starts, words.size), words, rest, counts, NO_WEIGHTS)

    def add_items(self, words: Array, codes: Array, rest: Array | None, counts: Array, weights: Array) -> None:
        """Add encoded items, with or without counts."""
        for part, room in self._rooms(words.size):
            self._words[room], self._codes[room] = words[part], codes[part]
            if rest is not None:
                self._rest[room] = rest[part]
            self._fill(room, part, counts, weights)

    def _fill(self, room: slice, part: slice, counts: Array, weights: Array) -> None:
        """Collect the counts and weights of some items; without them, each is one row of weight 1."""
        for column, values in ((self._counts, counts), (self._weights, weights)):
            if values.size and not column.size:
                raise ValueError("the builder collects no counts, or no weights")
            if column.size:
                column[room] = values[part] if values.size else 1

    def _rooms(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Slices of the input rows, each with the slice of the buffers that receives it."""
        done = 0
        while done < rows:
            if self._size + rows - done > self._codes.size < self.capacity:
                self._grow()
            if self._size == self.capacity:
                self._flush()
            count = min(rows - done, self.capacity - self._size, BLOCK if self._hot else rows)
            if self._hot is None and self._learns and self._size < hot.LEARN:
                count = min(count, hot.LEARN - self._size)
            start = self._size
            self._size += count
            yield slice(done, done + count), slice(start, self._size)
            done += count

    def finish(self) -> tuple[Segment, ...]:
        """The segments of everything added; the builder must not be used afterwards."""
        self._flush()
        self._allocate(0)
        self._store_hot()
        segments, self._segments = tuple(self._segments), []
        return segments if self._items is None else segments + self._items.finish()

    def _flush(self) -> None:
        if not self._size:
            return
        codes, starts, columns = self._scatter()
        ends = np.searchsorted(codes, self.layout.codes + np.arange(3))  # NaN scores have the last two codes
        for label, (a, b) in enumerate(pairwise(starts[ends].tolist())):
            self.nan_rows[label] += b - a
            if a < b:
                self.nan_weights[label].extend(exact_parts(columns[3][a:b]).tolist())
        if ends[0]:
            emitted = int(starts[ends[0]])
            self._emit(codes[: ends[0]], starts[: ends[0] + 1], *(column[:emitted] for column in columns))
        self._size = 0
        if self._hot is None:
            self._learns = self._may_learn

    def _scatter(self) -> tuple[Array, Array, list[Array]]:
        """The codes of the collected rows, the first row of each, and the columns in this order."""
        table = np.zeros(self.layout.codes + 2, np.int64)
        count_codes(self._codes[: self._size], table)
        codes = np.flatnonzero(table).astype(np.uint32)
        starts = np.concatenate(([0], np.cumsum(table[codes])))
        columns = []
        for values in (self._words, self._rest, self._counts, self._weights):
            out = fresh_array((self._size if values.shape[0] else 0, *values.shape[1:]), values.dtype)
            for given, taken in zip(kernels.columns(values[: self._size]), kernels.columns(out), strict=True):
                table[codes] = starts[:-1]
                kernels.scatter(given, self._codes[: given.size], table, taken)
            columns.append(out)
        return codes, starts, columns

    def _emit(self, codes: Array, starts: Array, words: Array, rest: Array, counts: Array, weights: Array) -> None:
        """Store pieces as segments: repetitive pieces as (word, count), all others unchanged."""
        sizes = np.diff(starts)
        long = sizes.max() >= kernels.LONG
        again = self._repetitive(words, rest, starts) if long else np.zeros(codes.size, bool)
        if sizes[again].sum() * REPETITIVE > words.size:
            pieces = [
                _group(*(column[a:b] for column in (words, rest, counts, weights)))
                for a, b in zip(starts[:-1][again], starts[1:][again], strict=True)
            ]
            ends = np.cumsum([0, *(piece[0].size for piece in pieces)])
            self._store(codes[again], ends, *map(np.concatenate, zip(*pieces, strict=True)))
            bounds = np.flatnonzero(np.diff(again, prepend=True, append=True))  # of the stretches of other pieces
            others = starts[bounds].reshape(-1, 2).tolist()
            words, rest, counts, weights = (_join(c, others) if len(c) else c for c in (words, rest, counts, weights))
            codes, starts = codes[~again], np.concatenate(([0], np.cumsum(sizes[~again])))
        if codes.size:
            self._store(codes, starts, words, rest, counts, weights)

    def _repetitive(self, words: Array, rest: Array, starts: Array) -> Array:
        """Whether each piece repeats its keys; for long pieces, also if keys repeat apart from their `partial` bits."""
        again: Array = kernels.repetitive(words, rest, starts)
        many = np.diff(starts) >= MANY << self.layout.partial
        if self.layout.partial and many.any():
            shift = np.uint64(self.layout.partial)
            whole = (words >> shift, rest) if self.layout.words == 1 else (words, rest >> shift)
            again |= many & kernels.repetitive(*whole, starts)
        return again

    def _store(self, codes: Array, starts: Array, words: Array, rest: Array, counts: Array, weights: Array) -> None:
        rows = np.add.reduceat(counts, starts[:-1]) if counts.size else None
        sums = kernels.sum_pieces(weights, starts) if self.layout.weighted else None
        self._segments.append(Segment.held(self.budget, codes, starts, rows, sums, words, rest, counts, weights))


class SegmentReader:
    """Makes segments of tables of distinct keys; keys of one row become rows without a count, which sort fastest.

    Parameters
    ----------
    layout : Layout
    buckets : maps uint64 keys to their buckets
    budget : owns the segments
    share : number of readers that share the scratch memory of a thread
    """

    def __init__(self, layout: Layout, buckets: Callable[[Array], Array], budget: Budget, share: int = 1) -> None:
        self._layout, self._buckets = layout, buckets
        made = partial(SegmentBuilder.fitting, layout, budget, _READ, share=share)
        self._single, self._counted = made(), made(counted=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a table with the columns key, negatives and positives, then the weights of both, or further words.

        Raises
        ------
        ValueError
            If a key has no bucket.
        """
        layout = self._layout
        keys, *sides = (column.to_numpy() for column in batch.columns)
        codes = self._buckets(keys).astype(np.uint64) << np.uint64(1)
        if codes.max(initial=0) >= layout.codes:
            raise ValueError("a key has no bucket")
        rest = np.column_stack(sides[2:]) if layout.words > 1 else np.empty((keys.size, 0), np.uint64)
        for label, rows in enumerate(sides[:2]):
            weights = sides[2 + label] if layout.weighted else NO_WEIGHTS
            for builder, here in (self._single, rows == 1), (self._counted, rows > 1):
                at = np.flatnonzero(here)
                counts = rows[at] if builder is self._counted else NO_COUNTS
                some = weights[at] if layout.weighted else weights
                builder.add_items(keys[at], codes[at] | np.uint64(label), rest[at], counts, some)

    def finish(self) -> tuple[Segment, ...]:
        """The segments of all tables."""
        return (*self._single.finish(), *self._counted.finish())


class SegmentBuilders(Generic[K]):
    """Builders by key, each created when it is first needed; they share the memory of one.

    Parameters
    ----------
    budget : owns the segments
    capacity : rows that all builders together collect at a time
    counted : whether items have counts
    """

    def __init__(self, budget: Budget, capacity: int, *, counted: bool = False) -> None:
        self._budget, self._capacity, self._counted = budget, capacity, counted
        self._made: dict[K, SegmentBuilder] = {}

    def of(self, key: K, layout: Layout, *, size: float = 1) -> SegmentBuilder:
        """The builder of a key; `size` is the size of one of its rows, relative to those of `capacity`."""
        if key not in self._made:
            capacity = max(1, int(self._capacity / size) // (1 + len(self._made)))
            for other in self._made.values():
                other.shrink(capacity)
            self._made[key] = SegmentBuilder(layout, self._budget, capacity, counted=self._counted)
        return self._made[key]

    def finish(self) -> dict[K, tuple[Segment, ...]]:
        """The segments of each builder; they must not be used afterwards."""
        return {key: made.finish() for key, made in self._made.items()}


def _join(column: Array, stretches: list[list[int]]) -> Array:
    """The rows of some stretches, each of which is its first row and the one after its last.

    Examples
    --------
    >>> _join(np.arange(9), [[0, 2], [5, 8]])
    array([0, 1, 5, 6, 7])
    """
    return np.concatenate([column[:0], *(column[a:b] for a, b in stretches)])


def _group(words: Array, rest: Array, counts: Array, weights: Array) -> Columns:
    """Group a repetitive piece by key: 16-bit words, whose keys have no others, in a table.

    Others are grouped chunk by chunk, which takes little memory, then the results together.
    """
    if words.itemsize == 2 and not weights.size:
        table = np.bincount(words, counts if counts.size else None)
        keys = np.flatnonzero(table)
        return keys.astype(words.dtype), rest[: keys.size], table[keys].astype(np.int64), weights
    columns = (words, rest, counts, weights)
    parts = [compact(*(column[i : i + CHUNK] for column in columns)) for i in range(0, words.size, CHUNK)]
    return parts[0] if len(parts) == 1 else compact(*map(np.concatenate, zip(*parts, strict=True)))
