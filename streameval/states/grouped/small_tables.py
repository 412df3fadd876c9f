"""Small tables: the summaries of many small contingency tables, each of which would take milliseconds on its own.

The rows of many groups are read together and sorted by group. One compiled loop then numbers the clusters of all
groups, one their classes, and one their cells, so that all that is left to do for a group is to add up its cells. A
null id that counts as a singleton gets an identity that no other row has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.kernels.keys import unmix
from streameval.states.contingency.cells import numbered
from streameval.states.contingency.counts import SummarisedCounts
from streameval.states.contingency.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.contingency.cells import Keys
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.states.contingency.summary import Summary
    from streameval.states.mapping import Mapper
    from streameval.typing import Array

_MOST = 1 << 15  # rows of a small table; a larger one takes as long on its own
_SLAB = 1 << 18  # rows that are read together
_SHARE = 1 << 9  # bytes of the budget for each of them


class _Rows(NamedTuple):
    """Rows of several tables.

    Attributes
    ----------
    tables : int64 array of shape (n,), the table of each row
    words : uint64 array of shape (n, n_words), of the cluster, then of the class
    counts : int64 array of shape (n,), rows that each stands for
    no_cluster, no_class : bool arrays of shape (n,)
    """

    tables: Array
    words: Array
    counts: Array
    no_cluster: Array
    no_class: Array


@dataclass(frozen=True, eq=False)
class SmallTables:
    """The small tables of a grouped state.

    Attributes
    ----------
    grouped : Grouped, of a `ContingencySpec`; its file imports this one
    budget : decides how many rows are read together
    """

    grouped: Any
    budget: Budget

    def tables(self, each: Mapper) -> dict[bytes, SummarisedCounts]:
        """The tables that have few rows, by name; `each` maps a function over stretches of tables."""
        composite, names = self.grouped.composite, self.grouped.composite.table.names.to_pylist()
        others = self._others()
        rows = composite.table.facts[:, :2].sum(axis=1)
        places = np.flatnonzero((rows <= self._most) & ~composite.marked(others))
        stretches = [places[a:b] for a, b in self._cut(rows[places])]
        found = {names[place]: one for place, one in _mapped(each, self._of_composite, stretches)}
        small = {name for name, rows in others.items() if rows <= self._most}
        groups = [group for group, name in self.grouped.named.items() if name in small]
        states = self.grouped.several(groups, self.budget, each)
        pairs = [
            (self.grouped.named[group], state)
            for group, state in zip(groups, states, strict=True)
            if not state.without_cluster.rows.any()
        ]
        cuts = self._cut(np.array([others[name] for name, _ in pairs]))
        found |= {name: one for (name, _), one in _mapped(each, self._of_states, [pairs[a:b] for a, b in cuts])}
        return found

    def _others(self) -> dict[bytes, float]:
        """Rows of the groups that are not, or not only, composite, by name."""
        rows = {name: float(state.label_rows.sum()) for name, state in self.grouped.apart.items()}
        tables = [self.grouped.interleaved.table] if self.grouped.interleaved else []
        for table in (*tables, self.grouped.composite.table):
            for name, more in zip(table.names.to_pylist(), table.facts[:, :2].sum(axis=1).tolist(), strict=True):
                if name in rows or table in tables:
                    rows[name] = rows.get(name, 0.0) + more
        return rows

    @property
    def _most(self) -> int:
        """Largest number of rows of a small table."""
        return min(_MOST, self._room)

    @property
    def _room(self) -> int:
        """Number of rows that are read together."""
        return max(1, min(_SLAB, self.budget.limit // _SHARE))

    def _cut(self, rows: Array) -> list[tuple[int, int]]:
        """Stretches of tables, given their rows, with about as many rows as there is room for."""
        stretch = ((np.cumsum(rows) - rows) // self._room).astype(np.int64)
        bounds = np.flatnonzero(np.diff(stretch, prepend=-1, append=-1)) if rows.size else ()
        return list(pairwise(np.asarray(bounds).tolist()))

    def _of_composite(self, places: Array) -> list[SummarisedCounts]:
        """The tables at some places of the composite groups, ascending."""
        composite, keys = self.grouped.composite, self.grouped.spec.inner.keys
        number = np.full(len(composite.table), -1)
        number[places] = np.arange(places.size)
        parts = [
            _Rows(number[at], words[:, 1:], _ones(counts, at.size), words[:, 0] == 1, side == 1)
            for at, words, side, counts, _ in composite.unsorted(number >= 0)
        ]
        return self._made(_joined(parts, sum(keys)), composite.table.facts[places])

    def _of_states(self, pairs: Sequence[tuple[bytes, ContingencyCounts]]) -> list[SummarisedCounts]:
        """The tables of some states."""
        parts = [part for number, (_, state) in enumerate(pairs) for part in _rows_of(state, number)]
        facts = np.array([[*state.label_rows, *state.dropped_rows] for _, state in pairs])
        return self._made(_joined(parts, sum(self.grouped.spec.inner.keys)), facts)

    def _made(self, rows: _Rows, facts: Array) -> list[SummarisedCounts]:
        """Summarised tables without their rows, with these facts."""
        empty, sides = self.grouped.spec.inner.empty(), facts.astype(np.int64)
        return [
            SummarisedCounts(replace(empty, label_rows=own[:2], dropped_rows=own[2:]), summary)
            for own, summary in zip(sides, _summaries(rows, self.grouped.spec.inner.keys, len(facts)), strict=True)
        ]


def _mapped(each: Mapper, function: Callable[[Any], list[Any]], stretches: Sequence[Any]) -> Iterator[Any]:
    """Each item of the stretches with its result."""
    for some, found in zip(stretches, each(function, stretches, "tables"), strict=True):
        yield from zip(some, found, strict=True)


def _rows_of(state: ContingencyCounts, number: int) -> Iterator[_Rows]:
    """The rows of a state."""
    for interval in state.cells.intervals():
        for codes, starts, (words, rest, counts, _) in state.cells.slabs(interval):
            no_class = np.repeat(codes & np.uint32(1), np.diff(starts)) == 1
            every = np.column_stack((words, rest)), _ones(counts, words.size), np.zeros(words.size, np.bool_)
            yield _Rows(np.full(words.size, number), *every, no_class)


def _ones(counts: Array, rows: int) -> Array:
    return counts if counts.size else np.ones(rows, np.int64)


def _joined(parts: Sequence[_Rows], words: int) -> _Rows:
    """All rows, sorted by table; singletons are rows of their own."""
    nothing = np.empty(0, np.int64)
    none = _Rows(nothing, np.empty((0, words), np.uint64), nothing, nothing == 1, nothing == 1)
    rows = _Rows(*map(np.concatenate, zip(none, *parts, strict=True)))
    single = rows.no_cluster | rows.no_class
    order = np.argsort(np.repeat(rows.tables, np.where(single, rows.counts, 1)), kind="stable")
    at = np.repeat(np.arange(rows.tables.size), np.where(single, rows.counts, 1))[order]
    return _Rows(*(column[at] for column in rows))._replace(counts=np.where(single[at], 1, rows.counts[at]))


def _summaries(rows: _Rows, keys: Keys, tables: int) -> Iterator[Summary]:
    """The summary of each table."""
    starts = np.searchsorted(rows.tables, np.arange(tables + 1))
    clusters, classes = rows.words[:, : keys.cluster], rows.words[:, keys.cluster :]
    mixed = np.column_stack((unmix(classes[:, 0]), classes[:, 1:]))  # without a cluster, the class is the first word
    classes = np.where(rows.no_cluster[:, None], mixed, classes)
    cluster, of_cluster = _numbered(starts, clusters, rows.no_cluster)
    class_, of_class = _numbered(starts, classes, rows.no_class)
    cell, of_cell = _numbered(starts, np.column_stack((cluster, class_)).view(np.uint64), np.zeros(0, np.bool_))
    counts = np.zeros(of_cell.size, np.int64)
    np.add.at(counts, cell, rows.counts)
    cluster, class_ = cluster[of_cell], class_[of_cell]
    first = [np.searchsorted(of, starts).tolist() for of in (of_cell, of_cluster, of_class)]
    for (a, b), column, row in zip(pairwise(first[0]), first[1], first[2], strict=False):
        yield summarize(class_[a:b] - row, cluster[a:b] - column, counts[a:b])


def _numbered(starts: Array, words: Array, alone: Array) -> tuple[Array, Array]:
    """Numbers of the ids of each row, ascending by table, and the first row of each; rows that are alone share none."""
    if alone.any():
        own = np.where(alone, np.arange(1, alone.size + 1), 0).astype(np.uint64)
        words = np.column_stack((np.where(alone[:, None], np.uint64(0), words), own))
    return numbered(starts, np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1:]), words.shape[1] - 1)
