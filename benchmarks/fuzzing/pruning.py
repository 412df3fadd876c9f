"""Filters of files whose footers have the statistics that writers really leave, against the values in Python.

A file has two columns of a random type, and numbers of its rows. Its row groups are small. Its footer is then edited:
ends and counts are left out, cut, of another order, or contradict each other or the values; those that the format
counts as bounds still are. Rows that a pruned scan keeps are those for which the condition is true in Python.
"""

from __future__ import annotations

import datetime as dt
import operator
import struct
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from footers import (
    BINARY,
    COLUMN_ORDERS,
    CREATED_BY,
    DEPRECATED_MAX,
    DEPRECATED_MIN,
    FALSE,
    MAX,
    MIN,
    STATISTICS,
    edit_footer,
)
from footers import chunks as footer_chunks
from pyarrow import types

from fuzzing.cases import Tally, seeded
from streameval import scan
from streameval.errors import MissingInputError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

_DAYS = [dt.datetime(year, 3, 4, 5, 6, 7) for year in (1, 1000, 1969, 2026, 9999)]
_REAL = [0.0, -0.0, 1.5, -1.5, 3.0, float("nan"), float("inf"), float("-inf")]
_TEXTS = ["", "a", "b", "é", "éa", "￿", "\U0001f600", "aa", "a" * 20, "z" * 20, "\x7f"]
_PRICES = [Decimal(text) for text in ("0.00", "1.00", "1.50", "2.00", "-1.00", "-2.00", "327.68")]
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, 1, -1, 127, -128],
    pa.int32(): [0, 1, -1, 2**31 - 1, -(2**31)],
    pa.int64(): [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)],
    pa.uint8(): [0, 1, 128, 255],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.float16(): _REAL,
    pa.float32(): [*_REAL, 1e-40, 0.125],
    pa.float64(): [*_REAL, 5e-324, 0.1, 1e308],
    pa.bool_(): [False, True],
    pa.string(): _TEXTS,
    pa.large_string(): _TEXTS,
    pa.dictionary(pa.int32(), pa.string()): _TEXTS,
    pa.binary(): [b"", b"a", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"a" * 20],
    pa.binary(16): [uuid.UUID(int=number).bytes for number in (0, 1, 2**120, 2**127, 2**128 - 1)],
    pa.decimal128(5, 2): _PRICES,
    pa.decimal128(25, 2): _PRICES,
    pa.decimal256(50, 2): _PRICES,
    pa.date32(): [day.date() for day in _DAYS],
    pa.time32("ms"): [dt.time(5, 6, 7), dt.time(23)],
    pa.timestamp("ms"): _DAYS,
    pa.timestamp("us"): _DAYS,
    pa.timestamp("us", "UTC"): [day.replace(tzinfo=dt.UTC) for day in _DAYS],
    pa.timestamp("ns"): _DAYS[2:4],
}
_NARROW = {pa.int32(): pa.int8(), pa.int64(): pa.int32(), pa.uint64(): pa.uint32(), pa.float64(): pa.float32()}
_OPERATIONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WRITERS = [b"parquet-mr version 1.8.1", b"impala version 2.9.0", b"parquet-cpp version 1.2.0", b"a writer"]
_NULL_COUNT, _DISTINCT, _MAX_EXACT, _MIN_EXACT = 3, 4, 7, 8  # fields of the statistics
_COLUMN_INDEX, _INTEGER = 6, 6  # a field of a column chunk, and the type of a field


def pruning_case(seed: int, folder: Path, tally: Tally) -> None:
    """Some files, perhaps of two types, and some conditions."""
    rng = seeded(seed)
    kind = rng.choice(list(VALUES))
    keyed = rng.random() < 0.3
    columns: dict[str, list[Any]] = {"n": [], "x": [], "y": [], "k": []}
    tally.files += (files := rng.randint(1, 9))
    for number in range(files):
        size = rng.randint(1, 12)
        pool = rng.sample(VALUES[kind], min(len(VALUES[kind]), rng.randint(1, 3)))
        pool += [None] * (rng.random() < 0.4)
        narrow = _NARROW.get(kind, kind) if number and rng.random() < 0.3 else kind  # the first sets the column's type
        drawn = {name: [rng.choice(pool) for _ in range(size)] for name in "xy"}
        if narrow != kind:
            drawn = {name: [value if _fits(value, narrow) else None for value in drawn[name]] for name in "xy"}
        key = rng.randint(1, 3)
        place = folder / (f"k={key}" if keyed else "") / f"part-{number}.parquet"
        place.parent.mkdir(exist_ok=True)
        start = len(columns["n"])
        _write(rng, place, narrow, drawn, start)
        for name, values in {"n": range(start, start + size), "k": [key] * size, **drawn}.items():
            columns[name] += values
    found = scan.plan(str(folder), ["n", "x", "y", *(["k"] if keyed else [])])
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for _ in range(3):
        condition = _condition(rng, kind, keyed=keyed, depth=2)
        expected = [row["n"] for row in rows if condition.holds(row)]
        forms = [condition.sql] if condition.expression is None else [condition.sql, condition.expression]
        where = rng.choice(forms)
        kept = _kept(found, where, tally)
        if kept != expected:
            full = _kept(found, where, tally, pruned=False)
            tally.wrong.append(f"{kind}, where {where}: rows {kept} for {expected}; without pruning {full}")


