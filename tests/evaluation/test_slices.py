"""Slices: each equals an evaluation of its rows alone, to the last bit, for every family, here and on a client."""

import datetime as dt
import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from streameval import Store, attribute, evaluate, plot_curve
from streameval.engine import fold
from streameval.errors import MissingColumnError, OptionError, SchemaError
from streameval.kernels import groups
from streameval.results import Scalar
from streameval.states.grouped import sweeps, tag_words
from streameval.states.keyed import counts
from streameval.states.keyed.counts import KeyedCounts

COUNTRIES = st.sampled_from(["DE", "FR", "null", "", None])
SCORES = st.sampled_from([0.0, 0.125, 0.5, 0.5, 0.75, math.nan, None])
FAMILIES: dict[str, Any] = {"score": "score", "cluster": "cluster", "classes": "class", "metrics": "*"}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A small table with everything that can be sliced, and everything to evaluate."""
    rows = draw(st.integers(1, 24))

    def drawn(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)

    few = st.none() | st.integers(0, 3)
    return pa.table(
        {
            "label": drawn(st.integers(0, 1), pa.int8()),
            "score": drawn(SCORES, draw(st.sampled_from([pa.float32(), pa.float64()]))),
            "cluster": drawn(few, pa.int64()),
            "class": drawn(few.map(lambda k: None if k is None else f"k{k}"), pa.string()),
            "weight": drawn(st.sampled_from([0.5, 1.0, 3.0]), pa.float64()),
            "country": drawn(COUNTRIES, pa.string()).dictionary_encode(),
            "length": drawn(st.none() | st.integers(-2, 9), pa.int32()),
            "ratio": drawn(st.sampled_from([math.nan, None, -0.0, 0.0, 2.5]), pa.float64()),
            "sent": drawn(
                st.none() | st.datetimes(dt.datetime(2026, 1, 30), dt.datetime(2026, 2, 2)), pa.timestamp("us")
            ),
        }
    )


def alone(data: pa.Table, found: dict[str, Any], **options: Any) -> list[Scalar]:
    """The results of the rows of a slice, evaluated alone."""
    keep = np.ones(len(data), bool)
    for name, value in found.items():
        keep &= np.array([same(one, value) for one in sliced(data, name)])
    results = evaluate(data.filter(pa.array(keep)), **options).results
    return [replace(result, slice=found) for result in results]


def sliced(data: pa.Table, name: str) -> list[Any]:
    """The values of a slicing column, from Python's own definitions."""
    if name == "hour(sent)":
        return [None if at is None else at.hour for at in data["sent"].to_pylist()]
    if name == "week(sent)":
        weeks = [None if at is None else at.isocalendar() for at in data["sent"].to_pylist()]
        return [None if week is None else f"{week.year}-W{week.week:02}" for week in weeks]
    if name in ("day(sent)", "month(sent)"):
        layout = "%Y-%m-%d" if name == "day(sent)" else "%Y-%m"
        return [None if at is None else at.strftime(layout) for at in data["sent"].to_pylist()]
    if name == "length=0,2.5,7":
        edges = [(0, "<0"), (2.5, "[0, 2.5)"), (7, "[2.5, 7)"), (math.inf, ">=7")]
        return [None if n is None else next(t for e, t in edges if n < e) for n in data["length"].to_pylist()]
    return data[name].to_pylist()


def same(one: Any, other: Any) -> bool:
    """Equality in which a NaN equals a NaN."""
    return type(one) is type(other) and (one == other or (one != one and other != other))


def told(results: Any) -> list[str]:
    """Results to the last bit, without reasons, which may name what all rows lack, and without what other rows cut."""
    return [repr(replace(result, reason=None, cut_share=None)) for result in results]


def cut_shares(data: pa.Table, by: str, nulls: str) -> list[tuple[str, float]]:
    """The share of the rows of every slice in clusters that have rows of other slices, row by row."""
    groups = list(map(repr, zip(*parts(data, by), strict=True)))
    clusters = data["cluster"].to_pylist()
    pairs = {(cluster, group) for cluster, group in zip(clusters, groups, strict=True) if cluster is not None}
    parted = {cluster for cluster, _ in pairs if sum(cluster == other for other, _ in pairs) > 1}
    found = []
    for group in set(groups):
        own = [c for c, g in zip(clusters, groups, strict=True) if g == group and (c is not None or nulls != "drop")]
        found.append((group, sum(cluster in parted for cluster in own) / max(1, len(own))))
    return found


