"""Cost against the number of rows on two workers: a log-log figure, its slope, and a model for larger clusters.

    python benchmarks/scaling.py                        # 10⁶ … 10⁹ rows; simulates 24 GB in /var/tmp first
    python benchmarks/scaling.py --most 100000000       # stop at 10⁸

Exact AUC, AP and AUL of simulated messages in one call, `approx` AUC beside it, and the bare scan of the same columns
by the same workers. Each is warmed up on the smallest data; peak memory is the high-water mark of a worker process.

The workers have half of this machine's memory each, of which the states of all folds may take most: at 10⁹ rows they
are 10 GB, so that nothing is spilled on 24 GiB. With less, `--memory-limit` and `--memory`, they are spilled.

The model: a row costs a worker thread the seconds measured at the largest size, and its share of the states crosses the
network once, of W workers all but 1/W. Assumed are storage and a network that keep up, workers like these, and files
enough for all of them. Tasks are those of the plan, each at what the scheduler took for one of many empty tasks.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client, LocalCluster

from streameval import evaluate
from streameval.engine.cluster.engine import FOLDS_PER_GB
from streameval.engine.cluster.exchange import count_tasks
from streameval.evaluation import explain
from streameval.simulation import simulate

EXACT = {"score": "score_a", "cluster": "cluster", "metrics": ["roc_auc", "average_precision", "aul"]}
APPROX = {"score": "score_a", "metrics": "roc_auc", "approx": True}
SLOPE = 1.05
EMPTY = 5000  # tasks that measure the scheduler


def read(file: str, columns: list[str]) -> int:
    """Only read some columns."""
    with pa.OSFile(file) as source:
        batches = pq.ParquetFile(source).iter_batches(1 << 20, columns=columns, use_threads=False)
        return sum(batch.num_rows for batch in batches)


def scan(client: Client, folder: Path, columns: list[str]) -> None:
    """Read all files on the workers."""
    work = [dask.delayed(read, pure=False)(str(file), columns) for file in sorted(folder.rglob("*.parquet"))]
    client.gather(client.compute(work))


def task_seconds(client: Client) -> float:
    """Seconds per empty task, from graph to result, measured over many tasks."""
    nodes = [dask.delayed(int, pure=False)(i) for i in range(EMPTY)]
    start = time.perf_counter()
    client.gather(client.compute(nodes, optimize_graph=False))
    return (time.perf_counter() - start) / EMPTY


def peak() -> int:
    """High-water mark of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(client: Client, folder: Path, memory: str | None) -> dict[str, float]:
    """Seconds of each case, the better of two, with columns that the previous case brought into the page cache."""
    cases: dict[str, Any] = {
        "scan of two": lambda: scan(client, folder, ["label", "score_a"]),
        "approx": lambda: evaluate(folder, client=client, memory=memory, **APPROX),
        "scan": lambda: scan(client, folder, ["label", "score_a", "cluster"]),
        "exact": lambda: evaluate(folder, client=client, memory=memory, **EXACT),
    }
    found = {}
    for name, call in cases.items():
        times = []
        for _ in range(2):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        found[name] = min(times)
    return found


def draw(rows: list[int], times: list[dict[str, float]], path: Path) -> None:
    """The log-log figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for name, title in (("exact", "exact AUC + AP + AUL"), ("approx", "approx AUC"), ("scan", "bare scan")):
        axes.loglog(rows, [found[name] for found in times], marker="o", label=title)
    axes.set(xlabel="rows", ylabel="seconds, two workers")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def model(rows: int, seconds: float, workers: int, state_bytes: float, read_bytes: float, task: float) -> None:
    """Print the estimate for 10¹¹ rows on 100 workers of four threads."""
    target, many, threads, memory = 10**11, 100, 4, 64 << 30
    thread_seconds = seconds * workers / rows
    compute = target * thread_seconds / (many * threads)
    moved = state_bytes * (1 - 1 / many)
    ranges = max(many * threads, int(target * state_bytes * 4 * threads) // memory)
    folds = min(int(FOLDS_PER_GB * target * read_bytes / 1e9), 4 * many * threads)
    tasks = sum(count_tasks(folds, ranges).values()) + ranges  # which are finalized
    print(
        f"\n10¹¹ rows on {many} workers of {threads} threads and 64 GiB: {compute:,.0f} s of work at "
        f"{thread_seconds:.2e} s a row,\n{moved * target / many / 1e9:,.1f} GB to each worker over the network "
        f"({moved:.1f} bytes a row),\n{tasks * task:,.0f} s of scheduling {tasks:,} tasks at {task * 1e3:.2f} ms, "
        "which overlaps with the work"
    )


def main() -> None:
    """Make the data, measure, fit, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/var/tmp/streameval-scaling"))
    parser.add_argument("--most", type=int, default=1_000_000_000)
    parser.add_argument("--memory", default="9GiB", help="budget of each worker")
    parser.add_argument("--memory-limit", default="auto", help="of each worker; by default half of the memory there is")
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent / "figures" / "scaling.png")
    given = parser.parse_args()
    sizes = [10**k for k in range(6, 13) if 10**k <= given.most]
    for rows in sizes:
        if not (given.data / str(rows)).exists():
            simulate(given.data / str(rows), rows=rows, partitions=max(4, rows // 10**7), singletons=0.7)
    times, options = [], {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(memory_limit=given.memory_limit, **options) as cluster, Client(cluster) as client:
        measure(client, given.data / str(sizes[0]), given.memory)
        task = task_seconds(client)
        print(
            "| rows | exact, s | M rows/s | MB/s | approx AUC, s | × scan of its 2 columns | scan of all 3 columns, s "
            "| peak of a worker, MiB |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for rows in sizes:
            found = measure(client, given.data / str(rows), given.memory)
            times.append(found)
            planned = explain(given.data / str(rows), client=client, memory=given.memory, **EXACT)
            speed, rate = rows / found["exact"] / 1e6, planned.bytes / found["exact"] / 1e6
            most = max(client.run(peak).values()) >> 20
            print(
                f"| {rows:,} | {found['exact']:.2f} | {speed:.1f} | {rate:.0f} | {found['approx']:.2f} "
                f"| {found['approx'] / found['scan of two']:.2f} | {found['scan']:.2f} | {most:,} |",
                flush=True,
            )
    print(f"\na task takes {task * 1e3:.2f} ms")
    logs = np.log10(sizes), np.log10([found["exact"] for found in times])
    for least in (10**6, 10**7, 10**8):
        some = [part[np.array(sizes) >= least] for part in logs]
        if some[0].size > 1:
            slope = np.polyfit(*some, 1)[0]
            met = "met" if slope <= SLOPE else "missed"
            print(f"slope from {least:,} rows on: {slope:.3f} (target ≤ {SLOPE}: {met})")
    state_bytes = sum(state.bytes for state in planned.states) / sizes[-1]
    model(sizes[-1], times[-1]["exact"], 2, state_bytes, planned.bytes / sizes[-1], task)
    draw(sizes, times, given.figure)


if __name__ == "__main__":
    main()
