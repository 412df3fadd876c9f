"""Resampling: estimates of the metrics of a state from the rows that remain without each block.

A state is *resampled* if it can return the state without a block (`Resampled`). Replicates are finalized with the same
metrics, except that a number of points such as the k of ``precision@k`` shrinks with the rows. Values come from the
exact state; only replicates are computed here.

Thresholded metrics are not smooth in the rows. Their blocks are merged to `FEW_BLOCKS`, and they have no interval if
too few units lie beyond the threshold. No metric has an interval if a grid is too coarse for the rows that determine
it: those around its threshold, or ties within bins. The catalogue states for each metric which of this applies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from streameval.metrics.catalogue import entry_of
from streameval.metrics.estimates import Estimate, at_end
from streameval.metrics.finalize import computed
from streameval.metrics.protocol import Entry
from streameval.metrics.scores.sampling.delong import GRID_CHECK
from streameval.metrics.units import Sizes, class_counts, effective_units, too_few
from streameval.results import FEW_UNITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.metrics.scores.sampling.rankings import Ranking
    from streameval.results import Scalar
    from streameval.states.protocol import Totals
    from streameval.typing import Array

    Job = Callable[[], tuple[Any, Sequence[Metric]]]  # makes a state, with the metrics to compute of it
    Finalize = Callable[[Sequence[Job]], list[list[Scalar]]]
    Exact = Callable[[Sequence[Metric]], list[Scalar]]

FEW_BLOCKS = 32  # of thresholded metrics
_HALF_BIN = 2  # rows that are one tie may lie twice as far from the middle of their bin as they are displaced
_FAR = 5  # standard errors that a maximum must lie from what a useless score has


class Resampled(Protocol):
    """A state that can leave out each of its blocks."""

    @property
    def sizes(self) -> Sizes:
        """Measure of each block by kind, `rows` among them."""

    def without(self, block: int) -> Any:
        """A state of the rows of all other blocks, for the metrics of the family."""

    @property
    def thresholded(self) -> Thresholded | None:
        """The same where metrics may depend on the rows beyond a threshold; else None."""
        return None

    @property
    def rows_by_block(self) -> Array | None:
        """Rows of each block by label, those without a score included: int64 array of shape (n_blocks, 2), or None."""
        return None

    def rankings(self, blocks: Sequence[int], *, whole: bool) -> Sequence[Ranking] | None:
        """`without` some blocks, and last the `total`, from one loop for metrics of areas alone; None without one."""
        return None


class Thresholded(Resampled, Protocol):
    """A state whose metrics may depend on the rows beyond a threshold."""

    @property
    def thresholded(self) -> Thresholded:
        """Itself."""
        return self

    def merged(self, count: int) -> Thresholded:
        """The same rows in fewer blocks, block b in b modulo `count`."""

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """Measure of the rows of each block that score at or above a threshold, by kind as the counts of `sizes`."""

    def total(self) -> Any:
        """A state of all rows, where it is not the exact one that the values come from; else None."""
        return None

    def focused(self, values: Sequence[Scalar], metrics: Sequence[Metric], exact: Exact) -> Thresholded:
        """The same with more detail around the thresholds of metrics; itself if it has every score."""
        return self

    def displaced(self) -> Sequence[Thresholded]:
        """The same with rows one standard deviation from where they are taken to be; empty where that is known."""
        return ()

    def tied(self, metrics: Sequence[Metric]) -> Sequence[Thresholded]:
        """All rows, with what a block has of a bin beyond its share in one half of it; empty where places are known."""
        return ()

    def certified(self, exact: Exact) -> str | None:
        """Why the replicates are too inaccurate; None if they pass. `exact` finalizes metrics of the exact state."""
        return None


def certificates(metrics: Sequence[Metric], *, coarse: bool, single: bool) -> tuple[Metric, ...]:
    """The metrics of the exact state that `estimates` needs, to be finalized together with those requested.

    Parameters
    ----------
    metrics : the metrics
    coarse : whether replicates come from a coarse grid
    single : whether each row is a unit of weight 1
    """
    kinds = [kind for kind in map(_kind, metrics) if not kind.no_interval]
    rowwise = [kind.rowwise for kind in kinds if kind.rowwise and single]
    return tuple(dict.fromkeys([GRID_CHECK] * bool(coarse and kinds) + rowwise))


def without_replicates(values: Sequence[Scalar], unit: str, reason: str) -> list[Estimate]:
    """Estimates that have no interval, for one reason."""
    return [_refused(value, unit, reason) for value in values]


def _refused(value: Scalar, unit: str, reason: str) -> Estimate:
    return Estimate(value, np.empty(0), Sizes(unit, {}), reason=reason)


def estimates(
    values: Sequence[Scalar],
    metrics: Sequence[Metric],
    rows: int,
    resampled: Resampled,
    finalize: Finalize,
    exact: Exact,
) -> list[Estimate]:
    """The metrics of a state with their replicates.

    Parameters
    ----------
    values : their values, from the exact state
    metrics : the metrics
    rows : rows of the exact state
    resampled : gives the replicates
    finalize : from functions that give a state and its metrics, called one at a time, to the values
    exact : from metrics to their values of the exact state
    """
    kinds, unit = [_kind(metric) for metric in metrics], resampled.sizes.unit
    found = {i: _refused(values[i], unit, kind.no_interval) for i, kind in enumerate(kinds) if kind.no_interval}
    ranked = resampled.thresholded
    exact = _at_once(exact, [kind.rowwise for kind in kinds if kind.rowwise] if resampled.sizes.single else [])
    reason = ranked.certified(exact) if ranked and len(found) < len(kinds) else None
    rest = [i for i in range(len(kinds)) if i not in found]
    every = [(resampled, False, rest)] * bool(rest)
    tied: dict[int, Array] = {}
    for truncated in (False, True) if ranked and not reason else ():
        same = [i for i in rest if (metrics[i].points(rows) is not None) == truncated]
        areas = [i for i in same if _is_area(values[i], kinds[i])]
        tied |= _tied(cast("Thresholded", ranked), areas, metrics, rows, finalize) if areas else {}
    for split, rough, at in _groups(values, metrics, kinds, rows, ranked, exact) if ranked else every:
        some = [metrics[i] for i in at]
        replicates, grid = _replicates(some, rows, split, finalize, whole=ranked is not None)
        displaced = cast("Thresholded", split).displaced() if rough and not reason else ()
        doubts = _doubts(replicates, some, rows, displaced, finalize)
        for row, own, doubt, i in zip(replicates, grid, doubts, at, strict=True):
            sizes, kind = split.sizes.of(kinds[i].units), kinds[i]
            known = (kind.low, kind.high)
            doubt = np.hypot(doubt, tied.get(i, 0.0))
            estimate = Estimate(values[i], row, sizes, kind.scale, reason, own, bounds=known, doubt=doubt)
            found[i] = replace(estimate, reason=reason or _reason(estimate, metrics[i], kind, split))
    if resampled.sizes.single:
        found |= _by_row(found, kinds, exact)
    return [found[i] for i in range(len(metrics))]


def _at_once(exact: Exact, more: Sequence[Metric]) -> Exact:
    """The same function, which also computes what will be needed later, so that the exact state is read once."""
    known: dict[Metric, Scalar] = {}

    def values(metrics: Sequence[Metric]) -> list[Scalar]:
        lacking = [metric for metric in dict.fromkeys((*metrics, *more)) if metric not in known]
        if lacking:
            known.update(zip(lacking, exact(lacking), strict=True))
        return [known[metric] for metric in metrics]

    return values


def _by_row(found: Mapping[int, Estimate], kinds: Sequence[Entry], exact: Exact) -> dict[int, Estimate]:
    """Estimates whose standard error follows from the exact state where each row is a unit."""
    at = [i for i in found if kinds[i].rowwise is not None]
    errors = exact([kinds[i].rowwise for i in at]) if at else []
    known = {i: error.value for i, error in zip(at, errors, strict=True) if error.value > 0}
    return {i: replace(found[i], known=error) for i, error in known.items()}


def by_row(refused: Sequence[Estimate], metrics: Sequence[Metric], totals: Totals, exact: Exact) -> list[Estimate]:
    """Estimates of an unweighted state that has no blocks, each row a unit: counts of scores suffice for a ROC AUC.

    Other values stay `refused`; `exact` takes metrics to their values of the state, whose totals are given.
    """
    counts = {kind: np.array([float(n)]) for kind, n in class_counts(totals.neg, totals.pos).items()}
    sizes, found, kinds = Sizes("row", counts, single=True), list(refused), [_kind(metric) for metric in metrics]
    at = [i for i, kind in enumerate(kinds) if kind.rowwise is not None]
    for i, error in zip(at, exact([kinds[i].rowwise for i in at]) if at else [], strict=True):
        value, kind = refused[i].scalar, kinds[i]
        reason = None if error.value > 0 else error.reason or at_end(value.value)
        found[i] = Estimate(value, np.empty(0), sizes.of(kind.units), kind.scale, reason, known=error.value)
    return found


def _groups(
    values: Sequence[Scalar],
    metrics: Sequence[Metric],
    kinds: Sequence[Entry],
    rows: int,
    resampled: Thresholded,
    exact: Exact,
) -> Iterator[tuple[Resampled, bool, list[int]]]:
    """Metrics that share replicates, by their places, and whether one place of the ranking determines them.

    One does for operating points and truncated areas; for areas of all rows and optima it has little influence.
    """
    groups: dict[tuple[bool, bool, bool], list[int]] = {}
    for i, (value, metric, kind) in enumerate(zip(values, metrics, kinds, strict=True)):
        if not kind.no_interval:
            cut = metric.points(rows) is not None
            near, rough = cut or value.threshold is not None, cut or bool(kind.beyond)
            groups.setdefault((kind.thresholded, near, rough), []).append(i)
    for (few, near, rough), at in groups.items():
        split = resampled.merged(FEW_BLOCKS) if few else resampled
        yield split.focused([values[i] for i in at], [metrics[i] for i in at], exact) if near else split, rough, at


def _kind(metric: Metric) -> Entry:
    """The row of a metric in the catalogue; a user's own metric is smooth, and its interval symmetric."""
    return entry_of(metric.name) or Entry(metric.name, "", "", False, -math.inf, math.inf, None, "", "", scale="plain")