BY = [
    "country",
    "country,length",
    "ratio",
    "hour(sent)",
    "day(sent)",
    "week(sent)",
    "month(sent),country",
    "length=0,2.5,7",
    "length=0,2.5,7,cluster",
]


PAIRWISE = [  # of a type, a number of scores and whether there are several passes
    (kind, scale, (1 << 24, 1 << 6)[(i + j) % 2])
    for i, kind in enumerate((np.float32, np.float64, np.int64))
    for j, scale in enumerate((1, 300, 1 << 20))
]


@pytest.mark.parametrize(("kind", "scale", "most"), PAIRWISE)
def test_buckets_of_any_size_are_sorted_and_swept(
    kind: Any, most: int, scale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores in few buckets, with few or many ties; a bucket of more than `most` rows takes several passes.

    Parts of the rows are swept as words, others as counts: one score has most rows, or words are too many for a sum.
    """
    monkeypatch.setattr(counts, "REFINE", most)
    if most == 1 << 6:
        monkeypatch.setattr(groups, "MOST", 40 << 30)
        monkeypatch.setattr(KeyedCounts.intervals, "__defaults__", (most,))
    rng, rows = np.random.default_rng(scale), 6_000
    score = (1 + rng.integers(0, scale, rows) / (1 << 26)) * (1 << 40 if kind is np.int64 else 1)
    score = score.astype(kind)
    score[: rows // 2] = score.max() + score.dtype.type(1)
    label, hour = (rng.random(rows) < 0.3).astype(np.int8), rng.integers(0, 5, rows)
    data = pa.table({"label": label, "score": score, "country": rng.integers(0, 3, rows), "hour": hour})
    given = {"score": "score", "metrics": ["roc_auc", "average_precision"]}
    found = evaluate(data, by=["country", "hour,country"], **given).results
    assert len(found) == 2 * (1 + 3 + 15)
    for one, other in zip(found[::2], found[1::2], strict=True):
        assert [replace(each, slice=each.slice or {}) for each in (one, other)] == alone(data, one.slice or {}, **given)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("ids", ["int", "string", "few"])
def test_clusters_of_slices_are_counted_together(wide: bool, ids: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters larger than the tables, hot ones, null ids; slices that narrow words cannot distinguish."""
    monkeypatch.setattr(sweeps, "_CELLS", 8)
    if wide:
        monkeypatch.setattr(tag_words, "MOST", 2)
    rng = np.random.default_rng(len(ids))
    rows = 200 if wide else 10_000
    numbers = rng.integers(0, 4, rows) if ids == "few" else rng.zipf(1.4, rows) % (1 << 30)
    cluster = pa.array(numbers, mask=rng.random(rows) < 0.01)
    columns = {"cluster": cluster.cast(pa.string()) if ids == "string" else cluster, "hour": rng.integers(0, 3, rows)}
    data = pa.table({"label": (rng.random(rows) < 0.3).astype(np.int8), "country": rng.integers(0, 4, rows), **columns})
    given: Any = {"cluster": "cluster", "nulls": "singleton" if ids == "int" else "drop"}
    found = evaluate(data, by=["country", "hour,country"], **given).results
    for pair in zip(found[::2], found[1::2], strict=True):
        own = pair[0].slice or {}
        assert [replace(one, slice=one.slice or {}, cut_share=None) for one in pair] == alone(data, own, **given)
        for one in pair:
            if len(own) == 1 and ids == "few":
                assert one.cut_share == pytest.approx(1, abs=0.02)
            assert (one.cut_share is None) == (one.slice is None)


@given(tables(), st.lists(st.sampled_from(BY), min_size=1, max_size=3, unique=True), st.data())
@settings(max_examples=12)  # an example makes some ten runs
def test_a_slice_is_its_rows_alone(data: pa.Table, by: list[str], draws: st.DataObject) -> None:
    """Every family, policy and kind of slicing; nulls and NaN are slices; the whole is as without slices."""
    options: dict[str, Any] = {
        "nulls": draws.draw(st.sampled_from(["drop", "singleton"])),
        "nan": draws.draw(st.sampled_from(["drop", "half"])),
        "weight": draws.draw(st.sampled_from([None, "weight"])),
        "approx": draws.draw(st.booleans()),
        "truncate": [0.5, 2],
        "at": ["fpr=0.1", "k=2"],
        "threads": 1,
    }
    names = draws.draw(st.sets(st.sampled_from(["score", "cluster", "classes"]), min_size=1))
    options |= {name: FAMILIES[name] for name in names}
    if "classes" in names:
        options["cluster"] = "cluster"
    options = {
        k: v for k, v in options.items() if "score" in names or k not in ("nan", "weight", "approx", "truncate", "at")
    }
    options = {k: v for k, v in options.items() if "cluster" in options or k != "nulls"}
    found = evaluate(data, by=by, **options)
    whole = evaluate(data, **options)
    compared = [r for r in found.results if r.slice is None]
    if options.get("weight") is None:
        assert told(compared) == told(whole.results)
    for each in by:
        rows = [r for r in found.results if r.slice is not None and ",".join(r.slice) == each]
        slices = {id(r.slice): r.slice for r in rows}
        assert len(slices) == len({tuple(map(repr, values)) for values in zip(*parts(data, each), strict=True)})
        for one in slices.values():
            assert told(r for r in rows if r.slice is one) == told(alone(data, one, **options))
        if found.columns("cluster") and any(r.metric == "aul" for r in rows):
            shares = {repr(tuple((r.slice or {}).values())): r.cut_share for r in rows if r.metric == "aul"}
            assert sorted(shares.values()) == sorted(share for _, share in cut_shares(data, each, options["nulls"]))
    json.loads(found.to_json())


def parts(data: pa.Table, by: str) -> list[list[Any]]:
    """The values of every slicing column; −0.0 is 0.0."""
    names = ["length=0,2.5,7", *by.split(",")[3:]] if by.startswith("length=") else by.split(",")
    return [
        [0.0 if value == 0 and name in ("ratio", "score") else value for value in sliced(data, name)] for name in names
    ]


@pytest.mark.parametrize("digits", [None, 2])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_weighted_slices_are_their_rows_alone(kind: type, digits: int | None) -> None:
    """To the last bit, for weights of any size: slices in large buckets and in small ones, equal scores or none."""
    by = ["group", "odd", "group,odd"] if (kind is np.float64) == (digits is None) else ["group"]
    rows, rng = 20_000, np.random.default_rng(5)
    score = 0.75 + rng.random(rows) / 512 if digits is None else rng.normal(size=rows).round(digits)
    data = pa.table(
        {
            "label": (rng.random(rows) < 0.3).astype(np.int8),
            "score": (score * (1 if kind is not np.int32 else 1e8)).astype(kind),
            "weight": 10.0 ** rng.uniform(-6, 6, rows),
            "group": np.minimum(rng.geometric(0.5, rows), 6),
            "odd": rng.random(rows) < 0.5,
        }
    )
    options: dict[str, Any] = {"score": "score", "weight": "weight", "metrics": "*", "threads": 2}
    found = evaluate(data, by=by, **options)
    assert told(r for r in found.results if r.slice is None) == told(evaluate(data, **options).results)
    for one in ({"group": 1}, {"group": 6}, {"odd": True}, {"group": 2, "odd": False}):
        own = [r for r in found.results if r.slice == one]
        assert bool(own) == (",".join(one) in by)
        assert not own or told(own) == told(alone(data, one, **options))


def many(rows: int = 6_000, groups: int = 30) -> pa.Table:
    """Rows of many groups, some with one class or a NaN score only."""
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "label": rng.integers(0, 2, rows),
            "score": np.where(rng.random(rows) < 0.02, np.nan, rng.integers(0, 50, rows) / 50),
            "cluster": rng.integers(0, 400, rows),
            "class": rng.integers(0, 90, rows),
            "user": pa.array(rng.integers(0, groups, rows).astype(str)),
            "country": pa.array(rng.choice(["DE", "FR", None], rows)),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`many` in four files of some row groups, by night."""
    root, data = tmp_path_factory.mktemp("slices"), many()
    for i in range(4):
        put(root / f"night=2026-01-0{i + 1}" / "part.parquet", data.slice(i * 1500, 1500), row_group_size=400)
    return root


SLICED: dict[str, Any] = {"score": "score", "cluster": "cluster", "classes": "class", "nan": "drop"}


def test_many_groups_over_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices in narrow and in wide words, over files, tasks and threads, are those of one table."""
    in_memory = evaluate(many(), by=["user", "country"], **SLICED)
    over_files = evaluate(folder, by=["user", "country", "night"], threads=2, **SLICED)
    monkeypatch.setattr(tag_words, "MOST", 8)
    joined = evaluate(folder, by=["user", "country"], threads=2, **SLICED)
    assert told(joined.results) == told(in_memory.results)
    assert [r.cut_share for r in joined.results] == [r.cut_share for r in in_memory.results]
    assert told(r for r in over_files.results if "night" not in (r.slice or {})) == told(in_memory.results)
    user = {"user": "17"}
    expected = alone(many(), user, **SLICED)
    assert told(r for r in joined.results if r.slice == user) == told(expected)
    night = evaluate(folder / "night=2026-01-02", **SLICED)
    assert told(night.results) == told(
        replace(r, slice=None) for r in over_files.results if r.slice == {"night": "2026-01-02"}
    )


def test_on_a_client_they_are_the_same(folder: Path, client: Any) -> None:
    """With a filter as well."""
    options: dict[str, Any] = {**SLICED, "by": ["country", "user,country", "night"], "where": "cluster < 300"}
    here, there = evaluate(folder, threads=2, **options), evaluate(folder, client=client, **options)
    assert told(here.results) == told(there.results)
    assert here.to_json() == there.to_json()


def test_values_tables_and_json(folder: Path) -> None:
    """A slice is found by its values; a table has its columns; null is not the text."""
    found = evaluate(folder, score="score", nan="drop", by=["country", "country,night"])
    tall = found.slices("country")
    assert tall.column_names[:4] == ["country", "rows", "positives", "roc_auc[score]"]
    assert tall["rows"].to_pylist() == sorted(tall["rows"].to_pylist(), reverse=True)
    null = tall.filter(tall["country"].is_null()).to_pylist()[0]
    assert null["roc_auc[score]"] == found.value("roc_auc", slice={"country": None})
    pair = {"country": "DE", "night": dt.date(2026, 1, 2)}
    assert found.interval("roc_auc", slice=pair)[0] == found.value("roc_auc", "score", slice=pair)
    flat = found.to_arrow()
    assert flat.column_names[-3:] == ["by", "country", "night"]
    assert flat.filter(pc.is_null(flat["by"])).num_rows == len(evaluate(folder, score="score", nan="drop").results)
    assert [r.get("slice") for r in found.to_dict()["results"]][-1].keys() == {"country", "night"}
    assert "score by country,night" in str(found)
    with pytest.raises(OptionError, match=r"there is no slice .*; there are slices by: country; country,night"):
        found.value("roc_auc", slice={"country": "IT"})
    assert found.slices(["country", "night"]).equals(found.slices("country,night"))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"country": "DE"}, "did you mean {'country': 'DEU'}?"),
        ({"country": "DEU", "hour": "7"}, "did you mean {'country': 'DEU', 'hour': 7}?"),
        ({"contry": "DE"}, "did you mean 'country'?"),
        ({"country": "XY"}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_the_nearest_slice_is_suggested(given: dict[str, Any], hint: str) -> None:
    """By its values among slices of its columns, else by the columns; a rule names it as rules do."""
    data = pa.table({"label": [0, 1], "score": [0.1, 0.4], "country": ["DEU", "FR"], "hour": [7, 8]})
    found = evaluate(data, score="score", metrics="roc_auc", by=["country", "country,hour"])
    error = refuses(OptionError, "", found.value, "roc_auc", slice=given)
    assert hint in error
    assert ("did you mean" in error) == bool(hint)
    refuses(OptionError, r"did you mean 'country'\? there are slices by: country; country,hour", found.slices, "contry")
    [rule] = found.judge("roc_auc{country=DE,hour=*} >= 0").judgements
    assert rule.reason == "roc_auc is null: there is no such slice; did you mean {country=DEU,hour=*}?"


@pytest.mark.parametrize("more", [{}, {"by": ["group", "odd"]}, {"weight": "weight"}, {"approx": True}], ids=str)
def test_slices_of_equally_many_rows_are_in_the_order_of_their_values(more: dict[str, Any]) -> None:
    """Whatever the layout, so that the slices with the most rows are the same ones."""
    values = ["b", None, "d", "a", "c"] * 8
    columns = {"label": [0, 1] * 20, "score": pa.array(range(40), pa.float32()), "weight": [1.0] * 40}
    data = pa.table({**columns, "group": values, "odd": list(range(2)) * 20})
    found = evaluate(data, score="score", metrics="roc_auc", **{"by": "group", **more})
    assert [(r.slice or {})["group"] for r in found.results if "group" in (r.slice or {})] == ["a", "b", "c", "d", None]


def test_a_slice_may_have_rows_for_some_metrics_only() -> None:
    """Rows without a label have a class, but no place in a lift curve: their slice has no AUL, and says why."""
    data = pa.table(
        {
            "label": pa.array([1, 0, None], pa.int8()),
            "cluster": ["a", "b", "c"],
            "class": ["k", "l", "k"],
            "flag": [True, True, None],
        }
    )
    found = evaluate(data, cluster="cluster", classes="class", unlabelled="drop", by="flag")
    (aul,) = [one for one in found.results if (one.metric, one.slice) == ("aul", {"flag": None})]
    assert math.isnan(aul.value)
    assert aul.reason
    assert found.value("bcubed_fscore", slice={"flag": None}) == 1
    alone = evaluate(data.slice(0, 2), cluster="cluster", classes="class", by="flag")
    assert found.value("aul", slice={"flag": True}) == alone.value("aul")


def test_too_many_slices_are_refused(folder: Path) -> None:
    """With their number, the column and what to do."""
    with pytest.raises(
        OptionError, match=r"by='user': 30 slices( or more)?, more than max_slices=29; .*\(--where\).*max_slices"
    ):
        evaluate(folder, score="score", nan="drop", by="user", max_slices=29)
    assert evaluate(folder, score="score", nan="drop", by="user", max_slices=30).rows == 6_000
    for by in ("country,user", ["country,user", "night"]):
        with pytest.raises(
            OptionError, match=r"by='country,user': \d+ slices or more \(user alone has 30 values or more"
        ):
            evaluate(folder, score="score", nan="drop", by=by, max_slices=29)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_column_of_ids_is_refused_early(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many values are not folded first: the first batch says no, with what it has."""
    monkeypatch.setattr(fold, "BATCH_ROWS", 1 << 17)
    rows = 200_000
    data = pa.table({"label": np.zeros(rows, np.int8), "score": pa.nulls(rows, kind), "id": np.arange(rows)})
    seen: list[int] = []
    with pytest.raises(OptionError, match=r"by='id': 131,072 slices or more, .*--mean-over"):
        evaluate(data, score="score", nan="drop", by="id", threads=1, progress=lambda done, _: seen.append(done))
    assert not seen


@pytest.mark.parametrize(
    ("by", "error", "message"),
    [
        ("contry", MissingColumnError, "no column 'contry'; did you mean 'country'"),
        ("country,country", OptionError, "names .country. twice"),
        ("minute(sent)", OptionError, "there is no part 'minute' of a time; there are hour, day, week, month"),
        ("hour(country)", SchemaError, "needs a column of timestamps; column 'country' has type string"),
        ("length=3,2", OptionError, "edges are ascending numbers"),
        ("length=", OptionError, "edges are ascending numbers"),
        ("country=0,2", SchemaError, "needs a column of numbers; column 'country' has type string"),
        ("rows", OptionError, "rename the slicing column"),
        ("", OptionError, "a name is empty"),
        (",", OptionError, "by=',': a column is missing before or after a comma"),
        ("length=a,b", OptionError, "by='length=a,b': edges are ascending numbers"),
    ],
)
def test_what_cannot_slice_is_refused(by: str, error: type[Exception], message: str) -> None:
    """By name, with the remedy."""
    data = pa.table({"label": [0, 1], "score": [0.1, 0.2], "country": ["DE", "FR"], "length": [1, 2], "rows": [1, 2]})
    refuses(error, message, evaluate, data, score="score", by=by)


NAMED = ["hour(sent_at)", "month(sent_at)", "length=0,20", "lower(country)", "utm=source", "k=1", "count(1)", "a.b"]


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("beside", [False, True])
def test_a_column_with_exactly_the_name_of_a_slice_is_the_slice(tmp_path: Path, name: str, *, beside: bool) -> None:
    """As Spark names columns; in files, tables, readers and filters."""
    values = ["x", "x", "y", "y"]
    columns: dict[str, Any] = {"label": [0, 1, 0, 1], "score": [0.1, 0.8, 0.35, 0.35], name: values}
    if beside:
        times = pa.array([0, 0, 0, 0], pa.timestamp("us"))
        nested = pa.array([{"b": 1}] * 4)
        columns |= {"sent_at": times, "length": [1, 2, 3, 4], "country": ["DE"] * 4, "utm": values, "a": nested}
    data = pa.table(columns)
    pq.write_table(data, tmp_path / "part.parquet")
    for source in (data, tmp_path, data.to_reader(), [data, tmp_path]):
        found = evaluate(source, score="score", by=name)
        groups = {one.slice[name]: one.rows for one in found.results if one.slice}
        assert groups in ({"x": 2, "y": 2}, {"x": 4, "y": 4})
        assert found.slices(name).num_rows == 2
    assert evaluate(tmp_path, score="score", where=f"\"{name}\" = 'x'").rows == 2


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.array([1, None, 1], pa.int32()), pa.array([1, 1, 2], pa.int64()), {1: 4, None: 1, 2: 1}),
        (
            pa.array(["a", None, "a"]).dictionary_encode(),
            pa.array(["a", "b", "b"], pa.large_string()),
            {"a": 3, None: 1, "b": 2},
        ),
        (pa.array([math.nan, 0.0, 0.0], pa.float32()), pa.array([-0.0, math.nan, 0.5]), {"nan": 2, 0.0: 3, 0.5: 1}),
        (pa.array([None] * 3, pa.null()), pa.array(["a", "a", None]), {None: 4, "a": 2}),
    ],
    ids=["widths", "texts", "NaN", "nulls"],
)
def test_slicing_columns_of_two_types(tmp_path: Path, first: pa.Array, second: pa.Array, expected: Any) -> None:
    """Equal values of two files are one slice where one type holds both; `test_types.py` has others."""
    for name, column in (("1", first), ("2", second)):
        table = pa.table({"label": [0, 1, 1], "score": [0.1, 0.2, 0.3], "g": column})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    found = evaluate(tmp_path, score="score", by="g", metrics="roc_auc", threads=1).slices("g").to_pylist()
    rows = {"nan" if row["g"] != row["g"] else row["g"]: row["rows"] for row in found}
    assert rows == expected


@pytest.mark.parametrize("encoded", [False, True])
def test_a_string_that_is_not_utf8_is_refused(tmp_path: Path, encoded: bool) -> None:
    """As a slice has its text for a name, also in a store, which could not read it again; binaries have any bytes."""
    texts = pa.array([b"ok", b"\xff\xfe", b"ok", None])
    broken = pa.Array.from_buffers(pa.string(), 4, texts.buffers())
    columns = {"label": [0, 1, 1, 0], "score": [0.1, 0.2, 0.3, 0.4]}
    put(tmp_path / "a.parquet", columns | {"text": broken.dictionary_encode() if encoded else broken, "raw": texts})
    for run in (evaluate, Store(tmp_path / "store").update):
        with pytest.raises(SchemaError, match=r"a.parquet: column 'text' has a string that is not UTF-8; write it as"):
            run(tmp_path / "a.parquet", score="score", by=["raw", "raw,text"])
    some = evaluate(tmp_path / "a.parquet", score="score", by=["raw", "text"], where="text = 'ok'")
    assert {str(r.slice): r.rows for r in some.results} == {"None": 2, "{'raw': b'ok'}": 2, "{'text': 'ok'}": 2}
    raw = evaluate(tmp_path / "a.parquet", score="score", by="raw")
    assert {(r.slice or {"raw": "all"})["raw"] for r in raw.results} == {"all", b"ok", b"\xff\xfe", None}


def test_curves_of_slices_are_those_of_their_rows() -> None:
    """Every curve of a slice, drawn on one picture with the others, named by its slice; unknown slices are refused."""
    random = np.random.default_rng(2)
    score = random.random(400).astype(np.float32)
    columns = {"label": random.random(400) < score, "score": score, "cluster": random.integers(0, 60, 400)}
    data = pa.table({**columns, "country": np.array(["DE", "FR"])[random.integers(0, 2, 400)]})
    options = {"score": "score", "cluster": "cluster", "metrics": ["roc_auc", "aul"]}
    found, ax = evaluate(data, by="country", **options), None
    for country in ("DE", "FR"):
        own = evaluate(data.filter(pc.field("country") == country), **options)
        for name in ("roc", "precision_recall", "gain", "lift", "reliability", "corp"):
            curve, expected = found.curve(name, slice={"country": country}), own.curve(name)
            assert np.array_equal(curve.x, expected.x)
            assert np.array_equal(curve.y, expected.y)
            assert curve.area == expected.area
        ax = plot_curve(found.curve("roc", slice={"country": country}), ax=ax)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.partition(" ")[0] for text in texts[:2]] == ["score{country=DE}", "score{country=FR}"]
    with pytest.raises(OptionError, match=r"there is no slice \{'country': 'DEE'\}; did you mean \{'country': 'DE'\}"):
        found.curve("roc", slice={"country": "DEE"})


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.uint8()])
@pytest.mark.parametrize("encoded", [False, True])
def test_edges_cut_numbers_of_any_type(kind: pa.DataType, encoded: bool) -> None:
    """A number is in the interval that holds it, NaN in none; edges that no number of the type reaches are no error."""
    values = [0, 1, 2, 99, 100, 255, None] + [0.5, -1.0, math.inf, -math.inf, math.nan] * pa.types.is_floating(kind)
    numbers = [value for value in values for _ in range(4)]
    column = pa.array(None if value is None else np.dtype(kind.to_pandas_dtype()).type(value) for value in numbers)
    column = column.cast(kind)
    if encoded:
        column = (column.cast(pa.float32()) if kind == pa.float16() else column).dictionary_encode()
    data = pa.table({"label": [0, 1] * (len(numbers) // 2), "score": np.arange(len(numbers)) / 7, "x": column})
    found = evaluate(data, score="score", by="x=-1,1,100,1000", metrics="roc_auc")
    edges = [(-1, "<-1"), (1, "[-1, 1)"), (100, "[1, 100)"), (1000, "[100, 1000)"), (math.inf, ">=1000")]

    def name(value: float | None) -> str | None:
        if value is None or math.isnan(value):
            return value and "nan"
        return next((text for edge, text in edges if value < edge), ">=1000")

    expected: dict[Any, int] = {}
    for value in numbers:
        expected[name(value)] = expected.get(name(value), 0) + 1
    sliced = {one.slice["x=-1,1,100,1000"]: one.rows for one in found.results if one.slice}
    assert sliced == expected


def test_histograms_beyond_the_budget_are_refused() -> None:
    """A histogram and its builder take up to 37 MiB a slice, 74 MiB with weights."""
    refused = r"by='user': .* slices or more take .* leave out approx \(--approx\)"
    refuses(OptionError, refused, evaluate, many(), score="score", nan="drop", by="user", approx=True, memory="256MiB")
    score = np.linspace(0, 1, 30)
    six = pa.table({"label": np.arange(30) % 2, "score": score, "user": np.arange(30) % 6, "w": np.ones(30)})
    asked = {"score": "score", "by": "user", "approx": True, "metrics": "roc_auc", "threads": 1, "memory": "512MiB"}
    assert len(evaluate(six, **asked).slices("user")) == 6
    refuses(OptionError, refused, evaluate, six, weight="w", **asked)


@pytest.mark.parametrize("zones", [("UTC", "UTC"), ("Europe/Berlin", "UTC"), (None, None), (None, "+05:30")], ids=str)
def test_parts_of_times_are_those_of_the_zone(tmp_path: Path, zones: tuple[str | None, str | None]) -> None:
    """Of the column's zone or the requested one, in files of several zones; in their own order; results name it."""
    rng, zone, files = np.random.default_rng(0), ZoneInfo("America/New_York"), []
    seconds = rng.integers(1_772_900_000, 1_774_800_000, 400)  # the clocks change in both zones
    labels, scores = rng.integers(0, 2, 400), rng.integers(0, 50, 400)
    for i, name in enumerate(zones):
        half = slice(200 * i, 200 * i + 200)
        times = pa.array(seconds[half], pa.timestamp("s", name))
        files.append(tmp_path / f"{i}.parquet")
        pq.write_table(
            pa.table({"label": labels[half], "score": scores[half], "sent": times, "read": times}), files[-1]
        )
    local = [dt.datetime.fromtimestamp(at, zone) for at in seconds.tolist()]
    parts = {"hour(sent)": [at.hour for at in local], "day(sent)": [f"{at:%Y-%m-%d}" for at in local]}
    options: dict[str, Any] = {"score": "score", "by": list(parts), "metrics": "roc_auc"}
    found = evaluate(files, **options, timezone=zone.key)
    assert found.to_dict()["timezones"] == dict.fromkeys(parts, zone.key)
    page = found.to_html().replace("<wbr>", "")
    for by, values in parts.items():
        plain = pa.table({"label": labels, "score": scores, "part": values})
        table, expected = found.slices(by), evaluate(plain, score="score", by="part", metrics="roc_auc")
        counts = {one.slice["part"]: (one.rows, repr(one.value)) for one in expected.results if one.slice}
        counts = {part: (rows, value.replace("nan", "None")) for part, (rows, value) in counts.items()}
        rows = table.to_pylist()
        assert {row[by]: (row["rows"], repr(row["roc_auc[score]"])) for row in rows} == counts
        assert [row[by] for row in rows] == sorted(counts)
        assert f"{by} is in the time zone {zone.key}" in str(found)
        assert f"{by} is in the time zone {zone.key}." in page
    ranked = attribute(files, score="score", by="hour(sent)", timezone=zone.key)
    assert ranked.to_dict()["timezones"] == {"hour(sent)": zone.key}
    if zones[0] == zones[1]:
        assert evaluate(files, **options).source.zones == ({} if zones[0] is None else dict.fromkeys(parts, zones[0]))
    else:
        with pytest.raises(SchemaError, match=r"1\.parquet: column 'sent' is .*; or name the zone .*--timezone UTC"):
            evaluate(files, **options)
    store = Store(tmp_path / "store", threads=1)
    store.update(files[0], score="score", by="hour(sent)", timezone=zone.key)
    store.update(files[1])
    assert store.evaluate(by="hour(sent)").slices("hour(sent)") == evaluate(
        files, score="score", by="hour(sent)", timezone=zone.key
    ).slices("hour(sent)")
    refuses(OptionError, r"timezone='UTC' contradicts the store's value", store.add, by="day(sent)", timezone="UTC")
    own = Store(tmp_path / "own", threads=1)
    own.update(files[0], score="score", by="hour(sent)")
    if (zones[0] is None) != (zones[1] is None):
        with pytest.raises(SchemaError, match=r"has times in \+05:30, unlike the nights of the store \(without a zone"):
            own.update(files[1])
    else:  # the zone of the first night is that of the column
        named = {"timezone": zones[0]} if zones[0] else {}
        own.update(files[1], **named)
        own.add(data=files, by="hour(read)", **named)
        assert own.evaluate(by="hour(sent)").slices("hour(sent)") == evaluate(
            files, score="score", by="hour(sent)", **named
        ).slices("hour(sent)")
    dates = pa.array([at.date() for at in local], pa.date32())
    pq.write_table(pa.table({"label": labels, "score": scores, "sent": dates}), tmp_path / "dates.parquet")
    store = Store(tmp_path / "days", threads=1)
    store.update(files[0], score="score", by="day(sent)")
    with nullcontext() if zones[0] is None else pytest.raises(SchemaError, match=r"has dates, unlike .*\(in "):
        store.update(tmp_path / "dates.parquet")
    for name, hint in {"Europe/Berln": "did you mean 'Europe/Berlin'", "CEST": "write for", "": "write for"}.items():
        refuses(OptionError, f"{name!r} is not a time zone .*; {hint}", evaluate, files, **options, timezone=name)
