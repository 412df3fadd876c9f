"""A process that runs every verb and forks children that do the same; run by `test_forks.py`.

Usage: ``python forking.py FOLDER SCENARIO CHILDREN``; prints one line a child that failed or hung, and "ok" at the end.
"""

import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streameval
from streameval.errors import StreamevalError

PATIENCE = 60.0  # seconds for a child; one that waits for a lock would take for ever


def say(line: str) -> None:
    """Write a line to stdout."""
    os.write(1, f"{line}\n".encode())


def write(folder: Path) -> Path:
    """Three nights of scores, clusters, classes and slices."""
    rng = np.random.default_rng(1)
    for night in range(1, 4):
        n, out = 2_000, folder / "data" / f"night=2026-01-0{night}"
        out.mkdir(parents=True)
        label = rng.integers(0, 2, n)
        columns = {
            "label": label,
            "s": rng.random(n) + label,
            "id": rng.integers(0, 300, n),
            "c": rng.integers(0, 5, n),
        }
        pq.write_table(pa.table(columns), out / "part-0.parquet", row_group_size=500)
    return folder / "data"


def verbs(data: Path, spilling: Any, options: dict[str, Any]) -> dict[str, Callable[[Path], Any]]:
    """Every verb, as a function of an empty directory."""

    def accumulated(_: Path) -> float:
        before = spilling.result().value("roc_auc")  # what the parent had spilled
        for _night in range(3):
            spilling.update(pq.read_table(data / "night=2026-01-01/part-0.parquet"))
        return float(spilling.result().value("roc_auc")) + float(before)

    def stored(out: Path) -> list[float]:
        store = streameval.Store(out / "store", **options)
        store.update(data, score="s", cluster="id")
        store.replace(data / "night=2026-01-01")
        store.remove("night=2026-01-03")
        store.check("roc_auc >= 0")
        store.history("roc_auc")
        store.diagnose()
        store.vacuum(grace="0d")
        return [store.evaluate().value("roc_auc"), store.evaluate(since="2026-01-02").value("aul")]

    def evaluated(_: Path) -> list[float]:
        found = streameval.evaluate(data, score="s", cluster="id", by="c", **options)
        return [found.value("roc_auc"), found.value("aul"), found.value("roc_auc", slice={"c": 1})]

    return {
        "evaluate": evaluated,
        "attribute": lambda _: str(streameval.attribute(data, cluster="id", score="s", by="c", **options).to_dict()),
        "sketch": lambda _: streameval.quantile_sketch(data, "s", **options).quantile(0.5),
        "simulate": lambda out: streameval.simulate(out / "made", rows=3_000, partitions=3, threads=2).positives,
        "arrays": lambda _: streameval.roc_auc_score([0, 1, 1], [0.1, 0.2, 0.05]),
        "accumulator": accumulated,
        "store": stored,
    }


def run(known: dict[str, Callable[[Path], Any]], folder: Path, seed: int) -> dict[str, Any]:
    """The results of the verbs, which run in random order; those of the store with every fifth seed."""
    order = sorted(known if seed % 5 == 0 else known.keys() - {"store"})  # it takes as long as all others together
    random.Random(seed).shuffle(order)
    folder.mkdir()
    return {name: known[name](folder) for name in order}


def follow(children: dict[int, int]) -> None:
    """Wait for children; report those that fail or hang."""
    end = time.monotonic() + PATIENCE
    while children and time.monotonic() < end:
        for child in list(children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                number = children.pop(child)
                if status:
                    say(f"child {number} ends with {status}")
        time.sleep(0.01)
    for child, number in children.items():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        say(f"child {number} hangs")


def main(folder: Path, scenario: str, count: int) -> None:
    """Fork children while this process is idle, busy, or has a client."""
    spilling = streameval.Accumulator(score="s", cluster="id", memory="1KiB")
    data = write(folder)
    spilling.update(pq.read_table(data / "night=2026-01-02/part-0.parquet"))
    options: dict[str, Any] = {} if scenario == "client" else {"threads": 2}
    known = verbs(data, spilling, options)
    if scenario == "fresh":  # the first use of anything is in another thread, at the fork
        del known["accumulator"]
    expected = {} if scenario == "fresh" else run(known, folder / "parent", 0)
    stop = threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            number += 1_000
            run(
                {name: verb for name, verb in known.items() if name != "accumulator"}, folder / f"busy-{number}", number
            )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2 if scenario in ("busy", "fresh") else 0)]
    for thread in threads:
        thread.start()
    if scenario == "client":
        import distributed

        distributed.Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    if "accumulator" in known:
        expected["accumulator"] = None
    children = {}
    for number in range(count):
        time.sleep(random.Random(number).random() * 0.1 * bool(threads))
        child = os.fork()
        if child:
            children[child] = number
            continue
        os._exit(run_child(known, folder / f"child-{number}", number, expected, scenario))
    follow(children)
    stop.set()
    for thread in threads:
        thread.join()
    say("ok")
    os._exit(0)


def run_child(known: Any, folder: Path, number: int, expected: dict[str, Any], scenario: str) -> int:
    """Run all verbs in a child; the status is 0 if they have the values of the parent, or may refuse in one line."""
    began = time.monotonic()
    try:
        found = run(known, folder, number)
    except StreamevalError as error:
        say(f"child {number} refuses after {time.monotonic() - began:.1f} s: {error}")
        return 0 if scenario in ("client", "fresh") and "\n" not in str(error) else 1
    except BaseException as error:
        say(f"child {number}: {type(error).__name__}: {error}")
        return 1
    wrong = [name for name, value in found.items() if expected.get(name) not in (None, value)]
    if wrong:
        say(f"child {number} has other values: {wrong}")
    return len(wrong)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork beside threads
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
