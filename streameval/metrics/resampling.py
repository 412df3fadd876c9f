"""Resampling: estimates of the metrics of a state from the rows that remain without each block.

A state is *resampled* if it can return the state without a block (`Resampled`). Replicates are finalized with the same
metrics, except that a number of points such as the k of ``precision@k`` shrinks with the rows. Values come from the
exact state; only replicates are computed here.

Metrics that one place of the ranking decides, points and truncated areas, need fine bins around it, and are not smooth
in the rows if these set the place. Their blocks are merged to `FEW_BLOCKS`, and points have no interval if too few
units lie beyond. With one grid for all, truncated areas over campaigns of one score each had standard errors that were
off by up to 68 %. No metric has an interval if a grid is too coarse for the rows that determine it: those around its
place, or ties within bins. The catalogue states for each metric which of this applies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streameval.metrics.catalogue import at_one_place, entry_of
from streameval.metrics.estimates import SCALES, Estimate, at_end
from streameval.metrics.left_out import SplitState
from streameval.metrics.protocol import Entry, Exact, Metric
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.delong import GRID_CHECK
from streameval.metrics.scores.ranking import OfRankings
from streameval.metrics.units import Sizes, class_counts, effective_units, too_few
from streameval.results import FEW_UNITS, Scalar
from streameval.states.scores.blocks import FEW_BLOCKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.states.protocol import Source, Totals
    from streameval.typing import Array

    Job = Callable[[], tuple[Source, Sequence[Metric]]]  # makes a state, with the metrics to compute of it
    Finalize = Callable[[Sequence[Job]], list[list[Scalar]]]

_HALF_BIN = 2  # rows that are one tie may lie twice as far from the middle of their bin as they are displaced
_SHARE_OF = {"tpr": "positives", "recall": "positives", "fpr": "negatives"}
_FAR = 5  # standard errors that a maximum must lie from what a useless score has


class Resampled(Protocol):
    """A state that can leave out each of its blocks."""

    @property
    def sizes(self) -> Sizes:
        """Measure of each block by kind, `rows` among them."""

    @property
    def without(self) -> Callable[[int], Source]:
        """From a block to a state of the rows of all others, for the metrics of the family."""


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


def refused(value: Scalar, unit: str, reason: str) -> Estimate:
    """An estimate that has no interval, for a reason."""
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
    found = {i: refused(values[i], unit, kind.no_interval) for i, kind in enumerate(kinds) if kind.no_interval}
    rowwise = {i: kind.rowwise for i, kind in enumerate(kinds) if kind.rowwise and resampled.sizes.single}
    rest = [i for i in range(len(kinds)) if i not in found]
    grid = resampled if isinstance(resampled, BlockReplicates) and rest else None
    reason = grid.certified(exact) if grid else None
    tied = _tied(grid, values, metrics, kinds, rows, finalize) if grid and not reason else {}
    for split, rough, at in _groups(values, metrics, kinds, rows, resampled, exact):
        some = [metrics[i] for i in at]
        replicates, whole = _replicates(some, rows, split, finalize)
        displaced = split.displaced() if rough and not reason and isinstance(split, BlockReplicates) else ()
        moved = [_squares(_replicates(some, rows, other, finalize)[0], replicates) for other in displaced]
        doubts = np.sqrt(sum(moved, np.zeros_like(replicates)) / max(1, len(moved)))
        for row, own, doubt, i in zip(replicates, whole.tolist(), doubts, at, strict=True):
            sizes, kind = split.sizes.of(kinds[i].units), kinds[i]
            doubt = np.hypot(doubt, tied.get(i, 0.0))
            ends = kind.low, kind.high
            estimate = Estimate(values[i], row, sizes, kind.scale, reason, own, bounds=ends, doubt=doubt)
            found[i] = replace(estimate, reason=reason or _reason(estimate, metrics[i], kind, split))
            if values[i].value in (SCALES[kind.scale].low, SCALES[kind.scale].high):
                found[i] = replace(found[i], end_units=_end_units(kind, split.sizes))
    for i, error in zip(rowwise, exact(list(rowwise.values())) if rowwise else [], strict=True):
        if error.value > 0:  # the standard error follows from the exact state where each row is a unit
            found[i] = replace(found[i], known=error.value)
    return [found[i] for i in range(len(metrics))]


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
        if value.value in (SCALES[kind.scale].low, SCALES[kind.scale].high):
            found[i] = replace(found[i], end_units=_end_units(kind, sizes))
    return found


def _end_units(kind: Entry, sizes: Sizes) -> float:
    """The effective units of which none misses where a metric is at its end; NaN if they do not bound it."""
    if kind.rowwise is not None:  # a ROC AUC, or twice that
        return sizes.governing[0]
    if kind.thresholded:  # the threshold is an estimate as well
        return math.nan
    return sizes.effective.get(_SHARE_OF.get(kind.name.partition("@")[0], ""), math.nan)


def _groups(
    values: Sequence[Scalar],
    metrics: Sequence[Metric],
    kinds: Sequence[Entry],
    rows: int,
    resampled: Resampled,
    exact: Exact,
) -> Iterator[tuple[Resampled, bool, list[int]]]:
    """Metrics that share replicates, by their places, and whether one place of the ranking determines them.

    One does for operating points and truncated areas; for areas of all rows and optima it has little influence.
    """
    ranked = isinstance(resampled, SplitState | BlockReplicates)
    groups: dict[tuple[bool, bool], list[int]] = {}
    for i, (value, metric, kind) in enumerate(zip(values, metrics, kinds, strict=True)):
        if not kind.no_interval:
            near = value.threshold is not None or metric.points(rows) is not None
            rough = at_one_place(metric, rows)
            groups.setdefault((near, rough) if ranked else (False, False), []).append(i)
    for (near, rough), at in groups.items():
        split = resampled
        if rough and isinstance(split, SplitState | BlockReplicates):
            split = split.merged(FEW_BLOCKS)
        if near and isinstance(split, BlockReplicates):
            split = split.focused([values[i] for i in at], [metrics[i] for i in at], exact)
        yield split, rough, at


def _kind(metric: Metric) -> Entry:
    """The row of a metric in the catalogue; a user's own metric is smooth, and its interval symmetric."""
    return entry_of(metric.name) or Entry(metric.name, "", "", False, -math.inf, math.inf, None, "", "", scale="plain")


