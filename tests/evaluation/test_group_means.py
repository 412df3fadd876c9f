"""Means over groups: against exact fractions of every group, for any cut of the rows, here and on a client."""

import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval import evaluate
from streameval.errors import OptionError
from streameval.metrics.scores import group_means
from streameval.states.blocks import blocks_of
from streameval.states.keyed import counts as keyed
from streameval.states.keyed.ids import id_type, identify

K = 3
NAMES = ("roc_auc", "average_precision", f"precision@k={K}")
Row = tuple[Any, Any, int]  # group, score, label
IDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "narrow and wide": (pa.int64(), st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**62])),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**64 - 1])),
    "short": (pa.int8(), st.integers(-2, 2)),
    "texts": (pa.string(), st.sampled_from(["", "null", "a", "é"])),
}


def own(rows: list[Row]) -> dict[str, Fraction | None]:
    """The values of one group, by their definitions; None without both classes."""
    pos, neg = ([s for _, s, y in rows if y == side] for side in (1, 0))
    if not pos or not neg:
        return dict.fromkeys(NAMES)
    wins = sum(Fraction(2 * (a > b) + (a == b), 2) for a in pos for b in neg)
    precisions = [Fraction(sum(s >= a for s in pos), sum(s >= a for _, s, _ in rows)) for a in pos]
    least = sorted((s for _, s, _ in rows), reverse=True)[min(K, len(rows)) - 1]
    return {
        "roc_auc": wins / (len(pos) * len(neg)),
        "average_precision": sum(precisions, Fraction(0)) / len(pos),
        NAMES[2]: Fraction(sum(s >= least for s in pos), sum(s >= least for _, s, _ in rows)),
    }


def expected(rows: list[Row], weight: str) -> dict[str, tuple[float, int, int, int, list[float]]]:
    """Mean, groups, groups left out, rows left out and deciles of each metric."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    values = {group: own(several) for group, several in groups.items()}
    found = {}
    for name in NAMES:
        weights = {
            group: {"rows": len(several), "positives": sum(y for *_, y in several), "equal": 1}[weight]
            for group, several in groups.items()
            if values[group][name] is not None
        }
        total = sum((Fraction(w) * (values[group][name] or 0) for group, w in weights.items()), Fraction(0))
        size = sum(weights.values())
        left = [several for group, several in groups.items() if group not in weights]
        mean = float(total / size) if size else math.nan
        has = np.array([float(values[group][name] or 0) for group in weights])
        deciles = np.quantile(has, np.arange(11) / 10, method="inverted_cdf").tolist() if weights else []
        found[name] = mean, len(weights), len(left), sum(map(len, left)), deciles
    return found


def check(rows: list[Row], data: Any, weight: str, **options: Any) -> None:
    """Compare a run with the definitions."""
    found = evaluate(data, score="score", mean_over="user", mean_weight=weight, metrics=NAMES, **options)
    for name, (mean, groups, left, rows_left, deciles) in expected(rows, weight).items():
        [result] = [r for r in found.results if r.metric == name]
        assert result.value == pytest.approx(mean, abs=1e-15, nan_ok=True)
        assert (result.mean_over, result.groups, result.groups_left_out) == ("user", groups, left)
        assert (result.rows_left_out, result.rows) == (rows_left, len(rows))
        assert list(result.group_deciles or ()) == pytest.approx(deciles, abs=1e-15)
        assert (result.value != result.value) == (result.reason is not None)


def distinct_values(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Count groups in bins if a shard has more distinct values than `most`."""
    monkeypatch.setattr(group_means, "_MOST", most)
    monkeypatch.setattr(group_means, "_LEAST", most)


