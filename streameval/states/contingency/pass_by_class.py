"""The second round over (cluster, class) cells, by class; see `streameval.states.contingency.rounds` for all of them.

One bucket holds all rows of a class and all its cells, each with its count n and the size c of its cluster. So the size
r of the class, its largest cell and both margins of every cell are known. Cells with n = c = 1 are not stored: a class
of size r has r − Σ n such cells, with the sum over its stored cells.

One loop reads the cells where they lie in the segments and adds them up by size
(`streameval.kernels.contingency.cells.tally_classes`). If a watcher sees the classes, or a bucket holds a giant one,
their cells are read twice instead, first for the sizes, then for the cells.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from streameval.kernels.contingency.cells import ClassArrays, Tallies, tally_classes
from streameval.kernels.contingency.tables import add_margins, slots_for
from streameval.kernels.singletons import marks_for
from streameval.states.contingency.cells import interval_items, numbered, pieces
from streameval.states.contingency.size_counts import Sizes
from streameval.states.contingency.summary import Summary, summarize_cells, summarize_classes
from streameval.states.keyed.layout import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.cells import ClassCells
    from streameval.states.contingency.watch import CellsOfClasses, Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

T = TypeVar("T")

_TOGETHER = 1 << 19  # items of classes whose cells are copied, or gathered, together
_TABLE, _LEAST = 8, 1 << 10  # largest number of entries of a table by size: for each item, or at least this
_BITS, _SIZES = 6, 1 << 16  # bits of a small size, and number of sizes in a table, if there are many items


class ClassSums(NamedTuple):
    """Sums over some whole classes.

    Attributes
    ----------
    small : int64 array of shape (4, n): class size r, cluster size c and count n, and number of such cells; r and c are
        small
    large : int64 array of shape (4, n): r, c, n and multiplicity of each other cell
    sizes : int64 array of shape (3, n): size, number of its classes, and number of their singleton cells; a large size
        occurs for each of its classes
    maxima : sum of the largest cell of each class
    """

    small: Array
    large: Array
    sizes: Array
    maxima: int


def whole_classes(cells: ClassCells, interval: Interval, budget: Budget) -> ClassSums:
    """Sums over the classes in an interval of buckets.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.counts import ContingencySpec
    >>> from streameval.states.contingency.rounds import ByCluster
    >>> from streameval.states.protocol import Batch
    >>> import pyarrow as pa
    >>> builder = ContingencySpec("campaign", "cluster").builder(Budget(), 8)
    >>> columns = {"campaign": pa.array([7, 7, 7, 8]), "cluster": pa.array([1, 1, 2, 3])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> table = builder.state()
    >>> cells = ByCluster(table).visit((0, 1 << 11), Budget())[1]
    >>> found = whole_classes(cells, (0, 1 << 11), Budget())
    >>> found.small.tolist(), found.large.tolist(), found.sizes.tolist(), found.maxima
    ([[3], [2], [2], [1]], [[], [], [], []], [[1, 3], [1, 1], [1, 1]], 3)
    """
    both = cells.rows, cells.others
    places = [keyed.places(*interval) for keyed in both]
    items = [keyed.items_in(*interval)[0::2] for keyed in both]
    cuts = cut(items[0] + items[1], _TOGETHER)
    most = max((int((items[0] + items[1])[i:j].sum()) for i, j in cuts), default=0)
    entries = max(_TABLE * int(items[0].sum() + items[1].sum()), _LEAST)
    bits = min(_BITS, (entries.bit_length() - 1) // 3)
    further, maxima = tuple(range(cells.rows.layout.words - 1)), 0
    with (
        _class_arrays(items, len(further), budget, counted=bool(places[0].at.counts.any())) as own,
        budget.borrowed(most, ((4,), np.int64), ((2,), np.int64)) as large,
        budget.borrowed(8**bits, ((), np.int64)) as (small,),
    ):
        small[:] = 0
        listed = [[array[:0] for array in large]]
        tallies = Tallies(small, *np.zeros((2, min(_SIZES, entries)), np.int64), *large)
        for i, j in cuts:
            form = further, cells.others.layout.words - 1, cells.packed, bits
            *counts, largest = tally_classes(places[0].at, places[1].at, i, j, *form, own, tallies)
            listed.append([array[:count].copy() for array, count in zip(large, counts, strict=True)])
            maxima += largest
        found = np.flatnonzero(small != 0)  # takes half the time of searching numbers
        low = (1 << bits) - 1
        cells_by_size = np.array((found >> (2 * bits), (found >> bits) & low, found & low, small[found]))
    other_cells, other_classes = (np.concatenate(parts).T.copy() for parts in zip(*listed, strict=True))
    sizes = np.flatnonzero(tallies.sizes != 0)
    classes = np.array((sizes, tallies.sizes[sizes], tallies.singles[sizes]))
    others = np.array((other_classes[0], np.ones(other_classes.shape[1], np.int64), other_classes[1]))
    return ClassSums(cells_by_size, other_cells, np.concatenate((classes, others), axis=1), maxima)


@contextmanager
def _class_arrays(items: Sequence[Array], further: int, budget: Budget, *, counted: bool) -> Iterator[ClassArrays]:
    """Arrays for the largest bucket, given the singleton cells and the other cells of each bucket."""
    both, rows, cells = (int(sizes.max(initial=0)) for sizes in (items[0] + items[1], *items))
    with (
        budget.borrowed(both, ((further + 4,), np.uint64)) as (classes,),
        budget.borrowed(cells, ((), np.int32)) as (owners,),
        budget.borrowed(rows, ((), np.uint64), ((further,), np.uint64), ((), np.int64)) as (words, rest, counts),
    ):
        marks = marks_for(rows)
        slots = slots_for(np.array([0, both]))
        yield ClassArrays(slots, classes, owners, marks, words, rest, counts if counted else counts[:0])


def by_class(cells: ClassCells, interval: Interval, budget: Budget, watcher: Watcher | None = None) -> Summary:
    """The partial summary of the classes of an interval and of their cells.

    Parameters
    ----------
    cells : ClassCells
        Cells of all intervals of the first round, merged.
    interval : (int, int)
        Buckets to take.
    budget : Budget
        Decides which buckets are streamed.
    watcher : Watcher, optional
        Sees the cells of classes.
    """
    start, stop = interval
    sizes = cells.sizes()[start:stop]
    if not sizes.any():
        return Summary()
    giant = stop - start == 1 and sizes[0] > 4 * interval_items(budget)
    if watcher is None and not giant:
        return _whole_classes(cells, interval, budget)
    cuts = [(start + i, start + j) for i, j in cut(sizes, _TOGETHER)]
    return Summary().merge(*(_visit_classes(cells, some, budget, watcher, giant=giant) for some in cuts))


def _visit_classes(
    cells: ClassCells, interval: Interval, budget: Budget, watcher: Watcher | None, *, giant: bool
) -> Summary:
    """Classes of an interval whose cells are read twice, first for the sizes of classes."""
    others = _kept(lambda: pieces(cells.others, 0, interval, budget), giant=giant)
    margins, singles = cells.margins(pieces(cells.rows, 0, interval, budget), others())

    def numbered_cells() -> Iterator[CellsOfClasses]:
        for words, rest, counts, _ in others():
            yield margins.number(words, rest), *cells.counts(rest), counts

    known = _kept(numbered_cells, giant=giant)
    if watcher is not None:
        watcher.add_classes(margins.ids, margins.totals, margins.maxima, singles, known())
    parts = (known_cells(codes, n, margins.totals, c, times if times.size else None) for codes, n, c, times in known())
    return summarize_classes(margins.totals, margins.maxima).merge(_singles(singles, margins.totals), *parts)


def _kept(read: Callable[[], Iterable[T]], *, giant: bool) -> Callable[[], Iterable[T]]:
    """The function; if what it reads fits into memory, it is kept and read once."""
    return read if giant else cache(lambda: list(read()))


def _whole_classes(cells: ClassCells, interval: Interval, budget: Budget) -> Summary:
    """Classes of an interval, and their cells, read in place."""
    found = whole_classes(cells, interval, budget)
    (r, c, n, times), (large, *others), (sizes, classes, singles) = found.small, found.large, found.sizes
    small = np.arange(1 + max(int(r.max(initial=0)), int(c.max(initial=0))))
    numbers, totals = _numbered_sizes(large)
    return Summary(classes=Sizes.of(sizes, classes), row_maxima=found.maxima).merge(
        _singles(singles, sizes),
        summarize_cells(r, c, n, small, small, times),
        known_cells(numbers, others[1], totals, others[0], others[2] if cells.others.counted else None),
    )


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
    cells = known_cells(np.zeros(sizes.size, np.int64), ones, ones[:1], sizes, times)
    return cells.merge(Summary(classes=Sizes.repeat(1, total), row_maxima=total))


def known_cells(codes: Array, n: Array, totals: Array, c: Array, times: Array | None) -> Summary:
    """Partial summary of cells with known class and cluster sizes; clusters of equal size are combined."""
    columns, clusters = _numbered_sizes(c)
    return summarize_cells(codes, columns, n, totals, clusters, times)


def _numbered_sizes(sizes: Array) -> tuple[Array, Array]:
    """The number of each size, and the sizes by number; if the sizes are small, each is its own number."""
    most = int(sizes.max(initial=0))
    if most < min(_SIZES, max(_TABLE * sizes.size, _LEAST)):
        return sizes, np.arange(most + 1)
    numbers, found = numbered(np.array([0, sizes.size]), sizes.view(np.uint64), np.empty((sizes.size, 0), np.uint64), 0)
    return numbers, sizes[found]


def without_cluster(rows: int, lone: int) -> Summary:
    """Partial summary of clusters of one row: `rows` with classes counted elsewhere, `lone` with singleton classes."""
    total = rows + lone
    clusters = Summary(clusters=Sizes.repeat(1, total), column_maxima=total)
    return clusters.merge(lone_classes(np.ones(1, np.int64), np.array([lone]))) if lone else clusters
