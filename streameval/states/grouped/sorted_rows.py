"""SortedRows: tagged rows of scores with narrow words, gathered from all segments and sorted once.

Rows with wide words or with counts are grouped instead: `tied` gives them the form that sweeps read, words of the index
of a key, then the tag.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.kernels import segments
from streameval.kernels.grouped import sweep
from streameval.states.grouped.tag_words import bases, whole_words
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.keyed.layout import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.states.grouped.tag_words import TagWords
    from streameval.typing import Array

    Items = tuple[Array, Array, Array, Array]  # keys, tags, negatives and positives

_SAMPLE = 64  # words that are sampled for each pass over a bucket
_ITEMS = 1 << 21  # largest number of items that are tied together, except that counts of one stretch are never split
_NO_REST = np.empty((0, 0), np.uint64)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class SortedRows(NamedTuple):
    """Rows of some buckets as labelled words, sorted by key, the negatives of a key before its positives.

    Attributes
    ----------
    words : uint32 or uint64 array of shape (n,)
    starts : int64 array of shape (n_buckets + 1,), the first row of each bucket, then the end
    buckets : int64 array of shape (n_buckets,), the buckets that have rows
    kind : type of the scores, see `streameval.states.scores.types.score_type`
    """

    words: Array
    starts: Array
    buckets: Array
    kind: str

    def counts(self) -> Counts:
        """The rows as words of a key, or its index, and a tag, with counts; keys ascend, and words may repeat."""
        if self.words.itemsize == 8:
            return tied(*self.items())
        words, neg, pos = sweep.narrow_ties(self.words, self.starts, self.buckets)
        return Counts(words, np.empty((words.size, 0), np.uint64), neg, pos)

    def items(self) -> Items:
        """Keys, tags, negatives and positives of the rows; a key and tag may repeat."""
        if self.words.itemsize == 8:
            items: Items = sweep.long_ties(self.words, self.starts, bases(self.kind)[self.buckets])
            return items
        words, neg, pos = sweep.narrow_ties(self.words, self.starts, self.buckets)
        return words >> _HALF, words & _LOW, neg, pos


def sorted_rows(
    keyed: KeyedCounts, words: TagWords, kind: str, start: int, stop: int, budget: Budget | None = None
) -> Iterator[SortedRows | Counts]:
    """The rows of the buckets `start` to `stop`, sorted, in parts that no score is divided between.

    A single, very large bucket is read in several passes.
    """
    if words.layout.tag == 32:
        yield from _wide_counts(keyed, start, stop, budget)
        return
    items = int(keyed.items_in(start, stop).sum())
    most = keyed.most(keyed.holding(budget))
    passes = 1 << max(0, (items // most).bit_length() if stop - start == 1 else 0)
    if passes == 1:
        yield _run(keyed, words, kind, start, stop)
        return
    keyed = keyed.range(start, stop)
    for low, high in _ranges(keyed, passes):
        yield _run(_between(keyed, low, high), words, kind, start, stop)


def _wide_counts(keyed: KeyedCounts, start: int, stop: int, budget: Budget | None) -> Iterator[Counts]:
    """Rows with wide words."""
    held: list[Counts] = []
    for counts in keyed.grouped((start, stop), budget):
        size = sum(each.keys.size for each in held)
        if held and size + counts.keys.size > _ITEMS and held[-1].keys[-1] != counts.keys[0]:
            yield _joined([(each.keys, each.rest[:, -1], each.neg, each.pos) for each in held])
            held = []
        held.append(counts)
    if held:
        yield _joined([(each.keys, each.rest[:, -1], each.neg, each.pos) for each in held])


def _run(keyed: KeyedCounts, words: TagWords, kind: str, start: int, stop: int) -> SortedRows | Counts:
    """The rows of some buckets, sorted; as `Counts` if some segments have counts."""
    plain, counted = keyed.forms
    further = counted.range(start, stop).segments
    rows = _gathered(plain, kind, start, stop, whole_words=bool(further))
    return _joined([rows.items(), *(_items_of(each, words) for each in further)]) if further else rows


def _items_of(segment: Segment, words: TagWords) -> Items:
    """The items of a segment with counts."""
    codes, given, rest = np.repeat(segment.codes, np.diff(segment.starts)), segment.words.read(), _NO_REST
    counts = segment.counts.read() if segment.counts else np.ones(given.size, np.int64)
    keys = whole_words(words.plain(given, rest, codes)[0], codes).astype(np.uint64)
    positive = (codes & 1).astype(np.bool_)
    return keys, words.tags(given, rest), np.where(positive, 0, counts), np.where(positive, counts, 0)


def _joined(parts: list[Items]) -> Counts:
    """Items of several parts as `tied`."""
    keys, *others = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")
    return tied(keys[order], *(column[order] for column in others))


def tied(keys: Array, tags: Array, neg: Array, pos: Array) -> Counts:
    """Rows of ascending keys as words of the key's index, then the tag; the further word is the key.

    Examples
    --------
    >>> keys, tags, one = np.array([7, 7, 9], np.uint64), np.array([0, 5, 0], np.uint64), np.ones(3, np.int64)
    >>> tied(keys, tags, one, one).keys >> np.uint64(32)
    array([0, 0, 1], dtype=uint64)
    """
    places = np.cumsum(np.append(False, keys[1:] != keys[:-1])[: keys.size])
    return Counts((places.astype(np.uint64) << _HALF) | tags, keys.reshape(-1, 1), neg, pos)


def _ranges(keyed: KeyedCounts, passes: int) -> Iterator[tuple[int, int]]:
    """At most `passes` ranges of words, each with about the same number of rows; no key is in two ranges.

    The ranges end at quantiles of a sample of words, since scores near 1 or 0 crowd one end of their bucket.
    """
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


def _gathered(keyed: KeyedCounts, kind: str, start: int, stop: int, *, whole_words: bool = False) -> SortedRows:
    """Rows without counts of some buckets, sorted by key; with `whole_words` by word, so that equal words meet."""
    bounds = np.concatenate(([0], np.cumsum(keyed.items_in(start, stop))))
    words, cursor = np.empty(bounds[-1], keyed.layout.dtype), bounds[:-1].copy()
    for codes, pieces, (given, *_) in keyed.slabs((start, stop)):
        segments.place_labelled(given, pieces, codes - np.uint32(2 * start), cursor, words)
    buckets = np.flatnonzero(np.diff(bounds[::2]))
    starts = np.append(bounds[2 * buckets], bounds[-1])
    low = words.dtype.type(0 if whole_words else sweep.KEY_SHIFT)
    sort = sweep.sort_words if words.itemsize == 4 else sweep.sort_long_words
    sort(words, starts, np.empty_like(words), low)
    return SortedRows(words, starts, buckets + start, kind)
