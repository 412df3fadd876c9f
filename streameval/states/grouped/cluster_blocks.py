"""ClusterCounts split by blocks of another unit, for paired comparisons: the rows of each cluster in each block.

Two clusterings have no blocks of clusters in common, but they share the blocks of a third unit, such as campaigns. The
rows of a cluster in one block are a *cell*. The key of a row is the key of its cluster with its block appended: one
word for integer ids, which sorts like the rows of plain clusters, so that the cells of a cluster are adjacent
(`streameval.kernels.blocks.clusters`). One sweep computes the size tables without each block (`by_block`).

`Grouped` with an inner state for each of 128 blocks gives the same results at a quarter of the speed. This is the same
state in another layout: it has the methods and the stored table of `Grouped`, and is seen as a `Grouped` when single
groups are needed, because its rows are those of interleaved slices.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.kernels.blocks.clusters import (
    cell_bounds,
    cluster_blocks,
    count_lone_cells,
    count_lone_clusters,
    sorted_cells,
)
from streameval.kernels.keys import unmix
from streameval.kernels.lift import keep_shared
from streameval.states.blocks import BLOCKS
from streameval.states.clusters.cell_words import MOST_BLOCKS, NARROW, encode_rows, row_counts
from streameval.states.clusters.counts import ClusterCounts, null_rows_by_block
from streameval.states.clusters.size_blocks import SizeChanges, Sweep
from streameval.states.compatible import mergeable
from streameval.states.grouped.group_codes import GroupCodes
from streameval.states.grouped.interleaved_clusters import InterleavedClusters
from streameval.states.grouped.table import GroupTable
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import LabelledWords
from streameval.states.keyed.ids import identify, row_nulls
from streameval.states.keyed.layout import NO_COUNTS, Interval
from streameval.states.keyed.tags import fixed_bits
from streameval.states.protocol import PlainState, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import Batch
    from streameval.typing import Array

_BLOCK = np.uint64(MOST_BLOCKS - 1)
_NONE = np.empty(0, np.uint64)


class BlockedClustersBuilder:
    """Builder of `BlockedClusters`; owned by one task.

    Parameters
    ----------
    spec : GroupedSpec of a ClusterSpec and Blocks
    budget : Budget
    capacity : int
        Number of rows that are collected at a time.
    """

    def __init__(self, spec: Any, budget: Budget, capacity: int) -> None:
        self._spec, self._budget = spec, budget
        self._segments = SegmentBuilder(NARROW.layout(spec.inner), budget, capacity)
        self._rows, self._nulls = np.zeros((2, spec.key.count, 2), np.int64)

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        inner = self._spec.inner
        array, label, blocks = batch.columns[inner.column], batch.label, self._spec.key.numbers(batch)
        array = row_nulls(array)
        if array.null_count:
            if inner.nulls == "error":
                inner.builder(self._budget, 1).update(batch)  # this raises
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._nulls += row_counts(blocks[~valid], label[~valid], len(self._nulls))
            array, label, blocks = array.drop_null(), label[valid], blocks[valid]
        self._rows += row_counts(blocks, label, len(self._rows))
        encode_rows(self._segments, identify(array, inner.type, inner.scope, batch.partition), blocks, label, NO_COUNTS)

    def state(self) -> BlockedClusters:
        """The state of everything folded; the builder must not be used afterwards."""
        nulls = (self._nulls, np.zeros_like(self._nulls))
        single, dropped = nulls if self._spec.inner.nulls == "singleton" else nulls[::-1]
        return BlockedClusters(self._spec, KeyedCounts.built(self._segments), self._rows, single, dropped)


@dataclass(frozen=True, eq=False)
class BlockedClusters(PlainState):
    """Size and positives of the part of each cluster in each block.

    Attributes
    ----------
    spec : GroupedSpec of a ClusterSpec and Blocks
    keyed : KeyedCounts, rows by cluster and block
    rows, single_rows, dropped_rows : int64 arrays of shape (n_blocks, 2), by label: rows with an id; null ids that
        count as singleton clusters; dropped null ids

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> from streameval.states.grouped.keys import Blocks
    >>> from streameval.states.grouped.state import GroupedSpec
    >>> from streameval.states.protocol import Batch
    >>> builder = GroupedSpec(ClusterSpec("cluster"), Blocks("campaign")).builder(Budget(), 8)
    >>> columns = {"cluster": pa.array([1, 1, 1, 2]), "campaign": pa.array([7, 7, 8, 8])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> state = builder.state()
    >>> state.groups()
    (20, 125)
    >>> state.by_block(state.shards()[0]).without(125)  # campaign 7
    SizeTable(size=array([1]), clusters=array([2]), positives=array([0]))
    """

    spec: Any
    keyed: KeyedCounts
    rows: Array
    single_rows: Array
    dropped_rows: Array

    @classmethod
    def empty(cls, spec: Any) -> BlockedClusters:
        """The empty state."""
        return cls(spec, KeyedCounts(NARROW.layout(spec.inner)), *np.zeros((3, spec.key.count, 2), np.int64))

    @classmethod
    def read(
        cls, spec: Any, groups: Iterable[tuple[bytes, Array]], batches: Iterable[pa.RecordBatch], budget: Budget
    ) -> BlockedClusters:
        """The state whose table `to_arrow` wrote.

        Parameters
        ----------
        spec : GroupedSpec
        groups : names of the blocks, each with its facts: singleton null ids by label, then dropped ones
        batches : the rows of the inner tables
        budget : owns the memory of the segments
        """
        empty = cls.empty(spec)
        for name, facts in groups:
            block = spec.key.group(name)
            empty.single_rows[block], empty.dropped_rows[block] = facts.astype(np.int64).reshape(2, 2)
        segments = SegmentBuilder.fitting(NARROW.layout(spec.inner), budget, 1 << 18, counted=True)
        for batch in batches:
            names = batch.column("group").dictionary_encode()
            numbers = np.array([spec.key.group(name) for name in names.dictionary.to_pylist()], np.uint16)
            blocks = numbers[names.indices.to_numpy()]
            keys = unmix(batch.column("key").to_numpy())
            rest = batch.column("second").to_numpy().reshape(-1, 1) if "second" in batch.schema.names else None
            for label, side in enumerate(("negatives", "positives")):
                counts = batch.column(side).to_numpy()
                here = counts > 0
                words = np.empty((np.count_nonzero(here), 0), np.uint64) if rest is None else rest[here]
                empty.rows[:, label] += _summed(blocks[here], counts[here], spec.key.count)
                labels = np.full(len(words), label, np.uint8)
                encode_rows(segments, (keys[here], words), blocks[here], labels, counts[here])
        return replace(empty, keyed=KeyedCounts.built(segments))

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"keyed": self.keyed}

    def with_runs(self, runs: Mapping[str, Any]) -> BlockedClusters:
        """The same state with other keyed counts."""
        return replace(self, **runs)

    def merge(self, other: BlockedClusters) -> BlockedClusters:
        """Clusters of both inputs; equal ids are one cluster."""
        mergeable(self, other)
        counts = (self.rows + other.rows, self.single_rows + other.single_rows, self.dropped_rows + other.dropped_rows)
        return BlockedClusters(self.spec, self.keyed.merge(other.keyed), *counts)

    def groups(self) -> tuple[int, ...]:
        """The blocks that have rows, ascending."""
        found = (self.rows + self.single_rows + self.dropped_rows).any(axis=1)
        return tuple(np.flatnonzero(found).tolist())

    def totals(self) -> Totals:
        """Rows in clusters."""
        neg, pos = (self.rows + self.single_rows).sum(axis=0).tolist()
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of clusters that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The size table of a shard, and its changes without each block."""
        return self._swept(shard, budget, None)

    def by_both(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """As `ClusterCounts.by_block`, with the changes without each block of the unit as `SizeChanges.paired`."""
        own = Sweep(BLOCKS)
        paired = self._swept(shard, budget, own)
        return replace(own.result(), paired=paired)

    def _swept(self, shard: Interval, budget: Budget | None, own: Sweep | None) -> SizeChanges:
        """The changes without each block of the unit; if `own` is given, whole clusters are also added to it."""
        sweep = Sweep(self.spec.key.count)
        for stretch in self.keyed.rows_in(shard, budget):
            if isinstance(stretch, LabelledWords):
                _sweep_rows(stretch, sweep, own)
            else:
                _sweep_cells(list(stretch.counts()), sweep, own)
        if shard == self.shards()[0]:
            sweep.add_lone(self.single_rows)
            if own is not None:
                own.add_lone(null_rows_by_block(self.single_rows.sum(axis=0)))
        return sweep.result()

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[tuple[int, Any]]:
        """Each block with the inner state of its rows in the clusters of a shard."""
        nulls = shard == self.shards()[0]
        single, dropped = self.single_rows * nulls, self.dropped_rows * nulls
        here = replace(self, keyed=self.keyed.range(*shard), single_rows=single, dropped_rows=dropped)
        groups = here.groups()
        yield from zip(groups, here.grouped.several(groups, budget), strict=True)

    @cached_property
    def grouped(self) -> Any:
        """The same rows in the layout of slices, where the code of a group is the number of its block."""
        inner, key, groups = self.spec.inner, self.spec.key, list(self.groups())
        names = [key.named(block) for block in range(key.count)]
        facts = np.hstack((self.single_rows, self.dropped_rows, self.rows))[groups].astype(np.float64)
        table = GroupTable.of(pa.array([names[block] for block in groups], pa.large_binary()), facts)
        return self.spec.of_interleaved(InterleavedClusters(inner, GroupCodes(names), table, self.keyed))

    def total(self, budget: Budget | None = None) -> DerivedClusters:
        """The inner state of all rows, without copying them."""
        return DerivedClusters.of(self)

    def only(self, group: int) -> Any:
        """The inner state of one block; empty if the block has no rows."""
        return self.grouped.only(group)

    def without(self, *groups: int) -> Any:
        """The inner state of all other blocks."""
        return self.grouped.without(*groups)

    def header(self) -> dict[str, Any]:
        """The inner spec and the key."""
        header: dict[str, Any] = self.grouped.header()
        return header

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each block, then their inner tables; blocks in the order of their hashes."""
        batches: Iterator[pa.RecordBatch] = self.grouped.to_arrow(budget)
        return batches

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.keyed) + 3 * self.rows.nbytes

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state, in any layout."""
        return bool(self.grouped == (other.grouped if isinstance(other, BlockedClusters) else other))


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedClusters(ClusterCounts):
    """The clusters of all blocks, computed on reading from the cells that hold the rows.

    Attributes
    ----------
    cells : BlockedClusters, which holds the rows
    """

    cells: BlockedClusters

    @classmethod
    def of(cls, cells: BlockedClusters) -> DerivedClusters:
        """The clusters of all blocks."""
        inner, held = cells.spec.inner, cells.keyed
        keyed = KeyedCounts(inner.layout, tuple(map(NARROW.as_clusters, held.segments)), held.full_outline)
        return cls(inner, keyed, cells.single_rows.sum(axis=0), cells.dropped_rows.sum(axis=0), cells=cells)

    @property
    def holder(self) -> Any:
        """The spec of the state that holds the rows."""
        return self.cells.spec

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The changes of a shard without each block of clusters; `paired` has those without each block of the unit."""
        return self.cells.by_both(shard, budget)


def _summed(blocks: Array, counts: Array, size: int) -> Array:
    """Σ of counts by block, as an int64 array of shape (size,)."""
    found = np.zeros(size, np.int64)
    np.add.at(found, blocks, counts)
    return found


def _sweep_rows(rows: LabelledWords, sweep: Sweep, own: Sweep | None) -> None:
    """Add clusters given as rows; singletons that a quick test finds are not sorted."""
    size, fixed = rows.words.size, fixed_bits(rows.buckets) | np.uint64(rows.top)
    lone = np.empty(size + 1, np.uint64)
    bounds = keep_shared(rows.words, rows.bounds, 0, lone)
    lone = lone[: size - bounds[-1]]
    sweep.add_lone(count_lone_cells(lone, len(sweep)))
    if own is not None:
        own.add_lone(count_lone_clusters(lone, rows.bounds - bounds, fixed, len(own)))
    words = rows.words[: bounds[-1]]
    for a, b in pairwise(bounds.tolist()):
        words[a:b].sort()
    keys, neg, pos, starts = sorted_cells(words, bounds)
    blocks = ((keys >> np.uint64(1)) & _BLOCK).astype(np.int64)
    clusters = cell_bounds(keys, _NONE, starts, 1)
    whole = sweep.add(clusters, blocks, neg, pos)
    if own is not None:
        own.add_units(cluster_blocks(keys, clusters, starts, fixed, 1, len(own)), *whole)


def _sweep_cells(buckets: list[Counts], sweep: Sweep, own: Sweep | None) -> None:
    """Add the clusters of whole buckets, given as cells."""
    starts = np.cumsum([0, *(counts.keys.size for counts in buckets)])
    keys, rest, neg, pos = (
        np.concatenate([getattr(c, name) for c in buckets]) for name in ("keys", "rest", "neg", "pos")
    )
    second = np.ascontiguousarray(rest[:, 0]) if rest.shape[1] else _NONE
    blocks = ((second if second.size else keys) & _BLOCK).astype(np.int64)
    clusters = cell_bounds(keys, second, starts, 0)
    whole = sweep.add(clusters, blocks, neg, pos)
    if own is not None:
        fixed = fixed_bits(np.array([counts.bucket for counts in buckets]))
        own.add_units(cluster_blocks(keys, clusters, starts, fixed, 0, len(own)), *whole)
