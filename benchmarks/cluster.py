"""A cluster of processes against threads in one process: seconds and ratios on the same rows, without start-up.

    python benchmarks/cluster.py                # 10⁸ rows, two workers with one thread each
    python benchmarks/cluster.py --files 4      # a quick look at 2·10⁷

Both sides run in one session: the cluster is started and each case warmed up first; then cluster and threads alternate,
and the best of each counts. The JSON of both must be identical. Both run with the same settings of the C library's
memory: freed memory is kept, as in evaluate.py; with ``--fresh-memory`` both have the setting that Dask gives its
workers, MALLOC_TRIM_THRESHOLD_=65536, which returns memory at once.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import dask
from data import DEFAULT, KEEP, make, settled
from distributed import Client, LocalCluster

from streameval import evaluate

TARGET = 1.3
WORKERS = "distributed.nanny.pre-spawn-environ"  # what Dask sets in the environment of workers
CASES: dict[str, dict[str, Any]] = {
    "exact AUC + AP": {"score": "beta", "metrics": ["roc_auc", "average_precision"]},
    "exact, all metrics": {"score": "beta"},
    "approx": {"score": "beta", "metrics": "roc_auc", "approx": True},
    "AUL": {"cluster": "cluster", "metrics": "aul"},
    "float64": {"score": "score64", "metrics": ["roc_auc", "average_precision"]},
}


def timed(**options: Any) -> tuple[float, str]:
    """Seconds of one evaluation, and its JSON."""
    start = time.perf_counter()
    found = evaluate(**options)
    return time.perf_counter() - start, found.to_json()


def release_spares(*, fresh: bool) -> None:
    """Give this process, restarted if necessary, and the workers the same memory settings."""
    theirs = dask.config.get(WORKERS) | ({} if fresh else KEEP)
    dask.config.set({WORKERS: theirs})
    ours = {name: str(value) for name, value in theirs.items() if name.startswith("MALLOC_")}
    settled(ours)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--files", type=int, default=20, help="read only this many of the 20 files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="6GiB", help="of each worker")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="run only these cases")
    parser.add_argument("--fresh-memory", action="store_true", help="the C library's memory as Dask's workers have it")
    given = parser.parse_args()
    release_spares(fresh=given.fresh_memory)
    files = make(given.data, given.rows, 20)[: given.files]
    start = time.perf_counter()
    with (
        LocalCluster(
            n_workers=given.workers, threads_per_worker=1, memory_limit=given.memory_limit, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        print(f"{given.workers} workers started in {time.perf_counter() - start:.1f} s; {len(files)} files\n")
        print("| case | threads, s | cluster, s | ratio | target | met |\n|---|---|---|---|---|---|")
        for case in given.only or CASES:
            options = {"data": files, **CASES[case]}
            sides: dict[str, dict[str, Any]] = {"threads": {"threads": given.workers}, "cluster": {"client": client}}
            best = dict.fromkeys(sides, float("inf"))
            texts = {timed(data=files[:2], **CASES[case], **side)[1] for side in sides.values()}
            for _ in range(given.repeat):
                for name, side in sides.items():
                    seconds, text = timed(**options, **side)
                    best[name] = min(best[name], seconds)
                    texts.add(text)
            assert len(texts) == 2, "cluster and threads disagree"
            ratio = best["cluster"] / best["threads"]
            met = "yes" if ratio <= TARGET else "no"
            print(
                f"| {case} | {best['threads']:.2f} | {best['cluster']:.2f} | {ratio:.2f} | ≤ {TARGET} | {met} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
