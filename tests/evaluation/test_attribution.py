"""Attribution: contributions add up, gains equal those of the recomputed table, and the layout changes no result."""

import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import count
from math import comb, isnan
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from refusals import refuses

from streameval import Store, attribute, evaluate
from streameval.arrays.contingency import ContingencyTable
from streameval.errors import CorruptFileError, MissingColumnError, NullError, OptionError, SchemaError
from streameval.evaluation.attribution import Run, forecasts
from streameval.metrics.clusters import WorstImpure
from streameval.metrics.contingency.attribution import GAINS
from streameval.metrics.finalize import compute
from streameval.report.attribution import conclusion, title_of
from streameval.states.contingency import cells

SPAM = Path(__file__).parents[1] / "data" / "spam_messages"
IDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.booleans()), min_size=1, max_size=60)
ROWS = IDS.map(lambda rows: [(k - 2, c - 2, label) for k, c, label in rows])
TOLD = {
    "adjusted_rand_index": lambda t: t.adjusted_rand_index(),
    "pairwise.precision": lambda t: t.pairwise.precision(),
    "pairwise.recall": lambda t: t.pairwise.recall(),
    "pairwise.fscore": lambda t: t.pairwise.fscore(),
    "bcubed_precision": lambda t: t.bc_metrics()[0],
    "bcubed_recall": lambda t: t.bc_metrics()[1],
    "bcubed_fscore": lambda t: t.bc_metrics()[2],
}


def table_of(rows: Sequence[tuple[Any, Any, bool]]) -> pa.Table:
    """Classes, clusters and labels."""
    names = [pa.array([row[i] for row in rows]) for i in range(3)]
    return pa.table([*names, pa.array(range(len(rows)))], ["k", "c", "label", "id"])


def pairs_of(groups: Counter[Any]) -> int:
    """Pairs within groups."""
    return sum(comb(n, 2) for n in groups.values())


def close(one: float, other: float) -> bool:
    """Whether two numbers are equal up to rounding, or both not defined."""
    return (isnan(one) and isnan(other)) or abs(one - other) < 1e-12


@given(ROWS)
def test_costs_are_counted_and_add_up(rows: list[tuple[int, int, bool]]) -> None:
    """False and missed pairs are those of every group, counted one by one, in order, and their sums the totals."""
    found = attribute(table_of(rows), cluster="c", classes="k", threads=1)
    by_cluster, by_class = defaultdict(Counter), defaultdict(Counter)
    for k, c, _ in rows:
        by_cluster[c][k] += 1
        by_class[k][c] += 1
    for table, groups, cost, name, member in (
        (found.merges, by_cluster, "false_pairs", "cluster", "class"),
        (found.splits, by_class, "missed_pairs", "class", "cluster"),
    ):
        due = [(comb(sum(g.values()), 2) - pairs_of(g), key) for key, g in groups.items() if len(g) > 1]
        due.sort(key=lambda each: (-each[0], each[1]))
        assert [(row[cost], row[name]) for row in table.to_pylist()] == due
        assert found.totals[cost] == sum(pairs for pairs, _ in due)
        for row in table.to_pylist():
            own = groups[row[name]]
            largest = sorted(own.items(), key=lambda item: (-item[1], item[0]))[:3]
            assert row["largest"] == [{member: key, "rows": n} for key, n in largest]
            assert (row["rows"], row["classes" if name == "cluster" else "clusters"]) == (sum(own.values()), len(own))
        if due:
            assert table["running_share"][-1].as_py() == 1.0
    same = sum(n for c, own in by_cluster.items() for k, n in own.items() if len(own) == len(by_class[k]) == 1)
    assert found.totals["unchanged_rows"] == same
    truth = ContingencyTable.from_labels([k for k, *_ in rows], [c for _, c, _ in rows]).pairwise
    assert (found.totals["false_pairs"], found.totals["missed_pairs"]) == (truth.FP, truth.FN)


