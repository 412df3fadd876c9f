"""ScorePart: what a metric sees of a score state, whether it counts distinct scores or bins.

A part holds consecutive groups of scores, from the best to the worst, with the totals above them and overall. The state
decides how a group is measured: by the weights of its rows if rows carry weights, by their number otherwise. A metric
computes with the measure and never distinguishes the two cases.

A group is one score, or an *open* bin of several scores, whose order inside the bin is unknown. A metric with a certain
interval sums over all groups as if their scores were tied, and widens the result by what the order within the open bins
could change.

Products of very large or very small weights would leave the range of float64. Metrics see weights divided by a power of
two, the *unit*: they are ratios, so scaling all weights by a power of two does not change them, to the last bit. States
store the weights unscaled; `ScorePart` and `Totals` give them in the unit 2 to the power of `Totals.unit`. For sums of
ordinary size the unit is 1.

A sum is kept as a rounded sum and its rounding error, so that the order of additions does not matter. The error of the
error is lost: the rounded sum is wrong only if the exact one is nearly halfway between two floats.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from operator import neg
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streameval.errors import WeightError
from streameval.kernels.exact import add_at
from streameval.kernels.ranking import exact_parts, ranked_weights, running
from streameval.kernels.segments import sum_pieces
from streameval.states.scores.types import round_thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streameval.states.keyed.grouping import Ranked
    from streameval.states.protocol import Totals
    from streameval.typing import Array, ArrayLike


_ORDINARY = -16, 80  # sums with exponents in this range are not scaled
_TINY = float(np.finfo(np.float64).tiny)  # the smallest normal number; smaller ones have fewer digits

T = TypeVar("T")
Ends = tuple["Array", "Array", "Array"]  # the score to report, the lowest and the highest


def unit_of(weight: float) -> int:
    """Exponent of the unit for weights with this sum: 0, or the exponent that scales the sum to [½, 1).

    Examples
    --------
    >>> unit_of(7531.0), unit_of(2.0**-500)
    (0, -499)
    """
    exponent = math.frexp(weight)[1] if 0 < weight < math.inf else 0
    return 0 if _ORDINARY[0] <= exponent <= _ORDINARY[1] else exponent


def in_units(weights: Array, unit: int, column: str) -> Array:
    """Weights divided by 2 to the power of `unit`.

    Parameters
    ----------
    weights : float64 array, not negative
    unit : exponent of the unit, see `unit_of`
    column : name of the score column, for the message

    Raises
    ------
    WeightError
        If a weight is so small relative to the sum that float64 cannot hold their ratio.

    Examples
    --------
    >>> in_units(np.array([0.0, 2.0**-500]), -499, "score")
    array([0. , 0.5])
    """
    if not unit:
        return weights
    found = np.ldexp(weights, -unit)
    lost = (weights > 0) & (found < _TINY)
    if lost.any():
        least, sum_ = float(weights[lost].min()), math.ldexp(1.0, unit)
        raise WeightError(
            f"score column {column!r} has a weight of {least:g} where all weights sum to about {sum_:.1g}; their ratio "
            "leaves float64: scale the weights, or set negligible ones to 0"
        )
    return np.asarray(found)


def two_sums(one: Array, other: Array) -> tuple[Array, Array]:
    """`streameval.kernels.exact.two_sum` of arrays.

    Examples
    --------
    >>> two_sums(np.array([1.0]), np.array([2.0**-60]))
    (array([1.]), array([8.67361738e-19]))
    """
    total = one + other
    rest = total - one
    return total, (one - (total - rest)) + (other - rest)


def add_sums(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The sums of two arrays of sums, each with its errors."""
    sums, errors = two_sums(one[0], other[0])
    return two_sums(sums, errors + (one[1] + other[1]))


def sums_at(places: Array, values: Array, errors: Array, count: int) -> tuple[Array, Array]:
    """The sums of rows with equal places, and their errors.

    Parameters
    ----------
    places : int64 array of shape (n,), below `count`
    values, errors : float64 arrays of shape (n, m)
    count : number of sums

    Returns
    -------
    sums, errors : float64 arrays of shape (count, m)

    Examples
    --------
    >>> sums_at(np.array([0, 0]), np.array([[1.0], [2.0**-60]]), np.zeros((2, 1)), 1)
    (array([[1.]]), array([[8.67361738e-19]]))
    """
    sums, slips = np.zeros((2, values.shape[1], count))
    inexact = np.zeros(count, np.bool_)
    for column, total, slip in zip(values.T, sums, slips, strict=True):
        add_at(places, np.ascontiguousarray(column), total, slip, inexact)
    np.add.at(slips.T, places, errors)
    return two_sums(sums.T, slips.T)


def add_sides(weight: Array, label: Array, sides: tuple[list[float], list[float]]) -> None:
    """Append floats with the exact sum of the weights of each label to its list."""
    for side, parts in enumerate(sides):
        parts.extend(exact_parts(weight[label == side]).tolist())


def rounded_sides(*several: Iterable[list[float]]) -> tuple[Array, Array]:
    """The sums of lists of floats by label, and their errors: float64 arrays of shape (2,).

    Examples
    --------
    >>> rounded_sides(([1.0], [2.0]), ([2.0**-60], []))
    (array([1., 2.]), array([8.67361738e-19, 0.00000000e+00]))
    """
    sides = [[value for part in parts for value in part] for parts in zip(*several, strict=True)]
    sums = [math.fsum(side) for side in sides]
    errors = [math.fsum((*side, -total)) for side, total in zip(sides, sums, strict=True)]
    return np.array(sums), np.array(errors)


def total_weight(weights: Array) -> float:
    """Compensated sum of a float64 array."""
    return float(sum_pieces(weights, np.array([0, weights.size]))[0, 0])


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
        """Thresholds rounded to the type of the scores, see `streameval.states.scores.types.round_thresholds`."""
        return round_thresholds(thresholds, self.type)

    def swapped(self) -> ScorePart:
        """The same groups with the classes exchanged."""
        return replace(self, n=self.p, p=self.n, before=_swap(self.before), total=_swap(self.total))


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


def _swap(t: Totals) -> Totals:
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
