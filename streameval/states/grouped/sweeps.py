"""Sweeps: finalize all rows and all groups of a state in one pass, of scores, of clusters, and of small tables.

Of scores, group 0 is all rows; the code in a word says which of the others a row is in. A shard is an interval of
scores. `GroupSweep.tallied` first counts the rows of every group above each shard; after that the shards are
independent. Metrics see a shard as `GroupSweepPart`s: the scores of every group in it. Rows with narrow words are
gathered from all segments and sorted once (`SortedRows`). Wide words, items with counts, and single buckets too large
for that are grouped as the rows of any other table (`Ties`).

`ClusterSweep` has the size tables of all rows and of every group. The rows of a cluster in one group are a *cell*; the
cells of a cluster are adjacent. The pass also counts the rows of each group in clusters that it shares with other
groups.

`small_tables` summarizes contingency tables that would take milliseconds each on their own. The rows of many groups are
read together and sorted by group. One compiled loop then numbers the clusters of all groups, one their classes, and one
their cells, so that all that is left to do for a group is to add up its cells. A null id that counts as a singleton
gets an identity that no other row has.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels import groups as kernels
from streameval.kernels import segments
from streameval.kernels.fused import FUSED
from streameval.kernels.groups import tally_cells
from streameval.kernels.keys import unmix
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.cluster_sizes import SizeTable
from streameval.states.contingency.cells import Keys, number_rows
from streameval.states.contingency.counts import SummarisedCounts
from streameval.states.contingency.summary import Summary, summarize
from streameval.states.grouped.tag_words import bases
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import Totals
from streameval.states.scores.counts import ScoreSpec, score_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.keys import Group
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import State
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
        above = np.concatenate([np.zeros((1, 2, 1 + codes.size), np.int64), *each(count_rows, stretches)])
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


_CELLS = 1 << 18  # entries of the tables by size, over all groups; clusters too large for them are rare
_SHARDS = 16  # shards are at least as many, if there are enough rows
_SHARD_BYTES = 8 * 24 * _CELLS  # bytes of the budget for each shard: eight times the size of its tables

_MOST = 1 << 15  # rows of a small table; a larger one takes as long on its own
_SLAB = 1 << 18  # rows that are read together
_TABLE_SHARE = 1 << 9  # bytes of the budget for each of them


@dataclass(frozen=True, eq=False)
class ClusterSweepPart:
    """The clusters of one shard.

    Attributes
    ----------
    starts : int64 array of shape (n_groups + 2,), index of the first size of each group; all rows are group 0
    table : SizeTable, the sizes of all rows, then those of each group
    cut : int64 array of shape (1 + n_groups,), rows of each group in clusters shared with other groups
    present : the groups with clusters in the part
    """

    starts: Array
    table: SizeTable
    cut: Array
    present: Sequence[int]

    @classmethod
    def of(cls, clusters: Array, positives: Array, large: Array, cut: Array, *, first: bool) -> ClusterSweepPart:
        """The part whose clusters `tally_cells` counted; all groups are present in the first part."""
        groups, sizes = np.nonzero(clusters.T)
        small = groups, sizes, clusters[sizes, groups], positives[sizes, groups]
        listed = large[:, 0], large[:, 1], np.ones(len(large), np.int64), large[:, 2]
        owners, *columns = (np.concatenate(pair) for pair in zip(small, listed, strict=True))
        if len(large):
            order = np.lexsort((columns[0], owners))
            owners, columns = owners[order], [column[order] for column in columns]
            at = np.flatnonzero((np.diff(owners, prepend=-1) != 0) | (np.diff(columns[0], prepend=-1) != 0))
            owners, columns = owners[at], [columns[0][at], *(np.add.reduceat(each, at) for each in columns[1:])]
        starts = np.searchsorted(owners, np.arange(cut.size + 1))
        present = range(cut.size) if first else np.flatnonzero(np.diff(starts)).tolist()
        return cls(starts, SizeTable(*columns), cut, present)

    def one(self, group: int) -> SizeTable:
        """The size table of one group."""
        at, table = slice(self.starts[group], self.starts[group + 1]), self.table
        return SizeTable(table.size[at], table.clusters[at], table.positives[at])


@dataclass(frozen=True, eq=False)
class ClusterSweep:
    """All groups of a cluster state.

    Attributes
    ----------
    rows : TaggedGroups, all groups
    owners : int64 array of shape (n_codes,), the number of the group of each code
    single : int64 array of shape (1 + n_groups, 2), null ids of each group that are singleton clusters, by label
    groups : by name, the number of each group and its `SweptGroup`; all rows are group 0, `WHOLE`
    most : largest number of shards, whose tables are in memory together
    """

    spec = None  # policies apply to the groups

    rows: TaggedGroups
    owners: Array
    single: Array
    groups: Mapping[bytes, tuple[int, SweptGroup]]
    most: int = _SHARDS

    @classmethod
    def of(cls, rows: TaggedGroups, budget: Budget | None = None) -> ClusterSweep:
        """The sweep over some groups, in which rows without a label count as all others."""
        if "every" in rows.tagged:
            spec = replace(rows.spec, inner=replace(rows.spec.inner, rows="every"))
            rows = replace(rows, spec=spec, tagged={"keyed": rows.tagged["every"]})
        codes, facts = rows.codes(), np.vstack((rows.table.facts.sum(axis=0), rows.table.facts)).astype(np.int64)
        owners = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
        owners[codes] = np.arange(1, len(codes) + 1)
        single, dropped, own = facts[:, :2], facts[:, 2:4], facts[:, -2:]
        groups = (
            SweptGroup(None, neg, pos, dropped_rows=lost)
            for (neg, pos), lost in zip((single + own).tolist(), dropped, strict=True)
        )
        named = dict(zip([WHOLE, *rows.table.names.to_pylist()], enumerate(groups), strict=True))
        return cls(rows, owners, single, named, max(_SHARDS, (budget.limit if budget else 0) // _SHARD_BYTES))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        items = int(self.rows.keyed.outline.items.sum())
        return self.rows.keyed.intervals(max(SLAB, -(-items // self.most))) or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[ClusterSweepPart]:
        """The clusters of a shard, as the only part."""
        groups, first = len(self.groups), shard == self.shards()[0]
        clusters, positives = np.zeros((2, max(2, min(_CELLS // groups, 1 << 12)), groups), np.int64)
        cut, listed = np.zeros(groups, np.int64), [np.zeros((0, 3), np.int64)]
        tag_bits = np.uint64((1 << self.rows.keyed.layout.tag) - 1)
        for _, same in groupby(self.rows.keyed.grouped(shard, budget), lambda counts: counts.bucket):
            for cells in _whole_clusters(same, ~tag_bits):
                large = np.empty((2 * len(cells[0]), 3), np.int64)
                found = tally_cells(*cells, tag_bits, self.owners, clusters, positives, cut, large)
                listed.append(large[:found].copy())
        if first:
            clusters[1] += self.single.sum(axis=1)
            positives[1] += self.single[:, 1]
        yield ClusterSweepPart.of(clusters, positives, np.concatenate(listed), cut, first=first)


def _whole_clusters(parts: Iterable[Counts], id_bits: np.uint64) -> Iterator[tuple[Array, Array, Array]]:
    """Keys, negatives and positives of a bucket: a large one comes in parts, of which two may share a cluster."""
    held: tuple[Array, Array, Array] | None = None
    for part in parts:
        cells = np.column_stack((part.keys, part.rest)), part.neg, part.pos
        if held is not None:
            keys = held[0]
            same = (keys[:, :-1] == keys[-1, :-1]).all(axis=1) & ((keys[:, -1] ^ keys[-1, -1]) & id_bits == 0)
            last = int(np.argmax(same))
            yield held[0][:last], held[1][:last], held[2][:last]
            keys, neg, pos = (np.concatenate((old[last:], new)) for old, new in zip(held, cells, strict=True))
            cells = keys, neg, pos
        held = cells
    if held is not None:
        yield held


def sweep_groups(grouped: Grouped, each: Mapper, budget: Budget) -> GroupSweep | ClusterSweep | None:
    """All rows and all groups side by side; None if the state does not allow it. `each` maps over shards."""
    if not isinstance(grouped, TaggedGroups) or grouped.weighted:
        return None
    if isinstance(grouped.spec.inner, ScoreSpec):
        return GroupSweep.tallied(grouped, each, budget)
    clusters = isinstance(grouped.spec.inner, ClusterSpec) and grouped.spec.inner.rows == "labelled"
    return ClusterSweep.of(grouped, budget) if clusters else None


def tables(grouped: TaggedGroups, groups: Sequence[Group], each: Mapper, budget: Budget) -> list[State]:
    """The inner states of some groups, as `Grouped.several`; small tables come summarised."""
    if "tables" not in grouped.cache:
        grouped.cache["tables"] = small_tables(grouped, budget, each)
    small, names = grouped.cache["tables"], [grouped.named.get(group, b"") for group in groups]
    missing = [group for group, name in zip(groups, names, strict=True) if name not in small]
    others = iter(grouped.several(missing, budget, each) if missing else ())
    return [small[name] if name in small else next(others) for name in names]


def small_tables(grouped: TaggedGroups, budget: Budget, each: Mapper) -> dict[bytes, SummarisedCounts]:
    """The tables that have few rows, by name.

    Parameters
    ----------
    grouped : groups of a `ContingencySpec`
    budget : decides how many rows are read together
    each : maps a function over stretches of tables
    """
    table, keys, empty = grouped.table, grouped.spec.inner.keys, grouped.spec.inner.empty()
    room = max(1, min(_SLAB, budget.limit // _TABLE_SHARE))
    rows = table.facts[:, :2].sum(axis=1)
    places = np.flatnonzero(rows <= min(_MOST, room))
    if not places.size:
        return {}
    marks = np.zeros(len(table), np.bool_)
    marks[places] = True
    ordered = grouped.by_group(marks, budget)
    stretch = ((np.cumsum(rows[places]) - rows[places]) // room).astype(np.int64)
    bounds = np.flatnonzero(np.diff(stretch, prepend=-1, append=-1)).tolist()

    def summarise(some: Array) -> list[SummarisedCounts]:
        number = np.full(len(table), -1)
        number[some] = np.arange(some.size)
        facts = table.facts[some].astype(np.int64)
        states = (replace(empty, label_rows=own[:2], dropped_rows=own[2:]) for own in facts)
        parts = list(ordered.of(int(some[0]), int(some[-1])))
        nothing = np.empty(0, np.int64)
        none = nothing, np.empty((0, 1 + sum(keys)), np.uint64), nothing.astype(np.uint32), nothing
        groups, words, side, counts = map(np.concatenate, zip(none, *parts, strict=True))
        summaries = _summaries(number[groups], words, side, counts, keys, some.size)
        return [SummarisedCounts(*pair) for pair in zip(states, summaries, strict=True)]

    stretches = [places[a:b] for a, b in pairwise(bounds)]
    tables = (one for some in each(summarise, stretches) for one in some)
    return dict(zip(table.names.take(pa.array(places)).to_pylist(), tables, strict=True))


def _summaries(table: Array, words: Array, side: Array, counts: Array, keys: Keys, tables: int) -> Iterator[Summary]:
    """The summary of each table.

    Parameters
    ----------
    table : int64 array of shape (n_rows,), the number of the table of each row; rows of negative tables are left out
    words, side, counts : the rows, as `OrderedGroups.of` yields them
    """
    here = np.flatnonzero(table >= 0)
    single = (words[here, 0] == 1) | (side[here] == 1)  # without a cluster, or without a class: each row is alone
    at = np.repeat(here, np.where(single, counts[here], 1))
    at = at[np.argsort(table[at], kind="stable")]
    table, words, no_cluster, no_class = table[at], words[at, 1:], words[at, 0] == 1, side[at] == 1
    counts = np.where(no_cluster | no_class, 1, counts[at])
    starts = np.searchsorted(table, np.arange(tables + 1))
    clusters, classes = words[:, : keys.cluster], words[:, keys.cluster :]
    mixed = np.column_stack((unmix(classes[:, 0]), classes[:, 1:]))  # without a cluster, the class is the first word
    classes = np.where(no_cluster[:, None], mixed, classes)
    cluster, of_cluster = _number_ids(starts, clusters, no_cluster)
    class_, of_class = _number_ids(starts, classes, no_class)
    cell, of_cell = _number_ids(starts, np.column_stack((cluster, class_)).view(np.uint64), np.zeros(0, np.bool_))
    sums = np.zeros(of_cell.size, np.int64)
    np.add.at(sums, cell, counts)
    cluster, class_ = cluster[of_cell], class_[of_cell]
    first = [np.searchsorted(of, starts).tolist() for of in (of_cell, of_cluster, of_class)]
    for (a, b), column, row in zip(pairwise(first[0]), first[1], first[2], strict=False):
        yield summarize(class_[a:b] - row, cluster[a:b] - column, sums[a:b])


def _number_ids(starts: Array, words: Array, alone: Array) -> tuple[Array, Array]:
    """Numbers of the ids of each row, ascending by table, and the first row of each; rows that are alone share none."""
    if alone.any():
        own = np.where(alone, np.arange(1, alone.size + 1), 0).astype(np.uint64)
        words = np.column_stack((np.where(alone[:, None], np.uint64(0), words), own))
    return number_rows(
        starts, np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1:]), words.shape[1] - 1
    )
