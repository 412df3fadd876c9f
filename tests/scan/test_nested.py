"""Nested columns: elements of lists and of Spark's vectors, from every kind of input, equal those in Python."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval import evaluate
from streameval.errors import MissingColumnError, SchemaError
from streameval.scan import plan, read
from streameval.scan.nested import column_of

FLOATS = st.none() | st.floats(width=32, allow_nan=False)
KINDS = [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3)]
VECTOR = pa.struct(
    {"type": pa.int8(), "size": pa.int32(), "indices": pa.list_(pa.int32()), "values": pa.list_(pa.float64())}
)


def make_vector(values: list[float] | None, *, dense: bool) -> dict[str, Any] | None:
    """A vector as Spark ML stores it."""
    if values is None:
        return None
    if dense:
        return {"type": 1, "size": None, "indices": None, "values": values}
    stored = [i for i, value in enumerate(values) if value]
    return {"type": 0, "size": len(values), "indices": stored, "values": [values[i] for i in stored]}


def read_all(data: object, columns: list[str]) -> dict[str, list[Any]]:
    """The rows of an input."""
    scan = plan(data, columns)
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    return pa.Table.from_batches(batches, scan.schema).to_pydict()


@given(st.lists(st.none() | st.lists(FLOATS, min_size=3, max_size=3), min_size=1), st.sampled_from(KINDS), st.data())
def test_elements_of_lists(rows: list[Any], kind: pa.DataType, data: st.DataObject) -> None:
    """Of lists of any layout, cut anywhere, with an index beyond the shorter ones."""
    if not pa.types.is_fixed_size_list(kind):
        rows = [row and row[: data.draw(st.integers(0, 3))] for row in rows]
    start = data.draw(st.integers(0, len(rows)))
    table = pa.table({"deep": pa.array([{"x": row} for row in rows], pa.struct({"x": kind}))}).slice(start)
    index = data.draw(st.integers(0, 2))
    expected = [None if row is None or len(row) <= index else row[index] for row in rows[start:]]
    assert column_of(table, f"deep.x[{index}]").to_pylist() == expected


@given(st.lists(st.none() | st.lists(st.sampled_from([0.0, 0.25, 0.75]), max_size=3), min_size=1), st.data())
def test_vectors_of_spark(rows: list[Any], data: st.DataObject) -> None:
    """Dense and sparse ones, mixed."""
    vectors = [make_vector(row, dense=data.draw(st.booleans())) for row in rows]
    start = data.draw(st.integers(0, len(rows)))
    table = pa.table({"p": pa.array(vectors, VECTOR)}).slice(start)
    expected = [None if row is None or len(row) < 2 else row[1] for row in rows[start:]]
    assert column_of(table, "p.values[1]").to_pylist() == expected


def test_children_of_nulls_do_not_count() -> None:
    """A struct that is null may still have values below, as those that were masked in memory."""
    vectors = pa.array([make_vector([0.5, 0.25, 0.0], dense=False)] * 4, VECTOR)
    mask = pa.array([False, True, False, True])
    masked = pa.StructArray.from_buffers(
        VECTOR, 4, [pa.array([True, False, True, False]).buffers()[1]], children=[vectors.field(i) for i in range(4)]
    )
    assert masked.is_null().equals(mask)
    assert column_of(pa.table({"p": masked}), "p.values[1]").to_pylist() == [0.25, None, 0.25, None]
    lists = pa.array([[1], [2], [3]], mask=np.array([False, True, False]))
    assert column_of(pa.table({"l": lists}), "l[0]").to_pylist() == [1, None, 3]


def test_encoded_structs() -> None:
    """Of a dictionary, and run-end encoded."""
    structs = pa.array([{"x": 1.0}, {"x": 2.0}, {"x": 1.0}])
    coded = pa.DictionaryArray.from_arrays([0, 1, 0], structs.slice(0, 2))
    assert column_of(pa.table({"s": coded}), "s.x").to_pylist() == [1.0, 2.0, 1.0]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), structs.slice(0, 2))
    assert column_of(pa.table({"s": runs}), "s.x").to_pylist() == [1.0, 1.0, 2.0]


def test_every_kind_of_input(tmp_path: Path) -> None:
    """A file, a dataset, a table, a reader and a dict give the same numbers as flat columns, filters and slices too."""
    flat = [i % 7 / 8 for i in range(40)]
    vectors = [make_vector([1 - x, x], dense=i % 3 > 0) for i, x in enumerate(flat)]
    table = pa.table(
        {
            "label": [i % 3 == 0 for i in range(40)],
            "p": pa.array(vectors, VECTOR),
            "scores": [[x, 1 - x] for x in flat],
            "tags": [[str(i % 2)] for i in range(40)],
            "deep": [{"y": {"z": x}} if x else None for x in flat],
            "flat": flat,
            "tag": [str(i % 2) for i in range(40)],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=7)
    columns = ["scores[0]", "p.values[1]", "tags[0]", "deep.y.z"]
    inputs: list[Any] = [path, pads.dataset(path), table, table.to_reader(), table.to_pandas()[["scores", "tags"]]]
    for data in inputs:
        names = columns if data is not inputs[-1] else [columns[0], columns[2]]
        rows = read_all(data, names)
        expected = {"tags[0]": table["tag"].to_pylist(), "deep.y.z": [x or None for x in flat]}
        assert rows == {name: expected.get(name, flat) for name in names}
    options: dict[str, Any] = {"metrics": "roc_auc", "where": "scores[0] > 0.1 AND p.values[1] < 0.8", "by": "tags[0]"}
    nested = evaluate(path, score="scores[0]", **options)
    plain = evaluate(path, score="flat", **{**options, "where": "flat > 0.1 AND flat < 0.8", "by": "tag"})
    assert [(r.value, r.rows) for r in nested.results] == [(r.value, r.rows) for r in plain.results]
    assert nested.results[0].of == "scores[0]"


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("f[3]", MissingColumnError, "no element 'f[3]'; 'f' is fixed_size_list<"),
        ("v", SchemaError, "name one of its fields, such as v.values[1]"),
        ("v.w", MissingColumnError, "no field 'v.w'; 'v' is struct<type: int8"),
        ("f", SchemaError, "name one of its elements, such as f[0]"),
        ("l", SchemaError, "name one of its elements, such as l[0].x"),
        ("l.x", MissingColumnError, "such as l[0].x"),
        ("n[0]", MissingColumnError, "no column 'n[0]'"),
    ],
)
def test_refusals(name: str, kind: type[Exception], message: str) -> None:
    """They name a value that can be read."""
    table = pa.table(
        {
            "f": pa.array([[1.0, 2.0, 3.0]], KINDS[2]),
            "v": pa.array([make_vector([0.5, 0.5], dense=True)], VECTOR),
            "l": [[{"x": 1}]],
            "n": [1],
        }
    )
    with pytest.raises(kind, match=re.escape(message)):
        plan(table, [name])


def test_exact_names_come_first() -> None:
    """A column that is named like an element is read itself."""
    table = pa.table({"scores[0]": [1.0], "scores": [[2.0]], "a.b": [[3.0]]})
    assert read_all(table, ["scores[0]", "a.b[0]"]) == {"scores[0]": [1.0], "a.b[0]": [3.0]}
