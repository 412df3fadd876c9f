"""Builder of contingency tables: rows become cells by cluster and class, and rows with a null id count alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from streameval.errors import NullError
from streameval.kernels.jit import read_only
from streameval.kernels.segments import tally_pairs
from streameval.states.keyed.adjacent import by_run, labelled_runs
from streameval.states.keyed.builder import SegmentBuilder, Tagging
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.ids import row_nulls

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Keys
    from streameval.states.keyed.layout import Layout
    from streameval.states.protocol import Batch, State
    from streameval.typing import Array

_PAIRS = 4  # mean rows for each pair of entries of two dictionaries from which rows are counted by pair
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
    labelled : whether rows carry their labels (`streameval.states.labelled`); null ids are then an error
    """

    def __init__(
        self, spec: CellSpec, budget: Budget, capacity: int, make: Callable[..., State], *, labelled: bool = False
    ) -> None:
        self.spec, self._make, self._labelled = spec, make, labelled
        bytes_each = 16 * sum(spec.keys)  # words are held twice when they move
        self._capacity = max(1, min(capacity, _BUFFER // bytes_each))
        self._budget = budget
        self._cells = SegmentBuilder(
            spec.layout, budget, self._capacity, tags=Tagging.LABEL if labelled else Tagging.NONE
        )
        self._apart: tuple[SegmentBuilder, SegmentBuilder] | None = None  # rows without a class, and without a cluster
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
                msg = f"{batch.name}: {what} column {column!r} has nulls; choose --nulls drop or --nulls singleton"
                raise NullError(msg)

    def _add_incomplete(self, columns: list[pa.Array], present: list[Array], partition: str) -> None:
        """Add rows with a null id, each a singleton."""
        clusters, classes = columns
        if self._apart is None:  # all builders share the memory of one
            share = self._capacity // 2
            self._cells.shrink(share)
            layouts = self.spec.layout, self.spec.class_layout
            self._apart = (
                SegmentBuilder(layouts[0], self._budget, share),
                SegmentBuilder(layouts[1], self._budget, share),
            )
        unclassed, alone = self._apart
        self._add_unclassed(unclassed, clusters.filter(pa.array(present[0] & ~present[1])), partition)
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
        width = len(classes.dictionary)
        if len(clusters.dictionary) * width * _PAIRS > len(clusters):
            return False
        counts = np.zeros((len(clusters.dictionary), width), np.int64)
        tally_pairs(*(read_only(column.indices.to_numpy()) for column in (clusters, classes)), counts)
        at = np.nonzero(counts)
        ids = self.spec.cluster_words(clusters.dictionary, partition), self.spec.class_words(classes.dictionary)
        columns = [column[rows] for (words, rest), rows in zip(ids, at, strict=True) for column in (words, *rest.T)]
        self._cells.add_ids(columns, counts[at])
        return True

    def _add_unclassed(self, unclassed: SegmentBuilder, clusters: pa.Array, partition: str) -> None:
        """Add rows without a class; each counts as a separate class."""
        first, rest = self.spec.cluster_words(clusters, partition)
        words = np.zeros((sum(self.spec.keys), first.size), np.uint64)
        words[: 1 + rest.shape[1]] = first, *rest.T
        unclassed.add_ids([*words], label=np.ones(first.size, np.uint8))

    def state(self) -> State:
        """The state of everything folded."""
        cells, alone = KeyedCounts(self.spec.layout, self._cells.finish()), KeyedCounts(self.spec.class_layout)
        if self._apart is not None:
            unclassed, alone = map(KeyedCounts.built, self._apart)
            cells = cells.merge(unclassed)
        return self._make(cells, alone, self._label_rows, self._dropped)
