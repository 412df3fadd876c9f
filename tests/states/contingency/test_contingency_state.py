"""The contingency state: equal to the table in memory, whatever the ids, the layout of the files and the budget."""

from __future__ import annotations

import json
import random
from collections import Counter
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from streameval import evaluate
from streameval.arrays.contingency.table import ClusteringMetrics
from streameval.budget import Budget
from streameval.cli import main
from streameval.errors import FormatError, IncompatibleStatesError, NullError, OptionError, SchemaError
from streameval.metrics.contingency.clustering import CLUSTERING_METRICS
from streameval.simulation import simulate
from streameval.states import codec
from streameval.states.contingency import cells
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.contingency.rounds import ByCluster, add_up, summarize_state
from streameval.states.contingency.summary import Summary, summarize
from streameval.states.keyed import counts
from streameval.states.keyed.ids import id_type, identify
from streameval.states.protocol import Batch
from streameval.states.rounds import run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.states.contingency.matching_core import CoreCells

CASES = json.loads((Path(__file__).parents[2] / "data" / "contingency.json").read_text())
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


@pytest.mark.parametrize("nulls", POLICIES)
@pytest.mark.parametrize("scope", SCOPES)
def test_states_obey_the_laws(nulls: str, scope: str, tmp_path: Path) -> None:
    """Splits, row order, capacity, grouping of merges, and a Parquet file leave a state what it is."""
    spec = spec_of(nulls=nulls, scope=scope)

    @settings(max_examples=12, deadline=None)
    @given(tables(), st.floats(0, 1), st.sampled_from([3, 100, 5000]), st.randoms(use_true_random=False))
    def check(table: pa.Table, share: float, capacity: int, shuffler: random.Random) -> None:
        whole = fold(spec, table)
        at = int(share * table.num_rows)
        order = list(range(table.num_rows))
        shuffler.shuffle(order)
        a, b = (fold(spec, part, capacity) for part in (table.slice(0, at), table.slice(at)))
        c = fold(spec, table.take(pa.array(order, pa.int64())), capacity)
        assert a.merge(b) == whole == b.merge(a) == c
        assert a.merge(b).merge(c) == a.merge(b.merge(c))
        assert whole.merge(spec.empty()) == whole == spec.empty().merge(whole)
        schema, batches = codec.dump(whole)
        pq.write_table(pa.Table.from_batches(batches, schema), tmp_path / "state.parquet", row_group_size=7)
        file = pq.ParquetFile(tmp_path / "state.parquet")
        loaded = codec.load(pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=5)))
        assert loaded == whole
        assert (
            summarize_state(loaded, Budget(1 << 30))
            == summarize_state(whole, Budget(1 << 30))
            == summarize_state(a.merge(b), Budget(1 << 30))
        )

    check()


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
    """A bucket beyond the budget gives the summary of one that is not, with counts in one word and in two."""
    classes, clusters = SHAPES[shape](3000, np.random.default_rng(1))
    want = truth(zip(classes.tolist(), clusters.tolist(), strict=True))
    state = fold(spec_of(), pa.table({"k": classes, "c": clusters, "partition": ["p"] * 3000}), 750)
    monkeypatch.setattr(cells, "NARROW", 1 << 32 if narrow else 1)
    for items in (12, 1 << 20):
        monkeypatch.setattr(cells, "ITEMS", (items, items))
        assert summarize_state(state, Budget(1 << 30)) == want


@pytest.mark.parametrize("kind", ["int64", "uint64", "string"])
@pytest.mark.parametrize("ids", [3, 40, 4000])
def test_rows_of_classes_are_counted(kind: str, ids: int) -> None:
    """Small integers, other ids, and ids that hardly repeat: each class has its rows, and the matching sees them."""
    rng = np.random.default_rng(ids)
    classes, clusters = (rng.integers(0, size, 4000) for size in (ids, 3000))
    state = fold(spec_of((kind, "int64")), table_of(classes.tolist(), clusters.tolist(), None, (kind, "int64")), 64)
    sizes = Counter(Counter(classes.tolist()).values())
    assert sorted(summarize_state(state, Budget(1 << 30)).classes.pairs()) == sorted(sizes.items())
    assert summarize_state(state, Budget(1 << 30)) == truth(zip(classes.tolist(), clusters.tolist(), strict=True))
    stored = codec.load(list(codec.dump(state)[1]))
    found, again = map(matched, (state, stored))
    assert found[0] == again[0]
    assert all(np.array_equal(one, other) for one, other in zip(found[1], again[1], strict=True))


