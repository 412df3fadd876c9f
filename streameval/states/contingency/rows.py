"""RowBuilder: rows of ids to segments, without weights; a label, if there is one, is a tag.

It does the work of `streameval.states.keyed.builder.SegmentBuilder` faster for these rows: the bucket is a part of the
mixed id, so no code is stored, and one loop scatters all words of a row. Hot keys, those with many rows, are counted
beforehand in a table that fits into the second-level cache. The first rows decide which keys are hot; that affects
speed and memory only, since the counts are exact and a key may have rows both in the table and elsewhere. One loop
collects rows, removes those of hot keys and counts the others by bucket.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import fresh_array
from streameval.kernels.jit import read_only
from streameval.kernels.keyed.rows import (
    SLOT_BITS,
    absorb_rows,
    collect_words,
    scatter_ids,
    slots_of_rows,
)
from streameval.kernels.keys import ID_BUCKETS, MIX
from streameval.states.keyed import hot
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.ids import SHIFT
from streameval.states.keyed.layout import NO_COUNTS
from streameval.states.keyed.tags import TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Layout, Segment
    from streameval.typing import Array

_GLANCE, _SAMPLE = 1 << 13, 1 << 15  # rows of a first check for hot keys, and of the sample from which they are learned
_COUNTED = 8  # items with counts are stored once they fill 1/8 of a builder
_WORTH = 16  # the table of hot keys is kept if at least one row in 16 has a hot key
_LABELS = np.arange(2, dtype=np.uint16)

NO_TAGS = np.empty(0, np.uint16)


class Form(IntEnum):
    """What the tags of rows are (`streameval.states.keyed.tags`)."""

    NONE = 0  # there are none
    GROUP = 1  # a part of the key
    LABEL = 2  # 0 or 1: of hot keys, the positives are counted


class HotRows:
    """Counts the rows of the keys that it has learned; owned by one builder.

    Attributes
    ----------
    keys : uint64 array of shape (n_keys, n_words), from the least to the most frequent key; a tag that is not a label
        is the last word
    form : what the tags of rows are

    Examples
    --------
    >>> words, rest = np.array([7, 7, 9, 7, 5, 7, 7], np.uint64), np.zeros((7, 1), np.uint64)
    >>> table = HotRows.learned(words, rest)
    >>> left = table.absorb(words, rest.T, words, rest, np.zeros(ID_BUCKETS, np.int64))
    >>> words[:left].tolist(), [column.tolist() for column in table.items()]
    ([9, 5], [[7], [[0]], [5], []])
    """

    def __init__(self, keys: Array, form: Form = Form.NONE) -> None:
        """Create the table from keys, ordered from the least to the most frequent one."""
        self.keys, self._form, self._width = keys, form, keys.shape[1]
        self._table = np.zeros((1 << SLOT_BITS, self._width + 1 + (form is Form.LABEL)), np.uint64)
        table = self._table[:, : self._width]
        table[:2] = ~np.uint64(0)  # a free slot holds a key of other slots, so no row is found there
        slots = slots_of_rows(keys)
        for _ in range(2):  # of the keys that share a slot, the last one keeps it
            table[slots] = keys
            left = (table[slots] != keys).any(axis=1)
            keys, slots = keys[left], slots[left] + np.uint64(1)
        self._further = tuple(range(self._width - 1 - (form is Form.GROUP)))
        self._rows = 0

    @classmethod
    def learned(cls, words: Array, rest: Array, tags: Array = NO_TAGS, form: Form = Form.NONE) -> HotRows | None:
        """The keys that occur `hot.SEEN` times in a sample of the rows; None if they have too few of the rows."""
        parts = [words, *rest.T, *([tags] if form is Form.GROUP else [])]
        for most in (_GLANCE, _SAMPLE):
            step = max(1, words.size // most)
            some = [part[::step][:_SAMPLE].astype(np.uint64) for part in parts]
            whole = hot.hashed(some)
            whole = (whole ^ (whole >> np.uint64(32))) * np.uint64(MIX)
            low = np.uint64(_SAMPLE - 1)
            ordered = np.sort((whole & ~low) | np.arange(whole.size, dtype=np.uint64))  # a tenth of the time of argsort
            groups = ordered & ~low
            if np.count_nonzero(groups[hot.SEEN - 1 :] == groups[: 1 - hot.SEEN]) * _WORTH < groups.size:
                return None
        starts = np.append(np.flatnonzero(np.diff(groups, prepend=~groups[:1])), groups.size)
        times = np.diff(starts)
        order = np.argsort(times, kind="stable")
        first = (ordered[starts[:-1]] & low)[order[times[order] >= hot.SEEN]].astype(np.int64)
        return cls(np.column_stack([column[first] for column in some]), form)

    def absorb(
        self,
        words: Array,
        rest: Array,
        out: Array,
        out_rest: Array,
        buckets: Array,
        tags: Array = NO_TAGS,
        out_tags: Array = NO_TAGS,
    ) -> int:
        """Count the rows of hot keys and collect the others; returns the number of collected rows.

        `rest` has one row for each further word, `out_rest` one column.
        """
        self._rows += words.size
        tagged, labelled = ((read_only(tags),) if self._form is form else () for form in (Form.GROUP, Form.LABEL))
        given = read_only(words), read_only(np.ascontiguousarray(rest)), self._further, tagged, labelled
        left: int = absorb_rows(*given, self._table.reshape(-1), SHIFT, out, out_rest, out_tags, buckets)
        return left

    @property
    def worth(self) -> bool:
        """Whether enough rows had a hot key."""
        return bool(self._table[:, self._width].sum() * np.uint64(_WORTH) >= self._rows)

    def items(self) -> tuple[Array, Array, Array, Array]:
        """Words, further words, counts and tags of all counted keys."""
        found = self._table[self._table[:, self._width] > 0]
        end, counts, tags = 1 + len(self._further), found[:, self._width].astype(np.int64), NO_TAGS
        if self._form is Form.GROUP:
            tags = found[:, end].astype(np.uint16)
        elif self._form is Form.LABEL:
            positive = found[:, -1].astype(np.int64)
            counts = np.concatenate((counts - positive, positive))
            there = np.flatnonzero(counts)
            found, tags, counts = np.tile(found, (2, 1))[there], np.repeat(_LABELS, len(found))[there], counts[there]
        return found[:, 0].copy(), found[:, 1:end].copy(), counts, tags


class RowBuilder:
    """Collects rows of ids and turns every `capacity` of them into a segment; owned by one task.

    Parameters
    ----------
    layout : Layout of ids: `ID_BUCKETS` buckets, words of 64 bits, no weights
    budget : Budget
        Owns the segments' arrays.
    capacity : int
        Largest number of rows of a segment.
    form : Form
        What the tags of rows are; segments have them where `TAG` says.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.keyed.layout import Layout
    >>> rows = RowBuilder(Layout(ID_BUCKETS, 64, words=2), Budget(), 8)
    >>> rows.add([np.array([7, 9, 7], np.uint64), np.array([1, 2, 1], np.uint64)])
    >>> [int(segment.rows.sum()) for segment in rows.finish()]
    [3]
    """

    def __init__(self, layout: Layout, budget: Budget, capacity: int, form: Form = Form.NONE) -> None:
        self.layout, self._budget, self._form = layout, budget, form
        self._borrow(capacity)
        self._buckets = np.zeros(ID_BUCKETS, np.int64)
        self._out = SegmentBuilder(layout, budget, 1)
        self._counted: list[tuple[Array, Array, Array, Array]] = []
        self._size, self._items, self._learns = 0, 0, True
        self._hot: HotRows | None = None

    def _borrow(self, capacity: int) -> None:
        """Borrow the buffers for a number of rows."""
        self.capacity = max(capacity, 1)
        self._words = self._budget.borrow(self.capacity, np.uint64)
        self._rest = self._budget.borrow((self.capacity, self.layout.words - 1), np.uint64)
        self._tags = self._budget.borrow(self.capacity if self._form else 0, np.uint16)

    def _give_back(self) -> None:
        """Make a segment of the collected rows, and return the buffers."""
        self._flush()
        for column in (self._words, self._rest, self._tags):
            self._budget.give_back(column)

    def shrink(self, capacity: int) -> None:
        """Collect at most `capacity` rows at a time from now on, because other builders share the memory."""
        self._give_back()
        self._borrow(capacity)

    def add(self, columns: Sequence[Array], counts: Array = NO_COUNTS, tags: Array = NO_TAGS) -> None:
        """Add rows by the words of their keys, uint64 arrays of shape (n,); the first word is not mixed.

        `counts`, an int64 array of shape (n,), has the number of rows of each item; if it is empty, each is one row.
        `tags`, a uint16 array of shape (n,), has the tag of each item if segments have tags.
        """
        if counts.size:
            rest = np.array(columns[1:], np.uint64).reshape(-1, counts.size).T
            self._counted.append((columns[0].copy(), rest, counts, tags))
            self._items += counts.size
            if self._items * _COUNTED >= self.capacity:
                self._store_items()
            return
        columns = [np.require(column, requirements=("C", "A")) for column in columns]
        rows, done = columns[0].size, 0
        while done < rows:
            if self._size == self.capacity:
                self._flush()
            stop = min(rows, done + self.capacity - self._size)
            if self._hot is None and self._learns and self._size < hot.LEARN:
                stop = min(stop, done + hot.LEARN - self._size)
            self._collect([read_only(column[done:stop]) for column in columns], tags[done:stop])
            done = stop

    def _collect(self, columns: Sequence[Array], tags: Array) -> None:
        """Copy rows while there is room, without those of hot keys."""
        start, stop = self._size, self._size + columns[0].size
        words, rest, out_tags = self._words[start:stop], self._rest[start:stop], self._tags[start:stop]
        if self._hot is not None:
            one = len(columns) == 2
            more = columns[1].reshape(1, -1) if one else np.array(columns[1:], np.uint64).reshape(-1, words.size)
            self._size += self._hot.absorb(columns[0], more, words, rest, self._buckets, tags, out_tags)
            return
        out_tags[:] = tags
        collect_words(columns[0], SHIFT, words, self._buckets)
        for c, column in enumerate(columns[1:]):
            rest[:, c] = column
        self._size = stop
        if self._learns and stop >= hot.LEARN:
            self._learn()

    def _learn(self) -> None:
        """Learn the hot keys from the collected rows, and remove their rows."""
        words, rest, tags = (column[: self._size] for column in (self._words, self._rest, self._tags))
        self._hot, self._learns = HotRows.learned(words, rest, tags, self._form), False
        if self._hot is not None:
            self._buckets[:] = 0
            self._size = self._hot.absorb(words, rest.T, words, rest, self._buckets, tags, tags)

    def _flush(self) -> None:
        if self._size:
            words, rest, tags = (column[: self._size] for column in (self._words, self._rest, self._tags))
            self._out.take_pieces(*_partitioned(words, rest, tags, self._buckets))
        self._size, self._buckets[:] = 0, 0
        if self._hot is None or not self._hot.worth:
            self._store_hot()
            self._learns = True

    def _store_hot(self) -> None:
        """Store the counts of the hot keys and forget the keys."""
        if self._hot is not None:
            items = self._hot.items()
            self._hot = None
            store_counted(self._out, *items)

    def _store_items(self) -> None:
        """Store the items that came with counts."""
        if self._counted:
            words, rest, counts, tags = (np.concatenate(column) for column in zip(*self._counted, strict=True))
            store_counted(self._out, words, rest, counts, tags)
        self._counted, self._items = [], 0

    def finish(self) -> tuple[Segment, ...]:
        """The segments of everything added; the builder must not be used afterwards."""
        self._give_back()
        self._store_hot()
        self._store_items()
        return self._out.finish()


def store_counted(builder: SegmentBuilder, words: Array, rest: Array, counts: Array, tags: Array = NO_TAGS) -> None:
    """Add keys with their rows, and with tags if there are some, to a builder; their first words are not mixed."""
    if words.size:
        columns = np.column_stack((rest, counts.view(np.uint64)))
        sizes = np.zeros(ID_BUCKETS, np.int64)
        collect_words(read_only(words), SHIFT, np.empty_like(words), sizes)
        codes, starts, mixed, columns = _partitioned(words, columns, tags, sizes)
        more, times = columns[:, :-1].copy(), columns[:, -1].astype(np.int64)
        builder.take_pieces(codes, starts, mixed, more, times)


def _partitioned(words: Array, rest: Array, tags: Array, sizes: Array) -> tuple[Array, Array, Array, Array]:
    """Rows by bucket, given the sizes of the buckets; first words have the tags of their rows, if there are some.

    Returns
    -------
    codes, starts : the codes that occur, the first row of each, and the end
    words, rest : mixed words and further words
    """
    words, rest = read_only(words), read_only(rest)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    out, more = fresh_array(words.shape, np.uint64), fresh_array(rest.shape, np.uint64)
    tagged = (read_only(tags),) if tags.size else ()
    form = tuple(range(rest.shape[1])), tagged, tuple(TAG), SHIFT
    scatter_ids(words, rest, *form, starts[:-1].copy(), out, more)
    found = np.flatnonzero(sizes)
    return (2 * found).astype(np.uint32), np.append(starts[found], words.size), out, more
