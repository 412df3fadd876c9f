"""Table formats: Delta tables by their log, the others refused."""

import json
import shutil
import struct
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from files import put
from processes import run
from refusals import refuses

from streameval import Store, evaluate, quantile_sketch
from streameval.errors import (
    CorruptFileError,
    DataError,
    MissingColumnError,
    MissingInputError,
    OptionError,
    SchemaError,
)
from streameval.scan import locate, plan, read

OLD = pa.table({"label": [0, 1] * 10, "score": [i / 20 for i in range(20)], "night": ["x", "y z"] * 10})
NEW = OLD.slice(0, 6)


def write(path: Path, *tables: pa.Table, **options: Any) -> Path:
    """A Delta table, overwritten once for each table after the first."""
    for table in tables:
        write_deltalake(str(path), table, mode="overwrite", **options)
    return path


def rows_of(data: Any, columns: tuple[str, ...] = ("score",), **options: Any) -> list[dict[str, Any]]:
    """The rows that a scan yields."""
    scan = plan(data, list(columns), **options)
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    assert scan.rows == sum(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, scan.schema).to_pylist()


def test_only_the_current_version_counts(tmp_path: Path) -> None:
    """Overwritten files are not part of the table, however it is named; older versions are available on request."""
    table = write(tmp_path / "t", OLD, NEW)
    for data in (table, str(table), f"{table}/", table.as_uri(), f"{table}/*", f"{table}/**", f"{tmp_path}/*"):
        assert len(rows_of(data)) == 6
        assert len(rows_of(data, delta_version=0)) == 20
    assert evaluate(table, score="score").to_dict()["results"] == evaluate(NEW, score="score").to_dict()["results"]
    assert len(rows_of([table, tmp_path, f"{table}/*"])) == 6


def test_directories_and_patterns_below_a_table(tmp_path: Path) -> None:
    """The files of the log that lie there, with the partitions that the tree gives."""
    table = write(tmp_path / "t", OLD, NEW, partition_by=["night"])
    expected = [row for row in NEW.select(["score", "night"]).to_pylist() if row["night"] == "x"]
    for data in (table / "night=x", f"{table}/night=x/*", f"{table}/night=[x]", f"{table}/**/night=x"):
        assert rows_of(data, ("score", "night")) == expected
        assert [piece.partition for piece in plan(data, ["score"]).pieces] == ["night=x"]
    assert len(rows_of(table)) == 6
    old = next(Path(file.path) for file in locate(f"{table}/night=x") if file)
    assert len(rows_of(old)) == 3
    overwritten = next(path for path in (table / "night=x").glob("*.parquet") if path != old)
    refuses(MissingInputError, r"no file of the Delta table .*t lies here", plan, overwritten, ["score"])
    assert len(rows_of(overwritten, delta_version=0)) == 10


def test_partition_values_are_those_of_the_log(tmp_path: Path) -> None:
    """Typed, null where the table has null, and decoded where the path is escaped."""
    data = pa.table({"score": [1.0, 2.0, 3.0], "day": pa.array([7, None, 8], pa.int32()), "at": ["a b", "c%d/e", "f"]})
    table = write(tmp_path / "t", data, partition_by=["day", "at"])
    scan = plan(table, ["score", "day", "at"])
    assert scan.schema.field("day").type == pa.int32()
    found = rows_of(table, ("score", "day", "at"))
    assert sorted(found, key=lambda row: row["score"]) == data.to_pylist()


def test_a_filter_opens_the_files_of_its_partitions(tmp_path: Path) -> None:
    """The log says which, and how many rows the others have: their numbers decide intervals."""
    table = write(tmp_path / "t", OLD, partition_by=["night"])
    with_deleted(table, {"x": [1, 3]})
    options: dict[str, Any] = {"score": "score", "ci": 0.9}
    expected = evaluate(table, where="night = 'y z' OR score < 0", **options)  # opens both
    next((table / "night=x").glob("*.parquet")).write_bytes(b"PAR1")
    edited(table, lambda _, values: values.update(size=4) if "night=x" in str(values) else None)
    assert evaluate(table, where="night = 'y z'", **options).results == expected.results


