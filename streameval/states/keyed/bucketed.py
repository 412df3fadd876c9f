"""Bucketed segments: totals for each code, and access to the rows of an interval of buckets.

The *outline* has the rows, items and weights of each code that occurs, summed over all segments. The rows of an
interval are read from all segments at once: copied bucket by bucket (`Bucketed.gather`), or in place
(`Bucketed.places`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streameval.budget import Budget, Buffer
from streameval.errors import ClusterError
from streameval.kernels import segments as kernels
from streameval.kernels.exact import add_at
from streameval.states.keyed.layout import BucketCounts, Layout, Segment, SegmentAddresses, Side, index_codes

if TYPE_CHECKING:
    from streameval.typing import Array


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
        """Rows, items and weights of each code that occurs."""
        return self._own_outline if self.full_outline is None else self.full_outline

    @cached_property
    def _own_outline(self) -> BucketCounts:
        """The outline of the rows held here."""
        own = [np.diff(segment.starts) > 0 for segment in self.segments]
        codes, places = index_codes([x.codes[here] for x, here in zip(self.segments, own, strict=True)], self.layout)
        rows, items = np.zeros((2, codes.size), np.int64)
        weights: list[tuple[Array, Array]] = []
        for segment, here, place in zip(self.segments, own, places, strict=True):
            rows[place] += segment.rows[here]
            items[place] += np.diff(segment.starts)[here]
            weights += [(place, side[here]) for side in (() if segment.sums is None else segment.sums)]
        return BucketCounts(codes.astype(np.int64), rows, items, _rounded_sums(weights, codes.size), self.nbytes)

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
        outline = self.outline
        values: Array = getattr(outline, name)
        stop = self.layout.codes if stop is None else stop
        out = np.zeros(stop - start, values.dtype)
        a, b = np.searchsorted(outline.codes, (start, stop)).tolist()
        out[outline.codes[a:b] - start] = values[a:b]
        return out

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
        ClusterError
            If the rows are on the workers of a cluster.
        """
        items = self.items_in(start, stop)
        sizes = np.concatenate((items[0::2], items[1::2]))
        starts = np.concatenate(([0], np.cumsum(sizes)))
        total = int(starts[-1])
        counted = any(each.counts is not None and each.range(start, stop) is not None for each in self.segments)
        columns = {
            "words": np.empty(total, self.layout.dtype),
            "rest": np.empty((total, self.layout.words - 1), np.uint64),
            "counts": np.empty(total if counted else 0, np.int64),
            "weights": np.empty(total if self.layout.weighted else 0, np.float64),
        }
        cursor = starts[:-1].copy()
        for segment in self.segments:
            a, b = segment.between(start, stop)
            codes, pieces = segment.codes[a:b].astype(np.int64) - 2 * start, segment.starts[a : b + 1]
            slots = (codes & 1) * (stop - start) + (codes >> 1)
            for name, out in columns.items():
                if out.size and a < b:
                    given = _read(getattr(segment, name), pieces, out.dtype)
                    for column, taken in zip(kernels.columns(given), kernels.columns(out), strict=True):
                        kernels.place(column, pieces, slots, cursor, taken)
            cursor[slots] += np.diff(pieces)
        check_items(cursor, starts[1:])
        middle, half = stop - start, int(starts[stop - start])
        return (
            Side(starts[: middle + 1], **{name: out[:half] for name, out in columns.items()}),
            Side(starts[middle:] - half, **{name: out[half:] for name, out in columns.items()}),
        )

    def places(self, start: int, stop: int) -> SegmentAddresses:
        """Addresses of the items of an interval of buckets, for one loop over the pieces of all segments.

        Raises
        ------
        ClusterError
            If the rows are on the workers of a cluster.
        """
        addresses = SegmentAddresses.of(self.segments, start, stop)
        check_items(np.diff(addresses.at.starts.sum(axis=0)), self.items_in(start, stop))
        return addresses

    def occupied(self, start: int, stop: int) -> tuple[Array, Array, SegmentAddresses]:
        """The buckets of an interval that have items, their numbers of items, and the addresses of these.

        A state with few rows, such as a slice, has items in a small part of the buckets.
        """
        items = self.items_in(start, stop)
        buckets = np.flatnonzero(items[0::2] + items[1::2])
        own = items.reshape(-1, 2)[buckets]
        addresses = SegmentAddresses.of(self.segments, start, stop, buckets + start)
        check_items(np.diff(addresses.at.starts.sum(axis=0)), own.ravel())
        return buckets + start, own.sum(axis=1), addresses


def _rounded_sums(weights: list[tuple[Array, Array]], count: int) -> Array:
    """The sums of weights at their places, correctly rounded, as a float64 array of shape (count,)."""
    total, errors, inexact = np.zeros(count), np.zeros(count), np.zeros(count, np.bool_)
    for places, values in weights:
        add_at(places, values, total, errors, inexact)
    total += errors
    further: dict[int, list[float]] = {}
    for places, values in weights if inexact.any() else ():
        at = inexact[places]
        for place, value in zip(places[at].tolist(), values[at].tolist(), strict=True):
            further.setdefault(place, []).append(value)
    total[list(further)] = [math.fsum(values) for values in further.values()]
    return total


def check_items(items: Array, expected: Array) -> None:
    """Raise `ClusterError` if the items are not the expected ones."""
    if not np.array_equal(items, expected):
        raise ClusterError(
            "the rows of this state are on the workers of a cluster, where only its evaluation can read them, or a "
            "worker has folded other rows than at first: do workers have equal versions and sound memory?"
        )


def _read(column: Buffer | None, starts: Array, dtype: np.dtype[np.generic]) -> Array:
    """The items of consecutive pieces; a missing column of counts is all ones."""
    first, last = int(starts[0]), int(starts[-1])
    return np.ones(last - first, dtype) if column is None else column.read(first, last)