def _replicates(
    metrics: Sequence[Metric], rows: int, split: Resampled, finalize: Finalize, *, whole: bool
) -> tuple[Array, list[float]]:
    """Values without each block, as a float64 array of shape (n_metrics, n_blocks), and those of the whole.

    NaN if the block has no rows, and infinite if the value is undefined; NaN for all rows if that state does not exist
    or was not requested.
    """
    there = split.sizes.counts["rows"]
    found = np.full((len(metrics), there.size), math.nan)
    blocks = np.flatnonzero(there)
    state = cast("Thresholded", split).total() if whole else None
    total = state is not None
    rankings = split.rankings(blocks.tolist(), whole=total)
    areas = [i for i, metric in enumerate(metrics) if rankings is not None and _kind(metric).needs != "groups"]
    alone = [i for i in range(len(metrics)) if i not in areas]
    of_areas, others = ([metrics[i] for i in at] for at in (areas, alone))
    makers = [partial(split.without, block) for block in blocks.tolist()] + [lambda: state] * total
    values = [computed(ranking, of_areas) for ranking in rankings or ()] if areas else []
    columns: dict[int, list[float]] = {i: [row[k].value for row in values] for k, i in enumerate(areas)}
    values = finalize([partial(_job, make, others, rows) for make in makers]) if alone else []
    columns |= {i: [row[k].value for row in values] for k, i in enumerate(alone)}
    grid = [columns[i].pop() if total else math.nan for i in range(len(metrics))]
    if blocks.size:
        known = np.array([columns[i] for i in range(len(metrics))])
        found[:, blocks] = np.where(np.isnan(known), math.inf, known)
    return found, grid


