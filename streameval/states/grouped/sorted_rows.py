"""SortedRows: rows of narrow or long words, gathered from all segments and sorted once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.kernels import segments
from streameval.kernels.grouped import long, sweep
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.layout import NO_COUNTS, Segment
from streameval.states.scores.long_words import LONG, bases, whole_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.typing import Array

__all__ = ["SortedRows", "sorted_rows", "tied"]

_CELL = np.uint64((1 << sweep.CELL_BITS) - 1)
_HALF = np.uint64(32)
_SAMPLE = 64  # words sampled for each pass over a bucket


class SortedRows(NamedTuple):
    """Rows of some buckets as labelled words, sorted by key, the negatives of a key before its positives.

    Attributes
    ----------
    words : uint32 or uint64 array of shape (n,)
    starts : int64 array of shape (n_buckets + 1,)
    buckets : int64 array of shape (n_buckets,)
    kind : type of the scores
    """

    words: Array
    starts: Array
    buckets: Array
    kind: str

    def counts(self) -> Counts:
        """As wide words with counts; keys ascend, words may repeat. Of long words see `tied`."""
        if self.words.itemsize == 8:
            return tied(*long.ties(self.words, self.starts, bases(self.kind)[self.buckets]))
        keys, neg, pos = sweep.narrow_ties(self.words, self.starts, self.buckets)
        return Counts(keys, np.empty((keys.size, 0), np.uint64), neg, pos)


def tied(keys: Array, cells: Array, neg: Array, pos: Array) -> Counts:
    """Rows of ascending keys of 64 bits as wide words: a key's place among them, then the cell; further words are keys.

    Examples
    --------
    >>> keys, cells, one = np.array([7, 7, 9], np.uint64), np.array([0, 5, 0], np.uint64), np.ones(3, np.int64)
    >>> tied(keys, cells, one, one).keys >> np.uint64(32)
    array([0, 0, 1], dtype=uint64)
    """
    places = np.cumsum(np.append(False, keys[1:] != keys[:-1])[: keys.size])
    return Counts((places.astype(np.uint64) << _HALF) | cells, keys.reshape(-1, 1), neg, pos)


def sorted_rows(
    keyed: KeyedCounts, kind: str, start: int, stop: int, budget: Budget | None = None
) -> Iterator[SortedRows | Counts]:
    """The rows of some buckets of narrow or long words, sorted; one bucket of very many in several passes."""
    items = int(keyed.items_in(start, stop).sum())
    most = keyed.most(budget or Budget())
    passes = 1 << max(0, (items // most).bit_length() if stop - start == 1 else 0)
    keyed = keyed.range(start, stop)
    for low, high in _ranges(keyed, passes):
        within = keyed if passes == 1 else _between(keyed, low, high)
        plain = KeyedCounts(keyed.layout, tuple(each for each in within.segments if each.counts is None))
        counted = [each for each in within.segments if each.counts is not None]
        if counted:
            yield _with_counted(_gathered(plain, kind, start, stop, whole_words=True), counted)
        else:
            yield _gathered(plain, kind, start, stop)


def _ranges(keyed: KeyedCounts, passes: int) -> Iterator[tuple[int, int]]:
    """At most `passes` ranges of words with about equally many rows each; none cuts a key.

    They are cut at quantiles of every so many words, since scores near 1 or 0 crowd one end of their bucket.
    """
    if passes == 1:
        yield 0, 0
        return
    step = max(1, int(keyed.items.sum()) // (_SAMPLE * passes))
    ends, some = [], []
    for each in keyed.segments:
        words = each.words.read()
        if words.size:
            ends += [int(words.min()), int(words.max()) + (1 << sweep.CELL_BITS)]
            some.append(words[::step].copy())
    sample = np.sort(np.concatenate(some))
    inner = sample[[sample.size * i // passes for i in range(1, passes)]].tolist()
    cuts = sorted({word >> sweep.CELL_BITS for word in (min(ends), *inner, max(ends))})
    yield from pairwise(cut << sweep.CELL_BITS for cut in cuts)


def _between(keyed: KeyedCounts, low: int, high: int) -> KeyedCounts:
    """The rows whose words are at least `low` and below `high`."""
    found = []
    for each in keyed.segments:
        words = each.words.read()
        kept = (words >= low) & (words <= high - 1)
        starts = np.concatenate(([0], np.cumsum(kept)))[each.starts]
        counts = None if each.counts is None else Buffer(each.counts.read()[kept])
        found.append(Segment(each.codes, starts, None, None, Buffer(words[kept]), None, counts))
    return KeyedCounts(keyed.layout, tuple(found))


def _with_counted(run: SortedRows, counted: Sequence[Segment]) -> Counts:
    """Plain rows and counted ones together; a word may repeat."""
    if run.words.itemsize == 8:
        return _with_counted_long(run, counted)
    found, none = [run.counts()], np.empty((0, 0), np.uint64)
    for each in counted:
        words = sweep.wide_words(each.words.read(), each.starts, each.codes)
        found.append(Counts(words, none, *_by_label(each)))
    keys, neg, pos = (np.concatenate([getattr(each, name) for each in found]) for name in ("keys", "neg", "pos"))
    order = np.argsort(keys)
    return Counts(keys[order], none, neg[order], pos[order])


def _by_label(segment: Segment) -> tuple[Array, Array]:
    """Negatives and positives of each item of a counted segment."""
    rows = segment.counts.read() if segment.counts else NO_COUNTS
    positive = np.repeat((segment.codes & 1).astype(np.bool_), np.diff(segment.starts))
    return np.where(positive, 0, rows), np.where(positive, rows, 0)


def _with_counted_long(run: SortedRows, counted: Sequence[Segment]) -> Counts:
    """As `_with_counted`, of long words."""
    found = [long.ties(run.words, run.starts, bases(run.kind)[run.buckets])]
    for each in counted:
        found.append((whole_keys(run.kind, each), each.words.read() & _CELL, *_by_label(each)))
    keys, *others = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(keys)
    return tied(keys[order], *(column[order] for column in others))


def _gathered(keyed: KeyedCounts, kind: str, start: int, stop: int, *, whole_words: bool = False) -> SortedRows:
    """Plain rows of some buckets, sorted by key, or by their whole words: then equal ones are adjacent."""
    bounds = np.concatenate(([0], np.cumsum(keyed.items_in(start, stop))))
    words, cursor = np.empty(bounds[-1], keyed.layout.dtype), bounds[:-1].copy()
    for segment in keyed.segments:
        codes = segment.codes - np.uint32(2 * start)
        segments.place_labelled(segment.words.read(), segment.starts, codes, cursor, words)
    buckets = np.flatnonzero(np.diff(bounds[::2]))
    starts = np.append(bounds[2 * buckets], bounds[-1])
    low = words.dtype.type(0 if whole_words else sweep.KEY_SHIFT)
    sort = long.sort_words if keyed.layout == LONG else sweep.sort_words
    sort(words, starts, np.empty_like(words), low)
    return SortedRows(words, starts, buckets + start, kind)
