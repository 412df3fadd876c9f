"""Exact replicates: states that were split by block and give the state without each block.

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
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Metric, ShardMetric
from streameval.metrics.scores.group_means import Fragment, GroupMean, GroupValues, merged, value_of
from streameval.metrics.scores.sums import BITS
from streameval.metrics.units import Sizes, class_counts
from streameval.states.blocks import BLOCKS, SizeChanges, blocks_of
from streameval.states.cluster_sizes import SizeState
from streameval.states.scores.types import compared, halved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.contingency.class_blocks import ClassReplicates
    from streameval.states.grouped.groups import Grouped
    from streameval.states.grouped.spec import BlockedClusters
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import State
    from streameval.states.scores.groups import GroupPart
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array


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
            found[:, block % self.count] += measure[:, np.searchsorted(scores, compared(threshold, kind))]
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
        for whole in merged(fragment for fragment, _ in pairs):
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
