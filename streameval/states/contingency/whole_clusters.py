"""Cells of whole clusters, in one loop over the rows where they lie in the segments."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency.clusters import BucketArrays, CellArrays, cluster_cells
from streameval.kernels.contingency.tables import slots_for
from streameval.kernels.singletons import marks_for
from streameval.states.keyed.layout import cut
from streameval.states.keyed.tags import TAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Keys
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.layout import Interval, SegmentAddresses
    from streameval.typing import Array

_CELLS = 1 << 17  # rows whose cells the third-level cache holds


class ClusterCells(NamedTuple):
    """Cells of some whole clusters; the arrays are overwritten by the next cells.

    Attributes
    ----------
    words, rest : uint64 arrays, first and further words of the cells of clusters of several rows
    singles : uint64 array of shape (n_singles, n_class), classes of singleton cells (n = c = 1)
    large, large_positives : int64 arrays, sizes of clusters that are not counted in the table of sizes, and their
        positives if rows have labels
    maxima : sum of the largest cell of each cluster
    """

    words: Array
    rest: Array
    singles: Array
    large: Array
    large_positives: Array
    maxima: int


def whole_clusters(
    keyed: KeyedCounts,
    interval: Interval,
    keys: Keys,
    further: int,
    sizes: Array,
    budget: Budget,
    *,
    packed: bool,
    positives: Array | None = None,
) -> Iterator[ClusterCells]:
    """Cells of the clusters in an interval of buckets, a bounded number at a time unless a bucket is larger.

    Parameters
    ----------
    keyed : KeyedCounts
        Rows by cluster and class; all of them in the interval have a class.
    interval : (int, int)
    keys : Keys
    further : int
        Further words of a cell (`streameval.states.contingency.cells.ClassCells`).
    sizes : int64 array
        Incremented at the size of each cluster; larger sizes are listed.
    budget : Budget
        Lends the arrays.
    packed : bool
        Whether n and c share a word.
    positives : int64 array of the shape of `sizes`, optional
        If first words have labels (`streameval.states.keyed.tags`), incremented at the size of each cluster by its
        positives.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.contingency.cells import Keys
    >>> from streameval.states.contingency.rows import RowBuilder
    >>> from streameval.states.keyed.counts import KeyedCounts
    >>> from streameval.states.keyed.layout import Layout
    >>> rows = RowBuilder(Layout(1 << 11, 64, words=2), Budget(), 8)
    >>> rows.add([np.array([7, 9, 7, 7], np.uint64), np.array([1, 2, 1, 3], np.uint64)])
    >>> keyed, sizes = KeyedCounts(rows.layout, rows.finish()), np.zeros(8, np.int64)
    >>> for cells in whole_clusters(keyed, (0, 1 << 11), Keys(1, 1), 2, sizes, Budget(), packed=False):
    ...     print(cells.words, cells.rest.tolist(), cells.singles.tolist(), cells.maxima, sizes)
    [1 3] [[2, 3], [1, 3]] [[2]] 3 [0 1 0 1 0 0 0 0]
    """
    items = keyed.items_in(*interval)[0::2]
    places = keyed.places(*interval)
    most, labelled = int(items.sum()), positives is not None
    cuts = [(0, items.size)]
    if most > _CELLS:
        cuts = cut(items, _CELLS)
        most = max(_CELLS + _CELLS // 8, *(int(items[i:j].sum()) for i, j in cuts))
    shapes = ((), np.uint64), ((further,), np.uint64), ((keys.class_,), np.uint64), *[((), np.int64)] * (1 + labelled)
    with (
        _bucket_arrays(int(items.max(initial=0)), keys, budget, places, labelled=labelled) as own,
        budget.borrowed(most, *shapes) as (words, rest, singles, large, *more),
    ):
        columns = tuple(range(keys.cluster - 1)), tuple(range(keys.class_)), tuple(TAG) if labelled else ()
        large_positives, positives = (large[:0], sizes[:0]) if positives is None else (more[0], positives)
        arrays = CellArrays(words, rest, singles, sizes, large, positives, large_positives)
        for i, j in cuts:
            counts = cluster_cells(places.at, i, j, *columns, packed, own, arrays)
            cells, alone, listed, maxima = counts
            larger = large[:listed], large_positives[:listed]
            yield ClusterCells(words[:cells], rest[:cells], singles[:alone], *larger, maxima)


@contextmanager
def _bucket_arrays(
    rows: int, keys: Keys, budget: Budget, places: SegmentAddresses, *, labelled: bool
) -> Iterator[BucketArrays]:
    """Arrays for the largest bucket."""
    width, counted = sum(keys), bool(places.at.counts.any())
    widths = (width + 2 + labelled,), (keys.class_ + 2,), (), (width - 1,)
    shapes = (*((each, np.uint64) for each in widths), ((), np.int64))
    with budget.borrowed(rows, *shapes) as (clusters, strays, words, rest, counts):
        marks = marks_for(rows)
        slots = slots_for(np.array([0, rows]))
        yield BucketArrays(slots, clusters, strays, marks, words, rest, counts if counted else counts[:0])
