"""Grouped: a state split by a key, the common combinator for slices, resampling blocks and nights.

``total()`` is the state of all rows, ``only(g)`` that of one group and ``without(g)`` that of all other groups. Each is
equal, bit for bit, to the state that the inner spec folds from those rows.

States with counts by key, of scores, clusters, and clusters against classes, keep the rows of all groups in one table,
with a tag in each row (`streameval.states.grouped.tagged`). States without, such as histograms, are dense arrays, and
each group has its own (`DenseGroups`). States are compared by their canonical table, with groups in the order of their
hashes.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import OptionError
from streameval.kernels.groups import order_rows
from streameval.states.grouped.keys import Group, Key, Split, rank
from streameval.states.grouped.table import GroupTable, inner_facts, with_group
from streameval.states.protocol import Batch, Small, Spec, SplitSpec, Stored, Totals, merge_all, mergeable
from streameval.states.rounds import Mapper, one_by_one
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.protocol import Builder, Header, Source, State
    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class Grouped(Small, Stored):
    """A state split by a key; it is sent between workers as a whole, because its groups do not share buckets.

    Attributes
    ----------
    spec : GroupedSpec
    """

    spec: Any

    @abstractmethod
    def _group_names(self) -> Iterable[bytes]:
        """The name of each group, in any order."""

    @abstractmethod
    def _chosen(self, names: Collection[bytes], budget: Budget | None) -> State:
        """The inner state of the groups with these names, which all exist."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Groups of both inputs; groups with equal names are merged."""

    @abstractmethod
    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""

    @cached_property
    def named(self) -> Mapping[Group, bytes]:
        """The name of each group, in the order of `groups`."""
        groups = [(self.spec.key.group(name), name) for name in self._group_names()]
        return dict(sorted(groups, key=lambda pair: rank(pair[0])))

    def groups(self) -> tuple[Group, ...]:
        """All groups with rows, ascending, null last: tuples of values for `By`, block numbers for `Blocks`."""
        return tuple(self.named)

    def total(self, budget: Budget | None = None) -> Source:
        """The inner state of all rows."""
        return self._chosen(self.named.values(), budget)

    def only(self, group: Group, budget: Budget | None = None) -> State:
        """The inner state of one group; empty if the group does not exist."""
        return self._chosen({self.named[group]} if group in self.named else (), budget)

    def without(self, *groups: Group, budget: Budget | None = None) -> State:
        """The inner state of all other groups."""
        left_out = set(groups)
        return self._chosen({name for group, name in self.named.items() if group not in left_out}, budget)

    def several(self, groups: Sequence[Group], budget: Budget | None = None, each: Mapper = one_by_one) -> list[State]:
        """The inner states of some groups; empty for groups that do not exist. `each` maps a function over shards."""
        return [self.only(group, budget) for group in groups]

    def each_without(self, groups: Sequence[Group]) -> Iterator[State]:
        """For each of some groups, the inner state of all rows outside it.

        The groups are halved recursively, so n groups take O(n log n) merges.
        """
        yield from _each_without(self.without(*groups), [self.only(group) for group in groups])

    def totals(self) -> Totals:
        """Rows and weights of both classes, over all groups."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        totals: Totals = self.total().totals()
        return totals

    def header(self) -> Header:
        """The inner spec and the key."""
        inner = self.spec.inner
        fields = {"kind": inner.kind, "version": inner.version, "spec": asdict(inner)}
        return {"spec": {"inner": fields, "key": self.spec.key.fields()}}


def _each_without(others: State, states: list[State]) -> Iterator[State]:
    """For each of some states, the merge of `others` and all other states."""
    if len(states) < 2:
        yield from [others] * len(states)
        return
    first, second = states[: len(states) // 2], states[len(states) // 2 :]
    yield from _each_without(merge_all([others, *second]), first)
    yield from _each_without(merge_all([others, *first]), second)


@dataclass(frozen=True, eq=False)
class DenseGroups(Grouped):
    """Groups of a dense state, such as a histogram.

    Attributes
    ----------
    states : the inner state of each group, by name
    """

    states: Mapping[bytes, State]

    def _group_names(self) -> Iterable[bytes]:
        return self.states

    @cached_property
    def _totals(self) -> Totals:
        """Rows are added up; weights are those of the merged states, to the last bit."""
        each = [state.totals() for state in self.states.values()]
        if not each or any(one.weighted for one in each):
            totals: Totals = self.total().totals()
            return totals
        neg, pos = sum(one.neg for one in each), sum(one.pos for one in each)
        return Totals(neg, pos, float(neg), float(pos))

    def _chosen(self, names: Collection[bytes], budget: Budget | None) -> State:
        states = [self.states[name] for name in sorted(names)]  # in this order, so that sums are reproducible
        return merge_all(states) if states else self.spec.inner.empty()

    def _under(self, empty: State) -> DenseGroups:
        states = {name: state.merge(empty) for name, state in self.states.items()}
        return DenseGroups(replace(self.spec, inner=empty.spec), states)

    def merge(self, other: DenseGroups) -> DenseGroups:
        """Groups of both inputs; groups with equal names are merged."""
        if isinstance(other, DenseGroups) and self.spec.inner != other.spec.inner:
            common = self.spec.inner.empty().merge(other.spec.inner.empty())  # raises if inner states do not merge
            return self._under(common).merge(other._under(common))
        mergeable(self, other)
        states = dict(self.states)
        for name, state in other.states.items():
            states[name] = states[name].merge(state) if name in states else state
        return DenseGroups(self.spec, states)

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""
        empty, schema = inner_facts(self.spec.inner), self.spec.schema
        headers = [state.header() for state in self.states.values()]
        facts = np.array(
            [[side for name in empty for side in cast("list[float]", header[name])] for header in headers], np.float64
        )
        width = sum(map(len, empty.values()))
        table = GroupTable.of(pa.array(self.states, pa.large_binary()), facts.reshape(-1, width))
        yield from table.rows(schema)
        for name in table.names.to_pylist():
            for batch in self.states[name].to_arrow():
                names = pa.array([name], pa.large_binary()).take(pa.array(np.zeros(len(batch), np.int64)))
                yield from with_group(names, batch, schema)

    def __sizeof__(self) -> int:
        """Bytes in memory."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.states.values()))


