"""Clusters by block and with labels: tables that stand for two states give what these give."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sizes import sizes as tiny_sizes
from strategies import ID_TYPES, id_values

from streameval.budget import Budget
from streameval.kernels.blocks.changes import spread_rows
from streameval.states.blocks import BLOCKS, SizeChanges
from streameval.states.clusters.counts import ClusterCounts, ClusterSpec
from streameval.states.clusters.sizes import SizeTable
from streameval.states.contingency import by_cluster
from streameval.states.contingency.by_cluster import ByCluster, summarize_state
from streameval.states.contingency.counts import ContingencySpec, LabelledSpec
from streameval.states.grouped.keys import Blocks
from streameval.states.keyed import hot
from streameval.states.keyed.ids import id_type
from streameval.states.keyed.ranges import balanced, buckets, joined, outline_only, ranged, restored
from streameval.states.protocol import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.states.clusters.counts import ClusterCounts
    from streameval.states.contingency.counts import ContingencyCounts
    from streameval.typing import Array


TYPES = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string()}
KINDS = [("int64", "int64"), ("string", "uint64"), ("int64", "string"), ("string", "string")]


def column(ids: Array, kind: str, *, encoded: bool = False) -> pa.Array:
    """Ids of a type, one for each number."""
    if kind == "string":
        made = pa.array([f"id {i}" for i in ids.tolist()], pa.string())
    else:
        made = pa.array(ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(TYPES[kind])
    return made.dictionary_encode() if encoded else made


def spec_of(kinds: tuple[str, str], scope: str = "global") -> LabelledSpec:
    """Spec of columns ``k`` (classes) and ``c`` (clusters)."""
    return LabelledSpec("k", "c", id_type(TYPES[kinds[0]]), id_type(TYPES[kinds[1]]), scope)


def folded(spec: Any, batches: Sequence[Batch], capacity: int, budget: Budget, builders: int = 1) -> Any:
    """The state of some batches, merged from several builders."""
    state = spec.empty()
    for i in range(builders):
        builder = spec.builder(budget, capacity)
        for batch in batches[i::builders]:
            builder.update(batch)
        state = state.merge(builder.state())
    return state


def three(
    spec: LabelledSpec, batches: Sequence[Batch], capacity: int, budget: Budget, builders: int = 1
) -> tuple[ContingencyCounts, ContingencyCounts, ClusterCounts]:
    """The table with labels, and the two states that it replaces."""
    given = batches, capacity, budget, builders
    return folded(spec, *given), folded(ContingencySpec(**vars(spec)), *given), folded(spec.clusters, *given)


def whole(state: Any, budget: Budget) -> SizeTable:
    """The size table of all shards."""
    return SizeTable.union([part for shard in state.shards() for part in state.parts(shard, budget)])


def same(one: SizeTable, other: SizeTable) -> bool:
    """Whether two size tables are equal."""
    columns = zip((one.size, one.clusters, one.positives), (other.size, other.clusters, other.positives), strict=True)
    return all(np.array_equal(mine, theirs) for mine, theirs in columns)


def check_same(states: tuple[ContingencyCounts, ContingencyCounts, ClusterCounts], budget: Budget) -> None:
    """Whatever is computed from a table with labels is what the other two states give."""
    labelled, table, clusters = states
    assert summarize_state(labelled, budget) == summarize_state(table, budget)
    expected = whole(clusters, budget)
    derived = labelled.total(budget)
    assert same(whole(derived, budget), expected)
    assert labelled.totals() == table.totals() == derived.totals() == clusters.totals()
    assert (derived.spec, derived.holder) == (clusters.spec, labelled.spec)
    assert labelled == table
    assert derived == clusters


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("few", [True, False])
def test_the_results_are_those_of_two_states(
    kinds: tuple[str, str], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any rows, runs and dictionaries among them, any capacity, and hot keys."""
    if few:
        monkeypatch.setattr(hot, "LEARN", 20)
        monkeypatch.setattr(by_cluster, "_SMALL", 4)

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        scope = data.draw(st.sampled_from(["global", "partition"]))
        batches = []
        for _ in range(data.draw(st.integers(0, 4))):
            rows, ids = data.draw(st.integers(1, 200)), data.draw(st.sampled_from([1, 5, 300]))
            clusters, classes = rng.integers(0, ids, (2, rows))
            classes = np.where(rng.random(rows) < 0.5, clusters, classes)
            if data.draw(st.booleans()):
                clusters, classes = np.repeat(clusters, 5), np.repeat(classes, 5)
            label = (rng.random(clusters.size) < data.draw(st.sampled_from([0.0, 0.3, 1.0]))).astype(np.uint8)
            encoded = data.draw(st.booleans())
            columns = {name: column(each, kind, encoded=encoded)
                       for name, each, kind in zip("kc", (classes, clusters), kinds, strict=True)}  # fmt: skip
            batches.append(Batch(label, None, columns, data.draw(st.sampled_from(["p", "q"]))))
        budget = Budget(1 << 30)
        given = batches, data.draw(st.sampled_from([3, 64, 4096])), budget, data.draw(st.integers(1, 3))
        check_same(three(spec_of(kinds, scope), *given), budget)

    check()


