"""Bands: pointwise sampling intervals of curves.

A band comes from the curve of all rows and the curves without each block, all read at the same x. At each x it is the
interval of an `Estimate` on the logit scale, because these curves lie between 0 and 1. It covers the value at one x,
not the whole curve.

A point of a score's curve is an operating point: a point of the ROC curve is `tpr@fpr`. The band follows the rules of
that metric (`streameval.metrics.resampling`): it uses merged blocks, and needs enough effective units beyond the
threshold. If blocks are counted on a coarse grid of scores, bins are cut around the thresholds of the band, and the
curve on the grid must agree with the exact one. One rule is looser: a point keeps its interval even if the standard
error depends on where rows lie within their bins. Standard errors were 0.87 to 1.09 of those from every score.

A curve has no interval where it is 0 or 1, where no block changes it, or where its standard error is more than twice
its distance from 0 or 1: where a curve has just left 1, that distance depends on interpolation.

In 250 samples of clustered rows, 95 % bands of the ROC curve at false positive rates of 0.1 and 0.2 held the true curve
in 89 and 91 % of cases with 100 effective positives, as `tpr@fpr` did, and in 98 and 95 % with 1,000.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.estimates import Estimate
from streameval.results import FEW_UNITS, Band, Curve, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.metrics.units import Sizes
    from streameval.typing import Array

_GRID = np.unique([*np.geomspace(1e-4, 0.01, 40, endpoint=False), *np.linspace(0.01, 1, 100)])

_NEAR = 2  # largest standard error on the logit scale; beyond it, it only says that the value is near 0 or 1


def band_of(
    curve: Curve,
    replicates: Sequence[Curve | None],
    sizes: Sizes,
    level: float,
    beyond: Callable[[float], float] = lambda _: math.inf,
    grid: Curve | None = None,
) -> Band:
    """The band of a curve.

    Parameters
    ----------
    curve : the curve of all rows, x ascending, y between 0 and 1
    replicates : the curves without each block; None for a block without rows
    sizes : the rows of each block, by kind
    level : level of the intervals, such as 0.95
    beyond : returns the effective units beyond a threshold of the curve that determine y
    grid : the curve of all rows on the coarse grid that the replicates come from; it must agree with `curve` to a tenth
        of the standard error, as values must. None if the replicates are exact

    Returns
    -------
    Band
        With the most frequent reason if no point has an interval.

    Examples
    --------
    >>> from streameval.metrics.units import Sizes
    >>> from streameval.results import Curve
    >>> x = np.array([0.0, 1.0])
    >>> curves = [Curve("roc", "score", x, np.array([0.5, end]), x, 0.5) for end in (0.85, 0.9, 0.95, 0.9, 0.9, 0.9)]
    >>> band = band_of(curves[1], curves, Sizes("row", {"rows": np.array([10, 11, 9, 12, 10, 10])}), 0.95)
    >>> float(band.x[-1]), round(float(band.lower[-1]), 2), round(float(band.upper[-1]), 2)
    (1.0, 0.57, 0.99)
    """
    x = _xs(curve)
    at = [np.full(x.size, math.nan) if each is None else _read(each, x) for each in replicates]
    ends, reasons, freedom = np.full((2, x.size), math.nan), Counter[str](), math.inf
    units = [beyond(float(curve.thresholds[i])) for i in places(curve)]
    estimate = Estimate(Scalar.undefined(curve.name, "the curve is undefined"), np.empty(0), sizes, "logit")
    around = np.full(x.size, math.nan) if grid is None else _read(grid, x)
    for i, (value, column) in enumerate(zip(_read(curve, x).tolist(), np.transpose(at), strict=True)):
        few = _few(max(units), sizes.unit) if units[i] < FEW_UNITS else None
        interval = _interval(replace(estimate, replicates=column, grid=float(around[i])), value, level, few)
        if interval.ci_lower is not None:
            ends[:, i] = interval.ci_lower, interval.ci_upper
            freedom = min(freedom, interval.freedom or math.inf)
        else:
            reasons[str(interval.ci_reason)] += 1
    reason = max(reasons, key=lambda each: reasons[each], default=None) if np.isnan(ends).all() else None
    least = None if math.isinf(freedom) else freedom
    return Band(x, ends[0], ends[1], level, sizes.unit, reason=reason, freedom=least)


def _xs(curve: Curve) -> Array:
    """The x at which a band is computed."""
    low, high = curve.x[[0, -1]].tolist()
    xs: Array = _GRID[(low <= _GRID) & (high >= _GRID)]
    return xs


def places(curve: Curve) -> Array:
    """Indices of the points whose thresholds the band uses: for each x, the first point at or beyond it."""
    indices: Array = np.searchsorted(curve.x, _xs(curve))
    return indices


def no_band(sizes: Sizes, level: float, reason: str) -> Band:
    """A band without any interval."""
    nowhere = np.empty(0)
    return Band(nowhere, nowhere, nowhere, level, sizes.unit, reason=reason)


def _few(most: float, unit: str) -> str:
    """The reason if too few units lie beyond the thresholds; names the largest number, rounded down."""
    number = f"{math.floor(most * 10) / 10:.1f} effective units ({unit})"
    return f"at most {number} beyond a threshold: {FEW_UNITS} are needed"


def _interval(estimate: Estimate, value: float, level: float, reason: str | None) -> Scalar:
    """The value at one x with its interval, or with the reason why it has none."""
    if math.isnan(value):
        return estimate.scalar_with(level)
    estimate = replace(estimate, scalar=Scalar.certain(estimate.scalar.metric, value))
    if not reason and 0 < value < 1:
        if not estimate.deviations.any():
            reason = "the value is the same without any block"
        elif estimate.stderr > _NEAR * value * (1 - value):
            reason = f"the standard error is over {_NEAR} times the distance from the end of the range"
    return replace(estimate, reason=reason).scalar_with(level)


def _read(curve: Curve, x: Array) -> Array:
    """The curve at some x: precision is that of the first point with at least this recall; others are interpolated.

    NaN if the curve has no point, as a curve of clusters without rows.
    """
    if not curve.x.size:
        return np.full(x.size, math.nan)
    if curve.name == "precision_recall":
        values: Array = curve.y[np.searchsorted(curve.x, x).clip(max=curve.x.size - 1)]
        return values
    between: Array = np.interp(x, curve.x, curve.y)
    return between
