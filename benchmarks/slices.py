"""Slices and filters: the time they add to a run, and DuckDB and Polars computing the same exact AUC of every slice.

Cases, each the best of `--repeat` runs in this process after a warm-up run, in seconds of the clock and of the
processors, on which the ratios are:

- whole: ROC AUC and average precision of a float32 score
- by60: the same, and of each of 60 countries (Zipf)
- by3: by country, by hour (24), and by both (1,440)
- where: a filter that keeps 1 of 100 row groups by their statistics
- weights, float64, texts: by60 with weights, with a float64 score, and with countries that were written as text
- mean_over, accounts, texts_mean: the mean over users, one user per ten rows; over accounts, one per hundred; and over
  accounts that are text
- spilled: the mean over clusters, more than half as many as rows, within 512 MiB
- clusters, clusters60: AUL of a cluster column, and of each country
- pairs, pairs60: every metric of clusters against classes, and of each country
- duckdb60, duckdb_mean, polars60, polars_mean: exact ROC AUC of each country, and its mean over users, checked against
  ours, which compute average precision as well

Prints a table, or JSON, and each time to standard error once it is measured: a peer may run out of memory.

    python benchmarks/slices.py --rows 100_000_000
    python benchmarks/slices.py --rows 100_000_000 --only whole by60 by3
    python benchmarks/slices.py --rows 100_000_000 --only pairs60 --memory 512MiB
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
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
  SELECT {1} AS g, score, sum(label) AS p, count(*) - sum(label) AS n FROM read_parquet('{0}') GROUP BY ALL
),
below AS (SELECT *, sum(n) OVER (PARTITION BY g ORDER BY score) - n AS b FROM counts)
SELECT g, sum(p * (b + n / 2.0)) / (sum(p)::DOUBLE * sum(n)) AS auc, sum(n + p) AS rows
FROM below GROUP BY g HAVING sum(p) > 0 AND sum(n) > 0
"""