@given(
    st.sampled_from(list(IDS.values())),
    st.sampled_from([pa.float32(), pa.float64()]),
    st.booleans(),
    st.sampled_from(["rows", "positives", "equal"]),
    st.data(),
)
def test_means_are_those_of_every_groups_own_value(
    ids: tuple[pa.DataType, Any], score: pa.DataType, tiny: bool, weight: str, data: st.DataObject
) -> None:
    """Ids of every form and null, ties, groups of one class, missing scores; groups cut into many parts, and bins."""
    kind, some = ids
    row = st.tuples(st.none() | some, st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, math.inf, None]), st.integers(0, 1))
    rows = data.draw(st.lists(row, min_size=1, max_size=40))
    columns = zip(("user", "score", "label"), zip(*rows, strict=True), (kind, score, pa.int8()), strict=True)
    table = pa.table({name: pa.array(values, of) for name, values, of in columns})
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            for name, size in (("REFINE", 1), ("SLAB", 2), ("CHUNK", 2)):
                patch.setattr(keyed, name, size)
            distinct_values(patch, 1)
        check([one for one in rows if one[1] is not None], table, weight, nan="drop")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """Many groups, one of them with half of the rows, in files."""
    rng = np.random.default_rng(5)
    user = np.where(rng.random(60_000) < 0.5, 77, rng.integers(0, 9_000, 60_000)) * np.where(
        rng.random(60_000) < 0.1, 2**33, 1
    )
    data = pa.table(
        {
            "label": pa.array((rng.random(60_000) < 0.3).astype(np.int8)),
            "score": pa.array(np.round(rng.random(60_000), 3).astype(np.float32)),
            "user": pa.array(user, mask=rng.random(60_000) < 0.01),
        }
    )
    folder = tmp_path_factory.mktemp("large")
    for i in range(6):
        pq.write_table(data.slice(i * 10_000, 10_000), folder / f"{i}.parquet", row_group_size=3_000)
    return folder, data


def runs(folder: Path, data: pa.Table) -> Iterator[Callable[..., Any]]:
    """The same rows, read and cut in several ways."""
    shuffled = data.take(pa.array(np.random.default_rng(1).permutation(len(data))))
    yield lambda **options: evaluate(folder, threads=2, **options)
    yield lambda **options: evaluate(shuffled, threads=1, memory="1MiB", **options)
    text = data.set_column(2, "user", data["user"].cast(pa.string()))
    yield lambda **options: evaluate(text, **options)


