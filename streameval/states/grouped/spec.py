"""GroupedSpec: the spec of a state that is split by a key (`streameval.states.grouped.groups`).

For paired comparisons, `ClusterCounts` are split by blocks of another unit: two clusterings have no blocks of clusters
in common, but they share the blocks of a third unit, such as campaigns. The rows of a cluster in one block are a
*cell*. The tag of a row is the number of its block, so for integer ids a row is one word, which sorts like the rows of
plain clusters, and the cells of a cluster are adjacent (`streameval.kernels.blocks`). One sweep computes the size
tables without each block (`by_block`). Unlike other groups, these are shared out by cluster among workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from streameval.errors import FormatError, OptionError
from streameval.kernels.blocks import BLOCK_BITS, cell_bounds
from streameval.states.blocks import SizeChanges, Sweep
from streameval.states.cluster_counts import ClusterSpec, PairBuilder, counts_both
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.facts import check_facts
from streameval.states.grouped.builder import LabelledBuilder, LabelledGroups, TaggedBuilder
from streameval.states.grouped.groups import DenseBuilder, DenseGroups, Grouped
from streameval.states.grouped.keys import Blocks, Key, Labelled, read_key
from streameval.states.grouped.table import GroupTable, by_group, inner_facts, inner_headers
from streameval.states.grouped.tagged import GroupCodes, TaggedGroups
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.protocol import SplitSpec, Traits
from streameval.states.scores.blocks import BlockSpec
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.histogram import HistogramSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streameval.budget import Budget
    from streameval.states.cluster_counts import ClusterCounts
    from streameval.states.keyed.grouping import Counts
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import Builder, Header, Spec, StoredSpec


_BLOCK = np.uint64((1 << BLOCK_BITS) - 1)
_NONE = np.empty(0, np.uint64)

INNER: dict[str, type[Spec]] = {
    spec.kind: spec for spec in (ScoreSpec, HistogramSpec, BlockSpec, ClusterSpec, ContingencySpec)
}


class BlockedClusters(TaggedGroups):
    """Clusters by block; the code of a block is its number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval.budget import Budget
    >>> from streameval.states.cluster_counts import ClusterSpec
    >>> from streameval.states.grouped.keys import Blocks
    >>> from streameval.states.grouped.spec import GroupedSpec
    >>> from streameval.states.protocol import Batch
    >>> builder = GroupedSpec(ClusterSpec("cluster"), Blocks("campaign")).builder(Budget(), 8)
    >>> columns = {"cluster": pa.array([1, 1, 1, 2]), "campaign": pa.array([7, 7, 8, 8])}
    >>> builder.update(Batch(np.zeros(4, np.uint8), None, columns))
    >>> state = builder.state()
    >>> state.groups()
    (20, 125)
    >>> state.by_block(state.shards()[0]).without(125)  # campaign 7
    SizeTable(size=array([1]), clusters=array([2]), positives=array([0]))
    """

    @classmethod
    def empty(cls, spec: SplitSpec) -> BlockedClusters:
        """Without rows."""
        empty = super().empty(spec)
        codes = GroupCodes(map(spec.key.named, range(spec.key.count)))
        return cls(spec, codes, empty.table, empty.tagged)

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The rows."""
        return self.tagged

    def with_runs(self, runs: Mapping[str, KeyedCounts]) -> BlockedClusters:
        """The same state with other rows."""
        return replace(self, tagged=runs)

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of clusters that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The size table of a shard, and its changes without each block."""
        sweep = Sweep(self.spec.key.count)
        for stretch in self.keyed.rows_in(shard, budget):
            _sweep_cells(list(stretch.counts()), sweep)
        if shard == self.shards()[0]:
            single = np.zeros((self.spec.key.count, 2), np.int64)
            single[self.codes()] = self.table.facts[:, :2]
            sweep.add_lone(single)
        return sweep.result()

    def total(self, budget: Budget | None = None) -> ClusterCounts:
        """The inner state of all rows; of an outline, which has no rows, the outline."""
        inner: ClusterCounts = super().total(budget)
        return replace(inner, keyed=replace(inner.keyed, full_outline=self.keyed.full_outline))


def _sweep_cells(buckets: list[Counts], sweep: Sweep) -> None:
    """Add the clusters of whole buckets, given as cells."""
    starts = np.cumsum([0, *(counts.keys.size for counts in buckets)])
    keys, rest, neg, pos = (
        np.concatenate([getattr(c, name) for c in buckets]) for name in ("keys", "rest", "neg", "pos")
    )
    second = np.ascontiguousarray(rest[:, 0]) if rest.shape[1] else _NONE
    blocks = ((second if second.size else keys) & _BLOCK).astype(np.int64)
    clusters = cell_bounds(keys, second, starts)
    sweep.add(clusters, blocks, neg, pos)


def divisible(inner: StoredSpec) -> bool:
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
    key : By, Blocks or another key of `streameval.states.grouped.keys`
        Divides the rows into groups.

    Raises
    ------
    OptionError
        If states of `inner` cannot be split.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.budget import Budget
    >>> from streameval.states.grouped.keys import By
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
        if not divisible(self.inner) or not isinstance(self.key, Key):
            kinds, keys = (", ".join(kind.__name__ for kind in some) for some in (INNER.values(), get_args(Key)))
            raise OptionError(f"cannot split {self.inner!r} by {self.key!r}; split one of {kinds}, by one of {keys}")

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table: group and facts, then those of the inner state."""
        return pa.schema([("group", pa.large_binary()), ("facts", pa.list_(pa.float64())), *self.inner.schema])

    @property
    def _by_cluster(self) -> bool:
        """Whether states are clusters by block, which are shared out by cluster among workers."""
        clusters = isinstance(self.inner, ClusterSpec) and self.inner.rows == "labelled"
        return clusters and isinstance(self.key, Blocks) and self.key.count <= 1 << BLOCK_BITS

    @property
    def traits(self) -> Traits:
        """A key of labels divides the rows without one as well."""
        inner = self.inner.traits
        unlabelled = inner.unlabelled or isinstance(self.key, Labelled)
        return Traits(unlabelled=unlabelled, ignores_labels=inner.ignores_labels)

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A builder that collects about `capacity` rows at a time, over all groups."""
        empty = self.empty()
        if counts_both(self):
            return PairBuilder(self, budget, capacity)
        if isinstance(empty, TaggedGroups):
            return TaggedBuilder(empty, budget, capacity)
        return (LabelledBuilder if isinstance(empty, LabelledGroups) else DenseBuilder)(self, budget, capacity)

    def empty(self) -> Grouped:
        """The empty state, without groups."""
        if isinstance(self.inner, HistogramSpec | BlockSpec):
            return DenseGroups(self, {})
        if isinstance(self.inner, ScoreSpec) and isinstance(self.key, Labelled) and self.key.strata is None:
            return LabelledGroups(self, self.inner.empty(), TaggedGroups.empty(self))
        return BlockedClusters.empty(self) if self._by_cluster else TaggedGroups.empty(self)

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> Grouped:
        """The state that `Grouped.to_arrow` wrote.

        Raises
        ------
        ValueError
            If the rows are not in the order of their groups, or the name of a group is damaged.
        """
        kinds = [type(side) for empty in inner_facts(self.inner).values() for side in empty]
        groups, items = GroupTable.read(iter(batches), self.schema, kinds)
        names = groups.names.to_pylist()
        for name in names:
            self.key.group(name)
        [whole] = inner_headers(self.inner, groups.facts.sum(axis=0, keepdims=True))
        check_facts(self.inner, whole)
        empty = self.empty()
        tagged = empty.tagged if isinstance(empty, LabelledGroups) else empty
        if isinstance(tagged, TaggedGroups):
            state = TaggedBuilder(tagged, budget, SLAB // 4, counted=True).read(groups, items)
            return replace(empty, tagged=state) if isinstance(empty, LabelledGroups) else state
        pieces, states = by_group(items), {}
        name, piece = next(pieces, (None, None))
        for group, own in zip(names, inner_headers(self.inner, groups.facts), strict=True):
            rows = []
            while piece is not None and name == group:
                rows.append(piece)
                name, piece = next(pieces, (None, None))
            states[group] = self.inner.from_arrow(own, rows, budget)
        if piece is not None:
            raise ValueError(f"rows of group {name!r} are out of order")
        return DenseGroups(self, states)


def _read_inner(fields: dict[str, Any]) -> Spec:
    """The inner spec that a header describes."""
    kind, version = fields["kind"], fields["version"]
    if kind not in INNER or version != INNER[kind].version:
        raise FormatError(f"cannot read groups of {kind} in version {version}; fold the data again")
    return INNER[kind](**fields["spec"])
