"""ContingencyCounts: the exact rows of every (class, cluster) cell, for data larger than memory.

A row is a key of two ids: the words of its cluster, which decide the bucket, then the words of its class (see
`streameval.states.keyed.ids`). Rows are partitioned by cluster in their original order and spill like every other state
when the budget is exceeded. A row takes 16 bytes for integer ids, and 8 more for each id that is hashed or belongs to
its partition; repeated rows of a large cell become one item with a count.
`streameval.states.contingency.rounds` turns them into the `Summary` from which the metrics are computed.

Nulls that count as singletons need no identity, since a cluster of one row has one cell: rows without a cluster are
counted by class alone, in `without_cluster`; rows without a class keep their cluster and have label 1. The state
therefore does not depend on where a row came from.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from streameval.kernels.keys import ID_BUCKETS
from streameval.states.clusters.counts import ClusterSpec, DerivedClusters
from streameval.states.contingency.builder import ContingencyBuilder, cell_batch, cell_schema, read_cells
from streameval.states.contingency.cells import Keys, ShardRows, class_layouts
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import id_words, identify
from streameval.states.keyed.layout import Interval, Layout
from streameval.states.protocol import PlainState, Small, Totals, Traits, mergeable, same_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.states.contingency.summary import Summary
    from streameval.states.keyed.grouping import Counts
    from streameval.typing import Array


@dataclass(frozen=True)
class ContingencySpec:
    """Spec of the state of one class column with one cluster column.

    Attributes
    ----------
    classes, cluster : the columns
    class_type, cluster_type : see `streameval.states.keyed.ids.id_type`
    scope : ``global``, or ``partition`` if cluster ids are local to a partition; class ids are global
    nulls : ``error``, ``drop`` or ``singleton`` (each null is a singleton cluster, or class)

    Examples
    --------
    >>> ContingencySpec("campaign", "cluster").columns
    ('cluster', 'campaign')
    """

    kind: ClassVar[str] = "contingency"
    version: ClassVar[int] = 1
    unlabelled: ClassVar[bool] = True  # rows without a label count as rows of label 0
    labelled: ClassVar[bool] = False  # whether rows keep their labels

    classes: str
    cluster: str
    class_type: str = "signed"
    cluster_type: str = "signed"
    scope: str = "global"
    nulls: str = "error"

    @property
    def traits(self) -> Traits:
        """Rows need no label; the tables of several states add up."""
        return Traits(additive=True, unlabelled=True, refuses_missing=self.nulls == "error")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return self.cluster, self.classes

    @property
    def keys(self) -> Keys:
        """Words of both ids."""
        return Keys(id_words(self.cluster_type, self.scope), id_words(self.class_type))

    @property
    def clusters(self) -> ClusterSpec:
        """The spec of the clusters of its rows."""
        return ClusterSpec(self.cluster, self.cluster_type, self.scope, self.nulls)

    @property
    def layout(self) -> Layout:
        """Layout of the rows that have a cluster."""
        return Layout(ID_BUCKETS, 64, words=sum(self.keys))

    @property
    def class_layout(self) -> Layout:
        """Layout of rows by class."""
        return class_layouts(self.keys, 0)[0]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table: the words of both ids, rows, and rows without a class."""
        return cell_schema(self.keys)

    def class_words(self, array: pa.Array) -> tuple[Array, Array]:
        """Words of classes without nulls, as `identify` returns them."""
        return identify(array, self.class_type)

    def cluster_words(self, array: pa.Array, partition: str) -> tuple[Array, Array]:
        """Words of clusters without nulls, as `identify` returns them."""
        return identify(array, self.cluster_type, self.scope, partition)

    def row_words(self, clusters: pa.Array, classes: pa.Array, partition: str) -> tuple[Array, ...]:
        """Words of rows that have both ids, uint64 arrays of shape (n,): of the cluster, then of the class."""
        (first, rest), (one, more) = self.cluster_words(clusters, partition), self.class_words(classes)
        return first, *rest.T, one, *more.T

    def builder(self, budget: Budget, capacity: int) -> ContingencyBuilder:
        """A builder whose segments hold about `capacity` rows."""
        return ContingencyBuilder(self, budget, capacity, partial(ContingencyCounts, self), labelled=self.labelled)

    def empty(self) -> ContingencyCounts:
        """The empty state."""
        return ContingencyCounts(self, KeyedCounts(self.layout), KeyedCounts(self.class_layout))

    def from_arrow(
        self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget
    ) -> ContingencyCounts:
        """The state that `ContingencyCounts.to_arrow` wrote."""
        keyed = read_cells(batches, (self.layout, self.class_layout), budget)
        state = ContingencyCounts(self, *keyed, *(np.array(header[name]) for name in _FACTS))
        if state.cell_rows != state.totals().rows:
            raise ValueError(f"{state.totals().rows} rows are expected and the cells have {state.cell_rows}")
        return state


