"""Rows of a few clusters and classes, from one pass over the rows of a shard that copies no other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.attribution import mark_table, marked_rows
from streameval.kernels.jit import read_only
from streameval.kernels.keys import unmix
from streameval.states.keyed.counts import SLAB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.states.contingency.cells import Keys
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["ShardRows"]


@dataclass(frozen=True)
class ShardRows:
    """The rows of some buckets of clusters that have a class.

    Attributes
    ----------
    cells : rows by cluster and class
    keys : words of both ids
    shard : the buckets
    """

    cells: KeyedCounts
    keys: Keys
    shard: Interval

    def near(self, clusters: Array, classes: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Rows of some clusters or classes, with a few others among them, in any order, a bounded number at a time.

        Parameters
        ----------
        clusters, classes : uint64 arrays of shape (n, n_words), words of ids; rows of other ids with the same mark are
            yielded as well

        Yields
        ------
        cluster, class : uint64 arrays of shape (n_rows, n_words), words of ids
        counts : int64 array of shape (n_rows,)
        """
        marks = [mark_table(ids[:, 0]) for ids in (clusters, classes)]
        column, found, rows = self.keys.cluster - 1, [], 0
        for codes, starts, (words, rest, counts, _) in self.cells.slabs(self.shard):
            at = marked_rows(codes, starts, read_only(words), read_only(rest), column, *marks)
            if at.size:
                times = counts[at] if counts.size else np.ones(at.size, np.int64)
                found.append((words[at], rest[at], times))
                rows += at.size
            if rows > SLAB:
                yield self._split(found)
                found, rows = [], 0
        if rows:
            yield self._split(found)

    def _split(self, found: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
        """Rows as words of clusters, words of classes, and counts."""
        words, rest, counts = (np.concatenate(column) for column in zip(*found, strict=True))
        column = self.keys.cluster - 1
        return np.column_stack((unmix(words), rest[:, :column])), np.ascontiguousarray(rest[:, column:]), counts
