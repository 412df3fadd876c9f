"""RowBuilder: rows of ids → segments, without labels or weights.

What `streameval.states.keyed.builder.SegmentBuilder` does for any rows, with less work for each: the bucket is a
part of the mixed id, so no code is stored, and one loop scatters all words of a row. Keys with many rows are counted
before, in a table that the second-level cache holds. It is learned from the first rows; what it holds decides speed and
memory only, since its counts are exact and a key may have rows both in it and elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.jit import read_only
from streameval.kernels.keyed.rows import SLOT_BITS, absorb_rows, count_buckets, scatter_ids, slots_of_rows
from streameval.kernels.keys import ID_BUCKETS
from streameval.states.keyed import hot
from streameval.states.keyed.builder import BLOCK, SegmentBuilder
from streameval.states.keyed.ids import SHIFT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Layout, Segment
    from streameval.typing import Array

__all__ = ["HotRows", "RowBuilder", "store_counted"]

_GLANCE, _SAMPLE = 1 << 13, 1 << 15  # rows that tell whether keys are hot, and rows from which they are learned
_WORTH = 16  # one row of this many, at least, must be of a hot key


class HotRows:
    """Counts the rows of the keys that it has learned; owned by one builder.

    Examples
    --------
    >>> words, rest = np.array([7, 7, 9, 7, 5, 7, 7], np.uint64), np.zeros((7, 1), np.uint64)
    >>> table = HotRows.learned(words, rest)
    >>> left = table.absorb(words, rest)
    >>> words[:left].tolist(), [column.tolist() for column in table.items()]
    ([9, 5], [[7], [[0]], [5]])
    """

    def __init__(self, keys: Array) -> None:
        """Take keys, from the least to the most frequent one."""
        self._table = np.zeros((1 << SLOT_BITS, keys.shape[1] + 1), np.uint64)
        self._table[0, :-1] = ~np.uint64(0)  # a free slot holds a key of another slot, so that no row is found there
        self._table[slots_of_rows(keys), :-1] = keys
        self._further = tuple(range(keys.shape[1] - 1))
        self._rows = 0

    @classmethod
    def learned(cls, words: Array, rest: Array) -> HotRows | None:
        """The keys that a sample of some rows has `hot.SEEN` times; None where they have too few of the rows."""
        for most in (_GLANCE, _SAMPLE):
            step = max(1, words.size // most)
            some, more = words[::step][:_SAMPLE], rest[::step][:_SAMPLE]
            whole = some.copy()
            for column in more.T:  # two keys taken for one only make the sample a little wrong
                whole = (whole ^ (whole >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15) + column
            whole = (whole ^ (whole >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
            low = np.uint64(_SAMPLE - 1)
            ordered = np.sort((whole & ~low) | np.arange(whole.size, dtype=np.uint64))  # a tenth of the time of argsort
            groups = ordered & ~low
            if np.count_nonzero(groups[hot.SEEN - 1 :] == groups[: 1 - hot.SEEN]) * _WORTH < groups.size:
                return None
        starts = np.append(np.flatnonzero(np.diff(groups, prepend=~groups[:1])), groups.size)
        times = np.diff(starts)
        order = np.argsort(times, kind="stable")
        first = (ordered[starts[:-1]] & low)[order[times[order] >= hot.SEEN]].astype(np.int64)
        return cls(np.column_stack((some[first], more[first])))

    def absorb(self, words: Array, rest: Array) -> int:
        """Count the rows of hot keys and move the others to the front; returns how many these are."""
        self._rows += words.size
        left: int = absorb_rows(words, rest, self._further, self._table)
        return left

    @property
    def worth(self) -> bool:
        """Whether enough of the rows were of hot keys."""
        return bool(self._table[:, -1].sum() * np.uint64(_WORTH) >= self._rows)

    def items(self) -> tuple[Array, Array, Array]:
        """Words, further words and counts of everything counted."""
        found = self._table[self._table[:, -1] > 0]
        return found[:, 0].copy(), found[:, 1:-1].copy(), found[:, -1].astype(np.int64)


class RowBuilder:
    """Collects rows of ids and turns every `capacity` of them into a segment; owned by one task.

    Parameters
    ----------
    layout : Layout of ids: `ID_BUCKETS` buckets, words of 64 bits, no weights
    budget : Budget
        Owns the segments' arrays.
    capacity : int
        Rows a segment holds at most.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.keyed.layout import Layout
    >>> rows = RowBuilder(Layout(ID_BUCKETS, 64, words=2), Budget(), 8)
    >>> rows.add([np.array([7, 9, 7], np.uint64), np.array([1, 2, 1], np.uint64)])
    >>> [int(segment.rows.sum()) for segment in rows.finish()]
    [3]
    """

    def __init__(self, layout: Layout, budget: Budget, capacity: int) -> None:
        self.layout, self.capacity, self._budget = layout, max(capacity, 1), budget
        self._words = budget.borrow(self.capacity, np.uint64)
        self._rest = budget.borrow((self.capacity, layout.words - 1), np.uint64)
        self._out = SegmentBuilder(layout, budget, 1)
        self._size, self._learns = 0, True
        self._hot: HotRows | None = None

    def add(self, columns: Sequence[Array]) -> None:
        """Take rows by the words of their keys, uint64 arrays of shape (n,), the first one not mixed."""
        rows, done = columns[0].size, 0
        while done < rows:
            if self._size == self.capacity:
                self._flush()
            start = self._size
            count = min(rows - done, self.capacity - start, BLOCK if self._hot else rows)
            self._words[start : start + count] = columns[0][done : done + count]
            for c, column in enumerate(columns[1:]):
                self._rest[start : start + count, c] = column[done : done + count]
            self._size, done = start + count, done + count
            self._take_hot(start)

    def _take_hot(self, start: int) -> None:
        """Count the rows of hot keys from `start` on; or learn which keys are hot, from all collected rows."""
        if self._hot is None and self._learns and self._size >= hot.LEARN:
            start, self._learns = 0, False
            self._hot = HotRows.learned(self._words[: self._size], self._rest[: self._size])
        if self._hot is not None:
            self._size = start + self._hot.absorb(self._words[start : self._size], self._rest[start : self._size])

    def _flush(self) -> None:
        words, rest = self._words[: self._size], self._rest[: self._size]
        if self._size:
            self._out.take_pieces(*_partitioned(words, rest))
        self._size = 0
        if self._hot is None or not self._hot.worth:
            self._store_hot()
            self._learns = True

    def _store_hot(self) -> None:
        """Store the counts of the hot keys; which keys are hot is to be learned again."""
        if self._hot is not None:
            words, rest, counts = self._hot.items()
            self._hot = None
            store_counted(self._out, words, rest, counts)

    def finish(self) -> tuple[Segment, ...]:
        """The segments of everything added; the builder is spent."""
        self._flush()
        self._store_hot()
        self._budget.give_back(self._words)
        self._budget.give_back(self._rest)
        return self._out.finish()


def store_counted(builder: SegmentBuilder, words: Array, rest: Array, counts: Array) -> None:
    """Give keys with their rows to a builder, the first word of each not mixed."""
    if words.size:
        columns = np.column_stack((rest, counts.view(np.uint64)))
        codes, starts, mixed, columns = _partitioned(words, columns)
        more, times = columns[:, :-1].copy(), columns[:, -1].astype(np.int64)
        builder.take_pieces(codes, starts, mixed, more, times)


def _partitioned(words: Array, rest: Array) -> tuple[Array, Array, Array, Array]:
    """Rows by bucket: the codes that occur, the first row of each and the end, mixed words and further words."""
    words, rest = read_only(words), read_only(rest)
    sizes = np.zeros(ID_BUCKETS, np.int64)
    count_buckets(words, SHIFT, sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    out, more = np.empty(words.size, np.uint64), np.empty(rest.shape, np.uint64)
    scatter_ids(words, rest, tuple(range(rest.shape[1])), SHIFT, starts[:-1].copy(), out, more)
    found = np.flatnonzero(sizes)
    return (2 * found).astype(np.uint32), np.append(starts[found], words.size), out, more
