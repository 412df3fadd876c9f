"""streameval compared with polars, DuckDB, DataFusion and chdb, and other works with the one they extend.

    python benchmarks/peers.py --rows 20000000                      # every shape; makes the data in /var/tmp first
    python benchmarks/peers.py --rows 100000000 --only 'AUL zipf1.2' 'pairs hot'
    python benchmarks/peers.py --rows 20000000 --only 'together *'  # one call, and scores, AUL, pairs alone
    python benchmarks/peers.py --rows 20000000 --only '* float32' --threads 1

Each row of the table is a work (AUC, AUL, pairs) on a shape of `data.py`, kind or unkind, in processes without special
settings; the rows come in the order of how well the best peer does. Each case runs in a separate process: a warm-up on
two files, then `--repeat` calls, in each of `--rounds` rounds; the best call counts. Before the calls, 1 GiB of memory
is touched and both processors are awaited, since a virtual machine may lend either only on demand. Peers answer the
same question by the fastest query known, with all threads: for AUC the cumulated counts of every score; for AUL the
table size -> (clusters, positives); for pairs the count of every (campaign, cluster), without any metric. *Scan*
decodes and sums every value of the same columns by the faster of two pyarrow readers. Peers need the extra ``bench``;
absent peers, and those that run out of memory, are reported.

Other works (`MORE`), such as weights, calibration, slices, sampling intervals and attribution, are run if `--only`
names them; each is compared with the works that it extends.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import FILES_OF_WARM_UP, case_options, measured, repeated
from data import IDS, SCORES, make_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

COLUMNS = {"AUC": ["label", "score"], "AUL": ["label", "cluster"], "pairs": ["campaign", "cluster"]}
PEERS = ("polars", "DuckDB", "DataFusion", "chdb")
RANKING = ["roc_auc", "average_precision"]
PAIR_METRICS = ["adjusted_rand_index", "v_measure", "bcubed_fscore", "adjusted_mutual_info"]
POINTS = [
    *(f"fpr={x}" for x in (1e-4, 0.01, 0.1)),
    *(f"recall={x}" for x in (0.5, 0.8, 0.9)),
    "precision=0.9",
    "k=1000",
]
SCORE: dict[str, Any] = {"score": "score", "metrics": RANKING}
AUL: dict[str, Any] = {"cluster": "cluster", "metrics": "aul"}
PAIRS: dict[str, Any] = {"cluster": "cluster", "classes": "campaign"}
WORKS: dict[str, dict[str, Any]] = {"AUC": SCORE, "AUL": AUL, "pairs": PAIRS | {"metrics": PAIR_METRICS}}
MORE: dict[str, tuple[str, dict[str, Any]]] = {  # the works that each is compared with, and its options
    "all metrics": ("AUC", {"score": "score"}),
    "approx": ("AUC", SCORE | {"metrics": "roc_auc", "approx": True}),
    "approx AGC": ("AUC", {"score": "score", "metrics": "agc_approx*", "approx_agc": True, "sample": 0.1}),
    "weights": ("AUC", SCORE | {"weight": "weight"}),
    "calibration": ("AUC", SCORE | {"metrics": [*RANKING, "calibration"]}),
    "points": ("AUC", SCORE | {"at": POINTS}),
    "60 slices": ("AUC", SCORE | {"by": "country"}),
    "intervals by row": ("AUC", SCORE | {"ci": 0.95}),
    "intervals by unit": ("AUC", SCORE | {"unit": "campaign"}),
    "AUL with intervals": ("AUL", AUL | {"ci": 0.95}),
    "impure clusters": ("AUL", {"cluster": "cluster", "label": "label", "attribute": True}),
    "all pairs": ("pairs", PAIRS),
    "pairs with intervals": ("pairs", PAIRS | {"metrics": PAIR_METRICS, "ci": 0.95}),
    "merges": ("pairs", PAIRS | {"attribute": True}),
    "together": ("AUC + AUL + pairs", SCORE | PAIRS | {"metrics": [*RANKING, "aul", *PAIR_METRICS]}),
}


def total(batch: pa.RecordBatch) -> None:
    """Touch every value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in batch.columns:
        kind = column.type
        values = column.indices if pa.types.is_dictionary(kind) else column
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        pc.sum(pc.binary_length(values) if text else values)


