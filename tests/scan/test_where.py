"""Filters: SQL's own answer for every condition, whatever is left out by paths and statistics."""

import datetime as dt
import operator
import pickle
import sqlite3
import time
import uuid
from dataclasses import replace
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from streameval import Store, attribute, evaluate, scan
from streameval.errors import CorruptFileError, MissingColumnError, MissingInputError, OptionError
from streameval.evaluation import explain
from streameval.scan import Where, join, prune, row_groups
from streameval.scan.parquet.footers import _combine_groups
from streameval.scan.parquet.row_groups import Group
from streameval.scan.parquet.statistics import Bounds
from streameval.scan.pruning import Units
from streameval.scan.where import expression_tree

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-128, 127),
    "j": st.integers(-3, 3) | st.integers(-(2**40), 2**40),
    "f": st.sampled_from([-1.5, 0.0, 0.25, 2.0, 1e9]),
    "s": st.sampled_from(["", "DE", "FR", "d'E", "é"]),
    "b": st.booleans(),
}
KINDS = {"i": pa.int8(), "j": pa.int64(), "f": pa.float64(), "s": pa.string(), "b": pa.bool_()}
NUMBERS = st.integers(-400, 400).map(str) | st.sampled_from(["0.5", "-2.5", "127.5", "1e3", "-1e-3", "-129.5"])


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def literals(name: str) -> st.SearchStrategy[str]:
    """Values to compare a column with."""
    return {"s": VALUES["s"].map(quoted), "b": st.sampled_from(["TRUE", "FALSE"])}.get(name, NUMBERS)


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """A test of one column, or of two."""
    name = draw(st.sampled_from(list(VALUES)))
    value, signs = literals(name), ["=", "<>", "!="] + ["<", "<=", ">", ">="] * (name != "b")
    kind = draw(st.sampled_from(["sign", "flipped", "in", "null", "between", "like", "columns"]))
    negated = draw(st.sampled_from(["", "NOT "]))
    if kind == "like":
        return f"s {negated}LIKE {quoted(draw(st.sampled_from(['%E', 'd%', '_', '', '%', '_E', 'de', 'DE'])))}"
    if kind == "columns":
        one, other = (draw(st.sampled_from("ijf")) for _ in range(2))
        return f"{one} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {other}"
    if kind == "null":
        return f"{name} IS {negated}NULL"
    if kind == "in":
        return f"{name} {negated}IN ({', '.join(draw(st.lists(value, min_size=1, max_size=70)))})"
    if kind == "between" and name != "b":
        return f"{name} {negated}BETWEEN {draw(value)} AND {draw(value)}"
    one, sign, other = name, draw(st.sampled_from(signs)), draw(value)
    return f"{other} {sign} {one}" if kind == "flipped" else f"{one} {sign} {other}"


CONDITIONS = st.recursive(
    comparisons() | st.just("b"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda each: f"({each[0]}) {each[1]} ({each[2]})"),
        inner.map(lambda each: f"NOT ({each})"),
    ),
    max_leaves=5,
)
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), min_size=1, max_size=12)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows of `VALUES`, numbered, with an alternating label."""
    columns = {name: pa.array([row[i] for row in rows], KINDS[name]) for i, name in enumerate(VALUES)}
    return pa.table(columns | {"n": np.arange(len(rows)), "label": np.arange(len(rows)) % 2})


def told_by_sqlite(rows: list[tuple[Any, ...]], condition: str) -> list[int]:
    """The rows that SQLite keeps."""
    with sqlite3.connect(":memory:") as base:
        base.execute("PRAGMA case_sensitive_like = ON")
        base.execute("CREATE TABLE t (n INTEGER, i INTEGER, j INTEGER, f REAL, s TEXT, b INTEGER)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [(n, *row) for n, row in enumerate(rows)])
        return [n for (n,) in base.execute(f"SELECT n FROM t WHERE {condition} ORDER BY n")]  # noqa: S608 - our own condition


@given(ROWS, CONDITIONS, st.integers(1, 4))
def test_rows_are_those_that_sqlite_keeps_whatever_is_pruned(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], condition: str, size: int
) -> None:
    """Nulls, types' limits, fractions against integers, NOT of everything; what paths and statistics leave out."""
    data, expected = table(rows), told_by_sqlite(rows, condition)
    test = pickle.loads(pickle.dumps(Where.of(condition).bound(data.schema)))
    assert np.flatnonzero(np.concatenate([test.kept(batch) for batch in data.to_batches()])).tolist() == expected
    folder, half = tmp_path_factory.mktemp("pruned"), len(rows) // 2
    for number, part in enumerate((data.slice(0, half), data.slice(half))):
        put(folder / f"h={number}" / "part.parquet", part, row_group_size=size)
    for text, due in ((condition, expected), (f"({condition}) AND h = '1'", [n for n in expected if n >= half])):
        where = Where.of(text)
        found = scan.plan(str(folder), ["n", *where.columns])
        test = where.bound(found.schema)
        try:
            left = prune(found, test)[0].pieces
        except MissingInputError:
            left = ()
        assert [n for piece in left for n in kept(piece, found, test)] == due


