"""Metrics of clusters against labels: functions of the table of cluster sizes.

- AUL, the area under the lift curve: clusters from the largest to the smallest; clusters of one size share the mean of
  their positives and are walked one by one; h is the sum of positives so far. AUL = Σ size·h / (total size · H), where
  H adds a cluster's size if it is larger than the threshold, else its positives: large clusters are acted on as a
  whole. n singletons give (n + 1)/2n.
- ROC AUC with the cluster's size as every member's score.

Where rows without a label count in the sizes, the positives of the clusters of one size are estimated as rows ×
positives ÷ labelled rows of that size, and sizes without a label are left out.

`WorstImpure` attributes the area to single clusters. Those larger than the threshold count as all positive in the
assumed height H, so each row that is not takes something away. Let a cluster have s rows, p of them positive, and m
clusters be of its size, with R rows in all smaller ones. The cluster stands, on average over its equals, before
R + s·(m + 1)/2 rows, its own included, and each positive that it lacks would have lifted the curve over them: it loses
(s − p)·(2·R + s·(m + 1)) / (2·rows·H). These shares add up to the area with all such clusters pure less the area: the
threshold's loss, as exact fractions. Positives in clusters at or below the threshold are left to be found one by one;
they are listed by size.

The costliest clusters are found in bounded memory: clusters arrive in blocks of arrays, and those that cannot be among
the `top` are dropped at once, so a sweep over 10⁸ clusters keeps a few times `top` of them. Clusters of equal cost are
ranked by id, so all sweeps keep the same ones, whatever their order and their division into blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.keyed.sizes import find_undominated
from streameval.kernels.keys import unmix
from streameval.kernels.ranking import sum_of_products
from streameval.metrics.protocol import Metric, ShardMetric
from streameval.results import Scalar
from streameval.states.cluster_sizes import SizeTable
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streameval.budget import Budget
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array


_MOST_ROWS = 2.0**60  # three times as many fit into an int64
_BITS = np.int64(31)  # of the lower word of a cost: (s − p)·tail is a product of two int64
_LOW = np.int64((1 << 31) - 1)
_SIGN = np.uint64(1 << 63)


class Worst:
    """The `top` groups of largest cost; owned by one task.

    Parameters
    ----------
    top : int
    signed : bool
        Whether ids are signed integers, which decides their order.
    costs : int
        Number of leading columns that make up the cost, compared one after the other.

    Examples
    --------
    >>> worst = Worst(2, signed=False)
    >>> worst.add(np.array([[7], [8], [9]], np.uint64), np.array([[1, 30], [5, 20], [1, 10]]))
    >>> ids, columns = worst.ranked()
    >>> ids.ravel().tolist(), columns.tolist()
    ([8, 7], [[5, 20], [1, 30]])
    """

    def __init__(self, top: int, *, signed: bool, costs: int = 1) -> None:
        self.top, self.signed, self.costs = top, signed, costs
        self._ids: Array | None = None
        self._columns = np.empty((0, costs), np.int64)

    def near(self, costs: Array) -> Array:
        """Positions of the groups that can be among the worst, given the first column of their costs."""
        full = self._ids is not None and len(self._ids) >= self.top
        edge = self._columns[self.top - 1, 0] if full else None  # the kept ones are in order
        near: Array = np.arange(costs.size) if edge is None else np.flatnonzero(costs >= edge)
        if near.size > 2 * self.top:
            some = costs[near]
            near = near[some >= np.partition(some, near.size - self.top)[near.size - self.top]]
        return near

    def add(self, ids: Array, columns: Array) -> None:
        """Take groups: uint64 words of shape (n_groups, n_words), int64 columns of shape (n_groups, n_columns)."""
        near = self.near(columns[:, 0])
        ids, columns = ids[near], columns[near]
        if not len(ids):
            return
        if self._ids is not None:
            ids, columns = np.concatenate((self._ids, ids)), np.concatenate((self._columns, columns))
        order = self._order(ids, columns)[: self.top]
        self._ids, self._columns = ids[order], columns[order]

    def _order(self, ids: Array, columns: Array) -> Array:
        first = ids[:, 0] ^ _SIGN if self.signed else ids[:, 0]
        words = [ids[:, c] for c in range(ids.shape[1] - 1, 0, -1)]
        costs = [-columns[:, c] for c in range(self.costs - 1, -1, -1)]
        return np.lexsort([*words, first, *costs])

    def merge(self, others: Iterable[Worst]) -> Worst:
        """The costliest groups of all."""
        found = Worst(self.top, signed=self.signed, costs=self.costs)
        for part in (self, *others):
            ids, columns = part.ranked()
            if len(ids):
                found.add(ids, columns)
        return found

    def ranked(self) -> tuple[Array, Array]:
        """Ids and columns, the largest cost first."""
        return (np.empty((0, 1), np.uint64) if self._ids is None else self._ids), self._columns


def aul(table: SizeTable, threshold: float = 1) -> float:
    """Area under the lift curve of a size table; 0 where no height is assumed, NaN without clusters.

    Examples
    --------
    >>> import numpy as np
    >>> aul(SizeTable.of(np.array([3, 1, 1]), np.array([2, 1, 0])))
    0.575
    """
    size, rows, positives, before = _down(table)
    points = _total(rows)
    if not points:
        return math.nan
    height = _total(np.where(size > threshold, rows, positives))
    doubled = _product(rows, 2 * before + positives) + _product(size, positives)
    return float(doubled / (2 * points * height)) if height else 0.0


def size_roc_auc(table: SizeTable) -> float:
    """ROC AUC of the cluster's size as the score; NaN where one class is empty.

    Examples
    --------
    >>> import numpy as np
    >>> size_roc_auc(SizeTable.of(np.array([3, 1, 1]), np.array([2, 1, 0])))
    0.5833333333333334
    """
    _, rows, positives, before = _down(table)
    negatives, pos = rows - positives, _total(positives)
    neg = _total(negatives)
    won = _product(negatives, 2 * before + positives)
    return float(won / (2 * neg * pos)) if neg and pos else math.nan


def _down(table: SizeTable) -> tuple[Array, Array, Array, Array]:
    """Sizes from the largest, with the rows and the positives of their clusters, and the positives before each.

    Python integers where sums might exceed int64.
    """
    columns = table.size, table.clusters, table.positives
    kind = object if np.dot(table.size.astype(float), table.clusters) > _MOST_ROWS else None
    size, clusters, positives = (column[::-1].astype(kind or column.dtype) for column in columns)
    return size, size * clusters, positives, np.cumsum(positives) - positives


def _total(values: Array) -> float:
    """Their sum, exact for whole numbers; of floats, correctly rounded."""
    return (math.fsum if values.dtype.kind == "f" else sum)(values.tolist())


def _product(one: Array, other: Array) -> float:
    """Σ of products, exact for whole numbers; of floats, correctly rounded."""
    if other.dtype.kind == "i":
        return sum_of_products(one, other)
    return math.fsum((one * other).tolist()) if other.dtype.kind == "f" else np.dot(one, other)


@dataclass(frozen=True)
class Aul(Metric[Scalar, "SizeTable", "SizeTable", "ClusterCounts"]):
    """Area under the lift curve.

    Attributes
    ----------
    threshold : clusters larger than this count as if all positive in the assumed height
    """

    threshold: float = 1
    name: str = "aul"

    def partial(self, part: SizeTable) -> SizeTable:
        """The size table itself."""
        return part

    def combine(self, partials: Sequence[SizeTable], state: ClusterCounts) -> Scalar:
        """The area, in integers until one division where every row has a label."""
        return _scalar(self.name, SizeTable.union(partials), lambda table: aul(table, self.threshold))


@dataclass(frozen=True)
class RocAucBySize(Metric[Scalar, "SizeTable", "SizeTable", "ClusterCounts"]):
    """ROC AUC with the cluster's size as the score."""

    name: str = "roc_auc_by_size"

    def partial(self, part: SizeTable) -> SizeTable:
        """The size table itself."""
        return part

    def combine(self, partials: Sequence[SizeTable], state: ClusterCounts) -> Scalar:
        """The area, in integers until one division where every row has a label."""
        return _scalar(self.name, SizeTable.union(partials), size_roc_auc)