@given(st.sampled_from(list(GAINS)), ROWS)
def test_gains_are_those_of_the_table_computed_anew(metric: str, rows: list[tuple[int, int, bool]]) -> None:
    """Split the cluster, or join the pure clusters of the class, and evaluate again."""
    found = attribute(table_of(rows), cluster="c", classes="k", metric=metric, threads=1)
    classes, clusters = [k for k, *_ in rows], [c for _, c, _ in rows]
    told: Callable[[Any], float] = TOLD[metric]
    before = told(ContingencyTable.from_labels(classes, clusters))
    for row in found.merges.to_pylist():
        split = [(c, k) if c == row["cluster"] else (c, None) for k, c in zip(classes, clusters, strict=True)]
        after = told(ContingencyTable.from_labels(classes, [str(c) for c in split]))
        assert close(row["gain"], after - before)
    held = defaultdict(set)
    for k, c in zip(classes, clusters, strict=True):
        held[c].add(k)
    for row in found.splits.to_pylist():
        joined = ["joined" if held[c] == {row["class"]} else str(c) for c in clusters]
        assert close(row["gain"], told(ContingencyTable.from_labels(classes, joined)) - before)


def area(groups: Sequence[tuple[int, Fraction | int]], height: int) -> Fraction:
    """Area under the lift curve of clusters (rows, positives) as the definition walks them; equals share their mean."""
    sizes = defaultdict(list)
    for rows, positives in groups:
        sizes[rows].append(positives)
    total, h = Fraction(0), Fraction(0)
    for rows in sorted(sizes, reverse=True):
        mean = Fraction(sum(sizes[rows]), len(sizes[rows]))
        for _ in sizes[rows]:
            h += mean
            total += rows * h
    return total / (sum(rows for rows, _ in groups) * height)


@given(ROWS, st.integers(1, 4))
def test_lost_areas_add_up(rows: list[tuple[int, int, bool]], threshold: int) -> None:
    """As fractions, the losses of all clusters are the area with those above the threshold pure less the area."""
    groups: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for _, c, label in rows:
        groups[c][0] += 1
        groups[c][1] += label
    height = sum(size if size > threshold else positives for size, positives in groups.values())
    found = attribute(table_of(rows), cluster="c", label="label", aul_threshold=threshold, threads=1)
    evaluation = evaluate(table_of(rows), cluster="c", label="label", aul_threshold=threshold, threads=1)
    impure = {c: g for c, g in groups.items() if g[0] > threshold and g[1] < g[0]}
    assert {row["cluster"] for row in found.impure.to_pylist()} == set(impure)
    assert all(impure[r["cluster"]] == [r["rows"], r["positives"]] for r in found.impure.to_pylist())
    small: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for size, positives in groups.values():
        if size <= threshold:
            small[size][0] += 1
            small[size][1] += positives
    due = [{"size": s, "clusters": m, "positives": p} for s, (m, p) in sorted(small.items()) if p]
    assert found.unclustered.to_pylist() == due
    if not height:
        return
    now = area([(size, positives) for size, positives in groups.values()], height)
    pure = area([(s, s if s > threshold else p) for s, p in groups.values()], height)
    assert float(now) == evaluation.value("aul")
    assert found.totals["lost"] == float(pure - now)
    state = evaluation._states["cluster", "c"]
    worst = compute(state, WorstImpure(threshold, 100, signed=True))
    assert sum(map(worst.loss.share, worst.lost)) == pure - now == worst.loss.total
    assert worst.lost == sorted(worst.lost, reverse=True)


@pytest.mark.parametrize("seed", range(2))
def test_what_a_sweep_drops_is_not_among_the_worst(seed: int) -> None:
    """Of many clusters the few kept are the head of all; ties are broken by id, and totals speak of all groups."""
    table = skewed(30_000, seed)
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "label": "label", "threads": 1}
    full = attribute(table, top=10**6, **asked)
    for top in (1, 5, 40):
        few = attribute(table, top=top, **asked)
        for name in ("merges", "splits", "impure"):
            assert full.tables()[name].num_rows > 40
            assert few.tables()[name].equals(full.tables()[name].slice(0, top))
        assert few.totals == full.totals


