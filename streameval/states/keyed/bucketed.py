"""Bucketed segments: totals for each code, and access to the rows of an interval of buckets.

The *outline* has the rows, items and weights of each code that occurs, summed over all segments. The rows of an
interval are read from all segments at once: copied bucket by bucket (`Bucketed.gather`), or in place
(`Bucketed.places`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Budget
from streameval.errors import ClusterError
from streameval.kernels import segments as kernels
from streameval.kernels.exact import add_at
from streameval.states.keyed.layout import FEW, BucketCounts, Layout, Segment, SegmentAddresses, Side

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.budget import Buffer
    from streameval.typing import Array


class RowsError(ClusterError):
    """The rows here are not those of the outline."""


@dataclass(frozen=True)
class Bucketed:
    """Segments that are all partitioned by the same buckets.

    Parameters
    ----------
    layout : Layout
    segments : tuple of Segment
    full_outline : BucketCounts, optional
        The outline of the full multiset, if `segments` are only a range of it, or empty because its rows are stored
        elsewhere.
    """

    layout: Layout
    segments: tuple[Segment, ...] = ()
    full_outline: BucketCounts | None = None

    @property
    def outline(self) -> BucketCounts:
        """Rows, items and weights of each code."""
        if self.full_outline is not None:
            return self.full_outline
        return BucketCounts(self._codes, self._rows, self._items, self._sums, self.nbytes)

    def holding(self, budget: Budget | None = None) -> Budget:
        """The budget for results computed from the rows: the given one, else that of the rows, else a new one."""
        owners = (segment.words.owner for segment in self.segments)
        return budget or next((found for owner in owners if owner and (found := owner())), None) or Budget()

    @property
    def rows(self) -> Array:
        """Rows of each code, as an int64 array of shape (n_codes,)."""
        return self._spread("rows")

    @property
    def items(self) -> Array:
        """Stored items of each code, as an int64 array of shape (n_codes,)."""
        return self._spread("items")

    def items_in(self, start: int, stop: int) -> Array:
        """Stored items of each code of some buckets, as an int64 array of shape (2 * (stop - start),)."""
        return self._spread("items", 2 * start, 2 * stop)

    def _spread(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """A column of the outline for all codes, or for those from `start` to `stop`.

        It is not cached: for many small states, such as slices, it would take more memory than their rows.
        """
        codes, values = self.occurring(name)
        stop = self.layout.codes if stop is None else stop
        out = np.zeros(stop - start, values.dtype)
        a, b = np.searchsorted(codes, (start, stop)).tolist()
        out[codes[a:b] - start] = values[a:b]
        return out

    def occurring(self, name: str) -> tuple[Array, Array]:
        """The codes that occur, ascending, and a column of the outline for them: rows, items or (rounded) sums."""
        if self.full_outline is None:
            return self._codes, getattr(self, f"_{name}")
        return self.full_outline.codes, getattr(self.full_outline, name)

    @cached_property
    def _codes(self) -> Array:
        """The codes that occur, ascending."""
        if self._apart:
            return np.concatenate([segment.codes for segment in self.segments], dtype=np.int64)
        found = [segment.codes[np.diff(segment.starts) > 0] for segment in self.segments]
        if sum(codes.size for codes in found) * FEW < self.layout.codes:
            return np.unique(np.concatenate([np.empty(0, np.int64), *found]))
        occurs = np.zeros(self.layout.codes, np.bool_)
        for codes in found:
            occurs[codes] = True
        return np.flatnonzero(occurs)

    @cached_property
    def _apart(self) -> bool:
        """Whether each code has one piece, and codes ascend from segment to segment, as in parts of another state."""
        ends = [(int(each.codes[0]), int(each.codes[-1])) for each in self.segments if each.codes.size]
        ascend = all(one[1] < other[0] for one, other in pairwise(ends))
        return bool(ends) and ascend and all(np.diff(each.starts).all() for each in self.segments)

    @cached_property
    def _rows(self) -> Array:
        return self._total(lambda segment: segment.rows)

    @cached_property
    def _items(self) -> Array:
        return self._total(lambda segment: np.diff(segment.starts))

    def _total(self, value: Callable[[Segment], Array]) -> Array:
        """Total over the segments for each code that occurs."""
        if self._apart:
            return np.concatenate([value(segment) for segment in self.segments], dtype=np.int64)
        few = sum(segment.codes.size for segment in self.segments) * FEW < self.layout.codes
        total = np.zeros(self._codes.size if few else self.layout.codes, np.int64)
        for segment in self.segments:
            if few:
                own = np.diff(segment.starts) > 0
                total[np.searchsorted(self._codes, segment.codes[own])] += value(segment)[own]
            else:
                total[segment.codes] += value(segment)
        return total if few else total[self._codes]

    @cached_property
    def _sums(self) -> Array:
        """Weight of each code that occurs, correctly rounded."""
        if self._apart and all(each.sums is not None for each in self.segments):
            return np.concatenate([each.sums.sum(axis=0) for each in self.segments if each.sums is not None])
        total, errors = np.zeros((2, self.layout.codes))
        inexact = np.zeros(self.layout.codes, np.bool_)
        parts = [(each.codes, sums) for each in self.segments if each.sums is not None for sums in each.sums]
        for codes, weights in parts:
            add_at(codes, weights, total, errors, inexact)
        total += errors
        further: dict[int, list[float]] = {}
        for codes, weights in parts if inexact.any() else ():
            at = inexact[codes]
            for code, weight in zip(codes[at].tolist(), weights[at].tolist(), strict=True):
                further.setdefault(code, []).append(weight)
        total[list(further)] = [math.fsum(weights) for weights in further.values()]
        return total[self._codes]

    @property
    def nbytes(self) -> int:
        """Bytes of the items held here, in memory or spilled."""
        columns = ((segment.words, segment.rest, segment.counts, segment.weights) for segment in self.segments)
        return sum(column.nbytes for segment in columns for column in segment if column is not None)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        columns = (column for x in self.segments for column in (x.words, x.rest, x.counts, x.weights))
        held = sum(column.nbytes for column in columns if column is not None and column.resident)
        return object.__sizeof__(self) + held + sum(segment.piece_bytes for segment in self.segments)

    @property
    def counted(self) -> bool:
        """Whether some segments have counts, so that an item may represent several rows."""
        return any(segment.counts is not None for segment in self.segments)

    def gather(self, start: int, stop: int) -> tuple[Side, Side]:
        """Copy the items of an interval of buckets from all segments: the negatives and the positives, by bucket.

        Raises
        ------
        RowsError
            If the rows are on the workers of a cluster.
        """
        items = self.items_in(start, stop)
        sizes = np.concatenate((items[0::2], items[1::2]))
        starts = np.concatenate(([0], np.cumsum(sizes)))
        total = int(starts[-1])
        counted = any(segment.counts is not None and segment.has(start, stop) for segment in self.segments)
        columns = {
            "words": np.empty(total, self.layout.dtype),
            "rest": np.empty((total, self.layout.words - 1), np.uint64),
            "counts": np.empty(total if counted else 0, np.int64),
            "weights": np.empty(total if self.layout.weighted else 0, np.float64),
        }
        cursors = {name: starts[:-1].copy() for name in columns}
        for segment in self.segments:
            a, b = segment.between(start, stop)
            codes, pieces = segment.codes[a:b].astype(np.int64) - 2 * start, segment.starts[a : b + 1]
            slots = (codes & 1) * (stop - start) + (codes >> 1)
            for name, out in columns.items():
                if out.size and a < b:
                    given, taken = kernels.flat(_read(getattr(segment, name), pieces, out.dtype)), kernels.flat(out)
                    move = kernels.place if taken.ndim == 1 else kernels.place_rows
                    move(given, pieces, slots, cursors[name], taken)
        check_items(cursors["words"], starts[1:])
        middle, half = stop - start, int(starts[stop - start])
        return (
            Side(starts[: middle + 1], **{name: out[:half] for name, out in columns.items()}),
            Side(starts[middle:] - half, **{name: out[half:] for name, out in columns.items()}),
        )

    def places(self, start: int, stop: int) -> SegmentAddresses:
        """Addresses of the items of an interval of buckets, for one loop over the pieces of all segments.

        Raises
        ------
        RowsError
            If the rows are on the workers of a cluster.
        """
        found = SegmentAddresses.of(self.segments, start, stop)
        check_items(np.diff(found.at.starts.sum(axis=0)), self.items_in(start, stop))
        return found

    def occupied(self, start: int, stop: int) -> tuple[Array, Array, SegmentAddresses]:
        """The buckets of an interval that have items, their numbers of items, and the addresses of these.

        A state with few rows, such as a slice, has items in a small part of the buckets.
        """
        items = self.items_in(start, stop)
        buckets = np.flatnonzero(items[0::2] + items[1::2])
        own = items.reshape(-1, 2)[buckets]
        found = SegmentAddresses.of(self.segments, start, stop, buckets + start)
        check_items(np.diff(found.at.starts.sum(axis=0)), own.ravel())
        return buckets + start, own.sum(axis=1), found


def check_items(found: Array, expected: Array) -> None:
    """Raise `RowsError` if the items are not the expected ones."""
    if not np.array_equal(found, expected):
        raise RowsError("the rows of this state are on the workers of a cluster; only its evaluation can read them")


def _read(column: Buffer | None, starts: Array, dtype: np.dtype[Any]) -> Array:
    """The items of consecutive pieces; a missing column of counts is all ones."""
    first, last = int(starts[0]), int(starts[-1])
    return np.ones(last - first, dtype) if column is None else column.read(first, last)