class DenseSpec(Spec, Protocol):
    """A spec of dense states.

    Attributes
    ----------
    slice_remedy : what to do if the states of all slices do not fit into memory
    """

    slice_remedy: ClassVar[str]

    def group_bytes(self, rows: Collection[int]) -> int:
        """Bytes of the states of some groups and of their builders, from the number of rows of each."""


class DenseBuilder:
    """Builder of `DenseGroups`, with a builder for each group; owned by one task.

    Parameters
    ----------
    spec : GroupedSpec of a `DenseSpec`
    budget : Budget
    capacity : int
        Number of rows that are collected at a time, over all groups.
    """

    def __init__(self, spec: SplitSpec, budget: Budget, capacity: int) -> None:
        self._spec, self._budget, self._capacity = spec, budget, capacity
        self._inner: DenseSpec = spec.inner
        self._key: Key = spec.key
        self._builders: dict[bytes, Builder] = {}
        self._rows: dict[bytes, int] = {}  # of each group

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        split = self._key.split(batch)
        self._key.check(max(len(split.names), len(self._builders)), split.names.to_pylist, more=True)
        if not len(split.names):
            return
        self._check_room(split)
        slots = self._slots(split.names)
        builders = list(self._builders.values())
        if len(slots) == 1:
            builders[slots[0]].update(batch)
            return
        order, starts = order_rows(slots[split.codes], len(builders))
        moved = batch.taken(order, self._inner.columns)
        for slot, (a, b) in enumerate(pairwise(starts.tolist())):
            if a < b:
                builders[slot].update(_part(moved, a, b))

    def _check_room(self, split: Split) -> None:
        """Raise `OptionError` if the states of the groups so far would not fit into the budget."""
        names = split.names.to_pylist()
        for name, rows in zip(names, np.bincount(split.codes, minlength=len(names)).tolist(), strict=True):
            self._rows[name] = self._rows.get(name, 0) + rows
        needed, limit = self._inner.group_bytes(self._rows.values()), self._budget.limit
        if len(self._rows) > 1 and needed > limit:
            slices = f"by={','.join(self._key.columns)!r}: {plural(len(self._rows), 'slice')} or more"
            taken = f"take {needed >> 20:,} MiB, and states may take {limit >> 20:,}"
            raise OptionError(f"{slices} {taken}; {self._inner.slice_remedy}", "by")

    def _slots(self, names: pa.Array) -> Array:
        """Index of the builder of each group, as an int64 array."""
        known = pa.array(self._builders, pa.large_binary())
        slots: Array = pc.fill_null(pc.index_in(names, value_set=known), -1).to_numpy().astype(np.int64)
        for new in np.flatnonzero(slots < 0).tolist():
            slots[new], name = len(self._builders), names[new].as_py()
            self._builders[name] = self._inner.builder(self._budget, min(self._capacity, self._rows[name]))
        return slots

    def state(self) -> DenseGroups:
        """The state of everything folded; the builder must not be used afterwards."""
        return DenseGroups(self._spec, {name: self._builders.pop(name).state() for name in list(self._builders)})


def _part(batch: Batch, a: int, b: int) -> Batch:
    """Consecutive rows of a batch, without copying."""
    weight = None if batch.weight is None else batch.weight[a:b]
    columns = {name: column.slice(a, b - a) for name, column in batch.columns.items()}
    kept, labelled = (None if values is None else values[a:b] for values in (batch.kept, batch.labelled))
    return replace(batch, label=batch.label[a:b], weight=weight, columns=columns, kept=kept, labelled=labelled)