def kept(piece: scan.Piece, found: scan.Scan, test: scan.Test) -> list[int]:
    """Numbers of the rows of a piece that meet a filter."""
    batches = list(scan.read(piece, found.schema))
    return [n for batch in batches for n in batch.column("n").filter(pa.array(test.kept(batch))).to_pylist()]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("d >= '2026-01-02' AND d < DATE '2026-01-04'", 2),
        ("t > '2026-01-01 12:00:00'", 5),
        ("z >= '2026-01-03T00:00:00Z'", 4),
        ("big > 18446744073709551613.5", 2),
        ("big > -1", 6),
        ("big >= 18446744073709551616", 0),
        ("price = 1.10", 1),
        ("price = 1.101", 0),
        ("price > 1.101", 3),
        ("price IN (1.1, 1.101, 2, 1e30)", 2),
        ("price < 1e300 AND wide >= 1.099999999", 4),
        ("wide <> 1.1001", 5),
        ("clock > '02:30'", 3),
        ("clock = TIME '01:00:00.000'", 1),
        ("half >= 0.1", 5),
        ("name = 'b' OR \"my col\" = 2", 2),
        ("meta.kind = 'x'", 3),
        (pc.hour(pc.field("t")) >= 3, 3),
        ((pc.field("name") == "b") | (pc.field("my col") == 2), 2),
    ],
)
def test_every_type_is_compared(tmp_path: Path, where: Any, rows: int) -> None:
    """Dates, times, decimals, large integers, floats by the nearest value, dictionaries, fields of structs."""
    days = [dt.datetime(2026, 1, 1 + i, i, tzinfo=dt.UTC) for i in range(6)]
    columns = {
        "d": pa.array([day.date() for day in days]),
        "t": pa.array([day.replace(tzinfo=None) for day in days], pa.timestamp("us")),
        "z": pa.array(days, pa.timestamp("ms", "UTC")),
        "big": pa.array([0, 1, 2, 3, 2**64 - 2, 2**64 - 1], pa.uint64()),
        "price": pa.array(["0.10", "1.10", None, "2.00", "3.00", "4.00"]).cast(pa.decimal128(5, 2)),
        "wide": pa.array(["0.10", "1.10", None, "2.00", "3.00", "4.00"]).cast(pa.decimal128(38, 2)),
        "clock": pa.array([day.time() for day in days], pa.time32("ms")),
        "half": pa.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], pa.float32()),
        "name": pa.array(["a", "b", "c", None, "a", "c"]).dictionary_encode(),
        "my col": [1, 2, 3, 4, 5, 6],
        "meta": [{"kind": "x"}, {"kind": "y"}] * 3,
        "label": [0, 1] * 3,
        "score": np.arange(6.0),
    }
    columns["my col"] = [2, 1, 3, 4, 5, 6]
    pq.write_table(pa.table(columns), tmp_path / "part.parquet", row_group_size=2)
    for data in (tmp_path, pa.table(columns)):
        if rows:
            assert evaluate(data, score="score", where=where).rows == rows
        else:
            refuses(MissingInputError, "no row meets where", evaluate, data, score="score", where=where)


