"""Clusters of a shard by size: counted bucket by bucket in hash tables, or by sorting if that is not possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.keyed.sizes import LARGEST, tally_clusters
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.lift import tally_sizes
from streameval.states.keyed.grouping import Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.budget import Budget
    from streameval.states.keyed.counts import KeyedCounts
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

KEY_BITS = ID_BUCKETS.bit_length() - 2  # bits of a word that its bucket determines, apart from the dropped first bit


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
        if stop - start > 1 or items.sum() <= LARGEST:
            places = places or keyed.places(start, stop)
            first, sizes, large, ids, facts = tally_clusters(
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


def clusters_of(stretches: Iterable[Counts]) -> Iterator[tuple[Array, Array, Array]]:
    """Size, positives and labelled rows of every cluster, whose labelled and unlabelled rows are two adjacent keys."""
    held = np.empty((0, 3), np.int64)  # the last cluster, because a stretch may end between its two keys
    last: Array | None = None
    for counts in stretches:
        rows = counts.neg + counts.pos
        ids = np.column_stack((counts.keys, counts.rest[:, :-1]))
        facts = np.column_stack((rows, counts.pos, np.where(counts.rest[:, -1] == 0, rows, 0)))
        if last is not None:
            ids, facts = np.concatenate((last, ids)), np.concatenate((held, facts))
        starts = np.flatnonzero(np.append(True, (ids[1:] != ids[:-1]).any(axis=1)))
        sums = np.add.reduceat(facts, starts)
        held, last = sums[-1:], ids[-1:]
        yield sums[:-1, 0], sums[:-1, 1], sums[:-1, 2]
    yield held[:, 0], held[:, 1], held[:, 2]
