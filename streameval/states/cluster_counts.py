"""ClusterCounts: the exact size and positives of every cluster, and the small table that metrics read.

Clusters are keyed by their ids, mixed by an odd multiplier that permutes the 64-bit integers, so that buckets fill
evenly. Integer ids are compared as integers. Strings and binaries are compared by a 128-bit hash of their bytes
(MurmurHash3): among 10⁹ ids a false match has a probability below 2·10⁻²¹. With ids per partition, the hash of the
partition's path is part of the key. Memory is 8 bytes a row for integer ids, 16 for others.

The area under the lift curve and the ROC curve by size depend only on the number of clusters of each size and on their
positives: the `SizeTable`, of at most √(2·rows) lines.

Where rows without a label count in the sizes, there are two additive states: of every row, whatever its label, and of
the rows with a label. The size table looks up the sizes of clusters with labels by id, so a label that arrives later
leaves the first state as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import NullError
from streameval.kernels.blocks import spread_rows
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.blocks import BLOCKS, SizeChanges, Sweep, blocks_of
from streameval.states.cluster_sizes import SizeTable, by_tables, find_sizes
from streameval.states.keyed.builder import SegmentBuilder, SegmentReader
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.hot import by_code, by_run
from streameval.states.keyed.ids import SHIFT, id_words, identify, row_nulls
from streameval.states.keyed.layout import Interval, Layout
from streameval.states.protocol import Batch, SplitSpec, Stored, Totals, Traits
from streameval.states.rounds import buckets
from streameval.typing import valid_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import Builder, Header, State
    from streameval.typing import Array

S = TypeVar("S", "ClusterSpec", SplitSpec)

_SMALL = 1 << 12  # sizes tallied in a table; larger clusters are rare


@dataclass(frozen=True)
class ClusterSpec:
    """Spec of an exact cluster state.

    Attributes
    ----------
    column : the cluster column
    type : see `id_type`
    scope : ``global``, or ``partition`` if ids are local to a partition and reused in others
    nulls : ``error``, ``drop`` or ``singleton`` (each null is a singleton cluster)
    rows : the rows that count: ``labelled`` ones; ``every`` one, as if none had a label; or ``both``, where the sizes
        are those of every row, and the positives those of labelled ones

    Examples
    --------
    >>> ClusterSpec("cluster").columns
    ('cluster',)
    """

    kind: ClassVar[str] = "cluster_counts"
    version: ClassVar[int] = 1

    column: str
    type: str = "signed"
    scope: str = "global"
    nulls: str = "error"
    rows: str = "labelled"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column,)

    @property
    def layout(self) -> Layout:
        """Layout of the segments."""
        return Layout(ID_BUCKETS, 64, words=id_words(self.type, self.scope))

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table."""
        types = {"key": pa.uint64(), "negatives": pa.int64(), "positives": pa.int64()}
        types |= dict.fromkeys(["second"] * (self.layout.words - 1), pa.uint64())
        return pa.schema(types | dict.fromkeys(["labelled"] * (self.rows == "both"), pa.bool_()))

    def builder(self, budget: Budget, capacity: int) -> Builder:
        """A builder whose segments hold `capacity` rows."""
        return (PairBuilder if self.rows == "both" else _ClusterBuilder)(self, budget, capacity)

    def empty(self) -> ClusterCounts:
        """The empty state."""
        return ClusterCounts(
            self, KeyedCounts(self.layout), every=KeyedCounts(self.layout) if self.rows == "both" else None
        )

    @property
    def traits(self) -> Traits:
        """The tables of several states add up."""
        return Traits(
            additive=True,
            unlabelled=self.rows != "labelled",
            ignores_labels=self.rows == "every",
            refuses_missing=self.nulls == "error",
            by_code=True,
        )

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> ClusterCounts:
        """The state whose table `ClusterCounts.to_arrow` wrote."""
        facts = [np.array(header[name]) for name in ClusterCounts.fact_names]
        sides = 1 + (self.rows == "both")
        readers = [SegmentReader(self.layout, lambda keys: keys >> SHIFT, budget, sides) for _ in range(sides)]
        for batch in batches:
            if self.rows == "both":
                flag, batch = batch.column("labelled"), batch.drop_columns(["labelled"])
                readers[1].add(batch.filter(pc.invert(flag)))
                batch = batch.filter(flag)
            readers[0].add(batch)
        keyed, *every = (KeyedCounts(self.layout, reader.finish()) for reader in readers)
        return ClusterCounts(self, keyed, *facts, every=every[0] if every else None)


