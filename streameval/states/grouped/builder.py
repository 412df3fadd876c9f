"""Fold rows of scores, clusters, or clusters against classes into `TaggedGroups`.

For each kind of state one function adds the rows of a batch with their tags, and returns its *facts*: the rows that
states count outside their tables, such as null scores. Rows whose words hold the tag are encoded by a compiled loop
where that is worth it; a batch of which narrow words cannot hold a key or a tag is added with wide words.

Of scores by label and unit (`LabelledGroups`), the many rows without a label are one group without a tag, counted as
scores of all rows are: a row takes the memory and the time of a row without groups. Only the labelled rows have tags.
The stored table is that of `TaggedGroups`; on reading, all rows are given tags.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from streameval.budget import Budget
from streameval.kernels.blocks import count_rows
from streameval.kernels.groups import narrow_f4, recode_rows
from streameval.kernels.jit import read_only
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped.groups import DenseGroups, Grouped
from streameval.states.grouped.keys import UNLABELLED, Labelled, Split
from streameval.states.grouped.table import GroupTable, TableBuilder, inner_facts
from streameval.states.grouped.tag_words import NarrowScores, TagWords, tag_words
from streameval.states.grouped.tagged import GroupCodes, TaggedGroups
from streameval.states.keyed.builder import SegmentBuilder, SegmentBuilders
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.hot import by_run
from streameval.states.keyed.ids import id_codes, identify, mixed, row_nulls
from streameval.states.keyed.layout import NO_COUNTS, NO_WEIGHTS
from streameval.states.protocol import Batch, SplitSpec, mergeable
from streameval.states.scores.counts import ScoreSpec
from streameval.states.scores.parts import sums_at
from streameval.states.scores.types import present, rank_keys
from streameval.typing import pack_bits, valid_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from streameval.states.protocol import Spec, StoredSpec
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array

    Added = tuple[Mapping[str, "Fact"], Array | None]  # facts; of clusters, the rows of each group by label

_ROWS = 1 << 16  # rows whose codes are looked up at a time, so that they stay in the cache


class Fact(NamedTuple):
    """Rows that a state counts outside its table: indices in the batch, sides, and amounts (1 each if None)."""

    rows: Array
    side: Array
    amounts: Array | None = None


class Tags(NamedTuple):
    """The groups of a batch and their codes.

    Attributes
    ----------
    split : Split
    codes : uint32 array of shape (n_groups,)
    """

    split: Split
    codes: Array

    @property
    def table(self) -> Array:
        """The code for each raw value."""
        return read_only(self.codes[self.split.places])

    def of(self, rows: Array | slice = slice(None)) -> Array:
        """The code of some rows."""
        codes: Array = self.table[self.split.raw[rows]]
        return codes


class TaggedBuilder:
    """Builder of tagged groups; owned by one task.

    Parameters
    ----------
    empty : the state without rows
    budget : Budget
    capacity : int
        Largest number of rows of a builder of the inner state.
    counted : bool
        Whether rows are items with counts (`add_keys`).
    """

    def __init__(self, empty: TaggedGroups, budget: Budget, capacity: int, *, counted: bool = False) -> None:
        self.inner, self._key, self._empty = empty.spec.inner, empty.spec.key, empty
        self._codes = GroupCodes(empty.group_codes.names)
        self._table = TableBuilder()
        self._last = pa.array([], pa.large_binary()), np.empty(0, np.uint32)  # names of a batch and their codes
        self._builders: SegmentBuilders[tuple[str, TagWords]] = SegmentBuilders(budget, capacity, counted=counted)

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        if isinstance(self._key, Labelled) and self._key.probability is not None:
            batch = self._key.weighed(batch)
        split = self._key.split(batch)
        self._key.check(max(len(split.names), len(self._codes)), split.names.to_pylist, more=True)
        if not len(split.names):
            return
        if not split.names.equals(self._last[0]):
            self._last = split.names, self._codes.codes(split.names.to_pylist())
        facts, rows = _ADD[type(self.inner)](self, batch, Tags(split, self._last[1]))
        sums, errors = _fact_sums(self.inner, facts, split)
        self._table.add(split.names, sums if rows is None else np.hstack((sums, rows)), errors)

    def form(self, run: str, tags: Tags) -> TagWords:
        """The form of the words for some groups: narrow, if all of their codes fit."""
        narrow, wide = tag_words(self.inner)[run]
        return narrow if int(tags.codes.max()) < narrow.groups else wide

    def rows(self, run: str, form: TagWords) -> SegmentBuilder:
        """The builder of the rows of a run in a form."""
        plain, size = (
            2 * (each.dtype.itemsize + 8 * (each.words - 1 + each.weighted)) + 4 for each in (form.inner, form.layout)
        )
        return self._builders.of((run, form), form.layout, size=size / plain)

    def add_keys(
        self,
        run: str,
        first: Array,
        rest: Array,
        side: int | Array,
        tags: Array,
        counts: Array = NO_COUNTS,
        weights: Array = NO_WEIGHTS,
    ) -> None:
        """Add rows by the words of their whole keys, their sides in the inner table, and their tags."""
        (narrow, wide), inner = tag_words(self.inner)[run], self.inner
        if isinstance(inner, ScoreSpec):
            codes = inner.buckets(first).astype(np.uint32) << np.uint32(1)
        else:
            codes = id_codes(first)
        codes |= np.asarray(side, np.uint32)
        tags = tags.astype(np.uint64, copy=False)
        fits = int(tags.max(initial=0)) < narrow.groups
        form, words = narrow, narrow.tagged(first, rest, codes, tags) if fits else None
        if words is None:
            form, words = wide, wide.tagged(first, rest, codes, tags)
        self.rows(run, form).add_items(words[0], codes, words[1], counts, weights)

    def read(self, groups: GroupTable, batches: Iterable[pa.RecordBatch]) -> TaggedGroups:
        """The state of some groups, from the inner tables that `TaggedGroups.to_arrow` wrote."""
        inner, runs = self.inner, list(tag_words(self.inner))
        names = groups.names.to_pylist()
        codes, places, last = self._codes.codes(names), {name: place for place, name in enumerate(names)}, 0
        rows = np.zeros((len(self._codes), 2))
        for batch in batches:
            encoded = batch.column("group").dictionary_encode()
            own = encoded.dictionary.to_pylist()
            order = np.array([places.get(name, -1) for name in own])[encoded.indices.to_numpy()]
            if (wrong := np.flatnonzero(np.diff(order, prepend=last) < 0)).size:
                raise ValueError(f"rows of group {batch.column('group')[int(wrong[0])].as_py()!r} are out of order")
            last = int(order[-1]) if order.size else last
            tags = self._codes.codes(own)[encoded.indices.to_numpy()]
            flags, words, counts, weights = (
                [
                    batch.column(field.name).to_numpy(zero_copy_only=False)
                    for field in inner.schema
                    if field.type == kind
                ]
                for kind in (pa.bool_(), pa.uint64(), pa.int64(), pa.float64())
            )
            run = ~flags[0] if flags else np.zeros(tags.size, np.bool_)  # rows with a flag have another run
            for number, side in np.ndindex(len(runs), len(counts)):
                here = np.flatnonzero((counts[side] > 0) & (run == number))
                width = tag_words(inner)[runs[number]][0].inner.words
                first, *rest = (word[here] for word in words[len(words) - width :])
                if isinstance(inner, ScoreSpec) and inner.layout.bits == 16 and first.max(initial=0) >> np.uint64(32):
                    raise ValueError("a key has more than 32 bits")
                further = np.column_stack(rest) if rest else np.empty((here.size, 0), np.uint64)
                weight = weights[side][here] if weights else NO_WEIGHTS
                self.add_keys(runs[number], first, further, side, tags[here], counts[side][here], weight)
                np.add.at(rows[:, side], tags[here], counts[side][here])
        rows = rows[codes]
        if (
            isinstance(inner, ContingencySpec)
            and (wrong := np.flatnonzero(groups.facts[:, :2].sum(1) != rows.sum(1))).size
        ):
            expected, have = groups.facts[wrong[0], :2].sum(), rows[wrong[0]].sum()
            raise ValueError(f"{expected:.0f} rows are expected and the cells have {have:.0f}")
        facts = np.hstack((groups.facts, rows)) if isinstance(inner, ClusterSpec) else groups.facts
        self._table.add(groups.names, facts)
        return self.state()

    def state(self) -> TaggedGroups:
        """The state of everything folded; the builder must not be used afterwards."""
        empty = replace(self._empty, group_codes=self._codes)
        state = replace(empty, table=self._table.built() or empty.table)
        for (run, form), segments in self._builders.finish().items():
            keyed = KeyedCounts(form.layout, segments)
            state = state.merge(replace(empty, tagged={**empty.tagged, run: keyed}))
        return state


def _add_scores(builder: TaggedBuilder, batch: Batch, tags: Tags) -> Added:
    inner = builder.inner
    values, rows, missing = present(batch, inner.column, inner.type)
    facts: dict[str, Fact] = {}
    if missing.size:
        _refuse(inner, batch, inner.nan == "error")
        facts["nan_rows"] = Fact(missing, batch.label[missing])
        if inner.weighted and batch.weight is not None:
            facts["nan_weights"] = Fact(missing, batch.label[missing], batch.weight[missing])
    weights = batch.weight[rows] if inner.weighted and batch.weight is not None else NO_WEIGHTS
    form, table = builder.form("keyed", tags), tags.table
    values, label, raw = (read_only(each) for each in (values, batch.label[rows], tags.split.raw[rows]))
    if isinstance(form, NarrowScores) and inner.type == "f4":  # this loop folds what most calls slice
        bits = values.view(np.uint32)

        def encode(part: slice, *out: Array) -> None:
            narrow_f4(bits[part], raw[part], table, label[part], *out)

        builder.rows("keyed", form).add(values.size, encode, weights=weights)
    else:
        keys = rank_keys(values, inner.type)
        builder.add_keys("keyed", keys, np.empty((keys.size, 0), np.uint64), label, table[raw], weights=weights)
    return facts, None


def _add_clusters(builder: TaggedBuilder, batch: Batch, tags: Tags) -> Added:
    inner, array = builder.inner, row_nulls(batch.columns[builder.inner.column])
    rows: Array | slice = slice(None)
    label = np.zeros_like(batch.label) if inner.rows == "every" else batch.label
    facts: dict[str, Fact] = {}
    if array.null_count:
        _refuse(inner, batch, inner.nulls == "error")
        valid = _valid(array)
        rows, nulls, array = np.flatnonzero(valid), np.flatnonzero(~valid), array.drop_null()
        facts["single_rows" if inner.nulls == "singleton" else "dropped_rows"] = Fact(nulls, label[nulls])
    first, rest = identify(array, inner.type, inner.scope, batch.partition)
    label, raw = label[rows], tags.split.raw[rows]
    table = tags.table.astype(np.int64)
    counts = np.zeros((int(tags.codes.max()) + 1, 2), np.int64)
    for start in range(0, label.size, _ROWS):
        part = slice(start, start + _ROWS)
        codes = recode_rows(raw[part], table)
        counts += count_rows(codes, read_only(label[part]), len(counts))
        builder.add_keys("keyed", mixed(first[part]), rest[part], label[part], codes)
    return facts, counts[tags.codes]


def _add_cells(builder: TaggedBuilder, batch: Batch, tags: Tags) -> Added:
    inner = builder.inner
    arrays = [row_nulls(batch.columns[name]) for name in inner.columns]
    counted, rows = np.arange(batch.label.size), None
    facts: dict[str, Fact] = {}
    if any(array.null_count for array in arrays):
        _refuse(inner, batch, inner.nulls == "error")
        has_cluster, has_class = map(_valid, arrays)
        rows = np.flatnonzero(has_cluster & has_class)
        if inner.nulls == "drop":
            counted, left = rows, np.flatnonzero(~(has_cluster & has_class))
            facts["dropped_rows"] = Fact(left, has_cluster[left].astype(np.uint8))
        else:
            _add_singletons(builder, batch, tags, has_cluster, has_class)
        arrays = [array.take(pa.array(rows)) for array in arrays]
    label = batch.label[counted]
    facts["label_rows"] = Fact(counted, label if inner.labelled else np.zeros_like(label))
    form, codes = builder.form("cells", tags), tags.of() if rows is None else tags.of(rows)
    words = *inner.row_words(*arrays, batch.partition), codes.astype(np.uint64)
    builder.rows("cells", form).add_ids(*by_run(words))
    return facts, None


def _add_singletons(builder: TaggedBuilder, batch: Batch, tags: Tags, has_cluster: Array, has_class: Array) -> None:
    """Add the rows with a null id."""
    inner = builder.inner
    clusters, classes = (row_nulls(batch.columns[name]) for name in inner.columns)
    rows = np.flatnonzero(has_cluster & ~has_class)
    first, rest = inner.cluster_words(clusters.take(pa.array(rows)), batch.partition)
    zeros = np.zeros((rows.size, inner.keys.class_), np.uint64)
    builder.add_keys("cells", mixed(first), np.column_stack((rest, zeros)), 1, tags.of(rows))
    rows = np.flatnonzero(has_class & ~has_cluster)
    first, rest = inner.class_words(classes.take(pa.array(rows)))
    builder.add_keys("without_cluster", mixed(first), rest, 0, tags.of(rows))
    rows = np.flatnonzero(~(has_class | has_cluster))
    zeros = np.zeros((rows.size, inner.keys.class_), np.uint64)
    builder.add_keys("without_cluster", zeros[:, 0], zeros[:, 1:], 1, tags.of(rows))


_ADD: dict[type[Any], Callable[[TaggedBuilder, Batch, Tags], Added]] = {
    ScoreSpec: _add_scores,
    ClusterSpec: _add_clusters,
    ContingencySpec: _add_cells,
}


def _valid(array: pa.Array) -> Array:
    return valid_rows(row_nulls(array))


def _refuse(spec: Spec, batch: Batch, refused: object) -> None:
    """If a policy refuses the batch, let the state's own builder raise the error."""
    if refused:
        spec.builder(Budget(), batch.label.size).update(batch)


