"""Watchers, which see single clusters and classes during the first two rounds over a contingency table.

The rounds know the size and all cells of every cluster and class; a summary keeps only sums of them. A watcher sees the
groups themselves, one interval at a time, keeps what it needs in bounded memory, and runs in the process of the visit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from streameval.typing import Array

Ids = Callable[["Array"], "Array"]
CellsOfClasses = tuple["Array", "Array", "Array", "Array"]  # class, rows, size of the cluster, multiplicity (none: 1)


class Watcher(Protocol):
    """Sees the groups of a table; owned by one task."""

    def add_clusters(self, clusters: Array, classes: Array, rows: Array, sizes: Array) -> None:
        """Add distinct cells of clusters of several rows; later calls may add more of these, until they are closed.

        Parameters
        ----------
        clusters : uint64 array of shape (n_cells, n_words), words of the cluster of each cell, the first one mixed
        classes : uint64 array of shape (n_cells,), first word of the class's id
        rows, sizes : int64 arrays of shape (n_cells,), rows of each cell, and of its cluster
        """

    def add_classless(self, clusters: Array, rows: Array, sizes: Array) -> None:
        """Add rows without a class, each a singleton class: ``rows[i]`` of them in a cluster of ``sizes[i]`` rows."""

    def close_clusters(self) -> None:
        """The clusters added so far are complete."""

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[CellsOfClasses]
    ) -> None:
        """Add whole classes.

        Parameters
        ----------
        ids : function from numbers of classes to the words of their ids (`streameval.states.keyed.ids.identify`)
        totals, maxima : int64 arrays of shape (n_classes,), rows and largest cell of each class
        singles : int64 array of shape (n_classes,), number of its singleton cells (n = c = 1)
        cells : all other cells
        """

    def add_alone(self, rows: int) -> None:
        """Add rows that have neither a class nor a cluster, each a singleton of both."""

    def merge(self, others: Iterable[Self]) -> Self:
        """One watcher with what all have seen."""
