"""Points of the curves of a score and of a clustering, and the distribution of the scores of each class.

The *path* of a score lists (T, F) after each group: T positives and F negatives at or above its score. The ROC,
precision-recall and gain curves are three views of it. A path of millions of groups is thinned: recall, false positive
rate and logarithm of rank cut the plane into about 9,000 cells, and the last group of each cell is kept. The points
kept do not depend on shards or files.

A distribution has bins of equal width, from two rounds over the counts: the first finds the range, the second fills its
bins. A bin holds its lower edge; the last one holds its upper edge as well. A bin of a state's histogram is counted
where its threshold lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.ranking import thin
from streameval.metrics.protocol import NO_ROWS, ONE_CLASS, Metric
from streameval.results import Curve, Distribution
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
        raise OptionError(f"the {name} curve of {column!r} is not defined: {ONE_CLASS if N or P else NO_ROWS}")
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


_MOST_BINS = 10_000


@dataclass(frozen=True)
class ScoreRange(Metric):
    """The lowest and the highest finite score; a metric whose value is the `ScoreBins` between them.

    Attributes
    ----------
    bins : number of bins

    Raises
    ------
    OptionError
        If `bins` is not a whole number from 1 to 10,000.
    """

    bins: int = 100
    name: str = "score_range"

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not 1 <= self.bins <= _MOST_BINS or self.bins % 1:
            raise OptionError(f"bins={self.bins!r} is not a number of bins; give a whole number from 1 to {_MOST_BINS}")

    def partial(self, part: ScorePart) -> tuple[float, float]:
        """The range of one part; empty as (inf, −inf)."""
        scores = part.scores[part.rows > 0]
        scores = scores[np.isfinite(scores)]
        return (float(scores[-1]), float(scores[0])) if scores.size else (math.inf, -math.inf)

    def combine(self, partials: Sequence[tuple[float, float]], state: Any) -> ScoreBins:
        """The bins of the range of all parts; if there is a single score, bins around it.

        Raises
        ------
        OptionError
            If there are no finite scores.
        """
        low = min((part[0] for part in partials), default=math.inf)
        high = max((part[1] for part in partials), default=-math.inf)
        if low > high:
            reason = "all scores are infinite" if state.totals().rows else NO_ROWS
            raise OptionError(f"the distribution of {state.spec.column!r} is not defined: {reason}")
        if low == high:
            width = max(abs(low), 1.0) / 8
            low, high = low - width / 2, high + width / 2
        return ScoreBins(low, high, int(self.bins))


@dataclass(frozen=True)
class ScoreBins(Metric):
    """Negatives and positives in bins of equal width; a metric whose value is a `Distribution`.

    Attributes
    ----------
    low, high : the range
    bins : number of bins
    """

    low: float
    high: float
    bins: int
    name: str = "score_bins"

    @property
    def edges(self) -> Array:
        """Rising edges, a float64 array of shape (bins + 1,), or shorter if the range has fewer distinct floats."""
        share = np.linspace(0.0, 1.0, self.bins + 1)
        found: Array = np.unique(self.low * (1 - share) + self.high * share)
        return found

    def partial(self, part: ScorePart) -> tuple[Array, Array, Array]:
        """Counts (negatives, positives) of each bin, those of infinite scores, and rows in doubt."""
        edges, rising = self.edges, part.scores[::-1]
        cuts = np.searchsorted(rising, edges)
        cuts[-1] = np.searchsorted(rising, edges[-1], side="right")
        sums = [np.append(values[:0].sum(), np.cumsum(values[::-1])) for values in (part.n, part.p)]
        counts = np.stack([np.diff(side[cuts]) for side in sums])
        outside = np.array([side[-1] for side in sums]) - counts.sum(axis=1)
        doubt = np.zeros(1)
        if not part.exact:
            crossing = part.open & (_at(part.low, edges) != _at(np.nextafter(part.high, -np.inf), edges))
            doubt += (part.n + part.p)[crossing].sum()
        return counts, outside, doubt

    def combine(self, partials: Sequence[tuple[Array, Array, Array]], state: Any) -> Distribution:
        """The distribution of all parts."""
        total = state.totals()
        counts, outside, doubt = (
            np.ldexp(np.sum(side, axis=0).astype(float), total.unit) for side in zip(*partials, strict=True)
        )
        return Distribution(
            state.spec.column,
            self.edges,
            counts[0],
            counts[1],
            tuple(outside.tolist()),
            float(doubt[0]),
            total.weighted,
        )


def _at(scores: Array, edges: Array) -> Array:
    """The bin of each score; −1 below the first, the number of bins above the last."""
    at: Array = np.searchsorted(edges, scores, side="right") - 1
    at[scores == edges[-1]] = edges.size - 2
    return at
