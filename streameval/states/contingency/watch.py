"""Watchers: what the two passes over a contingency table tell about single clusters and classes.

The passes know the size of every cluster, and of every class, and all of its cells. A summary keeps sums of them; a
watcher sees the groups themselves, those that hold or are spread over several others, an interval at a time. It keeps
what it wants of them in bounded memory and goes where the pass goes, to other processes as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from streameval.errors import DataError
from streameval.kernels.attribution import add_parts, add_shares
from streameval.states.keyed.layout import NO_COUNTS

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["ClassParts", "Parts", "Watcher", "pairs"]

_MOST = 1 << 32  # rows of a group whose pairs fit into 64 bits


class Watcher(Protocol):
    """Sees groups of a table; owned by one task. All arrays are of shape (n_groups,), ids (n_groups, n_words)."""

    def clusters(self, ids: Array, rows: Array, parts: Array, false_pairs: Array) -> None:
        """Clusters with rows of several classes.

        Parameters
        ----------
        ids : uint64, words as `streameval.states.keyed.ids.identify` gives them
        rows, parts : int64, rows and classes of each
        false_pairs : int64, pairs of its rows that are of different classes
        """

    def classes(self, ids: Array, rows: Array, parts: Array, missed_pairs: Array, joined_pairs: Array) -> None:
        """Classes with rows in several clusters.

        Parameters
        ----------
        ids, rows, parts : as for clusters
        missed_pairs : int64, pairs of its rows that are in different clusters
        joined_pairs : int64, those of them that come together if its pure clusters are joined
        """

    def unchanged(self, rows: int) -> None:
        """Rows of clusters that consist of one whole class."""


def pairs(rows: Array) -> Array:
    """Pairs within groups, given their numbers of rows, as int64.

    Raises
    ------
    DataError
        If a group has 2³² rows or more.

    Examples
    --------
    >>> pairs(np.array([1, 2, 4]))
    array([0, 1, 6])
    """
    if rows.size and int(rows.max()) >= _MOST:
        msg = f"a cluster or class has {int(rows.max()):,} rows; attribution counts the pairs of fewer than 2³² rows"
        raise DataError(msg)
    even, odd = rows // 2, (rows - 1) // 2
    found: Array = np.where(rows % 2 == 0, even * (rows - 1), rows * odd)
    return found


class Parts:
    """Cells added up by group: how many there are, and the pairs within them.

    Examples
    --------
    >>> parts = Parts(2)
    >>> parts.add(np.array([0, 0, 1]), np.array([3, 2, 4]))
    >>> parts.count, parts.agreeing
    (array([2, 1]), array([4, 6]))
    """

    def __init__(self, groups: int = 0) -> None:
        self.count, self.agreeing = np.zeros((2, groups), np.int64)

    def grow(self, groups: int) -> None:
        """Make room for more groups."""
        more = np.zeros(groups - self.count.size, np.int64)
        self.count, self.agreeing = (np.concatenate((column, more)) for column in (self.count, self.agreeing))

    def add(self, numbers: Array, rows: Array, times: Array = NO_COUNTS) -> None:
        """Add cells by the numbers of their groups."""
        add_parts(numbers, rows, times, self.count, self.agreeing)


class ClassParts(Parts):
    """Cells added up by class, with the clusters that hold nothing else.

    Parameters
    ----------
    singles : int64 array of shape (n_classes,)
        Cells of one row that is alone in its cluster.
    """

    def __init__(self, singles: Array) -> None:
        super().__init__(singles.size)
        self.count += singles
        self._pure, self._joined = singles.copy(), np.zeros(singles.size, np.int64)

    def add_cells(self, numbers: Array, rows: Array, sizes: Array, times: Array) -> None:
        """Add other cells, each with the size of its cluster."""
        self.add(numbers, rows, times)
        add_shares(numbers, rows, sizes, times, self._pure, self._joined)

    def tell(self, watcher: Watcher, ids: Array, totals: Array) -> None:
        """Show the classes, complete, to a watcher."""
        alone = (self.count == 1) & (self._pure == totals)
        watcher.unchanged(int(totals[alone].sum()))
        which = np.flatnonzero(self.count > 1)
        rows = totals[which]
        missed, joined = pairs(rows) - self.agreeing[which], pairs(self._pure[which]) - self._joined[which]
        watcher.classes(ids[which], rows, self.count[which], missed, joined)
