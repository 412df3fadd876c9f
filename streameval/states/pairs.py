"""From (cluster, class) cells to their summary, in two passes of bounded memory.

The sums that need both margins of a cell, such as chi-square, want the size of its class beside the size of its
cluster; of as many classes as clusters neither side fits into memory. So the cells are visited twice:

1. *By cluster*, bucket by bucket. All rows of a cluster lie in one bucket: its size c, its largest cell and its counts
   n are known at once. Each cell goes on as (class, n, c), and one that is alone, n = c = 1, as its class only.
2. *By class*. All cells of a class lie in one bucket again: its size r = Σ n and its largest cell are known, and with
   them everything of the cell.

Neither pass sorts: keys are numbered by a hash table that holds one stretch of buckets. A bucket too large for memory
holds a giant cluster or a giant class. In the first pass its rows are spread over 2,048 parts by a hash of the whole key
and the parts visited twice, first for the clusters' sizes; in the second pass it is streamed twice. What stays in memory
is the distinct clusters, or classes, of that bucket. Equal cells of a giant class come with a multiplicity.

Both passes are pure functions of an interval; partial summaries add up to the same bits in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency import add_margins, emit_cells, number_keys
from streameval.kernels.keys import ID_BUCKETS, encode_id
from streameval.states.ids import SHIFT
from streameval.states.protocol import Array
from streameval.states.runs import CHUNK, SLAB, Interval, Layout, RunBuilder, Runs, cut
from streameval.states.sizes import Sizes
from streameval.states.summary import Summary, summarize_cells, summarize_classes, summarize_clusters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.states.memory import Budget

__all__ = ["ClassCells", "Keys", "by_class", "by_cluster", "class_layouts", "without_cluster"]

LARGE = 1 << 22  # items above which a bucket is not gathered but streamed
_NARROW = 1 << 32  # rows below which n and c share a word
_NONE = np.empty(0, np.int64)


class Keys(NamedTuple):
    """How the words of a (cluster, class) key are divided."""

    cluster: int
    class_: int


@dataclass(frozen=True)
class ClassCells:
    """Cells by class, on their way from the first pass to the second.

    Attributes
    ----------
    ones : Runs
        Cells of one row that is alone in its cluster: the words are the class.
    others : Runs
        Cells with n and c after the words of the class, in one word where both are narrow.
    """

    ones: Runs
    others: Runs

    def merge(self, other: ClassCells) -> ClassCells:
        """Cells of both."""
        return ClassCells(self.ones.merge(other.ones), self.others.merge(other.others))

    def intervals(self) -> list[Interval]:
        """Intervals of classes that the second pass can take on their own."""
        return cut(self.sizes(), SLAB)

    def sizes(self) -> Array:
        """Items of each bucket, as an int64 array."""
        return self.ones.items[0::2] + self.others.items[0::2]


def class_layouts(keys: Keys, rows: int) -> tuple[Layout, Layout]:
    """Layouts of `ClassCells` of a table of so many rows."""
    words = keys.class_
    return Layout(ID_BUCKETS, 64, words), Layout(ID_BUCKETS, 64, words + (1 if rows < _NARROW else 2))


class _Margins:
    """Keys seen so far with totals and largest counts, numbered as they first appear."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.totals, self.maxima = _NONE, _NONE
        self._seen = np.empty(0, np.uint64), np.empty((0, columns), np.uint64), _NONE

    def number(self, words: Array, rest: Array) -> Array:
        """Numbers of keys, new ones included."""
        known = self.totals.size
        if known:
            old, old_rest, found = self._seen
            words = np.concatenate((old[found], words))
            rest = np.concatenate((old_rest[found][:, : self.columns], rest[:, : self.columns]))
        numbers, found = _numbered(words, rest, self.columns)
        if found.size > known:
            self._seen = words, rest, found
            more = np.zeros(found.size - known, np.int64)
            self.totals, self.maxima = np.concatenate((self.totals, more)), np.concatenate((self.maxima, more))
        return numbers[known:]

    def add(self, words: Array, rest: Array, counts: Array, times: Array = _NONE) -> Array:
        """Count keys; returns their numbers."""
        numbers = self.number(words, rest)
        add_margins(numbers, counts, times, self.totals, self.maxima)
        return numbers


