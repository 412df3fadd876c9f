"""Texts that were written as codes are read as codes, whatever the writer; batches share a dictionary of long ones."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from streameval import attribute, evaluate
from streameval.engine.scratch import scratch_bytes
from streameval.scan import plan, read
from streameval.scan.parquet.pages import TEXT_BYTES
from streameval.states.keyed.ids import row_nulls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


FEW = [f"c{i % 7}" for i in range(5000)]
MANY = [f"user-{i}" for i in range(5000)]  # plain texts from row 1,000 or so on, where the dictionary is full


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


@pytest.mark.parametrize(("texts", "dictionary"), [(MANY, True), (MANY, False), (FEW, False)])
def test_plain_texts_are_read_plain(tmp_path: Path, texts: list[str], dictionary: bool) -> None:
    """Reading them as codes would look up every text; one file of them makes the whole scan plain."""
    write(tmp_path / "a.parquet", texts, pa.string(), use_dictionary=dictionary)
    assert texts_of(tmp_path) == (pa.string(), texts)
    write(tmp_path / "b.parquet", FEW, pa.string())
    assert texts_of(tmp_path) == (pa.string(), texts + FEW)


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
    """Arrow's memory pool, which counts from zero."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    yield counted
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
    """A column that Arrow's schema calls a dictionary, in one row group, several, or an Arrow file."""
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
    assert pool.max_memory() - held < 4 * TEXT_BYTES


def test_batches_of_equal_dictionaries_share_one(tmp_path: Path) -> None:
    """Those of one row group, and of row groups that the writer gave the same dictionary."""
    pq.write_table(sample(), tmp_path / "a.parquet", row_group_size=6000)
    scan = plan(tmp_path, ["c"])
    batches = [batch for piece in scan.pieces for batch in read(piece, scan.schema, 1000)]
    addresses = {batch.column("c").dictionary.buffers()[2].address for batch in batches}
    assert (sum(batch.num_rows for batch in batches), len(addresses)) == (ROWS, 1)
    assert scratch_bytes(scan.pieces) > 2 * batches[0].column("c").dictionary.nbytes  # so a warning counts it


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


def test_examples_are_decoded_a_few_rows_at_a_time(tmp_path: Path, pool: pa.MemoryPool) -> None:
    """All rows are of clusters whose examples are shown."""
    pq.write_table(sample(), tmp_path / "a.parquet", row_group_size=ROWS)
    held = pool.bytes_allocated()
    found = attribute(tmp_path, cluster="k", classes="label", examples="c", threads=1)
    assert "lorem ipsum" in str(found.to_dict())
    assert pool.max_memory() - held < 5 * TEXT_BYTES