def _replicates(metrics: Sequence[Metric], rows: int, split: Resampled, finalize: Finalize) -> tuple[Array, Array]:
    """Values without each block, as a float64 array of shape (n_metrics, n_blocks), and those of all rows on the grid.

    NaN if the block has no rows, and infinite if the value is undefined; NaN for all rows if there is no grid.
    """
    there = split.sizes.counts["rows"]
    blocks = np.flatnonzero(there).tolist()
    grid = split if isinstance(split, BlockReplicates) else None
    rankings = grid.rankings(blocks) if grid else None
    makers = [partial(split.without, block) for block in blocks] + ([grid.total] if grid else [])

    def job(make: Callable[[], Source], some: Sequence[Metric]) -> tuple[Source, list[Metric]]:
        state = make()  # a number of points stays the same share of its rows
        cut = [bool(rows) and metric.points(rows) is not None for metric in some]
        return state, [m.shrunk(state.totals().rows / rows) if c else m for m, c in zip(some, cut, strict=True)]

    table = np.full((len(makers), len(metrics)), math.nan)
    others = []
    for i, metric in enumerate(metrics):
        if rankings is not None and isinstance(metric, OfRankings) and metric.points(rows) is None:
            table[:, i] = metric.of_rankings(rankings)
        else:
            others.append(i)
    if others and makers:
        some = [metrics[i] for i in others]
        table[:, others] = [[value.value for value in row] for row in finalize([partial(job, m, some) for m in makers])]
    replicates = np.full((len(metrics), there.size), math.nan)
    without = table[: len(blocks)].T
    replicates[:, blocks] = np.where(np.isnan(without), math.inf, without)
    return replicates, table[-1] if grid else np.full(len(metrics), math.nan)


def _tied(
    grid: BlockReplicates,
    values: Sequence[Scalar],
    metrics: Sequence[Metric],
    kinds: Sequence[Entry],
    rows: int,
    finalize: Finalize,
) -> dict[int, Array]:
    """How far replicates of areas, by place, may be off where a block's rows are ties anywhere in their bins.

    An area depends on the whole ranking, so that no single place in it decides the value.
    """
    doubts: dict[int, Array] = {}
    for truncated in (False, True):
        areas = [
            i
            for i, (value, kind) in enumerate(zip(values, kinds, strict=True))
            if not (kind.no_interval or kind.beyond or value.threshold is not None)
            and (metrics[i].points(rows) is not None) == truncated
        ]
        some = [metrics[i] for i in areas]
        split = grid.merged(FEW_BLOCKS) if truncated else grid
        moved = [_replicates(some, rows, other, finalize) for other in (split.tied(some) if areas else ())]
        squares = [_squares(replicates, whole[:, None]) for replicates, whole in moved]
        if squares:
            doubts |= zip(areas, _HALF_BIN * np.sqrt(sum(squares) / len(squares)), strict=True)
    return doubts


def _squares(moved: Array, around: Array) -> Array:
    """Squares of how far values have moved; 0 where one is not there, infinite where it has become undefined."""
    with np.errstate(invalid="ignore"):
        squares: Array = np.nan_to_num(np.square(moved - around), nan=0.0, posinf=math.inf)
    return squares


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
    if not isinstance(split, SplitState | BlockReplicates):
        return math.inf
    above = split.beyond(threshold)[kind.beyond]
    sides = [above, split.sizes.counts[kind.beyond] - above] if kind.beyond == "positives" else [above]
    if split.sizes.single:
        return min(float(side.sum()) for side in sides)
    return min(effective_units(side) if side.any() else 0.0 for side in sides)
