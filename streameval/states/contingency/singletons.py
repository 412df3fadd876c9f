"""Skip singletons before keys are grouped: rows that are alone in their cluster or class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.singletons import marks_for, shared_rows
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.layout import NO_WEIGHTS, Side

if TYPE_CHECKING:
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

__all__ = ["without_singletons"]


def without_singletons(
    keyed: KeyedCounts, interval: Interval, others: KeyedCounts | None = None, wanted: int = 0
) -> tuple[Side, Array]:
    """Rows of label 0 in an interval of buckets, without most of the rows whose key occurs only once.

    Parameters
    ----------
    keyed : KeyedCounts
        Keys of mixed ids (`streameval.states.keyed.ids`).
    interval : (int, int)
        Rows whose key occurs there are kept; only first words are compared.
    others : KeyedCounts, optional
        Keys that occur there are kept; only first words are compared.
    wanted : int
        How many of the last further words of the removed rows to return.

    Returns
    -------
    Side, uint64 array of shape (n_singletons, wanted)
        The remaining rows, and words of the removed singletons.
    """
    places, marked = keyed.places(*interval), (others or KeyedCounts(keyed.layout)).places(*interval)
    sizes = np.diff(places.at.starts).sum(axis=0)[::2]
    size = int(sizes.sum())
    marks = marks_for(int(sizes.max(initial=0)))
    starts, words = np.empty(sizes.size + 1, np.int64), np.empty(size + 1, np.uint64)
    rest = np.empty((size + 1, keyed.layout.words - 1), np.uint64)
    counts = np.empty((size + 1) * bool(places.at.counts.any()), np.int64)
    lone = np.empty((size + 1, wanted), np.uint64)
    further = tuple(range(rest.shape[1])), tuple(range(wanted))
    left = shared_rows(places.at, marked.at, *further, marks, starts, words, rest, counts, lone)
    return Side(starts, words[:left], rest[:left], counts[:left], NO_WEIGHTS), lone[: size - left]
