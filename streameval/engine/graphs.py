"""Folds: one pass over the data on a cluster, the exchange of its rows, and many small runs on one worker each.

A task that cannot read a file is retried twice, on any worker. Other errors end the pass at once, because the same data
would cause them again.

The exchange is a shuffle that turns the rows of fold tasks into ranges of the merged states. F fold tasks and R ranges
need F·R split tasks and R merges. A task costs the scheduler about a millisecond, so a large exchange has two levels:
groups of fold tasks exchange coarse ranges first, then each coarse range is exchanged into fine ranges. This takes
about F·√R + R·√F tasks instead of F·R. `size` counts them, so that a run can be planned with at most `MOST_TASKS`.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import dask
from distributed import CancelledError, Future, KilledWorker, as_completed
from distributed.comm import CommClosedError

from streameval.engine import Engine, work
from streameval.engine.connection import Connection, key_factory
from streameval.errors import ClusterError, CorruptFileError, OptionError, StreamevalError
from streameval.scan import LazySource, Piece, RowGroups, TableSource, uncomputable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dask.delayed import Delayed

    from streameval.engine.fold import Plan
    from streameval.states.keyed.layout import Interval

    Nodes = Sequence[Delayed | Future]
    Key = Callable[..., str]  # creates task keys, see `key_factory`
    T = TypeVar("T")
    R = TypeVar("R")
    Cut = Mapping[work.Key, Interval]  # the buckets of each state in one range


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
    spread: Future
    outline: Future
    parts: list[Future]

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
    late: Future | None = None,
) -> tuple[list[Fold], tuple[tuple[str, str], ...]]:
    """Run all fold tasks; returns those that succeeded, and the skipped files with the reason.

    `late` holds the labels from another table; `plan` does not, as it is sent with each task.

    Raises
    ------
    DataError
        If the data cannot be evaluated, or a file cannot be read and `plan.skip` is false.
    """
    plain, pieces = replace(plan, skip=False), [piece for task in tasks for piece in task]  # a file is skipped here
    _check_pieces(connection, pieces, plain)
    submit = partial(_submit, connection, plan=plain, resources=resources, late=late)
    done, failed = finish(connection, submit(tasks), progress, submit if plan.skip else None)
    place = {id(piece): i for i, piece in enumerate(pieces)}
    done.sort(key=lambda fold: place[id(fold.pieces[0])])  # in the order of the scan, not of completion
    names_in_order = dict.fromkeys(piece.name for piece in pieces)
    return done, tuple((name, failed[name]) for name in names_in_order if name in failed)


def task(function: Callable[..., object], *args: Any, **options: Any) -> Delayed:
    """A task of a graph, to be called with its other arguments and its key."""
    return dask.delayed(partial(function, *args, **options), pure=False)


def _check_pieces(connection: Connection, pieces: Sequence[Piece], plan: Plan) -> None:
    """Check that pieces can be pickled, and that a worker can open the first file.

    Raises
    ------
    OptionError
        If a piece cannot leave this process.
    MissingInputError
        If the worker does not find the file; the message names the worker.
    """
    for piece in pieces:
        if not isinstance(piece.source, RowGroups | TableSource | LazySource):
            try:
                pickle.dumps(piece)
            except (TypeError, pickle.PicklingError) as error:
                raise OptionError(
                    f"{piece.name} cannot leave this process; give threads= to run here, or a path or a table"
                ) from error
    if isinstance(pieces[0].source, RowGroups):
        probe = task(work.probe, piece=pieces[0], plan=plan)
        connection.gather(connection.submit([probe(dask_key_name=key_factory()("open"))]))


def _submit(
    connection: Connection,
    tasks: Sequence[Sequence[Piece]],
    *,
    plan: Plan,
    resources: work.Resources,
    late: Future | None,
) -> list[Fold]:
    key, nodes = key_factory(), []
    for i, pieces in enumerate(tasks):
        parts = [piece.source.data for piece in pieces if isinstance(piece.source, LazySource)]
        spread = task(work.fold, pieces, plan, resources)(late, *parts, dask_key_name=key("fold", i))
        nodes.append((spread, task(work.outline)(spread, dask_key_name=key("outline", i)), *parts))
    futures = iter(connection.submit([node for group in nodes for node in group]))
    folds = []
    for pieces, group in zip(tasks, nodes, strict=True):
        spread, outline, *parts = (next(futures) for _ in group)
        folds.append(Fold(pieces, spread, outline, parts))
    return folds


def finish(
    connection: Connection,
    folds: Sequence[Fold],
    progress: Callable[[int], None],
    again: Callable[[Sequence[Sequence[Piece]]], list[Fold]] | None = None,
) -> tuple[list[Fold], dict[str, str]]:
    """Wait for all tasks and retry failed reads; returns the tasks that succeeded, and failed files with the reason.

    `again` submits tasks. If it is given, a failed task with several files is repeated file by file, so that only
    unreadable files are skipped; otherwise a failed read ends the pass. An error cancels all tasks.
    """
    waiting = {fold.outline: fold for fold in folds}
    tries: Counter[Future] = Counter()
    done: list[Fold] = []
    failed: dict[str, str] = {}
    try:
        with connection.errors():
            completed = as_completed(list(waiting), loop=connection.client.loop)
            for future in completed:
                fold = waiting[future]
                error = None if future.status == "finished" else _translate_error(future.exception(), fold)
                files = [list(group) for _, group in groupby(fold.pieces, key=attrgetter("name"))]
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
    except BaseException:
        with suppress(ClusterError), connection.errors():
            connection.client.cancel([fold.spread for fold in folds])
        raise
    return done, failed


def _translate_error(error: BaseException, fold: Fold) -> BaseException:
    """The error to raise: a `StreamevalError` for a worker out of memory, and for a failure of a user's partition."""
    lazy = any(isinstance(piece.source, LazySource) for piece in fold.pieces)
    foreign = not isinstance(error, StreamevalError | KilledWorker | CancelledError | CommClosedError)
    if isinstance(error, MemoryError):
        return ClusterError(
            f"{fold.pieces[0].name}: a worker is out of memory; give the workers more, or fewer threads"
        )
    return uncomputable(fold.pieces[0].name, error) if lazy and foreign else error


