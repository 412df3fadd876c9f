"""Runs of adjacent rows with equal keys (run-length encoding), which are counted before rows are partitioned.

In data that is sorted by id, or written in bursts, most equal keys are in adjacent rows. Counting runs affects speed
and memory only: a key may have any number of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streameval.kernels.jit import read_only
from streameval.kernels.keyed.adjacent import find_runs, label_runs, sum_runs
from streameval.kernels.keys import MIX
from streameval.states.keyed.layout import NO_COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.typing import Array

LONG_RUN = 3  # mean length of runs from which rows are counted by run

_FEW = 1 << 6  # rows of the first check: if runs are long, at least a third of the rows equal their predecessor
_GLANCES, _GLANCE = 4, 1 << 10  # number and length of the stretches of rows that are checked for long runs


def run_starts(columns: Sequence[Array]) -> Array | None:
    """The first row of each run of equal keys; None if runs have fewer than `LONG_RUN` rows on average.

    Parameters
    ----------
    columns : unsigned arrays of shape (n,), the words of the keys; the first one is uint64

    Returns
    -------
    starts : int64 array of shape (n_runs,), ascending from 0

    Examples
    --------
    >>> words = np.repeat(np.array([7, 9, 7], np.uint64), [5, 6, 4])
    >>> run_starts([words]).tolist()
    [0, 5, 11]
    >>> run_starts([words, np.arange(15, dtype=np.uint64) % 2]) is None
    True
    """
    rows, few = columns[0].size, columns[0][:_FEW]
    if np.count_nonzero(few[1:] == few[:-1]) * LONG_RUN < few.size - 1:  # most data fails this check and skips the next
        return None
    glances = range(0, rows - _GLANCE + 1, max(_GLANCE, rows // _GLANCES))
    if rows < LONG_RUN or not all(_has_long_runs([column[at : at + _GLANCE] for column in columns]) for at in glances):
        return None
    starts = np.empty(rows // LONG_RUN + 1, np.int64)
    runs = find_runs(tuple(read_only(np.ascontiguousarray(column, np.uint64)) for column in columns), starts)
    return None if runs < 0 else starts[:runs]


def _has_long_runs(columns: Sequence[Array]) -> bool:
    """Whether runs are long in a stretch of rows, and not only those of a few hot keys, which `hot` counts faster."""
    keys = columns[0]
    for column in columns[1:]:  # hash collisions do no harm here
        keys = keys * np.uint64(MIX) + column
    first = keys[np.append(True, keys[1:] != keys[:-1])]
    return bool(first.size * LONG_RUN <= keys.size and np.unique(first).size * 2 > first.size)


def run_lengths(starts: Array, rows: int) -> Array:
    """Number of rows of each run, from the starts of the runs and the number of all rows.

    Examples
    --------
    >>> run_lengths(np.array([0, 5, 11]), 15).tolist()
    [5, 6, 4]
    """
    lengths: Array = np.diff(starts, append=rows)
    return lengths


def by_run(columns: Sequence[Array]) -> tuple[Sequence[Array], Array]:
    """The keys and lengths of runs if runs are long; otherwise the rows unchanged, with empty counts.

    Examples
    --------
    >>> [words], counts = by_run([np.repeat(np.array([7, 9, 7], np.uint64), [5, 6, 4])])
    >>> words.tolist(), counts.tolist()
    ([7, 9, 7], [5, 6, 4])
    """
    starts = run_starts(columns)
    if starts is None:
        return columns, NO_COUNTS
    return [column[starts] for column in columns], run_lengths(starts, columns[0].size)


def labelled_runs(columns: Sequence[Array], label: Array) -> tuple[Sequence[Array], Array, Array]:
    """As `by_run`, but a run may have both labels, and is an item for each; also returns the labels.

    Examples
    --------
    >>> label = np.array([0, 1, 0, 1, 1, *([0] * 10)], np.uint8)
    >>> [words], counts, labels = labelled_runs([np.repeat(np.array([7, 9, 7], np.uint64), [5, 6, 4])], label)
    >>> words.tolist(), counts.tolist(), labels.tolist()
    ([7, 7, 9, 7], [2, 3, 6, 4], [0, 1, 0, 0])
    """
    starts = run_starts(columns)
    if starts is None:
        return columns, NO_COUNTS, label
    firsts, counts = np.empty((2, 2 * starts.size + 1), np.int64)
    labels = np.empty(firsts.size, np.uint8)
    items = label_runs(starts, run_lengths(starts, label.size), run_sums(label, starts), firsts, counts, labels)
    return [column[firsts[:items]] for column in columns], counts[:items], labels[:items]


def run_sums(values: Array, starts: Array) -> Array:
    """The sum of the values of each run, as an int64 array; takes a twentieth of the time of ``np.add.reduceat``.

    Examples
    --------
    >>> run_sums(np.array([1, 0, 1, 1], np.uint8), np.array([0, 3])).tolist()
    [2, 1]
    """
    sums = np.empty(starts.size, np.int64)
    sum_runs(read_only(values), read_only(starts), sums)
    return sums
