"""How the words of a row hold its tag, the code of its group, for every kind of state.

A row of a tagged table has the words of the state that is split, and a tag (`Layout.tag`). *Narrow* words take no more
memory than those without a tag, or 2 bytes more for 32-bit scores, and distinguish a limited number of groups:

- *32-bit scores*: a word of 32 bits, the lower half of the key, then a tag of 15 bits.
- *64-bit scores*: a word of 64 bits, the distance of the key from the base of its bucket, then a tag of 15 bits
  (`streameval.kernels.groups`). Bases depend only on the type of the scores. The distance fits for 0, ±∞ and
  floats with magnitudes from 2⁻¹²⁶ to 2¹²⁷, and for integers below 2⁵⁵.
- *Clusters*: the key without the ten bits below the highest, which its bucket determines, then a tag of ten bits. So
  the rows of a cluster are adjacent when words are sorted (`streameval.kernels.blocks`).

*Wide* words are the whole key, then the tag as a further word. They hold any key and any number of groups. Cells, and
clusters of every row with those of labelled rows, always have them.

The words of the inner state are restored on reading, so untagged segments take no memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import Computed
from streameval.kernels.blocks import BLOCK_BITS
from streameval.kernels.groups import CELL_BITS, DISTANCE_BITS
from streameval.kernels.keys import SCORE_BUCKETS
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.keyed.layout import Layout, Segment, fixed_bits
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.types import rank_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.states.contingency.counts import ContingencySpec
    from streameval.typing import Array

    KeyedSpec = ScoreSpec | ClusterSpec | ContingencySpec
    Words = tuple[Array, Array]  # first words, and further words of shape (n, n_words - 1)

_SIGN = np.uint32(1 << 31)
_MIDDLE = np.uint64(1 << (DISTANCE_BITS - 1))
MOST = 1 << 15  # largest number of groups in narrow words, whatever their form
_HALF = np.uint64(16)
_TAKEN = np.uint64(BLOCK_BITS)
_FREE = np.uint64(64 - BLOCK_BITS)
_TOP = np.uint64(1 << 63)
_LOW = np.uint64((1 << (63 - BLOCK_BITS)) - 1)


@dataclass(frozen=True)
class TagWords(ABC):
    """A form of words; codes of items are ``2 * bucket + label``, uint32 arrays of shape (n,).

    Attributes
    ----------
    inner, layout : layout of rows without and with a tag
    """

    inner: Layout
    layout: Layout

    @property
    def groups(self) -> int:
        """Number of groups that words distinguish."""
        return min(1 << self.layout.tag, MOST if self.layout.tag < 32 else 1 << 32)

    def tags(self, words: Array, rest: Array) -> Array:
        """The tags of rows."""
        last: Array = rest[:, -1] if rest.shape[1] else words
        tags: Array = last & last.dtype.type((1 << self.layout.tag) - 1)
        return tags

    def recoded(self, words: Array, rest: Array, table: Array) -> Words:
        """Rows with each tag replaced by ``table[tag]``."""
        last = rest[:, -1] if rest.shape[1] else words
        tags = self.tags(words, rest)
        last = last ^ tags ^ table[tags].astype(last.dtype)
        return (words, np.column_stack((rest[:, :-1], last))) if rest.shape[1] else (last, rest)

    @abstractmethod
    def plain(self, words: Array, rest: Array, codes: Array) -> Words:
        """The words of rows without their tags."""

    @abstractmethod
    def tagged(self, words: Array, rest: Array, codes: Array, tags: Array) -> Words | None:
        """Whole keys, uint64, of a table without tags as rows with tags; None if a key does not fit."""

    def computed(self, segment: Segment, layout: Layout, columns: Callable[..., Words]) -> Segment:
        """A segment in another layout; ``columns(words, rest, codes)`` computes its words whenever they are read."""

        def read(start: int, stop: int) -> Words:
            pieces = np.diff(np.clip(segment.starts, start, stop))
            rest = segment.rest.read(start, stop) if segment.rest else np.empty((stop - start, 0), np.uint64)
            return columns(segment.words.read(start, stop), rest, np.repeat(segment.codes, pieces))

        size, width = segment.words.shape[0], layout.words - 1
        words = Computed((size,), layout.dtype, lambda start, stop: read(start, stop)[0])
        words.owner = segment.words.owner
        rest = Computed((size, width), np.dtype(np.uint64), lambda a, b: np.ascontiguousarray(read(a, b)[1]))
        return replace(segment, words=words, rest=rest if width else None)

    def untagged(self, segment: Segment) -> Segment:
        """A segment without tags."""
        return self.computed(segment, self.inner, self.plain)

    def retagged(self, segment: Segment, table: Array) -> Segment:
        """A segment whose tags are replaced by ``table[tag]``."""
        return self.computed(segment, self.layout, lambda words, rest, _: self.recoded(words, rest, table))

    def widened(self, segment: Segment, wide: Wide) -> Segment:
        """A segment with wide words."""

        def columns(words: Array, rest: Array, codes: Array) -> Words:
            whole, further = self.plain(words, rest, codes)
            return wide.tagged(whole_words(whole, codes), further, codes, self.tags(words, rest))

        return self.computed(segment, wide.layout, columns)


def whole_words(words: Array, codes: Array) -> Array:
    """The first words of keys as uint64: 16-bit words together with their buckets."""
    return (codes.astype(np.uint64) >> np.uint64(1) << _HALF) | words if words.itemsize == 2 else words


class Wide(TagWords):
    """The whole key, then the tag."""

    @classmethod
    def of(cls, inner: Layout) -> Wide:
        """The form of an inner layout."""
        return cls(inner, replace(inner, bits=64, words=inner.words + 1, tag=32))

    def plain(self, words: Array, rest: Array, codes: Array) -> Words:
        """All words but the last."""
        return words.astype(self.inner.dtype, copy=False), np.ascontiguousarray(rest[:, :-1])

    def tagged(self, words: Array, rest: Array, codes: Array, tags: Array) -> Words:
        """The words, then the tag."""
        return words, np.column_stack((rest, tags.astype(np.uint64)))


class NarrowScores(TagWords):
    """32-bit scores."""

    def plain(self, words: Array, rest: Array, codes: Array) -> Words:
        """The bits above the tag."""
        return (words >> np.uint32(CELL_BITS)).astype(np.uint16), rest

    def tagged(self, words: Array, rest: Array, codes: Array, tags: Array) -> Words:
        """The lower half of the key, then the tag."""
        low = (words & np.uint64(0xFFFF)) << np.uint64(CELL_BITS)
        return (low | tags).astype(np.uint32), rest


@dataclass(frozen=True)
class LongScores(TagWords):
    """64-bit scores of a type."""

    type: str

    def plain(self, words: Array, rest: Array, codes: Array) -> Words:
        """The base and the distance from it."""
        return bases(self.type)[codes >> np.uint32(1)] + (words >> np.uint64(CELL_BITS)), rest

    def tagged(self, words: Array, rest: Array, codes: Array, tags: Array) -> Words | None:
        """The distance from the base, then the tag."""
        distance = words - bases(self.type)[codes >> np.uint32(1)]
        if distance.max(initial=0) >> np.uint64(DISTANCE_BITS):
            return None
        return (distance << np.uint64(CELL_BITS)) | tags, rest


class NarrowClusters(TagWords):
    """Ids of one word or two."""

    def plain(self, words: Array, rest: Array, codes: Array) -> Words:
        """The ids, with the bits that the bucket determines."""
        first = (words & _TOP) | fixed_bits(codes >> np.uint32(1)) | ((words >> _TAKEN) & _LOW)
        return first, (words << _FREE).reshape(-1, 1) | (rest >> _TAKEN) if rest.shape[1] else rest

    def tagged(self, words: Array, rest: Array, codes: Array, tags: Array) -> Words:
        """The ids moved up, then the tag."""
        low = rest[:, 0] >> _FREE if rest.shape[1] else tags
        return (words & _TOP) | ((words << _TAKEN) & ~_TOP) | low, (rest << _TAKEN) | tags.reshape(-1, 1)


@lru_cache(maxsize=8)
def bases(kind: str) -> Array:
    """For each bucket of scores of a type, a lower bound of its keys, as a uint64 array of shape (SCORE_BUCKETS,).

    The base of the bucket of 0 lies half the largest distance below the key of 0; likewise for the bucket of −∞.

    Examples
    --------
    >>> one, base = rank_keys(np.array([1.0]), "f8"), bases("f8")[0x407F]
    >>> bool(one[0] - base < 2**46)
    True
    """
    rising = np.arange(SCORE_BUCKETS, dtype=np.uint32)[::-1] << np.uint32(16)
    best = np.where(rising & _SIGN, (rising ^ _SIGN) | np.uint32(0xFFFF), ~rising & np.uint32(0xFFFF0000))
    with np.errstate(all="ignore"):  # NaN has no bucket
        above = np.nextafter(best.view(np.float32), np.float32(np.inf)).astype(np.float64)
        if kind == "f8":
            keys = rank_keys(np.append(above, (np.inf, 0.0, -np.inf)), kind)
            found, (most, zero, least) = keys[:-3], keys[-3:]
            found[0x7FFF - 0x7F80] = most
            found[0x7FFF] = zero - _MIDDLE
            found[0x8000 + 0x7F80] = least - _MIDDLE
        else:
            limits = (0.0, 2.0**64 - 2.0**11) if kind == "u8" else (-(2.0**63), 2.0**63 - 2.0**10)
            whole = np.clip(np.nan_to_num(np.ceil(above)), *limits)
            found = rank_keys(whole.astype(np.uint64 if kind == "u8" else np.int64), kind)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=64)
def tag_words(spec: KeyedSpec) -> dict[str, tuple[TagWords, Wide]]:
    """The narrow and the wide form of the rows in each run of a state; without a narrow form, both are wide.

    Examples
    --------
    >>> [[form.layout.words for form in forms] for forms in tag_words(ClusterSpec("cluster")).values()]
    [[1, 2]]
    """
    layouts = {name: keyed.layout for name, keyed in spec.empty().runs().items()}
    forms: dict[str, tuple[TagWords, Wide]] = {name: (Wide.of(inner),) * 2 for name, inner in layouts.items()}
    first = next(iter(layouts))
    inner, wide = layouts[first], forms[first][1]
    if isinstance(spec, ScoreSpec) and inner.bits == 16:
        layout = Layout(SCORE_BUCKETS, 32, tag=CELL_BITS, weighted=inner.weighted)
        forms[first] = NarrowScores(inner, layout), wide
    elif isinstance(spec, ScoreSpec):
        layout = replace(inner, halved=False, tag=CELL_BITS)
        forms[first] = LongScores(inner, layout, spec.type), wide
    elif isinstance(spec, ClusterSpec) and spec.rows != "both":
        forms[first] = NarrowClusters(inner, replace(inner, tag=BLOCK_BITS)), wide
    return forms
