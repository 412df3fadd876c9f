"""Conversion between segments of clusters and segments of cells, which are clusters split by a code.

A *cell* is the part of a cluster with one code, the number of a block or of a group. Its words are those of
`streameval.kernels.blocks.clusters`. The words of a converted segment take no memory, because they are computed on
reading.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Computed
from streameval.kernels.blocks.clusters import BLOCK_BITS
from streameval.states.keyed.layout import NO_COUNTS, Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.budget import Budget, Buffer
    from streameval.typing import Array

__all__ = ["as_cells", "as_clusters", "codes_of", "fixed_bits", "recoded", "taken"]

_CODE = np.uint64((1 << BLOCK_BITS) - 1)
_BITS = np.uint64(BLOCK_BITS)
_REST = np.uint64(64 - BLOCK_BITS)
_TOP = np.uint64(1 << 63)
_LOW = np.uint64((1 << (63 - BLOCK_BITS)) - 1)

Columns = tuple["Array", "Array"]  # first words, and further words of shape (n, n_words - 1)


def as_cells(segment: Segment, code: int) -> Segment:
    """Plain clusters as cells of one code."""
    return _computed(segment, partial(_coded, segment, np.uint64(code)))


def as_clusters(segment: Segment) -> Segment:
    """Cells as plain clusters."""
    return _computed(segment, partial(_plain, segment))


def recoded(segment: Segment, codes: Array) -> Segment:
    """Cells with new codes; `codes` is a uint64 array, indexed by the old codes."""
    return _computed(segment, partial(_recoded, segment, codes))


def codes_of(segment: Segment) -> Array:
    """The code of each cell."""
    last: Array = segment.words.read() if segment.rest is None else segment.rest.read()[:, 0]
    return last & _CODE


def fixed_bits(buckets: Array) -> Array:
    """The bits of mixed ids that the words of cells lack, as uint64, from the numbers of their buckets."""
    found: Array = (buckets.astype(np.uint64) & _CODE) << (_REST - np.uint64(1))
    return found


def taken(segment: Segment, at: Array, budget: Budget) -> Segment:
    """The cells at the positions `at`, which ascend, as plain clusters."""
    words, rest = (column[at] for column in _plain(segment, 0, segment.words.shape[0]))
    counts = segment.counts.read()[at] if segment.counts else NO_COUNTS
    pieces = np.searchsorted(segment.starts, at, "right") - 1
    first = np.flatnonzero(np.diff(pieces, prepend=-1))
    starts = np.append(first, at.size)
    rows = np.add.reduceat(counts, first) if counts.size else None
    return Segment.held(budget, segment.codes[pieces[first]], starts, rows, None, words, rest, counts)


def _computed(segment: Segment, columns: Callable[[int, int], Columns]) -> Segment:
    """A segment whose words are computed from those of another segment on reading."""
    words, rest = (_column(kept, columns, i) for i, kept in enumerate((segment.words, segment.rest)))
    return replace(segment, words=words, rest=rest)


def _column(kept: Buffer | None, columns: Callable[[int, int], Columns], column: int) -> Any:
    if kept is None:
        return None
    return Computed(kept.shape, kept.dtype, lambda start, stop: columns(start, stop)[column])


def _read(segment: Segment, start: int, stop: int) -> Columns:
    """The words of the items from `start` to `stop`."""
    words = segment.words.read(start, stop)
    return words, np.empty((words.size, 0), np.uint64) if segment.rest is None else segment.rest.read(start, stop)


def _coded(segment: Segment, code: np.uint64, start: int, stop: int) -> Columns:
    words, rest = _read(segment, start, stop)
    low = rest[:, 0] >> _REST if rest.size else code
    return (words & _TOP) | ((words << _BITS) & ~_TOP) | low, (rest << _BITS) | code


def _plain(segment: Segment, start: int, stop: int) -> Columns:
    words, rest = _read(segment, start, stop)
    ends = np.clip(segment.starts, start, stop)
    fixed = fixed_bits(segment.codes >> np.uint32(1))
    first = (words & _TOP) | np.repeat(fixed, np.diff(ends)) | ((words >> _BITS) & _LOW)
    return first, (words << _REST).reshape(-1, 1) | (rest >> _BITS) if rest.shape[1] else rest


def _recoded(segment: Segment, codes: Array, start: int, stop: int) -> Columns:
    words, rest = _read(segment, start, stop)
    if rest.shape[1]:
        return words, (rest & ~_CODE) | codes[rest & _CODE]
    return (words & ~_CODE) | codes[words & _CODE], rest
