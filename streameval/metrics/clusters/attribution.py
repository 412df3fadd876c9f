"""Attribution of the area under the lift curve to single clusters.

Clusters larger than the threshold count as all positive in the assumed height H of `aul`, so each row that is not
takes something away. Let a cluster have s rows, p of them positive, and m clusters be of its size, with R rows in all
smaller ones. The cluster stands, on average over its equals, before R + s·(m + 1)/2 rows, its own included, and each
positive that it lacks would have lifted the curve over them: it loses (s − p)·(2·R + s·(m + 1)) / (2·rows·H).
These shares add up to the area with all such clusters pure less the area: the threshold's loss, as exact fractions.
Positives in clusters at or below the threshold are left to be found one by one; they are listed by size.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.keys import unmix
from streameval.kernels.lift import undominated
from streameval.metrics.protocol import ShardMetric
from streameval.metrics.worst import Worst
from streameval.states.clusters.sizes import SizeTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.budget import Budget
    from streameval.states.clusters.counts import ClusterCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_BITS = np.int64(31)  # of the lower word of a cost: (s − p)·tail is a product of two int64
_LOW = np.int64((1 << 31) - 1)
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class LiftLoss:
    """What the clusters of each size take away from the area under the lift curve.

    Attributes
    ----------
    table : SizeTable
    threshold : clusters larger than it count as all positive
    tails : int64 array of shape (n_sizes,), twice the rows that a cluster of each size stands before, itself included
    unit : twice the rows times the assumed height; costs are in units of its inverse

    Examples
    --------
    >>> loss = LiftLoss.of(SizeTable.of(np.array([3, 2, 1]), np.array([1, 2, 1])), threshold=1)
    >>> loss.tails.tolist(), loss.unit, loss.total
    ([2, 6, 12], 72, Fraction(1, 3))
    """

    table: SizeTable
    threshold: float
    tails: Array
    unit: int

    @classmethod
    def of(cls, table: SizeTable, threshold: float) -> LiftLoss:
        """The loss of a size table."""
        rows = table.size * table.clusters
        tails = 2 * (np.cumsum(rows) - rows) + table.size * (table.clusters + 1)
        height = np.where(table.size > threshold, rows, table.positives)
        return cls(table, threshold, tails, 2 * int(rows.sum()) * int(height.sum()))

    @property
    def total(self) -> Fraction:
        """All clusters together: the area with those above the threshold pure, less the area."""
        lacking = (self.table.size * self.table.clusters - self.table.positives)[self.above].tolist()
        doubled = sum(n * tail for n, tail in zip(lacking, self.tails[self.above].tolist(), strict=True))
        return self.share(doubled)

    def share(self, doubled: int) -> Fraction:
        """A cost as a part of the area."""
        return Fraction(doubled, self.unit) if self.unit else Fraction(0)

    @property
    def above(self) -> Array:
        """Whether each size is above the threshold."""
        return np.asarray(self.table.size > self.threshold)

    def unclustered(self) -> SizeTable:
        """Sizes at or below the threshold that have positives."""
        which = ~self.above & (self.table.positives > 0)
        return SizeTable(self.table.size[which], self.table.clusters[which], self.table.positives[which])


class Impure(NamedTuple):
    """The clusters that take most away.

    Attributes
    ----------
    loss : of all clusters
    ids : uint64 array of shape (n, n_words)
    rows, positives : int64 arrays of shape (n,)
    lost : list of n int, in units of `LiftLoss.unit`'s inverse
    clusters : all clusters above the threshold that are not pure
    """

    loss: LiftLoss
    ids: Array
    rows: Array
    positives: Array
    lost: list[int]
    clusters: int


class _Candidates(NamedTuple):
    """Clusters of one shard that may be among the worst, and the totals of the shard."""

    table: SizeTable
    ids: Array
    rows: Array
    positives: Array
    clusters: int


@dataclass(frozen=True)
class WorstImpure(ShardMetric):
    """The clusters above the threshold that cause the largest losses of area under the lift curve, in one sweep.

    The loss of a cluster depends on all others. But of two clusters, the one that has at least as many rows and lacks
    at least as many positives loses at least as much. So a shard keeps the clusters that fewer than `top` others
    dominate in this way.

    Attributes
    ----------
    threshold : at least 1
    top : how many clusters to find
    signed : whether ids are signed integers
    """

    threshold: float
    top: int
    signed: bool
    name: str = "impure"

    def read(self, state: ClusterCounts, shard: Interval, budget: Budget | None) -> _Candidates:
        """The candidates of a shard."""
        table, blocks = state.impure(shard, budget)
        found, kept = 0, []
        for counts in blocks:
            rows = counts.neg + counts.pos
            which = np.flatnonzero(rows > self.threshold)
            found += which.size
            which = which[self._near(rows[which], counts.neg[which])]
            kept.append((counts.keys[which], counts.rest[which], rows[which], counts.pos[which]))
        if not kept:
            none = np.empty(0, np.int64)
            return _Candidates(table, np.empty((0, 1), np.uint64), none, none, found)
        keys, rest, rows, positives = (np.concatenate(column) for column in zip(*kept, strict=True))
        which = self._near(rows, rows - positives)
        ids = np.column_stack((unmix(keys[which]), rest[which]))
        rows, positives = rows[which], positives[which]
        first = ids[:, 0] ^ _SIGN if self.signed else ids[:, 0]
        order = np.lexsort([*(ids[:, c] for c in range(ids.shape[1] - 1, 0, -1)), first, positives - rows, -rows])
        order = order[undominated((rows - positives)[order], self.top)]
        return _Candidates(table, ids[order], rows[order], positives[order], found)

    def _near(self, rows: Array, lacking: Array) -> Array:
        """Positions of clusters not dominated by all of the `top` clusters that lack most; nothing is sorted."""
        if rows.size <= 2 * self.top:
            return np.arange(rows.size)
        most = np.argpartition(lacking, rows.size - self.top)[-self.top :]
        return np.flatnonzero((rows >= rows[most].min()) | (lacking >= lacking[most].min()))

    def combine(self, partials: Sequence[_Candidates], state: ClusterCounts) -> Impure:
        """The worst clusters of all shards."""
        loss = LiftLoss.of(SizeTable.union(part.table for part in partials), self.threshold)
        worst = Worst(self.top, signed=self.signed, costs=2)
        for part in partials:
            rows, lacking = part.rows, part.rows - part.positives
            tails = loss.tails[np.searchsorted(loss.table.size, rows)]
            low = lacking * (tails & _LOW)
            high = lacking * (tails >> _BITS) + (low >> _BITS)
            worst.add(part.ids, np.column_stack((high, low & _LOW, rows, part.positives)))
        ids, columns = worst.ranked()
        lost = [(high << 31) + low for high, low in columns[:, :2].tolist()]
        rows, positives = columns[:, 2:4].T if columns.size else np.empty((2, 0), np.int64)
        return Impure(loss, ids, rows, positives, lost, sum(part.clusters for part in partials))
