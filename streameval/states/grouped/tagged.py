"""TaggedGroups: the rows of all groups of a state with counts by key in one table; each row has the tag of its group.

The tag is the code of the group, a consecutive number that never enters a result; states whose tasks numbered their
groups differently are recoded on reading when they are merged. Words with few bits for the tag are widened if there are
more groups (`streameval.states.grouped.tag_words`). Folding a row takes the same time for any number of groups.

The state of all rows consists of the same pieces, without tags. Groups are separated a bounded number of rows at a
time, bucket by bucket: each then has one slice of a few large arrays for each stretch of buckets, however many segments
there were. Where rows are needed group by group, for the stored table and for many small contingency tables, they are
partitioned again by group (`TaggedGroups.by_group`).

All groups of scores are finalized in one sweep (`streameval.states.grouped.sweeps`), and so are those of clusters
(`streameval.states.grouped.sweeps`). With weights, each group is separated first: its rounded sums equal those
of its rows alone only if they are computed over the same stretches of scores.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.kernels.exact import add_at
from streameval.kernels.groups import order_rows
from streameval.kernels.keys import ID_BUCKETS
from streameval.kernels.segments import sum_pieces
from streameval.states.cluster_counts import ClusterSpec, facts_of_both, of_rows
from streameval.states.grouped.groups import Grouped
from streameval.states.grouped.table import GroupTable, inner_facts, with_group
from streameval.states.grouped.tag_words import TagWords, tag_words, whole_words
from streameval.states.keyed.builder import SegmentBuilder
from streameval.states.keyed.counts import SLAB, KeyedCounts
from streameval.states.keyed.ids import SHIFT, id_codes
from streameval.states.keyed.layout import Columns, Interval, Layout, Segment
from streameval.states.protocol import SplitSpec, State, StoredSpec, mergeable
from streameval.states.rounds import Mapper, one_by_one

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.keys import Group
    from streameval.states.keyed.grouping import Counts
    from streameval.typing import Array

    Slab = tuple[Array, Array, Columns]


class GroupCodes:
    """Codes of groups, by name; only the builder that owns them adds names.

    New names get codes in their order, so that tasks that meet the same few groups give them the same codes.

    Examples
    --------
    >>> group_codes = GroupCodes()
    >>> group_codes.codes([b"3:sFR", b"3:sDE"]).tolist(), group_codes.codes([b"3:sFR"]).tolist()
    ([1, 0], [1])
    """

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._codes: dict[bytes, int] = {name: code for code, name in enumerate(names)}

    def codes(self, names: Sequence[bytes]) -> Array:
        """The code of each name, as a uint32 array."""
        for name in sorted(set(names) - self._codes.keys()):
            self._codes[name] = len(self._codes)
        return np.array([self._codes[name] for name in names], np.uint32)

    def union(self, other: GroupCodes) -> GroupCodes:
        """These codes, followed by those of the names that only `other` has."""
        return GroupCodes(self._codes | other._codes)

    @property
    def names(self) -> list[bytes]:
        """All names, in the order of their codes."""
        return list(self._codes)

    def __len__(self) -> int:
        return len(self._codes)


@dataclass(frozen=True, eq=False)
class TaggedGroups(Grouped):
    """Groups in one table.

    Attributes
    ----------
    group_codes : GroupCodes, which may include groups without rows here; never changed
    table : GroupTable, names and facts of the groups with rows here; of clusters, the last two facts are the rows with
        an id, by label
    tagged : rows with tags, by the names of the inner state's runs
    """

    group_codes: GroupCodes
    table: GroupTable
    tagged: Mapping[str, KeyedCounts]

    @classmethod
    def empty(cls, spec: SplitSpec) -> TaggedGroups:
        """Without groups."""
        facts = sum(map(len, inner_facts(spec.inner).values())) + 2 * isinstance(spec.inner, ClusterSpec)
        tagged = {name: KeyedCounts(narrow.layout) for name, (narrow, _) in tag_words(spec.inner).items()}
        return cls(spec, GroupCodes(), GroupTable.empty(facts), tagged)

    def words(self, name: str) -> TagWords:
        """The form of the words of a run."""
        narrow, wide = tag_words(self.spec.inner)[name]
        return narrow if self.tagged[name].layout == narrow.layout else wide

    @property
    def keyed(self) -> KeyedCounts:
        """The rows of a state with a single run."""
        [keyed] = self.tagged.values()
        return keyed

    def _group_names(self) -> Iterable[bytes]:
        names: list[bytes] = self.table.names.to_pylist()
        return names

    def codes(self) -> Array:
        """The code of each group in the table."""
        return self.group_codes.codes(self.table.names.to_pylist())

    def merge(self, other: TaggedGroups) -> TaggedGroups:
        """Groups of both inputs; groups with equal names are merged."""
        mergeable(self, other)
        one, two = (self, other) if len(self.table) else (other, self)
        if two.group_codes is not one.group_codes:
            group_codes = one.group_codes.union(two.group_codes)
            one, two = replace(one, group_codes=group_codes), two.recoded(group_codes)
        tagged = {}
        for name in self.tagged:
            if one.tagged[name].layout != two.tagged[name].layout:
                one, two = one.widened(name), two.widened(name)
            tagged[name] = one.tagged[name].merge(two.tagged[name])
        return replace(one, table=GroupTable.union([one.table, two.table]), tagged=tagged)

    def with_labels(self, labelled: TaggedGroups) -> TaggedGroups:
        """These clusters of every row with those of labelled rows."""
        empty = TaggedGroups.empty(of_rows(self.spec, "both"))
        parts = []
        for run, state in (("every", self), ("keyed", labelled)):
            table = replace(state.table, facts=facts_of_both(state.table.facts, labelled=state is labelled))
            tagged = {**empty.tagged, run: state.widened("keyed").keyed}
            parts.append(replace(empty, group_codes=state.group_codes, table=table, tagged=tagged))
        return parts[0].merge(parts[1])

    def recoded(self, group_codes: GroupCodes) -> TaggedGroups:
        """The same rows with other codes."""
        codes, recoded = group_codes.codes(self.group_codes.names), self
        if not np.array_equal(codes, np.arange(codes.size)):
            for name, keyed in self.tagged.items():
                if codes.max(initial=0) >= self.words(name).groups and keyed.segments:
                    recoded = recoded.widened(name)
                segments = recoded.tagged[name].segments
                words, table = recoded.words(name), codes.astype(np.uint64)
                keyed = KeyedCounts(words.layout, tuple(words.retagged(each, table) for each in segments))
                recoded = replace(recoded, tagged={**recoded.tagged, name: keyed})
        return replace(recoded, group_codes=group_codes)

    def widened(self, name: str) -> TaggedGroups:
        """The same rows with wide words."""
        words, (_, wide) = self.words(name), tag_words(self.spec.inner)[name]
        if words is wide:
            return self
        segments = tuple(words.widened(each, wide) for each in self.tagged[name].segments)
        return replace(self, tagged={**self.tagged, name: KeyedCounts(wide.layout, segments)})

    def total(self, budget: Budget | None = None) -> Any:
        """The inner state of all rows, without copying them."""
        runs = {name: tuple(map(self.words(name).untagged, keyed.segments)) for name, keyed in self.tagged.items()}
        return self._inner_state(runs, *self.table.total())

    def _chosen(self, names: Collection[bytes], budget: Budget | None) -> State:
        names = set(names)
        marks = np.array([name in names for name in self.table.names.to_pylist()], np.bool_)
        places = np.full(len(self.group_codes), -1)
        places[self.codes()[marks]] = 0
        [segments] = self._separated(places, 1, budget, one_by_one) if names else [{}]
        return self._inner_state(segments, *self.table.total(marks))

    def several(self, groups: Sequence[Group], budget: Budget | None = None, each: Mapper = one_by_one) -> list[State]:
        """The inner states of some groups; empty for groups that do not exist. `each` maps a function over shards."""
        if "groups" not in self.cache:
            places = np.full(len(self.group_codes), -1)
            places[self.codes()] = np.arange(len(self.table))
            errors = np.zeros_like(self.table.facts) if self.table.errors is None else self.table.errors
            parts = zip(self._separated(places, len(self.table), budget, each), self.table.facts, errors, strict=True)
            states = map(self._inner_state, *zip(*parts, strict=True)) if len(self.table) else ()
            self.cache["groups"] = dict(zip(self.table.names.to_pylist(), states, strict=True))
        alone = self.cache["groups"]
        return [alone.get(self.named.get(group, b""), self.spec.inner.empty()) for group in groups]

    @cached_property
    def cache(self) -> dict[str, dict[bytes, Any]]:
        """Inner states and summarised tables of groups, by name."""
        return {}

    @cached_property
    def _no_rows(self) -> Any:
        """The empty inner state."""
        return self.spec.inner.empty()

    def _inner_state(self, runs: Mapping[str, tuple[Segment, ...]], facts: Array, errors: Array) -> State:
        """An inner state, from its segments and facts."""
        sides = iter(facts.tolist())
        columns = {name: np.array([type(side)(next(sides)) for side in zeros]) for name, zeros in self._facts.items()}
        if self.weighted:
            columns["nan_errors"] = errors[-2:]
        layouts = {name: words.inner for name, (words, _) in tag_words(self.spec.inner).items()}
        keyed = {name: KeyedCounts(layout, runs.get(name, ())) for name, layout in layouts.items()}
        state: State = replace(self._no_rows, **columns, **keyed)
        return state

    @cached_property
    def _facts(self) -> dict[str, list[float]]:
        """Zeros for the facts of a group, by name."""
        return inner_facts(self.spec.inner)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return any(keyed.layout.weighted for keyed in self.tagged.values())

    def _separated(
        self, places: Array, count: int, budget: Budget | None, each: Mapper
    ) -> list[dict[str, tuple[Segment, ...]]]:
        """The segments of the inner states at each place, by run.

        Parameters
        ----------
        places : int64 array of shape (n_codes,), the place of each code; rows of negative places are left out
        count : number of places
        budget : owns the segments, which are slices of arrays with the rows of all places
        each : maps a function over intervals of buckets
        """
        found: list[dict[str, tuple[Segment, ...]]] = [{} for _ in range(count)]
        for name, keyed in self.tagged.items():
            held = keyed.holding(budget)
            most = min(SLAB, keyed.most(held))
            separate = partial(_of_interval, keyed, most, (self.words(name), places, count, held))
            for part in each(separate, keyed.intervals(most)):
                for place, segment in part:
                    found[place][name] = (*found[place].get(name, ()), segment)
        return found

    def by_group(self, marks: Array, budget: Budget | None = None) -> OrderedGroups:
        """The rows of the groups that a bool array of shape (n_groups,) marks, partitioned by group."""
        inner = self.spec.inner
        order = OrderedGroups.shift(len(self.table))
        ranks = np.full(len(self.group_codes), -1)
        ranks[self.codes()[marks]] = np.flatnonzero(marks)
        width = len(inner.schema) - 2 * (1 + self.weighted)
        layout = Layout(ID_BUCKETS, 64, 1 + width, weighted=self.weighted)
        held = next(iter(self.tagged.values())).holding(budget)
        builder = SegmentBuilder.fitting(layout, held, SLAB // 4, counted=True)
        for number, (name, keyed) in enumerate(self.tagged.items()):
            words = self.words(name)
            for pieces, starts, (first, rest, counts, weights) in keyed.slabs((0, keyed.layout.buckets)):
                codes, rank = np.repeat(pieces, np.diff(starts)), ranks[words.tags(first, rest)]
                here = np.flatnonzero(rank >= 0)
                codes = codes[here]
                first, rest = words.plain(first[here], rest[here], codes)
                keys = np.zeros((first.size, width), np.uint64)
                keys[:, 0] = number  # of the run, if there are several; otherwise the first word replaces it
                keys[:, width - 1 - rest.shape[1]], keys[:, width - rest.shape[1] :] = whole_words(first, codes), rest
                tops = rank[here].astype(np.uint64) << order
                counts, weights = (column[here] if column.size else column for column in (counts, weights))
                builder.add_items(tops, id_codes(tops) | (codes & 1), keys, counts, weights)
        return OrderedGroups(self.table, KeyedCounts.built(builder))

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""
        width = sum(map(len, self._facts.values()))
        yield from replace(self.table, facts=self.table.facts[:, :width]).rows(self.spec.schema)
        rows = self.by_group(np.ones(len(self.table), np.bool_), budget)
        for interval in rows.keyed.intervals():
            for counts in rows.keyed.grouped(interval, budget):
                names = self.table.names.take(pa.array(rows.places(counts.keys)))
                yield from with_group(names, inner_table(self.spec.inner, counts), self.spec.schema)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sum(map(sys.getsizeof, (self.table, *self.tagged.values())))


def _of_interval(
    keyed: KeyedCounts, most: int, form: tuple[TagWords, Array, int, Budget], interval: Interval
) -> list[tuple[int, Segment]]:
    """The segments of some buckets by place; a large bucket is separated a bounded number of rows at a time."""
    slabs = keyed.slabs(interval)
    parts = [list(slabs)] if keyed.items_in(*interval).sum() < 2 * most else ([slab] for slab in slabs)
    return [placed for part in parts for placed in _of_slabs(part, *form)]


def _of_slabs(
    slabs: Sequence[Slab], form: TagWords, places: Array, count: int, budget: Budget
) -> Iterator[tuple[int, Segment]]:
    """The rows at each place as a segment of the inner state; all of them are slices of the same arrays."""
    if not slabs:
        return
    codes = np.concatenate([np.repeat(each, np.diff(starts)) for each, starts, _ in slabs])
    columns = list(map(np.concatenate, zip(*(each for *_, each in slabs), strict=True)))
    if 0 < columns[2].size < codes.size:  # some items have counts
        each = (counts if counts.size else np.ones(words.size, np.int64) for *_, (words, _, counts, _) in slabs)
        columns[2] = np.concatenate(list(each))
    slab = np.repeat(np.arange(len(slabs)), [starts[-1] - starts[0] for _, starts, _ in slabs])
    at = np.arange(codes.size)
    if len(slabs) > 1:  # the codes of each ascend
        at, _ = order_rows(codes.astype(np.int64) - int(codes.min()), int(codes.max() - codes.min()) + 1)
    place = places[form.tags(*columns[:2])]
    order, ends = order_rows(place[at] + 1, count + 1)
    at, ends = at[order[ends[1] :]], ends[1:] - ends[1]
    if not at.size:
        return
    first, rest = form.plain(columns[0], columns[1], codes)
    first, rest, codes = first[at], rest[at], codes[at]
    counts, weights = (column[at] if column.size else column for column in columns[2:])
    numbers = np.flatnonzero(np.diff(ends))
    begins = np.diff(codes, prepend=codes[:1] + 1) != 0
    begins[ends[numbers]] = True
    piece = np.flatnonzero(begins)
    starts = np.append(piece, codes.size)
    rows = np.add.reduceat(counts, piece) if counts.size else None
    sums = None
    if form.inner.weighted:
        sums = _sums_of_pieces(weights, begins, slab[at])
        if sums is None:
            for one in slabs:
                yield from _of_slabs([one], form, places, count, budget)
            return
    codes = codes[piece]
    unspilled = codes.nbytes + starts.itemsize * (piece.size + numbers.size)  # each place has an end as well
    unspilled += sum(column.nbytes for column in (rows, sums) if column is not None)
    others = (budget.hold(column) if column.size else None for column in (rest, counts, weights))
    whole = Segment(codes, starts, rows, sums, budget.hold(first, unspilled), *others)
    bounds = np.searchsorted(piece, ends)
    for number in numbers.tolist():
        yield number, whole.pieces(*bounds[number : number + 2].tolist())


def _sums_of_pieces(weights: Array, begins: Array, slab: Array) -> Array | None:
    """The weight of each piece as in `Segment`, the exact sum of the rounded sums of slabs; None if that needs more."""
    own = np.flatnonzero(begins | (np.diff(slab, prepend=-1) != 0))
    piece = np.cumsum(begins)[own] - 1
    (total, errors), inexact = np.zeros((2, 1 + int(piece[-1]))), np.zeros(1 + int(piece[-1]), np.bool_)
    for sums in sum_pieces(weights, np.append(own, weights.size)):
        add_at(piece, sums, total, errors, inexact)
    return None if inexact.any() and slab[0] != slab[-1] else np.stack((total, errors))


@dataclass(frozen=True, eq=False)
class OrderedGroups:
    """Rows partitioned by group; those of a group are in the order of the inner state's table.

    Attributes
    ----------
    table : GroupTable, which numbers the groups
    keyed : rows by the number of their group, in the highest bits of the first word; then their run, if there are
        several, and the words of their inner keys
    """

    table: GroupTable
    keyed: KeyedCounts

    @staticmethod
    def shift(groups: int) -> np.uint64:
        """Bits of the first word below the number of the group."""
        return np.uint64(64 - max(1, (groups - 1).bit_length()))

    def places(self, words: Array) -> Array:
        """The number of the group of some first words, as an int64 array."""
        return (words >> self.shift(len(self.table))).astype(np.int64)

    def of(self, first: int, last: int) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Rows of the groups `first` to `last`: their groups, further words, sides, and counts or an empty array."""
        ends = np.array([first, last], np.uint64) << self.shift(len(self.table)) >> SHIFT
        for codes, starts, (words, rest, counts, _) in self.keyed.slabs((int(ends[0]), int(ends[1]) + 1)):
            yield self.places(words), rest, np.repeat(codes & np.uint32(1), np.diff(starts)), counts


def inner_table(inner: StoredSpec, counts: Counts) -> pa.RecordBatch:
    """The inner table of some rows of `OrderedGroups`."""
    flags = sum(field.type == pa.bool_() for field in inner.schema)
    sources = {
        pa.bool_(): iter(counts.rest[:, :flags].T == 0),
        pa.uint64(): iter(counts.rest[:, flags:].T),
        pa.int64(): iter((counts.neg, counts.pos)),
        pa.float64(): iter((counts.neg_weight, counts.pos_weight)),
    }
    columns = [pa.array(np.ascontiguousarray(next(sources[field.type]))) for field in inner.schema]
    return pa.RecordBatch.from_arrays(columns, schema=inner.schema)
