"""Scan: every kind of input, every type that widens, every error, on real files."""

import itertools
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from files import put
from processes import opened
from pyarrow import fs
from refusals import refuses

from streameval import evaluate
from streameval.engine import fold as folding
from streameval.errors import (
    CorruptFileError,
    DataError,
    MissingColumnError,
    MissingInputError,
    OptionError,
    SchemaError,
)
from streameval.scan import in_memory as memory
from streameval.scan import join, plan, read
from streameval.scan.files.paths import locate
from streameval.scan.parquet import footers, row_groups
from streameval.scan.widen import conform, widen

COLUMNS = ["score", "label"]


def sample(rows: int, seed: int = 0) -> pa.Table:
    """Labels, scores, and a column that nobody asks for."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "label": random.integers(0, 2, rows).astype(np.int8),
            "text": pa.array([f"t{i}" for i in range(rows)], pa.string()),
            "score": random.random(rows).astype(np.float32),
        }
    )


def rows_of(data: Any, columns: list[str] | None = None, batch_rows: int = 1 << 20, **options: Any) -> pa.Table:
    """Everything a scan yields, as one table, after checking what holds for every scan."""
    scan = plan(data, columns or COLUMNS, **options)
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, batch_rows)]
    assert all(batch.schema.equals(scan.schema) for batch in batches)
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    table = pa.Table.from_batches(batches, scan.schema)
    assert scan.rows in (-1, table.num_rows)
    return table


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A Hive tree of three nights, the last of two files, with leftovers of other writers."""
    root = tmp_path / "scores"
    for night, part in (("01", 0), ("02", 0), ("03", 0), ("03", 1)):
        put(root / f"night=2026-01-{night}" / f"part-{part}.parquet", sample(50, int(night) + 10 * part))
    (root / "_SUCCESS").touch()
    (root / "notes.txt").write_text("not data")
    put(root / "_delta" / "checkpoint.parquet", pa.table({"x": [1]}))
    put(root / "night=2026-01-01" / ".part-0.parquet", pa.table({"x": [1]}))
    return root


def in_order(tree: Path) -> pa.Table:
    """What the tree's files hold, read by pyarrow."""
    files = sorted(tree.glob("night=*/part-*.parquet"))
    return pa.concat_tables(pq.ParquetFile(file).read(columns=COLUMNS) for file in files).select(COLUMNS)


class Exporter:
    """An object that offers its table as an Arrow stream, like the frames of other libraries."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ArrayExporter:
    """An object that offers one record batch as an Arrow array."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


# Inputs


@pytest.mark.parametrize(
    "spell",
    [
        lambda root: root,
        str,
        lambda root: f"{root}/",
        lambda root: f"{root}/*/*.parquet",
        lambda root: f"{root}/night=2026-01-0?",
        lambda root: f"{root}/**/part-[01].parquet",
        lambda root: f"{root}/night=*/**",
        lambda root: f"{root}/*",
        lambda root: root.as_uri(),
        lambda root: f"{root.as_uri()}/**/*.parquet",
        lambda root: [root / "night=2026-01-01", f"{root}/night=2026-01-0[23]"],
        lambda root: [str(file) for file in sorted(root.glob("night=*/part-*"))],
        lambda root: pads.dataset(sorted(map(str, root.glob("night=*/part-*")))),
        lambda root: pads.dataset(str(root), partitioning="hive", exclude_invalid_files=True),
    ],
)
def test_spellings_of_a_tree(tree: Path, spell: Any) -> None:
    """However a tree is named, the same rows come in the same order under the same partitions."""
    scan = plan(spell(tree), COLUMNS)
    expected = ["night=2026-01-01", "night=2026-01-02", "night=2026-01-03", "night=2026-01-03"]
    assert [piece.partition for piece in scan.pieces] == expected
    assert [piece.origin for piece in scan.pieces] == expected
    assert [piece.row for piece in scan.pieces] == [0, 0, 0, scan.pieces[2].rows]
    assert rows_of(spell(tree)).equals(in_order(tree))


