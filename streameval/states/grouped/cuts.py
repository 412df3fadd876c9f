"""Clusters that groups cut: how many rows of each group are in clusters that also have rows of other groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.kernels.grouped.cuts import count_shared
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import SegmentAddresses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.budget import Budget
    from streameval.states.clusters.counts import ClusterSpec
    from streameval.states.grouped.keys import Group
    from streameval.states.grouped.state import Grouped
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["cut_rows"]


def cut_rows(grouped: Grouped, each: Callable[..., list[Any]], budget: Budget | None = None) -> dict[Group, int]:
    """Rows of each group in clusters that it cuts: those that have rows of other groups as well.

    A null id is in no cluster that can be cut. Clusters of equal ids are one, whether their rows have labels or not.

    Parameters
    ----------
    grouped : Grouped of a ClusterSpec
    each : maps a function over intervals of buckets
    budget : owns what is copied

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
    groups = grouped.groups()
    states = [state.keyed for state in grouped.several(groups, budget)]
    parts = [(number, segment) for number, keyed in enumerate(states) for segment in keyed.segments]
    keyed = KeyedCounts(grouped.spec.inner.layout, tuple(segment for _, segment in parts))
    numbers = np.array([number for number, _ in parts], np.int64)

    def counted(interval: Interval) -> Array:
        shared = np.zeros(len(groups), np.int64)
        start, stop = interval
        rows = SegmentAddresses.of(keyed.segments, start, stop)
        words = keyed.layout.words - 1
        given = rows.at, numbers, (0,) * _compared(grouped.spec.inner), words
        first = 0
        while (first := count_shared(*given, first, shared)) < stop - start:
            shared += _sorted(grouped.spec.inner, states, (start + first, start + first + 1), budget)
            first += 1
        return shared

    found = sum(each(counted, keyed.intervals(), "cut"), np.zeros(len(groups), np.int64))
    return dict(zip(groups, found.tolist(), strict=True))


def _compared(inner: ClusterSpec) -> int:
    """Further words of the key of a cluster; the last one of a row may tell whether it has a label."""
    return inner.layout.words - 1 - inner.unlabelled


def _sorted(inner: ClusterSpec, states: Sequence[KeyedCounts], interval: Interval, budget: Budget | None) -> Array:
    """The same of one bucket, by sorting."""
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
