"""ClusterCounts: the exact size and positives of every cluster, and the small table that metrics read.

Clusters are keyed by their ids, mixed by an odd multiplier that permutes the 64-bit integers, so that buckets fill
evenly. Integer ids are compared as integers. Strings and binaries are compared by a 128-bit hash of their bytes
(MurmurHash3): among 10⁹ ids a false match is less likely than 2·10⁻²¹. Where ids belong to their partition, the hash of
the partition's path joins the key. Memory is 8 bytes a row for integer ids, 16 for others.

The area under the lift curve and the ROC curve by size depend only on how many clusters have each size and how many
positives those have together: the `SizeTable`, at most √(2·rows) lines.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.errors import NullError
from streameval.kernels.jit import read_only
from streameval.kernels.keys import ID_BUCKETS, encode_id
from streameval.kernels.lift import impure_clusters, keep_shared, tally_labelled, tally_sizes
from streameval.states.compatible import mergeable, same_table
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts, Labelled, taken_out
from streameval.states.keyed.ids import SHIFT, id_type, id_words, identify
from streameval.states.keyed.layout import Interval, Layout
from streameval.states.keyed.packing import Packing
from streameval.states.protocol import Batch, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.typing import Array

__all__ = ["ClusterCounts", "ClusterSpec", "SizeTable", "id_type"]

_KNOWN = ID_BUCKETS.bit_length() - 2  # highest bits of a row's word that its bucket fixes: the key's first is lost
_SMALL = 1 << 12  # sizes tallied in a table; larger clusters are few


@dataclass(frozen=True)
class ClusterSpec:
    """An exact cluster state.

    Attributes
    ----------
    column : the cluster column
    type : see `id_type`
    scope : ``global``, or ``partition`` where ids are reused and belong to their partition
    nulls : ``error``, ``drop`` or ``singleton`` (each null is a singleton cluster)

    Examples
    --------
    >>> ClusterSpec("cluster").columns
    ('cluster',)
    """

    kind: ClassVar[str] = "cluster_counts"
    version: ClassVar[int] = 2
    additive: ClassVar[bool] = True
    associative: ClassVar[bool] = True

    column: str
    type: str = "signed"
    scope: str = "global"
    nulls: str = "error"

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
        counts = {"key": pa.uint64(), "negatives": pa.int64(), "positives": pa.int64()}
        return pa.schema(counts | {"second": pa.uint64()} if self.layout.words == 2 else counts)

    def builder(self, budget: Budget, capacity: int) -> _ClusterBuilder:
        """A builder whose segments hold `capacity` rows."""
        return _ClusterBuilder(self, SegmentBuilder(self.layout, budget, capacity))

    def empty(self) -> ClusterCounts:
        """The state of no rows."""
        return ClusterCounts(self, KeyedCounts(self.layout))

    @property
    def packing(self) -> Packing:
        """How the table is stored."""
        return Packing(self.layout, lambda keys: keys >> SHIFT)

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> ClusterCounts:
        """The state whose table `ClusterCounts.to_arrow` wrote, packed."""
        rows = (np.array(header[name]) for name in ("single_rows", "dropped_rows"))
        return ClusterCounts(self, KeyedCounts(self.layout, tuple(self.packing.segments(batches, budget))), *rows)


class _ClusterBuilder:
    def __init__(self, spec: ClusterSpec, segments: SegmentBuilder) -> None:
        self.spec = spec
        self._segments = segments
        self._null_rows = np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        array, label = batch.columns[self.spec.column], batch.label
        if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
            array = array.dictionary_decode()
        if array.null_count:
            if self.spec.nulls == "error":
                where = f"{batch.name}: cluster column {self.spec.column!r}"
                msg = f"{where} has nulls; choose --nulls drop or --nulls singleton"
                raise NullError(msg)
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._null_rows += np.bincount(label[~valid], minlength=2)
            array, label = array.drop_null(), label[valid]
        first, rest = identify(array, self.spec.type, self.spec.scope, batch.partition)
        first, label = read_only(first), read_only(label)
        self._segments.add(len(first), lambda part, *out: encode_id(first[part], label[part], SHIFT, *out), rest)

    def state(self) -> ClusterCounts:
        single = self.spec.nulls == "singleton"
        none = np.zeros(2, np.int64)
        rows = (self._null_rows, none) if single else (none, self._null_rows)
        return ClusterCounts(self.spec, KeyedCounts.built(self._segments), *rows)


@dataclass(frozen=True, eq=False)
class SizeTable:
    """How many clusters have each size, and how many positives they have together.

    Attributes
    ----------
    size : int64 array of shape (n_sizes,), ascending
    clusters : int64 array of shape (n_sizes,)
    positives : int64 array of shape (n_sizes,)

    Examples
    --------
    >>> import numpy as np
    >>> SizeTable.of(np.array([3, 1, 3]), np.array([1, 0, 2]))
    SizeTable(size=array([1, 3]), clusters=array([1, 2]), positives=array([0, 3]))
    """

    size: Array
    clusters: Array
    positives: Array

    @classmethod
    def of(cls, sizes: Array, positives: Array) -> SizeTable:
        """The table of clusters given one by one."""
        return cls._summed(sizes, np.ones(len(sizes), np.int64), positives)

    @classmethod
    def _summed(cls, size: Array, clusters: Array, positives: Array) -> SizeTable:
        sizes, index = np.unique(size, return_inverse=True)
        columns = [np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.asarray(positives).dtype)]
        for column, values in zip(columns, (clusters, positives), strict=True):
            np.add.at(column, index, values)
        return cls(sizes, *columns)

    @classmethod
    def union(cls, tables: Iterable[SizeTable]) -> SizeTable:
        """The table of all clusters of several tables."""
        parts = list(tables) or [cls(*(np.empty(0, np.int64) for _ in range(3)))]
        return cls._summed(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("size", "clusters", "positives"))
        )


@dataclass(frozen=True, eq=False)
class ClusterCounts:
    """Exact size and positives of every cluster.

    Attributes
    ----------
    spec : ClusterSpec
    keyed : KeyedCounts
    single_rows : int64 array of shape (2,), null ids counted as singleton clusters, by label
    dropped_rows : int64 array of shape (2,), null ids left out, by label

    Examples
    --------
    >>> ClusterSpec("cluster").empty().totals().rows
    0
    """

    spec: ClusterSpec
    keyed: KeyedCounts
    single_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))
    dropped_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def runs(self) -> Mapping[str, KeyedCounts]:
        """What grows with the rows."""
        return {"keyed": self.keyed}

    def with_runs(self, runs: Mapping[str, Any]) -> ClusterCounts:
        """The same with other keyed counts."""
        return replace(self, **runs)

    def merge(self, other: ClusterCounts) -> ClusterCounts:
        """Clusters of both inputs; equal ids are one cluster."""
        mergeable(self, other)
        keyed = self.keyed.merge(other.keyed)
        return ClusterCounts(
            self.spec, keyed, self.single_rows + other.single_rows, self.dropped_rows + other.dropped_rows
        )

    def totals(self) -> Totals:
        """Rows in clusters."""
        neg, pos = (int(self.keyed.rows[label::2].sum() + self.single_rows[label]) for label in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals that can be finalized independently; the first one includes the null ids."""
        return self.keyed.intervals() or [(0, 0)]

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[SizeTable]:
        """One: the size table of a shard."""
        yield self._size_table(shard, budget, None)

    def impure(self, shard: Interval, budget: Budget | None = None) -> tuple[SizeTable, list[Counts]]:
        """The size table of a shard, and its clusters of several rows of which some are negative."""
        found: list[Counts] = []
        return self._size_table(shard, budget, found), found

    def _size_table(self, shard: Interval, budget: Budget | None, impure: list[Counts] | None) -> SizeTable:
        """The size table of a shard; its impure clusters are added to a list."""
        clusters, positives = np.zeros((2, _SMALL), np.int64)
        tables = []
        for rows in self.keyed.stretches(shard, budget):
            large = (
                [_sizes(rows, clusters, positives, impure)]
                if isinstance(rows, Counts)
                else _by_size(rows, clusters, positives, impure)
            )
            tables += [SizeTable.of(*each) for each in large if each[0].size]
        if shard == self.shards()[0]:
            clusters[1] += self.single_rows.sum()
            positives[1] += self.single_rows[1]
        found = np.flatnonzero(clusters)
        return SizeTable.union([SizeTable(found, clusters[found], positives[found]), *tables])

    def __sizeof__(self) -> int:
        """Bytes in memory; what is spilled does not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.runs().values()))

    def header(self) -> dict[str, Any]:
        """The spec and the counts of null ids."""
        rows = {"single_rows": self.single_rows.tolist(), "dropped_rows": self.dropped_rows.tolist()}
        return {"spec": asdict(self.spec), **rows}

    def to_arrow(self) -> Iterator[pa.RecordBatch]:
        """Clusters by mixed id: columns key, second (where ids have two words), negatives, positives."""
        for shard in self.keyed.intervals():
            for counts in self.keyed.grouped(shard):
                yield _table(counts, self.spec.schema)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same state: the same table, whatever the segments; which would be costly to hash."""
        if not isinstance(other, ClusterCounts):
            return NotImplemented
        return same_table(self, other)


