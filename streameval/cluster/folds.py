"""Folds: one pass over the data on a cluster, until every task is done or one has failed for good.

A file that cannot be read is tried twice more, anywhere. Errors that the data would give again come back at once.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
from distributed import CancelledError, KilledWorker, as_completed
from distributed.comm import CommClosedError

from streameval.cluster import work
from streameval.cluster.connection import names
from streameval.errors import ClusterError, CorruptFileError, OptionError, StreamevalError
from streameval.scan import LazySource, RowGroups, TableSource, uncomputable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.cluster.connection import Connection
    from streameval.fold import Plan
    from streameval.scan import Piece

__all__ = ["Fold", "folds"]

RETRIES = 2  # of a file that could not be read


@dataclass(frozen=True)
class Fold:
    """One task and its futures.

    Attributes
    ----------
    pieces : what it folds
    spread : future of its outline and rows
    outline : future of its outline
    parts : futures of the partitions that Dask computes for it, held until then: only a task that is held is retried
    """

    pieces: Sequence[Piece]
    spread: Any
    outline: Any
    parts: list[Any]

    @property
    def rows(self) -> int:
        """Rows to fold, −1 where it is not known."""
        return min(sum(piece.rows for piece in self.pieces), *(piece.rows for piece in self.pieces))


def folds(
    connection: Connection,
    tasks: Sequence[Sequence[Piece]],
    plan: Plan,
    resources: work.Resources,
    progress: Callable[[int], None],
) -> tuple[list[Fold], tuple[tuple[str, str], ...]]:
    """Fold all tasks; those that could be, in order, and the files that were left out.

    Raises
    ------
    DataError
        If the data cannot be evaluated, or a file cannot be read and the plan does not say to skip it.
    """
    plain = replace(plan, skip=False)  # whether to skip a file is decided here, after it has been tried again
    _check_pieces(connection, tasks, plain)
    made = _submitted(connection, tasks, plain, resources)
    try:
        failed = _finish(connection, made, progress, skip=plan.skip)
    except BaseException:
        with suppress(ClusterError), connection.errors():
            connection.client.cancel([fold.spread for fold in made])
        raise
    alive = [fold for i, fold in enumerate(made) if i not in failed]
    return alive, tuple((made[i].pieces[0].name, failed[i]) for i in sorted(failed))


def _check_pieces(connection: Connection, tasks: Sequence[Sequence[Piece]], plan: Plan) -> None:
    """Refuse what cannot leave this process; let a worker open the first file, which only the client may see."""
    pieces = [piece for task in tasks for piece in task]
    for piece in pieces:
        if not isinstance(piece.source, RowGroups | TableSource | LazySource):
            try:
                pickle.dumps(piece)
            except (TypeError, pickle.PicklingError) as error:
                msg = f"{piece.name} cannot leave this process; give threads= to run here, or a path or a table"
                raise OptionError(msg) from error
    if isinstance(pieces[0].source, RowGroups):
        probe = dask.delayed(partial(work.probe, pieces[0], plan), pure=False)
        connection.gather(connection.submit([probe(dask_key_name=names()("open"))]))


def _submitted(
    connection: Connection, tasks: Sequence[Sequence[Piece]], plan: Plan, resources: work.Resources
) -> list[Fold]:
    key, nodes = names(), []
    for i, pieces in enumerate(tasks):
        parts = [piece.source.data for piece in pieces if isinstance(piece.source, LazySource)]
        fold = dask.delayed(partial(work.fold, pieces, plan, resources), pure=False)
        spread = fold(*parts, dask_key_name=key("fold", i))
        outline = dask.delayed(work.outline, pure=False)(spread, dask_key_name=key("outline", i))
        nodes.append((spread, outline, *parts))
    futures = iter(connection.submit([node for group in nodes for node in group]))
    made = []
    for pieces, group in zip(tasks, nodes, strict=True):
        spread, outline, *parts = (next(futures) for _ in group)
        made.append(Fold(pieces, spread, outline, parts))
    return made


def _finish(
    connection: Connection, made: Sequence[Fold], progress: Callable[[int], None], *, skip: bool
) -> dict[int, str]:
    """Wait for all tasks, trying files again; the tasks left out, with the reason."""
    waiting = {fold.outline: i for i, fold in enumerate(made)}
    tries = dict.fromkeys(range(len(made)), 0)
    failed: dict[int, str] = {}
    with connection.errors():
        done = as_completed(list(waiting), loop=connection.client.loop)
        for future in done:
            i = waiting[future]
            error = None if future.status == "finished" else _ours(future.exception(), made[i])
            if error is None:
                made[i].parts.clear()
                progress(max(made[i].rows, 0))
            elif isinstance(error, CorruptFileError) and tries[i] < RETRIES:
                tries[i] += 1
                connection.client.retry([future])
                done.add(future)
            elif isinstance(error, CorruptFileError) and skip:
                failed[i] = str(error)
            elif isinstance(error, MemoryError):
                msg = f"{made[i].pieces[0].name}: a worker is out of memory; give the workers more, or fewer threads"
                raise ClusterError(msg) from error
            else:
                raise error
    return failed


def _ours(error: BaseException, fold: Fold) -> BaseException:
    """The error, or ours where it is one of the code that makes a partition."""
    lazy = any(isinstance(piece.source, LazySource) for piece in fold.pieces)
    foreign = not isinstance(error, StreamevalError | KilledWorker | CancelledError | CommClosedError)
    return uncomputable(fold.pieces[0].name, error) if lazy and foreign else error
