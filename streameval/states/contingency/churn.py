"""Churn: what became of the clusters of an earlier clustering, and where those of the new one come from.

A row has the id of its old and of its new cluster. With n_ij the common rows of old cluster i and new cluster j, a_i
and b_j the sums over cells, i's successor s(i) is the j with the largest n_ij, j's predecessor r(j) the i; the smallest
id wins ties (for ids other than integers, the smallest hash). A pair with s(i) = j and r(j) = i is *continued*. Any
other old cluster is *absorbed* if n_is(i) > a_i/2, else *dispersed*; any other new one is *split off* if n_r(j)j >
b_j/2, else *formed*. MONIC (Spiliopoulou et al. 2006) also calls more than half a match.

The cells are visited three times, in bounded memory (`streameval.states.rounds`), each round handing them on:

1. by new cluster: b_j and r(j);
2. by old cluster: a_i, s(i), so the continued pairs and the fate of i;
3. by new cluster: the fate of j, so the fates of both sides of every row that is in no continued pair. Cells that are
   all of their new cluster are settled in the second round.

Cells may be divided further by a tag, the block of their unit. Rows of continued pairs are then counted by tag.

References
----------
Spiliopoulou, M., Ntoutsi, I., Theodoridis, Y. and Schult, R. (2006). MONIC: modeling and monitoring cluster
transitions. *KDD*, 706-711.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import comb
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from streameval.budget import fresh_columns
from streameval.kernels.contingency.cells import CellArrays, cluster_cells
from streameval.kernels.contingency.tables import add_margins, first_largest
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.contingency.by_cluster import bucket_arrays
from streameval.states.contingency.cells import Keys, cut_within, interval_items, number_rows, part_items
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import Interval, Layout, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.counts import ContingencySpec
    from streameval.typing import Array

OLD_FATES = ("continued", "absorbed", "dispersed")
NEW_FATES = ("continued", "split_off", "formed")
_PART, _BEST, _HALF, _LARGE = (1 << bit for bit in range(4))  # of a cell among those of its new cluster
_FLAGS = 48  # bits of the rows of a cell below its flags: those of a cluster add up
_FATES = 4
_ROWS = 1 << 17  # rows that are grouped together: their arrays stay in the cache


@dataclass(frozen=True)
class Tally:
    """Sums over some clusters.

    Attributes
    ----------
    counts : clusters by fate, rows and pairs, by name
    moved : int64 array of shape (3, 3), rows outside of continued pairs by the fates of their old and new cluster
    by_tag : int64 array of shape (2, n_tags), rows with both ids, and those of them in continued pairs
    """

    counts: Counter[str] = field(default_factory=Counter)
    moved: Array = field(default_factory=lambda: np.zeros((3, 3), np.int64))
    by_tag: Array = field(default_factory=lambda: np.zeros((2, 1), np.int64))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.counts + other.counts, self.moved + other.moved, self.by_tag + other.by_tag)


@dataclass(frozen=True)
class Form:
    """What the words of a row are.

    Attributes
    ----------
    spec : the table, whose classes are the old clusters
    tags : number of tags, whose column follows the ids; 0 without
    least : smallest size of clusters that are counted; of a continued pair, the larger side decides
    """

    spec: ContingencySpec
    tags: int
    least: int

    @property
    def cells(self) -> Layout:
        """Layout of cells that are handed on: words of both ids and the tag; counts are rows, in parts with flags."""
        return Layout(ID_BUCKETS, 64, sum(self.spec.keys) + bool(self.tags))


@dataclass(frozen=True)
class _Cells:
    """The cells of some clusters, all of theirs.

    Attributes
    ----------
    other : uint64 array of shape (n_cells, n_words), ids of the other side
    rows : int64 array of shape (n_cells,)
    owner : int64 array of shape (n_cells,), the number of the cluster
    sizes : int64 array of shape (n_clusters,)
    """

    other: Array
    rows: Array
    owner: Array
    sizes: Array

    @classmethod
    def of(cls, words: Array, rest: Array, rows: Array, own: int, bounds: Array) -> _Cells:
        """Distinct cells by bucket, whose first `own` words are those of the cluster, then those of the other side."""
        owner, _, sizes = _sum_rows(words, rest, rows, own, bounds)
        return cls(rest[:, own - 1 :], rows, owner, sizes)

    def largest(self, kind: str) -> Array:
        """The largest cell of each cluster; of several, the one of the smallest other id."""
        order = self.other.copy()
        if kind == "signed":
            order[:, 0] ^= np.uint64(1 << 63)
        best = np.full(self.sizes.size, -1)
        first_largest(self.owner, self.rows, order, best)
        return best


def _pairs(sizes: Array) -> int:
    """Pairs of rows within some groups; products of large sizes exceed 63 bits, and so do sums."""
    large = sizes >= 1 << 31
    pairs = np.where(large, 0, sizes) * (sizes - 1) // 2
    total = (int((pairs >> 32).sum()) << 32) + int((pairs & 0xFFFFFFFF).sum())
    return total + sum(comb(size, 2) for size in sizes[large].tolist())


def _lone(keyed: KeyedCounts, label: int, interval: Interval) -> tuple[Array, Array]:
    """The ids of rows without one of the other side in an interval, their first words mixed, and their counts."""
    if not keyed.items_in(*interval)[label::2].any():
        return np.empty((0, keyed.layout.words), np.uint64), np.empty(0, np.int64)
    side = keyed.gather(*interval)[label]
    counts = side.counts if side.counts.size else np.ones(side.words.size, np.int64)
    return np.column_stack((side.words, side.rest)), counts


def _sum_rows(words: Array, rest: Array, rows: Array, ids: int, bounds: Array) -> tuple[Array, Array, Array]:
    """The number of each distinct id of some words, where it is first, and its rows; buckets begin at `bounds`."""
    number, first = number_rows(bounds, words, rest, ids - 1)
    sums, unused = np.zeros((2, first.size), np.int64)
    add_margins(number, rows, number, sums, unused)
    return number, first, sums


def _find_unmatched(words: Array, rows: Array, others: Sequence[Array]) -> Array:
    """The sizes of the clusters with these words and rows that are not among the words of others."""
    both = np.concatenate((*others, words))
    before, own = len(both) - len(words), both.shape[1]
    each = np.concatenate((np.zeros(before, np.int64), rows))
    bounds = np.array([0, len(both)])
    _, first, sizes = _sum_rows(np.ascontiguousarray(both[:, 0]), both[:, 1:], each, own, bounds)
    return sizes[first >= before]


@dataclass(frozen=True)
class _Visited:
    """Base of the rounds."""

    form: Form
    cells: KeyedCounts
    alone: KeyedCounts

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The rows with both ids, and those with an old one alone."""
        return {"cells": self.cells, "alone": self.alone}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> Self:
        """The round over other rows."""
        return replace(self, cells=runs["cells"], alone=runs["alone"])

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of clusters that fit into memory."""
        sizes: Array = np.add.reduce([run.items[0::2] + run.items[1::2] for run in self.runs().values()])
        return cut_within(sizes, part_items(int(sizes.sum()), interval_items(budget), budget.threads), within)

    def _groups(self, interval: Interval, own: int) -> Iterator[tuple[Interval, Array, Array, Array]]:
        """The rows of both ids by clusters of `own` words, some buckets at a time; the next ones reuse the arrays.

        Yields
        ------
        interval : the buckets
        cells : uint64 array, of clusters of several rows: words of the cluster and of the other id, the tag, and rows
        singles : uint64 array, of clusters of one row: words of the other id, the tag, and words of the cluster
        sizes : int64 array, rows of the clusters of several
        """
        items, places = self.cells.items_in(*interval)[0::2], self.cells.places(*interval)
        cuts, further = cut(items, _ROWS), self.form.cells.words - own
        shapes = ((), np.uint64), ((further + 1 + own,), np.uint64), ((further + own,), np.uint64), ((), np.int64)
        arrays = bucket_arrays(Keys(own, further), int(items.max(initial=0)), places)
        most = max((int(items[i:j].sum()) for i, j in cuts), default=0)
        words, rest, singles, sizes = fresh_columns(most, *shapes)
        out = CellArrays(words, rest, singles, np.zeros(2, np.int64), sizes)
        columns = tuple(range(own - 1)), tuple(range(further))
        for i, j in cuts:
            cells, alone, several, _ = cluster_cells(places.at, i, j, *columns, False, arrays, out)
            entries = np.column_stack((rest[:cells, further + 1 :], words[:cells], rest[:cells, :further]))
            yield (interval[0] + i, interval[0] + j), entries, singles[:alone], sizes[:several]

    def _merged(self, entries: Array, interval: Interval, own: int) -> tuple[_Cells, Array | slice, Array | slice]:
        """The cells of some entries, see `_groups`, the first entry of each, and the cell of each entry."""
        ids, bounds = sum(self.form.spec.keys), np.arange(interval[0], interval[1] + 1)
        bounds = np.searchsorted(id_codes(entries[:, 0]) >> 1, bounds)
        first: slice | Array = slice(None)
        cell: slice | Array = slice(None)
        words, rest = np.ascontiguousarray(entries[:, 0]), entries[:, 1:]
        rows = (entries[:, -1] & np.uint64((1 << _FLAGS) - 1)).astype(np.int64)
        if self.form.tags:
            cell, first, rows = _sum_rows(words, rest, rows, ids, bounds)
            bounds = np.searchsorted(first, bounds)
        return _Cells.of(words[first], rest[first, : ids - 1], rows, own, bounds), first, cell


class ByNew(_Visited):
    """The first round: by new cluster, the rows of the table, of which those of label 1 have no old cluster."""

    name: ClassVar[str] = "new clusters"
    hands_on: ClassVar[bool] = True

    @property
    def holder(self) -> ContingencySpec:
        """The spec of the state that holds the rows."""
        return self.form.spec

    def visit(self, interval: Interval, budget: Budget) -> tuple[Tally, ByOld]:
        """Sums over the new clusters of an interval, and their cells by old cluster."""
        form, (new, old), start = self.form, self.form.spec.keys, interval[0]
        left, (lone, arrived) = self.alone.range(*interval), _lone(self.cells, 1, interval)
        items, ids = self.cells.items_in(*interval)[0::2], [lone[:0, :new]]
        builder = SegmentBuilder.fitting(form.cells, budget, min(SLAB, max(1, int(items.sum()))))
        counts = Counter(
            rows=int(self.cells.rows[2 * start : 2 * interval[1] : 2].sum()),
            arrived=int(arrived.sum()),
            left=int(left.rows[0::2].sum()),
        )
        for buckets, entries, singles, sizes in self._groups(interval, new):
            if arrived.size:
                ids += [entries[:, :new], singles[:, -new:].copy()]
            counts["pairs_new"] += _pairs(sizes)
            counts["pairs_both"] += self._hand_on(entries, buckets, builder)
            builder.add_ids([*singles[:, :old].T, *singles[:, -new:].T, *singles[:, old:-new].T])
        born = _find_unmatched(lone[:, :new], arrived, ids) if arrived.size else arrived
        counts["births"] = int(np.count_nonzero(born >= form.least))
        no_tags = np.zeros((2, max(1, form.tags)), np.int64)
        return Tally(counts, by_tag=no_tags), ByOld(form, KeyedCounts.built(builder), left)

    def _hand_on(self, entries: Array, interval: Interval, builder: SegmentBuilder) -> int:
        """Hand on the cells of clusters of several rows, see `_groups`; returns the pairs of rows within them."""
        form, (new, old) = self.form, self.form.spec.keys
        cells, _, cell = self._merged(entries, interval, new)
        rows, sizes = cells.rows, cells.sizes[cells.owner]
        flags: Array = np.where(2 * rows > sizes, _HALF, 0) | np.where(sizes >= form.least, _LARGE, 0)
        flags[cells.largest(form.spec.class_type)] |= _BEST
        flags = np.where(rows < sizes, flags | _PART, 0)
        counts = entries[:, -1].astype(np.int64) | (flags << _FLAGS)[cell]
        ids = [*entries[:, new : new + old].T, *entries[:, :new].T]
        builder.add_ids([*ids, *entries[:, new + old : -1].T], counts)
        return _pairs(rows)


class ByOld(_Visited):
    """The second round: by old cluster, the cells and the rows without a new cluster."""

    name: ClassVar[str] = "old clusters"
    hands_on: ClassVar[bool] = True

    def visit(self, interval: Interval, budget: Budget) -> tuple[Tally, ByFate]:
        """Sums over the old clusters of an interval, and the cells that their new clusters need."""
        items = self.cells.items_in(*interval)
        layout = Layout(ID_BUCKETS, 64, self.form.spec.keys.cluster + 2)
        builder = SegmentBuilder.fitting(layout, budget, min(SLAB, max(1, int(items.sum()))))
        tally = Tally(by_tag=np.zeros((2, max(1, self.form.tags)), np.int64))
        old, (alone, left) = self.form.spec.keys.class_, _lone(self.alone, 0, interval)
        ids = [alone[:0]]
        for buckets, entries, singles, _ in self._groups(interval, old):
            if left.size:
                ids += [entries[:, :old], singles[:, -old:].copy()]
            more, columns = self._settle(buckets, entries, singles)
            tally += more
            builder.add_ids(columns)
        gone = _find_unmatched(alone, left, ids) if left.size else left
        tally.counts["deaths"] = int(np.count_nonzero(gone >= self.form.least))
        return tally, ByFate(self.form, KeyedCounts.built(builder), KeyedCounts(self.alone.layout))

    def _settle(self, interval: Interval, entries: Array, singles: Array) -> tuple[Tally, list[Array]]:
        """Sums over the old clusters of some buckets, see `_groups`, and the columns of the cells that are needed.

        An old cluster of one row that is a new cluster of one row is a continued pair.
        """
        form, (new, old) = self.form, self.form.spec.keys
        entries[:, old] = unmix(entries[:, old])
        cells, first, cell = self._merged(entries, interval, old)
        rows, flags = cells.rows, entries[first, -1].astype(np.int64) >> _FLAGS
        whole = flags == 0
        best, large = cells.largest(form.spec.cluster_type), ((flags & _LARGE) > 0) | (whole & (rows >= form.least))
        stays, old_large = (whole | ((flags & _BEST) > 0))[best], cells.sizes >= form.least
        fates, pairs = np.where(stays, 0, np.where(2 * rows[best] > cells.sizes, 1, 2)), best[stays]
        paired = np.zeros(rows.size, np.bool_)
        paired[pairs] = True
        settled = whole & ~paired
        counts = Counter(
            kept=int(rows[pairs].sum()) + len(singles),
            continued=int(np.count_nonzero(large[pairs] | old_large[stays])) + len(singles) * (form.least <= 1),
            absorbed=int(np.count_nonzero((fates == 1) & old_large)),
            dispersed=int(np.count_nonzero((fates == 2) & old_large)),
            split_off=int(np.count_nonzero(settled & large)),
            pairs_old=_pairs(cells.sizes),
        )
        moved, by_tag = np.zeros((3, 3), np.int64), np.zeros((2, max(1, form.tags)), np.int64)
        np.add.at(moved[:, 1], fates[cells.owner[settled]], rows[settled])
        if form.tags:
            by_tag += np.bincount(singles[:, new].astype(np.int64), minlength=form.tags)
            tags, each = entries[:, -2].astype(np.int64), entries[:, -1].astype(np.int64) & ((1 << _FLAGS) - 1)
            np.add.at(by_tag[0], tags, each)
            np.add.at(by_tag[1], tags, each * paired[cell])
        parts = np.flatnonzero(~whole)
        half = (flags[parts] & (_BEST | _HALF)) == (_BEST | _HALF)
        fate = fates[cells.owner[parts]] + 3 * np.where(paired[parts], 2, half)
        facts = np.column_stack(((rows[parts] << _FATES) | fate, large[parts])).view(np.uint64)
        return Tally(counts, moved, by_tag), [*cells.other[parts].T, *facts.T]


class ByFate(_Visited):
    """The third round: by new cluster, the cells with the fates of their old clusters."""

    name: ClassVar[str] = "fates"
    hands_on: ClassVar[bool] = False

    def visit(self, interval: Interval, budget: Budget) -> tuple[Tally, None]:
        """Sums over the new clusters of an interval."""
        new, side = self.form.spec.keys.cluster, self.cells.gather(*interval)[0]
        facts = side.rest[:, new - 1].astype(np.int64)
        rows, facts = facts >> _FATES, facts & 15
        times = side.counts if side.counts.size else np.ones(rows.size, np.int64)
        owner, first = number_rows(side.starts, side.words, side.rest, new - 1)
        state = np.zeros(first.size, np.int64)  # 2: continued, 1: split off, 0: formed
        np.maximum.at(state, owner, facts // 3)
        fates, large = 2 - state, side.rest[first, new] > 0
        others = facts // 3 < 2
        moved = np.zeros((3, 3), np.int64)
        np.add.at(moved, (facts[others] % 3, fates[owner[others]]), (rows * times)[others])
        counts = Counter(
            split_off=int(np.count_nonzero((fates == 1) & large)),
            formed=int(np.count_nonzero((fates == 2) & large)),
        )
        return Tally(counts, moved, np.zeros((2, max(1, self.form.tags)), np.int64)), None
