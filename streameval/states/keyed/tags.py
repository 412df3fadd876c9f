"""Tags in the first words of stored rows: the code of a row's group, or its label.

The bucket of a row determines the highest bits of its mixed first word. A tag takes the place of ten of them, so that
a row takes as much memory as without a tag. The plain words are restored on reading.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import Computed
from streameval.kernels.grouped.codes import replaced_bits
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import NO_WEIGHTS, TAG, fixed_bits, tags_of

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.keyed.layout import Interval, Layout, Segment
    from streameval.typing import Array


def plain(keyed: KeyedCounts) -> KeyedCounts:
    """The same rows without tags; first words are restored on reading."""
    return replace(keyed, segments=tuple(map(untagged, keyed.segments)))


def untagged(segment: Segment) -> Segment:
    """The same rows without tags."""

    def restored(start: int, stop: int) -> Array:
        starts, fixed = np.clip(segment.starts, start, stop) - start, fixed_bits(segment.codes >> 1)
        found: Array = replaced_bits(segment.words.read(start, stop), starts, fixed, ~TAG.bits)
        return found

    words = Computed(segment.words.shape, np.dtype(np.uint64), restored)
    words.owner = segment.words.owner
    return replace(segment, words=words)


def by_label(keyed: KeyedCounts, interval: Interval, layout: Layout, budget: Budget) -> KeyedCounts:
    """Copies of the rows of some buckets, whose tags are labels, by label and the words of a layout."""
    builder = SegmentBuilder.fitting(layout, budget, SLAB, counted=keyed.counted)
    for codes, starts, (words, rest, counts, _) in keyed.slabs(interval):
        buckets = np.repeat(codes >> 1, np.diff(starts))
        whole = (words & ~TAG.bits) | fixed_bits(buckets)
        labelled = (buckets << 1).astype(np.uint32) | tags_of(words).astype(np.uint32)
        builder.add_items(whole, labelled, rest[:, : layout.words - 1], counts, NO_WEIGHTS)
    return KeyedCounts.built(builder)