def _sizes(counts: Counts, clusters: Array, positives: Array, impure: list[Counts] | None) -> tuple[Array, Array]:
    """Tally clusters by size; returns the sizes and positives of those larger than the tables."""
    if impure is not None:
        at = np.flatnonzero((counts.neg > 0) & (counts.neg + counts.pos > 1))
        impure.append(Counts(counts.keys[at], counts.rest[at], counts.neg[at], counts.pos[at]))
    large: tuple[Array, Array] = tally_sizes(counts.neg, counts.pos, clusters, positives)
    return large


def _sizes_of_rows(
    words: Array, top: int, clusters: Array, positives: Array, impure: list[Counts] | None
) -> tuple[Array, Array]:
    """As `_sizes`, of sorted rows."""
    if impure is not None:
        keys, *counts = impure_clusters(words, np.uint64(top))
        impure.append(Counts(keys, np.empty((keys.size, 0), np.uint64), *counts))
    large: tuple[Array, Array] = tally_labelled(words, clusters, positives)
    return large


def _by_size(
    rows: Labelled, clusters: Array, positives: Array, impure: list[Counts] | None
) -> Iterator[tuple[Array, Array]]:
    """As `_sizes`, of rows that are not counted."""
    bounds, alone = keep_shared(rows.words, rows.bounds, *rows.counted_words(), _KNOWN)
    clusters[1] += rows.words.size - bounds[-1]
    positives[1] += alone
    for j, (start, stop) in enumerate(pairwise(bounds.tolist())):
        words = rows.words[start:stop]
        words.sort()
        if rows.counted:
            words, counted = taken_out(words, rows.counted[j])
            yield _sizes(counted, clusters, positives, impure)
            yield _sizes_of_rows(words, rows.top, clusters, positives, impure)
    if not rows.counted:
        yield _sizes_of_rows(rows.words[: bounds[-1]], rows.top, clusters, positives, impure)


def _table(counts: Counts, schema: pa.Schema) -> pa.RecordBatch:
    columns = (counts.keys, counts.neg, counts.pos, *counts.rest.T)
    return pa.RecordBatch.from_arrays([pa.array(values) for values in columns], schema=schema)
