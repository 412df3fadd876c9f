"""The contingency state: the table in memory, whatever the ids, files and budget; its replicates without a block."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linear_sum_assignment

from streameval import evaluate
from streameval.arrays.contingency import ClusteringMetrics
from streameval.budget import Budget
from streameval.errors import OptionError
from streameval.kernels.blocks import spread_rows, unit_blocks
from streameval.metrics.contingency.clustering import CLUSTERING_METRICS
from streameval.simulation import simulate
from streameval.states import codec
from streameval.states.contingency import cells
from streameval.states.contingency.by_cluster import ByCluster, add_up, summarize_state
from streameval.states.contingency.cells import CoreCells
from streameval.states.contingency.class_blocks import ClassBlocks, ClassReplicates
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.contingency.summary import Sizes, Summary, summarize
from streameval.states.keyed.ids import id_type, identify
from streameval.states.protocol import Batch
from streameval.states.rounds import run

TYPES = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "int8": pa.int8(),
    "string": pa.string(),
    "binary": pa.binary(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
POLICIES = ("drop", "singleton")
SCOPES = ("global", "partition")


def column(values: Iterable[int | None], kind: str) -> pa.Array:
    """Ids of a type, one for each number; None is a null."""
    if kind == "uint64":
        return pa.array([None if v is None else 2**64 - 1 - v for v in values], pa.uint64())
    if kind in ("int64", "int8"):
        return pa.array([None if v is None else v - 3 for v in values], TYPES[kind])
    plain = pa.array([None if v is None else f"id {v}" for v in values], pa.string())
    return plain.dictionary_encode() if kind == "dictionary" else plain.cast(TYPES[kind])


def spec_of(
    kinds: tuple[str, str] = ("int64", "int64"), nulls: str = "error", scope: str = "global"
) -> ContingencySpec:
    """Spec of columns ``k`` (classes) and ``c`` (clusters)."""
    return ContingencySpec("k", "c", id_type(TYPES[kinds[0]]), id_type(TYPES[kinds[1]]), scope, nulls)


def fold(spec: ContingencySpec, table: pa.Table, capacity: int = 64, budget: Budget | None = None) -> ContingencyCounts:
    """State of a table with columns k, c and partition."""
    builder = spec.builder(budget or Budget(1 << 30), capacity)
    for batch in table.to_batches(max_chunksize=1000):
        for name in dict.fromkeys(batch.column("partition").to_pylist()):
            part = batch.filter(pa.compute.equal(batch.column("partition"), name))
            columns = {"k": part.column("k"), "c": part.column("c")}
            builder.update(Batch(np.zeros(part.num_rows, np.uint8), None, columns, name))
    return builder.state()


def table_of(
    classes: Any, clusters: Any, partitions: Any = None, kinds: tuple[str, str] = ("int64", "int64")
) -> pa.Table:
    """Table of classes, clusters and partitions, given as numbers."""
    names = ["p"] * len(classes) if partitions is None else [f"p{i}" for i in partitions]
    return pa.table(
        {"k": column(classes, kinds[0]), "c": column(clusters, kinds[1]), "partition": pa.array(names, pa.string())}
    )


def matched(state: ContingencyCounts) -> tuple[Summary, CoreCells]:
    """The summary, and the cells that decide the assignment."""
    summary, _, core = add_up(run(ByCluster(state, matched=True), Budget(1 << 30)))
    assert core is not None
    return summary, core


def truth(rows: Iterable[tuple[Any, Any]]) -> Summary:
    """Summary of (class, cluster) rows, by counting."""
    found = Counter(rows)
    sides = [{key: i for i, key in enumerate(dict.fromkeys(cell[side] for cell in found))} for side in (0, 1)]
    codes = [np.array([sides[side][cell[side]] for cell in found], np.int64) for side in (0, 1)]
    return summarize(codes[0], codes[1], np.array(list(found.values()), np.int64))


def intended(classes: Any, clusters: Any, partitions: Any, nulls: str, scope: str) -> Summary:
    """Truth with nulls and scopes as documented."""
    fresh = count()
    rows = []
    for k, c, p in zip(classes, clusters, partitions, strict=True):
        if nulls == "drop" and (k is None or c is None):
            continue
        cluster = ("null", next(fresh)) if c is None else (c, p if scope == "partition" else None)
        rows.append((("null", next(fresh)) if k is None else k, cluster))
    return truth(rows)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("nulls", POLICIES)
@pytest.mark.parametrize(
    "kinds",
    [("int64", "int64"), ("string", "uint64"), ("int8", "dictionary"), ("binary", "string"), ("dictionary", "int8")],
)
def test_every_id_type_and_policy_gives_the_table_in_memory(kinds: tuple[str, str], nulls: str, scope: str) -> None:
    """Types, nulls and scopes decide which rows are of one cell, and nothing else does."""
    rng = random.Random(f"{kinds}{nulls}{scope}")
    for rows, ids in ((0, 1), (1, 1), (60, 3), (400, 30)):
        classes, clusters = ([rng.choice([None, *range(ids)]) for _ in range(rows)] for _ in range(2))
        partitions = [rng.randrange(3) for _ in range(rows)]
        state = fold(spec_of(kinds, nulls, scope), table_of(classes, clusters, partitions, kinds))
        want = intended(classes, clusters, partitions, nulls, scope)
        assert summarize_state(state, Budget(1 << 30)) == want
        assert state.totals().rows == want.total
        assert state.dropped_rows.sum() == rows - want.total


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Small tables with nulls and few ids, sometimes repeated until cells are compacted."""
    ids = st.none() | st.integers(0, draw(st.sampled_from([1, 4, 60])))
    rows = draw(st.lists(st.tuples(ids, ids, st.integers(0, 1)), max_size=40))
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.concat_tables([table_of(*columns)] * draw(st.sampled_from([1, 1, 300]))).combine_chunks()