def test_means_are_the_same_bits_however_rows_are_cut(
    large: tuple[Path, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, order of rows, threads, memory, ids as texts, and bins do not matter; the values are the definitions'."""
    folder, data = large
    options: dict[str, Any] = {"score": "score", "mean_over": "user", "metrics": NAMES, "mean_weight": "rows"}
    first, *others = [run(**options) for run in runs(folder, data)]
    assert all(other.results == first.results for other in others)
    distinct_values(monkeypatch, 500)
    assert next(runs(folder, data))(**options).results == first.results
    rows = list(zip(*(data[name].to_pylist() for name in ("user", "score", "label")), strict=True))
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    kept = {group: several for group, several in groups.items() if len(several) < 1_000}
    small = data.filter(pa.array([row[0] in kept for row in rows]))
    check([row for row in rows if row[0] in kept], small, "positives")


def test_a_cluster_gives_the_same_bits(large: tuple[Path, pa.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of groups travel between workers by buckets."""
    folder, _ = large
    options: dict[str, Any] = {"score": "score", "mean_over": "user", "metrics": NAMES}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        here = evaluate(folder, threads=1, **options)
        assert evaluate(folder, client=client, **options).results == here.results
        distinct_values(monkeypatch, 500)
        assert evaluate(folder, client=client, **options).results == here.results


DATA = pa.table(
    {"label": [0, 1, 1], "score": [0.1, 0.4, 0.8], "user": [7, 7, 8], "half": [0.5, 0.5, 1.0], "w": [1.0, 1.0, 1.0]}
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["roc_auc", "agc"]}, "agc has no mean over groups.*precision@k=N"),
        ({"truncate": 0.5}, "agc@0.5, agc_ratio@0.5 have no mean"),
        ({"at": "fpr=0.1"}, "tpr@fpr=0.1 has no mean"),
        ({"by": "user"}, "take no by; leave out by"),
        ({"approx": True}, "take no approx"),
        ({"mean_over": "score"}, "a score as well"),
        ({"mean_weight": "users"}, "mean_weight"),
    ],
)
def test_what_means_do_not_go_with_is_refused(options: dict[str, Any], message: str) -> None:
    """Each refusal names the option and the remedy."""
    refuses(OptionError, message, evaluate, DATA, **{"score": "score", "mean_over": "user"} | options)


@pytest.mark.parametrize(("column", "weight"), [("user", "rows"), ("name", "equal"), ("far", "rows")])
def test_intervals_are_the_jackknife_over_groups(column: str, weight: str) -> None:
    """Narrow, wide and hashed ids, rows without one: each block of groups is left out as if it were not there."""
    random, rows = np.random.default_rng(4), 900
    user = random.integers(-20, 20, rows)
    label = random.integers(0, 2, rows)
    data = pa.table({"label": label, "s": (label + random.normal(size=rows)).astype(np.float32), "user": user})
    data = data.append_column("name", pa.array([None if one == 3 else f"u{one}" for one in user.tolist()]))
    data = data.append_column("far", pa.array((user + 1) * (1 << 40)))
    options: dict[str, Any] = {"score": "s", "mean_over": column, "mean_weight": weight}
    options |= {"metrics": ["roc_auc", "average_precision", "precision@k=3"], "threads": 1}
    found = evaluate(data, ci=0.95, **options)
    ids = data[column].unique()
    words = identify(ids.drop_null(), id_type(ids.type, column))[0]
    blocks = dict(zip(ids.drop_null().to_pylist(), blocks_of(words, 128).tolist(), strict=True))
    blocks[None] = int(blocks_of(np.zeros(1, np.uint64), 128)[0])
    of_rows = np.array([blocks[one] for one in data[column].to_pylist()])
    there = sorted(set(blocks.values()))
    left = [evaluate(data.filter(pa.array(of_rows != block)), **options).results for block in there]
    for i, one in enumerate(found.results):
        values = np.array([row[i].value for row in left])
        error = np.sqrt((len(there) - 1) / len(there) * np.square(values - values.mean()).sum())
        assert one.stderr == pytest.approx(error, rel=1e-6)
        assert (one.unit, one.units, one.blocks) == (column, one.groups, len(there))


def test_means_are_compared_over_their_groups() -> None:
    """Paired, as results say; other units are refused, since they would cut the groups."""
    random = np.random.default_rng(6)
    label, user = random.integers(0, 2, 2000), np.arange(2000) // 10
    columns = {"label": label, "a": label + random.normal(size=2000), "b": label + random.normal(size=2000) / 3}
    data = pa.table(columns | {"user": user})
    found = evaluate(data, score=["a", "b"], mean_over="user", baseline="a", metrics="roc_auc").results[-1]
    assert (found.unit, found.verdict) == ("user", "better")
    with pytest.raises(OptionError, match="resampled by group, which other units would cut"):
        evaluate(data, score="a", mean_over="user", unit="label")


def test_results_say_what_they_are_means_of() -> None:
    """JSON, tables and the report have the column of groups, how many there are, and what was left out."""
    found = evaluate(DATA, score="score", mean_over="user", metrics="roc_auc")
    [result] = json.loads(found.to_json())["results"]
    told = {"mean_over": "user", "groups": 1, "groups_left_out": 1, "rows_left_out": 1, "value": 1.0}
    assert {name: result[name] for name in told} == told
    assert found.to_arrow().select(list(told)).to_pylist() == [told]
    assert "mean over 1 group by user, weighted by rows; left out 1 group without both classes (1 row)" in str(found)
    none = evaluate(DATA.slice(0, 1), score="score", mean_over="user", metrics="roc_auc").results[0]
    assert (none.groups, none.groups_left_out, none.reason) == (0, 1, "no group has both classes")
    assert result["group_deciles"] == [1.0] * 11
    assert "group_deciles" not in none.to_dict()


def test_deciles_need_groups() -> None:
    """Without groups there are no values by group; nor of a metric that has no mean; none where no group has one."""
    refuses(OptionError, "mean_over", evaluate(DATA, score="score").group_values, "roc_auc")
    found = evaluate(DATA.slice(0, 1), score="score", mean_over="user", metrics="roc_auc")
    refuses(OptionError, "agc has no mean", found.group_values, "agc")
    assert len(found.group_values("roc_auc")) == 0
    refuses(OptionError, "roc curve", found.curve, "roc")