NULLABLE = st.lists(
    st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)), min_size=1, max_size=40
).filter(lambda rows: any(row != (None, None) for row in rows))


@settings(max_examples=50)  # an example makes two runs
@given(NULLABLE)
def test_null_ids_are_singletons_without_a_name(rows: list[tuple[int | None, int | None]]) -> None:
    """They cost what singletons cost; in the largest cells they have no id."""
    table = pa.table({name: pa.array([r[i] for r in rows], pa.int64()) for i, name in enumerate("kc")})
    fresh = count(1000)
    named = pa.table({name: [next(fresh) if r[i] is None else r[i] for r in rows] for i, name in enumerate("kc")})
    found = attribute(table, cluster="c", classes="k", nulls="singleton", threads=1)
    plain = attribute(named, cluster="c", classes="k", threads=1)
    assert found.totals == plain.totals
    for mine, other, member in ((found.merges, plain.merges, "class"), (found.splits, plain.splits, "cluster")):
        assert mine.drop(["largest"]).equals(other.drop(["largest"]))
        for one, due in zip(mine["largest"].to_pylist(), other["largest"].to_pylist(), strict=True):
            assert [cell["rows"] for cell in one] == [cell["rows"] for cell in due]
            assert [c[member] for c in one] == [c[member] if c[member] < 1000 else None for c in due]


