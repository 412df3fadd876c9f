"""Curves and distributions, for drawing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class Band:
    """Pointwise sampling intervals of a curve on a grid of x; NaN where there is no interval.

    Attributes
    ----------
    x, lower, upper : float64 arrays of shape (n_points,)
    level : level of each single interval, such as 0.95; the whole curve has a lower one
    unit : the sampling unit: a column, or ``row``
    effective_units : effective number of units, the smallest of those of all rows, positives and negatives
    reason : why no x has an interval; None if at least one has
    """

    x: Array
    lower: Array
    upper: Array
    level: float
    unit: str
    effective_units: float | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve for drawing; the area is that of the whole curve, not of the points kept.

    Attributes
    ----------
    name : ``roc``, ``precision_recall``, ``gain``, ``lift``, ``reliability``, ``corp`` or ``purity``
    of : the score or cluster column
    x, y : float64 arrays of shape (n_points,), at most 10,000 points
    thresholds : float64 array of shape (n_points,); scores at or above it are predicted positive (for ``lift``, it is
        the cluster size)
    area : area under the whole curve; for ``reliability`` the mean distance from the diagonal (`ece`), for ``corp`` the
        miscalibration (`corp.mcb`), for ``purity`` the share of positives among all rows
    exact : whether points and area are exact
    positives, rows : rows that the curve was computed from, and the positives among them; with weights, their sums
    weighted : whether there are weights
    band : pointwise sampling intervals; None without intervals

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> curve = evaluate(data, score="score").curve("roc")
    >>> curve.x, curve.y, curve.area
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]), 0.75)
    """

    name: str
    of: str | None
    x: Array
    y: Array
    thresholds: Array
    area: float
    exact: bool = True
    positives: float = 0
    rows: float = 0
    weighted: bool = False
    band: Band | None = None


@dataclass(frozen=True, eq=False)
class Bins(Curve):
    """A curve over bins of rows in ascending order; empty bins are left out. `thresholds` are their lower ends.

    Attributes
    ----------
    low, high : float64 arrays of shape (n_bins,), the ends of each bin
    counts : float64 array of shape (n_bins,), rows of each bin; with weights, their sums

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1], "cluster": [7, 7, 8]})
    >>> sizes = evaluate(data, cluster="cluster").curve("purity")
    >>> sizes.low, sizes.counts, sizes.y
    (array([1., 2.]), array([1., 2.]), array([1. , 0.5]))
    """

    low: Array = field(kw_only=True)
    high: Array = field(kw_only=True)
    counts: Array = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Reliability(Bins):
    """A reliability curve: for each bin its mean score `x` and its share of positives `y`.

    The ends of bins of equal width are their edges, those of bins of equal count the lowest and the highest score.

    Attributes
    ----------
    x_lower, x_upper, y_lower, y_upper : float64 arrays of shape (n_bins,), bounds of the mean score and of the share;
        equal to `x` and `y` if these are exact
    doubt : float64 array of shape (n_bins,), rows that may belong to the next bin, because their histogram bin crosses
        an end
    ci_lower, ci_upper : float64 arrays of shape (n_bins,), 95 % intervals of the share (Wilson 1927) with each row as a
        unit; too narrow if rows are correlated within groups, such as campaigns; NaN with weights or doubt

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> curve = evaluate(data, score="score").curve("reliability@2")
    >>> curve.x, curve.y, curve.counts
    (array([0.25, 0.75]), array([0.5, 0.5]), array([2., 2.]))
    """

    x_lower: Array = field(kw_only=True)
    x_upper: Array = field(kw_only=True)
    y_lower: Array = field(kw_only=True)
    y_upper: Array = field(kw_only=True)
    doubt: Array = field(kw_only=True)
    ci_lower: Array = field(kw_only=True)
    ci_upper: Array = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Distribution:
    """The distribution of the scores of each class, in bins of equal width from the lowest to the highest score.

    Attributes
    ----------
    of : the score column
    edges : float64 array of shape (n_bins + 1,); a bin includes its lower edge, the last bin also its upper edge
    negatives, positives : float64 arrays of shape (n_bins,), rows of each class; with weights, their sums
    infinite : (negatives, positives) with an infinite score, which are in no bin
    doubt : rows that may belong to the next bin, because their histogram bin crosses an edge
    weighted : whether there are weights

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> found = evaluate(data, score="score").distribution(bins=2)
    >>> found.edges, found.negatives, found.positives
    (array([0.1, 0.5, 0.9]), array([1., 1.]), array([1., 1.]))
    """

    of: str
    edges: Array
    negatives: Array
    positives: Array
    infinite: tuple[float, float] = (0.0, 0.0)
    doubt: float = 0.0
    weighted: bool = False

    def densities(self) -> tuple[Array, Array]:
        """Densities of both classes, float64 arrays of shape (n_bins,); each integrates to 1, or is 0 if empty.

        Examples
        --------
        >>> import numpy as np
        >>> found = Distribution("score", np.array([0.0, 0.5, 1.0]), np.array([3.0, 1.0]), np.array([0.0, 2.0]))
        >>> found.densities()
        (array([1.5, 0.5]), array([0., 2.]))
        """
        widths = self.edges[1:] - self.edges[:-1]
        negative, positive = (side / (max(side.sum(), 1e-300) * widths) for side in (self.negatives, self.positives))
        return negative, positive
