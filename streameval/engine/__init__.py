"""The engine: every step of a run, on threads of this process or on the workers of a Dask client.

`Engine` says what an engine does; `start` gives the one that the arguments of `streameval.evaluate` ask for. Both make
graphs that Dask runs, so a result has the same bits on either.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from streameval.engine.protocol import Engine

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["Engine", "start"]


def start(
    *,
    client: Any = None,
    threads: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Engine:
    """An engine for one run; the arguments are those of `streameval.evaluate`.

    Raises
    ------
    OptionError
        If `memory` is no size, `threads` no number of threads, or `threads` and `client` are both given.
    SpillError
        If the spill directory does not exist.
    ClusterError
        If no scheduler answers, or it has no workers.
    """
    if client is not None or (threads is None and "distributed" in sys.modules):
        from streameval.engine.cluster import ClusterEngine, connect  # importing a cluster takes long

        connection = connect(client, threads)
        if connection is not None:
            return ClusterEngine.start(connection, memory=memory, spill=spill, progress=progress)
    from streameval.engine.threads import ThreadEngine

    return ThreadEngine.start(memory=memory, spill=spill, threads=threads, progress=progress)
