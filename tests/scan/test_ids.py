"""Ids of every type that people have give the same clusters as integers; other types are refused by name."""

from __future__ import annotations

import uuid
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import Store, evaluate
from streameval.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS, FILES = 400, 3
TEXT = [f"id-{i}" for i in range(60)]


def text(ids: list[int]) -> list[str]:
    """A string for every id."""
    return [TEXT[i] for i in ids]


def shuffled_dictionary(ids: list[int], file: int) -> pa.Array:
    """Dictionary-encoded strings; every file has another dictionary, with values that no row has."""
    order = np.random.default_rng(file).permutation(len(TEXT))
    at = {int(i): k for k, i in enumerate(order)}
    indices = pa.array([at[i] for i in ids], (pa.int8(), pa.int16(), pa.int32())[file])
    return pa.DictionaryArray.from_arrays(indices, pa.array([TEXT[i] for i in order]))


def nested(ids: list[int]) -> pa.Array:
    """The ids as a field of a struct of a struct."""
    deep = pa.StructArray.from_arrays([pa.array(text(ids)), pa.array(ids)], ["name", "number"])
    return pa.StructArray.from_arrays([deep], ["of"])


KINDS: dict[str, Callable[[list[int], int], pa.Array]] = {
    "int64": lambda ids, _: pa.array(ids),
    "widths": lambda ids, file: pa.array(ids, (pa.int8(), pa.int32(), pa.uint16())[file]),
    "unsigned widths": lambda ids, file: pa.array(ids, (pa.uint8(), pa.uint64(), pa.uint32())[file]),
    "integer dictionary": lambda ids, _: pa.array(ids, pa.int16()).dictionary_encode(),
    "string": lambda ids, _: pa.array(text(ids)),
    "large string": lambda ids, _: pa.array(text(ids), pa.large_string()),
    "string view": lambda ids, _: pa.array(text(ids), pa.string_view()),
    "strings of all widths": lambda ids, file: pa.array(
        text(ids), (pa.string(), pa.large_string(), pa.string_view())[file]
    ),
    "binary": lambda ids, _: pa.array([t.encode() for t in text(ids)]),
    "large binary": lambda ids, _: pa.array([t.encode() for t in text(ids)], pa.large_binary()),
    "binary view": lambda ids, _: pa.array([t.encode() for t in text(ids)], pa.binary_view()),
    "fixed-size binary": lambda ids, _: pa.array([i.to_bytes(6, "big") for i in ids], pa.binary(6)),
    "uuid": lambda ids, _: pa.array([uuid.UUID(int=i << 64).bytes for i in ids], pa.uuid()),
    "uuid and binary": lambda ids, file: pa.array(
        [uuid.UUID(int=i << 64).bytes for i in ids], (pa.uuid(), pa.binary(16), pa.binary())[file]
    ),
    "one dictionary": lambda ids, _: pa.DictionaryArray.from_arrays(pa.array(ids, pa.int32()), pa.array(TEXT)),
    "dictionaries that differ": shuffled_dictionary,
    "dictionary and plain": lambda ids, file: shuffled_dictionary(ids, file) if file else pa.array(text(ids)),
}


@pytest.fixture(scope="module")
def drawn() -> list[tuple[list[int], list[int], list[bool]]]:
    """Clusters, classes and labels of each file."""
    random = np.random.default_rng(1)
    return [
        (
            random.integers(0, 60, ROWS).tolist(),
            random.integers(0, 20, ROWS).tolist(),
            (random.random(ROWS) < 0.3).tolist(),
        )
        for _ in range(FILES)
    ]


def results_of(data: Any, cluster: str = "cluster", classes: str = "classes") -> dict[str, Any]:
    """Every result of an evaluation."""
    found = evaluate(data, cluster=cluster, classes=classes, threads=1)
    return {result.metric: result.value for result in found.results}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_every_type_give_what_integers_give(
    tmp_path: Path, drawn: list[tuple[list[int], list[int], list[bool]]], kind: str
) -> None:
    """As clusters and as classes, in files, in tables, and in a store."""
    make, tables, plain = KINDS[kind], [], []
    for file, (clusters, classes, label) in enumerate(drawn):
        tables.append(pa.table({"cluster": make(clusters, file), "classes": make(classes, file), "label": label}))
        plain.append(pa.table({"cluster": clusters, "classes": classes, "label": label}))
        folder = tmp_path / "data" / f"night={file}"
        folder.mkdir(parents=True)
        pq.write_table(tables[-1], folder / "a.parquet")
    expected = results_of(plain)
    assert results_of(tmp_path / "data") == expected
    assert results_of(tables) == expected
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", cluster="cluster", classes="classes")
    assert {result.metric: result.value for result in store.evaluate().results} == expected


