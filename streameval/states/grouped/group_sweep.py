"""GroupSweep: finalizes all rows and all groups of a state of scores in one sweep.

Group 0 is all rows. The code in a word says which of the others a row is in.

A shard is an interval of scores. `GroupSweep.tallied` first counts the rows of every group above each shard; after that
the shards are independent. Metrics see a shard as `GroupSweepPart`s: the scores of every group in it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.grouped import codes as kernels
from streameval.kernels.grouped import sweep
from streameval.kernels.grouped.codes import count_groups
from streameval.states.grouped.sorted_rows import SortedRows, sorted_rows
from streameval.states.keyed.counts import SLAB
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import PlainState, Totals
from streameval.states.scores.counts import score_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.keyed.layout import Interval
    from streameval.states.rounds import Mapper
    from streameval.states.scores.counts import ScoreSpec
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

WHOLE = b""  # name of all rows among the groups of a sweep

_LEAST = 1 << 16  # smallest number of rows of a shard, because each part takes time for each group
_SHARE = 20  # scratch bytes of a row of a shard, besides two words; the row takes up to 64 bytes while it is swept
_COUNTS = 16  # least number of tasks that count the rows of groups; each then visits several shards
_TALLY = 1 << 18  # largest number of shards times cells of such a task


@dataclass(frozen=True, eq=False)
class OneGroup:
    """The row counts of a group, which metrics need besides the sums over its scores."""

    spec: ScoreSpec
    neg: int
    pos: int
    nan_rows: Array
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))

    def totals(self) -> Totals:
        """Rows with a score."""
        return Totals(self.neg, self.pos, float(self.neg), float(self.pos))


@dataclass(frozen=True, eq=False)
class GroupSweepPart:
    """The scores of all groups in one interval, from the best to the worst.

    Attributes
    ----------
    spec : the inner spec
    rows : SortedRows, or Counts of ascending words, which may repeat, see `streameval.states.grouped.sorted_rows.tied`
    member : uint32 array of shape (n_codes, 2), the groups of each code: 0, and its own
    before, total : int64 arrays of shape (2, n_groups), negatives and positives above the interval, and overall
    shard_end : as `before`, but above the end of the shard, which may have further parts after this one
    """

    spec: ScoreSpec
    rows: SortedRows | Counts
    member: Array
    before: Array
    total: Array
    shard_end: Array

    @property
    def areas(self) -> Array:
        """Σ p·(2(N − F) − n) of each group in 32-bit digits, lowest first: an int64 array of shape (4, n_groups)."""
        return self._swept[0]

    @property
    def precisions(self) -> Array:
        """Σ p·precision of each group in units of 2⁻⁶², in the same form as `areas`."""
        return self._swept[1]

    @cached_property
    def _swept(self) -> tuple[Array, Array]:
        """`areas` and `precisions`, by the fast loop over sorted words if their sums fit into 64 bits."""
        groups, run, negatives = self.total.shape[1], self.rows, self.total[0]
        most = max(1 << 30, int(negatives[0]))
        if isinstance(run, SortedRows) and run.words.size * most < sweep.MOST:
            left = (self.shard_end - self.before)[:, 0].sum()  # rows of the shard from this part on
            end = self.shard_end if run.words.size == left else self.after
            state = np.zeros((groups, sweep.STATE), np.int64)
            state[:, 0], state[:, 1:3] = -1, end[::-1].T
            sweep.sweep_words(run.words, run.starts, run.buckets, self.member, state)
            positives = end[1] - self.before[1]
            area = 2 * (negatives * positives - state[:, sweep.AREA]) + state[:, sweep.TIED]
            return _digits(area), _digits(state[:, sweep.LOWER], state[:, sweep.UPPER])
        tally, sums = np.zeros((groups, sweep.TALLY), np.int64), np.zeros((groups, sweep.SUMS), np.uint64)
        tally[:, 0], tally[:, 3:] = -1, self.before.T
        sweep.sweep_ties(*self._counts[:3], self.member, negatives, tally, sums)
        sweep.close(negatives, tally, sums)
        area, precision = sums.view(np.uint32).astype(np.int64).T.reshape(2, 4, groups)
        return area[_OF_WORDS], precision[_OF_WORDS]

    @cached_property
    def _counts(self) -> tuple[Array, Array, Array, Array]:
        """Words with their negatives and positives, and the further words."""
        counts = self.rows.counts() if isinstance(self.rows, SortedRows) else self.rows
        return counts.keys, counts.neg, counts.pos, counts.rest

    @cached_property
    def after(self) -> Array:
        """Negatives and positives of each group in and above this part."""
        tally, (words, neg, pos, _) = self.before.copy(), self._counts
        cells = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
        for groups in self.member.T:
            np.add.at(tally[0], groups[cells], neg)
            np.add.at(tally[1], groups[cells], pos)
        return tally

    @cached_property
    def ties(self) -> tuple[Array, Array, Array, Array]:
        """Words with their negatives and positives, and the table of keys that `whole` reads."""
        *columns, rest = self._counts
        first = np.append(True, rest[1:, 0] != rest[:-1, 0])[: len(rest)] if rest.shape[1] else np.zeros(0, np.bool_)
        words, neg, pos = columns
        return words, neg, pos, rest[first, 0] if rest.shape[1] else np.empty(0, np.uint64)

    def whole(self, keys: Array) -> Array:
        """Rank keys from the keys in words, which may be indices into a table."""
        table = self.ties[3]
        return table[keys] if table.size else keys.astype(np.uint64, copy=False)

    @cached_property
    def _by_group(self) -> tuple[Array, Array, Array, Array]:
        """The first score of each group; n, p and key of each score, ordered by group."""
        moved: tuple[Array, Array, Array, Array] = kernels.by_group(*self.ties[:3], self.member, self.total.shape[1])
        return moved

    @property
    def present(self) -> list[int]:
        """The groups that have scores in the interval."""
        groups: list[int] = np.flatnonzero(np.diff(self._by_group[0])).tolist()
        return groups

    def one(self, group: int) -> ScorePart:
        """The scores of one group."""
        starts, n, p, keys = self._by_group
        here = slice(int(starts[group]), int(starts[group + 1]))
        own = self.whole(keys[here])
        counts = Counts(own, np.empty((own.size, 0), np.uint64), n[here], p[here])
        return score_part(counts, sided(self.before[:, group]), sided(self.total[:, group]), self.spec)


@dataclass(frozen=True, eq=False)
class GroupSweep(PlainState):
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
        member = np.zeros((cells, 2), np.uint32)
        member[codes, 1] = np.arange(1, codes.size + 1)

        def count_rows(some: Sequence[Interval]) -> Array:
            tally, ends = np.zeros((len(some), 2, cells), np.int64), np.array(some, np.uint32)[:, 1] << 1
            for codes_of, starts, (words, rest, counts, _) in keyed.slabs((some[0][0], some[-1][1])):
                last = np.ascontiguousarray(rest[:, -1]) if rest.shape[1] else words
                count_groups(last, counts, starts, codes_of, ends, last.dtype.type(low), tally)
            return np.concatenate((tally.sum(axis=2, keepdims=True), tally[:, :, codes]), axis=2)

        together = max(1, min(len(intervals) // _COUNTS, _TALLY // max(1, cells)))
        stretches = [intervals[i : i + together] for i in range(0, len(intervals), together)]
        above = np.concatenate([np.zeros((1, 2, 1 + codes.size), np.int64), *each(count_rows, stretches, "count")])
        return cls(rows, member, intervals, np.cumsum(above, axis=0, out=above))

    def _group(self, number: int, facts: Array) -> OneGroup:
        """A group, from its number and the facts in its table."""
        neg, pos = self.before[-1, :, number].tolist()
        return OneGroup(self.rows.spec.inner, neg, pos, facts[:2].astype(np.int64))

    @cached_property
    def groups(self) -> Mapping[bytes, tuple[int, OneGroup]]:
        """By name, the number of each group and its `OneGroup`; `WHOLE` is the name of all rows."""
        table = self.rows.table
        named = zip([WHOLE, *table.names.to_pylist()], [table.facts.sum(axis=0), *table.facts], strict=True)
        return {name: (number, self._group(number, facts)) for number, (name, facts) in enumerate(named)}

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently."""
        return list(self.intervals)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[GroupSweepPart]:
        """The scores of a shard, in several parts if a single bucket has very many rows."""
        at, spec = list(self.intervals).index(shard), self.rows.spec.inner
        form, part = self.rows.words("keyed"), None
        for rows in sorted_rows(self.rows.keyed, form, spec.type, *shard, budget):
            before = self.before[at] if part is None else part.after
            part = GroupSweepPart(spec, rows, self.member, before, self.before[-1], self.before[at + 1])
            yield part


_DIGIT = np.int64((1 << 32) - 1)
_OF_WORDS = [2, 3, 0, 1] if sys.byteorder == "little" else [3, 2, 1, 0]  # digits of a high and a low word


def _digits(*values: Array) -> Array:
    """Σ values[i]·2³²ⁱ in 32-bit digits, as `GroupSweepPart.areas`; values must not be negative."""
    found = np.zeros((4, values[0].size), np.int64)
    found[: len(values)] = values
    for i in range(3):
        found[i + 1] += found[i] >> 32
        found[i] &= _DIGIT
    return found


def sided(sides: Array) -> Totals:
    """Negatives and positives, an array of shape (2,), as `Totals`."""
    neg, pos = sides.tolist()
    return Totals(neg, pos, float(neg), float(pos))
