"""Bands: pointwise sampling intervals of curves, from the curves of all rows but those of each block.

A curve and its replicates are read at the same x. At each x the interval is that of an `Estimate`, on the logit scale,
since all curves lie between 0 and 1. It covers one x, not the whole curve. A point of a score's curve is an operating
point, such as `tpr@fpr`, and has an interval where that metric would have one
(`streameval.metrics.resampling`): from merged blocks, where enough units lie beyond its threshold. Blocks counted on a
coarse grid of scores have more detail around the thresholds of the band, and must agree with the curve. Where it is
0 or 1, does not depend on any block, or is much nearer to 0 or 1 than its standard error, it has none: where a curve
has just left 1, that distance is a matter of interpolation.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.estimates import Estimate
from streameval.results import FEW_UNITS, Band, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.metrics.units import Sizes
    from streameval.results import Curve
    from streameval.typing import Array

__all__ = ["band_of", "no_band", "places"]

_GRID = np.unique([*np.geomspace(1e-4, 0.01, 40, endpoint=False), *np.linspace(0.01, 1, 100)])

_NEAR = 2  # on the logit scale, a standard error that says no more than that the value is near an end


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
    curve : of all rows, x ascending, y between 0 and 1
    replicates : the curves without each block; None for a block without rows
    sizes : what the blocks hold
    level : such as 0.95
    beyond : from a threshold of the curve to the effective units beyond it that decide y
    grid : the curve that the replicates are around, where they come from a coarse grid; it must agree with the curve
        to a tenth of the standard error, as values must

    Returns
    -------
    Band, with a reason if there is an interval nowhere

    Examples
    --------
    >>> from streameval.metrics.units import Sizes
    >>> from streameval.results import Curve
    >>> x = np.array([0.0, 1.0])
    >>> curves = [Curve("roc", "score", x, np.array([0.5, end]), x, 0.5) for end in (0.85, 0.9, 0.95, 0.9, 0.9, 0.9)]
    >>> band = band_of(curves[1], curves, Sizes("row", {"rows": np.array([10, 11, 9, 12, 10, 10])}), 0.95)
    >>> float(band.x[-1]), round(float(band.lower[-1]), 2), round(float(band.upper[-1]), 2)
    (1.0, 0.59, 0.98)
    """
    x = _xs(curve)
    at = [np.full(x.size, math.nan) if each is None else _read(each, x) for each in replicates]
    ends, reasons = np.full((2, x.size), math.nan), Counter[str]()
    units = [beyond(float(curve.thresholds[i])) for i in places(curve)]
    estimate = Estimate(Scalar.undefined(curve.name, "the curve is undefined"), np.empty(0), sizes, "logit")
    around = np.full(x.size, math.nan) if grid is None else _read(grid, x)
    for i, (value, column) in enumerate(zip(_read(curve, x).tolist(), np.transpose(at), strict=True)):
        few = _few(max(units), sizes.unit) if units[i] < FEW_UNITS else None
        found = _interval(replace(estimate, replicates=column, grid=float(around[i])), value, level, few)
        if found.ci_lower is not None:
            ends[:, i] = found.ci_lower, found.ci_upper
        else:
            reasons[str(found.ci_reason)] += 1
    reason = max(reasons, key=lambda each: reasons[each], default=None) if np.isnan(ends).all() else None
    return Band(x, ends[0], ends[1], level, sizes.unit, reason=reason)


def _xs(curve: Curve) -> Array:
    """Where a curve has a band."""
    low, high = curve.x[[0, -1]].tolist()
    found: Array = _GRID[(low <= _GRID) & (high >= _GRID)]
    return found


def places(curve: Curve) -> Array:
    """The points of a curve that its band is about: the first at or beyond each x."""
    found: Array = np.searchsorted(curve.x, _xs(curve))
    return found


def no_band(sizes: Sizes, level: float, reason: str) -> Band:
    """A band with an interval nowhere."""
    nowhere = np.empty(0)
    return Band(nowhere, nowhere, nowhere, level, sizes.unit, reason=reason)


def _few(most: float, unit: str) -> str:
    """The reason where too few units lie beyond thresholds, with the most that lie beyond any; rounded down."""
    told = f"{math.floor(most * 10) / 10:.1f} effective units ({unit})"
    return f"at most {told} beyond a threshold: {FEW_UNITS} are needed"


def _interval(estimate: Estimate, value: float, level: float, reason: str | None) -> Scalar:
    """The value at an x with its interval, or with the reason why there is none."""
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
    """The curve at some x: precision is that of the first point with such a recall, others change linearly."""
    if curve.name == "precision_recall":
        found: Array = curve.y[np.searchsorted(curve.x, x).clip(max=curve.x.size - 1)]
        return found
    between: Array = np.interp(x, curve.x, curve.y)
    return between
