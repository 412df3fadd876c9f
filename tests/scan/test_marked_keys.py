"""Hive keys of integers: numbers compare them as integers, texts only where both orders agree. Keys of dates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from streameval import Store, evaluate, scan
from streameval.errors import CorruptFileError, OptionError, SchemaError
from streameval.scan.derived import is_integer_key, mark

if TYPE_CHECKING:
    from pathlib import Path


def tree(folder: Path, key: str, values: list[str]) -> str:
    """A Hive directory of ten rows a value."""
    for value in values:
        (folder / f"{key}={value}").mkdir(parents=True)
        rows = pa.table({"label": [0, 1] * 5, "score": [i / 10 for i in range(10)]})
        pq.write_table(rows, folder / f"{key}={value}" / "part.parquet")
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
    with pytest.raises(OptionError, match=r"write (10|5) without quotes"):
        evaluate(hours, score="score", where=where)


def test_texts_of_one_length_are_ordered_as_before(tmp_path: Path) -> None:
    """Both orders agree; a literal of another length is refused, as 20260102 < '2027' is true of texts alone."""
    data = tree(tmp_path / "nights", "night", ["20260101", "20260102"])
    for where in ("night >= '20260102'", "night >= 20260102"):
        assert evaluate(data, score="score", where=where).rows == 10
    with pytest.raises(OptionError, match="write 2027 without quotes"):
        evaluate(data, score="score", where="night < '2027'")


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("night >= '2026-01-09'", 20),
        ("night < DATE '2026-01-09'", 10),
        ("night >= '2026-02'", 10),
        ("night > '2026-01-09 12:00'", 10),
        ("night BETWEEN '2026' AND '2027'", 30),
        ("night <> 'unknown'", 30),
        ("night LIKE '%-0_'", 20),
    ],
)
def test_dates_are_compared_as_texts(tmp_path: Path, where: str, rows: int) -> None:
    """Their order is that of dates, and so is that of years and months."""
    data = tree(tmp_path / "nights", "night", ["2026-01-08", "2026-01-09", "2026-02-10"])
    assert evaluate(data, score="score", where=where).rows == rows


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
        with pytest.raises(OptionError, match=r"are dates, and '.*' has no order among them; write a date such as"):
            run()


def test_keys_are_compared_with_each_other_and_with_columns(tmp_path: Path) -> None:
    """As integers, with columns of any numbers; with a column of texts, only = and <> are in no doubt."""
    for start, end in (("9", "10"), ("10", "9"), ("10", "11")):
        folder = tmp_path / f"start={start}" / f"end={end}"
        folder.mkdir(parents=True)
        rows = {"label": [0, 1], "score": [0.2, 0.8], "n": [9, 10], "text": ["9", "10"], "x": [9.5, 9.0]}
        unsigned = pa.array(rows["n"], pa.uint64())
        pq.write_table(pa.table(rows | {"unsigned": unsigned}), folder / "part.parquet")

    def kept(where: str) -> int:
        return evaluate(tmp_path, score="score", where=where).rows

    assert kept("start < end") == 4
    assert kept("start <= n") == 4
    assert kept("n < end") == 3
    assert kept("start >= unsigned") == 5
    assert kept("start < x") == 1
    assert kept("x = start") == 1
    assert kept("start = text") == 3
    with pytest.raises(OptionError, match=r"'start' are integers.*not with 'text'"):
        kept("start < text")
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


def test_a_filter_answered_from_kept_slices_takes_the_same(hours: str, tmp_path: Path) -> None:
    """Numbers compare as integers, and an order of texts in doubt is refused."""
    store = Store(tmp_path / "store")
    store.update(hours, score="score", by="hour")
    assert store.evaluate(where="hour >= 10").rows == 20
    assert store.evaluate(where="hour = '10'").rows == 10
    with pytest.raises(OptionError, match="write 10 without quotes"):
        store.evaluate(where="hour >= '10'")


def test_edges_divide_integers(hours: str) -> None:
    """The slices are those of the numbers; without edges, values are texts."""
    by_edges = evaluate(hours, score="score", by="hour=0,10,20")
    rows = {(r.slice or {}).get("hour=0,10,20"): r.rows for r in by_edges.results}
    assert rows == {None: 40, "[10, 20)": 20, "[0, 10)": 20}
    assert set(evaluate(hours, score="score", by="hour").slices("hour")["hour"].to_pylist()) == {"5", "9", "10", "11"}


@pytest.mark.parametrize("values", [["05", "10"], ["5", "unknown"], ["1e3", "5"], ["5", "+6"], ["9" * 19, "1"]])
def test_other_texts_stay_texts(tmp_path: Path, values: list[str]) -> None:
    """A number is refused, and so are edges."""
    data = tree(tmp_path / "keys", "key", values)
    with pytest.raises(OptionError, match="write a text in single quotes"):
        evaluate(data, score="score", where="key >= 5")
    with pytest.raises(SchemaError, match="needs a column of numbers"):
        evaluate(data, score="score", by="key=0,10")
    assert evaluate(data, score="score", where=f"key = '{values[0]}'").rows == 10


def test_a_column_of_texts_in_a_file_is_no_key(tmp_path: Path) -> None:
    """Its type is what its writer says."""
    pq.write_table(pa.table({"label": [0, 1], "hour": ["9", "10"]}), tmp_path / "part.parquet")
    found = scan.plan(str(tmp_path), ["hour"])
    assert not is_integer_key(found.schema.field("hour"))


def test_nulls_and_nothing_else() -> None:
    """A key that is always null is no integer."""
    assert mark([None]) is None
    assert mark(["-5", "10"]) == mark(["5", "10"])


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
    with pytest.raises(SchemaError, match="column 'night' has type string"):
        evaluate(data, score="score", by="week(night)")


@pytest.mark.parametrize("asked", [{"by": "kind"}, {"where": "kind = 'a'"}, {"by": "kind", "where": "kind <> 'a'"}])
def test_keys_that_are_not_utf8_never_become_one(tmp_path: Path, asked: dict[str, str]) -> None:
    """The replacement character stood for any byte; a run that does not read the key needs no other name."""
    data = tree(tmp_path, "kind", ["%FF", "%FE"])
    assert evaluate(data, score="score", metrics="roc_auc").rows == 20
    with pytest.raises(CorruptFileError, match=r"kind=%FE/part.parquet: .* its name is not UTF-8; rename it"):
        evaluate(data, score="score", **asked)
