"""Exchange: a shuffle that turns the rows of fold tasks into ranges of the merged states.

F fold tasks and R ranges need F·R split tasks and R merges. A task costs the scheduler about a millisecond, so a large
exchange has two levels: groups of fold tasks exchange coarse ranges first, then each coarse range is exchanged into
fine ranges. This takes about F·√R + R·√F tasks instead of F·R. `size` counts them, so that a run can be planned with at
most `MOST_TASKS`.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import dask

from streameval.engine.cluster import work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.states.keyed.layout import Interval

    Cut = Mapping[Any, Interval]  # the buckets of each state in one range

FAN_IN = 32  # largest number of results that a task merges
MOST_TASKS = 100_000  # largest number of tasks of a run, and of split tasks of a level


def tree(nodes: Sequence[Any], merge: Callable[[Any], Any], key: Callable[..., str], *numbers: int) -> Any:
    """Merge nodes as a tree of bounded fan-in; returns its root."""
    join = dask.delayed(merge, pure=False)
    level, depth = list(nodes), 0
    while len(level) > 1 or not depth:
        depth += 1
        groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
        level = [join(group, dask_key_name=key("merge", *numbers, depth, i)) for i, group in enumerate(groups)]
    return level[0]


def exchange(
    folds: Sequence[Any], cuts: Sequence[Cut], key: Callable[..., str], *numbers: int, tasks: int = MOST_TASKS
) -> list[Any]:
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
    ranges: list[Any] = []
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


def _split(folds: Sequence[Any], cut: Cut, key: Callable[..., str], *numbers: int) -> list[Any]:
    split = dask.delayed(partial(work.split, intervals=cut), pure=False)
    return [split(fold, dask_key_name=key("split", *numbers, i)) for i, fold in enumerate(folds)]


def _hull(cuts: Sequence[Cut]) -> Cut:
    """The buckets that adjacent ranges span together."""
    hulls = {}
    for spec in cuts[0]:
        filled = [cut[spec] for cut in cuts if cut[spec][0] < cut[spec][1]] or [(0, 0)]
        hulls[spec] = min(start for start, _ in filled), max(stop for _, stop in filled)
    return hulls
