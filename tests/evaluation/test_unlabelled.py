"""Rows without a label: refused, left out, or counted in the sizes of clusters, where positives are estimated."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given
from hypothesis import strategies as st
from nightly import NIGHTS, land
from processes import run
from refusals import refuses

from streameval import Accumulator, Store, evaluate
from streameval.errors import MissingColumnError, NullError

Row = tuple[Any, int | None]  # cluster, label
ROWS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 1, None])), min_size=1, max_size=40)


def table(rows: Sequence[Row], kind: pa.DataType | None = None) -> pa.Table:
    """Rows as columns; ids as texts too."""
    clusters = pa.array([None if c is None else c for c, _ in rows], pa.int64())
    return pa.table({"c": clusters.cast(kind or pa.int64()), "label": pa.array([y for _, y in rows], pa.int8())})


def sizes_of(rows: Sequence[Row]) -> dict[int, list[int]]:
    """For each size its clusters, positives and labelled rows; a null is a cluster by itself."""
    found: dict[Any, list[int | None]] = defaultdict(list)
    for i, (cluster, label) in enumerate(rows):
        found[("null", i) if cluster is None else cluster].append(label)
    sizes: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for labels in found.values():
        own = sizes[len(labels)]
        for i, value in enumerate((1, labels.count(1), len(labels) - labels.count(None))):
            own[i] += value
    return sizes


def aul_truth(rows: Sequence[Row], threshold: float = 1) -> Fraction | None:
    """The area from the definition, cluster by cluster, in fractions; None where no row has a label."""
    before = height = area = total = Fraction(0)
    for size, (clusters, positives, labelled) in sorted(sizes_of(rows).items(), reverse=True):
        if labelled:
            each = Fraction(size * positives, labelled)
            for _ in range(clusters):
                area += size * (before + each / 2 + each / 2)
                before += each
                height += size if size > threshold else each
                total += size
    if not total:
        return None
    return area / (total * height) if height else Fraction(0)


def auc_truth(rows: Sequence[Row]) -> Fraction | None:
    """ROC AUC by size over pairs, rows of estimated weight."""
    groups = [
        (size, Fraction(size * clusters * positives, labelled), size * clusters)
        for size, (clusters, positives, labelled) in sizes_of(rows).items()
        if labelled
    ]
    positive, negative = sum(p for _, p, _ in groups), sum(n - p for _, p, n in groups)
    if not positive or not negative:
        return None
    won = sum(
        p * (m - q) * (Fraction(1, 2) if size == other else int(size > other))
        for size, p, _ in groups
        for other, q, m in groups
    )
    return Fraction(won) / (positive * negative)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@given(rows=ROWS, threshold=st.sampled_from([0, 1, 2.5, 9]))
def test_estimates_are_those_of_the_definition(rows: list[Row], threshold: float, kind: pa.DataType) -> None:
    """Of integers and of texts; exact where every row has a label, an estimate that says so otherwise."""
    found = evaluate(table(rows, kind), cluster="c", unlabelled="size", aul_threshold=threshold)
    assert (found.rows, found.dropped) == (len(rows), ())
    assert found.positives == sum(y == 1 for _, y in rows)
    for name, truth in (("aul", aul_truth(rows, threshold)), ("roc_auc_by_size", auc_truth(rows))):
        [result] = [r for r in found.results if r.metric == name]
        bare = sum(y is None for _, y in rows)
        if truth is None:
            assert math.isnan(result.value)
            assert result.reason in ("no row has a label", "one class only")
        else:
            assert math.isclose(result.value, truth, rel_tol=1e-12, abs_tol=1e-12)
            assert result.exact == (not bare)
            assert math.isnan(result.lower) == bool(bare)
            assert ("an estimate" in (result.reason or "")) == bool(bare)
    if all(y is not None for _, y in rows):
        usual = evaluate(table(rows, kind), cluster="c", aul_threshold=threshold)
        assert [r.value for r in usual.results] == pytest.approx([r.value for r in found.results], abs=0, nan_ok=True)


@given(rows=st.lists(st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([0, 1, None])), min_size=1, max_size=20))
def test_null_ids_are_singletons_with_and_without_a_label(rows: list[Row]) -> None:
    """And with `nulls="drop"` they are left out, labelled or not."""
    found = evaluate(table(rows), cluster="c", unlabelled="size", nulls="singleton")
    truth = aul_truth(rows)
    value = found.value("aul")
    assert math.isnan(value) if truth is None else math.isclose(value, truth, rel_tol=1e-12, abs_tol=1e-12)
    kept = [row for row in rows if row[0] is not None]
    left = evaluate(table(rows), cluster="c", unlabelled="size", nulls="drop")
    assert left.dropped == ((("null cluster c", len(rows) - len(kept)),) if len(kept) < len(rows) else ())
    truth = aul_truth(kept)
    if truth is not None:
        assert math.isclose(left.value("aul"), truth, rel_tol=1e-12, abs_tol=1e-12)


def test_giant_clusters_slices_and_accumulators() -> None:
    """A cluster of half of all rows, labelled one in five hundred; each slice as if its rows were alone."""
    rng = np.random.default_rng(4)
    n = 60_000
    clusters = np.where(rng.random(n) < 0.5, 7, rng.integers(0, 12_000, n))
    labels = pa.array(rng.integers(0, 2, n), pa.int8(), mask=rng.random(n) < 0.998)
    data = pa.table({"c": clusters, "label": labels, "lang": rng.integers(0, 3, n)})
    rows = list(zip(clusters.tolist(), labels.to_pylist(), strict=True))
    options: dict[str, Any] = {"cluster": "c", "unlabelled": "size"}
    whole = evaluate(data, **options)
    assert whole.value("aul") == pytest.approx(float(aul_truth(rows) or 0), rel=1e-12)
    sliced = evaluate(data, **options, by="lang")
    assert sliced.value("aul") == whole.value("aul")
    for value in range(3):
        alone = evaluate(data.filter(pa.compute.equal(data["lang"], value)), **options)
        assert sliced.value("aul", slice={"lang": value}) == alone.value("aul")
    stream = Accumulator(**options)
    for start in range(0, n, 9_000):
        stream.update(data.slice(start, 9_000))
    assert stream.result().to_dict() == whole.to_dict()


def test_labels_are_read_only_where_something_needs_them() -> None:
    """Clusters against classes and sketches use all rows, whatever their labels, and need none."""
    data = pa.table({"c": [1, 1, 2, 2], "k": [5, 5, 6, 5], "x": [0.1, 0.4, 0.2, 0.9]})
    asked: dict[str, Any] = {"cluster": "c", "classes": "k", "metrics": ["classes"]}
    found = evaluate(data, **asked, sketch="x")
    assert (found.rows, found.positives) == (4, None)
    assert {r.positives for r in found.results} == {None}
    assert json.loads(found.to_json())["positives"] is None
    refuses(MissingColumnError, "'label'", evaluate, data, cluster="c", classes="k")
    holes = data.append_column("label", pa.array([1, None, 0, None]))
    refuses(NullError, "--unlabelled drop", evaluate, holes, cluster="c", classes="k")
    for policy in ("drop", "size"):
        both = evaluate(holes, cluster="c", classes="k", unlabelled=policy)
        [ari] = [r for r in both.results if r.metric == "adjusted_rand_index"]
        assert (ari.value, ari.rows) == (found.value("adjusted_rand_index"), 4)
        assert dict(both.dropped) == ({"null label": 2} if policy == "drop" else {})
    assert evaluate(holes, score="x", unlabelled="drop").dropped == (("null label", 2),)
    mixed = evaluate(holes, score="x", cluster="c", unlabelled="size")
    assert (mixed.rows, dict(mixed.dropped)) == (4, {"null label (score metrics)": 2})
    assert [r.rows for r in mixed.results if r.metric == "roc_auc"] == [2]


def test_a_store_has_the_numbers_of_its_files(tmp_path: Path) -> None:
    """With every policy, also where it keeps classes and sketches alone and there is no label column."""
    data = tmp_path / "data"
    for i, night in enumerate(NIGHTS[:3]):
        land(night, data)
        path = data / night / "part-0.parquet"
        part = pq.read_table(path, partitioning=None)
        hidden = np.random.default_rng(i).random(part.num_rows) < 0.9
        label = pa.array(part["label"].to_numpy(), pa.int8(), mask=hidden)
        pq.write_table(part.set_column(part.schema.get_field_index("label"), "label", label), path)
    both: dict[str, Any] = {"cluster": ["cluster_loose", "cluster_tight"], "classes": "campaign", "score": "score_lr"}
    for policy in ("drop", "size"):
        store = Store(tmp_path / policy)
        store.update(data, **both, unlabelled=policy)
        assert store.evaluate().to_json() == evaluate(data, **both, unlabelled=policy).to_json()
        assert store.evaluate().to_json() == evaluate(data, **both, unlabelled=policy).to_json()  # from the cache
        assert "estimate" in (store.history("aul", "cluster_loose").points[0].night.reason or "") or policy == "drop"
    for night in NIGHTS[:3]:
        path = data / night / "part-0.parquet"
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["label"]), path)
    bare: dict[str, Any] = {
        "cluster": "cluster_loose",
        "classes": "campaign",
        "metrics": ["classes"],
        "sketch": "score_nb",
    }
    store = Store(tmp_path / "bare")
    store.update(data, **bare)
    assert store.evaluate(metrics="adjusted_rand_index").value("adjusted_rand_index") == evaluate(data, **bare).value(
        "adjusted_rand_index"
    )
    assert store.evaluate().positives is None
    call = ["evaluate", str(data), "--cluster", "cluster_loose", "--classes", "campaign", "--metric", "classes"]
    done = run(*call)
    assert (done.exit_code, "positive" in done.output.splitlines()[0]) == (0, False), done.output


NULL = [(pa.null(), [0, 1]), (pa.null(), ["ham", "spam"]), (pa.float64(), [0, 1]), (pa.int64(), [False, True]),
        (pa.string(), ["ham", "spam"]), (pa.float64(), ["ham", "spam"])]  # fmt: skip


@pytest.mark.parametrize(("kind", "labels"), NULL)
@pytest.mark.parametrize("together", [True, False])
def test_a_night_without_any_label(tmp_path: Path, kind: pa.DataType, labels: list[Any], together: bool) -> None:
    """Whatever type its column has, the policy decides: refused with the remedy, or without rows; never a type."""
    named = {"pos_label": labels[1]} if isinstance(labels[0], str) else {}
    given = {"score": "score", "metrics": ["roc_auc"], **named}
    for night, column in ((1, pa.array(labels * 2)), (2, pa.nulls(4, kind))):
        rows = pa.table({"label": column, "score": [0.1, 0.8, 0.35, 0.35]})
        put(tmp_path / "data" / f"night={night}" / "a.parquet", rows)
    refusing, dropping = Store(tmp_path / "refusing"), Store(tmp_path / "dropping")
    for store, policy in ((refusing, {}), (dropping, {"unlabelled": "drop"})):
        store.update(tmp_path / "data" / "night=1", **given, **policy) if not together else None
        if store is refusing:
            with pytest.raises(NullError, match=r"night=2/a\.parquet: .* 'label' has nulls; choose unlabelled"):
                store.update(tmp_path / "data", **given)
        else:
            assert "night=2" in store.update(tmp_path / "data", **given, **policy).new
        assert store.evaluate().value("roc_auc") == 0.875
    assert dropping.evaluate().dropped == (("null label", 4),)
    alone = evaluate(tmp_path / "data" / "night=2", **given, unlabelled="drop")
    assert (alone.rows, alone.dropped, math.isnan(alone.value("roc_auc"))) == (0, (("null label", 4),), True)


def test_slices_of_files_without_any_label(tmp_path: Path) -> None:
    """Slices need no labelled row, neither in a file nor in all files."""
    rows = [(i % 5, i % 2) for i in range(30)]
    data = table(rows).append_column("lang", pa.array([i % 3 for i in range(30)]))
    for i, labels in enumerate((data["label"], pa.nulls(30, pa.int8()))):
        pq.write_table(data.set_column(1, "label", labels), tmp_path / f"part-{i}.parquet")
    options: dict[str, Any] = {"cluster": "c", "unlabelled": "size", "by": "lang", "threads": 1}
    found = evaluate(tmp_path, **options)
    assert found.value("aul") == pytest.approx(float(aul_truth([*rows, *((c, None) for c, _ in rows)]) or 0))
    assert found.value("aul", slice={"lang": 1}) == evaluate(
        tmp_path, **options | {"by": None}, where="lang == 1"
    ).value("aul")
    none = evaluate(tmp_path / "part-1.parquet", **options)
    assert {(r.rows, r.reason) for r in none.results} == {(30, "no row has a label"), (10, "no row has a label")}
