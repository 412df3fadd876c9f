"""Clusters of all rows and of every group, counted side by side in one pass over the rows of all groups.

For groups that stand apart: each has the segments of its own rows, so a pass over the segments of all of them sees
every row with its group. It gives the size tables of all rows and of each group, and the rows of each group in clusters
that the group cuts (`streameval.kernels.grouped.sizes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.kernels.grouped.sizes import tally_groups
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.clusters.tally import by_sorting
from streameval.states.grouped.cuts import shared_rows
from streameval.states.grouped.sheaf import WHOLE
from streameval.states.keyed.counts import KeyedCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.clusters.counts import ClusterCounts
    from streameval.states.grouped.state import Grouped
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["ClusterSheaf", "ClusterSheafPart", "CutRows"]

_CELLS = 1 << 18  # sizes tallied in tables, over all groups; larger clusters are few


@dataclass(frozen=True, eq=False)
class ClusterSheafPart:
    """The clusters of one shard.

    Attributes
    ----------
    tables : of all rows, then of each group
    cut : int64 array of shape (1 + n_groups,), rows of each group in clusters that have rows of other groups
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


@dataclass(frozen=True)
class CutRows:
    """Rows of each group in clusters that it cuts, by slicing and name, from the parts of a sheaf."""

    name: str = "cut"

    def partial(self, part: ClusterSheafPart) -> Array:
        """The rows of one part."""
        return part.cut

    def combine(self, partials: Sequence[Array], state: ClusterSheaf) -> Mapping[tuple[int, bytes], int]:
        """The sum over all parts."""
        rows = np.sum(partials, axis=0)
        return {name: int(rows[number]) for name, (number, _) in state.groups.items() if name != WHOLE}


@dataclass(frozen=True, eq=False)
class ClusterSheaf:
    """All groups of a cluster state.

    Attributes
    ----------
    inner : ClusterSpec
    groups : the number and the state of all rows (0) and of each group, by slicing and name; all rows are `WHOLE`
    """

    spec: ClassVar[None] = None  # policies are of the groups
    further: ClassVar[tuple[CutRows, ...]] = (CutRows(),)  # what is read along with the metrics

    inner: ClusterSpec
    groups: Mapping[tuple[int, bytes], tuple[int, ClusterCounts]]

    @classmethod
    def of(cls, grouped: Grouped, slicing: int, budget: Budget) -> ClusterSheaf | None:
        """The sheaf of the groups of a slicing; None where some are joined, or where rows without a label count."""
        inner = grouped.spec.inner
        if not isinstance(inner, ClusterSpec) or inner.unlabelled or len(grouped.joined.table):
            return None
        groups: dict[tuple[int, bytes], tuple[int, ClusterCounts]] = {WHOLE: (0, grouped.total(budget))}
        for number, (name, state) in enumerate(grouped.apart.items(), start=1):
            groups[slicing, name] = number, state
        return cls(inner, groups)

    @cached_property
    def _states(self) -> list[ClusterCounts]:
        """The state of each group, without that of all rows."""
        return [state for number, state in self.groups.values() if number]

    @cached_property
    def _keyed(self) -> KeyedCounts:
        """The rows of all groups, one after the other."""
        return KeyedCounts(self.inner.layout, tuple(each for state in self._states for each in state.keyed.segments))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        return self._keyed.intervals() or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[ClusterSheafPart]:
        """One: the clusters of a shard."""
        groups = 1 + len(self._states)
        clusters, positives = np.zeros((2, max(2, min(_CELLS // groups, 1 << 12)), groups), np.int64)
        cut, listed = np.zeros(groups, np.int64), [np.zeros((0, 3), np.int64)]
        sorted_: list[list[SizeTable]] = [[] for _ in range(groups)]
        runs = [np.full(len(state.keyed.segments), i) for i, state in enumerate(self._states, start=1)]
        owners = np.concatenate([np.empty(0, np.int64), *runs])
        columns, first, (start, stop) = (0,) * (self.inner.layout.words - 1), 0, shard
        places = self._keyed.places(start, stop) if start < stop else None
        while places is not None and start + first < stop:
            first, large = tally_groups(places.at, owners, columns, first, clusters, positives, cut)
            listed.append(large)
            if start + first < stop:
                bucket = start + first, start + first + 1
                for tables, keyed in zip(sorted_, [self._keyed, *(state.keyed for state in self._states)], strict=True):
                    tables += _sorted(keyed, bucket, budget)
                cut[1:] += shared_rows(self.inner, [state.keyed for state in self._states], bucket, budget)
                first += 1
        if shard == self.shards()[0]:
            single = np.array([state.single_rows for state in self._states]).reshape(-1, 2)
            single = np.concatenate((single.sum(axis=0, keepdims=True), single))
            clusters[1] += single.sum(axis=1)
            positives[1] += single[:, 1]
        large = np.concatenate(listed)
        for group, tables in enumerate(sorted_):
            sizes, own = np.flatnonzero(clusters[:, group]), large[large[:, 0] == group]
            tables.append(SizeTable(sizes, clusters[sizes, group], positives[sizes, group]))
            tables += [SizeTable.of(own[:, 1], own[:, 2])] if len(own) else []
        yield ClusterSheafPart([t[0] if len(t) == 1 else SizeTable.union(t) for t in sorted_], cut)


def _sorted(keyed: KeyedCounts, bucket: Interval, budget: Budget | None) -> Iterator[SizeTable]:
    """The clusters of one bucket by sorting."""
    clusters, positives = np.zeros((2, 1 << 12), np.int64)
    for large in by_sorting(keyed, bucket, budget, clusters, positives):
        yield SizeTable.of(*large)
    sizes = np.flatnonzero(clusters)
    yield SizeTable(sizes, clusters[sizes], positives[sizes])
