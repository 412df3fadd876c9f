"""Types: ids of every type, keys of paths, and columns that are widened."""

import math
import tempfile
import uuid
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files import put
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import dataset
from refusals import refuses

from streameval import Accumulator, Store, evaluate
from streameval.errors import CorruptFileError, OptionError, SchemaError
from streameval.kernels.exact import quotients
from streameval.scan import plan, read
from streameval.scan.widen import nearest_floats, numbers_around

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
        put(folder / "a.parquet", tables[-1])
    expected = results_of(plain)
    assert results_of(tmp_path / "data") == expected
    assert results_of(tables) == expected
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", cluster="cluster", classes="classes")
    assert {result.metric: result.value for result in store.evaluate().results} == expected


def test_ids_in_structs(tmp_path: Path, drawn: list[tuple[list[int], list[int], list[bool]]]) -> None:
    """Fields are named with dots, in files, tables and stores."""
    tables = [pa.table({"meta": nested(a), "kind": nested(b), "label": label}) for a, b, label in drawn]
    for file, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{file}.parquet")
    expected = results_of([pa.table({"cluster": a, "classes": b, "label": label}) for a, b, label in drawn])
    for data in (tables, tmp_path):
        for cluster, classes in (("meta.of.name", "kind.of.name"), ("meta.of.number", "kind.of.name")):
            assert results_of(data, cluster, classes) == expected


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


NUMBERS = [pa.decimal32(5, 2), pa.decimal64(18, 0), pa.decimal128(38, 0), pa.decimal128(38, 37), pa.decimal256(76, 2)]


@given(st.integers(-(10**80), 10**80) | st.integers(-(10**6), 10**6), st.integers(-80, 5), st.sampled_from(NUMBERS))
@example(10**38 - 1, 0, pa.decimal128(38, 0))  # the largest value, which has more digits than Python's context
@example(1 - 10**76, -2, pa.decimal256(76, 2))
@example(10**38, 0, pa.decimal128(38, 0))
def test_the_nearest_values_are_those_of_integers(digits: int, exponent: int, kind: pa.DataType) -> None:
    """Numbers of any length, and the ends of a type."""
    found = numbers_around(f"{digits}e{exponent}", kind)
    down, up = (None if end is None else int(Fraction(end.as_py()) * 10**kind.scale) for end in found)
    exact, most = digits * Fraction(10) ** (exponent + kind.scale), 10**kind.precision - 1
    assert down == (None if exact < -most else min(math.floor(exact), most))
    assert up == (None if exact > most else max(math.ceil(exact), -most))


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


def tree(folder: Path, key: str, values: list[str]) -> str:
    """A Hive directory of ten rows a value."""
    for value in values:
        rows = pa.table({"label": [0, 1] * 5, "score": [i / 10 for i in range(10)]})
        put(folder / f"{key}={value}" / "part.parquet", rows)
    return str(folder)


@pytest.fixture
def hours(tmp_path: Path) -> str:
    """Hours of different numbers of digits."""
    return tree(tmp_path / "hours", "hour", ["5", "9", "10", "11"])


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("hour >= 10", 20),
        ("9.5 < hour", 20),
        ("hour BETWEEN 9 AND 10", 20),
        ("hour = 10", 10),
        ("hour <> 10", 30),
        ("hour IN (5, 10)", 20),
        ("hour = '10'", 10),
        ("hour IN ('5', '10')", 20),
        ("NOT hour < 10", 20),
        ("hour > -1", 40),
        ("hour LIKE '1%'", 20),
        (f"hour IN ({', '.join(map(str, range(5, 100)))})", 40),
    ],
)
def test_numbers_compare_as_integers(hours: str, where: str, rows: int) -> None:
    """And texts are equal as texts."""
    assert evaluate(hours, score="score", where=where).rows == rows


@pytest.mark.parametrize("where", ["hour >= '10'", "'10' > hour", "hour BETWEEN '5' AND '9'"])
def test_an_order_of_texts_in_doubt_is_refused(hours: str, where: str) -> None:
    """As texts, all of 5, 9, 10 and 11 are at least '10'."""
    refuses(OptionError, r"write (10|5) without quotes", evaluate, hours, score="score", where=where)