class LabelledSpec(ContingencySpec):
    """Spec of a table whose rows keep their labels, so that it also gives the state of its clusters; never stored.

    Rows are scattered once, which takes most of the time of both states. Both have the same rows only if every row has
    a label and both ids, so null ids are an error.

    Examples
    --------
    >>> LabelledSpec("campaign", "cluster").traits.derived
    ClusterSpec(column='cluster', type='signed', scope='global', nulls='error', unlabelled=False)
    """

    labelled: ClassVar[bool] = True

    @property
    def traits(self) -> Traits:
        """Those of the table without labels; the clusters are derived."""
        return super().traits._replace(derived=self.clusters)


_FACTS = ("label_rows", "dropped_rows")


@dataclass(frozen=True, eq=False)
class ContingencyCounts(PlainState):
    """Exact counts of every (class, cluster) cell.

    Attributes
    ----------
    spec : ContingencySpec
    cells : KeyedCounts
        Rows by cluster and class; label 1 for rows without a class, or the label of the row (`LabelledSpec`).
    without_cluster : KeyedCounts
        Rows without a cluster, by class; label 1 for rows without either.
    label_rows : int64 array of shape (2,), rows in the table by label
    dropped_rows : int64 array of shape (2,), rows dropped for a null cluster, and for a null class only

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.rounds import summarize_state
    >>> from streameval.states.protocol import Batch
    >>> builder = ContingencySpec("campaign", "cluster").builder(Budget(), 8)
    >>> columns = {"campaign": pa.array([7, 7, 7, 8]), "cluster": pa.array([1, 1, 2, 2])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> summary = summarize_state(builder.state(), Budget())
    >>> summary.shape, list(summary.cells.pairs())
    ((2, 2), [(1, 2), (2, 1)])
    """

    spec: ContingencySpec
    cells: KeyedCounts
    without_cluster: KeyedCounts
    label_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"cells": self.cells, "without_cluster": self.without_cluster}

    def with_runs(self, runs: Mapping[str, Any]) -> Self:
        """The same state with other keyed counts."""
        return replace(self, **runs)

    def merge(self, other: Self) -> Self:
        """Cells of both inputs; equal ids are one cluster, or one class."""
        mergeable(self, other)
        return replace(
            self,
            cells=self.cells.merge(other.cells),
            without_cluster=self.without_cluster.merge(other.without_cluster),
            label_rows=self.label_rows + other.label_rows,
            dropped_rows=self.dropped_rows + other.dropped_rows,
        )

    @cached_property
    def plain_cells(self) -> KeyedCounts:
        """The cells, in which label 1 means that a row has no class."""
        return self.cells.without_labels() if self.spec.labelled else self.cells

    def total(self, budget: Budget | None = None) -> DerivedClusters:
        """The clusters of rows that keep their labels, without copying them."""
        keyed = self.cells.leading(self.spec.keys.cluster)
        return DerivedClusters(self.spec.clusters, keyed, cells=self)

    @property
    def cell_rows(self) -> int:
        """Number of rows in all cells."""
        return int(self.cells.rows.sum()) + int(self.without_cluster.rows.sum())

    def totals(self) -> Totals:
        """Rows in the table, by label."""
        neg, pos = self.label_rows.tolist()
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of clusters."""
        return self.cells.intervals()

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[Counts]:
        """Cells of a shard, by cluster and class, a bounded number at a time.

        Metrics need both rounds and read the `summary` instead.
        """
        return self.plain_cells.grouped(shard, budget)

    def rows_of(self, shard: Interval, budget: Budget | None = None) -> ShardRows:
        """Rows of a shard that have a class, from which the rows of a few clusters and classes can be selected."""
        return ShardRows(self.plain_cells, self.spec.keys, shard)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled bytes do not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.runs().values()))

    def header(self) -> dict[str, Any]:
        """The spec, the rows by label, and the dropped rows."""
        return {"spec": asdict(self.spec)} | {name: getattr(self, name).tolist() for name in _FACTS}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Cells by cluster and class, then the rows without a cluster, by class."""
        for keyed in (self.plain_cells, self.without_cluster):
            for shard in keyed.intervals():
                for counts in keyed.grouped(shard, budget):
                    yield cell_batch(counts, self.spec.keys)

    def __eq__(self, other: object) -> bool:
        """Whether both states have the same header and table; their segments may differ."""
        if not isinstance(other, ContingencyCounts):
            return NotImplemented
        return same_table(self, other)


@dataclass(frozen=True, eq=False)
class SummarisedCounts(Small):
    """A table with its summary, which is all that metrics read.

    Attributes
    ----------
    state : the table, possibly without its rows
    summary : Summary, with the best matching where that is needed
    """

    spec = None  # never stored or merged

    state: ContingencyCounts
    summary: Summary

    def parts(self, shard: Interval | None = None, budget: Budget | None = None) -> Iterator[Summary]:
        """The summary, as the only part."""
        yield self.summary

    @property
    def dropped_rows(self) -> Array:
        """Rows left out for a null cluster, and for a null class only."""
        return self.state.dropped_rows

    def totals(self) -> Totals:
        """Rows in the table, by label."""
        return self.state.totals()
