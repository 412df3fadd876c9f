"""Groups in narrow and wide words, swept together: every layout gives what the rows of each group give."""

import pickle
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streameval import evaluate
from streameval.budget import Budget
from streameval.metrics.finalize import computed
from streameval.metrics.scores.gain import Agc
from streameval.metrics.scores.ranking import AveragePrecision, PrAuc, RocAuc
from streameval.states import codec
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.cluster_sizes import SizeTable
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.grouped import sweeps, tag_words
from streameval.states.grouped.keys import By
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.sweeps import ClusterSweep, sweep_groups
from streameval.states.keyed import hot
from streameval.states.keyed.counts import KeyedCounts
from streameval.states.keyed.grouping import Counts
from streameval.states.protocol import Batch
from streameval.states.rounds import one_by_one
from streameval.states.scores.counts import ScoreSpec
from streameval.typing import view_numbers

ROWS, GROUPS = 3_000, 40


def table() -> tuple[np.ndarray, pa.Array, np.ndarray]:
    """Groups, ids and labels; some ids are null, and most clusters have rows of several groups."""
    rng = np.random.default_rng(5)
    group, label = rng.integers(0, GROUPS, ROWS), rng.integers(0, 2, ROWS).astype(np.uint8)
    return group, pa.array(rng.zipf(1.5, ROWS) % 4_000, mask=rng.random(ROWS) < 0.02), label


def folded(kind: pa.DataType, numbers: range, *, unlabelled: bool = False) -> Any:
    """The state of the rows of some groups."""
    group, ids, label = table()
    spec = ClusterSpec(
        "id", "signed" if kind == pa.int64() else "hash", nulls="singleton", rows="both" if unlabelled else "labelled"
    )
    builder = GroupedSpec(spec, By(("g",))).builder(Budget(), 1 << 9)
    for rows in np.array_split(np.flatnonzero(np.isin(group, numbers)), 5):
        columns = {"id": ids.cast(kind).take(pa.array(rows)), "g": pa.array(group[rows])}
        labelled = rows % 3 > 0 if unlabelled else None
        builder.update(Batch(label[rows] & (True if labelled is None else labelled), None, columns, labelled=labelled))
    return builder.state()


def cut_rows() -> list[int]:
    """Rows of each group in clusters that also have rows of other groups."""
    group, ids, _ = table()
    groups_of: dict[int, set[int]] = {}
    for key, number in zip(ids.to_pylist(), group.tolist(), strict=True):
        groups_of.setdefault(key, set()).add(number)
    cut = [0] * GROUPS
    for key, number in zip(ids.to_pylist(), group.tolist(), strict=True):
        cut[number] += key is not None and len(groups_of[key]) > 1
    return cut


def stored(state: Any) -> Any:
    """The state, written and read."""
    return codec.load(codec.dump(state)[1])


