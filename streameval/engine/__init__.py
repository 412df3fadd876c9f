"""The engine: runs the steps of an evaluation on threads of this process or on the workers of a Dask client.

`Engine` is the protocol, on which all callers depend; `start` creates the implementation for the arguments of
`streameval.evaluate`: `streameval.engine.threads` or `streameval.engine.cluster`. Both build graphs that Dask runs, and
their results are bit-identical.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from streameval._submodules import import_when_named
from streameval.errors import OptionError
from streameval.options import verb_options

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from distributed import Client

    from streameval.budget import Budget
    from streameval.engine.cluster import ClusterEngine
    from streameval.engine.fold import Folded, Plan
    from streameval.engine.threads import Progress
    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.protocol import State
    from streameval.states.rounds import FirstRound


T = TypeVar("T")
R = TypeVar("R")

Job = tuple[Any, "Sequence[Metric]"]  # a state, and the metrics to compute from it


class Work(NamedTuple):
    """What a pass and the finalization of its states will do.

    Attributes
    ----------
    where : where tasks run, in words
    folds : the pieces of each fold task
    ranges : number of ranges that states are split into
    tasks : number of tasks by name
    capacity : rows that a builder collects at a time
    limit : the memory limit in bytes, of this process or of each worker
    """

    where: str
    folds: Sequence[Sequence[Piece]]
    ranges: int
    tasks: dict[str, int]
    capacity: int
    limit: int


class Engine(Protocol):
    """Runs the steps of one evaluation."""

    @property
    def budget(self) -> Budget:
        """The owner of the states in this process."""

    @property
    def progress(self) -> Progress:
        """The row counter, which also cancels the run."""

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """Fold `rows` rows (−1 if unknown) into every state of the plan, in one pass; raises what `fold` raises."""

    def each(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Map a function over items on threads of this process."""

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; shards of all states are finalized in parallel."""

    def rounds(self, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do the rounds that begin with rows of a state; `finish` takes the values of each round."""

    def dump(self, state: State) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Serialise a state as `streameval.states.codec.dump`, part by part in parallel; any engine gives the same."""

    def expected(
        self, pieces: Sequence[Piece], rows: int, plan: Plan, shards: int, nbytes: int, tables: Sequence[bool]
    ) -> Work:
        """What a run will do.

        Parameters
        ----------
        pieces, rows, plan : see `read`
        shards : number of shards of all states that are finalized shard by shard
        nbytes : bytes of all keyed states
        tables : for each contingency table, whether its optimal assignment is needed
        """


SCHEDULER_TIMEOUT = 10.0  # seconds


def start(
    *,
    client: Client | str | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    scheduler_timeout: float = SCHEDULER_TIMEOUT,
    metrics: Sequence[Metric] = (),
) -> Engine:
    """An engine for one run.

    Parameters
    ----------
    client, threads, memory, spill, progress
        As in `streameval.evaluate`.
    scheduler_timeout : float
        Seconds to wait for a worker of the client if none answers.
    metrics : sequence of Metric
        Metrics of the user, which tasks must be able to use.

    Raises
    ------
    OptionError
        If `memory` is not a size, `threads` is not a positive integer, `threads` and `client` are both given, or
        `scheduler_timeout` is given without a client, or a metric cannot be sent to a worker.
    SpillError
        If the spill directory does not exist.
    ClusterError
        If the scheduler does not answer, or no worker does, or a worker is not usable or cannot import the class of a
        metric.
    """
    check_timeout(client, scheduler_timeout)
    run: dict[str, Any] = {"memory": memory, "spill": spill, "threads": threads, "progress": progress}
    engine = on_cluster(client, scheduler_timeout, **run)
    if engine is not None:
        engine.check(metrics)
        return engine
    from streameval.engine.threads import ThreadEngine

    return ThreadEngine.start(**run)


def on_cluster(
    client: Client | str | None, scheduler_timeout: float, *, threads: int | None, **run: Any
) -> ClusterEngine | None:
    """The engine on the workers of a client, of the scheduler at an address, or of the active client; None without any.

    `run` has the memory, the spill directory and the progress of `start`, which describes the errors as well.
    """
    if client is None and (threads is not None or "distributed" not in sys.modules):
        return None
    from streameval.engine.cluster import ClusterEngine  # slow to import
    from streameval.engine.connection import connect

    connection = connect(client, threads, scheduler_timeout)
    return None if connection is None else ClusterEngine.start(connection, **run)


def check_timeout(client: Client | str | None, scheduler_timeout: float) -> None:
    """Raise `OptionError` if the timeout is invalid, or is given without a client."""
    if verb_options("evaluate")["scheduler_timeout"].plain(scheduler_timeout) != SCHEDULER_TIMEOUT and client is None:
        raise OptionError(
            f"scheduler_timeout={scheduler_timeout!r} would change nothing without a scheduler: name one (--scheduler)",
            "scheduler_timeout",
        )


import_when_named(__name__)