def test_relative_names(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is named in messages as the user began to name it, and read from wherever the process is."""
    monkeypatch.chdir(tree.parent)
    scan = plan("scores/night=*", COLUMNS)
    assert scan.pieces[0].name == "scores/night=2026-01-01/part-0.parquet"
    assert plan("../" + tree.parent.name + "/scores", COLUMNS).pieces == scan.pieces
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for piece in scan.pieces for batch in read(piece, scan.schema)) == 200


def test_home_is_expanded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde means the home directory, as in the shell."""
    monkeypatch.setenv("HOME", str(tree.parent))
    assert rows_of("~/scores").num_rows == 200
    monkeypatch.chdir(tree.parent)
    put(tree.parent / "~backup.parquet", sample(5))
    assert rows_of("~backup.parquet").num_rows == 5


def test_single_file_of_any_name(tmp_path: Path) -> None:
    """A file that is named outright is read whatever its name is."""
    table = sample(5)
    for name in ("scores", "_hidden.dat", "odd[1]*.bin"):
        assert rows_of(put(tmp_path / name, table)).equals(table.select(COLUMNS))


def test_uri_with_characters_to_escape(tmp_path: Path) -> None:
    """A URI may be written with spaces and umlauts, escaped or not, and with a pattern."""
    put(tmp_path / "my nights ü" / "part 1.parquet", sample(5))
    assert rows_of(f"file://{tmp_path}/my nights ü/part 1.parquet").num_rows == 5
    assert rows_of((tmp_path / "my nights ü").as_uri() + "/*.parquet").num_rows == 5


def test_partitions_of_plain_directories(tmp_path: Path) -> None:
    """Without Hive directories, a file is its own partition."""
    put(tmp_path / "in" / "b.parquet", sample(3))
    put(tmp_path / "in" / "sub" / "a.parquet", sample(3))
    assert [piece.partition for piece in plan(tmp_path / "in", COLUMNS).pieces] == ["b.parquet", "sub/a.parquet"]
    assert [piece.partition for piece in plan(tmp_path / "in" / "b.parquet", COLUMNS).pieces] == ["b.parquet"]


def test_partitions_of_clashing_inputs(tmp_path: Path) -> None:
    """Two inputs that would share a partition's name are told apart by their directories."""
    names = [str(put(tmp_path / team / "part-0.parquet", sample(3))) for team in ("mail", "chat")]
    assert [piece.partition for piece in plan(names, COLUMNS).pieces] == ["mail/part-0.parquet", "chat/part-0.parquet"]
    trees = [put(tmp_path / team / "night=1" / "p.parquet", sample(3)).parents[1] for team in ("x", "y/z")]
    found = [(piece.partition, piece.origin) for piece in plan(trees, COLUMNS).pieces]
    assert found == [("x/night=1", "x/night=1"), ("y/z/night=1", "y/z/night=1")]


def test_hive_keys_are_columns(tmp_path: Path) -> None:
    """A Hive key that is asked for is a string column, decoded, with Hive's null as null; a file's own column wins."""
    for night in ("a%20b", "__HIVE_DEFAULT_PARTITION__"):
        put(tmp_path / f"night={night}" / "p.parquet", sample(2))
    put(tmp_path / "night=z" / "p.parquet", sample(2).append_column("night", pa.array(["own"] * 2)))
    table = rows_of(tmp_path, ["night", "label"])
    assert table.schema.field("night").type == pa.string()
    assert table["night"].to_pylist() == [None, None, "a b", "a b", "own", "own"]
    assert rows_of(tmp_path, ["night"]).num_rows == 6


@pytest.mark.parametrize("names", ["night=1/x/night=2", "night=1/ni%67ht=__HIVE_DEFAULT_PARTITION__"])
def test_a_key_with_two_values_is_refused(tmp_path: Path, names: str) -> None:
    """The path does not say which one counts; the same value twice is one."""
    put(tmp_path / names / "p.parquet", sample(2))
    for columns in (["night", "label"], ["label"]):
        with pytest.raises(SchemaError, match=r"ht=[^/]*/p\.parquet: .* 'night' two values, 1 and .*; rename one of"):
            rows_of(tmp_path, columns)
    put(tmp_path / "two" / "night=1" / "night=1" / "p.parquet", sample(2))
    assert rows_of(tmp_path / "two", ["night"])["night"].to_pylist() == ["1", "1"]


def test_dataset_partition_keys_keep_their_type(tmp_path: Path) -> None:
    """A dataset's partition keys are columns of the dataset's type, also when the path does not spell the key."""
    for night in (1, 2):
        put(tmp_path / str(night) / "p.parquet", sample(2))
    dataset = pads.dataset(tmp_path, partitioning=pads.partitioning(pa.schema({"night": pa.int16()})))
    table = rows_of(dataset, ["label", "night"])
    assert table.schema.field("night").type == pa.int16()
    assert table["night"].to_pylist() == [1, 1, 2, 2]
    assert [piece.partition for piece in plan(dataset, ["night"]).pieces] == ["1", "2"]
    inferred = pads.dataset(
        tmp_path, partitioning=pads.DirectoryPartitioning.discover(["night"], infer_dictionary=True)
    )
    assert rows_of(inferred, ["night"])["night"].to_pylist() == [1, 1, 2, 2]


def test_dataset_of_chosen_row_groups(tmp_path: Path) -> None:
    """A fragment of some row groups is read without the others, and only its rows are numbered."""
    table = sample(100)
    path = put(tmp_path / "a.parquet", table, row_group_size=10)
    fragment = next(iter(pads.dataset(path).get_fragments())).subset(row_group_ids=[1, 2, 7])
    dataset = pads.FileSystemDataset([fragment], table.schema, fragment.format, fragment.filesystem)
    assert [(piece.row, piece.rows) for piece in plan(dataset, COLUMNS).pieces] == [(0, 20), (20, 10)]
    expected = pa.concat_tables([table.slice(10, 20), table.slice(70, 10)]).select(COLUMNS)
    assert rows_of(dataset).equals(expected.combine_chunks())


def test_datasets_of_other_formats(tmp_path: Path) -> None:
    """Feather and CSV datasets are read by Arrow's scanner, with their partition keys, again on every call."""
    table = sample(10)
    for night in ("1", "2"):
        (tmp_path / "csv" / f"night={night}").mkdir(parents=True)
        pa_csv.write_csv(table, tmp_path / "csv" / f"night={night}" / "a.csv")
    dataset = pads.dataset(tmp_path / "csv", format="csv", partitioning="hive")
    scan = plan(dataset, ["label", "night"])
    assert (scan.rows, [piece.partition for piece in scan.pieces]) == (-1, ["night=1", "night=2"])
    assert rows_of(dataset, ["label", "night"])["night"].to_pylist() == [1] * 10 + [2] * 10
    pads.write_dataset(table, tmp_path / "feather", format="feather")
    assert rows_of(pads.dataset(tmp_path / "feather", format="feather")).num_rows == 10


def test_memory_and_union_datasets(tree: Path) -> None:
    """Datasets in memory, and unions of anything, give all their rows."""
    table = sample(10)
    assert rows_of(pads.dataset(table)).equals(table.select(COLUMNS))
    on_disk = pads.dataset(str(tree / "night=2026-01-01" / "part-0.parquet"))
    union = pads.dataset([pads.dataset(table), on_disk])
    assert rows_of(union).num_rows == 60
    assert [piece.partition for piece in plan(union, COLUMNS).pieces] == ["", "night=2026-01-01"]


def test_another_file_system(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that is not the local one, footers come on Arrow's I/O threads and the rows are the same."""
    monkeypatch.setattr(footers, "BLOCK_FILES", 3)
    remote = fs.SubTreeFileSystem(str(tree.parent), fs.LocalFileSystem())
    dataset = pads.dataset("scores", filesystem=remote, partitioning="hive", exclude_invalid_files=True)
    assert rows_of(dataset).equals(in_order(tree))
    assert rows_of(dataset, threads=1).equals(in_order(tree))
    assert plan(dataset, COLUMNS).pieces[0].name.endswith("://scores/night=2026-01-01/part-0.parquet")


def test_slow_footers_are_read_in_parallel(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first footers were slow the others are fetched side by side, with the same plan; bad ones are named."""
    monkeypatch.setattr(footers, "BLOCK_FILES", 2)
    expected = plan(tree, COLUMNS)
    monkeypatch.setattr(footers, "SLOW_FOOTER", 0.0)
    assert plan(tree, COLUMNS) == expected
    (tree / "night=2026-01-03" / "part-1.parquet").write_bytes(b"PAR1")
    assert plan(tree, COLUMNS, on_error="skip").rows == 150
    refuses(CorruptFileError, r"03/part-1.parquet", plan, tree, COLUMNS)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: table.to_batches(max_chunksize=30),
        lambda table: [table.slice(0, 10), table.slice(10)],
        lambda table: (table.slice(0, 10), table.slice(10).drop_columns("text")),
        lambda table: table.to_reader(max_chunksize=40),
        lambda table: [table.slice(0, 10), table.slice(10).to_reader()],
        Exporter,
        lambda table: ArrayExporter(table.to_batches()[0]),
        lambda table: table.to_pandas(),
        lambda table: table.to_pandas().set_index("text"),
        lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    ],
)
def test_data_in_memory(wrap: Any) -> None:
    """Tables, batches, readers, frames and Arrow exporters give their rows in order, under the empty partition."""
    table = sample(100)
    assert rows_of(wrap(table)).combine_chunks().equals(table.select(COLUMNS))
    assert {piece.partition for piece in plan(wrap(table), COLUMNS).pieces} == {""}


def test_tables_are_cut_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large table makes pieces of about equal size that share its buffers; rows are counted through all tables."""
    monkeypatch.setattr(memory, "SLICE_ROWS", 40)
    table = sample(100)
    scan = plan([table, table.drop_columns("text")], COLUMNS)
    assert [(piece.row, piece.rows) for piece in scan.pieces[:3]] == [(0, 33), (33, 33), (66, 34)]
    assert [piece.row for piece in scan.pieces[3:]] == [100, 133, 166]
    batch = next(read(scan.pieces[1], scan.schema))
    assert batch["score"].buffers()[1].address == table["score"].chunk(0).buffers()[1].address
    assert scan.nbytes == pytest.approx(2 * 100 * 5, abs=6)


def test_tables_and_files_together(tree: Path) -> None:
    """A list may mix tables and paths, and keeps its order."""
    table = sample(10)
    data = [tree / "night=2026-01-02", table, tree / "night=2026-01-01"]
    assert [piece.partition for piece in plan(data, COLUMNS).pieces] == ["night=2026-01-02", "", "night=2026-01-01"]
    assert rows_of(data).num_rows == 110


def test_reader_is_read_once() -> None:
    """A second pass over a reader is an error with a remedy, not an empty result; an exporter can be read again."""
    table = sample(10)
    scan = plan(table.to_reader(), COLUMNS)
    assert (scan.rows, scan.splittable, len(scan.pieces)) == (-1, False, 1)
    assert sum(batch.num_rows for batch in read(scan.pieces[0], scan.schema)) == 10
    refuses(MissingInputError, r"only once.*a table or a path", list, read(scan.pieces[0], scan.schema))
    scan = plan(Exporter(table), COLUMNS)
    assert [sum(batch.num_rows for batch in read(scan.pieces[0], scan.schema)) for _ in range(2)] == [10, 10]


def test_frames_convert_what_is_asked_for() -> None:
    """A frame's other columns may be anything; missing floats are nulls, categories dictionaries."""
    frame = pd.DataFrame({"score": [0.5, None], "c": pd.Categorical(["x", "y"]), "mess": [1, "a"], 7: [1, 2]})
    table = rows_of(frame, ["score", "c"])
    assert table["score"].to_pylist() == [0.5, None]
    assert table["c"].to_pylist() == ["x", "y"]
    with pytest.raises(SchemaError, match=r"DataFrame: column 'mess' mixes types.*astype") as raised:
        plan(frame, ["mess"])
    assert isinstance(raised.value.__cause__, pa.ArrowException)
    refuses(MissingColumnError, r"did you mean 'score'\? It has: score, c, mess, 7", plan, frame, ["scor"])
    refuses(SchemaError, "2 columns are named 'a'", plan, pd.DataFrame([[1, 2]], columns=["a", "a"]), ["a"])


def test_scan_imports_no_frame_or_engine(tree: Path) -> None:
    """Planning and reading files brings in neither pandas nor dask nor numba, nor datasets, which import pandas."""
    code = (
        "import sys, streameval; before = set(sys.modules);"
        "from streameval.scan import plan, read; scan = plan(sys.argv[1], ['score']);"
        "rows = sum(batch.num_rows for piece in scan.pieces for batch in read(piece, scan.schema));"
        "print(rows, {'pandas', 'dask', 'numba', 'pyarrow.dataset'} & set(sys.modules) - before)"
    )
    command = [sys.executable, "-c", code, str(tree)]
    done = subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.stdout == "200 set()\n"


# Pieces and batches


def test_row_groups_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small neighbouring row groups make one piece, large ones stay alone; rows and bytes add up."""
    monkeypatch.setattr(footers, "GATHER_ROWS", 25)
    path = put(tmp_path / "a.parquet", sample(95), row_group_size=10)
    scan = plan(path, COLUMNS)
    assert [(piece.row, piece.rows) for piece in scan.pieces] == [(0, 20), (20, 20), (40, 20), (60, 20), (80, 15)]
    footer = pq.read_metadata(path)
    sizes = [footer.row_group(i).column(j).total_compressed_size for i in range(10) for j in (0, 2)]
    assert scan.nbytes == sum(piece.nbytes for piece in scan.pieces) == sum(sizes)


def test_pieces_travel(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of files survive pickling, small, without the footer they share at home."""
    monkeypatch.setattr(footers, "GATHER_ROWS", 10)
    path = put(tree / "wide.parquet", sample(1000), row_group_size=10)
    scan = plan(path, COLUMNS)
    assert scan.pieces[0].source.footer is scan.pieces[1].source.footer is not None
    data = pickle.dumps(scan.pieces[50])
    assert len(data) < 1000
    there = pickle.loads(data)
    assert there == scan.pieces[50]
    assert there.source.footer is None
    assert list(read(there, scan.schema)) == list(read(scan.pieces[50], scan.schema))
    hive = plan(tree / "night=2026-01-01", ["night", "label"])
    assert pickle.loads(pickle.dumps(hive.pieces[0])).constants == hive.pieces[0].constants


def test_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of one file join into one piece; gaps, other files and tables do not."""
    monkeypatch.setattr(footers, "GATHER_ROWS", 10)
    tables = [sample(40, seed) for seed in (0, 1)]
    paths = [put(tmp_path / f"{i}.parquet", table, row_group_size=10) for i, table in enumerate(tables)]
    scan = plan([*paths, sample(5)], COLUMNS)
    joined = join(scan.pieces)
    assert [(piece.row, piece.rows) for piece in joined] == [(0, 40), (40, 40), (80, 5)]
    assert sum(piece.nbytes for piece in joined) == scan.nbytes
    batches = [batch for piece in joined for batch in read(piece, scan.schema)]
    assert pa.Table.from_batches(batches[:1]).equals(tables[0].select(COLUMNS))
    apart = [scan.pieces[0], scan.pieces[2], scan.pieces[3], scan.pieces[1]]
    assert [(piece.row, piece.rows) for piece in join(apart)] == [(0, 10), (20, 20), (10, 10)]


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
def test_batches_have_the_size_asked_for(tmp_path: Path, batch_rows: int) -> None:
    """No batch is larger than asked, small chunks are put together, and the rows do not depend on it."""
    table = sample(200).append_column("c", pa.array([f"c{i % 3}" for i in range(200)]).dictionary_encode())
    path = put(tmp_path / "a.parquet", table, row_group_size=9)
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=3))
    for data in (path, chunked, chunked.to_reader(), table.to_reader()):
        scan = plan(data, ["c", "score"])
        batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, batch_rows)]
        assert max(batch.num_rows for batch in batches) <= batch_rows
        assert len(batches) <= 2 * -(-200 // batch_rows) + 1
        merged = pa.Table.from_batches(batches)
        assert merged["c"].to_pylist() == table["c"].to_pylist()
        assert merged["score"].to_pylist() == table["score"].to_pylist()


def test_a_streamed_chunk_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a buffer of it and the page that is decoded, whatever Arrow reads ahead by default."""
    monkeypatch.setattr(row_groups, "LARGE_CHUNK", 1 << 16)
    monkeypatch.setattr(row_groups, "STREAM_BUFFER", 1 << 12)
    table = pa.table({"score": np.random.default_rng(0).random(1 << 17)})
    path = put(tmp_path / "a.parquet", table, use_dictionary=False, data_page_size=1 << 12)
    scan = plan(path, ["score"])
    before = pa.total_allocated_bytes()
    batches = read(scan.pieces[0], scan.schema, 1 << 10)
    next(batches)
    taken = pa.total_allocated_bytes() - before
    batches.close()
    assert taken < table.nbytes // 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_files_are_closed(tree: Path) -> None:
    """No file stays open after planning, after reading, or after a reading that was given up."""

    def within() -> list[str]:
        return [path for path in opened() if path.startswith(str(tree))]

    scan = plan(tree, COLUMNS)
    assert within() == []
    batches = read(scan.pieces[0], scan.schema, 5)
    next(batches)
    assert len(within()) == 1
    batches.close()
    assert within() == []
    assert len(list(read(scan.pieces[0], scan.schema))) == 1
    assert within() == []


def test_names_with_dots(tmp_path: Path) -> None:
    """A dot in a flat column's name is part of the name."""
    put(tmp_path / "a.parquet", pa.table({"a": [1], "a.b": [2], "a.b.c": [3]}))
    assert rows_of(tmp_path, ["a.b", "a"]).to_pydict() == {"a.b": [2], "a": [1]}
    assert plan(tmp_path, ["a"]).nbytes < plan(tmp_path, ["a.b", "a"]).nbytes


def test_empty_files_do_not_count(tmp_path: Path) -> None:
    """Files without rows or without row groups are fine, whatever their types and columns are."""
    table = sample(4)
    put(tmp_path / "a.parquet", pa.table({"score": pa.array([], pa.string())}))
    pq.ParquetWriter(tmp_path / "b.parquet", table.schema).close()
    put(tmp_path / "c.parquet", table)
    assert rows_of(tmp_path).equals(table.select(COLUMNS))


# Widening

WIDENED = [
    ("int8 int32", pa.int32()),
    ("int8 int16 int64", pa.int64()),
    ("uint8 uint64", pa.uint64()),
    ("int8 uint8", pa.int16()),
    ("uint8 int32", pa.int32()),
    ("uint16 int16", pa.int32()),
    ("uint32 int8", pa.int64()),
    ("uint64 int8", None),
    ("float16 float32", pa.float32()),
    ("float16 float32 float64", pa.float64()),
    ("int8 float16", pa.float16()),
    ("int16 float16", pa.float32()),
    ("int8 float32", pa.float32()),
    ("uint16 float32", pa.float32()),
    ("int32 float32", pa.float64()),
    ("uint32 float64", pa.float64()),
    ("uint32 int32 float32", pa.float64()),
    ("int64 float64", None),
    ("uint64 float32", None),
    ("string large_string", pa.large_string()),
    ("string string_view", pa.large_string()),
    ("binary large_binary", pa.large_binary()),
    ("binary_view binary", pa.large_binary()),
    ("string binary", None),
    ("bool int8", None),
    ("string int64", None),
    ("null bool", pa.bool_()),
    ("null null", pa.null()),
    ("null float32 float16", pa.float32()),
    ("date32 date32", pa.date32()),
    ("date32 int32", None),
]


@pytest.mark.parametrize(("names", "expected"), WIDENED)
def test_widening_matrix(names: str, expected: pa.DataType | None) -> None:
    """The smallest lossless type, whatever the order of the files, and the same when asked for the result again."""
    kinds = [pa.bool_() if name == "bool" else getattr(pa, name)() for name in names.split()]
    for order in itertools.permutations(kinds):
        assert widen(order) == expected
    if expected is not None:
        assert widen([*kinds, expected]) == expected


def test_widening_of_decimals() -> None:
    """Decimals keep their digits before and after the point."""
    assert widen([pa.decimal128(5, 2), pa.decimal128(18, 2)]) == pa.decimal128(18, 2)
    assert widen([pa.decimal128(5, 2), pa.decimal128(5, 4)]) == pa.decimal128(7, 4)
    assert widen([pa.decimal32(5, 2), pa.decimal64(12, 2)]) == pa.decimal128(12, 2)
    assert widen([pa.decimal128(38, 0), pa.decimal128(38, 10)]) == pa.decimal256(48, 10)
    assert widen([pa.decimal256(76, 0), pa.decimal256(76, 10)]) is None
    assert widen([pa.decimal128(5, 2), pa.float64()]) is None


def test_widening_of_dictionaries() -> None:
    """Dictionaries of strings stay so only when all files have them; others are decoded."""
    text, wide = pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())
    assert widen([text]) == pa.dictionary(pa.int32(), pa.string())
    assert widen([text, wide]) == wide
    assert widen([text, pa.null()]) == pa.dictionary(pa.int32(), pa.string())
    assert widen([text, pa.string()]) == pa.string()
    assert widen([text, pa.large_string()]) == pa.large_string()
    assert widen([pa.dictionary(pa.int8(), pa.int32()), pa.int64()]) == pa.int64()
    assert widen([pa.dictionary(pa.int8(), pa.int32())]) == pa.int32()
    assert widen([text, pa.int8()]) is None
    assert widen([text, pa.dictionary(pa.int8(), pa.binary())]) is None


CONFORMED = [
    (pa.array([1, None, -3], pa.int8()), pa.float16()),
    (pa.array([1, None, 3], pa.uint32()), pa.int64()),
    (pa.array(np.array([0.5, -2.0], np.float16)), pa.float32()),
    (pa.array(np.array([0.5, -2.0], np.float16)), pa.float64()),
    (pa.array(["a", None], pa.string_view()), pa.large_string()),
    (pa.array([b"a", None], pa.binary_view()), pa.large_binary()),
    (pa.array([b"ab", None], pa.binary(2)), pa.large_binary()),
    (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), pa.decimal128(7, 4)),
    (pa.nulls(3), pa.dictionary(pa.int32(), pa.string())),
    (pa.nulls(3), pa.float64()),
    (pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.string()),
    (pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.large_string()),
    (pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.dictionary(pa.int32(), pa.large_string())),
    (pa.array([5, None, 7, 5], pa.int16()).dictionary_encode(), pa.int16()),
    (pa.array([5, None, 7, 5], pa.int16()).dictionary_encode(), pa.float64()),
    (pa.array(["a", "a", "b"]).cast(pa.dictionary(pa.int8(), pa.string())), pa.dictionary(pa.int32(), pa.string())),
    (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), pa.large_string()),
    (pa.array([b"0123456789abcdef", None], pa.uuid()), pa.binary(16)),
]


