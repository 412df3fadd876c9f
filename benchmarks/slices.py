"""Slices and filters: what they add to a run, and DuckDB for the same exact AUC of every slice.

Cases, each the best of `--repeat` runs in this process after one that warms up:

- whole: ROC AUC and average precision of a float32 score
- by60: the same, and of each of 60 countries (Zipf)
- by3: by country, by hour (24), and by both
- where: a filter that keeps 1 of 100 row groups by their statistics
- duckdb60: DuckDB, exact ROC AUC of each country, checked against by60

    python benchmarks/slices.py --rows 100_000_000
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import DEFAULT, whole

from streameval import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = 20
METRICS = ["roc_auc", "average_precision"]
SQL = """
WITH counts AS (
  SELECT country, score, sum(label) AS p, count(*) - sum(label) AS n FROM read_parquet('{}') GROUP BY ALL
),
below AS (SELECT *, sum(n) OVER (PARTITION BY country ORDER BY score) - n AS b FROM counts)
SELECT country, sum(p * (b + n / 2.0)) / (sum(p)::DOUBLE * sum(n)) AS auc FROM below GROUP BY country
"""


def part(folder: Path, rows: int, number: int) -> None:
    """Write one file; `n` ascends over all files."""
    rng = np.random.Generator(np.random.SFC64([11, number]))
    share = 1 / np.arange(1, 61)
    country = rng.choice(60, rows, p=share / share.sum()).astype(np.int32)
    names = pa.array([f"c{i:02}" for i in range(60)])
    label = rng.random(rows) < 0.2
    score = rng.standard_normal(rows, dtype=np.float32) + label * np.float32(1 + 0.01 * number)
    columns = {
        "label": label.astype(np.int8),
        "score": score,
        "country": pa.DictionaryArray.from_arrays(pa.array(country), names),
        "hour": rng.integers(0, 24, rows, dtype=np.int8),
        "n": np.arange(rows * number, rows * (number + 1)),
    }
    pq.write_table(pa.table(columns), folder / f"part-{number:02}.parquet", row_group_size=-(-rows // 5))


def make(folder: Path, rows: int) -> Path:
    """The data, written unless they are there."""

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, path, rows // FILES))
        dask.compute(*(one(number) for number in range(FILES)), scheduler="threads")

    return whole(folder / f"slices-{rows}", write)


def duck(data: Path) -> dict[str, float]:
    """The AUC of every country by DuckDB."""
    import duckdb

    return dict(duckdb.sql(SQL.format(f"{data}/*.parquet")).fetchall())


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    data = make(given.data, given.rows)
    run = partial(evaluate, data, score="score", metrics=METRICS)
    cases: dict[str, Callable[[], Any]] = {
        "whole": run,
        "by60": partial(run, by="country"),
        "by3": partial(run, by=["country", "hour", "country,hour"]),
        "where": partial(run, where=f"n < {given.rows // 100}"),
        "duckdb60": partial(duck, data),
    }
    times: dict[str, float] = {}
    found: dict[str, Any] = {}
    for name, case in cases.items():
        found[name] = case()
        seconds = []
        for _ in range(given.repeat):
            start = time.perf_counter()
            case()
            seconds.append(time.perf_counter() - start)
        times[name] = min(seconds)
    for country, auc in found["duckdb60"].items():
        assert abs(found["by60"].value("roc_auc", slice={"country": country}) - auc) < 1e-9, country
    ratios = {name: round(seconds / times["whole"], 2) for name, seconds in times.items()}
    print(json.dumps({"rows": given.rows, "seconds": times, "of_whole": ratios}, indent=1))


if __name__ == "__main__":
    main()
