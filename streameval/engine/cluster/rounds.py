"""Rounds on a cluster (`streameval.states.rounds`): visits on the workers that hold the rows, exchanges between them.

Each worker visits the ranges that it holds. An exchange moves the rows that a round hands on into the ranges of the
next one, for which the client needs their outline alone. A single worker takes the values of all rounds and finishes::

    range of a state ─► clusters-r ─► split-r-q ─► merge-q ─► classes-q ─► … ─► matching-q
                           │                                     │                  │
                           └─► outline-r ────────────────────────┴──────────────────┴──► finish
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import dask

from streameval.engine.cluster.connection import key_factory
from streameval.engine.cluster.folds import MOST_TASKS, exchange, size
from streameval.states.keyed.ranges import balanced, buckets, outline_only, restored
from streameval.states.rounds import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine.cluster.connection import Connection
    from streameval.engine.cluster.work import Resources
    from streameval.states.keyed.layout import Interval
    from streameval.states.keyed.ranges import Rows
    from streameval.states.rounds import FirstRound, Round

    T = TypeVar("T")

SPLITS = MOST_TASKS // 8  # largest number of split tasks of a level: a table may need two exchanges of cells

_ROWS = "rows"  # key of the rows that the exchange moves


def visit(
    ranges: Mapping[Any, Rows], key: Any, outline: Round, interval: Interval, resources: Resources
) -> tuple[tuple[list[Any], Round | None], dict[str, Rows]]:
    """On a worker: visit the rows of a range; returns the values with the outline of what it hands on, and the rows."""
    here = restored(outline, ranges[key])
    visits = [here.visit(part, resources.budget) for part in here.intervals(resources.budget, interval)]
    values = [value for value, _ in visits]
    if not outline.hands_on:
        return (values, None), {}
    handed = merge([part for _, part in visits])
    return (values, outline_only(handed)), {_ROWS: handed.runs()}


def outline(visited: tuple[Any, Any]) -> Any:
    """On a worker: the result of a visit without its rows."""
    return visited[0]


def finished(rounds: Sequence[Sequence[tuple[list[Any], Any]]], finish: Callable[[list[list[Any]]], T]) -> T:
    """On a worker: the result of all rounds."""
    return finish([[value for values, _ in visits for value in values] for visits in rounds])


def rounds(
    connection: Connection,
    first: FirstRound,
    futures: Sequence[Any],
    shards: Sequence[Sequence[Interval]],
    resources: Resources,
    finish: Callable[[list[list[Any]]], T],
) -> T:
    """Do all rounds on the workers.

    Parameters
    ----------
    connection : the client
    first : outline of the first round
    futures : for each range, its rows by spec
    shards : the shards in each range that has rows of the first round
    resources : memory and spill settings of the workers
    finish : takes the values of each round
    """
    rows, at = futures, first.holder
    current: Round = first
    intervals = [(part[0][0], part[-1][1]) for part in shards]
    results: list[list[Any]] = []
    while True:
        key = key_factory()
        one = _task(visit, key=at, outline=current, resources=resources)
        nodes = [
            one(part, interval=cut, dask_key_name=key(current.name, r))
            for r, (part, cut) in enumerate(zip(rows, intervals, strict=False))
        ]
        brief = [_task(outline)(node, dask_key_name=key("outline", r)) for r, node in enumerate(nodes)]
        if not current.hands_on:
            results.append(brief)
            last = _task(finished, finish=finish)(results, dask_key_name=key("finish"))
            result: T = connection.gather(connection.submit([last]))[0]
            return result
        made = connection.submit([part for pair in zip(nodes, brief, strict=True) for part in pair])
        results.append(made[1::2])
        current = merge([handed for _, handed in connection.gather(made[1::2])])
        intervals = [cut for cut, _ in balanced(current, buckets(current), len(nodes))]
        rows, at = exchange(made[0::2], [{_ROWS: cut} for cut in intervals], key, tasks=SPLITS), _ROWS


def _task(function: Callable[..., Any], **given: Any) -> Any:
    return dask.delayed(partial(function, **given), pure=False)


def count_table_tasks(ranges: int, *, matched: bool) -> Counter[str]:
    """Upper bound of the number of tasks of a table, by name, as later rounds may need fewer ranges than the first.

    Examples
    --------
    >>> count_table_tasks(2, matched=False)
    Counter({'outline': 4, 'split': 4, 'clusters': 2, 'merge': 2, 'classes': 2, 'finish': 1})
    """
    splits, merges = size(ranges, ranges, SPLITS)
    splits = max(splits, min(ranges * ranges, SPLITS))
    each = Counter(clusters=ranges, outline=2 * ranges, split=splits, merge=merges, classes=ranges, finish=1)
    if matched:
        each += Counter(outline=ranges, split=splits, merge=merges, matching=ranges)
    return each