def _fits(value: Any, kind: pa.DataType) -> bool:
    if value is None or types.is_floating(kind):
        return value is None or value != value or abs(value) in (float("inf"), 0.0, 1.5, 3.0)
    limits = np.iinfo(kind.to_pandas_dtype())
    return limits.min <= value <= limits.max


def _kept(found: scan.Scan, where: Any, tally: Tally, *, pruned: bool = True) -> list[int]:
    """The numbers of the rows that meet a filter."""
    test = scan.Where.of(where).bound(found.schema)
    pieces = found.pieces
    if pruned:
        try:
            pieces = scan.prune(found, test)[0].pieces
        except MissingInputError:
            tally.refusals["no row meets the condition"] += 1
            return []
    batches = (batch for piece in pieces for batch in scan.read(piece, found.schema))
    return sorted(n for batch in batches for n in batch.column("n").filter(pa.array(test.kept(batch))).to_pylist())


class _Condition(NamedTuple):
    """A condition: as SQL has it, as an Arrow expression if Arrow has the comparison, and of a row in Python."""

    sql: str
    expression: pc.Expression | None
    holds: Callable[[dict[str, Any]], bool | None]


def _condition(rng: random.Random, kind: pa.DataType, *, keyed: bool, depth: int) -> _Condition:
    shape = rng.choice(["not", "and", "or", "", "", ""]) if depth else ""
    if not shape:
        return _key(rng) if keyed and rng.random() < 0.3 else _leaf(rng, kind)
    one = _condition(rng, kind, keyed=keyed, depth=depth - 1)
    if shape == "not":
        expression = None if one.expression is None else ~one.expression
        return _Condition(f"NOT ({one.sql})", expression, lambda row: _not(one.holds(row)))
    other = _condition(rng, kind, keyed=keyed, depth=depth - 1)
    both = one.expression is not None and other.expression is not None
    sql = f"({one.sql}) {shape.upper()} ({other.sql})"
    if shape == "and":
        expression = one.expression & other.expression if both else None
        return _Condition(sql, expression, lambda row: _and(one.holds(row), other.holds(row)))
    expression = one.expression | other.expression if both else None
    return _Condition(sql, expression, lambda row: _not(_and(_not(one.holds(row)), _not(other.holds(row)))))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _key(rng: random.Random) -> _Condition:
    """Of a key of the directories."""
    sign, value = rng.choice(list(_OPERATIONS)), rng.randint(1, 3)
    return _Condition(f"k {sign} {value}", None, lambda row: _OPERATIONS[sign](row["k"], value))


def _leaf(rng: random.Random, kind: pa.DataType) -> _Condition:
    """Of one column, or of two."""
    plain = kind.value_type if types.is_dictionary(kind) else kind
    computes = not types.is_float16(plain)  # Arrow compares no others
    x, name = pc.field("x"), rng.choice(["null", "columns", "list", "between", *["value"] * 4])
    sign = rng.choice(list(_OPERATIONS)[: 2 if types.is_boolean(plain) else None])
    compare = _OPERATIONS[sign]
    if name == "null":
        return _Condition("x IS NULL", x.is_null(), lambda row: row["x"] is None)
    if name == "columns":
        expression = compare(x, pc.field("y")) if computes else None
        return _Condition(f"x {sign} y", expression, lambda row: _compared(compare, row["x"], row["y"]))
    literals = [value for value in VALUES[kind] if not isinstance(value, float) or abs(value) < float("inf")]
    values = [rng.choice(literals) for _ in range(rng.choice([1, 2, 3]))]
    if name == "list":
        many = values * rng.choice([1, 30])
        return _Condition(
            f"x IN ({', '.join(_text(value) for value in many)})",
            None,
            lambda row: None if row["x"] is None else row["x"] in values,
        )
    if name == "between" and not types.is_boolean(plain):
        low, high = values[0], values[-1]
        return _Condition(
            f"x BETWEEN {_text(low)} AND {_text(high)}",
            (x >= pa.scalar(low, plain)) & (x <= pa.scalar(high, plain)) if computes else None,
            lambda row: None if row["x"] is None else low <= row["x"] <= high,
        )
    value: Any = values[0]
    if types.is_decimal(plain) or types.is_integer(plain):
        value = rng.choice([value, value + Decimal("0.005")])  # between two values of the type
    exact = computes and not (isinstance(value, Decimal) and value not in literals)
    expression = compare(x, pa.scalar(value, plain)) if exact else None
    return _Condition(f"x {sign} {_text(value)}", expression, lambda row: _compared(compare, row["x"], value))


