"""Grouping: distinct keys with their counts by label, and sums for metrics that need no more of them.

There is one general path: items of any layout are sorted together with their indices, which lead to label, count and
weight (`group_items`). Two forms of rows are faster, and `KeyedCounts.rows_in` yields them where it can. 16-bit words
without weights stay in place (`ShortWords`); large buckets are counted in a table. 64-bit words of one-word keys
without counts are sorted with their label in a bit that the bucket makes redundant (`LabelledWords`). Both forms also
sum the areas of the curves without storing distinct keys. 16-bit words with weights are counted in place too.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels import segments as kernels
from streameval.kernels.exact import joined_halves
from streameval.kernels.keyed import wide
from streameval.kernels.keyed.ranked import rank_buckets, rank_sorted
from streameval.kernels.keyed.sorting import sort_words
from streameval.kernels.keyed.weights import SUMS, sum_words, weigh_words
from streameval.kernels.keyed.words import WORDS, tally_words
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.kernels.singletons import Addresses
    from streameval.states.keyed.layout import Columns, SegmentAddresses
    from streameval.typing import Array

_ROOM = 1 << 18  # largest number of distinct keys of 16-bit words that are counted at a time
_TALLIED = 1 << 14  # items above which a bucket whose areas alone are needed is counted in a table, not sorted
_WEIGHED = 1 << 15  # items above which the words of a bucket with weights are counted in a table, not sorted
_TABLES: list[tuple[Array, Array]] = []  # spare tables of zeros, reused because fresh memory is slow
_SUMS: list[Array] = []  # spare tables of zeros for weights


@dataclass(frozen=True, slots=True)
class Counts:
    """Distinct keys in ascending order, with their counts and weights.

    Attributes
    ----------
    keys : uint64 array of shape (n,)
    rest : uint64 array of shape (n, n_words - 1), the further words
    neg, pos : int64 arrays of shape (n,)
    neg_weight, pos_weight : float64 arrays of shape (n,); None without weights
    bucket : the bucket of all keys, if keys are distinct only within a bucket (`Layout.partial`)
    """

    keys: Array
    rest: Array
    neg: Array
    pos: Array
    neg_weight: Array | None = None
    pos_weight: Array | None = None
    bucket: int = 0

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """The keys themselves, since other rows are counted first."""
        yield self


class Ranked(NamedTuple):
    """Sums over groups of equal score that are not stored.

    Attributes
    ----------
    won : twice the pairs won, see `streameval.metrics.scores.sums.pairs_won`
    precision : see `streameval.metrics.scores.sums.precision_sum`
    n, p : negatives and positives in the measure
    neg, pos : rows by label
    trapezoid : as `precision`, of the precisions before and after; None unless it is known
    """

    won: Any
    precision: Any
    n: Any
    p: Any
    neg: int
    pos: int
    trapezoid: Any = None


class _RankSums:
    """Sums of `Ranked` over rows without weights, from the best score down.

    Attributes
    ----------
    above : int64 array of shape (2,), rows and positives so far
    twice : twice the number of all negatives
    sums : uint64 array of shape (4,), see `streameval.kernels.keyed.ranked.rank_sorted`
    """

    __slots__ = ("_before", "above", "sums", "twice")

    def __init__(self, above: tuple[int, int], negatives: int) -> None:
        """Begin below some negatives and positives; all rows together have fewer than `HELD` positives."""
        self.above, self.twice, self.sums = np.array((sum(above), above[1])), 2 * negatives, np.zeros(4, np.uint64)
        self._before = above

    def ranked(self) -> Ranked:
        """The sums of the rows that were added."""
        won, precision = (joined_halves(self.sums[at : at + 2].tolist()) for at in (0, 2))
        rows, pos = self.above.tolist()
        neg, pos = rows - pos - self._before[0], pos - self._before[1]
        return Ranked(won, 2 * precision, neg, pos, neg, pos)


@dataclass(frozen=True, slots=True)
class LabelledWords:
    """Rows of both labels as words: the key shifted left by one, with the label in the lowest bit.

    Attributes
    ----------
    words : uint64 array of shape (n,); the consumer may sort and overwrite it
    bounds : int64 array of shape (n_stretches + 1,); keys ascend from stretch to stretch, but not within one
    buckets : int64 array of shape (n_stretches,), the first bucket of each stretch
    top : the highest bit of all keys, which the shift dropped, as 0 or 2⁶³
    """

    words: Array
    bounds: Array
    buckets: Array
    top: int

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """Distinct keys with their counts, stretch by stretch.

        Stretches with at most `room` rows together are counted together; only for keys that are distinct without their
        bucket.
        """
        spare = np.empty(np.diff(self.bounds).max(initial=0), np.uint64)
        for first, last in _together(self.bounds, room):
            size, n = int(self.bounds[last] - self.bounds[first]), 0
            columns = _empty_counts(size)
            for begin, end in pairwise(self.bounds[first : last + 1].tolist()):
                words = self.words[begin:end]
                sort_words(words, spare)
                n += kernels.tally_sorted(words, np.uint64(self.top), *(column[n:] for column in columns))
            keys, neg, pos = (column[:n] for column in columns)
            yield Counts(keys, _no_rest(keys), neg, pos, bucket=int(self.buckets[first]))

    def ranked(self, above: tuple[int, int], negatives: int) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored."""
        spare = np.empty(np.diff(self.bounds).max(initial=0), np.uint64)
        for begin, end in pairwise(self.bounds.tolist()):
            sort_words(self.words[begin:end], spare)
        sums = _RankSums(above, negatives)
        rank_sorted(self.words, sums.above, sums.twice, sums.sums)
        return sums.ranked()