def _numbered(words: Array, rest: Array, columns: int) -> tuple[Array, Array]:
    """Number of each key, and where each number came first."""
    slots = np.empty(1 << (2 * words.size).bit_length(), np.int32)
    numbers, found = np.empty(words.size, np.int64), np.empty(words.size, np.int64)
    return numbers, found[: number_keys(words, rest, columns, slots, numbers, found)]


class _Cells(NamedTuple):
    """Distinct cells of some rows, and the rows without a class that belong to the same clusters."""

    words: Array
    rest: Array
    counts: Array
    lone_words: Array
    lone_rest: Array
    lone_counts: Array

    @classmethod
    def of(cls, rows: tuple[Array, ...], lone: tuple[Array, ...]) -> _Cells:
        words, rest, counts = rows[:3]
        numbers, found = _numbered(words, rest, rest.shape[1])
        totals = np.zeros((2, found.size), np.int64)
        add_margins(numbers, _NONE, counts, totals[0], totals[1])
        return cls(words[found], rest[found], totals[0], *lone[:2], _counts(lone))


def _counts(rows: tuple[Array, ...]) -> Array:
    return rows[2] if rows[2].size else np.ones(rows[0].size, np.int64)


class _FirstPass:
    """Collects what the first pass finds in one interval."""

    def __init__(self, keys: Keys, rows: int, items: int, budget: Budget) -> None:
        capacity = min(SLAB, 1 << max(items - 1, 0).bit_length())
        self.keys = keys
        self._builders = [RunBuilder(layout, budget, capacity) for layout in class_layouts(keys, rows)]
        self._clusters: list[tuple[Array, Array]] = []
        self._lone: list[tuple[Array, Array]] = []

    def add(self, cells: _Cells, numbers: Array, lone: Array, margins: _Margins) -> None:
        """Pass cells on by class, and note the cells of rows without a class."""
        size = cells.counts.size
        ones, others = np.empty(size, np.uint64), np.empty(size, np.uint64)
        rests = [np.empty((size, builder.layout.words - 1), np.uint64) for builder in self._builders]
        column = self.keys.cluster - 1
        taken = emit_cells(cells.counts, numbers, margins.totals, cells.rest, column, ones, rests[0], others, rests[1])
        for builder, words, rest, count in zip(self._builders, (ones, others), rests, taken, strict=True):
            _add(builder, words[:count], rest[:count])
        if lone.size:
            self._lone.append((margins.totals[lone], cells.lone_counts))

    def close(self, margins: _Margins) -> None:
        """Note the sizes of clusters that are complete."""
        self._clusters.append((margins.totals, margins.maxima))

    def result(self) -> tuple[Summary, ClassCells]:
        """The partial summary, and the cells by class."""
        found = [np.concatenate(column) for column in zip(*self._clusters, strict=True)] or [_NONE, _NONE]
        summary = summarize_clusters(*found)
        if self._lone:
            sizes, times = (np.concatenate(column) for column in zip(*self._lone, strict=True))
            summary = summary.merge(_lone_classes(sizes, times))
        return summary, ClassCells(*(builder.finish() for builder in self._builders))


def _add(builder: RunBuilder, ids: Array, rest: Array) -> None:
    label = np.zeros(ids.size, np.uint8)
    builder.add(ids.size, lambda part, *out: encode_id(ids[part], label[part], SHIFT, *out), rest if rest.shape[1] else None)


def _lone_classes(sizes: Array, times: Array) -> Summary:
    """Cells of classes of one row, `times` of them in clusters of each size."""
    rows, total = np.zeros(sizes.size, np.int64), int(times.sum())
    ones = np.ones(sizes.size, np.int64)
    cells = summarize_cells(rows, np.arange(sizes.size), ones, ones[:1], sizes, times)
    return cells.merge(Summary(classes=Sizes.repeat(1, total), row_maxima=total))


