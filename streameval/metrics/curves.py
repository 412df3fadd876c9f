"""Curves and distributions as data: the family that has each, the metrics it needs, and how it is made of them.

The *path* of a score lists (T, F) after each group: T positives and F negatives at or above its score. The ROC,
precision-recall and gain curves are three views of it. A path of millions of groups is thinned: recall, false positive
rate and logarithm of rank cut the plane into about 9,000 cells, and the last group of each cell is kept. The points
kept do not depend on shards or files.

Calibrated probabilities lie on the diagonal of the *reliability* diagram: of the rows with a score of 0.3, three in ten
are positive. It shows bins of rows. The isotonic fit of *CORP* needs no bins, and is the best recalibration that keeps
the order of the scores. *Purity* by size is the share of positives among the rows of clusters of similar size, grouped
by powers of two: what AUL sees of a clustering.

Bands are pointwise sampling intervals. A band comes from the curve of all rows and the curves without each block, all
read at the same x. At each x it is the interval of an `Estimate` on the logit scale, because these curves lie between 0
and 1. It covers the value at one x, not the whole curve.

A point of a score's curve is an operating point: a point of the ROC curve is `tpr@fpr`. The band follows the rules of
that metric (`streameval.metrics.resampling`): it uses merged blocks, and needs enough effective units beyond the
threshold. If blocks are counted on a coarse grid of scores, bins are cut around the thresholds of the band, and the
curve on the grid must agree with the exact one. One rule is looser: a point keeps its interval even if the standard
error depends on where rows lie within their bins. Standard errors were 0.87 to 1.09 of those from every score.

A curve has no interval where it is 0 or 1, where no block changes it, or where its standard error is more than twice
its distance from 0 or 1: where a curve has just left 1, that distance depends on interpolation.

In 250 samples of clustered rows, 95 % bands of the ROC curve at false positive rates of 0.1 and 0.2 held the true curve
in 89 and 91 % of cases with 100 effective positives, as `tpr@fpr` did, and in 98 and 95 % with 1,000.

A column has a distribution of the scores of each class in bins of equal width, and quantiles of its sketch. Bins take
two rounds over the counts: the first finds the range, the second fills its bins. A bin holds its lower edge; the last
one holds its upper edge as well. A bin of a state's histogram is counted where its threshold lies.

A sketch estimates quantiles (`streameval.states.scores.quantile_sketch` says how well), so `lower` and `upper` are NaN.
Only the ends are exact: ``quantile@0`` is the smallest number and ``quantile@1`` the largest.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streameval.errors import OptionError
from streameval.kernels.ranking import thin
from streameval.metrics.clusters import Aul
from streameval.metrics.estimates import Estimate
from streameval.metrics.protocol import NO_ROWS, ONE_CLASS, OUTSIDE, Metric
from streameval.metrics.scores.calibration import BINS, CalibrationError, Cell, Corp, CorpFit, Fit, ReliabilityBins
from streameval.metrics.scores.ranking import PrAuc, RocAuc
from streameval.metrics.scores.scoring_rules import missing
from streameval.metrics.scores.sums import SLACK
from streameval.results import FEW_UNITS, Band, Bins, Curve, Distribution, Reliability, Scalar
from streameval.states.cluster_sizes import SizeTable
from streameval.states.scores.types import numbers_only

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.metrics.protocol import Sizes
    from streameval.states.protocol import Source, State
    from streameval.states.scores.parts import ScorePart
    from streameval.states.scores.quantile_sketch import QuantileSketch
    from streameval.typing import Array

    S = TypeVar("S", bound=Source)

MAX_POINTS = 10_000
_SLOTS = 4_000  # cells by recall, as many by false positive rate, at most a quarter as many by log rank
_Z = 1.959963984540054  # the normal quantile of 0.975


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
class ScorePath(Metric["Path", "ScorePart", "Path", "Source"]):
    """The thinned path of a score; a metric whose value is a `Path`."""

    name: str = "path"
    slots: int = _SLOTS

    def partial(self, part: ScorePart) -> Path:
        """The thinned path of one part."""
        before, N, P = part.before, float(part.total.n), float(part.total.p)
        corners, true, false = thin(part.n, part.p, before.n, before.p, N, P, self.slots)
        return Path(true, false, part.ends(corners)[0])

    def combine(self, partials: Sequence[Path], state: Source) -> Path:
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
        corners, _, _ = thin(*steps, zero, zero, float(total.n), float(total.p), self.slots)
        return Path(true[corners], false[corners], scores[corners])


@dataclass(frozen=True)
class AllSizes(Metric["SizeTable", "SizeTable", "SizeTable", "Source"]):
    """The size table of all clusters; a metric whose value is a `SizeTable`."""

    name: str = "sizes"

    def partial(self, part: SizeTable) -> SizeTable:
        """The table of one part."""
        return part

    def combine(self, partials: Sequence[SizeTable], state: Source) -> SizeTable:
        """The table of all, with estimated positives where some rows have no label."""
        return SizeTable.union(partials).estimated


def _check(name: str, state: Source, made: object) -> None:
    """Raise `OptionError` if the probabilities are not defined."""
    reason = missing([], state) or (None if made else OUTSIDE)
    if reason:
        raise OptionError(f"the {name} curve of {state.spec.column!r} is not defined: {reason}")


def _facts(state: Source) -> dict[str, Any]:
    """The fields of a curve that describe its rows."""
    total = state.totals()
    P, size = (math.ldexp(float(side), total.unit) for side in (total.p, total.n + total.p))
    return {"of": state.spec.column, "positives": P, "rows": size, "weighted": total.weighted}


# Curves take the values of their metrics, the state, its column and the threshold of `aul`, and may be undefined.


def _score_curve(name: str, values: tuple[Path, Scalar, Scalar], state: Source, *_: object) -> Curve:
    """A named curve of a score, from its path and the areas of the ROC and the precision-recall curve."""
    (path, roc, precision), total = values, state.totals()
    N, P = float(total.n), float(total.p)
    if not N or not P:
        problem = ONE_CLASS if N or P else NO_ROWS
        raise OptionError(f"the {name} curve of {state.spec.column!r} is not defined: {problem}")
    T, F = (np.concatenate(([0.0], steps)) for steps in (path.true.astype(float), path.false.astype(float)))
    x, y, area, exact = F / N, T / P, roc.value, roc.exact
    if name == "gain":
        x, area = (T + F) / (N + P), (P / 2 + N * roc.value) / (N + P)
    elif name == "precision_recall":
        x, y = y, np.divide(T, T + F, out=np.ones_like(T), where=T + F > 0)
        area, exact = precision.value, precision.exact
    thresholds = np.concatenate(([np.inf], path.scores))
    return Curve(name, x=x, y=y, thresholds=thresholds, area=area, exact=exact, **_facts(state))


def _lift_curve(values: tuple[SizeTable, Scalar], _: Source, of: str, threshold: float) -> Curve:
    """The lift curve of a size table: for each size the first and the last of its clusters.

    x is the share of points in clusters at least as large, y the expected positives over the assumed height.
    """
    table, area = values
    size, clusters, positives = (column[::-1].astype(float) for column in (table.size, table.clusters, table.positives))
    points, height = (size * clusters).sum(), np.where(size > threshold, size * clusters, positives).sum()
    x, h = np.cumsum(size * clusters), np.cumsum(positives)
    first = h - positives + positives / clusters
    xs = np.stack((x - size * clusters, x), axis=1).ravel() / max(points, 1.0)
    ys = np.stack((first, h), axis=1).ravel() / (height or np.nan)
    sizes = np.repeat(size, 2)
    if xs.size > MAX_POINTS:
        chosen = np.unique(np.linspace(0, xs.size - 1, MAX_POINTS).astype(int))
        xs, ys, sizes = xs[chosen], ys[chosen], sizes[chosen]
    return Curve("lift", of, xs, ys, sizes, area.value, positives=float(positives.sum()), rows=float(points))


def _purity_curve(values: tuple[SizeTable], _: Source, of: str, *__: object) -> Bins:
    """The share of positives by cluster size: 1, 2 to 3, 4 to 7, and so on.

    x is the mean size of the clusters of a bin.

    Examples
    --------
    >>> found = _purity_curve((SizeTable.of(np.array([1, 1, 3]), np.array([0, 1, 3])),), None, "cluster")
    >>> found.low.tolist(), found.high.tolist(), found.y.tolist(), found.counts.tolist()
    ([1.0, 3.0], [1.0, 3.0], [0.5, 1.0], [2.0, 3.0])
    """
    (table,) = values
    if not table.size.size:
        raise OptionError(f"the purity curve of {of!r} is not defined: no rows")
    level = np.frexp(table.size.astype(np.float64))[1]
    first = np.flatnonzero(np.diff(level, prepend=-1))
    last = np.append(first[1:], level.size) - 1
    rows, clusters, positives = (
        np.add.reduceat(column, first).astype(np.float64)
        for column in (table.size * table.clusters, table.clusters, table.positives)
    )
    low, high = (table.size[ends].astype(np.float64) for ends in (first, last))
    return Bins(
        "purity", of, rows / clusters, positives / rows, low, float(positives.sum() / rows.sum()),
        positives=float(positives.sum()), rows=float(rows.sum()), low=low, high=high, counts=rows,
    )  # fmt: skip


def _reliability_curve(
    bins: ReliabilityBins, values: tuple[Mapping[int, Cell], Scalar], state: Source, *_: object
) -> Reliability:
    """The reliability curve of bins, from their contents and their expected calibration error."""
    cells, error = values
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


def _corp_curve(values: tuple[Fit | None, Scalar], state: Source, *_: object) -> Curve:
    """The isotonic fit: the lowest and the highest score of each block, both with the block's share of positives.

    A line connects each block with the next. There are at most 10,000 points, evenly spaced along the curve.
    """
    fit, mcb = values
    _check("corp", state, fit)
    if fit is None or fit.finest is not None:
        raise OptionError(
            f"the corp curve of {state.spec.column!r} needs the order of the scores, which bins of a histogram hide; "
            "leave out approx (--approx), or take the reliability curve"
        )
    share = (fit.p / (fit.n + fit.p))[::-1].astype(np.float64)
    xs = np.stack((fit.low[::-1], fit.high[::-1]), axis=1).ravel()
    ys = np.repeat(share, 2)
    distinct = np.append(True, (np.diff(xs) > 0) | (np.diff(ys) > 0))
    xs, ys = xs[distinct], ys[distinct]
    if xs.size > MAX_POINTS:
        way = xs - xs[0] + ys - ys[0]  # both ascend
        chosen = np.unique(np.searchsorted(way, np.linspace(0, way[-1], MAX_POINTS)).clip(max=xs.size - 1))
        xs, ys = xs[chosen], ys[chosen]
    return Curve("corp", x=xs, y=ys, thresholds=xs, area=mcb.value, exact=mcb.exact, **_facts(state))


_BINS = re.compile(r"reliability@(\d{1,6})(/equal_count)?")


@dataclass(frozen=True)
class CurveKind:
    """A curve that an evaluation can draw.

    Attributes
    ----------
    name : such as ``roc``
    family : its states give the curve
    default : a metric of that family, which builds the state
    metrics : what to finalize, given the threshold of `aul`
    make : the curve, from the values of these metrics, the state, its column and the threshold of `aul`; it raises
        `OptionError` if the curve is not defined
    point : the metric that y is at an x, such as ``tpr@fpr=0.5``: its interval follows the same rules; empty for none
    """

    name: str
    family: str
    default: str
    metrics: Callable[[float], Sequence[Metric]]
    make: Callable[[Any, Source, str, float], Curve]
    point: str = ""

    def drawn(self, state: S) -> S:
        """The state behind the curve: that of a score without its missing scores."""
        return state if self.family == "cluster" else numbers_only(state)


def _of_path(name: str, point: str) -> CurveKind:
    """A view of the path of a score."""
    needs = ScorePath(), RocAuc(), PrAuc()
    return CurveKind(name, "score", "roc_auc", lambda _: needs, partial(_score_curve, name), point)


def _of_bins(bins: int = BINS, *, equal_count: bool = False) -> CurveKind:
    """Bins of a score, with their calibration error."""
    kind, error = ReliabilityBins(bins, equal_count), CalibrationError(bins, equal_count)
    return CurveKind("reliability", "score", "brier_score", lambda _: (kind, error), partial(_reliability_curve, kind))


CURVES = {
    kind.name: kind
    for kind in (
        _of_path("roc", "tpr@fpr=0.5"),
        _of_path("precision_recall", "precision@recall=0.5"),
        _of_path("gain", "recall@share=0.5"),
        _of_bins(),
        CurveKind("corp", "score", "corp.mcb", lambda _: (CorpFit(), Corp("mcb")), _corp_curve),
        CurveKind("lift", "cluster", "aul", lambda threshold: (AllSizes(), Aul(threshold)), _lift_curve),
        CurveKind("purity", "cluster", "aul", lambda _: (AllSizes(),), _purity_curve),
    )
}


def curve_kind(name: str) -> CurveKind:
    """The curve of a name; ``reliability@20`` has 20 bins, ``reliability@20/equal_count`` about as many rows in each.

    Raises
    ------
    OptionError
        If there is no such curve.

    Examples
    --------
    >>> curve_kind("roc").family
    'score'
    """
    if name in CURVES:
        return CURVES[name]
    if match := _BINS.fullmatch(name):
        return _of_bins(int(match[1]), equal_count=bool(match[2]))
    raise OptionError(
        f"there is no curve {name!r}; there are {', '.join(CURVES)}, reliability@B and reliability@B/equal_count"
    )


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
    >>> from streameval.metrics.protocol import Sizes
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


_MOST_BINS = 10_000

LEVELS = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)

_NO_NUMBERS = "no numbers in the column"
_ESTIMATE = "a sketch estimates quantiles; no interval is certain"


@dataclass(frozen=True)
class ScoreRange(Metric["ScoreBins", "ScorePart", tuple[float, float], "State"]):
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

    def combine(self, partials: Sequence[tuple[float, float]], state: State) -> ScoreBins:
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
class ScoreBins(Metric["Distribution", "ScorePart", "tuple[Array, Array, Array]", "State"]):
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
        return np.unique(self.low * (1 - share) + self.high * share)

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

    def combine(self, partials: Sequence[tuple[Array, Array, Array]], state: State) -> Distribution:
        """The distribution of all parts."""
        total = state.totals()
        counts, outside, doubt = (
            np.ldexp(np.sum(side, axis=0).astype(float), total.unit) for side in zip(*partials, strict=True)
        )
        outside, loose = tuple(outside.tolist()), float(doubt[0])
        return Distribution(state.spec.column, self.edges, counts[0], counts[1], outside, loose, total.weighted)


def _at(scores: Array, edges: Array) -> Array:
    """The bin of each score; −1 below the first, the number of bins above the last."""
    at: Array = np.searchsorted(edges, scores, side="right") - 1
    at[scores == edges[-1]] = edges.size - 2
    return at


@dataclass(frozen=True)
class Quantile(Metric[Scalar, "QuantileSketch", "QuantileSketch", "QuantileSketch"]):
    """A quantile of a column.

    Attributes
    ----------
    q : level in [0, 1]

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval.evaluation import evaluate
    >>> scores = np.random.default_rng(0).random(10_000)
    >>> found = evaluate(pa.table({"label": scores > 0.9, "score": scores}), sketch="score")
    >>> round(found.value("quantile@0.25"), 3), round(float(np.quantile(scores, 0.25)), 3)
    (0.248, 0.248)
    """

    q: float
    family: str = "sketch"

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise OptionError(f"quantile@{self.q:g}: a quantile has a level in [0, 1], such as quantile@0.5")

    @property
    def name(self) -> str:
        """``quantile@0.5``; a level of more digits in full."""
        return f"quantile@{self.q if float(f'{self.q:g}') != self.q else format(self.q, 'g')}"

    def partial(self, part: QuantileSketch) -> QuantileSketch:
        """The sketch itself."""
        return part

    def combine(self, partials: Sequence[QuantileSketch], state: QuantileSketch) -> Scalar:
        """The estimate; exact at both ends."""
        if not state.count:
            return Scalar.undefined(self.name, _NO_NUMBERS)
        value = float(state.quantile(self.q))
        if self.q in (0, 1):
            return Scalar.certain(self.name, value)
        return Scalar(self.name, value, exact=False, reason=_ESTIMATE)