def written(folder: Path, table: pa.Table, files: int, groups: int) -> Path:
    """The table as Parquet files of several row groups, in partitions."""
    for i in range(files):
        part = table.slice(i * table.num_rows // files, (i + 1) * table.num_rows // files - i * table.num_rows // files)
        put(folder / f"night={i % 3}" / f"{i}.parquet", part, row_group_size=max(1, len(part) // groups))
    return folder


def skewed(rows: int, seed: int = 0) -> pa.Table:
    """Zipf clusters, classes that mostly follow them, and labels."""
    rng = np.random.default_rng(seed)
    clusters = np.minimum(rng.zipf(1.3, rows), rows)
    classes = np.where(rng.random(rows) < 0.8, clusters, np.minimum(rng.zipf(1.5, rows), rows))
    label = (classes % 3 == 0).astype(np.int8)
    return pa.table({"k": classes, "c": clusters, "label": label, "text": [f"text {i % 977}" for i in range(rows)]})


@pytest.mark.parametrize(
    ("kind", "scope"),
    [("int64", "global"), ("uint64", "partition"), ("string", "global"), ("string", "partition"), ("binary", "global")],
)
def test_neither_layout_nor_threads_nor_memory_change_a_table(tmp_path: Path, kind: str, scope: str) -> None:
    """Ids of any type, in any files, come back as in the data."""
    table = skewed(20_000)
    for name in "kc":
        column = table[name].combine_chunks()
        shown = {"string": pa.string(), "binary": pa.string()}.get(kind, getattr(pa, kind, pa.string)())
        column = column.cast(shown).cast(pa.binary()) if kind == "binary" else column.cast(shown)
        table = table.set_column(table.column_names.index(name), name, column)
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "label": "label", "cluster_scope": scope, "top": 7}
    one = attribute(written(tmp_path / "one", table, 3, 1), threads=1, examples="text", **asked)
    again = attribute(
        written(tmp_path / "many", table, 9, 5) if scope == "global" else tmp_path / "one",
        threads=2, memory="8MiB", examples="text", **asked,
    )  # fmt: skip
    assert one == again
    assert one.merges.num_rows == 7
    ids = set(table["c"].to_pylist())
    assert set(one.merges["cluster"].to_pylist()) <= ids
    if scope == "partition":
        assert set(one.merges["partition"].to_pylist()) <= {"night=0", "night=1", "night=2"}
        assert all(cell["partition"] for row in one.splits.to_pylist() for cell in row["largest"])


@pytest.mark.parametrize("items", [12, 1 << 20])
def test_giants_are_streamed(items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters and classes too large for an interval cost what they cost in one piece, rows without a class too."""
    table = skewed(3000)
    holed = pa.array([None if i % 3 == 0 else k for i, k in enumerate(table["k"].to_pylist())])
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "nulls": "singleton", "threads": 1}
    both = table, table.set_column(0, "k", holed)
    want = [attribute(each, **asked) for each in both]
    monkeypatch.setattr(cells, "ITEMS", (items, items))
    assert [attribute(each, **asked) for each in both] == want


def test_texts_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    """Ids and examples of columns of strings, from a file and from a store, on the terminal and as JSON."""
    texts = pa.array([b"\xff", b"\xff", b"\xff", b"z", b"z", b"\xfe"])
    broken = pa.Array.from_buffers(pa.string(), 6, texts.buffers())
    classes = pa.Array.from_buffers(pa.string(), 6, pa.array([b"\xf0", b"q", b"q", b"q", b"\xf0", b"\xf0"]).buffers())
    pq.write_table(pa.table({"c": broken, "k": classes, "label": [0, 1, 1, 0, 1, 0]}), tmp_path / "a.parquet")
    asked = {"cluster": "c", "classes": "k", "examples": "k"}
    Store(tmp_path / "store", threads=1).update(tmp_path / "a.parquet", cluster="c", classes="k")
    for found in (
        attribute(tmp_path / "a.parquet", threads=1, **asked),
        Store(tmp_path / "store", threads=1).attribute(data=tmp_path / "a.parquet", **asked),
    ):
        row = found.merges.to_pylist()[0]
        assert (row["cluster"], [cell["class"] for cell in row["largest"]]) == (r"\xff", ["q", r"\xf0"])
        assert row["examples"] == [{"class": "q", "values": ["q"]}, {"class": r"\xf0", "values": [r"\xf0"]}]
    words = ["attribute", str(tmp_path / "a.parquet"), "--cluster", "c", "--label", "label", "--json", "-"]
    assert json.loads(run(*words).stdout)["impure"][0]["cluster"] == r"\xff"


def test_examples_are_values_of_their_cells() -> None:
    """Distinct, at most the number asked for, and rows of that class in that cluster; both labels if it is impure."""
    table = skewed(3000)
    found = attribute(table, cluster="c", classes="k", label="label", examples="text", examples_per=2, threads=1)
    there = defaultdict(set)
    for row in table.to_pylist():
        there[row["c"], row["k"]].add(row["text"])
        there[row["c"], "label", row["label"]].add(row["text"])
    for row in found.merges.to_pylist():
        assert [cell["class"] for cell in row["examples"]] == [cell["class"] for cell in row["largest"]]
        for cell in row["examples"]:
            due = there[row["cluster"], cell["class"]]
            assert len(set(cell["values"])) == len(cell["values"]) == min(2, len(due))
            assert set(cell["values"]) <= due
    for row in found.splits.to_pylist():
        assert all(set(cell["values"]) <= there[cell["cluster"], row["class"]] for cell in row["examples"])
    for row in found.impure.to_pylist():
        assert all(set(e["values"]) <= there[row["cluster"], "label", e["label"]] for e in row["examples"])


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_that_changes_between_the_scans_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    """Its rows were counted, so its examples must not be left out; what was skipped before stays skipped."""
    for name in "ab":
        pq.write_table(table_of([("x", "c", True), ("y", "c", False)]), tmp_path / f"{name}.parquet")
    (tmp_path / "c.parquet").write_bytes(b"nothing")
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "label": "label", "examples": "id", "on_error": on_error}
    if on_error == "skip":
        assert [name for name, _ in attribute(tmp_path, **asked).skipped] == [str(tmp_path / "c.parquet")]
    else:
        (tmp_path / "c.parquet").unlink()

    look_up = Run.look_up

    def first(self: Run, *args: Any) -> Any:
        pq.write_table(table_of([("x", "c", True)] * 9), tmp_path / "b.parquet")
        return look_up(self, *args)

    monkeypatch.setattr(Run, "look_up", first)
    refuses(CorruptFileError, r"b\.parquet: .*replaced or changed since.*run again", attribute, tmp_path, **asked)


def test_a_reader_is_read_once() -> None:
    """Hashed ids then have no text; examples are refused."""
    table = pa.table({"k": ["a", "a", "b"], "c": ["x", "y", "x"]})
    found = attribute(pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), cluster="c", classes="k")
    assert found.merges["cluster"][0].as_py().startswith("#")
    with pytest.raises(OptionError, match="examples read the data twice"):
        attribute(table.to_reader(), cluster="c", classes="k", examples="k")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"by": "k", "score": "f", "metric": "agc*"}, OptionError, "names 2 metrics"),
        ({"classes": "k", "changed_from": "k"}, OptionError, "exclude each other"),
        ({"classes": "k", "top": 0}, OptionError, "top=0"),
        ({"classes": "k", "top": 10**6 + 1}, OptionError, "between 1 and 1,000,000"),
        ({"classes": "k", "metric": "rand_index"}, OptionError, "choose one of adjusted_rand_index, .*bcubed_fscore"),
        ({"classes": "k", "examples": "no"}, MissingColumnError, "no"),
        ({"classes": "k", "examples": "raw"}, SchemaError, "examples column 'raw' has type binary"),
        ({"label": "label", "aul_threshold": 0}, OptionError, "aul_threshold=0"),
        ({"classes": "k", "cluster_scope": "partition"}, OptionError, "tables in memory have no partitions"),
        ({"classes": "null"}, NullError, "class column 'null' has nulls"),
        ({"classes": "f"}, SchemaError, "column 'f' has type double"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    """The message says what is needed."""
    table = pa.table(
        {"c": [1, 1], "k": [1, 2], "label": [0, 1], "raw": [b"a", b"b"], "null": [1, None], "f": [0.5, 1.0]}
    )
    refuses(error, message, attribute, table, cluster="c", **options)


def attributed(*words: str) -> str:
    """The standard output of the command."""
    done = run("attribute", SPAM, *words)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_worst_clusters_of_real_messages(tmp_path: Path) -> None:
    """Ten clusters are most of all false pairs, one campaign nearly all missed pairs; all outputs say the same."""
    out = attributed("--cluster", "cluster_loose", "--classes", "campaign", "--label", "label", "--top", "10")
    assert "10 clusters of 5,930 are 88.0% of all 8,836 false pairs" in out
    assert "27933488048882903" in out
    assert "(159)" in out
    found = json.loads(attributed("--cluster", "cluster_loose", "--classes", "campaign", "--top", "10", "--json", "-"))
    assert [len(found[name]) for name in ("merges", "splits")] == [10, 10]
    assert found["splits"][0]["class"] == 16
    assert found["splits"][0]["missed_pairs"] == 114_232
    attributed("--cluster", "cluster_loose", "--classes", "campaign", "--quiet", "--out", str(tmp_path / "made"))
    assert pq.read_table(tmp_path / "made" / "merges.parquet")["false_pairs"][0].as_py() == 4950
    refused = run("attribute", SPAM, "--cluster", "cluster_loose", "--top", 3)
    assert refused.exit_code == 2
    assert "--classes" in refused.output


def test_an_evaluation_attributes_from_its_states() -> None:
    """The same tables as from the data; what a column has no states for is left out or refused."""
    found = evaluate(SPAM, score="score_lr", cluster=["cluster_loose", "cluster_tight"], classes="campaign")
    for one, column in zip(found.attributions(5), ("cluster_loose", "cluster_tight"), strict=True):
        told = attribute(SPAM, cluster=column, classes="campaign", label="label", top=5)
        assert one.tables() == told.tables()
        assert (one.totals, one.rows) == (told.totals, told.rows)
    refuses(OptionError, "name the cluster column: cluster_loose, cluster_tight", found.attribution)
    refuses(OptionError, "stay in its process", pickle.loads(pickle.dumps(found)).attribution, "cluster_loose")
    assert evaluate(SPAM, score="score_lr", metrics="roc_auc").attributions() == ()
    refuses(OptionError, "top", found.attributions, 0)
    own = evaluate(SPAM, cluster="cluster_loose", cluster_scope="partition", metrics="aul")
    refuses(OptionError, "ids belong to their partitions", own.attribution)


def test_what_changed_between_two_clusterings() -> None:
    """Loose clusters only merge tight ones: nothing was split, and most of the data stayed."""
    out = attributed("--cluster", "cluster_loose", "--changed-from", "cluster_tight")
    assert "Merged since cluster_tight" in out
    assert "no earlier cluster was split" in out
    assert "6,187 of 7,531 rows (82.2%) stayed" in out


def test_pure_clusters_in_partitions_give_empty_tables(tmp_path: Path) -> None:
    """Nothing is merged or split: the tables have their columns and no rows, and the output says so."""
    table = pa.table({"k": ["a", "a", "b"], "c": ["x", "x", "y"], "label": [1, 1, 1]})
    folder = written(tmp_path, table, 1, 1)
    found = attribute(
        folder, cluster="c", classes="k", label="label", cluster_scope="partition", examples="k", threads=1
    )
    assert [each.num_rows for each in found.tables().values()] == [0, 0, 0, 1]
    assert "partition" in found.merges.column_names
    out = run("attribute", folder, "--cluster", "c", "--classes", "k", "--label", "label")
    assert "no cluster holds several classes" in out.output
    assert "no cluster above the threshold is impure" in out.output


@pytest.mark.parametrize("metric", [None, "average_precision", "brier_score", "cost_min@fp=1,fn=10", "fpr@tpr=0.9"])
def test_slices_are_ranked_by_what_they_cost(metric: str | None) -> None:
    """Shortfall times rows; slices of few positives or negatives are left out and counted."""
    rng = np.random.default_rng(8)
    n = 6000
    noise = rng.random(n)
    country = rng.choice(["DE", "FR", "IT", "XX"], n, p=[0.5, 0.3, 0.195, 0.005])
    label = rng.integers(0, 2, n)
    score = np.where(country == "FR", noise, (noise + label) / 2)
    data = pa.table({"label": label, "score": score, "country": country})
    found = attribute(data, score="score", by="country", metric=metric)
    name = metric or "roc_auc"
    values = evaluate(data, score="score", by="country", metrics=name)
    whole = values.value(name)
    due = []
    for one in ("DE", "FR", "IT"):
        value, rows = values.value(name, slice={"country": one}), int((country == one).sum())
        short = (whole - value) if metric in (None, "average_precision") else (value - whole)
        due += [(one, rows, value, short)] if short > 0 else []
    due.sort(key=lambda row: -row[3] * row[1])
    told = found.slices.select(["country", "rows", "value", "shortfall"]).to_pylist()
    assert [tuple(row.values()) for row in told] == due
    assert found.slices["country"][0].as_py() == "FR"
    assert (found.totals["slices"], found.totals["slices_left_out"], found.slice_metric) == (4, 1, name)


def test_slices_fall_short_only_in_metrics_with_a_better_end() -> None:
    """A share of flagged rows is neither good nor bad: refused before the data are read."""
    with pytest.raises(OptionError, match=r"metric='flagged@threshold=0.5' has no better end"):
        attribute("nowhere", score="s", by="country", metric="flagged@threshold=0.5")


def test_intervals_of_slices_are_widened_for_having_been_selected() -> None:
    """Those of R slices shown of m that could be are at level 1 − R(1 − level)/m."""
    rng = np.random.default_rng(8)
    user = np.arange(3000) // 2
    country = rng.choice(["DE", "FR", "IT"], 1500)[user]
    label = rng.integers(0, 2, 1500)[user]
    data = pa.table({"label": label, "s": (rng.random(3000) + label * (country != "FR")) / 2, "user": user})
    data = data.append_column("country", pa.array(country))
    found = attribute(data, score="s", by="country", unit="user", ci=0.9, top=1)
    [told] = found.slices.to_pylist()
    level = 1 - 0.1 / 3
    assert found.totals["slices_ci_level"] == pytest.approx(level)
    values = evaluate(data, score="s", by="country", unit="user", ci=found.totals["slices_ci_level"], metrics="roc_auc")
    assert (told["ci_lower"], told["ci_upper"]) == values.ci("roc_auc", slice={"country": told["country"]})
    assert "96.67 % intervals by user, widened" in conclusion("slices", found.slices, found)
    weak = data.append_column("w", pa.array((rng.random(3000) + label * (country == "IT")) / 2))
    shown, family = (
        attribute(weak, score="w", by="country", unit="user", ci=0.9, **adjust) for adjust in ({}, {"adjust": "family"})
    )
    assert [one.totals["slices_ci_level"] for one in (shown, family)] == pytest.approx([1 - 0.2 / 3, 1 - 0.1 / 3])
    assert shown.totals["slices_below"] == family.totals["slices_below"] == 2
    assert title_of("slices", shown) == "Lowest slices"
    assert title_of("slices", family) == "Slices below the whole"
    assert family.slices is not None
    assert "those of all slices hold together: 2 of 2" in conclusion("slices", family.slices, family)
    with pytest.raises(OptionError, match="would change nothing without slices"):
        attribute(data, cluster="user", label="label", unit="user")


def test_slices_stand_beside_clusters() -> None:
    """A gain's metric is not that of slices; all tables are in the dictionary."""
    rng = np.random.default_rng(9)
    n = 500
    data = pa.table(
        {
            "label": rng.integers(0, 2, n),
            "score": rng.random(n),
            "c": rng.integers(0, 30, n),
            "k": rng.integers(0, 20, n),
            "country": rng.choice(["DE", "FR"], n),
        }
    )
    found = attribute(
        data, cluster="c", classes="k", score="score", by=["country", "k"], metric="pairwise.precision", top=3
    )
    assert (found.metric, found.slice_metric) == ("pairwise.precision", "roc_auc")
    assert {"merges", "splits", "slices"} <= set(found.to_dict())
    assert found.slices.column_names[0] == "by"
    assert {"country", "k"} >= set(found.slices.column_names[1 : found.slices.column_names.index("rows")])
    asked: dict[str, Any] = {"classes": "k", "score": "score", "by": "country", "metric": "pairwise.precision"}
    assert len(forecasts(data, cluster="c", **asked)) == 2


def test_a_target_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    """A file of another kind, a directory that is missing, a file in place of a directory."""
    (tmp_path / "file").touch()
    for out, reason in (
        ("found.csv", "must end in .json or .html"),
        ("absent/found.json", "its directory does not exist"),
        ("absent/found", "its directory does not exist"),
        ("file", "is a file; name a directory"),
    ):
        asked = [str(tmp_path / "none"), "--cluster", "cluster", "--classes", "class", "--out", str(tmp_path / out)]
        ended = run("attribute", *asked)
        assert ended.exit_code == 2
        assert reason in " ".join(ended.output.split())


def test_control_characters_are_visible(tmp_path: Path) -> None:
    """No text of the data reaches the terminal as a command."""
    bad = "\x1b[31mred\n" + "x" * 300
    pq.write_table(pa.table({"k": [1, 2], "c": ["a\tb", "a\tb"], "t": [bad, "plain"]}), tmp_path / "a.parquet")
    done = run("attribute", tmp_path, "--cluster", "c", "--classes", "k", "--examples", "t")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert "\\x1b[31mred\\n" in done.output
    assert "a\\tb" in done.output
    assert "x" * 120 not in done.output
