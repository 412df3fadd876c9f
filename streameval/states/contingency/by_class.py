"""The second round over (cluster, class) cells, by class; `streameval.states.contingency.by_cluster` lists all rounds.

One bucket holds all rows of a class and all its cells, each with its count n and the size c of its cluster. So the size
r of the class, its largest cell and both margins of every cell are known. Cells with n = c = 1 are not stored: a class
of size r has r − Σ n such cells, with the sum over its stored cells.

One loop reads the cells where they lie in the segments and adds them up by size
(`streameval.kernels.contingency.cells.tally_classes`). If a watcher sees the classes, or a bucket holds a giant one,
their cells are read twice instead, first for the sizes, then for the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from streameval.budget import fresh_columns
from streameval.kernels.contingency.cells import ClassArrays, Tallies
from streameval.kernels.contingency.tables import add_margins, slots_for
from streameval.kernels.fused import FUSED
from streameval.kernels.keyed.sizes import marks_for
from streameval.states.contingency.cells import (
    Cells,
    Keys,
    Lines,
    Margins,
    Shared,
    Visit,
    Watcher,
    core_layouts,
    cut_within,
    interval_items,
    keep_undominated,
    number_rows,
    part_items,
    pieces,
    sizes_of_cells,
)
from streameval.states.contingency.summary import Sizes, Summary, summarize_cells, summarize_classes
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Interval, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.typing import Array

T = TypeVar("T")

_TOGETHER = 1 << 19  # items of classes whose cells are copied, or gathered, together
_TABLE, _LEAST = 8, 1 << 10  # largest number of entries of a table by size: for each item, or at least this
_BITS, _SIZES = 6, 1 << 16  # bits of a small size, and number of sizes in a table, if there are many items


@dataclass(frozen=True)
class ByClass:
    """The second round: the cells of the first one, by class.

    Attributes
    ----------
    rows : KeyedCounts
        Singleton cells (n = c = 1); the words are the class.
    others : KeyedCounts
        All other cells, with n and c after the words of the class, in one word if both are below 2³²; then `owner`
        words of the cluster.
    single : KeyedCounts
        For the assignment, the clusters with rows without a class, with the largest such cell, 1.
    owner : int
        Number of words of the cluster that cells carry.
    watch : creates the watcher of an interval
    """

    rows: KeyedCounts
    others: KeyedCounts
    single: KeyedCounts
    owner: int = 0
    watch: Callable[[], Watcher] | None = None

    name: ClassVar[str] = "classes"

    @property
    def hands_on(self) -> bool:
        """Whether the assignment is needed."""
        return self.owner > 0

    @property
    def packed(self) -> bool:
        """Whether n and c share a word."""
        return self.others.layout.words - self.rows.layout.words - self.owner == 1

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The cells."""
        return {"rows": self.rows, "others": self.others, "single": self.single}

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> ByClass:
        """The round over other cells."""
        return ByClass(**runs, owner=self.owner, watch=self.watch)

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of classes."""
        sizes = self._sizes() + self.single.items[0::2]
        start, stop = within or (0, sizes.size)
        return cut_within(
            sizes, part_items(int(sizes[start:stop].sum()), interval_items(budget), budget.threads), within
        )

    def visit(self, interval: Interval, budget: Budget) -> tuple[Visit, Shared | None]:
        """The sizes of the classes of an interval and the sums of their cells; by cluster, the cells to match."""
        watcher = None if self.watch is None else self.watch()
        summary = self.summarize(interval, budget, watcher)
        if not self.owner:
            return Visit(summary, watcher), None
        lines, shared = self._match(interval, budget)
        return Visit(summary, watcher, lines), replace(shared, single=shared.single.merge(self.single.range(*interval)))

    def summarize(self, interval: Interval, budget: Budget, watcher: Watcher | None = None) -> Summary:
        """The partial summary of the classes of an interval of buckets and of their cells, which a watcher may see."""
        start, stop = interval
        sizes = self._sizes()[start:stop]
        if not sizes.any():
            return Summary()
        giant = stop - start == 1 and sizes[0] > 4 * interval_items(budget)
        if watcher is None and not giant and ("cells", "classes") in FUSED:
            return self._in_place(interval, budget)
        cuts = [(start + i, start + j) for i, j in cut(sizes, _TOGETHER)]
        return Summary().merge(*(self.summarize_read(some, budget, watcher, giant=giant) for some in cuts))

    def summarize_read(self, interval: Interval, budget: Budget, watcher: Watcher | None, *, giant: bool) -> Summary:
        """As `summarize`, for classes whose cells are read twice, first for the sizes of classes."""
        others = _cache_if_small(lambda: pieces(self.others, 0, interval, budget), giant=giant)
        margins, singles = self._margins(pieces(self.rows, 0, interval, budget), others())

        def number_cells() -> Iterator[tuple[Array, Array, Array, Array]]:
            for words, rest, counts, _ in others():
                yield margins.number(words, rest), *self._counts(rest), counts

        cells = _cache_if_small(number_cells, giant=giant)
        if watcher is not None:
            watcher.add_classes(margins.ids, margins.totals, margins.maxima, singles, cells())
        parts = (
            summarize_known(codes, n, margins.totals, c, times if times.size else None)
            for codes, n, c, times in cells()
        )
        return summarize_classes(margins.totals, margins.maxima).merge(_singles(singles, margins.totals), *parts)

    def _sizes(self) -> Array:
        """Items of each bucket, as an int64 array."""
        return self.rows.items[0::2] + self.others.items[0::2]

    def _counts(self, rest: Array) -> tuple[Array, Array]:
        """Count n and cluster size c of other cells, from the further words of their keys; int64 arrays."""
        return sizes_of_cells(rest, self.rows.layout.words - 1, packed=self.packed)

    def _margins(self, rows: Iterable[Sequence[Array]], others: Iterable[Sequence[Array]]) -> tuple[Margins, Array]:
        """Sizes and largest cells of the classes of some rows and cells, and each class's number of singleton cells."""
        margins = Margins(self.rows.layout.words - 1)
        for words, rest, counts, _ in rows:
            ones = np.ones(words.size, np.int64)
            margins.add(words, rest, counts if counts.size else ones, ones - 1)
        singles = margins.totals.copy()
        np.minimum(singles, 1, out=margins.maxima)
        for words, rest, counts, _ in others:
            n = self._counts(rest)[0]
            margins.add(words, rest, n * counts if counts.size else n, n)
        return margins, np.concatenate((singles, np.zeros(margins.totals.size - singles.size, np.int64)))

    def _in_place(self, interval: Interval, budget: Budget) -> Summary:
        """As `summarize`; cells are read where they lie."""
        both = self.rows, self.others
        places = [keyed.places(*interval) for keyed in both]
        items = [keyed.items_in(*interval)[0::2] for keyed in both]
        together = items[0] + items[1]
        cuts = cut(together, _TOGETHER)
        most = max((int(together[i:j].sum()) for i, j in cuts), default=0)
        entries = max(_TABLE * int(together.sum()), _LEAST)
        bits = min(_BITS, (entries.bit_length() - 1) // 3)
        further, maxima = tuple(range(self.rows.layout.words - 1)), 0
        own = _class_arrays(items, len(further), counted=bool(places[0].at.counts.any()))
        large, small = fresh_columns(most, ((4,), np.int64), ((2,), np.int64)), np.zeros(8**bits, np.int64)
        listed = [[array[:0] for array in large]]
        tallies = Tallies(small, *np.zeros((2, min(_SIZES, entries)), np.int64), *large)
        for i, j in cuts:
            form = further, self.others.layout.words - 1, self.packed, bits
            *counts, largest = FUSED["cells", "classes"](places[0].at, places[1].at, i, j, *form, own, tallies)
            listed.append([array[:count].copy() for array, count in zip(large, counts, strict=True)])
            maxima += largest
        filled = np.flatnonzero(small != 0)  # takes half the time of searching numbers
        low = (1 << bits) - 1
        r, c, n, times = filled >> (2 * bits), (filled >> bits) & low, filled & low, small[filled]
        cells, classes = (np.concatenate(parts).T.copy() for parts in zip(*listed, strict=True))
        numbers, totals = _number_sizes(cells[0])
        sizes = np.flatnonzero(tallies.sizes != 0)
        in_table = np.arange(1 + max(int(r.max(initial=0)), int(c.max(initial=0))))
        return Summary(classes=Sizes(sizes, tallies.sizes[sizes]).merge(Sizes.of(classes[0])), row_maxima=maxima).merge(
            _singles(np.append(tallies.singles[sizes], classes[1]), np.append(sizes, classes[0])),
            summarize_cells(r, c, n, in_table, in_table, times),
            summarize_known(numbers, cells[2], totals, cells[1], cells[3] if self.others.counted else None),
        )

    def _match(self, interval: Interval, budget: Budget) -> tuple[Lines, Shared]:
        """The classes of an interval that the assignment needs, and their shared cells, by cluster."""
        keys = Keys(self.owner, self.rows.layout.words)
        builders = [SegmentBuilder.fitting(layout, budget, SLAB) for layout in core_layouts(keys)]
        margins, singles = self._margins(*(pieces(keyed, 0, interval, budget) for keyed in (self.rows, self.others)))
        lone = margins.words(singles > 0)

        def parts() -> Iterator[Cells]:
            yield Cells.own(lone, np.ones(lone.shape[0], np.int64), keys.cluster)
            for words, rest, _, _ in pieces(self.others, 0, interval, budget):
                n, c = self._counts(rest)
                yield Cells(np.column_stack((words, rest[:, : keys.class_ - 1])), rest[:, -keys.cluster :], n, n < c)

        def keep(part: Cells, alone: Array) -> None:
            for builder, some in zip(builders, (part.at(~alone), part.at(alone)), strict=True):
                columns = [some.other[:, 1:], some.line, some.counts.view(np.uint64).reshape(-1, 1)]
                words = some.other[:, 0]
                rest = np.hstack(columns if builder is builders[0] else columns[::2])
                builder.add_items(words, id_codes(words), rest, NO_COUNTS, NO_WEIGHTS)

        return keep_undominated(parts, keep), Shared(*map(KeyedCounts.built, builders))


def _class_arrays(items: Sequence[Array], further: int, *, counted: bool) -> ClassArrays:
    """Arrays for the largest bucket, given the singleton cells and the other cells of each bucket."""
    both, rows, cells = (int(sizes.max(initial=0)) for sizes in (items[0] + items[1], *items))
    (classes,), (owners,) = fresh_columns(both, ((further + 4,), np.uint64)), fresh_columns(cells, ((), np.int32))
    words, rest, counts = fresh_columns(rows, ((), np.uint64), ((further,), np.uint64), ((), np.int64))
    slots = slots_for(np.array([0, both]))
    return ClassArrays(slots, classes, owners, marks_for(rows), words, rest, counts if counted else counts[:0])


def _cache_if_small(read: Callable[[], Iterable[T]], *, giant: bool) -> Callable[[], Iterable[T]]:
    """The function; if what it reads fits into memory, it is kept and read once."""
    return read if giant else cache(lambda: list(read()))


def _singles(times: Array, totals: Array) -> Summary:
    """Partial summary of singleton cells (n = c = 1), `times` of each class.

    Classes of equal size are combined.
    """
    numbers, sizes = _number_sizes(totals)
    each = np.zeros(sizes.size, np.int64)
    add_margins(numbers, times, times, each, each.copy())
    codes, ones = np.flatnonzero(each), np.ones(sizes.size, np.int64)
    return summarize_cells(codes, ones[codes] - 1, ones[codes], sizes, ones[:1], each[codes])


def lone_classes(sizes: Array, times: Array) -> Summary:
    """Cells of classes of one row, `times` of them in clusters of each size."""
    total = int(times.sum())
    ones = np.ones(sizes.size, np.int64)
    cells = summarize_known(np.zeros(sizes.size, np.int64), ones, ones[:1], sizes, times)
    return cells.merge(Summary(classes=Sizes.repeat(1, total), row_maxima=total))


def summarize_known(codes: Array, n: Array, totals: Array, c: Array, times: Array | None) -> Summary:
    """Partial summary of cells with known class and cluster sizes; clusters of equal size are combined."""
    columns, clusters = _number_sizes(c)
    return summarize_cells(codes, columns, n, totals, clusters, times)


def _number_sizes(sizes: Array) -> tuple[Array, Array]:
    """The number of each size, and the sizes by number; if the sizes are small, each is its own number."""
    most = int(sizes.max(initial=0))
    if most < min(_SIZES, max(_TABLE * sizes.size, _LEAST)):
        return sizes, np.arange(most + 1)
    numbers, first = number_rows(
        np.array([0, sizes.size]), sizes.view(np.uint64), np.empty((sizes.size, 0), np.uint64), 0
    )
    return numbers, sizes[first]