def swept(sweep: ClusterSweep, budget: Budget | None = None) -> dict[Any, tuple[Any, ...]]:
    """The columns of each group's size table and its rows in cut clusters; all rows are group None."""
    parts = [part for shard in sweep.shards(budget) for part in sweep.parts(shard, budget)]
    cut, found = sum(part.cut for part in parts), {}
    for name, (number, _) in sweep.groups.items():
        table = SizeTable.union(part.one(number) for part in parts)
        columns = table.size.tolist(), table.clusters.tolist(), table.positives.tolist()
        found[By(("g",)).group(name) if name else None] = *columns, cut[number]
    return found


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("layout", ["narrow", "wide", "stored", "mixed"])
def test_groups_are_swept_in_any_layout(
    layout: str, kind: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tables are those of their rows alone."""
    monkeypatch.setattr(sweeps, "_SHARDS", 3)
    whole, budget = folded(kind, range(GROUPS)), Budget(1 << 10, tmp_path)
    if layout in ("wide", "mixed"):
        monkeypatch.setattr(tag_words, "MOST", 7)
    if layout == "mixed":  # 20 groups are read, 4 have narrow words, and 16 wide words
        parts = stored(folded(kind, range(9))), stored(folded(kind, range(9, 20)))
        states = [*parts, folded(kind, range(20, 24)), folded(kind, range(24, GROUPS))]
        state = reduce(lambda one, other: one.merge(other), states)
        assert [one.keyed.layout.tag for one in states[2:]] == [10, 32]
    else:
        state = {"narrow": whole, "wide": folded(kind, range(GROUPS))}.get(layout) or stored(whole)
    sweep = sweep_groups(state, one_by_one, budget)
    assert isinstance(sweep, ClusterSweep)
    assert sweep.rows.keyed.layout.tag == (10 if layout in ("narrow", "stored") else 32)
    found = swept(sweep, budget)
    cut = cut_rows()
    for group in whole.groups():
        alone = whole.only(group)
        table = SizeTable.union(part for shard in alone.shards() for part in alone.parts(shard))
        columns = table.size.tolist(), table.clusters.tolist(), table.positives.tolist()
        assert found[group] == (*columns, cut[group[0]])
    total = whole.total()
    table = SizeTable.union(part for shard in total.shards() for part in total.parts(shard))
    assert found[None][:3] == (table.size.tolist(), table.clusters.tolist(), table.positives.tolist())
    assert len(found) == 1 + GROUPS
    assert state == whole


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_rows_without_a_label_are_cut_as_all_others(kind: pa.DataType) -> None:
    """Rows with equal ids are in one cluster, whether or not they have labels."""
    state = folded(kind, range(GROUPS), unlabelled=True)
    assert sweep_groups(state, one_by_one, Budget()) is None
    found = swept(ClusterSweep.of(state, Budget()))
    assert [found[group,][-1] for group in range(GROUPS)] == cut_rows()


@pytest.mark.parametrize("most", [7, 1 << 10])
def test_a_cluster_may_be_grouped_in_several_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have more groups than fit into one part."""
    monkeypatch.setattr(tag_words, "MOST", most)
    sweep = sweep_groups(folded(pa.int64(), range(GROUPS)), one_by_one, Budget())
    assert isinstance(sweep, ClusterSweep)
    counted, grouped = swept(sweep), KeyedCounts.grouped

    def by_three(keyed: KeyedCounts, *given: Any) -> Iterator[Counts]:
        for counts in grouped(keyed, *given):
            for i in range(0, counts.keys.size, 3):
                columns = (column[i : i + 3] for column in (counts.keys, counts.rest, counts.neg, counts.pos))
                yield Counts(*columns, bucket=counts.bucket)

    monkeypatch.setattr(KeyedCounts, "grouped", by_three)
    assert swept(sweep) == counted


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int64, np.uint64])
def test_slices_of_integers_over_their_whole_range(kind: type) -> None:
    """Differences of two values may be beyond their type."""
    ends = np.iinfo(kind)
    group = np.repeat(np.array([ends.min, ends.max - 1, ends.max] * 2, kind), [2, 4, 6, 2, 4, 6])
    table = pa.table({"label": np.arange(group.size) // 12, "score": np.linspace(0, 1, group.size), "g": group})
    found = evaluate(table, score="score", metrics="roc_auc", by="g")
    slices = found.slices("g").to_pydict()
    assert dict(zip(slices["g"], slices["rows"], strict=True)) == {ends.min: 4, ends.max - 1: 8, ends.max: 12}


@pytest.mark.parametrize("grouped", [False, True])
def test_nulls_inside_a_dictionary_of_scores(grouped: bool) -> None:
    """Rows of a null entry have a missing score, as rows without an entry have."""
    scores = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1, None], pa.int32()), pa.array([0.5, None, 0.25]))
    inner = ScoreSpec("score", "f8", nan="drop")
    builder = (GroupedSpec(inner, By(("g",))) if grouped else inner).builder(Budget(), 8)
    columns = {"score": scores, "g": pa.array([1, 1, 2, 2, 2])}
    builder.update(Batch(np.array([0, 1, 1, 0, 1], np.uint8), None, columns))
    state = builder.state().total() if grouped else builder.state()
    assert (state.totals().neg, state.totals().pos, state.nan_rows.tolist()) == (1, 1, [1, 2])


def test_a_view_of_numbers_refuses_nulls() -> None:
    """Their places in a buffer hold anything."""
    with pytest.raises(ValueError, match="an array with nulls has no view"):
        view_numbers(pa.array([1.0, None]))


CLUSTERS = [pa.int64(), pa.string()]


