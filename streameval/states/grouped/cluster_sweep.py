"""ClusterSweep: the size tables of all rows and of every group, from one pass over the rows of all groups.

The pass also counts the rows of each group in clusters that it shares with other groups
(`streameval.kernels.grouped.sizes`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.kernels.blocks.clusters import BLOCK_BITS
from streameval.kernels.grouped.sizes import tally_groups
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.grouped.group_sweep import WHOLE, GroupSweep
from streameval.states.grouped.tag_words import tag_words
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.protocol import PlainState, Totals
from streameval.states.scores.counts import ScoreSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.groups import Grouped
    from streameval.states.keyed.layout import Interval
    from streameval.states.rounds import Mapper
    from streameval.typing import Array

_CELLS = 1 << 18  # entries of the tables by size, over all groups; clusters too large for them are rare
_SHARDS = 16  # shards are at least as many, if there are enough rows
_SHARE = 8 * 24 * _CELLS  # bytes of the budget for each shard: eight times the size of its tables


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
        """The part whose clusters `tally_groups` counted; all groups are present in the first part."""
        groups, sizes = np.nonzero(clusters.T)
        owners = np.concatenate((groups, large[:, 0]))
        columns = [
            np.concatenate(pair)
            for pair in (
                (sizes, large[:, 1]),
                (clusters[sizes, groups], np.ones(len(large), np.int64)),
                (positives[sizes, groups], large[:, 2]),
            )
        ]
        if len(large):
            order = np.lexsort((columns[0], owners))
            owners, columns = owners[order], [column[order] for column in columns]
            own = (np.diff(owners, prepend=-1) != 0) | (np.diff(columns[0], prepend=-1) != 0)
            at = np.flatnonzero(own)
            owners, columns = owners[at], [columns[0][at], *(np.add.reduceat(each, at) for each in columns[1:])]
        starts = np.searchsorted(owners, np.arange(cut.size + 1))
        present = range(cut.size) if first else np.flatnonzero(np.diff(starts)).tolist()
        return cls(starts, SizeTable(*columns), cut, present)

    def one(self, group: int) -> SizeTable:
        """The size table of one group."""
        at, table = slice(self.starts[group], self.starts[group + 1]), self.table
        return SizeTable(table.size[at], table.clusters[at], table.positives[at])


@dataclass(frozen=True, eq=False)
class GroupOfClusters:
    """The row counts of a group, which metrics need besides the sums over its clusters.

    Attributes
    ----------
    rows, single_rows, dropped_rows : int64 arrays of shape (2,), by label: rows with an id; null ids that count as
        singleton clusters; dropped null ids
    """

    spec: ClassVar[None] = None

    rows: Array
    single_rows: Array
    dropped_rows: Array

    @classmethod
    def of(cls, facts: Array) -> GroupOfClusters:
        """The group with these facts, in the order of the table of `TaggedGroups`."""
        single, dropped, rows = facts.astype(np.int64).reshape(-1, 2)
        return cls(rows, single, dropped)

    def totals(self) -> Totals:
        """Rows in clusters."""
        neg, pos = (self.rows + self.single_rows).tolist()
        return Totals(neg, pos, float(neg), float(pos))


@dataclass(frozen=True, eq=False)
class ClusterSweep(PlainState):
    """All groups of a cluster state.

    Attributes
    ----------
    rows : TaggedGroups, all groups
    owners : int64 array of shape (n_codes,), the number of the group of each code
    groups : by name, the number of each group and its `GroupOfClusters`; all rows are group 0, `WHOLE`
    most : largest number of shards, whose tables are in memory together
    """

    spec = None  # policies apply to the groups

    rows: TaggedGroups
    owners: Array
    groups: Mapping[bytes, tuple[int, GroupOfClusters]]
    most: int = _SHARDS

    @classmethod
    def of(cls, rows: TaggedGroups, budget: Budget | None = None) -> ClusterSweep:
        """The sweep over some groups, in which rows without a label count as all others."""
        rows = _labelled(rows) if rows.spec.inner.unlabelled else rows
        names, codes = rows.table.names.to_pylist(), rows.codes()
        owners = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
        owners[codes] = np.arange(1, len(codes) + 1)
        groups = {WHOLE: (0, GroupOfClusters.of(rows.table.facts.sum(axis=0)))}
        for number, (name, facts) in enumerate(zip(names, rows.table.facts, strict=True), start=1):
            groups[name] = number, GroupOfClusters.of(facts)
        return cls(rows, owners, groups, max(_SHARDS, (budget.limit if budget else 0) // _SHARE))

    @property
    def _tag_bits(self) -> np.uint64:
        """The bits of the last word that hold the tag."""
        return np.uint64((1 << self.rows.keyed.layout.tag) - 1)

    @cached_property
    def _intervals(self) -> list[Interval]:
        """Intervals of buckets whose rows are swept at a time."""
        return self.rows.keyed.intervals() or [(0, 0)]

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        found = self._intervals
        each = -(-len(found) // self.most)
        return [(found[i][0], found[min(i + each, len(found)) - 1][1]) for i in range(0, len(found), each)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[ClusterSweepPart]:
        """The clusters of a shard, as the only part."""
        groups, first = len(self.groups), shard[0] == self._intervals[0][0]
        clusters, positives = np.zeros((2, max(2, min(_CELLS // groups, 1 << 12)), groups), np.int64)
        cut, listed = np.zeros(groups, np.int64), [np.zeros((0, 3), np.int64)]
        for interval in self._intervals:
            if shard[0] <= interval[0] and interval[1] <= shard[1]:
                listed += self._tallied(interval, budget, clusters, positives, cut)
        if first:
            single = np.array([group.single_rows for _, group in self.groups.values()])
            clusters[1] += single.sum(axis=1)
            positives[1] += single[:, 1]
        yield ClusterSweepPart.of(clusters, positives, np.concatenate(listed), cut, first=first)

    def _tallied(
        self, interval: Interval, budget: Budget | None, clusters: Array, positives: Array, cut: Array
    ) -> Iterator[Array]:
        """Count the clusters of an interval; yields those that are too large for the tables, as `tally_groups` does."""
        keyed, first, (start, stop) = self.rows.keyed, 0, interval
        known = np.uint64(1 if keyed.layout.partial else BLOCK_BITS + 1)  # highest bits that are equal in a bucket
        form = (0,) * (keyed.layout.words - 1), self._tag_bits, known
        places = keyed.places(start, stop) if start < stop else None
        while places is not None and start + first < stop:
            first, large = tally_groups(places.at, self.owners, *form, first, clusters, positives, cut)
            yield large
            if start + first < stop:
                for found in self._sorted((start + first, start + first + 1), budget, cut):
                    yield _add_to_tables(found, clusters, positives)
                first += 1

    def _sorted(self, bucket: Interval, budget: Budget | None, cut: Array) -> Iterator[Array]:
        """All clusters of one bucket, in the form in which `tally_groups` lists large ones; fills `cut`."""
        code_bits, width = self._tag_bits, self.rows.keyed.layout.words
        ids, cells = np.empty((0, width), np.uint64), np.empty((0, 3), np.int64)  # of the last cluster so far
        for counts in self.rows.keyed.grouped(bucket, budget):
            keys = np.column_stack((counts.keys, counts.rest))
            owners = self.owners[keys[:, -1] & code_bits]
            keys[:, -1] &= ~code_bits
            ids = np.concatenate((ids, keys))
            cells = np.concatenate((cells, np.column_stack((owners, counts.neg + counts.pos, counts.pos))))
            bounds = np.append(True, (ids[1:] != ids[:-1]).any(axis=1)).nonzero()[0]
            yield from _listed(cells[: bounds[-1]], bounds[:-1], cut)
            ids, cells = ids[bounds[-1] :], cells[bounds[-1] :]
        yield from _listed(cells, np.zeros(1, np.int64), cut)


def sweep_groups(grouped: Grouped, each: Mapper, budget: Budget) -> GroupSweep | ClusterSweep | None:
    """All rows and all groups side by side; None if the state does not allow it. `each` maps over shards."""
    if not isinstance(grouped, TaggedGroups) or grouped.weighted:
        return None
    if isinstance(grouped.spec.inner, ScoreSpec):
        return GroupSweep.tallied(grouped, each, budget)
    clusters = isinstance(grouped.spec.inner, ClusterSpec) and not grouped.spec.inner.unlabelled
    return ClusterSweep.of(grouped, budget) if clusters else None


def _labelled(rows: TaggedGroups) -> TaggedGroups:
    """The same rows as if all had a label."""
    words, inner = rows.words("keyed"), replace(rows.spec.inner, unlabelled=False)
    layout = tag_words(inner)["keyed"][1].layout

    def columns(first: Array, rest: Array, _: Array) -> tuple[Array, Array]:
        return first, np.delete(rest, -2, axis=1)  # the word that says whether a row has a label

    segments = tuple(words.computed(each, layout, columns) for each in rows.keyed.segments)
    table = replace(rows.table, facts=np.delete(rows.table.facts, (4, 5), axis=1))
    spec = replace(rows.spec, inner=inner)
    return replace(rows, spec=spec, table=table, tagged={"keyed": KeyedCounts(layout, segments)})


def _add_to_tables(found: Array, clusters: Array, positives: Array) -> Array:
    """Add clusters to the tables of `tally_groups`; returns those that are too large for these."""
    group, size, pos = found.T
    fits = size < len(clusters)
    at = size[fits], group[fits]
    np.add.at(clusters, at, 1)
    np.add.at(positives, at, pos[fits])
    left: Array = found[~fits]
    return left


def _listed(cells: Array, bounds: Array, cut: Array) -> Iterator[Array]:
    """Cells, given by group, rows and positives, and the clusters that begin at `bounds`, as group 0; fills `cut`."""
    if not len(cells):
        return
    yield cells
    whole = np.add.reduceat(cells, bounds)
    whole[:, 0] = 0
    yield whole
    several = np.diff(np.append(bounds, len(cells)))
    np.add.at(cut, cells[:, 0], cells[:, 1] * np.repeat(several > 1, several))
