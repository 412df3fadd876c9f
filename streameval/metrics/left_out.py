"""Exact replicates: states that were split by block and give the state without each block.

- A score with ``--resample-bins exact`` keeps every score of each block (`SplitState`).
- Of clusters, and of clusters against classes, one sweep over a state yields its replicates and its value;
  `SweptClusters` and `SweptTable` then replace the state.
- Of means over groups, the groups are the units: a group, such as a user, lies in one block, by the keyed hash of its
  id (`streameval.states.grouped.keys.Blocks`). A mean is Σ w·A / Σ w, so one sweep that adds up both sums by block
  gives all replicates. Values A are truncated to multiples of 2⁻³⁰, so that sums are integers and independent of the
  order of the groups; this changes a replicate by at most 10⁻⁹. Groups without both classes have no value and are in no
  block.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streameval.metrics.finalize import compute
from streameval.metrics.protocol import Metric
from streameval.metrics.resampling import Resampled, Thresholded
from streameval.metrics.scores.group_values import Fragment, GroupValues, measure_of, merged
from streameval.metrics.scores.sums import BITS
from streameval.metrics.units import Sizes, class_counts
from streameval.results import Scalar
from streameval.states.blocks import BLOCKS, SizeChanges, blocks_of
from streameval.states.clusters.sizes import SizeState
from streameval.states.contingency.counts import SummarisedCounts
from streameval.states.scores.groups import GroupPart, GroupScores
from streameval.states.scores.types import compared, halved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.metrics.scores.group_means import GroupMean
    from streameval.states.contingency.class_blocks import ClassReplicates
    from streameval.states.contingency.summary import Summary
    from streameval.states.grouped.groups import Grouped
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array


@dataclass(frozen=True)
class SweepClusters(Metric):
    """A metric whose value is the `SizeChanges` of a state with clusters."""

    reads: ClassVar[str] = "by_block"
    name: str = "size changes"

    def partial(self, part: SizeChanges) -> SizeChanges:
        """The changes of a shard."""
        return part

    def combine(self, partials: Sequence[SizeChanges], state: Any) -> SizeChanges:
        """Those of all shards."""
        return SizeChanges.union(partials)


@dataclass(frozen=True, eq=False)
class SweptClusters(SizeState):
    """The size table of a state, which was swept for its replicates as well.

    Attributes
    ----------
    changes : SizeChanges without each block of clusters
    """

    changes: SizeChanges | None = None


@dataclass(frozen=True, eq=False)
class SweptTable(SummarisedCounts):
    """The summary of a contingency table, which was swept for its replicates as well.

    Attributes
    ----------
    replicates : ClassReplicates
    """

    replicates: ClassReplicates


@dataclass(frozen=True, eq=False)
class WithoutRows(Resampled):
    """Gives the size table of clusters without the rows of each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    changes : SizeChanges
    unit : what is drawn together
    units : number of units; None where it is not known
    """

    changes: SizeChanges
    unit: str
    units: int | None = None

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of each block."""
        rows, positives = self.changes.rows, self.changes.positives
        return Sizes(self.unit, class_counts(rows - positives, positives), self.units)

    def without(self, block: int) -> SizeState:
        """The rows of all other blocks."""
        return SizeState(self.changes.without(block))


