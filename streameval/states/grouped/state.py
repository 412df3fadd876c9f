"""Grouped: a state split by a key, the common combinator for slices, resampling blocks and nights.

``total()`` is the state of all rows, ``only(g)`` that of one group and ``without(g)`` that of all other groups. Each is
equal, bit for bit, to the state that the inner spec folds from those rows.

There are three layouts with one interface:

- *Interleaved*: the rows of all groups are in one table, with a code of the group in each row. Groups of scores are
  interleaved in the order of their scores (`streameval.states.grouped.interleaved_scores`), slices of clusters and of
  clusters against classes by cluster (`streameval.states.grouped.interleaved_clusters`,
  `streameval.states.grouped.interleaved_cells`).
- *Apart*: each group has its own inner state, folded at full speed. The first groups that a task meets are stored so
  if the state is not interleaved, or has more groups than one table can hold. States without counts by key, such as
  histograms, always stand apart.
- *Composite*: the rows of all further groups are in one `KeyedCounts` whose keys begin with a hash of the group
  (`streameval.states.grouped.composite`). This takes 16 more bytes a row and works for any number of groups.

The layout of a group depends on the order of the rows and on the budget, and changes no result: states are compared by
their canonical table, with groups in the order of their hashes.

Additional memory: the builder of a group apart takes about a megabyte, and all builders together at most a sixteenth of
the budget. Names and facts are stored for each group.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import FormatError, OptionError
from streameval.states.clusters.cell_words import MOST_BLOCKS
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.compatible import mergeable, same_table
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.facts import check_facts
from streameval.states.grouped.builder import APART, GroupedBuilder
from streameval.states.grouped.cluster_blocks import BlockedClusters, BlockedClustersBuilder
from streameval.states.grouped.cluster_sweep import ClusterSweep
from streameval.states.grouped.composite import CompositeGroups, inner_facts, inner_header, read_composite
from streameval.states.grouped.group_sweep import GroupSweep
from streameval.states.grouped.interleaved_clusters import InterleavedClusters
from streameval.states.grouped.interleaved_scores import Interleaved
from streameval.states.grouped.keys import Blocks, By, Group, rank, read_key
from streameval.states.grouped.rows import FORMS
from streameval.states.grouped.small_tables import SmallTables
from streameval.states.grouped.table import GroupTable, by_group, tagged
from streameval.states.mapping import one_by_one
from streameval.states.protocol import Small, SplitSpec
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.group_codes import CodedGroups
    from streameval.states.mapping import Mapper
    from streameval.states.protocol import Builder, Totals
    from streameval.typing import Array

_CHUNK = 64  # groups of a shard

INNER: dict[str, type[Any]] = {
    spec.kind: spec for spec in (ScoreSpec, HistogramSpec, BlockSpec, ClusterSpec, ContingencySpec)
}


def divisible(inner: Any) -> bool:
    """Whether states of a spec can be split.

    Examples
    --------
    >>> divisible(ClusterSpec("cluster"))
    True
    """
    return type(inner) in INNER.values()


@dataclass(frozen=True)
class GroupedSpec(SplitSpec):
    """A state of another spec, split by a key.

    Parameters
    ----------
    inner : ScoreSpec, HistogramSpec, BlockSpec, ClusterSpec or ContingencySpec
        The spec of each group's state.
    key : By or Blocks
        Divides the rows into groups.

    Raises
    ------
    OptionError
        If states of `inner` cannot be split.

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> from streameval.states.protocol import Batch
    >>> spec = GroupedSpec(ClusterSpec("cluster"), By(("country",)))
    >>> spec.columns
    ('cluster', 'country')
    >>> builder = spec.builder(Budget(), 8)
    >>> columns = {"cluster": pa.array([1, 1, 2, 2]), "country": pa.array(["DE", "FR", None, "DE"])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> grouped = builder.state()
    >>> grouped.groups(), grouped.only(("DE",)).totals().rows, grouped.without(("FR",)).totals().rows
    ((('DE',), ('FR',), (None,)), 2, 3)
    """

    kind: ClassVar[str] = "grouped"
    version: ClassVar[int] = 1

    inner: Any
    key: Any

    def __post_init__(self) -> None:
        if isinstance(self.inner, dict):  # from a header
            object.__setattr__(self, "inner", _read_inner(self.inner))
            object.__setattr__(self, "key", read_key(self.key))
        if not divisible(self.inner) or not isinstance(self.key, By | Blocks):
            kinds = ", ".join(spec.__name__ for spec in INNER.values())
            msg = f"cannot split {self.inner!r} by {self.key!r}; split one of {kinds}, by By or Blocks"
            raise OptionError(msg)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: group and facts, then those of the inner state."""
        return pa.schema([("group", pa.large_binary()), ("facts", pa.list_(pa.float64())), *self.inner.schema])

    @property
    def _cells(self) -> bool:
        """Whether states are cells of clusters and blocks (`streameval.states.grouped.cluster_blocks`)."""
        cells = isinstance(self.inner, ClusterSpec) and not self.inner.unlabelled
        return cells and isinstance(self.key, Blocks) and self.key.count <= MOST_BLOCKS

    @property
    def counts_unlabelled(self) -> bool:
        """Whether the inner spec counts rows without a label."""
        return bool(self.inner.counts_unlabelled)

    @property
    def derived(self) -> Any:
        """The inner spec, if the groups are cells of clusters and blocks."""
        return self.inner if self._cells else None

    def of_interleaved(self, rows: CodedGroups) -> Grouped:
        """The state of interleaved groups."""
        return Grouped(self, {}, CompositeGroups.empty(self.inner), rows)

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A builder that collects about `capacity` rows at a time, over all groups."""
        if self._cells:
            return BlockedClustersBuilder(self, budget, capacity)
        return GroupedBuilder(self.inner, self.key, budget, capacity, partial(Grouped, self))

    def empty(self) -> Grouped | BlockedClusters:
        """The empty state, without groups."""
        if self._cells:
            return BlockedClusters.empty(self)
        return Grouped(self, {}, CompositeGroups.empty(self.inner))

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> Any:
        """The state that `Grouped.to_arrow` wrote: up to `APART` groups stand apart, more groups have composite keys.

        Raises
        ------
        ValueError
            If the rows are not in the order of their groups, or the name of a group is damaged.
        """
        kinds = [type(side) for empty in inner_facts(self.inner).values() for side in empty]
        groups, items = GroupTable.read(iter(batches), self.schema, kinds)
        for name in groups.names.to_pylist():
            self.key.group(name)
        if self._cells:
            named = zip(groups.names.to_pylist(), groups.facts, strict=True)
            return BlockedClusters.read(self, named, items, budget)
        if type(self.inner) in FORMS and len(groups) > APART:
            return Grouped(self, {}, CompositeGroups(self.inner, groups, read_composite(self.inner, items, budget)))
        pieces, apart, packing = by_group(items), {}, self.inner.packing
        name, piece = next(pieces, (None, None))
        for group, facts in zip(groups.names.to_pylist(), groups.facts, strict=True):
            own = []
            while piece is not None and name == group:
                own.append(packing.pack(piece) if packing else piece)
                name, piece = next(pieces, (None, None))
            header = inner_header(self.inner, facts)
            check_facts(self.inner, header)
            apart[group] = self.inner.from_arrow(header, own, budget)
        if piece is not None:
            msg = f"rows of group {name!r} are out of order"
            raise ValueError(msg)
        return Grouped(self, apart, CompositeGroups.empty(self.inner))


def _read_inner(fields: dict[str, Any]) -> Any:
    """The inner spec that a header describes."""
    kind, version = fields["kind"], fields["version"]
    if kind not in INNER or version != INNER[kind].version:
        msg = f"cannot read groups of {kind} in version {version}; fold the data again"
        raise FormatError(msg)
    return INNER[kind](**fields["spec"])


@dataclass(frozen=True, eq=False)
class Grouped(Small):
    """A state split by a key; it is sent between workers as a whole, because its groups do not share buckets.

    Attributes
    ----------
    spec : GroupedSpec
    apart : inner states of groups apart, by name
    composite : CompositeGroups; a group may have rows both apart and here, if one task met it earlier than another
    interleaved : CodedGroups, or None
    """

    spec: GroupedSpec
    apart: Mapping[bytes, Any]
    composite: CompositeGroups
    interleaved: CodedGroups | None = None

    def merge(self, other: Grouped) -> Grouped:
        """Groups of both inputs; groups with equal names are merged."""
        mergeable(self, other)
        mine = self.interleaved
        if mine and other.interleaved and not mine.fits(other.interleaved):
            other = other.parted()
        apart = dict(self.apart)
        for name, state in other.apart.items():
            apart[name] = apart[name].merge(state) if name in apart else state
        interleaved = mine.merge(other.interleaved) if mine and other.interleaved else mine or other.interleaved
        return Grouped(self.spec, apart, self.composite.merge(other.composite), interleaved)

    def parted(self) -> Grouped:
        """The same groups without an interleaved table."""
        if self.interleaved is None:
            return self
        return Grouped(self.spec, *self.interleaved.parted()).merge(self._not_interleaved)

    @cached_property
    def _names(self) -> dict[Group, bytes]:
        """The name of each group, in the order of `groups`."""
        tables = [self.composite.table] + ([self.interleaved.table] if self.interleaved else [])
        names = {*self.apart, *(name for table in tables for name in table.names.to_pylist())}
        groups = [(self.spec.key.group(name), name) for name in names]
        return dict(sorted(groups, key=lambda pair: rank(pair[0])))

    @property
    def named(self) -> Mapping[Group, bytes]:
        """The name of each group, in the order of `groups`."""
        return self._names

    def groups(self) -> tuple[Group, ...]:
        """All groups with rows, ascending, null last: tuples of values for `By`, block numbers for `Blocks`."""
        return tuple(self._names)

    def names(self) -> tuple[bytes, ...]:
        """The name of each group, in the order of `groups`."""
        return tuple(self._names.values())

    def sweep(self, each: Mapper, budget: Budget) -> GroupSweep | ClusterSweep | None:
        """All rows and all groups side by side; None if the layout does not allow it. `each` maps over shards."""
        if isinstance(self.interleaved, Interleaved):
            alone = self.apart or len(self.composite.table) or self.spec.inner.weighted
            return None if alone else GroupSweep.tallied(self.interleaved, each, budget)
        clusters = isinstance(self.spec.inner, ClusterSpec) and not self.spec.inner.unlabelled
        return self.cluster_sweep(budget) if clusters else None

    def cluster_sweep(self, budget: Budget) -> ClusterSweep:
        """The sweep over the clusters of all groups, in which rows without a label count as all others."""
        return ClusterSweep.of(self._interleaved_clusters(budget), budget)

    def _interleaved_clusters(self, budget: Budget) -> InterleavedClusters:
        """The clusters of all groups in one table; only rows under composite keys are copied."""
        inner, tables = self.spec.inner, []
        if inner.unlabelled:
            states = self.several(self.groups(), budget)
            return InterleavedClusters.of(inner, dict(zip(self.names(), states, strict=True)))
        if isinstance(self.interleaved, InterleavedClusters):
            tables.append(self.interleaved)
        if self.apart:
            tables.append(InterleavedClusters.of(inner, self.apart))
        if len(self.composite.table):
            tables.append(InterleavedClusters.of_composite(self.composite, budget))
        return reduce(InterleavedClusters.merge, tables or [InterleavedClusters.empty(inner)])

    def total(self, budget: Budget | None = None) -> Any:
        """The inner state of all rows."""
        interleaved = [self.interleaved.total()] if self.interleaved else []
        return self._union(self.apart, np.ones(len(self.composite.table), np.bool_), interleaved, budget)

    def only(self, group: Group, budget: Budget | None = None) -> Any:
        """The inner state of one group; empty if the group does not exist."""
        names = [self._names[group]] if group in self._names else []
        interleaved = [self.interleaved.restored(self.interleaved.marks(names), budget)] if self.interleaved else []
        apart = {name: self.apart[name] for name in names if name in self.apart}
        return self._union(apart, self.composite.marked(names), interleaved, budget)

    def several(self, groups: Sequence[Group], budget: Budget | None = None, each: Mapper = one_by_one) -> list[Any]:
        """The inner states of some groups; empty for groups that do not exist. `each` maps a function over shards."""
        if self.interleaved is None:
            return [self.only(group, budget) for group in groups]
        if "interleaved" not in self._found:
            self._found["interleaved"] = self.interleaved.alone(budget, each)
        names = (self._names.get(group, b"") for group in groups)
        found = [self._found["interleaved"].get(name, self.spec.inner.empty()) for name in names]
        if not self.apart and not len(self.composite.table):
            return found
        others = self._not_interleaved
        return [one.merge(others.only(group, budget)) for one, group in zip(found, groups, strict=True)]

    def tables(self, groups: Sequence[Group], each: Mapper, budget: Budget) -> list[Any]:
        """`several` for contingency tables; small ones come summarised."""
        if "tables" not in self._found:
            self._found["tables"] = SmallTables(self, budget).tables(each)
        tables, names = self._found["tables"], [self._names.get(group, b"") for group in groups]
        missing = [group for group, name in zip(groups, names, strict=True) if name not in tables]
        others = iter(self.several(missing, budget, each) if missing else ())
        return [tables[name] if name in tables else next(others) for name in names]

    @cached_property
    def _not_interleaved(self) -> Grouped:
        """The groups outside the interleaved table."""
        return replace(self, interleaved=None)

    @cached_property
    def _found(self) -> dict[str, dict[bytes, Any]]:
        """Cache of the inner states of the interleaved groups."""
        return {}

    def without(self, *groups: Group, budget: Budget | None = None) -> Any:
        """The inner state of all other groups."""
        names = [self._names[group] for group in groups if group in self._names]
        apart = {other: state for other, state in self.apart.items() if other not in names}
        interleaved = [self.interleaved.restored(~self.interleaved.marks(names), budget)] if self.interleaved else []
        return self._union(apart, ~self.composite.marked(names), interleaved, budget)

    def each_without(self, groups: Sequence[Group]) -> Iterator[Any]:
        """For each of some groups, the inner state of all rows outside it.

        The groups are halved recursively, so n groups take O(n log n) merges.
        """
        yield from _each_without(self.without(*groups), [self.only(group) for group in groups])

    def _union(
        self, apart: Mapping[bytes, Any], marks: Array, others: Sequence[Any], budget: Budget | None = None
    ) -> Any:
        """Merge some groups apart, the marked groups under composite keys, and further inner states."""
        states = [apart[name] for name in sorted(apart)]  # in the order of names, so that sums are reproducible
        states += [*([self.composite.restored(marks, budget)] if marks.any() else []), *others]
        return _merged(states) if states else self.spec.inner.empty()

    def totals(self) -> Totals:
        """Rows and weights of both classes, over all groups."""
        return self._totals

    @cached_property
    def _totals(self) -> Totals:
        totals: Totals = self.total().totals()
        return totals

    def shards(self, budget: Budget | None = None) -> list[tuple[int, int]]:
        """Intervals of indices into `groups`."""
        count = len(self._names)
        return [(a, min(a + _CHUNK, count)) for a in range(0, count, _CHUNK)]

    def parts(self, shard: tuple[int, int] | None = None, budget: Budget | None = None) -> Iterator[tuple[Group, Any]]:
        """Each group of a shard, or of all shards, with its inner state."""
        groups = self.groups()[slice(*shard or (None,))]
        yield from zip(groups, self.several(groups, budget), strict=True)

    def header(self) -> dict[str, Any]:
        """The inner spec and the key."""
        inner = self.spec.inner
        fields = {"kind": inner.kind, "version": inner.version, "spec": asdict(inner)}
        return {"spec": {"inner": fields, "key": self.spec.key.fields()}}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""
        if self.interleaved:
            yield from self.parted().to_arrow()
            return
        apart, table, schema = self._apart_table(), self.composite.table, self.spec.schema
        yield from GroupTable.union([apart, table]).rows(schema)
        marks = ~self.composite.marked(self.apart)
        places = np.searchsorted(table.words[:, 0], apart.words[:, 0]).tolist()  # in the table of composite keys
        pending = deque(zip(places, apart.names.to_pylist(), strict=True))
        for at, batch in self.composite.tables(marks):
            start = 0
            while pending and pending[0][0] <= at[-1]:
                place, name = pending.popleft()
                stop = int(np.searchsorted(at, place))
                yield from tagged(table.names.take(pa.array(at[start:stop])), batch.slice(start, stop - start), schema)
                yield from self._apart_batches(name)
                start = stop
            yield from tagged(table.names.take(pa.array(at[start:])), batch.slice(start), schema)
        for _, name in pending:
            yield from self._apart_batches(name)

    def _apart_table(self) -> GroupTable:
        """Names and facts of the groups that stand apart."""
        empty = inner_facts(self.spec.inner)
        headers = [state.header() for state in self.apart.values()]
        facts = np.array([[side for name in empty for side in header[name]] for header in headers], np.float64)
        return GroupTable.of(pa.array(self.apart, pa.large_binary()), facts.reshape(-1, sum(map(len, empty.values()))))

    def _apart_batches(self, name: bytes) -> Iterator[pa.RecordBatch]:
        """The table of a group that stands apart, including its rows under composite keys."""
        for batch in self._union({name: self.apart[name]}, self.composite.marked([name]), []).to_arrow():
            names = pa.array([name], pa.large_binary()).take(pa.array(np.zeros(len(batch), np.int64)))
            yield from tagged(names, batch, self.spec.schema)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        held = (*self.apart.values(), self.composite, *([self.interleaved] if self.interleaved else []))
        return object.__sizeof__(self) + sum(map(sys.getsizeof, held))

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state, in any layout."""
        if not isinstance(other, Grouped):
            return NotImplemented
        return same_table(self, other)


def _merged(states: list[Any]) -> Any:
    """The merge of some states, at least one, in pairs: one by one, all rows so far would be copied for each."""
    while len(states) > 1:
        states = [reduce(lambda one, other: one.merge(other), states[i : i + 2]) for i in range(0, len(states), 2)]
    return states[0]


def _each_without(others: Any, states: list[Any]) -> Iterator[Any]:
    """For each of some states, the merge of `others` and all other states."""
    if len(states) < 2:
        yield from [others] * len(states)
        return
    first, second = states[: len(states) // 2], states[len(states) // 2 :]
    yield from _each_without(_merged([others, *second]), first)
    yield from _each_without(_merged([others, *first]), second)
