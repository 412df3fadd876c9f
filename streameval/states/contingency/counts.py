"""ContingencyCounts: the exact rows of every (class, cluster) cell, for data larger than memory.

A row is a key of two ids: the words of its cluster, which decide the bucket, then the words of its class (see
`streameval.states.keyed.ids`). Rows are partitioned by cluster in their original order and spill like every other state
when the budget is exceeded. A row takes 16 bytes for integer ids, and 8 more for each id that is hashed or belongs to
its partition; repeated rows of a large cell become one item with a count.
`streameval.states.contingency.by_cluster` turns them into the `Summary` from which the metrics are computed.

Nulls that count as singletons need no identity, since a cluster of one row has one cell: rows without a cluster are
counted by class alone, in `without_cluster`; rows without a class keep their cluster and have label 1. The state
therefore does not depend on where a row came from.

The Arrow table has one row per cell, with the words of both ids and the cell's counts. Cells with a cluster come first,
by cluster and class; then cells without a cluster, by class, with 0 as the words of the cluster. Only the words of the
segments are written; a reader partitions them again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import NullError
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency.cells import Keys
from streameval.states.keyed.builder import SegmentBuilder, SegmentBuilders
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.hot import by_code, by_run
from streameval.states.keyed.ids import id_codes, id_words, identify, row_nulls
from streameval.states.keyed.layout import NO_WEIGHTS, Interval, Layout
from streameval.states.protocol import Small, Stored, Totals, Traits
from streameval.typing import pack_bits, valid_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.contingency.summary import Summary
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import Batch, Header
    from streameval.typing import Array

_BUFFER = 1 << 26  # largest size of collected rows in bytes
_SIDES = ("cluster", "class")


@dataclass(frozen=True)
class ContingencySpec:
    """Spec of the state of one class column with one cluster column.

    Attributes
    ----------
    classes, cluster : the columns
    class_type, cluster_type : see `streameval.states.keyed.ids.id_type`
    scope : ``global``, or ``partition`` if cluster ids are local to a partition; class ids are global
    nulls : ``error``, ``drop`` or ``singleton`` (each null is a singleton cluster, or class)
    labelled : whether rows are counted by label; labels that arrive later would change the state for this alone

    Examples
    --------
    >>> ContingencySpec("campaign", "cluster").columns
    ('cluster', 'campaign')
    """

    kind: ClassVar[str] = "contingency"
    version: ClassVar[int] = 1

    classes: str
    cluster: str
    class_type: str = "signed"
    cluster_type: str = "signed"
    scope: str = "global"
    nulls: str = "error"
    labelled: bool = True

    @property
    def traits(self) -> Traits:
        """Rows without a label count as rows of label 0; the tables of several states add up."""
        return Traits(
            additive=True,
            unlabelled=True,
            ignores_labels=not self.labelled,
            refuses_missing=self.nulls == "error",
            by_code=True,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return self.cluster, self.classes

    @property
    def keys(self) -> Keys:
        """Words of both ids."""
        return Keys(id_words(self.cluster_type, self.scope), id_words(self.class_type))

    @property
    def layout(self) -> Layout:
        """Layout of the rows that have a cluster."""
        return Layout(ID_BUCKETS, 64, words=sum(self.keys))

    @property
    def class_layout(self) -> Layout:
        """Layout of rows by class."""
        return Layout(ID_BUCKETS, 64, words=self.keys.class_)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table: the words of both ids, rows, and rows without a class."""
        words = [f"{side}_{i}" for side, count in zip(_SIDES, self.keys, strict=True) for i in range(count)]
        types = dict.fromkeys(words, pa.uint64()) | {"rows": pa.int64(), "without_class": pa.int64()}
        return pa.schema(types | {"has_cluster": pa.bool_()})

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
        return ContingencyBuilder(self, budget, capacity)

    def empty(self) -> ContingencyCounts:
        """The empty state."""
        return ContingencyCounts(self, KeyedCounts(self.layout), KeyedCounts(self.class_layout))

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> ContingencyCounts:
        """The state that `ContingencyCounts.to_arrow` wrote."""
        layouts = self.class_layout, self.layout
        alone, cells = (SegmentBuilder.fitting(layout, budget, SLAB, counted=True) for layout in layouts)
        for batch in batches:
            for here, builder in enumerate((alone, cells)):
                part = batch.filter(pc.equal(batch.column("has_cluster"), bool(here)))
                words = np.column_stack([part.column(name).to_numpy() for name in part.schema.names[: sum(self.keys)]])
                for label, name in enumerate(("rows", "without_class")):
                    counts = part.column(name).to_numpy()
                    keys, counts = words[counts > 0, words.shape[1] - builder.layout.words :], counts[counts > 0]
                    builder.add_items(keys[:, 0], id_codes(keys[:, 0], label), keys[:, 1:], counts, NO_WEIGHTS)
        facts = (np.array(header[name]) for name in ContingencyCounts.fact_names)
        state = ContingencyCounts(self, KeyedCounts.built(cells), KeyedCounts.built(alone), *facts)
        if state.cell_rows != state.totals().rows:
            raise ValueError(f"{state.totals().rows} rows are expected and the cells have {state.cell_rows}")
        return state


