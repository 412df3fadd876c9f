"""Iceberg tables, written by pyiceberg with a catalog of SQLite: what is read equals its own scan."""

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from refusals import refuses

from streameval import Store, attribute, evaluate, plan_labels, quantile_sketch
from streameval.errors import CorruptFileError, DataError, MissingInputError, OptionError
from streameval.evaluation import explain
from streameval.scan import plan, read
from streameval.scan.derived import SlicingColumn

pytest.importorskip("pyiceberg")

from pyiceberg.types import DoubleType, LongType, StringType

ROWS = 40


def make_rows(night: int) -> pa.Table:
    """A night of scores."""
    values = [(i * 7 + night) % ROWS for i in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "label": pa.array([v % 3 == 0 for v in values]),
            "score": pa.array([v / ROWS for v in values], pa.float32()),
            "campaign": pa.array([Decimal(v % 5) for v in values], pa.decimal128(38, 0)),
            "night": pa.array([date(2026, 1, night)] * ROWS),
            "meta": pa.array([{"length": v} for v in values], pa.struct({"length": pa.int32()})),
        }
    )


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog that is configured by the environment, as a user's is."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LOCAL__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when the module is imported
    made = load_catalog("local")
    made.create_namespace("spam")
    yield made
    made.close()


@pytest.fixture
def table(catalog: Any) -> Table:
    """Two nights, partitioned by night."""
    from pyiceberg.transforms import IdentityTransform

    made = catalog.create_table("spam.scores", schema=make_rows(1).schema)
    with made.update_spec() as spec:
        spec.add_field("night", IdentityTransform(), "night")
    for night in (1, 2):
        made.append(make_rows(night))
    return made


def rows_of(data: Any, columns: list[str], **options: Any) -> list[dict[str, Any]]:
    """The rows of a scan, in order."""
    scan = plan(data, columns, **options)
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    assert scan.rows == sum(batch.num_rows for batch in batches)
    return sorted(pa.Table.from_batches(batches, scan.schema).to_pylist(), key=repr)


def test_every_way_to_name_a_table(table: Table) -> None:
    """The object, the directory, a metadata file and the name in a catalog give the rows of pyiceberg's scan."""
    columns = ["id", "label", "score", "night", "meta.length"]
    expected = [row | {"meta.length": row.pop("meta")["length"]} for row in table.scan().to_arrow().to_pylist()]
    expected = sorted(({name: row[name] for name in columns} for row in expected), key=repr)
    directory = table.location().removeprefix("file://")
    for data in (table, directory, table.location(), table.metadata_location, "catalog://local/spam.scores"):
        assert rows_of(data, columns) == expected
    options: dict[str, Any] = {"score": "score", "cluster": "campaign", "by": "night"}
    flat = pa.concat_tables([make_rows(1), make_rows(2)])
    assert evaluate(table, **options).results == evaluate(flat, **options).results
    first = table.history()[0].snapshot_id
    assert evaluate(directory, score="score", snapshot=first).rows == ROWS
    assert quantile_sketch(directory, "score", snapshot=first).count == ROWS
    how: dict[str, Any] = {"id": "id", "score": "score", "for_": "precision@threshold=0.5", "budget": 20}
    assert plan_labels(directory, snapshot=first, **how).ids.equals(plan_labels(make_rows(1), **how).ids)


def test_partitions_prune(table: Table) -> None:
    """A filter of a partition opens the files of that night alone, and changes no interval."""
    options: dict[str, Any] = {"score": "score", "ci": 0.9}
    expected = evaluate(table, where="night = '2026-01-02' OR id < 0", **options)  # opens all files
    path = next(task.file.file_path for task in table.scan("night = '2026-01-01'").plan_files())
    Path(path.removeprefix("file://")).unlink()
    found = evaluate(table, where="night = DATE '2026-01-02'", **options)
    assert (found.rows, found.results) == (ROWS, expected.results)
    costs: dict[str, Any] = {"cluster": "id", "classes": "campaign"}
    assert attribute(table, where="night = '2026-01-02'", **costs).totals == attribute(make_rows(2), **costs).totals
    planned = explain(table, score="score", where="night > '2026-01-01' AND id < 7")
    assert planned.filtered.endswith("leaves 1 of 2 files and 1 of 1 row group to read")
    for where in ("night > '2026-01-02'", "id < 7", "night = '2026-01-02' OR id < 0"):
        refuses(MissingInputError, "no such file", evaluate, table, where=where, **options)


