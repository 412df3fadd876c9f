"""Long texts that are repeated: a file of a kilobyte may decode to gigabytes, so each is held once, or few at once."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from streameval import evaluate
from streameval.engine.scratch import scratch_bytes
from streameval.scan import plan, read
from streameval.scan.parquet import footers, row_groups
from streameval.scan.parquet.pages import TEXT_BYTES, Dictionary, fitting_rows, largest_page
from streameval.scan.where import Where
from streameval.scan.widen import is_text

if TYPE_CHECKING:
    from pathlib import Path

LONG = "x" * (1 << 20)
ROWS = 200
USUAL = pa.default_memory_pool()
POOL = pa.proxy_memory_pool(USUAL)  # counts what is taken while it is set; as long-lived as what was taken


def write(path: Path, texts: list[str], **options: Any) -> Any:
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
    write(tmp_path / "a.parquet", texts, compression=compression, write_page_checksum=checksums)
    found, longest = chunk_of(tmp_path / "a.parquet")
    assert (found.texts, longest) == (50, 59)
    assert found.nbytes == sum(4 + len(text) for text in set(texts))


def test_chunks_without_a_dictionary_have_none(tmp_path: Path) -> None:
    """Their first page holds rows."""
    write(tmp_path / "a.parquet", ["a", "b"], use_dictionary=False)
    assert chunk_of(tmp_path / "a.parquet") == (Dictionary(), 0)


def test_a_page_that_cannot_be_read_counts_as_one_text(tmp_path: Path) -> None:
    """The largest that it can hold, so that few rows are decoded at a time."""
    footer = write(tmp_path / "a.parquet", ["a" * 100, "b"])
    chunk = footer.row_group(0).column(2)
    raw = bytearray((tmp_path / "a.parquet").read_bytes())
    with pa.OSFile(str(tmp_path / "a.parquet")) as handle:
        found = Dictionary.of(handle, chunk)
    raw[found.start : found.start + found.stored] = b"?" * found.stored
    (tmp_path / "a.parquet").write_bytes(raw)
    assert chunk_of(tmp_path / "a.parquet")[1] == found.nbytes == 109


def test_texts_that_are_not_read_cut_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary column of the file takes no memory if it is not requested."""
    texts = pa.array([f"{i:090d}" for i in range(40)]).dictionary_encode()
    pq.write_table(pa.table({"score": range(40), "text": texts}), tmp_path / "a.parquet", row_group_size=10)
    monkeypatch.setattr(row_groups, "TEXT_BYTES", 1000)
    source = row_groups.RowGroups(LocalFileSystem(), str(tmp_path / "a.parquet"), (0, 1, 2, 3), (1, 1, 1, 1))
    assert [batch.num_rows for batch in source.batches(["score"], 100)] == [40]
    assert max(batch.num_rows for batch in source.batches(["score", "text"], 100)) == 10


def test_a_long_text_that_is_repeated_is_held_once(tmp_path: Path) -> None:
    """As codes, where plain texts would take a gigabyte; its dictionary is reserved."""
    write(tmp_path / "a.parquet", [LONG] * ROWS)
    assert (tmp_path / "a.parquet").stat().st_size < 4000
    scan = plan(tmp_path, ["text"])
    assert scan.schema.field("text").type == pa.dictionary(pa.int32(), pa.string())
    [batch] = read(scan.pieces[0], scan.schema)
    assert (batch.num_rows, len(batch.column("text").dictionary)) == (ROWS, 1)
    assert scratch_bytes(pickle.loads(pickle.dumps(scan.pieces))) >= 2 * len(LONG)


@pytest.mark.parametrize("other", [["y"], [f"{i:0200d}" for i in range(ROWS)]])
def test_long_texts_are_decoded_a_few_rows_at_a_time(tmp_path: Path, other: list[str]) -> None:
    """Where another file has plain texts, so that all of them are."""
    write(tmp_path / "a.parquet", [LONG] * ROWS)
    write(tmp_path / "b.parquet", other, use_dictionary=False)
    scan = plan(tmp_path, ["text"])
    assert scan.schema.field("text").type == pa.string()
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema)]
    assert sum(batch.num_rows for batch in batches) == ROWS + len(other)
    assert max(batch.column("text").nbytes for batch in batches) <= TEXT_BYTES + 4 * ROWS
    assert {batch.num_rows for batch in batches} - {TEXT_BYTES // len(LONG), len(other)} == set()


def test_pages_of_small_row_groups_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded, they fit whatever they hold; thousands of them would take longer to plan than to read."""
    asked: list[Any] = []
    monkeypatch.setattr(footers, "_dictionary", lambda _, chunk: asked.append(chunk) or Dictionary())
    write(tmp_path / "a.parquet", [f"{i:030d}" for i in range(ROWS)], row_group_size=100)
    assert is_text(plan(tmp_path, ["text"]).schema.field("text").type)
    assert not asked
    write(tmp_path / "a.parquet", [LONG] * ROWS)
    plan(tmp_path, ["text"])
    assert len(asked) == 1


def test_a_dictionary_that_was_given_up_may_hold_long_texts(tmp_path: Path) -> None:
    """The mean length of all texts tells nothing of those rows."""
    texts = [*[LONG] * ROWS, *(f"{i * 7919 % 99991:040d}" for i in range(60_000))]
    footer = write(tmp_path / "a.parquet", texts)
    with pa.OSFile(str(tmp_path / "a.parquet")) as handle:
        assert fitting_rows(handle, footer, [0], {"text"}, 1 << 15) == TEXT_BYTES // len(LONG)
        assert fitting_rows(handle, footer, [0], {"label", "score"}, 1 << 15) == 1 << 15
    scan = plan(tmp_path, ["text"])
    assert is_text(scan.schema.field("text").type)
    batches = list(read(scan.pieces[0], scan.schema))
    assert sum(batch.num_rows for batch in batches) == len(texts)
    assert max(batch.column("text").nbytes for batch in batches) <= TEXT_BYTES + (1 << 18)


@pytest.mark.parametrize("given", [{"cluster": "text"}, {"by": "text"}, {"where": "text LIKE 'x%' AND label < 2"}])
def test_evaluations_do_not_decode_long_texts_at_once(tmp_path: Path, given: dict[str, Any]) -> None:
    """Ids, slices and filters: memory that Arrow takes stays far below that of the decoded texts."""
    write(tmp_path / "a.parquet", [LONG] * ROWS)
    score = {} if "cluster" in given else {"score": "score"}
    pa.set_memory_pool(POOL)
    try:
        assert evaluate(tmp_path, **score, **given, threads=1).rows == ROWS
    finally:
        pa.set_memory_pool(USUAL)
    assert POOL.max_memory() < 8 * TEXT_BYTES


def test_labels_that_are_long_texts_are_read_in_parts() -> None:
    """The counts are those of short labels."""
    table = {"score": [i / ROWS for i in range(ROWS)]}
    texts = [LONG if i % 3 else None if i % 2 else "no" for i in range(ROWS)]
    data = pa.table(table | {"label": pa.array(texts).dictionary_encode()})
    short = pa.table(table | {"label": ["yes" if text == LONG else text for text in texts]})
    given = {"score": "score", "unlabelled": "drop", "metrics": "roc_auc"}
    long = evaluate(data, pos_label=LONG, **given)
    assert long.results[0].value == evaluate(short, pos_label="yes", **given).results[0].value


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