class ContingencyBuilder:
    """Folds batches into the cells of a contingency table.

    Parameters
    ----------
    spec : ContingencySpec
    budget : owns the memory
    capacity : rows that a segment holds, about
    """

    def __init__(self, spec: ContingencySpec, budget: Budget, capacity: int) -> None:
        self.spec = spec
        bytes_each = 16 * sum(spec.keys)  # words are held twice when they move
        self._builders = SegmentBuilders[str](budget, max(1, min(capacity, _BUFFER // bytes_each)))
        self._label_rows, self._dropped = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        """Fold a batch; raises `NullError` for a null id unless the spec says what it counts as."""
        columns = [row_nulls(batch.columns[name]) for name in self.spec.columns]
        label = batch.label
        if any(array.null_count for array in columns):
            has_cluster, has_class = (valid_rows(array) for array in columns)
            for column, what, present in zip(self.spec.columns, _SIDES, (has_cluster, has_class), strict=True):
                if self.spec.nulls == "error" and not present.all():
                    raise NullError(
                        f"{batch.name}: {what} column {column!r} has nulls; choose --nulls drop or --nulls singleton"
                    )
            both = has_cluster & has_class
            if self.spec.nulls == "drop":
                self._dropped += np.count_nonzero(~has_cluster), np.count_nonzero(has_cluster & ~has_class)
                label = label[both]
            else:
                self._add_incomplete(columns, has_cluster, has_class, batch.partition)
            columns = [array.filter(pack_bits(both)) for array in columns]
        positive = int(np.count_nonzero(label)) if self.spec.labelled else 0
        self._label_rows += label.size - positive, positive
        (clusters, classes), counts, _ = by_code(columns)
        self._cells.add_ids(*by_run(self.spec.row_words(clusters, classes, batch.partition), counts))

    def _add_incomplete(self, columns: list[pa.Array], has_cluster: Array, has_class: Array, partition: str) -> None:
        """Add rows with a null id, each a singleton; those without a class each count as a separate class."""
        clusters, classes = columns
        first, rest = self.spec.cluster_words(clusters.filter(pack_bits(has_cluster & ~has_class)), partition)
        words = np.zeros((sum(self.spec.keys), first.size), np.uint64)
        words[: 1 + rest.shape[1]] = first, *rest.T
        self._cells.add_ids([*words], label=np.ones(first.size, np.uint8))
        alone = self._builders.of("without_cluster", self.spec.class_layout)
        first, rest = self.spec.class_words(classes.filter(pack_bits(~has_cluster & has_class)))
        alone.add_ids((first, *rest.T))
        neither = int(np.count_nonzero(~(has_cluster | has_class)))
        alone.add_ids([*np.zeros((self.spec.keys.class_, neither), np.uint64)], label=np.ones(neither, np.uint8))

    @property
    def _cells(self) -> SegmentBuilder:
        """The builder of rows with a cluster; a row without a class has label 1, and counts as a separate class."""
        return self._builders.of("cells", self.spec.layout)

    def state(self) -> ContingencyCounts:
        """The state of everything folded."""
        segments = self._builders.finish()
        cells = KeyedCounts(self.spec.layout, segments.get("cells", ()))
        alone = KeyedCounts(self.spec.class_layout, segments.get("without_cluster", ()))
        return replace(
            self.spec.empty(),
            cells=cells,
            without_cluster=alone,
            label_rows=self._label_rows,
            dropped_rows=self._dropped,
        )


@dataclass(frozen=True, eq=False)
class ContingencyCounts(Stored):
    """Exact counts of every (class, cluster) cell.

    Attributes
    ----------
    spec : ContingencySpec
    cells : KeyedCounts
        Rows by cluster and class; label 1 for rows without a class.
    without_cluster : KeyedCounts
        Rows without a cluster, by class; label 1 for rows without either.
    label_rows : int64 array of shape (2,), rows in the table by label, or all as if none had one
    dropped_rows : int64 array of shape (2,), rows dropped for a null cluster, and for a null class only

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.by_cluster import summarize_state
    >>> from streameval.states.protocol import Batch
    >>> builder = ContingencySpec("campaign", "cluster").builder(Budget(), 8)
    >>> columns = {"campaign": pa.array([7, 7, 7, 8]), "cluster": pa.array([1, 1, 2, 2])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> summary = summarize_state(builder.state(), Budget())
    >>> summary.shape, list(summary.cells.pairs())
    ((2, 2), [(1, 2), (2, 1)])
    """

    run_names = ("cells", "without_cluster")
    fact_names = ("label_rows", "dropped_rows")

    spec: ContingencySpec
    cells: KeyedCounts
    without_cluster: KeyedCounts
    label_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

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
        return self.cells.grouped(shard, budget)

    def rows_of(self, shard: Interval, budget: Budget | None = None) -> Iterator[tuple[Array, Array, Array]]:
        """Rows of a shard that have a class, in any order, a bounded number at a time.

        Yields
        ------
        cluster, class : uint64 arrays of shape (n_rows, n_words), words of ids
        counts : int64 array of shape (n_rows,)
        """
        column = self.spec.keys.cluster - 1
        for codes, starts, (words, rest, counts, _) in self.cells.slabs(shard):
            columns = unmix(words), rest, counts if counts.size else np.ones(words.size, np.int64)
            if (codes & 1).any():
                classed = np.repeat(codes & 1 == 0, np.diff(starts))
                columns = columns[0][classed], columns[1][classed], columns[2][classed]
            first, rest, rows = columns
            yield np.column_stack((first, rest[:, :column])), np.ascontiguousarray(rest[:, column:]), rows

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Cells by cluster and class, then the rows without a cluster, by class."""
        for keyed in (self.cells, self.without_cluster):
            absent = self.spec.layout.words - keyed.layout.words
            for counts in (some for shard in keyed.intervals() for some in keyed.grouped(shard, budget)):
                size = counts.keys.size
                words = *np.zeros((absent, size), np.uint64), counts.keys, *counts.rest.T
                columns = *words, counts.neg, counts.pos, np.full(size, not absent)
                yield pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=self.spec.schema)


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