def _compared(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool | None:
    return None if one is None or other is None else bool(compare(one, other))


def _text(value: Any) -> str:
    """A value as SQL has it."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat(sep=' ').removesuffix('+00:00')}{'Z' if value.tzinfo else ''}'"
    if isinstance(value, bytes):
        return "'" + value.decode("utf-8", "surrogateescape") + "'"
    return f"'{value}'" if isinstance(value, str | dt.date | dt.time) else str(value)


def _write(rng: random.Random, path: Path, kind: pa.DataType, drawn: dict[str, list[Any]], start: int) -> None:
    """A file with small row groups, and with an edited footer."""
    rows = len(drawn["x"])
    plain = kind.value_type if types.is_dictionary(kind) else kind
    arrays = {name: pa.array(_halves(values, kind), plain).cast(kind) for name, values in drawn.items()}
    as_bytes = types.is_decimal(kind) and rng.random() < 0.3
    if as_bytes:
        arrays = {name: pa.array([_raw(kind, value) for value in drawn[name]], pa.binary()) for name in drawn}
    size = rng.choice([1, 2, 3, 100])
    pq.write_table(
        pa.table(arrays | {"n": range(start, start + rows)}),
        path,
        row_group_size=size,
        store_schema=not as_bytes,
        write_page_index=rng.random() < 0.3,
        use_dictionary=rng.random() < 0.5,
        store_decimal_as_integer=rng.random() < 0.5,
        use_deprecated_int96_timestamps=types.is_timestamp(kind) and kind.tz is None and rng.random() < 0.3,
    )
    groups = [slice(at, at + size) for at in range(0, rows, size)]
    edits = rng.sample(_EDITS, rng.randint(0, 2))

    def change(footer: dict[int, Any]) -> None:
        if as_bytes:
            _make_decimals(footer, kind)
        for columns, part in zip(footer_chunks(footer), groups, strict=True):
            for name, chunk in zip("xy", columns, strict=False):
                values = [value for value in drawn[name][part] if value is not None and value == value]
                fields = chunk.setdefault(STATISTICS, (12, {}))[1]
                if as_bytes and values:
                    fields |= {MIN: (BINARY, _raw(kind, min(values))), MAX: (BINARY, _raw(kind, max(values)))}
                for edit in edits:
                    edit(_Chunk(rng, footer, fields, kind, chunk[1][1], values))
        if rng.random() < 0.2:
            footer[CREATED_BY] = (BINARY, rng.choice(_WRITERS))
        if rng.random() < 0.3:
            _mix_column_indexes(footer)

    edit_footer(path, change)


def _halves(values: list[Any], kind: pa.DataType) -> list[Any]:
    return [None if v is None else np.float16(v) for v in values] if types.is_float16(kind) else values


def _raw(kind: pa.DataType, value: Any) -> bytes | None:
    """A value as bytes of a decimal in a byte array, an unsigned integer, a text or binary."""
    if value is None or isinstance(value, bytes):
        return value
    if types.is_decimal(kind):
        whole = int(value.scaleb(kind.scale))
        return whole.to_bytes((whole.bit_length() + 8) // 8, "big", signed=True)
    if types.is_integer(kind):
        return struct.pack("<Q" if kind.bit_width == 64 else "<I", value)
    return value.encode()


def _make_decimals(footer: dict[int, Any], kind: pa.DataType) -> None:
    """Say of the first two columns, of binaries, that they are decimals."""
    for column in footer[2][1][1][1:3]:
        logical = (12, {5: (12, {1: (5, kind.scale), 2: (5, kind.precision)})})
        column |= {6: (5, 5), 7: (5, kind.scale), 8: (5, kind.precision), 10: logical}


def _mix_column_indexes(footer: dict[int, Any]) -> None:
    """Exchange the column indexes of all chunks of a row group."""
    for group in footer[4][1][1]:
        columns = group[1][1][1]
        places = [{field: one[field] for field in (_COLUMN_INDEX, 7) if field in one} for one in columns]
        for column, place in zip(columns, places[::-1], strict=True):
            column |= place


class _Chunk(NamedTuple):
    """A column chunk whose statistics are edited.

    Attributes
    ----------
    footer, fields : the fields of the footer, and of the statistics
    kind, physical : the Arrow type, and the number of the type that stores it
    values : the values that are neither null nor NaN
    """

    rng: random.Random
    footer: dict[int, Any]
    fields: dict[int, Any]
    kind: pa.DataType
    physical: int
    values: Sequence[Any]

    @property
    def is_bytes(self) -> bool:
        """Whether it stores byte arrays, but of float16."""
        return self.physical in (6, 7) and not types.is_floating(self.kind)

    def set_float(self, field: int, value: float) -> None:
        """Set an end of a column of floats; leave others alone."""
        if types.is_floating(self.kind):
            code = {16: "<e", 32: "<f", 64: "<d"}[self.kind.bit_width]
            self.fields[field] = (BINARY, struct.pack(code, value))


def _drop_null_count(chunk: _Chunk) -> None:
    chunk.fields.pop(_NULL_COUNT, None)


def _drop_all(chunk: _Chunk) -> None:
    if chunk.rng.random() < 0.7:
        chunk.fields.clear()


def _drop_an_end(chunk: _Chunk) -> None:
    for field in chunk.rng.choice([(MIN, DEPRECATED_MIN), (MAX, DEPRECATED_MAX)]):
        chunk.fields.pop(field, None)


def _set_nonsense_counts(chunk: _Chunk) -> None:
    """A number of nulls that no row group has; −1 is how some writers say that they do not know it."""
    if chunk.rng.random() < 0.5:
        chunk.fields[_NULL_COUNT] = (_INTEGER, chunk.rng.choice([-1, 10**6]))
    chunk.fields[_DISTINCT] = (_INTEGER, chunk.rng.choice([-1, 0, 1]))


def _set_nan(chunk: _Chunk) -> None:
    """Writers that compare with NaN leave it in one end, or in both."""
    for field in chunk.rng.choice([(MIN, DEPRECATED_MIN), (MAX, DEPRECATED_MAX), (MIN, MAX)]):
        chunk.set_float(field, float("nan"))


def _exchange_zeros(chunk: _Chunk) -> None:
    """Writers that take −0.0 for 0.0 may leave either as an end."""
    if 0.0 in chunk.values and min(chunk.values) == 0:
        chunk.set_float(MIN, 0.0)
    if 0.0 in chunk.values and max(chunk.values) == 0:
        chunk.set_float(MAX, -0.0)


def _start_at_infinity(chunk: _Chunk) -> None:
    """Writers that begin with min = ∞ and max = −∞ leave these where no value is a number."""
    if not chunk.values:
        chunk.set_float(MIN, float("inf"))
        chunk.set_float(MAX, float("-inf"))


def _cut(chunk: _Chunk) -> None:
    """Ends of texts and binaries that are cut; the last byte of a maximum is then one more."""
    fields, length = chunk.fields, chunk.rng.randint(1, 3)
    if not chunk.is_bytes or types.is_decimal(chunk.kind) or not {MIN, MAX} <= set(fields):
        return
    low, high = fields[MIN][1], fields[MAX][1]
    cut = high[:length].rstrip(b"\xff")
    if len(high) > length and cut:
        fields[MAX] = (BINARY, cut[:-1] + bytes([cut[-1] + 1]))
    fields[MIN] = (BINARY, low[:length])
    for field in (_MAX_EXACT, _MIN_EXACT):
        fields.pop(field, None)
        if chunk.rng.random() < 0.5:
            fields[field] = (FALSE, False)


def _deprecate(chunk: _Chunk) -> None:
    """Only the ends of before 2017, which compare all bytes as signed."""
    chunk.footer.pop(COLUMN_ORDERS, None)
    for old, new in ((DEPRECATED_MIN, MIN), (DEPRECATED_MAX, MAX)):
        end = chunk.fields.pop(new, None)
        chunk.fields.update({old: end} if end else {})
    if chunk.is_bytes or types.is_unsigned_integer(chunk.kind):
        _set_signed_ends(chunk, DEPRECATED_MIN, DEPRECATED_MAX)


def _compare_signed(chunk: _Chunk) -> None:
    """Unsigned integers of signed order, as some writers have them."""
    if types.is_unsigned_integer(chunk.kind):
        _set_signed_ends(chunk, MIN, MAX)


def _set_signed_ends(chunk: _Chunk, low: int, high: int) -> None:
    raws = [_raw(chunk.kind, value) or b"" for value in chunk.values]
    if types.is_unsigned_integer(chunk.kind):
        raws.sort(key=lambda raw: int.from_bytes(raw, "little", signed=True))
    else:
        raws.sort(key=lambda raw: np.frombuffer(raw, np.int8).tolist())
    if raws:
        chunk.fields.update({low: (BINARY, raws[0]), high: (BINARY, raws[-1])})


_EDITS = [
    _drop_null_count,
    _drop_all,
    _drop_an_end,
    _set_nonsense_counts,
    _set_nan,
    _exchange_zeros,
    _start_at_infinity,
    _cut,
    _deprecate,
    _compare_signed,
]
