"""Common rows: every column is evaluated on the rows that all have, exactly as if the others were not there."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from streameval import Accumulator, Store, evaluate
from streameval.cli import main
from streameval.errors import NullError, OptionError

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS: dict[str, Any] = {"score": ["a", "b"], "cluster": ["c", "d"]}
DROPPED = "NaN or null in one of a, b, c, d"
PRESENT = st.lists(st.tuples(*(st.integers(0, 3),) * 4), min_size=1, max_size=40)


def table(holes: list[tuple[int, ...]]) -> pa.Table:
    """Rows with a null where a hole is 0; the first score also has NaN, where it is 1."""
    rng = np.random.default_rng(len(holes))
    a = [None if h[0] == 0 else math.nan if h[0] == 1 else float(rng.integers(0, 9)) / 8 for h in holes]
    b = [None if h[1] == 0 else float(rng.integers(0, 5)) / 4 for h in holes]
    c = [None if h[2] == 0 else int(rng.integers(0, 4)) for h in holes]
    d = [None if h[3] == 0 else str(rng.integers(0, 4)) for h in holes]
    label = rng.integers(0, 2, len(holes))
    half = pa.array([None if x is None else np.float16(x) for x in b], pa.float16())
    return pa.table({"label": label, "a": a, "b": half, "c": c, "d": pa.array(d, pa.string()).dictionary_encode()})


def whole(data: pa.Table) -> pa.Table:
    """The rows without a hole, found one by one."""
    rows = data.to_pylist()
    kept = [i for i, row in enumerate(rows) if not any(v is None or v != v for v in row.values())]
    return data.take(pa.array(kept, pa.int64()))


@given(PRESENT)
def test_results_are_those_of_the_complete_rows(holes: list[tuple[int, ...]]) -> None:
    """Values, rows and positives of every metric; what was left out is counted."""
    data = table(holes)
    kept = whole(data)
    found = evaluate(data, **COLUMNS, common_rows=True)
    left_out = data.num_rows - kept.num_rows
    assert dict(found.dropped) == ({DROPPED: left_out} if left_out else {})
    assert found.rows == kept.num_rows
    if kept.num_rows:
        expected = evaluate(kept, **COLUMNS)
        assert (found.rows, found.positives) == (expected.rows, expected.positives)
        assert [r.to_dict() for r in found.results] == [r.to_dict() for r in expected.results]


def test_slices_filters_and_accumulators_follow() -> None:
    """A slice is that of the complete rows; the filter comes first."""
    data = table([tuple(h) for h in np.random.default_rng(3).integers(0, 9, (300, 4))])
    kept = whole(data)
    found, expected = (evaluate(t, **COLUMNS, by="c", common_rows=t is data) for t in (data, kept))
    assert found.to_dict()["results"] == expected.to_dict()["results"]
    where = {"where": "c > 1"}
    found, expected = (evaluate(t, **COLUMNS, **where, common_rows=t is data) for t in (data, kept))
    assert found.to_dict()["results"] == expected.to_dict()["results"]
    assert found.dropped[0][1] == sum(c is not None and c > 1 for c in data["c"].to_pylist()) - found.rows
    stream = Accumulator(**COLUMNS, common_rows=True)
    for start in range(0, 300, 70):
        stream.update(data.slice(start, 70))
    assert stream.result().to_dict() == evaluate(data, **COLUMNS, common_rows=True).to_dict()


def test_without_it_a_hole_is_refused_and_policies_that_count_it_are_refused_with_it() -> None:
    """By name."""
    data = table([(0, 2, 2, 2), (2, 2, 2, 0), (2, 2, 2, 2)])
    with pytest.raises(NullError, match="'a' has NaN or null scores"):
        evaluate(data, **COLUMNS)
    for name, value in (("nan", "half"), ("nulls", "singleton")):
        with pytest.raises(OptionError, match=f"{name}='{value}' counts rows that common_rows"):
            evaluate(data, **COLUMNS, common_rows=True, **{name: value})


def test_a_store_keeps_the_common_rows_of_its_columns(tmp_path: Path) -> None:
    """The numbers of the files, whichever columns are looked at; another column is refused."""
    rng = np.random.default_rng(8)
    for night in ("night=2026-01-01", "night=2026-01-02"):
        (tmp_path / "data" / night).mkdir(parents=True)
        part = table([tuple(h) for h in rng.integers(0, 9, (200, 4))])
        pq.write_table(
            part.cast(part.schema.set(2, pa.field("b", pa.float32()))), tmp_path / "data" / night / "0.parquet"
        )
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", **COLUMNS, common_rows=True)
    expected = evaluate(tmp_path / "data", **COLUMNS, common_rows=True)
    assert store.evaluate().to_json() == expected.to_json()
    alone = store.evaluate(score="a", cluster="c")
    assert (alone.rows, alone.dropped, alone.value("aul")) == (
        expected.rows,
        expected.dropped,
        expected.value("aul", "c"),
    )
    assert sum(entry.rows for entry in store.partitions()) == 400
    with pytest.raises(OptionError, match="create another store"):
        store.add(score="label")


def test_the_command_line_says_how_many_rows_were_left_out(tmp_path: Path) -> None:
    """In the table and in JSON."""
    pq.write_table(table([(0, 2, 2, 2), (2, 2, 2, 0), (2, 2, 2, 2), (2, 3, 2, 2)]).drop(["b"]), tmp_path / "t.parquet")
    call = ["evaluate", str(tmp_path / "t.parquet"), "--score", "a", "--cluster", "d", "--common-rows"]
    assert "left out: 2 rows, NaN or null in one of a, d" in CliRunner().invoke(main, call).output
    told = json.loads(CliRunner().invoke(main, [*call, "--json", "-"]).output)
    assert told["dropped"] == [{"reason": "NaN or null in one of a, d", "rows": 2}]
    assert told["options"]["common_rows"] is True
