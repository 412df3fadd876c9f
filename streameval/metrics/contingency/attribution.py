"""Attribution of a clustering's loss to single clusters and classes.

With n_ij the rows of class i in cluster j, a_i and b_j the sizes:

- the *false pairs* of cluster j are C(b_j, 2) − Σ_i C(n_ij, 2); they add up to the false positives of the pair table;
- the *missed pairs* of class i are C(a_i, 2) − Σ_j C(n_ij, 2); they add up to its false negatives;
- splitting cluster j along its classes removes its false pairs and changes no other pairs;
- joining the pure clusters of class i (those without rows of other classes), of sizes c_1 … c_m, turns
  C(Σ c, 2) − Σ C(c, 2) missed pairs into agreeing ones.

So a gain follows from the totals and one number per group, in O(1). Pair counts are integers; the gain of a pair
measure is the exact difference of two fractions, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.kernels.contingency.tables import positions
from streameval.metrics.clusters import Worst
from streameval.metrics.contingency.measures import CountedStatistics
from streameval.metrics.protocol import ShardMetric
from streameval.states.contingency.cells import Ids, number_rows

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_SIGN = np.uint64(1 << 63)
_MOST = 1 << 32  # rows of a group whose pairs fit into 64 bits


class PairCosts:
    """A watcher (`streameval.states.contingency.cells.Watcher`) that keeps the worst merges and splits.

    Columns of `merges`: false pairs, rows, classes. Columns of `splits`: missed pairs, rows, clusters, joined pairs.

    Parameters
    ----------
    top : int
        Number of each to keep.
    signed : (bool, bool)
        Whether ids of clusters, and of classes, are signed integers.

    Attributes
    ----------
    merged, split : int
        Number of clusters with several classes, and of classes with several clusters.
    unchanged_rows : int
        Rows of clusters that consist of one whole class.
    """

    def __init__(self, top: int, signed: tuple[bool, bool]) -> None:
        self.merges, self.splits = (Worst(top, signed=each) for each in signed)
        self.merged = self.split = self.unchanged_rows = 0

    def add_clusters(
        self, ids: Ids, sizes: Array, classless: Array, cells: Iterable[tuple[Array, Array, Array]]
    ) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        classes, agreeing = classless.copy(), np.zeros_like(sizes)  # cells, and pairs within them
        for numbers, _, rows in cells:
            classes += np.bincount(numbers, minlength=sizes.size)
            np.add.at(agreeing, numbers, _count_pairs(rows))
        self.unchanged_rows += int(classless[sizes == 1].sum())
        which = np.flatnonzero(classes > 1)
        self.merged += which.size
        costs = pairs_within(sizes[which]) - agreeing[which]
        _add(self.merges, lambda some: ids(which[some]), costs, sizes[which], classes[which])

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[tuple[Array, Array, Array, Array]]
    ) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        parts, pure = singles.copy(), singles.copy()  # cells, and rows of those that are whole clusters
        agreeing, joined = np.zeros((2, totals.size), np.int64)  # pairs within all cells, and within those
        for numbers, rows, sizes, counts in cells:
            times = counts if counts.size else np.ones_like(rows)
            within, whole = _count_pairs(rows) * times, np.flatnonzero(rows == sizes)
            np.add.at(parts, numbers, times)
            np.add.at(agreeing, numbers, within)
            np.add.at(pure, numbers[whole], (rows * times)[whole])
            np.add.at(joined, numbers[whole], within[whole])
        self.unchanged_rows += int(totals[(parts == 1) & (pure == totals)].sum())
        which = np.flatnonzero(parts > 1)
        rows = totals[which]
        self.split += which.size
        missed, joined = pairs_within(rows) - agreeing[which], _count_pairs(pure[which]) - joined[which]
        _add(self.splits, lambda some: ids(which[some]), missed, rows, parts[which], joined)

    def add_alone(self, rows: int) -> None:
        """See `streameval.states.contingency.cells.Watcher`."""
        self.unchanged_rows += rows

    def merge(self, others: Iterable[PairCosts]) -> PairCosts:
        """One watcher with the results of all."""
        parts = [self, *others]
        merged = PairCosts(self.merges.top, (self.merges.signed, self.splits.signed))
        merged.merges = merged.merges.merge(part.merges for part in parts)
        merged.splits = merged.splits.merge(part.splits for part in parts)
        merged.merged, merged.split = sum(part.merged for part in parts), sum(part.split for part in parts)
        merged.unchanged_rows = sum(part.unchanged_rows for part in parts)
        return merged


def pairs_within(rows: Array) -> Array:
    """Number of pairs within groups of the given sizes, as int64.

    Raises
    ------
    DataError
        If a group has 2³² rows or more, whose pairs exceed 64 bits.

    Examples
    --------
    >>> pairs_within(np.array([1, 2, 4]))
    array([0, 1, 6])
    """
    if rows.size and int(rows.max()) >= _MOST:
        most = f"{int(rows.max()):,} rows"
        raise DataError(
            f"a cluster or class has {most}; attribution takes those of fewer than 2³² rows: leave it out with where"
        )
    return _count_pairs(rows)


def _count_pairs(rows: Array) -> Array:
    """The same for cells; n·(n − 1) may exceed 63 bits, unlike half of it."""
    pairs: Array = (rows - (rows % 2 == 0)) * (rows // 2)
    return pairs


def _add(worst: Worst, ids: Ids, costs: Array, *columns: Array) -> None:
    """Add the groups that can be among the worst; only their ids are looked up."""
    near = worst.near(costs)
    if near.size:
        worst.add(ids(near), np.column_stack([column[near] for column in (costs, *columns)]))


class _Pairs(NamedTuple):
    """Pairs of rows: agreeing, of one class, of one cluster, all."""

    both: int
    classes: int
    clusters: int
    all: int


def _ratio(numerator: int, denominator: int) -> Fraction | None:
    return Fraction(numerator, denominator) if denominator else None


def _adjusted_rand_index(t: _Pairs) -> Fraction | None:
    expected = t.classes * t.clusters
    if t.both == t.classes == t.clusters and t.all:
        return Fraction(1) if 0 < t.both < t.all else Fraction(1, 2)
    return _ratio(2 * (t.both * t.all - expected), (t.classes + t.clusters) * t.all - 2 * expected)


_PAIR_MEASURES: dict[str, Callable[[_Pairs], Fraction | None]] = {
    "adjusted_rand_index": _adjusted_rand_index,
    "pairwise.precision": lambda t: _ratio(t.both, t.clusters),
    "pairwise.recall": lambda t: _ratio(t.both, t.classes),
    "pairwise.fscore": lambda t: _ratio(2 * t.both, t.classes + t.clusters) if t.classes and t.clusters else None,
}
_BCUBED = ("bcubed_precision", "bcubed_recall", "bcubed_fscore")
GAINS: tuple[str, ...] = (*_PAIR_MEASURES, *_BCUBED)
GAIN = GAINS[0]  # where no metric is named

Gain = Callable[[int, int], float]


def gains(metric: str, summary: Summary) -> tuple[Gain, Gain]:
    """The gains of a metric on a table, NaN where it is undefined before or after.

    Returns
    -------
    split : of splitting a cluster along its classes, from its false pairs and its rows
    join : of joining the pure clusters of a class, from the pairs that this brings together and the rows of the class

    Raises
    ------
    OptionError
        If the metric has no gain; the message lists those that have one.

    Notes
    -----
    A cluster of b rows with F false pairs loses 2·F/b rows of B-cubed precision; recall likewise. With precision P and
    recall R, raising P by d raises the F-score by 2·R²·d / ((P + R)·(P + R + d)).

    Examples
    --------
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 2]))
    >>> split, join = gains("pairwise.precision", table)
    >>> split(2, 3)
    0.5
    """
    check_gain(metric)
    facts = CountedStatistics(summary)
    if metric in _BCUBED:
        total = int(facts.total)
        precision, recall = (float(side / total) for side in facts.bcubed)

        def raise_side(name: str, other: float, pairs: int, rows: int) -> float:
            gained = 2 * pairs / (rows * total)
            if metric != "bcubed_fscore":
                return gained if metric == name else 0.0
            return 2 * other * other * gained / ((precision + recall) * (precision + recall + gained))

        return partial(raise_side, "bcubed_precision", recall), partial(raise_side, "bcubed_recall", precision)
    t, measure = facts.pairs, _PAIR_MEASURES[metric]
    table = _Pairs(int(t.TP), int(t.p1), int(t.p2), int(t.n))
    before = measure(table)

    def rise(pairs: int, _: int, *, both: int, clusters: int) -> float:
        after = measure(table._replace(both=table.both + both * pairs, clusters=table.clusters + clusters * pairs))
        return float("nan") if before is None or after is None else float(after - before)

    return partial(rise, both=0, clusters=-1), partial(rise, both=1, clusters=1)


def check_gain(metric: str) -> None:
    """Raise `OptionError` if a metric has no gain."""
    if metric not in GAINS:
        raise OptionError(f"metric={metric!r} has no gain of splitting a cluster; choose one of {', '.join(GAINS)}")


class Members(NamedTuple):
    """The largest cells of some groups.

    Attributes
    ----------
    group : int64 array of shape (n,), ascending positions of the groups
    ids : uint64 array of shape (n, n_words), the class of each cell in a cluster, or the cluster of each in a class
    rows : int64 array of shape (n,), descending within a group
    """

    group: Array
    ids: Array
    rows: Array

    @classmethod
    def of(cls, parts: Sequence[tuple[Array, Array, Array]], most: int, *, signed: bool) -> Members:
        """The largest cells of each group, at most `most`, from distinct cells; equal cells rank by ascending id."""
        parts = [part for part in parts if part[0].size]
        if not parts:
            return cls(np.empty(0, np.int64), np.empty((0, 1), np.uint64), np.empty(0, np.int64))
        group, ids, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
        first = ids[:, 0] ^ _SIGN if signed else ids[:, 0]
        order = np.lexsort([*ids.T[:0:-1], first, -rows, group])
        group = group[order]
        largest = np.arange(group.size) - np.searchsorted(group, group) < most
        order = order[largest]
        return cls(group[largest], ids[order], rows[order])


@dataclass(frozen=True, eq=False)
class Largest(ShardMetric["tuple[Members, ...]", "tuple[Members, ...]", "ContingencyCounts"]):
    """The largest cells of a few clusters and of a few classes, from one walk over the rows of the state.

    Attributes
    ----------
    clusters, classes : uint64 arrays of shape (n_groups, n_words), ids of the groups
    signed : whether the ids of clusters, and of classes, are signed integers, since equal cells are ranked by id
    most : largest number of cells for each group
    """

    clusters: Array
    classes: Array
    signed: tuple[bool, bool]
    most: int = 3
    name: str = "largest_cells"

    def read(self, state: ContingencyCounts, shard: Interval, budget: Budget | None) -> tuple[Members, ...]:
        """The largest cells of a shard, which holds complete clusters and thus complete cells."""
        sides: tuple[list[tuple[Array, Array, Array]], ...] = [], []
        for clusters, classes, counts in state.rows_of(shard, budget):
            named = (self.clusters, clusters, classes), (self.classes, classes, clusters)
            for rows, (groups, own, other) in zip(sides, named, strict=True):
                group = positions(groups, own)
                inside = np.flatnonzero(group >= 0)
                rows.append((group[inside], other[inside], counts[inside]))
        return self._largest(*([_sum_rows(*map(np.concatenate, zip(*rows, strict=True)))] if rows else []
                               for rows in sides))  # fmt: skip

    def combine(self, partials: Sequence[tuple[Members, ...]], state: ContingencyCounts) -> tuple[Members, ...]:
        """The largest cells over all shards."""
        return self._largest(*([part[side] for part in partials] for side in (0, 1)))

    def _largest(self, *sides: Sequence[tuple[Array, Array, Array]]) -> tuple[Members, ...]:
        """The largest cells of clusters and of classes; those of clusters are named by their class."""
        others = zip(sides, self.signed[::-1], strict=True)
        return tuple(Members.of(parts, self.most, signed=signed) for parts, signed in others)


def _sum_rows(group: Array, ids: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Cells, each once, with the sum of the counts of their rows."""
    numbers, first = number_rows(np.array([0, group.size]), group.astype(np.uint64), ids, ids.shape[1])
    rows = np.zeros(first.size, np.int64)
    np.add.at(rows, numbers, counts)
    return group[first], ids[first], rows
