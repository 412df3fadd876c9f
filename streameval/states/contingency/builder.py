"""Builder of contingency tables, and their Arrow table.

Rows become cells by cluster and class, and rows with a null id count alone. The Arrow table has one row per cell, with
the words of both ids and the cell's counts. Cells with a cluster come first, by cluster and class; then cells without a
cluster, by class, with 0 as the words of the cluster. Only the words of the segments are written; a reader partitions
them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import NullError
from streameval.kernels.jit import read_only
from streameval.kernels.segments import tally_pairs
from streameval.states.keyed.builder import SegmentBuilder, SegmentBuilders
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.hot import by_run, labelled_runs
from streameval.states.keyed.ids import id_codes, row_nulls
from streameval.states.keyed.layout import NO_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Keys
    from streameval.states.keyed.grouping import Counts
    from streameval.states.keyed.layout import Layout
    from streameval.states.protocol import Batch, State
    from streameval.typing import Array

_BUFFER = 1 << 26  # largest size of collected rows in bytes


class CellSpec(Protocol):
    """The part of `streameval.states.contingency.counts.ContingencySpec` that its builder needs."""

    @property
    def nulls(self) -> str:
        """What a null id counts as."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of clusters and of classes."""

    @property
    def keys(self) -> Keys:
        """Words of both ids."""

    @property
    def layout(self) -> Layout:
        """Layout of the rows that have a cluster."""

    @property
    def class_layout(self) -> Layout:
        """Layout of rows by class."""

    def class_words(self, array: pa.Array) -> tuple[Array, Array]:
        """Words of classes without nulls."""

    def cluster_words(self, array: pa.Array, partition: str) -> tuple[Array, Array]:
        """Words of clusters without nulls."""

    def row_words(self, clusters: pa.Array, classes: pa.Array, partition: str) -> tuple[Array, ...]:
        """Words of rows that have both ids."""


