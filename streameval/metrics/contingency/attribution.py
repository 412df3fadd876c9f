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

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.kernels.contingency.attribution import keep_largest, positions
from streameval.metrics.contingency.measures import CountedStatistics
from streameval.metrics.protocol import ShardMetric
from streameval.metrics.worst import Worst
from streameval.states.contingency.cells import Margins, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.contingency.watch import CellsOfClasses, Ids
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_SIGN = np.uint64(1 << 63)
_MOST = 1 << 32  # rows of a group whose pairs fit into 64 bits


class PairCosts:
    """A watcher (`streameval.states.contingency.rounds`) that keeps the worst merges and splits.

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
        self._impure: Margins | None = None  # open clusters, with their cells as totals and their sizes as maxima
        self._agreeing = np.empty(0, np.int64)

    def add_clusters(self, clusters: Array, classes: Array, rows: Array, sizes: Array) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        impure = np.flatnonzero(rows < sizes)
        rows = rows[impure]
        self._add_impure(clusters[impure], np.ones_like(rows), _count_pairs(rows), sizes[impure])

    def add_classless(self, clusters: Array, rows: Array, sizes: Array) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        several = sizes > 1
        self.unchanged_rows += int(rows[~several].sum())
        rows = rows[several]
        self._add_impure(clusters[several], rows, np.zeros_like(rows), sizes[several])

    def _add_impure(self, clusters: Array, cells: Array, agreeing: Array, sizes: Array) -> None:
        if self._impure is None:
            self._impure = Margins(clusters.shape[1] - 1)
        numbers = self._impure.add(clusters[:, 0], clusters[:, 1:], cells, sizes)
        more = np.zeros(self._impure.totals.size - self._agreeing.size, np.int64)
        self._agreeing = np.concatenate((self._agreeing, more))
        np.add.at(self._agreeing, numbers, agreeing)

    def close_clusters(self) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
        if self._impure is not None:
            rows = self._impure.maxima
            self.merged += rows.size
            _add(self.merges, self._impure.ids, pairs_within(rows) - self._agreeing, rows, self._impure.totals)
        self._impure, self._agreeing = None, self._agreeing[:0]

    def add_classes(
        self, ids: Ids, totals: Array, maxima: Array, singles: Array, cells: Iterable[CellsOfClasses]
    ) -> None:
        """See `streameval.states.contingency.rounds.Watcher`."""
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
        """See `streameval.states.contingency.rounds.Watcher`."""
        self.unchanged_rows += rows

    def merge(self, others: Iterable[PairCosts]) -> PairCosts:
        """One watcher with the results of all."""
        parts = [self, *others]
        found = PairCosts(self.merges.top, (self.merges.signed, self.splits.signed))
        found.merges = found.merges.merge(part.merges for part in parts)
        found.splits = found.splits.merge(part.splits for part in parts)
        found.merged, found.split = sum(part.merged for part in parts), sum(part.split for part in parts)
        found.unchanged_rows = sum(part.unchanged_rows for part in parts)
        return found


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

    def split(self, pairs: int) -> _Pairs:
        """The pairs after a cluster has lost its false pairs."""
        return self._replace(clusters=self.clusters - pairs)

    def joined(self, pairs: int) -> _Pairs:
        """The pairs after missed pairs have come together."""
        return self._replace(both=self.both + pairs, clusters=self.clusters + pairs)


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


class Gains(Protocol):
    """Gain of a metric if one cluster is split along its classes, or the pure clusters of a class are joined.

    NaN where the metric is undefined before or after.
    """

    def split(self, false_pairs: int, rows: int) -> float:
        """Gain of splitting a cluster with these false pairs and rows."""

    def joined(self, pairs: int, rows: int) -> float:
        """Gain of joining the pure clusters of a class with these rows, which brings these pairs together."""


@dataclass(frozen=True)
class _PairGains(Gains):
    measure: Callable[[_Pairs], Fraction | None]
    table: _Pairs

    def split(self, false_pairs: int, rows: int) -> float:
        return self._rise(self.table.split(false_pairs))

    def joined(self, pairs: int, rows: int) -> float:
        return self._rise(self.table.joined(pairs))

    def _rise(self, after: _Pairs) -> float:
        before, now = self.measure(self.table), self.measure(after)
        return float("nan") if before is None or now is None else float(now - before)


@dataclass(frozen=True)
class _BcubedGains(Gains):
    """A cluster of b rows with F false pairs loses 2·F/b rows of precision; recall likewise.

    With precision P and recall R, raising P by d raises the F-score by 2·R²·d / ((P + R)·(P + R + d)).
    """

    name: str
    precision: float
    recall: float
    rows: int

    def split(self, false_pairs: int, rows: int) -> float:
        gained = 2 * false_pairs / (rows * self.rows)
        return {"bcubed_precision": gained, "bcubed_recall": 0.0}.get(self.name, self._fscore(gained, self.recall))

    def joined(self, pairs: int, rows: int) -> float:
        gained = 2 * pairs / (rows * self.rows)
        return {"bcubed_precision": 0.0, "bcubed_recall": gained}.get(self.name, self._fscore(gained, self.precision))

    def _fscore(self, gained: float, other: float) -> float:
        both = self.precision + self.recall
        return 2 * other * other * gained / (both * (both + gained))


def gains(metric: str, summary: Summary) -> Gains:
    """The gains of a metric on a table.

    Raises
    ------
    OptionError
        If the metric has no gain; the message lists those that have one.

    Examples
    --------
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([2, 1, 2]))
    >>> gains("pairwise.precision", table).split(false_pairs=2, rows=3)
    0.5
    """
    check_gain(metric)
    facts = CountedStatistics(summary)
    if metric in _BCUBED:
        by_cluster, by_class = facts.bcubed
        total = int(facts.total)
        return _BcubedGains(metric, float(by_cluster / total), float(by_class / total), total)
    t = facts.pairs
    return _PairGains(_PAIR_MEASURES[metric], _Pairs(int(t.TP), int(t.p1), int(t.p2), int(t.n)))


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
    def none(cls) -> Members:
        """No cells."""
        return cls(np.empty(0, np.int64), np.empty((0, 1), np.uint64), np.empty(0, np.int64))


@dataclass(frozen=True, eq=False)
class Largest(ShardMetric):
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

    def read(self, state: ContingencyCounts, shard: Interval, budget: Budget | None) -> tuple[Members, Members]:
        """The largest cells of a shard, which holds complete clusters and thus complete cells."""
        taken: tuple[list[tuple[Array, Array, Array]], ...] = [], []
        for clusters, classes, counts in state.rows_of(shard, budget).near(self.clusters, self.classes):
            sides = (self.clusters, clusters, classes), (self.classes, classes, clusters)
            for found, (groups, own, other) in zip(taken, sides, strict=True):
                group = positions(groups, own)
                inside = group >= 0
                found.append((group[inside], other[inside], counts[inside]))
        cells = [_summed(*_joined(found)) for found in taken if found] or [Members.none()] * 2
        return self._largest(*([side] for side in cells))

    def combine(self, partials: Sequence[tuple[Members, Members]], state: ContingencyCounts) -> tuple[Members, Members]:
        """The largest cells over all shards."""
        return self._largest(*([part[side] for part in partials] for side in (0, 1)))

    def _largest(self, *sides: Sequence[tuple[Array, Array, Array]]) -> tuple[Members, Members]:
        """The largest cells of clusters and of classes, from cells in several parts."""
        of = ([part for part in parts if part[0].size] for parts in sides)
        by_cluster, by_class = (
            _first(_joined(parts), self.most, signed=signed) if parts else Members.none()
            for parts, signed in zip(of, self.signed[::-1], strict=True)
        )
        return by_cluster, by_class


def _joined(parts: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Columns of several parts, one after the other."""
    group, ids, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    return group, ids, rows


def _first(cells: tuple[Array, Array, Array], most: int, *, signed: bool) -> Members:
    """The largest cells of each group, from distinct cells in any order."""
    group, ids, rows = cells
    groups = int(group.max(initial=-1)) + 1
    kept, kept_ids = np.zeros(groups, np.int64), np.empty((groups, most, ids.shape[1]), np.uint64)
    kept_rows = np.empty((groups, most), np.int64)
    keep_largest(group, ids, rows, _SIGN if signed else np.uint64(0), kept, kept_ids, kept_rows)
    inside = np.arange(most) < kept[:, None]
    return Members(np.repeat(np.arange(groups), kept), kept_ids[inside], kept_rows[inside])


def _summed(group: Array, ids: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Rows of cells, each cell once."""
    words = group.astype(np.uint64)
    numbers, found = numbered(np.array([0, words.size]), words, np.ascontiguousarray(ids), ids.shape[1])
    rows = np.zeros(found.size, np.int64)
    np.add.at(rows, numbers, counts)
    return group[found], ids[found], rows