@pytest.mark.parametrize("wanted", [2, 60])
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_a_walk_takes_the_rows_of_some_clusters_and_classes_and_few_others(
    kind: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of their rows, in any number of shards and slabs; rows without a class are none of theirs."""
    rng = np.random.default_rng(wanted)
    classes, clusters = ([*ids.tolist(), *[5] * 300] for ids in rng.integers(0, 3000, (2, 6000)))
    given = [None if i % 11 == 0 else k for i, k in enumerate(classes)]
    state = fold(spec_of((kind, kind), "singleton"), table_of(given, clusters, None, (kind, kind)), 500)
    stored = codec.load(list(codec.dump(state)[1]))
    few = [identify(column(range(5, 5 + wanted), kind), id_type(TYPES[kind])) for _ in "ck"]
    groups = [np.column_stack((first, rest)) for first, rest in few]
    rows = [(c, k) for k, c in zip(given, clusters, strict=True) if k is not None]
    due = Counter((c, k) for c, k in rows if c in range(5, 5 + wanted) or k in range(5, 5 + wanted))
    first, rest = identify(column(range(3000), kind), id_type(TYPES[kind]))
    names = {words.tobytes(): i for i, words in enumerate(np.column_stack((first, rest)))}
    for slab in (64, 1 << 20):
        monkeypatch.setattr(counts, "SLAB", slab)
        monkeypatch.setattr(cells, "SLAB", slab)
        for each in (state, stored):
            found: Counter[tuple[int, int]] = Counter()
            for start in range(0, 2048, 512):
                for own, other, times in each.rows_of((start, start + 512)).near(*groups):
                    for cell, n in zip(zip(own, other, strict=True), times.tolist(), strict=True):
                        found[names[cell[0].tobytes()], names[cell[1].tobytes()]] += n
            assert due.items() <= found.items()
            assert found.total() <= due.total() + 400


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
    assert small._engine is not None
    assert small._engine.budget.spilled > 0


def _rows(case: dict[str, Any]) -> float:
    """Rows that a reference case has once it is written out."""
    return sum(n for _, _, n in case["input"]["cells"])


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if all(n == int(n) and n > 0 for _, _, n in c["input"]["cells"]) and _rows(c) <= 200_000][:12],
    ids=lambda c: c["id"],
)
def test_golden_cases_through_parquet(case: dict[str, Any], tmp_path: Path) -> None:
    """Reference values come out of a file as they do out of memory."""
    listed = case["input"]["cells"]
    rows = [(k, c) for k, c, n in listed for _ in range(int(n))]
    text = pa.array([str(k) for k, _ in rows], pa.string()), pa.array([str(c) for _, c in rows], pa.string())
    data = pa.table({"k": text[0], "c": text[1], "label": pa.array([0] * len(rows), pa.int8())})
    pq.write_table(data, tmp_path / "data.parquet", row_group_size=5)
    table = ClusteringMetrics.from_counts(*([cell[i] for cell in listed] for i in range(3)))
    asked = [*(metric.name for metric in CLUSTERING_METRICS), "assignment_score", "assignment_score/m3/raw"]
    found = evaluate(tmp_path / "data.parquet", cluster="c", classes="k", metrics=asked)
    for metric in CLUSTERING_METRICS:
        assert found.value(metric.name) == pytest.approx(metric.compute(table.facts.summary), nan_ok=True, abs=0)
    assert found.value("assignment_score") == pytest.approx(table.assignment_score(), rel=1e-12, nan_ok=True)
    assert found.value("assignment_score/m3/raw") == table.assignment_score(model="m3", normalize=False)


@pytest.mark.parametrize("nulls", POLICIES)
def test_the_best_matching_knows_lone_rows(nulls: str) -> None:
    """Rows whose null is a singleton cluster or class take part in the matching."""
    rng = random.Random(nulls)
    for _ in range(20):
        classes, clusters = ([rng.choice([None, 0, 1, 2]) for _ in range(12)] for _ in range(2))
        data = pa.table(
            {"k": pa.array(classes, pa.int64()), "c": pa.array(clusters, pa.int64()), "label": pa.array([0] * 12)}
        )
        found = evaluate(data, cluster="c", classes="k", metrics="assignment_score/none/raw", nulls=nulls)
        fresh = count(10)
        rows = [
            tuple(next(fresh) if x is None and nulls == "singleton" else x for x in row)
            for row in zip(classes, clusters, strict=True)
        ]
        kept = [row for row in rows if None not in row]
        table = ClusteringMetrics.from_labels([k for k, _ in kept], [c for _, c in kept])
        assert found.value("assignment_score/none/raw") == table.assignment_score(normalize=False, model=None)


def test_a_component_too_large_leaves_a_certain_interval() -> None:
    """The value is not exact then, and the exact one is between its ends, the same for any order."""
    rng = np.random.default_rng(5)
    data = pa.table({"k": rng.integers(0, 8, 500), "c": rng.integers(0, 9, 500), "label": np.zeros(500, np.int8)})
    exact = evaluate(data, cluster="c", classes="k", metrics="assignment_score").value("assignment_score")
    one, other = (
        evaluate(table, cluster="c", classes="k", metrics="assignment_score", assignment_cells=5).results[0]
        for table in (data, data.take(pa.array(rng.permutation(500))))
    )
    assert one == other
    assert not one.exact
    assert one.lower <= exact <= one.upper


def test_metrics_are_picked_by_name_and_glob() -> None:
    """Names of scores, clusters and classes may stand together; nothing picked means the defaults."""
    data = pa.table({"s": [0.1, 0.4, 0.9], "label": [0, 0, 1], "c": ["a", "a", "b"], "k": [1, 2, 2]})
    options: dict[str, Any] = {"score": "s", "cluster": "c", "classes": "k"}
    chosen = evaluate(data, **options, metrics=["roc_auc", "aul", "bcubed_*", "pairwise.kappas.0"])
    assert [(r.metric, r.of) for r in chosen.results] == [
        ("roc_auc", "s"),
        ("aul", "c"),
        *((f"bcubed_{name}", "c") for name in ("precision", "recall", "fscore")),
        ("pairwise.kappas.0", "c"),
    ]
    usual = [r.metric for r in evaluate(data, **options).results if r.of == "c"]
    assert usual == ["aul", "roc_auc_by_size", *(metric.name for metric in CLUSTERING_METRICS)]


def test_a_metric_that_needs_whole_counts_leaves_the_others_their_values() -> None:
    """Where a null model has fractions and a measure takes none, it has no value, and the reason says so."""
    data = pa.table({"label": [0, 0, 1], "c": [1, 1, 2], "k": [5, 6, 6]})
    found = evaluate(data, cluster="c", classes="k", metrics=["rand_index", "adjust_to_null/hypergeometric/m3"])
    assert found.value("rand_index") == 1 / 3
    adjusted = [r for r in found.results if r.metric.startswith("adjust")]
    assert [r.metric[-2:] for r in adjusted] == [".0", ".1"]
    assert all("hypergeometric needs whole counts" in r.reason for r in adjusted)


def test_two_clusterings_share_the_pass() -> None:
    """Every cluster column is compared with the one class column."""
    data = pa.table({"label": [0, 1, 1], "a": [1, 1, 2], "b": [1, 2, 3], "k": [5, 5, 6]})
    found = evaluate(data, cluster=["a", "b"], classes="k")
    assert found.value("adjusted_rand_index", of="a") == 1.0
    assert found.value("homogeneity", of="b") == 1.0
    assert found.value("completeness", of="b") < 1.0


ROWS = {"label": [0, 1, 1], "c": [1, 1, 2], "k": [5, None, 6], "f": [0.5, 1.5, 2.5]}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cluster": "c", "classes": "k"}, NullError, "class column 'k' has nulls; choose --nulls drop or"),
        ({"cluster": "k", "classes": "c"}, NullError, "cluster column 'k' has nulls"),
        ({"cluster": "c", "classes": "f"}, SchemaError, "column 'f' has type double; ids are integers"),
        ({"score": "f", "classes": "k"}, OptionError, "name a cluster column"),
        ({"cluster": "c", "classes": "k", "metrics": "ari"}, OptionError, "no metric is named 'ari'; there are: aul"),
        (
            {"cluster": "c", "metrics": "v_measure"},
            OptionError,
            "needs a cluster column against the class column: name both",
        ),
        (
            {"cluster": "c", "classes": "k", "metrics": "pairwise.kappas.7"},
            OptionError,
            "name one of pairwise.kappas.0",
        ),
        ({"cluster": "c", "classes": "k", "metrics": "pairwise.fscore/beta=x"}, OptionError, "beta is 'x'; give"),
        ({"cluster": "c", "classes": "k", "metrics": "pairwise.nosuch"}, OptionError, "no metric is named"),
        ({"cluster": "c", "classes": "nope"}, ValueError, "nope"),
        (
            {"cluster": "c", "classes": "k", "assignment_cells": -1},
            OptionError,
            "assignment_cells=-1 is not a whole number of cells",
        ),
        ({"cluster": "c", "classes": "k", "assignment_cells": 0.5}, OptionError, "assignment_cells=0.5 is not a whole"),
    ],
)
def test_bad_input_gets_one_line(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """Each message names what is wrong and what to do about it."""
    with pytest.raises(error, match=message) as raised:
        evaluate(pa.table(ROWS), **options)
    assert "\n" not in str(raised.value)


def largest_matching(rows: list[tuple[Any, Any]]) -> int:
    """The best one-to-one matching by scipy, on the dense table."""
    table = ClusteringMetrics.from_labels([k for k, _ in rows], [c for _, c in rows]).to_array(default=0)
    dense = np.array(table, dtype=np.int64)
    return int(dense[linear_sum_assignment(-dense)].sum())


id_pairs = st.integers(1, 12).flatmap(
    lambda width: st.lists(st.tuples(*[st.none() | st.integers(0, width)] * 2), min_size=1, max_size=80)
)


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("shape", SHAPES)
def test_the_core_of_giants_is_streamed(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets beyond the budget leave the same cells to the matching as those within it."""
    classes, clusters = SHAPES[shape](1500, np.random.default_rng(1))
    data = pa.table({"k": classes, "c": clusters, "partition": ["p"] * 1500})
    state = fold(spec_of(), data, 400)
    found = []
    for items in (12, 1 << 20):
        monkeypatch.setattr(cells, "ITEMS", (items, items))
        found.append(matched(state))
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert np.array_equal(one, other)


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


def test_null_classes_are_counted_when_dropped() -> None:
    """What was left out is said, for clusters and for classes."""
    data = pa.table({"label": [0, 1, 1, 0], "c": [1, None, 2, 2], "k": [5, 5, None, 6]})
    found = evaluate(data, cluster="c", classes="k", nulls="drop")
    assert found.dropped == (("null cluster c", 1), ("null class k (with c)", 1))
    assert {r.rows for r in found.results if r.metric == "rand_index"} == {2}


def test_only_what_the_metrics_need_is_built() -> None:
    """Metrics of classes alone leave the cluster sizes out, and drop the same rows."""
    data = pa.table({"label": [0, 1, 1, 0], "c": [1, None, 2, 2], "k": [5, 5, None, 6]})
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "nulls": "drop"}
    alone = evaluate(data, **asked, metrics="rand_index")
    both = evaluate(data, **asked, metrics=["rand_index", "aul"])
    assert [group for group, _ in alone._states] == ["classes"]
    assert [group for group, _ in both._states] == ["cluster", "classes"]
    assert alone.dropped == both.dropped == (("null cluster c", 1), ("null class k (with c)", 1))
    assert both.curve("lift").area == both.value("aul")
    with pytest.raises(OptionError, match="add aul to metrics"):
        alone.curve("lift")


