"""A cluster of processes against threads in one process, and evaluations whose workers die.

    python benchmarks/cluster.py                      # 10⁸ rows, two workers with one thread each
    python benchmarks/cluster.py --files 4            # a quick look at 2·10⁷
    python benchmarks/cluster.py --disturb 100        # some 5 s a run on two idle cores
    python benchmarks/cluster.py --disturb 20 --only pause --pause 30

Both sides run in one session: the cluster is started and each case warmed up first; then cluster and threads alternate,
and the best of each counts. The JSON of both must be identical. Both run with the same settings of the C library's
memory: freed memory is kept; with ``--fresh-memory`` both have the setting that Dask gives its workers,
MALLOC_TRIM_THRESHOLD_=65536, which returns memory at once.

With ``--disturb``, a run evaluates one shape of `data.py` on a cluster of processes, mostly two, and is disturbed in
one way. Every run must give the bits of threads:

=======  ===============================================================================
kill     a worker is killed
two      two of three workers are killed, one shortly after the other
pause    a worker is stopped for some seconds
join     a third worker is started, and one of the others killed
memory   a worker's memory is filled for some seconds until Dask pauses the worker
=======  ===============================================================================

The moment is up to 0.2 s after some task of a kind has begun: fold, split, merge (or join), finalize, or a pass over a
contingency table. Runs that end earlier do not count. Prints the outcome of each run, and counts; the status is 1 if a
run was refused or had other bits.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
from data import DEFAULT, KEEP, SCORES, make, make_shape, settled
from distributed import Client, LocalCluster, SchedulerPlugin

from streameval import evaluate
from streameval.engine import cluster as engine
from streameval.engine import fold
from streameval.states import rounds

TARGET = 1.3
WORKERS = "distributed.nanny.pre-spawn-environ"  # what Dask sets in the environment of workers
CASES: dict[str, dict[str, Any]] = {
    "exact AUC + AP": {"score": "beta", "metrics": ["roc_auc", "average_precision"]},
    "exact, all metrics": {"score": "beta"},
    "approx": {"score": "beta", "metrics": "roc_auc", "approx": True},
    "AUL": {"cluster": "cluster", "metrics": "aul"},
    "float64": {"score": "score64", "metrics": ["roc_auc", "average_precision"]},
}


SHAPES = ("hot", "hot_pair", "zipf1.2", "zipf1.5", "lone", "strings", "sorted", "atom", "rounded")
PHASES = {"fold": 6, "split": 16, "merge": 4, "finalize": 2, "clusters": 2, "classes": 2}  # with about as many tasks
WAYS = {"kill": 6, "two": 2, "pause": 1, "join": 1, "memory": 1}  # with their frequencies
MEMORY = 2 << 30  # limit of a worker, in bytes
HANGS = 600  # seconds after which a run counts as hanging


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


class Moment(SchedulerPlugin):
    """Calls a function shortly after some task of a kind has begun; does nothing if there are fewer tasks."""

    def __init__(self, phase: str, rng: np.random.Generator, function: Any) -> None:
        self.phase, self.function, self.fired = f"streameval-{phase}-", function, False
        self.number = rng.integers(1, PHASES[phase], endpoint=True)
        self.timer = threading.Timer(rng.uniform(0, 0.2), self.fire)

    def fire(self) -> None:
        """Call the function."""
        self.fired = True
        self.function()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Count a task that begins."""
        if finish == "processing" and str(key).startswith(self.phase):
            self.number -= 1
            if self.number == 0:
                self.timer.start()


def fill(share: float, seconds: float, dask_worker: Any) -> None:
    """On a worker: take so much memory for some seconds that Dask pauses it."""
    import psutil

    taken = bytearray(max(0, int(share * dask_worker.memory_manager.memory_limit) - psutil.Process().memory_info().rss))
    for at in range(0, len(taken), 4096):
        taken[at] = 1
    threading.Timer(seconds, taken.clear).start()


def disturb(way: str, cluster: Any, client: Any, victims: list[tuple[str, int]], seconds: float, wait: float) -> None:
    """Disturb the workers of a running evaluation, given by address and process; the second `wait` seconds later."""
    (address, one), (_, other) = victims
    if way == "join":
        cluster.scale(3)
    if way in ("kill", "two", "join"):
        os.kill(one, signal.SIGKILL)
    if way == "two":
        time.sleep(wait)
        os.kill(other, signal.SIGKILL)
    if way == "pause":
        os.kill(one, signal.SIGSTOP)
        threading.Timer(seconds, os.kill, (one, signal.SIGCONT)).start()
    if way == "memory":
        client.run(partial(fill, 0.85, seconds), workers=[address], on_error="ignore")