@pytest.mark.parametrize(("array", "kind"), CONFORMED, ids=lambda value: str(getattr(value, "type", value)))
def test_conform_keeps_values(array: pa.Array, kind: pa.DataType) -> None:
    """The cast to the widened type changes no value, of slices neither."""
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    for part, expected in ((array, plain), (array.slice(1), plain.slice(1))):
        result = conform(part, kind)
        result.validate(full=True)
        assert result.type == kind
        assert result.to_pylist() == expected.to_pylist()
    assert conform(result, kind) is result


def test_files_of_different_types(tmp_path: Path) -> None:
    """Files of several types are read as the widest, dictionary and plain together, all-null columns too."""
    ids = ["x", None, "y"]
    put(tmp_path / "a.parquet", pa.table({"s": pa.array([1, 2, 3], pa.int16()), "c": ids}))
    put(tmp_path / "b.parquet", pa.table({"s": np.float32([0.5, 1, 2]), "c": pa.array(ids).dictionary_encode()}))
    put(tmp_path / "c.parquet", pa.table({"s": pa.nulls(3), "c": pa.array(ids, pa.large_string())}))
    table = rows_of(tmp_path, ["c", "s"])
    assert table.schema == pa.schema({"c": pa.large_string(), "s": pa.float32()})
    assert table["c"].to_pylist() == ids * 3
    assert table["s"].to_pylist() == [1, 2, 3, 0.5, 1, 2, None, None, None]


