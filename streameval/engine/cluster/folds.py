"""Folds: one pass over the data on a cluster.

A task that cannot read a file is retried twice, on any worker. Other errors end the pass at once, because the same data
would cause them again.
"""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import dask
from distributed import CancelledError, KilledWorker, as_completed
from distributed.comm import CommClosedError

from streameval.engine.cluster import work
from streameval.engine.cluster.connection import key_factory
from streameval.errors import ClusterError, CorruptFileError, OptionError, StreamevalError
from streameval.scan import DeferredFile, LazySource, RowGroups, TableSource, uncomputable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.engine.cluster.connection import Connection
    from streameval.engine.fold import Plan
    from streameval.scan import Piece

RETRIES = 2  # number of retries for a file that cannot be read


@dataclass(frozen=True)
class Fold:
    """A fold task and its futures.

    Attributes
    ----------
    pieces : the pieces that it folds
    spread : future of the outlines and rows
    outline : future of the outlines
    parts : futures of the partitions that Dask computes for it, kept until it has finished, for retries
    """

    pieces: Sequence[Piece]
    spread: Any
    outline: Any
    parts: list[Any]

    @property
    def rows(self) -> int:
        """Number of rows, −1 if unknown."""
        rows = [piece.rows for piece in self.pieces]
        return sum(rows) if min(rows, default=0) >= 0 else -1


def folds(
    connection: Connection,
    tasks: Sequence[Sequence[Piece]],
    plan: Plan,
    resources: work.Resources,
    progress: Callable[[int], None],
) -> tuple[list[Fold], tuple[tuple[str, str], ...]]:
    """Run all fold tasks; returns those that succeeded, and the skipped files with the reason.

    Raises
    ------
    DataError
        If the data cannot be evaluated, or a file cannot be read and `plan.skip` is false.
    """
    plain = replace(plan, skip=False)  # a file is skipped here, after the retries
    _check_pieces(connection, tasks, plain)
    submit = partial(_submitted, connection, plan=plain, resources=resources)
    made = submit(tasks)
    try:
        done, failed = finish(connection, made, progress, submit if plan.skip else None)
    except BaseException:
        with suppress(ClusterError), connection.errors():
            connection.client.cancel([fold.spread for fold in made])
        raise
    place = {id(piece): i for i, piece in enumerate(piece for task in tasks for piece in task)}
    done.sort(key=lambda fold: place[id(fold.pieces[0])])  # in the order of the scan, not of completion
    names_in_order = dict.fromkeys(piece.name for task in tasks for piece in task)
    return done, tuple((name, failed[name]) for name in names_in_order if name in failed)


def _check_pieces(connection: Connection, tasks: Sequence[Sequence[Piece]], plan: Plan) -> None:
    """Check that pieces can be pickled, and that a worker can open the first file.

    Raises
    ------
    OptionError
        If a piece cannot leave this process.
    MissingInputError
        If the worker does not find the file; the message names the worker.
    """
    pieces = [piece for task in tasks for piece in task]
    for piece in pieces:
        if not isinstance(piece.source, RowGroups | DeferredFile | TableSource | LazySource):
            try:
                pickle.dumps(piece)
            except (TypeError, pickle.PicklingError) as error:
                msg = f"{piece.name} cannot leave this process; give threads= to run here, or a path or a table"
                raise OptionError(msg) from error
    if isinstance(pieces[0].source, RowGroups | DeferredFile):
        probe = dask.delayed(partial(work.probe, pieces[0], plan), pure=False)
        connection.gather(connection.submit([probe(dask_key_name=key_factory()("open"))]))


def _submitted(
    connection: Connection, tasks: Sequence[Sequence[Piece]], *, plan: Plan, resources: work.Resources
) -> list[Fold]:
    key, nodes = key_factory(), []
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


def finish(
    connection: Connection,
    made: Sequence[Fold],
    progress: Callable[[int], None],
    again: Callable[[Sequence[Sequence[Piece]]], list[Fold]] | None = None,
) -> tuple[list[Fold], dict[str, str]]:
    """Wait for all tasks and retry failed reads; returns the tasks that succeeded, and failed files with the reason.

    `again` submits tasks. If it is given, a failed task with several files is repeated file by file, so that only
    unreadable files are skipped; otherwise a failed read ends the pass.
    """
    waiting = {fold.outline: fold for fold in made}
    tries: Counter[Any] = Counter()
    done: list[Fold] = []
    failed: dict[str, str] = {}
    with connection.errors():
        completed = as_completed(list(waiting), loop=connection.client.loop)
        for future in completed:
            fold = waiting[future]
            error = None if future.status == "finished" else _translated(future.exception(), fold)
            files = _by_file(fold.pieces)
            if error is None:
                fold.parts.clear()
                progress(max(fold.rows, 0))
                done.append(fold)
            elif not isinstance(error, CorruptFileError):
                raise error
            elif tries[future] < RETRIES:
                tries[future] += 1
                connection.client.retry([future])
                completed.add(future)
            elif again is None:
                raise error
            elif len(files) == 1:
                name = fold.pieces[0].name
                failed[name] = str(error).removeprefix(f"{name}: ")
            else:
                more = {fold.outline: fold for fold in again(files)}
                waiting |= more
                completed.update(list(more))
    return done, failed


def _by_file(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Group pieces by file."""
    return [list(group) for _, group in groupby(pieces, key=attrgetter("name"))]


def _translated(error: BaseException, fold: Fold) -> BaseException:
    """The error to raise: a `StreamevalError` for a worker out of memory, and for a failure of a user's partition."""
    lazy = any(isinstance(piece.source, LazySource) for piece in fold.pieces)
    foreign = not isinstance(error, StreamevalError | KilledWorker | CancelledError | CommClosedError)
    if isinstance(error, MemoryError):
        return ClusterError(
            f"{fold.pieces[0].name}: a worker is out of memory; give the workers more, or fewer threads"
        )
    return uncomputable(fold.pieces[0].name, error) if lazy and foreign else error
