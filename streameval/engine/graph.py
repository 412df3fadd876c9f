"""Graph: the Dask graphs of a run on threads.

A run consists of two graphs. The first folds every task and merges the states as a tree; the second finalizes shards.
Both run on Dask's threaded scheduler, because the kernels release the GIL. Tasks call `Progress` regularly, which
raises an exception once the run is cancelled.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from streameval.budget import available_threads
from streameval.forks import compute
from streameval.options.kinds import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    T = TypeVar("T")
    R = TypeVar("R")

FAN_IN = 2


class CancelledError(Exception):
    """Raised in the tasks of a cancelled run."""


class Progress:
    """Reports rows from all threads, and ends the tasks of a cancelled run.

    Parameters
    ----------
    report : callable, optional
        Called with the number of rows just folded, by one thread at a time.
    """

    def __init__(self, report: Callable[[int], None] | None = None) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._cancelled = False

    def __call__(self, rows: int) -> None:
        """Report `rows` further rows; raises `CancelledError` if the run is cancelled."""
        if self._cancelled:
            raise CancelledError
        if self._report is not None:
            with self._lock:
                self._report(rows)

    def cancel(self) -> None:
        """Cancel the run: every task ends at its next call."""
        self._cancelled = True


def thread_count(threads: int | None) -> int:
    """The given number of threads, or by default the number of available processors; raises `OptionError`."""
    return available_threads() if threads is None else whole("threads", threads, "a whole number of at least 1", 1)


def map_tasks(function: Callable[[T], R], items: Sequence[T], name: str, threads: int) -> list[R]:
    """Map a function over items on Dask's threads; the results are in order."""
    if len(items) < 2 or threads == 1:  # nothing to schedule, so a small night need not wait for Dask's import
        return [function(item) for item in items]
    graph = _calls(function, items, name)
    return compute(graph, list(graph), threads)


def tree(
    function: Callable[[T], R], items: Sequence[T], merge: Callable[[Sequence[R]], R], name: str, threads: int
) -> R:
    """Map a function over items and merge the results as a tree of bounded fan-in, so that few are alive at a time."""
    if len(items) == 1:
        return function(items[0])
    graph = _calls(function, items, name)
    level, depth = list(graph), 0
    while len(level) > 1:
        depth += 1
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [f"merge-{depth}-{i}" for i in range(len(groups))]
        graph |= {key: (merge, group) for key, group in zip(level, groups, strict=True)}
    merged: R = compute(graph, level, threads)[0]
    return merged


def _calls(function: Callable[[T], R], items: Sequence[T], name: str) -> dict[str, Any]:
    """A graph with a task for each item; tasks carry the index of their item, since Dask would search the item."""

    def call(i: int) -> R:
        return function(items[i])

    return {f"{name}-{i}": (call, i) for i in range(len(items))}
