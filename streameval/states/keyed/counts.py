"""Keyed counts, partitioned by bucket and sorted on demand: the core of every exact state.

A *segment* holds the words of some rows in pieces, one for each (bucket, label) that occurs, in ascending order of the
code ``2 * bucket + label``; within a piece the order is arbitrary. Folding a batch therefore takes one counting pass
and one scatter, and merging concatenates two tuples of segments. Because every segment is partitioned by the same
buckets, the rows of any interval of buckets can be gathered from all segments independently. Tasks, spilling and shards
work on intervals; how these are chosen does not change a result.

Keys with many rows are counted before rows are partitioned (`streameval.states.keyed.hot`), and pieces in which words
repeat are stored as (word, count). Memory is 2 bytes a row for 32-bit keys and 8 for 64-bit keys, 8 more for each
further word and for weights, and a count for each distinct key once keys repeat.

`KeyedCounts.grouped` sorts an interval and yields its distinct keys with their counts by label. A bucket of 16-bit
words with many rows is tallied in a table instead. A bucket of 64-bit words that is too large to be sorted at once is
partitioned again by the bits in which its words differ. The rows gathered at a time take a fixed share of the budget
(`KeyedCounts.most`).

The sum of weights over several keys is rounded, so its last bits depend on which keys are summed together. Intervals
and stretches of rows with weights therefore follow from the rows of each bucket alone: not from how these are stored,
nor from the budget.

The *outline* has the rows, items and weights of each code that occurs, summed over all segments. The rows of an
interval are read from all segments at once: copied bucket by bucket (`Bucketed.gather`), or in place
(`Bucketed.places`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.errors import ClusterError, IncompatibleStatesError
from streameval.kernels import segments as kernels
from streameval.kernels.exact import add_at
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.grouping import Counts, LabelledWords, ShortWords, compact, group_items
from streameval.states.keyed.layout import (
    NO_COUNTS,
    NO_WEIGHTS,
    BucketCounts,
    Columns,
    Interval,
    Layout,
    Segment,
    SegmentAddresses,
    Side,
    cut,
    index_codes,
    stretches,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.typing import Array


@dataclass(frozen=True)
class Bucketed:
    """Segments that are all partitioned by the same buckets.

    Parameters
    ----------
    layout : Layout
    segments : tuple of Segment
    full_outline : BucketCounts, optional
        The outline of the full multiset, if `segments` are only a range of it, or empty because its rows are stored
        elsewhere.
    """

    layout: Layout
    segments: tuple[Segment, ...] = ()
    full_outline: BucketCounts | None = None

    @property
    def outline(self) -> BucketCounts:
        """Rows, items and weights of each code that occurs."""
        return self._own_outline if self.full_outline is None else self.full_outline

    @cached_property
    def _own_outline(self) -> BucketCounts:
        """The outline of the rows held here."""
        own = [np.diff(segment.starts) > 0 for segment in self.segments]
        codes, places = index_codes([x.codes[here] for x, here in zip(self.segments, own, strict=True)], self.layout)
        rows, items = np.zeros((2, codes.size), np.int64)
        weights: list[tuple[Array, Array]] = []
        for segment, here, place in zip(self.segments, own, places, strict=True):
            rows[place] += segment.rows[here]
            items[place] += np.diff(segment.starts)[here]
            weights += [(place, side[here]) for side in (() if segment.sums is None else segment.sums)]
        return BucketCounts(codes.astype(np.int64), rows, items, _round_sums(weights, codes.size), self.nbytes)

    def holding(self, budget: Budget | None = None) -> Budget:
        """The budget for results computed from the rows: the given one, else that of the rows, else a new one."""
        owners = (segment.words.owner for segment in self.segments)
        return budget or next((found for owner in owners if owner and (found := owner())), None) or Budget()

    @property
    def rows(self) -> Array:
        """Rows of each code, as an int64 array of shape (n_codes,)."""
        return self._spread("rows")

    @property
    def items(self) -> Array:
        """Stored items of each code, as an int64 array of shape (n_codes,)."""
        return self._spread("items")

    def items_in(self, start: int, stop: int) -> Array:
        """Stored items of each code of some buckets, as an int64 array of shape (2 * (stop - start),)."""
        return self._spread("items", 2 * start, 2 * stop)

    def _spread(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """A column of the outline for all codes, or for those from `start` to `stop`.

        It is not cached: for many small states, such as slices, it would take more memory than their rows.
        """
        outline = self.outline
        values: Array = getattr(outline, name)
        stop = self.layout.codes if stop is None else stop
        out = np.zeros(stop - start, values.dtype)
        a, b = np.searchsorted(outline.codes, (start, stop)).tolist()
        out[outline.codes[a:b] - start] = values[a:b]
        return out

    @property
    def nbytes(self) -> int:
        """Bytes of the items held here, in memory or spilled."""
        columns = ((segment.words, segment.rest, segment.counts, segment.weights) for segment in self.segments)
        return sum(column.nbytes for segment in columns for column in segment if column is not None)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        columns = (column for x in self.segments for column in (x.words, x.rest, x.counts, x.weights))
        held = sum(column.nbytes for column in columns if column is not None and column.resident)
        return object.__sizeof__(self) + held + sum(segment.piece_bytes for segment in self.segments)

    @property
    def counted(self) -> bool:
        """Whether some segments have counts, so that an item may represent several rows."""
        return any(segment.counts is not None for segment in self.segments)

    def gather(self, start: int, stop: int) -> tuple[Side, Side]:
        """Copy the items of an interval of buckets from all segments: the negatives and the positives, by bucket.

        Raises
        ------
        ClusterError
            If the rows are on the workers of a cluster.
        """
        items = self.items_in(start, stop)
        sizes = np.concatenate((items[0::2], items[1::2]))
        starts = np.concatenate(([0], np.cumsum(sizes)))
        total = int(starts[-1])
        counted = any(each.counts is not None and each.range(start, stop) is not None for each in self.segments)
        columns = {
            "words": np.empty(total, self.layout.dtype),
            "rest": np.empty((total, self.layout.words - 1), np.uint64),
            "counts": np.empty(total if counted else 0, np.int64),
            "weights": np.empty(total if self.layout.weighted else 0, np.float64),
        }
        cursor = starts[:-1].copy()
        for segment in self.segments:
            a, b = segment.between(start, stop)
            codes, pieces = segment.codes[a:b].astype(np.int64) - 2 * start, segment.starts[a : b + 1]
            slots = (codes & 1) * (stop - start) + (codes >> 1)
            for name, out in columns.items():
                if out.size and a < b:
                    given = _read(getattr(segment, name), pieces, out.dtype)
                    for column, taken in zip(kernels.columns(given), kernels.columns(out), strict=True):
                        kernels.place(column, pieces, slots, cursor, taken)
            cursor[slots] += np.diff(pieces)
        check_items(cursor, starts[1:])
        middle, half = stop - start, int(starts[stop - start])
        return (
            Side(starts[: middle + 1], **{name: out[:half] for name, out in columns.items()}),
            Side(starts[middle:] - half, **{name: out[half:] for name, out in columns.items()}),
        )

    def places(self, start: int, stop: int) -> SegmentAddresses:
        """Addresses of the items of an interval of buckets, for one loop over the pieces of all segments.

        Raises
        ------
        ClusterError
            If the rows are on the workers of a cluster.
        """
        addresses = SegmentAddresses.of(self.segments, start, stop)
        check_items(np.diff(addresses.at.starts.sum(axis=0)), self.items_in(start, stop))
        return addresses

    def occupied(self, start: int, stop: int) -> tuple[Array, Array, SegmentAddresses]:
        """The buckets of an interval that have items, their numbers of items, and the addresses of these.

        A state with few rows, such as a slice, has items in a small part of the buckets.
        """
        items = self.items_in(start, stop)
        buckets = np.flatnonzero(items[0::2] + items[1::2])
        own = items.reshape(-1, 2)[buckets]
        addresses = SegmentAddresses.of(self.segments, start, stop, buckets + start)
        check_items(np.diff(addresses.at.starts.sum(axis=0)), own.ravel())
        return buckets + start, own.sum(axis=1), addresses


def _round_sums(weights: list[tuple[Array, Array]], count: int) -> Array:
    """The sums of weights at their places, correctly rounded, as a float64 array of shape (count,)."""
    total, errors, inexact = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    for places, values in weights:
        add_at(places, values, total, errors, inexact)
    total += errors
    further: dict[int, list[float]] = {}
    for places, values in weights if inexact.any() else ():
        at = inexact[places]
        for place, value in zip(places[at].tolist(), values[at].tolist(), strict=True):
            further.setdefault(place, []).append(value)
    total[list(further)] = [math.fsum(values) for values in further.values()]
    return total


def check_items(items: Array, expected: Array) -> None:
    """Raise `ClusterError` if the items are not the expected ones."""
    if not np.array_equal(items, expected):
        raise ClusterError(
            "the rows of this state are on the workers of a cluster, where only its evaluation can read them, or a "
            "worker has folded other rows than at first: do workers have equal versions and sound memory?"
        )


def _read(column: Buffer | None, starts: Array, dtype: np.dtype[np.generic]) -> Array:
    """The items of consecutive pieces; a missing column of counts is all ones."""
    first, last = int(starts[0]), int(starts[-1])
    return np.ones(last - first, dtype) if column is None else column.read(first, last)


CHUNK = 1 << 16  # rows of small buckets that are sorted at a time: they fit into the second-level cache
SLAB = 1 << 20  # rows gathered at a time
_DENSE = 1 << 13  # rows above which a bucket of 16-bit words with weights is counted alone
_ROOM = 1 << 17  # rows whose distinct keys are yielded together: few parts cost less than many
_FULL = 1 << 32  # rows of one label in a bucket that the fused loop cannot count
REFINE = 1 << 24  # items above which a bucket of 64-bit words is partitioned again; fewer under a small budget
WEIGHED = 1 << 18  # rows above which such a bucket is partitioned again if rows have weights, under any budget
_LEAST = 1 << 14  # lower bound of that number: a finer partition costs more than it saves
_SHARDS = 64  # shards of a thread above which they are larger, as far as their items, while they are read, ...
_READINGS = 4  # ... take less than this part of the memory that a thread may use at a time
_ITEMS_A_KEY = 8  # a distinct key, with what metrics derive from it, takes about the memory of 8 items
_COPIES = 32  # items take four times their bytes while they are gathered and sorted, and may take 1/8 of the budget


@dataclass(frozen=True)
class KeyedCounts(Bucketed):
    """An immutable multiset of (key, label) rows, with weights or without.

    Parameters
    ----------
    layout, segments, full_outline : as in `Bucketed`

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.keyed.builder import SegmentBuilder
    >>> from streameval.states.keyed.layout import Layout
    >>> from streameval.budget import Budget
    >>> layout = Layout(buckets=4, bits=64)
    >>> def encode(rows, words, codes):  # the key is the value, its bucket the lower two bits
    ...     words[:] = rows
    ...     codes[:] = 2 * (rows & 3)
    >>> rows = np.array([5, 1, 5], dtype=np.uint64)
    >>> builder = SegmentBuilder(layout, Budget(), capacity=8)
    >>> builder.add(3, lambda part, *out: encode(rows[part], *out))
    >>> [counts] = KeyedCounts.built(builder).grouped((0, 4))
    >>> counts.keys, counts.neg
    (array([1, 5], dtype=uint64), array([1, 2]))
    """

    @classmethod
    def built(cls, builder: SegmentBuilder) -> KeyedCounts:
        """Everything that a builder collected; the builder must not be used afterwards."""
        return cls(builder.layout, builder.finish())

    def merge(self, other: KeyedCounts) -> KeyedCounts:
        """The union of both multisets; raises `IncompatibleStatesError` if their layouts differ."""
        if self.layout != other.layout:
            raise IncompatibleStatesError(
                f"cannot merge {self.layout} with {other.layout}; fold both with the same options"
            )
        full_outline = (
            None if self.full_outline is None and other.full_outline is None else self.outline + other.outline
        )
        return replace(self, segments=self.segments + other.segments, full_outline=full_outline)

    def outline_only(self) -> KeyedCounts:
        """The same counts with the outline but without rows."""
        return KeyedCounts(self.layout, full_outline=self.outline)

    def range(self, start: int, stop: int) -> KeyedCounts:
        """The rows of the buckets `start` to `stop`, without copying; `within` marks them as a range of all rows."""
        return KeyedCounts(
            self.layout, tuple(part for segment in self.segments if (part := segment.range(start, stop)) is not None)
        )

    def within(self, other: KeyedCounts) -> KeyedCounts:
        """The same rows, marked as a range of `other`, whose outline they get; raises `ClusterError` if they differ."""
        check_items(self.outline.items, other.items[self.outline.codes])
        return replace(self, full_outline=other.outline)

    def check(self, other: KeyedCounts, interval: Interval) -> None:
        """Raise `ClusterError` unless these are as many items of each code as `other` has in an interval of buckets."""
        expected = np.zeros(self.layout.codes, np.int64)
        expected[2 * interval[0] : 2 * interval[1]] = other.items_in(*interval)
        check_items(self.items, expected)

    def intervals(self, items: int = SLAB) -> list[Interval]:
        """Cut the buckets into intervals of about `items` items each, or rows if they have weights; see `cut`."""
        counts = self.outline.rows if self.layout.weighted else self.outline.items
        buckets = self.outline.codes >> 1
        first = np.flatnonzero(np.diff(buckets, prepend=-1))
        return cut(np.add.reduceat(counts, first) if first.size else counts, items, buckets[first])

    def shards(self, budget: Budget | None) -> list[Interval]:
        """Intervals to finalize one by one, under a budget as few as keep its threads busy, if rows have no weights.

        To visit a segment takes 10 µs, as long as a thousand rows, of which a small shard has no more in a segment.
        """
        if budget is None or self.layout.weighted:
            return self.intervals()
        room = budget.scratch // (_READINGS * self._item_bytes)
        return self.intervals(max(SLAB, min(int(self.outline.items.sum()) // (_SHARDS * budget.threads), room)))

    def grouped(self, interval: Interval, budget: Budget | None = None) -> Iterator[Counts]:
        """Distinct keys of an interval of buckets in ascending order, a bounded number at a time."""
        for rows in self.rows_in(interval, budget):
            yield from rows.counts(0 if self.layout.partial else _ROOM)

    def rows_in(
        self, interval: Interval, budget: Budget | None = None
    ) -> Iterator[Counts | LabelledWords | ShortWords]:
        """The rows of an interval of buckets in ascending order, a bounded number at a time.

        They are grouped by key, or in a form that a caller may group, or sum without grouping.
        """
        start, stop = interval
        budget = self.holding(budget)
        most, weighted = self.most(budget), self.layout.weighted
        sizes = self._sizes(start, stop)
        if self.layout.bits == 16:
            yield from self._short_words(start, stop, sizes, most)
            return
        for i, j in self._gatherings(sizes, most):
            if self.layout.bits == 64 and j - i == 1 and sizes[i] > (WEIGHED if weighted else most):
                yield from self._refine(start + i, budget, most)
            else:
                yield from self._gather(start + i, start + j)

    def _sizes(self, start: int, stop: int) -> Array:
        """What `_cuts` divides some buckets by: the items of each, or its rows if they have weights."""
        each = self._spread("rows" if self.layout.weighted else "items", 2 * start, 2 * stop)
        sizes: Array = each[0::2] + each[1::2]
        return sizes

    def _gatherings(self, sizes: Array, most: int) -> Iterable[Interval]:
        """Cut buckets into intervals to be gathered at once; those of rows with weights end where `_cuts` ends."""
        if not self.layout.weighted:
            return cut(sizes, most)
        parts, ends = list(self._cuts(sizes)), np.cumsum(sizes)
        rows = np.diff(ends[[last - 1 for _, last in parts]], prepend=0)
        alone = (rows > WEIGHED) & (self.layout.bits == 64)
        together = cut(np.where(alone, np.maximum(rows, most + 1), rows), most)
        return ((parts[a][0], parts[b - 1][1]) for a, b in together)

    def _short_words(self, start: int, stop: int, sizes: Array, most: int) -> Iterator[Counts | ShortWords]:
        """The rows of an interval of buckets of 16-bit words."""
        if not self.layout.weighted:
            buckets, items, places = self.occupied(start, stop)
            words = ShortWords(places, items, buckets, most // _ITEMS_A_KEY)
            full = self._spread("rows", 2 * start, 2 * stop).max(initial=0) >= _FULL
            yield from words.counts() if full else (words,)
        else:
            for a, b in self._gatherings(sizes, most):
                buckets, items, places = self.occupied(start + a, start + b)
                cuts = list(self._cuts(self._sizes(start + a, start + b)[buckets - start - a]))
                yield from ShortWords(places, items, buckets, most, cuts).counts()

    def most(self, budget: Budget) -> int:
        """Number of items gathered at once, so that the arrays of one thread take about an eighth of the budget.

        A bucket of up to `WEIGHED` rows with weights is gathered at once whatever the budget.
        """
        return min(REFINE, max(budget.limit // (_COPIES * self._item_bytes), _LEAST))

    @property
    def _item_bytes(self) -> int:
        return self.layout.dtype.itemsize + 8 * (self.layout.words - 1 + self.layout.weighted + self.counted)

    def _cuts(self, sizes: Array) -> Iterator[Interval]:
        """Stretches of buckets to be sorted together; single buckets if keys are distinct only within a bucket."""
        if self.layout.partial:
            return ((j, j + 1) for j in np.flatnonzero(sizes).tolist())
        return stretches(sizes, CHUNK, _DENSE if self.layout.bits == 16 else CHUNK)

    def _gather(self, start: int, stop: int) -> Iterator[Counts | LabelledWords]:
        """As `rows_in`, for an interval that fits into memory."""
        middle = self.layout.buckets // 2
        if self.layout.weighted or self.layout.words > 1 or not (self.layout.halved and self.layout.bits == 64):
            yield from self._group(start, list(self._cuts(self._sizes(start, stop))))
            return
        for a, b in ((start, min(stop, middle)), (max(start, middle), stop)):
            if a >= b:
                continue
            parts, several = list(self._cuts(self._sizes(a, b))), self._several(a, b)
            alike = [bool(several[i:j].any()) for i, j in parts]
            for counted, run in groupby(zip(alike, parts, strict=True), lambda each: each[0]):
                some = [part for _, part in run]
                if counted:
                    yield from self._group(a, some)
                else:
                    yield self._labelled(a, some)

    def _several(self, start: int, stop: int) -> Array:
        """Which buckets of an interval have items with counts."""
        found = np.zeros(stop - start, np.bool_)
        for segment in self.segments:
            if segment.counts is not None:
                i, j = segment.between(start, stop)
                found[(segment.codes[i:j] >> 1) - start] = True
        return found

    def _labelled(self, start: int, parts: list[Interval]) -> LabelledWords:
        """The rows of consecutive parts of an interval, given as buckets from its start; no item has a count."""
        a, b = start + parts[0][0], start + parts[-1][1]
        own = self.items_in(a, b)
        starts = np.concatenate(([0], np.cumsum(own)))
        words, cursor = np.empty(starts[-1], np.uint64), starts[:-1].copy()
        for segment in self.segments:
            i, j = segment.between(a, b)
            if i < j:
                codes, pieces = segment.codes[i:j] - np.uint32(2 * a), segment.starts[i : j + 1]
                given = segment.words.read(int(pieces[0]), int(pieces[-1]))
                kernels.place_labelled(given, pieces, codes, cursor, words, 0)
        check_items(cursor, starts[1:])
        bounds = np.array([0, *(starts[2 * (start + last - a)] for _, last in parts)])
        buckets = start + np.array([first for first, _ in parts], np.int64)
        return LabelledWords(words, bounds, buckets, (a >= self.layout.buckets // 2) << 63)

    def _group(self, start: int, parts: list[Interval]) -> Iterator[Counts]:
        """Distinct keys of consecutive parts of an interval, given as buckets from its start."""
        if parts:
            first, last = parts[0][0], parts[-1][1]
            sides = self.gather(start + first, start + last)
            for i, j in parts:
                yield group_items(*(side.cut(i - first, j - first) for side in sides), bucket=start + i)

    def pieces(self, bucket: int, label: int) -> Iterator[Columns]:
        """Items of one code, segment by segment, a bounded number at a time."""
        code = 2 * bucket + label
        for segment in self.segments:
            j = int(np.searchsorted(segment.codes, code))
            if j == segment.codes.size or segment.codes[j] != code:
                continue
            for a in range(int(segment.starts[j]), int(segment.starts[j + 1]), SLAB):
                b = min(a + SLAB, int(segment.starts[j + 1]))
                yield _columns(segment, a, b)

    def slabs(self, interval: Interval) -> Iterator[tuple[Array, Array, Columns]]:
        """Items of some buckets in place, a bounded number at a time.

        Yields
        ------
        codes, starts : the pieces, as in `streameval.states.keyed.layout.Segment`
        columns : words, further words, counts and weights; counts and weights are empty if there are none
        """
        start, stop = interval
        for segment in self.segments:
            i, j = segment.between(start, stop)
            codes, starts = segment.codes[i:j], segment.starts[i : j + 1]
            first, last = int(starts[0]), int(starts[-1])
            for a in range(first, last, SLAB) if i < j else ():
                b = min(a + SLAB, last)
                yield codes, (starts if b - a == last - first else np.clip(starts, a, b)) - a, _columns(segment, a, b)

    def _word(self, part: Columns, column: int) -> Array:
        """One word of the keys of some items, without the `partial` low bits, which never partition."""
        words = part[1][:, column - 1] if column else part[0]
        return words >> np.uint64(self.layout.partial) if self.layout.partial else words

    def _refine(self, bucket: int, budget: Budget, most: int) -> Iterator[Counts]:
        """Partition one bucket again and group the parts, of about `most` items each.

        The bucket is partitioned by the leading bits in which its keys differ, in the first word that differs. If no
        word differs, all keys are equal apart from their `partial` low bits.
        """
        for column in range(self.layout.words):
            low, high = _extremes(self._word(part, column) for label in (0, 1) for part in self.pieces(bucket, label))
            if low < high:
                break
        else:
            yield group_items(*(self._compact(bucket, label) for label in (0, 1)), bucket=bucket)
            return
        shift = np.uint64(max((high - low).bit_length() - 11, 0))
        layout = replace(self.layout, buckets=1 << 11, halved=False)
        builder = SegmentBuilder.fitting(layout, budget, min(SLAB, most), counted=self.counted)
        for label in (0, 1):
            for part in self.pieces(bucket, label):
                high_bits = (self._word(part, column) - np.uint64(low)) >> shift
                words, rest, counts, weights = part
                codes = (high_bits << np.uint64(1)).astype(np.uint32) | np.uint32(label)
                builder.add_items(words, codes, rest, counts, weights)
        finer = KeyedCounts.built(builder)
        for interval in finer.intervals():
            yield from (replace(part, bucket=bucket) for part in finer.grouped(interval, budget))

    def _compact(self, bucket: int, label: int) -> Columns:
        """The few distinct keys of very many items, which are grouped a bounded number at a time."""
        none = np.empty(0, self.layout.dtype), np.empty((0, self.layout.words - 1), np.uint64), NO_COUNTS, NO_WEIGHTS
        parts = [none, *(compact(*piece) for piece in self.pieces(bucket, label))]
        words, rest, counts, weights = map(np.concatenate, zip(*parts, strict=True))
        return words, rest, counts, weights


def _columns(segment: Segment, start: int, stop: int) -> Columns:
    """Items `start` to `stop` of a segment; counts and weights are empty if there are none."""
    return (
        segment.words.read(start, stop),
        segment.rest.read(start, stop) if segment.rest else np.empty((stop - start, 0), np.uint64),
        segment.counts.read(start, stop) if segment.counts else NO_COUNTS,
        segment.weights.read(start, stop) if segment.weights else NO_WEIGHTS,
    )


def _extremes(pieces: Iterator[Array]) -> tuple[int, int]:
    """Smallest and largest word."""
    bounds = [(int(words.min()), int(words.max())) for words in pieces]
    return min(low for low, _ in bounds), max(high for _, high in bounds)