def test_types_that_clash(tmp_path: Path) -> None:
    """Files whose types nothing holds are refused by both names, both types, and the column."""
    put(tmp_path / "a.parquet", pa.table({"x": pa.array([1], pa.int8())}))
    put(tmp_path / "b.parquet", pa.table({"x": [1]}))
    put(tmp_path / "c.parquet", pa.table({"x": [0.5]}))
    refuses(SchemaError, r"c.parquet: column 'x' is double, but int64 in \S*/b.parquet", plan, tmp_path, ["x"])


# Errors


def test_missing_inputs(tmp_path: Path) -> None:
    """Paths that do not exist, patterns without a match and empty directories are named."""
    refuses(MissingInputError, "/nowhere: no such file or directory", plan, tmp_path / "nowhere", COLUMNS)
    refuses(MissingInputError, "nowhere: no such file or directory", plan, (tmp_path / "nowhere").as_uri(), COLUMNS)
    for pattern in ("*.parquet", "nowhere/*/x", "**/*.parquet", "**"):
        refuses(MissingInputError, "the pattern matches no file", plan, f"{tmp_path}/{pattern}", COLUMNS)
    (tmp_path / "_hidden").touch()
    refuses(MissingInputError, "holds no Parquet files", plan, tmp_path, COLUMNS)
    refuses(MissingInputError, "path is empty", plan, "", COLUMNS)
    refuses(MissingInputError, "no rows", plan, [], COLUMNS)


