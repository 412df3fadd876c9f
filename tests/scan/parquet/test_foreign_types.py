"""Columns of types that Arrow misreads: INT96 times of any year, and types in a footer that it does not know."""

import base64
import datetime as dt
import struct
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from footers import chunks, edit_footer
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyarrow.parquet import encryption
from refusals import refuses

from streameval import Store, evaluate, scan
from streameval.errors import CorruptFileError, SchemaError
from streameval.scan import plan
from streameval.scan.parquet import footers, row_groups
from streameval.scan.parquet.pages import chunk_ranges, footer_at, footer_of, typed
from streameval.scan.parquet.statistics import survey

SECOND, DAY = 10**9, 86_400 * 10**9  # nanoseconds
JULIAN = 2_440_588  # the day of 1970-01-01
FAR = dt.datetime(9999, 12, 31)
NEAR = dt.datetime(2026, 1, 15, 12)


def write(path: Path, times: list[int | None], *, size: int = 1 << 20, spark: bool = False) -> None:
    """A file of INT96 timestamps, given in nanoseconds since 1970, however many; Arrow itself writes no others.

    The values are written as decimals of 12 bytes, which INT96 has as well, and the footer is changed to say so.
    """
    raw = [None if time is None else int96(time) for time in times]
    rows = len(times)
    data = pa.table(
        {
            "n": pa.array(range(rows), pa.int64()),
            "label": pa.array([row % 2 for row in range(rows)], pa.int8()),
            "x": pa.array(raw, pa.binary(12)),
        }
    )
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(data, path, row_group_size=size, store_schema=False, use_dictionary=False, write_statistics=False)

    def change(footer: dict[int, Any]) -> None:
        leaf = footer[2][1][1][3]
        leaf[1] = (5, 3)  # type: INT96
        del leaf[2]  # length
        for columns in chunks(footer):
            columns[2][1] = (5, 3)
        if spark:
            footer[5] = (9, (12, [{1: (8, b"org.apache.spark.version"), 2: (8, b"3.5.0")}]))  # metadata

    edit_footer(path, change)


