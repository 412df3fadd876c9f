"""The engine on threads of this process.

A run folds every task and merges the states as a tree, and then finalizes shards, on threads of this process, because
the kernels release the GIL. Tasks call `Progress` regularly, which raises an exception once the run is cancelled.
"""

from __future__ import annotations

import errno
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from streameval.budget import Budget, parse_bytes, spill_directory
from streameval.engine import Job, Work
from streameval.engine.fold import (
    STATE_SHARE,
    TASKS,
    Folded,
    Plan,
    fold,
    merge,
    run_capacity,
    task_threads,
    tasks,
    tasks_per_thread,
    warn_of_little,
)
from streameval.errors import SpillError
from streameval.forks import map_threads
from streameval.kinds import whole
from streameval.metrics.finalize import combine, partials
from streameval.posix import available_memory, available_threads
from streameval.states import codec
from streameval.states.rounds import FirstRound, run
from streameval.wording import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streameval.scan import Piece
    from streameval.states.protocol import State

    T = TypeVar("T")
    R = TypeVar("R")


class CancelledError(Exception):
    """Raised in the tasks of a cancelled run."""


class Progress:
    """Reports rows from all threads, and ends the tasks of a cancelled run.

    Parameters
    ----------
    report : callable, optional
        Called with the numbers of rows folded and of all rows, −1 if unknown, by one thread at a time.
    whole : Progress, optional
        That of the whole run, of which this is a step: it is told of the rows, and may go on if the step is cancelled.
    """

    def __init__(self, report: Callable[[int, int], None] | None = None, whole: Progress | None = None) -> None:
        self._report = report
        self._whole = whole
        self._rows = self._total = 0
        self._lock = threading.Lock()
        self._cancelled = False

    def begin(self, rows: int) -> None:
        """Expect `rows` further rows, −1 if unknown."""
        self._total = self._total + rows if min(self._total, rows) >= 0 else -1

    def __call__(self, rows: int) -> None:
        """Report `rows` further rows; raises `CancelledError` if the run is cancelled."""
        if self._cancelled:
            raise CancelledError
        if self._whole is not None:
            self._whole(rows)
        if self._report is not None:
            with self._lock:
                self._rows += rows
                self._report(self._rows, self._total)

    def cancel(self) -> None:
        """Cancel the run: every task ends at its next call."""
        self._cancelled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Cancel the run if it has failed."""
        if error is not None:
            self.cancel()


def tree(
    function: Callable[[T], R],
    items: Sequence[T],
    merge: Callable[[Sequence[R]], R],
    threads: int,
    cancel: Callable[[], object],
) -> R:
    """Map a function over items and merge the results as a binary tree, as soon as both of two neighbours are there.

    So few results are alive at a time. The arguments are those of `streameval.forks.map_threads`.

    Examples
    --------
    >>> tree(str, range(5), "+".join, 2, print)
    '0+1+2+3+4'
    """
    lock = threading.Lock()
    waiting: dict[tuple[int, int], R] = {}

    def merge_upwards(i: int) -> None:
        result, level, width = function(items[i]), 0, len(items)
        while width > 1:
            if i ^ 1 < width:
                with lock:
                    neighbour = waiting.pop((level, i ^ 1), None)
                    if neighbour is None:
                        waiting[level, i] = result
                        return
                result = merge([neighbour, result] if i & 1 else [result, neighbour])
            i, level, width = i >> 1, level + 1, width + 1 >> 1
        waiting[level, 0] = result

    map_threads(merge_upwards, range(len(items)), threads, cancel)
    return waiting.popitem()[1]


@dataclass(frozen=True)
class ThreadEngine:
    """Runs every step on threads of this process; see `streameval.engine.Engine`.

    Attributes
    ----------
    limit : memory limit in bytes
    budget : owns the states
    threads : number of threads
    progress : reports rows, and cancels the run
    """

    limit: int
    budget: Budget
    threads: int
    progress: Progress

    @classmethod
    def start(
        cls,
        *,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ThreadEngine:
        """An engine with a new budget; the arguments are those of `streameval.evaluate`.

        Raises
        ------
        OptionError
            If `memory` is not a size or `threads` is not a positive integer.
        SpillError
            If the spill directory does not exist.
        """
        directory, there = spill_directory(spill), False
        with suppress(OSError, ValueError):  # of a name that is too long, or holds a zero byte
            there = directory.is_dir()
        if not there:
            remedy = "the spill directory does not exist; name another with --spill or raise --memory"
            raise SpillError(errno.ENOENT, remedy, str(directory))
        limit = available_memory() // 4 if memory is None else parse_bytes(memory)
        count = available_threads()
        if threads is not None:
            count = whole("threads", threads, "a whole number of at least 1", 1)
        return cls(limit, Budget(int(limit * STATE_SHARE), spill, count), count, Progress(progress))

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """Fold all tasks in one pass; their states are merged as a tree."""
        self.progress.begin(rows)
        step = Progress(whole=self.progress)
        one = partial(fold, plan=plan, budget=self.budget, capacity=self.capacity(plan), progress=step)
        warn_of_little(self.limit, pieces, plan.specs, self.threads)
        folded = tree(one, self.assigned(pieces, rows, plan), merge, self.threads, step.cancel)
        self.budget.release_freed()
        return folded

    def assigned(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> list[tuple[Piece, ...]]:
        """The pieces of each fold task."""
        shared = self.threads * tasks_per_thread(rows, self.threads, plan.specs)
        most = shared if plan.associative else TASKS * task_threads(rows)
        return tasks(pieces, rows, most, by_file=plan.skip, by_row_group=plan.by_row_group)

    def capacity(self, plan: Plan) -> int:
        """Rows that a builder collects at a time."""
        return run_capacity(self.limit, self.threads, plan.specs)

    def expected(
        self, pieces: Sequence[Piece], rows: int, plan: Plan, shards: int, nbytes: int, tables: Sequence[bool]
    ) -> Work:
        """What a run will do, in one range; the tasks of contingency tables depend on the data and are not counted."""
        folds, where = self.assigned(pieces, rows, plan), f"{plural(self.threads, 'thread')} of this process"
        counts = {"fold": len(folds), "merge": len(folds) - 1, "finalize": shards}
        return Work(where, folds, 1, counts, self.capacity(plan), self.limit)

    def rounds(self, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do the rounds that begin with rows of a state; see `streameval.engine.Engine.rounds`."""
        return finish(run(first, self.budget, self.each))

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Map a function over items; if one fails, or the run is cancelled, no further one is begun."""

        def one(item: T) -> R:
            self.progress(0)
            result = function(item)
            self.budget.relieve()
            return result

        return map_threads(one, items, self.threads)

    def dump(self, state: State) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Serialise a state on all threads."""
        return codec.dump(state, self.each)

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; shards of all states are finalized in parallel."""
        shards = [(i, shard) for i, (state, _) in enumerate(jobs) for shard in state.shards(self.budget)]

        def one(item: tuple[int, tuple[int, int]]) -> list[list[Any]]:
            i, shard = item
            return partials(jobs[i][0], shard, jobs[i][1], self.budget)

        parts = self.each(one, shards)
        by_job: list[list[list[list[Any]]]] = [[] for _ in jobs]
        for (i, _), part in zip(shards, parts, strict=True):
            by_job[i].append(part)
        return [combine(state, metrics, own) for (state, metrics), own in zip(jobs, by_job, strict=True)]
