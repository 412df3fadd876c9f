"""Evaluate: every metric against its definition in fractions, and the same bytes however the data are cut and held.

The truth (`truth.py`) is computed from the definitions in exact fractions.
"""

import math
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ID_TYPES, SCORE_TYPES, WEIGHTS, columns, id_values, score_values
from truth import Row, agrees, curve_truth, groups_of, is_missing, lift_truth, pairs_auc

from streameval import budget as memory
from streameval import evaluate, roc_auc_score
from streameval.engine import fold
from streameval.errors import LabelError
from streameval.scan.parquet import footers
from streameval.states.keyed import counts as runs

# -- scores -----------------------------------------------------------------------------------------------------------


@st.composite
def scored(draw: st.DrawFn, kind: pa.DataType) -> pa.Table:
    """A small table with scores of a type, labels and weights."""
    rows = draw(st.integers(1, 14))
    return pa.table(
        {
            "score": draw(columns(score_values(kind), kind, rows)),
            "label": pa.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), pa.int8()),
            "weight": pa.array(draw(st.lists(WEIGHTS, min_size=rows, max_size=rows)), pa.float64()),
        }
    )


def rows_of(table: pa.Table, *, weighted: bool) -> list[Row]:
    """Rows with exact weights."""
    names = ("score", "label", "weight")
    return [
        (score, label, Fraction(weight) if weighted else Fraction(1))
        for score, label, weight in zip(*(table.column(name).to_pylist() for name in names), strict=True)
    ]


@given(st.sampled_from(SCORE_TYPES).flatmap(scored), st.booleans(), st.sampled_from(["drop", "half"]), st.booleans())
def test_score_metrics_are_their_definitions(table: pa.Table, weighted: bool, nan: str, approx: bool) -> None:
    """Metrics of a ranking of every type agree with the definitions, or hold them; unweighted areas to the last bit.

    Under ``half`` every pair with a NaN counts one half in AUC, and other metrics say why they are undefined.
    """
    weight = "weight" if weighted else None
    asked = {"metrics": ["ranking", "agc*"], "approx": approx, "threads": 1}
    result = evaluate(table, score="score", weight=weight, nan=nan, **asked)
    every = rows_of(table, weighted=weighted)
    rows = [row for row in every if not is_missing(row[0])]
    missing = len(every) - len(rows)
    halved = nan == "half" and bool(missing)
    truth = {
        "roc_auc": pairs_auc(every if halved else rows, half=halved),
        **({} if halved else curve_truth(groups_of(rows))),
    }
    for name, expected in truth.items():
        value, (lower, upper) = result.value(name), result.interval(name)
        exactly = not weighted and name in {"roc_auc", "max_informedness"}
        if approx and expected is not None:
            assert lower - 1e-12 <= float(expected) <= upper + 1e-12, (name, lower, expected, upper)
        else:
            assert agrees(value, expected, exactly=exactly), (name, value, expected)
        assert math.isnan(value) or 0 <= value <= 1 + 1e-15
    if halved:
        assert math.isnan(result.value("max_informedness"))
        assert math.isnan(result.value("average_precision"))
        assert all("drop" in str(r.reason) for r in result.results if r.metric in {"pr_auc", "max_informedness"})
    counted = every if nan == "half" else rows
    assert {r.rows for r in result.results} == {len(counted)}
    assert {r.positives for r in result.results} == {sum(label for _, label, _ in counted)}
    if not approx:
        assert all(r.exact == (r.reason is None) == (not math.isnan(r.value)) for r in result.results)
    dropped = missing if nan == "drop" else 0
    assert result.dropped == ((("NaN or null score score", dropped),) if dropped else ())