def scan(files: list[str], columns: list[str]) -> None:
    """Decode and sum by a dataset."""
    import pyarrow.dataset as ds

    for batch in ds.dataset(files).scanner(columns=columns, batch_size=1 << 20).to_batches():
        total(batch)


def scan_files(files: list[str], columns: list[str], threads: int = 2) -> None:
    """Decode and sum file by file."""
    import dask
    import pyarrow.parquet as pq

    @dask.delayed
    def read(file: str) -> None:
        for batch in pq.ParquetFile(file).iter_batches(1 << 20, columns=columns, use_threads=False):
            total(batch)

    dask.compute(*(read(file) for file in files), scheduler="threads", num_workers=threads)


def ours(files: list[str], work: str, **options: Any) -> None:
    """A call of streameval."""
    from streameval import attribute, evaluate

    asked = WORKS[work] if work in WORKS else MORE[work][1]
    verb = attribute if asked.get("attribute") else evaluate
    verb(files, **{name: value for name, value in asked.items() if name != "attribute"}, **options)


def polars(files: list[str], work: str) -> Any:
    """Group-bys on the streaming engine."""
    import polars as pl

    frame, pos = pl.scan_parquet(files), pl.col("label").cast(pl.Int64).sum().alias("pos")
    if work == "AUC":
        groups = frame.group_by("score").agg(pos, pl.len().alias("n")).sort("score", descending=True)
        table = groups.with_columns(pl.col("pos").cum_sum().alias("t"), pl.col("n").cum_sum().alias("r"))
        return table.collect(engine="streaming").height
    if work == "AUL":
        sizes = frame.group_by("cluster").agg(pl.len().alias("size"), pos)
        return sizes.group_by("size").agg(pl.len(), pl.col("pos").sum()).collect(engine="streaming").height
    return frame.group_by("campaign", "cluster").len().select(pl.len()).collect(engine="streaming").item()


SQL = {
    "AUC": "SELECT count(*) FROM (SELECT sum(p) OVER (ORDER BY score DESC) t, sum(n) OVER (ORDER BY score DESC) r FROM "
    "(SELECT score, sum(label) p, count(*) n FROM {files} GROUP BY score) g) w WHERE t >= 0 AND r >= 0",
    "AUL": "SELECT count(*) FROM (SELECT size, count(*), sum(p) FROM "
    "(SELECT count(*) size, sum(label) p FROM {files} GROUP BY cluster) c GROUP BY size) s",
    "pairs": "SELECT count(*) FROM (SELECT count(*) n FROM {files} GROUP BY campaign, cluster) p",
}


def duckdb(files: list[str], work: str) -> Any:
    """The query in DuckDB."""
    import duckdb as engine

    return engine.execute(SQL[work].format(files=f"read_parquet({files})")).fetchone()


def datafusion(files: list[str], work: str) -> Any:
    """The query in DataFusion."""
    import datafusion as engine

    context = engine.SessionContext()
    some = {"files": Path(files[0]).parent} if len(files) > FILES_OF_WARM_UP else dict(zip("ab", files, strict=False))
    for name, path in some.items():
        context.register_parquet(name, path)
    union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in some)
    return context.sql(SQL[work].format(files=f"({union}) u")).collect()


def chdb(files: list[str], work: str) -> Any:
    """The query in chdb."""
    import chdb as engine

    folder = Path(files[0]).parent
    some = "*" if len(files) > FILES_OF_WARM_UP else "{" + ",".join(Path(file).stem for file in files) + "}"
    return str(engine.query(SQL[work].format(files=f"file('{folder}/{some}.parquet')")))


def cases_of(work: str, shape: str) -> list[str]:
    """Who does a work on a shape."""
    others = ("ours, 512MiB", "scan", "scan by files", *PEERS) if work in WORKS else ()
    return [f"{work} on {shape}: {who}" for who in ("ours", *others)]


