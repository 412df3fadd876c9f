"""Grouping: distinct keys with their counts by label, and sums for metrics that need no more of them.

There is one general path: items of any layout are sorted together with their indices, which lead to label, count and
weight (`group_items`). Two forms of rows are faster, and `KeyedCounts.rows_in` yields them where it can. 16-bit words
stay in place (`ShortWords`). 64-bit words of one-word keys without counts are sorted with their label in a bit that the
bucket makes redundant (`LabelledWords`). Both forms also sum the areas of the curves without storing distinct keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from streameval.kernels import segments as kernels
from streameval.kernels.exact import join_halves
from streameval.kernels.fused import FUSED
from streameval.kernels.keyed.ranked import WORDS, tally_words
from streameval.kernels.keyed.sorting import count_rows, index_rows, sort_rows, weigh_rows
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Columns, SegmentAddresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.typing import Array

_ROOM = 1 << 18  # largest number of distinct keys of 16-bit words that are counted at a time
_TALLIED = 1 << 14  # items above which a bucket whose areas alone are needed is counted in a table, not sorted


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
    """

    won: int
    precision: int
    n: int
    p: int
    neg: int
    pos: int


def _rank(add: Callable[[Array, int, Array], None], above: tuple[int, int], negatives: int) -> Ranked:
    """`Ranked` of rows without weights, from the best score down, below some negatives and positives.

    Parameters
    ----------
    add : adds the terms of the rows, see `streameval.kernels.keyed.ranked.rank_sorted`
    above : negatives and positives above; all rows together have fewer than `HELD` positives
    negatives : number of all negatives
    """
    counts, sums = np.array((sum(above), above[1])), np.zeros(4, np.uint64)
    add(counts, 2 * negatives, sums)
    won, precision = (join_halves(sums[at : at + 2].tolist()) for at in (0, 2))
    rows, pos = counts.tolist()
    neg, pos = rows - pos - above[0], pos - above[1]
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

    layout: ClassVar[str] = "labelled words"

    words: Array
    bounds: Array
    buckets: Array
    top: int

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """Distinct keys with their counts, stretch by stretch.

        Stretches with at most `room` rows together are counted together; only for keys that are distinct without their
        bucket.
        """
        for first, last in _together(self.bounds, room):
            size, n = int(self.bounds[last] - self.bounds[first]), 0
            columns = (np.empty(size, np.uint64), *np.empty((2, size), np.int64))
            for begin, end in pairwise(self.bounds[first : last + 1].tolist()):
                words = self.words[begin:end]
                words.sort()
                n += kernels.tally_sorted(words, np.uint64(self.top), *(column[n:] for column in columns))
            keys, neg, pos = (column[:n] for column in columns)
            yield Counts(keys, _no_rest(keys), neg, pos, bucket=int(self.buckets[first]))

    def ranked(self, above: tuple[int, int], negatives: int) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored."""
        for begin, end in pairwise(self.bounds.tolist()):
            self.words[begin:end].sort()
        return _rank(partial(FUSED[self.layout, "areas"], self.words), above, negatives)


@dataclass(frozen=True, slots=True)
class ShortWords:
    """Rows whose words have 16 bits, at their addresses.

    Attributes
    ----------
    places : SegmentAddresses of the buckets
    items, buckets : int64 arrays of shape (n_buckets,), the items of each bucket, and its number
    most : number of distinct keys to count at a time, about
    cuts : intervals of these buckets that are counted together; if empty, they follow from `most`
    """

    layout: ClassVar[str] = "short words"

    places: SegmentAddresses
    items: Array
    buckets: Array
    most: int
    cuts: Sequence[tuple[int, int]] = ()

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """Distinct keys with their counts and weights."""
        ends = np.cumsum(np.append(0, self.items.clip(max=WORDS)))
        for i, j in self.cuts or _together(ends, min(max(self.most, WORDS), _ROOM)):
            most, items, buckets = int(ends[j] - ends[i]), self.items[i:j], self.buckets[i:j]
            sides = np.empty((2, most), np.int64)
            keys, sums = np.empty(most, np.uint64), np.empty((4, most)) if self.places.weights.any() else None
            scratch = np.zeros((2, WORDS // 64), np.uint64)
            n = tally_words(self.places.at, self.places.weights, i, items, buckets, keys, sides, sums, *scratch)
            weights = () if sums is None else sums[::2, :n] + sums[1::2, :n]
            yield Counts(keys[:n], _no_rest(keys[:n]), *sides[:, :n], *weights)

    def ranked(self, above: tuple[int, int], negatives: int) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored; the rows have no weights."""
        rows = self.places.at
        tallied = (self.items > _TALLIED) | (np.diff(rows.starts[rows.counts != 0, ::2]) > 0).any(axis=0)
        scratch = np.zeros(WORDS, np.uint64), np.zeros(WORDS // 64, np.uint64)
        return _rank(partial(FUSED[self.layout, "areas"], rows, self.items, tallied, *scratch), above, negatives)


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
    return _group(neg, pos, bucket)[0]


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
    found, errors = _group((words, rest, counts, weights), (words[:0], rest[:0], NO_COUNTS, NO_WEIGHTS), 0)
    lost = np.flatnonzero(errors)
    sums = NO_WEIGHTS if found.neg_weight is None else np.append(found.neg_weight, errors[lost])
    at = np.append(np.arange(found.keys.size), lost)
    return found.keys.astype(words.dtype)[at], found.rest[at], np.append(found.neg, np.zeros_like(lost)), sums


def _group(neg: Columns, pos: Columns, bucket: int) -> tuple[Counts, Array]:
    """`group_items`, and the rounding errors of the weights of negatives."""
    middle, size, width = neg[0].size, neg[0].size + pos[0].size, 2 + neg[1].shape[1]
    counts, weights = (np.concatenate((neg[column], pos[column])) for column in (2, 3))
    rows = np.empty(size * width, np.uint64)
    for (words, rest, *_), first in ((neg, 0), (pos, middle)):
        index_rows(words.astype(np.uint64, copy=False), rest, first, rows[first * width :])
    columns = (0,) * width
    sort_rows(rows, np.empty_like(rows), columns)
    keys, rest, sides = np.empty(size, np.uint64), np.empty((size, width - 2), np.uint64), np.empty((2, size), np.int64)
    n = count_rows(rows, columns, middle, counts, keys, rest, *sides)
    found = Counts(keys[:n], rest[:n], sides[0, :n], sides[1, :n], bucket=bucket)
    if not weights.size:
        return found, NO_WEIGHTS
    sums, errors = np.empty((2, 2, n))
    weigh_rows(rows, columns, middle, weights, sums, errors)
    return replace(found, neg_weight=sums[0], pos_weight=sums[1]), errors[0]


def _no_rest(keys: Array) -> Array:
    """An array of further words for keys that have none."""
    return np.empty((keys.size, 0), np.uint64)