def test_parts_of_times_are_those_of_hidden_partitions(catalog: Any, tmp_path: Path) -> None:
    """Slices by the day, month, week or hour of a partition do not read the time; beside other files, they do."""
    from pyiceberg.transforms import DayTransform, HourTransform

    times = [datetime(2026, 1, 31, 23), datetime(2026, 2, 1, 7), datetime(1969, 12, 31, 5), None]
    parts = [make_rows(1).append_column("sent", pa.array([time] * ROWS, pa.timestamp("us"))) for time in times]
    for transform, last in ((DayTransform(), 4), (HourTransform(), 2)):
        table = catalog.create_table(f"spam.{transform}", schema=parts[0].schema)
        with table.update_spec() as spec:
            spec.add_field("sent", transform, "hidden")
        paths = [str(tmp_path / f"{transform}{i}.parquet") for i in range(len(parts))]
        for i, part in enumerate(parts):
            pq.write_table(part, paths[i])
            if i < last:
                table.add_files([paths[i]])
        for by in ("day(sent)", "month(sent)", "week(sent)", "hour(sent)"):
            expected = evaluate(pa.concat_tables(parts[:last]), score="score", by=by)
            assert evaluate(table, score="score", by=by).results == expected.results, by
            reads = plan(table, [SlicingColumn(by)]).schema.names
            assert (reads == [by]) == (last == 2 and (transform == HourTransform() or by != "hour(sent)")), reads
        assert evaluate([table, paths[3]], score="score", by="day(sent)").rows == ROWS * max(last, 3)
    Path(paths[0]).unlink()
    assert evaluate(table, score="score", where="sent >= '2026-02-01'").rows == ROWS  # of a file of a later hour


def test_schemas_evolve_by_field_id(table: Table) -> None:
    """Columns that were renamed, exchanged, widened, added and dropped, in files that were written before."""
    with table.update_schema() as schema:
        schema.rename_column("score", "old_score").rename_column("meta.length", "letters")
    with table.update_schema() as schema:
        schema.rename_column("id", "score").update_column("old_score", DoubleType())
    with table.update_schema() as schema:
        schema.add_column("id", LongType()).move_first("old_score")
    with table.update_schema() as schema:
        schema.delete_column("campaign").add_column(("meta", "words"), LongType())
    table.append(table.scan().to_arrow().slice(0, 3))
    columns = ["old_score", "score", "id", "meta.letters", "meta.words", "label"]
    expected = table.scan().to_arrow().to_pylist()
    expected = [row | {f"meta.{name}": row["meta"][name] for name in ("letters", "words")} for row in expected]
    assert rows_of(table, columns) == sorted(({name: row[name] for name in columns} for row in expected), key=repr)
    refuses(DataError, "no column 'campaign'", plan, table, ["campaign"])


def test_added_files_have_the_names_of_the_mapping(table: Table, tmp_path: Path) -> None:
    """Files without ids are found by the table's name mapping; a key of their path is no column of the table."""
    path = tmp_path / "region=FR" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(make_rows(3), path)
    table.add_files([str(path)])
    with table.update_schema() as schema:
        schema.rename_column("score", "new_score").rename_column("meta.length", "letters")
        schema.add_column("region", StringType())
    columns = ["new_score", "meta.letters", "region", "night"]
    expected = [row | {"meta.letters": row["meta"]["letters"]} for row in table.scan().to_arrow().to_pylist()]
    assert rows_of(table, columns) == sorted(({name: row[name] for name in columns} for row in expected), key=repr)
    assert {row["night"] for row in rows_of(table, ["night"])} == {date(2026, 1, night) for night in (1, 2, 3)}