def test_dictionaries_of_views(drawn: list[tuple[list[int], list[int], list[bool]]]) -> None:
    """The type of a categorical column of polars; Arrow neither decodes nor filters such dictionaries."""

    def table(kind: pa.DataType, file: int) -> pa.Table:
        names, (clusters, classes, label) = pa.array(TEXT, kind), drawn[file]
        flags = [None if i % 7 == 0 else int(flag) for i, flag in enumerate(label)]
        columns = {
            "cluster": (clusters, names),
            "classes": (classes, names),
            "label": (flags, pa.array(["n", "p"], kind)),
        }
        coded = {
            name: pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint32()), values)
            for name, (codes, values) in columns.items()
        }
        return pa.table({**coded, "score": [i % 11 for i in clusters]})

    options: dict[str, Any] = {"cluster": "cluster", "classes": "classes", "score": "score", "pos_label": "p"}
    options |= {"unlabelled": "drop", "by": "classes", "where": "cluster <> 'id-3'"}
    views, texts = ([table(kind, file) for file in range(FILES)] for kind in (pa.string_view(), pa.string()))
    assert evaluate(views, **options).to_dict()["results"] == evaluate(texts, **options).to_dict()["results"]


def test_ids_in_structs(tmp_path: Path, drawn: list[tuple[list[int], list[int], list[bool]]]) -> None:
    """Fields are named with dots, in files, tables and stores."""
    tables = [pa.table({"meta": nested(a), "kind": nested(b), "label": label}) for a, b, label in drawn]
    for file, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{file}.parquet")
    expected = results_of([pa.table({"cluster": a, "classes": b, "label": label}) for a, b, label in drawn])
    for data in (tables, tmp_path):
        for cluster, classes in (("meta.of.name", "kind.of.name"), ("meta.of.number", "kind.of.name")):
            assert results_of(data, cluster, classes) == expected


REFUSED = {
    "decimal": (pa.array([Decimal(1), Decimal(2)]), r"decimal128\(1, 0\)"),
    "float": (pa.array([1.0, 2.0]), "double"),
    "float dictionary": (pa.array([1.0, 2.0]).dictionary_encode(), "double"),
    "date": (pa.array([date(2026, 1, 1), date(2026, 1, 2)]), r"date32\[day\]"),
    "timestamp": (pa.array([1, 2], pa.timestamp("us")), r"timestamp\[us\]"),
    "boolean": (pa.array([True, False]), "bool"),
    "list": (pa.array([[1], [2]]), "list<.*>"),
    "struct": (pa.array([{"x": 1}, {"x": 2}]), "struct<.*>"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("role", ["cluster", "classes"])
def test_other_types_are_refused(tmp_path: Path, kind: str, role: str) -> None:
    """The message names the file, the column, its type and what to do."""
    ids, told = REFUSED[kind]
    other = {"cluster": "classes", "classes": "cluster"}[role]
    pq.write_table(pa.table({role: ids, other: [1, 2], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=rf"a.parquet: column '{role}' .*{told}.*(cast|write|name one)"):
        evaluate(tmp_path, cluster="cluster", classes="classes", threads=1)


MIXED = [
    (pa.array([1, 2]), pa.array(["1", "2"])),
    (pa.array([1, 2]), pa.array([b"1", b"2"])),
    (pa.array(["1", "2"]), pa.array([b"1", b"2"])),
    (pa.array([1, 2]), pa.array(["1", "2"]).dictionary_encode()),
    (pa.array([1, 2], pa.uint64()), pa.array([1, 2])),
    (pa.array([1, 2]), pa.array([1.0, 2.0])),
    (pa.array([1, 2]), pa.array([True, False])),
    (pa.array(["1", "2"]), pa.array([bytes(16), bytes(15) + b"1"], pa.uuid())),
]


ROLES = {
    "cluster": {"cluster": "id"},
    "classes": {"cluster": "other", "classes": "id"},
    "mean_over": {"score": "other", "mean_over": "id"},
    "by": {"score": "other", "by": "id"},
    "unit": {"score": "other", "unit": "id"},
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("one", "two"), MIXED, ids=lambda array: str(array.type)[:20])
def test_types_that_differ_between_files_are_refused(tmp_path: Path, one: pa.Array, two: pa.Array, role: str) -> None:
    """An id is not the same in another type; the message names both files and both types."""
    for name, ids in (("a", one), ("b", two)):
        pq.write_table(pa.table({"id": ids, "other": [3, 4], "label": [0, 1]}), tmp_path / f"{name}.parquet")
    with pytest.raises(SchemaError, match=r"b.parquet: column 'id' is .*, but .* in .*a.parquet.*write the column"):
        evaluate(tmp_path, **ROLES[role], threads=1)


def test_no_two_spellings_are_one_id() -> None:
    """Composed and decomposed letters, trailing blanks, letter case, a NUL and the empty string differ."""
    spellings = ["\u00e9", "e\u0301", "e", "E", "e ", " e", "e\0", "", "\0"]
    labels = [0, 1] * len(spellings)
    found = evaluate(
        pa.table({"cluster": [text for text in spellings for _ in (0, 1)], "label": labels, "score": labels}),
        cluster="cluster",
        classes="score",
        threads=1,
    )
    same = evaluate(
        pa.table({"cluster": np.repeat(np.arange(len(spellings)), 2), "label": labels, "score": labels}),
        cluster="cluster",
        classes="score",
        threads=1,
    )
    assert {r.metric: r.value for r in found.results} == {r.metric: r.value for r in same.results}
