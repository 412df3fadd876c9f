"""Texts: dictionaries are read as codes, and long texts a few rows at a time."""

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from streameval import evaluate
from streameval.engine.fold import scratch_bytes
from streameval.scan import plan, read
from streameval.scan.parquet.pages import TEXT_BYTES, Dictionary, fitting_rows, largest_page
from streameval.scan.where import Where
from streameval.scan.widen import is_text
from streameval.states.keyed.ids import row_nulls

FEW = [f"c{i % 7}" for i in range(5000)]


def write(path: Path, texts: list[str | None], kind: pa.DataType, **options: bool) -> None:
    """A file of scores and texts, in several row groups."""
    rows = range(len(texts))
    columns = {"label": [i % 3 == 0 for i in rows], "score": [i * 37 % 1000 / 1000 for i in rows]}
    table = pa.table(columns | {"text": pa.array(texts).cast(kind)})
    pq.write_table(table, path, row_group_size=2000, dictionary_pagesize_limit=10_000, **options)


def texts_of(data: Path) -> tuple[pa.DataType, list[str | bytes | None]]:
    """The type in which a scan has the texts, and all of them."""
    scan = pickle.loads(pickle.dumps(plan(data, ["text"])))
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    return scan.schema.field("text").type, [text for batch in batches for text in batch.column("text").to_pylist()]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_texts_that_were_written_as_codes_are_read_as_codes(tmp_path: Path, kind: pa.DataType) -> None:
    """Of every type of texts, nulls too."""
    texts = [None if i % 11 == 0 else text for i, text in enumerate(FEW)]
    write(tmp_path / "a.parquet", texts, kind)
    expected = pa.array(texts).cast(kind).to_pylist()
    assert texts_of(tmp_path) == (pa.dictionary(pa.int32(), kind), expected)


def test_slices_do_not_depend_on_codes(tmp_path: Path) -> None:
    """The values of slices, filters and labels are those of a file without codes."""
    tables = []
    for name in ("plain", "coded"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.parquet", [*FEW, None, ""], pa.string(), use_dictionary=name == "coded")
        result = evaluate(tmp_path / name, score="score", by="text", where="text <> 'c3' OR text IS NULL")
        tables.append(result.slices("text").to_pylist())
    assert tables[0] == tables[1]
    assert len({row["text"] for row in tables[0]}) == 8


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()])
def test_labels_ids_and_filters_of_every_type_of_texts_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    """Arrow cannot decode dictionaries of views, so these are read as plain texts."""
    values = []
    for name, one in (("some", kind), ("plain", pa.string())):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.parquet", FEW, one)
        as_label = evaluate(tmp_path / name, score="score", label="text", pos_label="c1", unlabelled="drop")
        as_id = evaluate(tmp_path / name, cluster="text", classes="text", by="text", where="text > 'c2'", nulls="drop")
        values.append([result.value for each in (as_label, as_id) for result in each.results])
    assert values[0] == values[1]


ROWS, TEXTS = 24_000, 200


def texts(start: int = 0) -> list[str]:
    """Texts of 2 kB, one of which has 40 kB."""
    return [f"{i} " + "lorem ipsum " * 170 for i in range(start, start + TEXTS - 1)] + ["long " * 8000]


def sample(start: int = 0, rows: int = ROWS) -> pa.Table:
    """Rows with a dictionary column of 440 kB, which would decode to some 50 MB."""
    rng = np.random.default_rng(start)
    codes = pa.array(rng.integers(0, TEXTS, rows), pa.int32())
    columns = {"label": rng.integers(0, 2, rows), "s": rng.random(rows), "k": rng.integers(0, 4, rows)}
    return pa.table(columns | {"c": pa.DictionaryArray.from_arrays(codes, pa.array(texts(start)))})


def plain(table: pa.Table) -> pa.Table:
    """The same rows with short texts in place of the long ones."""
    short = pa.array([text[:12] for text in table["c"].chunk(0).dictionary.to_pylist()])
    codes = table["c"].combine_chunks().indices
    return table.set_column(table.schema.get_field_index("c"), "c", short.take(codes))


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Arrow's memory pool, which counts from zero; nothing frees buffers that are in cycles."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    gc.disable()
    yield counted
    gc.enable()
    pa.set_memory_pool(before)


ASKED: dict[str, dict[str, Any]] = {
    "cluster": {"cluster": "c", "metrics": ["aul"]},
    "classes": {"cluster": "k", "classes": "c", "metrics": ["rand_index"]},
    "by": {"score": "s", "by": "c", "metrics": ["roc_auc"]},
    "unit": {"score": "s", "unit": "c", "metrics": ["average_precision"]},
    "where": {"score": "s", "where": "c <> 'x' and s > 0.5", "metrics": ["roc_auc"]},
}


