"""Whole classes and their cells by size, from one loop over the cells where they lie in the segments."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.kernels.contingency.classes import ClassArrays, Tallies, tally_classes
from streameval.kernels.contingency.tables import slots_for
from streameval.kernels.singletons import marks_for
from streameval.states.keyed.layout import cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.cells import ClassCells
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_TOGETHER = 1 << 17  # items of classes whose listed cells are copied together
_ENTRIES, _LEAST = 8, 1 << 10  # largest number of entries of a table by size: for each item, or at least this
_BITS, _SIZES = 6, 1 << 16  # bits of a small size, and number of class sizes in a table, if there are many items


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
    >>> from streameval.states.protocol import Batch
    >>> import pyarrow as pa
    >>> builder = ContingencySpec("campaign", "cluster").builder(Budget(), 8)
    >>> columns = {"campaign": pa.array([7, 7, 7, 8]), "cluster": pa.array([1, 1, 2, 3])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> table = builder.state()
    >>> first = [table.first(shard, Budget()) for shard in table.shards()]
    >>> found = whole_classes(table.classes(cells for _, cells in first), (0, 1 << 11), Budget())
    >>> found.small.tolist(), found.large.tolist(), found.sizes.tolist(), found.maxima
    ([[3], [2], [2], [1]], [[], [], [], []], [[1, 3], [1, 1], [1, 1]], 3)
    """
    both = cells.rows, cells.others
    places = [keyed.places(*interval) for keyed in both]
    items = [keyed.items_in(*interval)[0::2] for keyed in both]
    cuts = cut(items[0] + items[1], _TOGETHER)
    most = max((int((items[0] + items[1])[i:j].sum()) for i, j in cuts), default=0)
    entries = max(_ENTRIES * int(items[0].sum() + items[1].sum()), _LEAST)
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
