"""Every cell of a contingency table in memory, numbered: what the best one-to-one matching needs.

Alone of all measures a matching cannot be taken part by part. Cells come sorted by cluster and class, and both sides
are numbered in the order of their ids, so that a matching that is only bounded has the same bounds for any
partitioning.

Cells that no matching needs are left out: of the rows of a class without a cluster, each a cluster of its own, one is
enough, and so is one of the rows of a cluster without a class. Memory: about 60 bytes a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.states.ids import mixed

if TYPE_CHECKING:
    from streameval.states.cells import Keys
    from streameval.states.memory import Budget
    from streameval.states.protocol import Array
    from streameval.states.runs import Counts, Runs

__all__ = ["CELL_BYTES", "NumberedCells", "numbered_cells"]

CELL_BYTES = 24  # of a cell's two numbers and its count; half the budget must hold those of all cells


class NumberedCells(NamedTuple):
    """Cells by number.

    Attributes
    ----------
    classes, clusters : int64 arrays of shape (n_cells,)
    counts : int64 array of shape (n_cells,)
    pairs : int
        Cells beside these whose class and cluster have one row: every matching takes them.
    """

    classes: Array
    clusters: Array
    counts: Array
    pairs: int


def numbered_cells(runs: Runs, without_cluster: Runs, keys: Keys, budget: Budget) -> NumberedCells:
    """All cells of a contingency state, whose parts are `runs` and `without_cluster`."""
    owners = _Owners(keys.cluster - 1)
    parts = [_part(counts, owners.of(counts), keys) for cut in runs.intervals() for counts in runs.grouped(cut, budget)]
    alone = [_alone(counts) for cut in without_cluster.intervals() for counts in without_cluster.grouped(cut, budget)]
    parts += [
        _Part(words, np.full(len(words), -1), np.ones(len(words), np.int64), np.empty(0, np.int64)) for words in alone
    ]
    words, clusters, counts, lone = (
        np.concatenate(column) for column in zip(*(parts or [_nothing(keys)]), strict=True)
    )
    unowned = clusters < 0
    clusters[unowned] = owners.count + np.arange(np.count_nonzero(unowned))
    classes = _ranked(words)
    more = int(classes.max(initial=-1)) + 1 + np.arange(lone.size)
    return NumberedCells(
        np.concatenate((classes, more)),
        np.concatenate((clusters, lone)),
        np.concatenate((counts, np.ones(lone.size, np.int64))),
        int(without_cluster.rows[1::2].sum()),
    )


class _Part(NamedTuple):
    words: Array  # of the classes
    clusters: Array  # -1 where it has none
    counts: Array
    lone: Array  # clusters with rows that have no class


def _nothing(keys: Keys) -> _Part:
    none = np.empty(0, np.int64)
    return _Part(np.empty((0, keys.class_), np.uint64), none, none, none)


class _Owners:
    """Numbers of clusters that come in ascending order, a batch at a time."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.count = 0
        self._last: Array | None = None

    def of(self, counts: Counts) -> Array:
        """Number of the cluster of each key."""
        words = np.column_stack((counts.keys, counts.rest[:, : self.columns]))
        new = np.ones(len(words), np.bool_)
        new[1:] = (words[1:] != words[:-1]).any(axis=1)
        new[0] = self._last is None or (words[0] != self._last).any()
        numbers = self.count - 1 + np.cumsum(new)
        self.count, self._last = int(numbers[-1]) + 1, words[-1].copy()
        return numbers


def _part(counts: Counts, owners: Array, keys: Keys) -> _Part:
    here = counts.neg > 0
    words = counts.rest[here, keys.cluster - 1 :]
    # words are mixed where they decide a bucket: those of a class without a cluster, hence these as well
    return _Part(
        np.column_stack((mixed(words[:, 0]), words[:, 1:])), owners[here], counts.neg[here], owners[counts.pos > 0]
    )


def _alone(counts: Counts) -> Array:
    here = counts.neg > 0
    return np.column_stack((counts.keys[here], counts.rest[here]))


def _ranked(words: Array) -> Array:
    """Rank of each row among the distinct ones."""
    order = np.lexsort(words.T[::-1])
    new = np.zeros(order.size, np.int64)
    new[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    ranks = np.empty(order.size, np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