WHOLE = [0, 1, 2**53, 2**53 + 1, 2**63 - 1]
NUMBER_COLUMNS = {
    pa.int8(): [0, 1, -1, 127, -128],
    pa.int64(): [*WHOLE, -1, -(2**53) - 1, -(2**63)],
    pa.uint32(): [0, 1, 2**32 - 1],
    pa.uint64(): [*WHOLE, 2**63, 2**64 - 1],
    pa.float32(): [-0.0, 0.5, 2.0**63],
    pa.float64(): [
        -0.5,
        *map(float, WHOLE),
        -1.0,
        -(2.0**53),
        -(2.0**63),
        2.0**64,
        *map(float, ("inf", "-inf", "nan")),
    ],
}
SIGNS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.mark.parametrize("kinds", list(combinations(NUMBER_COLUMNS, 2)), ids=lambda pair: "-".join(map(str, pair)))
def test_columns_of_numbers_are_compared_exactly(kinds: tuple[pa.DataType, pa.DataType]) -> None:
    """As Python compares integers with floats, beyond 2⁵³ too; a null is kept by no comparison."""
    pairs = list(product(*([*NUMBER_COLUMNS[kind], None] for kind in kinds)))
    columns = [pa.array(values, kind) for values, kind in zip(zip(*pairs, strict=True), kinds, strict=True)]
    batch = pa.record_batch(columns, ["a", "b"])
    for sign, compare in SIGNS.items():
        for where, step in ((f"a {sign} b", 1), (f"b {sign} a", -1)):
            due = [None not in pair and compare(*pair[::step]) for pair in pairs]
            assert Where.of(where).bound(batch.schema).kept(batch).tolist() == due, where
            kept = Where.of(f"NOT {where}").bound(batch.schema).kept(batch)
            assert kept.tolist() == [None not in pair and not one for pair, one in zip(pairs, due, strict=True)]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("i >", r"syntax error at character 3 of \"i >\", near '>': a value is missing after it"),
        ("i = 1 s", r"syntax error at character 7 of \"i = 1 s\", near 's'"),
        ("(i = 1 AND b", r"at character 12 of .*, near 'b': a closing bracket is missing after it"),
        ("= 1", "at character 3 of .*, near '1': a column is missing before it"),
        ("i = 1 AND\n  && s", "syntax error at character 13 of"),
        ("s = 'x", 'at character 5 of "s = \'x": a quote is not closed'),
        (" ", "where=' ' is not a filter"),
        ("i + 1 > 2", "is not supported: a filter may have comparisons of a column with a value"),
        ("s ILIKE 'x%'", "s ILIKE 'x%'.* is not supported"),
        ("s LIKE 'x%' ESCAPE '!'", "is not supported"),
        ("s LIKE 5", "is not supported"),
        ("i LIKE 'x%'", "column 'i' has type int8; LIKE is for texts"),
        (
            "i = s",
            r"columns 'i' \(int8\) and 's' \(string\) have different kinds of values; cast one of them in the data",
        ),
        ("b < b", "have no order"),
        ("i IN (SELECT 1)", "is not supported"),
        ("i IN ()", "syntax error|is not supported"),
        ("1 = 1", "is not supported"),
        ("i", "column 'i' has type int8 and is not true or false"),
        ("i = NULL", "never true; write IS NULL"),
        ("i NOT IN (1, NULL)", "never true; write IS NULL"),
        ("i = '5'", "column 'i' has type int8 and cannot be compared with '5'; write a number without quotes"),
        ("s = 5", "column 's' has type string and cannot be compared with 5; write a text in single quotes"),
        ("b = 1", "write TRUE or FALSE"),
        ("b < TRUE", "have no order"),
        (pc.field("s") > 5, "cannot be evaluated: Function 'greater' has no kernel"),
        (pc.field("i") + 1, "a filter is true or false"),
        (7, "where=7 is not a filter"),
    ],
)
def test_what_cannot_be_a_filter_is_refused(where: Any, message: str) -> None:
    """Syntax with its place, types with the remedy."""
    refuses(OptionError, message, evaluate, table([(1, 2, 0.5, "x", True)]), score="f", where=where)


def test_a_value_of_the_wrong_type_names_the_file(tmp_path: Path) -> None:
    """As an unknown column does, also where a store folds the file or costs are attributed."""
    pq.write_table(table([(1, 2, 0.5, "x", True)]), tmp_path / "part.parquet")
    for run, by in ((evaluate, None), (attribute, "s"), (Store(tmp_path / "store").update, None)):
        with pytest.raises(OptionError, match=r"part.parquet: where: column 's' has type string and cannot be"):
            run(tmp_path / "part.parquet", score="f", where="s = 5", by=by)