def test_degenerate_tables_have_values_without_warnings() -> None:
    """No rows, one class, one cluster and all singletons: every metric has a value or a reason."""
    for classes, clusters in (
        ([None], [None]),
        ([1], [1]),
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [1, 1, 1]),
        ([1, 2], [1, 2]),
    ):
        data = pa.table(
            {
                "k": pa.array(classes, pa.int64()),
                "c": pa.array(clusters, pa.int64()),
                "label": pa.array([0] * len(classes)),
            }
        )
        results = evaluate(data, cluster="c", classes="k", nulls="drop", metrics=["*"]).results
        assert all(r.value == r.value or r.reason for r in results)


def test_states_of_other_specs_do_not_merge() -> None:
    """Merging refuses before it touches anything."""
    with pytest.raises(IncompatibleStatesError, match="cannot merge"):
        spec_of().empty().merge(spec_of(nulls="drop").empty())


def test_a_damaged_state_is_refused() -> None:
    """Rows that do not add up to those in the header are damage."""
    _, batches = codec.dump(fold(spec_of(), table_of([1, 2, 3], [1, 1, 2])))
    whole = pa.Table.from_batches(batches)
    with pytest.raises(FormatError, match="damaged"):
        codec.load(whole.slice(1).to_batches())


STORED = Path(__file__).parents[2] / "data" / "states" / "contingency.v1.parquet"