def test_a_column_added_later_is_null_in_older_files(tmp_path: Path) -> None:
    """The schema is that of the log: filters, slices and weights see the nulls; a column of no version is refused."""
    table = write(tmp_path / "t", OLD, partition_by=["night"])
    added = NEW.append_column("length", pa.array([1, 2, 3, 4, 5, 6]))
    write_deltalake(str(table), added, mode="append", schema_mode="merge")
    assert [row["length"] for row in rows_of(table, ("score", "length"))].count(None) == 20
    assert evaluate(table, score="score", where="length >= 3").rows == 4
    assert evaluate(table, score="score", where="length IS NULL").rows == 20
    refuses(MissingColumnError, r"no column 'width'; it has: .*length", plan, table, ["width"])
    refuses(MissingColumnError, "no column 'length'", plan, table, ["length"], delta_version=0)


def test_a_file_with_another_size_than_in_the_log_is_refused(tmp_path: Path) -> None:
    """A file that was replaced under its name is not the one that the table has."""
    table = write(tmp_path / "t", OLD)
    [path] = table.glob("*.parquet")
    pq.write_table(NEW, path)
    refuses(CorruptFileError, r"has [\d,]+ bytes, but [\d,]+ in the log of the Delta table", plan, table, ["score"])


def test_partition_values_count_even_if_a_file_has_the_column(tmp_path: Path) -> None:
    """Those of a Delta log or dataset hide a column of the file, whose name has no meaning there."""
    table = write(tmp_path / "t", NEW, partition_by=["night"])
    for path in table.rglob("*.parquet"):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.append_column("night", pa.array(["other"] * len(rows))), path)

    def resized(kind: str, values: dict[str, Any]) -> None:
        if kind == "add":
            values["size"] = (table / unquote(values["path"])).stat().st_size

    edited(table, resized)
    expected = sorted(NEW.select(["score", "night"]).to_pylist(), key=str)
    assert sorted(rows_of(table, ("score", "night")), key=str) == expected
    assert evaluate(table, score="score", where="night = 'x'").rows == 3
    data = pads.dataset(table, format="parquet", partitioning="hive", exclude_invalid_files=True)
    assert data.to_table(columns=["score", "night"]).to_pylist() == rows_of(data, ("score", "night"))
    assert sorted(rows_of(data, ("score", "night")), key=str) == expected


@pytest.mark.parametrize("name", ["t%42", "t%2fB", "t\\B", "t\nB"])
def test_a_path_that_deltalake_misreads_is_refused(tmp_path: Path, name: str) -> None:
    """A table beside it was read, and written by a store, instead."""
    shutil.copytree(write(tmp_path / "source", OLD), tmp_path / name)
    for neighbour in ("tB", "t/B"):
        shutil.copytree(write(tmp_path / "source", NEW), tmp_path / neighbour)
    with pytest.raises(DataError, match=r"a Delta table, but deltalake takes '.*' in a path for something"):
        plan(str(tmp_path / name), ["score"])
    with pytest.raises(OptionError, match=r"a store cannot have '.*' in its path, which deltalake takes for something"):
        Store(tmp_path / name / "store")
    with pytest.raises(OptionError, match=r"s3://bucket/\S+: a store cannot have '%42' in its path"):
        Store("s3://key:secret@bucket/t%42")


@pytest.mark.parametrize("name", ["100% é", "t%", "t#B", "t?B=1", "t[x]^|", "t{x}'"])
def test_a_path_with_odd_characters_is_read(tmp_path: Path, name: str) -> None:
    """By its name and by its URI; a store refuses a path in which deltalake finds no commits."""
    shutil.copytree(source := write(tmp_path / "source", OLD, NEW), tmp_path / name)
    for data in (str(tmp_path / name), (tmp_path / name).as_uri()):
        assert len(rows_of(data)) == 6
        assert len(rows_of(data, delta_version=0)) == 20
    if "#" in name or "?" in name:
        with pytest.raises(OptionError, match=r"a store cannot have '[#?]' in its path"):
            Store(tmp_path / name / "store")
    else:
        store = Store(tmp_path / f"{name} store")
        assert store.update(source, score="score").rows == 6
        assert store.evaluate().rows == 6


