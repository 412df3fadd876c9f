"""ClusterSweep: the size tables of all rows and of every group, from one pass over the rows of all groups.

It works for interleaved groups and for groups that stand apart. The pass also counts the rows of each group in clusters
that it shares with other groups (`streameval.kernels.grouped.sizes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from streameval.kernels.blocks.clusters import cell_bounds
from streameval.kernels.grouped.sizes import tally_groups
from streameval.states.clusters.sizes import SizeTable
from streameval.states.grouped.cluster_blocks import MOST_BLOCKS
from streameval.states.grouped.group_sweep import WHOLE
from streameval.states.grouped.interleaved.clusters import InterleavedClusters, interleaves_clusters
from streameval.states.protocol import PlainState, Totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.clusters.counts import ClusterSpec
    from streameval.states.grouped.state import Grouped
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["ClusterSweep", "ClusterSweepPart", "GroupOfClusters"]

_CELLS = 1 << 18  # entries of the tables by size, over all groups; clusters too large for them are rare


@dataclass(frozen=True, eq=False)
class ClusterSweepPart:
    """The clusters of one shard.

    Attributes
    ----------
    tables : the size table of all rows, then that of each group
    cut : int64 array of shape (1 + n_groups,), rows of each group in clusters shared with other groups
    """

    tables: Sequence[SizeTable]
    cut: Array

    @property
    def present(self) -> range:
        """All groups."""
        return range(len(self.tables))

    def one(self, group: int) -> SizeTable:
        """The size table of one group."""
        return self.tables[group]


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
        """The group with these facts, in the order of the table of `InterleavedClusters`."""
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
    inner : ClusterSpec
    keyed : KeyedCounts, the rows of all groups, interleaved
    owners : int64 array of shape (n_codes,), the number of the group of each code
    groups : by slicing and name, the number of each group and its `GroupOfClusters`; all rows are group 0, `WHOLE`
    """

    spec = None  # policies apply to the groups

    inner: ClusterSpec
    keyed: KeyedCounts
    owners: Array
    groups: Mapping[tuple[int, bytes], tuple[int, GroupOfClusters]]

    @classmethod
    def of(cls, grouped: Grouped, slicing: int) -> ClusterSweep | None:
        """The sweep of a slicing; None if some groups have composite keys, or if rows without a label count."""
        inner, interleaved = grouped.spec.inner, cast("InterleavedClusters | None", grouped.interleaved)
        if (
            not interleaves_clusters(inner, grouped.spec.key)
            or len(grouped.composite.table)
            or len(grouped.apart) > MOST_BLOCKS
        ):
            return None
        if grouped.apart:
            apart = InterleavedClusters.of(inner, grouped.apart)
            if interleaved is not None and not apart.fits(interleaved):
                return None
            interleaved = apart if interleaved is None else apart.merge(interleaved)
        interleaved = interleaved or InterleavedClusters.empty(inner)
        names, codes = interleaved.named_codes()
        owners = np.zeros(MOST_BLOCKS, np.int64)
        owners[codes] = np.arange(1, len(codes) + 1)
        groups = {WHOLE: (0, GroupOfClusters.of(interleaved.table.facts.sum(axis=0)))}
        for number, (name, facts) in enumerate(zip(names, interleaved.table.facts, strict=True), start=1):
            groups[slicing, name] = number, GroupOfClusters.of(facts)
        return cls(inner, interleaved.keyed, owners, groups)

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[ClusterSweepPart]:
        """The clusters of a shard, as the only part."""
        groups = len(self.groups)
        clusters, positives = np.zeros((2, max(2, min(_CELLS // groups, 1 << 12)), groups), np.int64)
        cut, listed = np.zeros(groups, np.int64), [np.zeros((0, 3), np.int64)]
        columns, first, (start, stop) = (0,) * (self.keyed.layout.words - 1), 0, shard
        places = self.keyed.places(start, stop) if start < stop else None
        while places is not None and start + first < stop:
            first, large = tally_groups(places.at, self.owners, columns, first, clusters, positives, cut)
            listed.append(large)
            if start + first < stop:
                listed += self._sorted((start + first, start + first + 1), budget, cut)
                first += 1
        if shard == self.shards()[0]:
            single = np.array([group.single_rows for _, group in self.groups.values()])
            clusters[1] += single.sum(axis=1)
            positives[1] += single[:, 1]
        large, tables = np.concatenate(listed), []
        for group in range(groups):
            sizes, own = np.flatnonzero(clusters[:, group]), large[large[:, 0] == group]
            table = SizeTable(sizes, clusters[sizes, group], positives[sizes, group])
            tables.append(SizeTable.union([table, SizeTable.of(own[:, 1], own[:, 2])]) if len(own) else table)
        yield ClusterSweepPart(tables, cut)

    def _sorted(self, bucket: Interval, budget: Budget | None, cut: Array) -> Iterator[Array]:
        """The clusters of one bucket by sorting, in the form in which `tally_groups` lists large ones; fills `cut`."""
        for counts in self.keyed.grouped(bucket, budget):
            second = np.ascontiguousarray(counts.rest[:, 0]) if counts.rest.shape[1] else np.empty(0, np.uint64)
            bounds = cell_bounds(counts.keys, second, np.array([0, counts.keys.size]), 0)
            owners = self.owners[(second if second.size else counts.keys) & np.uint64(MOST_BLOCKS - 1)]
            sides = np.column_stack((counts.neg + counts.pos, counts.pos))
            yield np.column_stack((owners, sides))
            whole = np.add.reduceat(sides, bounds[:-1])
            yield np.column_stack((np.zeros(len(whole), np.int64), whole))
            cells = np.diff(bounds)
            np.add.at(cut, owners, sides[:, 0] * np.repeat(cells > 1, cells))