def _fact_sums(inner: StoredSpec, facts: Mapping[str, Fact], split: Split) -> tuple[Array, Array | None]:
    """Sums of the facts of each group of a batch and their errors, as `GroupTable` takes them."""
    columns, errors, weighted, groups = [], [], False, len(split.names)
    for name in inner_facts(inner):
        sums, slips = np.zeros((2, 2 * groups, 1))
        if name in facts:
            fact = facts[name]
            places, amounts = 2 * split.codes[fact.rows] + fact.side, fact.amounts
            if amounts is None:
                sums[:, 0] = np.bincount(places, minlength=2 * groups)
            else:
                weighted, amounts = True, amounts.reshape(-1, 1)
                sums, slips = sums_at(places, amounts, np.zeros_like(amounts), 2 * groups)
        columns.append(sums.reshape(-1, 2))
        errors.append(slips.reshape(-1, 2))
    return np.hstack(columns), np.hstack(errors) if weighted else None


@dataclass(frozen=True, eq=False)
class LabelledGroups(Grouped):
    """Scores by `streameval.states.grouped.keys.Labelled`, without strata.

    Attributes
    ----------
    rest : rows without a label
    tagged : labelled rows; of a stored state all rows
    """

    rest: ScoreCounts
    tagged: TaggedGroups

    def _group_names(self) -> list[bytes]:
        names: list[bytes] = self.tagged.table.names.to_pylist()
        rest = [UNLABELLED] if self.rest.totals().rows or self.rest.nan_rows.any() else []
        return list(dict.fromkeys(names + rest))

    def merge(self, other: LabelledGroups) -> LabelledGroups:
        """Groups of both inputs; groups with equal names are merged."""
        mergeable(self, other)
        return LabelledGroups(self.spec, self.rest.merge(other.rest), self.tagged.merge(other.tagged))

    def total(self, budget: Budget | None = None) -> ScoreCounts:
        """The inner state of all rows, without copying them."""
        return self.rest.merge(self.tagged.total(budget))

    def _chosen(self, names: Collection[bytes], budget: Budget | None) -> ScoreCounts:
        others = {group for group, name in self.tagged.named.items() if name not in names}
        chosen = cast("ScoreCounts", self.tagged.without(*others, budget=budget))
        return chosen.merge(self.rest) if UNLABELLED in names else chosen

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """First a row with the facts of each group, then their inner tables; groups in the order of their hashes."""
        tagged = self.tagged
        if UNLABELLED in self._group_names():
            rest = DenseGroups(self.spec, {UNLABELLED: self.rest}).to_arrow()
            tagged = tagged.merge(self.spec.from_arrow({}, rest, budget or Budget()).tagged)
        yield from tagged.to_arrow(budget)

    def __sizeof__(self) -> int:
        """Bytes in memory; spilled segments do not count."""
        return object.__sizeof__(self) + sys.getsizeof(self.rest) + sys.getsizeof(self.tagged)


class LabelledBuilder:
    """Builder of `LabelledGroups`; owned by one task."""

    def __init__(self, spec: SplitSpec, budget: Budget, capacity: int) -> None:
        self._spec = spec
        self._rest = spec.inner.builder(budget, capacity)
        self._tagged = TaggedBuilder(TaggedGroups.empty(spec), budget, max(1, capacity // 16))  # labels are few

    def update(self, batch: Batch) -> None:
        """Fold a batch."""
        if batch.labelled is not None and not batch.labelled.all():
            rest, inner = pack_bits(~batch.labelled), self._spec.inner
            columns = {name: batch.columns[name].filter(rest) for name in inner.columns}
            rows = len(columns[inner.column])
            weight = np.ones(rows) if inner.weighted else None
            self._rest.update(Batch(np.zeros(rows, np.uint8), weight, columns, name=batch.name))
        labelled = batch.with_labels()
        if labelled.label.size:
            self._tagged.update(labelled)

    def state(self) -> LabelledGroups:
        """The state of everything folded; the builder must not be used afterwards."""
        return LabelledGroups(self._spec, self._rest.state(), self._tagged.state())
