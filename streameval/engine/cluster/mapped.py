"""Mapped: independent parts of the data, each processed by a single worker.

`streameval.engine.cluster.engine` divides one table into many tasks and its states into ranges. Here, every task is a
complete run on one worker, with a small result.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import dask

from streameval.engine.cluster import work
from streameval.engine.cluster.connection import key_factory
from streameval.engine.cluster.folds import Fold, finish
from streameval.engine.threads import ThreadEngine
from streameval.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine import Engine
    from streameval.engine.cluster.connection import Connection
    from streameval.scan import Piece


def mapped(
    connection: Connection,
    function: Callable[[Any, Engine], Any],
    items: Sequence[tuple[Sequence[Piece], Any]],
    name: str,
    progress: Callable[[int], None],
    **run: Any,
) -> list[Any]:
    """Map a function over items on the workers; the results are in order.

    Parameters
    ----------
    connection : Connection
    function : callable
        ``function(argument, engine)``, with an engine of the worker; deterministic, because a task may run twice.
    items : sequence of (pieces, argument)
        For each item, the pieces of the data that the function reads, and its argument.
    name : str
        Name of the tasks in Dask's dashboard.
    progress : callable
        Called with the number of rows of every finished item.
    **run : options of `streameval.engine.threads.ThreadEngine.start`

    Raises
    ------
    StreamevalError
        The first error of the function, after two retries if a file cannot be read. All other items are cancelled.
    """
    key = key_factory()
    nodes = [
        dask.delayed(partial(work.call, partial(_with_engine, function, run), item), pure=False)(
            dask_key_name=key(name, i)
        )
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


def _with_engine(function: Callable[[Any, Engine], Any], run: dict[str, Any], item: Any) -> Any:
    """The task that runs on the worker."""
    return function(item, ThreadEngine.start(**run))
