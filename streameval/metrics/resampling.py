"""Resampling: estimates of the metrics of a state from the rows that remain without each block.

A state is *resampled* if it can return the state without a block (`Resampled`). Replicates are finalized with the same
metrics, except that a number of points such as the k of ``precision@k`` shrinks with the rows. Values come from the
exact state; only replicates are computed here.

Metrics that one place of the ranking decides, points and truncated areas, need fine bins around it, and are not smooth
in the rows if these set the place. Their blocks are merged to `FEW_BLOCKS`, and points have no interval if too few
units lie beyond. With one grid for all, truncated areas over campaigns of one score each had standard errors that were
off by up to 68 %. No metric has an interval if a grid is too coarse for the rows that determine it: those around its
place, or ties within bins. The catalogue states for each metric which of this applies.

Exact replicates: states that were split by block and give the state without each block.

- A score with ``--resample-bins exact`` keeps every score of each block (`SplitState`).
- Of clusters, and of clusters against classes, one sweep over a state yields its replicates and its value.
- Of means over groups, the groups are the units: a group, such as a user, lies in one block, by the keyed hash of its
  id (`streameval.states.grouped.keys.Blocks`). A mean is Σ w·A / Σ w, so one sweep that adds up both sums by block
  gives all replicates. Values A are truncated to multiples of 2⁻³⁰, so that sums are integers and independent of the
  order of the groups; this changes a replicate by at most 10⁻⁹. Groups without both classes have no value and are in no
  block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from streameval.metrics.catalogue import at_one_place, entry_of
from streameval.metrics.estimates import SCALES, Estimate, at_end
from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Entry, Exact, Metric, ShardMetric, Sizes, class_counts, effective_units, too_few
from streameval.metrics.scores.block_replicates import BlockReplicates
from streameval.metrics.scores.group_means import Fragment, GroupMean, GroupValues, merge_cut_groups, value_of
from streameval.metrics.scores.ranking import GRID_CHECK
from streameval.metrics.scores.sums import BITS, MeanOfRows, OfRankings, Rankings
from streameval.results import FEW_UNITS, Scalar
from streameval.states.blocks import BLOCKS, SizeChanges, blocks_of
from streameval.states.cluster_sizes import SizeState
from streameval.states.scores.blocks import FEW_BLOCKS
from streameval.states.scores.types import halved, round_thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.metrics.scores.sums import RankSums
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.contingency.class_blocks import ClassReplicates
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.spec import BlockedClusters
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Source, State, Totals
    from streameval.states.rounds import Mapper
    from streameval.states.scores.groups import GroupPart
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

    Job = Callable[[], tuple[Source, Sequence[Metric]]]  # makes a state, with the metrics to compute of it
    Finalize = Callable[[Sequence[Job]], list[list[Scalar]]]


@dataclass(frozen=True)
class LeftOut:
    """Gives the state without each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    sizes : measure of each block
    without : from a block to the state of all others
    """

    sizes: Sizes
    without: Callable[[int], Any]


@dataclass(frozen=True)
class SweepClusters(ShardMetric["SizeChanges", "SizeChanges", "ClusterCounts | BlockedClusters"]):
    """A metric whose value is the `SizeChanges` of a state with clusters."""

    name: str = "size changes"

    def read(self, state: ClusterCounts | BlockedClusters, shard: Interval, budget: Budget | None) -> SizeChanges:
        """The changes of a shard."""
        changes: SizeChanges = state.by_block(shard, budget)
        return changes

    def combine(self, partials: Sequence[SizeChanges], state: ClusterCounts | BlockedClusters) -> SizeChanges:
        """The tables of all shards."""
        return SizeChanges.union(partials)


def without_rows(changes: SizeChanges, unit: str, units: int | None = None) -> LeftOut:
    """The size table of clusters without the rows of each block.

    Parameters
    ----------
    changes : of the size table
    unit : what is drawn together
    units : number of units; None where it is not known
    """
    counts = class_counts(changes.rows - changes.positives, changes.positives)
    return LeftOut(Sizes(unit, counts, units), lambda block: SizeState(changes.without(block)))


def without_classes(replicates: ClassReplicates, unit: str) -> LeftOut:
    """The summary of a table without the classes of each block, whose pair counts go with their squared sizes."""
    counts = {"rows": replicates.rows, "pairs": replicates.squared_sizes}
    return LeftOut(Sizes(unit, counts, replicates.summary.classes.count), replicates.without)


@dataclass(frozen=True)
class _Ranked(Metric["tuple[Array, Array]", "ScorePart", "tuple[Array, Array]", "State"]):
    """A metric whose value is all scores from the worst to the best, and the measure at or above each.

    The measure is a float64 array of shape (2, n_groups + 1), of negatives and positives; its last column is 0.
    """

    name: str = "ranking"

    def partial(self, part: ScorePart) -> tuple[Array, Array]:
        """The scores of one part, and the measure of both classes."""
        return part.scores, np.stack((part.n, part.p)).astype(np.float64)

    def combine(self, partials: Sequence[tuple[Array, Array]], state: State) -> tuple[Array, Array]:
        """All scores in order."""
        parts = [(np.empty(0), np.zeros((2, 0))), *partials]
        scores, measure = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        order = np.argsort(scores)
        above = np.cumsum(measure[:, order[::-1]], axis=1)[:, ::-1]
        return scores[order], np.ldexp(np.pad(above, ((0, 0), (0, 1))), state.totals().unit)


@dataclass(frozen=True)
class SplitState:
    """A score state that is split by block.

    Attributes
    ----------
    grouped : the state, split by `streameval.states.grouped.keys.Blocks`
    unit : the sampling unit: a column, or ``row``
    count : number of blocks; block b of the state is in block b modulo this
    single : whether each row is a unit of weight 1
    """

    grouped: Grouped
    unit: str
    count: int
    single: bool = False

    @cached_property
    def sizes(self) -> Sizes:
        """Measure of the rows of each block, with missing scores that count as halves."""
        found = np.zeros((2, self.count))
        for block in self.grouped.groups():
            state = self.grouped.only(block)
            for totals in (state.totals(), halved(state)):
                found[:, block % self.count] += np.ldexp([totals.n, totals.p], totals.unit)
        return Sizes(self.unit, class_counts(*found), single=self.single)

    def without(self, block: int) -> State:
        """The state of the rows of all other blocks."""
        return self.grouped.without(*(b for b in self.grouped.groups() if b % self.count == block))

    def merged(self, count: int) -> SplitState:
        """The same rows in fewer blocks."""
        return replace(self, count=count)

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """The measure of the rows of each block that score at or above a threshold."""
        found = np.zeros((2, self.count))
        for block, (kind, (scores, measure)) in self._rankings.items():
            found[:, block % self.count] += measure[:, np.searchsorted(scores, round_thresholds(threshold, kind))]
        return class_counts(*found)

    @cached_property
    def _rankings(self) -> dict[int, tuple[str, tuple[Array, Array]]]:
        """The type of the scores of each block and the scores, read once for the many thresholds of a curve."""
        states = {block: self.grouped.only(block) for block in self.grouped.groups()}
        return {block: (state.spec.type, compute(state, _Ranked())) for block, state in states.items()}


_FINE = 30  # bits of a value
_NEG, _POS, _GROUPS = 2, 3, 4


@dataclass(frozen=True)
class SumsByBlock(Metric["Array", "GroupPart", "tuple[Array, list[tuple[Fragment, int]]]", "State"]):
    """A metric whose value is what each block contributes to a mean over groups.

    That is an int64 array of shape (5, n_blocks): Σ w·A in units of 2⁻³⁰, Σ w, negatives, positives and groups.

    Attributes
    ----------
    mean : the mean
    """

    mean: GroupMean

    @property
    def name(self) -> str:
        """The name of the mean."""
        return self.mean.name

    def partial(self, part: GroupPart) -> tuple[Array, list[tuple[Fragment, int]]]:
        """Sums of the whole groups of a part, and those that are cut, each with its block."""
        sums = np.zeros((5, BLOCKS), np.int64)
        values, blocks = GroupValues.of(self.mean.inner, part), blocks_of(part.ids, BLOCKS)
        cut = list(zip(values.fragments, blocks[part.cut].tolist(), strict=True))
        whole = np.delete(blocks, part.cut)[values.defined]
        self._add(sums, whole, *(column[values.defined] for column in (values.neg, values.pos, values.words)))
        return sums, cut

    def _add(self, sums: Array, blocks: Array, neg: Array, pos: Array, words: Array) -> None:
        """Add groups, given by arrays of shape (n_groups,), to the sums of their blocks."""
        weights = self.mean.weights(neg, pos)
        for row, values in enumerate((weights * (words >> (BITS - _FINE)), weights, neg, pos, np.ones_like(neg))):
            np.add.at(sums[row], blocks, values)

    def combine(self, partials: Sequence[tuple[Array, list[tuple[Fragment, int]]]], state: State) -> Array:
        """The sums of all parts."""
        sums = np.sum([np.zeros((5, BLOCKS), np.int64), *(part for part, _ in partials)], axis=0)
        pairs = [pair for _, cut in partials for pair in cut]
        blocks = {fragment.group: block for fragment, block in pairs}
        for whole in merge_cut_groups(fragment for fragment, _ in pairs):
            if (word := value_of(self.mean.inner, whole)) is not None:
                self._add(sums, *(np.array([x]) for x in (blocks[whole.group], whole.neg, whole.pos, word)))
        return np.asarray(sums)


def without_groups(sums: Mapping[str, Array], unit: str) -> LeftOut:
    """The means of all groups but those of each block, by name; NaN where there is no group.

    Parameters
    ----------
    sums : the values of `SumsByBlock` by the name of the mean
    unit : the column of groups
    """
    first = next(iter(sums.values()))

    def without(block: int) -> dict[str, float]:
        rest = {name: [sum(row.tolist()) - int(row[block]) for row in each[:2]] for name, each in sums.items()}
        return {name: total / weight / (1 << _FINE) if weight else math.nan for name, (total, weight) in rest.items()}

    return LeftOut(Sizes(unit, class_counts(first[_NEG], first[_POS]), int(first[_GROUPS].sum())), without)


_HALF_BIN = 2  # rows that are one tie may lie twice as far from the middle of their bin as they are displaced
_SHARE_OF = {"tpr": "positives", "recall": "positives", "fpr": "negatives"}
_FAR = 5  # standard errors that a maximum must lie from what a useless score has
_TOGETHER = 16  # states whose rankings are summed per task


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


class Sampled(NamedTuple):
    """A state whose metrics are to have replicates.

    Attributes
    ----------
    values : values of the metrics, from the exact state
    metrics : the metrics
    rows : rows of the exact state
    resampled : gives the replicates
    exact : from metrics to their values of the exact state
    """

    values: Sequence[Scalar]
    metrics: Sequence[Metric]
    rows: int
    resampled: Resampled
    exact: Exact


def estimates(states: Sequence[Sampled], finalize: Finalize, each: Mapper) -> list[list[Estimate]]:
    """The metrics of some states, such as slices, with their replicates; those of all states are computed together.

    Parameters
    ----------
    states : the states
    finalize : from functions that give a state and its metrics, called one at a time, to the values
    each : maps a function over items
    """
    plans = [_Plan.of(state) for state in states]
    found = iter(_replicates([job for plan in plans for job in plan.jobs], finalize, each))
    return [plan.estimates(found) for plan in plans]


class _Job(NamedTuple):
    """Some metrics of a state, by their places, whose values without each block are to be computed from a split."""

    state: Sampled
    split: Resampled
    at: Sequence[int]

    @property
    def metrics(self) -> list[Metric]:
        """The metrics."""
        return [self.state.metrics[i] for i in self.at]

    @property
    def ranked(self) -> dict[int, OfRankings]:
        """The metrics of whole rankings that are computed of all states at once, by their number."""
        if not (isinstance(self.split, BlockReplicates) and self.split.ranked):
            return {}
        whole = {k: m for k, m in enumerate(self.metrics) if m.points(self.state.rows) is None}
        return {k: metric for k, metric in whole.items() if isinstance(metric, OfRankings)}

    def without(self, make: Callable[[], Source], some: Sequence[Metric]) -> tuple[Source, list[Metric]]:
        """A state with a block left out, and metrics of it: a number of points stays the same share of the rows."""
        left, rows = make(), self.state.rows
        cut = [bool(rows) and metric.points(rows) is not None for metric in some]
        return left, [m.shrunk(left.totals().rows / rows) if c else m for m, c in zip(some, cut, strict=True)]


@dataclass(frozen=True)
class _Plan:
    """How the metrics of a state get their replicates.

    Attributes
    ----------
    state : the state
    kinds : the rows of the metrics in the catalogue
    reason : why the grid cannot be used
    groups : metrics that share replicates; of the same, with rows displaced within bins
    tied : areas, with the rows that a block has in a bin as ties in one and in the other half of it
    """

    state: Sampled
    kinds: Sequence[Entry]
    reason: str | None
    groups: Sequence[tuple[_Job, Sequence[_Job]]]
    tied: Sequence[Sequence[_Job]]

    @classmethod
    def of(cls, state: Sampled) -> _Plan:
        """The plan of a state; the grid of its blocks is checked first."""
        kinds, split = [_kind(metric) for metric in state.metrics], state.resampled
        given = any(not kind.no_interval for kind in kinds)
        grid = split if isinstance(split, BlockReplicates) and given else None
        reason = grid.certified(state.exact) if grid else None
        groups = []
        for own, rough in _groups(state, kinds):
            moved = own.split.displaced() if rough and not reason and isinstance(own.split, BlockReplicates) else ()
            groups.append((own, [own._replace(split=other) for other in moved]))
        return cls(state, kinds, reason, groups, _tie_areas(state, kinds, grid) if grid and not reason else [])

    @property
    def jobs(self) -> Iterator[_Job]:
        """What to compute, in the order in which `estimates` takes it."""
        for own, displaced in self.groups:
            yield from (own, *displaced)
        for moved in self.tied:
            yield from moved

    def estimates(self, found: Iterator[tuple[Array, Array]]) -> list[Estimate]:
        """The metrics with their replicates; `found` gives those of each job."""
        values, metrics, _, resampled, exact = self.state
        kinds, unit = self.kinds, resampled.sizes.unit
        groups = [(own, next(found), [next(found)[0] for _ in displaced]) for own, displaced in self.groups]
        tied: dict[int, Array] = {}
        for moved in self.tied:
            squares = [_squares(replicates, whole[:, None]) for replicates, whole in (next(found) for _ in moved)]
            tied |= zip(moved[0].at, _HALF_BIN * np.sqrt(sum(squares) / len(squares)), strict=True)
        done = {i: refused(values[i], unit, kind.no_interval) for i, kind in enumerate(kinds) if kind.no_interval}
        for job, (replicates, whole), displaced in groups:
            moves = [_squares(other, replicates) for other in displaced]
            doubts = np.sqrt(sum(moves, np.zeros_like(replicates)) / max(1, len(moves)))
            for row, own, doubt, i in zip(replicates, whole.tolist(), doubts, job.at, strict=True):
                sizes, kind = job.split.sizes.of(kinds[i].units), kinds[i]
                doubt = np.hypot(doubt, tied.get(i, 0.0))
                ends = kind.low, kind.high
                estimate = Estimate(values[i], row, sizes, kind.scale, self.reason, own, bounds=ends, doubt=doubt)
                if not self.reason and (reason := _reason(estimate, metrics[i], kind, job.split)):
                    estimate = replace(estimate, reason=reason)
                done[i] = estimate
                if values[i].value in (SCALES[kind.scale].low, SCALES[kind.scale].high):
                    done[i] = replace(done[i], end_units=_end_units(kind, job.split.sizes))
        rowwise = {i: kind.rowwise for i, kind in enumerate(kinds) if kind.rowwise and resampled.sizes.single}
        for i, error in zip(rowwise, exact(list(rowwise.values())) if rowwise else [], strict=True):
            if error.value > 0:  # the standard error follows from the exact state where each row is a unit
                done[i] = replace(done[i], known=error.value)
        return [done[i] for i in range(len(metrics))]


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


def _groups(state: Sampled, kinds: Sequence[Entry]) -> Iterator[tuple[_Job, bool]]:
    """Metrics that share replicates, and whether one place of the ranking determines them.

    One does for operating points and truncated areas; for areas of all rows and optima it has little influence.
    """
    values, metrics, rows, resampled, exact = state
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
        yield _Job(state, split, at), rough


def _kind(metric: Metric) -> Entry:
    """The row of a metric in the catalogue; a user's own metric is smooth, and its interval symmetric."""
    return entry_of(metric.name) or Entry(metric.name, "", "", False, -math.inf, math.inf, None, "", "", scale="plain")


