"""Areas of the curves over rows whose distinct keys are not stored."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streameval.kernels.exact import joined_halves


class Ranked(NamedTuple):
    """Sums over groups of equal score that are not stored.

    Attributes
    ----------
    won : twice the pairs won, see `streameval.metrics.scores.sums.pairs_won`
    precision : see `streameval.metrics.scores.sums.precision_sum`
    n, p : negatives and positives in the measure
    neg, pos : rows by label
    """

    won: Any
    precision: Any
    n: Any
    p: Any
    neg: int
    pos: int


class RankSums:
    """Sums of `Ranked` over rows without weights, from the best score down.

    Attributes
    ----------
    above : int64 array of shape (2,), rows and positives so far
    twice : twice the number of all negatives
    sums : uint64 array of shape (4,), see `streameval.kernels.keyed.ranked.rank_sorted`
    """

    __slots__ = ("_before", "above", "sums", "twice")

    def __init__(self, above: tuple[int, int], negatives: int) -> None:
        """Begin below some negatives and positives; all rows together have fewer than `HELD` positives."""
        self.above, self.twice, self.sums = np.array((sum(above), above[1])), 2 * negatives, np.zeros(4, np.uint64)
        self._before = above

    def ranked(self) -> Ranked:
        """The sums of the rows that were added."""
        won, precision = (joined_halves(self.sums[at : at + 2].tolist()) for at in (0, 2))
        rows, pos = self.above.tolist()
        neg, pos = rows - pos - self._before[0], pos - self._before[1]
        return Ranked(won, 2 * precision, neg, pos, neg, pos)
