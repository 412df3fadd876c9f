"""Grouping: distinct keys with their counts by label, from the items of one stretch of buckets.

The method depends on the items. Words without counts are sorted for both labels together, with the label in a bit that
the bucket makes redundant; keys of several words are sorted as rows that end with the label. Words with counts or
weights are sorted for each label, and the results aligned; if only areas are needed, words with weights are sorted for
both labels together. 16-bit words are counted in a table, most of them in place (`streameval.states.keyed.in_place`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels import segments as kernels
from streameval.kernels.keyed import wide
from streameval.kernels.keyed.ranked import rank_sorted
from streameval.kernels.keyed.sorting import sort_words, sorted_order, sorted_words
from streameval.kernels.keyed.weights import rank_items
from streameval.states.keyed.ranked import Ranked, RankSums

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streameval.states.keyed.layout import Columns
    from streameval.typing import Array

DENSE = 1 << 13  # items above which the 16-bit words of a bucket, or of a repetitive piece, are tallied, not sorted
_RUN = 1 << 8  # rows with equal words above which their next words are sorted like first words


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


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows of both labels as words: the key shifted left by one, with the label in the lowest bit.

    Attributes
    ----------
    words : uint64 array of shape (n,); the consumer may sort and overwrite it
    bounds : int64 array of shape (n_stretches + 1,); keys ascend from stretch to stretch, but not within one
    buckets : int64 array of shape (n_stretches,), the first bucket of each stretch
    top : the highest bit of all keys, which the shift dropped, as 0 or 2⁶³
    counted : further keys of each stretch, with counts; empty if no stretch has any
    """

    words: Array
    bounds: Array
    buckets: Array
    top: int
    counted: tuple[Counts, ...] = ()

    def counts(self, room: int = 0) -> Iterator[Counts]:
        """Distinct keys with their counts, stretch by stretch.

        Stretches with at most `room` rows together are counted together; only for keys that are distinct without their
        bucket.
        """
        spare = np.empty(np.diff(self.bounds).max(initial=0), np.uint64)
        for first, last in _together(self.bounds, 0 if self.counted else room):
            start, stop = int(self.bounds[first]), int(self.bounds[last])
            bucket, columns, n = int(self.buckets[first]), empty_counts(stop - start), 0
            more = None
            for begin, end in pairwise(self.bounds[first : last + 1].tolist()):
                words = self.words[begin:end]
                sort_words(words, spare)
                if self.counted:
                    words, more = taken_out(words, self.counted[first])
                n += kernels.tally_sorted(words, np.uint64(self.top), *(column[n:] for column in columns))
            keys, neg, pos = (column[:n] for column in columns)
            if more is None or not more.keys.size:
                yield Counts(keys, no_rest(keys), neg, pos, bucket=bucket)
                continue
            keys = np.concatenate((keys, more.keys))
            order = np.argsort(keys, kind="stable")  # of two sorted lists
            neg, pos = np.concatenate((neg, more.neg)), np.concatenate((pos, more.pos))
            yield Counts(keys[order], no_rest(keys), neg[order], pos[order], bucket=bucket)

    def ranked(self, above: tuple[Any, Any], negatives: Any) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored; only without `counted`."""
        spare = np.empty(np.diff(self.bounds).max(initial=0), np.uint64)
        for begin, end in pairwise(self.bounds.tolist()):
            sort_words(self.words[begin:end], spare)
        sums = RankSums(above, negatives)
        rank_sorted(self.words, sums.above, sums.twice, sums.sums)
        return sums.ranked()

    def counted_words(self) -> tuple[Array, Array]:
        """The keys of `counted` as words with label 0, and the index of the first one of each stretch."""
        if not self.counted:
            return np.empty(0, np.uint64), np.zeros(self.bounds.size, np.int64)
        sizes = [part.keys.size for part in self.counted]
        return np.concatenate([part.keys for part in self.counted]) << np.uint64(1), np.cumsum([0, *sizes])


@dataclass(frozen=True, slots=True)
class _Sides:
    """Items of both labels.

    Attributes
    ----------
    neg, pos : Columns, the negatives and the positives
    bucket : the first bucket
    """

    neg: Columns
    pos: Columns
    bucket: int

    def counts(self) -> Iterator[Counts]:
        """Distinct keys with their counts."""
        yield grouped(self.neg, self.pos, bucket=self.bucket)


class Unsorted(_Sides):
    """Rows of both labels, each with a key of several words, without counts and weights."""

    __slots__ = ()


class WeighedItems(_Sides):
    """Items of both labels with weights, each with a key of one word."""

    __slots__ = ()

    def ranked(self, above: tuple[Any, Any], negatives: Any) -> Ranked:
        """`Ranked` of the distinct keys, which are not stored: the items of both labels are sorted together."""
        words, _, _, weights = map(np.concatenate, zip(self.neg, self.pos, strict=True))
        middle, (words, order) = self.neg[0].size, sorted_order(words)
        area, precision, n, p = rank_items(words, order, middle, weights, *above, negatives)
        rows = (int(counts.sum()) if counts.size else words.size for words, _, counts, _ in (self.neg, self.pos))
        return Ranked(2.0 * area, precision, n, p, *rows)


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


def taken_out(words: Array, counted: Counts) -> tuple[Array, Counts]:
    """Move the rows of counted keys from the sorted words of a `Labelled` stretch to their counts.

    Returns
    -------
    The words that are left, and the counted keys with all of their rows.

    Examples
    --------
    >>> none, one = np.empty((2, 0), np.uint64), np.ones(2, np.int64)
    >>> words = np.array([2, 4, 5, 5, 6], np.uint64)  # of the keys 1, 2 and 3
    >>> left, counted = taken_out(words, Counts(np.array([2, 7], np.uint64), none, one, one))
    >>> left, counted.neg, counted.pos
    (array([2, 6], dtype=uint64), array([2, 1]), array([3, 1]))
    """
    neg, pos = counted.neg.copy(), counted.pos.copy()
    left = kernels.take_out(words, counted.keys << np.uint64(1), neg, pos)
    return words[:left], Counts(counted.keys, counted.rest, neg, pos, bucket=counted.bucket)


def grouped(neg: Columns, pos: Columns, *, bucket: int = 0) -> Counts:
    """Distinct keys of the items of both labels; all in one bucket if keys are distinct only within a bucket."""
    (words, rest, *_), (more, further, *_) = neg, pos
    if not rest.shape[1] or any(column.size for column in (*neg[2:], *pos[2:])):
        return aligned(distinct(*neg), distinct(*pos), bucket=bucket)
    size, width = words.size + more.size, 2 + rest.shape[1]
    rows = np.empty((size, width), np.uint64)
    wide.labelled_rows(words, rest, 0, rows[: words.size])
    wide.labelled_rows(more, further, 1, rows[words.size :])
    flat, columns = rows.reshape(-1), (0,) * width
    wide.sort_rows(flat, np.empty_like(flat), columns)
    room = np.empty(size, np.uint64), np.empty((size, width - 2), np.uint64), *np.empty((2, size), np.int64)
    n = wide.count_rows(flat, columns, *room)
    keys, further, *counts = (column[:n] for column in room)
    return Counts(keys, further, counts[0], counts[1], bucket=bucket)


def distinct(words: Array, rest: Array, counts: Array, weights: Array) -> Columns:
    """Sort items and group them by key; empty columns stay empty, except that counts are always filled."""
    columns: Columns = _summed(words, rest, counts, weights)[:4]
    return columns


def compacted(words: Array, rest: Array, counts: Array, weights: Array) -> Columns:
    """As `distinct`, for items that are to be grouped again: no weight is lost.

    A weight whose sum was rounded is two items, the sum and its rounding error; the latter counts no rows.

    Examples
    --------
    >>> words, rest = np.array([7, 7], np.uint64), np.empty((2, 0), np.uint64)
    >>> words, _, counts, weights = compacted(words, rest, np.empty(0, np.int64), np.array([1.0, 2.0**-60]))
    >>> words.tolist(), counts.tolist(), [weight.hex() for weight in weights.tolist()]
    ([7, 7], [2, 0], ['0x1.0000000000000p+0', '0x1.0000000000000p-60'])
    """
    words, rest, counts, weights, errors = _summed(words, rest, counts, weights)
    lost = np.flatnonzero(errors)
    if not lost.size:
        return words, rest, counts, weights
    more = words[lost], rest[lost], np.zeros(lost.size, np.int64), errors[lost]
    words, rest, counts, weights = map(np.concatenate, zip((words, rest, counts, weights), more, strict=True))
    return words, rest, counts, weights


def _summed(words: Array, rest: Array, counts: Array, weights: Array) -> tuple[Array, Array, Array, Array, Array]:
    """The columns of `distinct`, and the rounding error of each weight."""
    if rest.size or counts.size or weights.size:
        words, order = sorted_order(words)
        if rest.size:
            _order_rest(words, rest, order)
        rest, counts, weights = (column[order] if column.size else column for column in (rest, counts, weights))
    else:
        words = sorted_words(words)
    found: tuple[Array, Array, Array, Array, Array] = kernels.distinct(words, rest, counts, weights)
    return found


def _order_rest(words: Array, rest: Array, order: Array) -> None:
    """Sort rows with equal first words by their further words; `order`, which sorts by first word, changes in place.

    Many rows with one first word, such as those of a group, are sorted by their next word recursively.
    """
    bounds = np.append(np.flatnonzero(np.append(True, words[1:] != words[:-1])), words.size)
    long = np.flatnonzero(np.diff(bounds) > _RUN)
    first = 0
    for start, stop in zip(bounds[long].tolist(), bounds[long + 1].tolist(), strict=True):
        kernels.order_rest(words[first:start], rest, order[first:start])
        at = order[start:stop]
        further, own = sorted_order(rest[at, 0])
        if rest.shape[1] > 1:
            _order_rest(further, rest[at, 1:], own)
        order[start:stop], first = at[own], stop
    kernels.order_rest(words[first:], rest, order[first:])


def empty_counts(keys: int) -> tuple[Array, Array, Array]:
    """Arrays for keys, their negatives and their positives."""
    return np.empty(keys, np.uint64), np.empty(keys, np.int64), np.empty(keys, np.int64)


def no_rest(keys: Array) -> Array:
    """An array of further words for keys that have none."""
    return np.empty((keys.size, 0), np.uint64)


def aligned(neg: tuple[Array, ...], pos: tuple[Array, ...], *, bucket: int = 0) -> Counts:
    """Align the distinct keys of both labels; all in one bucket if keys are distinct only within a bucket."""
    keys, rest, at_neg, at_pos = kernels.align(neg[0], neg[1], pos[0], pos[1])

    def spread(values: Array, at: Array) -> Array:
        out = np.zeros(keys.size, values.dtype)
        out[at] = values
        return out

    counts = spread(neg[2], at_neg), spread(pos[2], at_pos)
    if neg[3].size or pos[3].size:
        return Counts(keys, rest, *counts, spread(neg[3], at_neg), spread(pos[3], at_pos), bucket)
    return Counts(keys, rest, *counts, bucket=bucket)


def tallied(bucket: int, *sides: Iterable[Columns], weighted: bool) -> Counts:
    """Count the 16-bit words of one bucket in a table.

    Parameters
    ----------
    bucket : int
        The upper bits of the keys.
    *sides : iterables of Columns
        Items of the negatives and of the positives, or of one label, whose rows are then in `neg`.
    weighted : bool
        Whether items have weights.
    """
    table = np.zeros((1 << 16, 2), np.int64)
    items = 0
    weights = [np.zeros((2, 1 << 16 if weighted else 0)) for _ in sides]
    for label, (side, (sums, errors)) in enumerate(zip(sides, weights, strict=True)):
        for words, _, counts, weight in side:
            items += words.size
            kernels.tally(words, counts, table, label)
            if weighted:
                kernels.tally_weights(words, weight, sums, errors)
    keys, neg, pos = kernels.harvest(table, np.uint64(bucket << 16), items)
    if not weighted:
        return Counts(keys, no_rest(keys), neg, pos)
    found = keys & np.uint64(0xFFFF)
    return Counts(keys, no_rest(keys), neg, pos, *(sums[found] + errors[found] for sums, errors in weights))
