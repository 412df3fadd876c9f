"""GroupScores: the distinct scores of every group, such as a user, with their negatives and positives, exactly.

There may be any number of groups, because a group is a range of sorted keys and not an object. Rows are keyed by
(group, score) in buckets of the hashed group id (`streameval.states.keyed.counts`), so a group lies in one bucket, with
its scores in descending order. A row takes the words of its id (one for integers, two for strings) and that of its
score, 16 or 24 bytes. Rows without an id form one group, in a table of its own. A metric sees the scores of many
consecutive groups at a time (`GroupPart`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from streameval.kernels import groups as kernels
from streameval.kernels.keys import ID_BUCKETS, unmix
from streameval.states.keyed.builder import SegmentBuilders
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import id_codes, id_words, identify, mixed, row_nulls
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS, Interval, Layout
from streameval.states.protocol import Batch, Stored, Totals, Traits
from streameval.states.rounds import buckets
from streameval.states.scores.types import MissingScores, present, rank_keys, refuse_nan
from streameval.typing import valid_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streameval.budget import Budget
    from streameval.states.keyed.grouping import Counts
    from streameval.states.protocol import Header
    from streameval.typing import Array


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
    def layouts(self) -> dict[str, Layout]:
        """Layouts of the tables, which share their buckets."""
        return {
            "keyed": Layout(ID_BUCKETS, 64, words=1 + id_words(self.group_type)),
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

    def from_arrow(self, header: Header, batches: Iterable[pa.RecordBatch], budget: Budget) -> GroupScores:
        """The state that `GroupScores.to_arrow` wrote."""
        builder = _GroupScoreBuilder(self, budget, SLAB // 4, counted=True)
        words = [field.name for field in self.schema if field.type == pa.uint64()]
        for batch in batches:
            columns = [batch.column(name).to_numpy() for name in words]
            present = batch.column("present").to_numpy(zero_copy_only=False)
            for side, name in enumerate(("negatives", "positives")):
                rows = batch.column(name).to_numpy()
                at = np.flatnonzero(rows > 0)
                builder.add(present[at], [word[at] for word in columns], np.full(at.size, side, np.uint32), rows[at])
        return replace(builder.state(), nan_rows=np.array(header["nan_rows"]))


class _GroupScoreBuilder:
    """Builder of the three tables; `counted` says whether its input is items with counts instead of rows."""

    def __init__(self, spec: GroupScoreSpec, budget: Budget, capacity: int, *, counted: bool = False) -> None:
        self.spec, self._layouts = spec, spec.layouts
        self._builders = SegmentBuilders[str](budget, capacity, counted=counted)
        self._nan_rows = np.zeros(2, np.int64)

    def update(self, batch: Batch) -> None:
        values, rows, missing = present(batch, self.spec.column, self.spec.type)
        group, label = batch.columns[self.spec.groups], batch.label[rows]
        if missing.size:
            self._nan_rows += np.bincount(batch.label[missing], minlength=2)
            refuse_nan(self.spec.nan, True, batch.name, self.spec.column)
            group = group.take(pa.array(rows))
        keys, group = rank_keys(values, self.spec.type), row_nulls(group)
        there = valid_rows(group)
        words = np.zeros((id_words(self.spec.group_type), keys.size), np.uint64)
        first, rest = identify(group.drop_null(), self.spec.group_type)
        words[:, there] = first, *rest.T
        self.add(there, [*words, keys], label)

    def add(self, present: Array, words: Sequence[Array], label: Array, counts: Array = NO_COUNTS) -> None:
        """Add rows, or items with counts.

        Parameters
        ----------
        present : bool array of shape (n,), whether the row has an id
        words : uint64 arrays of shape (n,), the words of the id, then the rank key of the score
        label : array of unsigned integers of shape (n,)
        counts : int64 array of shape (n,), rows of each item; empty if each is one row
        """
        first, rest = mixed(words[0]), np.column_stack(words[1:])
        for name, here in (("keyed", present), ("null", ~present)):
            if here.any():
                at = slice(None) if here.all() else np.flatnonzero(here)
                key = (first[at], rest[at]) if name == "keyed" else (words[-1][at], None)
                codes = (id_codes(key[0]) if name == "keyed" else 0) | label[at].astype(np.uint32)
                rows = counts[at] if counts.size else counts
                self._builders.of(name, self._layouts[name]).add_items(key[0], codes, key[1], rows, NO_WEIGHTS)

    def state(self) -> GroupScores:
        runs = {name: KeyedCounts(self._layouts[name], made) for name, made in self._builders.finish().items()}
        return replace(self.spec.empty().with_runs(runs), nan_rows=self._nan_rows)


class GroupTies(NamedTuple):
    """Distinct scores of groups.

    Attributes
    ----------
    starts : int64 array of shape (n_groups + 1,), index of the first distinct score of each group
    n, p : int64 arrays of shape (n_ties,), negatives and positives of each distinct score, from the best to the worst
    """

    starts: Array
    n: Array
    p: Array


@dataclass(frozen=True, eq=False)
class GroupPart:
    """Consecutive groups, such as users.

    A group with very many rows may be cut: it is then the last group of one part and the first of the next, which has
    only lower scores.

    Attributes
    ----------
    ties : GroupTies, the distinct scores of each group
    neg, pos : int64 arrays of shape (n_groups,), negatives and positives of each group in this part
    ids : uint64 array of shape (n_groups,), the first words of the ids; 0 for rows without an id
    first, last : ids of the first and the last group
    false, true : negatives and positives of the first group in earlier parts
    goes_on : whether the last group continues in the next part
    continues : whether the first group began in the previous part
    """

    ties: GroupTies
    neg: Array
    pos: Array
    ids: Array
    first: tuple[str | int, ...]
    last: tuple[str | int, ...]
    false: int = 0
    true: int = 0
    goes_on: bool = False
    continues: bool = False

    @cached_property
    def areas(self) -> Array:
        """Twice the pairs won in each group, ties counting half: 128-bit integers, uint64 of shape (2, n_groups)."""
        return np.stack(kernels.areas(*self.ties, self.earlier[1]))

    @cached_property
    def precisions(self) -> Array:
        """Σ p·precision of each group in units of 2⁻⁶², in the same form as `areas`."""
        return np.stack(kernels.precisions(*self.ties, *self.earlier))

    @property
    def earlier(self) -> Array:
        """Negatives and positives of each group in earlier parts, an int64 array of shape (2, n_groups)."""
        sides = np.zeros((2, self.neg.size), np.int64)
        sides[:, :1] = [[self.false], [self.true]]
        return sides

    def before(self, other: GroupPart) -> tuple[GroupPart, GroupPart]:
        """Complete the facts about a group that is cut between this part and the next, `other`; returns both parts."""
        if self.last != other.first:
            return self, other
        false, true = int(self.neg[-1]), int(self.pos[-1])
        if self.neg.size == 1:  # it may have begun earlier
            false, true = false + self.false, true + self.true
        return replace(self, goes_on=True), replace(other, continues=True, false=false, true=true)

    @property
    def cut(self) -> list[int]:
        """Indices of the groups that are cut."""
        places = [0] * self.continues + [self.neg.size - 1] * self.goes_on
        return list(dict.fromkeys(places))

    def name(self, place: int) -> tuple[str | int, ...]:
        """The id of the cut group at an index in `cut`."""
        return self.first if place == 0 else self.last


@dataclass(frozen=True, eq=False)
class GroupScores(Stored):
    """Exact counts of every distinct score of every group, by label.

    Attributes
    ----------
    spec : GroupScoreSpec
    keyed, null : KeyedCounts, the rows of groups, and those without an id
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

    run_names = ("keyed", "null")
    fact_names = ("nan_rows",)

    spec: GroupScoreSpec
    keyed: KeyedCounts
    null: KeyedCounts
    nan_rows: Array = field(default_factory=lambda: np.zeros(2, np.int64))

    def totals(self) -> Totals:
        """Rows whose score is not missing."""
        neg, pos = (sum(int(run.rows[side::2].sum()) for run in self.runs().values()) for side in (0, 1))
        return Totals(neg, pos, float(neg), float(pos))

    def shards(self, budget: Budget | None = None) -> list[Interval]:
        """Intervals of buckets; a group lies in exactly one."""
        return buckets(self)

    def parts(self, shard: Interval, budget: Budget | None = None) -> Iterator[GroupPart]:
        """Groups of a shard, a bounded number of rows at a time; a group with more rows is cut."""
        for name, run in self.runs().items():
            last: GroupPart | None = None
            for counts in run.grouped(shard, budget) if run.items_in(*shard).any() else ():
                if counts.keys.size:
                    part = self._part(name, counts)
                    if last is not None:
                        last, part = last.before(part)
                        yield last
                    last = part
            if last is not None:
                yield last

    def _part(self, name: str, counts: Counts) -> GroupPart:
        """The groups of sorted keys."""
        words = np.zeros_like(counts.keys) if name == "null" else counts.keys
        first, last = ((name, int(words[at]), *counts.rest[at, :-1].tolist()) for at in (0, -1))
        starts = kernels.id_starts(words, counts.rest)
        ties, ids = GroupTies(starts, counts.neg, counts.pos), unmix(words[starts[:-1]])
        neg, pos = kernels.sizes(*ties)
        return GroupPart(ties, neg, pos, ids, first, last)

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """Distinct scores of every group: null last, by bucket."""
        for name, run in self.runs().items():
            for shard in run.intervals():
                for counts in run.grouped(shard, budget):
                    columns = [pa.array(np.full(counts.keys.size, name != "null"))]
                    columns += [pa.array(np.ascontiguousarray(word)) for word in self._words(name, counts)]
                    columns += [pa.array(counts.neg), pa.array(counts.pos)]
                    yield pa.RecordBatch.from_arrays(columns, schema=self.spec.schema)

    def _words(self, name: str, counts: Counts) -> list[Array]:
        """The words of the ids, then the rank keys of the scores; uint64 arrays of shape (n_keys,)."""
        if name == "null":
            return [np.zeros_like(counts.keys)] * id_words(self.spec.group_type) + [counts.keys]
        return [unmix(counts.keys), *counts.rest.T]