@dataclass(frozen=True, slots=True)
class ShortWords:
    """Rows without weights whose words have 16 bits, at their addresses.

    Attributes
    ----------
    places : SegmentAddresses of consecutive buckets
    bucket : number of the first bucket
    most : number of distinct keys to count at a time, about
    """

    places: SegmentAddresses
    bucket: int
    most: int

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """Distinct keys with their counts."""
        return _count_words(self.places.at, self.bucket, self.most)

    def ranked(self, above: tuple[int, int], negatives: int) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored."""
        rows, sums = self.places.at, _RankSums(above, negatives)
        starts = rows.starts[:, ::2]
        items = np.diff(starts.sum(axis=0))
        tallied = (items > _TALLIED) | (np.diff(starts[rows.counts != 0]) > 0).any(axis=0)
        with _tables() as tables:
            rank_buckets(rows, items, tallied, *tables, sums.above, sums.twice, sums.sums)
        return sums.ranked()


def _together(bounds: Array, room: int) -> Iterator[tuple[int, int]]:
    """Intervals of stretches with at most `room` rows together, at least one stretch each; without room, one each.

    Examples
    --------
    >>> list(_together(np.array([0, 3, 5, 9, 10]), 6)), list(_together(np.array([0, 3, 3]), 0))
    ([(0, 2), (2, 4)], [(0, 1), (1, 2)])
    """
    first = 0
    while first < bounds.size - 1:
        fits = int(np.searchsorted(bounds, bounds[first] + room, side="right")) - 1 if room else 0
        last = max(fits, first + 1)
        yield first, last
        first = last


def group_items(neg: Columns, pos: Columns, *, bucket: int = 0) -> Counts:
    """Distinct keys of the items of both labels; all in one bucket if keys are distinct only within a bucket."""
    return _grouped(neg, pos, bucket)[0]


def merge_counts(one: Counts, other: Counts) -> Counts:
    """Distinct keys, of one word and without weights, of two lists of distinct keys in the same buckets.

    Examples
    --------
    >>> rest, times = np.empty((2, 0), np.uint64), np.ones(2, np.int64)
    >>> one, other = (Counts(np.array(keys, np.uint64), rest, times, times) for keys in ([3, 5], [4, 5]))
    >>> found = merge_counts(one, other)
    >>> found.keys.tolist(), found.neg.tolist()
    ([3, 4, 5], [1, 1, 2])
    """
    if not (one.keys.size and other.keys.size):
        return one if one.keys.size else other
    keys = np.concatenate((one.keys, other.keys))
    order = np.argsort(keys, kind="stable")  # of two ascending lists
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    neg, pos = (np.concatenate(pair)[order] for pair in ((one.neg, other.neg), (one.pos, other.pos)))
    neg, pos = (np.add.reduceat(side, first) for side in (neg, pos))
    return Counts(keys[first], _no_rest(first), neg, pos, bucket=one.bucket)


def compact(words: Array, rest: Array, counts: Array, weights: Array) -> Columns:
    """Group items that will be grouped again, without losing weight.

    A weight whose sum was rounded is two items, the sum and its rounding error; the latter counts no rows.

    Examples
    --------
    >>> words, rest = np.array([7, 7], np.uint64), np.empty((2, 0), np.uint64)
    >>> words, _, counts, weights = compact(words, rest, np.empty(0, np.int64), np.array([1.0, 2.0**-60]))
    >>> words.tolist(), counts.tolist(), [weight.hex() for weight in weights.tolist()]
    ([7, 7], [2, 0], ['0x1.0000000000000p+0', '0x1.0000000000000p-60'])
    """
    found, errors = _grouped((words, rest, counts, weights), (words[:0], rest[:0], NO_COUNTS, NO_WEIGHTS), 0)
    lost = np.flatnonzero(errors)
    sums = NO_WEIGHTS if found.neg_weight is None else np.append(found.neg_weight, errors[lost])
    at = np.append(np.arange(found.keys.size), lost)
    return found.keys.astype(words.dtype)[at], found.rest[at], np.append(found.neg, np.zeros_like(lost)), sums


def _grouped(neg: Columns, pos: Columns, bucket: int) -> tuple[Counts, Array]:
    """`group_items`, and the rounding errors of the weights of negatives."""
    middle, size, width = neg[0].size, neg[0].size + pos[0].size, 2 + neg[1].shape[1]
    counts, weights = (np.concatenate((neg[column], pos[column])) for column in (2, 3))
    rows = np.empty(size * width, np.uint64)
    for (words, rest, *_), first in ((neg, 0), (pos, middle)):
        wide.index_rows(words.astype(np.uint64, copy=False), rest, first, rows[first * width :])
    columns = (0,) * width
    wide.sort_rows(rows, np.empty_like(rows), columns)
    keys, rest, sides = np.empty(size, np.uint64), np.empty((size, width - 2), np.uint64), np.empty((2, size), np.int64)
    n = wide.count_rows(rows, columns, middle, counts, keys, rest, *sides)
    found = Counts(keys[:n], rest[:n], sides[0, :n], sides[1, :n], bucket=bucket)
    if not weights.size:
        return found, NO_WEIGHTS
    sums, errors = np.empty((2, 2, n))
    wide.weigh_rows(rows, columns, middle, weights, sums, errors)
    return replace(found, neg_weight=sums[0], pos_weight=sums[1]), errors[0]


def tally_bucket(bucket: int, *sides: Iterable[Columns], weighted: bool) -> Counts:
    """Count the 16-bit words of one bucket, however many rows it has, in a table.

    Parameters
    ----------
    bucket : the upper bits of the keys
    *sides : items of the negatives and of the positives, a bounded number at a time
    weighted : whether items have weights
    """
    table, sums, errors = np.zeros((2, WORDS), np.int64), *np.zeros((2, 2, WORDS))
    for label, side in enumerate(sides):
        for words, _, counts, weights in side:
            table[label] += np.bincount(words, counts if counts.size else None, WORDS).astype(np.int64)
            if weighted:
                kernels.tally_weights(words, weights, sums[label], errors[label])
    words = np.flatnonzero(table.any(axis=0))
    keys = words.astype(np.uint64) | np.uint64(bucket << 16)
    neg, pos = table[:, words]
    return Counts(keys, _no_rest(keys), neg, pos, *((sums + errors)[:, words] if weighted else ()))


def weigh_buckets(places: SegmentAddresses, first: int, items: Array, buckets: Array) -> Counts:
    """Count 16-bit words with weights in small buckets, or in a single large one.

    Weights are added in the order of the segments.

    Parameters
    ----------
    places : addresses of all buckets of an interval
    first : the first of these buckets, as an index in `places`
    items : int64 array of shape (n_buckets,), the items of each of these buckets
    buckets : int64 array of shape (n_buckets,), the upper bits of their keys
    """
    if items[0] <= _WEIGHED:
        size = int(items.sum())
        columns = *_empty_counts(size), *np.empty((2, size))
        n = weigh_words(places.at, places.weights, items, buckets, first, *columns)
        keys, neg, pos, neg_weight, pos_weight = (column[:n] for column in columns)
        return Counts(keys, _no_rest(keys), neg, pos, neg_weight, pos_weight)
    starts = np.ascontiguousarray(places.at.starts[:, 2 * first : 2 * first + 3])
    rows = places.at._replace(starts=starts)
    [counts] = _count_words(rows, int(buckets[0]), WORDS)
    sums = np.empty((2, counts.keys.size))
    with _sums() as table:
        sum_words(rows, places.weights, 0, counts.keys, table, *sums)
    return replace(counts, neg_weight=sums[0], pos_weight=sums[1])


def _count_words(rows: Addresses, bucket: int, room: int) -> Iterator[Counts]:
    """Distinct 32-bit keys of the buckets from `bucket` on, whose 16-bit words are at the addresses `rows`.

    Yields about `room` keys at a time, and at least those of one bucket.
    """
    items, done = np.diff(rows.starts[:, ::2]).sum(axis=0), 0
    most = min(max(room, WORDS), _ROOM, int(items.clip(max=WORDS).sum()))
    with _tables() as tables:
        while done < items.size:
            columns = _empty_counts(most + 1)
            done, n = tally_words(rows, items, bucket, done, *tables, *columns)
            keys, neg, pos = (column[:n] for column in columns)
            yield Counts(keys, _no_rest(keys), neg, pos)


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


def _empty_counts(keys: int) -> tuple[Array, Array, Array]:
    """Arrays for keys, their negatives and their positives."""
    return np.empty(keys, np.uint64), np.empty(keys, np.int64), np.empty(keys, np.int64)


def _no_rest(keys: Array) -> Array:
    """An array of further words for keys that have none."""
    return np.empty((keys.size, 0), np.uint64)
