"""Curves of calibration: the reliability diagram, and the isotonic fit of CORP.

Calibrated probabilities lie on the diagonal: of the rows with a score of 0.3, three in ten are positive. The
reliability curve shows bins of rows. The isotonic fit needs no bins, and is the best recalibration that keeps the order
of the scores. Both are computed from the counts of distinct scores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.metrics.scores.calibration.scoring import missing
from streameval.metrics.scores.sums import SLACK
from streameval.metrics.scores.undefined import OUTSIDE
from streameval.results import Curve, Reliability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.metrics.scores.calibration.isotonic import Fit
    from streameval.metrics.scores.calibration.reliability import Cell, ReliabilityBins
    from streameval.results import Scalar
    from streameval.typing import Array

_POINTS = 10_000
_Z = 1.959963984540054  # the normal quantile of 0.975


def _check(name: str, state: Any, found: object) -> None:
    """Raise `OptionError` if the probabilities are not defined."""
    reason = missing([], state) or (None if found else OUTSIDE)
    if reason:
        msg = f"the {name} curve of {state.spec.column!r} is not defined: {reason}"
        raise OptionError(msg)


def _facts(state: Any) -> dict[str, Any]:
    """The fields of a curve that describe its rows."""
    total = state.totals()
    P, size = (math.ldexp(float(side), total.unit) for side in (total.p, total.n + total.p))
    return {"of": state.spec.column, "positives": P, "rows": size, "weighted": total.weighted}


def reliability_curve(bins: ReliabilityBins, cells: Mapping[int, Cell], error: Scalar, state: Any) -> Reliability:
    """The reliability curve of bins.

    Parameters
    ----------
    bins : the metric of the bins
    cells : contents of each bin, by its number
    error : expected calibration error of these bins
    state : the score's state, without its missing scores

    Raises
    ------
    OptionError
        If there are no rows, or a score is outside [0, 1].
    """
    _check("reliability", state, cells)
    facts = _facts(state)
    filled = {i: cell for i, cell in cells.items() if cell.size}
    edges = bins.edges
    ends = [(c.least, c.most) if bins.equal_count else (edges[i], edges[i + 1]) for i, c in filled.items()]
    rows = [_row(cell, low, high) for cell, (low, high) in zip(filled.values(), ends, strict=True)]
    low, high = np.array(ends, np.float64).T
    x, y, counts, x_lower, x_upper, y_lower, y_upper, doubt = np.array(rows, np.float64).T
    unknown = doubt > 0 if not facts["weighted"] else np.ones(doubt.size, np.bool_)
    ci_lower, ci_upper = np.where(unknown, np.nan, _wilson(y, counts))
    unit = state.totals().unit
    return Reliability(
        bins.name, x=x, y=y, thresholds=low, area=error.value, exact=error.exact, **facts, low=low, high=high,
        counts=np.ldexp(counts, unit), x_lower=x_lower, x_upper=x_upper, y_lower=y_lower, y_upper=y_upper,
        doubt=np.ldexp(doubt, unit), ci_lower=ci_lower, ci_upper=ci_upper,
    )  # fmt: skip


def _row(cell: Cell, low: float, high: float) -> tuple[float, ...]:
    """Mean score, share of positives, measure, the bounds of the first two, and the measure in doubt."""
    x, y = float(cell.score / (cell.size * cell.unit)), float(cell.p / cell.size)
    if cell.certain:
        return x, y, cell.size, x, x, y, y, 0.0
    (x_lower, x_upper), (y_lower, y_upper) = cell.scores(low, high), cell.shares
    x_lower, x_upper = max(low, min(x, x_lower - SLACK)), min(high, max(x, x_upper + SLACK))
    y_lower, y_upper = max(0.0, min(y, y_lower)), min(1.0, max(y, y_upper))
    return x, y, cell.size, x_lower, x_upper, y_lower, y_upper, cell.doubt


def _wilson(share: Array, rows: Array) -> tuple[Array, Array]:
    """Wilson's score interval of shares."""
    square = _Z**2
    middle = (share + square / (2 * rows)) / (1 + square / rows)
    half = _Z / (1 + square / rows) * np.sqrt(share * (1 - share) / rows + square / (4 * rows**2))
    return np.where(share > 0, middle - half, 0.0), np.where(share < 1, middle + half, 1.0)


def corp_curve(fit: Fit | None, mcb: Scalar, state: Any) -> Curve:
    """The isotonic fit: the lowest and the highest score of each block, both with the block's share of positives.

    A line connects each block with the next. There are at most 10,000 points, evenly spaced along the curve.

    Raises
    ------
    OptionError
        If there are no rows, a score is outside [0, 1], or scores are in bins.
    """
    _check("corp", state, fit)
    if fit is None or fit.finest is not None:
        msg = (
            f"the corp curve of {state.spec.column!r} needs the order of the scores, which bins of a histogram hide; "
            "leave out approx (--approx), or take the reliability curve"
        )
        raise OptionError(msg)
    share = (fit.p / (fit.n + fit.p))[::-1].astype(np.float64)
    xs = np.stack((fit.low[::-1], fit.high[::-1]), axis=1).ravel()
    ys = np.repeat(share, 2)
    distinct = np.append(True, (np.diff(xs) > 0) | (np.diff(ys) > 0))
    xs, ys = xs[distinct], ys[distinct]
    if xs.size > _POINTS:
        way = xs - xs[0] + ys - ys[0]  # both ascend
        kept = np.unique(np.searchsorted(way, np.linspace(0, way[-1], _POINTS)).clip(max=xs.size - 1))
        xs, ys = xs[kept], ys[kept]
    return Curve("corp", x=xs, y=ys, thresholds=xs, area=mcb.value, exact=mcb.exact, **_facts(state))