def runner(case: str, threads: int) -> tuple[str, Callable[[list[str]], Any]]:
    """The shape of a case, and the call."""
    name, who = case.split(": ")
    work, shape = name.split(" on ")
    calls: dict[str, Callable[[list[str]], Any]] = {
        "ours": lambda files: ours(files, work, threads=threads),
        "ours, 512MiB": lambda files: ours(files, work, threads=threads, memory="512MiB"),
        "scan": lambda files: scan(files, COLUMNS[work]),
        "scan by files": lambda files: scan_files(files, COLUMNS[work], threads),
        "polars": lambda files: polars(files, work),
        "DuckDB": lambda files: duckdb(files, work),
        "DataFusion": lambda files: datafusion(files, work),
        "chdb": lambda files: chdb(files, work),
    }
    return shape, calls[who]


def shapes_of(work: str) -> list[str]:
    """The shapes that have the columns of a work."""
    base, options = MORE.get(work, (work, {}))
    if base == "AUC" and options.get("unit") != "campaign":
        return [*SCORES] if work in WORKS or "weight" in options else [*SCORES, *IDS]
    return [*IDS]


def main() -> None:
    """Run every case in its own process and print the tables."""
    parser = case_options(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if given.case:
        shape, call = runner(given.case, given.threads)
        files = make_shape(shape, given.data, given.rows, given.files)
        print(json.dumps(repeated(call, files, given.repeat)))
        return
    rows = [(work, shape) for work in (*WORKS, *MORE) for shape in shapes_of(work)]
    rows = [r for r in rows if any(fnmatchcase(" ".join(r), p) for p in given.only or [f"{work} *" for work in WORKS])]
    bases = {(base, shape) for work, shape in rows if work in MORE for base in MORE[work][0].split(" + ")}
    cases = [case for work, shape in rows for case in cases_of(work, shape)]
    cases += [case for base in sorted(bases - {*rows}) for case in cases_of(*base)[:1]]
    found = measured(cases, given, flags=[f"--threads={given.threads}"])
    print(f"{given.rows:,} rows, {given.files} files; best of {given.rounds} rounds of {given.repeat}\n")
    tell_peers([row for row in rows if row[0] in WORKS], found)
    tell_more([row for row in rows if row[0] in MORE], found)


def tell_peers(rows: list[tuple[str, str]], found: dict[str, dict[str, Any]]) -> None:
    """Print the works that peers do as well, those in which the best peer does best first."""
    heads = ("work", "shape", "ours, s", "512 MiB, s", "peak, MiB", "scan, s", "× scan", *PEERS, "best peer ÷ ours")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}" if rows else "")
    lines: list[tuple[float, str]] = []
    for work, shape in rows:
        us, small, *others = (found.get(case) for case in cases_of(work, shape))
        scans, peers = [one["seconds"] for one in others[:2] if one], others[2:]
        if us and small and scans:
            cells = [f"{us['seconds']:.2f}", f"{small['seconds']:.2f}", f"{us['peak']:,.0f}", f"{min(scans):.2f}"]
            cells += [f"{us['seconds'] / min(scans):.2f}"]
            cells += [f"{peer['seconds']:.2f}" if peer else "failed" for peer in peers]
            best = min((peer["seconds"] for peer in peers if peer), default=None)
            ratio = best / us["seconds"] if best else float("inf")
            lines.append((ratio, f"| {work} | {shape} | {' | '.join(cells)} | {ratio:.2f} |"))
    for _, line in sorted(lines):
        print(line)


def tell_more(rows: list[tuple[str, str]], found: dict[str, dict[str, Any]]) -> None:
    """Print the other works beside those that they extend."""
    print(
        "\n| work | shape | seconds | peak, MiB | ÷ | ratio | memory |\n|---|---|---|---|---|---|---|" if rows else ""
    )
    for work, shape in rows:
        base = MORE[work][0]
        us, *bases = (found.get(f"{name} on {shape}: ours") for name in (work, *base.split(" + ")))
        if us and all(bases):
            times = us["seconds"] / sum(one["seconds"] for one in bases if one)
            memory = us["peak"] / max(one["peak"] for one in bases if one)
            cells = (f"{us['seconds']:.2f}", f"{us['peak']:,.0f}", base, f"{times:.2f}", f"{memory:.2f}")
            print(f"| {work} | {shape} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