@pytest.mark.parametrize(
    ("where", "note", "rows"),
    [
        ("f = 16777217", "16777217 is no value of f (float): it is compared with 16777216.0", 2),
        ("f < 1e300", "1e300 is no value of f (float): it is compared with inf", 4),
        ("f < 1e400", "1e400 is no value of f (float): it is compared with inf", 4),
        ("i IN (1, 2.5)", "2.5 is no value of i (int8): it lies above 2 and below 3", 1),
        ("i > -300", "-300 is no value of i (int8): it lies below -128", 4),
        ("d BETWEEN 0.1 AND 0.125", "0.125 is no value of d (decimal128(5, 2)): it lies above 0.12 and below 0.13", 2),
        ("f > 0.1 AND i = 1", "", 1),
        ("f > 0.30000001192092896 AND i = 1", "", 1),
        ("u = '00000000-0000-0000-0000-000000000007'", "", 1),
    ],
)
def test_what_a_number_is_compared_with(caplog: pytest.LogCaptureFixture, where: str, note: str, rows: int) -> None:
    """A number that is no value of its column's type: in the log, and beside the filter."""
    columns = {
        "label": [0, 1, 0, 1],
        "f": pa.array([16777216, 16777216, 0.5, 0], pa.float32()),
        "i": pa.array([1, 3, 4, 5], pa.int8()),
        "d": pa.array([Decimal("0.12"), Decimal("0.13"), Decimal("0.10"), None], pa.decimal128(5, 2)),
        "u": pa.array([uuid.UUID(int=i).bytes for i in (7, 8, 9, 10)], pa.uuid()),
    }
    options: dict[str, Any] = {"score": "f", "where": where, "unlabelled": "drop"}
    assert evaluate(pa.table(columns), **options).rows == rows
    assert [record.getMessage() for record in caplog.records] == ([f"where: {note}"] if note else [])
    assert f"({note})" in explain(pa.table(columns), **options).filtered or not note


def test_a_text_without_single_quotes_is_told_from_a_column(tmp_path: Path) -> None:
    """It is read as a column, as double quotes are; a column that is nearly right gets no such advice."""
    pq.write_table(pa.table({"label": [0, 1], "score": [0.1, 0.2], "source": ["sms", "web"]}), tmp_path / "a.parquet")
    for where in ("source = sms", 'source = "sms"'):
        with pytest.raises(MissingColumnError, match=r"where reads it; a text has single quotes, such as 'sms'$"):
            evaluate(tmp_path, score="score", where=where)
    with pytest.raises(MissingColumnError, match=r"did you mean 'source'\? It has: label, score, source$"):
        evaluate(tmp_path, score="score", where="sorce = 'sms'")


def test_the_plan_says_what_is_left(tmp_path: Path) -> None:
    """Files by their path, row groups by their statistics; the same from SQL and from an expression."""
    for night in range(3):
        data = {"score": np.arange(40.0), "length": np.arange(40), "label": np.arange(40) % 2}
        put(tmp_path / f"night=2026-01-0{night + 1}" / "part.parquet", data, row_group_size=10)
    expression = (pc.field("night") == "2026-01-02") & (pc.field("length") > 25)
    for where in ("night = '2026-01-02' AND length > 25", expression):
        planned = explain(tmp_path, score="score", where=where)
        assert planned.filtered.endswith("leaves 1 of 3 files and 2 of 12 row groups to read"), planned.filtered
        assert planned.rows == 20
        assert evaluate(tmp_path, score="score", where=where).rows == 14


LOOKED_UP: list[tuple[pa.DataType, list[Any], list[str]]] = [
    (pa.float64(), [0.0, -0.0, float("nan"), None, 5.0], ["0", "5"]),
    (pa.float32(), [0.0, -0.0, 0.1, None], ["-0.0", "0.1"]),
    (pa.float16(), [np.float16(0), np.float16(-0.0), np.float16(0.5)], ["0", "0.5"]),
    (pa.int64(), [2**53, 2**53 + 1, None], ["9007199254740993", "9007199254740992.5"]),
    (pa.uint64(), [2**64 - 1, 0], ["18446744073709551615", "-1"]),
    (pa.decimal128(5, 2), [Decimal("1.10"), Decimal("2.00"), None], ["1.1", "1.101"]),
    (pa.decimal256(60, 2), [Decimal("1.10"), None], ["1.1"]),
    (pa.bool_(), [True, False, None], ["TRUE"]),
    (pa.date32(), [dt.date(2026, 1, 1), None], ["'2026-01-01'"]),
    (pa.timestamp("ms", "UTC"), [0, 1, None], ["'1970-01-01T00:00:00Z'"]),
    (pa.time32("s"), [3600, None], ["'01:00:00'"]),
    (pa.binary(), [b"a", b"b", None], ["'a'"]),
    (pa.binary(1), [b"a", b"b", None], ["'a'"]),
]


