"""streameval compared with polars, DuckDB and chdb on kind and unkind data, in processes without special settings.

    python benchmarks/peers.py --rows 20000000                      # every shape; makes the data in /var/tmp first
    python benchmarks/peers.py --rows 100000000 --only 'AUL zipf1.2' 'pairs hot'

Each row of the table is a task (AUC, AUL, pairs) on a shape of `shapes.py`. Each case runs in a separate process: a
warm-up on two files, then `--repeat` calls, in each of `--rounds` rounds; the best call counts. Before the calls, 1 GiB
of memory is touched and both processors are awaited, since a virtual machine may lend either only on demand. Peers
answer the same question by the fastest query known, with all threads: for AUC the cumulated counts of every score; for
AUL the table size -> (clusters, positives); for pairs the count of every (campaign, cluster), without any metric.
*Scan* decodes and sums every value of the same columns by the faster of two pyarrow readers. Peers need the extra
``bench``; absent peers, and those that run out of memory, are reported.
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import case_options, measured, repeated
from shapes import IDS, SCORES, make_shape

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

COLUMNS = {"AUC": ["label", "score"], "AUL": ["label", "cluster"], "pairs": ["campaign", "cluster"]}
PEERS = ("polars", "DuckDB", "chdb")
PAIR_METRICS = ["adjusted_rand_index", "v_measure", "bcubed_fscore", "adjusted_mutual_info"]


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


def ours(files: list[str], work: str, **options: Any) -> Any:
    """A call of streameval."""
    from streameval import evaluate

    asked: dict[str, Any] = {
        "AUC": {"score": "score", "metrics": ["roc_auc", "average_precision"]},
        "AUL": {"cluster": "cluster", "metrics": "aul"},
        "pairs": {"cluster": "cluster", "classes": "campaign", "metrics": PAIR_METRICS},
    }
    return [result.value for result in evaluate(files, **asked[work], **options).results]


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


def chdb(files: list[str], work: str) -> Any:
    """The query in chdb."""
    import chdb as engine

    folder = Path(files[0]).parent
    some = "*" if len(files) > 2 else "{" + ",".join(Path(file).stem for file in files) + "}"
    return str(engine.query(SQL[work].format(files=f"file('{folder}/{some}.parquet')")))


def cases_of(work: str, shape: str) -> list[str]:
    """Who does a work on a shape."""
    return [f"{work} {shape}: {who}" for who in ("ours", "ours, 512MiB", "scan", "scan by files", *PEERS)]


def runner(case: str) -> tuple[str, Callable[[list[str]], Any]]:
    """The shape of a case, and the call."""
    name, who = case.split(": ")
    work, shape = name.split(" ")
    calls: dict[str, Callable[[list[str]], Any]] = {
        "ours": lambda files: ours(files, work),
        "ours, 512MiB": lambda files: ours(files, work, memory="512MiB"),
        "scan": lambda files: scan(files, COLUMNS[work]),
        "scan by files": lambda files: scan_files(files, COLUMNS[work]),
        "polars": lambda files: polars(files, work),
        "DuckDB": lambda files: duckdb(files, work),
        "chdb": lambda files: chdb(files, work),
    }
    return shape, calls[who]


def main() -> None:
    """Run every case in its own process and print the table."""
    given = case_options(__doc__).parse_args()
    if given.case:
        shape, call = runner(given.case)
        files = make_shape(shape, given.data, given.rows, given.files)
        print(json.dumps(repeated(call, files, given.repeat)[0]))
        return
    given.fresh_memory = True  # no settings
    works = [("AUC", shape) for shape in SCORES] + [(work, shape) for work in ("AUL", "pairs") for shape in IDS]
    rows = [(w, s) for w, s in works if not given.only or any(fnmatchcase(f"{w} {s}", p) for p in given.only)]
    found = measured([case for work, shape in rows for case in cases_of(work, shape)], given)
    print(f"{given.rows:,} rows, {given.files} files; best of {given.rounds} rounds of {given.repeat}\n")
    heads = ("work", "shape", "ours, s", "512 MiB, s", "peak, MiB", "scan, s", "× scan", *PEERS, "best peer ÷ ours")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for work, shape in rows:
        here = {who: found.get(f"{work} {shape}: {who}") for who in ("ours", "ours, 512MiB", *PEERS)}
        scans = [found[case]["seconds"] for case in cases_of(work, shape)[2:4] if case in found]
        peers = [here[who]["seconds"] for who in PEERS if here[who]]
        us, small = here["ours"], here["ours, 512MiB"]
        told = [f"{here[who]['seconds']:.2f}" if here[who] else "failed" for who in PEERS]
        if us and small and scans:
            cells = [
                *(f"{us['seconds']:.2f}", f"{small['seconds']:.2f}", f"{us['peak']:,.0f}", f"{min(scans):.2f}"),
                f"{us['seconds'] / min(scans):.2f}",
                *told,
                f"{min(peers) / us['seconds']:.2f}" if peers else "",
            ]
            print(f"| {work} | {shape} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
