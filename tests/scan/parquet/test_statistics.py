"""Statistics: row groups are pruned by those that bound values, and by no others."""

import datetime as dt
import struct
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from footers import COLUMN_ORDERS, DEPRECATED_MAX, DEPRECATED_MIN, MAX, MIN, STATISTICS, chunks, edit_footer

from streameval import scan
from streameval.errors import CorruptFileError, MissingInputError
from streameval.scan import Where, prune
from streameval.scan.parquet.statistics import StoredColumns, survey

DAYS = [dt.datetime(year, 3, 4, 5, 6, 7) for year in (1, 1000, 1969, 2026, 9999)]
WHOLE = [0, 1, -1, 127, -128, 2**31 - 1, -(2**31)]
REAL = [0.0, -0.0, 1.5, -1.5, float("nan"), float("inf")]
TEXTS = ["", "a", "b", "é", "￿", "\U0001f600", "aa"]
PRICES = [Decimal(text) for text in ("0.00", "1.00", "1.50", "2.00", "-1.00", "-2.00")]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): WHOLE,
    pa.int64(): [*WHOLE, 2**53, 2**53 + 1, -(2**63)],
    pa.uint8(): [0, 1, 128, 255],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float16(): REAL,
    pa.float32(): REAL,
    pa.float64(): REAL,
    pa.bool_(): [False, True],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.dictionary(pa.int32(), pa.string()): TEXTS,
    pa.binary(): [b"", b"a", b"\x7f", b"\x80", b"\xff"],
    pa.binary(1): [b"a", b"\x7f", b"\x80", b"\xff"],
    pa.decimal128(5, 2): PRICES,
    pa.decimal128(25, 2): PRICES,
    pa.decimal256(50, 2): PRICES,
    pa.date32(): [day.date() for day in DAYS],
    pa.time32("ms"): [dt.time(5, 6, 7), dt.time(23)],
    pa.timestamp("ms"): DAYS,
    pa.timestamp("us"): DAYS,
    pa.timestamp("ns"): DAYS[2:4],
    pa.timestamp("us", "UTC"): [day.replace(tzinfo=dt.UTC) for day in DAYS],
}
KINDS = list(VALUES)


