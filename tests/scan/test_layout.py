"""Columns of texts that were written as codes are read as codes, whatever the writer and the other files did."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import evaluate
from streameval.scan import plan, read

if TYPE_CHECKING:
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
