"""Rows in place: counts and areas of 16-bit words at their addresses in the segments, without gathering them first.

The words of a large bucket are counted in a table. A small bucket with weights is sorted with the places of its
weights; a small bucket without weights is sorted if only its areas are needed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.keyed.ranked import rank_buckets
from streameval.kernels.keyed.weights import SUMS, rank_sums, rank_words, sum_words, weigh_words
from streameval.kernels.keyed.words import WORDS, tally_words
from streameval.states.keyed.grouping import Counts, empty_counts, no_rest
from streameval.states.keyed.ranked import Ranked, RankSums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.kernels.singletons import Addresses
    from streameval.states.keyed.layout import SegmentAddresses
    from streameval.typing import Array

_TABLES: list[tuple[Array, Array]] = []  # spare tables of zeros, reused because fresh memory is slow
_SUMS: list[Array] = []  # spare tables of zeros for weights
_ROOM = 1 << 18  # largest number of distinct keys that are counted at a time
_TALLIED = 1 << 14  # items above which a bucket whose areas alone are needed is counted in a table, not sorted
_WEIGHED = 1 << 15  # the same for words with weights, whose table is four times as large


@dataclass(frozen=True, slots=True)
class Short:
    """Rows without weights whose words have 16 bits, at their addresses.

    Attributes
    ----------
    places : SegmentAddresses of consecutive buckets
    bucket : number of the first bucket
    room : number of distinct keys to count at a time, about
    """

    places: SegmentAddresses
    bucket: int
    room: int

    def counts(self) -> Iterator[Counts]:
        """Distinct keys with their counts."""
        return words_counted(self.places.at, self.bucket, self.room)

    def ranked(self, above: tuple[Any, Any], negatives: Any) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored."""
        rows, sums = self.places.at, RankSums(above, negatives)
        starts = rows.starts[:, ::2]
        items = np.diff(starts.sum(axis=0))
        tallied = (items > _TALLIED) | (np.diff(starts[rows.counts != 0]) > 0).any(axis=0)
        with _tables() as tables:
            rank_buckets(rows, items, tallied, *tables, sums.above, sums.twice, sums.sums)
        return sums.ranked()


@dataclass(frozen=True, slots=True)
class Weighed:
    """Rows with weights in small buckets of 16-bit words, or in a single large one, at their addresses.

    Attributes
    ----------
    places : SegmentAddresses of all buckets of an interval
    first : the first of these buckets, as an index in `places`
    items : int64 array of shape (n_buckets,), the items of each of these buckets
    buckets : int64 array of shape (n_buckets,), the upper bits of their keys
    """

    places: SegmentAddresses
    first: int
    items: Array
    buckets: Array

    @property
    def large(self) -> bool:
        """Whether the words are counted in a table, not sorted."""
        return bool(self.items[0] > _WEIGHED)

    def counts(self) -> Iterator[Counts]:
        """Distinct keys with their counts; weights are added in the order of the segments, as in `weighed`."""
        at = self.places.at, self.places.weights
        if self.large:
            yield weighed(*at, self.first, int(self.buckets[0]))
            return
        size = int(self.items.sum())
        columns = *empty_counts(size), *np.empty((2, size))
        n = weigh_words(*at, self.items, self.buckets, self.first, *columns)
        keys, neg, pos, neg_weight, pos_weight = (column[:n] for column in columns)
        yield Counts(keys, no_rest(keys), neg, pos, neg_weight, pos_weight)

    def ranked(self, above: tuple[Any, Any], negatives: Any) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored."""
        at = self.places.at, self.places.weights
        if self.large:
            with _sums() as table:
                (area, precision, n, p), rows = rank_sums(*at, self.first, table, *above, negatives)
        else:
            (area, precision, n, p), rows = rank_words(*at, self.items, self.first, *above, negatives)
        return Ranked(2.0 * area, precision, n, p, *rows)


def words_counted(rows: Addresses, bucket: int, room: int) -> Iterator[Counts]:
    """Distinct 32-bit keys of the buckets from `bucket` on, whose 16-bit words are at the addresses `rows`.

    Yields about `room` keys at a time, and at least those of one bucket.
    """
    items, done = np.diff(rows.starts[:, ::2]).sum(axis=0), 0
    most = min(max(room, WORDS), _ROOM, int(items.clip(max=WORDS).sum()))
    with _tables() as tables:
        while done < items.size:
            columns = empty_counts(most + 1)
            done, n = tally_words(rows, items, bucket, done, *tables, *columns)
            keys, neg, pos = (column[:n] for column in columns)
            yield Counts(keys, no_rest(keys), neg, pos)


@contextmanager
def _tables() -> Iterator[tuple[Array, Array]]:
    """A table and a bitmap of zeros for the words of a bucket, which must be zeros again."""
    try:
        tables = _TABLES.pop()
    except IndexError:  # other threads hold them all
        tables = np.zeros(WORDS, np.uint64), np.zeros(WORDS // 64, np.uint64)
    yield tables
    _TABLES.append(tables)


@contextmanager
def _sums() -> Iterator[Array]:
    """A table of zeros for the weights of the words of a bucket, which must be zeros again."""
    try:
        table = _SUMS.pop()
    except IndexError:  # other threads hold them all
        table = np.zeros(SUMS)
    yield table
    _SUMS.append(table)


def weighed(rows: Addresses, weights: Array, at: int, bucket: int) -> Counts:
    """Distinct 32-bit keys of one bucket, with weights; the bucket is at index `at` of the addresses.

    Weights are added in the order of the segments, as in `tallied`.
    """
    own = rows._replace(starts=np.ascontiguousarray(rows.starts[:, 2 * at : 2 * at + 3]))
    [counts] = words_counted(own, bucket, WORDS)
    sums = np.empty((2, counts.keys.size))
    with _sums() as table:
        sum_words(own, weights, 0, counts.keys, table, *sums)
    return replace(counts, neg_weight=sums[0], pos_weight=sums[1])
