"""Cost against the number of rows on two workers: a log-log figure, its slope, and a model for larger clusters.

    python benchmarks/scaling.py                        # 10⁶ … 10⁹ rows; simulates 24 GB in /var/tmp first
    python benchmarks/scaling.py --most 100000000       # stop at 10⁸
    python benchmarks/scaling.py --shape zipf1.2        # clusters of a shape of data.py: 25 GB

Exact AUC, AP and AUL of simulated messages in one call, `approx` AUC beside it, and the bare scan of the same columns
by the same workers. Each is warmed up on the smallest data; peak memory is the high-water mark of a worker process.

The workers have half of this machine's memory each, of which the states of all folds may take most: at 10⁹ rows they
are 10 GB, so that nothing is spilled on 24 GiB. With less, `--memory-limit` and `--memory`, they are spilled.

Then 10⁸ rows on one worker of one thread and on two: the same call, and a first night of a store.

The model: a row costs a worker thread the seconds measured at the largest size, and its share of the states crosses the
network once, of W workers all but 1/W. Assumed are storage and a network that keep up, workers like these, and files
enough for all of them. Tasks are those of the plan, each at what the scheduler took for one of many empty tasks.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import IDS, make_shape
from distributed import Client, LocalCluster

from streameval import Store, evaluate
from streameval.engine.cluster import FOLDS_PER_GB
from streameval.engine.graphs import count_tasks
from streameval.evaluation import explain
from streameval.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

WORK: dict[str, dict[str, Any]] = {
    "exact": {"cluster": "cluster", "metrics": ["roc_auc", "average_precision", "aul"]},
    "approx": {"metrics": "roc_auc", "approx": True},
}
SLOPE, SPEED_UP = 1.05, 0.65
COMPARED = 10**8  # rows of the night that one worker and two fold
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


def timed(call: Callable[[], Any]) -> float:
    """Seconds of a call, the better of two."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(client: Client, folder: Path, score: str, memory: str | None) -> dict[str, float]:
    """Seconds of each case, with columns that the previous case brought into the page cache."""
    run: dict[str, Any] = {"score": score, "client": client, "memory": memory}
    return {
        "scan of two": timed(lambda: scan(client, folder, ["label", score])),
        "approx": timed(lambda: evaluate(folder, **WORK["approx"], **run)),
        "scan": timed(lambda: scan(client, folder, ["label", score, "cluster"])),
        "exact": timed(lambda: evaluate(folder, **WORK["exact"], **run)),
    }


def compare(folder: Path, warm: Path, score: str, options: dict[str, Any], memory: str | None) -> None:
    """Print the seconds of one worker and of two: a call, and a first night of a store."""
    columns = {"score": score, "cluster": "cluster"}

    def night(client: Client, data: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            one = Path(place) / "data" / "night=2026-01-01"
            one.mkdir(parents=True)
            for i, file in enumerate(sorted(data.rglob("*.parquet"))):
                (one / f"{i}.parquet").hardlink_to(file)
            Store(Path(place) / "store", client=client, memory=memory).update(one.parent, **columns)

    found = []
    for workers in (1, 2):
        with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster) as client:
            night(client, warm)
            measure(client, warm, score, memory)
            call = timed(lambda c=client: evaluate(folder, **WORK["exact"], score=score, client=c, memory=memory))
            found.append((call, timed(lambda c=client: night(c, folder))))
    print("\n| 10⁸ rows | one worker, s | two workers, s | ratio |\n|---|---|---|---|")
    for name, one, two in zip(("exact AUC + AP + AUL", "a night of a store"), *found, strict=True):
        met = "met" if two <= SPEED_UP * one else "missed"
        print(f"| {name} | {one:.2f} | {two:.2f} | {two / one:.2f} (target ≤ {SPEED_UP}: {met}) |", flush=True)


def folder_of(data: Path, shape: str | None, rows: int) -> Path:
    """The folder with this many rows, which is written unless it exists."""
    parts = max(4, rows // 10**7)
    if shape:
        return Path(make_shape(shape, data, rows, parts)[0]).parent
    folder = data / str(rows)
    if not folder.exists():
        simulate(folder, rows=rows, partitions=parts, singletons=0.7)
    return folder


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
    parser.add_argument("--shape", choices=sorted(IDS), help="clusters of this shape; by default simulated messages")
    parser.add_argument("--most", type=int, default=1_000_000_000)
    parser.add_argument("--memory", default="9GiB", help="budget of each worker")
    parser.add_argument("--memory-limit", default="auto", help="of each worker; by default half of the memory there is")
    parser.add_argument("--figure", type=Path, default=Path(__file__).parent / "figures" / "scaling.png")
    given = parser.parse_args()
    sizes = [10**k for k in range(6, 13) if 10**k <= given.most]
    folders = [folder_of(given.data, given.shape, rows) for rows in sizes]
    score = "score" if given.shape else "score_a"
    times = []
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": given.memory_limit}
    with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
        measure(client, folders[0], score, given.memory)
        task = task_seconds(client)
        print(
            "| rows | exact, s | M rows/s | MB/s | approx AUC, s | × scan of its 2 columns | scan of all 3 columns, s "
            "| peak of a worker, MiB |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for rows, folder in zip(sizes, folders, strict=True):
            found = measure(client, folder, score, given.memory)
            times.append(found)
            planned = explain(folder, score=score, client=client, memory=given.memory, **WORK["exact"])
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
    if given.shape is None:
        draw(sizes, times, given.figure)
    if COMPARED in sizes:
        compare(folders[sizes.index(COMPARED)], folders[0], score, options, given.memory)


if __name__ == "__main__":
    main()