LABELS = {
    "bool": ([False, True], pa.bool_(), None),
    "int8": ([0, 1], pa.int8(), None),
    "minus-one": ([-1, 1], pa.int16(), None),
    "zero-seven": ([0, 7], pa.uint64(), None),
    "floats": ([0.0, 0.5], pa.float64(), None),
    "half-floats": ([np.float16(0), np.float16(1)], pa.float16(), None),
    "decimals": ([Decimal(0), Decimal("2.5")], pa.decimal128(5, 1), None),
    "one-two": ([1, 2], pa.int32(), 2),
    "two-one": ([2, 1], pa.int64(), 1),
    "bool-false": ([True, False], pa.bool_(), False),
    "text-of-number": ([1, 2], pa.int32(), "2"),
    "strings": (["ham", "spam"], pa.string(), "spam"),
    "large-strings": (["ham", "spam"], pa.large_string(), "spam"),
    "string-views": (["ham", "spam"], pa.string_view(), "spam"),
    "binaries": ([b"ham", b"spam"], pa.binary(), "spam"),
    "bytes": ([b"ham", b"spam"], pa.binary(), b"spam"),
    "no-text": ([b"ham", b"\xff"], pa.binary(), b"\xff"),
    "largest": ([0, 2**64 - 1], pa.uint64(), 2**64 - 1),
    "beyond-int64": ([1, 2**63], pa.uint64(), 2**63),
    "text-of-largest": ([1, 2**64 - 1], pa.uint64(), "18446744073709551615"),
    "dictionaries": (["ham", "spam"], pa.dictionary(pa.int8(), pa.string()), "spam"),
    "float-pos-label": ([0.25, 0.1], pa.float32(), 0.1),
    "half-float-pos-label": ([np.float16(3), np.float16(1)], pa.float16(), 1),
    "short-decimals": ([Decimal(0), Decimal("0.3")], pa.decimal64(17, 16), None),
    "long-decimals": ([Decimal("-0.1"), Decimal(10**40)], pa.decimal256(60, 19), None),
    "decimal-pos-label": ([Decimal(3), Decimal(1)], pa.decimal128(5, 1), 1),
    "true-of-integers": ([0, 1], pa.int8(), True),
    "true-of-decimals": ([Decimal(0), Decimal(1)], pa.decimal128(5, 1), True),
}


@pytest.mark.parametrize(
    "labels", [["0", "1", "1.0000000000000000001"], ["1", "1.0000000000000000001"], ["0", "0.30000000000000001"]]
)
def test_decimal_labels_that_floats_do_not_tell_apart_are_refused(labels: list[str], tmp_path: Path) -> None:
    """In one file and over files, whatever the order, and in arrays; with the positive one named they are compared."""
    columns = {"label": pa.array(map(Decimal, labels), pa.decimal128(38, 19)), "score": [0.1, 0.2, 0.3][: len(labels)]}
    table = pa.table(columns)
    for i in range(len(labels)):
        pq.write_table(table[i : i + 1], tmp_path / f"{i}.parquet")
    for data in (table, table[::-1], tmp_path):
        with pytest.raises(LabelError, match=r"label column 'label' has .*; name the positive one with pos_label"):
            evaluate(data, score="score")
    assert evaluate(table, score="score", pos_label=labels[-1]).positives == 1
    for column in (table["label"], table["label"].to_pylist()):
        with pytest.raises(LabelError, match=r"y_true has .*; name the positive one with pos_label"):
            roc_auc_score(column, columns["score"])


@pytest.mark.parametrize("form", LABELS)
def test_every_form_of_label_is_read(form: str) -> None:
    """Labels of any type name the same positives, and null labels are dropped and counted when asked."""
    (negative, positive), kind, pos_label = LABELS[form]
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    values = [negative, positive, positive, negative, positive]
    scores = pa.array([0.1, 0.7, 0.2, 0.2, 0.9], pa.float32())
    array = pa.array(values, plain)
    table = pa.table({"label": array.dictionary_encode().cast(kind) if plain != kind else array, "score": scores})
    result = evaluate(table, score="score", pos_label=pos_label)
    assert (result.rows, result.positives) == (5, 3)
    assert result.value("roc_auc") == 5.5 / 6
    with_nulls = pa.array([*values, None], plain)
    table = pa.table({"label": with_nulls, "score": pa.array([0.1, 0.7, 0.2, 0.2, 0.9, 0.5])})
    result = evaluate(table, score="score", pos_label=pos_label, unlabelled="drop")
    assert (result.rows, result.positives, result.dropped) == (5, 3, (("null label", 1),))
    assert result.value("roc_auc") == 5.5 / 6


# -- clusters ---------------------------------------------------------------------------------------------------------


def cluster_rows(table: pa.Table, nulls: str) -> list[tuple[int, int]]:
    """Size and positives of every cluster."""
    sizes: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for i, (cluster, label) in enumerate(
        zip(*(table.column(name).to_pylist() for name in ("id", "label")), strict=True)
    ):
        if cluster is not None or nulls == "singleton":
            key = (i,) if cluster is None else cluster
            sizes[key][0] += 1
            sizes[key][1] += label
    return [(size, positives) for size, positives in sizes.values()]


@st.composite
def clustered(draw: st.DrawFn, kind: pa.DataType) -> pa.Table:
    """A small table with ids of a type and labels."""
    rows = draw(st.integers(1, 14))
    values = st.none() if pa.types.is_null(kind) else id_values(kind)
    labels = draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows))
    return pa.table({"id": draw(columns(values, kind, rows)), "label": pa.array(labels, pa.int8())})