def table(kind: pa.DataType, values: list[Any]) -> pa.Table:
    """A column of values, and the numbers of the rows."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_float16(kind):
        values = [None if value is None else np.float16(value) for value in values]
    return pa.table({"x": pa.array(values, plain).cast(kind), "n": np.arange(len(values))})


def literal(kind: pa.DataType, value: Any) -> str:
    """A value as SQL has it."""
    if pa.types.is_boolean(kind):
        return str(value).upper()
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat(sep=' ').removesuffix('+00:00')}{'Z' if value.tzinfo else ''}'"
    if isinstance(value, bytes):
        return "'" + value.decode("utf-8", "surrogateescape") + "'"
    return f"'{value}'" if isinstance(value, str | dt.date | dt.time) else str(value)


def numbers(pieces: Any, found: scan.Scan, test: scan.Test) -> list[int]:
    """Numbers of the rows of some pieces that meet a filter."""
    batches = (batch for piece in pieces for batch in scan.read(piece, found.schema))
    return [n for batch in batches for n in batch.column("n").filter(pa.array(test.kept(batch))).to_pylist()]


def left(path: Path, where: Any) -> tuple[list[int], list[int], int]:
    """The rows that meet a filter with and without pruning, and how many row groups are left."""
    found = scan.plan(str(path), ["n", "x"])
    test = Where.of(where).bound(found.schema)
    try:
        narrow, pruned = prune(found, test)
    except MissingInputError:
        return [], numbers(found.pieces, found, test), 0
    return numbers(narrow.pieces, found, test), numbers(found.pieces, found, test), pruned.groups


def make_legacy(footer: dict[int, Any], *, wrong: bool) -> None:
    """Leave only the deprecated ends, without column orders; those of types that they do not order are exchanged."""
    footer.pop(COLUMN_ORDERS, None)
    for columns in chunks(footer):
        fields = columns[0].get(STATISTICS, (12, {}))[1]
        low, high = (
            fields.pop(new, None) or fields.get(old) for new, old in ((MIN, DEPRECATED_MIN), (MAX, DEPRECATED_MAX))
        )
        if low and high:
            fields[DEPRECATED_MIN], fields[DEPRECATED_MAX] = (high, low) if wrong else (low, high)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not pa.types.is_float16(kind)], ids=str)
def test_row_groups_are_pruned_by_bounds_of_every_type(tmp_path: Path, kind: pa.DataType) -> None:
    """Sorted values: one of three row groups is left; a null is in none."""
    values = [value for value in VALUES[kind] if value == value]
    low, high = min(values), max(values)
    path = tmp_path / "part.parquet"
    pq.write_table(table(kind, [low, low, high, high, None, None]), path, row_group_size=2)
    for where in (f"x = {literal(kind, low)}", f"x IN ({literal(kind, low)})", f"NOT x <> {literal(kind, low)}"):
        assert left(path, where) == ([0, 1], [0, 1], 1), where
    assert left(path, "x IS NULL") == ([4, 5], [4, 5], 1)
    assert left(path, "x IS NOT NULL")[2] == 2


def test_a_decimal_ordered_by_signed_bytes_is_not_pruned(tmp_path: Path) -> None:
    """200 is below 100 if bytes are signed, as Spark 2 has them."""
    path = tmp_path / "part.parquet"
    pq.write_table(table(pa.decimal128(25, 2), [Decimal("1.00"), Decimal("2.00")] * 2), path, row_group_size=4)
    edit_footer(path, lambda footer: make_legacy(footer, wrong=True))
    assert left(path, "x = 1.50 OR x = 1")[:2] == ([0, 2], [0, 2])


def test_a_nan_among_the_ends_bounds_nothing(tmp_path: Path) -> None:
    """Writers that compare with NaN leave it there."""
    path = tmp_path / "part.parquet"
    pq.write_table(table(pa.float64(), [1.0, 2.0, 3.0]), path)
    nan = struct.pack("<d", float("nan"))

    def change(footer: dict[int, Any]) -> None:
        for columns in chunks(footer):
            fields = columns[0][STATISTICS][1]
            for field in (MIN, MAX, DEPRECATED_MIN, DEPRECATED_MAX):
                fields[field] = (8, nan)

    edit_footer(path, change)
    assert left(path, "x = 2")[0] == [1]


def test_expressions_prune_as_sql_does(tmp_path: Path) -> None:
    """What is not understood prunes nothing, and what is joined with it still does."""
    path = tmp_path / "part.parquet"
    pq.write_table(table(pa.int64(), list(range(8))), path, row_group_size=2)
    x = pc.field("x")
    for where, groups in (
        (x == 3, 1),
        (x > pa.scalar(5, pa.int8()), 1),
        (pc.scalar(5) < x, 1),
        (x.isin([0, 7]), 2),
        ((x * 2 == 6) & (x < 4), 2),
        (x > 2.5, 3),
        (~(x > 1), 1),
        (pc.if_else(x > 3, x == 2, x == 1), 1),
        (pc.scalar(value=True) & (x == 0), 1),
    ):
        some, every, count = left(path, where)
        assert (some, count) == (every, groups), where


@pytest.mark.parametrize("columns", [1, 14, 15, 200])
def test_texts_are_bounded_if_the_footer_orders_columns(tmp_path: Path, columns: int) -> None:
    """Whatever the number of columns."""
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({f"x{i}": ["a", "b"] for i in range(columns)}), path)
    assert {(one.low, one.high) for one in survey([str(path)])} == {("a", "b")}
    edit_footer(path, lambda footer: footer.pop(COLUMN_ORDERS))
    assert {(one.low, one.high) for one in survey([str(path)])} == {(None, None)}


@pytest.mark.parametrize("kind", [pa.int64(), pa.binary(16)], ids=str)
def test_an_end_that_is_too_short_bounds_nothing(tmp_path: Path, kind: pa.DataType) -> None:
    """Arrow aborts the process when it decodes one; some writers cut UUIDs."""
    path = tmp_path / "part.parquet"
    values = [7, 8, None] if kind == pa.int64() else [b"a" * 16, b"b" * 16, None]
    pq.write_table(table(kind, values), path)

    def change(footer: dict[int, Any]) -> None:
        for columns in chunks(footer):
            columns[0][STATISTICS][1][MIN] = (8, b"aa")

    edit_footer(path, change)
    with suppress(CorruptFileError):  # of Arrow's reader, which does not read ends of bytes
        assert left(path, f"x = {literal(kind, values[1])}") == ([1], [1], 1)
    (facts, _) = survey([str(path)])
    assert (facts.nulls, facts.low, facts.high) == (1, None, None)
    assert StoredColumns(pq.read_metadata(path)).null_count(0, 0) == 1
