"""The engine on a cluster: the steps of `streameval.engine.Engine` as graphs of tasks for the workers.

A pass returns only the outlines of large states. Their rows stay on the workers as ranges, which the engine looks up by
spec. The ranges are released with the engine, which an `Evaluation` keeps for its curves.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import dask

from streameval.budget import parse_bytes
from streameval.engine import Work
from streameval.engine.cluster import work
from streameval.engine.cluster.connection import key_factory
from streameval.engine.cluster.folds import MOST_TASKS, count_tasks, exchange, folds, tree
from streameval.engine.cluster.rounds import count_table_tasks, rounds
from streameval.engine.fold import (
    TASKS,
    Folded,
    builder_bytes,
    merge,
    run_capacity,
    task_threads,
    tasks,
)
from streameval.engine.scratch import STATE_SHARE, warn_of_finished, warn_of_little
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError
from streameval.metrics.finalize import combine
from streameval.states import codec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.keyed.bucketed import RowsError
from streameval.states.keyed.ranges import balanced, buckets, nbytes, row_bytes
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.engine import Job
    from streameval.engine.cluster.connection import Connection
    from streameval.engine.fold import Plan
    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import State, StoredSpec
    from streameval.states.rounds import FirstRound

    T = TypeVar("T")

FOLDS_PER_GB = 20  # largest number of fold tasks per gigabyte to read; more would cost more than they gain
RANGE_BYTES = 1 << 24  # smallest size of a range that is worth a task
FOLDS_AGAIN = 2  # largest number of times that rows are folded again because they differ from their outline

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ranges:
    """The ranges that hold the rows of the states of one pass.

    Attributes
    ----------
    outlines : future of the outlines
    futures : one future per range
    shards : for each spec, the shards in each range
    fold : folds all tasks of the pass again; returns the futures of the ranges
    """

    outlines: Any
    futures: list[Any]
    shards: Mapping[Any, list[list[Interval]]]
    fold: Callable[[], list[Any]]

    def of(self, spec: StoredSpec, number: int) -> Sequence[Interval]:
        """Shards of a state in a range; none if the state has fewer ranges than others, because its keys are few."""
        shards = self.shards[spec]
        return shards[number] if number < len(shards) else ()

    def compute(self, function: Callable[[], T], again: int = FOLDS_AGAIN) -> T:
        """Compute something from the ranges; up to `again` times, rows that differ from the outlines are folded again.

        A task that is folded again because its worker has died gives the same rows, unless a machine is at fault.

        Raises
        ------
        ClusterError
            If the rows still differ.
        """
        try:
            return function()
        except RowsError as error:
            if not again:
                raise ClusterError(
                    "rows that were folded again differ each time; do workers have equal versions and sound memory?"
                ) from error
        _LOG.warning("rows that a worker has folded again differ from the first ones; all are folded once more")
        self.futures[:] = self.fold()
        return self.compute(function, again - 1)


@dataclass(frozen=True)
class ClusterEngine:
    """Runs the steps of an evaluation on the workers of a client.

    Attributes
    ----------
    connection : the client
    local : the engine of this process, for small states
    limit : memory limit of each worker in bytes
    spill : directory of the workers' spill files
    limited : whether the user set the limit; otherwise it is a quarter of the memory limit that Dask enforces
    ranges : the ranges of folded states, one entry per pass
    """

    connection: Connection
    local: ThreadEngine
    limit: int
    spill: str | None = None
    limited: bool = False
    ranges: list[Ranges] = field(default_factory=list)

    @classmethod
    def start(
        cls,
        connection: Connection,
        *,
        memory: int | str | None = None,
        spill: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ClusterEngine:
        """An engine on a connection; `memory` and `spill` apply to each worker."""
        limit = connection.memory // 4 if memory is None else parse_bytes(memory)
        local, directory = ThreadEngine.start(progress=progress), None if spill is None else str(spill)
        return cls(connection, local, limit, directory, limited=memory is not None)

    @property
    def budget(self) -> Budget:
        """The budget of this process, for small states."""
        return self.local.budget

    @property
    def progress(self) -> Any:
        """Reports rows, and cancels the run."""
        return self.local.progress

    @property
    def _share(self) -> int:
        """Bytes of a state that a task may hold: a quarter of the worker's memory divided by its threads."""
        return max(1, self.connection.memory // (4 * self.connection.width))

    def check(self, metrics: Iterable[Metric]) -> None:
        """Check that every worker can import the classes of a user's own metrics.

        Raises
        ------
        ClusterError
            If a worker cannot.
        OptionError
            If a metric cannot be pickled.
        """
        data = work.packed(tuple(metrics))
        if isinstance(data, bytes):
            with self.connection.errors():
                answers = self.connection.client.run(work.missing, data, on_error="ignore").values()
            for problem in answers:
                if problem:
                    raise ClusterError(problem)

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """Fold all tasks in one pass; returns the outlines of their states, whose rows stay on workers as ranges."""
        self.progress.begin(rows)
        warn_of_little(self.limit, pieces, plan.specs, self.connection.width, " of a worker")
        if self.limited:
            warn_of_finished(self.limit, _row_bytes(plan, rows) // max(1, self.connection.workers))
        resources = self._resources(self.capacity(plan))
        work_list = self.assigned(pieces, rows, plan)
        made, skipped = folds(self.connection, work_list, plan, resources, self.progress)
        if not made:
            return Folded(plan.empty(), skipped)
        key = key_factory()
        [outlines] = self.connection.submit([tree([fold.outline for fold in made], merge, key)])
        [folded] = self.connection.gather([outlines])
        again = partial(folds, self.connection, [fold.pieces for fold in made], replace(plan, skip=False), resources)
        self._keep([fold.spread for fold in made], outlines, folded, again)
        made.clear()  # the ranges hold the rows now
        with self.connection.errors():
            self.connection.client.run(work.release, on_error="ignore")
        return Folded(folded.states, skipped)

    def assigned(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> list[tuple[Piece, ...]]:
        """The pieces of each fold task.

        There are `TASKS` tasks per thread, more if their states would be too large, but at most `FOLDS_PER_GB` per
        gigabyte to read. The number is rounded up to a multiple of the threads, and reduced so that the run has at most
        `MOST_TASKS` tasks.

        Raises
        ------
        ClusterError
            If the run would have more than `MOST_TASKS` tasks even with a single fold task.
        """
        if not plan.associative:  # the result depends on the tasks, which must be the same as on threads
            return tasks(pieces, rows, TASKS * task_threads(rows), by_file=plan.skip, by_row_group=plan.by_row_group)
        threads = self.connection.threads
        most = self._per_thread(FOLDS_PER_GB * sum(piece.nbytes for piece in pieces) // 10**9)
        count = min(most, self._per_thread(max(TASKS * threads, rows * builder_bytes(plan.specs) // self._share)))
        nbytes = _row_bytes(plan, rows)
        tables = [True for spec in plan.specs if spec.kind == ContingencySpec.kind]
        while count > 1 and sum(self.count_tasks(count, 1, nbytes, tables)[1].values()) > MOST_TASKS:
            count = count * 15 // 16
        ranges, made = self.count_tasks(count, 1, nbytes, tables)
        if sum(made.values()) > MOST_TASKS:
            raise ClusterError(
                f"the states need {ranges:,} ranges, too many tasks for Dask; give the workers more memory"
            )
        return tasks(pieces, rows, count, by_file=False, by_row_group=plan.by_row_group)

    def capacity(self, plan: Plan) -> int:
        """Rows that a builder collects at a time."""
        return run_capacity(self.limit, self.connection.width, plan.specs)

    def expected(
        self, pieces: Sequence[Piece], rows: int, plan: Plan, shards: int, nbytes: int, tables: Sequence[bool]
    ) -> Work:
        """What a run will do; see `streameval.engine.Engine.expected`."""
        folds = self.assigned(pieces, rows, plan)
        workers, threads = plural(self.connection.workers, "worker"), plural(self.connection.threads, "thread")
        left = f" ({', '.join(self.connection.left)} left before the run)" if self.connection.left else ""
        where = f"{workers} with {threads} at {self.connection.address}{left}"
        ranges, counts = self.count_tasks(len(folds), shards, nbytes, tables)
        return Work(where, folds, ranges, counts, self.capacity(plan), self.limit)

    def count_tasks(self, folds: int, shards: int, nbytes: int, tables: Sequence[bool]) -> tuple[int, dict[str, int]]:
        """Number of ranges, and number of tasks by name, for a number of fold tasks."""
        ranges = self._range_count(nbytes) if nbytes else 0
        each = count_tasks(folds, ranges) + Counter(finalize=ranges * bool(shards))
        return max(ranges, 1), dict(sum((count_table_tasks(ranges, matched=matched) for matched in tables), each))

    def _resources(self, capacity: int) -> work.Resources:
        return work.Resources(int(self.limit * STATE_SHARE), self.spill, capacity, self.connection.width)

    def _range_count(self, nbytes: int) -> int:
        """Number of ranges for `nbytes` bytes of rows: none exceeds a task's share, equally many for each thread."""
        least = -(-nbytes // self._share)
        few = max(1, least, nbytes // RANGE_BYTES)
        return few if few < self.connection.threads else self._per_thread(least)

    def _per_thread(self, count: int) -> int:
        """Round up to a positive multiple of the number of threads."""
        return max(1, -(-count // self.connection.threads)) * self.connection.threads

    def _keep(self, spreads: Sequence[Any], outlines: Any, folded: Folded, again: Callable[..., Any]) -> None:
        """Exchange the rows of large states into ranges, and keep these; `again` runs the fold tasks once more."""
        states = {spec: state for spec, state in folded.states.items() if state.runs()}
        if not states:
            return
        count = self._range_count(sum(map(nbytes, states.values())))
        found = {spec: balanced(state, buckets(state), count) for spec, state in states.items()}
        most = max(map(len, found.values()))
        cuts = [{spec: parts[r][0] if r < len(parts) else (0, 0) for spec, parts in found.items()} for r in range(most)]
        shards = {spec: [part for _, part in parts] for spec, parts in found.items()}

        def exchanged(spreads: Sequence[Any]) -> list[Any]:
            return self.connection.submit(exchange(spreads, cuts, key_factory()))

        def fold() -> list[Any]:
            return exchanged([fold.spread for fold in again(lambda _: None)[0]])

        self.ranges.append(Ranges(outlines, exchanged(spreads), shards, fold))

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; ranges are finalized on workers, small states in this process."""
        there = [self._where(state) for state, _ in jobs]
        here = [i for i, ranges in enumerate(there) if ranges is None]
        results = dict(zip(here, self.local.finalize([jobs[i] for i in here]), strict=True))
        for ranges in self.ranges:
            asked = [i for i, other in enumerate(there) if other is ranges]
            some = partial(self._partials, ranges, [jobs[i] for i in asked])
            found = ranges.compute(some) if asked else []
            for n, i in enumerate(asked):
                results[i] = combine(*jobs[i], [shard for part in found for shard in part[n]])
        return [results[i] for i in range(len(jobs))]

    def _partials(self, ranges: Ranges, asked: Sequence[Job]) -> list[Any]:
        """For every range and every state, the partials of its shards in the range."""
        key, nodes = key_factory(), []
        sent = [(state.holder, state.spec, work.packed(metrics)) for state, metrics in asked]
        for r, future in enumerate(ranges.futures):
            wanted = [(holder, spec, ranges.of(holder, r), metrics) for holder, spec, metrics in sent]
            one = dask.delayed(partial(work.finalize, wanted=wanted, resources=self._resources(1)), pure=False)
            nodes.append(one(future, ranges.outlines, dask_key_name=key("finalize", r)))
        return self.connection.gather(self.connection.submit(nodes))

    def dump(self, state: State) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Serialise a state: ranges are packed on workers, the table of a state that is not additive on one of them."""
        ranges = self._where(state)
        if ranges is None:
            return self.local.dump(state)
        schema = codec.schema_of(state)
        return schema, codec.or_empty(self._batches(state, ranges, schema), schema)

    def _batches(self, state: Any, ranges: Ranges, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The stored batches of a state whose rows are on workers."""
        every = list(range(len(ranges.futures)))
        left: list[tuple[str | None, list[int]]] = [(None, every)]
        if state.spec.traits.additive:
            left = [(run, [number]) for run in state.runs() for number in every][::-1]
        due: list[Any] = []

        def gather() -> list[pa.RecordBatch]:
            if not due:
                due.extend(self._submit_dumps(state, ranges, schema, left[::-1])[::-1])
            try:
                return list(self.connection.gather([due.pop()])[0])
            except RowsError:
                due.clear()  # those of the other parts may be of the same rows
                raise

        while left:
            yield from ranges.compute(gather)
            left.pop()

    def _submit_dumps(
        self, state: State, ranges: Ranges, schema: pa.Schema, parts: Sequence[tuple[str | None, list[int]]]
    ) -> list[Any]:
        """Futures of the stored batches of some parts: of a run, or of the table as a whole, in some ranges."""
        key, nodes, wanted = key_factory(), [], (state.holder, state.spec, schema)
        for i, (run, numbers) in enumerate(parts):
            shards = [shard for number in numbers for shard in ranges.of(state.holder, number)] or [(0, 0)]
            interval = shards[0][0], shards[-1][1]
            one = partial(work.dump, wanted=wanted, interval=interval, run=run, resources=self._resources(1))
            futures = [ranges.futures[number] for number in numbers]
            nodes.append(dask.delayed(one, pure=False)(futures, ranges.outlines, dask_key_name=key("store", i)))
        return self.connection.submit(nodes)

    def _where(self, state: State | FirstRound) -> Ranges | None:
        """The ranges with the rows of a state, those of the latest pass; None if the rows are in this process."""
        return next((ranges for ranges in reversed(self.ranges) if state.holder in ranges.shards), None)

    def compute(self, delayed: Any) -> Any:
        """Compute a Dask object on the workers."""
        return self.connection.gather(self.connection.submit([delayed]))[0]

    def rounds(self, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do the rounds that begin with rows of a state; see `streameval.engine.Engine.rounds`."""
        ranges = self._where(first)
        if ranges is None:
            return self.local.rounds(first, finish)
        shards, resources = ranges.shards[first.holder], self._resources(1)
        return ranges.compute(lambda: rounds(self.connection, first, ranges.futures, shards, resources, finish))

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map a function over items on threads of this process."""
        return self.local.each(function, items, name)


def _row_bytes(plan: Plan, rows: int) -> int:
    """Upper bound of the bytes of the rows of large states; 0 if the number of rows is unknown."""
    return max(rows, 0) * sum(row_bytes(spec.empty()) for spec in plan.specs)