def _replicates(jobs: Sequence[_Job], finalize: Finalize, each: Mapper) -> list[tuple[Array, Array]]:
    """For each job values without each block, a float64 array of shape (n_metrics, n_blocks), and of all on the grid.

    NaN if the block has no rows, and infinite if the value is undefined; NaN for all rows if there is no grid.
    """
    rows = [job.split.sizes.counts["rows"] for job in jobs]
    tables = [np.full((len(job.at), blocks.size + 1), math.nan) for job, blocks in zip(jobs, rows, strict=True)]
    ranked = _fill_ranked(jobs, tables, each)
    makers: list[Job] = []
    places: list[tuple[Array, Array, int]] = []
    for job, blocks, table, done in zip(jobs, rows, tables, ranked, strict=True):
        metrics, split = job.metrics, job.split
        others = np.array([k for k in range(len(metrics)) if k not in done], np.int64)
        some = [metrics[k] for k in others.tolist()]
        due: list[tuple[int, Callable[[], Source]]] = [
            (block, partial(split.without, block)) for block in np.flatnonzero(blocks).tolist() if some
        ]
        if some and isinstance(split, BlockReplicates):
            due.append((-1, split.total))
        makers += [partial(job.without, make, some) for _, make in due]
        places += [(table, others, block) for block, _ in due]
    for (table, others, block), values in zip(places, finalize(makers) if makers else [], strict=True):
        table[others, block] = [value.value for value in values]
    found = []
    for table, blocks in zip(tables, rows, strict=True):
        replicates = np.where(np.isnan(table[:, :-1]), math.inf, table[:, :-1])
        replicates[:, blocks == 0] = math.nan
        found.append((replicates, table[:, -1]))
    return found