@pytest.mark.parametrize("name", ASKED)
def test_a_dictionary_of_an_arrow_column_is_held_once(name: str, tmp_path: Path, pool: pa.MemoryPool) -> None:
    """A column that Arrow's schema calls a dictionary, in row groups or an Arrow file; no cycle keeps it after that."""
    table = sample()
    asked = ASKED[name] | {"threads": 1}
    expected = [one.value for one in evaluate(plain(table), **asked).results]
    for size in (ROWS, 3000):
        pq.write_table(table, tmp_path / f"{size}.parquet", row_group_size=size)
    pyarrow.feather.write_feather(table, tmp_path / "a.feather", chunksize=500)
    formats = [
        tmp_path / f"{ROWS}.parquet",
        tmp_path / "3000.parquet",
        pads.dataset(tmp_path / "a.feather", format="feather"),
    ]
    held = pool.bytes_allocated()
    for data in formats:
        assert [one.value for one in evaluate(data, memory="64MiB", **asked).results] == expected
        assert pool.bytes_allocated() == held
    assert pool.max_memory() - held < 4 * TEXT_BYTES


def test_small_row_groups_are_combined_while_their_dictionaries_fit(tmp_path: Path, pool: pa.MemoryPool) -> None:
    """Row groups of other texts: neither Arrow nor a batch holds all of their dictionaries together."""
    with pq.ParquetWriter(tmp_path / "a.parquet", sample().schema) as writer:
        for i in range(60):
            writer.write_table(sample(i * TEXTS, 400))
    held = pool.bytes_allocated()
    scan = plan(tmp_path, ["label", "c"])
    batches = [batch.num_rows for piece in scan.pieces for batch in read(piece, scan.schema)]
    assert sum(batches) == ROWS
    assert max(batches) > 4000
    assert pool.max_memory() - held < 5 * TEXT_BYTES