def without_cluster(rows: int, lone: int) -> Summary:
    """What `rows` clusters of one row add beside their classes, and `lone` more of which the class has one row as well."""
    total = rows + lone
    clusters = Summary(clusters=Sizes.repeat(1, total), column_maxima=total)
    return clusters.merge(_lone_classes(np.ones(1, np.int64), np.array([lone]))) if lone else clusters


def by_cluster(runs: Runs, keys: Keys, rows: int, interval: Interval, budget: Budget) -> tuple[Summary, ClassCells]:
    """First pass: what clusters decide, and the cells of their classes.

    Parameters
    ----------
    runs : Runs
        Rows by cluster and class; label 1 for rows without a class, each of which is a class of its own.
    keys : Keys
    rows : int
        Rows of the whole table.
    interval : (int, int)
        Buckets to take.
    budget : Budget
        Owns the cells.
    """
    items = runs.items[2 * interval[0] : 2 * interval[1]].reshape(-1, 2).sum(axis=1)
    found = _FirstPass(keys, rows, int(items.sum()), budget)
    if items.size == 1 and items[0] > LARGE:
        _giant_clusters(runs, interval[0], found, budget)
        return found.result()
    sides = runs.gather(*interval)
    for i, j in cut(items, CHUNK):
        _one_stretch(_Cells.of(sides[0].cut(i, j), sides[1].cut(i, j)), found)
    return found.result()


def _one_stretch(cells: _Cells, found: _FirstPass) -> None:
    """Cells of whole clusters."""
    margins = _Margins(found.keys.cluster - 1)
    numbers = margins.add(cells.words, cells.rest, cells.counts)
    lone = _add_lone(cells, margins)
    found.add(cells, numbers, lone, margins)
    found.close(margins)


def _add_lone(cells: _Cells, margins: _Margins) -> Array:
    if not cells.lone_words.size:
        return _NONE
    return margins.add(cells.lone_words, cells.lone_rest, _NONE, cells.lone_counts)


def _giant_clusters(runs: Runs, bucket: int, found: _FirstPass, budget: Budget) -> None:
    """Clusters of one bucket whose cells do not fit into memory: once for the clusters' sizes, once for the cells."""
    parts = _spread(runs, bucket, budget)
    margins = _Margins(found.keys.cluster - 1)
    for cells in _parts(parts):
        margins.add(cells.words, cells.rest, cells.counts)
        _add_lone(cells, margins)
    for cells in _parts(parts):
        numbers = margins.number(cells.words, cells.rest)
        lone = margins.number(cells.lone_words, cells.lone_rest) if cells.lone_words.size else _NONE
        found.add(cells, numbers, lone, margins)
    found.close(margins)


def _spread(runs: Runs, bucket: int, budget: Budget) -> Runs:
    """Rows of one bucket, partitioned by a hash of the whole key: equal keys stay together."""
    layout = replace(runs.layout, halved=False)
    builder = RunBuilder(layout, budget, SLAB, counted=any(run.counts is not None for run in runs.runs))
    for label in (0, 1):
        for words, rest, counts, weights in runs.pieces(bucket, label):
            mixed = words
            for column in rest.T:
                mixed = ((mixed ^ (mixed >> np.uint64(32))) * _ODD) + column
            codes = ((mixed * _ODD) >> SHIFT) << np.uint64(1) | np.uint64(label)
            builder.add_items(words, codes.astype(np.uint32), rest, counts, weights)
    return builder.finish()


_ODD = np.uint64(0xD6E8FEB86659FD93)


def _parts(runs: Runs) -> Iterator[_Cells]:
    for start, stop in runs.intervals():
        sides = runs.gather(start, stop)
        yield _Cells.of(sides[0].cut(0, stop - start), sides[1].cut(0, stop - start))