def _fill_ranked(jobs: Sequence[_Job], tables: Sequence[Array], each: Mapper) -> list[dict[int, OfRankings]]:
    """Fill in the metrics of whole rankings, of all states at once; returns those of each job."""
    ranked = [job.ranked for job in jobs]
    due = [i for i, some in enumerate(ranked) if some]
    metrics = list(dict.fromkeys(metric for some in ranked for metric in some.values()))
    means = [metric for metric in metrics if isinstance(metric, MeanOfRows)]

    def rank(some: Sequence[int]) -> list[RankSums]:
        return [cast("BlockReplicates", jobs[i].split).rank(means) for i in some]

    several = [due[i : i + _TOGETHER] for i in range(0, len(due), _TOGETHER)]
    if parts := [part for parts in each(rank, several) for part in parts]:
        rankings, ends = Rankings.of(parts, means), np.cumsum([len(part.rows) for part in parts])
        for metric in metrics:
            for i, values in zip(due, np.split(metric.of_rankings(rankings), ends[:-1]), strict=True):
                tables[i][[k for k, own in ranked[i].items() if own == metric]] = values
    return ranked


def _tie_areas(state: Sampled, kinds: Sequence[Entry], grid: BlockReplicates) -> list[list[_Job]]:
    """Areas with the rows of a block as ties anywhere in their bins, to tell how far replicates may be off.

    An area depends on the whole ranking, so that no single place in it decides the value.
    """
    found = []
    for truncated in (False, True):
        areas = [
            i
            for i, (value, metric, kind) in enumerate(zip(state.values, state.metrics, kinds, strict=True))
            if not (kind.no_interval or kind.beyond or value.threshold is not None)
            and (metric.points(state.rows) is not None) == truncated
        ]
        split = grid.merged(FEW_BLOCKS) if truncated else grid
        moved = split.tied([state.metrics[i] for i in areas]) if areas else ()
        if moved:
            found.append([_Job(state, other, areas) for other in moved])
    return found


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
