"""Metrics of clusters against labels: functions of the table of cluster sizes.

- AUL, the area under the lift curve: clusters from the largest to the smallest; clusters of one size share the mean of
  their positives and are walked one by one; h is the sum of positives so far. AUL = Σ size·h / (total size · H), where
  H adds a cluster's size if it is larger than the threshold, else its positives: large clusters are acted on as a
  whole. n singletons give (n + 1)/2n.
- ROC AUC with the cluster's size as every member's score.

Where rows without a label count in the sizes, the positives of the clusters of one size are estimated as rows ×
positives ÷ labelled rows of that size, and sizes without a label are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.ranking import sum_of_products
from streameval.metrics.protocol import Metric
from streameval.results import Scalar
from streameval.states.clusters.sizes import SizeTable
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.states.clusters.counts import ClusterCounts
    from streameval.typing import Array

_MOST_ROWS = 2.0**60  # three times as many fit into an int64


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


def _total(values: Array) -> Any:
    """Their sum, exact for whole numbers; of floats, correctly rounded."""
    return (math.fsum if values.dtype.kind == "f" else sum)(values.tolist())


def _product(one: Array, other: Array) -> Any:
    """Σ of products, exact for whole numbers; of floats, correctly rounded."""
    if other.dtype.kind == "i":
        return sum_of_products(one, other)
    return math.fsum((one * other).tolist()) if other.dtype.kind == "f" else np.dot(one, other)


@dataclass(frozen=True)
class Aul(Metric):
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
class RocAucBySize(Metric):
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