def test_a_directory_of_tables_and_of_plain_files(tmp_path: Path) -> None:
    """Each table by its log, other files directly; a link to a table is that table."""
    for name in ("a", "b"):
        write(tmp_path / "lake" / name, OLD, NEW)
    pq.write_table(NEW, tmp_path / "lake" / "c.parquet")
    (tmp_path / "lake" / "current").symlink_to("b")
    assert len(rows_of(tmp_path / "lake")) == 18
    assert len(rows_of(tmp_path / "lake" / "current")) == 6
    (tmp_path / "elsewhere").symlink_to(tmp_path / "lake" / "a")
    assert len(rows_of(tmp_path / "elsewhere")) == 6


def test_a_store_over_a_delta_table(tmp_path: Path) -> None:
    """It has the rows of the table; a deletion vector makes a partition a changed one."""
    table = write(tmp_path / "t", OLD, NEW, partition_by=["night"])
    store = Store(tmp_path / "store")
    store.update(table, score="score")
    assert store.evaluate().rows == 6
    with_deleted(table, {"x": [0]})
    assert "1 changed" in str(store.update(table))
    assert store.evaluate().rows == 5


def log_of(table: Path) -> Path:
    """The last commit of a table."""
    return max((table / "_delta_log").glob("*.json"))


def edited(table: Path, edit: Any) -> None:
    """Change every action of a table's last commit."""
    actions = [json.loads(line) for line in log_of(table).read_text().splitlines()]
    for action in actions:
        for kind, values in action.items():
            edit(kind, values)
    log_of(table).write_text("\n".join(map(json.dumps, actions)))