def options_of(shape: str) -> dict[str, Any]:
    """What is asked of a shape."""
    if shape in SCORES:
        return {"score": "score", "by": "country", "metrics": ["roc_auc", "average_precision"]}
    return {
        "score": "score",
        "cluster": "cluster",
        "classes": "campaign",
        "metrics": ["roc_auc", "aul", "homogeneity", "adjusted_rand_index"],
    }


def outcome(files: list[str], client: Any, options: dict[str, Any], expected: str) -> str:
    """What an evaluation on the cluster comes to; a process in which one hangs ends."""
    hung = threading.Timer(HANGS, lambda: (print("a run hangs", flush=True), os._exit(1)))
    hung.start()
    try:
        return "same bits" if evaluate(files, client=client, **options).to_json() == expected else "OTHER BITS"
    except Exception as error:  # whatever a user would see
        return f"{type(error).__name__}: {str(error)[:80]}"
    finally:
        hung.cancel()


def campaign(data: Path, rows: int, runs: int, ways: list[str], shapes: list[str], pause: float, seed: int) -> bool:
    """Disturb some runs; returns whether all had the bits of threads."""
    rng, odds = np.random.default_rng(seed), np.array([WAYS[way] for way in ways])
    inputs = {shape: make_shape(shape, data, rows, 4) for shape in shapes}
    expected = {shape: evaluate(inputs[shape], threads=2, **options_of(shape)).to_json() for shape in shapes}
    outcomes: Counter[tuple[str, str]] = Counter()
    while outcomes.total() < runs:
        shape, way = str(rng.choice(shapes)), str(rng.choice(ways, p=odds / odds.sum()))
        phase = str(rng.choice([*PHASES][: 4 if shape in SCORES else None]))
        count = 3 if way == "two" else 2  # on a busy machine, nannies may fail to start workers again in time
        with (
            dask.config.set({"distributed.comm.timeouts.connect": "10s"}),
            LocalCluster(
                n_workers=count, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=None, silence_logs=50
            ) as made,
            Client(made) as client,
        ):
            try:
                client.wait_for_workers(count, timeout=30)
            except TimeoutError:  # Dask has failed to start a worker, before anything is evaluated
                continue
            workers = sorted(client.run(os.getpid).items())
            victims = [workers[i] for i in rng.permutation(count)[:2]]
            moment = Moment(phase, rng, partial(disturb, way, made, client, victims, pause, rng.uniform(0, 1)))
            made.scheduler.add_plugin(moment, name="moment")
            found = outcome(inputs[shape], client, options_of(shape), expected[shape])
            made.scheduler.remove_plugin("moment")
            moment.timer.cancel()
        if moment.fired:
            outcomes[way, found] += 1
            print(f"{outcomes.total():4} {shape:9} {way:7} in {phase:9} {found}", flush=True)
    print(*(f"{way}: {count} × {found}" for (way, found), count in sorted(outcomes.items())), sep="\n")
    return all(found == "same bits" for _, found in outcomes)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--rows", type=int, default=100_000_000, help="at most 2,400,000 with --disturb")
    parser.add_argument("--files", type=int, default=20, help="read only this many of the 20 files")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="6GiB", help="of each worker")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="run only these cases, or ways to disturb")
    parser.add_argument("--fresh-memory", action="store_true", help="the C library's memory as Dask's workers have it")
    parser.add_argument("--disturb", type=int, metavar="RUNS", help="disturb the workers of so many runs instead")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), help="of the runs that are disturbed")
    parser.add_argument("--pause", type=float, default=5, help="seconds of a pause")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.disturb:
        logging.disable(logging.CRITICAL)
        fold.TASK_ROWS, engine.FOLDS_PER_GB = 1 << 17, 1 << 20  # so that few rows make many tasks
        engine.RANGE_BYTES, rounds.SLAB = 1 << 20, 1 << 17
        ways, rows = given.only or list(WAYS), min(given.rows, 2_400_000)
        sys.exit(not campaign(given.data, rows, given.disturb, ways, given.shapes, given.pause, given.seed))
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
