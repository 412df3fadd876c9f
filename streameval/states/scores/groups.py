"""GroupScores: the distinct scores of every group, such as a user, with their negatives and positives, exactly.

There may be any number of groups, because a group is a range of sorted keys and not an object. Rows are keyed by
(group, score) in buckets of the hashed group id (`streameval.states.keyed.counts`), so a group lies in one bucket, with
its scores in descending order. Three tables hold the rows:

- *narrow*: a 32-bit integer id and a 32-bit score share one word, 8 bytes a row;
- *wide*: all other ids and scores: the words of the id (one for integers, two for strings), then that of the score, 16
  or 24 bytes a row;
- *null*: rows without an id, which form one group.

In a column of 64-bit integers, the value of each id decides between the narrow and the wide table.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from streameval.kernels.grouped import comparisons
from streameval.kernels.grouped import rankings as kernels
from streameval.kernels.grouped.comparisons import words_by_group
from streameval.kernels.jit import read_only
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.keys import unmix as unmix_wide
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.grouping import Counts, LabelledWords
from streameval.states.keyed.ids import SHIFT, id_words, identify, row_nulls
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Layout
from streameval.states.keyed.ranges import buckets
from streameval.states.protocol import Batch, PlainState, Totals, Traits, mergeable, same_table
from streameval.states.scores.group_part import GroupPart, GroupRows, GroupTies
from streameval.states.scores.group_tables import WORD, TableBuilders, bias, is_narrow
from streameval.states.scores.types import MissingScores, numbers, rank_keys, refuse_nan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.keyed.layout import Interval
    from streameval.typing import Array

_SHIFT32 = np.uint32(SHIFT - np.uint64(32))
_SHORT = {"f4", "i4"}  # types of scores with 32-bit rank keys
_ID = np.uint64(33)  # bits below the id in a narrow word that ends with the label


@dataclass(frozen=True)
class GroupScoreSpec(MissingScores):
    """The scores of every group.

    Attributes
    ----------
    column : the score column
    type : how scores are read, see `streameval.states.scores.types.score_type`
    groups : the column of group ids: integers, strings or binaries
    group_type : how ids are compared, see `streameval.states.keyed.ids.id_type`
    nan : policy for missing scores: ``error`` or ``drop``

    Examples
    --------
    >>> GroupScoreSpec("score", groups="user").columns
    ('score', 'user')
    """

    kind: ClassVar[str] = "group_scores"
    version: ClassVar[int] = 1

    column: str
    type: str = "f4"
    groups: str = "group"
    group_type: str = "signed"
    nan: str = "error"

    @property
    def traits(self) -> Traits:
        """The tables of several states add up."""
        return Traits(additive=True, refuses_missing=self.nan == "error")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return (self.column, self.groups)

    @property
    def narrow(self) -> bool:
        """Whether a 32-bit id and a score share a word."""
        return self.type in _SHORT and self.group_type != "hash"

    @property
    def layouts(self) -> dict[str, Layout]:
        """Layouts of the tables, which share their buckets."""
        return {
            "narrow": Layout(ID_BUCKETS, 64),
            "wide": Layout(ID_BUCKETS, 64, words=1 + id_words(self.group_type)),
            "null": Layout(ID_BUCKETS, 64, halved=False),
        }

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state's table; `present` is false for rows without an id."""
        second = {"second": pa.uint64()} if self.group_type == "hash" else {}
        counts = {"key": pa.uint64(), "negatives": pa.int64(), "positives": pa.int64()}
        return pa.schema({"present": pa.bool_(), "group": pa.uint64()} | second | counts)

    def builder(self, budget: Budget, capacity: int) -> _GroupScoreBuilder:
        """A builder whose segments hold `capacity` rows."""
        return _GroupScoreBuilder(self, budget, capacity)

    def empty(self) -> GroupScores:
        """The empty state."""
        none: dict[str, Any] = {name: KeyedCounts(layout) for name, layout in self.layouts.items()}
        return GroupScores(self, **none)

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> GroupScores:
        """The state that `GroupScores.to_arrow` wrote."""
        builders = self.table_builders(budget, SLAB // 4, counted=True)
        for batch in batches:
            words = [
                batch.column(name).to_numpy()
                for name in batch.schema.names
                if batch.schema.field(name).type == pa.uint64()
            ]
            present = batch.column("present").to_numpy(zero_copy_only=False)
            for side, name in enumerate(("negatives", "positives")):
                rows = batch.column(name).to_numpy()
                builders.add_items(present, words, rows, side)
        return replace(self.empty().with_runs(builders.tables()), nan_rows=np.array(header["nan_rows"]))

    def table_builders(self, budget: Budget, capacity: int, *, counted: bool) -> TableBuilders:
        """Builders of the tables."""
        return TableBuilders(self.layouts, self.group_type, budget, capacity, narrow=self.narrow, counted=counted)


class _GroupScoreBuilder:
    def __init__(self, spec: GroupScoreSpec, budget: Budget, capacity: int) -> None:
        self.spec = spec
        self._builders = spec.table_builders(budget, capacity, counted=False)
        self._nan_rows = np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        score, group, label = (*(batch.columns[name] for name in self.spec.columns), batch.label)
        if score.null_count:
            score, group, label = self._present(score.is_valid(), score, group, label)
        refuse_nan(self.spec.nan, self._nan_rows.any(), batch.name, self.spec.column)
        values = numbers(score, self.spec.type)
        if self._add_f4(values, group, label):
            return
        if values.dtype.kind == "f" and (missing := np.isnan(values)).any():
            values, (_, group, label) = values[~missing], self._present(pa.array(~missing), score, group, label)
        refuse_nan(self.spec.nan, self._nan_rows.any(), batch.name, self.spec.column)
        keys = rank_keys(values, self.spec.type)
        group = row_nulls(group)
        if group.null_count:
            valid = group.is_valid().to_numpy(zero_copy_only=False)
            self._add_null(keys[~valid], label[~valid])
            keys, label, group = keys[valid], label[valid], group.drop_null()
        self._add(*identify(group, self.spec.group_type), keys, label)

    def _add_f4(self, values: Array, group: pa.Array, label: Array) -> bool:
        """Add float32 scores of narrow integer ids in one loop; does nothing and returns False for other input."""
        if not self.spec.narrow or self.spec.type != "f4" or group.null_count or pa.types.is_dictionary(group.type):
            return False
        ids, bits, label = (
            read_only(each) for each in (identify(group, self.spec.group_type)[0], values.view(np.uint32), label)
        )
        if not kernels.narrow_f4(bits, ids, bias(self.spec.group_type)):
            return False
        self._builders["narrow"].add(
            ids.size, lambda part, *out: kernels.encode_f4(ids[part], bits[part], label[part], _SHIFT32, *out)
        )
        return True

    def _present(
        self, valid: pa.Array, score: pa.Array, group: pa.Array, label: Array
    ) -> tuple[pa.Array, pa.Array, Array]:
        """The rows that have a score; the other rows are counted as missing."""
        kept = valid.to_numpy(zero_copy_only=False)
        self._nan_rows += np.bincount(label[~kept], minlength=2)
        return score.filter(valid), group.filter(valid), label[kept]

    def _add_null(self, keys: Array, label: Array) -> None:
        self._builders["null"].add_items(keys, label.astype(np.uint32), None, NO_COUNTS, NO_WEIGHTS)

    def _add(self, ids: Array, rest: Array, keys: Array, label: Array) -> None:
        if self.spec.narrow:
            narrow = is_narrow(ids, self.spec.group_type)
            if narrow.all():
                self._add_narrow(ids, keys, label)
                return
            wide = ~narrow
            if narrow.any():
                self._add_narrow(ids[narrow], keys[narrow], label[narrow])
                ids, rest, keys, label = ids[wide], rest[wide], keys[wide], label[wide]
        self._builders["wide"].add_ids((ids, *rest.T, keys), label=label)

    def _add_narrow(self, ids: Array, keys: Array, label: Array) -> None:
        self._builders["narrow"].add(
            ids.size, lambda part, *out: kernels.encode(ids[part], keys[part], label[part], _SHIFT32, *out)
        )

    def state(self) -> GroupScores:
        return replace(self.spec.empty().with_runs(self._builders.tables()), nan_rows=self._nan_rows)


@dataclass(frozen=True, eq=False)
class GroupScores(PlainState):
    """Exact counts of every distinct score of every group, by label.

    Attributes
    ----------
    spec : GroupScoreSpec
    narrow, wide, null : KeyedCounts
    nan_rows : int64 array of shape (2,), rows with a missing score, by label

    Examples
    --------
    >>> from streameval.budget import Budget
    >>> spec = GroupScoreSpec("score", "f8", "user")
    >>> builder = spec.builder(Budget(), 8)
    >>> columns = {"score": pa.array([0.5, 0.5, 0.25]), "user": pa.array([7, 7, 7])}
    >>> builder.update(Batch(np.array([1, 0, 1], np.uint8), None, columns))
    >>> [(part.ties.n.tolist(), part.ties.p.tolist()) for part in builder.state().parts((0, ID_BUCKETS))]
    [([1, 0], [1, 1])]
    """

    spec: GroupScoreSpec
    narrow: KeyedCounts
    wide: KeyedCounts
    null: KeyedCounts
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The tables, which grow with the rows."""
        return {"narrow": self.narrow, "wide": self.wide, "null": self.null}

    def with_runs(self, runs: Mapping[str, Any]) -> GroupScores:
        """The state with other tables."""
        return replace(self, **runs)

    def merge(self, other: GroupScores) -> GroupScores:
        """Counts of both inputs; groups with equal ids are merged."""
        mergeable(self, other)
        runs = {name: mine.merge(other.runs()[name]) for name, mine in self.runs().items()}
        return replace(self, nan_rows=self.nan_rows + other.nan_rows).with_runs(runs)

    def totals(self) -> Totals:
        """Rows whose score is not missing."""
        neg, pos = (sum(int(run.rows[side::2].sum()) for run in self.runs().values()) for side in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of buckets; a group lies in exactly one."""
        return buckets(self)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[GroupPart]:
        """Groups of a shard, a bounded number of rows at a time; a group with more rows is cut.

        Groups with one class only may be omitted; `GroupPart.left_out` counts them.
        """
        return self._parts(shard, budget, named=False)

    def named_parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[GroupPart]:
        """All groups of a shard, in the same way as `parts`, with their ids."""
        return self._parts(shard, budget, named=True)

    def _parts(self, shard: Interval, budget: Budget | None, *, named: bool) -> Iterator[GroupPart]:
        for name, run in self.runs().items():
            held: GroupPart | None = None
            for part in self._ties(name, run, shard, budget, named=named):
                if held is not None:
                    held, part = held.before(part)
                    yield held
                held = part
            if held is not None:
                yield held

    def _ties(
        self, name: str, run: KeyedCounts, shard: Interval, budget: Budget | None, *, named: bool
    ) -> Iterator[GroupPart]:
        if not run.items_in(*shard).any():
            return
        for stretch in run.rows_in(shard, budget):
            if isinstance(stretch, LabelledWords) and name == "narrow":
                for a, b in zip(stretch.bounds[:-1].tolist(), stretch.bounds[1:].tolist(), strict=True):
                    words = words_by_group(stretch.words[a:b])
                    if words.size:
                        first, last = ((name, (int(word) | stretch.top << 1) >> 33) for word in words[[0, -1]])
                        starts, neg, pos, left = comparisons.groups_of(words, named)
                        rows = GroupRows(words, starts)
                        made = GroupPart(rows, neg, pos, first, last, left_out=tuple(left.tolist()))
                        ids = (words[starts] >> _ID) | np.uint64(stretch.top >> 32)
                        yield replace(made, ids=self._narrow_ids(ids)) if named else made
            else:
                for counts in stretch.counts():
                    if counts.keys.size:
                        made = _part(name, counts)
                        firsts = counts.keys[made.ties.starts[:-1]]
                        yield replace(made, ids=self._first_words(name, firsts)) if named else made

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled bytes do not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, self.runs().values()))

    def header(self) -> dict[str, Any]:
        """The spec and the missing scores."""
        return {"spec": asdict(self.spec), "nan_rows": self.nan_rows.tolist()}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Distinct scores of every group: narrow ids first, null last, each by bucket."""
        for name, run in self.runs().items():
            for shard in run.intervals():
                for counts in run.grouped(shard, budget):
                    columns = [pa.array(np.full(counts.keys.size, name != "null"))]
                    columns += [pa.array(np.ascontiguousarray(word)) for word in self._words(name, counts)]
                    columns += [pa.array(counts.neg), pa.array(counts.pos)]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)

    def _words(self, name: str, counts: Counts) -> list[Array]:
        """The words of the ids, then the rank keys of the scores; uint64 arrays of shape (n_keys,)."""
        if name == "wide":
            return [unmix_wide(counts.keys), *counts.rest.T]
        if name == "null":
            zeros = np.zeros(counts.keys.size, np.uint64)
            return [zeros] * (len(self.spec.schema) - 4) + [counts.keys]
        return [self._first_words(name, counts.keys), counts.keys & np.uint64(0xFFFFFFFF)]

    def _first_words(self, name: str, keys: Array) -> Array:
        """The first words of the ids, decoded from the first words of the keys."""
        if name == "null":
            return np.zeros_like(keys)
        return unmix_wide(keys) if name == "wide" else self._narrow_ids(keys >> WORD)

    def _narrow_ids(self, mixed_ids: Array) -> Array:
        ids = kernels.unmix(mixed_ids)
        if self.spec.group_type == "signed":
            ids = ids.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
        return ids

    def __eq__(self, other: object) -> bool:
        """Whether both states have the same header and table."""
        if not isinstance(other, GroupScores):
            return NotImplemented
        return same_table(self, other)


def _part(name: str, counts: Counts) -> GroupPart:
    """The groups of sorted keys."""
    words = counts.keys
    if name != "wide":
        words = words >> WORD if name == "narrow" else np.zeros_like(words)
    first, last = ((name, int(words[at]), *counts.rest[at, :-1].tolist()) for at in (0, -1))
    starts = kernels.id_starts(words, counts.rest)
    neg, pos = kernels.sizes(starts, counts.neg, counts.pos)
    return GroupPart(GroupTies(starts, counts.neg, counts.pos), neg, pos, first, last)
