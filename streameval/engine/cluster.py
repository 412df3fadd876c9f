"""The engine on the workers of a `distributed.Client`.

The tasks of `streameval.engine.threads` become nodes of graphs for Dask's scheduler. Dask decides which worker runs a
task, what is stolen or spilled, and what is recomputed after a worker has died. A run consists of three graphs; between
them, the client chooses ranges according to the distribution of the data:

::

    fold-i ─► outline-i ─► merged outlines ─► client: totals, and the ranges
      │
      └─► split-i-r ─► merge-r ─► finalize-r ─► client: results from partials
                          │
                          └─► kept as long as the evaluation, for its curves

Large keyed states never come to the client, and no worker holds an entire state: a worker first holds the rows of its
fold tasks, and later some of the ranges (`streameval.states.rounds`). Results are bit-identical to those of
threads, for any number of workers and even if workers die.

**Input.** Paths must name the same data on every worker; a worker opens the first file to check this. A table in memory
is sent with the tasks; a reader cannot be sent. Partitions of a Dask DataFrame and delayed tables are computed by Dask
before the tasks that fold them. Credentials of object storage come from the environment of the workers. The client
plans the run, so it must have access to the data too: it reads every footer.

**Failures.** Dask recomputes the tasks of a worker that died, with the same bits. A task that cannot read a file is
tried three times. After that the run fails, or, with `on_error="skip"`, the files of the task are tried one by one, and
those that cannot be read are skipped.

**Worker settings.** A worker's states may use 15 % of its `memory_limit`: 60 % of the budget, which is a quarter of the
limit unless `memory` sets another. Beyond that, states spill to an unlinked file in `spill` or ``$TMPDIR``. The results
of finished tasks are outside the budget: Dask holds them, and spills them by the worker's own limit. If `memory` is too
low for them, a warning is logged before the run. A range takes at most a quarter of the limit divided by the threads of
a worker, and Dask may spill it: leave ``distributed.worker.memory.spill`` and ``target`` enabled if states exceed the
memory of all workers, and put Dask's ``temporary-directory`` on a large disk. Dask's nanny sets
``MALLOC_TRIM_THRESHOLD_=65536``, which returns freed memory at once. Where touching fresh memory is slow, as on many
virtual machines, keep freed memory instead (``distributed.nanny.pre-spawn-environ``: ``MALLOC_MMAP_MAX_=0``,
``MALLOC_TRIM_THRESHOLD_=68719476736``, ``MALLOC_ARENA_MAX=1``). Leave ``distributed.comm.compression`` disabled.

**Tasks.** A run has four fold tasks per thread. It has more if their states would be too large, but at most 20 per
gigabyte, and no task has fewer than about a million rows. Between F fold tasks and R ranges there are F·R split tasks;
beyond 10⁵ tasks, the exchange takes two levels, and there are fewer fold tasks. ``explain`` (``--plan``) counts them.

**Rounds** (`streameval.states.rounds`). Each worker visits the ranges that it holds. An exchange moves the rows that a
round hands on into the ranges of the next one, for which the client needs their outline alone. A single worker takes
the values of all rounds and finishes:

::

    range of a state ─► clusters-r ─► split-r-q ─► merge-q ─► classes-q ─► … ─► matching-q
                           │                                     │                  │
                           └─► outline-r ────────────────────────┴──────────────────┴──► finish

`streameval.engine.connection` finds a client, checks its workers and translates its errors;
`streameval.engine.graphs` runs the first graph, with retries, and moves rows from fold tasks to ranges;
`streameval.engine.work` has the functions that run on workers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from streameval.budget import Budget, parse_bytes
from streameval.engine import Job, Work, work
from streameval.engine import fold as folding
from streameval.engine.connection import Connection, key_factory
from streameval.engine.graphs import MOST_TASKS, count_tasks, exchange, folds, size, task, tree
from streameval.engine.threads import Progress, ThreadEngine
from streameval.errors import ClusterError
from streameval.metrics.finalize import combine
from streameval.states import codec, rounds
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.rounds import FirstRound, Round, balance_ranges, buckets, nbytes, row_bytes
from streameval.wording import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from distributed import Future

    from streameval.engine.fold import Folded, Plan
    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import State, StoredSpec

    T = TypeVar("T")
    R = TypeVar("R")

FOLDS_PER_GB = 20  # largest number of fold tasks per gigabyte to read; more would cost more than they gain
RANGE_BYTES = 1 << 24  # smallest size of a range that is worth a task
SPLITS = MOST_TASKS // 8  # largest number of split tasks of a level between rounds, as a table may need two exchanges


@dataclass(frozen=True)
class Ranges:
    """The ranges that hold the rows of the states of one pass.

    Attributes
    ----------
    outlines : future of the outlines
    futures : one future per range
    shards : for each spec, the shards in each range
    late : future of labels from another table, from which fold tasks are computed again if a worker is lost
    """

    outlines: Future
    futures: list[Future]
    shards: Mapping[StoredSpec, list[list[Interval]]]
    late: Future | None = None

    def of(self, spec: StoredSpec, number: int) -> Sequence[Interval]:
        """Shards of a state in a range; none if the state has fewer ranges than others, because its keys are few."""
        shards = self.shards[spec]
        return shards[number] if number < len(shards) else ()


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
        spill: str | os.PathLike[str] | None = None,
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
    def progress(self) -> Progress:
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
                problems = filter(None, self.connection.client.run(work.missing, data, on_error="ignore").values())
            for problem in problems:
                raise ClusterError(problem)

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """Fold all tasks in one pass; returns the outlines of their states, whose rows stay on workers as ranges."""
        self.progress.begin(rows)
        folding.warn_of_little(self.limit, pieces, plan.specs, self.connection.width, " of a worker")
        if self.limited:
            folding.warn_of_finished(self.limit, _row_bytes(plan, rows) // max(1, self.connection.workers))
        resources = self._resources(self.capacity(plan))
        late = None if plan.late is None else self.connection.client.scatter(plan.late, broadcast=True)
        nothing, plan = plan.empty(), replace(plan, late=None)
        done, skipped = folds(self.connection, self.assigned(pieces, rows, plan), plan, resources, self.progress, late)
        if not done:
            return folding.Folded(nothing, skipped)
        [outlines] = self.connection.submit([tree([fold.outline for fold in done], folding.merge, key_factory())])
        [folded] = self.connection.gather([outlines])
        self._keep([fold.spread for fold in done], outlines, folded, late)
        done.clear()  # the ranges hold the rows now
        with self.connection.errors():
            self.connection.client.run(work.release, on_error="ignore")
        return folding.Folded(folded.states, skipped)

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
            count = folding.TASKS * folding.task_threads(rows)
            return folding.tasks(pieces, rows, count, by_file=plan.skip, by_row_group=plan.by_row_group)
        most = self._per_thread(FOLDS_PER_GB * sum(piece.nbytes for piece in pieces) // 10**9)
        least = max(folding.TASKS * self.connection.threads, rows * folding.builder_bytes(plan.specs) // self._share)
        count = min(most, self._per_thread(least))
        row_bytes, tables = _row_bytes(plan, rows), [True for spec in plan.specs if spec.kind == ContingencySpec.kind]
        while sum((counts := self.count_tasks(count, 1, row_bytes, tables))[1].values()) > MOST_TASKS:
            if count == 1:
                raise ClusterError(
                    f"the states need {counts[0]:,} ranges, too many tasks for Dask; give the workers more memory"
                )
            count = max(1, count * 15 // 16)
        return folding.tasks(pieces, rows, count, by_file=False, by_row_group=plan.by_row_group)

    def capacity(self, plan: Plan) -> int:
        """Rows that a builder collects at a time."""
        return folding.run_capacity(self.limit, self.connection.width, plan.specs)

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
        return work.Resources(int(self.limit * folding.STATE_SHARE), self.spill, capacity, self.connection.width)

    def _range_count(self, nbytes: int) -> int:
        """Number of ranges for `nbytes` bytes of rows: none exceeds a task's share, equally many for each thread."""
        least = -(-nbytes // self._share)
        few = max(1, least, nbytes // RANGE_BYTES)
        return few if few < self.connection.threads else self._per_thread(least)

    def _per_thread(self, count: int) -> int:
        """Round up to a positive multiple of the number of threads."""
        return max(1, -(-count // self.connection.threads)) * self.connection.threads

    def _keep(self, spreads: Sequence[Future], outlines: Future, folded: Folded, late: Future | None) -> None:
        """Exchange the rows of large states into ranges, and keep these."""
        states = {spec: state for spec, state in folded.states.items() if state.runs()}
        if not states:
            return
        count = self._range_count(sum(map(nbytes, states.values())))
        ranges = {spec: balance_ranges(state, buckets(state), count) for spec, state in states.items()}
        most = max(map(len, ranges.values()))
        cuts: list[dict[work.Key, Interval]] = [
            {spec: cut[r][0] if r < len(cut) else (0, 0) for spec, cut in ranges.items()} for r in range(most)
        ]
        shards = {spec: [part for _, part in parts] for spec, parts in ranges.items()}
        futures = self.connection.submit(exchange(spreads, cuts, key_factory()))
        self.ranges.append(Ranges(outlines, futures, shards, late))

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; ranges are finalized on workers, small states in this process."""
        places = [self._where(state.spec) for state, _ in jobs]
        here = [i for i, ranges in enumerate(places) if ranges is None]
        results = dict(zip(here, self.local.finalize([jobs[i] for i in here]), strict=True))
        for ranges in self.ranges:
            there = [i for i, other in enumerate(places) if other is ranges]
            parts = self._partials(ranges, [jobs[i] for i in there]) if there else []
            for n, i in enumerate(there):
                results[i] = combine(*jobs[i], [shard for part in parts for shard in part[n]])
        return [results[i] for i in range(len(jobs))]

    def _partials(self, ranges: Ranges, jobs: Sequence[Job]) -> list[Any]:
        """For every range and every state, the partials of its shards in the range."""
        key, nodes, resources = key_factory(), [], self._resources(1)
        sent = [(state.spec, work.packed(metrics)) for state, metrics in jobs]
        for r, future in enumerate(ranges.futures):
            wanted = [(spec, ranges.of(spec, r), metrics) for spec, metrics in sent]
            one = task(work.finalize, wanted=wanted, resources=resources)
            nodes.append(one(future, ranges.outlines, dask_key_name=key("finalize", r)))
        return self.connection.gather(self.connection.submit(nodes))

    def dump(self, state: State) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Serialise a state: ranges on workers, the table of a state that is not additive on one of them."""
        ranges = self._where(state.spec)
        if ranges is None:
            return self.local.dump(state)
        schema = codec.schema_of(state)
        return schema, codec.or_empty(self._batches(state, ranges, schema), schema)

    def _batches(self, state: State, ranges: Ranges, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The stored batches of a state whose rows are on workers."""
        every = list(range(len(ranges.futures)))
        parts: list[tuple[str | None, list[int]]] = [(None, every)]  # of the table as a whole, or of a run in a range
        if state.spec.traits.additive:
            parts = [(run, [number]) for run in state.runs() for number in every]
        key, nodes, wanted = key_factory(), [], (state.spec, schema)
        for i, (run, numbers) in enumerate(parts):
            shards = [shard for number in numbers for shard in ranges.of(state.spec, number)] or [(0, 0)]
            interval = shards[0][0], shards[-1][1]
            one = task(work.dump, wanted=wanted, interval=interval, run=run, resources=self._resources(1))
            futures = [ranges.futures[number] for number in numbers]
            nodes.append(one(futures, ranges.outlines, dask_key_name=key("store", i)))
        due = self.connection.submit(nodes)[::-1]
        while due:
            yield from self.connection.gather([due.pop()])[0]

    def _where(self, spec: StoredSpec | None) -> Ranges | None:
        """The ranges with the rows of a state, those of the latest pass; None if the rows are in this process."""
        return next((ranges for ranges in reversed(self.ranges) if spec in ranges.shards), None)

    def rounds(self, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do the rounds that begin with rows of a state; see `streameval.engine.Engine.rounds`."""
        ranges = self._where(first.holder)
        if ranges is None:
            return self.local.rounds(first, finish)
        return self._rounds_of(ranges, first, finish)

    def _rounds_of(self, ranges: Ranges, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do all rounds on the workers that hold the rows of the first one."""
        rows, resources = ranges.futures, self._resources(1)
        current: Round = first
        at: StoredSpec | str = first.holder
        intervals = [(part[0][0], part[-1][1]) for part in ranges.shards[first.holder]]
        results: list[list[Future]] = []
        while True:
            key = key_factory()
            one = task(work.visit, key=at, outline=current, resources=resources)
            nodes = [
                one(part, interval=cut, dask_key_name=key(current.name, r))
                for r, (part, cut) in enumerate(zip(rows, intervals, strict=False))
            ]
            outlines = [task(work.outline)(node, dask_key_name=key("outline", r)) for r, node in enumerate(nodes)]
            if not current.hands_on:
                last = task(work.finish, finish=finish)([*results, outlines], dask_key_name=key("finish"))
                result: T = self.connection.gather(self.connection.submit([last]))[0]
                return result
            futures = self.connection.submit([part for pair in zip(nodes, outlines, strict=True) for part in pair])
            results.append(futures[1::2])
            current = rounds.merge([handed for _, handed in self.connection.gather(futures[1::2])])
            intervals = [cut for cut, _ in balance_ranges(current, buckets(current), len(nodes))]
            rows, at = exchange(futures[0::2], [{work.ROWS: cut} for cut in intervals], key, tasks=SPLITS), work.ROWS

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Map a function over items on threads of this process."""
        return self.local.each(function, items)


def _row_bytes(plan: Plan, rows: int) -> int:
    """Upper bound of the bytes of the rows of large states; 0 if the number of rows is unknown."""
    return max(rows, 0) * sum(row_bytes(spec.empty()) for spec in plan.specs)


def count_table_tasks(ranges: int, *, matched: bool) -> Counter[str]:
    """Upper bound of the number of tasks of a table, by name, as later rounds may need fewer ranges than the first.

    Examples
    --------
    >>> count_table_tasks(2, matched=False)
    Counter({'outline': 4, 'split': 4, 'clusters': 2, 'merge': 2, 'classes': 2, 'finish': 1})
    """
    splits, merges = size(ranges, ranges, SPLITS)
    splits = max(splits, min(ranges * ranges, SPLITS))
    each = Counter(clusters=ranges, outline=2 * ranges, split=splits, merge=merges, classes=ranges, finish=1)
    if matched:
        each += Counter(outline=ranges, split=splits, merge=merges, matching=ranges)
    return each