class _ClassItems(NamedTuple):
    """Cells by class, of some whole classes or of parts of them."""

    words: Array
    rest: Array
    n: Array  # empty: all are 1, and so is c
    c: Array
    times: Array

    @classmethod
    def of_ones(cls, columns: tuple[Array, ...]) -> _ClassItems:
        words, rest, *_ = columns
        return cls(words, rest, _NONE, _NONE, _counts(columns))

    @classmethod
    def of_others(cls, columns: tuple[Array, ...], class_words: int) -> _ClassItems:
        words, rest, *_ = columns
        first = rest[:, class_words - 1]
        if rest.shape[1] == class_words:
            n, c = first >> np.uint64(32), first & np.uint64(0xFFFFFFFF)
        else:
            n, c = first, rest[:, class_words]
        return cls(words, rest, n.astype(np.int64), c.astype(np.int64), _counts(columns))


def by_class(cells: ClassCells, interval: Interval, budget: Budget) -> Summary:  # noqa: ARG001 - both passes take one
    """Second pass: what classes decide, and what cells decide that know both sizes.

    Parameters
    ----------
    cells : ClassCells
        Of all intervals of the first pass, merged.
    interval : (int, int)
        Buckets to take.
    budget : Budget
        Unused: nothing is held.
    """
    start, stop = interval
    items = cells.sizes()[start:stop]
    if items.size == 1 and items[0] > LARGE:
        return _giant_classes(cells, start)
    words = cells.ones.layout.words
    ones, others = cells.ones.gather(start, stop)[0], cells.others.gather(start, stop)[0]
    found: list[tuple[Array, ...]] = []
    classes = 0
    for i, j in cut(items, CHUNK):
        margins = _Margins(words - 1)
        one, other = _ClassItems.of_ones(ones.cut(i, j)), _ClassItems.of_others(others.cut(i, j), words)
        margins.add(one.words, one.rest, one.n, one.times)
        singles = margins.totals
        alone = np.flatnonzero(singles)
        singles = singles[alone]
        codes = margins.add(other.words, other.rest, other.n, other.times)
        found.append((alone + classes, singles, codes + classes, other.n, other.c, other.times, margins.totals, margins.maxima))
        classes += margins.totals.size
    alone, singles, codes, n, c, times, totals, maxima = (np.concatenate(column) for column in zip(*found, strict=True))
    summary = summarize_classes(totals, maxima).merge(_class_cells(codes, n, c, times, totals))
    return summary.merge(_alone(alone, singles, totals))


def _class_cells(codes: Array, n: Array, c: Array, times: Array, totals: Array) -> Summary:
    return summarize_cells(codes, np.arange(n.size), n, totals, c, times)


def _alone(codes: Array, times: Array, totals: Array) -> Summary:
    """Cells of one row that is alone in its cluster, so many of each class."""
    ones = np.ones(codes.size, np.int64)
    return summarize_cells(codes, np.zeros(codes.size, np.int64), ones, totals, ones[:1], times)


def _giant_classes(cells: ClassCells, bucket: int) -> Summary:
    """Classes of one bucket whose cells do not fit into memory: once for the classes' sizes, once for the cells."""
    words = cells.ones.layout.words
    margins = _Margins(words - 1)
    for columns in cells.ones.pieces(bucket, 0):
        one = _ClassItems.of_ones(columns)
        margins.add(one.words, one.rest, one.n, one.times)
    singles = margins.totals.copy()
    for columns in cells.others.pieces(bucket, 0):
        other = _ClassItems.of_others(columns, words)
        margins.add(other.words, other.rest, other.n, other.times)
    summary = summarize_classes(margins.totals, margins.maxima)
    alone = np.flatnonzero(singles)
    summary = summary.merge(_alone(alone, singles[alone], margins.totals))
    for columns in cells.others.pieces(bucket, 0):
        other = _ClassItems.of_others(columns, words)
        codes = margins.number(other.words, other.rest)
        summary = summary.merge(_class_cells(codes, other.n, other.c, other.times, margins.totals))
    return summary