@dataclass(frozen=True, eq=False)
class WithoutClasses(Resampled):
    """Gives the summary of a table without the classes of each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    replicates : ClassReplicates
    unit : the class column
    """

    replicates: ClassReplicates
    unit: str

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of each block, and the squared sizes of its classes, to which pair counts are proportional."""
        counts = {"rows": self.replicates.rows, "pairs": self.replicates.squared_sizes}
        return Sizes(self.unit, counts, self.replicates.summary.classes.count)

    def without(self, block: int) -> Summary:
        """The classes of all other blocks."""
        return self.replicates.without(block)


class _Ranking(NamedTuple):
    """Scores from the worst to the best, with the measure of both classes at or above each.

    Attributes
    ----------
    scores : array of shape (n_groups,), ascending
    measure : float64 array of shape (2, n_groups + 1), of negatives and positives; the last is 0
    type : that of the scores
    """

    scores: Array
    measure: Array
    type: str

    def above(self, threshold: float) -> Array:
        """Measure of negatives and positives that score at or above a threshold."""
        found: Array = self.measure[:, np.searchsorted(self.scores, compared(threshold, self.type))]
        return found


@dataclass(frozen=True)
class _Ranked(Metric):
    """A metric whose value is the `_Ranking` of a score."""

    name: str = "ranking"

    def partial(self, part: ScorePart) -> tuple[Array, Array]:
        """The scores of one part, and the measure of both classes."""
        return part.scores, np.stack((part.n, part.p)).astype(np.float64)

    def combine(self, partials: Sequence[tuple[Array, Array]], state: Any) -> _Ranking:
        """All scores in order."""
        if not partials:
            return _Ranking(np.empty(0), np.zeros((2, 1)), state.spec.type)
        scores, measure = (np.concatenate(each, axis=-1) for each in zip(*partials, strict=True))
        order = np.argsort(scores)
        above = np.cumsum(measure[:, order[::-1]], axis=1)[:, ::-1]
        in_ones = np.ldexp(np.pad(above, ((0, 0), (0, 1))), state.totals().unit)
        return _Ranking(scores[order], in_ones, state.spec.type)


@dataclass(frozen=True)
class SplitState(Thresholded):
    """A score state that is split by block.

    Attributes
    ----------
    grouped : the state, split by `streameval.states.grouped.keys.Blocks`
    unit : the sampling unit: a column, or ``row``
    count : number of blocks; block b of the state is in block b modulo this
    """

    grouped: Grouped
    unit: str
    count: int

    @cached_property
    def sizes(self) -> Sizes:
        """Measure of the rows of each block, with missing scores that count as halves."""
        found = np.zeros((2, self.count))
        weighted = False
        for block in self.grouped.groups():
            state = self.grouped.only(block)
            for totals in (state.totals(), halved(state)):
                weighted |= totals.weighted
                found[:, block % self.count] += np.ldexp([totals.n, totals.p], totals.unit)
        return Sizes(self.unit, class_counts(*found), single=self.unit == "row" and not weighted)

    def without(self, block: int) -> Any:
        """The state of the rows of all other blocks."""
        return self.grouped.without(*(b for b in self.grouped.groups() if b % self.count == block))

    def merged(self, count: int) -> SplitState:
        """The same rows in fewer blocks."""
        return replace(self, count=count)

    def beyond(self, threshold: float) -> Mapping[str, Array]:
        """The measure of the rows of each block that score at or above a threshold."""
        found = np.zeros((2, self.count))
        for block, ranking in self._rankings.items():
            found[:, block % self.count] += ranking.above(threshold)
        return class_counts(*found)

    @cached_property
    def _rankings(self) -> dict[int, _Ranking]:
        """The scores of each block, read once for the many thresholds of a curve."""
        return {block: compute(self.grouped.only(block), _Ranked()) for block in self.grouped.groups()}


_FINE = 30  # bits of a value
_TOTAL, _WEIGHT, _NEG, _POS, _GROUPS = range(5)


@dataclass(frozen=True)
class SumsByBlock(Metric):
    """A metric whose value is the `BlockSums` of a mean over groups.

    Attributes
    ----------
    mean : the mean
    """

    mean: GroupMean

    @property
    def name(self) -> str:
        """The name of the mean."""
        return self.mean.name

    def partial(self, part: GroupPart) -> tuple[Array, tuple[tuple[Fragment, int], ...]]:
        """Sums of the whole groups of a part, and those that are cut, each with its block."""
        sums = np.zeros((5, BLOCKS), np.int64)
        found, blocks = GroupValues.of(self.mean.inner, part), blocks_of(part.ids, BLOCKS)
        cut = tuple(zip(found.fragments, blocks[part.cut].tolist(), strict=True))
        blocks = np.delete(blocks, part.cut)[found.defined]
        neg, pos, words = (each[found.defined] for each in (found.neg, found.pos, found.words))
        self._add(sums, blocks, neg, pos, words)
        return sums, cut

    def _add(self, sums: Array, blocks: Array, neg: Array, pos: Array, words: Array) -> None:
        """Add groups, given by arrays of shape (n_groups,), to the sums of their blocks."""
        weights = self.mean.weights(neg, pos)
        for row, values in enumerate((weights * (words >> (BITS - _FINE)), weights, neg, pos, np.ones_like(neg))):
            np.add.at(sums[row], blocks, values)

    def combine(self, partials: Sequence[tuple[Array, tuple[tuple[Fragment, int], ...]]], state: Any) -> BlockSums:
        """The sums of all parts."""
        sums = np.sum([np.zeros((5, BLOCKS), np.int64), *(part for part, _ in partials)], axis=0)
        pairs = [pair for _, cut in partials for pair in cut]
        block_of, measure = {fragment.group: block for fragment, block in pairs}, measure_of(self.mean.inner)
        for whole in merged(fragment for fragment, _ in pairs):
            word = measure.word(whole)
            if word is not None:
                columns = (np.array([value]) for value in (whole.neg, whole.pos, word))
                self._add(sums, np.array([block_of[whole.group]]), *columns)
        return BlockSums(sums)


@dataclass(frozen=True, eq=False)
class BlockSums:
    """The contribution of each block to a mean over groups.

    Attributes
    ----------
    sums : int64 array of shape (5, n_blocks): Σ w·A in units of 2⁻³⁰, Σ w, negatives, positives and groups
    """

    sums: Array

    def without(self, block: int) -> float:
        """The mean of the groups of all other blocks; NaN where there is none."""
        total, weight = (sum(row.tolist()) - int(row[block]) for row in self.sums[: _WEIGHT + 1])
        return total / weight / (1 << _FINE) if weight else float("nan")


@dataclass(frozen=True, eq=False)
class SweptGroups(GroupScores):
    """The scores of groups, which were swept for the replicates of their means as well.

    Attributes
    ----------
    block_sums : BlockSums by the name of the mean
    """

    block_sums: dict[str, BlockSums] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class WithoutGroups(Resampled):
    """Gives the means of all groups but those of each block (`streameval.metrics.resampling.Resampled`).

    Attributes
    ----------
    found : BlockSums by the name of the mean
    unit : the column of groups
    left : the block that is left out
    """

    found: dict[str, BlockSums]
    unit: str
    left: int = -1

    @cached_property
    def sizes(self) -> Sizes:
        """Rows of the groups of each block that have a value."""
        sums = next(iter(self.found.values())).sums
        return Sizes(self.unit, class_counts(sums[_NEG], sums[_POS]), int(sums[_GROUPS].sum()))

    def without(self, block: int) -> WithoutGroups:
        """The groups of all other blocks."""
        return WithoutGroups(self.found, self.unit, block)

    def scalars(self, metrics: Sequence[GroupMean]) -> list[Scalar]:
        """The means of a replicate."""
        return [Scalar.certain(metric.name, self.found[metric.name].without(self.left)) for metric in metrics]