def test_deletes(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that position deletes name are left out; a table with equality deletes is refused."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import DataScan

    tasks = list(table.scan().plan_files())
    deletes = tmp_path / "deletes.parquet"
    pq.write_table(pa.table({"file_path": [tasks[0].file.file_path] * 2, "pos": pa.array([0, 5])}), deletes)
    deleted = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=str(deletes), file_format=FileFormat.PARQUET,
        partition=tasks[0].file.partition, record_count=2, file_size_in_bytes=deletes.stat().st_size,
    )  # fmt: skip
    tasks[0].delete_files.add(deleted)
    monkeypatch.setattr(DataScan, "plan_files", lambda _: tasks)  # pyiceberg does not write such deletes
    expected = table.scan().to_arrow().select(["id", "night"]).to_pylist()
    assert len(expected) == 2 * ROWS - 2
    assert rows_of(table, ["id", "night"]) == sorted(expected, key=repr)

    pq.write_table(pa.table({"file_path": [tasks[0].file.file_path], "pos": pa.array([ROWS])}), deletes)
    refuses(CorruptFileError, r"deletes\.parquet deletes rows that .* does not have", plan, table, ["id"])

    def refuse(_: object) -> Any:
        raise ValueError(
            "PyIceberg does not yet support equality deletes: https://github.com/apache/iceberg/issues/6568"
        )

    monkeypatch.setattr(DataScan, "plan_files", refuse)
    refuses(DataError, r"spam\.scores: has equality deletes.*rewrite_data_files", plan, table, ["score"])


