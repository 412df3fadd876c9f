"""Numbering: the same rows in any layout get the same numbers, by which they are sampled and dealt to blocks."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval import Accumulator, Store, evaluate

ROWS = 260


def sample() -> pa.Table:
    """Two scores of which one repeats, with a unit that is often null."""
    rng = np.random.default_rng(3)
    label = rng.integers(0, 2, ROWS)
    unit = pa.array(rng.integers(0, 40, ROWS), mask=rng.random(ROWS) < 0.5)
    scores = {"a": rng.normal(0, 1, ROWS) + label, "b": np.round(rng.normal(0, 1, ROWS) + 1.8 * label, 1)}
    return pa.table({"label": label, **scores, "unit": unit})


TABLE = sample()
ASKED = {"score": ["a", "b"], "baseline": "a", "metrics": ["average_precision", "agc_approx"], "approx_agc": True}


def inference(data: Any, **options: Any) -> list[tuple[Any, ...]]:
    """Values and intervals, and the standard errors of the sample."""
    found = evaluate(data, **ASKED, sample=0.7, **({"threads": 1} | options))
    return [(r.metric, r.of, r.rows, repr(r.value), repr(r.ci_lower), r.stderr, r.verdict) for r in found.results]


@cache
def expected(unit: str | None = None) -> list[tuple[Any, ...]]:
    """What the table in memory gives."""
    return inference(TABLE, unit=unit)


def write(folder: Path, cuts: list[int], size: int, name: str) -> Path:
    """The rows in files that end at the cuts, with unpadded numbers in their names."""
    folder.mkdir()
    for i, (start, stop) in enumerate(zip([0, *cuts], [*cuts, ROWS], strict=True)):
        pq.write_table(TABLE.slice(start, stop - start), folder / f"{name}{i}.parquet", row_group_size=size)
    return folder


@settings(max_examples=15)
@given(
    st.lists(st.integers(0, ROWS), max_size=14).map(sorted),
    st.integers(20, ROWS),
    st.sampled_from(["part-", "2026-01-1", "sub"]),
    st.sampled_from([None, "unit"]),
    st.sampled_from([1, 2]),
)
def test_the_layout_of_rows_changes_no_interval(
    tmp_path_factory: Any, cuts: list[int], size: int, name: str, unit: str | None, threads: int
) -> None:
    """Files, row groups, names, threads, and the order in which files are listed."""
    folder = write(tmp_path_factory.mktemp("layout") / "data", cuts, size, name)
    files = sorted(map(os.fspath, folder.iterdir()), reverse=True)
    data = [folder, files, pads.dataset(files)][len(cuts) % 3]
    assert inference(data, unit=unit, threads=threads) == expected(unit)


def test_a_table_has_the_intervals_of_its_file_in_any_form(tmp_path: Path) -> None:
    """Tables in a list, readers, files followed by tables, and batches of an accumulator."""
    halves = [TABLE.slice(0, 100), TABLE.slice(100)]
    for data in (halves, pa.concat_tables(halves), TABLE.to_reader(max_chunksize=7)):
        assert inference(data, passes=1) == inference(TABLE, passes=1)
    write(tmp_path / "data", [100], 50, "x")
    assert inference([tmp_path / "data/x0.parquet", halves[1]]) == expected()  # files, then what is in memory
    asked = {"score": ["a", "b"], "baseline": "a", "metrics": ["average_precision"], "threads": 1}
    batches = Accumulator(**asked)
    for half in halves:
        batches.update(half)
    assert batches.result().results == evaluate(tmp_path / "data", **asked).results


def test_filters_and_damage_change_no_number(tmp_path: Path) -> None:
    """Row groups that a filter rules out count, whether their rows are read or not."""
    order = pa.array(np.arange(ROWS))
    for name, size in (("one", ROWS), ("many", 20)):
        pq.write_table(TABLE.append_column("at", order), tmp_path / f"{name}.parquet", row_group_size=size)
    one, many = (inference(tmp_path / f"{name}.parquet", where="at >= 100") for name in ("one", "many"))
    assert one == many


def test_a_store_deals_the_rows_of_a_night_as_its_files_do(tmp_path: Path) -> None:
    """Rows without a unit, in directories of a Hive tree with several files each."""
    for i, night in enumerate(("night=1", "night=2")):
        (tmp_path / "data" / night).mkdir(parents=True)
        for part in range(2):
            pq.write_table(TABLE.slice(130 * i + 65 * part, 65), tmp_path / "data" / night / f"{part}.parquet")
    asked = {**ASKED, "metrics": ["average_precision"], "approx_agc": False, "unit": "unit"}
    store = Store(tmp_path / "store", threads=1)
    store.update(tmp_path / "data", score=["a", "b"], unit="unit")
    found = store.evaluate(metrics="average_precision", baseline="a")
    assert found.results == evaluate(tmp_path / "data", **asked, threads=1).results
    alone = evaluate(tmp_path / "data" / "night=2", **asked, threads=1)
    assert store.evaluate("night=2", metrics="average_precision", baseline="a").results == alone.results