def _doubts(
    replicates: Array, metrics: Sequence[Metric], rows: int, displaced: Sequence[Resampled], finalize: Finalize
) -> Array:
    """How far replicates may be off, an array of their shape: how far they change where rows are displaced."""
    squares = np.zeros_like(replicates)
    for split in displaced:
        moved, _ = _replicates(metrics, rows, split, finalize, whole=False)
        squares += _squares(moved, replicates)
    return np.sqrt(squares / max(1, len(displaced)))


def _is_area(value: Scalar, kind: Entry) -> bool:
    """Whether a value depends on the whole ranking, so that no single place in it decides the value."""
    return not (kind.thresholded or kind.beyond or value.threshold is not None)


def _tied(
    ranked: Thresholded, areas: Sequence[int], metrics: Sequence[Metric], rows: int, finalize: Finalize
) -> dict[int, Array]:
    """How far replicates of areas, by place, may be off where a block's rows are ties anywhere in their bins."""
    some, found = [metrics[i] for i in areas], np.zeros((len(areas), ranked.sizes.counts["rows"].size))
    splits = ranked.tied(some)
    for split in splits:
        moved, grid = _replicates(some, rows, split, finalize, whole=True)
        found += _squares(moved, np.array(grid)[:, None])
    return dict(zip(areas, _HALF_BIN * np.sqrt(found / max(1, len(splits))), strict=True))


