"""The second round over (cluster, class) cells, by class; `streameval.states.contingency.by_cluster` lists all rounds.

One bucket holds all rows of a class and all its cells, each with its count n and the size c of its cluster. So the size
r of the class, its largest cell and both margins of every cell are known. Cells with n = c = 1 are not stored: a class
of size r has r − Σ n such cells, with the sum over its stored cells.

The cells of some classes are visited twice, first for the sizes of the classes, then for the cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.kernels.contingency.tables import add_margins
from streameval.states.contingency.cells import (
    Keys,
    Margins,
    core_layouts,
    cut_within,
    interval_items,
    numbered,
    parted,
    pieces,
    sizes_of_cells,
)
from streameval.states.contingency.matching_core import Cells, Lines, Shared, Visit, keep_undominated
from streameval.states.contingency.summary import Sizes, Summary, summarize_cells, summarize_classes
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_TOGETHER = 1 << 19  # items of classes whose cells are copied, or gathered, together
_TABLE, _LEAST = 8, 1 << 10  # largest number of entries of a table by size: for each item, or at least this
_BITS, _SIZES = 6, 1 << 16  # bits of a small size, and largest number of sizes in a table


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
        return cut_within(sizes, parted(int(sizes[start:stop].sum()), interval_items(budget), budget.threads), within)

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
        giant = self._giant(interval, budget)
        cuts = [(start + i, start + j) for i, j in cut(sizes, _TOGETHER)]
        return Summary().merge(*(self._summarize_together(some, watcher, giant=giant) for some in cuts))

    def _summarize_together(self, interval: Interval, watcher: Watcher | None, *, giant: bool) -> Summary:
        """As `summarize`, of classes whose cells are in memory together, or of those of a giant bucket."""
        margins, singles, cells = self._classes(interval, giant=giant)
        if watcher is not None:
            watcher.add_classes(margins.ids, margins.totals, margins.maxima, singles, cells())
        parts = (known_cells(margins.totals[numbers], n, c, times) for numbers, n, c, times in cells())
        return summarize_classes(margins.totals, margins.maxima).merge(_singles(singles, margins.totals), *parts)

    def _classes(
        self, interval: Interval, *, giant: bool
    ) -> tuple[Margins, Array, Callable[[], Iterable[tuple[Array, Array, Array, Array]]]]:
        """Sizes and largest cells of classes, the number of singleton cells of each, and all other cells.

        The other cells are given by the number of their class, count n, cluster size c and multiplicity. Those of a
        giant bucket come in parts and are read anew whenever they are needed.
        """
        margins = Margins(self.rows.layout.words - 1)
        read: Callable[[], Iterable[tuple[Array, Array, Array, Array]]]

        def number_cells() -> Iterator[tuple[Array, Array, Array, Array]]:
            for words, rest, counts, _ in self.others.pieces(interval[0], 0):
                yield margins.number(words, rest), *self._counts(rest), counts

        if giant:
            read = number_cells
            for words, rest, counts, _ in self.rows.pieces(interval[0], 0):
                margins.count(margins.number(words, rest), np.ones(words.size, np.int64), counts)
        else:
            rows, others = (keyed.gather(*interval)[0] for keyed in (self.rows, self.others))
            of_rows, of_others = margins.number_sides(
                *((side.starts, side.words, side.rest) for side in (rows, others))
            )
            cells = [(of_others, *self._counts(others.rest), others.counts)]
            read = partial(iter, cells)
            margins.count(of_rows, np.ones(of_rows.size, np.int64), rows.counts)
        singles = margins.totals.copy()
        for numbers, n, _, times in read():
            margins.count(numbers, n, times)
        return margins, np.concatenate((singles, np.zeros(margins.totals.size - singles.size, np.int64))), read

    def _giant(self, interval: Interval, budget: Budget) -> bool:
        """Whether an interval is a bucket that is too large for memory."""
        start, stop = interval
        return stop - start == 1 and bool(self._sizes()[start] > 4 * interval_items(budget))

    def _sizes(self) -> Array:
        """Items of each bucket, as an int64 array."""
        return self.rows.items[0::2] + self.others.items[0::2]

    def _counts(self, rest: Array) -> tuple[Array, Array]:
        """Count n and cluster size c of other cells, from the further words of their keys; int64 arrays."""
        return sizes_of_cells(rest, self.rows.layout.words - 1, packed=self.packed)

    def _match(self, interval: Interval, budget: Budget) -> tuple[Lines, Shared]:
        """The classes of an interval that the assignment needs, and their shared cells, by cluster."""
        keys = Keys(self.owner, self.rows.layout.words)
        builders = [SegmentBuilder.fitting(layout, budget, SLAB) for layout in core_layouts(keys)]
        margins, singles, _ = self._classes(interval, giant=self._giant(interval, budget))
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


def _singles(times: Array, totals: Array) -> Summary:
    """Partial summary of singleton cells (n = c = 1), `times` of each class.

    Classes of equal size are combined.
    """
    numbers, sizes = _numbered_sizes(totals)
    each = np.zeros(sizes.size, np.int64)
    add_margins(numbers, times, times, each, each.copy())
    codes, ones = np.flatnonzero(each), np.ones(sizes.size, np.int64)
    return summarize_cells(codes, ones[codes] - 1, ones[codes], sizes, ones[:1], each[codes])


def lone_classes(sizes: Array, times: Array) -> Summary:
    """Cells of classes of one row, `times` of them in clusters of each size."""
    total = int(times.sum())
    ones = np.ones(sizes.size, np.int64)
    return known_cells(ones, ones, sizes, times).merge(Summary(classes=Sizes.repeat(1, total), row_maxima=total))


def known_cells(r: Array, n: Array, c: Array, times: Array) -> Summary:
    """Partial summary of cells with known class size r, cluster size c, count n and multiplicity (empty: 1 each).

    Most cells of a large table are small, so that few different ones occur: those are counted.
    """
    times = times if times.size else np.ones(n.size, np.int64)
    small = (r | c) >> _BITS == 0
    table = np.zeros(8**_BITS, np.int64)
    np.add.at(table, (((r << _BITS) | c) << _BITS | n)[small], times[small])
    found, low = np.flatnonzero(table != 0), (1 << _BITS) - 1  # takes half the time of searching numbers
    r, c, n = (
        np.concatenate((some, each[~small]))
        for some, each in ((found >> 2 * _BITS, r), (found >> _BITS & low, c), (found & low, n))
    )
    (rows, classes), (columns, clusters) = _numbered_sizes(r), _numbered_sizes(c)
    return summarize_cells(rows, columns, n, classes, clusters, np.concatenate((table[found], times[~small])))


def _numbered_sizes(sizes: Array) -> tuple[Array, Array]:
    """The number of each size, and the sizes by number; if the sizes are small, each is its own number."""
    most = int(sizes.max(initial=0))
    if most < min(_SIZES, max(_TABLE * sizes.size, _LEAST)):
        return sizes, np.arange(most + 1)
    numbers, first = numbered(np.array([0, sizes.size]), sizes.view(np.uint64), np.empty((sizes.size, 0), np.uint64), 0)
    return numbers, sizes[first]