class ContingencyBuilder:
    """Folds batches into the cells of a contingency table.

    Parameters
    ----------
    spec : CellSpec
    budget : owns the memory
    capacity : rows that a segment holds, about
    make : the state of its cells, its rows without a cluster, its rows by label, and its dropped rows
    labelled : whether rows keep their labels; null ids are then an error
    """

    def __init__(
        self, spec: CellSpec, budget: Budget, capacity: int, make: Callable[..., State], *, labelled: bool = False
    ) -> None:
        self.spec, self._make, self._labelled = spec, make, labelled
        bytes_each = 16 * sum(spec.keys)  # words are held twice when they move
        self._capacity = max(1, min(capacity, _BUFFER // bytes_each))
        self._budget, self._builders = budget, SegmentBuilders[str](budget, self._capacity)
        self._pairs: tuple[tuple[pa.Array, pa.Array, str], Array] | None = None  # entries, and rows of each pair
        self._label_rows, self._dropped = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        """Fold a batch; raises `NullError` for a null id unless the spec says what it counts as."""
        columns = [row_nulls(batch.columns[name]) for name in self.spec.columns]
        label = batch.label
        if any(array.null_count for array in columns):
            present = [array.is_valid().to_numpy(zero_copy_only=False) for array in columns]
            self._check(batch, present)
            if self.spec.nulls == "drop":
                keep = present[0] & present[1]
                self._dropped += np.count_nonzero(~present[0]), np.count_nonzero(present[0] & ~present[1])
                label, columns = label[keep], [array.filter(pa.array(keep)) for array in columns]
            else:
                self._add_incomplete(columns, present, batch.partition)
                columns = [array.filter(pa.array(present[0] & present[1])) for array in columns]
        positive = int(np.count_nonzero(label))
        self._label_rows += label.size - positive, positive
        self._add(columns[0], columns[1], label, batch.partition)

    def _check(self, batch: Batch, present: list[Array]) -> None:
        for column, what, here in zip(self.spec.columns, ("cluster", "class"), present, strict=True):
            if self.spec.nulls == "error" and not here.all():
                raise NullError(
                    f"{batch.name}: {what} column {column!r} has nulls; choose --nulls drop or --nulls singleton"
                )

    def _add_incomplete(self, columns: list[pa.Array], present: list[Array], partition: str) -> None:
        """Add rows with a null id, each a singleton."""
        clusters, classes = columns
        first, rest = self.spec.cluster_words(clusters.filter(pa.array(present[0] & ~present[1])), partition)
        words = np.zeros((sum(self.spec.keys), first.size), np.uint64)
        words[: 1 + rest.shape[1]] = first, *rest.T
        self._cells.add_ids([*words], label=np.ones(first.size, np.uint8))
        alone = self._builders.of("without_cluster", self.spec.class_layout)
        first, rest = self.spec.class_words(classes.filter(pa.array(~present[0] & present[1])))
        alone.add_ids((first, *rest.T))
        both = int(np.count_nonzero(~(present[0] | present[1])))
        alone.add_ids([*np.zeros((self.spec.keys.class_, both), np.uint64)], label=np.ones(both, np.uint8))

    def _add(self, clusters: pa.Array, classes: pa.Array, label: Array, partition: str) -> None:
        """Add rows that have both ids; those with labels are not counted by pair."""
        if self._labelled:
            self._cells.add_ids(*labelled_runs(self.spec.row_words(clusters, classes, partition), label))
        elif not self._add_pairs(clusters, classes, partition):
            self._cells.add_ids(*by_run(self.spec.row_words(clusters, classes, partition)))

    def _add_pairs(self, clusters: pa.Array, classes: pa.Array, partition: str) -> bool:
        """Count rows of two dictionaries by pair of entries, if these are few; returns whether they were."""
        if not (pa.types.is_dictionary(clusters.type) and pa.types.is_dictionary(classes.type)):
            return False
        entries = clusters.dictionary, classes.dictionary, partition
        if self._pairs is None or self._pairs[0] != entries:  # batches of a file often share their dictionaries
            shape = len(clusters.dictionary), len(classes.dictionary)
            if shape[0] * shape[1] > len(clusters):
                return False
            self._store_pairs()
            self._pairs = entries, self._budget.borrow(shape, np.int64)
            self._pairs[1][:] = 0
        tally_pairs(*(read_only(column.indices.to_numpy()) for column in (clusters, classes)), self._pairs[1])
        return True

    def _store_pairs(self) -> None:
        """Add the rows that were counted by pair."""
        if self._pairs is None:
            return
        (clusters, classes, partition), counts = self._pairs
        at = np.nonzero(counts)
        ids = self.spec.cluster_words(clusters, partition), self.spec.class_words(classes)
        columns = [column[rows] for (words, rest), rows in zip(ids, at, strict=True) for column in (words, *rest.T)]
        self._cells.add_ids(columns, counts[at])
        self._budget.give_back(counts)
        self._pairs = None

    @property
    def _cells(self) -> SegmentBuilder:
        """The builder of rows with a cluster; a row without a class has label 1, and counts as a separate class."""
        return self._builders.of("cells", self.spec.layout)

    def state(self) -> State:
        """The state of everything folded."""
        self._store_pairs()
        segments = self._builders.finish()
        cells = KeyedCounts(self.spec.layout, segments.get("cells", ()))
        alone = KeyedCounts(self.spec.class_layout, segments.get("without_cluster", ()))
        return self._make(cells, alone, self._label_rows, self._dropped)


_ROWS = 1 << 20  # rows that are collected at a time


def cell_schema(keys: Keys) -> pa.Schema:
    """Columns of the table: the words of both ids, rows, and rows without a class."""
    words = [f"{side}_{i}" for side, count in zip(("cluster", "class"), keys, strict=True) for i in range(count)]
    types = dict.fromkeys(words, pa.uint64()) | {"rows": pa.int64(), "without_class": pa.int64()}
    return pa.schema(types | {"has_cluster": pa.bool_()})


def cell_batch(counts: Counts, keys: Keys) -> pa.RecordBatch:
    """Part of the table; the words of absent clusters are 0."""
    words = np.column_stack((counts.keys, counts.rest))
    absent = sum(keys) - words.shape[1]
    columns = [
        *np.zeros((absent, words.shape[0]), np.uint64),
        *words.T,
        counts.neg,
        counts.pos,
        np.full(words.shape[0], not absent),
    ]
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], schema=cell_schema(keys))


def read_cells(
    batches: Iterable[pa.RecordBatch], layouts: tuple[Layout, Layout], budget: Budget
) -> tuple[KeyedCounts, KeyedCounts]:
    """Rows with and without a cluster, in these layouts."""
    cells, alone = (SegmentBuilder.fitting(layout, budget, _ROWS, counted=True) for layout in layouts)
    for batch in batches:
        for here, builder in enumerate((alone, cells)):
            words, (rows, without_class) = _columns(batch.filter(pc.equal(batch.column("has_cluster"), bool(here))))
            _add(builder, words, rows, 0)
            _add(builder, words, without_class, 1)
    return KeyedCounts.built(cells), KeyedCounts.built(alone)


def _columns(batch: pa.RecordBatch) -> tuple[Array, tuple[Array, Array]]:
    """Words of both ids, and the rows with and without a class."""
    names = [name for name in batch.schema.names if name[-1].isdigit()]
    words = np.column_stack([batch.column(name).to_numpy() for name in names])
    return words, (batch.column("rows").to_numpy(), batch.column("without_class").to_numpy())


def _add(builder: SegmentBuilder, words: Array, counts: Array, label: int) -> None:
    """Add the rows of one batch; the builder's layout says how many words a key has."""
    here = counts > 0
    keys = words[here, words.shape[1] - builder.layout.words :]
    builder.add_items(keys[:, 0], id_codes(keys[:, 0], label), keys[:, 1:], counts[here], NO_WEIGHTS)