def compact(table: Table, night: int) -> None:
    """Write the rows of a night to one other file, as `rewrite_data_files` of Spark does."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    chosen = f"night = '2026-01-0{night}'"
    rows = table.scan(chosen).to_arrow().sort_by([("id", "descending")])
    files = list(_dataframe_to_data_files(table.metadata, rows, table.io))
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for task in table.scan(chosen).plan_files():
            snapshot.delete_data_file(task.file)
        for file in files:
            snapshot.append_data_file(file)
    metadata = Path(table.metadata_location.removeprefix("file://"))
    text, number = metadata.read_text(), table.current_snapshot().snapshot_id
    before, _, after = text.partition(f'"snapshot-id":{number}')
    metadata.write_text(f'{before}"snapshot-id":{number}{after.replace("overwrite", "replace", 1)}')
    table.refresh()
    assert table.current_snapshot().summary.operation.value == "replace"


def test_a_store_follows_the_snapshots_of_a_table(table: Table, tmp_path: Path) -> None:
    """Ten nights with deletes, and compaction in between, which changes nothing; numbers are those of DuckDB."""
    store, name = Store(tmp_path / "store"), "catalog://local/spam.scores"
    assert store.update(name, score="score", cluster="id").new == ("night=2026-01-01", "night=2026-01-02")
    assert store.add(sketch="score").changed == ("night=2026-01-01", "night=2026-01-02")  # from the table
    for night in range(3, 11):
        table.append(make_rows(night))
        done = store.update(name)
        assert (done.new, done.changed, done.unchanged) == ((f"night=2026-01-{night:02}",), (), night - 1)
        if night % 3 == 0:
            table.delete(f"night = '2026-01-0{night - 1}' and id < 7")
            assert store.update(name).changed == (f"night=2026-01-0{night - 1}",)
        if night == 5:
            compact(table, 1)
            done = store.update(name)
            assert (done.new, done.changed, done.unchanged, done.gone) == ((), (), 5, ())
            version = done.version
            assert store.update(name).version == version
    assert store.evaluate().results == evaluate(name, score="score", cluster="id", sketch="score").results
    assert store.check("roc_auc >= 0").passed
    rows = table.scan().to_arrow()
    [[auc]] = duckdb.sql(
        "SELECT (sum(r) FILTER (label) - p * (p + 1) / 2) / (p * n) FROM (SELECT label, rank() OVER (ORDER BY score) "
        "+ (count(*) OVER (PARTITION BY score) - 1) / 2 AS r, count(*) FILTER (label) OVER () AS p, "
        "count(*) FILTER (NOT label) OVER () AS n FROM rows) GROUP BY p, n"
    ).fetchall()
    values = {(result.metric, result.of): result.value for result in store.evaluate().results}
    assert values["roc_auc", "score"] == pytest.approx(auc, rel=1e-12)
    assert store.evaluate().rows == len(rows)
    second = table.history()[1].snapshot_id
    done = store.update(name, snapshot=second)
    assert (done.changed, len(done.gone)) == (("night=2026-01-02",), 8)  # of the first two nights, one has lost rows
    assert store.add(cluster="campaign", data=name, snapshot=second).changed == ("night=2026-01-01", "night=2026-01-02")


def test_a_store_holds_a_table_without_partitions_as_one(catalog: Any, tmp_path: Path) -> None:
    """A file of such a table stands for no rows: compaction would count them twice."""
    table = catalog.create_table("spam.flat", schema=make_rows(1).schema)
    store, name = Store(tmp_path / "store"), "catalog://local/spam.flat"
    for night in (1, 2):
        table.append(make_rows(night))
        store.update(name, **({"score": "score"} if night == 1 else {}))
    assert store.evaluate().results == evaluate(table, score="score").results
    assert [entry.partition for entry in store.partitions()] == ["flat"]
    assert store.add(cluster="id").changed == ("flat",)  # from the table that the files belong to


@pytest.mark.parametrize(
    ("data", "options", "kind", "message"),
    [
        ("catalog://local", {}, OptionError, "write catalog://name/namespace.table"),
        (
            "catalog://local/spam.missing",
            {},
            MissingInputError,
            "cannot be loaded (Table does not exist: spam.missing)",
        ),
        ("catalog://local/spam.scores", {"snapshot": 7}, OptionError, "there is no snapshot 7; the last ones are ["),
        ("{directory}/data", {}, DataError, "is a table of Apache Iceberg"),
    ],
)
def test_refusals(table: Table, data: str, options: dict[str, int], kind: type[Exception], message: str) -> None:
    """Each says what to name instead."""
    with pytest.raises(kind, match=re.escape(message)):
        plan(data.format(directory=table.location().removeprefix("file://")), ["score"], **options)
    with pytest.raises(OptionError, match="snapshot=1 would change nothing: no input is an Iceberg table"):
        plan(pa.table({"x": [1]}), ["x"], snapshot=1)


def test_a_store_notices_other_columns_under_its_names(catalog: Any, tmp_path: Path) -> None:
    """Renamed columns that it reads are folded again, even after compaction; others change nothing."""
    rows = make_rows(1).append_column("old", pa.array([i % 9 / 9 for i in range(ROWS)], pa.float32()))
    table = catalog.create_table("spam.renamed", schema=rows.schema)
    table.append(rows)
    store, name = Store(tmp_path / "store"), "catalog://local/spam.renamed"
    store.update(name, score="score")
    store.add(cluster="meta.length", data=name)
    changes = [
        (("campaign", "number"), False),
        (("score", "tmp"), None),
        (("old", "score"), True),
        (("meta", "sizes"), None),
        (("sizes.length", "width"), None),
        (("sizes", "meta"), None),
        (("meta.width", "length"), False),
    ]
    for names, changed in changes:
        with table.update_schema() as schema:
            schema.rename_column(*names)
        if changed is not None:
            assert store.update(name).changed == (("renamed",) if changed else ())
            asked: dict[str, Any] = {"score": "score", "cluster": "meta.length"}
            assert store.evaluate().results == evaluate(name, **asked).results
    compact(table, 1)
    assert store.update(name).unchanged == 1
    with table.update_schema() as schema:
        schema.rename_column("score", "old")
    with table.update_schema() as schema:
        schema.rename_column("tmp", "score")
    compact(table, 1)
    assert store.update(name).changed == ("renamed",)
    assert store.evaluate().results == evaluate(name, **asked).results
