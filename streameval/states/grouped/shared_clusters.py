"""Clusters shared by groups: the rows of each group in clusters that also have rows of other groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.budget import Budget
from streameval.kernels.grouped.shared_clusters import collect_rows, count_shared
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.states.clusters.counts import ClusterSpec
    from streameval.states.grouped.keys import Group
    from streameval.states.grouped.state import Grouped
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["cut_rows", "shared_rows"]

_ITEMS = 1 << 19, 1 << 22  # smallest and largest number of rows that one thread gathers at a time
_SHARE = 256  # bytes of the budget for each of these rows, of which up to 30 are gathered, and up to 30 compared
_NO_REST = np.empty((0, 0), np.uint64)
_LABEL = np.uint32(1)


def cut_rows(grouped: Grouped, each: Callable[..., list[Any]], budget: Budget | None = None) -> dict[Group, int]:
    """Rows of each group in clusters that also have rows of other groups.

    Null ids share no cluster. Rows with equal ids are in one cluster, whether or not they have labels.

    Parameters
    ----------
    grouped : Grouped of a ClusterSpec
    each : maps a function over intervals of buckets
    budget : owns the copied rows

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> from streameval.states.grouped import By, GroupedSpec
    >>> from streameval.states.protocol import Batch
    >>> builder = GroupedSpec(ClusterSpec("cluster"), By(("country",))).builder(Budget(), 8)
    >>> columns = {"cluster": pa.array([7, 7, 7, 8]), "country": pa.array(["DE", "DE", "FR", "FR"])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> cut_rows(builder.state(), lambda function, items, name: [function(item) for item in items])
    {('DE',): 2, ('FR',): 1}
    """
    inner, groups = grouped.spec.inner, grouped.groups()
    states = [state.keyed for state in grouped.several(groups, budget)]
    keyed = KeyedCounts(inner.layout, tuple(segment for state in states for segment in state.segments))

    def counted(interval: Interval) -> Array:
        shared = np.zeros(len(groups), np.int64)
        start, stop = interval
        starts = np.concatenate(([0], np.cumsum(keyed.items_in(start, stop).reshape(-1, 2).sum(axis=1))))
        rows, first = _collected(states, starts, interval, _compared(inner), counted=keyed.counted), 0
        while (first := count_shared(*rows, starts, first, shared)) < stop - start:
            shared += shared_rows(inner, states, (start + first, start + first + 1), budget)
            first += 1
        return shared

    room = min(max((budget or Budget()).limit // _SHARE, _ITEMS[0]), _ITEMS[1])
    found = sum(each(counted, keyed.intervals(room), "cut"), np.zeros(len(groups), np.int64))
    return dict(zip(groups, found.tolist(), strict=True))


def _collected(
    states: Sequence[KeyedCounts], starts: Array, interval: Interval, words: int, *, counted: bool
) -> tuple[Array, Array, Array, Array]:
    """The rows of some buckets, bucket by bucket: words, further words, counts, and the numbers of their groups."""
    total, cursor, (start, stop) = int(starts[-1]), starts[:-1].copy(), interval
    columns = np.empty(total, np.uint64), np.empty((total, words), np.uint64), np.empty(total * counted, np.int64)
    owners = np.empty(total, np.int32)
    for group, keyed in enumerate(states):
        for segment in keyed.segments:
            i, j = segment.between(start, stop)
            pieces = segment.starts[i : j + 1]
            a, b = int(pieces[0]), int(pieces[-1])
            if a < b:
                rest = segment.rest.read(a, b) if words and segment.rest else _NO_REST
                counts = segment.counts.read(a, b) if segment.counts else NO_COUNTS
                buckets = (segment.codes[i:j] >> _LABEL) - np.uint32(start)
                given = segment.words.read(a, b), rest, counts, pieces, buckets, np.int32(group)
                collect_rows(*given, cursor, *columns, owners)
    return *columns, owners


def _compared(inner: ClusterSpec) -> int:
    """Number of further words that identify a cluster; the last word may say whether the row has a label."""
    return inner.layout.words - 1 - inner.unlabelled


def shared_rows(inner: ClusterSpec, states: Sequence[KeyedCounts], interval: Interval, budget: Budget | None) -> Array:
    """As `cut_rows`, for some buckets, by sorting."""
    keys, rows, group = [], [], []
    for number, keyed in enumerate(states):
        for counts in keyed.grouped(interval, budget):
            keys.append(np.column_stack((counts.keys, counts.rest[:, : _compared(inner)])))
            rows.append(counts.neg + counts.pos)
            group.append(np.full(counts.keys.size, number))
    found, which = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    owners, which = np.concatenate(group), which.reshape(-1)
    first, last = np.full(len(found), len(states)), np.full(len(found), -1)
    np.minimum.at(first, which, owners)
    np.maximum.at(last, which, owners)
    shared = (first < last)[which]
    return np.bincount(owners[shared], np.concatenate(rows)[shared], len(states)).astype(np.int64)
