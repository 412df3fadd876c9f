"""Singleton cells of each class, counted in the first pass.

In a large table, most cells are rows in singleton clusters. All have n = c = 1, so only their number is needed.

Small integers are counted in an array. Other classes are counted in a hash table, at most as large as a builder's
buffers. If the table fills before classes have occurred twice on average, as when every message is a class, rows are
stored uncounted, 8 bytes a word; items with counts keep them. The number of repeats among some rows estimates the
number of classes (the birthday problem); counting stops if they would fill half of the largest table. The estimate uses
a sample of the first rows, and is repeated when the table outgrows the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.contingency.grouping import count_dense, count_keys, counted_keys
from streameval.kernels.jit import read_only
from streameval.kernels.keys import encode_id
from streameval.states.contingency.rows import RowBuilder, store_counted
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import SHIFT
from streameval.states.keyed.layout import NO_COUNTS

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.keyed.layout import Layout
    from streameval.typing import Array

_FIRST = 1 << 13  # slots of a new table
_FEW = 2  # counting stops if classes have fewer rows on average
_CACHED = 1 << 16  # slots of a table that the second-level cache holds
_GLANCE = 1 << 12  # rows of a sample
_SAMPLED = 1 << 8  # one id of this many is checked to see whether a batch has small integers
_ENOUGH = 32  # largest size of the array of small integers, per row of a batch, because it is cleared and read
_LARGEST = 1 << 31  # largest count of a small integer; batches are smaller


class ClassRows:
    """Counts rows by class; owned by one task.

    Parameters
    ----------
    layout : Layout of the words of a class
    budget : Budget
        Owns the segments' arrays.
    capacity : int
        Largest number of rows in a segment; the table has room for about as many classes.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.keyed.layout import Layout
    >>> rows = ClassRows(Layout(1 << 11, 64), Budget(), 8)
    >>> rows.add(np.array([7, 9, 7], np.uint64), np.empty((3, 0), np.uint64))
    >>> keyed = rows.finish()
    >>> int(keyed.items.sum()), int(keyed.rows.sum())
    (2, 3)
    """

    def __init__(self, layout: Layout, budget: Budget, capacity: int) -> None:
        self._layout, self._budget, self._capacity = layout, budget, capacity
        self._further = tuple(range(layout.words - 1))
        self._most = 1 << capacity.bit_length()
        self._small: Array | None = None
        self._small_rows = 0
        self._table = self._cleared(min(_FIRST, self._most))
        self._used = self._rows = 0
        self._keyed = KeyedCounts(layout)
        self._plain: RowBuilder | None = None

    def _cleared(self, slots: int) -> Array:
        table = self._budget.borrow((slots, self._layout.words + 1), np.uint64)
        table[:] = 0
        return table

    def add(self, first: Array, rest: Array, counts: Array = NO_COUNTS) -> None:
        """Add rows by the unmixed words of their class; empty `counts` mean one row each."""
        first = read_only(first)
        if not (self._further or counts.size):
            first, rest = self._without_small(first, rest)
        if not (self._rows or self._plain or counts.size):
            self._glance(first)
        while first.size and self._plain is None:
            room = self._table.shape[0] // 2
            taken, self._used = count_keys(first, rest, counts, self._further, self._table, self._used, room)
            self._rows += int(counts[:taken].sum()) if counts.size else taken
            first, rest, counts = first[taken:], rest[taken:], counts[taken:]
            if self._used > room:
                self._make_room()
        if counts.size:
            self._keep(first, rest, counts)
        elif self._plain is not None and first.size:
            self._plain.add((first, *rest.T))

    def _without_small(self, first: Array, rest: Array) -> tuple[Array, Array]:
        """Count small integers if a sample of the batch has enough for the size of their array; returns other ids."""
        few = self._small is None and first.size * _ENOUGH < self._most
        if few or (first.size and first[::_SAMPLED].min() >= self._most):
            return first, rest
        if self._small is None:
            self._small = self._budget.borrow(self._most, np.uint32)
            self._small[:] = 0
        others = np.empty(first.size, np.int32)
        others = others[: count_dense(first, self._small, others)]
        self._small_rows += first.size - others.size
        if self._small_rows > _LARGEST - first.size:
            self._keep_small()
        return (first, rest) if others.size == first.size else (read_only(first[others]), rest[others])

    def _make_room(self) -> None:
        """Grow the table, or empty it, or drop it if counting does not pay off."""
        slots = self._table.shape[0]
        if slots < self._most and not self._in_vain:
            first, rest, counts = self._counted()
            self._budget.give_back(self._table)
            self._table = self._cleared(min(slots * (4 if slots < _CACHED else 2), self._most))
            self._used = count_keys(read_only(first), rest, counts, self._further, self._table, 0, first.size)[1]
            return
        if self._in_vain or self._rows < _FEW * self._used:
            self._plain = RowBuilder(self._layout, self._budget, self._capacity)
        self._flush()
        self._table[:] = 0

    @property
    def _in_vain(self) -> bool:
        """Whether so many classes are expected that counting saves neither time nor much memory."""
        return self._table.shape[0] >= _CACHED and self._too_many(self._used, self._rows)

    def _too_many(self, used: int, rows: int) -> bool:
        """Whether rows of `used` classes suggest too many classes.

        Classes of equal size number about used² / (2 · repeats). If some are larger, the estimate is too low, and
        counting continues.
        """
        return used**2 > (rows - used) * (self._most // 2)

    def _glance(self, first: Array) -> None:
        """Store all rows uncounted if a sample of the first rows suggests too many classes."""
        if self._most > _CACHED and first.size >= _GLANCE:
            sample = np.sort(first[:: first.size // _GLANCE])
            if self._too_many(1 + int(np.count_nonzero(sample[1:] != sample[:-1])), sample.size):
                self._plain = RowBuilder(self._layout, self._budget, self._capacity)

    def _counted(self) -> tuple[Array, Array, Array]:
        """Words and rows of the classes in the table."""
        words, counts = np.empty(self._used, np.uint64), np.empty(self._used, np.int64)
        rest = np.empty((self._used, self._layout.words - 1), np.uint64)
        counted_keys(self._table, words, rest, counts)
        return words, rest, counts

    def _flush(self) -> None:
        self._keep(*self._counted())
        self._used = self._rows = 0

    def _keep(self, first: Array, rest: Array, counts: Array) -> None:
        """Store classes with their rows."""
        if not first.size:
            return
        builder = SegmentBuilder(self._layout, self._budget, 1)
        store_counted(builder, first, rest, counts)
        self._keyed = self._keyed.merge(KeyedCounts.built(builder))

    def _keep_small(self) -> None:
        if self._small is None or not self._small_rows:
            return
        found = np.flatnonzero(self._small != 0)  # takes half the time of searching numbers
        none = np.empty((found.size, self._layout.words - 1), np.uint64)
        self._keep(found.astype(np.uint64), none, self._small[found].astype(np.int64))
        self._small[:] = 0
        self._small_rows = 0

    def finish(self) -> KeyedCounts:
        """The rows of all classes; the builder must not be used afterwards."""
        self._flush()
        self._keep_small()
        self._budget.give_back(self._table)
        if self._small is not None:
            self._budget.give_back(self._small)
        return (
            self._keyed if self._plain is None else self._keyed.merge(KeyedCounts(self._layout, self._plain.finish()))
        )


def encode(builder: SegmentBuilder, ids: Array, rest: Array, label: int = 0, counts: Array = NO_COUNTS) -> None:
    """Mix ids and add rows by their words."""
    ids, labels = read_only(ids), read_only(np.full(ids.size, label, np.uint8))
    builder.add(ids.size, lambda part, *out: encode_id(ids[part], labels[part], SHIFT, *out), rest, counts=counts)
