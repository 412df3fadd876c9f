"""Connection: the client of a run, the resources of its workers, and the translation of Dask's errors.

Before a run, every worker is asked for its version and its memory. A worker that does not answer has died, which the
scheduler will notice soon; the run starts on the other workers. If no worker answers, the run waits for one.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask
import distributed
from distributed.comm import CommClosedError

from streameval import __version__
from streameval.errors import ClusterError, OptionError, StreamevalError
from streameval.forks import is_forked, on_fork
from streameval.posix import available_memory
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dask.delayed import Delayed


_POLL = 0.1  # seconds between two checks for a worker
_CONNECT = 1.0  # least seconds to wait for the scheduler, however short the timeout
_FORKED = 2.0  # seconds in which a client of this process answers itself
_LOG = logging.getLogger(__name__)
_GONE = (CommClosedError, asyncio.CancelledError, distributed.CancelledError, TimeoutError)


@dataclass(frozen=True)
class Connection:
    """A client whose workers have been checked.

    Attributes
    ----------
    client : distributed.Client
    workers : number of workers
    threads : threads of all workers together
    memory : memory limit of the smallest worker, in bytes
    width : largest number of threads of a worker
    address : address of the scheduler
    left : addresses of workers that the scheduler listed but that did not answer; the run does not use them
    """

    client: distributed.Client
    workers: int
    threads: int
    memory: int
    width: int
    address: str
    left: tuple[str, ...] = ()

    def submit(self, nodes: Sequence[Delayed]) -> list[distributed.Future]:
        """Submit nodes as one graph; returns their futures.

        Dask warns about large graphs. A graph is large if the input is a table in memory: each fold task carries its
        rows, so that another worker can repeat the task if the first one dies. Scattered rows would be lost with it.
        """
        with self.errors(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
            return list(self.client.compute(list(nodes), optimize_graph=False))

    def gather(self, futures: Sequence[distributed.Future]) -> list[Any]:
        """The results of futures, in order."""
        with self.errors():
            return list(self.client.gather(list(futures)))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise `ClusterError` for a lost task, scheduler or connection; other errors pass unchanged."""
        try:
            yield
        except distributed.KilledWorker as error:
            raise ClusterError(
                f"{plural(error.allowed_failures + 1, 'worker')} died while running task {error.task}, the last one at "
                f"{error.last_worker.address}: most likely out of memory; give the workers more memory or fewer threads"
            ) from error
        except (Exception, asyncio.CancelledError) as error:
            gone = isinstance(error, _GONE) or self.client.status in ("closing", "closed")
            if isinstance(error, StreamevalError) or not gone:
                raise
            raise ClusterError(
                f"the Dask scheduler at {self.address} is gone or was restarted, so the run is lost; start both again"
            ) from error


def _renew_offload() -> None:
    """Give a forked child a pool for large messages: that of its parent has no threads here."""
    distributed.utils._offload_executor = ThreadPoolExecutor(1, thread_name_prefix="Dask-Offload")  # noqa: SLF001 - no setting replaces it


on_fork(_renew_offload)
if is_forked():
    _renew_offload()


def key_factory() -> Callable[..., str]:
    """A function that creates the task keys of one graph; the keys of different graphs never collide.

    Dask's dashboard groups tasks by the part of the key before the hexadecimal id of the graph.

    Examples
    --------
    >>> key = key_factory()
    >>> key("split", 3, 0)
    'streameval-split-...-3-0'
    """
    graph = uuid.uuid4().hex[:8]
    return lambda name, *numbers: "-".join((f"streameval-{name}", graph, *map(str, numbers)))


def connect(
    client: distributed.Client | str | None, threads: int | None, scheduler_timeout: float = 10.0
) -> Connection | None:
    """The connection to run on; None to run on threads of this process.

    Parameters
    ----------
    client : distributed.Client, the address of a scheduler, or None
        None selects the active client, if there is one. In a task of Dask there is none: the client that a worker
        makes for its tasks would wait for the thread that waits for it. A task that gives a client leaves the worker's
        thread pool (`distributed.secede`), so that the worker can run the tasks of the client.
    threads : int, optional
        Number of threads of this process to run on, even if a client is active.
    scheduler_timeout : float
        Seconds to wait for the scheduler at an address, at least 1, and then for a worker if none answers.

    Raises
    ------
    OptionError
        If both `client` and `threads` are given, or `client` is not a client.
    ClusterError
        If the scheduler does not answer; if no worker answers in time; or if a worker has another version of
        streameval, or so little free memory that Dask would pause it; if the client is that of the process that forked
        this one, or this is the event loop of a worker (`distributed.Client.run`).
    """
    if threads is not None:
        if client is not None:
            raise OptionError(f"threads={threads!r} runs here and a client (--scheduler) elsewhere: give one of them")
        return None
    if client is not None:
        _leave_pool()
    if isinstance(client, str):
        return _own_client(client, scheduler_timeout)
    if client is None and (client := _active()) is None:
        return None
    if not isinstance(client, distributed.Client) or client.asynchronous:
        raise OptionError(
            f"client={client!r} must be a distributed.Client that is not asynchronous, or a scheduler's address"
        )
    return _check(client, scheduler_timeout)