def _rows(rows: int, groups: int, kind: pa.DataType, seed: int = 0) -> tuple[np.ndarray, pa.Table]:
    """Labels and columns: clusters of about three rows, a hot one with many classes, and a hot pair."""
    rng = np.random.default_rng([groups, seed])
    ids = np.where(rng.random(rows) < 0.2, 7, rng.integers(0, rows // 3, rows))
    classes = np.where(rng.random(rows) < 0.3, 1, rng.integers(0, rows, rows))
    group = np.sort(rng.integers(0, groups, rows))  # a batch has few of them
    columns = {"id": pa.array(ids).cast(kind), "k": pa.array(classes), "g": pa.array(group)}
    return rng.integers(0, 2, rows).astype(np.uint8), pa.table(columns)


def _spec(table: pa.Table, *, cells: bool = True) -> GroupedSpec:
    kind = "signed" if table.schema.field("id").type == pa.int64() else "hash"
    inner = ContingencySpec("k", "id", cluster_type=kind) if cells else ClusterSpec("id", kind)
    return GroupedSpec(inner, By(("g",)))


def _folded(spec: Any, label: np.ndarray, table: pa.Table, budget: Budget, batches: int = 1) -> Any:
    """The state of some rows."""
    builder = spec.builder(budget, 1 << 12)
    for some in np.array_split(np.arange(label.size), batches):
        taken = table.take(pa.array(some))
        builder.update(Batch(label[some], None, {name: taken[name].combine_chunks() for name in spec.columns}))
    return builder.state()


def _of_parts(spec: GroupedSpec, label: np.ndarray, table: pa.Table, budget: Budget, parts: int) -> Any:
    """The merged state of parts of the rows, folded by builders of one budget."""
    cuts = np.array_split(np.arange(label.size), parts)
    states = (_folded(spec, label[rows], table.take(pa.array(rows)), budget, 4) for rows in cuts)
    return reduce(lambda one, other: one.merge(other), states)


def _checked(state: Any, label: np.ndarray, table: pa.Table) -> None:
    """Every group is the state of its rows alone, and all of them are the state of all rows."""
    inner, group = state.spec.inner, table["g"].to_numpy()
    total = state.total()
    assert total == _folded(inner, label, table, Budget())
    for key, found in zip(state.groups(), state.several(state.groups()), strict=True):
        rows = np.flatnonzero(group == key[0])
        assert found == _folded(inner, label[rows], table.take(pa.array(rows)), Budget())
        assert found == state.only(key)
        assert state.without(key).merge(found) == total


def test_hot_pairs_of_a_slice_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs may share their cluster and their slice; each still has a place in the table of hot keys."""
    monkeypatch.setattr(hot, "LEARN", 1 << 14)
    rng, rows = np.random.default_rng(3), 1 << 16
    columns = {"id": rng.integers(0, 10, rows), "k": rng.integers(0, 10, rows), "g": rng.integers(0, 20, rows)}
    label, table = np.zeros(rows, np.uint8), pa.table(columns)
    spec = _spec(table)
    builder = spec.builder(Budget(), rows)
    builder.update(Batch(label, None, {name: table[name].combine_chunks() for name in spec.columns}))
    state = builder.state()
    assert state.tagged["cells"].items.sum() <= 2 * 10 * 10 * 20
    _checked(state, label, table)


@pytest.mark.parametrize("kind", CLUSTERS, ids=str)
def test_slices_of_clusters_take_no_more_than_all_rows(kind: pa.DataType, tmp_path: Path) -> None:
    """However many there are, and the state of all rows takes nothing beside them."""
    label, table = _rows(60_000, 300, kind)
    budget, spec = Budget(1 << 18, tmp_path), _spec(table, cells=False)
    state = _of_parts(spec, label, table, budget, 3)
    held = budget.resident + budget.spilled
    total = state.total(budget)
    pieces = sum(segment.piece_bytes for segment in state.keyed.segments)
    assert held == budget.resident + budget.spilled <= pieces + label.size * (8 if kind == pa.int64() else 16)
    assert total == _folded(spec.inner, label, table, Budget())


@pytest.mark.parametrize("kind", CLUSTERS, ids=str)
@pytest.mark.parametrize("cells", [False, True])
def test_further_slices_have_wide_words(kind: pa.DataType, cells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups than narrow words distinguish, in a batch, in a task, or in another process."""
    monkeypatch.setattr(tag_words, "MOST", 5)
    label, table = _rows(4_000, 9, kind)
    spec = _spec(table, cells=cells)
    foreign, last = (_folded(spec, label[at : at + 900], table.slice(at, 900), Budget()) for at in (0, 3_100))
    state = _of_parts(spec, label, table, Budget(), 2).merge(pickle.loads(pickle.dumps(foreign))).merge(last)
    runs = [each.tagged["cells"] if cells else each.keyed for each in (state, last)]
    assert [run.layout.tag for run in runs] == [32, 32 if cells else 10]
    again = np.concatenate((np.arange(4_000), np.arange(900), np.arange(3_100, 4_000)))
    _checked(state, label[again], table.take(pa.array(again)))
    assert codec.load(codec.dump(state)[1]) == state


MANY_ROWS, MANY_GROUPS = 6_000, 7
METRICS = [RocAuc(), AveragePrecision(), PrAuc()]


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_slices_with_missing_scores_lose_no_weight(kind: str) -> None:
    """The weights of missing scores are summed exactly, by slice and over all."""
    rng, rows, inner = (np.random.default_rng(0), 4 * MANY_ROWS, ScoreSpec("score", kind, weighted=True, nan="half"))
    score, group = rng.integers(0, 2, rows).astype(kind), rng.integers(0, 300, rows)
    score[: rows // 2][rng.random(rows // 2) < 0.3] = np.nan
    label, weight = rng.integers(0, 2, rows).astype(np.uint8), 10.0 ** rng.uniform(-9, 9, rows)

    def folded(spec: Any, here: np.ndarray, batches: int) -> Any:
        builder = spec.builder(Budget(), MANY_ROWS)
        for some in np.array_split(np.flatnonzero(here), batches):
            columns = {"score": pa.array(score[some]), "group": pa.array(group[some])}
            builder.update(Batch(label[some], weight[some], columns))
        return builder.state()

    grouped = folded(GroupedSpec(inner, By(("group",))), group >= 0, 4)
    for number in range(0, 300, 30):
        alone = folded(inner, group == number, 1)
        assert computed(grouped.only((number,)), [*METRICS, Agc()]) == computed(alone, [*METRICS, Agc()])
        rest = folded(inner, group != number, 2)
        np.testing.assert_array_equal(grouped.without((number,)).nan_weights, rest.nan_weights)
    whole = folded(inner, group >= 0, 3)
    assert computed(grouped.total(), [*METRICS, Agc()]) == computed(whole, [*METRICS, Agc()])
