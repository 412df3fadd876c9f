"""Interleaved clusters: the rows of all groups of a cluster state in one table, by cluster.

The key of a row is the key of its cluster with the code of its group, as in `streameval.states.grouped.cluster_blocks`:
one word for integer ids, two for others. Folding a row takes the same time for a thousand groups as for one, and the
same memory as in the state of all rows. One pass counts all groups (`streameval.states.grouped.cluster_sweep`). The
states of all rows and of each group are computed from the table.

A `GroupCodes` assigns at most 1,024 codes. Batches with further groups are folded in the other layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.kernels.grouped.interleave import ordered, recoded_rows
from streameval.states.clusters.cell_words import as_cells, as_clusters, codes_of, recoded, taken
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.grouped.cluster_blocks import MOST_BLOCKS, cell_layout, encode_rows, row_counts
from streameval.states.grouped.composite import CompositeGroups, inner_facts
from streameval.states.grouped.interleaved.group_codes import CodedBuilder, CodedGroups, GroupCodes
from streameval.states.grouped.keys import By
from streameval.states.grouped.rows import FORMS, fact_sums
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import identify
from streameval.states.keyed.layout import NO_COUNTS, Segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.budget import Budget
    from streameval.states.grouped.keys import Key, Split
    from streameval.states.protocol import Batch
    from streameval.typing import Array

__all__ = ["InterleavedClusters", "InterleavedClustersBuilder", "interleaves_clusters"]

_ROWS = 1 << 16  # rows whose codes are looked up at a time, so that they stay in the cache


def interleaves_clusters(inner: Any, key: Key) -> bool:
    """Whether groups of a state are stored as interleaved clusters: slices are; blocks have a separate state.

    Examples
    --------
    >>> slices = By(("country",))
    >>> [interleaves_clusters(ClusterSpec("c", unlabelled=value), slices) for value in (False, True)]
    [True, False]
    """
    return isinstance(key, By) and isinstance(inner, ClusterSpec) and not inner.unlabelled


@dataclass(frozen=True, eq=False)
class InterleavedClusters(CodedGroups):
    """Groups of a cluster state in one table.

    Attributes
    ----------
    inner : ClusterSpec
    group_codes : as in `CodedGroups`
    table : GroupTable; the last two facts are the rows with an id, by label
    keyed : KeyedCounts, rows by cluster and group
    """

    inner: ClusterSpec

    @classmethod
    def empty(cls, inner: ClusterSpec) -> InterleavedClusters:
        """Without groups."""
        return cls(
            inner, GroupCodes(), GroupTable.empty(2 * len(inner_facts(inner)) + 2), KeyedCounts(cell_layout(inner))
        )

    @classmethod
    def of(cls, inner: ClusterSpec, apart: Mapping[bytes, Any]) -> InterleavedClusters:
        """The groups of some inner states, at most `MOST_BLOCKS`, without copying rows."""
        group_codes, names = GroupCodes(apart), pa.array(apart, pa.large_binary())
        facts = np.zeros((len(apart), 2 * len(inner_facts(inner)) + 2))
        segments: list[Segment] = []
        for code, state in enumerate(apart.values()):
            rows = state.keyed.rows.reshape(-1, 2).sum(axis=0)
            facts[code] = [side for name in inner_facts(inner) for side in state.header()[name]] + rows.tolist()
            segments += (as_cells(each, code) for each in state.keyed.segments)
        return cls(inner, group_codes, GroupTable.of(names, facts), KeyedCounts(cell_layout(inner), tuple(segments)))

    def fits(self, other: InterleavedClusters) -> bool:
        """Whether both have few enough groups for one table."""
        return self.shares(other, MOST_BLOCKS)

    def merge(self, other: InterleavedClusters) -> InterleavedClusters:
        """The groups of both inputs, for which `fits` must hold."""
        table = GroupTable.union([self.table, other.table])
        if other.group_codes is not self.group_codes:
            codes = self.group_codes.codes(other.group_codes.names).astype(np.uint64)
            segments = tuple(recoded(each, codes) for each in other.keyed.segments)
            other = replace(other, keyed=KeyedCounts(other.keyed.layout, segments))
        return InterleavedClusters(self.inner, self.group_codes, table, self.keyed.merge(other.keyed))

    def total(self) -> Any:
        """The inner state of all rows, without copying them."""
        segments = tuple(as_clusters(each) for each in self.keyed.segments)
        return self._inner(segments, self.table.facts.sum(axis=0))

    def restored(self, marks: Array, budget: Budget | None = None) -> Any:
        """The inner state of the groups whose codes are marked."""
        budget, segments = self.keyed.holding(budget), []
        for each in self.keyed.segments:
            at = np.flatnonzero(marks[codes_of(each)])
            segments += [taken(each, at, budget)] if at.size else []
        return self._inner(tuple(segments), self.table.facts[marks[self.named_codes()[1]]].sum(axis=0))

    def alone(self, budget: Budget | None = None) -> dict[bytes, Any]:
        """The inner state of each group, by name, in one pass over the rows."""
        budget, (names, codes) = self.keyed.holding(budget), self.named_codes()
        segments: dict[int, list[Segment]] = {code: [] for code in codes}
        for each in self.keyed.segments:
            order, starts = ordered(codes_of(each).astype(np.int64), len(self.group_codes))
            for code in np.flatnonzero(np.diff(starts)).tolist():
                segments[code].append(taken(each, order[starts[code] : starts[code + 1]], budget))
        return {
            name: self._inner(tuple(segments[code]), facts)
            for name, code, facts in zip(names, codes, self.table.facts, strict=True)
        }

    def parted(self) -> tuple[Mapping[bytes, Any], CompositeGroups]:
        """The same groups in the other layouts: some apart, others under composite keys."""
        return self.alone(), CompositeGroups.empty(self.inner)


class InterleavedClustersBuilder(CodedBuilder):
    """Builder of interleaved clusters; owned by one task.

    Parameters
    ----------
    inner : ClusterSpec
    key : Key
    budget : Budget
    capacity : int
        Number of rows that are collected at a time.
    """

    def __init__(self, inner: ClusterSpec, key: Key, budget: Budget, capacity: int) -> None:
        super().__init__(inner, key, budget)
        self._segments = SegmentBuilder(cell_layout(inner), budget, capacity)

    def update(self, batch: Batch, split: Split) -> bool:
        """Fold a batch whose groups are known; returns False, and does nothing, if there are too many groups."""
        inner, names = self._inner, split.names.to_pylist()
        codes = self._group_codes.few(names, MOST_BLOCKS)
        if codes is None:
            return False
        array, label, raw = batch.columns[inner.column], batch.label, split.raw
        facts = np.zeros((len(names), 2 * len(inner_facts(inner))))
        if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
            array = array.dictionary_decode()
        if array.null_count:
            facts = fact_sums(inner, FORMS[ClusterSpec](inner, batch), split.codes, len(names))
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            array, label, raw = array.drop_null(), label[valid], raw[valid]
        first, rest = identify(array, inner.type, inner.scope, batch.partition)
        table, rows = codes[split.places].astype(np.int64), np.zeros((MOST_BLOCKS, 2), np.int64)
        for start in range(0, label.size, _ROWS):
            part = slice(start, start + _ROWS)
            cells = recoded_rows(raw[part], table)
            rows += row_counts(cells, label[part], len(rows))
            encode_rows(self._segments, (first[part], rest[part]), cells, label[part], NO_COUNTS)
        self._table.add(split.names, np.hstack((facts, rows[codes])))
        return True

    def interleaved(self) -> InterleavedClusters:
        """Everything folded; the builder must not be used afterwards."""
        empty = replace(InterleavedClusters.empty(self._inner), group_codes=self._group_codes)
        return replace(empty, table=self._table.built() or empty.table, keyed=KeyedCounts.built(self._segments))
