"""Sheaf: all groups of a woven state, finalized side by side in one sweep over their scores.

A shard is an interval of scores. What every group has above it is counted first (`Sheaf.tallied`), interval by
interval; then shards are independent. Of each shard metrics see a `SheafPart`: the scores of every group in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.grouped import weave as kernels
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.layout import NO_COUNTS
from streameval.states.protocol import Totals
from streameval.states.scores.counts import score_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.state import Grouped
    from streameval.states.grouped.woven import Woven
    from streameval.states.keyed.layout import Interval
    from streameval.states.scores.counts import ScoreSpec
    from streameval.states.scores.parts import ScorePart
    from streameval.typing import Array

__all__ = ["OneGroup", "Sheaf", "SheafPart"]

_ITEMS = 1 << 21  # of a part at most, but for one batch of counts


@dataclass(frozen=True, eq=False)
class OneGroup:
    """What the metrics of a score combine their partials with: a group without its scores."""

    spec: ScoreSpec
    neg: int
    pos: int
    nan_rows: Array
    nan_weights: Array = field(default_factory=lambda: np.zeros(2))

    def totals(self) -> Totals:
        """Rows of the scores that are not missing."""
        return Totals(self.neg, self.pos, float(self.neg), float(self.pos))


@dataclass(frozen=True, eq=False)
class SheafPart:
    """The scores of all groups in one interval, from the best to the worst.

    Attributes
    ----------
    spec : the inner spec
    counts : sequence of Counts, words of `streameval.kernels.grouped.weave` in ascending order
    before, total : int64 arrays of shape (2, n_groups), negatives and positives above the interval, and in all
    """

    spec: ScoreSpec
    counts: Sequence[Counts]
    before: Array
    total: Array

    def areas(self) -> Iterator[tuple[int, int]]:
        """Groups and their Σ n·(2T + p), where that is not 0."""
        return self._sums(kernels.add_areas, self.before[1])

    def precisions(self) -> Iterator[tuple[int, int]]:
        """Groups and their Σ p·precision in units of 2⁻⁶², where that is not 0."""
        return self._sums(kernels.add_precisions, *self.before)

    def _sums(self, add: Callable[..., None], *before: Array) -> Iterator[tuple[int, int]]:
        running = [side.copy() for side in before]
        high, low = np.zeros((2, self.total.shape[1]), np.uint64)
        for each in self.counts:
            add(each.keys, each.neg, each.pos, *running, high, low)
        found = np.flatnonzero(high | low)
        for group, upper, lower in zip(found.tolist(), high[found].tolist(), low[found].tolist(), strict=True):
            yield group, (upper << 64) | lower

    @cached_property
    def _by_group(self) -> tuple[Array, Array, Array, Array]:
        """Where each group starts, and n, p and rank keys of each of its scores."""
        columns = (np.concatenate([getattr(each, name) for each in self.counts]) for name in ("keys", "neg", "pos"))
        moved: tuple[Array, Array, Array, Array] = kernels.unwoven(*columns, self.total.shape[1])
        return moved

    @property
    def present(self) -> list[int]:
        """Groups that have scores in the interval."""
        groups: list[int] = np.flatnonzero(np.diff(self._by_group[0])).tolist()
        return groups

    def after(self) -> Array:
        """Negatives and positives of each group above what follows."""
        tally = self.before.copy()
        for each in self.counts:
            kernels.add_rows(each.keys, each.neg, each.pos, *tally)
        return tally

    def one(self, group: int) -> ScorePart:
        """The scores of one group."""
        starts, n, p, keys = self._by_group
        here = slice(int(starts[group]), int(starts[group + 1]))
        own = keys[here].astype(np.uint64)
        counts = Counts(own, np.empty((own.size, 0), np.uint64), n[here], p[here])
        return score_part(counts, _totals(self.before[:, group]), _totals(self.total[:, group]), self.spec)


@dataclass(frozen=True, eq=False)
class Sheaf:
    """All groups of a woven state.

    Attributes
    ----------
    spec : GroupedSpec
    woven : Woven
    intervals : the shards
    before : int64 array of shape (n_shards + 1, 2, n_codes), rows of each group above each shard, and in all
    """

    spec: Any
    woven: Woven
    intervals: Sequence[Interval]
    before: Array

    @classmethod
    def tallied(cls, grouped: Grouped, each: Callable[..., list[Any]]) -> Sheaf | None:
        """The sheaf of a grouped state; None where its groups are not all woven. `each` maps over the shards."""
        woven = grouped.woven
        if woven is None or grouped.apart or len(grouped.joined.table):
            return None
        intervals, codes = woven.keyed.intervals(), len(woven.book.names)

        def rows(interval: Interval) -> Array:
            tally = np.zeros((2, codes), np.int64)
            for segment in woven.keyed.segments:
                part = segment.range(*interval)
                if part is not None:
                    counts = part.counts.read() if part.counts else NO_COUNTS
                    kernels.count_codes(part.words.read(), counts, part.starts, part.codes, tally)
            return tally

        found = [np.zeros((2, codes), np.int64), *each(rows, intervals, "count")]
        return cls(grouped.spec, woven, intervals, np.cumsum(found, axis=0))

    def group(self, code: int, facts: Array) -> OneGroup:
        """One group with its facts, as its table has them."""
        neg, pos = self.before[-1, :, code].tolist()
        return OneGroup(self.woven.inner, neg, pos, facts[:2].astype(np.int64))

    def groups(self) -> dict[bytes, tuple[int, OneGroup]]:
        """The code of each group, and what it is, by name."""
        names = self.woven.table.names.to_pylist()
        codes = self.woven.book.codes(names).tolist()
        facts = self.woven.table.facts
        return {name: (code, self.group(code, own)) for name, code, own in zip(names, codes, facts, strict=True)}

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized on their own."""
        return list(self.intervals)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[SheafPart]:
        """One: the scores of a shard; several where an interval of one bucket has very many."""
        at = list(self.intervals).index(shard)
        before, total = self.before[at], self.before[-1]
        held: list[Counts] = []
        size = 0
        for counts in self.woven.keyed.grouped(shard, budget):
            if held and size + counts.keys.size > _ITEMS:
                part = SheafPart(self.woven.inner, held, before, total)
                yield part
                before, held, size = part.after(), [], 0
            held.append(counts)
            size += counts.keys.size
        if held:
            yield SheafPart(self.woven.inner, held, before, total)


def _totals(sides: Array) -> Totals:
    """Rows of both classes."""
    neg, pos = sides.tolist()
    return Totals(neg, pos, float(neg), float(pos))
