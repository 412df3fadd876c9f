"""Rounds and ranges: work in several visits, and states distributed over many workers.

Keyed rows are visited in several rounds, each of which may hand rows on, under other keys, to the next one. A *round*
visits intervals of its buckets independently, in any order, on threads or on workers. It gives a value for each
interval; where it `hands_on`, also the rows that the interval contributes to the next round. Merged, these are the next
round. `run` does all rounds in this process; `streameval.engine.cluster` does them on workers, between which an
exchange moves the rows.

A *range* is the part of a keyed state that one of many workers holds. A state consists of a few small facts and of
`KeyedCounts`, which grow with the data. Every segment is partitioned by the same buckets, so a state splits into ranges
of buckets without reading a row, and the ranges of many states merge independently. Finalizing a range needs, besides
its rows, only the *outline* of the full state: rows, items and weights of each code, a few megabytes for data of any
size.

::

    state  ─► outline = outline_only(state)       outlines of all tasks merge into the outline of the full state
           ─► rows = ranged(state.runs(), buckets)    ranges of all tasks merge independently
    restored(outline, rows)                       is the full state, restricted to that range

The parts of all shards of all restored ranges are the parts of all shards of the full state; a property test checks
this. Ranges work for anything with `runs` and `with_runs`, such as the cells between the two passes over a contingency
table. A state without keyed counts is its own outline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.layout import Interval, cut

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.protocol import State, StoredSpec
    from streameval.typing import Array

    T = TypeVar("T")
    R = TypeVar("R")
    K = TypeVar("K", State, "Round")


Mapper = Callable[[Callable[[Any], Any], Sequence[Any]], Sequence[Any]]  # takes a function and items

Rows = Mapping[str, KeyedCounts]  # the keyed counts of a state, by name


class Round(Protocol):
    """Keyed rows, and how to visit them.

    Attributes
    ----------
    name : name of its tasks
    hands_on : whether another round follows
    """

    name: ClassVar[str]

    @property
    def hands_on(self) -> bool:
        """Whether another round follows."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""

    def with_runs(self, runs: Mapping[str, KeyedCounts], /) -> Self:
        """The same round over other rows."""

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of all buckets, or of those in `within`, that can be visited independently; at least one."""

    def visit(self, interval: Interval, budget: Budget) -> tuple[object, Round | None]:
        """The value of an interval, and the rows that it hands on."""


class FirstRound(Round, Protocol):
    """A round over the rows of a state."""

    @property
    def holder(self) -> StoredSpec:
        """The spec of the state that holds the rows."""


def one_by_one(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Map a function over items in this thread."""
    return [function(item) for item in items]


def merge(parts: Sequence[Round]) -> Round:
    """The round over the rows of all parts."""
    runs = [part.runs() for part in parts]
    return parts[0].with_runs({name: reduce(KeyedCounts.merge, (run[name] for run in runs)) for name in runs[0]})


def run(first: Round, budget: Budget, each: Mapper = one_by_one) -> list[list[Any]]:
    """Do all rounds in this process; returns the values of each. `each` maps a function over intervals."""
    current: Round | None = first
    values = []
    while current is not None:
        visits = each(partial(current.visit, budget=budget), current.intervals(budget))
        values.append([value for value, _ in visits])
        current = merge([part for _, part in visits]) if current.hands_on else None
        del visits  # they hold the rows of this round, which the next one does not need
        budget.release_freed()
    return values


def outline_only(state: K) -> K:
    """The state without its rows; it still has totals and shards, and merges with other outlines."""
    return state.with_runs({name: counts.outline_only() for name, counts in state.runs().items()})


def select_range(rows: Rows, interval: Interval) -> Rows:
    """The rows of an interval of buckets."""
    return {name: counts.range(*interval) for name, counts in rows.items()}


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Merge the rows of several tasks in the same buckets; at least one."""
    return {name: reduce(KeyedCounts.merge, (part[name] for part in parts)) for name in parts[0]}


def restore_state(outline: K, rows: Rows) -> K:
    """The state with this outline and the rows of a range."""
    return outline.with_runs({name: rows[name].within(counts) for name, counts in outline.runs().items()})


def nbytes(state: State | Round) -> int:
    """Bytes of the rows, in memory, spilled or remote."""
    return sum(counts.outline.nbytes for counts in state.runs().values())


def row_bytes(state: State | Round) -> int:
    """Upper bound of the bytes of a row; 0 if the state does not grow with the rows.

    A row lies in one of the keyed counts of a state, so the bound is the size of a row in the widest of them; but those
    of every row have it as well.

    Examples
    --------
    >>> from streameval.states.scores.counts import ScoreSpec
    >>> row_bytes(ScoreSpec("score").empty()), row_bytes(ScoreSpec("score", "f8", weighted=True).empty())
    (2, 16)
    """
    layouts = {name: counts.layout for name, counts in state.runs().items()}
    sizes = {name: each.dtype.itemsize + 8 * (each.words - 1 + each.weighted) for name, each in layouts.items()}
    return sizes.pop("every", 0) + max(sizes.values(), default=0)


def buckets(outline: State | Round) -> list[Interval]:
    """Shards of a keyed state: buckets of about a million items, at least one."""
    return cut(_items(outline), SLAB) or [(0, 0)]


def balance_ranges(
    outline: State | Round, shards: Sequence[Interval], count: int
) -> list[tuple[Interval, list[Interval]]]:
    """Combine shards into at most `count` ranges with about equal numbers of items.

    Parameters
    ----------
    outline : the outline of the full state
    shards : ascending and disjoint; together they hold every row
    count : largest number of ranges

    Returns
    -------
    list of (range, shards in it)

    Examples
    --------
    >>> from streameval.states.scores.counts import fold_arrays
    >>> state = fold_arrays(np.array([0, 1, 1], np.uint8), np.array([0.1, 0.5, 0.9]))
    >>> shards = state.keyed.intervals(items=1)
    >>> [len(part) for _, part in balance_ranges(state, shards, 2)]
    [1, 2]
    """
    before = np.concatenate(([0], np.cumsum(_items(outline))))
    middle = np.array([before[a] + before[b] for a, b in shards])
    group = np.minimum(middle * count // max(2 * int(before[-1]), 1), count - 1)
    firsts = [*np.flatnonzero(np.diff(group, prepend=-1)).tolist(), len(shards)]
    parts = [list(shards[a:b]) for a, b in pairwise(firsts)]
    return [((part[0][0], part[-1][1]), part) for part in parts]


def _items(outline: State | Round) -> Array:
    """Items of each bucket, over all keyed counts of a state, which share their buckets."""
    each: list[Array] = [counts.items[0::2] + counts.items[1::2] for counts in outline.runs().values()]
    total: Array = np.add.reduce(each)
    return total
