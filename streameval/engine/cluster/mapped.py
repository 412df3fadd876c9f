"""Mapped: several parts of the data, each folded whole by one worker.

`streameval.engine.cluster.engine` cuts one table into many tasks and its states into ranges; here every task is a run
of its own on a worker, and what it gives back is small.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import dask

from streameval.engine.cluster import work
from streameval.engine.cluster.connection import key_factory
from streameval.engine.cluster.folds import Fold, finish
from streameval.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine.cluster.connection import Connection
    from streameval.scan import Piece

__all__ = ["mapped"]


def mapped(
    connection: Connection,
    function: Callable[[Any], Any],
    items: Sequence[tuple[Sequence[Piece], Any]],
    name: str,
    progress: Callable[[int], None],
) -> list[Any]:
    """Map a function over items on the workers; results in order.

    Parameters
    ----------
    connection : Connection
    function : callable
        What a worker runs; it may run twice, so it must do the same each time.
    items : sequence of (pieces, argument)
        The pieces of the data that the function reads, and what it is called with.
    name : str
        Of the tasks.
    progress : callable
        Called with the rows of every part that is done.

    Raises
    ------
    StreamevalError
        What the function raised, a file that could not be read having been tried twice more; the rest is cancelled.
    """
    key = key_factory()
    nodes = [
        dask.delayed(partial(work.whole, function, item), pure=False)(dask_key_name=key(name, i))
        for i, (_, item) in enumerate(items)
    ]
    futures = connection.submit(nodes)
    made = [Fold(pieces, future, future, []) for (pieces, _), future in zip(items, futures, strict=True)]
    try:
        finish(connection, made, progress)
    except BaseException:
        with suppress(ClusterError), connection.errors():
            connection.client.cancel(futures)
        raise
    return connection.gather(futures)