def stored() -> ContingencyCounts:
    """The state in the stored file, folded again."""
    classes, clusters = [1, 1, 2, None, 3, None, 1, 1], [4, 4, 4, 4, None, None, 5, 4]
    table = table_of(classes, clusters, [0, 0, 0, 0, 1, 1, 1, 1], ("string", "int64"))
    return fold(spec_of(("string", "int64"), "singleton", "partition"), table)


def test_a_state_stored_by_an_earlier_version_is_read() -> None:
    """The file that version 1 wrote loads as the state it was."""
    assert codec.load(pq.read_table(STORED).to_batches()) == stored()


def test_the_command_line_takes_classes(tmp_path: Path) -> None:
    """`--classes` adds the metrics to the JSON, and its mistakes are one line and status 1 or 2."""
    pq.write_table(pa.table(ROWS), tmp_path / "data.parquet")
    usual = ["evaluate", str(tmp_path / "data.parquet"), "--cluster", "c", "--quiet", "--json", "-"]
    found = CliRunner().invoke(main, [*usual, "--classes", "k", "--nulls", "singleton"])
    values = {r["metric"]: r["value"] for r in json.loads(found.stdout)["results"]}
    assert found.exit_code == 0
    assert (values["bcubed_recall"], values["bcubed_precision"]) == (1.0, pytest.approx(2 / 3))
    assert CliRunner().invoke(main, [*usual, "--classes", "k"]).exit_code == 1
    assert CliRunner().invoke(main, [*usual, "--classes", "k", "--nulls", "drop", "--metric", "nope"]).exit_code == 2


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
    with pytest.raises(OptionError, match=r"is within the bin \[.*\) of a histogram"):
        approx.confusion(0.30000000005)
    with pytest.raises(OptionError, match="threshold is NaN"):
        approx.confusion(np.nan)
    with pytest.raises(OptionError, match="threshold='high' must be a number"):
        approx.confusion("high")
    with pytest.raises(OptionError, match="name the score column"):
        approx.confusion(0.3, of="other")


@pytest.mark.parametrize("scope", ["global", "partition"])
def test_batches_with_the_same_dictionaries_share_their_counts(scope: str) -> None:
    """A pair is one item in all of them, however few rows a batch has; other dictionaries begin again."""
    rng, spec = np.random.default_rng(5), ContingencySpec("class", "cluster", "hash", "hash", scope=scope)
    builder, plain = (spec.builder(Budget(), 4_000) for _ in range(2))
    texts = {name: pa.array([f"{name}{i}" for i in range(10)]) for name in spec.columns}
    for rows, partition, step in ((1_000, "a", 1), (20, "a", 1), (1_000, "b", 1), (1_000, "b", -1), (20, "b", 1)):
        columns = {
            name: pa.DictionaryArray.from_arrays(
                pa.array(rng.integers(0, 10, rows)), values.take(np.arange(10)[::step])
            )
            for name, values in texts.items()
        }
        builder.update(Batch(np.zeros(rows, np.uint8), None, columns, partition))
        decoded = {name: array.dictionary_decode() for name, array in columns.items()}
        plain.update(Batch(np.zeros(rows, np.uint8), None, decoded, partition))
    state = builder.state()
    assert state == plain.state()
    assert state.cells.items.sum() <= 3 * 100 + 20