def test_nulls_of_a_dictionary_become_nulls_of_rows(pool: pa.MemoryPool) -> None:
    """Without decoding; integers keep their type."""
    codes = pa.array(np.arange(ROWS) % TEXTS, pa.int32())
    array = pa.DictionaryArray.from_arrays(codes, pa.array([None, *texts()[1:]]))
    held = pool.bytes_allocated()
    found = row_nulls(array)
    assert pool.max_memory() - held < TEXT_BYTES
    assert (found.null_count, found.dictionary.null_count) == (ROWS // TEXTS, 0)
    assert found.slice(0, 5).to_pylist() == array.slice(0, 5).to_pylist()
    numbers = pa.DictionaryArray.from_arrays([2, 0, None, 1], pa.array([(1 << 62) + 1, None, 7]))
    assert row_nulls(numbers).to_pylist() == [7, (1 << 62) + 1, None, None]
    table = pa.table({"label": codes.to_numpy() % 2, "c": array})
    assert evaluate(table, cluster="c", nulls="drop", threads=1).results[0].rows == ROWS - ROWS // TEXTS


LONG = "x" * (1 << 20)
PAGE_ROWS = 200
USUAL = pa.default_memory_pool()
POOL = pa.proxy_memory_pool(USUAL)  # counts what is taken while it is set; as long-lived as what was taken


def write_with_footer(path: Path, texts: list[str], **options: Any) -> Any:
    """A file with labels, scores and texts, and its footer."""
    rows = range(len(texts))
    table = pa.table({"label": [i % 2 for i in rows], "score": [i % 7 / 7 for i in rows], "text": texts})
    pq.write_table(table, path, **{"compression": "zstd", **options})
    return pq.read_metadata(path)


def chunk_of(path: Path) -> tuple[Dictionary, int]:
    """The dictionary of the texts, and its longest."""
    chunk = pq.read_metadata(path).row_group(0).column(2)
    with pa.OSFile(str(path)) as handle:
        found = Dictionary.of(handle, chunk)
        return found, found.longest(handle, chunk)


@pytest.mark.parametrize("compression", ["none", "zstd", "snappy", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("checksums", [False, True])
def test_dictionaries_are_described_by_their_pages(tmp_path: Path, compression: str, checksums: bool) -> None:
    """Whatever the compression, with checksums or without."""
    texts = [f"{i % 50:0{10 + i % 50}d}" for i in range(400)]
    write_with_footer(tmp_path / "a.parquet", texts, compression=compression, write_page_checksum=checksums)
    found, longest = chunk_of(tmp_path / "a.parquet")
    assert (found.texts, longest) == (50, 59)
    assert found.nbytes == sum(4 + len(text) for text in set(texts))


def test_a_page_that_cannot_be_read_counts_as_one_text(tmp_path: Path) -> None:
    """The largest that it can hold, so that few rows are decoded at a time."""
    footer = write_with_footer(tmp_path / "a.parquet", ["a" * 100, "b"])
    chunk = footer.row_group(0).column(2)
    raw = bytearray((tmp_path / "a.parquet").read_bytes())
    with pa.OSFile(str(tmp_path / "a.parquet")) as handle:
        found = Dictionary.of(handle, chunk)
    raw[found.start : found.start + found.stored] = b"?" * found.stored
    (tmp_path / "a.parquet").write_bytes(raw)
    assert chunk_of(tmp_path / "a.parquet")[1] == found.nbytes == 109


def test_a_long_text_that_is_repeated_is_held_once(tmp_path: Path) -> None:
    """As codes, where plain texts would take a gigabyte; its dictionary is reserved."""
    write_with_footer(tmp_path / "a.parquet", [LONG] * PAGE_ROWS)
    assert (tmp_path / "a.parquet").stat().st_size < 4000
    scan = plan(tmp_path, ["text"])
    assert scan.schema.field("text").type == pa.dictionary(pa.int32(), pa.string())
    [batch] = read(scan.pieces[0], scan.schema)
    assert (batch.num_rows, len(batch.column("text").dictionary)) == (PAGE_ROWS, 1)
    assert scratch_bytes(pickle.loads(pickle.dumps(scan.pieces))) >= 2 * len(LONG)


@pytest.mark.parametrize("given", [{"cluster": "text"}, {"by": "text"}, {"where": "text LIKE 'x%' AND label < 2"}])
def test_evaluations_do_not_decode_long_texts_at_once(tmp_path: Path, given: dict[str, Any]) -> None:
    """Ids, slices and filters: memory that Arrow takes stays far below that of the decoded texts."""
    write_with_footer(tmp_path / "a.parquet", [LONG] * PAGE_ROWS)
    score = {} if "cluster" in given else {"score": "score"}
    pa.set_memory_pool(POOL)
    try:
        assert evaluate(tmp_path, **score, **given, threads=1).rows == PAGE_ROWS
    finally:
        pa.set_memory_pool(USUAL)
    assert POOL.max_memory() < 8 * TEXT_BYTES


def test_filters_of_codes_are_those_of_texts() -> None:
    """Null values, nulls of the dictionary, and values that do not occur."""
    codes = pa.array([0, 1, None, 2, 1, 3], pa.int8())
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b", None, "c", "never"]))
    plain = coded.dictionary_decode()
    conditions = ["t = 'a'", "t <> 'a'", "t IS NULL", "NOT t IN ('b', 'c')", "t LIKE '%' OR t IS NULL"]
    for where in (*map(Where.of, conditions), Where.of(pc.field("t") > "a")):
        one, other = (
            where.bound(pa.schema({"t": each.type})).kept(pa.record_batch({"t": each})) for each in (coded, plain)
        )
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_largest_page_is_that_of_the_longest_texts(version: str, tmp_path: Path) -> None:
    """Of pages of both versions, with statistics of long texts; a header that is damaged ends the walk."""
    ids = [f"{i}{'y' * 3000}" for i in range(5000)] + ["x" * (1 << 22)] + [f"{i}" for i in range(5000)]
    pq.write_table(pa.table({"ids": ids}), tmp_path / "0", use_dictionary=False, data_page_version=version)
    chunk = pq.read_metadata(tmp_path / "0").row_group(0).column(0)
    with pa.OSFile(str(tmp_path / "0")) as handle:
        assert 1 << 22 < largest_page(handle, chunk) < chunk.total_uncompressed_size
    content = bytearray((tmp_path / "0").read_bytes())
    for flipped in range(chunk.data_page_offset, chunk.data_page_offset + 20):
        damaged = content[:flipped] + bytes([content[flipped] ^ 255]) + content[flipped + 1 :]
        assert 0 <= largest_page(pa.BufferReader(bytes(damaged)), chunk) < 1 << 31


@pytest.mark.parametrize("other", [["y"], [f"{i:0200d}" for i in range(PAGE_ROWS)]])
def test_long_texts_are_decoded_a_few_rows_at_a_time(tmp_path: Path, other: list[str]) -> None:
    """Where another file has plain texts, so that all of them are."""
    write_with_footer(tmp_path / "a.parquet", [LONG] * PAGE_ROWS)
    write_with_footer(tmp_path / "b.parquet", other, use_dictionary=False)
    scan = plan(tmp_path, ["text"])
    assert scan.schema.field("text").type == pa.string()
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    assert sum(batch.num_rows for batch in batches) == PAGE_ROWS + len(other)
    assert max(batch.column("text").nbytes for batch in batches) <= TEXT_BYTES + 4 * PAGE_ROWS
    assert {batch.num_rows for batch in batches} - {TEXT_BYTES // len(LONG), len(other)} == set()


def test_a_dictionary_that_was_given_up_may_hold_long_texts(tmp_path: Path) -> None:
    """The mean length of all texts tells nothing of those rows."""
    texts = [*[LONG] * PAGE_ROWS, *(f"{i * 7919 % 99991:040d}" for i in range(60_000))]
    footer = write_with_footer(tmp_path / "a.parquet", texts)
    with pa.OSFile(str(tmp_path / "a.parquet")) as handle:
        assert fitting_rows(handle, footer, [0], {"text"}, 1 << 15) == TEXT_BYTES // len(LONG)
        assert fitting_rows(handle, footer, [0], {"label", "score"}, 1 << 15) == 1 << 15
    scan = plan(tmp_path, ["text"])
    assert is_text(scan.schema.field("text").type)
    batches = list(read(scan.pieces[0], scan.schema))
    assert sum(batch.num_rows for batch in batches) == len(texts)
    assert max(batch.column("text").nbytes for batch in batches) <= TEXT_BYTES + (1 << 18)
