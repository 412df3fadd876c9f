"""The size table: the number of clusters of each size, and their positives.

The area under the lift curve and the ROC curve by size depend on nothing else.
Clusters of a shard are counted by size bucket by bucket in hash tables, or by sorting if that is not possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.fused import FUSED
from streameval.kernels.keyed.sizes import LARGEST, tally_sizes
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import Small, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class SizeTable:
    """The number of clusters of each size, and their positives.

    Attributes
    ----------
    size : int64 array of shape (n_sizes,), ascending
    clusters : int64 array of shape (n_sizes,)
    positives : int64 array of shape (n_sizes,)
    labelled : int64 array of shape (n_sizes,), their rows with a label; None if all rows have one

    Examples
    --------
    >>> import numpy as np
    >>> SizeTable.of(np.array([3, 1, 3]), np.array([1, 0, 2]))
    SizeTable(size=array([1, 3]), clusters=array([1, 2]), positives=array([0, 3]))
    """

    size: Array
    clusters: Array
    positives: Array
    labelled: Array | None = None

    def __repr__(self) -> str:
        names = ("size", "clusters", "positives") + (() if self.labelled is None else ("labelled",))
        return f"SizeTable({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @classmethod
    def of(cls, sizes: Array, positives: Array, labelled: Array | None = None) -> SizeTable:
        """The table of clusters given one by one, from their sizes and positives."""
        return cls._summed(sizes, np.ones(len(sizes), np.int64), positives, labelled)

    @classmethod
    def _summed(cls, size: Array, clusters: Array, positives: Array, labelled: Array | None) -> SizeTable:
        order = np.argsort(size, kind="stable")
        size = size[order]
        first = np.flatnonzero(np.append(True, size[1:] != size[:-1])[: size.size])

        def summed(values: Array) -> Array:
            return np.add.reduceat(values[order], first) if first.size else values

        return cls(size[first], summed(clusters), summed(positives), None if labelled is None else summed(labelled))

    @classmethod
    def union(cls, tables: Iterable[SizeTable]) -> SizeTable:
        """The table of the clusters of all tables; either all tables count labelled rows or none does."""
        parts = list(tables) or [cls(*(np.empty(0, np.int64) for _ in range(3)))]
        if len(parts) == 1:
            return parts[0]
        size, clusters, positives = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("size", "clusters", "positives")
        )
        labelled = [part.labelled for part in parts if part.labelled is not None]
        return cls._summed(size, clusters, positives, np.concatenate(labelled) if labelled else None)

    @property
    def estimated(self) -> SizeTable:
        """The table with the positives scaled up to all rows: rows × positives ÷ labelled rows for each size.

        Sizes without a labelled row are left out. The positives stay exact integers if every row has a label.

        Examples
        --------
        >>> import numpy as np
        >>> SizeTable.of(np.array([3, 3, 1]), np.array([1, 0, 0]), np.array([1, 3, 0])).estimated
        SizeTable(size=array([3]), clusters=array([2]), positives=array([1.5]))
        """
        if self.labelled is None:
            return self
        here = self.labelled > 0
        size, clusters, positives, labelled = (
            column[here] for column in (self.size, self.clusters, self.positives, self.labelled)
        )
        rows = size * clusters
        return SizeTable(size, clusters, positives if (rows == labelled).all() else rows * (positives / labelled))

    @property
    def unlabelled(self) -> tuple[int, int, int]:
        """Number of rows without a label, and the sizes and rows that `estimated` leaves out."""
        if self.labelled is None:
            return 0, 0, 0
        rows = self.size * self.clusters
        out = self.labelled == 0
        return int((rows - self.labelled).sum()), int(out.sum()), int(rows[out].sum())


@dataclass(frozen=True, eq=False)
class SizeState(Small):
    """A size table as a state, for metrics that read nothing else.

    Attributes
    ----------
    table : SizeTable; every row has a label
    dropped_rows : int64 array of shape (2,), dropped null ids, by label
    """

    spec = None  # never stored or merged, so any state may be its source

    table: SizeTable
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[SizeTable]:
        """The size table, as the only part."""
        yield self.table

    def totals(self) -> Totals:
        """Rows in clusters."""
        rows, pos = int((self.table.size * self.table.clusters).sum()), int(self.table.positives.sum())
        return Totals(rows - pos, pos, float(rows - pos), float(pos))


def by_tables(
    keyed: KeyedCounts,
    shard: Interval,
    budget: Budget | None,
    clusters: Array,
    positives: Array,
    impure: list[Counts] | None = None,
) -> Iterator[tuple[Array, Array]]:
    """Count the clusters of a shard by size, bucket by bucket; buckets that are too large or collide are sorted.

    Parameters
    ----------
    keyed : rows by cluster
    shard : the buckets to take
    budget : limits the memory of sorting
    clusters, positives : int64 arrays indexed by size, to which the clusters and their positives are added
    impure : list to which impure clusters are appended; None if they are not needed

    Yields
    ------
    sizes, positives : int64 arrays, of the clusters that are too large for the arrays
    """
    start, stop = shard
    items, words, listed = keyed.items_in(start, stop), keyed.layout.words, None if impure is None else start
    places, first = None, 0
    while start + first < stop:
        if (stop - start > 1 or items.sum() <= LARGEST) and ("ids", "sizes") in FUSED:
            places = places or keyed.places(start, stop)
            first, sizes, large, ids, facts = FUSED["ids", "sizes"](
                places.at, items, words, first, clusters, positives, listed
            )
            if impure is not None:
                impure.append(Counts(ids[:, 0], ids[:, 1:], facts[:, 0], facts[:, 1]))
            yield sizes, large
        if start + first < stop:
            for counts in keyed.grouped((start + first, start + first + 1), budget):
                yield _by_sorting(counts, clusters, positives, impure)
            first += 1


def _by_sorting(counts: Counts, clusters: Array, positives: Array, impure: list[Counts] | None) -> tuple[Array, Array]:
    """As `by_tables`, from distinct keys."""
    if impure is not None:
        at = np.flatnonzero((counts.neg > 0) & (counts.neg + counts.pos > 1))
        impure.append(Counts(counts.keys[at], counts.rest[at], counts.neg[at], counts.pos[at]))
    large: tuple[Array, Array] = tally_sizes(counts.neg, counts.pos, clusters, positives)
    return large


def find_sizes(clusters: Counts, several: Sequence[Counts]) -> Array:
    """The sizes of some clusters, an int64 array, from the list of all clusters of several rows in a shard."""
    sizes = np.ones(clusters.keys.size, np.int64)
    rows = np.concatenate([sizes, *(one.neg + one.pos for one in several)])
    if not sizes.size or rows.size == sizes.size:
        return sizes
    keys, words = (np.concatenate([getattr(one, name) for one in several]) for name in ("keys", "rest"))
    places = np.minimum(np.searchsorted(clusters.keys, keys), sizes.size - 1)
    near = np.flatnonzero(clusters.keys[places] == keys)
    ids = np.column_stack([np.append(clusters.keys, keys[near]), np.concatenate((clusters.rest, words[near]))])
    order = np.lexsort(ids.T[::-1])  # stable: a cluster comes before its entry in the list
    equal = np.flatnonzero((ids[order[1:]] == ids[order[:-1]]).all(axis=1))
    sizes[order[equal]] = rows[sizes.size + near[order[equal + 1] - sizes.size]]
    return sizes
