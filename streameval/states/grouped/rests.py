"""Rests: for several groups of a group sweep, all rows outside the group, finalized in one pass over the scores.

The counts at each score are computed once per part, for all rows and for each group; the rest is their difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.grouped import interleave as kernels
from streameval.states.grouped.group_sweep import WHOLE, OneGroup, sided
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import PlainState
from streameval.states.scores.counts import score_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.group_sweep import GroupSweep, GroupSweepPart
    from streameval.states.keyed.layout import Interval
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["RestPart", "Rests"]

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class RestPart:
    """The scores of the rests of some groups in one interval.

    Attributes
    ----------
    part : GroupSweepPart
    slicing : number of the slicing
    chosen : the groups
    """

    part: GroupSweepPart
    slicing: int
    chosen: Sequence[int]

    @cached_property
    def _ties(self) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        """The distinct keys of all rows; the first tie of each group; n, p and index of the key of each tie."""
        words, neg, pos, _ = self.part.ties
        keys = words >> _HALF
        first = np.append(True, keys[1:] != keys[:-1])[: keys.size]
        words = ((np.cumsum(first) - 1).astype(np.uint64) << _HALF) | (words & _LOW)
        member = np.ascontiguousarray(self.part.member[:, [0, 1 + self.slicing]])
        return self.part.whole(keys[first]), kernels.by_group(words, neg, pos, member, self.part.total.shape[1])

    @property
    def present(self) -> list[int]:
        """The groups whose rest has rows in the interval."""
        _, (starts, n, p, _) = self._ties
        rows = np.append(0, np.cumsum(n + p))[starts]
        sizes = np.diff(rows)
        return [group for group in self.chosen if sizes[group] < sizes[0]]

    def one(self, group: int) -> ScorePart:
        """The scores of the rest of a group."""
        keys, (starts, n, p, places) = self._ties
        every, own = (slice(int(starts[g]), int(starts[g + 1])) for g in (0, group))
        left = [np.empty(keys.size + 1, column.dtype) for column in (keys, n, p)]
        count = kernels.without(keys, n[every], p[every], places[own], n[own], p[own], *left)
        keys, neg, pos = (column[:count] for column in left)
        before, total = (sided(tally[:, 0] - tally[:, group]) for tally in (self.part.before, self.part.total))
        return score_part(Counts(keys, np.empty((count, 0), np.uint64), neg, pos), before, total, self.part.spec)


@dataclass(frozen=True, eq=False)
class Rests(PlainState):
    """The rests of some groups of one slicing.

    Attributes
    ----------
    group_sweep : GroupSweep
    slicing : number of the slicing
    names : the names of the groups
    """

    spec = None  # policies apply to the groups

    group_sweep: GroupSweep
    slicing: int
    names: Sequence[bytes]

    @cached_property
    def groups(self) -> Mapping[tuple[int, bytes], tuple[int, OneGroup]]:
        """By slicing and name, the number of each group and the row counts of its rest."""
        _, whole = self.group_sweep.groups[WHOLE]
        found = {}
        for name in self.names:
            number, own = self.group_sweep.groups[self.slicing, name]
            sides = whole.neg - own.neg, whole.pos - own.pos
            found[self.slicing, name] = number, OneGroup(own.spec, *sides, whole.nan_rows - own.nan_rows)
        return found

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently."""
        return self.group_sweep.shards(budget)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[RestPart]:
        """The scores of a shard, in several parts if a single bucket has very many rows."""
        chosen = [number for number, _ in self.groups.values()]
        for part in self.group_sweep.parts(shard, budget):
            yield RestPart(part, self.slicing, chosen)
