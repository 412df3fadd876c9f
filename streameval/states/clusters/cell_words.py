"""Conversion between segments of clusters and segments of cells, which are clusters split by a code.

A *cell* is the part of a cluster with one code, the number of a block or of a group. *Narrow* words are those of
`streameval.kernels.blocks.clusters`, which have ten bits for a code and take no more memory than those of clusters.
*Wide* words are those of clusters, followed by the code as a further word. The words of a converted segment take no
memory, because they are computed on reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import Computed
from streameval.kernels.blocks.clusters import BLOCK_BITS, count_rows, encode_cells
from streameval.kernels.grouped.interleave import ordered
from streameval.kernels.jit import read_only
from streameval.states.keyed.layout import NO_COUNTS, Segment
from streameval.states.keyed.tags import fixed_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.budget import Budget
    from streameval.states.clusters.counts import ClusterSpec
    from streameval.states.keyed.builder import SegmentBuilder
    from streameval.states.keyed.layout import Layout
    from streameval.typing import Array

MOST_BLOCKS = 1 << BLOCK_BITS  # codes that narrow words tell apart

_CODE = np.uint64((1 << BLOCK_BITS) - 1)
_BITS = np.uint64(BLOCK_BITS)
_REST = np.uint64(64 - BLOCK_BITS)
_TOP = np.uint64(1 << 63)
_LOW = np.uint64((1 << (63 - BLOCK_BITS)) - 1)

Columns = tuple["Array", "Array"]  # first words, and further words of shape (n, n_words - 1)


class CellWords(ABC):
    """A form of words.

    Attributes
    ----------
    code_bits : the bits of the last word that hold the code
    known : number of the highest bits of the first word that are equal in a bucket
    """

    code_bits: np.uint64
    known: np.uint64
    _more: int  # number of words in addition to those of clusters; the first words are then equal

    @abstractmethod
    def layout(self, inner: ClusterSpec) -> Layout:
        """Layout of the cells of a cluster spec."""

    @abstractmethod
    def _coded(self, segment: Segment, codes: Array | np.uint64, start: int, stop: int) -> Columns:
        """The words of some items of plain clusters as cells."""

    @abstractmethod
    def _plain(self, segment: Segment, start: int, stop: int) -> Columns:
        """The words of some cells as plain clusters."""

    def as_cells(self, segment: Segment, code: int) -> Segment:
        """Plain clusters as cells of one code."""
        return _computed(segment, partial(self._coded, segment, np.uint64(code)), self._more)

    def as_clusters(self, segment: Segment) -> Segment:
        """Cells as plain clusters."""
        return _computed(segment, partial(self._plain, segment), -self._more)

    def recoded(self, segment: Segment, codes: Array) -> Segment:
        """Cells with new codes; `codes` is a uint64 array, indexed by the old codes."""

        def columns(start: int, stop: int) -> Columns:
            words, rest = _read(segment, start, stop)
            if rest.shape[1]:
                last = (rest[:, -1:] & ~self.code_bits) | codes[rest[:, -1:] & self.code_bits]
                return words, np.hstack((rest[:, :-1], last))
            return (words & ~self.code_bits) | codes[words & self.code_bits], rest

        found = _computed(segment, columns)
        return found if segment.rest is None else replace(found, words=segment.words)

    def codes(self, segment: Segment, start: int = 0, stop: int | None = None) -> Array:
        """The codes of some cells."""
        if segment.rest is None:
            last: Array = segment.words.read(start, stop)
        else:
            last = segment.rest.read(start, stop)[:, -1]
        return last & self.code_bits

    def taken(self, segment: Segment, at: Array, budget: Budget) -> Segment:
        """The cells at the positions `at`, which ascend, as plain clusters; there is at least one."""
        [(_, found)] = self._parts(segment, at, np.array([0, at.size]), budget)
        return found

    def divided(self, segment: Segment, count: int, budget: Budget) -> Iterator[tuple[int, Segment]]:
        """The cells of each code below `count` as plain clusters; they are parts of the same arrays."""
        order, ends = ordered(self.codes(segment).astype(np.int64), count)
        yield from self._parts(segment, order, ends, budget)

    def _parts(self, segment: Segment, at: Array, ends: Array, budget: Budget) -> Iterator[tuple[int, Segment]]:
        """The cells at the positions `at` as plain clusters: those from ``ends[i]`` to ``ends[i + 1]`` are part i."""
        words, rest = (column[at] for column in self._plain(segment, 0, segment.words.shape[0]))
        counts = segment.counts.read()[at] if segment.counts else NO_COUNTS
        pieces = np.repeat(np.arange(segment.codes.size), np.diff(segment.starts))[at]
        numbers = np.flatnonzero(np.diff(ends))
        begins = np.diff(pieces, prepend=-1) != 0
        begins[ends[numbers]] = True
        first = np.flatnonzero(begins)
        codes, rows = segment.codes[pieces[first]], np.add.reduceat(counts, first) if counts.size else None
        ends_bytes = first.itemsize * (first.size + numbers.size)  # each part has an end as well
        unspilled = codes.nbytes + ends_bytes + (0 if rows is None else rows.nbytes)
        held, *further = budget.hold(words, unspilled), *(budget.hold(c) if c.size else None for c in (rest, counts))
        bounds = np.searchsorted(first, ends)
        for number in numbers.tolist():
            (i, j), (a, b) = ends[number : number + 2].tolist(), bounds[number : number + 2].tolist()
            starts, columns = np.append(first[a:b], j) - i, (column and column.part(i, j) for column in further)
            own = None if rows is None else rows[a:b]
            yield number, Segment(codes[a:b], starts, own, None, held.part(i, j), *columns)


class _Narrow(CellWords):
    code_bits, known, _more = _CODE, np.uint64(1), 0

    def layout(self, inner: ClusterSpec) -> Layout:
        return replace(inner.layout, tag=BLOCK_BITS)

    def _coded(self, segment: Segment, codes: Array | np.uint64, start: int, stop: int) -> Columns:
        words, rest = _read(segment, start, stop)
        low = rest[:, 0] >> _REST if rest.size else codes
        return (words & _TOP) | ((words << _BITS) & ~_TOP) | low, (rest << _BITS) | codes

    def _plain(self, segment: Segment, start: int, stop: int) -> Columns:
        words, rest = _read(segment, start, stop)
        ends = np.clip(segment.starts, start, stop)
        fixed = fixed_bits(segment.codes >> np.uint32(1))
        first = (words & _TOP) | np.repeat(fixed, np.diff(ends)) | ((words >> _BITS) & _LOW)
        return first, (words << _REST).reshape(-1, 1) | (rest >> _BITS) if rest.shape[1] else rest


class _Wide(CellWords):
    code_bits, known, _more = np.uint64((1 << 64) - 1), np.uint64(BLOCK_BITS + 1), 1

    def layout(self, inner: ClusterSpec) -> Layout:
        return replace(inner.layout, words=inner.layout.words + 1, tag=32)

    def widened(self, segment: Segment) -> Segment:
        """Narrow cells as wide ones."""
        plain = NARROW.as_clusters(segment)

        def columns(start: int, stop: int) -> Columns:
            return self._coded(plain, NARROW.codes(segment, start, stop), start, stop)

        return _computed(plain, columns, self._more)

    def _coded(self, segment: Segment, codes: Array | np.uint64, start: int, stop: int) -> Columns:
        words, rest = _read(segment, start, stop)
        return words, np.column_stack((rest, np.broadcast_to(codes, words.size)))

    def _plain(self, segment: Segment, start: int, stop: int) -> Columns:
        words, rest = _read(segment, start, stop)
        return words, np.ascontiguousarray(rest[:, :-1])


NARROW, WIDE = _Narrow(), _Wide()


def _computed(segment: Segment, columns: Callable[[int, int], Columns], more: int = 0) -> Segment:
    """A segment whose words are computed on reading, with `more` further words; the first ones are then equal."""
    further = more + (0 if segment.rest is None else segment.rest.shape[1])
    (size,), kind = segment.words.shape, np.dtype(np.uint64)
    words = Computed((size,), kind, lambda start, stop: columns(start, stop)[0])
    words.owner = segment.words.owner  # of the segments that are computed from these
    rest = Computed((size, further), kind, lambda start, stop: np.ascontiguousarray(columns(start, stop)[1]))
    return replace(segment, words=segment.words if more else words, rest=rest if further else None)


def _read(segment: Segment, start: int, stop: int) -> Columns:
    """The words of the items from `start` to `stop`."""
    words = segment.words.read(start, stop)
    return words, np.empty((words.size, 0), np.uint64) if segment.rest is None else segment.rest.read(start, stop)


def encode_rows(segments: SegmentBuilder, ids: tuple[Array, Array], blocks: Array, label: Array, counts: Array) -> None:
    """Add rows, given by the unmixed words of their cluster ids, their blocks and labels, and counts if not empty."""
    first, rest = read_only(ids[0]), ids[1].copy()  # `encode` overwrites them with the words of the keys
    second, blocks, label = rest.reshape(-1), _codes(blocks), read_only(label)

    def encode(part: slice, *out: Array) -> None:
        encode_cells(first[part], second[part], blocks[part], label[part], *out)

    segments.add(first.size, encode, rest, counts=counts)


def row_counts(blocks: Array, label: Array, count: int) -> Array:
    """Rows by block and label, as an int64 array of shape (count, 2)."""
    found: Array = count_rows(_codes(blocks), read_only(label), count)
    return found


def _codes(blocks: Array) -> Array:
    """Blocks as uint16, the type for which the loops are compiled."""
    return read_only(blocks.astype(np.uint16, copy=False))
