"""Keyed counts, partitioned by bucket and sorted only when asked: what every exact state is made of.

A *run* holds the words of some rows in pieces, one for each (bucket, label) that occurs, in ascending order of the code
``2 * bucket + label``; inside a piece the order is free. To fold a batch is therefore one counting pass and one scatter,
and to merge is to put two tuples of runs one after the other. Because every run is cut at the same buckets, any interval
of buckets can be gathered from all runs on its own: work, spilling and shards are intervals, and no cut changes a result.

Pieces in which words repeat are stored as (word, count). Memory is 2 bytes a row for 32-bit keys, 8 for 64-bit keys, 8
more for each further word and for weights, and a count for each distinct key once keys repeat.

`Runs.grouped` sorts an interval and yields its distinct keys with their counts by label. A bucket of 16-bit words with
many rows is tallied in a table instead; a bucket of 64-bit words too large to sort at once is partitioned again by the
bits in which its words differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import IncompatibleStatesError
from streameval.kernels import runs as kernels
from streameval.states.memory import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from streameval.states.memory import Buffer

__all__ = ["Counts", "Interval", "Layout", "Run", "RunBuilder", "Runs", "Side", "cut"]

Array = np.ndarray[Any, np.dtype[Any]]

CHUNK = 1 << 16  # rows sorted at a time where buckets are small: fits the second-level cache
DENSE = 1 << 13  # items above which a bucket of 16-bit words is tallied, not sorted
SLAB = 1 << 20  # rows gathered at a time
REFINE = 1 << 24  # items above which a bucket of 64-bit words is partitioned again

_NONE_I8 = np.empty(0, np.int64)
_NONE_F8 = np.empty(0, np.float64)

Interval = tuple[int, int]
_Columns = tuple[Array, Array, Array, Array]  # words, further words, counts, weights


@dataclass(frozen=True, slots=True)
class Layout:
    """What a word is: the part of a spec that decides whether runs can be merged.

    Attributes
    ----------
    buckets : int
        Number of buckets.
    bits : int
        16 (the bucket is the rest of a 32-bit key) or 64 (the whole key).
    words : int
        Words of a key; only the first one decides the bucket.
    weighted : bool
        Whether rows have weights beside counts.
    halved : bool
        Whether the top bit of a 64-bit word is clear in the lower half of the buckets and set in the upper half.
    """

    buckets: int
    bits: int
    words: int = 1
    weighted: bool = False
    halved: bool = True

    @property
    def codes(self) -> int:
        """Number of (bucket, label) codes."""
        return 2 * self.buckets

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a stored word."""
        return np.dtype(np.uint16 if self.bits == 16 else np.uint64)


@dataclass(frozen=True, slots=True)
class Run:
    """Rows in pieces by code.

    Attributes
    ----------
    codes : uint32 array of shape (n_pieces,), ascending
    starts : int64 array of shape (n_pieces + 1,), first item of each piece
    rows : int64 array of shape (n_pieces,), rows of each piece (more than items where items have counts)
    sums : float64 array of shape (n_pieces,), weight of each piece; None without weights
    words, rest, counts, weights : buffers of equal length; None where the layout or the form has none; `rest`, the further
        words, has a column for each
    """

    codes: Array
    starts: Array
    rows: Array
    sums: Array | None
    words: Buffer
    rest: Buffer | None = None
    counts: Buffer | None = None
    weights: Buffer | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Distinct keys in ascending order, with what was counted for each.

    Attributes
    ----------
    keys : uint64 array of shape (n,)
    rest : uint64 array of shape (n, n_words - 1), the further words
    neg, pos : int64 arrays of shape (n,)
    neg_weight, pos_weight : float64 arrays of shape (n,); None without weights
    """

    keys: Array
    rest: Array
    neg: Array
    pos: Array
    neg_weight: Array | None = None
    pos_weight: Array | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Items of one label in an interval, bucket by bucket; absent columns are empty arrays."""

    starts: Array  # of shape (n_buckets + 1,)
    words: Array
    rest: Array
    counts: Array
    weights: Array

    def cut(self, i: int, j: int) -> _Columns:
        """Items of the buckets from i to j, counted from the interval's first."""
        a, b = self.starts[i], self.starts[j]
        return self.words[a:b], self.rest[a:b], self.counts[a:b], self.weights[a:b]


