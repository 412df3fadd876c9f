"""Woven groups: rows of all groups in one table in the order of their scores.

For scores without weights. The table is that of `ScoreCounts`, with words that also have a code of the group: to fold a
row costs as much for a thousand groups as for one, and all groups are finalized in one sweep
(`streameval.states.grouped.sheaf`). The state of all rows has the same pieces in the same places.
Of scores of 32 bits a word has 32 bits, the lower half of the rank key and the code; more than 2¹⁵ groups have words of
64 bits, the whole key and the code. Longer scores have long words (`streameval.states.scores.long_words`), for up to
2¹⁵ groups.

Which code stands for which group is written in a `Book`. Builders that share a budget share the book; states with
different books, as from other processes, are given the codes of one when they are merged. No code enters a result.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.budget import Budget, Computed
from streameval.kernels.grouped import long, sweep
from streameval.kernels.grouped import weave as kernels
from streameval.kernels.grouped.sweep import CELL_BITS
from streameval.kernels.jit import read_only
from streameval.kernels.keys import SCORE_BUCKETS, encode_f8
from streameval.states.grouped.book import Book, book_of
from streameval.states.grouped.joined import Joined, add_items, inner_facts, inner_header, joined_layout
from streameval.states.grouped.keys import By
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout, Segment
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.long_words import LONG, bases, near_buckets, whole_keys
from streameval.states.scores.types import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Buffer
    from streameval.states.grouped.keys import Key, Split
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["MOST_CELLS", "NARROW", "WIDE", "Woven", "WovenBuilder", "weaves"]

NARROW, WIDE = Layout(SCORE_BUCKETS, 32), Layout(SCORE_BUCKETS, 64)
MOST_CELLS = 1 << CELL_BITS  # groups that narrow words can tell apart
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_CELL = np.uint64(MOST_CELLS - 1)


def weaves(inner: Any, key: Key) -> bool:
    """Whether groups of a state are woven: slices, which are finalized together; blocks are left out one by one.

    Examples
    --------
    >>> slices = By(("country",))
    >>> weaves(ScoreSpec("score"), slices), weaves(ScoreSpec("score", weighted=True), slices)
    (True, False)
    """
    return isinstance(key, By) and isinstance(inner, ScoreSpec) and not inner.weighted


def _first(inner: ScoreSpec) -> Layout:
    """The layout of few groups."""
    return NARROW if inner.layout.bits == 16 else LONG


def _row_bytes(layout: Layout) -> int:
    """What a builder takes for a row: twice the word, and its code."""
    return 2 * layout.dtype.itemsize + 4


@dataclass(frozen=True, eq=False)
class Woven:
    """Groups of a score state in one table.

    Attributes
    ----------
    inner : ScoreSpec
    book : Book, which may know groups that have no rows here
    table : GroupTable, names and facts of the groups that are here
    keyed : KeyedCounts, layout `NARROW`, `WIDE` or `LONG`
    """

    inner: ScoreSpec
    book: Book
    table: GroupTable
    keyed: KeyedCounts

    @classmethod
    def empty(cls, inner: ScoreSpec) -> Woven:
        """No groups."""
        return cls(inner, Book(), GroupTable.empty(2 * len(inner_facts(inner))), KeyedCounts(_first(inner)))

    @property
    def narrow(self) -> bool:
        """Whether words are narrow."""
        return self.keyed.layout == NARROW

    @property
    def long(self) -> bool:
        """Whether words are long."""
        return self.keyed.layout == LONG

    def fits(self, other: Woven) -> bool:
        """Whether one table can hold the groups of both, which then have codes in this one's book.

        Long words can tell `MOST_CELLS` groups apart, other words any number.
        """
        same = not self.long or other.book is self.book
        return same or self.book.few(other.book.names, MOST_CELLS) is not None

    def merge(self, other: Woven) -> Woven:
        """The groups of both."""
        mine, theirs = (self, other) if len(self.table) or self.keyed.segments else (other, self)
        if theirs.book is not mine.book:
            theirs = theirs.recoded(mine.book, theirs.book.names)
        if mine.narrow != theirs.narrow:
            mine, theirs = mine.widened(), theirs.widened()
        table = GroupTable.union([mine.table, theirs.table])
        return Woven(self.inner, mine.book, table, mine.keyed.merge(theirs.keyed))

    def widened(self) -> Woven:
        """The same groups with wide words."""
        if not self.narrow:
            return self
        segments = (
            replace(each, words=Computed(each.words.shape, np.dtype(np.uint64), partial(_widened, each)))
            for each in self.keyed.segments
        )
        return replace(self, keyed=KeyedCounts(WIDE, tuple(segments)))

    def projected(self, part: Callable[[bytes], bytes]) -> Woven:
        """The rows by larger groups: `part` gives the name of each one's."""
        names = list(map(part, self.book.names))
        table = GroupTable.of(pa.array(map(part, self.table.names.to_pylist()), pa.large_binary()), self.table.facts)
        return replace(self.recoded(Book(), names), table=table)

    def recoded(self, book: Book, names: Sequence[bytes]) -> Woven:
        """The rows with codes of another book, where each old code stands for one of `names`; facts are not renamed."""
        table = book.codes(names)
        wide = self if len(book) <= MOST_CELLS else self.widened()
        recode, kind = kernels.recoded if wide.keyed.layout == WIDE else sweep.recoded, wide.keyed.layout.dtype
        segments = (
            replace(each, words=each.words.computed(lambda words: recode(words, table), kind))
            for each in wide.keyed.segments
        )
        return replace(wide, book=book, keyed=KeyedCounts(wide.keyed.layout, tuple(segments)))

    def marks(self, names: Iterable[bytes]) -> Array:
        """Which codes stand for these names, as a bool array."""
        names = set(names)
        return np.array([name in names for name in self.book.names], np.bool_)

    def total(self) -> Any:
        """The inner state of all rows: the same pieces, whose words are computed without the groups when read."""
        segments = (replace(each, words=self._inner_words(each)) for each in self.keyed.segments)
        return self._inner(tuple(segments), self.table.facts.sum(axis=0))

    def _inner_words(self, segment: Segment) -> Buffer:
        """The words that the inner state has for those of a segment."""
        if self.long:
            return Computed(segment.words.shape, np.dtype(np.uint64), partial(whole_keys, self.inner.type, segment))
        return segment.words.computed(partial(_upper, CELL_BITS if self.narrow else 32), np.uint16)

    def restored(self, marks: Array, budget: Budget | None = None) -> Any:
        """The inner state of the groups whose codes are marked."""
        budget = budget or Budget()
        segments = [part for each in self.keyed.segments if (part := self._kept(each, marks, budget)) is not None]
        return self._inner(tuple(segments), self.table.facts[marks[self.named_codes()[1]]].sum(axis=0))

    def _kept(self, segment: Segment, marks: Array, budget: Budget) -> Segment | None:
        """The rows of marked groups, as the inner state has them; None if there are none."""
        words, kind = segment.words.read(), self.keyed.layout.dtype.type
        counts = segment.counts.read() if segment.counts else NO_COUNTS
        kept, kept_counts = np.empty(words.size + 1, self.inner.layout.dtype), np.empty(counts.size + 1, np.int64)
        ends, rows = np.empty((2, segment.codes.size), np.int64)
        low, shift = (_LOW, _HALF) if self.keyed.layout == WIDE else (kind((1 << CELL_BITS) - 1), kind(CELL_BITS))
        added = bases(self.inner.type)[segment.codes >> 1] if self.long else np.zeros(segment.codes.size, np.uint64)
        n = kernels.kept_words(words, counts, segment.starts, added, marks, shift, low, kept, kept_counts, ends, rows)
        if not n:
            return None
        here = np.flatnonzero(np.diff(ends, prepend=0))
        starts, rows_of = np.append(0, ends[here]), rows[here] if counts.size else None
        columns = kept[:n].copy(), kept[:0], kept_counts[:n].copy() if counts.size else NO_COUNTS
        return Segment.held(budget, segment.codes[here], starts, rows_of, None, *columns)

    def alone(self, budget: Budget | None = None) -> dict[bytes, Any]:
        """The inner state of each group, by name, in one pass over the rows."""
        budget = budget or Budget()
        segments: dict[int, list[Segment]] = {}
        for each, keys, groups in self._rows():
            codes, words = np.repeat(each.codes, np.diff(each.starts)), keys.astype(self.inner.layout.dtype)
            order, starts = kernels.ordered(groups.astype(np.int64), len(self.book))
            counts = each.counts.read() if each.counts else NO_COUNTS
            for group in np.flatnonzero(np.diff(starts)).tolist():
                at = order[starts[group] : starts[group + 1]]
                own = _segment(codes[at], words[at], counts[at] if counts.size else NO_COUNTS, budget)
                segments.setdefault(group, []).append(own)
        return {
            name: self._inner(tuple(segments.get(code, ())), facts)
            for name, code, facts in zip(*self.named_codes(), self.table.facts, strict=True)
        }

    def parted(self) -> tuple[Mapping[bytes, Any], Joined]:
        """The same groups in the other layouts: apart, and joined."""
        return {}, self.joined()

    def named_codes(self) -> tuple[list[bytes], list[int]]:
        """The names of the groups that are here, in the order of the table, and their codes."""
        names = self.table.names.to_pylist()
        return names, self.book.codes(names).tolist()

    def _inner(self, segments: tuple[Segment, ...], facts: Array) -> Any:
        state = self.inner.from_arrow(inner_header(self.inner, facts), [], Budget())
        return state.with_runs({"keyed": KeyedCounts(self.inner.layout, segments)})

    def joined(self) -> Joined:
        """The same groups one after the other."""
        builder = SegmentBuilder(joined_layout(self.inner), Budget(), SLAB // 4, counted=True)
        tags = np.zeros((len(self.book.names), 2), np.uint64)
        tags[self.named_codes()[1]] = self.table.words
        for each, keys, groups in self._rows():
            side = np.repeat((each.codes & 1).astype(np.uint8), np.diff(each.starts))
            counts = each.counts.read() if each.counts else np.ones(keys.size, np.int64)
            add_items(builder, tags[groups], keys.reshape(-1, 1), side, counts, NO_WEIGHTS)
        return Joined(self.inner, self.table, KeyedCounts.built(builder))

    def _rows(self) -> Iterator[tuple[Segment, Array, Array]]:
        """Each segment with the rank keys and the groups of its words."""
        for each in self.keyed.segments:
            words = each.words.read()
            if self.long:
                yield each, whole_keys(self.inner.type, each), words & _CELL
                continue
            words = sweep.wide_words(words, each.starts, each.codes) if self.narrow else words
            yield each, words >> _HALF, words & _LOW

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
        self._budget, self._capacity = budget, capacity
        self._builders = {_first(inner): self._started(_first(inner))}
        self._tables: list[GroupTable] = []

    def _started(self, layout: Layout) -> SegmentBuilder:
        capacity = self._capacity * _row_bytes(self._inner.layout) // _row_bytes(layout)
        return SegmentBuilder(layout, self._budget, max(1, capacity))

    @property
    def known(self) -> int:
        """Groups that the builders of the budget have met."""
        return len(self._book)

    def update(self, batch: Batch, split: Split, *, grow: bool = True) -> bool:
        """Fold a batch whose groups are known; False, and nothing is done, if it is not to be woven.

        Scores of 32 bits are woven, unless words would be wide and may not `grow`; longer ones, if long words have room
        for their keys and groups.
        """
        names = split.names.to_pylist()
        codes = self._book.few(names, MOST_CELLS)
        layout = _first(self._inner) if codes is not None and WIDE not in self._builders else WIDE
        if layout is WIDE and not (grow and NARROW in self._builders):
            return False
        codes = self._book.codes(names) if codes is None else codes
        encoded = self._encoder(batch, split, read_only(codes[split.places]), layout)
        if encoded is None:
            return False
        if layout not in self._builders:
            self._builders[layout] = self._started(layout)
        self._builders[layout].add(encoded.size, encoded.encode)
        self._tables.append(GroupTable.of(split.names, encoded.facts))
        if sum(map(len, self._tables[1:])) > len(self._tables[0]):
            self._tables = [GroupTable.union(self._tables)]
        return True

    def _encoder(self, batch: Batch, split: Split, table: Array, layout: Layout) -> _Encoded | None:
        """How rows are encoded; `table` has the codes of their groups. None if words have no room for a key."""
        inner = self._inner
        values = _complete(batch.columns[inner.column], inner.type)
        if values is not None and inner.type in ("f4", "f8"):
            facts = np.zeros((len(split.names), 2 * len(inner_facts(inner))))
            values, raw, label = read_only(values), read_only(split.raw), read_only(batch.label)
            if layout == LONG:
                keys = partial(_encode_f8, values, label) if long.fit_f8(values.view(np.uint64)) else None
                return None if keys is None else _Encoded(values.size, _shortened(keys, raw, table, inner.type), facts)
            bits, of_f4 = values.view(np.uint32), _ENCODERS[layout][0]
            return _Encoded(bits.size, lambda i, *out: of_f4(bits[i], raw[i], table, label[i], *out), facts)
        rows = FORMS[ScoreSpec](inner, batch)
        facts = fact_sums(inner, rows, split.codes, len(split.names))
        found, label, raw = read_only(rows.keys[:, 0]), read_only(rows.side), read_only(split.raw[rows.rows])
        if layout == LONG:
            buckets = near_buckets(inner, found)
            keys = None if buckets is None else partial(_encode_keys, found, buckets, label)
            return None if keys is None else _Encoded(found.size, _shortened(keys, raw, table, inner.type), facts)
        of_keys = _ENCODERS[layout][1]
        return _Encoded(found.size, lambda i, *out: of_keys(found[i], raw[i], table, label[i], *out), facts)

    def woven(self) -> Woven:
        """Everything folded; the builder is spent."""
        empty = replace(Woven.empty(self._inner), book=self._book)
        found = [replace(empty, keyed=KeyedCounts.built(builder)) for builder in self._builders.values()]
        if self._tables:
            found[0] = replace(found[0], table=GroupTable.union(self._tables))
        return reduce(Woven.merge, found)


_ENCODERS = {NARROW: (sweep.narrow_f4, sweep.narrow_keys), WIDE: (kernels.encode_f4, kernels.encode_keys)}


class _Encoded(NamedTuple):
    """Rows to fold: how many, what fills their words and codes, and the facts of each group."""

    size: int
    encode: Callable[..., None]
    facts: Array


def _encode_f8(values: Array, label: Array, part: slice, words: Array, codes: Array) -> None:
    """Whole keys of float64 scores, and their codes."""
    encode_f8(values[part], label[part], words, codes)


def _encode_keys(keys: Array, buckets: Array, label: Array, part: slice, words: Array, codes: Array) -> None:
    """Whole keys, and their codes."""
    words[:], codes[:] = keys[part], (buckets[part] << np.uint32(1)) | label[part]


def _shortened(keys: Callable[..., None], raw: Array, table: Array, kind: str) -> Callable[..., None]:
    """How long words are encoded, from how whole keys are."""

    def encode(part: slice, words: Array, codes: Array) -> None:
        keys(part, words, codes)
        long.shorten(words, codes, raw[part], table, bases(kind))

    return encode


def _upper(shift: int, words: Array) -> Array:
    """The key's bits above the cell, of which a bucket's words keep 16."""
    found: Array = (words >> words.dtype.type(shift)).astype(np.uint16)
    return found


def _complete(score: pa.Array, kind: str) -> Array | None:
    """Scores as numbers; None if some are missing."""
    if pa.types.is_dictionary(score.type) or score.null_count:
        return None
    values = numbers(score, kind)
    return None if values.dtype.kind == "f" and np.isnan(values).any() else values


def _widened(segment: Segment, start: int, stop: int) -> Array:
    """Some narrow words of a segment as wide ones."""
    starts = np.clip(segment.starts, start, stop) - start
    words: Array = sweep.wide_words(segment.words.read(start, stop), starts, segment.codes)
    return words


def _segment(codes: Array, words: Array, counts: Array, budget: Budget) -> Segment:
    """A segment of `ScoreCounts` from items in the order of their codes."""
    first = np.flatnonzero(np.diff(codes.astype(np.int64), prepend=-1))
    rows = np.add.reduceat(counts, first) if counts.size else None
    return Segment.held(budget, codes[first], np.append(first, codes.size), rows, None, words, words[:0], counts)
