"""Small tables: the summaries of many small contingency tables, each of which would take milliseconds on its own.

The rows of many groups are read together and sorted by group. One compiled loop then numbers the clusters of all
groups, one their classes, and one their cells, so that all that is left to do for a group is to add up its cells. A
null id that counts as a singleton gets an identity that no other row has.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streameval.kernels.keys import unmix
from streameval.states.contingency.cells import Keys, numbered
from streameval.states.contingency.counts import SummarisedCounts
from streameval.states.contingency.summary import Summary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.keys import Group
    from streameval.states.grouped.tagged import TaggedGroups
    from streameval.states.protocol import State
    from streameval.states.rounds import Mapper
    from streameval.typing import Array

_MOST = 1 << 15  # rows of a small table; a larger one takes as long on its own
_SLAB = 1 << 18  # rows that are read together
_SHARE = 1 << 9  # bytes of the budget for each of them


def tables(grouped: TaggedGroups, groups: Sequence[Group], each: Mapper, budget: Budget) -> list[State]:
    """The inner states of some groups, as `Grouped.several`; small tables come summarised."""
    if "tables" not in grouped.cache:
        grouped.cache["tables"] = small_tables(grouped, budget, each)
    small, names = grouped.cache["tables"], [grouped.named.get(group, b"") for group in groups]
    missing = [group for group, name in zip(groups, names, strict=True) if name not in small]
    others = iter(grouped.several(missing, budget, each) if missing else ())
    return [small[name] if name in small else next(others) for name in names]


def small_tables(grouped: TaggedGroups, budget: Budget, each: Mapper) -> dict[bytes, SummarisedCounts]:
    """The tables that have few rows, by name.

    Parameters
    ----------
    grouped : groups of a `ContingencySpec`
    budget : decides how many rows are read together
    each : maps a function over stretches of tables
    """
    table, keys, empty = grouped.table, grouped.spec.inner.keys, grouped.spec.inner.empty()
    room = max(1, min(_SLAB, budget.limit // _SHARE))
    rows = table.facts[:, :2].sum(axis=1)
    places = np.flatnonzero(rows <= min(_MOST, room))
    if not places.size:
        return {}
    marks = np.zeros(len(table), np.bool_)
    marks[places] = True
    ordered = grouped.by_group(marks, budget)
    stretch = ((np.cumsum(rows[places]) - rows[places]) // room).astype(np.int64)
    bounds = np.flatnonzero(np.diff(stretch, prepend=-1, append=-1)).tolist()

    def summarise(some: Array) -> list[SummarisedCounts]:
        number = np.full(len(table), -1)
        number[some] = np.arange(some.size)
        facts = table.facts[some].astype(np.int64)
        states = (replace(empty, label_rows=own[:2], dropped_rows=own[2:]) for own in facts)
        parts = list(ordered.of(int(some[0]), int(some[-1])))
        nothing = np.empty(0, np.int64)
        none = nothing, np.empty((0, 1 + sum(keys)), np.uint64), nothing.astype(np.uint32), nothing
        groups, words, side, counts = map(np.concatenate, zip(none, *parts, strict=True))
        summaries = _summaries(number[groups], words, side, counts, keys, some.size)
        return [SummarisedCounts(*pair) for pair in zip(states, summaries, strict=True)]

    stretches = [places[a:b] for a, b in pairwise(bounds)]
    tables = (one for some in each(summarise, stretches, "tables") for one in some)
    return dict(zip(table.names.take(pa.array(places)).to_pylist(), tables, strict=True))


def _summaries(table: Array, words: Array, side: Array, counts: Array, keys: Keys, tables: int) -> Iterator[Summary]:
    """The summary of each table.

    Parameters
    ----------
    table : int64 array of shape (n_rows,), the number of the table of each row; rows of negative tables are left out
    words, side, counts : the rows, as `OrderedGroups.of` yields them
    """
    here = np.flatnonzero(table >= 0)
    single = (words[here, 0] == 1) | (side[here] == 1)  # without a cluster, or without a class: each row is alone
    at = np.repeat(here, np.where(single, counts[here], 1))
    at = at[np.argsort(table[at], kind="stable")]
    table, words, no_cluster, no_class = table[at], words[at, 1:], words[at, 0] == 1, side[at] == 1
    counts = np.where(no_cluster | no_class, 1, counts[at])
    starts = np.searchsorted(table, np.arange(tables + 1))
    clusters, classes = words[:, : keys.cluster], words[:, keys.cluster :]
    mixed = np.column_stack((unmix(classes[:, 0]), classes[:, 1:]))  # without a cluster, the class is the first word
    classes = np.where(no_cluster[:, None], mixed, classes)
    cluster, of_cluster = _numbered(starts, clusters, no_cluster)
    class_, of_class = _numbered(starts, classes, no_class)
    cell, of_cell = _numbered(starts, np.column_stack((cluster, class_)).view(np.uint64), np.zeros(0, np.bool_))
    sums = np.zeros(of_cell.size, np.int64)
    np.add.at(sums, cell, counts)
    cluster, class_ = cluster[of_cell], class_[of_cell]
    first = [np.searchsorted(of, starts).tolist() for of in (of_cell, of_cluster, of_class)]
    for (a, b), column, row in zip(pairwise(first[0]), first[1], first[2], strict=False):
        yield summarize(class_[a:b] - row, cluster[a:b] - column, sums[a:b])


def _numbered(starts: Array, words: Array, alone: Array) -> tuple[Array, Array]:
    """Numbers of the ids of each row, ascending by table, and the first row of each; rows that are alone share none."""
    if alone.any():
        own = np.where(alone, np.arange(1, alone.size + 1), 0).astype(np.uint64)
        words = np.column_stack((np.where(alone[:, None], np.uint64(0), words), own))
    return numbered(starts, np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1:]), words.shape[1] - 1)