SHAPES = {
    "one class, lone clusters": lambda n, _: (np.zeros(n, int), np.arange(n)),
    "one cluster, lone classes": lambda n, _: (np.arange(n), np.zeros(n, int)),
    "one cell": lambda n, _: (np.zeros(n, int), np.zeros(n, int)),
    "as many classes as clusters": lambda n, rng: (rng.permutation(n), rng.permutation(n)),
    "one class, clusters of two": lambda n, _: (np.zeros(n, int), np.arange(n) // 2),
    "a giant of both": lambda n, rng: tuple(np.where(rng.random(n) < 0.8, 0, rng.integers(0, n, n)) for _ in range(2)),
    "many to many": lambda n, rng: (rng.integers(0, 50, n), rng.integers(0, 70, n)),
}


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_giants_are_streamed(shape: str, narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket beyond the budget gives the summary of one that is not, and leaves the matching the same cells."""
    rows = 900
    classes, clusters = SHAPES[shape](rows, np.random.default_rng(1))
    want = truth(zip(classes.tolist(), clusters.tolist(), strict=True))
    state = fold(spec_of(), pa.table({"k": classes, "c": clusters, "partition": ["p"] * rows}), rows // 4)
    monkeypatch.setattr(cells, "NARROW", 1 << 32 if narrow else 1)
    cores = []
    for items in (12, 1 << 20):
        monkeypatch.setattr(cells, "ITEMS", (items, items))
        summary, core = matched(state)
        assert summary == want
        cores.append(core)
    np.testing.assert_equal(*cores)


def test_a_giant_bucket_keeps_lone_classes_and_compacted_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Null classes and cells that came with counts survive the streaming of a giant cluster."""
    classes = [None if i % 3 == 0 else i % 500 for i in range(9000)]
    clusters = [0 if i % 7 else i for i in range(9000)]
    state = fold(spec_of(nulls="singleton"), table_of(classes, clusters), 4000)
    monkeypatch.setattr(cells, "ITEMS", (12, 12))
    stored = codec.load(list(codec.dump(state)[1]))
    want = intended(classes, clusters, [0] * 9000, "singleton", "global")
    assert summarize_state(state, Budget(1 << 20)) == want == summarize_state(stored, Budget(1 << 20))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spam clustering of which seven rows in ten are alone in their cluster."""
    return simulate(
        tmp_path_factory.mktemp("sim") / "data", rows=120_000, partitions=5, singletons=0, mean=100, missed=0.69
    ).path


def test_a_simulated_clustering_equals_the_table_in_memory(simulated: Path) -> None:
    """Every default metric, and one that is only computed when asked for, agrees to the last bit."""
    data = pq.read_table(simulated, columns=["campaign", "cluster"])
    table = ClusteringMetrics.from_labels(data["campaign"].to_numpy(), data["cluster"].to_numpy())
    names = [metric.name for metric in CLUSTERING_METRICS]
    found = evaluate(simulated, cluster="cluster", classes="campaign", metrics=[*names, "vi_distance/raw"])
    for metric in CLUSTERING_METRICS:
        assert found.value(metric.name) == metric.compute(table.facts.summary)
    assert found.value("vi_distance/raw") == table.vi_distance(normalize=False)
    assert {(r.of, r.rows, r.exact) for r in found.results} == {("cluster", 120_000, True)}


def test_results_are_the_same_bytes_for_any_layout_threads_and_memory(simulated: Path, tmp_path: Path) -> None:
    """Files, row order, threads and a budget that spills change no bit."""
    data = pq.read_table(simulated, columns=["campaign", "cluster", "label"])
    order = np.random.default_rng(3).permutation(data.num_rows)
    shuffled = data.take(pa.array(order))
    for i, start in enumerate(range(0, 120_000, 17_000)):
        part = shuffled.slice(start, 17_000)
        pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=3000)
    options: dict[str, Any] = {"cluster": "cluster", "classes": "campaign"}
    want = evaluate(simulated, **options, threads=1).to_json()
    assert evaluate(data, **options, threads=2).to_json() == want
    small = evaluate(tmp_path, **options, threads=2, memory="1MB")
    assert small.to_json() == want
    assert small._engine.budget.spilled > 0


def largest_matching(rows: list[tuple[Any, Any]]) -> int:
    """The best one-to-one matching by scipy, on the dense table."""
    table = ClusteringMetrics.from_labels([k for k, _ in rows], [c for _, c in rows]).to_array(default=0)
    dense = np.array(table, dtype=np.int64)
    return int(dense[linear_sum_assignment(-dense)].sum())


id_pairs = st.integers(1, 12).flatmap(
    lambda width: st.lists(st.tuples(*[st.none() | st.integers(0, width)] * 2), min_size=1, max_size=80)
)


@given(id_pairs, st.integers(0, 12), st.sampled_from(["int64", "string"]), st.sampled_from(POLICIES))
def test_the_interval_of_the_matching_holds_the_truth(
    pairs: list[tuple[int | None, int | None]], limit: int, kind: str, nulls: str
) -> None:
    """The best matching of the dense table lies in the interval, and is its value where no component is too large."""
    columns = [
        [None if x is None else f"{x}" if kind == "str" else x for x in side] for side in zip(*pairs, strict=True)
    ]
    ids = pa.string() if kind == "str" else pa.int64()
    data = pa.table({"k": pa.array(columns[0], ids), "c": pa.array(columns[1], ids), "label": [0] * len(pairs)})
    fresh = count(100)
    kept = [tuple(next(fresh) if x is None and nulls == "singleton" else x for x in pair) for pair in pairs]
    kept = [pair for pair in kept if None not in pair]
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "nulls": nulls, "metrics": "assignment_score/none/raw"}
    [bounded] = evaluate(data, **asked, assignment_cells=limit, threads=1).results
    [solved] = evaluate(data, **asked, threads=1).results
    want = largest_matching(kept) if kept else 0
    assert bounded.lower <= want <= bounded.upper
    assert (solved.lower, solved.value, solved.upper) == (want,) * 3


def test_a_giant_component_is_bounded_and_the_others_are_solved(tmp_path: Path) -> None:
    """Campaigns without noise are solved; those that noise ties together are bounded, to the same bits always."""
    asked: dict[str, Any] = {"cluster": "cluster", "classes": "campaign", "metrics": "assignment_score"}
    for noise, joined in ((0.0, False), (1.0, True)):
        path = simulate(tmp_path / f"{noise}", rows=30_000, partitions=4, mean=20, noise=noise, missed=0.0).path
        exact = evaluate(path, **asked, assignment_cells=10**9).results[0]
        bounded = evaluate(path, **asked, assignment_cells=500).results[0]
        assert bounded.exact is not joined
        assert bounded.lower <= exact.value <= bounded.upper
        assert exact.exact
        other = {"memory": "1MB", "threads": 1} | asked
        assert evaluate(sorted(path.rglob("*.parquet"))[::-1], **other, assignment_cells=500).results[0] == bounded


STORED = Path(__file__).parents[2] / "data" / "states" / "contingency.v1.parquet"


def stored() -> ContingencyCounts:
    """The state in the stored file, folded again."""
    classes, clusters = [1, 1, 2, None, 3, None, 1, 1], [4, 4, 4, 4, None, None, 5, 4]
    table = table_of(classes, clusters, [0, 0, 0, 0, 1, 1, 1, 1], ("string", "int64"))
    return fold(spec_of(("string", "int64"), "singleton", "partition"), table)


def test_a_state_stored_by_an_earlier_version_is_read() -> None:
    """The file that version 1 wrote loads as the state it was."""
    assert codec.load(pq.read_table(STORED).to_batches()) == stored()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int32(), pa.decimal128(9, 2)], ids=str)
def test_the_confusion_matrix_is_the_count_at_the_threshold(kind: pa.DataType) -> None:
    """Scores at or above the threshold are taken as positive, with ties, infinities and weights."""
    rng = np.random.default_rng(2)
    scores, labels = rng.integers(0, 40, 3000), rng.integers(0, 2, 3000)
    weights = rng.integers(0, 4, 3000) / 4
    data = pa.table(
        {
            "s": pa.array([Decimal(x) if pa.types.is_decimal(kind) else x for x in scores.tolist()], kind),
            "label": labels,
            "w": weights,
        }
    )
    for weight, w in ((None, np.ones(3000)), ("w", weights)):
        found = evaluate(data, score="s", weight=weight)
        for threshold in (-np.inf, 0, 7, 7.5, 39, np.inf):
            want = [
                [w[(labels == one) & ((scores >= threshold) == side)].sum() for side in (True, False)] for one in (1, 0)
            ]
            assert found.confusion(threshold).to_array().tolist() == want


def test_the_confusion_matrix_counts_nan_and_refuses_what_it_cannot_know() -> None:
    """A NaN that counts one half is below every threshold; a histogram's bin of several scores has no inside."""
    data = pa.table({"s": [0.1, 0.3, None, 0.3000000001], "label": [0, 0, 1, 1]})
    assert evaluate(data, score="s", nan="half").confusion(0.3).to_array().tolist() == [[1, 1], [1, 1]]
    assert evaluate(data, score="s", nan="drop").confusion(0.3).to_array().tolist() == [[1, 0], [1, 1]]
    approx = evaluate(data, score="s", nan="drop", approx=True)
    assert approx.confusion(0.2).to_array().tolist() == [[1, 0], [1, 1]]
    refuses(OptionError, r"is within the bin \[.*\) of a histogram", approx.confusion, 0.30000000005)
    refuses(OptionError, "threshold is NaN", approx.confusion, np.nan)
    refuses(OptionError, "threshold='high' must be a number", approx.confusion, "high")
    refuses(OptionError, "name the score column", approx.confusion, 0.3, of="other")


Rows = list[tuple[Any, Any]]


def replicates(state: ContingencyCounts, blocks: int = 4, budget: Budget | None = None) -> ClassReplicates:
    """The replicates of a state."""
    summary, watcher, _ = add_up(run(ByCluster(state, partial(ClassBlocks, blocks)), budget or Budget(1 << 30)))
    assert isinstance(watcher, ClassBlocks)
    return watcher.replicates(summary)


def word(value: int, kind: str) -> np.uint64:
    """First word of an id of `table_of`."""
    array = table_of([value], [value], None, (kind, kind)).column("k").combine_chunks()
    return identify(array, spec_of((kind, kind)).class_type)[0][0]


def without(rows: Rows, block: int, blocks: int, kinds: tuple[str, str] = ("int64", "int64")) -> Rows:
    """The rows of all classes but those of a block; null classes by the number of the row in its cluster."""
    classless = Counter(cluster for kind, cluster in rows if kind is None and cluster is not None)
    neither = sum(row == (None, None) for row in rows)
    left: Rows = []
    for number, (kind, cluster) in enumerate(rows):
        if kind is not None:
            home = int(unit_blocks(np.array([word(kind, kinds[0])]), blocks)[0])
            if home != block:
                left.append((kind, ("null", number) if cluster is None else cluster))
    for cluster, times in (*classless.items(), (None, neither)):
        gone = np.zeros(blocks, np.int64)
        spread_rows(np.uint64(0) if cluster is None else word(cluster, kinds[1]), times, gone)
        for k in range(times - int(gone[block])):
            left.append((("null", cluster, k), ("neither", k) if cluster is None else cluster))
    return left


def check(rows: Rows, found: ClassReplicates, blocks: int, kinds: tuple[str, str] = ("int64", "int64")) -> None:
    """All replicates are those of the rows that are left, with equal bits."""
    whole = sum(1 for _ in rows)
    assert found.rows.sum() == whole
    for block in range(blocks):
        left = without(rows, block, blocks, kinds)
        assert found.rows[block] == whole - len(left)
        assert found.without(block) == replace(truth(left), inertia=None)


@settings(max_examples=40)
@given(
    st.sampled_from([1, 3, 40]).flatmap(
        lambda ids: st.lists(st.tuples(*[st.none() | st.integers(0, ids)] * 2), max_size=60)
    ),
    st.sampled_from([("int64", "int64"), ("string", "uint64"), ("dictionary", "binary")]),
    st.integers(2, 5),
)
def test_a_replicate_is_the_summary_of_the_rows_that_are_left(rows: Rows, kinds: tuple[str, str], blocks: int) -> None:
    """Nulls, singletons, one class, empty blocks and a class that is everything included."""
    table = table_of(*(list(zip(*rows, strict=True)) or [(), ()]), None, kinds)
    state = fold(spec_of(kinds, "singleton"), table)
    found = replicates(state, blocks)
    check(rows, found, blocks, kinds)
    assert found.classless == sum(kind is None for kind, _ in rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("items", [12, 1 << 20])
def test_giant_clusters_and_classes(shape: str, items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters and classes that are streamed give the replicates of those that are not."""
    classes, clusters = (side.tolist() for side in SHAPES[shape](3000, np.random.default_rng(1)))
    state = fold(spec_of(), pa.table({"k": classes, "c": clusters, "partition": ["p"] * 3000}), 700)
    monkeypatch.setattr(cells, "ITEMS", (items, items))
    rows = [(kind + 3, cluster + 3) for kind, cluster in zip(classes, clusters, strict=True)]  # as `table_of` shifts
    check(rows, replicates(state, 3), 3)


def test_squares_beyond_64_bits() -> None:
    """Cells of many rows keep every digit, in classes and in clusters."""
    large, none = 3_000_000_019, np.empty(0, np.int64)
    rows, zeros, words = np.array([large, large]), np.zeros(2, np.int64), np.array([5, 6], np.uint64)
    watcher = ClassBlocks(2)
    total = np.array([2 * large])
    watcher.add_classes(lambda _: words[:1, None], total, rows[:1], zeros[:1], [(zeros, rows, rows + 7, none)])
    watcher.add_clusters(lambda _: words[:1, None], total, zeros[:1], [(zeros, words, rows)])
    block = int(unit_blocks(words[:1], 2)[0])
    for sums in (watcher.classes.only(block)[1], -watcher.clusters.only(block)[1][-1:]):
        assert (int(sums[0, 1]) << 32) + int(sums[0, 2]) == 2 * large**2


@given(st.dictionaries(st.integers(1, 2**40), st.integers(1, 2**20), max_size=30))
def test_sums_of_large_sizes_are_exact(sizes: dict[int, int]) -> None:
    """Sums of sizes and of their squares equal those of Python integers, also beyond 64 bits."""
    found = Sizes.of(np.array([*sizes], np.int64), np.array([*sizes.values()], np.int64))
    assert found.total == sum(size * times for size, times in sizes.items())
    assert found.squares == sum(size * size * times for size, times in sizes.items())
