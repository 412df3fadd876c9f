"""Curves of a score and of a clustering: few points to draw, and the exact area.

The *path* of a score lists (T, F) after each group: T positives and F negatives at or above its score. The ROC,
precision-recall and gain curves are three views of it. A path of millions of groups is thinned: recall, false positive
rate and logarithm of rank cut the plane into about 9,000 cells, and the last group of each cell is kept. The points
kept do not depend on shards or files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.ranking import thin
from streameval.metrics.protocol import Metric
from streameval.metrics.scores.undefined import NO_ROWS, ONE_CLASS
from streameval.results import Curve
from streameval.states.clusters.sizes import SizeTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.results import Scalar
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

MAX_POINTS = 10_000
_SLOTS = 4_000  # cells by recall, as many by false positive rate, at most a quarter as many by log rank


@dataclass(frozen=True, eq=False)
class Path:
    """Points of a score's curves, from the best score to the worst.

    Attributes
    ----------
    true, false : arrays of shape (n_points,), positives and negatives at or above the score
    scores : float64 array of shape (n_points,)
    """

    true: Array
    false: Array
    scores: Array


@dataclass(frozen=True)
class ScorePath(Metric):
    """The thinned path of a score; a metric whose value is a `Path`."""

    name: str = "path"
    slots: int = _SLOTS

    def partial(self, part: ScorePart) -> Path:
        """The thinned path of one part."""
        before, N, P = part.before, float(part.total.n), float(part.total.p)
        kept, true, false = thin(part.n, part.p, before.n, before.p, N, P, self.slots)
        return Path(true, false, part.ends(kept)[0])

    def combine(self, partials: Sequence[Path], state: Any) -> Path:
        """The paths of all parts, thinned once more where they meet."""
        if not partials:
            return Path(*np.empty((3, 0)))
        true, false, scores = (
            np.concatenate([getattr(part, name) for part in partials]) for name in ("true", "false", "scores")
        )
        order = np.lexsort((-scores, true + false))
        true, false, scores = true[order], false[order], scores[order]
        total = state.totals()
        zero = false[:0].dtype.type(0)
        steps = np.diff(false, prepend=zero), np.diff(true, prepend=zero)
        kept, _, _ = thin(*steps, zero, zero, float(total.n), float(total.p), self.slots)
        return Path(true[kept], false[kept], scores[kept])


@dataclass(frozen=True)
class AllSizes(Metric):
    """The size table of all clusters; a metric whose value is a `SizeTable`."""

    name: str = "sizes"

    def partial(self, part: SizeTable) -> SizeTable:
        """The table of one part."""
        return part

    def combine(self, partials: Sequence[SizeTable], state: Any) -> SizeTable:
        """The table of all, with estimated positives where some rows have no label."""
        return SizeTable.union(partials).estimated


def score_curve(name: str, path: Path, state: Any, roc: Scalar, precision: Scalar) -> Curve:
    """A named curve of a score.

    Parameters
    ----------
    name : ``roc``, ``precision_recall`` or ``gain``
    path : the score's path
    state : the score's state, without its missing scores
    roc, precision : the areas of the ROC and the precision-recall curve of that state

    Raises
    ------
    OptionError
        If a class has no rows.
    """
    total = state.totals()
    N, P, column, weighted = float(total.n), float(total.p), state.spec.column, total.weighted
    if not N or not P:
        msg = f"the {name} curve of {column!r} is not defined: {ONE_CLASS if N or P else NO_ROWS}"
        raise OptionError(msg)
    weight = math.ldexp(P, total.unit), math.ldexp(N + P, total.unit)
    T, F = (np.concatenate(([0.0], steps)) for steps in (path.true.astype(float), path.false.astype(float)))
    thresholds = np.concatenate(([np.inf], path.scores))
    if name == "roc":
        return Curve(name, column, F / N, T / P, thresholds, roc.value, roc.exact, *weight, weighted)
    if name == "gain":
        area = (P / 2 + N * roc.value) / (N + P)
        return Curve(name, column, (T + F) / (N + P), T / P, thresholds, area, roc.exact, *weight, weighted)
    ys = np.divide(T, T + F, out=np.ones_like(T), where=T + F > 0)
    return Curve(name, column, T / P, ys, thresholds, precision.value, precision.exact, *weight, weighted)


def lift_curve(table: SizeTable, threshold: float, area: float, of: str | None) -> Curve:
    """The lift curve of a size table: for each size the first and the last of its clusters.

    x is the share of points in clusters at least as large, y the expected positives over the assumed height.
    """
    size, clusters, positives = (column[::-1].astype(float) for column in (table.size, table.clusters, table.positives))
    points, height = (size * clusters).sum(), np.where(size > threshold, size * clusters, positives).sum()
    x, h = np.cumsum(size * clusters), np.cumsum(positives)
    first = h - positives + positives / clusters
    xs = np.stack((x - size * clusters, x), axis=1).ravel() / max(points, 1.0)
    ys = np.stack((first, h), axis=1).ravel() / (height or np.nan)
    sizes = np.repeat(size, 2)
    if xs.size > MAX_POINTS:
        kept = np.unique(np.linspace(0, xs.size - 1, MAX_POINTS).astype(int))
        xs, ys, sizes = xs[kept], ys[kept], sizes[kept]
    return Curve("lift", of, xs, ys, sizes, area, positives=float(positives.sum()), rows=float(points))
