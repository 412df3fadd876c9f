"""Watchers, which see single clusters and classes during the two passes over a contingency table.

The passes know the size and all cells of every cluster and class; a summary keeps only sums of them. A watcher sees the
groups themselves, one interval at a time, keeps what it needs in bounded memory, and runs in the process of the pass.
For each interval the pass asks it for a `ClusterWatch` or a `ClassWatch`, adds cells to it, in several calls if a group
does not fit into memory at once, and closes it.

`ClusterPairs` and `ClassPairs` count the pairs within clusters of several classes and within classes of several
clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streameval.errors import DataError
from streameval.kernels.attribution import add_cells, add_parts, add_strays, split_classes

if TYPE_CHECKING:
    from streameval.typing import Array

Ids = Callable[["Array"], "Array"]
_MOST = 1 << 32  # rows of a group whose pairs fit into 64 bits


def unwatched() -> None:
    """No watcher."""


class ClusterWatch(Protocol):
    """Sees the cells of the clusters of an interval."""

    def add(self, clusters: int, numbers: Array, classes: Array, rows: Array) -> None:
        """Add some cells.

        Parameters
        ----------
        clusters : number of clusters so far, including those of these cells
        numbers : int64 array of shape (n_cells,), the cluster of each cell
        classes : uint64 array of shape (n_cells,), first word of the class's id
        rows : int64 array of shape (n_cells,)
        """

    def add_alone(self, clusters: int, numbers: Array, rows: Array) -> None:
        """Add rows without a class, each a singleton class: ``rows[i]`` of them in cluster ``numbers[i]``."""

    def close(self, ids: Ids, sizes: Array) -> None:
        """End the interval: its clusters are complete.

        Parameters
        ----------
        ids : function from numbers of clusters to the words of their ids, a uint64 array of shape (n, n_words)
        sizes : int64 array of shape (n_clusters,)
        """

    def whole(self, owners: Array, rows: Array, classes: Callable[[], Array], ids: Ids, sizes: Array) -> None:
        """Add clusters with all of their cells, instead of `add` and `close`.

        Parameters
        ----------
        owners : int64 array of shape (n_strays,), the cluster of each cell but the first of a cluster
        rows : int64 array of shape (n_clusters + n_strays,), rows of the first cell of each cluster, then of the other
            cells
        classes : function that returns the first word of the class of each of these cells, a uint64 array
        ids, sizes : as for `close`
        """


class ClassWatch(Protocol):
    """Sees the cells of the classes of an interval, except singletons (n = c = 1)."""

    def add(self, numbers: Array, rows: Array, sizes: Array, times: Array) -> None:
        """Add cells: the class of each, its rows, the size of its cluster, its multiplicity (empty: 1 each)."""

    def close(self) -> None:
        """End the interval: its classes are complete."""


class Watcher(Protocol):
    """Sees the groups of a table; owned by one task.

    Attributes
    ----------
    every : whether it also sees singleton classes in singleton clusters; otherwise `alone` counts most of these
    """

    every: bool

    def of_clusters(self) -> ClusterWatch:
        """The watch of the clusters of one interval."""

    def of_classes(self, ids: Ids, totals: Array, maxima: Array, singles: Array) -> ClassWatch:
        """The watch of the classes of one interval.

        Parameters
        ----------
        ids : function from numbers of classes to the words of their ids (`streameval.states.keyed.ids.identify`)
        totals, maxima : int64 arrays of shape (n_classes,), rows and largest cell of each class
        singles : int64 array of shape (n_classes,), number of its singleton cells (n = c = 1)
        """

    def alone(self, rows: int) -> None:
        """Add rows that are each a singleton class and a singleton cluster, with unknown ids."""


class PairWatcher(Protocol):
    """Receives clusters with several classes and classes with several clusters.

    All arrays are of shape (n_groups,).
    """

    def clusters(self, ids: Ids, rows: Array, parts: Array, false_pairs: Array) -> None:
        """Take clusters with rows of several classes.

        Parameters
        ----------
        ids : function from indices of these groups to the words of their ids
        rows, parts : int64, rows and classes of each
        false_pairs : int64, pairs of its rows that have different classes
        """

    def classes(self, ids: Ids, rows: Array, parts: Array, missed_pairs: Array, joined_pairs: Array) -> None:
        """Take classes with rows in several clusters.

        Parameters
        ----------
        ids, rows, parts : as for clusters
        missed_pairs : int64, pairs of its rows in different clusters
        joined_pairs : int64, missed pairs that would meet if its pure clusters were joined
        """

    def unchanged(self, rows: int) -> None:
        """Add the number of rows of clusters that are exactly one whole class."""


def pairs(rows: Array) -> Array:
    """Number of pairs within groups of the given sizes, as int64.

    Raises
    ------
    DataError
        If a group has 2³² rows or more.

    Examples
    --------
    >>> pairs(np.array([1, 2, 4]))
    array([0, 1, 6])
    """
    _refuse_giants(rows)
    even, odd = rows // 2, (rows - 1) // 2
    found: Array = np.where(rows % 2 == 0, even * (rows - 1), rows * odd)
    return found


def _refuse_giants(rows: Array) -> None:
    """Raise `DataError` if the number of pairs in a cluster or class exceeds 64 bits."""
    if rows.size and int(rows.max()) >= _MOST:
        most = f"{int(rows.max()):,} rows"
        msg = f"a cluster or class has {most}; attribution takes those of fewer than 2³² rows: leave it out with where"
        raise DataError(msg)


class ClusterPairs:
    """A `ClusterWatch` that counts the cells of each cluster and the pairs within them, for a `PairWatcher`."""

    def __init__(self, watcher: PairWatcher) -> None:
        self._watcher = watcher
        self._count, self._agreeing, self._alone = np.zeros((3, 0), np.int64)

    def _grow(self, clusters: int) -> None:
        more = np.zeros(clusters - self._count.size, np.int64)
        if more.size:
            columns = (self._count, self._agreeing, self._alone)
            self._count, self._agreeing, self._alone = (np.concatenate((column, more)) for column in columns)

    def add(self, clusters: int, numbers: Array, classes: Array, rows: Array) -> None:
        """See `ClusterWatch`."""
        self._grow(clusters)
        add_parts(numbers, rows, self._count, self._agreeing)

    def add_alone(self, clusters: int, numbers: Array, rows: Array) -> None:
        """See `ClusterWatch`."""
        self._grow(clusters)
        np.add.at(self._count, numbers, rows)
        np.add.at(self._alone, numbers, rows)

    def close(self, ids: Ids, sizes: Array) -> None:
        """See `ClusterWatch`."""
        self._watcher.unchanged(int(self._alone[sizes == 1].sum()))
        which = np.flatnonzero(self._count > 1)
        self._report(ids, which, sizes, self._count[which], self._agreeing[which])

    def whole(self, owners: Array, rows: Array, classes: Callable[[], Array], ids: Ids, sizes: Array) -> None:
        """See `ClusterWatch`; clusters of one class are skipped."""
        which, parts, agreeing = np.empty((3, owners.size), np.int64)
        slots = np.zeros(sizes.size, np.int32)
        found = add_strays(owners, rows[sizes.size :], rows[: sizes.size], slots, which, parts, agreeing)
        self._report(ids, which[:found], sizes, parts[:found], agreeing[:found])

    def _report(self, ids: Ids, which: Array, sizes: Array, parts: Array, agreeing: Array) -> None:
        rows = sizes[which]
        self._watcher.clusters(lambda some: ids(which[some]), rows, parts, pairs(rows) - agreeing)


class ClassPairs:
    """A `ClassWatch` that counts the cells of each class and the pairs within them, for a `PairWatcher`."""

    def __init__(self, watcher: PairWatcher, ids: Ids, totals: Array, singles: Array) -> None:
        self._watcher, self._ids, self._totals = watcher, ids, totals
        self._sums = np.zeros((singles.size, 4), np.int64)
        self._sums[:, 0] = self._sums[:, 2] = singles

    def add(self, numbers: Array, rows: Array, sizes: Array, times: Array) -> None:
        """See `ClassWatch`."""
        add_cells(numbers, rows, sizes, times, self._sums)

    def close(self) -> None:
        """See `ClassWatch`."""
        which, parts, missed, joined = np.empty((4, self._totals.size), np.int64)
        found, unchanged = split_classes(self._sums, self._totals, which, parts, missed, joined)
        self._watcher.unchanged(unchanged)
        which = which[:found]
        rows = self._totals[which]
        _refuse_giants(rows)
        self._watcher.classes(lambda some: self._ids(which[some]), rows, parts[:found], missed[:found], joined[:found])
