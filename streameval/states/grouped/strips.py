"""Strips: rows of narrow words, gathered from all segments and sorted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.kernels import segments
from streameval.kernels.grouped import sweep
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.layout import NO_COUNTS, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.typing import Array

__all__ = ["Strip", "sorted_rows"]

_WORD_BITS = 16 + sweep.CELL_BITS


class Strip(NamedTuple):
    """Rows of some buckets as labelled words, sorted by key, the negatives of a key before its positives.

    Attributes
    ----------
    words : uint32 array of shape (n,)
    starts : int64 array of shape (n_buckets + 1,)
    buckets : int64 array of shape (n_buckets,)
    """

    words: Array
    starts: Array
    buckets: Array

    def counts(self) -> Counts:
        """As wide words with counts; keys ascend, words may repeat."""
        keys, neg, pos = sweep.narrow_ties(*self)
        return Counts(keys, np.empty((keys.size, 0), np.uint64), neg, pos)


def sorted_rows(keyed: KeyedCounts, start: int, stop: int, budget: Budget | None = None) -> Iterator[Strip | Counts]:
    """The rows of some buckets of narrow words, sorted; one bucket of very many in several passes."""
    items = int(keyed.items_in(start, stop).sum())
    most = keyed.most(budget or Budget())
    passes = 1 << max(0, (items // most).bit_length() if stop - start == 1 else 0)
    keyed = keyed.range(start, stop)
    for i in range(passes):
        low, high = (np.uint32((1 << _WORD_BITS) * j // passes) for j in (i, i + 1))
        within = keyed if passes == 1 else _between(keyed, low, high)
        plain = KeyedCounts(keyed.layout, tuple(each for each in within.segments if each.counts is None))
        counted = [each for each in within.segments if each.counts is not None]
        if counted:
            yield _with_counted(_gathered(plain, start, stop, whole_words=True), counted)
        else:
            yield _gathered(plain, start, stop)


def _between(keyed: KeyedCounts, low: Any, high: Any) -> KeyedCounts:
    """The rows whose words are at least `low` and below `high`."""
    found = []
    for each in keyed.segments:
        words = each.words.read()
        kept = (words >= low) & (words < high)
        starts = np.concatenate(([0], np.cumsum(kept)))[each.starts]
        counts = None if each.counts is None else Buffer(each.counts.read()[kept])
        found.append(Segment(each.codes, starts, None, None, Buffer(words[kept]), None, counts))
    return KeyedCounts(keyed.layout, tuple(found))


def _with_counted(strip: Strip, counted: Sequence[Segment]) -> Counts:
    """Plain rows and counted ones together; a word may repeat."""
    found, none = [strip.counts()], np.empty((0, 0), np.uint64)
    for each in counted:
        words = sweep.wide_words(each.words.read(), each.starts, each.codes)
        rows = each.counts.read() if each.counts else NO_COUNTS
        positive = np.repeat((each.codes & 1).astype(np.bool_), np.diff(each.starts))
        found.append(Counts(words, none, np.where(positive, 0, rows), np.where(positive, rows, 0)))
    keys, neg, pos = (np.concatenate([getattr(each, name) for each in found]) for name in ("keys", "neg", "pos"))
    order = np.argsort(keys)
    return Counts(keys[order], none, neg[order], pos[order])


def _gathered(keyed: KeyedCounts, start: int, stop: int, *, whole_words: bool = False) -> Strip:
    """Plain rows of some buckets, sorted by key, or by their whole words: then equal ones are adjacent."""
    bounds = np.concatenate(([0], np.cumsum(keyed.items_in(start, stop))))
    words, cursor = np.empty(bounds[-1], np.uint32), bounds[:-1].copy()
    for segment in keyed.segments:
        codes = segment.codes - np.uint32(2 * start)
        segments.place_labelled(segment.words.read(), segment.starts, codes, cursor, words)
    buckets = np.flatnonzero(np.diff(bounds[::2]))
    starts = np.append(bounds[2 * buckets], bounds[-1])
    sweep.sort_words(words, starts, np.empty_like(words), np.uint32(0) if whole_words else sweep.KEY_SHIFT)
    return Strip(words, starts, buckets + start)
