"""Connection: the client of a run, what its workers are like, and Dask's errors in our words."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import distributed
from distributed.comm import CommClosedError

from streameval._version import __version__
from streameval.budget import available_memory
from streameval.errors import ClusterError, OptionError, StreamevalError
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Connection", "connect", "key_factory"]


_GONE = (CommClosedError, asyncio.CancelledError, distributed.CancelledError, TimeoutError)


@dataclass(frozen=True)
class Connection:
    """A client whose workers can do the run.

    Attributes
    ----------
    client : distributed.Client
    workers : number of them
    threads : threads of all workers
    memory : bytes of the smallest worker
    width : most threads of a worker
    address : the scheduler's
    """

    client: Any
    workers: int
    threads: int
    memory: int
    width: int
    address: str

    def submit(self, nodes: Sequence[Any]) -> list[Any]:
        """Futures of the nodes of one graph."""
        with self.errors():
            return list(self.client.compute(list(nodes), optimize_graph=False))

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Results of futures, in order."""
        with self.errors():
            return list(self.client.gather(list(futures)))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what Dask raises about its own into one clear line."""
        try:
            yield
        except distributed.KilledWorker as error:
            msg = (
                f"task {error.task} was lost with {plural(error.allowed_failures + 1, 'worker')}, the last at "
                f"{error.last_worker.address}: most likely out of memory; give the workers more memory or fewer threads"
            )
            raise ClusterError(msg) from error
        except (Exception, asyncio.CancelledError) as error:
            gone = isinstance(error, _GONE) or self.client.status in ("closing", "closed")
            if isinstance(error, StreamevalError) or not gone:
                raise
            msg = (
                f"the Dask scheduler at {self.address} is gone or was restarted, and the run with it; start both again"
            )
            raise ClusterError(msg) from error


def key_factory() -> Callable[..., str]:
    """Makes the keys of one graph: the dashboard shows their names, and no two graphs share a task.

    Examples
    --------
    >>> key = key_factory()
    >>> key("split", 3, 0)
    'streameval-split-...-3-0'
    """
    graph = uuid.uuid4().hex[:8]
    return lambda name, *numbers: "-".join((f"streameval-{name}", graph, *map(str, numbers)))


def connect(client: Any, threads: int | None) -> Connection | None:
    """The connection to run on; None to run on threads.

    Parameters
    ----------
    client : distributed.Client, the address of a scheduler, or None
        None is the active client, where there is one.
    threads : int, optional
        Threads to run on here, whatever client is active.

    Raises
    ------
    OptionError
        If both are given, or `client` is no client.
    ClusterError
        If the scheduler does not answer, has no workers, or these have another version of streameval.
    """
    if threads is not None:
        if client is not None:
            msg = f"threads={threads!r} runs here and a client (--scheduler) elsewhere: give one of them"
            raise OptionError(msg)
        return None
    if isinstance(client, str):
        return _owned(client)
    found = _active() if client is None else client
    if found is None:
        return None
    if getattr(found, "asynchronous", None) is not False:
        msg = f"client={client!r} must be a distributed.Client that is not asynchronous, or a scheduler's address"
        raise OptionError(msg)
    return _checked(found)


def _active() -> Any:
    """The client that is active in this process."""
    try:
        return distributed.default_client()
    except ValueError:
        return None


def _owned(address: str) -> Connection:
    """A connection with a client of its own, which is closed once nobody needs the connection."""
    try:
        client = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        msg = f"{address}: no Dask scheduler answers there; check the address and that it runs"
        raise ClusterError(msg) from error
    try:
        connection = _checked(client)
    except BaseException:
        client.close()
        raise
    weakref.finalize(connection, client.close)
    return connection


def _address(client: Any) -> str:
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", None) or "an unknown address")


def _checked(client: Any) -> Connection:
    """The connection, if all workers have what it takes."""

    # a function of a function travels by value: a worker may have no streameval
    def probe() -> tuple[str | None, int, int, float]:
        from importlib import import_module

        import dask
        import psutil

        try:
            import_module("streameval.engine.cluster.work")  # what every task needs
            from streameval._version import __version__ as version
            from streameval.budget import available_memory as available
        except ImportError:
            return None, 0, 0, 1.0
        pause = dask.config.get("distributed.worker.memory.pause", None) or 1.0
        return version, available(), psutil.Process().memory_info().rss, float(pause)

    connection = Connection(client, 0, 1, available_memory(), 1, _address(client))
    with connection.errors():
        workers = client.scheduler_info(n_workers=-1)["workers"]
        found: dict[str, Any] = client.run(probe, on_error="return") if workers else {}
    if not found:
        msg = f"the Dask scheduler at {connection.address} has no workers; start some"
        raise ClusterError(msg)
    for worker, answer in found.items():
        if isinstance(answer, BaseException):
            msg = f"worker {worker} does not answer ({type(answer).__name__}): most likely out of memory; give it more"
            raise ClusterError(msg) from answer
        _check_worker(worker, *answer, limit=workers[worker]["memory_limit"] if worker in workers else 0)
    nthreads = [workers[name]["nthreads"] for name in found if name in workers]
    limits = [workers[name]["memory_limit"] or found[name][1] for name in found if name in workers]
    return replace(connection, workers=len(found), threads=sum(nthreads), memory=min(limits), width=max(nthreads))


def _check_worker(worker: str, version: str | None, _: int, taken: int, pause: float, *, limit: int) -> None:
    """Refuse a worker of another version, and one that Dask would pause for good before it has read a row."""
    if version != __version__:
        have = f"has streameval {version}" if version else "has no streameval"
        msg = f"worker {worker} {have}, the client {__version__}: install the same version everywhere"
        raise ClusterError(msg)
    if limit and taken > pause * limit:
        msg = (
            f"worker {worker} has {limit >> 20:,} MiB of memory, of which {taken >> 20:,} are taken before the run, "
            f"and Dask pauses it at {pause:.0%}: give it more"
        )
        raise ClusterError(msg)
