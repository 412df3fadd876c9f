"""Stored counts → runs: what is read back is distinct keys with their rows by label, and need not be sorted again.

Every batch becomes a run of rows, as folding makes them, and one of the keys that stand for many rows, with counts.
Each takes a counting pass and a scatter; the batch's order is kept within a piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels import sides as kernels
from streameval.states.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streameval.states.memory import Budget
    from streameval.states.protocol import Array
    from streameval.states.runs import Layout

__all__ = ["stored_runs"]


def stored_runs(
    layout: Layout, budget: Budget, words: Array, rest: Array, buckets: Array, neg: Array, pos: Array
) -> Iterator[Run]:
    """The runs of distinct keys with their rows by label; no weights.

    Parameters
    ----------
    layout : Layout
    budget : Budget
        Owns the runs' arrays.
    words : array of shape (n,), of the layout's type
    rest : uint64 array of shape (n, n_words - 1)
    buckets : array of unsigned integers of shape (n,)
    neg, pos : int64 arrays of shape (n,), not negative

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.memory import Budget
    >>> from streameval.states.runs import Layout, Runs
    >>> layout = Layout(buckets=4, bits=64)
    >>> words, none = np.array([4, 5, 7], dtype=np.uint64), np.empty((3, 0), dtype=np.uint64)
    >>> buckets = np.array([0, 1, 3], dtype=np.uint32)
    >>> runs = stored_runs(layout, Budget(), words, none, buckets, np.array([1, 5, 0]), np.array([1, 1, 2]))
    >>> Runs(layout, tuple(runs)).rows
    array([1, 1, 5, 1, 0, 0, 0, 2])
    """
    if buckets.size and buckets.max() >= layout.buckets:
        msg = f"keys lie in {layout.buckets} buckets"
        raise ValueError(msg)
    lone, several = np.zeros((2, layout.codes), np.int64)
    kernels.count_sides(buckets, neg, pos, lone, several)
    starts = [np.concatenate(([0], np.cumsum(table))) for table in (lone, several)]
    sizes = [int(start[-1]) for start in starts]
    out = [(np.empty(size, layout.dtype), np.empty((size, rest.shape[1]), np.uint64)) for size in sizes]
    counts = np.empty(sizes[1], np.int64)
    cursors = [start[:-1].copy() for start in starts]
    kernels.part_sides(words, rest, buckets, neg, pos, *cursors, *out[0], *out[1], counts)
    for table, start, (some, more), rows in zip((lone, several), starts, out, (None, counts), strict=True):
        codes = np.flatnonzero(table)
        if codes.size:
            bounds = np.append(start[codes], start[-1])
            each = np.diff(bounds) if rows is None else np.add.reduceat(rows, bounds[:-1])
            held = (budget.hold(column) if column is not None and column.size else None for column in (more, rows))
            yield Run(codes.astype(np.uint32), bounds, each, None, budget.hold(some), *held)
