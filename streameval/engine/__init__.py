"""The engine: runs the steps of an evaluation on threads of this process or on the workers of a Dask client.

`Engine` is the protocol; `start` creates the implementation for the arguments of `streameval.evaluate`. Both
implementations build graphs that Dask runs, and their results are bit-identical.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from streameval.engine.protocol import Engine
from streameval.errors import OptionError
from streameval.options import honoured

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["Engine", "check_timeout", "start"]

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
