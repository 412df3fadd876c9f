"""Interleaved scores: the rows of all groups of a score state in one table, in the order of their scores.

The table is that of `ScoreCounts`, with words that also hold the code of the group, so folding a row takes the same
time for a thousand groups as for one. The state of all rows consists of the same pieces. Without weights, all groups
are finalized in one sweep (`streameval.states.grouped.group_sweep`). With weights, each group is extracted first: its
rounded sums equal those of its rows alone only if they are computed over the same stretches of scores.

For 32-bit scores, a word has 32 bits: the lower half of the rank key, and the code. With more than 2¹⁵ groups, a word
has 64 bits: the whole key, and the code. 64-bit scores have long words (`streameval.states.scores.long_words`), for up
to 2¹⁵ groups.

A `GroupCodes` maps groups to codes. If states with different codes are merged, one of them is recoded on reading. No
code enters a result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.budget import Budget, Computed, fresh_array
from streameval.kernels.grouped import interleave as kernels
from streameval.kernels.grouped.sweep import CELL_BITS
from streameval.kernels.jit import read_only
from streameval.kernels.segments import sum_pieces
from streameval.states.grouped.composite import CompositeGroups, add_items, composite_layout, inner_facts
from streameval.states.grouped.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.score_words import LONG, NARROW, WIDE, WORDS, Words, first_words
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout, Segment
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.types import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streameval.states.grouped.keys import Split
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Batch
    from streameval.typing import Array

MOST_CELLS = 1 << CELL_BITS  # number of groups that narrow and long words can distinguish


def _row_bytes(layout: Layout) -> int:
    """Bytes that a builder takes for a row: its word and weight twice, and its code."""
    return 2 * (layout.dtype.itemsize + 8 * layout.weighted) + 4


@dataclass(frozen=True, eq=False)
class Interleaved(CodedGroups):
    """Groups of a score state in one table.

    Attributes
    ----------
    inner : ScoreSpec
    group_codes, table : see `CodedGroups`
    keyed : KeyedCounts, in the layout of one of `streameval.states.grouped.score_words`
    """

    inner: ScoreSpec

    @classmethod
    def empty(cls, inner: ScoreSpec) -> Interleaved:
        """Without groups."""
        table, layout = GroupTable.empty(2 * len(inner_facts(inner))), first_words(inner).stored(inner)
        return cls(inner, GroupCodes(), table, KeyedCounts(layout))

    @property
    def words(self) -> Words:
        """The form of the words."""
        return WORDS[replace(self.keyed.layout, weighted=False)]

    def fits(self, other: Interleaved) -> bool:
        """Whether one table can hold the groups of both, with codes from `group_codes` of `self`.

        Long words distinguish `MOST_CELLS` groups; other words can be widened for any number.
        """
        return self.words is not LONG or self.shares(other, MOST_CELLS)

    def most(self) -> int:
        """Number of codes that narrow and long words have room for."""
        return MOST_CELLS

    def recoded_segment(self, segment: Segment, codes: Array) -> Segment:
        """The rows of a segment with new codes."""
        recode = partial(self.words.recoded, codes)
        return replace(segment, words=segment.words.computed(recode, self.keyed.layout.dtype))

    def widened(self) -> Interleaved:
        """The same groups with wide words instead of narrow ones."""
        if self.words is not NARROW:
            return self
        segments = (
            replace(each, words=Computed(each.words.shape, np.dtype(np.uint64), partial(NARROW.wide_words, each)))
            for each in self.keyed.segments
        )
        return replace(self, keyed=KeyedCounts(WIDE.stored(self.inner), tuple(segments)))

    def _plain(self, segment: Segment) -> Segment:
        """The rows without codes."""
        return replace(segment, words=self.words.inner_words(self.inner.type, segment))

    def _marked(self, marks: Array, budget: Budget) -> Iterator[Segment]:
        """The rows of the groups whose codes are marked."""
        for each in self.keyed.segments:
            kept = self._kept(each, marks, budget)
            if kept is not None:
                yield kept

    def _kept(self, segment: Segment, marks: Array, budget: Budget) -> Segment | None:
        """The rows of marked groups as a segment of the inner state; None if there are none."""
        words, kind = segment.words.read(), self.keyed.layout.dtype.type
        counts = segment.counts.read() if segment.counts else NO_COUNTS
        kept, kept_counts = np.empty(words.size + 1, self.inner.layout.dtype), np.empty(counts.size + 1, np.int64)
        ends, rows = np.empty((2, segment.codes.size), np.int64)
        low, shift = self.words.low, kind(self.words.layout.tag)
        added = self.words.bases(self.inner.type, segment.codes)
        n = kernels.kept_words(words, counts, segment.starts, added, marks, shift, low, kept, kept_counts, ends, rows)
        if not n:
            return None
        here = np.flatnonzero(np.diff(ends, prepend=0))
        starts, rows_of = np.append(0, ends[here]), rows[here] if counts.size else None
        weights = segment.weights.read()[marks[words & low]] if segment.weights else NO_WEIGHTS
        sums = sum_pieces(weights, starts) if segment.weights else None
        columns = kept[:n].copy(), kept[:0], kept_counts[:n].copy() if counts.size else NO_COUNTS, weights
        return Segment.held(budget, segment.codes[here], starts, rows_of, sums, *columns)

    def _divided(self, interval: Interval, budget: Budget) -> Iterable[tuple[int, Segment]]:
        """The rows of each code in an interval of buckets as segments of the inner state."""
        rows = self.keyed.range(*interval)
        single = rows.items.sum() >= 2 * self._most(budget)  # a single, large bucket
        parts = None if single else self._parted(rows, budget)
        if parts is not None:
            return parts
        each = (KeyedCounts(rows.layout, (segment,)) for segment in rows.segments)
        return (part for one in each for part in self._parted(one, budget) or ())

    def _parted(self, rows: KeyedCounts, budget: Budget) -> list[tuple[int, Segment]] | None:
        """The rows of each group as one segment of the inner state, each of which is a part of the same arrays.

        Returns None if two floats cannot hold the weights of the pieces, which never happens to a single segment.
        """
        buckets, _, places = rows.occupied(0, rows.layout.buckets)
        codes = (2 * buckets[:, np.newaxis] + np.arange(2)).ravel().astype(np.uint32)
        bits, low, groups = rows.layout.bits, np.uint64(self.words.low), len(self.group_codes)
        sizes = kernels.part_sizes(places.at, bits, low, groups)
        ends = np.cumsum(sizes, axis=1)
        size, pieces = ends[:, -1].tolist()
        kept = fresh_array((size,), self.inner.layout.dtype)
        counts = fresh_array((size if rows.counted else 0,), np.int64)
        weights = fresh_array((size if rows.layout.weighted else 0,), np.float64)
        numbers = (np.empty(pieces, kind) for kind in (np.uint32, np.int64, np.int64))
        found = *numbers, np.empty((2, pieces))
        added, shift = self.words.bases(self.inner.type, codes), np.uint64(self.words.layout.tag)
        columns = (places.at, places.weights, codes, added, bits, low, shift, ends - sizes, kept, counts, weights)
        if not kernels.parted(*columns, found):
            return None
        return list(_divided(budget, sizes, ends, found, (kept, counts, weights)))

    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: some apart, others under composite keys."""
        return {}, self.composite()

    def composite(self) -> CompositeGroups:
        """The same groups under composite keys."""
        builder = SegmentBuilder(composite_layout(self.inner), self.keyed.holding(), SLAB // 4, counted=True)
        tags = np.zeros((len(self.group_codes.names), 2), np.uint64)
        tags[self.named_codes()[1]] = self.table.words
        for each, keys, groups in self._rows():
            side = np.repeat((each.codes & 1).astype(np.uint8), np.diff(each.starts))
            counts = each.counts.read() if each.counts else np.ones(keys.size, np.int64)
            weights = each.weights.read() if each.weights else NO_WEIGHTS
            add_items(builder, tags[groups], keys.reshape(-1, 1), side, counts, weights)
        return CompositeGroups(self.inner, self.table, KeyedCounts.built(builder))

    def _rows(self) -> Iterator[tuple[Segment, Array, Array]]:
        """Each segment with the rank keys and the group codes of its words."""
        for each in self.keyed.segments:
            yield each, *self.words.keys_and_cells(self.inner.type, each)


def _divided(
    budget: Budget, sizes: Array, ends: Array, pieces: tuple[Array, ...], columns: tuple[Array, ...]
) -> Iterator[tuple[int, Segment]]:
    """The groups that `streameval.kernels.grouped.interleave.parted` gathered, as segments; columns may be empty."""
    codes, starts, rows, sums = pieces
    words, counts, weights = columns
    unspilled = codes.nbytes + starts.nbytes + starts.itemsize * int((sizes[0] > 0).sum())  # each has an end as well
    unspilled += rows.nbytes * bool(counts.size) + sums.nbytes * bool(weights.size)
    held = budget.hold(words, unspilled)
    others = [budget.hold(column) if column.size else None for column in (counts, weights)]
    for group in np.flatnonzero(sizes[0]).tolist():
        at, its = (slice(stop - size, stop) for stop, size in zip(ends[:, group], sizes[:, group], strict=True))
        facts = rows[its] if counts.size else None, sums[:, its] if weights.size else None
        further = (column and column.part(at.start, at.stop) for column in others)
        place = codes[its], np.append(starts[its], sizes[0, group])
        yield group, Segment(*place, *facts, held.part(at.start, at.stop), None, *further)


class InterleavedBuilder(CodedBuilder):
    """Builder of interleaved groups; owned by one task.

    Parameters
    ----------
    inner : ScoreSpec
    budget : Budget
    capacity : int
        Largest number of rows of a builder of the inner state.
    """

    def __init__(self, inner: ScoreSpec, budget: Budget, capacity: int) -> None:
        super().__init__(inner)
        self._budget, self._capacity = budget, capacity
        self._builders = {first_words(inner): self._started(first_words(inner))}
        self._last: tuple[pa.Array, Array | None] | None = None

    def _started(self, words: Words) -> SegmentBuilder:
        layout = words.stored(self._inner)
        capacity = self._capacity * _row_bytes(self._inner.layout) // _row_bytes(layout)
        return SegmentBuilder(layout, self._budget, max(1, capacity))

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; returns False, and does nothing, if it is not to be interleaved.

        32-bit scores are interleaved. 64-bit scores are interleaved if their
        keys and groups fit into long words. Weighted batches with missing scores are not interleaved, because the inner
        state sums the weights of missing scores.
        """
        codes = self._few(split.names)
        words = first_words(self._inner) if codes is not None and WIDE not in self._builders else WIDE
        if words is WIDE and NARROW not in self._builders:
            return False
        codes = self._group_codes.codes(split.names.to_pylist()) if codes is None else codes
        encoded = self._encoder(batch, split, read_only(codes[split.places]), words)
        if encoded is None:
            return False
        if words not in self._builders:
            self._builders[words] = self._started(words)
        self._builders[words].add(encoded.size, encoded.encode, weights=encoded.weights)
        self._table.add(split.names, encoded.facts)
        return True

    def _few(self, names: pa.Array) -> Array | None:
        """The codes of some groups; None if there are too many. Cached, as successive batches often agree."""
        if self._last is None or not names.equals(self._last[0]):
            self._last = names, self._group_codes.few(names.to_pylist(), MOST_CELLS)
        return self._last[1]

    def _encoder(self, batch: Batch, split: Split, table: Array, words: Words) -> _Encoded | None:
        """The rows with a function to encode them; `table` has the code of each group. None if a key does not fit."""
        inner, encode = self._inner, None
        values = _complete(batch.columns[inner.column], inner.type)
        if values is None and inner.weighted:
            return None
        weights = batch.weight if inner.weighted and batch.weight is not None else NO_WEIGHTS
        if values is not None and inner.type in ("f4", "f8"):
            facts = np.zeros((len(split.names), 2 * len(inner_facts(inner))))
            columns = read_only(values), read_only(split.raw), table, read_only(batch.label)
            encode = words.of_numbers(*columns, inner.type)
        else:
            rows = FORMS[ScoreSpec](inner, batch)
            facts, _ = fact_sums(inner, rows, split.codes, len(split.names))  # no score is missing if there are weights
            values = read_only(rows.keys[:, 0])
            encode = words.of_keys(values, read_only(split.raw[rows.rows]), table, read_only(rows.side), inner)
        return None if encode is None else _Encoded(values.size, encode, weights, facts)

    def interleaved(self) -> Interleaved:
        """Everything folded; the builder must not be used afterwards."""
        empty = replace(Interleaved.empty(self._inner), group_codes=self._group_codes)
        found = [replace(empty, keyed=KeyedCounts.built(builder)) for builder in self._builders.values()]
        found[0] = replace(found[0], table=self._table.built() or empty.table)
        return reduce(Interleaved.merge, found)


class _Encoded(NamedTuple):
    """Rows to fold: their number, the function that fills words and codes, their weights, the facts of each group."""

    size: int
    encode: Callable[..., None]
    weights: Array
    facts: Array


def _complete(score: pa.Array, kind: str) -> Array | None:
    """Scores as numbers; None if a score is missing or the column is a dictionary."""
    if pa.types.is_dictionary(score.type) or score.null_count:
        return None
    values = numbers(score, kind)
    return None if values.dtype.kind == "f" and np.isnan(values).any() else values