def _scalar(name: str, table: SizeTable, area: Callable[[SizeTable], float]) -> Scalar:
    """The result of a table: exact, or an estimate where some rows have no label."""
    bare, sizes, rows = table.unlabelled
    if bare and not table.estimated.size.size:
        return Scalar.undefined(name, "no row has a label")
    value = area(table.estimated)
    if math.isnan(value):
        return Scalar.undefined(name, "one class only" if table.size.size else "no rows")
    if not bare:
        return Scalar.certain(name, value)
    out = f"; left out: {plural(rows, 'row')} in clusters of {plural(sizes, 'size')} without a label" if sizes else ""
    return Scalar(name, value, exact=False, reason=f"an estimate: {plural(bare, 'row')} without a label{out}")


@dataclass(frozen=True, eq=False)
class LiftLoss:
    """How much the clusters of each size reduce the area under the lift curve.

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
        return self.share(sum(map(mul, lacking, self.tails[self.above].tolist())))

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
class WorstImpure(ShardMetric["Impure", "_Candidates", "ClusterCounts"]):
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
        clusters, near = 0, []
        for counts in blocks:
            rows = counts.neg + counts.pos
            which = np.flatnonzero(rows > self.threshold)
            clusters += which.size
            which = which[self._near(rows[which], counts.neg[which])]
            near.append((counts.keys[which], counts.rest[which], rows[which], counts.pos[which]))
        if not near:
            none = np.empty(0, np.int64)
            return _Candidates(table, np.empty((0, 1), np.uint64), none, none, clusters)
        keys, rest, rows, positives = (np.concatenate(column) for column in zip(*near, strict=True))
        which = self._near(rows, rows - positives)
        ids = np.column_stack((unmix(keys[which]), rest[which]))
        rows, positives = rows[which], positives[which]
        first = ids[:, 0] ^ _SIGN if self.signed else ids[:, 0]
        order = np.lexsort([*(ids[:, c] for c in range(ids.shape[1] - 1, 0, -1)), first, positives - rows, -rows])
        order = order[find_undominated((rows - positives)[order], self.top)]
        return _Candidates(table, ids[order], rows[order], positives[order], clusters)

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