def test_no_rows(tmp_path: Path) -> None:
    """Data without a single row are refused."""
    put(tmp_path / "a.parquet", sample(0))
    for data in (tmp_path, sample(0), [tmp_path / "a.parquet", sample(0)], sample(0).to_pandas()):
        refuses(MissingInputError, "no rows", plan, data, COLUMNS)


def test_uris_that_cannot_be_opened() -> None:
    """A URI with an unknown scheme is an error, and its credentials are not repeated."""
    refuses(MissingInputError, r"^nope://bucket/x: cannot open this URI", plan, "nope://bucket/x", COLUMNS)
    raised = refuses(MissingInputError, "", plan, "s3://key:secret@bucket/x?not_an_option=hidden", COLUMNS)
    assert raised.startswith("s3://bucket/x: cannot open")
    assert "secret" not in raised


def test_missing_columns(tree: Path) -> None:
    """A missing column names the file, the nearest column, and what there is, Hive keys included."""
    raised = refuses(
        MissingColumnError, r"01/part-0.parquet: no column 'scroe'; did you mean 'score'\?", plan, tree, ["scroe"]
    )
    assert raised.endswith("It has: label, text, score, night")
    put(tree / "night=2026-01-04" / "p.parquet", pa.table({f"x{i}": [i] for i in range(60)}))
    with pytest.raises(
        MissingColumnError, match=r"04/p.parquet: no column 'score'; it has: x0, .*, x39, … \(61 in all\)"
    ):
        plan(tree, ["score"])
    refuses(MissingColumnError, "the Table: no column 'a'", plan, pa.table({"b": [1]}), ["a"])


