"""ClusterCounts: the exact size and positives of every cluster, and the small table that metrics read.

Clusters are keyed by their ids, mixed by an odd multiplier that permutes the 64-bit integers, so that buckets fill
evenly. Integer ids are compared as integers. Strings and binaries are compared by a 128-bit hash of their bytes
(MurmurHash3): among 10⁹ ids a false match has a probability below 2·10⁻²¹. With ids per partition, the hash of the
partition's path is part of the key. Memory is 8 bytes a row for integer ids, 16 for others.

The area under the lift curve and the ROC curve by size depend only on the number of clusters of each size and on their
positives: the `SizeTable`, of at most √(2·rows) lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import NullError
from streameval.kernels.grid import spread_rows
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.blocks import BLOCKS, SizeChanges, Sweep, blocks_of
from streameval.states.cluster_sizes import SizeTable, by_tables, clusters_of
from streameval.states.keyed.builder import SegmentBuilder, read_segments
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.hot import by_entry, by_run
from streameval.states.keyed.ids import SHIFT, id_type, id_words, identify, row_nulls
from streameval.states.keyed.layout import Interval, Layout
from streameval.states.protocol import Batch, Stored, Totals, Traits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import Header, StoredSpec
    from streameval.typing import Array

__all__ = ["ClusterCounts", "ClusterSpec", "DerivedClusters", "id_type", "null_rows_by_block"]

_SMALL = 1 << 12  # sizes tallied in a table; larger clusters are rare


@dataclass(frozen=True)
class ClusterSpec:
    """Spec of an exact cluster state.

    Attributes
    ----------
    column : the cluster column
    type : see `id_type`
    scope : ``global``, or ``partition`` if ids are local to a partition and reused in others
    nulls : ``error``, ``drop`` or ``singleton`` (each null is a singleton cluster)
    unlabelled : whether rows without a label count in the sizes; the last word of a key then says whether a row has one

    Examples
    --------
    >>> ClusterSpec("cluster").columns
    ('cluster',)
    """

    kind: ClassVar[str] = "cluster_counts"
    version: ClassVar[int] = 1

    column: str
    type: str = "signed"
    scope: str = "global"
    nulls: str = "error"
    unlabelled: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def layout(self) -> Layout:
        """Layout of the segments."""
        return Layout(ID_BUCKETS, 64, words=id_words(self.type, self.scope) + self.unlabelled)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""
        counts = {"key": pa.uint64(), "negatives": pa.int64(), "positives": pa.int64()}
        more = ["second"] * (id_words(self.type, self.scope) - 1) + ["unlabelled"] * self.unlabelled
        return pa.schema(counts | dict.fromkeys(more, pa.uint64()))

    def builder(self, budget: Budget, capacity: int) -> _ClusterBuilder:
        """A builder whose segments hold `capacity` rows."""
        return _ClusterBuilder(self, budget, capacity)

    def empty(self) -> ClusterCounts:
        """The empty state."""
        return ClusterCounts(self, KeyedCounts(self.layout))

    @property
    def traits(self) -> Traits:
        """The tables of several states add up."""
        missing = self.nulls == "error"
        return Traits(True, True, self.unlabelled, missing, by_code=not self.unlabelled)

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> ClusterCounts:
        """The state whose table `ClusterCounts.to_arrow` wrote."""
        rows = (np.array(header[name]) for name in ClusterCounts.fact_names)
        segments = read_segments(self.layout, batches, lambda keys: keys >> SHIFT, budget)
        return ClusterCounts(self, KeyedCounts(self.layout, segments), *rows)


class _ClusterBuilder:
    def __init__(self, spec: ClusterSpec, budget: Budget, capacity: int) -> None:
        self.spec = spec
        self._segments = SegmentBuilder(spec.layout, budget, capacity)
        self._null_rows, self._bare_rows = np.zeros((2, 2), np.int64)

    def update(self, batch: Batch) -> None:
        array, label = batch.columns[self.spec.column], batch.label
        bare = None  # a further word for each row: 1 if it has no label, else 0
        if self.spec.unlabelled:
            bare = (np.zeros(label.size) if batch.labelled is None else ~batch.labelled).astype(np.uint64)
        array = row_nulls(array)
        if array.null_count and self.spec.nulls == "error":
            where = f"{batch.name}: cluster column {self.spec.column!r}"
            raise NullError(f"{where} has nulls; choose --nulls drop or --nulls singleton")
        items = None if bare is not None else by_entry(array, label)
        if items is not None:
            at, counts, labels, nulls = items
            self._null_rows += nulls
            first, rest = identify(array.dictionary, self.spec.type, self.spec.scope, batch.partition)
            self._segments.add_ids((first[at], *rest[at].T), counts, labels)
            return
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._null_rows += np.bincount(label[~valid], minlength=2)
            if bare is not None:
                self._bare_rows[int(self.spec.nulls == "drop")] += int(bare[~valid].sum())
                bare = bare[valid]
            array, label = array.drop_null(), label[valid]
        first, rest = identify(array, self.spec.type, self.spec.scope, batch.partition)
        rest = rest if bare is None else np.column_stack((rest, bare))
        self._segments.add_ids(*by_run((first, *rest.T), label))

    def state(self) -> ClusterCounts:
        single = self.spec.nulls == "singleton"
        none = np.zeros(2, np.int64)
        singles, dropped = (self._null_rows, none) if single else (none, self._null_rows)
        return ClusterCounts(self.spec, KeyedCounts.built(self._segments), singles, dropped, self._bare_rows)


@dataclass(frozen=True, eq=False)
class ClusterCounts(Stored):
    """Exact size and positives of every cluster.

    Attributes
    ----------
    spec : ClusterSpec
    keyed : KeyedCounts
    single_rows : int64 array of shape (2,), null ids that count as singleton clusters, by label
    dropped_rows : int64 array of shape (2,), dropped null ids, by label
    bare_rows : int64 array of shape (2,), number of the single and of the dropped rows without a label; these are
        counted as label 0

    Examples
    --------
    >>> ClusterSpec("cluster").empty().totals().rows
    0
    """

    run_names = ("keyed",)
    fact_names = ("single_rows", "dropped_rows", "bare_rows")

    spec: ClusterSpec
    keyed: KeyedCounts
    single_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    bare_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def totals(self) -> Totals:
        """Rows in clusters."""
        neg, pos = (int(self.keyed.rows[label::2].sum() + self.single_rows[label]) for label in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[SizeTable]:
        """The size table of a shard, as the only part."""
        yield self._labelled_table(shard, budget) if self.spec.unlabelled else self._size_table(shard, budget, None)

    def _labelled_table(self, shard: Interval, budget: Budget | None) -> SizeTable:
        """The size table of a shard in which some rows have no label."""
        tables = [SizeTable.of(*each) for _, *each in clusters_of(self.keyed.grouped(shard, budget))]
        if shard == self.shards()[0]:
            rows = int(self.single_rows.sum())
            single = np.array([rows, self.single_rows[1], rows - self.bare_rows[0]])
            tables.append(SizeTable(np.ones(1, np.int64), *single.reshape(3, 1)))
        return SizeTable.union([SizeTable(*np.empty((4, 0), np.int64)), *tables])

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The size table of a shard, and its changes without each block of clusters.

        Null ids have no id to hash: row k of label l has the block of ``hash(k) ^ l``, hashed again.
        """
        sweep = Sweep(BLOCKS)
        for counts in self.keyed.grouped(shard, budget):
            sweep.add_units(blocks_of(unmix(counts.keys), BLOCKS), counts.neg, counts.pos)
        if shard == self.shards()[0]:
            sweep.add_lone(null_rows_by_block(self.single_rows))
        return sweep.result()

    def impure(self, shard: Interval, budget: Budget | None = None) -> tuple[SizeTable, list[Counts]]:
        """The size table of a shard, and its impure clusters: of several rows, at least one of them negative."""
        found: list[Counts] = []
        return self._size_table(shard, budget, found), found

    def _size_table(self, shard: Interval, budget: Budget | None, impure: list[Counts] | None) -> SizeTable:
        """The size table of a shard; its impure clusters are appended to the list."""
        clusters, positives = np.zeros((2, _SMALL), np.int64)
        given = self.keyed, shard, budget, clusters, positives
        tables = [SizeTable.of(*each) for each in by_tables(*given, impure) if each[0].size]
        if shard == self.shards()[0]:
            clusters[1] += self.single_rows.sum()
            positives[1] += self.single_rows[1]
        sizes = np.flatnonzero(clusters)
        return SizeTable.union([SizeTable(sizes, clusters[sizes], positives[sizes]), *tables])

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Clusters by mixed id: columns key, second (where ids have two words), negatives, positives."""
        for shard in self.keyed.intervals():
            for counts in self.keyed.grouped(shard, budget):
                yield _table(counts, self.spec.schema)


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedClusters(ClusterCounts):
    """Clusters whose rows another state holds, such as a table of clusters against classes.

    Attributes
    ----------
    cells : the state that holds the rows
    """

    cells: Any

    @property
    def holder(self) -> StoredSpec:
        """The spec of the state that holds the rows."""
        spec: StoredSpec = self.cells.spec
        return spec


def null_rows_by_block(rows: Array) -> Array:
    """Rows of null ids by block and label, an int64 array of shape (BLOCKS, 2), from the rows by label."""
    found = np.zeros((2, BLOCKS), np.int64)
    for label, count in enumerate(rows.tolist()):
        spread_rows(np.uint64(label), count, found[label])
    return found.T


def _table(counts: Counts, schema: pa.Schema) -> pa.RecordBatch:
    columns = (counts.keys, counts.neg, counts.pos, *counts.rest.T)
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], schema=schema)