class _ClusterBuilder:
    def __init__(self, spec: ClusterSpec, budget: Budget, capacity: int) -> None:
        self.spec = spec
        self._segments = SegmentBuilder(spec.layout, budget, capacity)
        self._null_rows = np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        array, label = row_nulls(batch.columns[self.spec.column]), batch.label
        label = np.zeros_like(label) if self.spec.rows == "every" else label
        if array.null_count and self.spec.nulls == "error":
            where = f"{batch.name}: cluster column {self.spec.column!r}"
            raise NullError(f"{where} has nulls; choose --nulls drop or --nulls singleton")
        [array], counts, label = by_code([array], label)
        if array.null_count:
            valid = valid_rows(array)
            np.add.at(self._null_rows, label[~valid], counts[~valid] if counts.size else 1)
            array, label, counts = array.drop_null(), label[valid], counts[valid] if counts.size else counts
        first, rest = identify(array, self.spec.type, self.spec.scope, batch.partition)
        self._segments.add_ids(*by_run((first, *rest.T), counts, label))

    def state(self) -> ClusterCounts:
        single = self.spec.nulls == "singleton"
        none = np.zeros(2, np.int64)
        singles, dropped = (self._null_rows, none) if single else (none, self._null_rows)
        return ClusterCounts(self.spec, KeyedCounts.built(self._segments), singles, dropped)


class PairBuilder:
    """Builds the state of every row and that of labelled rows, of clusters or of groups of them."""

    def __init__(self, spec: Any, budget: Budget, capacity: int) -> None:
        self._every, self._labelled = (of_rows(spec, rows).builder(budget, capacity) for rows in ("every", "labelled"))

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        self._every.update(batch)
        if (labelled := batch.with_labels()).label.size:
            self._labelled.update(labelled)

    def state(self) -> State:
        """Both states as one."""
        both: State = self._every.state().with_labels(self._labelled.state())
        return both


def counts_both(spec: object) -> bool:
    """Whether a spec is of both every row and labelled ones, of clusters or of groups of them."""
    inner = spec.inner if isinstance(spec, SplitSpec) else spec
    return isinstance(inner, ClusterSpec) and inner.rows == "both"


def of_rows(spec: S, rows: str) -> S:
    """The spec of clusters, or of groups of them, that counts other rows."""
    changes = {"inner": replace(spec.inner, rows=rows)} if isinstance(spec, SplitSpec) else {"rows": rows}
    changed: S = replace(cast("Any", spec), **changes)
    return changed


