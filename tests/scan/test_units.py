"""Times of several units are read together if the finest one holds them, and refused otherwise."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.errors import SchemaError
from streameval.scan import plan, read, widened

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
MOST = 2**63 - 1
FILE = st.tuples(
    st.sampled_from(["ms", "us", "ns"]), st.lists(st.one_of(st.none(), st.integers(-MOST, MOST)), max_size=3)
)


@settings(max_examples=40)
@given(st.lists(FILE, min_size=2, max_size=3), st.sampled_from(["UTC", None]))
def test_instants_are_those_of_the_files_or_refused(files: list[tuple[str, list[int | None]]], tz: str | None) -> None:
    """No instant becomes another one, whatever the units and their order."""
    with tempfile.TemporaryDirectory() as folder:
        for i, (unit, values) in enumerate(files):
            column = pa.array([*values, 0], pa.timestamp(unit, tz))
            pq.write_table(pa.table({"at": column}), Path(folder, f"{i}.parquet"), coerce_timestamps=None)
        scan = plan(folder, ["at"])
        unit = scan.schema.field("at").type.unit
        assert UNITS[unit] == max(UNITS[u] for u, _ in files)
        holds = all(v is None or abs(v) * UNITS[unit] // UNITS[u] <= MOST for u, values in files for v in values)
        try:
            batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
        except SchemaError:
            assert not holds
            return
        assert holds
        found = [v for batch in batches for v in batch.column(0).cast(pa.int64()).to_pylist()]
    expected = [v if v is None else Fraction(v, UNITS[u]) for u, values in files for v in (*values, 0)]
    assert [v if v is None else Fraction(v, UNITS[unit]) for v in found] == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([pa.time32("s"), pa.time32("ms")], pa.time32("ms")),
        ([pa.time32("ms"), pa.time64("ns"), pa.null()], pa.time64("ns")),
        ([pa.duration("ms"), pa.duration("us")], pa.duration("us")),
        ([pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms")], pa.timestamp("ns")),
        ([pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")], pa.timestamp("us", "UTC")),
        ([pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")], None),
        ([pa.timestamp("us", "UTC"), pa.timestamp("us")], None),
        ([pa.timestamp("us"), pa.int64()], None),
        ([pa.timestamp("us"), pa.date32()], None),
    ],
)
def test_the_unit_of_several(kinds: list[Any], expected: Any) -> None:
    """In any order; an hour differs between time zones, so they are not combined."""
    assert widened(kinds) == widened(kinds[::-1]) == expected
