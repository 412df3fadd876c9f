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
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import IncompatibleStatesError
from streameval.kernels import segments as kernels
from streameval.states.keyed.bucketed import Bucketed, check_items
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.grouping import (
    DENSE,
    Counts,
    Labelled,
    Unsorted,
    WeighedItems,
    aligned,
    compacted,
    distinct,
    grouped,
    tallied,
)
from streameval.states.keyed.in_place import Short, Weighed
from streameval.states.keyed.layout import (
    NO_COUNTS,
    NO_WEIGHTS,
    Columns,
    Interval,
    Segment,
    cut,
    stretches,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.typing import Array

CHUNK = 1 << 16  # rows of small buckets that are sorted at a time: they fit into the second-level cache
SLAB = 1 << 20  # rows gathered at a time
_ROOM = 1 << 17  # rows whose distinct keys are yielded together: few parts cost less than many
_FULL = 1 << 32  # number of rows of one key and label that overflows the table of a bucket
REFINE = 1 << 24  # items above which a bucket of 64-bit words is partitioned again; fewer under a small budget
WEIGHED = 1 << 18  # rows above which such a bucket is partitioned again if rows have weights, under any budget
_LEAST = 1 << 14  # lower bound of that number: a finer partition costs more than it saves
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
            msg = f"cannot merge {self.layout} with {other.layout}; fold both with the same options"
            raise IncompatibleStatesError(msg)
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
        """The same rows, marked as a range of `other`, whose outline they get; raises `RowsError` if they differ."""
        codes, items = self.occurring("items")
        check_items(items, other.items[codes])
        return replace(self, full_outline=other.outline)

    def check(self, other: KeyedCounts, interval: Interval) -> None:
        """Raise `RowsError` unless these are as many items of each code as `other` has in an interval of buckets."""
        expected = np.zeros(self.layout.codes, np.int64)
        expected[2 * interval[0] : 2 * interval[1]] = other.items_in(*interval)
        check_items(self.items, expected)

    def intervals(self, items: int = SLAB) -> list[Interval]:
        """Cut the buckets into intervals of about `items` items each, or rows if they have weights; see `cut`."""
        codes, counts = self.occurring("rows" if self.layout.weighted else "items")
        buckets = codes >> 1
        first = np.flatnonzero(np.diff(buckets, prepend=-1))
        return cut(np.add.reduceat(counts, first) if first.size else counts, items, buckets[first])

    def grouped(self, interval: Interval, budget: Budget | None = None) -> Iterator[Counts]:
        """Distinct keys of an interval of buckets in ascending order, a bounded number at a time."""
        for stretch in self.rows_or_counts(interval, budget):
            if isinstance(stretch, Counts):
                yield stretch
            elif isinstance(stretch, Labelled):
                yield from stretch.counts(0 if self.layout.partial else _ROOM)
            else:
                yield from stretch.counts()

    def grouped_or_ranked(
        self, interval: Interval, budget: Budget | None = None
    ) -> Iterator[Counts | Labelled | Short | Weighed | WeighedItems]:
        """As `grouped`, but rows whose areas can be summed without their distinct keys are not counted."""
        for stretch in self.rows_or_counts(interval, budget):
            if isinstance(stretch, Unsorted):
                yield from stretch.counts()
            elif isinstance(stretch, Labelled) and stretch.counted:
                yield from stretch.counts(_ROOM)
            else:
                yield stretch

    def stretches(self, interval: Interval, budget: Budget | None = None) -> Iterator[Counts | Labelled]:
        """As `grouped`, but words without counts are yielded unsorted, many at a time, for callers that count them."""
        for stretch in self.rows_or_counts(interval, budget):
            if isinstance(stretch, Counts | Labelled):
                yield stretch
            else:
                yield from stretch.counts()

    def rows_or_counts(
        self, interval: Interval, budget: Budget | None = None
    ) -> Iterator[Counts | Labelled | Short | Unsorted | Weighed | WeighedItems]:
        """As `stretches`, but several words, 16-bit words, and 64-bit words with weights are not counted either."""
        start, stop = interval
        budget = self.holding(budget)
        most, weighted = self.most(budget), self.layout.weighted
        sizes = self._sizes(start, stop)
        if self.layout.bits == 16 and stop - start == 1 and sizes[0] > most:
            yield tallied(start, self.pieces(start, 0), self.pieces(start, 1), weighted=weighted)
            return
        fits = self.layout.bits == 16 and self._spread("rows", 2 * start, 2 * stop).max(initial=0) < _FULL
        if fits and not weighted:
            yield Short(self.places(start, stop), start, most // _ITEMS_A_KEY)
            return
        for i, j in self._gatherings(sizes, most):
            if self.layout.bits == 64 and j - i == 1 and sizes[i] > (WEIGHED if weighted else most):
                yield from self._refined(start + i, budget, most)
            elif self.layout.bits == 64 and self._plain(start + i, start + j):
                yield from self._labelled(start + i, start + j)
            elif fits:
                yield from self._weighed(start + i, start + j)
            else:
                yield from self._gathered(start + i, start + j, sizes[i:j])

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

    def _weighed(self, start: int, stop: int) -> Iterator[Weighed]:
        """As `_gathered`, but 16-bit words with weights are left in place."""
        buckets, items, places = self.occupied(start, stop)
        for i, j in self._cuts(self._sizes(start, stop)[buckets - start]):
            yield Weighed(places, i, items[i:j], buckets[i:j])

    def most(self, budget: Budget) -> int:
        """Number of items gathered at once, so that the arrays of one thread take about an eighth of the budget.

        A bucket of up to `WEIGHED` rows with weights is gathered at once whatever the budget.
        """
        width = self.layout.dtype.itemsize + 8 * (self.layout.words - 1 + self.layout.weighted + self.counted)
        return min(REFINE, max(budget.limit // (_COPIES * width), _LEAST))

    def _cuts(self, sizes: Array) -> Iterator[Interval]:
        """Stretches of buckets to be sorted together; single buckets if keys are distinct only within a bucket."""
        if self.layout.partial:
            return ((j, j + 1) for j in np.flatnonzero(sizes).tolist())
        return stretches(sizes, CHUNK, DENSE if self.layout.bits == 16 else CHUNK)

    def _plain(self, start: int, stop: int) -> bool:
        """Whether some of the buckets hold rows without counts, whose words have a spare bit for the label."""
        plain = any(segment.counts is None and segment.has(start, stop) for segment in self.segments)
        return self.layout.halved and self.layout.words == 1 and not self.layout.weighted and plain

    @property
    def forms(self) -> tuple[KeyedCounts, KeyedCounts]:
        """The segments without counts, and those with counts."""
        return self._forms if self.counted else (self, KeyedCounts(self.layout))

    @cached_property
    def _forms(self) -> tuple[KeyedCounts, KeyedCounts]:
        """`forms` if some items have counts. Caching `self` would be a cycle, which keeps rows in memory."""
        plain = tuple(segment for segment in self.segments if segment.counts is None)
        counted = tuple(segment for segment in self.segments if segment.counts is not None)
        return KeyedCounts(self.layout, plain), KeyedCounts(self.layout, counted)

    def _labelled(self, start: int, stop: int) -> Iterator[Labelled]:
        """The rows of an interval: one `Labelled` for each half of the buckets, with items with counts separately."""
        plain, counted = self.forms
        check_items(plain.items_in(start, stop) + counted.items_in(start, stop), self.items_in(start, stop))
        middle = self.layout.buckets // 2
        for a, b in ((start, min(stop, middle)), (max(start, middle), stop)):
            if a >= b:
                continue
            own = plain.items_in(a, b)
            starts = np.concatenate(([0], np.cumsum(own)))
            words, cursor = np.empty(starts[-1], np.uint64), starts[:-1].copy()
            for segment in plain.segments:
                i, j = segment.between(a, b)
                codes, pieces = segment.codes[i:j] - np.uint32(2 * a), segment.starts[i : j + 1]
                given = segment.words.read(int(pieces[0]), int(pieces[-1]))
                kernels.place_labelled(given, pieces, codes, cursor, words)
            items = own + counted.items_in(a, b)
            parts = list(self._cuts(items[0::2] + items[1::2]))
            bounds = np.array([0, *(starts[2 * last] for _, last in parts)])
            buckets = a + np.array([first for first, _ in parts], np.int64)
            yield Labelled(words, bounds, buckets, (a >= middle) << 63, tuple(counted.aligned_parts(a, b, parts)))

    def aligned_parts(self, start: int, stop: int, parts: list[Interval]) -> Iterator[Counts]:
        """Distinct keys of parts of an interval, given as buckets from its start; nothing if the interval is empty."""
        if self.items_in(start, stop).any():
            sides = self.gather(start, stop)
            yield from (grouped(*(side.cut(i, j) for side in sides), bucket=start + i) for i, j in parts)

    def _gathered(self, start: int, stop: int, sizes: Array) -> Iterator[Counts | Unsorted | WeighedItems]:
        """As `rows_or_counts`, for an interval that fits into memory."""
        sides = self.gather(start, stop)
        for i, j in self._cuts(sizes):
            parts = [side.cut(i, j) for side in sides]
            if self.layout.bits == 16 and sizes[i] > DENSE:
                yield tallied(start + i, [parts[0]], [parts[1]], weighted=self.layout.weighted)
                continue
            if self.layout.bits == 16:
                buckets = np.arange(start + i, start + j)
                parts = [
                    (kernels.widen(part[0], side.starts[i : j + 1] - side.starts[i], buckets), *part[1:])
                    for part, side in zip(parts, sides, strict=True)
                ]
            if self.layout.words > 1 and not any(column.size for part in parts for column in part[2:]):
                yield Unsorted(parts[0], parts[1], start + i)
            elif self.layout.weighted and (self.layout.words, self.layout.bits) == (1, 64):
                yield WeighedItems(parts[0], parts[1], start + i)
            else:
                yield grouped(*parts, bucket=start + i)

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

    def _refined(self, bucket: int, budget: Budget, most: int) -> Iterator[Counts]:
        """Partition one bucket again and group the parts, of about `most` items each.

        The bucket is partitioned by the leading bits in which its keys differ, in the first word that differs. If no
        word differs, all keys are equal apart from their `partial` low bits.
        """
        for column in range(self.layout.words):
            low, high = _extremes(self._word(part, column) for label in (0, 1) for part in self.pieces(bucket, label))
            if low < high:
                break
        else:
            yield aligned(*(self._grouped_side(bucket, label) for label in (0, 1)), bucket=bucket)
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

    def _grouped_side(self, bucket: int, label: int) -> Columns:
        """The few distinct keys of very many items, which are grouped a bounded number at a time."""
        words, rest = np.empty(0, self.layout.dtype), np.empty((0, self.layout.words - 1), np.uint64)
        none = words, rest, np.empty(0, np.int64), np.empty(0)
        parts = [none, *(compacted(*piece) for piece in self.pieces(bucket, label))]
        return distinct(*map(np.concatenate, zip(*parts, strict=True)))


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
