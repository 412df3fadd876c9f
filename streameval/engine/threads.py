"""Engine: what every step of one run shares, and the steps: read once, then finalize shard by shard.

An `Engine` owns the memory budget, the number of threads and the progress of a run. `streameval.evaluation` reads the
data with it; whoever has states already only finalizes.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.budget import Budget, available_memory, parse_bytes, spill_directory
from streameval.engine.fold import TASKS, Folded, Plan, fold, merge, run_capacity, task_threads, tasks
from streameval.engine.graph import Progress, map_tasks, thread_count, tree
from streameval.errors import SpillError
from streameval.metrics.contingency.finalize import contingency_results
from streameval.metrics.finalize import combine, partials
from streameval.states.sampled.bins import BinsSpec
from streameval.states.sampled.digests import DigestsSpec
from streameval.wording import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from streameval.metrics.contingency.clustering import ClusteringMetric
    from streameval.metrics.protocol import Metric
    from streameval.results import Scalar
    from streameval.scan import Piece
    from streameval.states.contingency.counts import ContingencyCounts

__all__ = ["STATE_SHARE", "Engine"]

STATE_SHARE = 0.6  # of the memory budget; the rest is for builders and for shards being finalized


@dataclass(frozen=True)
class Engine:
    """What every step of one run shares.

    Attributes
    ----------
    limit : bytes that the run may hold
    budget : owns the states
    threads : number of threads
    progress : counts rows, and ends the tasks of a cancelled run
    begin : told the number of rows before every pass, −1 where it is not known
    """

    limit: int
    budget: Budget
    threads: int
    progress: Progress
    begin: Callable[[int], object] = bool

    @classmethod
    def start(
        cls,
        *,
        memory: int | str | None = None,
        spill: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Engine:
        """An engine with a budget of its own; the arguments are those of `streameval.evaluate`.

        Raises
        ------
        OptionError
            If `memory` is no size or `threads` no number of threads.
        SpillError
            If the spill directory is not there.
        """
        directory = spill_directory(spill)
        if not directory.is_dir():
            message = "the spill directory is not there; name another with --spill or raise --memory"
            raise SpillError(errno.ENOENT, message, str(directory))
        limit = available_memory() // 4 if memory is None else parse_bytes(memory)
        seen = total = 0

        def report(rows: int) -> None:
            nonlocal seen
            seen += rows
            if progress is not None:
                progress(seen, total)

        def begin(rows: int) -> None:
            nonlocal total
            total = total + rows if min(total, rows) >= 0 else -1

        return cls(limit, Budget(int(limit * STATE_SHARE), spill), thread_count(threads), Progress(report), begin)

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """One pass over the pieces: fold tasks, and merge their states as a tree."""
        self.begin(rows)
        one = partial(fold, plan=plan, budget=self.budget, capacity=self.capacity(plan), progress=self.progress)
        folded = tree(one, self.assigned(pieces, rows, plan), merge, "fold", self.threads)
        self.budget.release_spares()
        return folded

    def assigned(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> list[tuple[Piece, ...]]:
        """The pieces of each fold task."""
        sampled = any(isinstance(spec, DigestsSpec | BinsSpec) for spec in plan.specs)
        threads = task_threads(rows) if sampled else self.threads
        return tasks(pieces, rows, TASKS * threads, by_file=plan.skip, whole=plan.whole)

    def capacity(self, plan: Plan) -> int:
        """Rows a builder collects at a time."""
        return run_capacity(self.limit, self.threads, len(plan.specs))

    @property
    def where(self) -> str:
        """Where tasks run."""
        return f"{plural(self.threads, 'thread')} of this process"

    def expected(self, folds: int, shards: int, nbytes: int, tables: Sequence[bool]) -> tuple[int, dict[str, int]]:
        """Ranges of states of so many bytes, and the number of tasks by name; those of tables depend on the data."""
        return 1, {"fold": folds, "merge": folds - 1, "finalize": shards}

    def compute(self, delayed: Any) -> Any:
        """The value of something that Dask has still to compute."""
        return delayed.compute(scheduler="synchronous")

    def compare(self, state: ContingencyCounts, metrics: Sequence[ClusteringMetric]) -> list[Scalar]:
        """Results of one table of clusters and classes."""
        return contingency_results(state, metrics, self.budget, self.each)

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map over shards."""

        def one(item: Any) -> Any:
            self.progress(0)
            return function(item)

        return map_tasks(one, items, name, self.threads)

    def finalize(self, wanted: Sequence[tuple[Any, Sequence[Metric]]]) -> list[list[Any]]:
        """Results of several states, all their shards side by side."""
        work = [(i, shard) for i, (state, _) in enumerate(wanted) for shard in state.shards()]

        def one(item: tuple[int, tuple[int, int]]) -> list[list[Any]]:
            self.progress(0)
            i, shard = item
            return partials(wanted[i][0], shard, wanted[i][1], self.budget)

        found = map_tasks(one, work, "finalize", self.threads)
        return [
            combine(state, metrics, [part for (j, _), part in zip(work, found, strict=True) if j == i])
            for i, (state, metrics) in enumerate(wanted)
        ]
