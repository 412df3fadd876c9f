"""Curves and distributions, for drawing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["Band", "Bins", "Curve", "Distribution", "Reliability"]


@dataclass(frozen=True, eq=False)
class Band:
    """Pointwise sampling intervals of a curve, on a grid of x; NaN where there is none.

    Attributes
    ----------
    x, lower, upper : float64 arrays of shape (n_points,)
    level : of each interval, such as 0.95; not of the whole curve
    unit : what is drawn together: a column, or ``row``
    effective_units : effective number of units, the smallest of all rows, positives and negatives
    reason : why there is no interval at any x; None where there is one at some
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
    """A curve for drawing; its area is that of the whole curve, not of the points kept.

    Attributes
    ----------
    name : ``roc``, ``precision_recall``, ``gain``, ``lift``, ``reliability``, ``corp`` or ``purity``
    of : the score or cluster column
    x, y : float64 arrays of shape (n_points,), at most 10,000 points
    thresholds : float64 array of shape (n_points,); scores at or above it are taken as positive (for ``lift``, the
        cluster size)
    area : area under the whole curve; of ``reliability`` its mean distance from the diagonal (`ece`), of ``corp`` what
        the distance costs (`corp.mcb`), of ``purity`` the share of positives of all rows
    exact : whether points and area are exact
    positives, rows : what the curve was computed from; with weights, sums of weights
    weighted : whether there are weights
    band : pointwise sampling intervals, where the evaluation has intervals
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
    """A curve over bins of rows, ascending; bins without rows are left out. `thresholds` are their lower ends.

    Attributes
    ----------
    low, high : float64 arrays of shape (n_bins,), the ends of each bin
    counts : float64 array of shape (n_bins,), rows of each bin; with weights, their sum
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
    x_lower, x_upper, y_lower, y_upper : float64 arrays of shape (n_bins,), certain ends of the mean score and of the
        share, equal to `x` and `y` where these are exact
    doubt : float64 array of shape (n_bins,), rows that may belong to the next bin: those of bins of a histogram that
        cross an end
    ci_lower, ci_upper : float64 arrays of shape (n_bins,), 95 % interval of the share (Wilson 1927) if every row were
        drawn on its own; too narrow where rows come in groups, such as campaigns; NaN with weights, and where there is
        doubt
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
    """How the scores of each class are distributed, in bins of equal width from the lowest score to the highest.

    Attributes
    ----------
    of : the score column
    edges : float64 array of shape (n_bins + 1,); bins hold their lower edge, the last one its upper edge as well
    negatives, positives : float64 arrays of shape (n_bins,), rows of each class; with weights, their sums
    infinite : rows (negatives, positives) whose score is infinite, which are in no bin
    doubt : rows of bins of a histogram that cross an edge, and may belong to the next bin
    weighted : whether there are weights
    """

    of: str
    edges: Array
    negatives: Array
    positives: Array
    infinite: tuple[float, float] = (0.0, 0.0)
    doubt: float = 0.0
    weighted: bool = False

    def densities(self) -> tuple[Array, Array]:
        """Densities of the negatives and of the positives: each integrates to 1, or is 0 where the class is empty."""
        widths = self.edges[1:] - self.edges[:-1]
        negative, positive = (side / (max(side.sum(), 1e-300) * widths) for side in (self.negatives, self.positives))
        return negative, positive