def _active() -> distributed.Client | None:
    """The active client of this process, or None; that of a worker serves its tasks only."""
    with suppress(ValueError):  # no task
        distributed.get_worker()
        return None
    with suppress(ValueError):
        client = distributed.default_client()
        return None if client.id.startswith("Client-worker-") else client
    return None


def _leave_pool() -> None:
    """Let the worker run another task in place of this one, which will wait; does nothing outside of tasks."""
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
        if any(worker.loop.asyncio_loop is loop for worker in distributed.Worker._instances):  # noqa: SLF001 - no public list
            raise ClusterError(
                "a run on a client would block the event loop of this worker: submit a task instead of Client.run"
            )
    with suppress(ValueError, AttributeError, KeyError):  # no task, a task of an actor, or one that has left already
        distributed.secede()


def _own_client(address: str, scheduler_timeout: float) -> Connection:
    """A connection with a new client, which is closed when the connection is garbage collected."""
    try:
        client = distributed.Client(address, set_as_default=False, timeout=max(scheduler_timeout, _CONNECT))
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(f"{address}: no Dask scheduler answers there; check the address and that it runs") from error
    try:
        connection = _check(client, scheduler_timeout)
    except BaseException:
        client.close()
        raise
    weakref.finalize(connection, client.close)
    return connection


def _check(client: distributed.Client, scheduler_timeout: float) -> Connection:
    """The connection to the workers that answer, once each of them has passed `_check_worker`."""
    scheduler = getattr(client, "scheduler", None)
    address = str(getattr(scheduler, "address", None) or "an unknown address")
    connection = Connection(client, 0, 1, available_memory(), 1, address)
    if is_forked():
        try:
            client.sync(distributed.utils.offload, int, callback_timeout=_FORKED)
        except TimeoutError:  # its threads are in the other process
            raise ClusterError(
                f"the client of {address} is that of the process that forked this one; make another here, start the "
                "process by spawn or forkserver, or give threads"
            ) from None
    with connection.errors():
        workers, answers = _answers(client, scheduler_timeout)
    left = {worker: answer for worker, answer in answers.items() if isinstance(answer, BaseException)}
    there = {worker: answer for worker, answer in answers.items() if worker not in left and worker in workers}
    if left and not there:
        worker, error = next(iter(left.items()))
        raise ClusterError(
            f"worker {worker} does not answer ({type(error).__name__}): most likely out of memory; give it more"
        ) from error
    if not there:
        raise ClusterError(f"the Dask scheduler at {address} has no workers after {scheduler_timeout:g} s; start some")
    for worker, answer in there.items():
        _check_worker(worker, *answer, limit=workers[worker]["memory_limit"])
    if left:
        have = plural(len(there), "other worker")
        _LOG.warning("%s left before the run, which uses %s", ", ".join(left), have)
    nthreads = [workers[name]["nthreads"] for name in there]
    memory = min(workers[name]["memory_limit"] or there[name][1] for name in there)
    return Connection(client, len(there), sum(nthreads), memory, max(nthreads), address, tuple(left))


def _answers(client: distributed.Client, scheduler_timeout: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scheduler's information on its workers, and the answer of each worker, or the error for one that is gone.

    Waits until at least one worker answers, or the timeout has passed.
    """

    # a nested function is pickled by value, because a worker may not have streameval
    def probe() -> tuple[str | None, int, int, float]:
        from importlib import import_module

        import dask
        import psutil

        try:
            import_module("streameval.engine.work")  # imported by every task
            from streameval import __version__ as version
            from streameval.posix import available_memory as available
        except ImportError:
            return None, 0, 0, 1.0
        pause = dask.config.get("distributed.worker.memory.pause", None) or 1.0
        return version, available(), psutil.Process().memory_info().rss, float(pause)

    end = time.monotonic() + scheduler_timeout
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        answers: dict[str, Any] = client.run(probe, on_error="return") if workers else {}
        late = time.monotonic() > end
        if late or any(w in workers and not isinstance(answer, BaseException) for w, answer in answers.items()):
            return workers, answers
        time.sleep(_POLL)


def _check_worker(worker: str, version: str | None, _: int, taken: int, pause: float, *, limit: int) -> None:
    """Raise `ClusterError` for a worker with another version of streameval, or one that Dask would pause at once."""
    if version != __version__:
        have = f"has streameval {version}" if version else "has no streameval"
        raise ClusterError(f"worker {worker} {have}, the client {__version__}: install the same version everywhere")
    if limit and taken > pause * limit:
        raise ClusterError(
            f"worker {worker} has {limit >> 20:,} MiB of memory, of which {taken >> 20:,} are taken before the run, "
            f"and Dask pauses it at {pause:.0%}: give it more"
        )
