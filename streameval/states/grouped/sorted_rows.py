"""SortedRows: rows with narrow or long words, gathered from all segments and sorted once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.kernels import segments
from streameval.kernels.grouped import sweep
from streameval.states.grouped.score_words import WORDS
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.states.grouped.score_words import Words
    from streameval.states.keyed.grouping import Counts
    from streameval.typing import Array

_SAMPLE = 64  # words that are sampled for each pass over a bucket


class SortedRows(NamedTuple):
    """Rows of some buckets as labelled words, sorted by key, the negatives of a key before its positives.

    Attributes
    ----------
    words : uint32 or uint64 array of shape (n,)
    starts : int64 array of shape (n_buckets + 1,), the first row of each bucket, then the end
    buckets : int64 array of shape (n_buckets,), the buckets that have rows
    kind : type of the scores, see `streameval.states.scores.types.score_type`
    form : form of the words
    """

    words: Array
    starts: Array
    buckets: Array
    kind: str
    form: Words

    def counts(self) -> Counts:
        """The rows as wide words with counts; keys ascend, and words may repeat.

        See also `streameval.states.grouped.score_words.tied`.
        """
        return self.form.counted(self.words, self.starts, self.buckets, self.kind)


def sorted_rows(
    keyed: KeyedCounts, kind: str, start: int, stop: int, budget: Budget | None = None
) -> Iterator[SortedRows | Counts]:
    """The rows of the buckets `start` to `stop`, sorted; a single, very large bucket is read in several passes."""
    items = int(keyed.items_in(start, stop).sum())
    most = keyed.most(keyed.holding(budget))
    passes = 1 << max(0, (items // most).bit_length() if stop - start == 1 else 0)
    if passes == 1:
        yield _run(keyed, kind, start, stop)
        return
    keyed = keyed.range(start, stop)
    for low, high in _ranges(keyed, passes):
        yield _run(_between(keyed, low, high), kind, start, stop)


def _run(keyed: KeyedCounts, kind: str, start: int, stop: int) -> SortedRows | Counts:
    """The rows of some buckets, sorted; as `Counts` if some segments have counts."""
    plain, counted = keyed.forms
    further = counted.range(start, stop).segments
    run = _gathered(plain, kind, start, stop, whole_words=bool(further))
    return run.form.joined(run.words, run.starts, run.buckets, kind, further) if further else run


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
    form = WORDS[keyed.layout]
    form.sort(words, starts, np.empty_like(words), low)
    return SortedRows(words, starts, buckets + start, kind, form)
