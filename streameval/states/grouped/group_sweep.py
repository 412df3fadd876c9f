"""GroupSweep: finalizes all rows and all groups of a state of scores in one sweep.

Group 0 is all rows. The code in a word says which of the others a row is in.

A shard is an interval of scores. `GroupSweep.tallied` first counts the rows of every group above each shard; after that
the shards are independent. Metrics see a shard as `GroupSweepPart`s: the scores of every group in it. Rows with narrow
words are gathered from all segments and sorted once (`SortedRows`). Wide words, items with counts, and single buckets
too large for that are grouped as the rows of any other table (`Ties`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels import groups as kernels
from streameval.kernels import segments
from streameval.kernels.fused import FUSED
from streameval.states.grouped.tag_words import bases
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import Totals
from streameval.states.scores.counts import ScoreSpec, score_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.keyed.layout import Interval
    from streameval.states.rounds import Mapper
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

WHOLE = b""  # name of all rows among the groups of a sweep

_LEAST = 1 << 16  # smallest number of rows of a shard, because each part takes time for each group
_SHARE = 20  # scratch bytes of a row of a shard, besides two words; the row takes up to 64 bytes while it is swept
_COUNTS = 16  # least number of tasks that count the rows of groups; each then visits several shards
_TALLY = 1 << 18  # largest number of shards times cells of such a task
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class SweptGroup:
    """The row counts of a group, which metrics need besides the sums over its parts.

    Attributes
    ----------
    spec : the spec of its state, whose policies apply; None without one
    neg, pos : its rows by label
    nan_rows, dropped_rows : int64 arrays of shape (2,), rows left out by label: missing scores, and null ids
    """

    spec: ScoreSpec | None
    neg: int
    pos: int
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))

    def totals(self) -> Totals:
        """Rows by label."""
        return sided(self.neg, self.pos)


def sided(neg: int, pos: int) -> Totals:
    """Totals of rows without weights."""
    return Totals(neg, pos, float(neg), float(pos))


class Ties(NamedTuple):
    """Counts by ascending key and code.

    Attributes
    ----------
    words : uint64 array of shape (n,): the place of a key in `table`, then the code in 32 bits; a word may occur more
        than once
    neg, pos : int64 arrays of shape (n,)
    table : uint64 array of the distinct keys
    """

    words: Array
    neg: Array
    pos: Array
    table: Array

    @classmethod
    def of(cls, keys: Array, codes: Array, neg: Array, pos: Array) -> Ties:
        """The ties of ascending keys."""
        new = np.append(True, keys[1:] != keys[:-1])[: keys.size]
        places = (np.cumsum(new) - 1).astype(np.uint64)
        return cls((places << _HALF) | codes, neg, pos, keys[new])


class SortedRows(NamedTuple):
    """Rows of some buckets as labelled words, sorted by key, the negatives of a key before its positives.

    Attributes
    ----------
    words : uint32 or uint64 array of shape (n,)
    starts : int64 array of shape (n_buckets + 1,), the first row of each bucket, then the end
    buckets : int64 array of shape (n_buckets,), the buckets that have rows
    """

    words: Array
    starts: Array
    buckets: Array

    @classmethod
    def of(cls, keyed: KeyedCounts, start: int, stop: int) -> SortedRows:
        """The rows of the buckets `start` to `stop`, which have narrow words and no counts."""
        bounds = np.concatenate(([0], np.cumsum(keyed.items_in(start, stop))))
        words, cursor = np.empty(bounds[-1], keyed.layout.dtype), bounds[:-1].copy()
        for codes, pieces, (given, *_) in keyed.slabs((start, stop)):
            segments.place_labelled(given, pieces, codes - np.uint32(2 * start), cursor, words, kernels.CELL_BITS)
        buckets = np.flatnonzero(np.diff(bounds[::2]))
        starts = np.append(bounds[2 * buckets], bounds[-1])
        if words.itemsize == 4:
            kernels.sort_words(words, starts, np.empty_like(words), kernels.KEY_SHIFT)
        else:
            for a, b in pairwise(starts.tolist()):
                words[a:b].sort()
        return cls(words, starts, buckets + start)

    def ties(self, kind: str) -> Ties:
        """The rows as ties; `kind` is the type of the scores."""
        long = self.words.itemsize == 8
        lowest = bases(kind)[self.buckets] if long else self.buckets.astype(np.uint64) << np.uint64(16)
        return Ties.of(*kernels.ties(self.words, self.starts, lowest))


@dataclass(frozen=True, eq=False)
class GroupSweepPart:
    """The scores of all groups in one interval, from the best to the worst.

    Attributes
    ----------
    spec : the inner spec
    rows : SortedRows of a whole shard, or Ties of a part of one
    member : int64 array of shape (n_codes,), the group of each code besides 0, which is all rows
    before, total : int64 arrays of shape (2, n_groups), negatives and positives above the interval, and overall
    shard_end : as `before`, but above the end of the shard, which may have further parts after this one
    """

    spec: ScoreSpec
    rows: SortedRows | Ties
    member: Array
    before: Array
    total: Array
    shard_end: Array

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """Σ p·(2(N − F) − n), and Σ p·precision in units of 2⁻⁶²: Python integers, arrays of shape (n_groups,).

        A fast loop over sorted words computes both, if they fit into 64 bits.
        """
        rows, negatives = self.rows, self.total[0]
        fits = isinstance(rows, SortedRows) and rows.words.size * max(1 << 30, int(negatives[0])) < kernels.MOST
        if isinstance(rows, SortedRows) and fits and ("tagged words", "areas") in FUSED:
            state = np.zeros((negatives.size, kernels.STATE), np.int64)
            state[:, 0], state[:, 1:3] = -1, self.shard_end[::-1].T
            FUSED["tagged words", "areas"](rows.words, rows.starts, rows.buckets, self.member, state)
            positives = self.shard_end[1] - self.before[1]
            area = 2 * (negatives * positives - state[:, kernels.AREA]) + state[:, kernels.TIED]
            return area.astype(object), (state[:, kernels.UPPER].astype(object) << 32) + state[:, kernels.LOWER]
        starts, n, p, _ = self._by_group
        lost, precision = (
            (high.astype(object) << 64) + low
            for high, low in (
                kernels.areas(starts, p, n, self.before[0]),
                kernels.precisions(starts, n, p, *self.before),
            )
        )
        return 2 * negatives.astype(object) * (self.after[1] - self.before[1]) - lost, precision

    @cached_property
    def _ties(self) -> Ties:
        return self.rows.ties(self.spec.type) if isinstance(self.rows, SortedRows) else self.rows

    @cached_property
    def after(self) -> Array:
        """Negatives and positives of each group in and above this part."""
        tally, (words, *sides, _) = self.before.copy(), self._ties
        codes = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
        for side, counts in zip(tally, sides, strict=True):
            side[0] += counts.sum()
            np.add.at(side, self.member[codes], counts)
        return tally

    @cached_property
    def _by_group(self) -> tuple[Array, Array, Array, Array]:
        """The first score of each group; n, p and key of each score, ordered by group."""
        *ties, table = self._ties
        starts, n, p, keys = kernels.by_group(*ties, self.member, self.total.shape[1])
        return starts, n, p, table[keys]

    @property
    def present(self) -> list[int]:
        """The groups that have scores in the interval."""
        groups: list[int] = np.flatnonzero(np.diff(self._by_group[0])).tolist()
        return groups

    def one(self, group: int) -> ScorePart:
        """The scores of one group."""
        starts, *columns = self._by_group
        n, p, keys = (column[starts[group] : starts[group + 1]] for column in columns)
        counts = Counts(keys, np.empty((keys.size, 0), np.uint64), n, p)
        before, total = (sided(*sides[:, group].tolist()) for sides in (self.before, self.total))
        return score_part(counts, before, total, self.spec)


@dataclass(frozen=True, eq=False)
class GroupSweep:
    """All groups of a state of scores.

    Attributes
    ----------
    rows : TaggedGroups
    member : see `GroupSweepPart`
    intervals : the shards
    before : int64 array of shape (n_shards + 1, 2, n_groups), rows of each group above each shard, then of all shards
    """

    # policies apply to the groups: missing scores are halved in each group, not in the group sweep
    spec: Any = field(default=None, init=False)

    rows: TaggedGroups
    member: Array
    intervals: Sequence[Interval]
    before: Array

    @classmethod
    def tallied(cls, rows: TaggedGroups, each: Mapper, budget: Budget | None = None) -> GroupSweep:
        """The sweep over some groups; `each` maps a function over shards, whose rows the budget limits."""
        keyed = rows.keyed
        share = _SHARE + 2 * keyed.layout.dtype.itemsize
        rows_each = SLAB if budget is None else min(SLAB, max(_LEAST, budget.scratch // share))
        intervals, codes, low = keyed.intervals(rows_each), rows.codes(), (1 << keyed.layout.tag) - 1
        cells = len(rows.group_codes)
        member = np.zeros(cells, np.int64)
        member[codes] = np.arange(1, codes.size + 1)

        def count_rows(some: Sequence[Interval]) -> Array:
            tally, ends = np.zeros((len(some), 2, cells), np.int64), np.array(some, np.uint32)[:, 1] << 1
            for codes_of, starts, (words, rest, counts, _) in keyed.slabs((some[0][0], some[-1][1])):
                last = np.ascontiguousarray(rest[:, -1]) if rest.shape[1] else words
                kernels.count_groups(last, counts, starts, codes_of, ends, last.dtype.type(low), tally)
            return np.concatenate((tally.sum(axis=2, keepdims=True), tally[:, :, codes]), axis=2)

        together = max(1, min(len(intervals) // _COUNTS, _TALLY // max(1, cells)))
        stretches = [intervals[i : i + together] for i in range(0, len(intervals), together)]
        above = np.concatenate([np.zeros((1, 2, 1 + codes.size), np.int64), *each(count_rows, stretches, "count")])
        return cls(rows, member, intervals, np.cumsum(above, axis=0, out=above))

    @cached_property
    def groups(self) -> Mapping[bytes, tuple[int, SweptGroup]]:
        """By name, the number of each group and its `SweptGroup`; `WHOLE` is the name of all rows."""
        table, sides = self.rows.table, self.before[-1].T.tolist()
        missing = np.vstack((table.facts.sum(axis=0), table.facts))[:, :2].astype(np.int64)
        groups = (
            SweptGroup(self.rows.spec.inner, neg, pos, nan) for (neg, pos), nan in zip(sides, missing, strict=True)
        )
        return dict(zip([WHOLE, *table.names.to_pylist()], enumerate(groups), strict=True))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently."""
        return list(self.intervals)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[GroupSweepPart]:
        """The scores of a shard, in several parts if a single bucket has very many rows."""
        at, part = list(self.intervals).index(shard), None
        for rows in self._rows_of(*shard, budget):
            before = self.before[at] if part is None else part.after
            part = GroupSweepPart(self.rows.spec.inner, rows, self.member, before, self.before[-1], self.before[at + 1])
            yield part

    def _rows_of(self, start: int, stop: int, budget: Budget | None) -> Iterator[SortedRows | Ties]:
        """The rows of some buckets, in parts that no score is divided between."""
        keyed = self.rows.keyed
        large = stop - start == 1 and keyed.items_in(start, stop).sum() > keyed.most(keyed.holding(budget))
        if keyed.layout.tag < 32 and not large and not keyed.range(start, stop).counted:
            yield SortedRows.of(keyed, start, stop)
            return
        keyed, held = self._wide, list[Counts]()
        most = keyed.most(keyed.holding(budget))
        for counts in keyed.grouped((start, stop), budget):
            size = sum(each.keys.size for each in held)
            if held and size + counts.keys.size > most and held[-1].keys[-1] != counts.keys[0]:
                yield _ties_of(held)
                held = []
            held.append(counts)
        if held:
            yield _ties_of(held)

    @cached_property
    def _wide(self) -> KeyedCounts:
        """The rows with wide words."""
        return self.rows.widened("keyed").keyed


def _ties_of(parts: Sequence[Counts]) -> Ties:
    """Consecutive counts of rows with wide words as ties."""
    return Ties.of(*map(np.concatenate, zip(*((c.keys, c.rest[:, -1], c.neg, c.pos) for c in parts), strict=True)))
