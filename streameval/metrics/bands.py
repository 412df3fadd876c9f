"""Bands: pointwise sampling intervals of curves, from the curves of all rows but those of each block.

A curve and its replicates are read at the same x, with linear interpolation between points. At each x
the interval is that of an `Estimate`, on the logit scale, since all curves lie between 0 and 1. It covers one x, not
the whole curve. Where a curve is 0 or 1, it has no interval.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.estimates import Estimate
from streameval.results import Band, Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.metrics.units import Sizes
    from streameval.results import Curve
    from streameval.typing import Array

__all__ = ["band_of"]

_GRID = np.unique([*np.geomspace(1e-4, 0.01, 40, endpoint=False), *np.linspace(0.01, 1, 100)])


def band_of(curve: Curve, replicates: Sequence[Curve | None], sizes: Sizes, level: float) -> Band | None:
    """The band of a curve.

    Parameters
    ----------
    curve : of all rows, x ascending, y between 0 and 1
    replicates : the curves without each block; None for a block without rows
    sizes : what the blocks hold
    level : such as 0.95

    Returns
    -------
    Band, or None if there is an interval nowhere

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
    low, high = curve.x[[0, -1]].tolist()
    x = _GRID[(low <= _GRID) & (high >= _GRID)]
    at = [np.full(x.size, math.nan) if each is None else _read(each, x) for each in replicates]
    ends = np.full((2, x.size), math.nan)
    for i, (value, column) in enumerate(zip(_read(curve, x), np.transpose(at), strict=True)):
        scalar = Scalar.certain(curve.name, float(value)) if value == value else Scalar.undefined(curve.name, "")
        found = Estimate(scalar, column, sizes, "logit").scalar_with(level)
        if found.ci_lower is not None:
            ends[:, i] = found.ci_lower, found.ci_upper
    return None if np.isnan(ends).all() else Band(x, ends[0], ends[1], level, sizes.unit)


def _read(curve: Curve, x: Array) -> Array:
    """The curve at some x."""
    found: Array = np.interp(x, curve.x, curve.y)
    return found