def _squares(moved: Array, around: Array) -> Array:
    """Squares of how far values have moved; 0 where one is not there, infinite where it has become undefined."""
    with np.errstate(invalid="ignore"):
        squares: Array = np.nan_to_num(np.square(moved - around), nan=0.0, posinf=math.inf)
    return squares


def _job(make: Callable[[], Any], metrics: Sequence[Metric], rows: int) -> tuple[Any, list[Metric]]:
    state = make()
    return state, [_shrunk(metric, state, rows) for metric in metrics]


def _shrunk(metric: Metric, state: Any, rows: int) -> Metric:
    """The metric of a replicate: a number of points stays the same share of the rows."""
    return metric if not rows or metric.points(rows) is None else metric.shrunk(state.totals().rows / rows)


def _reason(estimate: Estimate, metric: Metric, kind: Entry, split: Resampled) -> str | None:
    """Why a metric has no interval, beyond what its replicates say."""
    value = estimate.scalar
    if value.value in (kind.low, kind.high):
        return at_end(value.value)
    if not estimate.deviations.any():
        return "the value is the same without any block"
    if not math.isnan(value.value):
        units = units_beyond(value.threshold, kind, split)
        if units < FEW_UNITS:
            return too_few(units, f"{kind.beyond} ({split.sizes.unit}) beyond the threshold", str(FEW_UNITS))
    if kind.useless and abs(value.value - kind.useless(metric, split.sizes)) < _FAR * estimate.stderr:
        return f"the value is within {_FAR} standard errors of that of a useless score"
    return None


def units_beyond(threshold: float | None, kind: Entry, split: Resampled) -> float:
    """Effective units beyond a threshold, of those that decide a metric; of positives on the side that has fewer.

    Infinite where no threshold decides it.
    """
    if not kind.beyond or threshold is None:
        return math.inf
    above = cast("Thresholded", split).beyond(threshold)[kind.beyond]
    sides = [above, split.sizes.counts[kind.beyond] - above] if kind.beyond == "positives" else [above]
    if split.sizes.single:
        return min(float(side.sum()) for side in sides)
    return min(effective_units(side) if side.any() else 0.0 for side in sides)