def rows_of(count: int, seed: int = 0) -> list[Batch]:
    """Batches with one giant cluster, many singletons, and clusters of several classes."""
    rng = np.random.default_rng(seed)
    clusters = np.where(rng.random(count) < 0.3, 0, rng.zipf(1.3, count) % (2 * count))
    classes = np.where(rng.random(count) < 0.5, clusters, rng.integers(0, count, count))
    label = (rng.random(count) < 0.3).astype(np.uint8)
    columns = {"k": column(classes, "int64"), "c": column(clusters, "int64")}
    return [
        Batch(label[i : i + 500], None, {name: array.slice(i, 500) for name, array in columns.items()})
        for i in range(0, count, 500)
    ]


def test_ranges_give_the_same() -> None:
    """Workers hold ranges of clusters; their summaries add up, and each has the clusters of its range."""
    budget = Budget(1 << 30)
    labelled, table, clusters = three(spec_of(("int64", "int64")), rows_of(9000), 1000, budget)
    outline, summaries, tables = outline_only(labelled), [], []
    for interval, shards in balanced(outline, buckets(outline), 3):
        here = restored(outline, joined([ranged(labelled.runs(), interval)]))
        summaries += [ByCluster(here).visit(shard, budget)[0].summary for shard in shards]
        tables += [part for shard in shards for part in here.total(budget).parts(shard, budget)]
    merged = summaries[0].merge(*summaries[1:])
    assert same(SizeTable.union(tables), whole(clusters, budget))
    assert merged.clusters == summarize_state(table, budget).clusters


def fold(clusters: pa.Array, labels: list[int], capacity: int = 64) -> ClusterCounts:
    """The state of some rows."""
    builder = ClusterSpec("c", id_type(clusters.type), nulls="singleton").builder(Budget(), capacity)
    builder.update(Batch(np.array(labels, np.uint8), None, {"c": clusters}))
    return builder.state()


def swept(state: Any) -> SizeChanges:
    """All shards of a state."""
    return SizeChanges.union([state.by_block(shard, Budget()) for shard in state.shards()])


def table(found: Any) -> dict[int, tuple[int, int]]:
    """A size table as a mapping."""
    return {
        s: (c, p) for s, c, p in zip(*(x.tolist() for x in (found.size, found.clusters, found.positives)), strict=True)
    }


def truth(clusters: list[Any], labels: list[int]) -> dict[int, tuple[int, int]]:
    """The size table by its definition."""
    size, positive = Counter(clusters), Counter(c for c, label in zip(clusters, labels, strict=True) if label)
    counts, positives = Counter(size.values()), Counter[int]()
    for cluster, rows in size.items():
        positives[rows] += positive[cluster]
    return {rows: (count, positives[rows]) for rows, count in counts.items()}


@pytest.mark.parametrize("kind", ID_TYPES, ids=str)
def test_clusters_are_units(kind: pa.DataType) -> None:
    """A block takes whole clusters; null ids are clusters of one row."""

    @settings(max_examples=10, deadline=None)
    @given(
        st.lists(st.tuples(id_values(kind), st.integers(0, 1)), max_size=40),
        st.sampled_from([1, 2, 300]),
        st.booleans(),
    )
    def check(rows: list[tuple[Any, int]], copies: int, tiny: bool) -> None:
        rows = rows * copies
        column = pa.array([c for c, _ in rows], kind)
        labels = [label for _, label in rows]
        with tiny_sizes(tiny=tiny):
            found = swept(fold(column, labels))
        split = Blocks("c", BLOCKS).split(Batch(np.zeros(len(rows), np.uint8), None, {"c": column}))
        names = [Blocks("c").group(name) for name in split.names.to_pylist()]
        blocks = [names[code] for code in split.codes]
        ids: list[Any] = column.to_pylist()
        for label in (0, 1):  # null ids: any of the label's rows
            nulls = [i for i, (c, l_) in enumerate(zip(ids, labels, strict=True)) if c is None and l_ == label]
            spread = np.zeros(BLOCKS, np.int64)
            spread_rows(np.uint64(label), len(nulls), spread)
            for i, block in zip(nulls, np.repeat(np.arange(BLOCKS), spread).tolist(), strict=True):
                ids[i], blocks[i] = ("null", i), block
        assert table(found.table) == truth(ids, labels)
        for block in {*blocks, 0, 1}:
            left = [i for i, b in enumerate(blocks) if b != block]
            assert table(found.without(block)) == truth([ids[i] for i in left], [labels[i] for i in left])
            assert found.rows[block] == len(rows) - len(left)
            assert found.positives[block] == sum(labels) - sum(labels[i] for i in left)

    check()