def int96(time: int) -> bytes:
    """The bytes of a timestamp: nanoseconds of the day, and the day."""
    return struct.pack("<QI", time % DAY, time // DAY + JULIAN)


def nanoseconds(when: dt.datetime) -> int:
    """A time since 1970."""
    return (when - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000


def read_back(data: Any, column: str = "x") -> list[int | None]:
    """The times in nanoseconds, as the scan reads them."""
    found = scan.plan(data, [column])
    factor = {"us": 1000, "ns": 1}[found.schema.field(column).type.unit]
    arrays = [batch.column(0) for piece in found.pieces for batch in scan.read(piece, found.schema, 3)]
    values = [value for array in arrays for value in array.cast(pa.int64()).to_pylist()]
    return [None if value is None else value * factor for value in values]


COARSE = st.integers(-290_000 * 365 * 86_400 * 10**6, 290_000 * 365 * 86_400 * 10**6).map(lambda us: us * 1000)
COARSE = COARSE.filter(lambda time: 0 <= time // DAY + JULIAN < 2**32)
FINE = st.integers(-(2**63), 2**63 - 1)
YEARS = st.sampled_from([nanoseconds(when) for when in (FAR, NEAR, dt.datetime(1000, 1, 1), dt.datetime(1, 1, 1))])


@given(
    st.lists(st.none() | COARSE | YEARS, min_size=1, max_size=8) | st.lists(st.none() | FINE, min_size=1, max_size=8)
)
def test_every_value_that_a_unit_holds_is_read(
    tmp_path_factory: pytest.TempPathFactory, times: list[int | None]
) -> None:
    """Microseconds of any year, nanoseconds of the years 1678 to 2262; nulls; several row groups and batches."""
    path = tmp_path_factory.mktemp("times") / "part.parquet"
    write(path, times, size=3)
    assert read_back(str(path)) == times


@pytest.mark.parametrize(
    "times", [[nanoseconds(FAR), nanoseconds(NEAR) + 1], [nanoseconds(FAR) + 1], [300_000 * 366 * DAY]]
)
def test_what_no_unit_holds_is_refused(tmp_path: Path, times: list[int]) -> None:
    """Far years with digits of nanoseconds, and years that microseconds do not have, name file and column."""
    write(tmp_path / "part.parquet", times)
    with pytest.raises(
        SchemaError, match=r"part\.parquet: column 'x' has INT96 timestamps that no unit holds.*write it"
    ):
        read_back(str(tmp_path))


def test_files_of_several_units_are_read_in_the_finest(tmp_path: Path) -> None:
    """INT96 with and without nanoseconds, beside timestamps of other types; refused if one does not fit."""
    write(tmp_path / "a.parquet", [nanoseconds(NEAR), None])
    write(tmp_path / "b.parquet", [nanoseconds(NEAR) + 1])
    pq.write_table(pa.table({"x": pa.array([NEAR], pa.timestamp("ms"))}), tmp_path / "c.parquet")
    assert read_back(str(tmp_path)) == [nanoseconds(NEAR), None, nanoseconds(NEAR) + 1, nanoseconds(NEAR)]
    write(tmp_path / "d.parquet", [nanoseconds(FAR)])
    with pytest.raises(
        SchemaError, match=r"d\.parquet: column 'x' has a time that timestamp\[ns\].*without the others"
    ):
        read_back(str(tmp_path))


def test_the_unit_of_a_remote_file_is_told_by_its_first_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of them are fetched while planning."""
    write(tmp_path / "part.parquet", [nanoseconds(NEAR)] * 10, size=2)
    fetched: list[list[int]] = []

    def ranges(footer: Any, groups: Any, columns: Any) -> Any:
        fetched.append(list(groups))
        return chunk_ranges(footer, groups, columns)

    monkeypatch.setattr(row_groups, "chunk_ranges", ranges)
    monkeypatch.setattr(footers, "GATHER_ROWS", 4)
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert scan.plan(pads.dataset("part.parquet", filesystem=remote), ["x"]).rows == 10
    assert fetched == [[0, 1]]


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Scores with times from the year 1000 to the year 9999, at the top and in a struct."""
    when = pa.array([FAR, FAR, NEAR, NEAR + dt.timedelta(1), dt.datetime(1000, 1, 1), None], pa.timestamp("us"))
    fields = pa.StructArray.from_arrays([when, pa.array(range(6))], ["sent", "n"])
    data = {"label": [1, 0, 0, 1, 0, 1], "score": [0.1, 0.9, 0.2, 0.8, 0.3, 0.5], "sent": when, "meta": fields}
    (tmp_path / "night=2026-01-15").mkdir()
    path = tmp_path / "night=2026-01-15" / "part.parquet"
    pq.write_table(pa.table(data), path, use_deprecated_int96_timestamps=True, row_group_size=4, store_schema=False)
    return tmp_path


@pytest.mark.parametrize("column", ["sent", '"meta.sent"'])
def test_filters_and_slices_see_the_years(spark: Path, column: str) -> None:
    """Of files, of a dataset with options of its own, and of a store."""
    layout = pads.ParquetFileFormat(coerce_int96_timestamp_unit="ns")
    dataset = pads.dataset(spark, format=layout, partitioning="hive")
    part = f"month({column.strip(chr(34))})"
    for data in (spark, dataset):
        for where, rows in (("> '2030-01-01'", 2), ("< '2030-01-01'", 3), ("< '1900-01-01'", 1), ("= '9999-12-31'", 2)):
            assert evaluate(data, score="score", where=f"{column} {where}", metrics="roc_auc").rows == rows
        found = evaluate(data, score="score", by=part, metrics="roc_auc")
        groups = {one.slice[part]: one.rows for one in found.results if one.slice}
        assert groups == {"1000-01": 1, "2026-01": 2, "9999-12": 2, None: 1}
    store = Store(spark.parent / f"{spark.name}-store-{len(column)}")
    store.update(spark, score="score", by=part)
    assert {one.slice[part]: one.rows for one in store.evaluate(by=part).results if one.slice} == groups
    assert len(scan.plan(str(spark), ["sent", "meta.n", "score"]).schema) == 3


ROWS = {"label": [0, 1, 0, 1], "score": [0.1, 0.8, 0.35, 0.35], "text": ["a", "b", "a", "c"]}


def wide(path: Path) -> Path:
    """A file of polars with integers of 128 bits, and times in a zone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    zone = [datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))] * 4
    frame = pl.DataFrame(ROWS).with_columns(pl.col("label").cast(pl.Int128).alias("big"), pl.Series("sent", zone))
    frame.write_parquet(path, row_group_size=2)
    return path


def misnamed(path: Path) -> Path:
    """A file with an extension type that Arrow knows, whose description is damaged."""
    described = {"ARROW:extension:name": "arrow.opaque", "ARROW:extension:metadata": "no JSON"}
    field = pa.field("other", pa.int64(), metadata=described)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(ROWS | {"other": ROWS["label"]})
    pq.write_table(table.cast(pa.schema([*table.schema][:-1]).append(field)), path)
    return path


@pytest.mark.parametrize("write", [wide, misnamed])
def test_other_columns_are_read(tmp_path: Path, write: Any) -> None:
    """By every reader of a footer: of evaluations, stores, the listing of columns, and objects."""
    path = write(tmp_path / "data" / "night=1" / "a.parquet")
    pq.write_table(pa.table(ROWS), tmp_path / "data" / "night=1" / "b.parquet")
    refuses((pa.ArrowException, ValueError, TypeError), "", pq.read_metadata, path)
    assert evaluate(path, score="score").value("roc_auc") == 0.875
    assert evaluate(tmp_path / "data", score="score", by=["text"], where="text != 'd'").rows == 8
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="score", metrics=["roc_auc"])
    assert store.evaluate().rows == 8
    assert [file["rows"] for entry in store.partitions() for file in entry.noted["files"]] == [4, 4]
    assert {"label", "score", "text"} < {one.name for one in survey([str(path)])}
    with path.open("rb") as raw, pa.PythonFile(raw, mode="r") as handle:
        assert footer_of(handle).num_rows == 4


def test_zones_that_are_not_known_are_refused(tmp_path: Path) -> None:
    """Parquet itself keeps no zone, and hours would be others; the remedy is to write the file without the column."""
    path = wide(tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a\.parquet: the time zone of column 'sent' .* without that column"):
        evaluate(path, score="score", by=["hour(sent)"])
    pl.read_parquet(path).drop("big").write_parquet(path)
    assert typed(footer_at(fs.LocalFileSystem(), str(path)))
    assert evaluate(path, score="score", by=["hour(sent)"]).rows == 4


@pytest.mark.parametrize("cut", [0, 1, 9, 60])
def test_a_damaged_footer_is_still_refused(tmp_path: Path, cut: int) -> None:
    """With the message of Arrow, whether or not it has a type that Arrow does not know."""
    path = wide(tmp_path / "a.parquet")
    data = path.read_bytes()
    path.write_bytes(data[:-cut] if cut else data.replace(b"ARROW:schema\x18", b"ARROW:schema\x58"))  # without value
    refuses(CorruptFileError, r"a\.parquet: cannot be read", plan, path, ["score"])


def test_rows_that_are_missing_are_an_error() -> None:
    """Of damage, not the end of an iteration."""
    short, rows = (pa.record_batch({"x": pa.nulls(count, pa.timestamp("us"))}) for count in (1, 2))
    refuses(OSError, "fewer rows", list, row_groups.exact_batches(iter([rows]), iter([short]), iter([rows]), ["x"]))


def test_a_file_whose_first_rows_mislead_is_refused(tmp_path: Path) -> None:
    """Spark writes no nanoseconds, so its files are not looked into; a value with some is still not cut."""
    write(tmp_path / "part.parquet", [nanoseconds(NEAR), nanoseconds(NEAR) + 1], spark=True)
    with pytest.raises(
        SchemaError, match=r"part\.parquet: column 'x' has a time that timestamp\[us\].*; write it as a"
    ):
        read_back(str(tmp_path))
    write(tmp_path / "part.parquet", [nanoseconds(FAR), nanoseconds(NEAR)], spark=True)
    assert read_back(str(tmp_path)) == [nanoseconds(FAR), nanoseconds(NEAR)]


def test_a_filtered_dataset_of_such_times_is_refused(spark: Path) -> None:
    """Arrow's own scanner reads it; it may filter by times, or hand them out."""
    dataset = pads.dataset(spark, partitioning="hive")
    since = pc.field("sent") > pa.scalar(NEAR, pa.timestamp("ns"))
    for data, by in ((dataset.filter(since), None), (dataset.filter(pc.field("score") > 0), "month(sent)")):
        with pytest.raises(
            SchemaError, match=r"column 'sent' has INT96 timestamps.*give the dataset without its filter"
        ):
            evaluate(data, score="score", by=by)
    assert evaluate(dataset.filter(pc.field("score") > 0.15), score="score").rows == 5


class Keys(encryption.KmsClient):
    """Keys that are not secret."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        """The key in the file."""
        return base64.b64encode(key)


def test_encrypted_columns_are_refused(tmp_path: Path) -> None:
    """Of a local file, an object and a dataset, filtered or not: Arrow aborts when it looks at such a column."""
    path, table = tmp_path / "part.parquet", pa.table({"label": [0, 1], "score": [0.5, 0.25]})
    config = encryption.EncryptionConfiguration("f", column_keys={"s": ["score"]}, plaintext_footer=True)
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    local, remote = fs.LocalFileSystem(), fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    datasets = pads.dataset(str(path), filesystem=local), pads.dataset("part.parquet", filesystem=remote)
    for data in (str(path), *datasets, *(one.filter(pc.field("label") >= 0) for one in datasets)):
        with pytest.raises(CorruptFileError, match=r"part\.parquet: cannot be read: some of its columns are encrypted"):
            evaluate(data, score="score")
