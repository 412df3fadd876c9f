"""GroupPart: what a metric sees of the scores of many groups, such as users.

A part holds consecutive groups. Their rows come either as distinct scores with counts (`GroupTies`), or unsorted
(`GroupRows`), because comparing the rows of a small group pairwise is faster than sorting them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from streameval.kernels.grouped import comparisons
from streameval.kernels.grouped import rankings as kernels

if TYPE_CHECKING:
    from streameval.typing import Array


class _Scores(Protocol):
    """The scores of the groups of a part."""

    def ties(self, neg: Array, pos: Array) -> GroupTies:
        """The distinct scores, by the negatives and positives of each group."""

    def sums(self, neg: Array, pos: Array, false: int, true: int, *, precise: bool) -> tuple[Array, Array]:
        """Twice the pairs won (ties count half), and Σ p·precision in units of 2⁻⁶², for each group.

        `false` and `true` are the negatives and positives of the first group in earlier parts. Both results are 128-bit
        integers, as uint64 arrays of shape (2, n_groups); the second, which takes as long, may be empty unless
        `precise`.
        """


class GroupTies(NamedTuple):
    """Distinct scores of groups.

    Attributes
    ----------
    starts : int64 array of shape (n_groups + 1,), index of the first distinct score of each group
    n, p : int64 arrays of shape (n_ties,), negatives and positives of each distinct score, from the best to the worst
    """

    starts: Array
    n: Array
    p: Array

    def ties(self, neg: Array, pos: Array) -> GroupTies:
        """The distinct scores themselves."""
        return self

    def sums(self, neg: Array, pos: Array, false: int, true: int, *, precise: bool) -> tuple[Array, Array]:
        """See `_Scores`."""
        before = _earlier(neg.size, false, true)
        areas = kernels.areas(*self, before[1])
        return np.stack(areas), np.stack(kernels.precisions(*self, *before))


class GroupRows(NamedTuple):
    """Rows of groups, sorted by group and label but not by score.

    Attributes
    ----------
    words : uint64 array of shape (n_rows,), see `streameval.kernels.grouped.comparisons.by_group`
    starts : int64 array of shape (n_groups,), the first row of each group; rows of others may lie between them
    """

    words: Array
    starts: Array

    def ties(self, neg: Array, pos: Array) -> GroupTies:
        """The distinct scores, which takes a sort."""
        return GroupTies(*kernels.row_ties(self.words, self.starts, neg + pos))

    def sums(self, neg: Array, pos: Array, false: int, true: int, *, precise: bool) -> tuple[Array, Array]:
        """See `_Scores`."""
        found: tuple[Array, Array] = comparisons.compared(self.words, self.starts, neg, pos, false, true, precise)
        return found


def _earlier(groups: int, false: int, true: int) -> Array:
    """Negatives and positives of each group in earlier parts; zero for all groups but the first."""
    sides = np.zeros((2, groups), np.int64)
    sides[:, :1] = [[false], [true]]
    return sides


@dataclass(frozen=True, eq=False)
class GroupPart:
    """Consecutive groups.

    A group with very many rows may be cut: it is then the last group of one part and the first of the next, which has
    only lower scores.

    Attributes
    ----------
    scores : GroupTies or GroupRows
    neg, pos : int64 arrays of shape (n_groups,), negatives and positives of each group in this part
    first, last : ids of the first and the last group
    false, true : negatives and positives of the first group in earlier parts
    goes_on : whether the last group continues in the next part
    continues : whether the first group began in the previous part
    ids : uint64 array of shape (n_groups,), the first words of the ids (0 for rows without an id); empty unless
        requested
    left_out : omitted groups, which have one class only: their number, negatives and positives
    precise : whether `precisions` is needed
    """

    scores: _Scores
    neg: Array
    pos: Array
    first: Any
    last: Any
    false: int = 0
    true: int = 0
    goes_on: bool = False
    continues: bool = False
    ids: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    left_out: tuple[int, int, int] = (0, 0, 0)
    precise: bool = True

    @property
    def ties(self) -> GroupTies:
        """The distinct scores of each group."""
        return self.scores.ties(self.neg, self.pos)

    @property
    def areas(self) -> Array:
        """Twice the pairs won in each group, ties counting half: 128-bit integers, uint64 of shape (2, n_groups)."""
        return self._sums[0]

    @property
    def precisions(self) -> Array:
        """Σ p·precision of each group in units of 2⁻⁶², in the same form as `areas`; only of a `precise` part."""
        return self._sums[1]

    @cached_property
    def _sums(self) -> tuple[Array, Array]:
        return self.scores.sums(self.neg, self.pos, self.false, self.true, precise=self.precise)

    @property
    def earlier(self) -> Array:
        """Negatives and positives of each group in earlier parts, an int64 array of shape (2, n_groups)."""
        return _earlier(self.neg.size, self.false, self.true)

    def before(self, other: GroupPart) -> tuple[GroupPart, GroupPart]:
        """Complete the facts about a group that is cut between this part and the next, `other`; returns both parts."""
        if self.last != other.first:
            return self, other
        false, true = int(self.neg[-1]), int(self.pos[-1])
        if self.neg.size == 1:  # it may have begun earlier
            false, true = false + self.false, true + self.true
        return replace(self, goes_on=True), replace(other, continues=True, false=false, true=true)

    @property
    def cut(self) -> list[int]:
        """Indices of the groups that are cut."""
        places = [0] * self.continues + [self.neg.size - 1] * self.goes_on
        return list(dict.fromkeys(places))

    def name(self, place: int) -> Any:
        """The id of the cut group at an index in `cut`."""
        return self.first if place == 0 else self.last
