"""Values of slicing columns: in tables, in edges, and looked up by Python's own values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import Store, attribute, evaluate
from streameval.errors import OptionError
from streameval.report.attribution import conclusion, listed

if TYPE_CHECKING:
    from pathlib import Path

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
    assert worst is not None
    assert 0 < len(worst) < 3
    assert set(worst["x"].to_pylist()) < {7, 2**64 - 1, None}


def test_without_a_slice_that_falls_short_the_table_has_its_columns() -> None:
    """Slices that are too small are left out, and a script still finds the column."""
    worst = attribute(rows(pa.array(["DE", "FR"])), score="score", by="x").slices
    assert worst is not None
    assert worst.column_names == ["x", "rows", "value", "ci_lower", "ci_upper", "shortfall"]
    assert len(worst) == 0


def test_a_store_filters_by_integers_beyond_int64(tmp_path: Path) -> None:
    """As the files do, from the slices that it keeps."""
    data, store = tmp_path / "data", Store(tmp_path / "store")
    (data / "night=2026-01-01").mkdir(parents=True)
    pq.write_table(rows(pa.array([7, None, 2**64 - 1], pa.uint64())), data / "night=2026-01-01" / "part.parquet")
    store.update(data, score="score", by="x", metrics="roc_auc")
    for where in (f"x = {2**64 - 1}", "x > 7", "x IS NULL", f"x < {2**63}"):
        assert store.evaluate(where=where).rows == evaluate(data, score="score", where=where).rows == 2, where


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
    assert worst.slices is not None
    shown = [row.texts[0] for row in listed(worst.slices, worst, examples=None).rows]
    assert shown == [str(value) if isinstance(value, bytes) else "null" for value in worst.slices["x"].to_pylist()]


def test_a_metric_without_a_value_ranks_no_slices() -> None:
    """It is told in words."""
    data = rows(pa.array(["DE", "FR"]), 40)
    found = attribute(data.set_column(1, "score", pa.array(np.arange(160.0))), score="score", by="x", metric="log_loss")
    assert found.slices is not None
    told = conclusion("slices", found.slices, found)
    assert told == "none of 2 slices can be ranked; log_loss of all rows has no value; 2 left out: no value"


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


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal256(76, 2)])
@pytest.mark.parametrize("encoded", [False, True])
def test_edges_cut_decimals(kind: pa.DataType, encoded: bool) -> None:
    """Exactly, whatever digits the edge has."""
    values = [Decimal("1.50"), Decimal("1.51"), Decimal("-999.99"), Decimal("999.99"), None]
    column = pa.array(values, kind)
    data = rows(column.dictionary_encode() if encoded else column)
    for edges, expected in (
        ("1.5", {"<1.5": 2, ">=1.5": 6, None: 2}),
        ("1.501,999.995", {"<1.501": 4, "[1.501, 999.995)": 4, None: 2}),
        (f"-1e50,1.50{'0' * 90}1", {"[-1e50, 1.50" + "0" * 90 + "1)": 4, f">=1.50{'0' * 90}1": 4, None: 2}),
    ):
        found = evaluate(data, score="score", by=f"x={edges}", metrics="roc_auc")
        assert {one.slice[f"x={edges}"]: one.rows for one in found.results if one.slice} == expected


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("kind", [pa.decimal32(5, 2), pa.decimal64(9, 2)])
def test_slices_of_short_decimals_are_those_of_longer_ones(kind: pa.DataType, encoded: bool) -> None:
    """Arrow cannot hash them."""
    column = pa.array([Decimal("1.50"), Decimal("2.50"), None, Decimal("1.50")], pa.decimal128(5, 2))
    short = column.cast(kind)
    if encoded:
        short = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), short.slice(0, 3))
    one, other = (evaluate(rows(each), score="score", by="x", metrics="roc_auc").results for each in (column, short))
    assert [(each.slice, each.rows) for each in one] == [(each.slice, each.rows) for each in other]
    assert one[1].slice == {"x": Decimal("1.50")}


def test_edges_of_integers_are_not_rounded() -> None:
    """An edge that float64 cannot hold, written with a point."""
    data = pa.table({"label": [0, 1], "score": [0.1, 0.2], "x": [2**53, 2**53 + 1]})
    found = evaluate(data, score="score", by=f"x={2**53 + 1}.0", metrics="roc_auc")
    assert [one.rows for one in found.results if one.slice] == [1, 1]