@given(
    st.sampled_from([*ID_TYPES, pa.string_view(), pa.null()]).flatmap(clustered),
    st.sampled_from(["drop", "singleton"]),
    st.sampled_from([0, 1, 2.5, 3]),
)
def test_cluster_metrics_are_their_definitions(table: pa.Table, nulls: str, threshold: float) -> None:
    """AUL and ROC AUC by size agree with the definitions for every type of id, null policy and threshold."""
    result = evaluate(table, cluster="id", nulls=nulls, aul_threshold=threshold, threads=1)
    clusters = cluster_rows(table, nulls)
    points = [(size, 1, Fraction(positives)) for size, positives in clusters]
    points += [(size, 0, Fraction(size - positives)) for size, positives in clusters]
    assert agrees(result.value("roc_auc_by_size"), pairs_auc(points), exactly=True)
    positives = sum(positives for _, positives in clusters)
    assert agrees(result.value("aul"), lift_truth(clusters, threshold), exactly=True)
    assert {(r.rows, r.positives) for r in result.results} == {(sum(size for size, _ in clusters), positives)}


@pytest.mark.parametrize("approx", [False, True])
@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("nan", ["drop", "half"])
def test_the_area_is_that_of_the_curve_drawn(nan: str, weight: str | None, approx: bool) -> None:
    """Under every policy for NaN scores: they have no place on a curve."""
    random = np.random.default_rng(8)
    score = random.integers(0, 50, 2000) / 50
    table = pa.table(
        {
            "label": random.random(2000) < 0.3 + score / 3,
            "score": np.where(random.random(2000) < 0.2, np.nan, score),
            "weight": random.random(2000),
        }
    )
    result = evaluate(table, score="score", nan=nan, weight=weight, approx=approx)
    for name in ("roc", "precision_recall", "gain"):
        curve = result.curve(name)
        assert math.isclose(np.trapezoid(curve.y, curve.x), curve.area, rel_tol=1e-9), name
    assert (result.value("roc_auc") == result.curve("roc").area) == (nan == "drop")


@pytest.mark.parametrize("metric", ["average_precision", "pr_auc", "max_informedness"])
def test_weighted_bins_are_certain_and_never_exact(metric: str) -> None:
    """Sums of weights in bins are rounded otherwise than those of scores: the interval leaves room for that."""
    random = np.random.default_rng(4)
    score = random.integers(0, 30, 3000) / 30
    table = pa.table({"label": random.random(3000) < score, "score": score, "weight": random.lognormal(size=3000)})
    approx, exact = (evaluate(table, score="score", weight="weight", approx=flag) for flag in (True, False))
    [found] = [r for r in approx.results if r.metric == metric]
    assert not found.exact
    assert found.lower < exact.value(metric) < found.upper


# -- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants so small that a few thousand rows make many tasks, runs, shards and spills."""
    monkeypatch.setattr(memory, "_SMALL", 64)
    monkeypatch.setattr(runs, "SLAB", 1 << 9)
    monkeypatch.setattr(runs, "REFINE", 1 << 11)
    monkeypatch.setattr(runs, "WEIGHED", 1 << 11)
    monkeypatch.setattr(runs, "_SHARDS", 4)
    monkeypatch.setattr(runs.KeyedCounts.intervals, "__defaults__", (300,))
    monkeypatch.setattr(fold, "BATCH_ROWS", 1 << 9)
    monkeypatch.setattr(fold, "TASK_ROWS", 1 << 8)
    monkeypatch.setattr(footers, "GATHER_ROWS", 1 << 8)


def _sample(rows: int = 6000) -> pa.Table:
    random = np.random.default_rng(5)
    label = (random.random(rows) < 0.2).astype(np.int8)
    logit = random.normal(label * 1.5 - 1, 2, rows)
    saturated = 1 - np.exp(-np.abs(logit) * 12)
    campaigns = random.zipf(1.5, rows) % 700
    return pa.table(
        {
            "label": label,
            "continuous": logit.astype(np.float32),
            "wide": 1 / (1 + np.exp(-logit)),
            "saturated": saturated.astype(np.float32),
            "close": 0.5 + saturated * 1e-9,
            "few": np.round(logit).astype(np.int64),
            "gaps": pa.array([None if i % 97 == 0 else float(x) for i, x in enumerate(logit)], pa.float64()),
            "campaign": campaigns,
            "name": pa.array([f"campaign {c}" for c in campaigns]),
            "weight": random.gamma(1.0, 1.0, rows) * (random.random(rows) > 0.05),
        }
    )


SCORES = ["continuous", "wide", "saturated", "close", "few", "gaps"]


def _written(table: pa.Table, folder: Path, files: int, row_group: int) -> list[Path]:
    folder.mkdir(parents=True)
    cuts = np.linspace(0, table.num_rows, files + 1).astype(int)
    paths = [folder / f"{i:03}.parquet" for i in range(files)]
    for path, start, stop in zip(paths, cuts[:-1], cuts[1:], strict=True):
        pq.write_table(table.slice(start, stop - start), path, row_group_size=row_group)
    return paths


