"""Ranges: what lets a keyed state live on many workers, none of which holds the whole.

A state is a few small facts and its `Runs`, which grow with the data. Every run is cut at the same buckets, so a state
falls apart into ranges of buckets without looking at a row, and ranges of many states merge on their own. What a range
must know of the rest, to finalize, is the *outline* of the whole: rows, items and weights of each code, a few
megabytes, whatever the data.

::

    state  ─► outline = hollow(state)        outlines of all tasks merge into that of the whole
           ─► rows = ranged(keyed(state), buckets)   ranges of all tasks merge, each on its own
    restored(outline, rows)                  is the whole state, as far as that range goes

So the parts of all shards of all restored ranges are the parts of all shards of the state: the second law of states
again, and tested with it. What holds for states holds for anything frozen with runs, such as the cells on their way
between the two passes over a contingency table. A state without runs is its own outline.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.states.keyed.counts import SLAB, Runs, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Array

__all__ = [
    "Rows",
    "balanced",
    "buckets",
    "hollow",
    "joined",
    "keyed",
    "nbytes",
    "ranged",
    "rebuilt",
    "restored",
    "row_bytes",
]

Rows = dict[str, Runs]  # the runs of a state, by attribute


def keyed(state: Any) -> Rows:
    """The runs of a state; none where it is small.

    Examples
    --------
    >>> from streameval.states.clusters.counts import ClusterSpec
    >>> list(keyed(ClusterSpec("cluster").empty()))
    ['runs']
    """
    found = ((field.name, getattr(state, field.name)) for field in fields(state))
    return {name: value for name, value in found if isinstance(value, Runs)}


def hollow(state: Any) -> Any:
    """The state without its rows: it knows its totals and shards, and merges with its like."""
    return _replaced(state, lambda _, runs: runs.hollow())


def ranged(rows: Rows, interval: Interval) -> Rows:
    """The rows of some buckets."""
    return {name: runs.range(*interval) for name, runs in rows.items()}


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several tasks in the same buckets."""
    return {name: reduce(Runs.merge, (part[name] for part in parts)) for name in parts[0]}


def rebuilt(state: Any, rows: Rows) -> Any:
    """The state with other rows."""
    return _replaced(state, lambda name, _: rows[name])


def restored(outline: Any, rows: Rows) -> Any:
    """The state that `outline` outlines, with the rows of a range."""
    return _replaced(outline, lambda name, runs: rows[name].within(runs))


def nbytes(state: Any) -> int:
    """Bytes of the rows, wherever they lie."""
    return sum(runs.outline.nbytes for runs in keyed(state).values())


def row_bytes(state: Any) -> int:
    """Bytes that a row of it takes at most, in each of its runs once; 0 where the state does not grow with the rows.

    Examples
    --------
    >>> from streameval.states.scores.counts import ScoreSpec
    >>> row_bytes(ScoreSpec("score").empty()), row_bytes(ScoreSpec("score", "f8", weighted=True).empty())
    (2, 16)
    """
    layouts = (runs.layout for runs in keyed(state).values())
    return sum(each.dtype.itemsize + 8 * (each.words - 1 + each.weighted) for each in layouts)


def buckets(outline: Any) -> list[Interval]:
    """Shards of a keyed state: buckets of about a million items, at least one."""
    return cut(_items(outline), SLAB) or [(0, 0)]


def balanced(outline: Any, shards: Sequence[Interval], count: int) -> list[tuple[Interval, list[Interval]]]:
    """Gather shards into at most `count` ranges of about equal numbers of items.

    Parameters
    ----------
    outline : the whole state
    shards : ascending and apart, every row in one of them
    count : number of ranges

    Returns
    -------
    list of (range, its shards)

    Examples
    --------
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.5, 0.9]))
    >>> shards = state.runs.intervals(items=1)
    >>> [len(part) for _, part in balanced(state, shards, 2)]
    [1, 2]
    """
    before = np.concatenate(([0], np.cumsum(_items(outline))))
    middle = np.array([before[a] + before[b] for a, b in shards])
    group = np.minimum(middle * count // max(2 * int(before[-1]), 1), count - 1)
    firsts = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(shards)]
    parts = [list(shards[a:b]) for a, b in pairwise(firsts)]
    return [((part[0][0], part[-1][1]), part) for part in parts]


def _items(outline: Any) -> Array:
    """Items of each bucket, over all runs of a state: they have the same buckets."""
    each: list[Array] = [runs.items[0::2] + runs.items[1::2] for runs in keyed(outline).values()]
    total: Array = np.add.reduce(each)
    return total


def _replaced(state: Any, change: Callable[[str, Runs], Runs]) -> Any:
    changed: dict[str, Any] = {name: change(name, runs) for name, runs in keyed(state).items()}
    return replace(state, **changed) if changed else state