def map_items(
    connection: Connection,
    function: Callable[[T, Engine], R],
    items: Sequence[tuple[Sequence[Piece], T]],
    name: str,
    progress: Callable[[int], None],
    **run: Any,
) -> list[R]:
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
    with connection.errors():  # it may hold labels, which each worker gets once
        shared = connection.client.scatter(function, broadcast=True, hash=False)
    nodes = [
        task(work.call, item=item, run=run)(shared, dask_key_name=key(name, i)) for i, (_, item) in enumerate(items)
    ]
    futures = connection.submit(nodes)
    folds = [Fold(pieces, future, future, []) for (pieces, _), future in zip(items, futures, strict=True)]
    finish(connection, folds, progress)
    return connection.gather(futures)


FAN_IN = 32  # largest number of results that a task merges
MOST_TASKS = 100_000  # largest number of tasks of a run, and of split tasks of a level


def tree(nodes: Nodes, merge: Callable[[list[T]], T], key: Key, *numbers: int) -> Delayed:
    """Merge nodes as a tree of bounded fan-in; returns its root."""
    join = task(merge)
    level, depth = list(nodes), 0
    while len(level) > 1 or not depth:
        depth += 1
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [join(group, dask_key_name=key("merge", *numbers, depth, i)) for i, group in enumerate(groups)]
    return level[0]


def exchange(folds: Nodes, cuts: Sequence[Cut], key: Key, *numbers: int, tasks: int = MOST_TASKS) -> list[Delayed]:
    """The nodes of the ranges of the merged states.

    Parameters
    ----------
    folds : nodes or futures of arguments for `work.split`
    cuts : for each range, the buckets of each state
    key : creates task keys, see `key_factory`
    numbers : distinguish the task keys of this exchange from those of others
    tasks : largest number of split tasks of a level
    """
    if len(folds) * len(cuts) <= tasks or len(cuts) < 4:
        return [tree(_split(folds, cut, key, *numbers, r), work.join, key, *numbers, r) for r, cut in enumerate(cuts)]
    step, near = _steps(len(folds), len(cuts))
    coarse = [cuts[i : i + step] for i in range(0, len(cuts), step)]
    groups = [folds[i : i + near] for i in range(0, len(folds), near)]
    hulls = [_hull(fine) for fine in coarse]
    level = [exchange(group, hulls, key, *numbers, g, tasks=tasks) for g, group in enumerate(groups)]
    ranges: list[Delayed] = []
    for c, fine in enumerate(coarse):
        ranges += exchange([merged[c] for merged in level], fine, key, *numbers, len(groups) + c, tasks=tasks)
    return ranges


def merges(nodes: int) -> int:
    """Number of tasks of `tree`.

    Examples
    --------
    >>> [merges(nodes) for nodes in (1, 32, 33)]
    [1, 1, 3]
    """
    level = total = -(-nodes // FAN_IN)
    while level > 1:
        level = -(-level // FAN_IN)
        total += level
    return total


def size(folds: int, ranges: int, tasks: int = MOST_TASKS) -> tuple[int, int]:
    """Number of split tasks and of merges of `exchange`.

    Examples
    --------
    >>> size(8, 4), size(1600, 1000)
    ((32, 4), (92800, 6960))
    """
    if folds * ranges <= tasks or ranges < 4:
        return folds * ranges, ranges * merges(folds)
    step, near = _steps(folds, ranges)
    groups = [min(near, folds - i) for i in range(0, folds, near)]
    coarse = [min(step, ranges - i) for i in range(0, ranges, step)]
    parts = [size(group, len(coarse), tasks) for group in groups] + [size(len(groups), fine, tasks) for fine in coarse]
    return sum(splits for splits, _ in parts), sum(joins for _, joins in parts)


def count_tasks(folds: int, ranges: int) -> Counter[str]:
    """Number of tasks by name that create the ranges.

    Examples
    --------
    >>> dict(count_tasks(8, 2))
    {'open': 1, 'fold': 8, 'outline': 8, 'merge': 3, 'split': 16}
    """
    splits, joins = size(folds, ranges)
    return Counter(open=1, fold=folds, outline=folds, merge=merges(folds) + joins, split=splits)


def _steps(folds: int, ranges: int) -> tuple[int, int]:
    """Number of fine ranges per coarse range, and of fold tasks per group."""
    return math.isqrt(ranges), max(FAN_IN, math.isqrt(folds))


def _split(folds: Nodes, cut: Cut, key: Key, *numbers: int) -> list[Delayed]:
    split = task(work.split, intervals=cut)
    return [split(fold, dask_key_name=key("split", *numbers, i)) for i, fold in enumerate(folds)]


def _hull(cuts: Sequence[Cut]) -> Cut:
    """The buckets that adjacent ranges span together."""
    hulls = {}
    for spec in cuts[0]:
        filled = [cut[spec] for cut in cuts if cut[spec][0] < cut[spec][1]] or [(0, 0)]
        hulls[spec] = min(start for start, _ in filled), max(stop for _, stop in filled)
    return hulls
