"""GroupPart: what a metric sees of the scores of many groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from streameval.typing import Array

__all__ = ["GroupPart"]


@dataclass(frozen=True, eq=False)
class GroupPart:
    """Consecutive groups, each with its ties from the best score to the worst.

    A group of very many distinct scores may be cut: then it is the last one of a part and the first one of the next.

    Attributes
    ----------
    starts : int64 array of shape (n_groups + 1,), the first tie of each group
    n, p : int64 arrays of shape (n_ties,), negatives and positives of each tie
    neg, pos : int64 arrays of shape (n_groups,), negatives and positives of each group in this part
    first, last : ids of the first and the last group
    false, true : negatives and positives of the first group in earlier parts
    goes_on : whether the last group has more ties in the next part
    continues : whether the first group has ties in the part before
    ids : uint64 array of shape (n_groups,), the first words of the ids (0 for rows without one); empty where they were
        not asked for
    left_out : number of groups of one class that are not among these, their negatives and positives
    """

    starts: Array
    n: Array
    p: Array
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

    @property
    def earlier(self) -> tuple[Array, Array]:
        """Negatives and positives of each group in earlier parts."""
        sides = np.zeros((2, len(self.starts) - 1), np.int64)
        sides[:, :1] = [[self.false], [self.true]]
        return sides[0], sides[1]

    def before(self, other: GroupPart) -> tuple[GroupPart, GroupPart]:
        """Both parts, `other` the one that follows: what they know of a group that is cut between them."""
        if self.last != other.first:
            return self, other
        at = int(self.starts[-2])
        false, true = int(self.n[at:].sum()), int(self.p[at:].sum())
        if len(self.starts) == 2:  # which may have begun earlier
            false, true = false + self.false, true + self.true
        return replace(self, goes_on=True), replace(other, continues=True, false=false, true=true)

    @property
    def cut(self) -> list[int]:
        """Places of the groups that are not whole."""
        places = [0] * self.continues + [len(self.starts) - 2] * self.goes_on
        return list(dict.fromkeys(places))

    def name(self, place: int) -> Any:
        """The id of a group that is cut."""
        return self.first if place == 0 else self.last