def facts_of_both(facts: Array, *, labelled: bool) -> Array:
    """What the facts of every row, or of labelled rows, add to those of both; arrays of shape (…, n_facts)."""
    sides = facts.reshape(*facts.shape[:-1], facts.shape[-1] // 2, 2)  # single, dropped, bare, and rows of a group
    rows, positives = sides[..., :2, :].sum(axis=-1), sides[..., 1]
    both = np.stack((-positives, positives), axis=-1) if labelled else sides.copy()
    both[..., 2, :] = -rows if labelled else rows
    return both.reshape(facts.shape)


@dataclass(frozen=True, eq=False)
class ClusterCounts(Stored):
    """Exact size and positives of every cluster.

    Attributes
    ----------
    spec : ClusterSpec
    keyed : KeyedCounts, of labelled rows if the spec says both
    single_rows : int64 array of shape (2,), null ids that count as singleton clusters, by label
    dropped_rows : int64 array of shape (2,), dropped null ids, by label
    bare_rows : int64 array of shape (2,), number of the single and of the dropped rows without a label; these are
        counted as label 0
    every : KeyedCounts of every row, as if none had a label, if the spec says both; else None

    Examples
    --------
    >>> ClusterSpec("cluster").empty().totals().rows
    0
    """

    fact_names = ("single_rows", "dropped_rows", "bare_rows")

    spec: ClusterSpec
    keyed: KeyedCounts
    single_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    bare_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    every: KeyedCounts | None = field(default=None, kw_only=True)

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""
        return {"keyed": self.keyed} if self.every is None else {"keyed": self.keyed, "every": self.every}

    def with_labels(self, labelled: ClusterCounts) -> ClusterCounts:
        """The state of every row, which this is, together with that of labelled rows."""
        own, theirs = (np.concatenate([getattr(one, name) for name in self.fact_names]) for one in (self, labelled))
        facts = facts_of_both(own, labelled=False) + facts_of_both(theirs, labelled=True)
        return ClusterCounts(of_rows(self.spec, "both"), labelled.keyed, *facts.reshape(3, 2), every=self.keyed)

    def totals(self) -> Totals:
        """Rows in clusters."""
        neg, pos = (int(self.keyed.rows[label::2].sum() + self.single_rows[label]) for label in (0, 1))
        if self.every is not None:
            neg = int(self.every.rows.sum() + self.single_rows.sum()) - pos
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        return (self.keyed.shards(budget) or [(0, 0)]) if self.every is None else buckets(self)

    def _is_first(self, shard: Interval) -> bool:
        """Whether a shard includes the null ids; the first one begins at the same bucket under every budget."""
        return shard[0] == self.shards()[0][0]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[SizeTable]:
        """The size table of a shard, as the only part."""
        if self.every is None:
            yield self._size_table(self.keyed, shard, budget, None)
            return
        sizes, labelled = self.labelled_clusters(shard, budget)
        tables = [replace(sizes, labelled=np.zeros_like(sizes.size))]
        tables += [SizeTable(size, np.zeros_like(size), one.pos, one.neg + one.pos) for one, size in labelled]
        if self._is_first(shard) and (rows := int(self.single_rows.sum())):
            single = np.array([rows, self.single_rows[1], rows - self.bare_rows[0]])
            tables.append(SizeTable(np.ones(1, np.int64), *single.reshape(3, 1)))
        yield SizeTable.union(tables)

    def labelled_clusters(self, shard: Interval, budget: Budget | None) -> tuple[SizeTable, list[tuple[Counts, Array]]]:
        """The sizes of the clusters of every row of a shard, null ids left out; and its clusters that have labels.

        The latter come in parts, each with the sizes of the clusters. While sizes are counted, the clusters of several
        rows are listed with their ids: all others have one row.
        """
        several: list[Counts] = []
        sizes = self._size_table(cast("KeyedCounts", self.every), shard, budget, several)
        return sizes, [(one, find_sizes(one, several)) for one in self.keyed.grouped(shard, budget)]

    def by_block(self, shard: Interval, budget: Budget | None = None) -> SizeChanges:
        """The size table of a shard, and its changes without each block of clusters.

        Null ids have no id to hash: row k of label l has the block of ``hash(k) ^ l``, hashed again.
        """
        sweep = Sweep(BLOCKS)
        for counts in self.keyed.grouped(shard, budget):
            sweep.add_units(blocks_of(unmix(counts.keys), BLOCKS), counts.neg, counts.pos)
        if self._is_first(shard):
            sweep.add_lone(null_rows_by_block(self.single_rows))
        return sweep.result()

    def impure(self, shard: Interval, budget: Budget | None = None) -> tuple[SizeTable, list[Counts]]:
        """The size table of a shard, and its impure clusters: of several rows, at least one of them negative."""
        found: list[Counts] = []
        return self._size_table(self.keyed, shard, budget, found), found

    def _size_table(
        self, keyed: KeyedCounts, shard: Interval, budget: Budget | None, impure: list[Counts] | None
    ) -> SizeTable:
        """The size table of a shard; its impure clusters are appended to the list."""
        clusters, positives = np.zeros((2, _SMALL), np.int64)
        given = keyed, shard, budget, clusters, positives
        tables = [SizeTable.of(*each) for each in by_tables(*given, impure) if each[0].size]
        if self.every is None and self._is_first(shard):
            clusters[1] += self.single_rows.sum()
            positives[1] += self.single_rows[1]
        sizes = np.flatnonzero(clusters)
        return SizeTable.union([SizeTable(sizes, clusters[sizes], positives[sizes]), *tables])

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Clusters by mixed id; those of labelled rows, then those of every row, if the state has both."""
        for run, keyed in self.runs().items():
            for counts in (some for shard in keyed.intervals() for some in keyed.grouped(shard, budget)):
                columns = [*map(pa.array, (counts.keys, counts.neg, counts.pos, *counts.rest.T))]
                columns += [] if self.every is None else [pa.array(np.full(counts.keys.size, run == "keyed"))]
                yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)


def null_rows_by_block(rows: Array) -> Array:
    """Rows of null ids by block and label, an int64 array of shape (BLOCKS, 2), from the rows by label."""
    found = np.zeros((2, BLOCKS), np.int64)
    for label, count in enumerate(rows.tolist()):
        spread_rows(np.uint64(label), count, found[label])
    return found.T