@pytest.mark.parametrize(("kind", "values", "listed"), LOOKED_UP, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("coded", [False, True])
def test_values_are_looked_up_as_they_are_compared(
    kind: pa.DataType, values: list[Any], listed: list[str], *, coded: bool
) -> None:
    """IN, and = joined by OR, are what = says of each value: −0.0 equals 0, NaN nothing, a null is nowhere."""
    column = pa.array(values, kind)
    if coded and not pa.types.is_float16(kind):
        column = column.dictionary_encode()
    batch = pa.record_batch([column], ["x"])

    def rows(where: str) -> list[bool]:
        return list(Where.of(where).bound(batch.schema).kept(batch))

    among = np.any([rows(f"x = {value}") for value in listed], axis=0)
    texts, equal = ", ".join(listed), " OR ".join(f"x = {value}" for value in listed)
    for word, due in (("", among), ("NOT ", ~among & column.is_valid().to_numpy(zero_copy_only=False))):
        for where in (f"x {word}IN ({texts})", f"x {word}IN ({', '.join([texts] * 70)})", f"{word}({equal})"):
            assert rows(where) == due.tolist(), where


def test_long_conditions_are_no_deeper_than_short_ones(tmp_path: Path) -> None:
    """3,000 conditions: neither Python nor Arrow recurses over a chain."""
    for part in (1, 2, 5):
        data = {"label": [0, 1], "x": [part, part + 100], "s": pa.array([str(part)] * 2).dictionary_encode()}
        pq.write_table(pa.table(data), tmp_path / f"{part}.parquet")
    ranges = " OR ".join(f"(x > {7 * i} AND x < {7 * i + 3})" for i in range(1100))
    assert evaluate(tmp_path, score="x", where=ranges).rows == 2  # 1 and 2
    assert evaluate(tmp_path, score="x", where=" OR ".join(f"s = '{i}'" for i in range(2, 3000))).rows == 4


def test_time_grows_with_files_and_row_groups_not_with_their_square(tmp_path: Path) -> None:
    """10,000 row groups in one piece, pruned by 500 conditions: seconds of processor time, not minutes."""
    part = tmp_path / "part.parquet"
    pq.write_table(pa.table({"x": np.arange(100)}), part, row_group_size=1)
    found = scan.plan(str(part), ["x"])
    (piece,) = found.pieces
    began = time.process_time()
    groups = [Group(number, number, 1, 8, frozenset()) for number in range(30_000)]
    assert [len(run) for run in _combine_groups(groups)] == [30_000]
    assert len(join([replace(single, rows=1) for _ in range(100) for single in row_groups(piece)])) == 100
    where = " OR ".join(f"(x > {7 * i} AND x < {7 * i + 3})" for i in range(500))
    tree = expression_tree(Where.of(where).bound(found.schema).expression)
    assert tree is not None
    ends, yes = pa.array(np.arange(10_000)), np.ones(10_000, np.bool_)
    bounds = {"x": Bounds(ends, ends, ~yes, yes)}
    left = Units.of(found.schema, 10_000, pa.table({}), bounds).possible(tree).true
    assert left.sum() == np.isin(np.arange(10_000) % 7, [1, 2])[:3500].sum()
    assert time.process_time() - began < 5


def test_a_file_that_cannot_be_read_again_is_not_pruned(tmp_path: Path) -> None:
    """Statistics of a file that was damaged or replaced since it was planned prune nothing: its reader reports it."""
    part = tmp_path / "part.parquet"
    for content in (b"no longer Parquet", None):
        pq.write_table(pa.table({"score": np.arange(40.0)}), part, row_group_size=10)
        found = scan.plan(str(tmp_path), ["score"])
        if content is None:
            pq.write_table(pa.table({"score": np.zeros(40)}), part, row_group_size=10)
        else:
            part.write_bytes(content)
        left = prune(found, Where.of("score > 25").bound(found.schema))[0]
        refuses(CorruptFileError, r"part\.parquet", list, scan.read(left.pieces[0], left.schema))