@dataclass(frozen=True)
class Runs:
    """An immutable multiset of (key, label) rows, with weights or without.

    Parameters
    ----------
    layout : Layout
    runs : tuple of Run

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.memory import Budget
    >>> layout = Layout(buckets=4, bits=64)
    >>> def encode(rows, words, codes, table):  # the key is the value, its bucket the lower two bits
    ...     words[:] = rows
    ...     codes[:] = 2 * (rows & 3)
    ...     np.add.at(table, codes, 1)
    >>> rows = np.array([5, 1, 5], dtype=np.uint64)
    >>> builder = RunBuilder(layout, Budget(), capacity=8)
    >>> builder.add(3, lambda part, *out: encode(rows[part], *out))
    >>> [counts] = builder.finish().grouped((0, 4))
    >>> counts.keys, counts.neg
    (array([1, 5], dtype=uint64), array([1, 2]))
    """

    layout: Layout
    runs: tuple[Run, ...] = ()

    def merge(self, other: Runs) -> Runs:
        """The union of both multisets."""
        if self.layout != other.layout:
            msg = f"cannot merge {self.layout} with {other.layout}; fold both with the same options"
            raise IncompatibleStatesError(msg)
        return replace(self, runs=self.runs + other.runs)

    @cached_property
    def rows(self) -> Array:
        """Rows of each code, as an int64 array of shape (n_codes,)."""
        return self._total(lambda run: run.rows)

    @cached_property
    def items(self) -> Array:
        """Stored items of each code, as an int64 array of shape (n_codes,)."""
        return self._total(lambda run: np.diff(run.starts))

    def _total(self, value: Callable[[Run], Array]) -> Array:
        total = np.zeros(self.layout.codes, np.int64)
        for run in self.runs:
            total[run.codes] += value(run)
        return total

    @cached_property
    def sums(self) -> Array:
        """Weight of each code, as a float64 array of shape (n_codes,), correctly rounded."""
        parts: dict[int, list[float]] = {}
        for run in self.runs:
            if run.sums is not None:
                for code, weight in zip(run.codes.tolist(), run.sums.tolist(), strict=True):
                    parts.setdefault(code, []).append(weight)
        total = np.zeros(self.layout.codes)
        for code, weights in parts.items():
            total[code] = math.fsum(weights)
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of the items, in memory or spilled."""
        columns = ((run.words, run.rest, run.counts, run.weights) for run in self.runs)
        return sum(column.nbytes for run in columns for column in run if column is not None)

    def intervals(self, items: int = SLAB) -> list[Interval]:
        """Cut the buckets into intervals of about `items` items each, a larger bucket alone, leaving out empty stretches."""
        per_bucket = self.items[0::2] + self.items[1::2]
        used = np.flatnonzero(per_bucket)
        if not used.size:
            return []
        before = np.cumsum(per_bucket[used]) - per_bucket[used]
        first = np.flatnonzero((np.diff(before // items, prepend=-1) > 0) | (per_bucket[used] > items))
        last = np.append(first[1:], used.size) - 1
        return list(zip(used[first].tolist(), (used[last] + 1).tolist(), strict=True))

    def grouped(self, interval: Interval, budget: Budget | None = None) -> Iterator[Counts]:
        """Distinct keys of an interval of buckets in ascending order, in batches of about 2¹⁶ rows or one bucket."""
        start, stop = interval
        items = self.items[2 * start : 2 * stop : 2] + self.items[2 * start + 1 : 2 * stop : 2]
        if self.layout.bits == 16 and stop - start == 1 and items[0] > REFINE:
            yield _tallied(start, self.layout, self.pieces(start, 0), self.pieces(start, 1))
            return
        if self.layout.bits == 64 and stop - start == 1 and items[0] > REFINE:
            yield from self._refined(start, budget or Budget())
            return
        yield from self._gathered(start, stop, items)

    def _gathered(self, start: int, stop: int, items: Array) -> Iterator[Counts]:
        """As `grouped`, of an interval that fits into memory."""
        sides = self.gather(start, stop)
        for i, j in _batches(items, self.layout.buckets // 2 - start):
            parts = [side.cut(i, j) for side in sides]
            if self.layout.bits == 16 and items[i] > DENSE:
                yield _tallied(start + i, self.layout, [parts[0]], [parts[1]])
                continue
            if self.layout.bits == 16:
                buckets = np.arange(start + i, start + j)
                parts = [
                    (kernels.widen(part[0], side.starts[i : j + 1] - side.starts[i], buckets), *part[1:])
                    for part, side in zip(parts, sides, strict=True)
                ]
            if self.layout.halved and all(part[0].size == sum(column.size for column in part) for part in parts):
                yield _sorted_together(parts[0][0], parts[1][0], top=self.layout.bits == 64 and start + i >= self.layout.buckets // 2)
            else:
                yield _aligned(*(_distinct(*part) for part in parts))

    def gather(self, start: int, stop: int) -> tuple[Side, Side]:
        """Gather an interval of buckets from all runs: negatives bucket by bucket, then positives."""
        sizes = np.concatenate((self.items[2 * start : 2 * stop : 2], self.items[2 * start + 1 : 2 * stop : 2]))
        starts = np.concatenate(([0], np.cumsum(sizes)))
        total = int(starts[-1])
        counted = any(run.counts is not None for run in self.runs)
        columns = {
            "words": np.empty(total, self.layout.dtype),
            "rest": np.empty((total, self.layout.words - 1), np.uint64),
            "counts": np.empty(total if counted else 0, np.int64),
            "weights": np.empty(total if self.layout.weighted else 0, np.float64),
        }
        cursors = {name: starts[:-1].copy() for name in columns}
        for run in self.runs:
            a, b = np.searchsorted(run.codes, (2 * start, 2 * stop)).tolist()
            codes, pieces = run.codes[a:b].astype(np.int64) - 2 * start, run.starts[a : b + 1]
            slots = (codes & 1) * (stop - start) + (codes >> 1)
            for name, out in columns.items():
                if out.size and a < b:
                    move = kernels.place if out.ndim == 1 else kernels.place_rows
                    move(_read(getattr(run, name), pieces, out.dtype), pieces, slots, cursors[name], out)
        middle, half = stop - start, int(starts[stop - start])
        return (
            Side(starts[: middle + 1], **{name: out[:half] for name, out in columns.items()}),
            Side(starts[middle:] - half, **{name: out[half:] for name, out in columns.items()}),
        )

    def pieces(self, bucket: int, label: int) -> Iterator[_Columns]:
        """Items of one code, run by run, a bounded number at a time."""
        code = 2 * bucket + label
        for run in self.runs:
            j = int(np.searchsorted(run.codes, code))
            if j == run.codes.size or run.codes[j] != code:
                continue
            for a in range(int(run.starts[j]), int(run.starts[j + 1]), SLAB):
                b = min(a + SLAB, int(run.starts[j + 1]))
                yield (
                    run.words.read(a, b),
                    run.rest.read(a, b) if run.rest else np.empty((b - a, 0), np.uint64),
                    run.counts.read(a, b) if run.counts else _NONE_I8,
                    run.weights.read(a, b) if run.weights else _NONE_F8,
                )

    def _refined(self, bucket: int, budget: Budget) -> Iterator[Counts]:
        """Partition one bucket again, by the leading bits of the first word in which its keys differ, and group the parts.

        Where there is no such word all keys are equal, and nothing is left to partition by.
        """
        for column in range(self.layout.words):
            low, high = _extremes(_word(part, column) for label in (0, 1) for part in self.pieces(bucket, label))
            if low < high:
                break
        else:
            items = self.items[2 * bucket] + self.items[2 * bucket + 1]
            yield from self._gathered(bucket, bucket + 1, np.array([items]))
            return
        shift = np.uint64(max((high - low).bit_length() - 11, 0))
        layout = replace(self.layout, buckets=1 << 11, halved=False)
        builder = RunBuilder(layout, budget, SLAB, counted=any(run.counts is not None for run in self.runs))
        for label in (0, 1):
            for part in self.pieces(bucket, label):
                high_bits = (_word(part, column) - np.uint64(low)) >> shift
                words, rest, counts, weights = part
                builder.add_items(words, (high_bits << np.uint64(1)).astype(np.uint32) | np.uint32(label), rest, counts, weights)
        finer = builder.finish()
        for interval in finer.intervals():
            yield from finer.grouped(interval, budget)


def _word(part: _Columns, column: int) -> Array:
    """One word of some items' keys."""
    return part[1][:, column - 1] if column else part[0]


