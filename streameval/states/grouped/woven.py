"""Woven groups: rows of all groups in one table in the order of their scores.

For scores of 32 bits without weights. The table is that of `ScoreCounts` with words of 64 bits, the rank key and a code
of the group: to fold a row costs as much for a thousand groups as for one, and all groups are finalized in one sweep
(`streameval.states.grouped.sheaf`). The state of all rows has the same pieces in the same places.

Which code stands for which group is written in a `Book`. Builders that share a budget share the book; states with
different books, as from other processes, are given the codes of one when they are merged. No code enters a result.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from streameval.budget import Budget, Buffer
from streameval.kernels.grouped import weave as kernels
from streameval.kernels.jit import read_only
from streameval.kernels.keys import SCORE_BUCKETS
from streameval.states.grouped.joined import Joined, add_items, inner_facts, inner_header, joined_layout
from streameval.states.grouped.keys import By
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout, Segment
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.types import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.states.grouped.keys import Key, Split
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["LAYOUT", "Book", "Woven", "WovenBuilder", "book_of", "weaves"]

LAYOUT = Layout(SCORE_BUCKETS, 64)
_INNER_BYTES, _ROW_BYTES = 8, 20  # that a builder takes for a row: of the inner state, and of this one
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def weaves(inner: Any, key: Key) -> bool:
    """Whether groups of a state are woven: slices, which are finalized together; blocks are left out one by one.

    Examples
    --------
    >>> slices = By(("country",))
    >>> weaves(ScoreSpec("score", "f4"), slices), weaves(ScoreSpec("score", "f8"), slices)
    (True, False)
    """
    return isinstance(key, By) and isinstance(inner, ScoreSpec) and inner.type in {"f4", "i4"} and not inner.weighted


class Book:
    """Codes of groups, by name; names are only added.

    Examples
    --------
    >>> book = Book()
    >>> book.codes([b"3:sDE", b"3:sFR"]).tolist(), book.codes([b"3:sFR"]).tolist()
    ([0, 1], [1])
    """

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._codes: dict[bytes, int] = {name: code for code, name in enumerate(names)}
        self._lock = threading.Lock()

    def codes(self, names: Iterable[bytes]) -> Array:
        """The code of each name, as a uint32 array."""
        names = list(names)
        with self._lock:
            return np.array([self._codes.setdefault(name, len(self._codes)) for name in names], np.uint32)

    @property
    def names(self) -> list[bytes]:
        """All names in the order of their codes."""
        with self._lock:
            return list(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __reduce__(self) -> tuple[type[Book], tuple[list[bytes]]]:
        """Carry the names to another process."""
        return Book, (self.names,)


_BOOKS: WeakKeyDictionary[Budget, dict[Any, Book]] = WeakKeyDictionary()
_BOOKS_LOCK = threading.Lock()


def book_of(budget: Budget, key: Any) -> Book:
    """The book for groups of a key that the builders of a budget share."""
    with _BOOKS_LOCK:
        return _BOOKS.setdefault(budget, {}).setdefault(key, Book())


@dataclass(frozen=True, eq=False)
class Woven:
    """Groups of a score state in one table.

    Attributes
    ----------
    inner : ScoreSpec
    book : Book, which may know groups that have no rows here
    table : GroupTable, names and facts of the groups that are here
    keyed : KeyedCounts, layout `LAYOUT`
    """

    inner: ScoreSpec
    book: Book
    table: GroupTable
    keyed: KeyedCounts

    @classmethod
    def empty(cls, inner: ScoreSpec) -> Woven:
        """No groups."""
        return cls(inner, Book(), GroupTable.empty(2 * len(inner_facts(inner))), KeyedCounts(LAYOUT))

    def merge(self, other: Woven) -> Woven:
        """The groups of both."""
        mine, theirs = (self, other) if len(self.table) or self.keyed.segments else (other, self)
        keyed = theirs.keyed if theirs.book is mine.book else theirs.recoded(mine.book)
        return Woven(self.inner, mine.book, GroupTable.union([mine.table, theirs.table]), mine.keyed.merge(keyed))

    def recoded(self, book: Book) -> KeyedCounts:
        """The items with the codes of another book."""
        table = book.codes(self.book.names)
        segments = (
            replace(each, words=Buffer(kernels.recoded(each.words.read(), table))) for each in self.keyed.segments
        )
        return KeyedCounts(LAYOUT, tuple(segments))

    def marks(self, names: Iterable[bytes]) -> Array:
        """Which codes stand for these names, as a bool array."""
        names = set(names)
        return np.array([name in names for name in self.book.names], np.bool_)

    def total(self, budget: Budget | None = None) -> Any:
        """The inner state of all rows: the same pieces, without the groups."""
        hold = (budget or Budget()).hold
        narrow = tuple(
            replace(each, words=hold((each.words.read() >> _HALF).astype(np.uint16))) for each in self.keyed.segments
        )
        return self._inner(narrow, self.table.facts.sum(axis=0))

    def restored(self, marks: Array) -> Any:
        """The inner state of the groups whose codes are marked."""
        segments = []
        for each in self.keyed.segments:
            words = each.words.read()
            kept = np.flatnonzero(marks[words & _LOW])
            if kept.size:
                counts = each.counts.read()[kept] if each.counts else NO_COUNTS
                codes = np.repeat(each.codes, np.diff(each.starts))[kept]
                segments.append(_segment(codes, words[kept], counts))
        codes = self.book.codes(self.table.names.to_pylist())
        return self._inner(tuple(segments), self.table.facts[marks[codes]].sum(axis=0))

    def alone(self) -> dict[bytes, Any]:
        """The inner state of each group, by name, in one pass over the rows."""
        segments: dict[int, list[Segment]] = {}
        for each in self.keyed.segments:
            words, codes = each.words.read(), np.repeat(each.codes, np.diff(each.starts))
            groups = words & _LOW
            order = np.argsort(groups, kind="stable")
            found, starts = np.unique(groups[order], return_index=True)
            counts = each.counts.read() if each.counts else NO_COUNTS
            for group, a, b in zip(found.tolist(), starts, np.append(starts[1:], order.size), strict=True):
                at = order[a:b]
                own = _segment(codes[at], words[at], counts[at] if counts.size else NO_COUNTS)
                segments.setdefault(group, []).append(own)
        names = self.table.names.to_pylist()
        return {
            name: self._inner(tuple(segments.get(code, ())), facts)
            for name, code, facts in zip(names, self.book.codes(names).tolist(), self.table.facts, strict=True)
        }

    def _inner(self, segments: tuple[Segment, ...], facts: Array) -> Any:
        state = self.inner.from_arrow(inner_header(self.inner, facts), [], Budget())
        return state.with_runs({"keyed": KeyedCounts(self.inner.layout, segments)})

    def joined(self) -> Joined:
        """The same groups one after the other."""
        builder = SegmentBuilder(joined_layout(self.inner), Budget(), SLAB // 4, counted=True)
        tags = np.zeros((len(self.book.names), 2), np.uint64)
        tags[self.book.codes(self.table.names.to_pylist())] = self.table.words
        for words, side, counts in self._items():
            add_items(builder, tags[words & _LOW], (words >> _HALF).reshape(-1, 1), side, counts, NO_WEIGHTS)
        return Joined(self.inner, self.table, KeyedCounts.built(builder))

    def _items(self) -> Iterator[tuple[Array, Array, Array]]:
        """Words, labels and counts, segment by segment."""
        for each in self.keyed.segments:
            side = np.repeat((each.codes & 1).astype(np.uint8), np.diff(each.starts))
            words = each.words.read()
            yield words, side, each.counts.read() if each.counts else np.ones(words.size, np.int64)

    def __sizeof__(self) -> int:
        """Bytes in memory; what is spilled does not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.table) + sys.getsizeof(self.keyed)