LAYOUTS = [(1, 10**6, 1, None), (1, 700, 2, "100kB"), (7, 333, 2, None), (23, 50, 3, "40kB"), (5, 10**6, 1, "100kB")]


@pytest.mark.parametrize("approx", [False, True], ids=["exact", "approx"])
@pytest.mark.usefixtures("tiny")
def test_results_are_the_same_bytes_for_any_layout(tmp_path: Path, approx: bool) -> None:
    """Files, row groups, threads, file order and a budget that spills change no bit of an unweighted result."""
    table = _sample()
    options: dict[str, Any] = {"score": SCORES, "cluster": ["campaign", "name"], "nan": "drop", "approx": approx}
    found = {evaluate(table, **options).to_json()}
    for i, (files, row_group, threads, budget) in enumerate(LAYOUTS[:3] if approx else LAYOUTS):
        paths = _written(table, tmp_path / str(i), files, row_group)
        run = evaluate(paths[::-1] if i % 2 else paths, threads=threads, memory=budget, spill=tmp_path, **options)
        found.add(run.to_json())
        if budget is not None and not approx:
            assert run._engine.budget.spilled > 0
    assert len(found) == 1


@pytest.mark.parametrize("options", [{"score": ["short", "long"], "ci": 0.95, "unit": "unit"}, {"approx": True}])
def test_results_do_not_depend_on_the_settings_of_numpy(options: dict[str, Any]) -> None:
    """A caller may have any floating-point fault raise: subnormal scores underflow on the way."""
    rng, rows = np.random.default_rng(0), 5_000
    scores = np.where(rng.random(rows) < 0.3, 0.0, rng.random(rows) * 1e-310)
    columns = {"label": rng.random(rows) < 0.2, "unit": rng.integers(0, 200, rows), "long": scores}
    table = pa.table(columns | {"short": rng.random(rows).astype(np.float32)})
    options = {"score": "long"} | options
    expected = evaluate(table, label="label", **options)
    with np.errstate(all="raise"):
        assert evaluate(table, label="label", **options).results == expected.results


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("threads", "budget"), [(1, None), (2, None), (1, "100kB"), (3, "40kB")])
def test_null_ids_count_once_for_any_shards(threads: int, budget: str | None) -> None:
    """Those of singletons, which no bucket has; the budget decides how many shards there are."""
    table, null = _sample(), np.arange(6000) % 5 == 0
    ids, place = table["campaign"].to_numpy(), table.column_names.index("campaign")
    alone, nulls = (pa.array(np.where(null, -1 - np.arange(6000), ids)), pa.array(ids, mask=null))
    options: dict[str, Any] = {"cluster": "campaign", "threads": threads, "memory": budget}
    one, other = (
        evaluate(table.set_column(place, "campaign", column), nulls="singleton", **options) for column in (alone, nulls)
    )
    assert one.scalars() == other.scalars()


@pytest.mark.usefixtures("tiny")
def test_weighted_results_are_equal_for_any_layout(tmp_path: Path) -> None:
    """To the last bit: weights of a key are compensated, and keys are summed together as their rows decide."""
    table = _sample()
    options: dict[str, Any] = {"score": SCORES, "weight": "weight", "nan": "drop"}
    expected = [r.value for r in evaluate(table, **options).results]
    for i, (files, row_group, threads, budget) in enumerate(LAYOUTS[1:4]):
        paths = _written(table, tmp_path / str(i), files, row_group)
        run = evaluate(paths, threads=threads, memory=budget, spill=tmp_path, **options)
        np.testing.assert_array_equal([r.value for r in run.results], expected)


@pytest.mark.usefixtures("tiny")
def test_curves_are_the_same_for_any_layout(tmp_path: Path) -> None:
    """The points kept of a curve depend on no file, shard or thread, and the area is the exact metric."""
    table = _sample()
    names = [("roc", "wide"), ("precision_recall", "few"), ("gain", "continuous"), ("lift", "campaign")]
    paths = _written(table, tmp_path / "many", 9, 100)
    runs_of = [
        evaluate(data, score=SCORES, cluster="campaign", nan="drop", threads=threads, memory=budget)
        for data, threads, budget in ((table, 1, None), (paths, 2, "100kB"))
    ]
    for name, of in names:
        one, other = (run.curve(name, of) for run in runs_of)
        for part in ("x", "y", "thresholds"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
        assert one.area == other.area
        assert len(one.x) <= 10_000
        assert np.all(np.diff(one.x) >= 0)
    assert runs_of[0].curve("roc", "wide").area == runs_of[0].value("roc_auc", "wide")
    roc = runs_of[0].curve("roc", "few")
    assert math.isclose(np.trapezoid(roc.y, roc.x), roc.area, rel_tol=1e-12)
