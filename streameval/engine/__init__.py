"""The engine: runs the steps of an evaluation on threads of this process or on the workers of a Dask client.

`Engine` is the protocol, on which all callers depend; `start` creates the implementation for the arguments of
`streameval.evaluate`: `streameval.engine.threads` or `streameval.engine.cluster`. Both build graphs that Dask runs, and
their results are bit-identical.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from streameval.errors import OptionError
from streameval.options import honoured

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from streameval.budget import Budget
    from streameval.engine.fold import Folded, Plan
    from streameval.engine.threads import Progress
    from streameval.metrics.protocol import Metric
    from streameval.scan import Piece
    from streameval.states.rounds import FirstRound

T = TypeVar("T")

Job = tuple[Any, "Sequence[Metric]"]  # a state, and the metrics to compute from it


class Engine(Protocol):
    """Runs the steps of one evaluation."""

    @property
    def where(self) -> str:
        """A description of where tasks run, for messages."""

    @property
    def threads(self) -> int:
        """Number of threads of this process, which plan the scan."""

    @property
    def limit(self) -> int:
        """The memory limit in bytes, of this process or of each worker."""

    @property
    def budget(self) -> Budget:
        """The owner of the states in this process."""

    @property
    def progress(self) -> Progress:
        """The row counter, which also cancels the run."""

    def check(self, metrics: Iterable[Metric]) -> None:
        """Check that tasks can use a user's own metrics.

        Raises
        ------
        ClusterError
            If the class of a metric cannot be imported where tasks run.
        OptionError
            If a metric cannot be sent there.
        """

    def read(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> Folded:
        """Fold `rows` rows (−1 if unknown) into every state of the plan, in one pass; raises what `fold` raises."""

    def assigned(self, pieces: Sequence[Piece], rows: int, plan: Plan) -> list[tuple[Piece, ...]]:
        """The pieces of each fold task of a pass."""

    def capacity(self, plan: Plan) -> int:
        """Rows that a builder collects at a time."""

    def each(self, function: Callable[[Any], Any], items: Sequence[Any], name: str) -> list[Any]:
        """Map a function over items on threads of this process; `name` labels the tasks."""

    def compute(self, delayed: Any) -> Any:
        """Compute a Dask object."""

    def finalize(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """The values of each job's metrics; shards of all states are finalized in parallel."""

    def rounds(self, first: FirstRound, finish: Callable[[list[list[Any]]], T]) -> T:
        """Do the rounds that begin with rows of a state; `finish` takes the values of each round."""

    def dump(self, state: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Serialise a state as `streameval.states.codec.dump`, part by part in parallel; any engine gives the same."""

    def expected(self, folds: int, shards: int, nbytes: int, tables: Sequence[bool]) -> tuple[int, dict[str, int]]:
        """Number of ranges, and number of tasks by name, that a run will need.

        Parameters
        ----------
        folds : number of fold tasks
        shards : number of shards of all states that are finalized shard by shard
        nbytes : bytes of all keyed states
        tables : for each contingency table, whether its optimal assignment is needed
        """


SCHEDULER_TIMEOUT = 10.0  # seconds


def start(
    *,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    scheduler_timeout: float = SCHEDULER_TIMEOUT,
) -> Engine:
    """An engine for one run.

    Parameters
    ----------
    client, threads, memory, spill, progress
        As in `streameval.evaluate`.
    scheduler_timeout : float
        Seconds to wait for a worker of the client if none answers.

    Raises
    ------
    OptionError
        If `memory` is not a size, `threads` is not a positive integer, `threads` and `client` are both given, or
        `scheduler_timeout` is given without a client.
    SpillError
        If the spill directory does not exist.
    ClusterError
        If the scheduler does not answer, or no worker does, or a worker is not usable.
    """
    check_timeout(client, scheduler_timeout)
    if client is not None or (threads is None and "distributed" in sys.modules):
        from streameval.engine.cluster import ClusterEngine, connect  # slow to import

        connection = connect(client, threads, scheduler_timeout)
        if connection is not None:
            return ClusterEngine.start(connection, memory=memory, spill=spill, progress=progress)
    from streameval.engine.threads import ThreadEngine

    return ThreadEngine.start(memory=memory, spill=spill, threads=threads, progress=progress)


def check_timeout(client: Any, scheduler_timeout: float) -> None:
    """Raise `OptionError` if the timeout is invalid, or is given without a client."""
    if honoured("evaluate")["scheduler_timeout"].plain(scheduler_timeout) != SCHEDULER_TIMEOUT and client is None:
        msg = (
            f"scheduler_timeout={scheduler_timeout!r} would change nothing without a scheduler: name one (--scheduler)"
        )
        raise OptionError(msg, "scheduler_timeout")
