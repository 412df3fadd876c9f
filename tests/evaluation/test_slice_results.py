"""Results of slices: intervals, comparisons, and values of every type."""

import datetime as dt
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streameval import attribute, compare, evaluate
from streameval.errors import OptionError
from streameval.report.attribution import format_rows

SCORES: dict[str, Any] = {"score": ["v1", "v2"], "metrics": ["roc_auc", "average_precision"]}


@pytest.fixture(scope="module")
def data() -> pa.Table:
    """Units of five rows that share a score, in three slices, one of them null and one of a single class."""
    random, rows = np.random.default_rng(3), 1500
    unit = np.arange(rows) // 5
    label = (random.random(300) < 0.4)[unit]
    v1 = label + random.normal(size=300)[unit] + random.normal(size=rows) / 4
    country = np.array(["DE", "FR", None, "IT"], object)[np.minimum(random.integers(0, 30, 300) // 9, 3)[unit]]
    label[country == "IT"] = False
    columns = {"label": label, "v1": v1, "v2": v1 + random.normal(size=rows) / 3, "weight": random.random(rows) + 0.5}
    table = pa.table(columns | {"unit": unit, "kind": unit % 37, "cluster": unit // 2, "other": unit // 3})
    return table.append_column("country", pa.array(country, pa.string()))


def alone(data: pa.Table, country: str | None) -> pa.Table:
    """The rows of a slice."""
    column = data["country"]
    return data.filter(pc.is_null(column) if country is None else pc.fill_null(pc.equal(column, country), False))


def bare(result: Any) -> Any:
    """A result without its slice, and without what depends on how many are compared."""
    return repr(replace(result, slice=None, p_value=None, verdict=None))


@pytest.mark.parametrize(
    "more",
    [
        {"unit": "unit", "baseline": "v1"},
        {"ci": 0.8},
        {"unit": "unit", "weight": "weight"},
        {"unit": "unit", "approx": True},
        {"unit": "unit", "metrics": ["precision@k=100", "agc"], "score": "v1"},
        {"score": (), "cluster": ["cluster", "other"], "classes": "kind", "metrics": ["bcubed_fscore", "v_measure"]}
        | {"baseline": "cluster", "unit": "unit"},
    ],
    ids=lambda more: ", ".join(more),
)
def test_a_slice_has_the_intervals_of_its_rows_alone(data: pa.Table, more: dict[str, Any]) -> None:
    """Values, intervals and differences, to the last bit; and all rows have theirs."""
    options = {**SCORES, **more, "threads": 1}
    found = evaluate(data, by="country", **options)
    if "ci" not in more:  # rows as units: their blocks follow from their places
        for country in (None, "IT"):
            mine = [r for r in found.results if r.slice == {"country": country}]
            assert list(map(bare, mine)) == list(map(bare, evaluate(alone(data, country), **options).results))
    whole = [r for r in found.results if r.slice is None]
    assert list(map(bare, whole)) == list(map(bare, evaluate(data, **options).results))
    assert any(r.ci_lower is not None for r in found.results if r.slice)
    assert all(r.ci_lower is not None or r.ci_reason for r in found.results)


@pytest.mark.parametrize(
    "more",
    [
        {"score": "v1", "by": ["country", "odd"]},
        {"weight": "weight"},
        {"approx": True},
        {"score": "short", "by": "country"},
        {"score": "short", "by": ["odd", "country"], "metrics": ["roc_auc", "pr_auc", "agc"]},
    ],
    ids=lambda more: ", ".join(more),
)
def test_a_slice_is_compared_with_the_rows_of_all_others(data: pa.Table, more: dict[str, Any]) -> None:
    """As evaluations of the two sets of rows are: paired, whatever the layout of the states."""
    options: dict[str, Any] = {**SCORES, "unit": "unit", "by": "country", "threads": 1, **more}
    data = _odd(data).append_column("short", pc.cast(pc.round(data["v1"], 2), pa.float32()))
    found = evaluate(data, against="rest", **options)
    by = options.pop("by")
    rests = [r for r in found.results if r.from_rest]
    assert [r for r in found.results if not r.from_rest] == list(evaluate(data, by=by, **options).results)
    for country in ("DE", None):
        others = pc.invert(pc.is_null(data["country"]) if country is None else pc.equal(data["country"], country))
        sides = [evaluate(rows, **options) for rows in (data.filter(pc.fill_null(others, True)), alone(data, country))]
        mine = [r for r in rests if r.slice == {"country": country}]
        for one, same in zip(mine, compare(*sides), strict=True):
            told = ("value", "stderr", "ci_lower", "ci_upper", "rows", "effective_units")
            assert [getattr(one, name) for name in told] == pytest.approx([getattr(same, name) for name in told], 1e-11)
            assert one.of == f"{one.baseline.removesuffix(' (rest)')} − {one.baseline}"
    one_class = next(r for r in rests if r.slice == {"country": "IT"})
    assert np.isnan(one_class.value)
    assert one_class.ci_lower is one_class.p_value is None
    assert "one class" in str(one_class.reason)


def test_no_column_is_taken_for_all_other_rows(data: pa.Table) -> None:
    """A baseline that reads as the rest of a slice is refused, if there are slices and the column it is the rest of."""
    named = data.append_column("v1 (rest)", data["v2"])
    options: dict[str, Any] = {"metrics": "roc_auc", "threads": 1}
    scores = ["v1", "v1 (rest)"]
    with pytest.raises(OptionError, match=r"baseline='v1 \(rest\)': of a slice.*rename the column"):
        evaluate(named, score=scores, baseline="v1 (rest)", by="country", **options)
    assert not any(r.from_rest for r in evaluate(named, score=scores, baseline="v1 (rest)", **options).results)
    assert not any(
        r.from_rest for r in evaluate(named, score=scores, baseline="v1", by="country", **options).results if r.baseline
    )


def test_p_is_adjusted_over_all_differences_by_slice(data: pa.Table) -> None:
    """By Holm over those of all slicings, apart from those of all rows; a value of a slice is found by its metric."""
    both = evaluate(_odd(data), score=["v1", "v2"], baseline="v1", metrics="roc_auc", by=["country", "odd"],
                    unit="unit", against="rest", threads=1).results  # fmt: skip
    alone_p = {r.of: r.p_value for r in evaluate(data, score=["v1", "v2"], baseline="v1", metrics="roc_auc",
                                                 unit="unit", threads=1).results}  # fmt: skip
    assert [r.p_value for r in both if r.baseline and not r.slice] == [alone_p["v2 − v1"]]
    sliced = [r.p_value for r in both if r.p_value is not None and r.slice]
    assert len(sliced) == 15  # of three countries and two halves: one between the columns, and two with the rest
    found = evaluate(data, score="v1", metrics="roc_auc", by="country", unit="unit", against="rest", threads=1)
    tested = [r for r in found.results if r.p_value is not None]
    assert len(tested) == 3
    smallest = min(tested, key=lambda r: r.p_value or 1)
    others = data.filter(pc.fill_null(pc.not_equal(data["country"], (smallest.slice or {})["country"]), True))
    sides = [evaluate(rows, score="v1", metrics="roc_auc", unit="unit", threads=1) for rows in
             (others, alone(data, (smallest.slice or {})["country"]))]  # fmt: skip
    assert smallest.p_value == pytest.approx(min(1, 3 * (compare(*sides)[0].p_value or 1)))
    assert found.value("roc_auc", slice={"country": "DE"}) == found.value("roc_auc", "v1", slice={"country": "DE"})
    assert found.slices("country").column_names == ["country", "rows", "positives", "roc_auc[v1]"]
    told = str(found), found.to_html(), found.to_json()
    assert "v1 (rest)" in told[2]
    assert "by country, against all other rows" in told[0]
    assert "By country, against all other rows" in told[1]
    assert found.judge("roc_auc[v1]{country=DE} >= 0").passed


def test_what_a_cut_changes_has_no_verdict(data: pa.Table) -> None:
    """Nights drawn at random have smaller clusters; so have slices that cut any. Their values are still told."""
    options: dict[str, Any] = {"cluster": "unit", "classes": "kind", "score": "v1", "unit": "unit"}
    metrics = ["aul", "v_measure", "precision@k=100", "roc_auc"]
    found = evaluate(_odd(data), by=["country", "odd"], against="rest", metrics=metrics, **options)
    reasons = {(r.metric, *(r.slice or ())): r.ci_reason for r in found.results if r.from_rest and r.value == r.value}
    assert "cuts clusters" in str(reasons["aul", "odd"])
    assert "how many classes" in str(reasons["v_measure", "odd"])
    assert "another share" in str(reasons["precision@k=100", "odd"])
    assert reasons["roc_auc", "odd"] is None
    uncut = [r for r in found.results if r.slice and r.metric == "aul" and "country" in r.slice and not r.from_rest]
    assert {r.cut_share for r in uncut} == {0.0}


def _odd(data: pa.Table) -> pa.Table:
    """With every other row in another slice."""
    return data.append_column("odd", pa.array(np.arange(data.num_rows) % 2))


PARIS = ZoneInfo("Europe/Paris")


def rows(column: pa.Array, copies: int = 1) -> pa.Table:
    """Each value with either label, and distinct scores."""
    twice = pa.concat_arrays([column] * 2 * copies)
    n = len(twice)
    return pa.table({"label": np.arange(n) // (n // 2), "score": np.arange(n) / n, "x": twice})


def test_integers_beyond_int64_are_written(tmp_path: Path) -> None:
    """In the table of results, in its files, in the table of a slicing, and among the worst slices."""
    data = rows(pa.array([7, None, 2**64 - 1], pa.uint64()), 40)
    found = evaluate(data, score="score", by="x", metrics="roc_auc")
    assert found.slices("x").schema.field("x").type == pa.uint64()
    assert found.slices("x")["x"].to_pylist() == [7, 2**64 - 1, None]
    assert found.to_arrow()["x"].to_pylist() == [None, 7, 2**64 - 1, None]
    found.save(tmp_path / "found.csv")
    assert f",{2**64 - 1}" in (tmp_path / "found.csv").read_text()
    noisy = data.set_column(1, "score", pa.array(np.random.default_rng(1).random(len(data))))
    worst = attribute(noisy, score="score", by="x").slices
    assert 0 < len(worst) < 3
    assert set(worst["x"].to_pylist()) < {7, 2**64 - 1, None}


def test_binaries_are_written_as_text_and_shown_as_bytes(tmp_path: Path) -> None:
    """Bytes that are not valid UTF-8 are escaped as in JSON; an empty value is not blank among the worst slices."""
    data = rows(pa.array([b"\x00\xff", b"", b"ab", None]), 40)
    found = evaluate(data, score="score", by="x", metrics="roc_auc")
    found.save(tmp_path / "found.csv")
    text = (tmp_path / "found.csv").read_text()
    assert [line.rpartition(",")[2] for line in text.splitlines()[2:]] == ['""', '"\x00\\xff"', '"ab"', ""]
    sliced = [one["slice"]["x"] for one in found.to_dict()["results"] if "slice" in one]
    assert sliced == ["", "\x00\\xff", "ab", None]
    noisy = data.set_column(1, "score", pa.array(np.random.default_rng(1).random(len(data))))
    worst = attribute(noisy, score="score", by="x")
    shown = [row.name[0] for row in format_rows(worst.slices, worst, examples=None).rows]
    assert shown == [str(value) if isinstance(value, bytes) else "null" for value in worst.slices["x"].to_pylist()]


@pytest.mark.parametrize(
    ("column", "value", "other"),
    [
        (pa.array([dt.datetime(2026, 1, 1, 23, 30), None]), dt.datetime(2026, 1, 1, 23, 30), dt.datetime(2026, 1, 1)),
        (
            pa.array([dt.datetime(2026, 1, 1, 23, 30, tzinfo=dt.UTC), None], pa.timestamp("ms", "Europe/Paris")),
            dt.datetime(2026, 1, 2, 0, 30, tzinfo=PARIS),
            dt.datetime(2026, 1, 1, 23, 30),
        ),
        (pa.array([1, None], pa.timestamp("ns")), pd.Timestamp(1), pd.Timestamp(2)),
        (pa.array([10**9 + 1, 10**9], pa.timestamp("ns", "UTC")), pd.Timestamp(10**9 + 1, tz="UTC"), pd.Timestamp(0)),
        (pa.array([dt.time(1, 2, 3), None]), dt.time(1, 2, 3), dt.time(1, 2, 4)),
        (pa.array([dt.date(2026, 1, 2), None]), dt.date(2026, 1, 2), dt.datetime(2026, 1, 3)),
        (pa.array(["no time", None]), "no time", dt.datetime(2026, 1, 2)),
        (pa.array([7, None]), 7, dt.date(2026, 1, 2)),
    ],
)
def test_a_slice_is_found_by_the_values_of_its_column(column: pa.Array, value: Any, other: Any) -> None:
    """Dates, and times as `datetime` and pandas have them; a time with a zone by its instant."""
    found = evaluate(rows(column), score="score", by="x", metrics="roc_auc")
    assert found.value("roc_auc", slice={"x": value}) == 1
    with pytest.raises(OptionError, match="there is no slice"):
        found.value("roc_auc", slice={"x": other})


def test_notes_name_the_slices(data: pa.Table) -> None:
    """Those without an interval, with the reason, and those whose intervals are rough; of many the first three."""
    found = evaluate(data, by="country", unit="kind", score="v1", metrics="roc_auc")
    rough = tuple(replace(one, freedom=2.9) if one.ci_lower else one for one in found.results)
    few = " ".join(str(replace(found, results=rough)).split())
    assert "no value of roc_auc[v1] in {country=IT}: one class only" in few
    slices = r"3 slices \({country=null}, {country=DE}, {country=FR}\)"
    assert re.search(f"warning: fewer than 3 degrees of freedom in {slices}: rough intervals", few)
    many = " ".join(str(evaluate(data, by="kind", unit="unit", score="v1", metrics="roc_auc")).split())
    slices = r"20 slices \({kind=0}, {kind=3}, {kind=6}, …\)"
    assert re.search(rf"no interval of roc_auc\[v1\] in {slices}: 1.0 to 3.0 effective units of positives", many)


def test_blocks_beyond_the_budget_are_refused(data: pa.Table) -> None:
    """By the number of slices, with remedies; and what keeps no blocks of slices is refused by name."""
    many = pa.concat_tables([data] * 4)
    with pytest.raises(OptionError, match=r"by='cluster': 150 slices or more take \d+ MiB.*--memory"):
        evaluate(many, by="cluster", unit="kind", memory="16MiB", threads=1, **SCORES)
    with pytest.raises(OptionError, match=r"leave out by \(--by\) or resample_bins"):
        evaluate(data, by="country", ci=0.95, resample_bins="exact", **SCORES)