@pytest.mark.parametrize(
    "where",
    [
        "night < '2026-1-09'",
        "night >= '2026-1'",
        "night >= DATE '2026-13-01'",
        "night BETWEEN '2026-01-01' AND '31.1.2026'",
    ],
)
def test_a_text_without_an_order_among_dates_is_refused(tmp_path: Path, where: str) -> None:
    """As a text, every date of January is before 2026-1-09."""
    data = tree(tmp_path / "nights", "night", ["2026-01-08", "2026-01-10"])
    store = Store(tmp_path / "store", threads=1)
    store.update(data, score="score", by="night")
    for run in (lambda: evaluate(data, score="score", where=where), lambda: store.evaluate(where=where)):
        refuses(OptionError, r"are dates, and '.*' has no order among them; write a date such as", run)


def test_keys_are_compared_with_each_other_and_with_columns(tmp_path: Path) -> None:
    """As integers, with columns of any numbers; with a column of texts, only = and <> are in no doubt."""
    for start, end in (("9", "10"), ("10", "9"), ("10", "11")):
        folder = tmp_path / f"start={start}" / f"end={end}"
        rows = {"label": [0, 1], "score": [0.2, 0.8], "n": [9, 10], "text": ["9", "10"], "x": [9.5, 9.0]}
        unsigned = pa.array(rows["n"], pa.uint64())
        put(folder / "part.parquet", rows | {"unsigned": unsigned})

    def kept(where: str) -> int:
        return evaluate(tmp_path, score="score", where=where).rows

    assert kept("start < end") == 4
    assert kept("start <= n") == 4
    assert kept("n < end") == 3
    assert kept("start >= unsigned") == 5
    assert kept("start < x") == 1
    assert kept("x = start") == 1
    assert kept("start = text") == 3
    refuses(OptionError, r"'start' are integers.*not with 'text'", kept, "start < text")
    assert kept("start = end OR n = 9") == 3


def test_the_type_that_a_dataset_or_delta_table_tells_stands(hours: str, tmp_path: Path) -> None:
    """A key that they call a text is ordered as texts, as any column of texts is."""
    texts = dataset.partitioning(pa.schema({"hour": pa.string()}), flavor="hive")
    deltalake = pytest.importorskip("deltalake")
    rows = pa.table({"label": [0, 1] * 2, "score": [0.1, 0.2, 0.3, 0.4], "hour": ["9", "9", "10", "10"]})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows, partition_by=["hour"])
    assert evaluate(dataset.dataset(hours, partitioning=texts), score="score", where="hour >= '10'").rows == 40
    assert evaluate(tmp_path / "delta", score="score", where="hour >= '10'").rows == 4
    assert evaluate(tmp_path / "delta", score="score", where="hour < '2'").rows == 2


def test_edges_divide_integers(hours: str) -> None:
    """The slices are those of the numbers; without edges, values are texts."""
    by_edges = evaluate(hours, score="score", by="hour=0,10,20")
    rows = {(r.slice or {}).get("hour=0,10,20"): r.rows for r in by_edges.results}
    assert rows == {None: 40, "[10, 20)": 20, "[0, 10)": 20}
    assert set(evaluate(hours, score="score", by="hour").slices("hour")["hour"].to_pylist()) == {"5", "9", "10", "11"}


def test_parts_of_a_key_of_dates(tmp_path: Path) -> None:
    """Days, weeks and months, of files and of a store; a key with another value has none."""
    nights = ["2026-01-31", "2026-02-01", "2026-02-02"]
    data = tree(tmp_path / "nights", "night", nights)
    by = ["week(night)", "month(night)", "day(night)"]
    store = Store(tmp_path / "store", threads=1)
    store.update(data, score="score", by=by)
    weeks, months = {"2026-W05": 20, "2026-W06": 10}, {"2026-01": 10, "2026-02": 20}
    for found in (evaluate(data, score="score", by=by), store.evaluate(by=by)):
        rows = {name: value for r in found.results if r.slice for name, value in [(*r.slice.values(), r.rows)]}
        assert rows == weeks | months | dict.fromkeys(nights, 10)
    with pytest.raises(SchemaError, match="needs a column of timestamps; column 'night' has type date"):
        evaluate(data, score="score", by="hour(night)")
    tree(tmp_path / "nights", "night", ["unknown"])
    refuses(SchemaError, "column 'night' has type string", evaluate, data, score="score", by="week(night)")


