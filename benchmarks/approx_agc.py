"""Approximate gain areas: time against the bare scan, and error against the exact area.

The scan reads label and score of the data of ``benchmarks/data.py`` and discards the batches. Runs alternate, and the
best of each counts, in wall-clock and in processor time, which other users of the machine disturb less. Errors are
measured on data with 5 % bimodal positives: half of them far above the negatives, half among them.

    python benchmarks/approx_agc.py --sample 0.1 --quantiles 200
"""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import data_options, make, whole

from streameval import scan
from streameval.engine.threads import map_tasks
from streameval.evaluation import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUTS = (0.1, 0.01)
WAYS: dict[str, dict[str, Any]] = {
    "rows, one pass": {"passes": 1},
    "rows, two passes": {"passes": 2},
    "row groups, one pass": {"sample_by": "row_groups", "passes": 1},
    "row groups, two passes": {"sample_by": "row_groups", "passes": 2},
}
TARGETS = {"rows, one pass": 1.8, "row groups, one pass": 1.2, "row groups, two passes": 1.2}


def bare(files: list[str], threads: int) -> None:
    """Only read the columns."""
    found = scan.plan(files, ["label", "beta"])

    def read(piece: scan.Piece) -> None:
        for _ in scan.read(piece, found.schema):
            pass

    map_tasks(read, found.pieces, "scan", threads)


def times(files: list[str], threads: int, repeat: int, options: dict[str, Any]) -> None:
    """Print the best of several runs, in turns."""
    calls: dict[str, Callable[[], Any]] = {"bare scan": partial(bare, files, threads)}
    for name, way in WAYS.items():
        calls[name] = partial(evaluate, files, score="beta", metrics="agc_approx*", threads=threads, **options, **way)
    best = {name: [np.inf, np.inf] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            start = time.perf_counter(), time.process_time()
            call()
            spent = time.perf_counter() - start[0], time.process_time() - start[1]
            best[name] = [min(pair) for pair in zip(best[name], spent, strict=True)]
    for name, (wall, processor) in best.items():
        ratio = wall / best["bare scan"][0], processor / best["bare scan"][1]
        target = f"   target {TARGETS[name]}" if name in TARGETS else ""
        print(f"{name:24} {wall:7.2f} s   ratio {ratio[0]:5.2f} (processor {ratio[1]:5.2f}){target}")


def bimodal(rows: int, path: Path) -> None:
    """Write the data for the errors."""
    rng = np.random.default_rng(5)
    label = rng.random(rows, np.float32) < 0.05
    mean = np.where(label, np.where(rng.random(rows, np.float32) < 0.5, 3.0, 0.5), 0.0).astype(np.float32)
    score = rng.standard_normal(rows, np.float32) + mean
    pq.write_table(pa.table({"label": label, "score": score}), path, row_group_size=1 << 16)


def errors(path: str, draws: int, options: dict[str, Any]) -> None:
    """Print the errors of several draws and the reported bounds and standard errors."""
    exact = evaluate(path, score="score", metrics="agc", truncate=CUTS)
    for name, way in WAYS.items():
        found = [
            evaluate(path, score="score", metrics="agc_approx*", truncate=CUTS, sample_seed=seed, **options, **way)
            for seed in range(draws)
        ]
        for metric in ("agc", *(f"agc@{cut:g}" for cut in CUTS)):
            results = [
                one for draw in found for one in draw.results if one.metric == metric.replace("agc", "agc_approx")
            ]
            off = np.array([result.value for result in results]) - exact.value(metric)
            bound = np.array([result.bound for result in results])
            stderr = np.array([result.stderr or 0.0 for result in results])
            inside = int((abs(off) <= bound + 4 * stderr).sum())
            observed = f"largest error {abs(off).max():.5f} (deviation {off.std():.5f})   within {inside}/{draws}"
            reported = f"bound {bound.mean():.5f}   stderr {stderr.mean():.5f}"
            print(f"{name:24} {metric:9} {exact.value(metric):.5f}   {reported}   {observed}")


def main() -> None:
    """Print times, memory and errors."""
    parser = data_options(__doc__)
    parser.add_argument("--error-rows", type=int, default=10_000_000)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--sample", type=float, default=0.1)
    parser.add_argument("--quantiles", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    options = {"approx_agc": True, "sample": given.sample, "quantiles": given.quantiles}
    print(f"{given.rows:,} rows, sample {given.sample:g}, {given.quantiles} quantiles, {given.threads} threads")
    times(make(given.data, given.rows, given.files), given.threads, given.repeat, options)
    print(f"largest resident memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")
    path = whole(given.data / "bimodal" / f"{given.error_rows}.parquet", partial(bimodal, given.error_rows))
    print(f"\n{given.error_rows:,} rows of bimodal positives, {given.draws} draws")
    errors(str(path), given.draws, options)


if __name__ == "__main__":
    main()
