"""ScorePart: what a metric sees of a score state, whether it counts distinct scores or bins.

A part holds consecutive groups of scores, from the best to the worst, with the totals above them and overall. The state
decides how a group is measured: by the weights of its rows if rows carry weights, by their number otherwise. A metric
computes with the measure and never distinguishes the two cases.

A group is one score, or an *open* bin of several scores, whose order inside the bin is unknown. A metric with a certain
interval sums over all groups as if their scores were tied, and widens the result by what the order within the open bins
could change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from operator import neg
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streameval.kernels.ranking import ranked_weights, running
from streameval.states.scores.types import compared
from streameval.states.scores.weights import total_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.keyed.grouping import Ranked
    from streameval.states.protocol import Totals
    from streameval.typing import Array, ArrayLike

T = TypeVar("T")
Ends = tuple["Array", "Array", "Array"]  # the score to report, the lowest and the highest


@dataclass(frozen=True, slots=True, eq=False)
class ScorePart:
    """Consecutive groups of scores, from the best to the worst.

    Attributes
    ----------
    n, p : arrays of shape (n_groups,)
        Negatives and positives of each group: int64 counts, or float64 weights if rows carry weights.
    before, total : Totals
        Totals of the groups above these, and of all groups; `Totals.n` and `Totals.p` are in the same measure.
    ends : function of a slice or an index array
        The threshold of each group as float64, and the lowest and the highest score that the group may hold. Scores are
        decoded on demand, since few metrics need them.
    bins : bool array of shape (n_groups,), optional
        Which groups are open; None if the state counts distinct scores.
    counts : int64 array of shape (n_groups,), optional
        Rows of each group if the measure is a weight.
    type : str
        The type of the scores, see `streameval.states.scores.types.score_type`.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1, 0], np.uint8), np.array([0.1, 0.9, 0.9, 0.4]))
    >>> [part] = state.parts()
    >>> part.n.tolist(), part.p.tolist(), part.scores.tolist(), part.exact
    ([0, 1, 1], [2, 0, 0], [0.9, 0.4, 0.1], True)
    """

    n: Array
    p: Array
    before: Totals
    total: Totals
    ends: Callable[[slice | Array], Ends]
    bins: Array | None = None
    counts: Array | None = None
    type: str = "f8"
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """A value that several metrics derive from these groups, computed once and cached under `name`.

        Examples
        --------
        >>> import numpy as np
        >>> from streameval.states.scores.counts import fold_arrays
        >>> [part] = fold_arrays(np.array([0, 1], np.uint8), np.array([0.1, 0.9])).parts()
        >>> part.once("size", lambda: part.n.size), part.once("size", lambda: 1 / 0)
        (2, 2)
        """
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    @property
    def exact(self) -> bool:
        """Whether the state counts distinct scores."""
        return self.bins is None

    @property
    def open(self) -> Array:
        """Which groups may hold several scores, as a bool array of shape (n_groups,)."""
        if self.bins is not None:
            return self.bins
        return self.once("open", lambda: np.zeros(self.n.size, np.bool_))

    @property
    def certain(self) -> bool:
        """Whether no group is open."""
        return self.bins is None or not self.bins.any()

    @property
    def rows(self) -> Array:
        """Rows of each group, as an int64 array of shape (n_groups,)."""
        if self.counts is not None:
            return self.counts
        return self.once("rows", lambda: self.n + self.p)

    @property
    def sums(self) -> tuple[Array, Array]:
        """F and T after each group: negatives and positives down to it, this included."""
        return self.once("sums", lambda: (running(self.n, self.before.n), running(self.p, self.before.p)))

    @property
    def ranked(self) -> tuple[float, float, float, float]:
        """Σ p·(N − F − n/2), Σ p·precision, and the sums of n and of p; only for groups measured by weights."""
        at = self.n, self.p, self.before.n, self.before.p, self.total.n
        ranked: tuple[float, float, float, float] = self.once("ranked", lambda: ranked_weights(*at))
        return ranked

    @property
    def weights(self) -> tuple[float, float]:
        """The sums of n and of p, compensated; only for groups measured by weights."""
        if "ranked" in self._made:
            return self.ranked[2:]
        return total_weight(self.n), total_weight(self.p)

    @property
    def bounds(self) -> Ends:
        """`ends` of all groups, decoded once."""
        return self.once("bounds", lambda: self.ends(slice(None)))

    @property
    def scores(self) -> Array:
        """The threshold of each group: its only score, or the lower edge of its bin."""
        return self.bounds[0]

    @property
    def low(self) -> Array:
        """Lower bound of the scores of each group."""
        return self.bounds[1]

    @property
    def high(self) -> Array:
        """Upper bound of the scores of each group; equal to `low` for a single score."""
        return self.bounds[2]

    def score(self, i: int) -> float:
        """The threshold of one group."""
        if "bounds" in self._made:
            return float(self.scores[i])
        return float(self.ends(slice(i, i + 1))[0][0])

    def compared(self, thresholds: ArrayLike | float) -> Array:
        """Thresholds rounded to the type of the scores, see `streameval.states.scores.types.compared`."""
        return compared(thresholds, self.type)

    def swapped(self) -> ScorePart:
        """The same groups with the classes exchanged."""
        return replace(self, n=self.p, p=self.n, before=_swapped(self.before), total=_swapped(self.total))


@dataclass(frozen=True, slots=True, eq=False)
class RankedPart:
    """What metrics that need only ``ranks`` read of consecutive groups of equal score, without the groups themselves.

    Attributes
    ----------
    sums : Ranked
    before, total : see `ScorePart`
    """

    sums: Ranked
    before: Totals
    total: Totals

    @property
    def weights(self) -> tuple[float, float]:
        """The sums of n and of p."""
        return self.sums[2:4]


def _swapped(t: Totals) -> Totals:
    return replace(t, neg=t.pos, pos=t.neg, neg_weight=t.pos_weight, pos_weight=t.neg_weight)


def leading(scores: Array, value: float, *, above: bool = False) -> int:
    """Number of descending scores that are at least `value`, or greater than it if `above` is set.

    A bisection in place; `numpy.searchsorted` would copy the reversed array.

    Examples
    --------
    >>> scores = np.array([0.9, 0.5, 0.5, 0.1])
    >>> leading(scores, 0.5), leading(scores, 0.5, above=True)
    (3, 1)
    """
    if scores.size and (scores[-1] > value if above else scores[-1] >= value):
        return len(scores)
    if not scores.size or (scores[0] <= value if above else scores[0] < value):
        return 0
    return (bisect_left if above else bisect_right)(scores, -value, key=neg)


def known(scores: Array) -> Callable[[slice | Array], Ends]:
    """`ScorePart.ends` of groups that are single scores."""
    return lambda groups: (scores[groups],) * 3