def inline_vector(rows: list[int]) -> dict[str, Any]:
    """A deletion vector as the log spells a small one: a roaring bitmap in Z85."""
    body = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 16)
    body += b"".join(struct.pack("<H", row) for row in rows)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    padded = body + bytes(-len(body) % 4)
    text = ""
    for i in range(0, len(padded), 4):
        word = int.from_bytes(padded[i : i + 4], "big")
        text += "".join(digits[word // 85**k % 85] for k in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(body), "cardinality": len(rows)}


def with_deleted(table: Path, rows: dict[str, list[int]]) -> None:
    """Give the files of some nights deletion vectors, in a table of one commit or its last one."""
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7} | features
    edit_first = sorted((table / "_delta_log").glob("*.json"))[0]
    lines = [json.loads(line) for line in edit_first.read_text().splitlines()]
    lines = [{"protocol": protocol} if "protocol" in line else line for line in lines]
    edit_first.write_text("\n".join(map(json.dumps, lines)))

    def edit(kind: str, values: dict[str, Any]) -> None:
        night = values.get("partitionValues", {}).get("night")
        if kind == "add" and night in rows:
            values["deletionVector"] = inline_vector(rows[night])

    edited(table, edit)


def test_deletion_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted rows do not count, in one piece or in several; a file all of whose rows are deleted has none."""
    table = write(tmp_path / "t", OLD, partition_by=["night"])
    with_deleted(table, {"x": [1, 3, 9], "y z": list(range(10))})
    left = [row for i, row in enumerate(OLD.to_pylist()[::2]) if i not in (1, 3, 9)]
    assert rows_of(table, ("label", "score", "night")) == left
    monkeypatch.setattr("streameval.scan.parquet.footers.GATHER_ROWS", 2)
    path = next((table / "night=x").glob("*.parquet"))
    pq.write_table(pq.ParquetFile(path).read(), path, row_group_size=2)
    edited(table, lambda _, values: values.update(size=path.stat().st_size) if path.name in str(values) else None)
    assert rows_of(table, ("label", "score", "night")) == left
    assert evaluate(table, score="score", unlabelled="drop", pos_label=0).rows == 7


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(tmp_path: Path, mode: str) -> None:
    """Columns and fields are read under their names in the files, or by their ids; dropped ones are gone.

    A column has the name under which the log stores the one of the partitions.
    """
    stored = {"label": "label", "score": "old", "col-n": "score", "night": "col-n", "added": "col-x", "m": "m"}
    ids = {path: i for i, path in enumerate(["label", "old", "score", "col-n", "col-x", "m", "x", "y", "gone"], 1)}
    rows = pa.table(
        {
            "label": [0, 1, 0],
            "old": [0.5, 0.25, 1.0],
            "score": ["a", "b", None],
            "m": [{"x": 1, "y": 2}, None, {"x": 3, "y": 4}],
            "gone": [7, 8, 9],
            "col-n": ["1", "1", "1"],
        }
    )
    table = write(tmp_path / "t", rows, partition_by=["col-n"])
    [path] = table.rglob("*.parquet")
    if mode == "id":
        numbered = [number_fields(field, ids) for field in pq.read_schema(path)]
        pq.write_table(pq.ParquetFile(path).read().cast(pa.schema(numbered)), path)

    def change(kind: str, values: dict[str, Any]) -> None:
        if kind == "protocol":
            values |= {"minReaderVersion": 2, "minWriterVersion": 5}
            for name in ("readerFeatures", "writerFeatures"):
                values.pop(name, None)
        if kind == "add":
            values["size"] = path.stat().st_size
        if kind == "metaData":
            values["partitionColumns"] = ["night"]
            values["configuration"] |= {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}
            fields = {field["name"]: field for field in json.loads(values["schemaString"])["fields"]}
            fields["col-x"] = dict(fields["label"])
            mapped = []
            for name, file_name in stored.items():
                field = fields[file_name] | {"name": name, "metadata": mapping(file_name)}
                if name == "m":  # x and y have exchanged their names
                    below = [
                        {**f, "name": "xy"[i == 0], "metadata": mapping(f["name"])}
                        for i, f in enumerate(field["type"]["fields"])
                    ]
                    field["type"] = {**field["type"], "fields": below}
                mapped.append(field)
            values["schemaString"] = json.dumps({"type": "struct", "fields": mapped})

    def mapping(name: str) -> dict[str, Any]:
        physical = name if mode == "name" or name == "col-n" else f"other-{name}"
        return {"delta.columnMapping.id": ids[name], "delta.columnMapping.physicalName": physical}

    edited(table, change)
    found = rows_of(table, ("label", "score", "col-n", "added", "m.x", "night"))
    assert found == [
        {"label": i % 2, "score": x, "col-n": text, "added": None, "m.x": y, "night": "1"}
        for i, (x, text, y) in enumerate([(0.5, "a", 2), (0.25, "b", None), (1.0, None, 4)])
    ]
    assert evaluate(table, score="score", where="\"col-n\" = 'b' OR m.x = 4").rows == 2
    assert rows_of(table, ("night",)) == [{"night": "1"}] * 3
    refuses(MissingColumnError, "no column 'gone'", plan, table, ["gone"])
    store = Store(tmp_path / "store", threads=1)
    store.update(table, score="score", where="m.x = 2 OR m.x = 4")
    for old, new, changed in [("col-n", "added", 0), ("score", "label", 1), ("label", "score", 0), ("x", "y", 1)]:
        edited(table, partial(exchange, {old: new, new: old}))
        assert len(store.update(table, dry_run=True).changed) == changed, (old, new)


def exchange(names: dict[str, str], kind: str, values: dict[str, Any]) -> None:
    """Give columns and fields the names of each other."""
    if kind == "metaData":
        for old, new in names.items():
            values["schemaString"] = values["schemaString"].replace(f'"name": "{old}"', f'"name": "-{new}"')
        values["schemaString"] = values["schemaString"].replace('"name": "-', '"name": "')


def number_fields(field: pa.Field, ids: dict[str, int]) -> pa.Field:
    """A field, and those below, with ids that Parquet stores."""
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct([number_fields(inner, ids) for inner in field.type]))
    return field.with_metadata({"PARQUET:field_id": str(ids[field.name])})


def test_what_a_delta_log_cannot_give(tmp_path: Path) -> None:
    """Missing versions, vacuumed files, broken logs, versions of a plain folder: each is named."""
    table = write(tmp_path / "t", OLD, NEW)
    with pytest.raises(CorruptFileError, match=r"/t: a Delta table, but version 7 in its log cannot be read"):
        plan(table, ["score"], delta_version=7)
    for name in {file.name for file in locate(f"{table}/*")}:
        Path(name).rename(tmp_path / "taken")
    with pytest.raises(MissingInputError, match=r"parquet: does not exist, but this version of the Delta table has it"):
        plan(table, ["score"])
    log_of(table).write_text("{")
    refuses(CorruptFileError, r"/t: a Delta table, but its log cannot be read", plan, table, ["score"])
    shutil.rmtree(table / "_delta_log")
    with pytest.raises(OptionError, match="delta_version=0 would change nothing: no input is a Delta table"):
        plan(table, ["score"], delta_version=0)


@pytest.mark.parametrize("kind", ["Iceberg", "Hudi"])
def test_other_formats_are_refused(tmp_path: Path, kind: str) -> None:
    """The directory, one above or below it, and patterns into it: refused with the way out."""
    marker = {"Iceberg": "metadata/v2.metadata.json", "Hudi": ".hoodie/hoodie.properties"}[kind]
    table = tmp_path / "lake" / "t"
    (table / marker).parent.mkdir(parents=True)
    (table / marker).write_text("{}")
    put(table / "data" / "a.parquet", NEW)
    named = [] if kind == "Iceberg" else [table]
    for data in (*named, table / "data", table / "data" / "a.parquet", f"{table}/data/*", f"{table}/*/*", tmp_path):
        caught = refuses(DataError, rf"is a table of Apache {kind}.*; (give|name)", plan, data, ["score"])
        assert caught.count(f"{table} is") == 1
        assert caught.startswith(f"{data}: " if data != table else f"{table} is")
    put(tmp_path / "metadata" / "a.parquet", NEW)
    assert len(rows_of(tmp_path / "metadata")) == 6


def test_every_verb_takes_a_version(tmp_path: Path) -> None:
    """Evaluation, sketch and store read the version that is asked for; the current one otherwise."""
    table = write(tmp_path / "t", OLD, NEW, partition_by=["night"])
    for version, rows in ((None, NEW), (0, OLD), (1, NEW)):
        options = {} if version is None else {"delta_version": version}
        found = evaluate(table, score="score", **options)
        assert found.to_dict()["results"] == evaluate(rows, score="score").to_dict()["results"]
        assert found.to_dict()["options"] == {"score": ["score"]} | options
        assert quantile_sketch(table, "score", **options).count == rows.num_rows
        command = ["evaluate", str(table), "--score", "score", "--json", "-"]
        words = [] if version is None else ["--delta-version", str(version)]
        told = run(*command, *words).stdout
        assert json.loads(told)["results"] == found.to_dict()["results"]


def test_delta_table_objects(tmp_path: Path) -> None:
    """A DeltaTable stands for its version."""
    table = write(tmp_path / "t", OLD, NEW)
    assert len(rows_of(DeltaTable(table))) == 6
    assert len(rows_of(DeltaTable(table, version=0))) == 20
    assert evaluate(DeltaTable(table, version=0), score="score").rows == 20
    with pytest.raises(OptionError, match="delta_version=0, but the DeltaTable is of version 1"):
        plan(DeltaTable(table), ["score"], delta_version=0)


def test_a_store_folds_the_version_it_is_given(tmp_path: Path) -> None:
    """Each update, replacement and addition says which; without, it is the current one."""
    table, store = write(tmp_path / "t", OLD, NEW, partition_by=["night"]), Store(tmp_path / "store", threads=1)
    store.update(table, score="score", delta_version=0)
    assert store.evaluate().rows == 20
    assert store.update(table, delta_version=0).unchanged == 2
    refuses(DataError, "its files changed since it was folded", store.add, sketch="score", delta_version=1)
    assert "contradicts" not in str(store.update(table))
    assert store.evaluate().rows == 6
    store.replace(table, delta_version=0)
    assert store.evaluate().rows == 20
    pq.write_table(OLD, tmp_path / "plain.parquet")
    with pytest.raises(OptionError, match="delta_version=3 would change nothing: no input is a Delta table"):
        Store(tmp_path / "plain").update(tmp_path / "plain.parquet", score="score", delta_version=3)


def test_a_store_follows_the_versions_of_a_table(tmp_path: Path) -> None:
    """Compaction changes nothing, whatever happens to other partitions, even if the old files no longer exist."""
    table, store = str(write(tmp_path / "t", OLD, partition_by=["night"])), Store(tmp_path / "store", threads=1)
    store.update(table, score="score")
    for _ in range(2):
        write_deltalake(table, OLD.filter(pc.field("night") == "x"), mode="append", partition_by=["night"])
    DeltaTable(table).delete("night = 'y z' AND score < 0.3")
    DeltaTable(table).optimize.compact()
    assert store.update(table).changed == ("night=x", "night=y%20z")
    write_deltalake(table, OLD.filter(pc.field("night") == "x"), mode="append", partition_by=["night"])
    store.update(table)
    DeltaTable(table).optimize.compact()
    write_deltalake(table, OLD.filter(pc.field("night") == "y z"), mode="append", partition_by=["night"])
    DeltaTable(table).vacuum(0, enforce_retention_duration=False, dry_run=False)
    done = store.update(table)
    assert (done.new, done.changed, done.unchanged) == ((), ("night=y%20z",), 1)
    assert store.evaluate().results == evaluate(table, score="score").results
    DeltaTable(table).optimize.compact()
    assert "2 changed" in str(store.add(sketch="score"))


def test_a_store_holds_a_table_without_partitions_as_one(tmp_path: Path) -> None:
    """A file of such a table stands for no rows: compaction would count them twice."""
    table, store = str(write(tmp_path / "t", OLD)), Store(tmp_path / "store", threads=1)
    store.update(table, score="score")
    write_deltalake(table, NEW, mode="append")
    assert store.update(table).changed == ("t",)
    DeltaTable(table).optimize.compact()
    assert store.add(sketch="score").changed == ("t",)
    assert store.update(table).unchanged == 1
    assert store.evaluate().results == evaluate(table, score="score", sketch="score").results


@pytest.mark.parametrize(
    ("kind", "wide", "scores"),
    [
        ("long", pa.int64(), [2**40, 7]),
        ("double", pa.float64(), [0.1, 7.0]),
        ("decimal(12,1)", pa.decimal128(12, 1), [Decimal("1.5"), Decimal(7)]),
    ],
)
def test_widened_columns(tmp_path: Path, kind: str, wide: pa.DataType, scores: list[Any]) -> None:
    """A file of the earlier type is read as the wide one where that holds its values without loss, else refused."""
    table = write(tmp_path / "t", pa.table({"label": [0, 1], "score": pa.array([3, 4], pa.int32())}))
    actions = [json.loads(line) for line in log_of(table).read_text().splitlines()]
    metadata = next(action for action in actions if "metaData" in action)
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][1] |= {"type": kind, "metadata": {"delta.typeChanges": [{"toType": kind, "fromType": "integer"}]}}
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    features = {key: ["typeWidening"] for key in ("readerFeatures", "writerFeatures")}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    path = table / "b.parquet"
    pq.write_table(pa.table({"label": [1, 0], "score": pa.array(scores, wide)}), path)
    size = {"size": path.stat().st_size, "modificationTime": 1}
    add = {"add": {"path": path.name, "partitionValues": {}, "dataChange": True, **size}}
    lines = "\n".join(map(json.dumps, (protocol, metadata, add)))
    (table / "_delta_log" / f"{1:020}.json").write_text(lines)
    if pa.types.is_decimal(wide):
        refuses(SchemaError, "no type holds both without loss", plan, table, ["score"])
    else:
        assert sorted(row["score"] for row in rows_of(table)) == sorted([3, 4, *scores])


def test_fields_that_were_added_later(tmp_path: Path) -> None:
    """They are null in earlier files."""
    table = str(write(tmp_path / "t", pa.table({"score": [0.5], "meta": [{"a": 1}]})))
    write_deltalake(table, pa.table({"score": [0.25], "meta": [{"a": 1, "b": 7}]}), mode="append", schema_mode="merge")
    assert sorted(row["meta.b"] or 0 for row in rows_of(table, ("meta.b",))) == [0, 7]