def cut(sizes: Array, items: int) -> list[Interval]:
    """Cut buckets of these sizes into intervals of about `items` items each; see `Runs.intervals`.

    Examples
    --------
    >>> cut(np.array([0, 2, 1, 9, 0, 1]), 3)
    [(1, 3), (3, 5), (5, 6)]
    """
    used = np.flatnonzero(sizes)
    if not used.size:
        return []
    before = np.cumsum(sizes[used]) - sizes[used]
    first = np.flatnonzero((np.diff(before // items, prepend=-1) > 0) | (sizes[used] > items))
    bounds = np.append(used[first], used[-1] + 1).tolist()
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _read(column: Buffer | None, starts: Array, dtype: np.dtype[Any]) -> Array:
    """The items of consecutive pieces; an absent column of counts is all ones."""
    first, last = int(starts[0]), int(starts[-1])
    return np.ones(last - first, dtype) if column is None else column.read(first, last)


def _sorted_together(neg: Array, pos: Array, *, top: bool) -> Counts:
    """Sort rows of both labels at once, the label in the bit that the half of the buckets makes redundant."""
    words = kernels.labelled(neg, pos)
    words.sort()
    keys, neg, pos = kernels.tally_sorted(words, np.uint64(top << 63))
    return Counts(keys, _no_rest(keys), neg, pos)


def _batches(items: Array, middle: int) -> Iterator[tuple[int, int]]:
    """Split buckets into stretches of at most `CHUNK` items, never across `middle`.

    A bucket of more than `DENSE` items stands alone.
    """
    i, total = 0, 0
    for j, size in enumerate(items.tolist()):
        if j > i and (total + size > CHUNK or size > DENSE or total > DENSE or j == middle):
            if total:
                yield i, j
            i, total = j, 0
        total += size
    if total:
        yield i, len(items)


def _extremes(pieces: Iterator[Array]) -> tuple[int, int]:
    """Smallest and largest word."""
    bounds = [(int(words.min()), int(words.max())) for words in pieces]
    return min(low for low, _ in bounds), max(high for _, high in bounds)


def _distinct(words: Array, rest: Array, counts: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
    """Sort items and group them by key."""
    if not (rest.size or counts.size or weights.size):
        return kernels.distinct(np.sort(words), rest, counts, weights)  # type: ignore[no-any-return]
    order = np.argsort(words)
    words = words[order]
    if rest.size:
        kernels.order_rest(words, rest, order)
    columns = (column[order] if column.size else column for column in (rest, counts, weights))
    return kernels.distinct(words, *columns)  # type: ignore[no-any-return]


def _no_rest(keys: Array) -> Array:
    """The further words of keys that have none."""
    return np.empty((keys.size, 0), np.uint64)


def _aligned(neg: tuple[Array, ...], pos: tuple[Array, ...]) -> Counts:
    """Join the distinct keys of both labels."""
    keys, rest, at_neg, at_pos = kernels.align(neg[0], neg[1], pos[0], pos[1])

    def spread(values: Array, at: Array) -> Array:
        out = np.zeros(keys.size, values.dtype)
        out[at] = values
        return out

    counts = spread(neg[2], at_neg), spread(pos[2], at_pos)
    if neg[3].size or pos[3].size:
        return Counts(keys, rest, *counts, spread(neg[3], at_neg), spread(pos[3], at_pos))
    return Counts(keys, rest, *counts)


def _tallied(bucket: int, layout: Layout, *sides: Iterable[tuple[Array, Array, Array, Array]]) -> Counts:
    """Count the 16-bit words of one bucket in a table."""
    tables = [np.zeros(1 << 16, np.int64) for _ in sides]
    weights = [np.zeros((2, 1 << 16 if layout.weighted else 0)) for _ in sides]
    for side, table, (sums, errors) in zip(sides, tables, weights, strict=True):
        for words, _, counts, weight in side:
            kernels.tally(words, counts, table)
            if layout.weighted:
                kernels.tally_weights(words, weight, sums, errors)
    found = kernels.occupied(*tables)
    keys = found.astype(np.uint64) | np.uint64(bucket << 16)
    if not layout.weighted:
        return Counts(keys, _no_rest(keys), tables[0][found], tables[1][found])
    neg_weight, pos_weight = (sums[found] + errors[found] for sums, errors in weights)
    return Counts(keys, _no_rest(keys), tables[0][found], tables[1][found], neg_weight, pos_weight)


class RunBuilder:
    """Collects encoded rows and turns every `capacity` of them into a run; owned by one task.

    Parameters
    ----------
    layout : Layout
    budget : Budget
        Owns the runs' arrays.
    capacity : int
        Rows a run holds at most.
    counted : bool
        Whether items come with counts, through `add_items`.
    """

    def __init__(self, layout: Layout, budget: Budget, capacity: int, *, counted: bool = False) -> None:
        self.layout = layout
        self.budget = budget
        self.capacity = max(capacity, 1)
        self._words = budget.borrow(self.capacity, layout.dtype)
        self._codes = budget.borrow(self.capacity, np.uint32)
        self._rest = budget.borrow((self.capacity, layout.words - 1), np.uint64)
        self._counts = budget.borrow(self.capacity if counted else 0, np.int64)
        self._weights = budget.borrow(self.capacity if layout.weighted else 0, np.float64)
        self._table = np.zeros(layout.codes + 2, np.int64)
        self._size = 0
        self._runs: list[Run] = []
        self.nan_rows = np.zeros(2, np.int64)  # rows by label whose score is NaN
        self._nan_weights: tuple[list[float], list[float]] = ([], [])

    @property
    def nan_seen(self) -> bool:
        """Whether a NaN score was added."""
        return bool(self._table[-2:].any() or self.nan_rows.any())

    @property
    def nan_weights(self) -> Array:
        """Weight by label of the rows whose score is NaN, as a float64 array of shape (2,)."""
        return np.array([math.fsum(part) for part in self._nan_weights])

    def add(
        self,
        rows: int,
        encode: Callable[[slice, Array, Array, Array], None],
        rest: Array | None = None,
        weights: Array = _NONE_F8,
    ) -> None:
        """Take `rows` rows; ``encode(part, words, codes, table)`` fills words and codes and counts the codes."""
        for part, room in self._rooms(rows):
            encode(part, self._words[room], self._codes[room], self._table)
            if rest is not None:
                self._rest[room] = rest[part]
            if weights.size:
                self._weights[room] = weights[part]

    def add_items(self, words: Array, codes: Array, rest: Array | None, counts: Array, weights: Array) -> None:
        """Take items that are encoded already, with counts or without."""
        for part, room in self._rooms(words.size):
            self._words[room], self._codes[room] = words[part], codes[part]
            self._table += np.bincount(codes[part], minlength=self._table.size)
            if rest is not None:
                self._rest[room] = rest[part]
            for mine, given in ((self._counts, counts), (self._weights, weights)):
                if mine.size:
                    mine[room] = given[part] if given.size else 1

    def _rooms(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """Parts of the input, each with the free place it goes to."""
        done = 0
        while done < rows:
            if self._size == self.capacity:
                self._flush()
            count = min(rows - done, self.capacity - self._size)
            yield slice(done, done + count), slice(self._size, self._size + count)
            done += count
            self._size += count

    def finish(self) -> Runs:
        """The runs of everything added; the builder is spent."""
        self._flush()
        for column in (self._words, self._codes, self._rest, self._counts, self._weights):
            self.budget.give_back(column)
        return Runs(self.layout, tuple(self._runs))

    def _flush(self) -> None:
        if not self._size:
            return
        kept = self._size - int(self._table[-2:].sum())
        starts = np.concatenate(([0], np.cumsum(self._table)))
        columns = []
        for values in (self._words, self._rest, self._counts, self._weights):
            out = np.empty((self._size if values.shape[0] else 0, *values.shape[1:]), values.dtype)
            if values.size:
                move = kernels.scatter if values.ndim == 1 else kernels.scatter_rows
                move(values[: self._size], self._codes[: self._size], starts[:-1].copy(), out)
            columns.append(out)
        for label in (0, 1):
            self.nan_rows[label] += self._table[self.layout.codes + label]
            a, b = starts[self.layout.codes + label : self.layout.codes + label + 2]
            self._nan_weights[label].append(math.fsum(columns[3][a:b]))
        codes = np.flatnonzero(self._table[:-2]).astype(np.uint32)
        if codes.size:
            self._emit(codes, np.append(starts[codes], kept), *(column[:kept] for column in columns))
        self._table[:] = 0
        self._size = 0

    def _emit(self, codes: Array, starts: Array, words: Array, rest: Array, counts: Array, weights: Array) -> None:
        """Store the pieces: those whose words repeat as (word, count), the others as they are."""
        again = kernels.repetitive(words, rest, starts)
        if again.any():
            pieces = [
                (code, *_distinct(*(column[a:b] for column in (words, rest, counts, weights))))
                for code, a, b in zip(codes[again], starts[:-1][again], starts[1:][again], strict=True)
            ]
            sizes = [piece[1].size for piece in pieces]
            columns = [np.concatenate(column) for column in list(zip(*pieces, strict=True))[1:]]
            self._store(codes[again], np.concatenate(([0], np.cumsum(sizes))), *columns)
            keep = np.repeat(~again, np.diff(starts))
            sizes = np.diff(starts)[~again]
            codes, starts = codes[~again], np.concatenate(([0], np.cumsum(sizes)))
            words, rest, counts, weights = (c[keep] if len(c) else c for c in (words, rest, counts, weights))
        if codes.size:
            self._store(codes, starts, words, rest, counts, weights)

    def _store(self, codes: Array, starts: Array, words: Array, rest: Array, counts: Array, weights: Array) -> None:
        rows = np.add.reduceat(counts, starts[:-1]) if counts.size else np.diff(starts)
        sums = kernels.sum_pieces(weights, starts) if self.layout.weighted else None
        held = (self.budget.hold(column) if column.size else None for column in (words, rest, counts, weights))
        self._runs.append(Run(codes, starts, rows, sums, *held))  # type: ignore[arg-type]
