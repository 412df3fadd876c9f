"""Replicates of means over groups: the mean without the groups of each block.

The groups are the units: a group, such as a user, lies in one block, by the keyed hash of its id
(`streameval.states.grouped.Blocks`). A mean is Σ w·A / Σ w, so one sweep that adds up both sums by block gives all
replicates. Values A are truncated to multiples of 2⁻³⁰, so that sums are integers and independent of the order of the
groups; this changes a replicate by at most 10⁻⁹. Groups without both classes have no value and are in no block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streameval.metrics.protocol import Metric
from streameval.metrics.resampled import Resampled
from streameval.metrics.scores.group_values import Fragment, GroupValues, measure_of, merged
from streameval.metrics.scores.sums import BITS
from streameval.metrics.units import Sizes, class_counts
from streameval.results import Scalar
from streameval.states.blocks import BLOCKS, blocks_of
from streameval.states.scores.groups import GroupScores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.metrics.scores.group_means import GroupMean
    from streameval.states.scores.group_part import GroupPart
    from streameval.typing import Array

_FINE = 30  # bits of a value
_TOTAL, _WEIGHT, _NEG, _POS, _GROUPS = range(5)


@dataclass(frozen=True)
class SumsByBlock(Metric):
    """A metric whose value is the `BlockSums` of a mean over groups.

    Attributes
    ----------
    mean : the mean
    """

    reads: ClassVar[str] = "named_parts"
    mean: GroupMean

    @property
    def name(self) -> str:
        """The name of the mean."""
        return self.mean.name

    def partial(self, parts: Iterable[GroupPart]) -> tuple[Array, tuple[tuple[Fragment, int], ...]]:
        """Sums of the whole groups of a shard, and those that are cut, each with its block."""
        sums = np.zeros((5, BLOCKS), np.int64)
        cut: list[tuple[Fragment, int]] = []
        measure = measure_of(self.mean.inner)
        for part in parts:
            found, blocks = GroupValues.of(measure, part), blocks_of(part.ids, BLOCKS)
            cut += zip(found.fragments, blocks[part.cut].tolist(), strict=True)
            blocks = np.delete(blocks, part.cut)[found.defined]
            neg, pos, words = (each[found.defined] for each in (found.neg, found.pos, found.words))
            self._add(sums, blocks, neg, pos, words)
        return sums, tuple(cut)

    def _add(self, sums: Array, blocks: Array, neg: Array, pos: Array, words: Array) -> None:
        """Add groups, given by arrays of shape (n_groups,), to the sums of their blocks."""
        weights = self.mean.weights(neg, pos)
        for row, values in enumerate((weights * (words >> (BITS - _FINE)), weights, neg, pos, np.ones_like(neg))):
            np.add.at(sums[row], blocks, values)

    def combine(self, partials: Sequence[tuple[Array, tuple[tuple[Fragment, int], ...]]], state: Any) -> BlockSums:
        """The sums of all shards."""
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
    """Gives the means of all groups but those of each block (`streameval.metrics.resampled.Resampled`).

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