def part(folder: Path, rows: int, users: int, number: int) -> None:
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
        "user": rng.integers(0, users, rows, dtype=np.int64),
        "cluster": rng.integers(0, 10 * users, rows, dtype=np.int64),
        "n": np.arange(rows * number, rows * (number + 1)),
    }
    columns |= {
        "country_text": columns["country"].cast(pa.string()),
        "account": columns["user"] // 10,
        "account_text": pa.array(columns["user"] // 10).cast(pa.string()),
        "class": columns["cluster"] // 1000,
        "score64": score + 1e-9 * rng.standard_normal(rows),
        "weight": rng.gamma(2.0, 1.0, rows),
    }
    pq.write_table(pa.table(columns), folder / f"part-{number:02}.parquet", row_group_size=-(-rows // 5))


def make(folder: Path, rows: int) -> Path:
    """The data, written unless it exists."""

    def write(path: Path) -> None:
        path.mkdir()
        one = dask.delayed(partial(part, path, rows // FILES, max(1, rows // 10)))
        dask.compute(*(one(number) for number in range(FILES)), scheduler="threads")

    return whole(folder / f"slices-accounts-{rows}", write)


def duck(data: Path) -> dict[str, float]:
    """The AUC of every country by DuckDB."""
    import duckdb

    return {name: auc for name, auc, _ in duckdb.sql(SQL.format(f"{data}/*.parquet", "country")).fetchall()}


def duck_mean(data: Path) -> float:
    """The mean AUC over users by DuckDB, weighted by rows."""
    import duckdb

    each = SQL.format(f"{data}/*.parquet", '"user"')
    [[mean]] = duckdb.sql(f"SELECT sum(auc * rows) / sum(rows) FROM ({each})").fetchall()
    return float(mean)


def _polars_each(data: Path, by: str) -> Any:
    """The AUC and the rows of every group by Polars, streamed."""
    import polars as pl

    ties = (
        pl.scan_parquet(f"{data}/*.parquet")
        .group_by(by, "score")
        .agg(pl.col("label").cast(pl.Int64).sum().alias("p"), pl.len().cast(pl.Int64).alias("rows"))
        .sort(by, "score")
        .with_columns((pl.col("rows") - pl.col("p")).alias("n"))
        .with_columns((pl.col("n").cum_sum().over(by) - pl.col("n")).alias("below"))
    )
    won, p, n = (pl.col("p") * (pl.col("below") + pl.col("n") / 2)).sum(), pl.col("p").sum(), pl.col("n").sum()
    each = ties.group_by(by).agg((won / (p.cast(pl.Float64) * n)).alias("auc"), pl.col("rows").sum())
    return each.filter(pl.col("auc").is_finite()).collect(engine="streaming")


def polars(data: Path) -> dict[str, float]:
    """The AUC of every country by Polars."""
    found = _polars_each(data, "country")
    return dict(zip(found["country"].to_list(), found["auc"].to_list(), strict=True))


def polars_mean(data: Path) -> float:
    """The mean AUC over users by Polars, weighted by rows."""
    found = _polars_each(data, "user")
    return float((found["auc"] * found["rows"]).sum() / found["rows"].sum())


def processors() -> float:
    """Seconds that this process has computed, in the system as well."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="*", help="only these cases, and those they are compared with")
    parser.add_argument("--memory", help="the budget of our runs, such as 512MiB; spilled has 512 MiB without it")
    given = parser.parse_args()
    data = make(given.data, given.rows)
    ours = partial(evaluate, data, memory=given.memory)
    run = partial(ours, score="score", metrics=METRICS)
    clusters = partial(ours, cluster="cluster", metrics="aul")
    pairs = partial(ours, cluster="cluster", classes="class")
    run64 = partial(ours, score="score64", metrics=METRICS)
    cases: dict[str, tuple[Callable[[], Any], str]] = {
        "whole": (run, "whole"),
        "by60": (partial(run, by="country"), "whole"),
        "by3": (partial(run, by=["country", "hour", "country,hour"]), "whole"),
        "where": (partial(run, where=f"n < {given.rows // 100}"), "whole"),
        "weights": (partial(run, by="country", weight="weight"), "by60"),
        "float64": (partial(run64, by="country"), "by60"),
        "texts": (partial(run, by="country_text"), "by60"),
        "mean_over": (partial(run, mean_over="user"), "whole"),
        "accounts": (partial(run, mean_over="account"), "whole"),
        "texts_mean": (partial(run, mean_over="account_text"), "accounts"),
        "spilled": (partial(run, mean_over="cluster", memory=given.memory or "512MiB"), "whole"),
        "clusters": (clusters, "clusters"),
        "clusters60": (partial(clusters, by="country"), "clusters"),
        "pairs": (pairs, "pairs"),
        "pairs60": (partial(pairs, by="country"), "pairs"),
        "duckdb60": (partial(duck, data), "by60"),
        "duckdb_mean": (partial(duck_mean, data), "mean_over"),
        "polars60": (partial(polars, data), "by60"),
        "polars_mean": (partial(polars_mean, data), "mean_over"),
    }
    if given.only:
        if unknown := set(given.only) - set(cases):
            parser.error(f"no case is named {', '.join(sorted(unknown))}")
        wanted = set(given.only)
        while others := {cases[name][1] for name in wanted} - wanted:
            wanted |= others
        cases = {name: case for name, case in cases.items() if name in wanted}
    found: dict[str, Any] = {}
    times: dict[str, float] = {}
    computed: dict[str, float] = {}
    for name, (case, _) in cases.items():
        found[name] = case()
        seconds = []
        for _ in range(given.repeat):
            start, before = time.perf_counter(), processors()
            case()
            seconds.append((time.perf_counter() - start, processors() - before))
        times[name], computed[name] = map(min, zip(*seconds, strict=True))
        print(f"{name}: {times[name]:.2f} s", file=sys.stderr, flush=True)  # before a peer that runs out of memory
    for peer in ("duckdb", "polars"):
        for country, auc in found.get(f"{peer}60", {}).items():
            assert abs(found["by60"].value("roc_auc", slice={"country": country}) - auc) < 1e-9, (peer, country)
        if f"{peer}_mean" in found:
            assert abs(found["mean_over"].value("roc_auc") - found[f"{peer}_mean"]) < 1e-9, peer
    ratios = {name: computed[name] / computed[other] for name, (_, other) in cases.items()}
    if given.json:
        print(
            json.dumps(
                {
                    "rows": given.rows,
                    "memory": given.memory,
                    "seconds": times,
                    "processors": computed,
                    "ratios": ratios,
                },
                indent=1,
            )
        )
        return
    within = f", {given.memory} for each of our runs" if given.memory else ""
    print(f"{given.rows:,} rows{within}\n{'case':<14}{'seconds':>9}{'processors':>12}   ratio")
    for name, (_, other) in cases.items():
        print(f"{name:<14}{times[name]:>9.2f}{computed[name]:>12.2f}{ratios[name]:>8.2f} of {other}")


if __name__ == "__main__":
    main()
