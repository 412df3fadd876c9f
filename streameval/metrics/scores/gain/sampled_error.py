"""Standard error of the gain area of a sample in bins: a delete-a-group jackknife, and what one row would change."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.scores.gain.sums import quotient

if TYPE_CHECKING:
    from streameval.states.sampled.draws import GroupedBins
    from streameval.typing import Array


def cut_at(sizes: Array, points: float) -> int:
    """The bin that reaches the points."""
    return min(int(np.searchsorted(np.cumsum(sizes), points)), sizes.size - 1)


def standard_error(grouped: GroupedBins, share: float) -> float:
    """Standard error as if the rows were without end: of leaving out a group at a time, and of one row."""
    if grouped.weights is not None:
        grouped = replace(grouped, weights=grouped.weights / grouped.weights.sum())  # products stay far from 0 and ∞
    drawn = grouped.counts.sum((1, 2)) > 0
    counts, m = grouped.counts[drawn], int(drawn.sum())
    rest = counts.sum(0) - counts
    carried = [None] * m if grouped.weights is None else list(grouped.weights.sum(0) - grouped.weights[drawn])
    if m < 2 or not rest.sum(2).all():
        return math.nan
    values = np.array([_area(rows, sums, share, grouped.single) for rows, sums in zip(rest, carried, strict=True)])
    return math.hypot(math.sqrt((m - 1) / m * float(((values - values.mean()) ** 2).sum())), _one_row(grouped, share))


def _one_row(grouped: GroupedBins, share: float) -> float:
    """Change of the value if one row of the class that prevails in the part kept were of the other class."""
    both = grouped.counts.sum(0)
    weights = None if grouped.weights is None else grouped.weights.sum(0)
    at = cut_at(both.sum(0), share * float(both.sum()))
    major = int(both[1, : at + 1].sum() > both[0, : at + 1].sum())
    rows = both[major, : at + 1].sum()
    changed = _moved(both, major, both[major, : at + 1] / rows)
    carried = None if weights is None else _moved(weights, major, weights[major, : at + 1] / rows)
    if not changed[major].sum() > 0:
        return math.nan
    return abs(_area(changed, carried, share, grouped.single) - _area(both, weights, share, grouped.single))


def _moved(sides: Array, major: int, part: Array) -> Array:
    """Both classes with a part of the best bins of one moved to the other."""
    changed = sides.astype(np.float64)
    changed[major, : part.size] -= part
    changed[1 - major, : part.size] += part
    return changed


def _area(rows: Array, weights: Array | None, share: float, single: Array) -> float:
    """The value in floating point, for counts that need not be whole.

    Parameters
    ----------
    rows : array of shape (2, n_bins), which decide where to cut
    weights : float64 array of shape (2, n_bins), what the area is of; None for the rows
    share : of the rows to keep
    single : bool array of shape (n_bins,), bins that are kept whole
    """
    neg, pos = rows if weights is None else weights
    sizes, counts = neg + pos, rows[0] + rows[1]
    ends = np.cumsum(counts)
    N, P = float(neg.sum()), float(pos.sum())
    points = min(share * (N + P if weights is None else float(counts.sum())), float(ends[-1]))
    at = min(int(np.searchsorted(ends, points)), counts.size - 1)
    room = float(counts[at]) if single[at] else max(0.0, points - float(ends[at] - counts[at]))
    last = room if weights is None else sizes[at] * room / counts[at] if counts[at] else 0.0
    kept = np.append(sizes[:at], last)
    gained = np.append(pos[:at], pos[at] * room / counts[at] if counts[at] else 0.0)
    area = float((kept * (2 * (np.cumsum(gained) - gained) + gained)).sum())
    weight = float(kept.sum())
    top, bottom = quotient((area, weight * weight - area, weight), N, P, ratio=False)
    return float(top / bottom) if bottom else math.nan