def test_names_that_look_alike_are_spelled_out() -> None:
    """What is suggested for a name must not look like that name."""
    with pytest.raises(MissingColumnError, match=r"no column 'caf\u00e9'; did you mean 'cafe\\u0301'\? It has"):
        plan(pa.table({"cafe\u0301": [1]}), ["caf\u00e9"])


def test_columns_named_twice(tmp_path: Path) -> None:
    """Two columns of one name in a file cannot be told apart."""
    put(tmp_path / "a.parquet", pa.table([[1], [2]], names=["x", "x"]))
    refuses(SchemaError, r"a.parquet: 2 columns are named 'x'", plan, tmp_path, ["x"])


def test_damage_of_any_byte(tmp_path: Path) -> None:
    """Whatever bytes of pages, magic or footer length are changed, nothing but the library's own errors comes out."""
    path = put(tmp_path / "a.parquet", sample(500).slice(0, 300), row_group_size=100)
    raw = path.read_bytes()
    random = np.random.default_rng(5)
    pages = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    refused = 0
    for trial in range(150):
        spoilt = np.frombuffer(raw, np.uint8).copy()
        # not inside the footer: some pyarrow versions abort on some of its damage, which no test should wait for
        first, last = (len(raw) - 8, len(raw)) if trial % 2 else (0, pages)
        spoilt[random.integers(first, last, 3)] = random.integers(0, 256, 3)
        path.write_bytes(spoilt.tobytes())
        with suppress(DataError):
            rows_of(path, ["label", "text", "score"], threads=1)
            continue
        refused += 1
    assert refused > 50


