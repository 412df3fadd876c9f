"""Types that hold all values: decimals around a number, against integers; times of several units; nearest floats."""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streameval.errors import SchemaError
from streameval.kernels.exact import quotients
from streameval.scan import plan, read, widened
from streameval.scan.widen import decimals_around, nearest_floats

KINDS = [pa.decimal32(5, 2), pa.decimal64(18, 0), pa.decimal128(38, 0), pa.decimal128(38, 37), pa.decimal256(76, 2)]


@given(st.integers(-(10**80), 10**80) | st.integers(-(10**6), 10**6), st.integers(-80, 5), st.sampled_from(KINDS))
@example(10**38 - 1, 0, pa.decimal128(38, 0))  # the largest value, which has more digits than Python's context
@example(1 - 10**76, -2, pa.decimal256(76, 2))
@example(10**38, 0, pa.decimal128(38, 0))
def test_the_nearest_values_are_those_of_integers(digits: int, exponent: int, kind: pa.DataType) -> None:
    """Numbers of any length, and the ends of a type."""
    found = decimals_around(Decimal(f"{digits}e{exponent}"), kind)
    down, up = (None if end is None else int(Fraction(end.as_py()) * 10**kind.scale) for end in found)
    exact, most = digits * Fraction(10) ** (exponent + kind.scale), 10**kind.precision - 1
    assert down == (None if exact < -most else min(math.floor(exact), most))
    assert up == (None if exact > most else max(math.ceil(exact), -most))


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_beyond_the_exponents_of_pythons_context_have_neighbours(sign: int) -> None:
    """`decimal.Overflow` was raised."""
    kind = pa.decimal128(3, 1)
    small, large = (decimals_around(Decimal(f"{sign}e{exponent}"), kind) for exponent in (-2_000_000, 2_000_000))
    assert {end.as_py() for end in small} == {0, sign * Decimal("0.1")}
    assert [end and end.as_py() for end in large][::sign] == [sign * Decimal("99.9"), None]


@given(st.lists(st.integers(-(10**18) + 1, 10**18 - 1), min_size=1), st.integers(0, 18))
@example([10 * (2**53 + 1), -10 * (2**53 + 3), 2**53 + 1, 0], 1)  # half way between two floats
@example([345_678_901_234_567_890], 18)
def test_decimals_become_the_nearest_floats(unscaled: list[int], scale: int) -> None:
    """Python divides integers exactly and rounds once; so do scores and weights, of any width of the type."""
    nearest = [number / 10**scale for number in unscaled]
    assert quotients(np.array(unscaled), scale).tolist() == nearest
    exact = [Decimal(number).scaleb(-scale) for number in unscaled]
    for kind in (
        pa.decimal64(18, scale),
        pa.decimal128(18, scale),
        pa.decimal128(38, scale + 9),
        pa.decimal256(76, 40),
    ):
        assert nearest_floats(pa.array(exact, kind)).tolist() == nearest


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
