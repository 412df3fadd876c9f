"""The second pass over (cluster, class) cells, by class; see `streameval.states.contingency.pass_by_cluster` for both.

One bucket holds all rows of a class and all its cells, each with its count n and the size c of its cluster. So the size
r of the class, its largest cell and both margins of every cell are known. Cells with n = c = 1 are not stored: a class
of size r has r − Σ n such cells, with the sum over its stored cells. A bucket with a giant class is streamed twice,
first for the sizes, then for the cells.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.contingency.grouping import add_margins, group_classes
from streameval.kernels.contingency.tables import slots_for
from streameval.kernels.keys import unmix
from streameval.states.contingency.cells import interval_items, numbered, without_singletons
from streameval.states.contingency.size_counts import Sizes
from streameval.states.contingency.summary import Summary, summarize_cells, summarize_classes
from streameval.states.contingency.whole_classes import whole_classes

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.contingency.cells import ClassCells
    from streameval.states.contingency.watch import Watcher
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_SMALL = 1 << 16  # sizes below this are numbered by themselves, if there are many
_MANY = 32  # items of a bucket, on average, from which reading them in place is faster than gathering them
_ENTRIES, _LEAST = 8, 1 << 10  # largest number of such numbers: for each size, or at least this


def by_class(cells: ClassCells, interval: Interval, budget: Budget, watcher: Watcher | None = None) -> Summary:
    """Second pass: partial summary of the classes of an interval and of their cells.

    Parameters
    ----------
    cells : ClassCells
        Cells of all intervals of the first pass, merged.
    interval : (int, int)
        Buckets to take.
    budget : Budget
        Decides which buckets are streamed.
    watcher : Watcher, optional
        Sees the cells of classes.
    """
    start, stop = interval
    if stop - start == 1 and cells.sizes()[start] > 4 * interval_items(budget):
        return _giant_classes(cells, start, watcher)
    if watcher is None and cells.sizes()[start:stop].sum() >= _MANY * (stop - start):
        return _whole_classes(cells, interval, budget)
    if watcher is not None and watcher.every:
        row, alone = cells.rows.gather(start, stop)[0], 0
    else:
        row, found = without_singletons(cells.rows, interval, cells.others)
        alone = found.shape[0]
    other = cells.others.gather(start, stop)[0]
    most = row.words.size + other.words.size
    totals, singles, maxima = np.empty((3, most), np.int64)
    numbers, n, c = np.empty((3, other.words.size), np.int64)
    groups = (row.words, row.rest, row.counts, row.starts, other.words, other.rest, other.counts, other.starts)
    further = tuple(range(cells.rows.layout.words - 1))
    table = slots_for(row.starts + other.starts), np.empty((most, 1 + len(further)), np.uint64)
    classes = group_classes(*groups, further, cells.packed, *table, totals, singles, maxima, numbers, n, c)
    totals, singles, maxima = totals[:classes], singles[:classes], maxima[:classes]
    known = known_cells(numbers, n, totals, c, other.counts if other.counts.size else None)
    if watcher is not None:
        seen = watcher.of_classes(partial(_ids, table[1]), totals, maxima, singles)
        seen.add(numbers, n, c, other.counts)
        seen.close()
        watcher.alone(alone)
    lone = Summary(classes=Sizes.repeat(1, alone), row_maxima=alone)
    return summarize_classes(totals, maxima).merge(lone, known, _singles(singles, totals, alone))


def _whole_classes(cells: ClassCells, interval: Interval, budget: Budget) -> Summary:
    """Classes of an interval, and their cells, which no watcher sees."""
    found = whole_classes(cells, interval, budget)
    (r, c, n, times), (large, *others), (sizes, classes, singles) = found.small, found.large, found.sizes
    small = np.arange(1 + max(int(r.max(initial=0)), int(c.max(initial=0))))
    numbers, totals = _numbered_sizes(large)
    return Summary(classes=Sizes.of(sizes, classes), row_maxima=found.maxima).merge(
        _singles(singles, sizes),
        summarize_cells(r, c, n, small, small, times),
        known_cells(numbers, others[1], totals, others[0], others[2] if cells.others.counted else None),
    )


def _ids(keys: Array, which: Array) -> Array:
    """Words of the ids of some classes, from the words of their keys."""
    words = keys[which]
    words[:, 0] = unmix(words[:, 0])
    return words


def _singles(times: Array, totals: Array, alone: int = 0) -> Summary:
    """Partial summary of singleton cells (n = c = 1): `times` of each class, and `alone` more in singleton classes.

    Classes of equal size are combined.
    """
    numbers, sizes = _numbered_sizes(totals)
    each = np.zeros(sizes.size, np.int64)
    add_margins(numbers, times, times, each, each.copy())
    if alone:
        each, sizes = np.append(each, alone), np.append(sizes, 1)
    codes, ones = np.flatnonzero(each), np.ones(sizes.size, np.int64)
    return summarize_cells(codes, ones[codes] - 1, ones[codes], sizes, ones[:1], each[codes])


def _giant_classes(cells: ClassCells, bucket: int, watcher: Watcher | None) -> Summary:
    """Classes of a bucket whose cells do not fit into memory: one pass for their sizes, one for their cells."""
    margins, singles = cells.margins(cells.rows.pieces(bucket, 0), cells.others.pieces(bucket, 0))
    summary = summarize_classes(margins.totals, margins.maxima).merge(_singles(singles, margins.totals))
    seen = None
    if watcher is not None:
        seen = watcher.of_classes(margins.ids, margins.totals, margins.maxima, singles)
    for words, rest, counts, _ in cells.others.pieces(bucket, 0):
        n, c = cells.counts(rest)
        numbers = margins.number(words, rest)
        known = known_cells(numbers, n, margins.totals, c, counts if counts.size else None)
        summary = summary.merge(known)
        if seen is not None:
            seen.add(numbers, n, c, counts)
    if seen is not None:
        seen.close()
    return summary


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
    if most < min(_SMALL, max(_ENTRIES * sizes.size, _LEAST)):
        return sizes, np.arange(most + 1)
    numbers, found = numbered(np.array([0, sizes.size]), sizes.view(np.uint64), np.empty((sizes.size, 0), np.uint64), 0)
    return numbers, sizes[found]


def without_cluster(rows: int, lone: int) -> Summary:
    """Partial summary of clusters of one row: `rows` with classes counted elsewhere, `lone` with singleton classes."""
    total = rows + lone
    clusters = Summary(clusters=Sizes.repeat(1, total), column_maxima=total)
    return clusters.merge(lone_classes(np.ones(1, np.int64), np.array([lone]))) if lone else clusters
