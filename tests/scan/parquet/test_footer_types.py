"""A column of a type that Arrow does not know leaves the other columns of its file readable."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from streameval import Store, evaluate
from streameval.errors import CorruptFileError, SchemaError
from streameval.scan import plan, read
from streameval.scan.parquet import footers
from streameval.scan.parquet.ranges import footer_at, footer_of, typed
from streameval.scan.parquet.statistics import survey

if TYPE_CHECKING:
    from pathlib import Path

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
    with pytest.raises((pa.ArrowException, ValueError, TypeError)):
        pq.read_metadata(path)
    assert evaluate(path, score="score").value("roc_auc") == 0.875
    assert evaluate(tmp_path / "data", score="score", by=["text"], where="text != 'd'").rows == 8
    store = Store(tmp_path / "store")
    store.update(tmp_path / "data", score="score", metrics=["roc_auc"])
    assert store.evaluate().rows == 8
    assert [file["rows"] for entry in store.partitions() for file in entry.noted["files"]] == [4, 4]
    assert {"label", "score", "text"} < {one.name for one in survey([str(path)])}
    with path.open("rb") as raw, pa.PythonFile(raw, mode="r") as handle:
        assert footer_of(handle).num_rows == 4


def test_on_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where footers are read in parallel, as a dataset."""
    wide(tmp_path / "a.parquet")
    pq.write_table(pa.table(ROWS), tmp_path / "b.parquet")
    monkeypatch.setattr(footers, "SLOW_FOOTER", 0.0)
    monkeypatch.setattr(footers, "BLOCK_FILES", 1)
    assert evaluate(tmp_path, score="score").rows == 8
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    assert footer_at(remote, "a.parquet").num_rows == 4
    scan = plan(f"{tmp_path}/a.parquet", ["score"])
    assert sum(batch.num_rows for piece in scan.pieces for batch in read(piece, scan.schema)) == 4


def test_zones_that_are_not_known_are_refused(tmp_path: Path) -> None:
    """Parquet itself keeps no zone, and hours would be others; the remedy is to write the file without the column."""
    path = wide(tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"a\.parquet: the time zone of column 'sent' .* without that column"):
        evaluate(path, score="score", by=["hour(sent)"])
    pl.read_parquet(path).drop("big").write_parquet(path)
    assert typed(footer_at(fs.LocalFileSystem(), str(path)))
    assert evaluate(path, score="score", by=["hour(sent)"]).rows == 4


@pytest.mark.parametrize("cut", [1, 9, 60])
def test_a_damaged_footer_is_still_refused(tmp_path: Path, cut: int) -> None:
    """With the message of Arrow, whether or not it has a type that Arrow does not know."""
    path = wide(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptFileError, match=r"a\.parquet: cannot be read"):
        plan(path, ["score"])