class WovenBuilder:
    """Builder of woven groups; owned by one task.

    Parameters
    ----------
    inner : ScoreSpec
    key : Key
    budget : Budget
    capacity : int
        Rows of a builder of the inner state.
    """

    def __init__(self, inner: ScoreSpec, key: Key, budget: Budget, capacity: int) -> None:
        self._inner, self._book = inner, book_of(budget, key)
        self._segments = SegmentBuilder(LAYOUT, budget, max(1, capacity * _INNER_BYTES // _ROW_BYTES))
        self._tables: list[GroupTable] = []

    @property
    def known(self) -> int:
        """Groups that the builders of the budget have met."""
        return len(self._book)

    def update(self, batch: Batch, split: Split) -> None:
        """Fold a batch whose groups are known."""
        groups = read_only(self._book.codes(split.names.to_pylist())[split.codes])
        values = _complete(batch.columns[self._inner.column], self._inner.type)
        facts = np.zeros((len(split.names), 2 * len(inner_facts(self._inner))))
        if values is not None and self._inner.type == "f4":
            bits, label = read_only(values).view(np.uint32), read_only(batch.label)
            self._segments.add(
                bits.size, lambda part, *out: kernels.encode_f4(bits[part], groups[part], label[part], *out)
            )
        else:
            rows = FORMS[ScoreSpec](self._inner, batch)
            keys, label, groups = rows.keys[:, 0], read_only(rows.side), groups[rows.rows]
            self._segments.add(
                keys.size, lambda part, *out: kernels.encode_keys(keys[part], groups[part], label[part], *out)
            )
            facts = fact_sums(self._inner, rows, split.codes, len(split.names))
        self._tables.append(GroupTable.of(split.names, facts))
        if sum(map(len, self._tables[1:])) > len(self._tables[0]):
            self._tables = [GroupTable.union(self._tables)]

    def woven(self) -> Woven:
        """Everything folded; the builder is spent."""
        keyed = KeyedCounts.built(self._segments)
        if not self._tables:
            return replace(Woven.empty(self._inner), book=self._book)
        return Woven(self._inner, self._book, GroupTable.union(self._tables), keyed)


def _complete(score: pa.Array, kind: str) -> Array | None:
    """Scores as numbers; None if some are missing."""
    if pa.types.is_dictionary(score.type) or score.null_count:
        return None
    values = numbers(score, kind)
    return None if values.dtype.kind == "f" and np.isnan(values).any() else values


def _segment(codes: Array, words: Array, counts: Array) -> Segment:
    """A segment of `ScoreCounts` from items in the order of their codes."""
    first = np.flatnonzero(np.diff(codes.astype(np.int64), prepend=-1))
    rows = np.add.reduceat(counts, first) if counts.size else np.diff(np.append(first, codes.size))
    held = Buffer(counts) if counts.size else None
    narrow = Buffer((words >> _HALF).astype(np.uint16))
    return Segment(codes[first], np.append(first, codes.size), rows, None, narrow, None, held)