@pytest.mark.parametrize("asked", [{"by": "kind"}, {"where": "kind = 'a'"}, {"by": "kind", "where": "kind <> 'a'"}])
def test_keys_that_are_not_utf8_never_become_one(tmp_path: Path, asked: dict[str, str]) -> None:
    """The replacement character stood for any byte; a run that does not read the key needs no other name."""
    data = tree(tmp_path, "kind", ["%FF", "%FE"])
    assert evaluate(data, score="score", metrics="roc_auc").rows == 20
    with pytest.raises(CorruptFileError, match=r"kind=%FE/part.parquet: .* its name is not UTF-8; rename it"):
        evaluate(data, score="score", **asked)


REFUSED = {
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


def test_decimal_ids_equal_the_integers_of_their_values(tmp_path: Path) -> None:
    """Whatever the scale, beside integers in another file; a fraction is refused with its row."""
    ids, others = [7, 7, 12, -3, 2**62], [1, 1, 2, 3, 3]
    plain = {"label": [1, 0, 1, 0, 1], "cluster": ids, "campaign": others, "score": [0.5, 0.25, 0.75, 0.125, 0.5]}
    kinds = {"cluster": pa.decimal128(38, 0), "campaign": pa.decimal128(38, 10)}
    night = pa.table({name: pa.array(column, kinds.get(name)) for name, column in plain.items()})
    options: dict[str, Any] = {"cluster": "cluster", "classes": "campaign"}
    pq.write_table(night, tmp_path / "a.parquet")
    pq.write_table(pa.table(plain), tmp_path / "b.parquet")
    both = pa.concat_tables([pa.table(plain)] * 2)
    assert evaluate(tmp_path, **options).results == evaluate(both, **options).results
    for more in ({"score": "score", "unit": "campaign"}, {"score": "score", "mean_over": "cluster"}):
        assert evaluate(night, **more).results == evaluate(pa.table(plain), **more).results
    accumulator = Accumulator(**options)
    accumulator.update(night)
    accumulator.update(plain)
    assert accumulator.result().results == evaluate(both, **options).results
    (tmp_path / "night=2026-01-01").mkdir()
    (tmp_path / "a.parquet").rename(tmp_path / "night=2026-01-01" / "a.parquet")
    store = Store(tmp_path / "store")
    store.update(tmp_path / "night=2026-01-01", **options)
    assert store.evaluate().results == evaluate(pa.table(plain), **options).results
    for roles in ({"where": "campaign >= 0"}, {"by": "campaign"}, {"cluster": "campaign"}):
        assert evaluate(night, score="score", unit="campaign", **roles).rows == 5  # a column in two roles
    coded = night.set_column(1, "cluster", pa.array(map(Decimal, ids)).cast(pa.decimal128(38, 1)).dictionary_encode())
    assert evaluate(coded, **options).results == evaluate(pa.table(plain), **options).results
    short = night.slice(0, 4).cast(night.schema.set(1, pa.field("cluster", pa.decimal128(5, 2))))
    short = short.set_column(1, "cluster", short["cluster"].cast(pa.decimal32(5, 2)))
    assert evaluate(short, **options).results == evaluate(pa.table(plain).slice(0, 4), **options).results
    for bad in ("7.5", str(2**63)):
        wrong = pa.array([7, 7, 12, Decimal(bad), 1], pa.decimal128(38, 1))
        for column in (wrong, wrong.dictionary_encode()):
            broken = night.set_column(1, "cluster", column)
            with pytest.raises(SchemaError, match=rf"'cluster', row 3: a decimal id .*, not {bad}(\.0)?: write others"):
                evaluate(broken, cluster="cluster")
