"""streameval and its peers: seconds, ratios, and whether the target is met.

    python benchmarks/evaluate.py                 # 10⁸ rows; makes 6 GB of data in /var/tmp first
    python benchmarks/evaluate.py --rows 10000000 # a quick look

Every case runs in a separate process: a warm-up on two files, one call that warms the memory, then `--repeat` calls.
All cases run in each of `--rounds` rounds, so that a slow minute of the machine does not affect a single case only; the
best call of each counts (scikit-learn takes minutes and runs once). Peers need the extra ``bench`` (DuckDB, polars,
scikit-learn). Ratios compare times measured in one run on one machine. The C library keeps freed memory in all cases:
where fresh memory is slow to touch, as on many virtual machines, the ratios would otherwise measure the machine;
``--fresh-memory`` measures that too. The last table shows how far the peers' results are from ours.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from cases import case_options, measured, repeated
from data import make

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT = ["roc_auc", "average_precision"]
SINGLES = ({"score": "beta"}, {"score": "rare"}, {"score": "score64"}, {"cluster": "cluster"}, {"cluster": "cluster2"})
TOGETHER = {"score": ["beta", "rare", "score64"], "cluster": ["cluster", "cluster2"]}


def scan(files: list[str], threads: int) -> None:
    """Only read score and label."""
    import dask
    import pyarrow as pa
    import pyarrow.parquet as pq

    @dask.delayed
    def read(file: str) -> int:
        with pa.OSFile(file) as source:
            batches = pq.ParquetFile(source).iter_batches(1 << 20, columns=["beta", "label"], use_threads=False)
            return sum(batch.num_rows for batch in batches)

    dask.compute(*(read(file) for file in files), scheduler="threads", num_workers=threads)


def ours(**options: Any) -> Callable[[list[str]], Any]:
    """A call of streameval."""

    def call(files: list[str]) -> Any:
        from streameval import evaluate

        return [result.value for result in evaluate(files, **options).results]

    return call


def one_by_one(files: list[str]) -> None:
    """Five evaluations, each of one column."""
    from streameval import evaluate

    for columns in SINGLES:
        evaluate(files, **columns)


def curve(neg: np.ndarray, pos: np.ndarray) -> tuple[float, float]:
    """AUC and average precision from counts by descending score."""
    true, false = np.cumsum(pos), np.cumsum(neg)
    auc = np.sum(pos * (false[-1] - false + neg / 2.0)) / true[-1] / false[-1]
    return auc, np.sum(pos * true / (true + false)) / true[-1]


def polars_auc(files: list[str]) -> Any:
    """Group by score on the streaming engine, then cumulate."""
    import polars as pl

    pos = pl.col("label").cast(pl.Int64).sum().alias("pos")
    groups = pl.scan_parquet(files).group_by("beta").agg(pos, pl.len().alias("rows")).sort("beta", descending=True)
    table = groups.collect(engine="streaming")
    positives = table["pos"].to_numpy()
    return curve(table["rows"].to_numpy().astype(np.int64) - positives, positives)


def duckdb_auc(files: list[str]) -> Any:
    """Group by score, then a window sum."""
    import duckdb

    query = """
        WITH g AS (SELECT beta, sum(label)::DOUBLE AS p, (count(*) - sum(label))::DOUBLE AS n FROM read_parquet($1)
        GROUP BY 1),
             w AS (SELECT p, n, sum(p) OVER s AS t, sum(n) OVER s AS f, sum(n) OVER () AS neg, sum(p) OVER () AS pos
                   FROM g WINDOW s AS (ORDER BY beta DESC ROWS UNBOUNDED PRECEDING))
        SELECT sum(p * (neg - f + n / 2) / neg / pos), sum(p * t / (t + f) / pos) FROM w"""
    return duckdb.execute(query, [files]).fetchone()


def sklearn_auc(files: list[str]) -> Any:
    """Load everything, then two functions."""
    import pyarrow.dataset as ds
    from sklearn.metrics import average_precision_score, roc_auc_score

    table = ds.dataset(files).to_table(columns=["label", "beta"])
    label, score = table["label"].to_numpy(), table["beta"].to_numpy()
    return roc_auc_score(label, score), average_precision_score(label, score)


def duckdb_sizes(files: list[str]) -> Any:
    """Size -> (clusters, positives); returns the number of sizes."""
    import duckdb

    query = """
        SELECT size, count(*), sum(pos) FROM
            (SELECT count(*) AS size, sum(label) AS pos FROM read_parquet($1) GROUP BY cluster) GROUP BY size"""
    return len(duckdb.execute(query, [files]).fetchall())


def polars_sizes(files: list[str]) -> Any:
    """Size -> (clusters, positives); returns the number of sizes."""
    import polars as pl

    pos = pl.col("label").cast(pl.Int64).sum().alias("pos")
    clusters = pl.scan_parquet(files).group_by("cluster").agg(pl.len().alias("size"), pos)
    return clusters.group_by("size").agg(pl.len(), pl.col("pos").sum()).collect(engine="streaming").height


CASES: dict[str, Callable[[list[str]], Any]] = {
    "scan": lambda files: scan(files, 2),
    "scan, 1 thread": lambda files: scan(files, 1),
    "approx": ours(score="beta", approx=True, metrics="roc_auc", threads=2),
    "approx, 1 thread": ours(score="beta", approx=True, metrics="roc_auc", threads=1),
    "exact": ours(score="beta", metrics=EXACT, threads=2),
    "exact, 1 thread": ours(score="beta", metrics=EXACT, threads=1),
    "exact, all metrics": ours(score="beta", threads=2),
    "exact, AUC alone": ours(score="beta", metrics="roc_auc", threads=2),
    "exact, AUC and AGC": ours(score="beta", metrics=["roc_auc", "agc"], threads=2),
    "float64": ours(score="score64", metrics=EXACT, threads=2),
    "weighted": ours(score="beta", weight="weight", metrics=EXACT, threads=2),
    "saturated": ours(score="saturated", metrics=EXACT, threads=2),
    "AUL": ours(cluster="cluster", metrics="aul", threads=2),
    "AUL, 1 thread": ours(cluster="cluster", metrics="aul", threads=1),
    "five columns, one pass": ours(**TOGETHER, threads=2),
    "five columns, five passes": one_by_one,
    "polars AUC": polars_auc,
    "DuckDB AUC": duckdb_auc,
    "scikit-learn AUC": sklearn_auc,
    "polars sizes": polars_sizes,
    "DuckDB sizes": duckdb_sizes,
}
SLOW = {"scikit-learn AUC"}

# title, numerator, denominator, target, whether the ratio must be at least (else at most) the target
TARGETS = [
    ("approx AUC against the bare scan, 2 threads", "approx", "scan", 2.0, False),
    ("approx AUC against the bare scan, 1 thread", "approx, 1 thread", "scan, 1 thread", 2.0, False),
    ("polars against exact AUC + AP", "polars AUC", "exact", 8.0, True),
    ("DuckDB against exact AUC + AP", "DuckDB AUC", "exact", 13.0, True),
    ("scikit-learn with loading against exact AUC + AP", "scikit-learn AUC", "exact", 40.0, True),
    ("float64 against float32", "float64", "exact", 2.0, False),
    ("weighted against unweighted", "weighted", "exact", 5.0, False),
    ("saturated against beta", "saturated", "exact", 1.3, False),
    ("DuckDB against AUL", "DuckDB sizes", "AUL", 5.0, True),
    ("polars against AUL", "polars sizes", "AUL", 5.0, True),
    ("exact, one thread against two", "exact, 1 thread", "exact", 1.5, True),
    ("AUL, one thread against two", "AUL, 1 thread", "AUL", 1.5, True),
    ("five columns in one pass against five", "five columns, one pass", "five columns, five passes", 0.95, False),
    ("exact AUC with AGC against without", "exact, AUC and AGC", "exact, AUC alone", 1.05, False),
]
AGREE = [("exact", ["polars AUC", "DuckDB AUC", "scikit-learn AUC"], 1e-9), ("polars sizes", ["DuckDB sizes"], 0)]


def main() -> None:
    """Run every case in a separate process and print the tables."""
    given = case_options(__doc__).parse_args()
    files = make(given.data, given.rows, given.files)
    if given.case:
        found, value = repeated(CASES[given.case], files, 1 if given.case in SLOW else given.repeat + 1)
        print(json.dumps(found | {"value": value}))
        return
    cases = measured(given.only or CASES, given, once=SLOW)
    print(
        f"{given.rows:,} rows, {given.files} files; best of {given.rounds} rounds of {given.repeat} after a warm-up\n"
    )
    print("| case | seconds | all |\n|---|---|---|")
    for case, result in cases.items():
        print(f"| {case} | {result['seconds']:.2f} | {' '.join(f'{t:.2f}' for t in result['all'])} |")
    print("\n| ratio | measured | target | met |\n|---|---|---|---|")
    for what, above, below, target, least in TARGETS:
        if above in cases and below in cases:
            ratio = cases[above]["seconds"] / cases[below]["seconds"]
            met = ratio >= target if least else ratio <= target
            print(f"| {what} | {ratio:.2f} | {'≥' if least else '≤'} {target:g} | {'yes' if met else 'no'} |")
    print("\n| results | largest difference | bound | met |\n|---|---|---|---|")
    for case, others, bound in AGREE:
        for other in others:
            if case in cases and other in cases:
                off = float(np.abs(np.subtract(cases[case]["value"], cases[other]["value"])).max())
                print(f"| {other} and {case} | {off:.1e} | ≤ {bound:g} | {'yes' if off <= bound else 'no'} |")


if __name__ == "__main__":
    main()