def test_files_that_change(tmp_path: Path) -> None:
    """A file that is gone, or another one, by the time it is read is named."""
    path = put(tmp_path / "a.parquet", sample(50))
    scan = plan(path, COLUMNS)
    planned = path.stat()
    put(path, sample(40))
    with pytest.raises(CorruptFileError, match=r"a.parquet: it has [\d,]+ bytes where the listing said .*run again"):
        list(read(scan.pieces[0], scan.schema))
    path.write_bytes(path.read_bytes().ljust(planned.st_size, b"."))
    with pytest.raises(CorruptFileError, match=r"a.parquet: it was replaced or changed since it was listed"):
        list(read(scan.pieces[0], scan.schema))
    path.unlink()
    refuses(MissingInputError, r"a.parquet: no such file", list, read(scan.pieces[0], scan.schema))


def _replace(path: Path, other: bytes) -> None:
    (path.parent / "new").write_bytes(other)
    (path.parent / "new").replace(path)


def _grow(path: Path, other: bytes) -> None:
    with path.open("ab") as file:
        file.write(other)


CHANGES = {
    "replaced": _replace,
    "overwritten": lambda path, other: path.write_bytes(other),
    "truncated": lambda path, _: os.truncate(path, path.stat().st_size // 2),
    "grown": _grow,
    "removed": lambda path, _: path.unlink(),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("keep_time", [False, True])
def test_files_that_change_while_they_are_read(tmp_path: Path, how: str, keep_time: bool) -> None:
    """Between two batches of a file, another takes its place: an error by name, or the file is left out."""
    data = sample(3000)
    path = put(tmp_path / "in" / "a.parquet", data, compression="none", use_dictionary=False)
    other = pa.table(
        {
            name: column[::-1] if name == "score" else column
            for name, column in zip(data.column_names, data.columns, strict=True)
        }
    )
    twin = put(tmp_path / "b", other, compression="none", use_dictionary=False).read_bytes()
    scan = plan(path, COLUMNS)
    times = path.stat()
    batches = read(scan.pieces[0], scan.schema, 1000)
    next(batches)
    CHANGES[how](path, twin)
    if keep_time and path.exists():
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if keep_time and how == "overwritten":
        return  # same name, inode, size and time: nothing tells
    refuses(CorruptFileError, r"in/a.parquet: (it was (replaced|removed)|cannot be read)", list, batches)


def test_a_file_that_changes_is_left_out_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With on_error='skip', none of its row groups counts, also those that were read before."""
    monkeypatch.setattr(footers, "GATHER_ROWS", 500)
    monkeypatch.setattr(folding, "BATCH_ROWS", 500)
    put(tmp_path / "in" / "a.parquet", sample(100))
    path = put(tmp_path / "in" / "b.parquet", sample(3000), row_group_size=500)

    def progress(seen: int, total: int) -> None:
        if 100 < seen < total:
            os.utime(path, ns=(0, 0))

    found = evaluate(tmp_path / "in", score="score", on_error="skip", threads=1, progress=progress)
    assert found.rows == 100
    assert found.skipped[0][0] == str(path)
    assert "replaced or changed" in found.skipped[0][1]


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError("AWS Error ACCESS_DENIED during GET")]
)
def test_permission_denied(tree: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """A file that may not be read is named with that reason, in planning and in reading, locally and in a store."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    scan = plan(tree, COLUMNS)
    with monkeypatch.context() as patch:
        patch.setattr(pq, "read_metadata", refuse)
        refuses(CorruptFileError, r"01/part-0.parquet: permission denied; grant read access", plan, tree, COLUMNS)
    monkeypatch.setattr(pa, "OSFile", refuse)
    refuses(CorruptFileError, r"01/part-0.parquet: permission denied", list, read(scan.pieces[0], scan.schema))


def test_readers_that_fail() -> None:
    """A reader that breaks off is an error of the data, with its cause."""

    def batches() -> Any:
        yield sample(3).to_batches()[0]
        raise OSError("the line is dead")

    scan = plan(pa.RecordBatchReader.from_batches(sample(0).schema, batches()), COLUMNS)
    with pytest.raises(DataError, match=r"the RecordBatchReader: cannot be read: .*the line is dead"):
        list(read(scan.pieces[0], scan.schema))


def test_options() -> None:
    """Unknown kinds of data, unknown policies and an empty request are errors of the call."""
    refuses(OptionError, "cannot read data of type int", plan, 3, COLUMNS)
    refuses(OptionError, "'raise' or 'skip', not 'ignore'", plan, sample(1), COLUMNS, on_error="ignore")
    refuses(OptionError, "at least one column", plan, sample(1), [])


def test_globs_list_only_what_they_need(tree: Path) -> None:
    """Hidden names match only a pattern that shows the dot; directories that a pattern matches are walked."""
    assert [Path(file.path).name for file in locate(f"{tree}/night=2026-01-01/.p*")] == [".part-0.parquet"]
    assert len(locate(f"{tree}/*")) == 4
    assert len(locate(f"{tree}/**/night=*/*.parquet")) == 4
    assert len(locate(f"{tree}/night=2026-01-0[!3]/part-0.parquet")) == 2
